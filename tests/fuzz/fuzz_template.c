/* Records of datasets with any bytes: what is found lies inside, and writing with nothing changed
 * gives the same bytes. */
#include "cluster/template.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct hole holes[TEMPLATE_HOLES_MAX];
    if (size > 1 << 16)
        return 0;
    struct template t;
    char csv = ",;\0"[size % 3];
    template_find(&t, (const char *)data, (uint32_t)size, csv, 1422748800000, "2", holes);
    uint32_t end = 0;
    for (int i = 0; i < t.n; i++) {
        if (holes[i].off < end || holes[i].off + holes[i].len > size)
            abort();
        end = holes[i].off + holes[i].len;
    }
    char *out = malloc(template_room(&t, 3) + 1);
    if (!out)
        abort();
    if (template_render(&t, 0, NULL, 0, out) != size || (size && memcmp(out, data, size) != 0))
        abort();
    if (template_render(&t, 1234567, "new", 3, out) > template_room(&t, 3))
        abort();
    free(out);
    return 0;
}

/* SenML and JSON records, one a line, through a decoder that predicts shapes and one that does not:
 * the same cells, the same errors. The first byte chooses the format. */
#include "tests/fuzz/cells.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one(struct decoder *fast, struct decoder *strict, bool senml, const char *text,
                uint32_t len) {
    struct arena a = { 0 };
    struct decode_rows x, y;
    struct decode_error ex = { 0 }, ey = { 0 };
    decode_rows_begin(&x, &a, &cells_schema, 2, senml);
    decode_rows_begin(&y, &a, &cells_schema, 2, senml);
    int rx = decode_record(fast, text, len, &x, 1, &ex);
    int ry = decode_record(strict, text, len, &y, 1, &ey);
    if (rx != ry)
        abort();
    if (rx == 0) {
        cells_equal(decode_rows_end(&x), 1, decode_rows_end(&y), 1);
        if (senml && x.time[1] != y.time[1])
            abort();
    } else if (strcmp(ex.code, ey.code) != 0 || strcmp(ex.text, ey.text) != 0 || ex.off != ey.off ||
               ex.off > len) {
        abort();
    }
    arena_free(&a);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 1 << 16)
        return 0;
    bool senml = data[0] & 1;
    enum decode_format f = senml ? DECODE_SENML : DECODE_JSON;
    struct decoder *fast = decoder_new(f, &cells_schema, NULL);
    struct decoder *strict = decoder_new(f, &cells_schema, NULL);
    decoder_strict(strict, true);
    for (const char *p = (const char *)data + 1, *end = (const char *)data + size; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        char *exact = malloc((size_t)(stop - p) + (stop == p));
        if (!exact)
            abort();
        memcpy(exact, p, (size_t)(stop - p));
        one(fast, strict, senml, exact, (uint32_t)(stop - p));
        free(exact);
        p = stop + 1;
    }
    decoder_free(fast);
    decoder_free(strict);
    return 0;
}

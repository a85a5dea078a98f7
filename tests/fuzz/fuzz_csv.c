/* CSV records: what is accepted and written again reads back the same. The first byte chooses the
 * delimiter and whether there is a header. */
#include "engine/encode.h"
#include "engine/log.h"
#include "tests/fuzz/cells.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(struct arena *a, const struct decode_rows *x) {
    static const struct field value = { .name = "value", .type = TYPE_BYTES };
    static const struct schema out = { .n = 1, .f = &value };
    struct decode_rows from = *x, y;
    struct decode_error e;
    uint32_t i = 0;
    const char *code;
    struct batch b = { .schema = &cells_schema, .cols = decode_rows_end(&from), .rows = 1, .n = 1 };
    struct encoder *enc = encoder_new(ENCODE_CSV, &cells_schema, -1, NULL, 0);
    struct decoder *dec = decoder_new(DECODE_CSV, &cells_schema, NULL);
    struct batch *r = encode_next(enc, a, &b, &i, &out, true, &code);
    if (!r || code)
        abort();
    decode_rows_begin(&y, a, &cells_schema, 1, false);
    if (decode_record(dec, r->cols[0].str[0].p, r->cols[0].str[0].len, &y, 0, &e) != 0)
        abort();
    cells_equal(b.cols, 0, decode_rows_end(&y), 0);
    decoder_free(dec);
    encoder_free(enc);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 1 << 16)
        return 0;
    struct decode_csv csv = { .delimiter = data[0] & 1 ? ';' : 0, .header = data[0] & 2 };
    struct decoder *d = decoder_new(DECODE_CSV, &cells_schema, &csv);
    struct arena a = { 0 };
    struct decode_rows x;
    struct decode_error e;
    decode_rows_begin(&x, &a, &cells_schema, 1, false);
    int rc = decode_record(d, (const char *)data + 1, (uint32_t)size - 1, &x, 0, &e);
    if (rc == 0)
        write_and_read(&a, &x);
    else if (rc < 0 && e.off > size - 1)
        abort();
    decoder_free(d);
    arena_free(&a);
    return 0;
}

/* The stages of an exchange by themselves: random rows of all types, packed into records and read
 * again where the byte behind the last record cannot be touched. */
#include "engine/exchange.h"
#include "engine/key.h"
#include "engine/log.h"
#include "engine/op.h"
#include "operators/all.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GROUPS = 5, ROWS = 200, TICKS = 40, RECORDS = 4096 };

static uint64_t seed, rng;
static uint32_t below(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 16) % n;
}

static const struct field fields[] = {
    { .name = "k", .type = TYPE_STR },   { .name = "b", .type = TYPE_BOOL },
    { .name = "i", .type = TYPE_I64 },   { .name = "f", .type = TYPE_F64 },
    { .name = "y", .type = TYPE_BYTES }, { .name = "v", .type = TYPE_VEC, .dim = 3 },
};
enum { FIELDS = sizeof fields / sizeof *fields };
static const struct schema schema = { .n = FIELDS, .f = fields };

/* Everything a row says, as text. */
static void row_text(struct sbuf *o, const struct batch *b, uint32_t r) {
    sbuf_printf(o, "%lld %lld", (long long)b->time[r], (long long)b->wm[r]);
    for (int f = 0; f < FIELDS; f++) {
        const struct column *c = &b->cols[f];
        if (column_null(c, r)) {
            sbuf_adds(o, " null");
            continue;
        }
        switch (fields[f].type) {
        case TYPE_STR:
        case TYPE_BYTES:
            sbuf_printf(o, " %u:", c->str[r].len);
            sbuf_add(o, c->str[r].p, c->str[r].len);
            break;
        case TYPE_BOOL:
            sbuf_printf(o, " %d", c->b[r]);
            break;
        case TYPE_VEC:
            for (int i = 0; i < 3; i++)
                sbuf_printf(o, " %a", (double)c->vec[r * 3 + (uint32_t)i]);
            break;
        default:
            sbuf_printf(o, " %llx", (unsigned long long)c->i64[r]);
        }
    }
    sbuf_adds(o, "\n");
}

static struct batch *random_batch(struct arena *a, int64_t clock) {
    uint32_t n = below(ROWS);
    struct column *cols = arena_zalloc(a, sizeof *cols * FIELDS);
    struct batch *b = ARENA_NEW(a, struct batch);
    int64_t *time = ARENA_ARRAY(a, int64_t, ROWS), *wm = ARENA_ARRAY(a, int64_t, ROWS);
    for (int f = 0; f < FIELDS; f++) {
        char *p = arena_zalloc(a, 16 * ROWS);
        cols[f].p = p;
        if (below(2))
            cols[f].nulls = batch_nulls(a, ROWS);
        for (uint32_t r = 0; r < n; r++) {
            struct span s = { .len = below(9) };
            char *text = arena_alloc(a, 9);
            for (uint32_t i = 0; i < s.len; i++)
                text[i] = (char)('a' + below(26));
            s.p = text;
            if (fields[f].type == TYPE_STR || fields[f].type == TYPE_BYTES)
                memcpy(p + 16 * r, &s, 16);
            else if (fields[f].type == TYPE_BOOL)
                p[r] = (char)below(2);
            else if (fields[f].type == TYPE_VEC)
                for (uint32_t i = 0; i < 3; i++)
                    ((float *)(void *)p)[3 * r + i] = (float)below(100) / 8;
            else
                ((int64_t *)(void *)p)[r] = below(1000);
            if (cols[f].nulls && below(4) == 0)
                bit_set((uint64_t *)cols[f].nulls, r);
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        time[r] = clock + below(100);
        wm[r] = clock - below(100);
    }
    *b = (struct batch){
        .schema = &schema, .cols = cols, .rows = n, .n = n, .time = time, .wm = wm
    };
    return b;
}

/* ---- a host that keeps what is emitted ---- */

static struct sbuf record[RECORDS];
static int64_t group_of[RECORDS];
static uint32_t nrecords;
static struct sbuf read_back;
static const struct batch *last;
static struct undo *undo;
static struct state *tables[4];
static int ntables;

static void emit(struct op_ctx *c, int port, const struct batch *b) {
    (void)port;
    if (strcmp(c->desc->name, "exchange_read") == 0) {
        for (uint32_t i = 0; i < b->n; i++)
            row_text(&read_back, b, i);
        last = b;
        return;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        assert_true(nrecords < RECORDS);
        sbuf_add(&record[nrecords], b->cols[0].str[i].p, b->cols[0].str[i].len);
        group_of[nrecords++] = b->cols[1].i64[i];
    }
}

static struct state *state(struct op_ctx *c, int table, uint32_t vsize) {
    (void)c;
    return tables[ntables++] = state_new(undo, 1, table, vsize);
}
static const struct op_host host = { .emit = emit, .state = state };

/* Where the byte behind `len` bytes is not ours. */
static char *at_the_edge(char *base, size_t room, const char *p, size_t len) {
    return memcpy(base + room - len, p, len);
}

static void test_round_trip(void **unused) {
    (void)unused;
    const struct op_desc *write = ops_find("exchange"), *read = ops_find("exchange_read");
    static const struct exchange_config conf = { GROUPS, 2, -1 };
    static const struct schema *const in[] = { &schema }, *const out[] = { &schema, &schema };
    static const int by[] = { 0 };
    struct arena a = { 0 };
    struct err e = ERR_INIT;
    struct op_counts counts = { 0 }, read_counts = { 0 };
    struct sbuf want[GROUPS] = { 0 };
    undo = undo_new();
    struct op_ctx w = { .desc = write,
                        .config = &conf,
                        .nin = 1,
                        .nout = 2,
                        .in = in,
                        .out = out,
                        .nby = 1,
                        .by = by,
                        .arena = &a,
                        .count = &counts,
                        .host = &host };
    void *self = calloc(1, write->self_size);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 64 * page;
    char *edge =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(edge != MAP_FAILED && mprotect(edge + room, page, PROT_NONE) == 0);
    assert_int_equal(write->open(self, &w, &e), 0);
    int64_t clock = 1000, told[2] = { TIME_MIN, TIME_MIN };
    for (int t = 0; t < TICKS; t++) {
        uint32_t producer = below(2), before = nrecords;
        clock += below(3) ? 50 : 0;
        struct batch *b = random_batch(&a, clock);
        struct span *key = ARENA_ARRAY(&a, struct span, ROWS);
        uint64_t *hash = ARENA_ARRAY(&a, uint64_t, ROWS);
        struct origin o = { .partition = producer, .n = 1, .wm = &clock };
        w.origin = b->origin = &o;
        key_batch(&a, b, by, 1, key, hash);
        for (uint32_t i = 0; i < b->n; i++)
            row_text(&want[key_partition(key[i], GROUPS)], b, i);
        if (b->n)
            write->process(self, &w, 0, b);
        write->end(self, &w);
        /* Whoever heard nothing else hears of the new watermark. */
        bool groups[GROUPS] = { 0 };
        for (uint32_t r = before; r < nrecords; r++)
            groups[group_of[r]] = true;
        int heard = 0;
        for (int g = 0; g < GROUPS; g++)
            heard += groups[g];
        if (clock > told[0] && clock > told[1])
            assert_int_equal(heard, GROUPS);
        told[producer] = clock;
    }
    for (int g = 0; g < GROUPS; g++) {
        struct op_ctx c = { .desc = read,
                            .config = &conf,
                            .nin = 1,
                            .nout = 1,
                            .in = in,
                            .out = in,
                            .arena = &a,
                            .count = &read_counts,
                            .host = &host };
        void *reader = calloc(1, read->self_size);
        assert_int_equal(read->open(reader, &c, &e), 0);
        int64_t off = 0, wm = TIME_MIN;
        read_back.len = 0;
        for (uint32_t r = 0; r < nrecords;) {
            uint32_t ends[3], n = 0, most = 1 + below(3);
            struct sbuf bytes = { 0 };
            for (; r < nrecords && n < most; r++)
                if (group_of[r] == g) {
                    sbuf_add(&bytes, record[r].p, record[r].len);
                    ends[n++] = (uint32_t)bytes.len;
                }
            if (n == 0)
                break;
            struct log_rows rows = { .n = n,
                                     .value_end = ends,
                                     .values = at_the_edge(edge, room, bytes.p, bytes.len) };
            struct origin o = { .n = n, .off0 = off };
            last = NULL;
            read->records(reader, &c, &rows, off, &o);
            for (uint32_t k = 0; k < n; k++) {
                assert_true(o.wm[k] >= wm);
                wm = o.wm[k];
            }
            for (uint32_t i = 0; last && i < last->n; i++)
                assert_true(batch_off(last, i) >= off && batch_off(last, i) < off + n);
            off += n;
            sbuf_free(&bytes);
        }
        assert_int_equal(read_back.len, want[g].len);
        if (want[g].len)
            assert_memory_equal(read_back.p, want[g].p, want[g].len);
        assert_true(wm <= clock);
        read->close(reader);
        free(reader);
        while (ntables > 0)
            state_free(tables[--ntables]);
        sbuf_free(&want[g]);
    }
    write->close(self);
    free(self);
    for (uint32_t r = 0; r < nrecords; r++)
        sbuf_free(&record[r]);
    nrecords = 0;
    undo_free(undo);
    munmap(edge, room + page);
    arena_free(&a);
}

/* Values computed with org.apache.kafka.common.utils.Utils.murmur2, masked as its partitioner does.
 */
static void test_murmur2(void **unused) {
    (void)unused;
    static const struct {
        const char *key;
        int32_t hash;
    } known[] = { { "21", -973932308 },
                  { "foobar", -790332482 },
                  { "a-little-bit-long-string", -985981536 },
                  { "a-little-bit-longer-string", -1486304829 },
                  { "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct span s = { .p = known[i].key, .len = (uint32_t)strlen(known[i].key) };
        assert_int_equal(key_partition(s, 4096), ((uint32_t)known[i].hash & 0x7fffffff) % 4096);
    }
}

int main(void) {
    operators_init();
    seed = getenv("BRAID_SEED") ? strtoull(getenv("BRAID_SEED"), NULL, 0) : 20261201;
    rng = seed | 1;
    printf("BRAID_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_murmur2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

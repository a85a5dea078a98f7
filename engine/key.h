/* Canonical grouping keys: bytes equal iff the key fields are equal (null is a value of its own),
 * and comparable, so that rows fired together come out in one order everywhere. A single string
 * field is its own bytes, without a copy. */
#ifndef BRAID_KEY_H
#define BRAID_KEY_H
#include "engine/batch.h"

/* Fills key[i] and hash[i] (XXH3) for i in 0..b->n-1, the batch's rows in order, from fields
 * by[0..nby). nby 0: the empty key. Memory (if any) from `a`. Hashes of a string column are cached
 * in the column, so that a second reader in the tick does not hash again. ~8 ns a row. */
void key_batch(struct arena *a, const struct batch *b, const int *by, int nby, struct span *key,
               uint64_t *hash);
/* Fills one column per key field from a canonical key (for rows fired later, when no row is at
 * hand). `row` of each column's writable arrays; strings point into the key bytes
 * (or into `a` when they hold NULs). */
struct key_value {
    bool null;
    int64_t i64;
    double f64;
    bool b;
    struct span str;
};
/* Returns 0, or -1 when the bytes are no key of these fields. */
int key_decode(struct arena *a, const struct schema *s, const int *by, int nby, const void *key,
               uint32_t klen, struct key_value *v);
/* No less than the length of the key of physical row `row`. */
size_t key_bound(const struct batch *b, const int *by, int nby, uint32_t row);
/* The partition of a key: MurmurHash2 as Kafka's default partitioner computes it
 * (org.apache.kafka.common.utils.Utils, seed 0x9747b28c), so that rows lie as a Kafka producer with
 * the same record key would lay them. */
uint32_t key_partition(struct span key, uint32_t partitions);
/* Bytewise, then by length. */
int key_compare(struct span a, struct span b);
#endif

/* Field names and types of a stream, fixed at submit. Immutable; lives in the arena of whoever
 * made it (the planner's task, a test) and outlives every batch that points to it. */
#ifndef BRAID_SCHEMA_H
#define BRAID_SCHEMA_H
#include "engine/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum type { TYPE_BOOL, TYPE_I64, TYPE_F64, TYPE_STR, TYPE_BYTES, TYPE_VEC, TYPE_COUNT };
enum { SCHEMA_FIELDS_MAX = 1024 };

struct field {
    const char *name;
    enum type type;
    uint32_t dim; /* TYPE_VEC: number of float32; else 0 */
};
struct schema {
    int n;
    const struct field *f;
};

extern const char *const type_names[TYPE_COUNT]; /* "bool" "i64" "f64" "string" "bytes" "vec" */
/* TYPE_COUNT when the word is no type; "vec<8>" sets *dim. */
enum type type_parse(const char *word, uint32_t *dim);

/* The field's index, or -1. Linear: schemas are small and this is for submit time only. */
int schema_find(const struct schema *s, const char *name);
/* The nearest field name for a "did you mean", or NULL. */
const char *schema_nearest(const struct schema *s, const char *name);
bool schema_equal(const struct schema *a, const struct schema *b);
/* A new schema in `a` with room for n fields, all zero; fill `f` through the returned pointer. */
struct schema *schema_new(struct arena *a, int n, struct field **f);
struct schema *schema_copy(struct arena *a, const struct schema *s);
/* "{temperature: f64, source: string}" for messages. */
const char *schema_text(struct arena *a, const struct schema *s);
#endif

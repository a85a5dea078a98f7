/* Shapes of records: the literal text between values, learned from records that the strict reader
 * has decoded. Inside of decode.h. */
#ifndef BRAID_DECODE_SHAPE_H
#define BRAID_DECODE_SHAPE_H
#include "engine/decode.h"

enum { SHAPES = 4, SHAPE_SLOTS_MAX = 512, SHAPE_TEXT_MAX = 32768, SHAPE_BACKOFF_MAX = 256 };
enum { TARGET_IGNORED = -1, TARGET_TIME = -2 };

/* What the strict reader notes about a value: where its text is and where it went. */
struct shape_note {
    uint32_t off, len; /* strings: without quotes */
    uint8_t type;      /* enum jtype: J_STR, J_INT, J_REAL, J_BOOL */
    int16_t target;    /* field, or TARGET_ */
};
struct shape_slot {
    uint32_t frag, frag_len; /* the literal text before the value */
    uint8_t op;
    int16_t field;
};
struct shape {
    uint64_t hits;
    char *text; /* all fragments */
    struct shape_slot *slot;
    int n;
    uint32_t tail, tail_len;
    int16_t time_field; /* receives the record's time too; -1: none */
    int16_t *null;      /* fields that such a record does not have */
    int nnull;
};
struct shapes {
    struct shape *v[SHAPES]; /* most recently used first */
    int n;
    uint64_t hits;
    uint32_t backoff, wait; /* strict records until the next one is learned */
    struct shape_note note[SHAPE_SLOTS_MAX];
    int nnotes; /* -1: too many, do not learn */
};

/* Decodes by the first shape that fits; false: none does, nothing is decided. */
bool shapes_decode(struct shapes *s, const char *text, uint32_t len, struct decode_rows *o,
                   uint32_t row);
void shape_note(struct shapes *s, uint8_t type, uint32_t off, uint32_t len, int target);
/* After the strict reader decoded a record with these notes; null[0..nnull) are the fields it
 * lacked. Learns it now or, when shapes change all the time, every now and then. */
void shapes_learn(struct shapes *s, const char *text, uint32_t len, const struct schema *schema,
                  int time_field, const int16_t *null, int nnull);
void shapes_free(struct shapes *s);
#endif

/* Rows that were wanted against rows that came: which are missing, which are too many. For
 * `braid test`.
 *
 * A wanted row that is a string is the bytes of a record; any other JSON value is compared with the
 * record read as JSON: keys in any order, 1 equals 1.0. In order the difference is a longest common
 * subsequence (beginnings and ends alike are set aside first); when what is left is larger than
 * ROWDIFF_CELLS, row by row. In any order it is a largest matching (augmenting paths, as in Berge,
 * "Two theorems in graph theory", 1957), because with `subset` or a tolerance a row that came may
 * serve for several. One thread; memory from an arena. */
#ifndef BRAID_ROWDIFF_H
#define BRAID_ROWDIFF_H
#include "engine/json.h"

enum { ROWDIFF_CELLS = 4 << 20, ROWDIFF_ROWS_MAX = 10000 /* wanted, in a list */ };

struct rowdiff_rules {
    bool any_order;   /* else in the order of the list */
    bool subset;      /* objects may have more members than are wanted */
    double tolerance; /* by which numbers may differ */
};
struct rowdiff_row { /* that came: a record, and what it is as JSON (NULL: it is none) */
    const char *text;
    size_t len;
    const struct jnode *json;
};
enum rowdiff_sign { ROWDIFF_SAME, ROWDIFF_MISSING, ROWDIFF_EXTRA };
struct rowdiff_line {
    enum rowdiff_sign sign;
    uint32_t index;   /* into the wanted (SAME, MISSING) or the rows that came (EXTRA) */
    const char *text; /* canonical JSON, or the bytes */
    const char *note; /* of an EXTRA that stands for the MISSING before it: where they differ; or
                         NULL */
};
/* Fills *lines with at most all of both; returns how many are not SAME. */
int rowdiff(const struct jnode *want, uint32_t nwant, const struct rowdiff_row *got, uint32_t ngot,
            const struct rowdiff_rules *rules, struct arena *a, struct rowdiff_line **lines,
            uint32_t *nlines);
/* Whether a value fits what is wanted. */
bool rowdiff_fits(const struct jnode *want, const struct jnode *got,
                  const struct rowdiff_rules *rules);
#endif

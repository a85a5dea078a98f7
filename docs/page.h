/* What the generators of docs pages share: cells of tables, the table of an operator's parameters,
 * and writing or checking the page. */
#ifndef BRAID_DOCS_PAGE_H
#define BRAID_DOCS_PAGE_H
#include "engine/json.h"
#include "engine/op.h"

/* Text of a table's cell: '|' is escaped, a line break becomes a space. */
void page_cell(struct sbuf *b, const char *s);
/* A table of the parameters, or a sentence that there are none. */
void page_params(struct sbuf *b, const struct op_desc *d);
/* Writes the page, or with `check` only says whether the file is the same. 0 or 1 (with a message):
 * what main returns. */
int page_end(const char *path, struct sbuf *b, bool check);
#endif

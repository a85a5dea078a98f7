/* The list of operators of this build. A new operator is one file here and one line in all.def. */
#ifndef BRAID_OPERATORS_ALL_H
#define BRAID_OPERATORS_ALL_H

/* Fills the registry (ops_init) with every operator in all.def. Call once, at start, before any
 * other thread runs. */
void operators_init(void);
#endif

/* Identity of stages. The signature is XXH3-128 over a canonical text (the blob): operator and
 * semantics version, canonical semantic config, tenant, and for every link its in-port, grouping,
 * the parent's out-port and the parent's signature. Ids, labels, attach and physical parameters are
 * not part of it. Links into one in-port are sorted (they are a multiset); so are all links of an
 * operator with OP_UNORDERED_INPUTS.
 * Source of the idea: hash-consing (Filliatre and Conchon, "Type-safe modular hash-consing", 2006)
 * applied to the ancestor equivalence of Chaturvedi et al. (eScience 2017). */
#ifndef BRAID_CANON_H
#define BRAID_CANON_H
#include "planner/spec.h"

/* Sorts stage i's links, numbers its in-ports, and sets sig, blob, attach and topics. The parents'
 * are set already. `scratch` is emptied. */
void canon_links(struct spec *s, int i, struct arena *a);
void canon_sign(struct spec *s, int i, struct arena *a, struct sbuf *scratch);
/* Whether links k-1 and k differ in nothing but, perhaps, which instances feed them. */
bool canon_tie(const struct spec *s, const struct spec_stage *st, int k);
/* 32 hex digits and a NUL. */
void sig_text(struct sig sig, char out[33]);
/* 0 or -1. */
int sig_parse(const char *text, struct sig *sig);
#endif

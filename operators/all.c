#include "operators/all.h"
#include "engine/op.h"

#define OPERATOR(name) extern const struct op_desc op_##name;
#include "operators/all.def"
#undef OPERATOR

#define OPERATOR(name) &op_##name,
static const struct op_desc *const list[] = {
#include "operators/all.def"
    NULL
};
#undef OPERATOR

void operators_init(void) {
    ops_init(list, (int)(sizeof list / sizeof *list) - 1);
}

/* Stages that regroup the rows of several partitions (planner/lower.c puts them before a task that
 * needs it): exchange -> exchange_append writes them as columnar records to an internal topic with
 * one partition a key group, exchange -> exchange_read reads them there. The executor makes, reads
 * and removes the topic; its name is that of the exchange's instance. */
#ifndef BRAID_OPERATORS_EXCHANGE_H
#define BRAID_OPERATORS_EXCHANGE_H
#include "engine/op.h"

/* Key groups of an exchange. Fixed: state lies by group. */
enum { EXCHANGE_GROUPS = 16 };
struct exchange_config { /* of all three stages */
    int64_t groups;    /* partitions of the topic; 1: everything comes together */
    int64_t producers; /* partitions that feed it */
};
#endif

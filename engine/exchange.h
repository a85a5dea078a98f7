/* Stages that regroup the rows of several partitions (operators/exchange.c; planner/lower.c puts
 * them before a task that needs it): exchange -> exchange_append writes them as columnar records to
 * an internal topic with one partition a key group, exchange -> exchange_read reads them there. The
 * executor makes, trims and removes the topic; its name is that of the exchange's instance. */
#ifndef BRAID_EXCHANGE_H
#define BRAID_EXCHANGE_H
#include <stdint.h>

struct exchange_config { /* of all three stages */
    int64_t groups;      /* partitions of the topic; 1: everything comes together */
    int64_t producers;   /* partitions that feed it */
    int64_t producer;    /* exchange_read: rows of this one only; -1: of all */
};
#endif

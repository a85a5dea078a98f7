/* A small set of operators for planner tests: they only plan, they never run.
 *
 *   src      source; topic, start (attach: latest|earliest|offset), seed; fields {a,b,s}; has time
 *   face     source lowered to f_read -> f_parse -> f_time; topic, start, lateness
 *   raw      source lowered to f_read alone; no event time
 *   parse    lowered below `raw` to f_parse -> f_time
 *   map      stateless; x, y, label, threads (physical)
 *   pick     stateless; field must exist and be a number; passes {field, s}
 *   agg      keyed, memory unbounded; n
 *   win      keyed, memory bounded, needs event time; every
 *   pair     in-ports left and right, memory bounded; n
 *   sum2     in-ports a and b, interchangeable; n
 *   split    out-ports yes and no; n
 *   any      any ports; label, params
 *   dice     not deterministic; n
 *   mail     sink with external effect; to
 *   out      sink; topic, append
 */
#ifndef BRAID_TEST_PLAN_OPS_H
#define BRAID_TEST_PLAN_OPS_H

/* Fills the registry with them. */
void plan_ops_init(void);
#endif

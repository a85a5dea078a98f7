/* Health, version, operators, files, dead letters, workers, metrics. */
#include "cluster/cmd.h"
#include "cluster/http_impl.h"
#include "cluster/openapi.h"
#include "cluster/text.h"
#include "cluster/view.h"
#include <string.h>
#include <unistd.h>

enum { DLQ_DEFAULT = 100 };

int http_health(struct request *r) {
    sbuf_adds(&r->out, "{\"status\":\"ok\"}");
    return 200;
}

int http_ready(struct request *r) {
    struct executor_health h;
    executor_health(coord_executor(r->coord), &h);
    if (!h.failed)
        return http_health(r);
    http_error(r, &h.err);
    return 503; /* not ready, whatever the reason */
}

int http_version(struct request *r) {
    struct coord_conf conf;
    coord_conf(r->coord, &conf);
    sbuf_printf(&r->out,
                "{\"version\":\"" BRAID_VERSION "\",\"api\":1,\"pid\":%d,\"dir\":", (int)getpid());
    text_json(&r->out, conf.dir);
    sbuf_printf(&r->out, ",\"durability\":\"%s\",\"log\":\"local\"}",
                conf.durability == LOG_POWER ? "power" : "process");
    return 200;
}

int http_openapi(struct request *r) {
    /* cppcheck-suppress comparePointers; the linker puts both around one text */
    sbuf_add(&r->out, openapi_json, (size_t)(openapi_json_end - openapi_json));
    return 200;
}

int http_operators(struct request *r) {
    int n = 0;
    sbuf_adds(&r->out, "{\"operators\":[");
    for (int i = 0; i < ops_count; i++) {
        if (ops_all[i]->flags & OP_INNER)
            continue;
        sbuf_adds(&r->out, n++ ? "," : "");
        operator_json(&r->out, ops_all[i]);
    }
    sbuf_adds(&r->out, "]}");
    return 200;
}

int http_operator(struct request *r) {
    const struct op_desc *d = ops_find(r->param[0]);
    if (d && !(d->flags & OP_INNER)) {
        operator_json(&r->out, d);
        return 200;
    }
    struct err e;
    const char *near = strlen(r->param[0]) < 64 ? ops_nearest(r->param[0]) : NULL;
    err_set(&e, ERR_NOTFOUND, "there is no operator '%.60s'%s%s%s", r->param[0],
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return http_error(r, &e);
}

int http_dlq(struct request *r) {
    struct err e = ERR_INIT;
    int64_t max;
    bool all;
    int rc = http_arg_int(r, "max", DLQ_DEFAULT, 1, COORD_LETTERS_MAX, &max, &e);
    if (rc == 0)
        rc = http_arg_bool(r, "all", &all, &e);
    if (rc == 0)
        rc = view_dlq(r->coord, http_arg(r, "dataflow"), max, all, &r->out, &e);
    return rc < 0 ? http_error(r, &e) : 200;
}

int http_workers(struct request *r) {
    view_workers(r->coord, &r->out);
    return 200;
}

int http_metrics(struct request *r) {
    view_metrics(r->coord, &r->out);
    r->type = "text/plain; version=0.0.4; charset=utf-8";
    return 200;
}

/* ---- files ---- */

int http_file_put(struct request *r) {
    struct err e = ERR_INIT;
    bool created;
    int rc = filestore_put(coord_files(r->coord), r->param[0], r->body.p ? r->body.p : "",
                           r->body.len, &created, &e);
    if (rc < 0)
        return http_error(r, &e);
    sbuf_printf(&r->out, "{\"hash\":\"%s\",\"bytes\":%zu}", r->param[0], r->body.len);
    return created ? 201 : 200;
}

int http_file_head(struct request *r) {
    struct err e = ERR_INIT;
    const char *hash = r->param[0];
    if (!filestore_hash_valid(hash))
        err_set(&e, ERR_INPUT, "'%.40s' is no hash: it has 32 lower-case hex digits", hash);
    else if (filestore_size(coord_files(r->coord), hash) < 0)
        err_set(&e, ERR_NOTFOUND, "no file with the hash %s was uploaded", hash);
    return e.code ? http_error(r, &e) : 200;
}

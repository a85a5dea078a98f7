#include "cluster/flowfile.h"
#include "cluster/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int flowfile_load(struct flowfile *f, const char *name, struct arena *a, struct err *e) {
    *f = (struct flowfile){ .arena = a, .name = name };
    f->vars = ARENA_ARRAY(a, struct flowvar, FLOWFILE_VARS_MAX);
    return cli_read_file(name, SPEC_TEXT_MAX, a, &f->text, &f->len, e);
}

static void file_hash(struct file *f) {
    XXH128_hash_t h = XXH3_128bits(f->data, f->len);
    snprintf(f->hash, sizeof f->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

static int resolve(void *user, const char *name, struct file *out, struct err *e) {
    struct flowfile *f = user;
    for (int i = 0; i < f->nfiles; i++)
        if (strcmp(f->files[i].name, name) == 0) {
            *out = f->files[i];
            return 0;
        }
    const char *slash = strrchr(f->name, '/');
    const char *path =
        name[0] == '/' || !slash
            ? name
            : arena_printf(f->arena, "%.*s/%s", (int)(slash - f->name), f->name, name);
    char *data;
    int rc = cli_read_file(path, FLOWFILE_FILE_MAX, f->arena, &data, &out->len, e);
    if (rc < 0)
        return rc;
    out->name = arena_strdup(f->arena, name);
    out->data = data;
    file_hash(out);
    if ((f->nfiles & (f->nfiles - 1)) == 0) {
        struct file *v = ARENA_ARRAY(f->arena, struct file, f->nfiles ? f->nfiles * 2 : 1);
        if (f->nfiles)
            memcpy(v, f->files, (size_t)f->nfiles * sizeof *v);
        f->files = v;
    }
    f->files[f->nfiles++] = *out;
    return 0;
}

/* secrets/NAME in the directory a server would use, without the line end. */
static const char *secret_text(struct flowfile *f, const char *name) {
    const char *dir = getenv("BRAID_DIR");
    char *data;
    size_t len;
    const char *path = arena_printf(f->arena, "%s/secrets/%s", dir ? dir : "braid-data", name);
    if (cli_read_file(path, 64 << 10, f->arena, &data, &len, NULL) < 0)
        return NULL;
    if (len > 0 && data[len - 1] == '\n')
        data[len - 1] = '\0';
    return data;
}

static const char *variable(void *user, const char *name, bool secret) {
    struct flowfile *f = user;
    if (secret) /* "0" is right for every parameter that a secret may stand in */
        return f->remote ? "0" : secret_text(f, name);
    const char *value = NULL;
    for (int i = 0; i < f->ngiven && !value; i++)
        value = strcmp(f->given[i].name, name) == 0 ? f->given[i].value : NULL;
    if (!value)
        value = getenv(name);
    for (int i = 0; i < f->nvars; i++)
        if (strcmp(f->vars[i].name, name) == 0)
            return value;
    if (f->nvars < FLOWFILE_VARS_MAX && value)
        f->vars[f->nvars++] = (struct flowvar){ arena_strdup(f->arena, name), value };
    return value;
}

int flowfile_parse(struct flowfile *f, struct errs *es, struct errs *warn) {
    struct spec_env env = { .user = f, .var = variable, .file = resolve };
    const char *shown = strcmp(f->name, "-") == 0 ? "stdin" : f->name;
    return spec_parse(&f->spec, shown, f->text, f->len, &env, f->arena, es, warn);
}

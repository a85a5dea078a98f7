#include "cluster/flowfile.h"
#include "cluster/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int flowfile_load(struct flowfile *f, const char *name, struct arena *a, struct err *e) {
    *f = (struct flowfile){ .arena = a, .name = name };
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
    if (rc < 0) {
        f->missing++;
        return rc;
    }
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

static const char *variable(void *user, const char *name, bool secret) {
    struct flowfile *f = user;
    return getenv(secret ? arena_printf(f->arena, "BRAID_SECRET_%s", name) : name);
}

int flowfile_parse(struct flowfile *f, struct errs *es, struct errs *warn) {
    struct spec_env env = { .user = f, .var = variable, .file = resolve };
    const char *shown = strcmp(f->name, "-") == 0 ? "stdin" : f->name;
    return spec_parse(&f->spec, shown, f->text, f->len, &env, f->arena, es, warn);
}

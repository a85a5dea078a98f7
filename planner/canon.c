#include "planner/canon.h"
#include "engine/mutate.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What a link means, without its in-port. */
static int compare_stream(const struct spec *s, const struct stage_in *a,
                          const struct stage_in *b) {
    const struct spec_stage *pa = &s->stages[a->from], *pb = &s->stages[b->from];
    int c = strcmp(pa->out_name[a->out_port], pb->out_name[b->out_port]);
    if (c)
        return c;
    if (a->grouping != b->grouping)
        return a->grouping < b->grouping ? -1 : 1;
    if (a->per_partition != b->per_partition)
        return a->per_partition ? 1 : -1;
    if (a->nby != b->nby)
        return a->nby < b->nby ? -1 : 1;
    for (int k = 0; k < a->nby; k++)
        if ((c = strcmp(a->by[k], b->by[k])))
            return c;
    if (pa->sig.hi != pb->sig.hi)
        return pa->sig.hi < pb->sig.hi ? -1 : 1;
    if (pa->sig.lo != pb->sig.lo)
        return pa->sig.lo < pb->sig.lo ? -1 : 1;
    return 0;
}

/* Merge sort, bottom up, stable: equal links keep the user's order. Links are at most
 * SPEC_LINKS_MAX, mostly one or two. */
static void sort_links(const struct spec *s, struct stage_in *v, int n, bool ports,
                       struct arena *a) {
    if (n < 2)
        return;
    struct stage_in *from = v, *to = ARENA_ARRAY(a, struct stage_in, n);
    for (int w = 1; w < n; w *= 2) {
        for (int lo = 0; lo < n; lo += 2 * w) {
            int mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n;
            for (int i = lo, j = mid, k = lo; k < hi; k++) {
                bool left = i < mid;
                if (left && j < hi) {
                    int c = ports ? from[i].in_port - from[j].in_port : 0;
                    left = (c ? c : compare_stream(s, &from[i], &from[j])) <= 0;
                }
                to[k] = left ? from[i++] : from[j++];
            }
        }
        struct stage_in *x = from;
        from = to;
        to = x;
    }
    if (from != v)
        memcpy(v, from, sizeof *v * (size_t)n);
}

/* Commutative: one link a port, ports interchangeable. */
static bool interchangeable(const struct spec_stage *st) {
    if (!(st->op->flags & OP_UNORDERED_INPUTS) || st->nlinks != st->nin)
        return false;
    uint64_t seen = 0;
    for (int k = 0; k < st->nlinks; k++)
        seen |= (uint64_t)1 << st->links[k].in_port;
    return seen == (st->nin == 64 ? UINT64_MAX : ((uint64_t)1 << st->nin) - 1);
}

void canon_links(struct spec *s, int i, struct arena *a) {
    struct spec_stage *st = &s->stages[i];
    bool free_ports = interchangeable(st);
    sort_links(s, st->links, st->nlinks, !free_ports, a);
    for (int k = 0; free_ports && k < st->nlinks; k++)
        st->links[k].in_port = k;
}

bool canon_tie(const struct spec *s, const struct spec_stage *st, int k) {
    const struct stage_in *a = &st->links[k - 1], *b = &st->links[k];
    return compare_stream(s, a, b) == 0 && (a->in_port == b->in_port || interchangeable(st));
}

static void add_word(struct sbuf *b, const char *s) {
    sbuf_add(b, s, strlen(s) + 1);
}

/* Attach parameters that were given another value than the default. */
static const char *attach_text(const struct spec_stage *st, struct arena *a) {
    bool any = false;
    for (const struct param *p = st->op->params; p && p->name; p++)
        any |= p->class == PARAM_ATTACH;
    if (!any)
        return NULL;
    struct sbuf mine = { 0 }, theirs = { 0 };
    void *plain = arena_zalloc(a, st->op->config_size);
    params_defaults(st->op, plain, a);
    params_class(st->op, st->config, PARAM_ATTACH, &mine);
    params_class(st->op, plain, PARAM_ATTACH, &theirs);
    bool same = mine.len == theirs.len && memcmp(mine.p, theirs.p, mine.len) == 0;
    const char *text = same ? NULL : arena_strndup(a, mine.p, mine.len);
    sbuf_free(&mine);
    sbuf_free(&theirs);
    return text;
}

void canon_sign(struct spec *s, int i, struct arena *a, struct sbuf *b) {
    struct spec_stage *st = &s->stages[i];
    b->len = 0;
    add_word(b, st->op->name);
    sbuf_add(b, &st->op->semantics, sizeof st->op->semantics);
    add_word(b, s->tenant);
    st->config_off = (uint32_t)b->len;
    if (MUTATED(MUTATE_SIGNATURE))
        sbuf_adds(b, "{}");
    else
        params_canonical(st->op, st->config, false, b);
    if (st->state) { /* as one more parameter */
        b->len--;
        sbuf_adds(b, b->p[b->len - 1] == '{' ? "\"state\":" : ",\"state\":");
        params_canonical(&spec_state, st->state, false, b);
        sbuf_adds(b, "}");
    }
    st->config_len = (uint32_t)b->len - st->config_off;
    sbuf_add(b, "", 1);
    bool ports = !interchangeable(st);
    for (int k = 0; k < st->nlinks; k++) {
        const struct stage_in *in = &st->links[k];
        const struct spec_stage *from = &s->stages[in->from];
        uint8_t shape[2] = { (uint8_t)(in->grouping | (in->per_partition ? 0x80 : 0)),
                             (uint8_t)in->nby };
        add_word(b, ports ? st->in_name[in->in_port] : "");
        add_word(b, from->out_name[in->out_port]);
        sbuf_add(b, shape, sizeof shape);
        for (int j = 0; j < in->nby; j++)
            add_word(b, in->by[j]);
        sbuf_add(b, &from->sig, sizeof from->sig);
    }
    XXH128_hash_t h = XXH3_128bits(b->p, b->len);
    st->sig = (struct sig){ h.high64, h.low64 };
    st->blob = arena_strndup(a, b->p, b->len);
    st->blob_len = (uint32_t)b->len;
    st->attach = attach_text(st, a);
}

void sig_text(struct sig sig, char out[33]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[sig.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digits[sig.lo >> (60 - 4 * i) & 15];
    }
    out[32] = 0;
}

int sig_parse(const char *text, struct sig *sig) {
    uint64_t v[2] = { 0, 0 };
    for (int i = 0; i < 32; i++) {
        char c = text[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v[i / 16] = v[i / 16] << 4 | (uint64_t)d;
    }
    if (text[32])
        return -1;
    *sig = (struct sig){ v[0], v[1] };
    return 0;
}

#include "planner/spec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By the words of "grouping". */
static const enum grouping grouping_of[] = { GROUP_ALL, GROUP_GLOBAL, GROUP_SHUFFLE };

enum { KEYS_MAX = 8 }; /* of one table */

struct parser {
    struct spec *s;
    const struct spec_env *env;
    struct arena *a;
    struct errs *es, *warn;
    /* task ids: open addressing, index + 1 */
    int *ids;
    uint32_t mask;
    int links;
};

bool spec_name_valid(const char *s, size_t len, bool dots) {
    if (len == 0 || len > SPEC_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!word && !(dots && c == '.' && i > 0))
            return false;
    }
    return true;
}

static int clip(size_t len) {
    return len > 60 ? 60 : (int)len;
}

/* Keys differ in their first byte, mostly: cheaper than a call. */
static bool is_key(const struct jnode *n, const char *key) {
    return n->key[0] == key[0] && strcmp(n->key, key) == 0;
}

/* As jnode_get. */
static struct jnode *get(const struct jnode *obj, const char *key) {
    struct jnode *c = obj->type == J_OBJ ? obj->child : NULL;
    while (c && !is_key(c, key))
        c = c->next;
    return c;
}

/* The known key that an unknown one was most likely meant to be; NULL: none. */
static const char *meant(const struct jnode *n, const struct spec_key *keys) {
    const char *names[KEYS_MAX];
    int count = 0;
    for (; count < KEYS_MAX && keys[count].name; count++)
        names[count] = keys[count].name;
    return n->klen < 64 ? err_nearest(n->key, names, count) : NULL;
}

/* Unknown keys of an object, each with the nearest known one. */
static int check_keys(struct parser *p, const struct jnode *obj, const char *what,
                      const struct spec_key *keys) {
    int rc = 0;
    for (const struct jnode *c = obj->child; c; c = c->next) {
        const struct spec_key *k = keys;
        while (k->name && !is_key(c, k->name))
            k++;
        if (k->name)
            continue;
        const char *near = meant(c, keys);
        char list[256] = "";
        size_t len = 0;
        for (k = keys; !near && k->name && len < sizeof list; k++)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                    k == keys        ? ""
                                    : !(k + 1)->name ? " and "
                                                     : ", ",
                                    k->name);
        rc = json_error(p->es, &p->s->doc, c, true, "unknown key '%.*s' in %s; %s%s%s",
                        clip(c->klen), c->key, what, near ? "did you mean '" : "it has ",
                        near ? near : list, near ? "'?" : "");
    }
    return rc;
}

/* Whether an unknown key was most likely meant to be keys[which]: then that it is missing is no
 * news. */
static bool misspelt(const struct jnode *obj, const struct spec_key *keys, int which) {
    for (const struct jnode *c = obj->child; c; c = c->next) {
        const char *near = meant(c, keys);
        if (near && strcmp(near, keys[which].name) == 0)
            return true;
    }
    return false;
}

/* A member of the type it must have; NULL when absent or, after reporting, of another type. */
static const struct jnode *member(struct parser *p, const struct jnode *obj,
                                  const struct spec_key *key, int *rc) {
    const struct jnode *n = get(obj, key->name);
    if (!n || n->type == key->type)
        return n;
    *rc = json_error(p->es, &p->s->doc, n, false, "'%s' must be %s, not %s", key->name,
                     jtype_names[key->type], jtype_names[n->type]);
    return NULL;
}

/* A name under the rules of spec_name_valid, or NULL after reporting. */
static const char *name_of(struct parser *p, const struct jnode *n, const char *what, bool dots) {
    if (spec_name_valid(n->s, n->len, dots))
        return n->s;
    if (n->len > SPEC_NAME_MAX)
        json_error(p->es, &p->s->doc, n, false, "%s has %u bytes; at most %d are allowed", what,
                   n->len, SPEC_NAME_MAX);
    else if (n->len == 0)
        json_error(p->es, &p->s->doc, n, false, "%s is empty", what);
    else
        json_error(p->es, &p->s->doc, n, false,
                   "%s '%.*s' may only have letters, digits, '_'%s and '-'", what, clip(n->len),
                   n->s, dots ? ", '.' (not first)" : "");
    return NULL;
}

static int word_of(struct parser *p, const struct jnode *n, const struct spec_key *key) {
    const char *const *words = key->words;
    int count = 0;
    char list[128] = "";
    size_t len = 0;
    for (; words[count]; count++) {
        if (strlen(words[count]) == n->len && memcmp(words[count], n->s, n->len) == 0)
            return count;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s\"%s\"",
                                    count == 0         ? ""
                                    : words[count + 1] ? ", "
                                                       : " or ",
                                    words[count]);
    }
    const char *near = n->len < 64 ? err_nearest(n->s, words, count) : NULL;
    json_error(p->es, &p->s->doc, n, false, "'%s' must be %s, not \"%.*s\"%s%s%s", key->name, list,
               clip(n->len), n->s, near ? "; did you mean \"" : "", near ? near : "",
               near ? "\"?" : "");
    return -1;
}

/* ---- the top level ---- */

static void read_head(struct parser *p, const struct jnode *root) {
    struct spec *s = p->s;
    int rc = 0;
    check_keys(p, root, "a dataflow", spec_top_keys);
    const struct jnode *n = get(root, "braid");
    if (!n && !misspelt(root, spec_top_keys, TOP_BRAID))
        json_error(p->es, &s->doc, root, false, "a dataflow starts with \"braid\": 1");
    else if (n && (n->type != J_INT || n->i != SPEC_VERSION))
        json_error(p->es, &s->doc, n, false, "'braid' is the version of the format and must be %d",
                   SPEC_VERSION);
    if ((n = member(p, root, &spec_top_keys[TOP_NAME], &rc)))
        s->name = name_of(p, n, "the name of the dataflow", true);
    else if (rc == 0 && !misspelt(root, spec_top_keys, TOP_NAME))
        json_error(p->es, &s->doc, root, false, "the dataflow has no name: add \"name\"");
    if ((n = member(p, root, &spec_top_keys[TOP_DESCRIPTION], &rc)))
        s->description = n->s;
    if ((n = member(p, root, &spec_top_keys[TOP_TENANT], &rc)))
        s->tenant = name_of(p, n, "the tenant", false);
    if ((n = member(p, root, &spec_top_keys[TOP_HISTORY], &rc))) {
        int word = word_of(p, n, &spec_top_keys[TOP_HISTORY]);
        s->history = word < 0 ? HISTORY_SHARED : (enum history)word;
    }
    if (!s->tenant)
        s->tenant = "";
}

/* ---- ids ---- */

static uint32_t id_hash(const char *s, size_t len) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

/* The slot of an id: its own or a free one. */
static int *id_slot(struct parser *p, const char *id, size_t len) {
    for (uint32_t h = id_hash(id, len);; h++) {
        int *slot = &p->ids[h & p->mask];
        if (!*slot)
            return slot;
        const char *other = p->s->tasks[*slot - 1].id;
        if (strncmp(other, id, len) == 0 && !other[len])
            return slot;
    }
}

static int find_task(struct parser *p, const char *id, size_t len) {
    return *id_slot(p, id, len) - 1;
}

/* ---- tasks ---- */

static void read_type(struct parser *p, struct spec_task *t, const struct jnode *n) {
    const struct json_doc *doc = &p->s->doc;
    const struct op_desc *op = n->len <= SPEC_NAME_MAX ? ops_find(n->s) : NULL;
    if (op && !(op->flags & OP_INNER)) {
        t->op = op;
        return;
    }
    t->bad = true;
    const char *near = n->len <= SPEC_NAME_MAX ? ops_nearest(n->s) : NULL;
    if (op)
        json_error(p->es, doc, n, false,
                   "'%s' is an inner stage; it cannot be written in a dataflow", op->name);
    else if (near)
        json_error(p->es, doc, n, false, "there is no operator '%.*s'; did you mean '%s'?",
                   clip(n->len), n->s, near);
    else
        json_error(p->es, doc, n, false,
                   "there is no operator '%.*s'; `braid operators` lists them", clip(n->len), n->s);
}

/* How far a task with parameters in error can be followed. A duration, a size, a number or how it
 * attaches decides no schema. */
static void judge_wrong(struct spec_task *t) {
    for (int i = 0; t->wrong && t->op->params && t->op->params[i].name; i++) {
        const struct param *p = &t->op->params[i];
        bool plain = p->type == PT_DURATION || p->type == PT_SIZE || p->type == PT_F64 ||
                     p->class != PARAM_SEMANTIC;
        if (!(t->wrong >> i & 1))
            continue;
        t->blind |= !plain;
        t->bad |= !param_stands_in(p) || (!plain && p->type != PT_BOOL && t->op->lower);
    }
}

static void read_config(struct parser *p, struct spec_task *t, struct jnode *config) {
    struct spec *s = p->s;
    if (config && config->type == J_OBJ)
        spec_vars(s, t, config, p->env, p->a, p->es); /* marks what is in error */
    if (!config) { /* errors about what is missing stand at the task */
        config = ARENA_NEW(p->a, struct jnode);
        *config = *t->at;
        config->n = 0;
        config->child = config->last = NULL;
    }
    t->config_at = config;
    t->config = arena_zalloc(p->a, t->op->config_size ? t->op->config_size : 1);
    int rc = params_parse_on(t->op, &s->doc, config, t->config, p->a, p->env->file, p->env->user,
                             p->es, &t->wrong);
    t->doubtful = rc < 0 || t->wrong;
    judge_wrong(t);
}

/* Errors in it leave the rest of the task as it is. */
static void read_state(struct parser *p, struct spec_task *t) {
    struct state_config *c = arena_zalloc(p->a, sizeof *c);
    const struct jnode *n = t->state_at;
    const struct json_doc *doc = &p->s->doc;
    if (!(t->op->flags & OP_LIMITS)) {
        json_error(
            p->es, doc, n, true,
            t->op->memory == MEMORY_NONE
                ? "%s keeps no state"
                : "%s decides by itself what it forgets; \"state\" is for operators that keep "
                  "a value for each key",
            t->op->name);
        return;
    }
    if (params_parse(&spec_state, doc, n, c, p->a, NULL, NULL, p->es) < 0)
        return;
    bool limit = c->max_keys != PARAM_UNSET || c->max_bytes != PARAM_UNSET;
    if (!limit && c->ttl == PARAM_UNSET)
        json_error(p->es, doc, n, false, "\"state\" needs ttl, max_keys or max_bytes");
    else if (!limit && get(n, "on_full"))
        json_error(p->es, doc, get(n, "on_full"), true,
                   "'on_full' without max_keys or max_bytes means nothing");
    else
        t->state = c;
}

static void read_task(struct parser *p, int i, const struct jnode *n) {
    struct spec *s = p->s;
    struct spec_task *t = &s->tasks[i];
    int rc = 0;
    t->at = n;
    t->id = "";
    if (n->type != J_OBJ) {
        json_error(p->es, &s->doc, n, false, "a task must be an object, not %s",
                   jtype_names[n->type]);
        t->bad = true;
        return;
    }
    if (check_keys(p, n, "a task", spec_task_keys) < 0 &&
        ((!get(n, "config") && misspelt(n, spec_task_keys, TASK_CONFIG)) ||
         (!get(n, "inputs") && misspelt(n, spec_task_keys, TASK_INPUTS))))
        rc = ERR_INPUT;
    const struct jnode *id = member(p, n, &spec_task_keys[TASK_ID], &rc);
    if (!id) {
        if (!get(n, "id") && !misspelt(n, spec_task_keys, TASK_ID))
            rc = json_error(p->es, &s->doc, n, false, "the task has no \"id\"");
    } else if (name_of(p, id, "the task id", false)) {
        int *slot = id_slot(p, id->s, id->len);
        if (*slot) {
            int line, col;
            json_place(s->text, s->len, s->tasks[*slot - 1].at->off, &line, &col);
            rc = json_error(p->es, &s->doc, id, false,
                            "the id '%s' is taken by the task in line %d", id->s, line);
        } else {
            *slot = i + 1;
        }
        t->id = id->s;
    } else {
        rc = ERR_INPUT;
    }
    t->bad = rc < 0;
    const struct jnode *n2 = member(p, n, &spec_task_keys[TASK_LABEL], &rc);
    t->label = n2 ? n2->s : NULL;
    n2 = member(p, n, &spec_task_keys[TASK_PER_PARTITION], &rc);
    t->per_partition = n2 && n2->b;
    t->state_at = member(p, n, &spec_task_keys[TASK_STATE], &rc);
    n2 = member(p, n, &spec_task_keys[TASK_TYPE], &rc);
    if (n2)
        read_type(p, t, n2);
    else if (!get(n, "type") && !misspelt(n, spec_task_keys, TASK_TYPE))
        json_error(p->es, &s->doc, n, false, "the task has no \"type\"");
    if (t->op && t->state_at)
        read_state(p, t);
    if (t->op)
        read_config(p, t, get(n, "config"));
    else
        t->bad = true;
}

/* ---- inputs ---- */

static int count_words(const char *const *v) {
    int n = 0;
    while (v[n])
        n++;
    return n;
}

static int find_word(const char *const *v, const char *s) {
    for (int i = 0; v[i]; i++)
        if (strcmp(v[i], s) == 0)
            return i;
    return -1;
}

/* "a, b and c" for messages. */
static const char *words_text(const char *const *v, char *buf, size_t size) {
    size_t len = 0;
    buf[0] = 0;
    for (int i = 0; v[i] && len < size; i++)
        len += (size_t)snprintf(buf + len, size - len, "%s'%s'",
                                i == 0     ? ""
                                : v[i + 1] ? ", "
                                           : " and ",
                                v[i]);
    return buf;
}

static int port_error(struct parser *p, const struct jnode *at, const char *task, const char *dir,
                      const char *const *ports, const char *name) {
    char list[512];
    int n = count_words(ports);
    const char *near = strlen(name) < 64 ? err_nearest(name, ports, n) : NULL;
    if (n == 0)
        return json_error(p->es, &p->s->doc, at, false, "task '%s' has no %s-ports", task, dir);
    if (near)
        return json_error(p->es, &p->s->doc, at, false,
                          "task '%s' has no %s-port '%.60s'; did you mean '%s'?", task, dir, name,
                          near);
    return json_error(p->es, &p->s->doc, at, false, "task '%s' has no %s-port '%.60s'; it has %s",
                      task, dir, name, words_text(ports, list, sizeof list));
}

/* "task" or "task.port" into in->from and in->out_port. */
static int read_from(struct parser *p, struct spec_input *in, int self, const struct jnode *n) {
    struct spec *s = p->s;
    const char *dot = memchr(n->s, '.', n->len);
    size_t len = dot ? (size_t)(dot - n->s) : n->len;
    int from = len > SPEC_NAME_MAX ? -1 : find_task(p, n->s, len);
    if (from < 0) {
        char word[SPEC_NAME_MAX + 1] = "";
        const char **ids = ARENA_ARRAY(p->a, const char *, s->ntasks);
        int count = 0;
        for (int i = 0; i < s->ntasks; i++)
            if (i != self && s->tasks[i].id[0])
                ids[count++] = s->tasks[i].id;
        if (len < 64)
            memcpy(word, n->s, len);
        const char *near = word[0] ? err_nearest(word, ids, count) : NULL;
        return json_error(p->es, &s->doc, n, false, "there is no task '%.*s'%s%s%s", clip(len),
                          n->s, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    in->from = from;
    const struct op_desc *op = s->tasks[from].op;
    if (!op)
        return 0;
    in->out_port = dot ? dot + 1 : "out";
    if (dot && !spec_name_valid(dot + 1, n->len - len - 1, false))
        return json_error(p->es, &s->doc, n, false,
                          "'%.*s' does not name a port: write \"task.port\"", clip(n->len), n->s);
    if (op->flags & OP_ANY_PORTS)
        return 0;
    const char *const *ports = op_out_ports(op);
    if (!ports[0])
        return json_error(p->es, &s->doc, n, false, "task '%s' is a sink and has no output",
                          s->tasks[from].id);
    if (!dot && count_words(ports) == 1)
        in->out_port = ports[0];
    if (find_word(ports, in->out_port) >= 0)
        return 0;
    if (!dot) {
        char list[512];
        return json_error(p->es, &s->doc, n, false,
                          "task '%s' has several out-ports; write \"%s.PORT\" with one of %s",
                          s->tasks[from].id, s->tasks[from].id,
                          words_text(ports, list, sizeof list));
    }
    return port_error(p, n, s->tasks[from].id, "out", ports, in->out_port);
}

static int read_by(struct parser *p, struct spec_input *in, const struct jnode *n) {
    const struct json_doc *doc = &p->s->doc;
    bool list = n->type == J_ARR;
    if (n->type != J_ARR && n->type != J_STR)
        return json_error(p->es, doc, n, false, "'by' must be a list of field names, not %s",
                          jtype_names[n->type]);
    uint32_t count = list ? n->n : 1;
    if (count == 0 || count > OP_BY_MAX)
        return json_error(p->es, doc, n, false, "'by' has %u fields; 1 to %d are allowed", count,
                          OP_BY_MAX);
    in->by = ARENA_ARRAY(p->a, const char *, count);
    in->grouping = GROUP_BY;
    const struct jnode *c = list ? n->child : n;
    for (uint32_t i = 0; i < count; i++, c = c->next) {
        if (c->type != J_STR)
            return json_error(p->es, doc, c, false, "'by' must be a list of field names, not of %s",
                              jtype_names[c->type]);
        if (c->len == 0 || memchr(c->s, 0, c->len))
            return json_error(p->es, doc, c, false, "'by' has an empty field name");
        for (int j = 0; j < in->nby; j++)
            if (strcmp(in->by[j], c->s) == 0)
                return json_error(p->es, doc, c, false, "'by' names the field '%.60s' twice", c->s);
        in->by[in->nby++] = c->s;
    }
    return 0;
}

/* The in-port of input number k: named, or the k-th, or the only one. */
static int read_to(struct parser *p, struct spec_task *t, struct spec_input *in, int k,
                   const struct jnode *to) {
    const struct json_doc *doc = &p->s->doc;
    if (to && (to->type != J_STR || !spec_name_valid(to->s, to->len, false)))
        return json_error(p->es, doc, to, false, "'to' must be the name of an in-port of '%s'",
                          t->id);
    in->in_index = -1;
    if (t->op->flags & OP_ANY_PORTS) {
        in->in_port = to ? to->s : "in";
        return 0;
    }
    const char *const *ports = op_in_ports(t->op);
    int n = count_words(ports);
    if (to) {
        in->in_index = find_word(ports, to->s);
        if (in->in_index < 0)
            return port_error(p, to, t->id, "in", ports, to->s);
    } else if (k >= n && n > 1) {
        char list[512];
        return json_error(p->es, doc, in->at, false,
                          "task '%s' takes %d inputs, one for each of its in-ports %s; name the "
                          "in-port with \"to\"",
                          t->id, n, words_text(ports, list, sizeof list));
    } else {
        in->in_index = k < n ? k : 0;
    }
    in->in_port = ports[in->in_index];
    return 0;
}

static int read_input(struct parser *p, int self, int k, const struct jnode *n) {
    struct spec *s = p->s;
    struct spec_task *t = &s->tasks[self];
    struct spec_input *in = &t->inputs[k];
    const struct jnode *from = n, *to = NULL, *by;
    int rc = 0;
    *in = (struct spec_input){ .from = -1, .at = n };
    if (n->type == J_OBJ) {
        rc = check_keys(p, n, "an input", spec_input_keys);
        from = member(p, n, &spec_input_keys[INPUT_FROM], &rc);
        if (!from && !get(n, "from") && !misspelt(n, spec_input_keys, INPUT_FROM))
            rc = json_error(p->es, &s->doc, n, false, "the input has no \"from\"");
        to = get(n, "to");
        const struct jnode *g = member(p, n, &spec_input_keys[INPUT_GROUPING], &rc);
        const struct jnode *o = member(p, n, &spec_input_keys[INPUT_ORDERED], &rc);
        in->ordered = o && o->b;
        if ((by = get(n, "by")))
            rc |= read_by(p, in, by);
        if (g && by)
            rc = json_error(p->es, &s->doc, g, true, "an input has 'by' or 'grouping', not both");
        else if (g) {
            int word = word_of(p, g, &spec_input_keys[INPUT_GROUPING]);
            rc |= word < 0 ? ERR_INPUT : 0;
            in->grouping = word < 0 ? GROUP_NONE : grouping_of[word];
        }
    } else if (n->type != J_STR) {
        return json_error(p->es, &s->doc, n, false,
                          "an input must be \"task\", \"task.port\" or an object, not %s",
                          jtype_names[n->type]);
    }
    if (from)
        rc |= read_from(p, in, self, from);
    rc |= read_to(p, t, in, k, to);
    return rc ? ERR_INPUT : 0;
}

static bool same_input(const struct spec_input *a, const struct spec_input *b) {
    return a->from == b->from && a->from >= 0 && a->out_port && b->out_port && a->in_port &&
           b->in_port && strcmp(a->out_port, b->out_port) == 0 &&
           strcmp(a->in_port, b->in_port) == 0;
}

/* Every in-port must be fed, and by each stream once. */
static int check_inputs(struct parser *p, struct spec_task *t, const struct jnode *list) {
    const struct json_doc *doc = &p->s->doc;
    const struct jnode *at = list ? list : t->at;
    const char *const *ports = op_in_ports(t->op);
    int rc = 0;
    for (int i = 1; i < t->ninputs; i++) {
        int j = 0;
        while (j < i && !same_input(&t->inputs[i], &t->inputs[j]))
            j++;
        if (j < i)
            rc = json_error(p->es, doc, t->inputs[i].at, false,
                            "'%s' feeds in-port '%s' of task '%s' twice",
                            p->s->tasks[t->inputs[i].from].id, t->inputs[i].in_port, t->id);
    }
    if (t->op->flags & OP_ANY_PORTS) {
        if (t->ninputs == 0 && !(t->op->flags & OP_SOURCE))
            rc = json_error(p->es, doc, at, false, "task '%s' needs at least one input", t->id);
        return rc;
    }
    for (int k = 0; ports[k]; k++) {
        int i = 0;
        while (i < t->ninputs && t->inputs[i].in_index != k)
            i++;
        if (i < t->ninputs)
            continue;
        if (count_words(ports) == 1)
            rc = json_error(p->es, doc, at, false, "task '%s' needs an input: add \"inputs\"",
                            t->id);
        else
            rc = json_error(p->es, doc, at, false, "nothing feeds in-port '%s' of task '%s'",
                            ports[k], t->id);
    }
    return rc;
}

static void read_inputs(struct parser *p, int i) {
    struct spec_task *t = &p->s->tasks[i];
    const struct json_doc *doc = &p->s->doc;
    if (!t->op)
        return;
    int rc = 0;
    const struct jnode *list = member(p, t->at, &spec_task_keys[TASK_INPUTS], &rc);
    if (list && (t->op->flags & OP_SOURCE) && list->n > 0)
        rc = json_error(p->es, doc, list, false, "'%s' is a %s: it takes no inputs", t->id,
                        t->op->name);
    else if (list && p->links + (int64_t)list->n > SPEC_LINKS_MAX)
        rc = json_error(p->es, doc, list, false, "more than %d inputs in one dataflow",
                        SPEC_LINKS_MAX);
    if (rc < 0) {
        t->bad = true;
        return;
    }
    t->ninputs = list ? (int)list->n : 0;
    p->links += t->ninputs;
    t->inputs = ARENA_ARRAY(p->a, struct spec_input, t->ninputs ? t->ninputs : 1);
    int k = 0;
    for (const struct jnode *c = list ? list->child : NULL; c; c = c->next, k++)
        rc |= read_input(p, i, k, c);
    /* An input in error leaves its in-port open without blame. */
    bool fed = list || (t->op->flags & OP_SOURCE);
    if (rc == 0 && (fed || !misspelt(t->at, spec_task_keys, TASK_INPUTS)))
        rc = check_inputs(p, t, list);
    if (rc)
        t->bad = true;
}

/* ---- order and cycles ---- */

/* The walk went from child to parent; it is printed with the stream, from where it began. */
static void report_cycle(struct parser *p, const int *path, int from, int to) {
    enum { SHOWN = 12 };
    struct spec *s = p->s;
    char text[600];
    size_t len = 0;
    const char *start = s->tasks[path[from]].id;
    for (int i = to, k = 0; i > from && len < sizeof text; i--, k++) {
        if (k == SHOWN && to - from > SHOWN + 1) {
            snprintf(text + len, sizeof text - len, "... -> ");
            break;
        }
        len += (size_t)snprintf(text + len, sizeof text - len, "%.30s -> ", s->tasks[path[i]].id);
    }
    if (from == to)
        json_error(p->es, &s->doc, s->tasks[path[from]].at, false, "task '%s' reads its own output",
                   start);
    else
        json_error(p->es, &s->doc, s->tasks[path[from]].at, false,
                   "%d tasks form a cycle: %.30s -> %s%.30s", to - from + 1, start, text, start);
}

/* Walks from each task left over to parents left over; a walk that meets itself is a cycle. */
static void find_cycles(struct parser *p, const int *open) {
    struct spec *s = p->s;
    int *mark = arena_zalloc(p->a, sizeof(int) * (size_t)s->ntasks);
    int *path = ARENA_ARRAY(p->a, int, s->ntasks);
    for (int i = 0; i < s->ntasks; i++) {
        int n = 0, t = i;
        while (t >= 0 && open[t] && !mark[t]) {
            mark[t] = i + 1;
            path[n++] = t;
            int next = -1;
            for (int k = 0; k < s->tasks[t].ninputs && next < 0; k++) {
                int from = s->tasks[t].inputs[k].from;
                if (from >= 0 && open[from])
                    next = from;
            }
            t = next;
        }
        if (t < 0 || !open[t] || mark[t] != i + 1)
            continue;
        int from = 0;
        while (path[from] != t)
            from++;
        report_cycle(p, path, from, n - 1);
    }
}

/* Kahn's algorithm; among ready tasks the file's order holds. */
static void sort_tasks(struct parser *p) {
    struct spec *s = p->s;
    int n = s->ntasks, *open = arena_zalloc(p->a, sizeof(int) * (size_t)n);
    int *head = ARENA_ARRAY(p->a, int, n), *next = ARENA_ARRAY(p->a, int, p->links + 1);
    int *child = ARENA_ARRAY(p->a, int, p->links + 1), edges = 0, done = 0;
    s->order = ARENA_ARRAY(p->a, int, n);
    for (int i = 0; i < n; i++)
        head[i] = -1;
    for (int i = n - 1; i >= 0; i--) {
        for (int k = 0; k < s->tasks[i].ninputs; k++) {
            int from = s->tasks[i].inputs[k].from;
            if (from < 0)
                continue;
            open[i]++;
            child[edges] = i;
            next[edges] = head[from];
            head[from] = edges++;
        }
    }
    int ready = 0;
    for (int i = 0; i < n; i++)
        if (open[i] == 0)
            s->order[ready++] = i;
    for (; done < ready; done++)
        for (int e = head[s->order[done]]; e >= 0; e = next[e])
            if (--open[child[e]] == 0)
                s->order[ready++] = child[e];
    if (ready == n)
        return;
    find_cycles(p, open);
    for (int i = 0; i < n; i++) {
        if (!open[i])
            continue;
        s->order[ready++] = i;
        s->tasks[i].bad = true;
    }
}

static void warn_unread(struct parser *p) {
    struct spec *s = p->s;
    bool *read = arena_zalloc(p->a, (size_t)s->ntasks);
    for (int i = 0; i < s->ntasks; i++)
        for (int k = 0; k < s->tasks[i].ninputs; k++)
            if (s->tasks[i].inputs[k].from >= 0)
                read[s->tasks[i].inputs[k].from] = true;
    for (int i = 0; i < s->ntasks && p->warn; i++)
        if (!read[i] && s->tasks[i].op && !(s->tasks[i].op->flags & OP_SINK))
            json_error(p->warn, &s->doc, s->tasks[i].at, false,
                       "nothing reads task '%s': its rows go nowhere", s->tasks[i].id);
}

static void read_tasks(struct parser *p, const struct jnode *list) {
    struct spec *s = p->s;
    if (list->n == 0 || list->n > SPEC_TASKS_MAX) {
        json_error(p->es, &s->doc, list, false, "the dataflow has %u tasks; 1 to %d are allowed",
                   list->n, SPEC_TASKS_MAX);
        return;
    }
    s->ntasks = (int)list->n;
    s->tasks = arena_zalloc(p->a, sizeof *s->tasks * list->n);
    for (p->mask = 4; p->mask < 2 * list->n; p->mask *= 2)
        ;
    p->ids = arena_zalloc(p->a, sizeof(int) * p->mask--);
    int i = 0;
    for (const struct jnode *c = list->child; c; c = c->next)
        read_task(p, i++, c);
    for (i = 0; i < s->ntasks; i++)
        read_inputs(p, i);
    sort_tasks(p);
    warn_unread(p);
    spec_lower(s, p->env, p->a, p->es);
}

static bool has_task(const struct spec *s, const char *id) {
    int i = 0;
    while (i < s->ntasks && !(s->tasks[i].id && strcmp(s->tasks[i].id, id) == 0))
        i++;
    return i < s->ntasks;
}

/* The former task is looked up when there is one. */
static void read_state_from(struct parser *p, const struct jnode *obj) {
    struct spec *s = p->s;
    s->state_from = ARENA_ARRAY(p->a, struct state_from, obj->n + 1);
    for (const struct jnode *c = obj->n ? obj->child : NULL; c; c = c->next) {
        if (!has_task(s, c->key))
            json_error(p->es, &s->doc, c, true, "there is no task '%.*s'", clip(c->klen), c->key);
        else if (c->type != J_STR)
            json_error(p->es, &s->doc, c, false,
                       "must be the id of a task of the replaced dataflow, not %s",
                       jtype_names[c->type]);
        else if (name_of(p, c, "the id of a task", false))
            s->state_from[s->nstate_from++] = (struct state_from){ c->key, c->s, c };
    }
}

static int by_offset(const void *a, const void *b) {
    const struct err *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int spec_parse(struct spec *s, const char *file, const char *text, size_t len,
               const struct spec_env *env, struct arena *a, struct errs *es, struct errs *warn) {
    static const struct spec_env none;
    struct parser p = { .s = s, .env = env ? env : &none, .a = a, .es = es, .warn = warn };
    int before = es->total, kept = es->n, rc = 0;
    *s = (struct spec){ .file = file, .text = text, .len = len, .tenant = "" };
    if (len > SPEC_TEXT_MAX) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_INPUT, "the dataflow file has %zu bytes; at most %d are allowed", len,
                SPEC_TEXT_MAX);
        if (file)
            snprintf(e.file, sizeof e.file, "%s", file);
        return errs_add(es, &e);
    }
    json_parse(&s->doc, file, text, len, a, es);
    if (!s->doc.root)
        return ERR_INPUT;
    if (s->doc.root->type != J_OBJ)
        return json_error(es, &s->doc, s->doc.root, false, "a dataflow must be an object, not %s",
                          jtype_names[s->doc.root->type]);
    read_head(&p, s->doc.root);
    const struct jnode *tasks = member(&p, s->doc.root, &spec_top_keys[TOP_TASKS], &rc);
    if (tasks)
        read_tasks(&p, tasks);
    else if (rc == 0 && !misspelt(s->doc.root, spec_top_keys, TOP_TASKS))
        json_error(es, &s->doc, s->doc.root, false, "the dataflow has no \"tasks\"");
    const struct jnode *from = member(&p, s->doc.root, &spec_top_keys[TOP_STATE_FROM], &rc);
    if (from && tasks)
        read_state_from(&p, from);
    if (es->n > kept)
        qsort(es->v + kept, (size_t)(es->n - kept), sizeof *es->v, by_offset);
    return es->total > before ? ERR_INPUT : 0;
}

/* Where a source begins: the parameter `start` and its JSON forms. */
#include "engine/num.h"
#include "engine/op.h"
#include <string.h>

static const char *const words[] = { [START_LATEST] = "latest", [START_EARLIEST] = "earliest" };

int start_read(const struct jnode *n, struct start *s) {
    *s = (struct start){ .at = START_LATEST };
    for (int i = START_LATEST; n->type == J_STR && i <= START_EARLIEST; i++)
        if (strcmp(n->s, words[i]) == 0) {
            s->at = i;
            return 0;
        }
    const struct jnode *c = n->type == J_OBJ && n->n == 1 ? n->child : NULL;
    if (!c)
        return -1;
    bool time = strcmp(c->key, "time") == 0;
    s->at = time ? START_TIME : START_OFFSET;
    if (time && c->type == J_STR)
        return time_parse(c->s, c->s + c->len, &s->n);
    s->n = c->type == J_INT ? c->i : -1;
    return c->type == J_INT && (time || (strcmp(c->key, "offset") == 0 && c->i >= 0)) ? 0 : -1;
}

void start_write(struct sbuf *out, const struct start *s, bool people) {
    char text[64];
    if (s->at <= START_EARLIEST) {
        sbuf_printf(out, "\"%s\"", words[s->at]);
        return;
    }
    bool calendar = people && s->at == START_TIME;
    text[calendar ? time_write(text, s->n) : num_write_i64(text, s->n)] = '\0';
    sbuf_printf(out, calendar ? "{\"%s\":\"%s\"}" : "{\"%s\":%s}",
                s->at == START_TIME ? "time" : "offset", text);
}

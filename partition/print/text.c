/*
 * text.c - how values, counts, bytes and times are written.
 */
#include <string.h>

#include "print.h"

const char *edge_kind(EdgeKind k)
{
    static const char *const name[] = {"activation", "parameter", "constant"};
    return name[k];
}

const char *use_name(Use u)
{
    static const char *const name[] = {"own", "transmit", "replicate"};
    return name[u];
}

Ids replicas_of(const Pipe *p, Arena *a, uint32_t param)
{
    Ids stage = {0};
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t i = 0; i < p->stage.at[t].param.n; i++)
            if (p->stage.at[t].param.at[i].param == param &&
                p->stage.at[t].param.at[i].use == USE_REPLICATE)
                vec_push(a, &stage, t);
    return stage;
}

const char *param_or_value_name(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    return x->kind == V_PARAM ? g->param.at[x->param].name : x->name;
}

static const char *named_text(const Graph *g, Arena *a, const char *raw, ValueId v)
{
    const Value *x = val(g, v);
    const char *name = diag_escape(a, raw), *shape = shape_print(a, x->dtype, &x->shape);
    if (x->kind == V_PARAM || x->batch == BATCH_NONE)
        return arena_printf(a, "%s %s", name, shape);
    if (x->batch == BATCH_MIXED)
        return arena_printf(a, "%s %s rows mixed", name, shape);
    return arena_printf(a, "%s %s batch %d", name, shape, x->batch);
}

const char *value_text(const Graph *g, Arena *a, ValueId v)
{
    return named_text(g, a, param_or_value_name(g, v), v);
}

const char *output_text(const Graph *g, Arena *a, uint32_t i)
{
    return named_text(g, a, g->output_name.at[i], g->output.at[i]);
}

const char *count_text(Arena *a, int64_t n)
{
    static const char unit[] = " kMGTPE";
    double x = (double)n;
    int u = 0;
    for (; x >= 999.5 && unit[u + 1]; u++)
        x /= 1000;
    return u == 0 ? arena_printf(a, "%lld", (long long)n) : arena_printf(a, "%.3g %c", x, unit[u]);
}

const char *bytes_text(Arena *a, int64_t n)
{
    static const char unit[] = " KMGTPE";
    double x = (double)n;
    int u = 0;
    for (; x >= 1023.5 && unit[u + 1]; u++)
        x /= 1024;
    if (u == 0)
        return arena_printf(a, "%lld B", (long long)n);
    return x < 99.5 ? arena_printf(a, "%.3g %ciB", x, unit[u])
                    : arena_printf(a, "%.0f %ciB", x, unit[u]);
}

const char *join_names(Arena *a, const Names *names, const char *before, const char *between)
{
    Text t = {.a = a};
    for (uint32_t i = 0; i < names->n; i++)
        text_add(&t, "%s%s%s", i ? between : "", names->at[i] ? before : "",
                 names->at[i] ? names->at[i] : "None");
    return text_all(&t);
}

/* Three digits, in the unit that fits. */
const char *time_text(Arena *a, double s)
{
    static const char *const unit[] = {"s", "ms", "us"};
    int u = s >= 1 || s <= 0 ? 0 : s >= 1e-3 ? 1 : 2;
    for (int i = 0; i < u; i++)
        s *= 1e3;
    return arena_printf(a, s < 99.95 ? "%.3g %s" : "%.0f %s", s, unit[u]);
}

/* For a shell: as it is, or in single quotes. */
const char *shell_word(Arena *a, const char *s)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-+@%,=";
    const char *text = "'";
    if (*s && strspn(s, plain) == strlen(s))
        return s;
    for (size_t n; *s; s += n) {
        n = strcspn(s, "'");
        text = arena_printf(a, "%s%.*s%s", text, (int)n, s, s[n] ? "'\\''" : "");
        n += s[n] != '\0';
    }
    return arena_printf(a, "%s'", text);
}

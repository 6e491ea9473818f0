/*
 * attention.c - an attention as a call of the runtime, PpAttention.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "target.h"

static const char *diagonal(Out *o, const AttentionStep *t)
{
    const int64_t at = t->attr->diagonal, step = t->attr->step;
    if (!step)
        return out_lin(o, lin(at));
    return arena_printf(o->a, "%s %c %s * %s", out_lin(o, lin(at)), step < 0 ? '-' : '+',
                        out_lin(o, lin(step < 0 ? -step : step)),
                        out_chunk(o, &t->chunk->along[t->attr->by], (int)t->attr->by));
}

/* "softmax(0.125 * q k' where j <= i) v" */
static const char *formula(Out *o, const AttentionStep *t)
{
    const AttentionAttr *at = t->attr;
    const char *s = "q k'";
    if (at->scale != 1)
        s = arena_printf(o->a, "%.9g * %s", at->scale, s);
    if (at->bias)
        s = arena_printf(o->a, "%s + bias", s);
    if (at->window && at->step)
        s = arena_printf(o->a, "%s where i - %s < j - (%s) <= i", s,
                         out_lin(o, lin(at->window)), diagonal(o, t));
    else if (at->window)
        s = arena_printf(o->a, "%s where i + %s < j <= i + %s", s,
                         out_lin(o, lin(at->diagonal - at->window)),
                         out_lin(o, lin(at->diagonal)));
    else if (at->causal && at->diagonal == 0 && !at->step)
        s = arena_printf(o->a, "%s where j <= i", s);
    else if (at->causal)
        s = arena_printf(o->a, "%s where j <= i + %s", s, diagonal(o, t));
    else if (at->mask)
        s = arena_printf(o->a, "%s where %sallowed", s, at->forbids ? "not " : "");
    s = arena_printf(o->a, "softmax(%s)", s);
    if (t->ratio > 0)
        s = arena_printf(o->a, "dropout(%s)", s);
    return arena_printf(o->a, t->back ? "dq, dk, dv of y = %s v" : "y = %s v", s);
}

static void print_side(Out *o, const Step *s, int side, const char *name)
{
    const AttentionSide *x = &s->attention->side[side];
    if (x->arg == NONE)
        return;
    const char *at = out_pointer(o, s, x->arg);
    at = s->arg.at[x->arg].written
             ? at
             : arena_printf(o->a, strchr(at, ' ') ? "(void *)(%s)" : "(void *)%s", at);
    text_line(&o->text, "    a.%s = %s{%s, %s, %s, {%s}};", name,
              o->target->cplusplus ? "" : "(PpMatrix)", at, out_lin(o, x->row), out_lin(o, x->col),
              out_lins(o, x->batch, s->attention->nb));
}

static void print_dropout(Out *o, const Step *s)
{
    const AttentionStep *t = s->attention;
    const char *kept = cg_number(o->a, DT_F32, 1 / (1 - t->ratio), 0);
    const uint64_t limit = (uint64_t)(t->ratio * 4294967296.0);
    text_line(&o->text,
              "    a.drop.limit = UINT64_C(%" PRIu64 "), a.drop.kept = %s, a.drop.key = %s;", limit,
              kept, out_key(o, s));
    text_line(&o->text, "    a.drop.seed = c->seed, a.drop.step = c->step, a.drop.row0 = c->row0;");
    const char *first = NULL;
    for (int x = 0; t->chunk && x < MESH_AXES; x++)
        if (t->chunk->along[x].axis >= 0)
            first = arena_printf(o->a, "%s%s%s * %s", first ? first : "", first ? " + " : "",
                                 out_chunk(o, &t->chunk->along[x], x),
                                 out_lin(o, lin(t->random_chunk[x])));
    if (first)
        text_line(&o->text, "    a.drop.first = %s;", first);
    for (int d = 0; d < t->nb; d++)
        text_line(&o->text, "    a.drop.row[%d] = %s, a.drop.element[%d] = %s;", d,
                  out_lin(o, t->random_row[d]), d, out_lin(o, t->random_element[d]));
}

void print_attention(Out *o, const Step *s)
{
    static const char *const name[SIDES] = {"q",    "k",       "v",  "y",  "stats", "dy",
                                            "bias", "allowed", "dq", "dk", "dv"};
    const AttentionStep *t = s->attention;
    const AttentionAttr *at = t->attr;
    Text *x = &o->text;
    o->context = true;
    text_line(x, "{");
    text_line(x, "    // %s", formula(o, t));
    text_line(x, "    PpAttention a = {%s};", o->target->cplusplus ? "" : "0");
    text_line(x, "    a.dtype = %s, a.bias_dtype = %s;", type_runtime(t->type),
              type_runtime(t->bias_type));
    text_line(x, "    a.rows = %s, a.keys = %s, a.width = %s, a.width_v = %s;",
              out_lin(o, t->rows), out_lin(o, t->keys), out_lin(o, lin(t->width)),
              out_lin(o, lin(t->width_v)));
    text_line(x, "    a.dims = %d;", t->nb);
    for (int d = 0; d < t->nb; d++)
        text_line(x, "    a.count[%d] = %s;", d, out_lin(o, t->count[d]));
    text_line(x, "    a.scale = %s;", cg_number(o->a, DT_F32, at->scale, 0));
    if (at->causal)
        text_line(x, "    a.mask.causal = true, a.mask.diagonal = %s;", diagonal(o, t));
    if (at->window)
        text_line(x, "    a.mask.window = %s;", out_lin(o, lin(at->window)));
    if (at->causal || at->mask)
        text_line(x, "    a.mask.fill = %s, a.mask.forbids = %s;",
                  cg_number(o->a, DT_F32, at->fill, 0), at->forbids ? "true" : "false");
    for (int i = 0; i < SIDES; i++)
        print_side(o, s, i, name[i]);
    if (t->ratio > 0)
        print_dropout(o, s);
    if (t->room != NONE)
        text_line(x, "    a.room = %s;", out_pointer(o, s, t->room));
    text_line(x, "    %sattention%s(c, &a);", o->target->call, t->back ? "_backward" : "");
    text_line(x, "}");
}

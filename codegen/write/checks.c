/*
 * checks.c - what no program of any lengths can have.  In: the model with several lengths.  Out:
 * nothing, or it is refused, with two lengths that differ in it.
 */
#include <inttypes.h>

#include "lengths.h"

/* ---- refusals -------------------------------------------------------------------------------- */

const char *lengths_option(Arena *a, const Lengths *l)
{
    Text t = {.a = a};
    for (int v = 0; v < l->symbols; v++)
        text_add(&t, "%s--bind %s=%" PRId64 "..%" PRId64, v ? " " : "", l->symbol[v].name,
                 l->symbol[v].least, l->symbol[v].most);
    return text_all(&t);
}

void lengths_refuse(const Lengths *l, Where where, const char *what)
{
    Arena *a = l->pipe[0]->graph->arena;
    const Symbol *s = &l->symbol[0];
    diag_hint("--bind %s=%" PRId64 " is a program of that length alone", s->name, s->most);
    diag_fatal(EXIT_MODEL, where, "%s: %s", lengths_option(a, l), what);
}

void lengths_differ(const Lengths *l, const char *what)
{
    lengths_refuse(l, WHERE_FILE(l->pipe[0]->graph->file), what);
}

const char *lengths_two(const Lengths *l, const int64_t *v)
{
    Arena *a = l->pipe[0]->graph->arena;
    int k = 1;
    while (k + 1 < l->n && v[k] == v[0])
        k++;
    return arena_printf(a, "%" PRId64 " with %s, %" PRId64 " with %s", v[0],
                        cg_lengths_text(a, l, l->at[0]), v[k], cg_lengths_text(a, l, l->at[k]));
}

void lengths_values(const Lengths *l, const Pipe *with, const int64_t *length, ValueId end)
{
    const Graph *g = l->pipe[0]->graph, *own = with->graph;
    for (ValueId v = 0; v < end && (v < g->value.n || v < own->value.n); v++) {
        const Value *x = v < g->value.n ? val(g, v) : NULL,
                    *y = v < own->value.n ? val(own, v) : NULL;
        bool same = x && y && x->kind == y->kind && x->shape.rank == y->shape.rank &&
                    (x->kind != V_NODE || g->node.at[x->node].op == own->node.at[y->node].op);
        const Value *known = x ? x : y;
        const Graph *of = x ? g : own;
        if (!same)
            lengths_refuse(l,
                           known->kind == V_NODE
                               ? graph_where(of, of->node.at[known->node].origin, -1)
                               : WHERE_FILE(g->file),
                           arena_printf(g->arena,
                                        "with %s and with %s it is computed by other operations "
                                        "from here on",
                                        cg_lengths_text(g->arena, l, l->at[0]),
                                        cg_lengths_text(g->arena, l, length)));
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

/* How dimension d of value v grows. */
static Polynomial grows(const Lengths *l, ValueId v, int d)
{
    const Graph *g = l->pipe[0]->graph;
    const Value *x = val(g, v);
    const bool made = x->kind == V_NODE;
    int64_t size[SAMPLES];
    Polynomial p;
    for (int k = 0; k < l->n; k++)
        size[k] = val(l->pipe[k]->graph, v)->shape.d[d];
    if (!cg_fit(l, size, &p))
        lengths_refuse(l,
                       made ? graph_where(g, g->node.at[x->node].origin, -1) : WHERE_FILE(g->file),
                       arena_printf(g->arena, "dimension %d of %s is %s: no polynomial of it", d,
                                    made ? "its result" : arena_printf(g->arena, "'%s'", x->name),
                                    lengths_two(l, size)));
    return p;
}

/* Sizes of a value. */
static void check_sizes(const Lengths *l, ValueId v)
{
    for (int d = 0; d < val(l->pipe[0]->graph, v)->shape.rank; d++)
        grows(l, v, d);
}

/* The symbol of which it is a multiple, symbols: none. */
static int multiple_of(const Lengths *l, const Polynomial *p)
{
    Polynomial rest = *p;
    int v = 0, term = 1;
    while (v < l->symbols && p->c[term] < 1)
        v++, term *= DEGREES;
    if (v < l->symbols)
        rest.c[term] = 0;
    for (int k = 0; k < TERMS; k++)
        if (rest.c[k])
            return l->symbols;
    return v;
}

/* A file's rows have the places one behind the other; each length is a dimension's, or it is not
 * known which a file's rows have. */
static void check_input(const Lengths *l, ValueId v, bool *any)
{
    const Value *x = val(l->pipe[0]->graph, v);
    for (int d = 0; d < x->shape.rank; d++) {
        Polynomial p = grows(l, v, d);
        if (p.degree == 0)
            continue;
        int symbol = multiple_of(l, &p);
        if (x->batch < 0 || d <= x->batch || symbol == l->symbols)
            lengths_differ(
                l, arena_printf(l->pipe[0]->graph->arena,
                                "dimension %d of input '%s' is no multiple of one of them behind "
                                "the dimension of its rows",
                                d, x->name));
        any[symbol] = true;
    }
}

static void check_output(const Lengths *l, ValueId v)
{
    const Value *x = val(l->pipe[0]->graph, v);
    for (int d = 0; d < x->shape.rank; d++)
        if (grows(l, v, d).degree > 0 && (x->batch < 0 || d <= x->batch))
            lengths_differ(l,
                           arena_printf(l->pipe[0]->graph->arena,
                                        "output '%s' has it not behind the dimension of its rows",
                                        x->name));
}

void lengths_check(const Lengths *l)
{
    const Pipe *p = l->pipe[0];
    bool any[SYMBOLS + 1] = {false};
    for (int k = 1; k < l->n; k++)
        lengths_values(l, l->pipe[k], l->at[k], NONE);
    for (uint32_t i = 0; i < p->graph->input.n; i++)
        check_input(l, p->graph->input.at[i], any);
    for (uint32_t i = 0; i < p->graph->output.n; i++)
        check_output(l, p->graph->output.at[i]);
    for (int v = 0; v < l->symbols; v++)
        if (!any[v])
            lengths_differ(
                l, arena_printf(p->graph->arena, "no input has dimension '%s'", l->symbol[v].name));
    if (p->totals)
        lengths_differ(l, "what the data of a step alone decide is computed of rows of one length");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const Stage *x = &p->stage.at[s];
        for (uint32_t i = 0; i < x->forward.n; i++)
            check_sizes(l, p->graph->node.at[x->forward.at[i]].out[0]);
        for (uint32_t i = 0; i < x->input.n; i++)
            check_sizes(l, x->input.at[i].value);
    }
}

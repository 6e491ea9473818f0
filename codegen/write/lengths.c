/*
 * lengths.c - --bind NAME=LEAST..MOST.  In: the model with several lengths, each a Pipe of its own.
 * Out: each stage of them, planned for the greatest length, so that they differ in numbers only,
 * which alike.c finds and makes one text of.
 *
 * Two things of a program are not its code: where its memory stands, and its constants.  Sizes of
 * memory are polynomials of the length; a stage is planned until all of them are known with the
 * greatest one: each time at least one more is.  A constant that grows has, with each length, the
 * first elements of that of the greatest one, along each dimension, and is read where they stand
 * there.
 */
#include "lengths.h"

#include <inttypes.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

/* Newton's divided differences: of a polynomial of whole coefficients all are whole, and those
 * above its degree are 0. */
bool lengths_fit(const Lengths *l, const int64_t *v, Polynomial *p)
{
    int64_t d[LENGTHS];
    memcpy(d, v, sizeof d);
    *p = (Polynomial){0};
    for (int order = 1; order < LENGTHS; order++)
        for (int k = LENGTHS - 1; k >= order; k--) {
            int64_t rise, run = l->at[k] - l->at[k - order];
            if (__builtin_sub_overflow(d[k], d[k - 1], &rise) || rise % run != 0)
                return false;
            d[k] = rise / run;
        }
    for (int k = DEGREES; k < LENGTHS; k++)
        if (d[k] != 0)
            return false;
    for (int k = DEGREES - 1; k >= 0; k--) { /* p = p (length - at[k]) + d[k] */
        for (int i = DEGREES - 1; i > 0; i--)
            p->c[i] = p->c[i - 1] - l->at[k] * p->c[i];
        p->c[0] = d[k] - l->at[k] * p->c[0];
    }
    for (int i = 1; i < DEGREES; i++)
        p->degree = p->c[i] ? i : p->degree;
    return true;
}

int64_t lengths_value(const Polynomial *p, int64_t length)
{
    int64_t v = 0;
    for (int i = DEGREES - 1; i >= 0; i--)
        v = v * length + p->c[i];
    return v;
}

NORETURN static void differ_at(const Lengths *l, Where where, const char *what)
{
    diag_hint("--bind %s=%lld is a program of that length alone", l->name, (long long)l->most);
    diag_fatal(EXIT_MODEL, where, "--bind %s=%lld..%lld: %s", l->name, (long long)l->least,
               (long long)l->most, what);
}

NORETURN static void differ(const Lengths *l, const char *what)
{
    differ_at(l, WHERE_FILE(l->pipe[0]->graph->file), what);
}

/* the first node that reads it, or the file */
static Where reader(const Graph *g, ValueId v)
{
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin; i++)
            if (g->node.at[n].in[i] == v)
                return graph_where(g, g->node.at[n].origin, (int)i);
    return WHERE_FILE(g->file);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What of the sizes is known with the greatest length. */
typedef struct {
    VEC(bool) known;
    VEC(int64_t) most;
} Sizes;

/* Which size a stage asks for follows from the answers before: up to the first that was not known
 * all are what they are, and what comes behind may be.  true: there is nothing to learn. */
static bool learn(Arena *a, const Lengths *l, SizesMet *const *met, Sizes *s)
{
    uint32_t n = met[0]->met.n;
    bool sound = true;
    for (int k = 1; k < LENGTHS; k++)
        n = met[k]->met.n < n ? met[k]->met.n : n;
    for (uint32_t i = 0; i < n; i++) {
        int64_t v[LENGTHS];
        Polynomial p;
        for (int k = 0; k < LENGTHS; k++)
            v[k] = met[k]->met.at[i];
        bool fits = lengths_fit(l, v, &p), was = i < s->known.n && s->known.at[i];
        if (!fits && sound)
            differ(l, arena_printf(a,
                                   "the memory that it takes is no polynomial of the length: "
                                   "%" PRId64 " with %" PRId64 ", %" PRId64 " with %" PRId64,
                                   v[0], l->at[0], v[1], l->at[1]));
        if (i == s->known.n) {
            vec_push(a, &s->known, false);
            vec_push(a, &s->most, 0);
        }
        sound &= was && fits && s->most.at[i] == lengths_value(&p, l->most);
        s->known.at[i] = fits;
        s->most.at[i] = fits ? lengths_value(&p, l->most) : 0;
    }
    for (int k = 0; k < LENGTHS && sound; k++)
        if (met[k]->met.n != n)
            differ(l,
                   arena_printf(a, "the program is another one with %" PRId64 " than with %" PRId64,
                                l->at[k], l->at[0]));
    return sound;
}

static void plan_stages(Arena *a, const Lengths *l, Pipe *const *of, uint32_t index, StageGen **sg)
{
    SizesMet *met[LENGTHS];
    Sizes s = {0};
    do
        for (int k = 0; k < LENGTHS; k++) {
            met[k] = arena_new_of(a, SizesMet);
            *met[k] = (SizesMet){.n = s.known.n, .known = s.known.at, .most = s.most.at};
            sg[k] = cg_stage_sized(a, of[k], index, l, met[k]);
        }
    while (!learn(a, l, met, &s));
}

/* ---- constants ------------------------------------------------------------------------------- */

static bool same_shape(const Shape *x, const Shape *y)
{
    return x->rank == y->rank && !memcmp(x->d, y->d, (size_t)x->rank * sizeof *x->d);
}

/* Are the elements of x the first ones of `all`, in each dimension? */
static bool is_begin(const Value *x, const Value *all)
{
    int64_t n = shape_elements(&x->shape), size = (int64_t)dtype_size(x->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = x->shape.rank - 1; d >= 0; d--) {
            at += rest % x->shape.d[d] * stride;
            rest /= x->shape.d[d];
            stride *= all->shape.d[d];
        }
        if (memcmp((const char *)x->data + i * size, (const char *)all->data + at * size,
                   (size_t)size) != 0)
            return false;
    }
    return true;
}

/* Is `most` the constant of the greatest length, of which those of the others are the begin? */
static bool begins(const Lengths *l, const Value *const *v, const Value *most)
{
    if (most->dtype != v[0]->dtype || most->shape.rank != v[0]->shape.rank)
        return false;
    for (int d = 0; d < most->shape.rank; d++) {
        int64_t size[LENGTHS];
        Polynomial p;
        for (int k = 0; k < LENGTHS; k++)
            size[k] = v[k]->shape.d[d];
        if (!lengths_fit(l, size, &p) || lengths_value(&p, l->most) != most->shape.d[d])
            return false;
    }
    for (int k = 0; k < LENGTHS; k++)
        if (!is_begin(v[k], most))
            return false;
    return true;
}

static bool never_changes(const Value *const *v)
{
    bool same = true;
    for (int k = 1; k < LENGTHS; k++)
        same &= same_shape(&v[k]->shape, &v[0]->shape) &&
                !memcmp(v[k]->data, v[0]->data,
                        (size_t)shape_elements(&v[0]->shape) * dtype_size(v[0]->dtype));
    return same;
}

static void find_constants(Arena *a, const Lengths *l, const StageGen *most, StageGen **sg)
{
    for (uint32_t i = 0; i < sg[0]->constants.n; i++) {
        const Value *v[LENGTHS], *all = NULL;
        for (int k = 0; k < LENGTHS; k++) {
            if (sg[k]->constants.n != sg[0]->constants.n)
                differ(l, "its constants are others with other lengths");
            v[k] = val(sg[k]->g, sg[k]->constants.at[i].value);
        }
        if (never_changes(v))
            continue;
        for (uint32_t j = 0; j < most->constants.n && !all; j++) {
            const Value *x = val(most->g, most->constants.at[j].value);
            all = begins(l, v, x) ? x : NULL;
        }
        if (!all)
            differ_at(l, reader(sg[0]->g, sg[0]->constants.at[i].value),
                      arena_printf(a,
                                   "a constant%s, %s with a length of %" PRId64
                                   ", is not a part of the one that the greatest length has",
                                   out_value_text(a, sg[0]->g, sg[0]->constants.at[i].value),
                                   shape_print(a, v[0]->dtype, &v[0]->shape), l->at[0]));
        for (int k = 0; k < LENGTHS; k++)
            sg[k]->constants.at[i].most = all;
    }
}

/* ---- the stage ------------------------------------------------------------------------------- */

void lengths_stage(Arena *a, const Lengths *l, Pipe *const *of, Pipe *most, uint32_t index,
                   StageGen **sg)
{
    plan_stages(a, l, of, index, sg);
    find_constants(a, l, cg_stage(a, most, index, false), sg);
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Is it another model with other lengths?  Then it has other values, from one on that is named. */
static void check_values(const Lengths *l)
{
    const Graph *g = l->pipe[0]->graph;
    for (int k = 1; k < LENGTHS; k++) {
        const Graph *own = l->pipe[k]->graph;
        for (ValueId v = 0; v < g->value.n || v < own->value.n; v++) {
            const Value *x = v < g->value.n ? val(g, v) : NULL,
                        *y = v < own->value.n ? val(own, v) : NULL;
            bool same = x && y && x->kind == y->kind && x->shape.rank == y->shape.rank &&
                        (x->kind != V_NODE || g->node.at[x->node].op == own->node.at[y->node].op);
            const Value *known = x ? x : y;
            const Graph *of = x ? g : own;
            if (!same)
                differ_at(l,
                          known->kind == V_NODE
                              ? graph_where(of, of->node.at[known->node].origin, -1)
                              : WHERE_FILE(g->file),
                          arena_printf(g->arena,
                                       "with %" PRId64 " and %" PRId64
                                       " it is computed by other operations from here on",
                                       l->at[0], l->at[k]));
        }
    }
}

/* Sizes of what a stage computes. */
static void check_sizes(const Lengths *l, const Stage *s)
{
    const Graph *g = l->pipe[0]->graph;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        const Node *n = &g->node.at[s->forward.at[i]];
        const Shape *of = &val(g, n->out[0])->shape;
        for (int d = 0; d < of->rank; d++) {
            int64_t size[LENGTHS];
            Polynomial p;
            for (int k = 0; k < LENGTHS; k++)
                size[k] = val(l->pipe[k]->graph, n->out[0])->shape.d[d];
            if (!lengths_fit(l, size, &p))
                differ_at(l, graph_where(g, n->origin, -1),
                          arena_printf(g->arena,
                                       "dimension %d of its result is %" PRId64
                                       " with a length of %" PRId64 ", %" PRId64 " with %" PRId64
                                       ": no polynomial of it",
                                       d, size[0], l->at[0], size[1], l->at[1]));
        }
    }
}

/* How dimension d of value v grows; what is no multiple of the length and a number is fatal. */
static Polynomial grows(const Lengths *l, ValueId v, int d)
{
    const Graph *g = l->pipe[0]->graph;
    int64_t size[LENGTHS];
    Polynomial p;
    for (int k = 0; k < LENGTHS; k++) {
        size[k] = val(l->pipe[k]->graph, v)->shape.d[d];
    }
    if (!lengths_fit(l, size, &p) || p.degree > 1)
        differ(l, arena_printf(g->arena,
                               "dimension %d of '%s' is %" PRId64 " with a length of %" PRId64
                               ", %" PRId64 " with %" PRId64 ": no multiple of it and a number",
                               d, val(g, v)->name, size[0], l->at[0], size[1], l->at[1]));
    return p;
}

/* A file's rows have the places one behind the other in one dimension. */
static void check_input(const Lengths *l, ValueId v, bool *any)
{
    const Value *x = val(l->pipe[0]->graph, v);
    int n = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        Polynomial p = grows(l, v, d);
        if (p.degree == 0)
            continue;
        if (x->batch < 0 || d <= x->batch || n++ > 0 || p.c[0] != 0 || p.c[1] < 1)
            differ(l, arena_printf(
                          l->pipe[0]->graph->arena,
                          "input '%s' has it, or a multiple, not as one dimension behind that "
                          "of its rows",
                          x->name));
        *any = true;
    }
}

static void check_output(const Lengths *l, ValueId v)
{
    const Value *x = val(l->pipe[0]->graph, v);
    for (int d = 0; d < x->shape.rank; d++)
        if (grows(l, v, d).degree > 0 && (x->batch < 0 || d <= x->batch))
            differ(l, arena_printf(l->pipe[0]->graph->arena,
                                   "output '%s' has it not behind the dimension of its rows",
                                   x->name));
}

void lengths_check(const Lengths *l)
{
    const Pipe *p = l->pipe[0];
    bool any = false;
    check_values(l);
    for (uint32_t i = 0; i < p->graph->input.n; i++)
        check_input(l, p->graph->input.at[i], &any);
    for (uint32_t i = 0; i < p->graph->output.n; i++)
        check_output(l, p->graph->output.at[i]);
    if (!any)
        differ(l, "no input has this dimension");
    if (p->totals)
        differ(l, "what the data of a step alone decide is computed of rows of one length");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const Stage *x = &p->stage.at[s];
        check_sizes(l, x);
        for (uint32_t i = 0; i < x->input.n; i++)
            for (int d = 0; d < val(p->graph, x->input.at[i].value)->shape.rank; d++)
                grows(l, x->input.at[i].value, d);
    }
}

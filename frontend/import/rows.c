/*
 * rows.c - which dimension of the inputs may hold the rows (the batch).
 *
 * In: the inputs' shapes and what the file calls their dimensions.  Out: Graph.rows.at, the
 * likeliest first, whose rows the graph has from here on; which of them it is, facts/rows.c tells
 * from what the model computes.
 *
 * A name is one dimension wherever it stands: the batch of [batch, 3] and [2, batch, 4] is 0 and 1,
 * and a size that equals it by chance is not the batch.  Of several names one that says "batch"
 * comes first, then the one that most inputs and outputs begin with.  A size that inputs begin with
 * may be it as well ([1, seq]); it comes after names that stand elsewhere too.  Without names it is
 * the first dimension of the first input, and of those that have as many there.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "driver.h"

enum { MOST = 8 }; /* of a file that gives every dimension a name of its own */

typedef struct {
    const char *name; /* NULL: the inputs' first dimension of this size */
    int64_t rows;
    uint32_t leads, stands; /* inputs and outputs that begin with it, that have it */
    bool shadowed;          /* all inputs that have it begin with the size that may be the batch */
} Candidate;

typedef struct {
    ImportState *s;
    uint32_t n;         /* inputs */
    const char **chunk; /* by input: what --chunk says, or NULL */
    VEC(Candidate) list;
} Rows;

static const Shape *shape_of_input(const Rows *r, uint32_t i)
{
    return &val(r->s->g, r->s->g->input.at[i])->shape;
}

/* Which dimension of input i it is, or BATCH_NONE. */
static int dim_of(const Rows *r, uint32_t i, const Candidate *c)
{
    const Shape *s = shape_of_input(r, i);
    const DimName *d = r->s->binds->input.at[i];
    if (!c->name)
        return s->rank > 0 && !d[0].name && s->d[0] == c->rows ? 0 : BATCH_NONE;
    for (int k = 0; k < s->rank; k++)
        if (d[k].name && !strcmp(d[k].name, c->name))
            return k;
    return BATCH_NONE;
}

static bool is_replicated(const Rows *r, uint32_t i)
{
    return r->chunk[i] && !strcmp(r->chunk[i], "replicate");
}

/* Sizes of a single element say nothing. */
static bool counts(const Rows *r, uint32_t i)
{
    const Shape *s = shape_of_input(r, i);
    return !is_replicated(r, i) &&
           (s->rank > 1 || (s->rank == 1 && (s->d[0] != 1 || r->s->binds->input.at[i][0].name)));
}

/* ---- the candidates ---- */

static Candidate *find_name(Rows *r, const char *name)
{
    for (uint32_t i = 0; i < r->list.n; i++)
        if (r->list.at[i].name && !strcmp(r->list.at[i].name, name))
            return &r->list.at[i];
    return NULL;
}

static void add_names(Rows *r)
{
    for (uint32_t i = 0; i < r->n && r->list.n < 4 * MOST; i++) {
        const Shape *s = shape_of_input(r, i);
        const DimName *d = r->s->binds->input.at[i];
        for (int k = 0; k < s->rank && counts(r, i); k++)
            if (d[k].name && s->d[k] > 0 && !find_name(r, d[k].name))
                vec_push(r->s->g->arena, &r->list,
                         ((Candidate){.name = d[k].name, .rows = s->d[k] / d[k].times}));
    }
}

/* The size that most inputs begin with, of equals the first; 0: none does. */
static int64_t leading_size(const Rows *r)
{
    Arena *a = r->s->g->arena;
    IdMap seen = {0};
    int64_t best = 0;
    uint32_t most = 0;
    for (int count = 1; count >= 0; count--)
        for (uint32_t i = 0; i < r->n; i++) {
            const Shape *s = shape_of_input(r, i);
            if (!counts(r, i) || s->rank == 0 || r->s->binds->input.at[i][0].name || s->d[0] < 1)
                continue;
            uint32_t *alike = idmap_at(a, &seen, (uint64_t)s->d[0]);
            *alike = *alike == NONE ? 1 : *alike + (uint32_t)count;
            if (!count && *alike > most)
                most = *alike, best = s->d[0];
        }
    return best;
}

/* Which dimension of an output it is, or BATCH_NONE. */
static int dim_of_output(const Rows *r, const Onnx__ValueInfoProto *v, const Candidate *c)
{
    const Onnx__TensorShapeProto *s = raw_shape(v);
    for (int k = 0; s && k < (int)s->n_dim && k < MAX_RANK; k++) {
        DimName d = bind_name(r->s, s->dim[k], "", k);
        if (c->name ? d.name && !strcmp(d.name, c->name)
                    : k == 0 && !d.name && s->dim[k]->dim_value == c->rows)
            return k;
    }
    return BATCH_NONE;
}

static void gather_evidence(const Rows *r, Candidate *c, const Candidate *size)
{
    c->shadowed = size && c->name;
    for (uint32_t i = 0; i < r->n; i++) {
        int dim = dim_of(r, i, c);
        if (dim < 0 || !counts(r, i))
            continue;
        c->leads += dim == 0;
        c->stands++;
        c->shadowed &= size && dim_of(r, i, size) == 0;
    }
    for (size_t i = 0; i < r->s->m->graph->n_output; i++) {
        int dim = dim_of_output(r, r->s->m->graph->output[i], c);
        c->leads += dim == 0;
        c->stands += dim >= 0;
    }
}

static bool says_batch(const char *name)
{
    bool says = false;
    for (const char *p = name; p && *p; p++)
        says |= !strncasecmp(p, "batch", 5);
    return says && !strpbrk(name, "+-*/");
}

static int tier(const Candidate *c)
{
    return says_batch(c->name) ? 0 : c->name ? (c->shadowed ? 3 : 1) : 2;
}

/* Does x come before y, which the file has first? */
static bool is_likelier(const Candidate *x, const Candidate *y)
{
    if (tier(x) != tier(y))
        return tier(x) < tier(y);
    return x->leads != y->leads ? x->leads > y->leads : x->stands > y->stands;
}

/* ---- what --chunk says ---- */

static void read_chunks(Rows *r)
{
    const ImportOptions *opt = r->s->opt;
    r->chunk = arena_array(r->s->g->arena, const char *, r->n + 1);
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 0; k < opt->chunk.n; k++)
            (void)bind_option(opt->chunk.at[k], val(r->s->g, r->s->g->input.at[i])->name,
                              &r->chunk[i]);
}

/* The dimension that --chunk names; a name of the file that stands there decides, and so does the
 * size in the first input that has rows, and without names what stands there by itself. */
static bool is_decided(Rows *r, bool named)
{
    bool first = true;
    for (uint32_t i = 0; i < r->n; i++) {
        const Shape *s = shape_of_input(r, i);
        char *end = NULL;
        long dim = r->chunk[i] ? strtol(r->chunk[i], &end, 10) : 0;
        dim += dim < 0 ? s->rank : 0;
        bool said = r->chunk[i] && end != r->chunk[i];
        if (is_replicated(r, i) || dim < 0 || dim >= s->rank || s->d[dim] < 1)
            continue;
        DimName d = r->s->binds->input.at[i][dim];
        if ((said && (d.name || first)) || (first && !named)) {
            r->list.n = 0;
            vec_push(r->s->g->arena, &r->list, ((Candidate){d.name, s->d[dim] / d.times, 0, 0, 0}));
            return true;
        }
        first = false;
    }
    return false;
}

/* ---- where each input has them ---- */

/* The names that inputs have beside the candidate: they are other dimensions. */
static StrMap names_beside(const Rows *r, const Candidate *c)
{
    StrMap beside = {.arena = r->s->g->arena};
    for (uint32_t i = 0; i < r->n; i++)
        for (int k = 0; dim_of(r, i, c) >= 0 && k < shape_of_input(r, i)->rank; k++)
            if (r->s->binds->input.at[i][k].name)
                *strmap_at(&beside, r->s->binds->input.at[i][k].name) = 1;
    return beside;
}

/* Another name may be one of the same dimension. */
static bool may_be(const StrMap *beside, DimName d)
{
    return d.name && strmap_get(beside, d.name) == NONE;
}

/* Beside a name the file tells: what has no name is not the batch, and a size of the batch has
 * none.  Where it does not tell, a first dimension of as many is, and so is one where the input
 * meets rows. */
static RowsAt rows_at(const Rows *r, const Candidate *c)
{
    Arena *a = r->s->g->arena;
    RowsAt at = {c->name, c->rows, arena_array(a, int, r->n + 1), arena_array(a, bool, r->n + 1),
                 r->n, {0}};
    const StrMap beside = names_beside(r, c);
    for (uint32_t i = 0; i < r->n; i++) {
        const Shape *s = shape_of_input(r, i);
        const DimName *d = r->s->binds->input.at[i];
        bool may = !c->name;
        at.dim[i] = dim_of(r, i, c);
        for (int k = 0; k < s->rank; k++)
            may = c->name ? may || may_be(&beside, d[k]) : may && !d[k].name;
        at.open[i] = may && !r->chunk[i];
        if (c->name && s->rank > 0 && s->d[0] == c->rows && may_be(&beside, d[0]))
            at.dim[i] = 0;
    }
    for (size_t i = 0; i < r->s->m->graph->n_output && c->name; i++) {
        const Onnx__ValueInfoProto *v = r->s->m->graph->output[i];
        int dim = dim_of_output(r, v, c);
        if (dim >= 0 && v->name)
            vec_push(a, &at.out, ((RowsOut){v->name, dim}));
    }
    return at;
}

void import_find_rows(ImportState *s)
{
    Graph *g = s->g;
    Rows r = {.s = s, .n = g->input.n};
    INSIST(s->binds->input.n == g->input.n);
    read_chunks(&r);
    add_names(&r);
    bool named = r.list.n > 0;
    if (!is_decided(&r, named)) {
        Candidate size = {.rows = leading_size(&r)};
        for (uint32_t i = 0; i < r.list.n; i++)
            gather_evidence(&r, &r.list.at[i], size.rows ? &size : NULL);
        gather_evidence(&r, &size, NULL);
        if (size.rows)
            vec_push(g->arena, &r.list, size);
    }
    for (uint32_t i = 1; i < r.list.n; i++)
        for (uint32_t k = i; k > 0 && is_likelier(&r.list.at[k], &r.list.at[k - 1]); k--) {
            Candidate c = r.list.at[k];
            r.list.at[k] = r.list.at[k - 1];
            r.list.at[k - 1] = c;
        }
    for (uint32_t i = 0; i < r.list.n && i < MOST; i++)
        vec_push(g->arena, &g->rows.at, rows_at(&r, &r.list.at[i]));
    if (g->rows.at.n)
        g->batch = g->rows.at.at[0].rows;
}

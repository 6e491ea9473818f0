/*
 * true.c - which elements of a value are true (or not 0), and how many.  In: NonZero of a
 * value that is not known when the model is read; sums of a mask, by which a shape is made
 * (x[mask] = y is a scatter at NonZero of the mask of y expanded to the mask's sum).  Out: constant
 * indices of all places with the mask that tells them apart; sizes.
 */
#include "ir/facts/spread.h"
#include "ragged.h"

#define refuse ragged_refuse

/* Is its first dim the first of an input, of as many samples?  What an operation makes of one
 * sample by itself keeps it (ir/facts/spread.h). */
static bool leads_with_samples(const Graph *g, ValueId v)
{
    const SpreadOf rows = {.g = g, .chunks = g->batch, .alone = true};
    Arena *scratch = arena_within(g->arena);
    bool found = false;
    while (v != NONE && g->batch > 0 && !found) {
        const Value *x = val(g, v);
        SpreadWays ways = {0};
        v = NONE;
        if (x->shape.rank == 0 || x->shape.d[0] != g->batch)
            break;
        found = x->kind == V_INPUT;
        if (x->kind != V_NODE)
            break;
        const Node *n = &g->node.at[x->node];
        spread_ways_at(&rows, x->node, n->nin + x->out, place_s(0, 1), scratch, &ways);
        for (uint32_t i = 0; ways.n && i < n->nin && v == NONE; i++)
            if (ways.at[0].in[i].dim == 0)
                v = n->in[i];
    }
    arena_free(scratch);
    return found;
}

/* The dim that the samples are in, as far as is told: outermost among the places. */
static int outermost(const Import *im, ValueId x)
{
    const Shape *s = &val(im->g, x)->shape;
    int best = 0;
    if (leads_with_samples(im->g, x))
        return 0;
    for (int d = 1; d < s->rank; d++) {
        bool here = im->g->batch > 0 && s->d[d] % im->g->batch == 0,
             there = im->g->batch > 0 && s->d[best] % im->g->batch == 0;
        if (here > there || (here == there && s->d[d] > s->d[best]))
            best = d;
    }
    return best;
}

/* Of the elements of v, those of dim *first outermost, which are true; NONE: they have no order. */
static ValueId true_places(ImportState *st, const Import *im, ValueId v, int *first)
{
    Graph *g = st->g;
    v = ragged_first_alike(st, v);          /* x[x > 0] = y[x > 0] computes its mask twice */
    const Ragged *r = ragged_find(st, v);
    ValueId x = ragged_in_order(st, v);
    Shape s = low_shape(g, x);
    int64_t n = shape_elements(&s);
    if (r && (r->dim == COUNT || ragged_mask(st, r->mask)->shuffled))
        return NONE;
    *first = r ? 0 : outermost(im, x);
    uint32_t mask = *ragged_made(st, "nonzero %u", v);
    if (mask != NONE)
        return mask;
    ValueId there = low_dtype(g, x) == DT_BOOL
                        ? x
                        : g_unary(g, OP_Not, g_binary(g, OP_Equal, x, g_like(g, x, 0)));
    if (r)
        there = ragged_only_there(st, r, there, 0);
    mask = g_reshape(g, low_move_dim(g, there, *first, 0), &(Shape){1, {n}});
    *ragged_made(st, "nonzero %u", v) = mask;
    ragged_mask(st, mask)->shuffled |= *first != 0;
    return mask;
}

bool ragged_non_zero(ImportState *st, Import *im, Importer *fn)
{
    (void)fn;
    Graph *g = im->g;
    Shape s = low_shape(g, im->in[0]);
    int64_t n = shape_elements(&s);
    int first;
    if (s.rank == 0 || n == 0 || n > INT32_MAX)
        low_fatal(im, 0, "NonZero of %s", shape_print(im->arena, low_dtype(g, im->in[0]), &s));
    ValueId mask = true_places(st, im, im->in[0], &first);
    if (mask == NONE)
        refuse(im, 0, " of such a value");
    int64_t *at = arena_array(g->arena, int64_t, n * s.rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        for (int k = s.rank - 1; k >= 0; k--) {
            int d = k == 0 ? first : k <= first ? k - 1 : k; /* first, then the others */
            at[d * n + i] = rest % s.d[d];
            rest /= s.d[d];
        }
    }
    im->out[0] = low_const(g, DT_I64, (Shape){2, {s.rank, n}}, at);
    ragged_mark(st, im->out[0], (Ragged){.mask = mask, .dim = 1});
    return true;
}

/* ---- how many ---- */

/* The mask whose elements x counts as 1: x is a view of it, cast. */
static ValueId counted_mask(const Graph *g, ValueId x)
{
    bool cast = false;
    for (;;) {
        const Value *v = val(g, x);
        if (v->kind != V_NODE || (v->dtype == DT_BOOL && cast))
            return v->kind == V_NODE || v->kind == V_INPUT ? x : NONE;
        const Node *n = &g->node.at[v->node];
        if (n->op != OP_Reshape && (n->op != OP_Cast || dtype_is_float(v->dtype)))
            return NONE;
        cast |= n->op == OP_Cast;
        x = n->in[0];
    }
}

void ragged_note_true(ImportState *s, const Import *im)
{
    ValueId y = im->nout > 0 ? im->out[0] : NONE;
    if (im->op != OP_ReduceSum || y == NONE || val(s->g, y)->kind != V_NODE)
        return;
    Shape sum = low_shape(s->g, y), all = low_shape(s->g, im->in[0]);
    ValueId mask = shape_elements(&sum) == 1 ? counted_mask(s->g, im->in[0]) : NONE;
    Shape of = mask == NONE ? all : low_shape(s->g, mask);
    if (mask != NONE && low_dtype(s->g, mask) == DT_BOOL && shape_elements(&of) > 1)
        *ragged_made(s, "sum %u", y) = mask;
}

enum { DEEPEST = 50 };                                  /* views of a number */

/* The elements of v, numbers of such sums and known ones, from number[n] on; false: of others. */
static bool read_numbers(ImportState *s, const Import *im, ValueId v, const Extent **number, int *n,
                         int depth)
{
    const Value *x = val(s->g, v);
    int64_t elements = shape_elements(&x->shape);
    uint32_t mask = *ragged_made(s, "sum %u", v);
    int first;
    if (elements > MAX_RANK - *n || ragged_find(s, v) || depth == DEEPEST)
        return false;
    if (mask != NONE) {
        ValueId places = true_places(s, im, mask, &first);
        number[(*n)++] = places == NONE ? NULL : ragged_extent(s, places);
        return places != NONE;
    }
    if (x->kind != V_NODE) {
        for (int64_t i = 0; i < elements; i++)
            number[*n + i] = ragged_element(s, v, i);
        *n += (int)elements;
        return x->kind == V_CONST;
    }
    const Node *node = &s->g->node.at[x->node];
    uint32_t operands = node->op == OP_Concat ? node->nin : 1;
    if (node->op != OP_Concat && node->op != OP_Reshape && node->op != OP_Identity &&
        node->op != OP_Cast)
        return false;
    for (uint32_t i = 0; i < operands; i++)
        if (!read_numbers(s, im, s->g->node.at[val(s->g, v)->node].in[i], number, n, depth + 1))
            return false;
    return true;
}

ValueId ragged_size_of_true(ImportState *s, const Import *im, ValueId v)
{
    const Extent *number[MAX_RANK] = {0};
    const Value *x = v == NONE ? NULL : val(s->g, v);
    int n = 0;
    if (!x || x->kind != V_NODE || x->shape.rank > 1 || dtype_is_float(x->dtype) ||
        x->dtype == DT_BOOL || !read_numbers(s, im, v, number, &n, 0))
        return NONE;
    return ragged_computed(s, v, number, n);
}

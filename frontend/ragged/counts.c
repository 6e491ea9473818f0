/*
 * counts.c - numbers computed of sizes that depend on the data, what is made of such a size,
 * and where such values end: outputs, and branches that the data choose.  In: Shape and Size, and
 * what follows of them.  Out: constants of the largest size, marked (values.c).
 */
#include "ragged.h"


#define refuse ragged_refuse

static bool is_number(const Import *im, ValueId v, double number)
{
    double x;
    return low_uniform(im->g, v, &x) && x == number;
}

void ragged_measure(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    INSIST(r);
    Ragged was = *r;
    Shape x = low_shape(im->g, im->in[0]);
    fn(im);
    if (was.dim == COUNT)                               /* how many numbers there are is known */
        return;
    const Extent *size = ragged_extent(s, was.mask),
                 **number = arena_array(im->arena, const Extent *, x.rank + 1);
    int64_t start = im_int(im, "start", 0), others = 1;
    start = low_max(0, low_min(start < 0 ? start + x.rank : start, x.rank));
    for (int d = 0; d < x.rank; d++)
        others *= d == was.dim ? 1 : x.d[d];
    if (im->op == OP_Size)
        number[0] = ragged_sum(s, size, others, ragged_known(s, 0), 0);
    for (int d = (int)start; d < x.rank && im->op == OP_Shape; d++)
        number[d - start] = d == was.dim ? size : ragged_known(s, x.d[d]);
    ragged_mark_count(s, im, fn, 0, (Ragged){.grows = true, .number = number});
}

/* Where the operands are largest, is the result? */
static bool grows(ImportState *s, const Import *im)
{
    double k;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        bool signed_ = im->op == OP_Mul || im->op == OP_Div;
        if (r ? !r->grows || (i == 1 && (im->op == OP_Sub || im->op == OP_Div))
              : signed_ && (!low_uniform(im->g, im->in[i], &k) || k < 0 ||
                            (i == 0 && im->op == OP_Div)))
            return false;
    }
    return op_grows(im->op) || (!op_is_map(im->op) && ragged_find(s, im->in[0]));
}

/* Numbers made of such ones: as constants, where that is what they are, else as they are in this
 * run. */
void ragged_counted(ImportState *s, Import *im, Importer *fn)
{
    fn(im);
    bool known = true;
    for (uint32_t i = 0; i < im->nout; i++)
        known = known && (im->out[i] == NONE || val(im->g, im->out[i])->kind == V_CONST);
    for (uint32_t i = 0; i < im->nout && known; i++)
        if (im->out[i] != NONE)
            ragged_mark_count(s, im, fn, i,
                              (Ragged){.grows = grows(s, im),
                                       .number = ragged_numbers(s, im, fn, i)});
    if (known)
        return;
    Import own = *im;
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t i = 0; i < im->nin; i++)
        in[i] = ragged_actual(s, im->in[i]);
    own.in = in;
    fn(&own);
}

/* Number d of those that the size of a result is made of. */
static const Extent *extent_of(ImportState *s, const Import *im, int d)
{
    return im->op != OP_Range                   ? ragged_element(s, im->in[0], d)
           : is_number(im, im->in[0], 0) && is_number(im, im->in[2], 1)
               ? ragged_element(s, im->in[1], 0)
               : NULL;
}

/* A known value of such a size: the only dim that has it. */
void ragged_fill(ImportState *s, Import *im, Importer *fn)
{
    bool range = im->op == OP_Range;                    /* its numbers are those of the places */
    const Ragged *r = ragged_find(s, im->in[range ? 1 : 0]);
    int dim = -1;
    if (!r)
        refuse(im, 0, " of a size computed of such a one");
    fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    for (int d = 0; d < y.rank; d++) {
        if (ragged_is_known(extent_of(s, im, d)))
            continue;
        if (dim >= 0)
            refuse(im, 0, " of such a size in two dims");
        dim = d;
    }
    if (dim < 0)
        return;
    const Extent *e = extent_of(s, im, dim);
    ValueId size = im->in[range ? 1 : 0], mask = ragged_of_extent(s, e, size, dim, y.d[dim]);
    if (!e && !range && r->grows)
        mask = ragged_first(s, ragged_actual_at(s, size, dim), y.d[dim]);
    if (mask == NONE || (range && ragged_mask(s, mask)->shuffled))
        refuse(im, 0, " of a size computed of such a one");
    if (range && dtype_is_float(low_dtype(im->g, im->out[0])))
        im->out[0] = ragged_only_there(s, &(Ragged){.mask = mask}, im->out[0], 0);
    ragged_mark(s, im->out[0], (Ragged){.mask = mask, .dim = dim, .packed = range});
}

/* ---- what leaves them ---- */

ValueId ragged_output(ImportState *s, ValueId *v, Where w)
{
    const Ragged *r = ragged_find(s, *v);
    if (!r)
        return NONE;
    if (r->dim == COUNT) {
        *v = ragged_actual(s, *v);
        return NONE;
    }
    if (ragged_mask(s, r->mask)->shuffled)
        diag_fatal(EXIT_MODEL, w,
                   "its size depends on the data, and its places have another order here");
    bool zeros = r->packed && dtype_is_float(low_dtype(s->g, *v));
    *v = ragged_in_order(s, *v);
    if (r->packed && !zeros)
        *v = ragged_only_there(s, r, *v, 0);
    return g_reshape(s->g, ragged_count(s, r->mask), &(Shape){0});
}

/* condition ? x : y, where at least one is of such a size: of the same, or empty. */
bool ragged_choose(ImportState *s, ValueId condition, ValueId x, ValueId y, ValueId *out)
{
    Graph *g = s->g;
    const Ragged *a = ragged_find(s, x), *b = ragged_find(s, y);
    if (!a && !b)
        return false;
    if ((a && a->dim == COUNT) || (b && b->dim == COUNT)) {
        *out = g_where(g, condition, ragged_actual(s, x), ragged_actual(s, y));
        return true;
    }
    Ragged r = a ? *a : *b;
    if (a && b) {
        Shape p = low_shape(g, x), q = low_shape(g, y);
        r.mask = ragged_common(s, a->mask, b->mask);
        if (r.mask == NONE || a->dim != b->dim || !shape_equal(&p, &q) ||
            low_dtype(g, x) != low_dtype(g, y))
            return false;
        *out = g_where(g, condition, ragged_in_order(s, x), ragged_in_order(s, y));
    } else {
        Shape none = low_shape(g, a ? y : x);
        if (shape_elements(&none) != 0)
            return false;
        ValueId is = a ? condition : g_unary(g, OP_Not, condition), all = ragged_packed(s, r.mask);
        uint32_t *mask = ragged_made(s, "if %u %u", is, all);
        if (*mask == NONE) {
            *mask = g_binary(g, OP_And, all, is);
            ragged_comes_first(s, *mask, NULL, ragged_mask(s, r.mask)->shuffled);
        }
        *out = ragged_in_order(s, a ? x : y);
        r.mask = *mask;
        if (dtype_is_float(low_dtype(g, *out)))
            *out = ragged_only_there(s, &r, *out, 0);
        else
            *out = g_unary(g, OP_Identity, *out);
    }
    r.packed = true;
    ragged_mark(s, *out, r);
    return true;
}

/*
 * ragged_counts.c - numbers computed of sizes that depend on the data, what is made of such a size,
 * and where such values end: outputs, and branches that the data choose.  In: Shape and Size, and
 * what follows of them.  Out: constants of the largest size, marked (ragged_values.c).
 */
#include "ragged.h"

#include "low.h"

#define refuse ragged_refuse

static bool is_zero(const Import *im, ValueId v)
{
    double x;
    return low_uniform(im->g, v, &x) && x == 0;
}

void ragged_measure(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    INSIST(r);
    Ragged was = *r;
    fn(im);
    if (was.dim == COUNT)                               /* how many numbers there are is known */
        return;
    bool whole = im->op == OP_Shape && !im_has(im, "start") && !im_has(im, "end");
    ragged_mark_count(s, im, NULL, 0,
                      (Ragged){.mask = was.mask, .size = whole ? was.dim : ANY,
                               .exact = im->op == OP_Shape});
}

/* Does it leave the size what it is: times 1, plus 0? */
static bool keeps_size(const ImportState *s, const Import *im)
{
    double x, same = im->op == OP_Mul || im->op == OP_Div ? 1 : 0;
    if (im->op != OP_Mul && im->op != OP_Div && im->op != OP_Add && im->op != OP_Sub)
        return !op_is_map(im->op) || im->op == OP_Cast || im->op == OP_Equal || im->op == OP_Where;
    for (uint32_t i = 0; i < im->nin; i++)
        if (!ragged_find(s, im->in[i]) && (!low_uniform(im->g, im->in[i], &x) || x != same))
            return false;
    return true;
}

/* The first operand of such a size; exact: all of them are, and of the same rows. */
static const Ragged *first_of(const ImportState *s, const Import *im, bool *exact)
{
    const Ragged *r = NULL;
    *exact = true;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *at = ragged_find(s, im->in[i]);
        r = r ? r : at;
        *exact = *exact && (!at || (at->exact && at->mask == r->mask));
    }
    INSIST(r);
    return r;
}

/* Numbers made of such ones: as constants, where that is what they are, else as they are in this
 * run. */
void ragged_counted(ImportState *s, Import *im, Importer *fn)
{
    bool exact;
    const Ragged *r = first_of(s, im, &exact);
    Ragged was = {.mask = r->mask, .size = ANY, .exact = exact && keeps_size(s, im)};
    fn(im);
    bool known = true;
    for (uint32_t i = 0; i < im->nout; i++)
        known = known && (im->out[i] == NONE || val(im->g, im->out[i])->kind == V_CONST);
    for (uint32_t i = 0; i < im->nout && known; i++)
        if (im->out[i] != NONE)
            ragged_mark_count(s, im, fn, i, was);
    if (known)
        return;
    Import own = *im;
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t i = 0; i < im->nin; i++)
        in[i] = ragged_actual(s, im->in[i]);
    own.in = in;
    fn(&own);
}

/* A known value of such a size: the only dim that has it. */
void ragged_fill(ImportState *s, Import *im, Importer *fn)
{
    bool exact;
    const Ragged *r = first_of(s, im, &exact);
    ValueId mask = r->mask;
    int dim = -1;
    fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    if (y.rank == 1 && !exact && im->op == OP_ConstantOfShape)
        mask = ragged_first(s, ragged_actual(s, im->in[0]), y.d[0]), exact = true;
    int64_t n = low_shape(im->g, mask).d[0];
    for (int d = 0; d < y.rank; d++) {
        if (y.d[d] == n && dim >= 0)
            refuse(im, 0, " of such a size in two dims");
        dim = y.d[d] == n ? d : dim;
    }
    bool range = im->op == OP_Range;                    /* its numbers are those of the places */
    if (dim < 0 || !exact || (range && (ragged_shuffled(s, mask) || !is_zero(im, im->in[0]))))
        refuse(im, 0, " of a size computed of such a one");
    if (range && dtype_is_float(low_dtype(im->g, im->out[0])))
        im->out[0] = ragged_only_there(s, &(Ragged){.mask = mask}, im->out[0], 0);
    ragged_mark(s, im->out[0], (Ragged){mask, dim, range, ANY, false, NULL});
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
    if (ragged_shuffled(s, r->mask))
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
        if (a->mask != b->mask || a->dim != b->dim || !shape_equal(&p, &q) ||
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
            *ragged_made(s, "packed %u", *mask) = *mask;
            if (ragged_shuffled(s, r.mask))
                ragged_shuffle(s, *mask);
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

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

bool ragged_measure(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    INSIST(r);
    Ragged was = *r;
    Shape x = low_shape(im->g, im->in[0]);
    fn(im);
    if (was.dim == COUNT)                               /* how many numbers there are is known */
        return true;
    const Extent *size = ragged_extent(s, was.mask),
                 **number = arena_array(im->arena, const Extent *, x.rank + 1);
    int64_t start = im_int(im, "start", 0), others = 1;
    start = low_max(0, low_min(start < 0 ? start + x.rank : start, x.rank));
    for (int d = 0; d < x.rank; d++)
        others *= d == was.dim ? 1 : x.d[d];
    if (im->op == OP_Size && was.also)
        refuse(im, 0, " of such a size in two dims");
    if (im->op == OP_Size)
        number[0] = ragged_sum(s, size, others, ragged_known(s, 0), 0);
    for (int d = (int)start; d < x.rank && im->op == OP_Shape; d++)
        number[d - start] = d == was.dim || d == was.also - 1 ? size : ragged_known(s, x.d[d]);
    ragged_mark_count(s, im->out[0], NULL, 0, number, true);
    return true;
}

/* Where the operands are largest, is the result? */
static bool grows(const Core *c)
{
    const Op op = c->n.op;
    double k;
    for (uint32_t i = 0; i < c->n.nin; i++) {
        const Ragged *r = ragged_find(c->s, c->in[i]);
        bool signed_ = op == OP_Mul || op == OP_Div;
        if (r ? !r->grows || (i == 1 && (op == OP_Sub || op == OP_Div))
              : signed_ && (!low_uniform(c->s->g, c->in[i], &k) || k < 0 ||
                            (i == 0 && op == OP_Div)))
            return false;
    }
    return op_grows(op) || (!op_is_map(op) && ragged_find(c->s, c->in[0]));
}

/* Numbers made of such ones: as constants, where that is what they are, else as they are in this
 * run. */
ValueId ragged_counted(Core *c)
{
    Graph *g = c->s->g;
    const ValueId y = ragged_node(c);
    bool known = true;
    for (uint32_t o = 0; o < c->n.nout; o++)
        known = known && val(g, graph_out(g, y, o))->kind == V_CONST;
    for (uint32_t o = 0; o < c->n.nout && known; o++) {
        const ValueId v = graph_out(g, y, o);
        ragged_mark_count(c->s, v, c, o, ragged_numbers(c, o, v), grows(c));
    }
    if (known)
        return y;
    for (uint32_t i = 0; i < c->n.nin; i++)
        c->in[i] = ragged_actual(c->s, c->in[i]);
    return ragged_node(c);
}

/* The sizes to which such a value is expanded are known, or those that it has. */
static void check_expanded(ImportState *s, const Import *im, const Ragged *r)
{
    const Shape sizes = low_shape(im->g, im->in[1]);
    const int64_t rank = low_shape(im->g, im->in[0]).rank, n = shape_elements(&sizes);
    for (int64_t i = 0; i < n; i++) {
        const Extent *e = ragged_element(s, im->in[1], i);
        const int64_t d = rank - n + i;
        if (!ragged_is_known(e) && ((d != r->dim && d != r->also - 1) ||
                                    !ragged_same_extent(e, ragged_extent(s, r->mask))))
            refuse(im, 1, " of such a value to another such size");
    }
}

/* Operand `input` has the sizes of a known value; numbers from 0 on are those of the places. */
bool ragged_fill(ImportState *s, Import *im, Importer *fn)
{
    const bool range = im->op == OP_Range, expands = im->op == OP_Expand;
    const int input = range || expands;
    const ValueId sizes = im->in[input];
    const Ragged *r = ragged_find(s, sizes);
    int dim = -1;
    const Ragged *of = expands ? ragged_find(s, im->in[0]) : NULL;
    if (of) {
        if (r && of->dim == COUNT)
            refuse(im, input, " of sizes to such a size");
        if (r)
            check_expanded(s, im, of);
        return false;
    }
    if (!r || (range && (!is_number(im, im->in[0], 0) || !is_number(im, im->in[2], 1))))
        refuse(im, input, " of a size computed of such a one");
    fn(im);
    Shape y = low_shape(im->g, im->out[0]), x = low_shape(im->g, im->in[0]),
          numbers = low_shape(im->g, sizes);
    const int before = y.rank - (int)shape_elements(&numbers), more = y.rank - x.rank;
    for (int d = before; d < y.rank; d++) {
        if (ragged_is_known(ragged_element(s, sizes, d - before)))
            continue;
        if (dim >= 0)
            refuse(im, input, " of such a size in two dims");
        if (expands && d >= more && x.d[d - more] != 1)
            refuse(im, input, " to such a size of what has another");
        dim = d;
    }
    if (dim < 0)
        return true;
    const Extent *e = ragged_element(s, sizes, dim - before);
    ValueId mask = ragged_of_extent(s, e, sizes, dim - before, y.d[dim]);
    if (!e && im->op == OP_ConstantOfShape && r->grows)
        mask = ragged_first(s, ragged_actual_at(s, sizes, dim), y.d[dim]);
    if (mask == NONE || (range && ragged_mask(s, mask)->shuffled))
        refuse(im, input, " of a size computed of such a one");
    Ragged is = {.mask = mask, .dim = dim, .packed = range || expands, .dirty = true};
    im->out[0] = ragged_settled(s, im->out[0], is);
    return true;
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
    if (ragged_mask(s, r->mask)->shuffled || r->also)
        diag_fatal(EXIT_MODEL, w, "its size depends on the data, %s",
                   r->also ? "along two dims" : "and its places have another order here");
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
        if (r.mask == NONE || a->dim != b->dim || a->also != b->also || !shape_equal(&p, &q) ||
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

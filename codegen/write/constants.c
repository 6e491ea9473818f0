/*
 * constants.c - constants where lengths vary, which are no text.  In: one as it is in each sample.
 * Out: one for all: it has, with each length, the first elements of that of the greatest one, along
 * each dimension, and is read where they stand there; or one length decides it, and the program has
 * it with each.
 */
#include <math.h>
#include <string.h>

#include "codegen/plan/plan.h"
#include "codegen/tables.h"
#include "lengths.h"

/* the first node that reads it, or the file */
static Where reader(const Graph *g, ValueId v)
{
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin; i++)
            if (g->node.at[n].in[i] == v)
                return graph_where(g, g->node.at[n].origin, (int)i);
    return WHERE_FILE(g->file);
}

/* Where element i of a shape is in a larger one, at whose begin it stands. */
static int64_t begin_of(int64_t i, const Shape *x, const Shape *in)
{
    int64_t at = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        at += i % x->d[d] * stride;
        i /= x->d[d];
        stride *= in->d[d];
    }
    return at;
}

/* Are the elements of x the first ones of `all`, in each dimension, or one after the other where
 * view.c reads them so? */
static bool is_begin(const Value *x, const Value *all)
{
    int64_t n = shape_elements(&x->shape), size = (int64_t)dtype_size(x->dtype), first, step;
    if (cg_iota(x, &first, &step))
        return !memcmp(x->data, all->data, (size_t)(n * size));
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)x->data + i * size,
                   (const char *)all->data + begin_of(i, &x->shape, &all->shape) * size,
                   (size_t)size) != 0)
            return false;
    return true;
}

/* The shape that v[k] with the lengths of sample k, has with the greatest of all samples. */
static bool shape_most(const Lengths *l, const Value *const *v, Shape *most)
{
    *most = v[0]->shape;
    for (int d = 0; d < most->rank; d++) {
        int64_t size[SAMPLES];
        Polynomial p;
        for (int k = 0; k < l->n; k++)
            size[k] = v[k]->shape.d[d];
        if (!cg_fit(l, size, &p))
            return false;
        most->d[d] = cg_value_most(l, &p, true);
    }
    return true;
}

/* Is `most` the constant of the greatest length, of which those of the others are the begin? */
static bool begins(const Lengths *l, const Value *const *v, const Value *most)
{
    Shape is;
    if (most->dtype != v[0]->dtype || !shape_most(l, v, &is) || !shape_equal(&is, &most->shape))
        return false;
    for (int k = 0; k < l->n; k++)
        if (!is_begin(v[k], most))
            return false;
    return true;
}

static bool same_constant(const Value *x, const Value *y)
{
    return shape_equal(&x->shape, &y->shape) &&
           !memcmp(x->data, y->data, (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
}

static bool never_changes(const Lengths *l, const Value *const *v)
{
    bool same = true;
    for (int k = 1; k < l->n && same; k++)
        same = same_constant(v[k], v[0]);
    return same;
}

/* All elements are the one that x has: what is broadcast has no other. */
static bool is_filled(const Value *all, const Value *x)
{
    const size_t size = dtype_size(x->dtype);
    bool filled = shape_elements(&x->shape) == 1 && all->dtype == x->dtype;
    for (int64_t i = 0; i < shape_elements(&all->shape) && filled; i++)
        filled = !memcmp((const char *)all->data + (size_t)i * size, x->data, size);
    return filled;
}

/* One that is one number: a whole one is a polynomial's. */
static bool number_follows(const Lengths *l, const Value *const *v, const int64_t *length,
                           const Value *own)
{
    int64_t whole[SAMPLES];
    Polynomial p;
    for (int k = 0; k <= l->n; k++) {
        const Value *x = k < l->n ? v[k] : own;
        const double number = element_double(x->dtype, x->data, 0);
        if (!(fabs(number) < 0x1p53) || number != floor(number))
            return true;
        whole[k] = (int64_t)number;
    }
    return !cg_fit(l, whole, &p) || cg_value(l, &p, length) == whole[l->n];
}

bool lengths_constant(const Lengths *l, ValueId id, const int64_t *length, const Value *own)
{
    const Graph *most = l->imported[l->all - 1];
    const Value *v[SAMPLES] = {NULL};
    for (int k = 0; k < l->n; k++)
        v[k] = val(l->imported[k], id);
    if (v[0]->kind != V_CONST || own->kind != V_CONST)
        return true;
    if (never_changes(l, v))
        return same_constant(own, v[0]) || is_filled(own, v[0]);
    if (shape_elements(&v[0]->shape) == 1)
        return number_follows(l, v, length, own);
    const Value *all = id < most->value.n ? val(most, id) : own;
    return !begins(l, v, all) || is_begin(own, all);
}

/* The one symbol that decides what it is; symbols: there is none. */
static int decided_by(const Lengths *l, const Value *const *v)
{
    int s = 0;
    for (bool alone = false; s < l->symbols; s++) {
        alone = true;
        for (int k = 0; k < l->n && alone; k++)
            for (int j = 0; j < k && alone; j++)
                alone = l->at[k][s] != l->at[j][s] || same_constant(v[k], v[j]);
        if (alone)
            break;
    }
    return s;
}

/* x, with dimensions of this size, at the begin of which it stands; flat: one element after the
 * other */
static void put_begin(const Value *x, const Shape *of, bool flat, char *to)
{
    const int64_t size = (int64_t)dtype_size(x->dtype);
    for (int64_t i = 0; i < shape_elements(&x->shape); i++)
        memcpy(to + (flat ? i : begin_of(i, &x->shape, of)) * size,
               (const char *)x->data + i * size, (size_t)size);
}

enum { MOST_TABLES = 512, MOST_TABLE_BYTES = 1 << 26 };

/* A constant of each length, one behind the other, each in the place of the greatest: what a
 * resized table is multiplied with.  false: it would be too long. */
static bool find_tables(Arena *a, const Lengths *l, const Value *const *v, uint32_t index,
                        StageGen **sg)
{
    const int s = decided_by(l, v);
    const ValueId id = sg[0]->constants.at[index].value;
    const Symbol *symbol = &l->symbol[s < l->symbols ? s : 0];
    Shape slot;
    if (s == l->symbols || !shape_most(l, v, &slot))
        return false;
    const int64_t n = symbol->most - symbol->least + 1, size = (int64_t)dtype_size(v[0]->dtype),
                  bytes = align_up(shape_elements(&slot) * size);
    int64_t first, step;
    if (n > MOST_TABLES || bytes > MOST_TABLE_BYTES / n)
        return false;
    Value *all = arena_new_of(a, Value);
    *all = *v[0];
    all->shape = shape_of(1, n * bytes / size);
    char *data = arena_alloc(a, (size_t)(n * bytes));
    all->data = data;
    for (int64_t i = 0; i < n; i++) {
        int64_t length[SYMBOLS];
        memcpy(length, l->at[0], sizeof length);
        length[s] = symbol->least + i;
        const Pipe *p = l->with(l->of, length);
        lengths_values(l, p, length, id + 1);
        put_begin(val(p->graph, id), &slot, cg_iota(v[0], &first, &step), data + i * bytes);
    }
    for (int k = 0; k < l->n; k++) {
        StageConst *c = &sg[k]->constants.at[index];
        c->most = all;
        c->inlined = false;
        c->offset = sg[k]->bytes_const;
        c->shift = (l->at[k][s] - symbol->least) * bytes;
        sg[k]->bytes_const += n * bytes;
    }
    return true;
}

static bool is_within(const Shape *x, const Shape *all)
{
    bool is = x->rank == all->rank;
    for (int d = 0; d < x->rank && is; d++)
        is = x->d[d] <= all->d[d];
    return is;
}

static bool is_part(const Value *x, const Value *all)
{
    return x->dtype == all->dtype && is_within(&x->shape, &all->shape) && is_begin(x, all);
}

int64_t lengths_tables(const Lengths *l, const StageGen *most, const StageGen *sample)
{
    int64_t bytes = 0, n = 0;
    for (int s = 0; s < l->symbols; s++) {
        const int64_t own = l->symbol[s].most - l->symbol[s].least + 1;
        n = own > n ? own : n;
    }
    for (uint32_t i = 0; i < sample->constants.n && i < most->constants.n; i++) {
        const Value *x = val(sample->g, sample->constants.at[i].value),
                    *all = val(most->g, most->constants.at[i].value);
        bool begins = false;
        for (uint32_t j = 0; j < most->constants.n && !begins; j++) {
            const Value *y = val(most->g, most->constants.at[j].value);
            begins = shape_equal(&y->shape, &all->shape) && is_part(x, y);
        }
        const int64_t size = (int64_t)dtype_size(all->dtype);
        bytes += begins ? 0 : n * align_up(shape_elements(&all->shape) * size);
    }
    return bytes;
}

bool lengths_tabulates(const Graph *most, const Graph *sample)
{
    bool may = most->value.n != sample->value.n;
    for (ValueId v = 0; !may && v < sample->value.n; v++) {
        const Value *x = val(sample, v), *all = val(most, v);
        may = x->kind == V_CONST && (all->kind != V_CONST || !is_part(x, all));
    }
    return may;
}

void lengths_constants(Arena *a, const Lengths *l, const StageGen *most, StageGen **sg)
{
    for (uint32_t i = 0; i < sg[0]->constants.n; i++) {
        const Value *v[SAMPLES], *all = NULL;
        for (int k = 0; k < l->n; k++) {
            if (sg[k]->constants.n != sg[0]->constants.n)
                lengths_differ(l, "its constants are others with other lengths");
            v[k] = val(sg[k]->g, sg[k]->constants.at[i].value);
        }
        if (never_changes(l, v))
            continue;
        for (uint32_t j = 0; j < most->constants.n && !all; j++) {
            const Value *x = val(most->g, most->constants.at[j].value);
            all = begins(l, v, x) ? x : NULL;
        }
        for (int k = 0; k < l->n && all; k++)
            sg[k]->constants.at[i].most = all;
        if (!all && !find_tables(a, l, v, i, sg))
            lengths_refuse(l, reader(sg[0]->g, sg[0]->constants.at[i].value),
                           arena_printf(a,
                                        "a constant%s, %s with %s, is not a part of the one that "
                                        "the greatest lengths have, and too long to have one for "
                                        "each",
                                        out_value_text(a, sg[0]->g, sg[0]->constants.at[i].value),
                                        shape_print(a, v[0]->dtype, &v[0]->shape),
                                        cg_lengths_text(a, l, l->at[0])));
    }
}

/*
 * shape_windows.c - types and shapes of matrix products, convolutions and pools.
 */
#include <string.h>

#include "infer.h"

/* ---- products ---- */

static void product(Infer *x)
{
    const Shape *a = infer_dims(x, 0), *b = infer_dims(x, 1);
    INSIST(a->rank >= 2 && b->rank >= 2);
    int64_t inner = a->d[a->rank - 1];
    if (inner != b->d[b->rank - 2])
        infer_refuse(x, 1, "inner dimensions differ: %lld and %lld", infer_number(inner),
                     infer_number(b->d[b->rank - 2]));
    const Dtype t = infer_type(x, 0), to = x->at->to;
    INSIST(to == DT_NONE || (to == DT_F32 && (dtype_is_half(t) || t == DT_F32)));
    x->t[0] = to == DT_NONE ? t : to;
    x->s[0] = *a;
    infer_broadcast(x, b, 2, &x->s[0]);
    x->s[0].d[x->s[0].rank - 2] = a->d[a->rank - 2];
    x->s[0].d[x->s[0].rank - 1] = b->d[b->rank - 1];
}

void shape_matmul(Infer *x)
{
    infer_same_types(x, 0);
    product(x);
}

void shape_packed_matmul(Infer *x)
{
    const Shape *a = infer_dims(x, 0), *mask = infer_dims(x, 2);
    const int before = mask->rank - 1; /* several: dimension 0 of all operands */
    INSIST(before <= 1 && a->rank == 2 + before && infer_dims(x, 1)->rank == a->rank);
    INSIST(mask->d[before] == a->d[x->at->axis + before] && infer_type(x, 2) == DT_BOOL);
    INSIST(!before || (mask->d[0] == a->d[0] && mask->d[0] == infer_dims(x, 1)->d[0]));
    INSIST(infer_type(x, 0) == infer_type(x, 1));
    product(x);
}

/* A matrix for each of the operands', which broadcast; and what there are fewer of divides it. */
void shape_flash_attention(Infer *x)
{
    const Shape *q = infer_dims(x, 0), *v = infer_dims(x, 2);
    Shape all = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const Shape *s = infer_dims(x, i);
        Shape more = s->rank > all.rank ? *s : all, less = s->rank > all.rank ? all : *s;
        for (int d = 0; d < less.rank - 2; d++) {
            int64_t *to = &more.d[d + more.rank - less.rank];
            *to = less.d[d] > *to || less.d[d] == 0 ? less.d[d] : *to;
        }
        all = more;
    }
    all.d[all.rank - 2] = q->d[q->rank - 2];
    x->t[0] = infer_type(x, 0);
    x->t[1] = DT_F32;
    x->s[0] = x->s[1] = all;
    x->s[0].d[all.rank - 1] = v->d[v->rank - 1];
    x->s[1].d[all.rank - 1] = 2;
}

/* dk and dv are added up over the heads that share keys and values; but not over samples, and not
   where only one of the two is shared. */
void shape_flash_attention_grad(Infer *x)
{
    const Shape *y = infer_dims(x, 3);
    int rows = val(x->g, x->in[3])->batch;
    for (uint32_t i = 0; i < 3; i++) {
        const Shape *s = infer_dims(x, i), *k = infer_dims(x, 1), *v = infer_dims(x, 2);
        x->t[i] = infer_type(x, i);
        x->s[i] = *y;
        for (int d = 0; d < y->rank - 2 && i > 0; d++) {
            int at_k = d - (y->rank - k->rank), at_v = d - (y->rank - v->rank);
            int64_t keys = at_k < 0 ? 1 : k->d[at_k], values = at_v < 0 ? 1 : v->d[at_v];
            if (d != rows && keys == values)
                x->s[i].d[d] = keys;
        }
        x->s[i].d[y->rank - 2] = s->d[s->rank - 2];
        x->s[i].d[y->rank - 1] = s->d[s->rank - 1];
    }
}

/* Positions of a window of k (dilated) over d (padded), stride apart. */
static int64_t windows(const Infer *x, int i, int64_t d, int64_t k, bool ceil)
{
    const Attr *t = x->at;
    int64_t stride = t->stride[i], begin = t->pad[i], end = t->pad[i + t->n];
    if (stride < 1 || t->dilation[i] < 1 || k < 1 || begin < 0 || end < 0)
        infer_refuse(
            x, 0,
            "stride %lld, dilation %lld, kernel %lld, pads %lld and %lld along spatial axis %d",
            infer_number(stride), infer_number(t->dilation[i]), infer_number(k),
            infer_number(begin), infer_number(end), i);
    int64_t room = infer_add(x, infer_add(x, d, begin), end) -
                   infer_add(x, infer_mul(x, k - 1, t->dilation[i]), 1);
    if (room < 0)
        infer_refuse(x, 0, "the kernel does not fit into spatial axis %d of %lld", i,
                     infer_number(d));
    int64_t n = room / stride + 1;
    /* the last window of ceil mode must begin inside the data or its left padding */
    if (ceil && room % stride != 0 && n * stride < d + begin)
        n++;
    return n;
}

static void check_spatial(const Infer *x, int n)
{
    const Shape *s = infer_dims(x, 0);
    if (n < 1 || n > 3 || s->rank != n + 2)
        infer_refuse(x, 0,
                     "an operand of rank %d with %d spatial dimensions (1 to 3 are supported)",
                     s->rank, n);
    infer_need(x, 0, dtype_is_float(infer_type(x, 0)), "of a float type");
}

static void check_group(const Infer *x, int64_t channels, int64_t outputs)
{
    if (x->at->group < 1 || channels % x->at->group || outputs % x->at->group)
        infer_refuse(x, 1, "%lld and %lld channels in %lld groups", infer_number(channels),
                     infer_number(outputs), infer_number(x->at->group));
}

void shape_conv(Infer *x)
{
    const Shape *a = infer_dims(x, 0), *w = infer_dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    infer_same_types(x, 0);
    if (w->rank != a->rank)
        infer_refuse(x, 1, "a kernel of rank %d for an operand of rank %d", w->rank, a->rank);
    check_group(x, a->d[1], w->d[0]);
    if (w->d[1] != a->d[1] / x->at->group)
        infer_refuse(x, 1, "the kernel takes %lld channels, %lld groups of %lld give %lld",
                     infer_number(w->d[1]), infer_number(x->at->group), infer_number(a->d[1]),
                     infer_number(a->d[1] / x->at->group));
    *s = *a;
    s->d[1] = w->d[0];
    for (int i = 0; i < x->at->n; i++)
        s->d[i + 2] = windows(x, i, a->d[i + 2], w->d[i + 2], false);
    x->t[0] = infer_type(x, 0);
}

void shape_conv_transpose(Infer *x)
{
    const Shape *a = infer_dims(x, 0), *w = infer_dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    infer_same_types(x, 0);
    if (w->rank != a->rank || w->d[0] != a->d[1])
        infer_refuse(x, 1, "the kernel does not fit the operand's channels");
    check_group(x, a->d[1], a->d[1]);
    *s = *a;
    s->d[1] = infer_mul(x, w->d[1], x->at->group);
    for (int i = 0; i < x->at->n; i++) {
        if (x->at->out_dims[i] < 0 || x->at->stride[i] < 1 || x->at->dilation[i] < 1 ||
            x->at->pad[i] < 0 || x->at->pad[i + x->at->n] < 0)
            infer_refuse(x, 0, "an output of %lld with stride %lld along spatial axis %d",
                   infer_number(x->at->out_dims[i]), infer_number(x->at->stride[i]), i);
        s->d[i + 2] = x->at->out_dims[i];
    }
    x->t[0] = infer_type(x, 0);
}

void shape_conv_weight_grad(Infer *x)
{
    const Shape *a = infer_dims(x, 0), *y = infer_dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    infer_same_types(x, 0);
    s->rank = x->at->n + 2;
    memcpy(s->d, x->at->weight_dims, (size_t)s->rank * sizeof s->d[0]);
    check_group(x, a->d[1], y->rank == a->rank ? y->d[1] : 1);
    if (y->rank != a->rank || y->d[0] != a->d[0] || s->d[0] != y->d[1] ||
        s->d[1] != a->d[1] / x->at->group)
        infer_refuse(x, 1, "operand and gradient do not make a kernel of %s",
               shape_print(x->g->arena, infer_type(x, 0), s));
    x->t[0] = dtype_sum(infer_type(x, 0));
}

void shape_pool(Infer *x)
{
    const Shape *a = infer_dims(x, 0);
    check_spatial(x, x->at->n);
    x->s[0] = *a;
    for (int i = 0; i < x->at->n; i++) {
        x->s[0].d[i + 2] = windows(x, i, a->d[i + 2], x->at->kernel[i], x->at->ceil_mode != 0);
        if (x->at->pad[i] >= (x->at->kernel[i] - 1) * x->at->dilation[i] + 1)
            infer_refuse(x, 0, "a pad of %lld leaves a window without elements",
                         infer_number(x->at->pad[i]));
    }
    x->t[0] = infer_type(x, 0);
}

void shape_max_pool(Infer *x)
{
    shape_pool(x);
    x->t[1] = DT_I64;
    x->s[1] = x->s[0];
}

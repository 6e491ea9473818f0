/*
 * attention.c - FlashAttention and its gradients by their definition, the scores of one query at a
 * time.  Dropout drops nothing here, as in the evaluator.  Where operands have 16 bits, so
 * has what is multiplied with them, as tensor cores want it: e^(s - max), p and ds.
 */
#include <math.h>

#include "ir/eval/eval.h"
#include "oracle.h"

/* Where matrix z of a batch begins in an operand that broadcasts, or has one for several in a row.
 */
static int64_t begin(const Shape *like, const Shape *s, int64_t z)
{
    int64_t at = 0, step = s->rank < 2 ? 0 : s->d[s->rank - 1] * s->d[s->rank - 2];
    for (int d = like->rank - 3; d >= 0; d--) {
        int own = d - (like->rank - s->rank);
        int64_t i = z % like->d[d];
        z /= like->d[d];
        if (own < 0)
            continue;
        at += s->d[own] > 0 ? i / (like->d[d] / s->d[own]) * step : 0;
        step *= s->d[own];
    }
    return at;
}

/* An element of an operand whose last two dims broadcast as well. */
static double broadcast(const Tensor *t, const Shape *like, int64_t z, int64_t r, int64_t c)
{
    const Shape *s = &t->shape;
    int64_t rows = s->rank > 1 ? s->d[s->rank - 2] : 1, cols = s->rank > 0 ? s->d[s->rank - 1] : 1;
    return eval_double_at(t, begin(like, s, z) + (rows > 1 ? r : 0) * cols + (cols > 1 ? c : 0));
}

/* Query r of matrix z: its probabilities. */
typedef struct {
    Eval *e;
    const AttentionAttr *t;
    const Tensor *bias, *mask;
    Shape like;
    int64_t rows, keys, width, width_v, diagonal;
    double *p, top, sum;
} Query;

static bool masked(const Query *q, int64_t z, int64_t r, int64_t c)
{
    if (q->t->causal &&
        (c > r + q->diagonal || (q->t->window && c <= r + q->diagonal - q->t->window)))
        return true;
    return q->t->mask && (broadcast(q->mask, &q->like, z, r, c) != 0) == q->t->forbids;
}

static double element(const Query *q, uint32_t operand, int64_t z, int64_t r, int64_t c)
{
    const Tensor *t = &q->e->in[operand];
    return eval_double_at(t, begin(&q->like, &t->shape, z) + r * t->shape.d[t->shape.rank - 1] + c);
}

/* A factor of a product with an operand. */
static double factor(const Query *q, double x)
{
    Dtype t = q->e->in[0].dtype;
    return dtype_is_half(t) ? dtype_round(t, x) : x;
}

static void probabilities(Query *q, int64_t z, int64_t r)
{
    q->top = -(double)INFINITY;
    q->sum = 0;
    for (int64_t j = 0; j < q->keys; j++) {
        double s = 0;
        for (int64_t i = 0; i < q->width; i++)
            s += element(q, 0, z, r, i) * element(q, 1, z, i, j);
        s = s * q->t->scale + (q->t->bias ? broadcast(q->bias, &q->like, z, r, j) : 0);
        q->p[j] = masked(q, z, r, j) ? q->t->fill : s;
        q->top = eval_max(q->top, q->p[j]);
    }
    for (int64_t j = 0; j < q->keys; j++)
        q->sum += q->p[j] = exp(q->p[j] - q->top);
    for (int64_t j = 0; j < q->keys; j++)
        q->p[j] /= q->sum;
}

/* others: operands before bias and mask */
static Query query(Eval *e, uint32_t others)
{
    const Shape *k = &e->in[1].shape, *v = &e->in[2].shape;
    Query q = {.e = e, .t = e->at->attention, .like = e->in[0].shape};
    q.bias = &e->in[others];
    q.mask = &e->in[others + q.t->bias];
    if (others > 3)
        q.like = e->in[3].shape;
    for (uint32_t i = 1; i < 3 && others == 3; i++) { /* the batch, broadcast */
        const Shape *s = &e->in[i].shape;
        Shape all = s->rank > q.like.rank ? *s : q.like;
        for (int d = 0; d < all.rank - 2; d++) {
            int x = d - (all.rank - s->rank), y = d - (all.rank - q.like.rank);
            int64_t one = x < 0 ? 1 : s->d[x], other = y < 0 ? 1 : q.like.d[y];
            all.d[d] = one > other ? one : other;
        }
        q.like = all;
    }
    q.diagonal = q.t->diagonal + (q.t->step ? q.t->step * e->at->piece->along[q.t->by].piece : 0);
    q.rows = e->in[0].shape.d[e->in[0].shape.rank - 2];
    q.width = e->in[0].shape.d[e->in[0].shape.rank - 1];
    q.keys = k->d[k->rank - 1];
    q.width_v = v->d[v->rank - 1];
    q.p = eval_scratch(e, (size_t)q.keys, sizeof *q.p);
    return q;
}

static int64_t matrices(const Query *q)
{
    int64_t n = 1;
    for (int d = 0; d < q->like.rank - 2; d++)
        n *= q->like.d[d];
    return n;
}

void oracle_attention(Eval *e)
{
    Query q = query(e, 3);
    for (int64_t z = 0; z < matrices(&q); z++)
        for (int64_t r = 0; r < q.rows; r++) {
            probabilities(&q, z, r);
            for (int64_t c = 0; c < q.width_v; c++) {
                double sum = 0;
                for (int64_t j = 0; j < q.keys; j++)
                    sum += factor(&q, q.p[j] * q.sum) * element(&q, 2, z, j, c);
                eval_set_double(&e->out[0], (z * q.rows + r) * q.width_v + c, sum / q.sum);
            }
            eval_set_double(&e->out[1], (z * q.rows + r) * 2, q.top);
            eval_set_double(&e->out[1], (z * q.rows + r) * 2 + 1, 1 / q.sum);
        }
}

/* What query r adds: g = dy v', delta = sum(dy y), which is sum(p g) but for the rounding of y,
 * ds = p (g - delta) (Dao 2023, arXiv 2307.08691) */
static void add_query(Query *q, int64_t z, int64_t r, double *dq, double *dk, double *dv, double *g)
{
    double delta = 0;
    for (int64_t c = 0; c < q->width_v; c++)
        delta += element(q, 5, z, r, c) * element(q, 3, z, r, c);
    for (int64_t j = 0; j < q->keys; j++) {
        g[j] = 0;
        for (int64_t c = 0; c < q->width_v; c++) {
            double dy = element(q, 5, z, r, c);
            g[j] += dy * element(q, 2, z, j, c);
            dv[j * q->width_v + c] += factor(q, q->p[j]) * dy;
        }
    }
    for (int64_t j = 0; j < q->keys; j++) {
        double ds = masked(q, z, r, j) ? 0 : factor(q, q->p[j] * (g[j] - delta)) * q->t->scale;
        for (int64_t i = 0; i < q->width; i++) {
            dq[r * q->width + i] += ds * element(q, 1, z, i, j);
            dk[i * q->keys + j] += ds * element(q, 0, z, r, i);
        }
    }
}

void oracle_attention_grad(Eval *e)
{
    Query q = query(e, 6);
    double *sum[3], *g = eval_scratch(e, (size_t)q.keys, sizeof *g);
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)shape_elements(&e->out[i].shape);
        sum[i] = eval_scratch(e, n, sizeof **sum);
        for (size_t k = 0; k < n; k++)
            sum[i][k] = 0;
    }
    for (int64_t z = 0; z < matrices(&q); z++)
        for (int64_t r = 0; r < q.rows; r++) {
            probabilities(&q, z, r);
            add_query(&q, z, r, sum[0] + begin(&q.like, &e->out[0].shape, z),
                      sum[1] + begin(&q.like, &e->out[1].shape, z),
                      sum[2] + begin(&q.like, &e->out[2].shape, z), g);
        }
    for (int i = 0; i < 3; i++)
        eval_store_doubles(&e->out[i], sum[i]);
}

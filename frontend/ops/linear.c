/*
 * linear.c - matrix products: MatMul, Gemm, Einsum to the core MatMul, Transpose and Reshape
 * (which the code generator folds into the library call).  Einsum contracts its operands from the
 * left, two at a time; each contraction is one batched matrix product [batch..., M, K] x [batch...,
 * K, N].
 */
#include "frontend/low/low.h"

#include <ctype.h>
#include <string.h>

void import_matmul(Import *im)
{
    Graph *g = im->g;
    ValueId a = low_need(im, 0), b = low_need(im, 1);
    if (low_shape(g, a).rank < 1 || low_shape(g, b).rank < 1)
        low_fatal(im, -1, "an operand is a scalar");
    im->out[0] = g_matmul(g, a, b);
}

static ValueId scaled(Graph *g, ValueId x, double k)
{
    if (k == 1 || dtype_is_float(low_dtype(g, x)))
        return low_scale(g, x, k);
    return g_cast(g, low_scale(g, g_cast(g, x, DT_F64), k), low_dtype(g, x));
}

void import_gemm(Import *im)
{
    Graph *g = im->g;
    low_need_rank(im, 0, 2, 2), low_need_rank(im, 1, 2, 2);
    ValueId a = im->in[0], b = im->in[1], c = im_in(im, 2);
    double alpha = im_float(im, "alpha", 1), beta = im_float(im, "beta", 1);
    if (im_int(im, "transA", 0))
        a = g_swap_last(g, a);
    if (im_int(im, "transB", 0))
        b = g_swap_last(g, b);
    /* one node is rounded once: halves are added up, and c is added, in f32 */
    Dtype t = low_dtype(g, a);
    bool adds = c != NONE && beta != 0, wide = dtype_is_half(t) && (adds || alpha != 1);
    ValueId y = scaled(g, wide ? g_matmul_wide(g, a, b) : g_matmul(g, a, b), alpha);
    if (adds) {
        low_fits(im, 2, low_shape(g, y));
        y = g_add(g, y, scaled(g, wide ? g_cast(g, c, DT_F32) : c, beta));
    }
    im->out[0] = wide ? g_cast(g, y, t) : y;
}

/* ---- Einsum ---- */

/* A term: one label per dim.  Labels are 1..52 for letters, 64 + i for the i-th ellipsis dim
 * counted from the right. */
enum { LABELS = 64 + MAX_RANK };
typedef struct {
    ValueId v;
    int n;
    uint8_t label[2 * MAX_RANK];
} Term;

typedef struct {
    Import *im;
    int64_t size[LABELS]; /* the broadcast size of each label */
} Einsum;

static int label_of(char c) { return c >= 'a' ? c - 'a' + 1 : c - 'A' + 27; }

static bool has(const Term *t, int label) { return memchr(t->label, label, (size_t)t->n) != NULL; }

static void push(const Import *im, Term *t, int label)
{
    if (t->n >= MAX_RANK)
        low_fatal(im, -1, "a term with more than %d dims", MAX_RANK);
    t->label[t->n++] = (uint8_t)label;
}

/* One term of the equation.  rank: the operand's, or for the result 0 letters needed and `dots`
 * ellipsis dims. */
static const char *parse_term(const Import *im, const char *s, int rank, int dots, Term *t)
{
    const char *p;
    int letters = 0, ellipsis = 0;
    for (p = s; *p && *p != ',' && *p != '-'; p++) {
        letters += isalpha((unsigned char)*p) != 0;
        ellipsis += *p == '.';
    }
    if (ellipsis != 0 && ellipsis != 3)
        low_fatal(im, -1, "equation: an ellipsis is three dots, once in a term");
    if (rank >= 0)
        dots = ellipsis ? rank - letters : 0;
    if (rank >= 0 && (dots < 0 || letters + dots != rank))
        low_fatal(im, -1, "equation: a term of %d letters for rank %d", letters, rank);
    t->n = 0;
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (isalpha((unsigned char)*s)) {
            push(im, t, label_of(*s));
        } else if (*s == '.') {
            if (s[1] != '.' || s[2] != '.')
                low_fatal(im, -1, "equation: an ellipsis is three dots");
            for (int i = dots; i > 0; i--)
                push(im, t, 64 + i - 1);
            s += 2;
        } else if (*s != ' ') {
            low_fatal(im, -1, "equation: unexpected character");
        }
    }
    return s;
}

/* Dims i < j of one label become one: [.., n, n] flattened to n * n and every (n + 1)-th element of
 * it taken. */
static void take_diagonal(Graph *g, Term *t, int i, int j)
{
    Shape s = low_shape(g, t->v);
    int64_t perm[MAX_RANK], start[MAX_RANK] = {0}, step[MAX_RANK];
    uint8_t label = t->label[i];
    int k = 0;
    for (int d = 0; d < s.rank; d++)
        if (d != i && d != j)
            perm[k] = d, t->label[k] = t->label[d], k++;
    perm[k] = i, perm[k + 1] = j;
    Shape flat = {.rank = k + 1};
    for (int d = 0; d < k; d++)
        flat.d[d] = s.d[perm[d]], step[d] = 1;
    int64_t n = s.d[i];
    flat.d[k] = n * n;
    ValueId x = g_reshape(g, g_transpose(g, t->v, perm), &flat);
    flat.d[k] = n;
    step[k] = n + 1;
    t->v = g_slice(g, x, start, flat.d, step);
    t->label[k] = label;
    t->n = k + 1;
}

static void diagonals(const Import *im, Term *t)
{
    for (int i = 0; i < t->n; i++)
        for (int j = i + 1; j < t->n; j++)
            if (t->label[i] == t->label[j]) {
                if (low_shape(im->g, t->v).d[i] != low_shape(im->g, t->v).d[j])
                    low_fatal(im, -1, "equation: a diagonal of two dims that differ");
                take_diagonal(im->g, t, i, j);
                i = -1;
                break;
            }
}

/* Sums out the labels that keep says false of. */
static void sum_out(Graph *g, Term *t, const bool *keep)
{
    int64_t axes[MAX_RANK];
    int n = 0, k = 0;
    for (int d = 0; d < t->n; d++)
        if (!keep[t->label[d]])
            axes[n++] = d;
    if (n == 0)
        return;
    t->v = low_squeeze(g, g_reduce(g, OP_ReduceSum, t->v, n, axes), n, axes);
    for (int d = 0; d < t->n; d++)
        if (keep[t->label[d]])
            t->label[k++] = t->label[d];
    t->n = k;
}

static int64_t size_of(const Graph *g, const Term *t, uint8_t label)
{
    const uint8_t *at = memchr(t->label, label, (size_t)t->n);
    return at ? low_shape(g, t->v).d[at - t->label] : 1;
}

/* The term's dims in the order of labels; those it lacks are 1. */
static ValueId arranged(Graph *g, const Term *t, int n, const uint8_t *order)
{
    int64_t perm[MAX_RANK];
    Shape out = {.rank = n};
    int k = 0;
    for (int i = 0; i < n; i++) {
        const uint8_t *at = memchr(t->label, order[i], (size_t)t->n);
        out.d[i] = size_of(g, t, order[i]);
        if (at)
            perm[k++] = at - t->label;
    }
    INSIST(k == t->n);
    return g_reshape(g, g_transpose(g, t->v, perm), &out);
}

/* Labels of x and y in four classes, each in x's order (then y's). */
typedef struct {
    int n[4];
    uint8_t at[4][MAX_RANK * 2];
} Classes;
enum { BATCH, LEFT, INNER, RIGHT };

static Classes classify(const Term *x, const Term *y, const bool *keep)
{
    Classes c = {0};
    for (int d = 0; d < x->n; d++) {
        uint8_t l = x->label[d];
        int kind = !has(y, l) ? LEFT : keep[l] ? BATCH : INNER;
        c.at[kind][c.n[kind]++] = l;
    }
    for (int d = 0; d < y->n; d++)
        if (!has(x, y->label[d]))
            c.at[RIGHT][c.n[RIGHT]++] = y->label[d];
    return c;
}

static int join(uint8_t *to, const Classes *c, int a, int b, int d)
{
    int n = 0, kinds[3] = {a, b, d};
    for (int i = 0; i < 3; i++) {
        memcpy(to + n, c->at[kinds[i]], (size_t)c->n[kinds[i]]);
        n += c->n[kinds[i]];
    }
    return n;
}

/* The term as [batch.., rows, columns], each of all labels of a class.  An inner dim of 1 stands
 * for a repeated value: its sum over the other operand's elements needs all of them. */
static ValueId as_matrix(const Einsum *e, const Term *t, const Classes *c, int rows, int columns)
{
    Graph *g = e->im->g;
    uint8_t order[4 * MAX_RANK];
    const int n = join(order, c, BATCH, rows, columns), nb = c->n[BATCH], cut = nb + c->n[rows];
    ValueId v = arranged(g, t, n, order);
    Shape s = low_shape(g, v), matrix = s;
    for (int i = rows == INNER ? nb : cut; i < (rows == INNER ? cut : n); i++)
        s.d[i] = e->size[order[i]];
    matrix.rank = nb + 2;
    matrix.d[nb] = shape_between(&s, nb, cut);
    matrix.d[nb + 1] = shape_between(&s, cut, n);
    return g_reshape(g, g_expand(g, v, &s), &matrix);
}

static void contract(const Einsum *e, Term *x, const Term *y, const bool *keep)
{
    Graph *g = e->im->g;
    Classes c = classify(x, y, keep);
    uint8_t out[4 * MAX_RANK];
    const int n = join(out, &c, BATCH, LEFT, RIGHT);
    if (n > MAX_RANK || c.n[BATCH] + 2 > MAX_RANK)
        low_fatal(e->im, -1, "equation: more than %d dims", MAX_RANK);
    if (c.n[INNER] == 0) {
        x->v = g_mul(g, arranged(g, x, n, out), arranged(g, y, n, out));
    } else {
        Shape whole = {.rank = n};
        for (int i = 0; i < n; i++) {
            const int64_t of_x = size_of(g, x, out[i]);
            whole.d[i] = of_x == 1 ? size_of(g, y, out[i]) : of_x;
        }
        x->v = g_reshape(
            g, g_matmul(g, as_matrix(e, x, &c, LEFT, INNER), as_matrix(e, y, &c, INNER, RIGHT)),
            &whole);
    }
    memcpy(x->label, out, (size_t)n);
    x->n = n;
}

/* Without "->" the result has the ellipsis, then the letters that occur once, alphabetically
 * (capitals first). */
static void implicit_result(const Import *im, const Term *terms, int dots, Term *out)
{
    int count[LABELS] = {0};
    for (uint32_t i = 0; i < im->nin; i++)
        for (int d = 0; d < terms[i].n; d++)
            count[terms[i].label[d]]++;
    out->n = 0;
    for (int i = dots; i > 0; i--)
        push(im, out, 64 + i - 1);
    for (int l = 27; l <= 52; l++)
        if (count[l] == 1)
            push(im, out, l);
    for (int l = 1; l <= 26; l++)
        if (count[l] == 1)
            push(im, out, l);
}

static void parse_equation(Einsum *e, Term *terms, Term *out)
{
    Import *im = e->im;
    const char *s = im_str(im, "equation", "");
    int dots = 0;
    for (uint32_t i = 0; i < im->nin; i++) {
        Shape shape = low_shape(im->g, low_need(im, i));
        Term *t = &terms[i];
        s = parse_term(im, s, shape.rank, 0, t);
        bool last = i + 1 == im->nin;
        if (last ? *s == ',' : *s != ',')
            low_fatal(im, -1, "equation: another number of terms than operands");
        if (!last)
            s++;
        t->v = im->in[i];
        for (int d = 0; d < t->n; d++) {
            int64_t *size = &e->size[t->label[d]];
            if (t->label[d] >= 64)
                dots = (int)low_max(dots, t->label[d] - 63);
            if (*size > 1 && shape.d[d] > 1 && *size != shape.d[d])
                low_fatal(im, (int)i, "equation: dim %d is %lld, elsewhere %lld", d,
                          (long long)shape.d[d], (long long)*size);
            if (*size == 0 || *size == 1)
                *size = shape.d[d];
        }
    }
    if (*s == 0) {
        implicit_result(im, terms, dots, out);
        return;
    }
    if (s[0] != '-' || s[1] != '>')
        low_fatal(im, -1, "equation: '->' is expected");
    s = parse_term(im, s + 2, -1, dots, out);
    if (*s)
        low_fatal(im, -1, "equation: the result is one term");
    for (int d = 0; d < out->n; d++) {
        bool known = false;
        for (uint32_t i = 0; i < im->nin; i++)
            known = known || has(&terms[i], out->label[d]);
        if (!known || memchr(out->label, out->label[d], (size_t)d))
            low_fatal(im, -1,
                      "equation: a letter of the result is in no operand, or twice in the result");
    }
}

void import_einsum(Import *im)
{
    Graph *g = im->g;
    Einsum *e = arena_new_of(im->arena, Einsum);
    Term *t = arena_array(im->arena, Term, im->nin), out = {0};
    e->im = im;
    parse_equation(e, t, &out);
    for (uint32_t i = 0; i < im->nin; i++)
        diagonals(im, &t[i]);
    for (uint32_t i = 0; i < im->nin; i++) {
        bool later[LABELS] = {0}, mine[LABELS] = {0};
        for (int d = 0; d < out.n; d++)
            later[out.label[d]] = true;
        for (uint32_t j = i + 1; j < im->nin; j++)
            for (int d = 0; d < t[j].n; d++)
                later[t[j].label[d]] = true;
        memcpy(mine, later, sizeof mine);
        for (int d = 0; i > 0 && d < t[0].n; d++)
            mine[t[0].label[d]] = true;
        sum_out(g, &t[i], mine);
        if (i == 0)
            continue;
        bool needed[LABELS] = {0};
        memcpy(needed, later, sizeof needed);
        for (int d = 0; d < t[i].n; d++)
            needed[t[i].label[d]] = true;
        sum_out(g, &t[0], needed);
        contract(e, &t[0], &t[i], later);
    }
    im->out[0] = arranged(g, &t[0], out.n, out.label);
}

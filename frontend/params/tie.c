/*
 * tie.c - is a tensor of the file a known parameter in another arrangement?  In: a parameter
 * with its bytes and an initializer that constant folding made.  Out: the recipe from one to the
 * other, or none.
 *
 * Every element of the tensor is looked for among the parameter's by its bits.  Where the places
 * found are an arithmetic progression in every dimension (stride 0: expanded) the tensor is a view,
 * which is verified element by element and written as Slice, Reshape, Transpose and Expand; else,
 * when every element has one place only, it is a Gather.  What is constant, or found in several
 * places, decides nothing.  Folding reads no operand of more than 8192 elements except to transpose
 * it, so that tables stay small; large tensors are only tried as copies, transposes and rows.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

enum { MANY = -2, ABSENT = -1 };
static const int64_t largest = INT64_C(1) << 18; /* elements looked up one by one */
/* of a parameter that may have been cut or computed with */
static const int64_t folded = INT64_C(1) << 14;

struct Known {
    const uint8_t *at; /* dense, in PyTorch's shape */
    int64_t n;
    uint32_t *slot, mask; /* hash table of the elements: place + 1 */
    bool *many;           /* by place: the value occurs again */
};

static uint64_t bits_at(const uint8_t *at, int64_t i, size_t size)
{
    uint64_t v = 0;
    memcpy(&v, at + (size_t)i * size, size);
    return v;
}

static uint32_t hash_of(uint64_t v) { return (uint32_t)((v * UINT64_C(0x9E3779B97F4A7C15)) >> 32); }

static uint32_t *find_slot(const Known *k, uint64_t v, size_t size)
{
    uint32_t h = hash_of(v) & k->mask;
    while (k->slot[h] && bits_at(k->at, (int64_t)k->slot[h] - 1, size) != v)
        h = (h + 1) & k->mask;
    return &k->slot[h];
}

static const uint8_t *dense(Fx *x, const Param *q)
{
    uint8_t *copy;
    if (!q->transposed && q->bytes.at)
        return q->bytes.at;
    copy = arena_alloc(x->a, param_size(q));
    param_bytes(q, copy);
    return copy;
}

/* The elements of a parameter by their bits; NULL when it is too large for one of which not all are
 * wanted. */
static const Known *known_of(Fx *x, uint32_t param, int64_t wanted)
{
    const Param *q = &x->p->g->param.at[param];
    int64_t n = shape_elements(&q->shape);
    if (n > largest || n < 1 || (n > folded && n != wanted))
        return NULL;
    while (x->known.n <= param)
        vec_push(x->a, &x->known, NULL);
    if (x->known.at[param])
        return x->known.at[param];
    Known *k = x->known.at[param] = arena_new_of(x->a, Known);
    size_t size = dtype_size(q->dtype);
    uint32_t cap = 4;
    while (cap < 2 * n)
        cap *= 2;
    k->at = dense(x, q);
    k->n = n;
    k->mask = cap - 1;
    k->slot = arena_array(x->a, uint32_t, cap);
    k->many = arena_array(x->a, bool, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t *slot = find_slot(k, bits_at(k->at, i, size), size);
        if (*slot)
            k->many[*slot - 1] = true;
        else
            *slot = (uint32_t)i + 1;
    }
    return k;
}

static int64_t place_of(const Known *k, uint64_t v, size_t size)
{
    uint32_t slot = *find_slot(k, v, size);
    return !slot ? ABSENT : k->many[slot - 1] ? MANY : (int64_t)slot - 1;
}

static void strides_of(const Shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (int i = s->rank; i-- > 0; n *= s->d[i])
        stride[i] = n;
}

static bool next_index(const Shape *s, int64_t *index)
{
    for (int i = s->rank; i-- > 0; index[i] = 0)
        if (++index[i] < s->d[i])
            return true;
    return false;
}

/* ---- views ---- */

typedef struct {
    int64_t origin, step[MAX_RANK];
} View;

/* A dimension's step, from any two neighbours whose places are known; an unknown one stays 0 and is
 * left to the verification. */
static bool fit(const Shape *s, const int64_t *place, View *view)
{
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, n = shape_elements(s), anchor = ABSENT;
    bool known[MAX_RANK] = {false};
    strides_of(s, stride);
    for (int64_t i = 0; i < n; i++, next_index(s, index)) {
        if (place[i] < 0)
            continue;
        for (int d = 0; d < s->rank; d++)
            if (!known[d] && index[d] + 1 < s->d[d] && place[i + stride[d]] >= 0) {
                view->step[d] = place[i + stride[d]] - place[i];
                known[d] = true;
            }
        anchor = anchor == ABSENT ? i : anchor;
    }
    if (anchor == ABSENT)
        return false;
    view->origin = place[anchor];
    for (int d = 0; d < s->rank; d++) {
        if (!known[d] && s->d[d] > 1)
            return false;
        view->origin -= view->step[d] * (anchor / stride[d] % s->d[d]);
    }
    return true;
}

static bool holds(const Known *k, const RawTensor *t, const View *view)
{
    int64_t index[MAX_RANK] = {0}, n = shape_elements(&t->shape);
    size_t size = dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++, next_index(&t->shape, index)) {
        int64_t at = view->origin;
        for (int d = 0; d < t->shape.rank; d++)
            at += view->step[d] * index[d];
        if (at < 0 || at >= k->n ||
            memcmp(k->at + (size_t)at * size, t->bytes.at + (size_t)i * size, size))
            return false;
    }
    return true;
}

/* The dims that move, largest step first; false when one goes backwards or two overlap. */
static bool order_dims(const Shape *s, const View *view, int *dim, int *n)
{
    *n = 0;
    for (int d = 0; d < s->rank; d++) {
        if (s->d[d] < 2 || view->step[d] == 0)
            continue;
        if (view->step[d] < 0)
            return false;
        int at = (*n)++;
        for (; at > 0 && view->step[dim[at - 1]] < view->step[d]; at--)
            dim[at] = dim[at - 1];
        dim[at] = d;
    }
    for (int i = 0; i + 1 < *n; i++)
        if (view->step[dim[i]] < view->step[dim[i + 1]] * s->d[dim[i + 1]])
            return false;
    return true;
}

/*
 * Dims in memory order make one run, or runs at one distance: the parameter is seen as [rows,
 * distance], a block is cut out of it, and the dims are turned and expanded.  False: not so, and
 * nothing is recorded.
 */
static bool record_view(Arena *a, Recipe *r, const Shape *own, const Shape *s, const View *view)
{
    int dim[MAX_RANK], n, cut = 0;
    int64_t total = shape_elements(own), rows = 1, run = 1, distance = total, perm[MAX_RANK];
    if (!order_dims(s, view, dim, &n) || n == 0)
        return false;
    if (view->step[dim[n - 1]] != 1)
        return false;
    Shape sorted = {.rank = n}, once = *s;
    for (int i = n; i-- > 0;) {
        sorted.d[i] = s->d[dim[i]];
        if (cut == 0 && view->step[dim[i]] == run) {
            run *= sorted.d[i];
        } else {
            if (cut == 0) {
                cut = i + 1;
                distance = view->step[dim[i]];
            }
            if (view->step[dim[i]] != distance * rows)
                return false;
            rows *= sorted.d[i];
        }
    }
    int64_t row = view->origin / distance, column = view->origin % distance;
    if (total % distance || column + run > distance || row + rows > total / distance)
        return false;
    Shape now = *own;
    if (cut == 0 && run < total && own->rank > 0 && run % (total / own->d[0]) == 0 &&
        view->origin % (total / own->d[0]) == 0) {
        int64_t from[MAX_RANK] = {view->origin / (total / own->d[0])};
        now.d[0] = run / (total / own->d[0]);
        recipe_slice(a, r, now.rank, from, now.d);
    } else if (rows * run < total) {
        now = shape_of(2, total / distance, distance);
        recipe_reshape(a, r, &now);
        now = shape_of(2, rows, run);
        recipe_slice(a, r, 2, (int64_t[]){row, column}, now.d);
    }
    if (!shape_equal(&now, &sorted))
        recipe_reshape(a, r, &sorted);
    bool turned = false, expanded = false;
    for (int d = 0, k = 0; d < s->rank; d++) {
        bool moves = s->d[d] > 1 && view->step[d] != 0;
        expanded |= s->d[d] > 1 && !moves;
        once.d[d] = moves ? s->d[d] : 1;
        for (int i = 0; moves && i < n; i++)
            if (dim[i] == d) {
                turned |= i != k;
                perm[k++] = i;
                break;
            }
    }
    if (turned)
        recipe_transpose(a, r, n, perm);
    if (once.rank != n)
        recipe_reshape(a, r, &once);
    if (expanded)
        recipe_expand(a, r, s);
    return true;
}

static void record_gather(Arena *a, Recipe *r, const Shape *own, const RawTensor *t,
                          const int64_t *place)
{
    Shape flat = shape_of(1, shape_elements(own));
    if (own->rank != 1)
        recipe_reshape(a, r, &flat);
    recipe_gather(a, r, shape_elements(&t->shape), place);
    if (t->shape.rank != 1)
        recipe_reshape(a, r, &t->shape);
}

/* ---- large tensors: copies, transposes and rows ---- */

/* Rows at .. of a matrix, as they are or turned: the projections that nn.MultiheadAttention cuts
 * in_proj_weight into. */
static bool are_rows(const uint8_t *own, const RawTensor *t, int64_t at, bool turned)
{
    size_t size = dtype_size(t->dtype);
    int64_t rows = t->shape.d[turned], columns = t->shape.d[!turned];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (memcmp(own + (size_t)((at + r) * columns + c) * size,
                       t->bytes.at + (size_t)(turned ? c * rows + r : r * columns + c) * size,
                       size))
                return false;
    return true;
}

static Recipe *tie_rows(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = &x->p->g->param.at[param];
    for (int turned = 0; turned < 2 && q->shape.rank == 2 && t->shape.rank == 2 && !q->transposed;
         turned++) {
        int64_t rows = t->shape.d[turned], at = 0;
        if (t->shape.d[!turned] != q->shape.d[1] || rows >= q->shape.d[0])
            continue;
        while (at + rows <= q->shape.d[0] && !are_rows(q->bytes.at, t, at, turned))
            at++;
        if (at + rows > q->shape.d[0])
            continue;
        Recipe *r = recipe_of(x->a, param);
        recipe_slice(x->a, r, 2, (int64_t[]){at, 0}, (int64_t[]){rows, q->shape.d[1]});
        if (turned)
            recipe_swap(x->a, r);
        return r;
    }
    return NULL;
}

static Recipe *tie_large(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = &x->p->g->param.at[param];
    if (shape_elements(&q->shape) != shape_elements(&t->shape))
        return tie_rows(x, param, t);
    Shape held = q->transposed ? shape_of(2, q->shape.d[1], q->shape.d[0]) : q->shape;
    RawTensor own = {.dtype = q->dtype, .shape = held, .bytes = q->bytes};
    Same same = raw_same(&own, t);
    bool plain = same == SAME, turned = same == SAME_TURNED;
    if (same == NOT_SAME)
        return NULL;
    Recipe *r = recipe_of(x->a, param);
    if (turned != q->transposed)
        recipe_swap(x->a, r);
    if (plain && !q->transposed && !shape_equal(&q->shape, &t->shape))
        recipe_reshape(x->a, r, &t->shape);
    return plain && q->transposed && q->shape.d[0] != t->shape.d[1] ? NULL : r;
}

/* One that TorchScript's folding renamed: what is equal may be of a copy of its module. */
static bool has_no_name(const Param *q) { return strstr(q->name, "::") != NULL; }

Recipe *tie_exact(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = &x->p->g->param.at[param];
    size_t size = dtype_size(t->dtype);
    int64_t n = shape_elements(&t->shape);
    if (q->dtype != t->dtype || !q->bytes.at || t->bytes.length != (size_t)n * size ||
        raw_is_constant(t) || has_no_name(q))
        return NULL;
    const Known *k = n <= largest ? known_of(x, param, n) : NULL;
    if (!k)
        return tie_large(x, param, t);
    int64_t *place = arena_array(x->a, int64_t, n);
    bool unique = true;
    for (int64_t i = 0; i < n; i++) {
        place[i] = place_of(k, bits_at(t->bytes.at, i, size), size);
        unique &= place[i] >= 0;
        if (place[i] == ABSENT)
            return NULL;
    }
    View view = {0};
    Recipe *r = recipe_of(x->a, param);
    if (n == k->n && !memcmp(k->at, t->bytes.at, t->bytes.length)) {
        if (!shape_equal(&q->shape, &t->shape))
            recipe_reshape(x->a, r, &t->shape);
        return r;
    }
    if (fit(&t->shape, place, &view) && holds(k, t, &view) &&
        record_view(x->a, r, &q->shape, &t->shape, &view))
        return r;
    if (!unique)
        return NULL;
    r = recipe_of(x->a, param);
    record_gather(x->a, r, &q->shape, t, place);
    return r;
}

/* ---- functions of one operand ---- */

static double f_none(double v) { return v; }
static double f_sigmoid(double v) { return 1 / (1 + exp(-v)); }
static double f_softplus(double v) { return log1p(exp(v)); }
static double f_square(double v) { return v * v; }
static double f_reciprocal(double v) { return 1 / v; }
static double f_exp_of_minus(double v) { return exp(-v); }

static const struct {
    double (*fn)(double);
    Op op;
} function[] = {
    {f_none, OP_NONE},       {exp, OP_Exp},   {f_exp_of_minus, OP_Neg},
    {f_sigmoid, OP_Sigmoid}, {tanh, OP_Tanh}, {f_softplus, OP_Softplus},
    {f_square, OP_Mul},      {sqrt, OP_Sqrt}, {f_reciprocal, OP_Reciprocal},
    {log, OP_Log},           {fabs, OP_Abs},
};

/* a and b of the line through all pairs (f(parameter), tensor); false when it does not pass through
 * them, or b leaves so few digits of the tensor that anything would. */
static bool fit_line(const RawTensor *from, const RawTensor *t, int64_t n, double (*fn)(double),
                     double *a, double *b)
{
    double least = 0, most = 0, size = 0;
    int64_t low = -1, high = -1;
    for (int64_t i = 0; i < n; i++) {
        double v = fn(raw_number(from, i));
        if (!isfinite(v))
            return false;
        if (low < 0 || v < least) {
            least = v;
            low = i;
        }
        if (high < 0 || v > most) {
            most = v;
            high = i;
        }
        size = fmax(size, fabs(raw_number(t, i)));
    }
    if (low < 0 || most - least <= 1e-6 * fmax(fabs(most), fabs(least)))
        return false;
    double y0 = raw_number(t, low), y1 = raw_number(t, high);
    *a = (y1 - y0) / (most - least);
    *a = fabs(*a - nearbyint(*a)) < 1e-5 ? nearbyint(*a) : *a;
    *b = y0 - *a * least;
    *b = fabs(*b - nearbyint(*b)) < 1e-6 * fmax(1, size) ? nearbyint(*b) : *b;
    double off = 2e-6 * fmax(size, fabs(*b));
    if (fabs(*a) < 1e-12 || off > 1e-3 * fabs(y1 - y0))
        return false;
    for (int64_t i = 0; i < n; i++) {
        double want = raw_number(t, i), is = *a * fn(raw_number(from, i)) + *b;
        if (!(fabs(want - is) <= off))
            return false;
    }
    return true;
}

static void record_line(Arena *a, Recipe *r, Dtype t, Op op, double factor, double addend)
{
    uint32_t v = 0;
    if (op != OP_NONE)
        v = recipe_op(a, r, op, (Attr){0}, v, op == OP_Mul ? v : NONE);
    if (op == OP_Neg) /* exp(-x) */
        v = recipe_op(a, r, OP_Exp, (Attr){0}, v, NONE);
    if (factor == -1 && addend == 0) {
        recipe_op(a, r, OP_Neg, (Attr){0}, v, NONE);
        return;
    }
    if (factor != 1) {
        uint32_t c = recipe_number(a, r, t, factor);
        v = recipe_op(a, r, OP_Mul, (Attr){0}, v, c);
    }
    if (addend != 0) {
        uint32_t c = recipe_number(a, r, t, addend);
        recipe_op(a, r, OP_Add, (Attr){0}, v, c);
    }
}

/* Four numbers at least, else any line fits. */
Recipe *tie_function(Fx *x, uint32_t param, const RawTensor *t, bool linear)
{
    const Param *q = &x->p->g->param.at[param];
    int64_t n = shape_elements(&t->shape);
    if (q->dtype != t->dtype || shape_elements(&q->shape) != n || n < 4 || n > largest ||
        !q->bytes.at || raw_is_constant(t) || has_no_name(q))
        return NULL;
    const uint8_t *own = dense(x, q);
    for (int turned = 0; turned < 2; turned++) {
        RawTensor from = {
            .dtype = t->dtype, .shape = q->shape, .bytes = {.at = own, .length = t->bytes.length}};
        if (turned && (q->shape.rank != 2 || t->shape.rank != 2 || q->shape.d[0] != t->shape.d[1]))
            break;
        if (turned) {
            uint8_t *copy = arena_alloc(x->a, t->bytes.length);
            param_turn(copy, own, q->shape.d[0], q->shape.d[1], dtype_size(t->dtype));
            from.bytes.at = copy;
        }
        for (size_t f = !linear; f < (linear ? 1 : sizeof function / sizeof *function); f++) {
            double factor, addend;
            if (!fit_line(&from, t, n, function[f].fn, &factor, &addend))
                continue;
            Recipe *r = recipe_of(x->a, param);
            record_line(x->a, r, t->dtype, function[f].op, factor, addend);
            if (turned)
                recipe_swap(x->a, r);
            else if (!shape_equal(&q->shape, &t->shape))
                recipe_reshape(x->a, r, &t->shape);
            return r;
        }
    }
    return NULL;
}

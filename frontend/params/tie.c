/*
 * tie.c - is a tensor of the file a known parameter in another arrangement?  In: a parameter
 * with its bytes and an initializer that constant folding made.  Out: the recipe from one to the
 * other, or none.
 *
 * By its bits it is the parameter, or its transpose; else rows of it, turned or not, expanded or
 * not, which stand in it once; else, where each of its elements has one place in the parameter, a
 * Gather of them.  What is constant, or found in several places, decides nothing.  Folding reads no
 * operand of more than 8192 elements except to transpose it, so that the tables of places stay
 * small.  Else it may be a line through the parameter, or a function of it.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

enum { MANY = -2, ABSENT = -1 }; /* no place, or several */
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

const Param *tie_param(const Fx *x, uint32_t param)
{
    return param < GIVEN ? &x->p->g->param.at[param] : &x->given.at[param - GIVEN];
}

/* Its bytes, not transposed. */
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
    const Param *q = tie_param(x, param);
    int64_t n = shape_elements(&q->shape);
    if (n > largest || n < 1 || (n > folded && n != wanted))
        return NULL;
    uint32_t *at = idmap_at(x->a, &x->known_of, param);
    if (*at != NONE)
        return x->known.at[*at];
    Known *k = arena_new_of(x->a, Known);
    *at = x->known.n;
    vec_push(x->a, &x->known, k);
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

/* ---- copies, transposes, rows ---- */

static Recipe *tie_whole(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = tie_param(x, param);
    Shape held = q->transposed ? shape_of(2, q->shape.d[1], q->shape.d[0]) : q->shape;
    RawTensor own = {.dtype = q->dtype, .shape = held, .bytes = q->bytes};
    Same same = raw_same(&own, t);
    if (same == NOT_SAME || (same == SAME && q->transposed && !shape_equal(&held, &t->shape)))
        return NULL;
    Recipe *r = recipe_of(x->a, param);
    if ((same == SAME_TURNED) != q->transposed)
        recipe_swap(x->a, r);
    if (same == SAME && !q->transposed && !shape_equal(&q->shape, &t->shape))
        recipe_reshape(x->a, r, &t->shape);
    return r;
}

/* Do the tensor's elements stand there, one row behind another?  turned: it is their transpose. */
static bool are_rows(const uint8_t *own, const RawTensor *t, bool turned)
{
    size_t size = dtype_size(t->dtype);
    int64_t rows = t->shape.d[turned], columns = t->shape.d[!turned];
    if (!turned)
        return !memcmp(own, t->bytes.at, t->bytes.length);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (memcmp(own + (size_t)(r * columns + c) * size,
                       t->bytes.at + (size_t)(c * rows + r) * size, size))
                return false;
    return true;
}

/* The tensor as it was before it was expanded: of slices that are all the same, one. */
static RawTensor unexpanded(Arena *a, const RawTensor *t)
{
    RawTensor once = *t;
    for (int d = 0; d < t->shape.rank && shape_elements(&t->shape) <= largest; d++)
        if (t->shape.d[d] > 1 && raw_repeats(t, d, 1))
            once.shape.d[d] = 1;
    if (!shape_equal(&once.shape, &t->shape))
        once.bytes = raw_first(a, t, &once.shape);
    return once;
}

/* The projections that nn.MultiheadAttention cuts in_proj_weight into, a row of a table, what was
 * expanded over the batch. */
static Recipe *tie_rows(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = tie_param(x, param);
    const RawTensor once = unexpanded(x->a, t);
    const Shape *s = &once.shape;
    int64_t all = shape_elements(&q->shape), n = shape_elements(s), at = ABSENT;
    const Known *k = q->transposed ? known_of(x, param, all) : NULL;
    const uint8_t *own = k ? k->at : q->transposed ? NULL : q->bytes.at;
    if (!own || q->shape.rank < 1 || all < 1 || n > all)
        return NULL;
    Shape rows = q->shape;
    int64_t row = all / q->shape.d[0];
    rows.d[0] = n / row;
    for (int turned = 0; turned < 2 && n % row == 0; turned++) {
        if (turned && (s->rank != 2 || q->shape.rank != 2 || s->d[0] != row))
            break;
        for (int64_t i = 0; i + rows.d[0] <= q->shape.d[0]; i++) {
            if (!are_rows(own + (size_t)(i * row) * dtype_size(t->dtype), &once, turned))
                continue;
            if (at != ABSENT)
                return NULL; /* they stand in it twice */
            at = i;
        }
        if (at == ABSENT)
            continue;
        Recipe *r = recipe_of(x->a, param);
        if (n < all)
            recipe_slice(x->a, r, rows.rank, (int64_t[MAX_RANK]){at}, rows.d);
        if (turned)
            recipe_swap(x->a, r);
        else if (!shape_equal(&rows, s))
            recipe_reshape(x->a, r, s);
        if (!shape_equal(s, &t->shape))
            recipe_expand(x->a, r, &t->shape);
        return r;
    }
    return NULL;
}

/* Element by element, where each has one place. */
static Recipe *tie_places(Fx *x, uint32_t param, const RawTensor *t)
{
    size_t size = dtype_size(t->dtype);
    int64_t n = shape_elements(&t->shape);
    const Known *k = n <= largest ? known_of(x, param, n) : NULL;
    if (!k)
        return NULL;
    int64_t *place = arena_array(x->a, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        place[i] = place_of(k, bits_at(t->bytes.at, i, size), size);
        if (place[i] < 0)
            return NULL;
    }
    Recipe *r = recipe_of(x->a, param);
    Shape flat = shape_of(1, k->n);
    if (tie_param(x, param)->shape.rank != 1)
        recipe_reshape(x->a, r, &flat);
    recipe_gather(x->a, r, n, place);
    if (t->shape.rank != 1)
        recipe_reshape(x->a, r, &t->shape);
    return r;
}

/* One that TorchScript's folding renamed: what is equal may be of a copy of its module. */
static bool has_no_name(const Param *q) { return strstr(q->name, "::") != NULL; }

Recipe *tie_exact(Fx *x, uint32_t param, const RawTensor *t)
{
    const Param *q = tie_param(x, param);
    size_t bytes = (size_t)shape_elements(&t->shape) * dtype_size(t->dtype);
    if (q->dtype != t->dtype || !q->bytes.at || t->bytes.length != bytes || raw_is_constant(t) ||
        has_no_name(q))
        return NULL;
    Recipe *r = tie_whole(x, param, t);
    r = r ? r : tie_rows(x, param, t);
    return r ? r : tie_places(x, param, t);
}

/* ---- functions of one operand ---- */

static double f_none(double v) { return v; }
static double f_sigmoid(double v) { return 1 / (1 + exp(-v)); }
static double f_softplus(double v) { return log1p(exp(v)); }
static double f_square(double v) { return v * v; }
static double f_reciprocal(double v) { return 1 / v; }
static double f_exp_of_minus(double v) { return exp(-v); }
static double f_minus_log(double v) { return -log(v); }
static double f_logit(double v) { return log(v / (1 - v)); }

/* The first is the line through the parameter itself.  Neg is exp(-x). */
const TieFunction tie_functions[TIE_FUNCTIONS] = {
    {f_none, NULL, OP_NONE, {NULL}},
    {exp, log, OP_Exp, {"exp"}},
    {f_exp_of_minus, f_minus_log, OP_Neg, {"exp", "neg"}},
    {f_sigmoid, f_logit, OP_Sigmoid, {"sigmoid"}},
    {tanh, atanh, OP_Tanh, {"tanh"}},
    {f_softplus, NULL, OP_Softplus, {"softplus"}},
    {f_square, NULL, OP_Mul, {NULL}},
    {sqrt, NULL, OP_Sqrt, {"sqrt"}},
    {f_reciprocal, NULL, OP_Reciprocal, {"reciprocal"}},
    {log, NULL, OP_Log, {"log"}},
    {fabs, NULL, OP_Abs, {"abs"}},
};

enum { SURE = 4 }; /* numbers, of which not any line is one */

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

void tie_record(Arena *a, Recipe *r, Dtype t, Op op, double factor, double addend)
{
    uint32_t v = r->n - 1;
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

static bool fits(const RawTensor *from, const RawTensor *t, int64_t n, double (*fn)(double),
                 double a, double b)
{
    for (int64_t i = 0; i < n; i++) {
        const double want = raw_number(t, i), is = a * fn(raw_number(from, i)) + b;
        if (!(fabs(want - is) <= 1e-6 * fmax(fabs(want), fabs(b))))
            return false;
    }
    return a != 0;
}

/* a and b of fewer numbers than make a line sure, where the file says what was done to a parameter,
 * or to a row of it: the function, and at most one sum or product.  More steps could be any line.
 * A sum with one number is with a whole one, and only where its sign is sure: 2 of 3 are 3 - 1 and
 * 5 - 3.  One number's product may be with itself. */
static bool fit_few(const Fx *x, const Trace *told, const TieFunction *f, const RawTensor *from,
                    const RawTensor *t, double *a, double *b)
{
    static const char *const row[] = {"select", NULL}, *const product[] = {"mul", NULL},
                                   *const plus[] = {"add", NULL},
                                   *const sum[] = {"add", "sub", "rsub", "neg", NULL};
    const int64_t n = shape_elements(&t->shape);
    const uint32_t own = f->step[0] ? fx_steps(x, told, f->step) : 0,
                   sums = fx_steps(x, told, sum), products = fx_steps(x, told, product);
    const double y = raw_number(t, 0), v = f->fn(raw_number(from, 0));
    int ways = 0;
    if (x->origin[told->use->init].entry.n != 1 || f->op == OP_Mul || (f->op != OP_NONE && !own) ||
        sums + products > 1 ||
        own + sums + products + fx_steps(x, told, row) != fx_steps(x, told, NULL))
        return false;
    *a = products ? y / v : 1, *b = 0;
    if (!sums)
        return (n > 1 || !products) && fits(from, t, n, f->fn, *a, *b);
    for (int sign = -1; sign <= 1; sign += 2) {
        const double more = n > 1 ? y - sign * v : nearbyint(y - sign * v);
        if (fits(from, t, n, f->fn, sign, more))
            *a = sign, *b = more, ways++;
    }
    return ways == 1 && (*a > 0 || !fx_steps(x, told, plus));
}

/* t as a function of the numbers `from`, of a parameter or of a row of it; NULL: it is none. */
static Recipe *function_of(Fx *x, Recipe *r, const RawTensor *from, const RawTensor *t, bool linear,
                           const Trace *told)
{
    const int64_t n = shape_elements(&t->shape);
    for (size_t f = !linear; f < (linear ? 1 : TIE_FUNCTIONS); f++) {
        const TieFunction *is = &tie_functions[f];
        double factor, addend;
        if (n < SURE ? told && fit_few(x, told, is, from, t, &factor, &addend)
                     : fit_line(from, t, n, is->fn, &factor, &addend)) {
            tie_record(x->a, r, t->dtype, is->op, factor, addend);
            return r;
        }
    }
    return NULL;
}

static Recipe *function_of_rows(Fx *x, uint32_t param, const RawTensor *t, bool linear,
                                const Trace *told)
{
    const Param *q = tie_param(x, param);
    Shape row = q->shape;
    Recipe *found = NULL;
    row.d[0] = 1;
    for (int64_t i = 0; i < q->shape.d[0]; i++) {
        Recipe *r = recipe_of(x->a, param);
        recipe_slice(x->a, r, row.rank, (int64_t[MAX_RANK]){i}, row.d);
        recipe_reshape(x->a, r, &t->shape);
        const RawTensor from = {.dtype = t->dtype,
                                .shape = t->shape,
                                .bytes = {.at = dense(x, q) + (size_t)i * t->bytes.length,
                                          .length = t->bytes.length}};
        r = function_of(x, r, &from, t, linear, told);
        if (r && found)
            return NULL; /* two rows would do */
        found = r ? r : found;
    }
    return found;
}

Recipe *tie_function(Fx *x, uint32_t param, const RawTensor *t, bool linear, const Trace *told)
{
    const Param *q = tie_param(x, param);
    const int64_t n = shape_elements(&t->shape), all = shape_elements(&q->shape);
    if (q->dtype != t->dtype || n < (told ? 1 : SURE) || all > largest || !q->bytes.at ||
        (n > 1 && raw_is_constant(t)) || has_no_name(q))
        return NULL;
    if (told && q->shape.rank > 0 && all > n && all == n * q->shape.d[0])
        return function_of_rows(x, param, t, linear, told);
    const uint8_t *own = dense(x, q);
    for (int turned = 0; turned < 2 && all == n; turned++) {
        RawTensor from = {
            .dtype = t->dtype, .shape = q->shape, .bytes = {.at = own, .length = t->bytes.length}};
        if (turned && (q->shape.rank != 2 || t->shape.rank != 2 || q->shape.d[0] != t->shape.d[1]))
            break;
        if (turned) {
            uint8_t *copy = arena_alloc(x->a, t->bytes.length);
            param_turn(copy, own, q->shape.d[0], q->shape.d[1], dtype_size(t->dtype));
            from.bytes.at = copy;
        }
        Recipe *r = function_of(x, recipe_of(x->a, param), &from, t, linear, told);
        if (r && turned)
            recipe_swap(x->a, r);
        else if (r && !shape_equal(&q->shape, &t->shape))
            recipe_reshape(x->a, r, &t->shape);
        if (r)
            return r;
    }
    return NULL;
}

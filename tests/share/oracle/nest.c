/*
 * nest.c - runs a nest on memory, statement by statement, with no passes, lanes or loops of any
 * target: what the printers must agree with to the bit.  Elementwise operations are read from their
 * text in ops.def, so that text is tested too.
 */
#include <math.h>
#include <string.h>

#include "runtime/api/pp_math.h"
#include "codegen/plan/plan.h"
#include "oracle.h"

typedef struct { bool whole; double f; int64_t i; } Num;   /* whole: i, else f */

static Num real(double x) { return (Num){false, x, 0}; }
static Num integer(int64_t x) { return (Num){true, 0, x}; }
static double as_real(Num x) { return x.whole ? (double)x.i : x.f; }
static bool truth(Num x) { return x.whole ? x.i != 0 : x.f != 0; }

/* What an element of this type holds. */
static Num fit(Dtype t, Num x)
{
    if (dtype_is_float(t))
        return real(dtype_round(t, as_real(x)));
    int64_t held, i = t == DT_BOOL ? truth(x) : x.whole ? x.i : (int64_t)x.f;
    element_set_int(t, &held, 0, i);
    return integer(element_int(t, &held, 0));
}

static Num read_at(Dtype t, const void *p, int64_t i)
{
    return dtype_is_float(t) ? real(element_double(t, p, i)) : integer(element_int(t, p, i));
}

static void write_at(Dtype t, void *p, int64_t i, Num x)
{
    if (dtype_is_float(t))
        element_set_double(t, p, i, as_real(x));
    else
        element_set_int(t, p, i, t == DT_BOOL ? truth(x) : x.i);
}

/* ---- the expression of a MAP row ------------------------------------------------------------- */

typedef struct { const char *p; Dtype t; Num operand[3]; } Expr;

static const struct { const char *name; float (*f)(float); double (*d)(double);
} unary[] = {
#define U(n) {#n, pp_##n##f, pp_##n}
    U(abs),   U(sign), U(exp),     U(log),      U(sqrt),  U(sin),  U(cos),   U(tan),
    U(asin),  U(acos), U(atan),    U(sinh),     U(cosh),  U(tanh), U(asinh), U(acosh),
    U(atanh), U(erf),  U(sigmoid), U(softplus), U(floor), U(ceil), U(round),
#undef U
};
static const struct {
    const char *name;
    float (*f)(float, float);
    double (*d)(double, double);
    int32_t (*i)(int32_t, int32_t);
    int64_t (*l)(int64_t, int64_t);
} binary[] = {
    {"pow", pp_powf, pp_pow, pp_powi, pp_powl}, {"mod", pp_modf, pp_mod, pp_modi, pp_modl},
    {"fmod", pp_fmodf, pp_fmod, pp_fmodi, pp_fmodl}, {"min", pp_minf, pp_min, pp_mini, pp_minl},
    {"max", pp_maxf, pp_max, pp_maxi, pp_maxl},
};

static Num call(const Expr *e, const char *name, size_t n, Num a, Num b)
{
    bool is_real = dtype_is_float(e->t);
    if (n == 5 && strncmp(name, "isinf", 5) == 0)
        return integer(isinf(as_real(a)) != 0);
    if (n == 7 && strncmp(name, "bitcast", 7) == 0)
        return e->t == DT_F32   ? integer(pp_bitcastf((float)as_real(a)))
               : e->t == DT_F64 ? integer(pp_bitcast(as_real(a)))
               : e->t == DT_I32 ? real((double)pp_bitcasti((int32_t)a.i))
                                : real(pp_bitcastl(a.i));
    for (size_t k = 0; k < sizeof unary / sizeof *unary; k++)
        if (strlen(unary[k].name) == n && strncmp(name, unary[k].name, n) == 0) {
            if (e->t == DT_F32)
                return real((double)unary[k].f((float)as_real(a)));
            if (is_real)
                return real(unary[k].d(as_real(a)));
            if (strcmp(unary[k].name, "abs") == 0)
                return integer(e->t == DT_I64 ? pp_absl(a.i) : pp_absi((int32_t)a.i));
            return integer(pp_signl(a.i));
        }
    for (size_t k = 0; k < sizeof binary / sizeof *binary; k++)
        if (strlen(binary[k].name) == n && strncmp(name, binary[k].name, n) == 0) {
            if (e->t == DT_F32)
                return real((double)binary[k].f((float)as_real(a), (float)as_real(b)));
            if (is_real)
                return real(binary[k].d(as_real(a), as_real(b)));
            return integer(e->t == DT_I64 ? binary[k].l(a.i, b.i)
                                          : binary[k].i((int32_t)a.i, (int32_t)b.i));
        }
    BUG("no function pp_%.*s", (int)n, name);
}

static Num arithmetic(const Expr *e, char op, Num a, Num b)
{
    if (dtype_is_float(e->t) && !(a.whole && b.whole)) {
        double x = as_real(a), y = as_real(b);
        double z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
        /* f32: a double holds both operands; one rounding is exact */
        return fit(e->t, real(z));
    }
    uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i;
    if (op == '/')
        return fit(e->t, integer(pp_divl(a.i, b.i)));
    return fit(e->t, integer((int64_t)(op == '+' ? x + y : op == '-' ? x - y : x * y)));
}

static Num compare(const char *op, Num a, Num b)
{
    bool whole = a.whole && b.whole;
    double x = as_real(a), y = as_real(b);
    switch (op[0]) {
    case '<':
        return integer(op[1] == '=' ? (whole ? a.i <= b.i : x <= y) : (whole ? a.i < b.i : x < y));
    case '>':
        return integer(op[1] == '=' ? (whole ? a.i >= b.i : x >= y) : (whole ? a.i > b.i : x > y));
    case '=': return integer(whole ? a.i == b.i : x == y);
    default: return integer(whole ? a.i != b.i : x != y);
    }
}

static Num choice(Expr *e);

static char next(Expr *e)
{
    while (*e->p == ' ')
        e->p++;
    return *e->p;
}

static Num primary(Expr *e)
{
    char c = next(e);
    if (c == '(' && e->p[1] >= 'a' && e->p[1] <= 'c' && e->p[2] == ')') { /* what most are */
        e->p += 3;
        return e->operand[e->p[-2] - 'a'];
    }
    if (c == '(') {
        e->p++;
        Num x = choice(e);
        next(e);
        e->p++;
        return x;
    }
    if (c == '-' || c == '!' || c == '~') {
        e->p++;
        Num x = primary(e);
        if (c == '!')
            return integer(!truth(x));
        if (c == '~')
            return fit(e->t, integer(~x.i));
        return x.whole ? fit(e->t, integer((int64_t)(0 - (uint64_t)x.i))) : real(-x.f);
    }
    if (c == '0' || c == '1') {
        e->p++;
        return integer(c - '0');
    }
    if (strncmp(e->p, "pp_", 3) != 0) {
        e->p++;
        return e->operand[c - 'a'];
    }
    const char *name = e->p + 3;
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    e->p = name + n + 1;
    Num a = choice(e), b = integer(0);
    if (next(e) == ',') {
        e->p++;
        b = choice(e);
        next(e);
    }
    e->p++;
    return call(e, name, n, a, b);
}

/* how tightly a binary operator binds; 0: none */
static int level(const char *s)
{
    if (s[0] == '|')
        return s[1] == '|' ? 1 : 3;
    if (s[0] == '&')
        return s[1] == '&' ? 2 : 5;
    switch (s[0]) {
    case '^': return 4;
    case '=':
    case '!': return 6;
    case '<':
    case '>': return 7;
    case '+':
    case '-': return 8;
    case '*':
    case '/': return 9;
    default: return 0;
    }
}

static Num operation(Expr *e, int lowest)
{
    Num a = primary(e);
    for (int l; next(e), (l = level(e->p)) > 0 && l >= lowest;) {
        const char *op = e->p;
        e->p += l <= 2 || l == 6 || (l == 7 && op[1] == '=') ? 2 : 1;
        Num b = operation(e, l + 1);
        if (l == 1)
            a = integer(truth(a) || truth(b));
        else if (l == 2)
            a = integer(truth(a) && truth(b));
        else if (l <= 5)
            a = integer(op[0] == '|' ? a.i | b.i : op[0] == '&' ? a.i & b.i : a.i ^ b.i);
        else
            a = l <= 7 ? compare(op, a, b) : arithmetic(e, op[0], a, b);
    }
    return a;
}

static Num choice(Expr *e)
{
    Num c = operation(e, 1);
    if (next(e) != '?')
        return c;
    e->p++;
    Num x = choice(e);
    next(e);
    e->p++;
    Num y = choice(e);
    return truth(c) ? x : y;
}

static Num apply(const Stmt *s, Dtype t, const Num *in)
{
    if (s->op == OP_Cast)
        return fit(s->type, in[0]);
    Expr e = {.p = op_map_text(s->op),
              .t = dtype_sum(s->op == OP_Where ? s->type : t),
              .operand = {in[0], in[1], in[2]}};
    return fit(s->type, choice(&e));
}

/* ---- the nest -------------------------------------------------------------------------------- */

typedef struct {
    const Nest *n;
    int64_t rows, points;           /* of the inner space */
    void *const *at;
    int64_t index[NEST_DIMS];
    Num **value;                    /* by statement, then by inner point */
} Run;

/* the inner indices of a point; a row without points may have scalars */
static void place(Run *r, int64_t point)
{
    for (int d = r->n->nd - 1; d >= r->n->nouter; d--) {
        int64_t n = lin_at(r->n->ext[d], r->rows);
        r->index[d] = n > 0 ? point % n : 0;
        point = n > 0 ? point / n : 0;
    }
}

static int64_t affine(const Run *r, Lin base, const Lin *coef)
{
    int64_t s = lin_at(base, r->rows);
    for (int d = 0; d < r->n->nd; d++)
        s += lin_at(coef[d], r->rows) * r->index[d];
    return s;
}

static Num load(const Run *r, const Stmt *s, int64_t point)
{
    int64_t at = affine(r, s->base, s->stride);
    for (uint32_t i = 0; i < s->nguard; i++) {
        int64_t x = affine(r, lin(0), s->guard[i].coef);
        if (x < s->guard[i].lo || x >= lin_at(s->guard[i].hi, r->rows))
            return fit(s->type, dtype_is_float(s->type) ? real(s->k) : integer(s->ki));
    }
    for (uint32_t i = 0; i < s->nindex; i++) {
        int64_t x = r->value[s->index[i].in][point].i, n = lin_at(s->index[i].extent, r->rows);
        x = x < 0 && !s->index[i].within ? x + n : x;
        INSIST(x >= 0 && x < n);
        at += x * lin_at(s->index[i].stride, r->rows);
    }
    return read_at(s->type, r->at[s->arg], at);
}

static Num combine(const Stmt *s, Num a, Num b)
{
    Expr e = {.t = dtype_sum(s->type)};
    switch (s->op) {
    case OP_ReduceSum: return arithmetic(&e, '+', a, b);
    case OP_ReduceProd: return arithmetic(&e, '*', a, b);
    case OP_ReduceMax: return call(&e, "max", 3, a, b);
    default: return call(&e, "min", 3, a, b);
    }
}

static Num neutral(const Stmt *s)
{
    bool is_real = dtype_is_float(s->type), wide = s->type == DT_I64;
    switch (s->op) {
    case OP_ReduceSum: return is_real ? real(0) : integer(0);
    case OP_ReduceProd: return is_real ? real(1) : integer(1);
    case OP_ReduceMax:
        return is_real ? real(-(double)INFINITY) : integer(wide ? INT64_MIN : INT32_MIN);
    default: return is_real ? real((double)INFINITY) : integer(wide ? INT64_MAX : INT32_MAX);
    }
}

static Num reduce(const Run *r, const Stmt *s)
{
    const Nest *n = r->n;
    const Num *x = r->value[s->in[0]];
    Num total = neutral(s);
    if (n->kind == NEST_COLUMN) {                       /* blocks of 64, then the blocks */
        for (int64_t b = 0; b < r->points; b += NEST_BLOCK) {
            Num part = neutral(s);
            for (int64_t i = b; i < r->points && i < b + NEST_BLOCK; i++)
                part = combine(s, part, x[i]);
            total = combine(s, total, part);
        }
        return total;
    }
    int64_t run = 1;
    for (int d = n->nd - n->nrun; d < n->nd; d++)
        run *= lin_at(n->ext[d], r->rows);
    Num lane[NEST_LANES];
    for (int k = 0; k < NEST_LANES; k++)
        lane[k] = neutral(s);
    for (int64_t i = 0; i < r->points; i++)
        lane[i % run % NEST_LANES] = combine(s, lane[i % run % NEST_LANES], x[i]);
    for (int half = NEST_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] = combine(s, lane[k], lane[k + half]);
    return lane[0];
}

static Num compute(const Run *r, const Stmt *s, int64_t point)
{
    Num in[3] = {integer(0), integer(0), integer(0)};
    switch (s->kind) {
    case S_CONST: return fit(s->type, dtype_is_float(s->type) ? real(s->k) : integer(s->ki));
    case S_LIN: return fit(s->type, integer(lin_at(s->base, r->rows)));
    case S_INDEX: return fit(s->type, integer(affine(r, s->base, s->stride)));
    case S_LOAD: return load(r, s, point);
    default:
        for (uint32_t i = 0; i < s->nin; i++)
            in[i] = r->value[s->in[i]][point];
        return apply(s, r->n->stmt.at[s->in[0]].type, in);
    }
}

static void one_row(Run *r)
{
    const Nest *n = r->n;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind == S_REDUCE) {
            Num x = fit(s->type, reduce(r, s));
            for (int64_t p = 0; p < r->points || p == 0; p++)
                r->value[i][p] = x;
            continue;
        }
        for (int64_t p = 0; s->kind != S_STORE && (p < r->points || (p == 0 && s->row)); p++) {
            place(r, p);
            r->value[i][p] = compute(r, s, p);
        }
    }
    /* after all loads: results may take an operand's place */
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        int64_t points = s->kind != S_STORE ? 0 : s->row ? 1 : r->points;
        for (int64_t p = 0; p < points; p++) {
            memset(r->index + n->nouter, 0, sizeof r->index[0] * (size_t)(NEST_DIMS - n->nouter));
            if (!s->row)
                place(r, p);
            int64_t at = affine(r, s->base, s->stride);
            Num x = r->value[s->in[0]][p];
            if (s->acc)
                x = arithmetic(&(Expr){.t = s->type}, '+', read_at(s->type, r->at[s->arg], at), x);
            write_at(s->type, r->at[s->arg], at, x);
        }
    }
}

void nest_interpret(Arena *a, const Nest *n, int64_t rows, void *const *at)
{
    Run r = {.n = n, .rows = rows, .points = 1, .at = at};
    int64_t outer = 1;
    for (int d = 0; d < n->nd; d++)
        *(d < n->nouter ? &outer : &r.points) *= lin_at(n->ext[d], rows);
    r.value = arena_array(a, Num *, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        r.value[i] = arena_array(a, Num, r.points + 1);
    for (int64_t o = 0; o < outer; o++) {
        int64_t rest = o;
        for (int d = n->nouter - 1; d >= 0; d--) {
            int64_t size = lin_at(n->ext[d], rows);
            r.index[d] = rest % size;
            rest /= size;
        }
        one_row(&r);
    }
}

/*
 * pick.c - sums over a one-hot row become the one element they pick.  In: a nest with statements
 *
 *     s = sum over j of (j == T ? X(j) : 0)            T: an integer that does not vary along the
 * row
 *
 * as the losses over classes make them, and their gradients (X: what is the same for all j).  Out:
 * scalars of the row instead,
 *
 *     within = 0 <= T && T < extent;  at = within ? T : 0;  s = within ? 0 + X(at) : 0
 *
 * so that no pass comes by the whole row for one element of it.  The bits stay the same in every
 * order of addition: all other terms are 0, and a sum that begins with 0 makes 0 of -0, hence the
 * addition.  X is computed again for j = at: its loads get T as an index; nothing is read that the
 * sum did not read.  A T outside, as that of an ignored row, picks nothing.
 *
 * Where nothing is summed any more the nest is one of points: of the whole space, or, when only
 * scalars of rows come out of it, of the rows.
 */
#include <string.h>

#include "nest.h"

typedef struct {
    const Nest *n;    /* as it was */
    int d;            /* the dimension that is the row */
    Stmts stmt;       /* as it will be */
    uint32_t *to;     /* by old statement */
    uint32_t *picked; /* by old statement: its value at `at`, NONE: not yet made */
    uint32_t at;
} Pick;

/* ---- what can be picked ---------------------------------------------------------------------- */

static bool whole(Dtype t) { return t == DT_I32 || t == DT_I64; }

/* 0, 1, 2, .. along the row, in numbers that reach its end. */
static bool counts(const Nest *n, uint32_t i, int d)
{
    const Stmt *s = &n->stmt.at[i];
    if (!whole(s->type) || (s->type == DT_I32 && n->ext[d].c > INT32_MAX))
        return false;
    if (s->kind == S_OP && s->op == OP_Cast)
        return counts(n, s->in[0], d);
    if (s->kind != S_INDEX || !lin_is(s->base, 0))
        return false;
    for (int e = 0; e < n->nd; e++)
        if (!lin_is(s->stride[e], e == d))
            return false;
    return true;
}

/* can[i]: the statement can be computed for one j alone. */
static void can_pick(const Nest *n, int d, bool *can)
{
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        can[i] = s->row || s->kind == S_OP || (s->kind == S_INDEX && whole(s->type)) ||
                 (s->kind == S_LOAD && s->nguard == 0);
        for (uint32_t j = 0; !s->row && j < stmt_reads(s); j++)
            can[i] &= can[stmt_read(s, j)];
        for (int e = n->nouter; e < n->nd; e++)
            can[i] &= s->row || e == d || lin_is(s->stride[e], 0);
    }
}

/* Is statement i such a sum?  Of what, and where T is. */
static bool one_hot(const Nest *n, uint32_t i, int d, const bool *can, uint32_t *x, uint32_t *t)
{
    const Stmt *s = &n->stmt.at[i];
    if (s->kind != S_REDUCE || s->op != OP_ReduceSum)
        return false;
    const Stmt *w = &n->stmt.at[s->in[0]];
    if (w->kind != S_OP || w->op != OP_Where)
        return false;
    const Stmt *c = &n->stmt.at[w->in[0]], *zero = &n->stmt.at[w->in[2]];
    if (c->kind != S_OP || c->op != OP_Equal || zero->kind != S_CONST ||
        (dtype_is_float(zero->type) ? zero->k != 0 : zero->ki != 0))
        return false;
    int k = counts(n, c->in[0], d) ? 0 : 1;
    *x = w->in[1];
    *t = c->in[1 - k];
    return counts(n, c->in[k], d) && n->stmt.at[*t].row && can[*x];
}

/* ---- picking --------------------------------------------------------------------------------- */

bool stmt_same(const Stmt *x, const Stmt *y)
{
    bool yes = x->kind == y->kind && x->op == y->op && x->type == y->type && x->nin == y->nin &&
               x->nindex == y->nindex && x->arg == y->arg && lin_eq(x->base, y->base) &&
               memcmp(&x->k, &y->k, sizeof x->k) == 0 && x->ki == y->ki && x->nguard == 0 &&
               y->nguard == 0;
    for (uint32_t j = 0; yes && j < x->nin; j++)
        yes = x->in[j] == y->in[j];
    for (int d = 0; yes && d < NEST_DIMS; d++)
        yes = lin_eq(x->stride[d], y->stride[d]);
    for (uint32_t j = 0; yes && j < x->nindex; j++)
        yes = x->index[j].in == y->index[j].in && lin_eq(x->index[j].stride, y->index[j].stride);
    return yes;
}

/* A scalar of the row; the one that is there already, when there is one. */
static uint32_t scalar(Pick *p, Stmt s)
{
    s.row = true;
    for (uint32_t i = 0; i < p->stmt.n; i++)
        if (p->stmt.at[i].row && p->stmt.at[i].kind != S_REDUCE && p->stmt.at[i].kind != S_STORE &&
            stmt_same(&p->stmt.at[i], &s))
            return i;
    vec_push(p->n->arena, &p->stmt, s);
    return p->stmt.n - 1;
}

static uint32_t number(Pick *p, Dtype t, Lin x)
{
    if (x.b == 0)
        return scalar(p, (Stmt){.kind = S_CONST, .type = t, .k = (double)x.c, .ki = x.c});
    return scalar(p, (Stmt){.kind = S_LIN, .type = t, .base = x});
}

static uint32_t op(Pick *p, Op o, Dtype t, uint32_t nin, uint32_t a, uint32_t b, uint32_t c)
{
    return scalar(p, (Stmt){.kind = S_OP, .op = o, .type = t, .nin = nin, .in = {a, b, c}});
}

static uint32_t picked(Pick *p, uint32_t i);

static uint32_t picked_index(Pick *p, Stmt s)
{
    Lin step = s.stride[p->d];
    s.stride[p->d] = lin(0);
    uint32_t from = scalar(p, s),
             at = p->stmt.at[p->at].type == s.type ? p->at : op(p, OP_Cast, s.type, 1, p->at, 0, 0);
    return op(p, OP_Add, s.type, 2, from, op(p, OP_Mul, s.type, 2, at, number(p, s.type, step), 0),
              0);
}

static uint32_t picked_load(Pick *p, Stmt s)
{
    NestIndex *index = arena_array(p->n->arena, NestIndex, s.nindex + 1);
    for (uint32_t j = 0; j < s.nindex; j++) {
        index[j] = s.index[j];
        index[j].in = picked(p, index[j].in);
    }
    s.index = index;
    if (!lin_is(s.stride[p->d], 0))
        index[s.nindex++] = (NestIndex){
            .in = p->at, .extent = p->n->ext[p->d], .stride = s.stride[p->d], .within = true};
    s.stride[p->d] = lin(0);
    return scalar(p, s);
}

/* The value of a statement for j = at. */
static uint32_t picked(Pick *p, uint32_t i)
{
    Stmt s = p->n->stmt.at[i];
    if (s.row)
        return p->to[i];
    if (p->picked[i] != NONE)
        return p->picked[i];
    for (uint32_t j = 0; j < s.nin; j++)
        s.in[j] = picked(p, s.in[j]);
    p->picked[i] = s.kind == S_INDEX  ? picked_index(p, s)
                   : s.kind == S_LOAD ? picked_load(p, s)
                                      : scalar(p, s);
    return p->picked[i];
}

static uint32_t pick(Pick *p, Dtype type, uint32_t x, uint32_t t)
{
    for (uint32_t i = 0; i < p->n->stmt.n; i++)
        p->picked[i] = NONE;
    uint32_t label = p->to[t];
    if (p->stmt.at[label].type != DT_I64)
        label = op(p, OP_Cast, DT_I64, 1, label, 0, 0);
    uint32_t first = number(p, DT_I64, lin(0)), nothing = number(p, type, lin(0));
    uint32_t above = op(p, OP_GreaterOrEqual, DT_BOOL, 2, label, first, 0);
    uint32_t below = op(p, OP_Less, DT_BOOL, 2, label, number(p, DT_I64, p->n->ext[p->d]), 0);
    uint32_t within = op(p, OP_And, DT_BOOL, 2, above, below, 0);
    p->at = op(p, OP_Where, DT_I64, 3, within, label, first);
    return op(p, OP_Where, type, 3, within, op(p, OP_Add, type, 2, nothing, picked(p, x), 0),
              nothing);
}

/* ---- the nest -------------------------------------------------------------------------------- */

/* Nothing is summed: points, unless some results are of rows and others of their elements. */
static void to_points(Nest *n)
{
    uint32_t stores = 0, of_rows = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind == S_REDUCE)
            return;
        stores += s->kind == S_STORE;
        of_rows += s->kind == S_STORE && s->row;
    }
    if (of_rows > 0 && of_rows < stores)
        return;
    if (of_rows > 0)
        n->nd = n->nouter;
    n->kind = NEST_POINT;
    n->nouter = n->nd > 0 ? n->nd - 1 : 0;
    n->nrun = 0;
    nest_mark_rows(n);
}

bool nest_pick(Nest *n)
{
    int d = n->nouter;
    uint32_t sums = 0, picks = 0, x, t;
    if (n->kind == NEST_POINT || n->nd != d + 1 || n->ext[d].b < 0 || n->ext[d].c < 0 ||
        lin_at(n->ext[d], 1) < 1)
        return false; /* for no number of rows may the row be empty: its first element is read */
    bool *can = arena_array(n->arena, bool, n->stmt.n + 1);
    can_pick(n, d, can);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        sums += n->stmt.at[i].kind == S_REDUCE;
        picks += one_hot(n, i, d, can, &x, &t);
    }
    if (picks == 0 || (n->kind == NEST_COLUMN && picks < sums))
        return false; /* columns have no scalars beside their sums */
    Pick p = {.n = nest_copy(n->arena, n), .d = d};
    p.to = arena_array(n->arena, uint32_t, n->stmt.n + 1);
    p.picked = arena_array(n->arena, uint32_t, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt s = n->stmt.at[i];
        if (one_hot(n, i, d, can, &x, &t)) {
            p.to[i] = pick(&p, s.type, x, t);
            continue;
        }
        stmt_rename(&s, p.to);
        vec_push(n->arena, &p.stmt, s);
        p.to[i] = p.stmt.n - 1;
    }
    n->stmt = p.stmt;
    nest_sweep(n);
    to_points(n);
    return true;
}

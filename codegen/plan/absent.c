/*
 * absent.c - rows that the data leave out (PackedMatMul in ops.def).  In: a nest.  Out: the load
 * that says of a row whether it is there, where all that the nest stores is zero in rows that are
 * not, and what is computed of the others: such a row is cleared and nothing of it computed.  How
 * it is found: Where(there, x, 0) is zero, and so is what multiplies or adds up such zeros.
 */
#include <math.h>
#include <string.h>

#include "nest.h"

/* A bool of the row, at a place that follows from the row alone. */
static bool tells_rows(const Stmt *s)
{
    return s->kind == S_LOAD && s->type == DT_BOOL && s->row && s->nindex == 0 && s->nguard == 0;
}

static bool same_place(const Nest *n, const Stmt *x, const Stmt *y)
{
    return x->arg == y->arg && lin_eq(x->base, y->base) &&
           memcmp(x->stride, y->stride, (size_t)n->nd * sizeof *x->stride) == 0;
}

/* Is statement i zero where `there` is false? */
static bool is_zero(const Nest *n, uint32_t i, const Stmt *there, int depth)
{
    const Stmt *s = &n->stmt.at[i], *c;
    if (depth == 0)
        return false;
    if (s->kind == S_CONST)
        return s->k == 0 && !signbit(s->k) && s->ki == 0;
    if (s->kind == S_REDUCE)
        return s->op == OP_ReduceSum && is_zero(n, s->in[0], there, depth - 1);
    if (s->kind != S_OP)
        return false;
    switch (s->op) {
    case OP_Where:
        c = &n->stmt.at[s->in[0]];
        return is_zero(n, s->in[2], there, depth - 1) &&
               ((tells_rows(c) && same_place(n, c, there)) ||
                is_zero(n, s->in[1], there, depth - 1));
    case OP_Mul:
        return is_zero(n, s->in[0], there, depth - 1) || is_zero(n, s->in[1], there, depth - 1);
    case OP_Add:
    case OP_Sub:
        return is_zero(n, s->in[0], there, depth - 1) && is_zero(n, s->in[1], there, depth - 1);
    case OP_Div:
    case OP_Cast:
    case OP_Neg: return is_zero(n, s->in[0], there, depth - 1);
    default: return false;
    }
}

static bool all_zero(const Nest *n, const Stmt *there)
{
    enum { DEEPEST = 40 };
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE &&
            !is_zero(n, n->stmt.at[i].in[0], there, DEEPEST))
            return false;
    return true;
}

static const Stmt *find(const Nest *n)
{
    if (n->nouter == 0 || n->kind == NEST_COLUMN)
        return NULL;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind != S_OP || s->op != OP_Where || !tells_rows(&n->stmt.at[s->in[0]]))
            continue;
        const Stmt *there = &n->stmt.at[s->in[0]];
        if (all_zero(n, there))
            return there;
    }
    return NULL;
}

/* By statement: the one that it is where `there` is true. */
static uint32_t *where_present(Arena *a, const Nest *n, const Stmt *there)
{
    uint32_t *is = arena_array(a, uint32_t, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool chosen = s->kind == S_OP && s->op == OP_Where && tells_rows(&n->stmt.at[s->in[0]]) &&
                      same_place(n, &n->stmt.at[s->in[0]], there);
        is[i] = chosen ? is[s->in[1]] : i;
    }
    return is;
}

/* The arguments stay: they have names. */
const Nest *nest_present(Arena *a, const Nest *n)
{
    const Stmt *there = find(n);
    if (!there)
        return n;
    const uint32_t *is = where_present(a, n, there);
    Nest *own = nest_copy(a, n);
    own->there = there;
    for (uint32_t i = 0; i < own->stmt.n; i++)
        stmt_rename(&own->stmt.at[i], is);
    nest_sweep_statements(own);
    nest_schedule(own);
    return own;
}

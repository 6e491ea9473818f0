/*
 * simplify.c - operations that change no bit, left out or written shortly.  In: a nest's
 * statements.  Out: the same values of fewer or plainer ones,
 *
 *     x * 1, x / 1, -(-x)  ->  x             x * -1, x / -1  ->  -x
 *     x + (-y)  ->  x - y                    x - (-y)  ->  x + y           (-y) + x  ->  x - y
 *     max(x, 0) > 0  ->  x > 0               what there is already  ->  that one
 *
 * as derivatives make them of one another.  Each is exact, for zeros of either sign and infinities
 * too, so that no result depends on which nest an operation has come to stand in.  What adds 0
 * makes 0 of -0, and stays.
 */
#include "nest.h"

static bool is_number(const Nest *n, uint32_t i, double k)
{
    const Stmt *s = &n->stmt.at[i];
    return s->kind == S_CONST && dtype_is_float(s->type) && s->k >= k && s->k <= k;
}

/* x * k and x / k for k = 1 and -1 become -x; true: they are x itself. */
static bool scaled(const Nest *n, Stmt *s)
{
    const bool product = stmt_is(s, OP_Mul);
    for (uint32_t k = product ? 0 : 1; k < 2 && (product || stmt_is(s, OP_Div)); k++) {
        const bool one = is_number(n, s->in[k], 1);
        if (!one && !is_number(n, s->in[k], -1))
            continue;
        s->op = OP_Neg;
        s->nin = 1;
        s->in[0] = s->in[1 - k];
        return one;
    }
    return false;
}

/* A sum or difference of what is negative. */
static void signs(const Nest *n, Stmt *s)
{
    if (!dtype_is_float(s->type) || !(stmt_is(s, OP_Add) || stmt_is(s, OP_Sub)))
        return;
    const Stmt *x = &n->stmt.at[s->in[0]], *y = &n->stmt.at[s->in[1]];
    if (stmt_is(y, OP_Neg)) {
        s->op = s->op == OP_Add ? OP_Sub : OP_Add;
        s->in[1] = y->in[0];
    } else if (stmt_is(s, OP_Add) && stmt_is(x, OP_Neg)) {
        s->op = OP_Sub;
        s->in[0] = s->in[1];
        s->in[1] = x->in[0];
    }
}

/* Statement i is made plainer.  Gives the earlier one whose value it is, i: of none. */
static uint32_t plainer(const Nest *n, uint32_t i)
{
    Stmt *s = &n->stmt.at[i];
    if (scaled(n, s))
        return s->in[0];
    signs(n, s);
    const Stmt *x = &n->stmt.at[s->nin > 0 ? s->in[0] : i];
    if (stmt_is(s, OP_Neg) && stmt_is(x, OP_Neg))
        return x->in[0];
    if (stmt_is(s, OP_Greater) && stmt_is(x, OP_Relu) && is_number(n, s->in[1], 0))
        s->in[0] = x->in[0];
    return i;
}

static uint32_t hash(const Stmt *s)
{
    uint32_t h = s->op;
    for (uint32_t j = 0; j < s->nin; j++)
        h = 31 * h + s->in[j];
    return h;
}

void nest_simplify(Nest *n)
{
    const uint32_t count = n->stmt.n;
    uint32_t *to = arena_array(n->arena, uint32_t, count + 1);
    /* by hash the latest statement, plus 1; by statement the one before it of that hash */
    uint32_t *latest = arena_array(n->arena, uint32_t, count + 1),
             *before = arena_array(n->arena, uint32_t, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        Stmt *s = &n->stmt.at[i];
        stmt_rename(s, to);
        to[i] = i;
        if (s->kind != S_OP && s->kind != S_REDUCE && s->kind != S_LIN)
            continue;
        to[i] = plainer(n, i);
        uint32_t *of = &latest[hash(s) % count];
        for (uint32_t j = *of; j > 0 && to[i] == i; j = before[j - 1])
            if (stmt_same(&n->stmt.at[j - 1], s))
                to[i] = j - 1;
        if (to[i] == i) {
            before[i] = *of;
            *of = i + 1;
        }
    }
}

/*
 * rounding.c - where a half is made, it is rounded, whether or not it is ever stored: what takes no
 * rounding, being exact, and what takes the short one (pp_nearest_bf16), which a NaN with bits in
 * its lower half might not survive.  In: a nest.  Out: the call around an expression.
 *
 * IEEE arithmetic makes a NaN of an operand's, which it makes quiet, or the machine's own, whose
 * lower half is empty (but on a GPU; pp_half.h looks after that).  So the lower half of a NaN is
 * filled only where it was read from memory as float32 or made by what is not arithmetic.
 */
#include <math.h>

#include "print.h"

/* What is known of a value, should it be a NaN: nothing; its lower half is empty; it is also quiet
   (the two roundings give the same bits). */
typedef enum { NAN_ANY, NAN_EMPTY, NAN_QUIET } NanKind;

static NanKind least(NanKind a, NanKind b) { return a < b ? a : b; }

static bool is_float32(Dtype t) { return t == DT_F32 || t == DT_BF16; }

/* The least that is known of its operands. */
static NanKind of_operands(const Nest *n, const Stmt *s, const uint8_t *known)
{
    NanKind k = NAN_QUIET;
    for (uint32_t i = 0; i < s->nin; i++)
        if (dtype_is_float(n->stmt.at[s->in[i]].type))
            k = least(k, known[s->in[i]]);
    return k;
}

static NanKind calculated(const Nest *n, const Stmt *s, const uint8_t *known)
{
    return of_operands(n, s, known) == NAN_ANY ? NAN_ANY : NAN_QUIET;
}

/* Of what the expression gives, before any rounding. */
static NanKind unrounded(const Nest *n, const Stmt *s, const uint8_t *known)
{
    switch (s->kind) {
    case S_CONST: return isnan(s->k) ? NAN_ANY : NAN_QUIET;
    case S_LIN:
    case S_INDEX: return NAN_QUIET;
    case S_LOAD: return s->type == DT_BF16 ? NAN_EMPTY : NAN_ANY;
    case S_REDUCE:
        if (s->op == OP_ReduceMax || s->op == OP_ReduceMin)
            return of_operands(n, s, known);
        return calculated(n, s, known);
    case S_OP:
        if (op_is_arithmetic(s->op))
            return calculated(n, s, known);
        if (s->op == OP_Cast && !is_float32(n->stmt.at[s->in[0]].type))
            return dtype_is_float(n->stmt.at[s->in[0]].type) ? NAN_ANY : NAN_QUIET;
        return s->op == OP_Cast || op_is_exact(s->op) ? of_operands(n, s, known) : NAN_ANY;
    case S_STORE: return NAN_ANY;
    }
    BUG("no NaN of a statement of kind %d", (int)s->kind);
}

/* The constant is a power of two of at least 1: as its factor a bf16 stays one, or is infinite. */
static bool doubles(const Stmt *s)
{
    int e;
    return s->kind == S_CONST && isfinite(s->k) && fabs(s->k) >= 1 && frexp(fabs(s->k), &e) == 0.5;
}

/* Is each element of the result a half as it is? */
static bool is_exact(const Nest *n, const Stmt *s)
{
    if (s->kind == S_OP && s->op == OP_Cast)
        return n->stmt.at[s->in[0]].type == s->type;
    if (s->kind == S_OP && s->op == OP_Mul && s->type == DT_BF16)
        for (int i = 0; i < 2; i++)
            if (doubles(&n->stmt.at[s->in[i]]) && n->stmt.at[s->in[!i]].type == DT_BF16)
                return true;
    return s->kind != S_OP || op_is_exact(s->op);
}

static bool is_rounded(const Nest *n, const Stmt *s)
{
    return dtype_is_half(s->type) &&
           (s->kind == S_LIN || s->kind == S_INDEX || s->kind == S_REDUCE ||
            (s->kind == S_OP && !is_exact(n, s)));
}

/* Operands stand before what uses them. */
PrintRounding *print_roundings(Arena *a, const Nest *n)
{
    uint8_t *known = arena_array(a, uint8_t, n->stmt.n + 1);
    PrintRounding *how = arena_array(a, PrintRounding, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        const NanKind nan = unrounded(n, s, known);
        const bool rounds = is_rounded(n, s);
        known[i] = (uint8_t)(!rounds ? nan : s->type == DT_BF16 ? NAN_QUIET : NAN_ANY);
        if (!rounds)
            how[i] = PRINT_AS_IT_IS;
        else
            how[i] = s->type == DT_BF16 && nan == NAN_QUIET ? PRINT_NEAREST : PRINT_ROUNDED;
    }
    return how;
}

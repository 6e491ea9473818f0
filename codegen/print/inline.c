/*
 * inline.c - which values a nest's text has no variable for: they are written out where they are
 * used, so that a chain of operations reads as the formula it is.  In: a nest, and what the pass
 * that is printed computes.  Out: a flag for each statement.
 *
 * Such a value is used once, at the same place (both at each point of this pass, or both once for a
 * row).  At a point it is used always: not under a condition, where a load would keep compilers
 * from making vectors.  Stores come last at their place, and may be in place of what was loaded: a
 * load does not move behind one, nor, where several threads share a row, behind the barrier before
 * the store of a row's scalar.
 */
#include <string.h>

#include "print.h"

/* The most operations and loads of one expression. */
enum { LARGEST = 10 };

/* The only user of a statement. */
typedef struct { uint32_t times, user, operand; bool index; } OnlyUse;

/* Uses at points of other passes do not count: a point's value is computed again in each. */
static OnlyUse *find_uses(Arena *a, const Nest *n, const uint8_t *in_pass)
{
    OnlyUse *use = arena_array(a, OnlyUse, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool elsewhere = in_pass && !in_pass[i] && (!s->row || s->kind == S_REDUCE);
        for (uint32_t j = 0; j < stmt_reads(s); j++) {
            OnlyUse *of = &use[stmt_read(s, j)];
            if (!elsewhere || n->stmt.at[stmt_read(s, j)].row)
                *of = (OnlyUse){of->times + 1, i, j, j >= s->nin};
        }
    }
    return use;
}

/* Does the operation's text name the operand once? */
static bool is_named_once(Op op, uint32_t operand)
{
    const char letter[] = {'(', (char)('a' + operand), ')', '\0'};
    const char *first = strstr(op_map_text(op), letter);
    return !first || !strstr(first + 1, letter);
}

/* Is what stands there always computed, at a point, and once? */
static bool is_unconditional(const Nest *n, const OnlyUse *use)
{
    const Stmt *user = &n->stmt.at[use->user];
    if (use->index)
        return user->row || user->nguard == 0;
    if (user->kind != S_OP || user->op == OP_Cast)
        return true;
    bool condition = user->op == OP_Where || user->op == OP_And || user->op == OP_Or;
    return (user->row || use->operand == 0 || !condition) &&
           is_named_once(user->op, use->operand);
}

static bool is_same_place(const Nest *n, const Stmt *s, const Stmt *user)
{
    if (n->kind == NEST_COLUMN)
        return user->kind != S_STORE;
    if (user->kind == S_REDUCE)
        return !s->row;
    return s->row == user->row && (!s->row || s->pass == user->pass);
}

/* Does no other store of its place come before? */
static bool is_first_store(const Nest *n, uint32_t store)
{
    const Stmt *s = &n->stmt.at[store];
    for (uint32_t i = 0; i < store; i++) {
        const Stmt *x = &n->stmt.at[i];
        if (x->kind == S_STORE && x->row == s->row && x->pass == s->pass)
            return false;
    }
    return true;
}

/* May it stand in an expression as a number of its type?  A guarded load is an expression that is
 * long enough by itself. */
static bool is_expression(const Stmt *s)
{
    return s->kind == S_OP || s->kind == S_LIN || (s->kind == S_LOAD && s->nguard == 0) ||
           (s->kind == S_INDEX && s->type != DT_I64);
}

/* Operations and loads; a load with a long address is worth more. */
static uint32_t own_size(const Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    uint32_t size = is_expression(s) ? 1 : 0, terms = 0;
    for (int d = 0; s->kind == S_LOAD && d < p->n->nd; d++)
        terms += lin_is(s->stride[d], 0) ? 0 : 1;
    size += terms / 3;
    return p->rounding[i] == PRINT_AS_IT_IS ? size : size + 1;
}

/* What is written out for statement i in all; where that is too much, its largest operands get
 * variables. */
static uint32_t whole_size(Print *p, const uint32_t *size, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    for (;;) {
        uint32_t all = size[i], largest = NONE;
        for (uint32_t j = 0; j < stmt_reads(s); j++) {
            uint32_t x = stmt_read(s, j);
            if (!p->inlined[x])
                continue;
            all += size[x];
            if (largest == NONE || size[x] > size[largest])
                largest = x;
        }
        if (all <= LARGEST || largest == NONE)
            return all;
        p->inlined[largest] = false;
    }
}

void print_inlined(Print *p, bool threads)
{
    const Nest *n = p->n;
    uint32_t *size = arena_array(p->a, uint32_t, n->stmt.n + 1);
    bool *loads = arena_array(p->a, bool, n->stmt.n + 1);       /* in what is written out for it */
    const OnlyUse *use = find_uses(p->a, n, n->kind == NEST_COLUMN ? NULL : p->in_pass);
    p->inlined = arena_array(p->a, bool, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i], *user = &n->stmt.at[use[i].user];
        size[i] = own_size(p, i);
        size[i] = whole_size(p, size, i);
        loads[i] = s->kind == S_LOAD;
        for (uint32_t j = 0; j < stmt_reads(s); j++)
            loads[i] |= p->inlined[stmt_read(s, j)] && loads[stmt_read(s, j)];
        p->inlined[i] = use[i].times == 1 && is_expression(s) && !s->keep &&
                        !(s->row && role_of(n, i)) && is_same_place(n, s, user) &&
                        is_unconditional(n, &use[i]);
        if (p->inlined[i] && user->kind == S_STORE && loads[i])
            p->inlined[i] = is_first_store(n, use[i].user) && !(user->row && threads);
    }
}

/*
 * work.c - what a nest is to a device, for its profile and its forecast.  Bytes: every tensor that
 * it reads and writes, once, however often its passes come by.  Instructions: of each pass.
 */
#include "plan.h"

/* Of the points of the nest, those that differ for this access: an index operand may lead anywhere,
 * one of a row once a row. */
static Lin elements(const Nest *n, const Stmt *s)
{
    Lin all = lin(1);
    for (int d = 0; d < n->nd; d++)
        if ((s->nindex > 0 && !(s->row && d >= n->nouter)) || !lin_is(s->stride[d], 0))
            if (!lin_mul(all, n->ext[d], &all))
                return all; /* rows times rows: no nest has it, and a profile may err */
    return all;
}

static bool same_access(const Nest *n, const Stmt *x, const Stmt *y)
{
    bool same = x->kind == y->kind && x->arg == y->arg && x->nindex == 0 && y->nindex == 0 &&
                lin_eq(x->base, y->base);
    for (int d = 0; d < n->nd; d++)
        same = same && lin_eq(x->stride[d], y->stride[d]);
    return same;
}

/* An element that another statement reads as one of all. */
static bool read_anyway(const Nest *n, const Stmt *s)
{
    bool anyway = false;
    for (uint32_t i = 0; nest_is_picked(s) && i < n->stmt.n; i++)
        anyway |= n->stmt.at[i].kind == S_LOAD && n->stmt.at[i].arg == s->arg &&
                  n->stmt.at[i].nindex == 0 && !n->stmt.at[i].row;
    return anyway;
}

Lin nest_bytes(const Nest *n)
{
    Lin bytes = lin(0);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool counts = s->kind == S_STORE || (s->kind == S_LOAD && !read_anyway(n, s));
        for (uint32_t j = 0; j < i && counts; j++)
            counts = !same_access(n, s, &n->stmt.at[j]);
        if (counts)
            bytes = lin_add(
                bytes, lin_times(elements(n, s),
                                 (s->acc ? 2 : 1) * (int64_t)dtype_size(n->arg.at[s->arg].type)));
    }
    return bytes;
}

const char *nest_kind(const Nest *n)
{
    for (uint32_t i = 0; i < n->stmt.n && n->kind == NEST_POINT; i++)
        if (n->stmt.at[i].kind == S_OP)
            return "elementwise";
    return n->kind == NEST_POINT ? "copy" : n->kind == NEST_ROW ? "row" : "column";
}

/* What is computed once a row counts for nothing. */
Lin nest_instructions(const Nest *n)
{
    Arena *a = arena_within(n->arena);
    uint8_t *in_pass = arena_array(a, uint8_t, n->stmt.n + 1);
    int64_t each = 0;
    for (int p = 0; p <= n->passes; p++) {
        nest_marks(n, p, in_pass);
        for (uint32_t i = 0; i < n->stmt.n; i++) {
            const Stmt *s = &n->stmt.at[i];
            if (in_pass[i] && !s->row)
                each += s->kind == S_STORE || s->kind == S_REDUCE ? 1 : nest_worth(s);
        }
    }
    arena_free(a);
    Lin all = lin(each);
    for (int d = 0; d < n->nd; d++)
        if (!lin_mul(all, n->ext[d], &all))
            return all; /* as in elements() */
    return all;
}

/*
 * chain.c - long chains of elementwise operations, as those of a half's, whose every value is
 * rounded, in several passes over a part of a row.  In: a nest.  Out: the same, or one with passes
 * as a row has them: what one pass hands on to the next is kept in a buffer.
 *
 * A processor looks a few hundred operations ahead.  Where one point takes as many, each of which
 * waits for the one before, the next points begin late; of short passes many are under way at once
 * (seen of a GELU and its gradient in bf16: 0.9 of the time).
 */
#include <string.h>

#include "plan.h"

/* Worth of operations: of a pass, and of a chain that is worth it; points of a part. */
enum { PASS = 96, CHAIN = 64, PART = 256, SHORTEST = 64 };

/* Every element at its own place along the last dimension. */
static bool is_plain(const Nest *n)
{
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        const Lin along = s->stride[n->nd - 1];
        if (s->keep || s->nindex > 0 || s->nguard > 0)
            return false;
        if ((s->kind == S_LOAD || s->kind == S_STORE) && !lin_is(along, 0) && !lin_is(along, 1))
            return false;
    }
    return true;
}

/* How many points a part of rows has whose length is a multiple of `row'; 0: they have no parts. */
static int64_t part_of(int64_t row)
{
    int64_t part = row <= PART ? row : PART;
    while (part >= SHORTEST && (row % part != 0 || (part < row && part % NEST_LANES != 0)))
        part--;
    return part < SHORTEST ? 0 : part;
}

/* The last dimension in parts of so many: one dimension more. */
static void divide_row(Nest *n, int64_t part)
{
    const int row = n->nd - 1, within = n->nd++;
    n->nouter++;
    n->ext[within] = lin(part);
    n->ext[row].c /= part;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Lin *stride = n->stmt.at[i].stride;
        stride[within] = stride[row];
        stride[row] = lin_times(stride[row], part);
    }
}

/* The arguments stay: they have names. */
const Nest *nest_chain(Arena *a, const Nest *n)
{
    const int last = n->nd - 1;
    const int64_t row = last < 0 ? 0 : cg_divisor(n->sized, n->ext[last].c);
    if (n->kind != NEST_POINT || n->passes != 1 || n->nouter != last || n->nd == NEST_DIMS ||
        n->in_parts || n->there || !is_plain(n) || nest_price(n) < CHAIN)
        return n;
    const int64_t part = n->ext[last].b == 0 ? part_of(row) : 0;
    if (part == 0)
        return n;
    Nest *own = nest_copy(a, n);
    if (part < n->ext[last].c)
        divide_row(own, part);
    nest_mark_rows(own);
    nest_divide(own, PASS);
    return own;
}

/*
 * nest.c - the passes of a nest over its row.  In: statements in SSA order.  Out: for each the
 * first and the last pass that computes it, and which are kept in a row buffer.
 *
 * A reduction's result is there only after its pass, so what uses it belongs to the next.  A value
 * of an earlier pass is computed again when that is cheap, else kept.
 */
#include "plan.h"

/* of quick operations; ROUNDING: of what a half's value takes where it is made */
enum { DEAR = 24, KEEP_FROM = 10, SHORT = 5, ROUNDING = 5 };

int nest_worth(const Stmt *s)
{
    if (s->kind != S_OP)
        return s->kind == S_LOAD ? 1 + 2 * (int)s->nindex : 0;
    const int own = op_is_quick(s->op) ? 1 : op_is_short(s->op) ? SHORT : DEAR;
    return dtype_is_half(s->type) && !op_is_exact(s->op) ? own + ROUNDING : own;
}

static int cost(const Nest *n, uint32_t i)
{
    const Stmt *s = &n->stmt.at[i];
    if (s->row || s->keep)
        return 0;
    int c = nest_worth(s);
    for (uint32_t j = 0; j < s->nin && c < DEAR; j++)
        c += cost(n, s->in[j]);
    return c;
}

int64_t nest_row_length(const Nest *n)
{
    int64_t len = n->kind == NEST_ROW;
    for (int d = n->nouter; d < n->nd; d++)
        len *= n->ext[d].b == 0 ? n->ext[d].c : 0;
    return len;
}

/* Marks what pass p computes for statement i. */
static void want(Nest *n, uint32_t i, int p, bool keeps, uint8_t *in_pass)
{
    Stmt *s = &n->stmt.at[i];
    if (s->row || in_pass[i])
        return;
    if (s->keep && s->pass < p)
        return;
    if (keeps && s->pass < p && s->kind == S_OP && cost(n, i) >= KEEP_FROM) {
        s->keep = true;
        return;
    }
    in_pass[i] = 1;
    if (s->last < p)
        s->last = p;
    for (uint32_t j = 0; j < stmt_reads(s); j++)
        want(n, stmt_read(s, j), p, keeps, in_pass);
}

static int ready(const Stmt *s) { return s->kind == S_REDUCE ? s->pass + 1 : s->pass; }

/* The same when all is decided. */
static void mark(const Nest *n, uint32_t i, int p, uint8_t *in_pass)
{
    const Stmt *s = &n->stmt.at[i];
    if (s->row || in_pass[i] || (s->keep && s->pass < p))
        return;
    in_pass[i] = 1;
    for (uint32_t j = 0; j < stmt_reads(s); j++)
        mark(n, stmt_read(s, j), p, in_pass);
}

void nest_marks(const Nest *n, int p, uint8_t *in_pass)
{
    for (uint32_t i = 0; i < n->stmt.n; i++)
        in_pass[i] = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool root = s->kind == S_STORE ? !s->row && s->pass == p
                  : s->kind == S_REDUCE ? s->pass == p : s->keep && s->pass == p;
        if (!root)
            continue;
        if (s->kind == S_STORE || s->kind == S_REDUCE) {
            in_pass[i] = 1;
            mark(n, s->in[0], p, in_pass);
        } else {
            mark(n, i, p, in_pass);
        }
    }
}

/* Which values of earlier passes are kept, the passes being known. */
static void keep(Nest *n, bool keeps)
{
    uint8_t *in_pass = arena_array(n->arena, uint8_t, n->stmt.n + 1);
    for (int p = n->passes - 1; p >= 0; p--) {
        for (uint32_t i = 0; i < n->stmt.n; i++)
            in_pass[i] = 0;
        for (uint32_t i = n->stmt.n; i-- > 0;) {
            Stmt *s = &n->stmt.at[i];
            if (s->pass == p && (s->kind == S_REDUCE || (s->kind == S_STORE && !s->row)))
                want(n, s->in[0], p, keeps, in_pass);
            else if (s->pass == p && s->keep)
                want(n, i, p, keeps, in_pass);
        }
    }
}

void nest_schedule(Nest *n)
{
    n->passes = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt *s = &n->stmt.at[i];
        s->pass = 0;
        s->keep = false;
        for (uint32_t j = 0; j < stmt_reads(s); j++)
            if (ready(&n->stmt.at[stmt_read(s, j)]) > s->pass)
                s->pass = ready(&n->stmt.at[stmt_read(s, j)]);
        s->last = s->pass;
        /* one loop: its sums are there after it, for stores alone */
        INSIST(n->kind != NEST_COLUMN || s->pass == 0 || s->kind == S_STORE);
        bool loops = s->kind == S_REDUCE || (s->kind == S_STORE && !s->row);
        if (loops && s->pass + 1 > n->passes)
            n->passes = s->pass + 1;
    }
    const int64_t row = nest_row_length(n);
    /* a device's kernel of any length asks how long it is (print/cuda_segments.c) */
    const bool any = n->sized && n->sized->device && cg_varies(n->sized, row);
    keep(n, row && (any || cg_most(n->sized, row) <= LONGEST_KEPT));
}

/* ---- statements ------------------------------------------------------------------------------ */

Lin nest_span(const Nest *n, int from, int to)
{
    Lin all = lin(1);
    for (int d = from; d < to; d++)
        all = lin_product(all, n->ext[d]);
    return all;
}

void stmt_rename(Stmt *s, const uint32_t *to)
{
    for (uint32_t j = 0; j < s->nin; j++)
        s->in[j] = to[s->in[j]];
    for (uint32_t j = 0; j < s->nindex; j++)
        s->index[j].in = to[s->index[j].in];
}

Nest *nest_copy(Arena *a, const Nest *n)
{
    Nest *own = arena_new_of(a, Nest);
    *own = *n;
    own->arena = a;
    own->stmt = (Stmts){0};
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt s = n->stmt.at[i];
        s.index = arena_array(a, NestIndex, s.nindex + 1);
        for (uint32_t j = 0; j < s.nindex; j++)
            s.index[j] = n->stmt.at[i].index[j];
        vec_push(a, &own->stmt, s);
    }
    return own;
}

void nest_sweep_statements(Nest *n)
{
    bool *live = arena_array(n->arena, bool, n->stmt.n + 1);
    uint32_t *to = arena_array(n->arena, uint32_t, n->stmt.n + 1), kept = 0;
    for (uint32_t i = n->stmt.n; i-- > 0;) {
        const Stmt *s = &n->stmt.at[i];
        live[i] |= s->kind == S_STORE;
        for (uint32_t j = 0; live[i] && j < stmt_reads(s); j++)
            live[stmt_read(s, j)] = true;
    }
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        if (!live[i])
            continue;
        stmt_rename(&n->stmt.at[i], to);
        to[i] = kept;
        n->stmt.at[kept++] = n->stmt.at[i];
    }
    n->stmt.n = kept;
}

void nest_sweep(Nest *n)
{
    nest_sweep_statements(n);
    bool *used = arena_array(n->arena, bool, n->arg.n + 1);
    uint32_t *renamed = arena_array(n->arena, uint32_t, n->arg.n + 1), args = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_LOAD || n->stmt.at[i].kind == S_STORE)
            used[n->stmt.at[i].arg] = true;
    for (uint32_t i = 0; i < n->arg.n; i++)
        if (used[i]) {
            renamed[i] = args;
            n->arg.at[args++] = n->arg.at[i];
        }
    n->arg.n = args;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_LOAD || n->stmt.at[i].kind == S_STORE)
            n->stmt.at[i].arg = renamed[n->stmt.at[i].arg];
}

void nest_mark_rows(Nest *n)
{
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt *s = &n->stmt.at[i];
        s->row = true;
        for (int d = n->nouter; d < n->nd; d++) {
            if (s->kind == S_LOAD || s->kind == S_STORE || s->kind == S_INDEX)
                s->row &= lin_is(s->stride[d], 0);
            for (uint32_t j = 0; j < s->nguard; j++)
                s->row &= lin_is(s->guard[j].coef[d], 0);
        }
        for (uint32_t j = 0; s->kind != S_REDUCE && j < stmt_reads(s); j++)
            s->row &= n->stmt.at[stmt_read(s, j)].row;
        if (s->kind == S_STORE && n->kind == NEST_POINT && n->nd > n->nouter)
            s->row = false;
    }
}

bool nest_makes_nothing(const Nest *n)
{
    for (int d = 0; d < (n->kind == NEST_POINT ? n->nd : n->nouter); d++)
        if (lin_is(n->ext[d], 0))
            return true;
    return false;
}

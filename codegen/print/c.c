/*
 * c.c - a nest as the body of a C function.  Rows in an OpenMP loop, passes as loops over the row,
 * reductions in 16 lanes; `omp simd` says that lanes are independent and changes no order.  Sums
 * over rows: c_column.c.
 */
#include <inttypes.h>

#include "print.h"

/* statements x points from which threads pay */
enum { PARALLEL_FROM = 200000 };

typedef struct {
    Print p;
    bool reduces;                                       /* this pass has lanes */
    /* Bytes among 16 lanes of floats make compilers choose vectors of 8 bytes (seen: 4.8 ns an
       element for 0.7), so a row of bools is widened before the passes, and narrowed after the pass
       that makes it. */
    /* a bool load that stands in a row buffer of ints from the start */
    bool *widened;
    /* a bool that is stored from a row buffer after its pass */
    bool *narrowed;
    /* By statement: the store where later passes find it, which is its row buffer; NULL: none. */
    const Stmt **stored;
} CPrint;

static CPrint *own(const Print *p) { return (CPrint *)(uintptr_t)p; }

static const char *row_index(Print *p)                  /* position in a row buffer */
{
    const Nest *n = p->n;
    Lin coef[NEST_DIMS] = {{0, 0}}, size = lin(1);
    for (int d = n->nd - 1; d >= n->nouter; d--) {
        coef[d] = size;
        size = lin_times(n->ext[d], size.c);
    }
    return print_affine(p, lin(0), coef);
}

static const char *name(Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    if (s->kind == S_CONST)
        return print_constant(p, s);
    if (s->kind == S_REDUCE)
        return arena_printf(p->a, p->n->kind == NEST_COLUMN ? "%s[j]" : "%s", print_called(p, i));
    const Stmt *stored = own(p)->stored[i];
    if (stored && p->pass > s->pass)
        return arena_printf(p->a, "%s[%s]", p->arg[stored->arg],
                            print_affine(p, stored->base, stored->stride));
    if (own(p)->widened[i] || (s->keep && p->pass > s->pass))
        return arena_printf(p->a, "%s[%s]", print_row_name(p, i), row_index(p));
    return print_called(p, i);
}

/* Bools in row buffers have a name. */
static void choose_inlined(Print *p)
{
    print_inlined(p, false);
    for (uint32_t i = 0; i < p->n->stmt.n; i++)
        p->inlined[i] &= !own(p)->widened[i] && !own(p)->narrowed[i];
}

/* Has statement i a row buffer of its own? */
static bool has_buffer(const Print *p, uint32_t i)
{
    return (p->n->stmt.at[i].keep && !own(p)->stored[i]) || own(p)->widened[i] ||
           own(p)->narrowed[i];
}

/* What is computed from here on at each point. */
static void enter_pass(Print *p, int pass)
{
    nest_marks(p->n, pass, p->in_pass);
    choose_inlined(p);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static void declare_lanes(Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    print_cleared(p, arena_printf(p->a, "%s_lane", print_called(p, i)), NEST_LANES, s);
}

/* ---- a pass over the row --------------------------------------------------------------------- */

/* A bool made among lanes is stored after the pass. */
static bool stored_later(const Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    return own(p)->reduces && own(p)->narrowed[s->in[0]] && p->n->stmt.at[s->in[0]].pass == p->pass;
}

/* What one point of this pass does; lane: where reductions accumulate. */
static void point(Print *p, const char *lane)
{
    const Nest *n = p->n;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (!print_in_pass(p, i) || s->kind == S_STORE)
            continue;
        if (s->kind == S_REDUCE) {
            print_accumulate(p, arena_printf(p->a, "%s_lane[%s]", print_called(p, i), lane), s,
                             print_operand(p, s->in[0], BINDS_CHOICE));
            continue;
        }
        if (own(p)->widened[i])
            continue;
        print_value(p, i);
        if (has_buffer(p, i) && s->pass == p->pass)
            text_line(p->t, "%s[%s] = %s;", print_row_name(p, i), row_index(p), name(p, i));
    }
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (print_in_pass(p, i) && n->stmt.at[i].kind == S_STORE && !stored_later(p, i))
            print_store(p, &n->stmt.at[i]);
}

static const char *row_first(const Print *p) { return p->n->in_parts ? "of->first" : "0"; }

static const char *row_end(Print *p)
{
    return p->n->in_parts ? "of->end" : print_lin(p, p->n->ext[p->n->nd - 1]);
}

static void lanes_innermost(Print *p)
{
    const int last = p->n->nd - 1;
    const Lin ext = p->n->ext[last];
    const char *end = row_end(p), *whole = end;
    bool tail = p->divisor[last] % NEST_LANES != 0;
    if (!tail)
        whole = end;
    else if (ext.b != 0 || p->n->sized)
        whole = arena_printf(p->a, "%s - %s %% 16", end, print_factor(p, ext));
    else
        whole = arena_printf(p->a, "%" PRId64, ext.c - ext.c % NEST_LANES);
    if (ext.b != 0 || ext.c >= NEST_LANES) {
        print_open_loop(p, "int64_t", "j", row_first(p), whole, NEST_LANES);
        text_line(p->t, "#pragma omp simd");
        text_open(p->t, "for (int k = 0; k < 16; k++) {");
        p->dim[last] = "j + k";
        point(p, "k");
        text_close(p->t);
        text_close(p->t);
    }
    p->dim[last] = "j";
    if (tail) {
        print_open_loop(p, "int64_t", "j", whole, end, 1);
        point(p, ext.b == 0 && ext.c < NEST_LANES ? "j" : "j % 16");
        text_close(p->t);
    }
}

/* May the lanes be counted along the innermost dimension?  When those outside it step by whole
 * sixteens. */
static bool lanes_along_last(const Print *p)
{
    const Nest *n = p->n;
    Lin size = lin(1);
    int64_t divisor = 1;
    for (int d = n->nd - 1; d > n->nd - n->nrun; d--) {
        divisor *= p->divisor[d] % NEST_LANES;
        if (divisor % NEST_LANES != 0 || !lin_mul(size, n->ext[d], &size))
            return false;
    }
    return true;
}

/* Loops over the row's dimensions but the innermost one, named j0, j1, ..; returns how many. */
static int open_outer(Print *p)
{
    const Nest *n = p->n;
    int opened = 0;
    for (int d = n->nouter; d < n->nd - 1; d++, opened++) {
        p->dim[d] = arena_printf(p->a, "j%d", opened);
        print_open_loop(p, "int64_t", p->dim[d], "0", print_lin(p, n->ext[d]), 1);
    }
    return opened;
}

/* ... and over that, j. */
static int open_row(Print *p)
{
    const int outer = open_outer(p);
    p->dim[p->n->nd - 1] = "j";
    text_line(p->t, "#pragma omp simd");
    print_open_loop(p, "int64_t", "j", row_first(p), row_end(p), 1);
    return outer + 1;
}

static void close_loops(Print *p, int opened)
{
    while (opened-- > 0)
        text_close(p->t);
}

static void widen_bools(Print *p)
{
    for (uint32_t i = 0; i < p->n->stmt.n; i++) {
        if (!own(p)->widened[i])
            continue;
        const int opened = open_row(p);
        text_line(p->t, "%s[%s] = %s;", print_row_name(p, i), row_index(p),
                  print_load(p, &p->n->stmt.at[i]));
        close_loops(p, opened);
    }
}

static void narrow_bools(Print *p)
{
    for (uint32_t i = 0; i < p->n->stmt.n; i++) {
        const Stmt *s = &p->n->stmt.at[i];
        if (!print_in_pass(p, i) || s->kind != S_STORE || !stored_later(p, i))
            continue;
        const int opened = open_row(p);
        text_line(p->t, "%s[%s] = (uint8_t)%s[%s];", p->arg[s->arg],
                  print_affine(p, s->base, s->stride), print_row_name(p, s->in[0]), row_index(p));
        close_loops(p, opened);
    }
}

/* Which bools of a row kernel with lanes go through row buffers of ints. */
static void mark_bools(Print *p)
{
    enum { LARGEST_ROW = 16384 };
    const Nest *n = p->n;
    const int64_t length = nest_row_length(n);
    bool lanes = false;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        lanes |= n->stmt.at[i].kind == S_REDUCE;
    if (n->nouter == n->nd || !lanes || length < NEST_LANES || length > LARGEST_ROW)
        return;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind == S_LOAD && s->type == DT_BOOL && !s->row && s->nindex == 0)
            own(p)->widened[i] = true;
        else if (s->kind == S_STORE && s->type == DT_BOOL && !s->acc && !n->stmt.at[s->in[0]].row &&
                 n->stmt.at[s->in[0]].kind == S_OP)
            own(p)->narrowed[s->in[0]] = true;
    }
}

static void pass(Print *p)
{
    const Nest *n = p->n;
    bool reduces = false;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (p->in_pass[i] && n->stmt.at[i].kind == S_REDUCE) {
            declare_lanes(p, i);
            reduces = true;
        }
    own(p)->reduces = reduces;
    const int last = n->nd - 1, opened = open_outer(p);
    if (last < n->nouter) {
        point(p, "0");
    } else if (reduces && lanes_along_last(p)) {
        lanes_innermost(p);
    } else {
        const char *lane = "0";
        p->dim[last] = "j";
        /* a run over several dimensions: lanes by its linear index */
        if (reduces) {
            Lin coef[NEST_DIMS] = {{0, 0}}, size = lin(1);
            for (int d = last; d >= n->nd - n->nrun; d--) {
                coef[d] = size;
                size = lin_product(size, n->ext[d]);
            }
            lane = arena_printf(p->a, "(%s) %% 16", print_affine(p, lin(0), coef));
        } else if (n->nouter > 0 || opened > 0 || n->kind == NEST_ROW) {
            text_line(p->t, "#pragma omp simd");
        }
        print_open_loop(p, "int64_t", "j", row_first(p), row_end(p), 1);
        point(p, lane);
        text_close(p->t);
    }
    close_loops(p, opened);
    narrow_bools(p);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (p->in_pass[i] && s->kind == S_REDUCE)
            text_line(
                p->t, "const %s %s = %s;", type_sum(s->type), print_called(p, i),
                type_rounded(p->a, s->type,
                             arena_printf(p->a, "pp_fold_%s%s(%s_lane)", print_fold_name(s->op),
                                          type_suffix(s->type), print_called(p, i))));
    }
}

/* Scalars of the row that are ready before the pass. */
static void row_scalars(Print *p, int pass)
{
    const Nest *n = p->n;
    print_row_values(p, pass);
    /* after all loads: the place may be that of an operand */
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].row && n->stmt.at[i].pass == pass && n->stmt.at[i].kind == S_STORE)
            print_store(p, &n->stmt.at[i]);
}

static int64_t weight(const Nest *n)
{
    int64_t w = (int64_t)n->arg.n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        w += n->stmt.at[i].kind == S_OP ? 2 : 1;
    return w * n->cost;
}

/* A row that is not there is cleared. */
static void leave_out(Print *p)
{
    const Nest *n = p->n;
    const Stmt *there = n->there;
    if (!there)
        return;
    text_open(p->t, "if (!%s[%s]) {", p->arg[there->arg],
              print_affine(p, there->base, there->stride));
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind != S_STORE || s->acc)
            continue;
        const int opened = s->row || n->nd == n->nouter ? 0 : open_row(p);
        const char *indent = print_if_asked(p, s);
        text_line(p->t, "%s%s[%s] = 0;", indent, p->arg[s->arg],
                  print_affine(p, s->base, s->stride));
        close_loops(p, opened);
    }
    text_line(p->t, "continue;");
    text_close(p->t);
}

/* ---- points whose operand or result lies along an outer dimension ---- */

/* Along which: a Transpose and what is fused with it.  A row of such points takes a whole line of
 * memory for each, so rows are run over by tiles of 16 x 16 (seen: 0.2 of the time).  -1: none. */
static int tile_along(const Print *p)
{
    const Nest *n = p->n;
    int last = n->nd - 1, along = -1;
    if (n->kind != NEST_POINT || n->passes != 1 || n->nouter < 1 || last != n->nouter ||
        n->in_parts || n->ext[last].b != 0 || n->ext[last].c < 2 * NEST_LANES ||
        n->there || (n->sized && p->divisor[last] % NEST_LANES != 0))
        return -1;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        /* a row's store may take the place of what its other tiles read */
        if (s->keep || (s->row && s->kind == S_STORE))
            return -1;
        if ((s->kind != S_LOAD && s->kind != S_STORE) || s->nindex > 0 || s->stride[last].b != 0 ||
            s->stride[last].c < NEST_LANES)
            continue;
        for (int d = 0; d < n->nouter && along < 0; d++)
            if (lin_is(s->stride[d], 1) && n->ext[d].b == 0 && n->ext[d].c >= NEST_LANES &&
                !(n->sized && p->divisor[d] % NEST_LANES != 0))
                along = d;
    }
    return along;
}

/* The loop over a tile of a dimension, from `from` on. */
static void open_tile(Print *p, int d, const char *from, bool simd)
{
    int64_t ext = p->n->ext[d].c;
    const char *end = arena_printf(p->a, "%s + %d", from, NEST_LANES);
    if (ext % NEST_LANES != 0) {
        text_line(p->t, "const int64_t %s_end = %s < %" PRId64 " ? %s : %" PRId64 ";", p->dim[d],
                  end, ext, end, ext);
        end = arena_printf(p->a, "%s_end", p->dim[d]);
    }
    if (simd)
        text_line(p->t, "#pragma omp simd");
    print_open_loop(p, "int64_t", p->dim[d], from, end, 1);
}

static void tiled_points(Print *p, int along)
{
    const Nest *n = p->n;
    int last = n->nd - 1;
    const char *from = n->nouter == 1 ? "i_from" : arena_printf(p->a, "i%d_from", along);
    if (weight(n) >= PARALLEL_FROM)
        text_line(p->t, "#pragma omp parallel for collapse(%d)", n->nd);
    for (int d = 0; d < n->nouter; d++) {
        p->dim[d] = n->nouter == 1 ? "i" : arena_printf(p->a, "i%d", d);
        print_open_loop(p, "int64_t", d == along ? from : p->dim[d], "0", print_lin(p, n->ext[d]),
                        d == along ? NEST_LANES : 1);
    }
    p->dim[last] = "j";
    print_open_loop(p, "int64_t", "j_from", "0", print_lin(p, n->ext[last]), NEST_LANES);
    open_tile(p, along, from, false);
    p->pass = 0;
    row_scalars(p, 0);
    enter_pass(p, 0);
    open_tile(p, last, "j_from", true);
    point(p, "0");
    close_loops(p, n->nd + 2);
}

static void rows_and_passes(Print *p)
{
    const Nest *n = p->n;
    bool parallel = weight(n) >= PARALLEL_FROM && !n->in_parts;
    int along = tile_along(p);
    if (along >= 0) {
        tiled_points(p, along);
        return;
    }
    if (n->nouter > 0 && parallel)
        text_line(p->t,
                  n->nouter > 1 ? "#pragma omp parallel for collapse(%d)"
                                : "#pragma omp parallel for",
                  n->nouter);
    for (int d = 0; d < n->nouter; d++) {
        static const char *const part[2][2] = {{"of->sample", "of->sample_end"},
                                               {"of->channel", "of->channel_end"}};
        p->dim[d] = n->nouter == 1 ? "i" : arena_printf(p->a, "i%d", d);
        print_open_loop(p, "int64_t", p->dim[d], n->in_parts ? part[d][0] : "0",
                        n->in_parts ? part[d][1] : print_lin(p, n->ext[d]), 1);
    }
    leave_out(p);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (has_buffer(p, i))
            text_line(p->t, "%s %s[%" PRId64 "];", type_local(n->stmt.at[i].type),
                      print_row_name(p, i), cg_most(n->sized, nest_row_length(n)));
    widen_bools(p);
    for (p->pass = 0; p->pass < n->passes; p->pass++) {
        row_scalars(p, p->pass);
        enter_pass(p, p->pass);
        if (n->kind == NEST_POINT && n->nd == 1)
            text_line(p->t, parallel ? "#pragma omp parallel for simd" : "#pragma omp simd");
        pass(p);
    }
    row_scalars(p, n->passes);
    close_loops(p, n->nouter);
}

/* What a row stores is computed once: later passes read it there, where no other store goes.  To
 * the bit: not what is rounded to 16 bits where it is stored. */
static const Nest *read_stored(Arena *a, const Nest *n, const Stmt **stored)
{
    Nest *own = nest_copy(a, n);
    uint32_t *stores = arena_array(a, uint32_t, n->arg.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE)
            stores[n->stmt.at[i].arg]++;
    for (uint32_t i = 0; n->kind == NEST_ROW && i < n->stmt.n; i++) {
        const Stmt *s = &own->stmt.at[i];
        Stmt *x = &own->stmt.at[s->in[0]];
        const NestArg *to = &n->arg.at[s->arg];
        if (s->kind == S_STORE && x->kind == S_OP && !x->row && (x->last > x->pass || x->keep) &&
            dtype_is_float(x->type) && !dtype_is_half(x->type) && s->pass == x->pass &&
            to->type == x->type && !to->optional && !s->acc && stores[s->arg] == 1) {
            stored[s->in[0]] = s;
            x->keep = true;
        }
    }
    return own;
}

const char *nest_print_c(Arena *a, const Nest *n, const char *const *arg_name, Text *t)
{
    const Stmt **stored = arena_array(a, const Stmt *, n->stmt.n + 1);
    n = read_stored(a, n, stored);
    CPrint c = {.p = {.a = a,
                      .n = n,
                      .arg = arg_name,
                      .t = t,
                      .name = name,
                      .names = formula_names(a, n, arg_name),
                      .rounding = print_roundings(a, n)}};
    for (int d = 0; d < n->nd; d++)
        c.p.divisor[d] = cg_divisor_lin(n->sized, n->ext[d]);
    c.p.in_pass = arena_array(a, uint8_t, n->stmt.n + 1);
    c.widened = arena_array(a, bool, n->stmt.n + 1);
    c.narrowed = arena_array(a, bool, n->stmt.n + 1);
    c.stored = stored;
    mark_bools(&c.p);
    choose_inlined(&c.p);
    if (n->kind == NEST_COLUMN)
        print_c_column(&c.p, weight(n) >= PARALLEL_FROM);
    else
        rows_and_passes(&c.p);
    return c.p.names.formula;
}

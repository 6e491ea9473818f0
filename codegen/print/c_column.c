/*
 * c_column.c - sums over rows, one for each column, as the body of a C function.  In: a nest by
 * columns.  Out: a loop over blocks of 64 columns, in it one over blocks of 64 rows, whose sums are
 * added in the order of the blocks; the columns of a block are a vector.
 */
#include "print.h"

static void column_loop(Print *p, const char *width, bool simd)
{
    if (simd)
        text_line(p->t, "#pragma omp simd");
    print_open_loop(p, "int64_t", "j", "0", width, 1);
}

/* The linear index r over what is summed, taken apart. */
static void decode(Print *p)
{
    const Nest *n = p->n;
    p->dim[n->nouter] = "r";
    if (n->nd - n->nouter == 1)
        return;
    const char *name[NEST_DIMS];
    for (int d = n->nouter; d < n->nd; d++) {
        p->dim[d] = arena_printf(p->a, "r%d", d - n->nouter);
        name[d] = print_depends(p, d, true, false) ? p->dim[d] : NULL;
    }
    out_places(p->t, n->sized, "int64_t", "r", n->nd - n->nouter, name + n->nouter,
               n->ext + n->nouter);
}

/* ending: of the names of the sums */
static void column_values(Print *p, const char *ending)
{
    const Nest *n = p->n;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind == S_REDUCE)
            print_accumulate(p, arena_printf(p->a, "%s%s[j]", print_called(p, i), ending), s,
                             print_operand(p, s->in[0], BINDS_CHOICE));
        else if (s->kind != S_STORE)
            print_value(p, i);
    }
}

static void clear_sums(Print *p, const char *ending, int64_t size)
{
    const Nest *n = p->n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_REDUCE)
            print_cleared(p, arena_printf(p->a, "%s%s", print_called(p, i), ending), (int)size,
                          &n->stmt.at[i]);
}

/* Into sum[j], one for each of `width` columns.  A block's sums are sum_part[j]; where there is no
 * other block they are all. */
static void sum_rows(Print *p, const char *width, int64_t size, Lin all)
{
    const Nest *n = p->n;
    const char *end = print_lin(p, all);
    bool one = all.b == 0 && all.c <= NEST_BLOCK && !n->sized;
    clear_sums(p, "", size);
    if (one) {
        print_open_loop(p, "int64_t", "r", "0", end, 1);
    } else {
        print_open_loop(p, "int64_t", "r_from", "0", end, NEST_BLOCK);
        clear_sums(p, "_part", size);
        text_open(p->t, "for (int64_t r = r_from; r < %s && r < r_from + 64; r++) {", end);
    }
    decode(p);
    column_loop(p, width, true);
    column_values(p, one ? "" : "_part");
    text_close(p->t);
    text_close(p->t);
    if (one)
        return;
    column_loop(p, width, false);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_REDUCE)
            print_accumulate(p, arena_printf(p->a, "%s[j]", print_called(p, i)), &n->stmt.at[i],
                             arena_printf(p->a, "%s_part[j]", print_called(p, i)));
    text_close(p->t);
    text_close(p->t);
}

void print_c_column(Print *p, bool parallel)
{
    const Nest *n = p->n;
    /* the vector runs along the innermost kept dimension */
    int v = n->nouter - 1;
    Lin all = nest_span(n, n->nouter, n->nd), width = n->ext[v];
    bool uneven = width.b != 0 || p->divisor[v] % NEST_BLOCK != 0,
         blocks = width.b != 0 || width.c > NEST_BLOCK || (n->sized && uneven);
    const char *m = !blocks ? print_lin(p, width) : uneven ? "m" : "64";
    int loops = v + blocks;
    if (loops > 0 && parallel)
        text_line(p->t,
                  loops > 1 ? "#pragma omp parallel for collapse(%d)" : "#pragma omp parallel for",
                  loops);
    for (int d = 0; d < v; d++) {
        p->dim[d] = arena_printf(p->a, "i%d", d);
        print_open_loop(p, "int64_t", p->dim[d], "0", print_lin(p, n->ext[d]), 1);
    }
    p->dim[v] = blocks ? "j0 + j" : "j";
    if (blocks)
        print_open_loop(p, "int64_t", "j0", "0", print_lin(p, width), NEST_BLOCK);
    if (blocks && uneven)
        text_line(p->t, "const int64_t m = %s - j0 < 64 ? %s - j0 : 64;", print_lin(p, width),
                  print_lin(p, width));
    sum_rows(p, m, blocks ? NEST_BLOCK : width.c, all);
    column_loop(p, m, false);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE)
            print_store(p, &n->stmt.at[i]);
    text_close(p->t);
    if (blocks)
        text_close(p->t);
    for (int d = 0; d < v; d++)
        text_close(p->t);
}

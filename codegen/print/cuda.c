/*
 * cuda.c - a nest as CUDA kernels.  In: a nest and the rows of a full microbatch.  Out: bodies, and
 * with how many blocks of how many threads each is launched.
 *
 * Points: a thread takes one or four elements and walks on by the size of the grid; transposes:
 * cuda_tile.c.  Rows and columns: cuda_row.c, cuda_column.c.  Indices have 32 bits unless a tensor
 * reaches 2^31 elements.  Every choice depends on shapes and strides alone: a program gives the
 * same bits every time, another split of the model a few ulp where a value then lies differently.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

static int64_t magnitude(const Cuda *c, Lin x)
{
    return llabs(cuda_most(c, lin(x.c))) + llabs(cuda_most(c, lin(x.b))) * c->full;
}

/* The largest number an index expression of the nest comes to, grids' overshoot included. */
static bool is_wide(const Cuda *c)
{
    enum { SPARE = 1 << 25 };
    const Nest *n = c->p.n;
    int64_t most = 2 * magnitude(c, nest_span(n, 0, n->nd));
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        int64_t reach = magnitude(c, s->base);
        for (int d = 0; d < n->nd; d++)
            reach += magnitude(c, s->stride[d]) * magnitude(c, n->ext[d]);
        for (uint32_t j = 0; j < s->nguard; j++)
            for (int d = 0; d < n->nd; d++)
                reach += magnitude(c, s->guard[j].coef[d]) * magnitude(c, n->ext[d]);
        most = reach > most ? reach : most;
    }
    return most >= INT32_MAX - SPARE;
}

/* Everything is one number. */
static void single(Cuda *c)
{
    const Nest *n = c->p.n;
    cuda_kernel(c, 1, "1", "1");
    for (int p = 0; p <= n->passes; p++) {
        print_row_values(&c->p, p);
        for (uint32_t i = 0; i < n->stmt.n; i++)
            if (n->stmt.at[i].pass == p && n->stmt.at[i].kind == S_STORE)
                print_store(&c->p, &n->stmt.at[i]);
    }
}

static void points(Cuda *c)
{
    const Nest *n = c->p.n;
    cuda_choose_vector(c, n->nd - 1);
    Lin all = nest_span(n, 0, n->nd - 1), work;
    if (!lin_mul(all, cuda_extent(c, n->nd - 1), &all) || !lin_div(all, lin(c->vec), &work))
        BUG("fours that do not divide");
    cuda_kernel(c, PP_BLOCK, cuda_grid(c, "pp_blocks", work, PP_BLOCK), "256");
    const char *linear = n->nd == 1 ? "j" : "e", *four = c->vec == 4 ? "4 * " : "";
    text_open(c->p.t, "for (%s %s = %spp_thread%s(); %s < %s; %s += %spp_threads%s()) {", c->index,
              linear, four, cuda_wide(c), linear, print_lin(&c->p, all), linear, four,
              cuda_wide(c));
    cuda_decode(c, linear, 0, n->nd, (CudaNames){"i", "j"}, true, true);
    print_row_values(&c->p, 0);
    cuda_enter_pass(c, 0);
    cuda_element(c, "j");
    text_close(c->p.t);
}

void nest_print_cuda(Arena *a, const Nest *n, int64_t full, const char *const *arg_name,
                      const bool *alias, CudaNest *out)
{
    Nest *own = nest_copy(a, n);
    Cuda c = {.p = {.a = a,
                    .n = own,
                    .arg = arg_name,
                    .name = cuda_name,
                    .names = formula_names(a, n, arg_name),
                    .rounding = print_roundings(a, n)},
              .own = own,
              .full = full,
              .vec = 1,
              .chunk = "c",
              .alias = alias,
              .out = out};
    c.index = is_wide(&c) ? "int64_t" : "int";
    c.p.in_pass = arena_array(a, uint8_t, n->stmt.n + 1);
    c.vector = arena_array(a, bool, n->stmt.n + 1);
    c.still = arena_array(a, bool, n->stmt.n + 1);
    c.tiled = arena_array(a, bool, n->stmt.n + 1);
    *out = (CudaNest){.formula = c.p.names.formula, .index = c.index};
    if (n->nd == 0)
        single(&c);
    else if (n->kind == NEST_POINT && cuda_tile_along(&c) >= 0)
        cuda_tile(&c, cuda_tile_along(&c));
    else if (n->kind == NEST_POINT)
        points(&c);
    else if (n->kind == NEST_ROW)
        cuda_row(&c);
    else
        cuda_column(&c);
}

int64_t nest_scratch_cuda(const Nest *n, int64_t full, const bool *alias)
{
    if (n->nd == 0 || n->kind == NEST_POINT ||
        (n->kind == NEST_ROW && lin_at(nest_span(n, 0, n->nouter), full) > PP_BUSY / 2))
        return 0;
    Arena *a = arena_new();
    const char **name = arena_array(a, const char *, n->arg.n + 1);
    CudaNest out;
    for (uint32_t i = 0; i < n->arg.n; i++)
        name[i] = "x";
    nest_print_cuda(a, n, full, name, alias, &out);
    arena_free(a);
    return out.bytes_scratch;
}

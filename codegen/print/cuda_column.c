/*
 * cuda_column.c - columns on the device: the outer dimensions are kept, the inner ones summed over.
 * In: such a nest.  Out: one kernel, or two where few columns are summed over many rows: partial
 * sums of stretches of rows, then their sums.
 *
 * A block takes neighbouring columns, its y-threads take every y-th row; they are added in their
 * order through shared memory, the stretches in theirs: a fixed order without atomics.  Where the
 * operands lie along the summed dimensions instead, each column is a row of cuda_row.c.
 */
#include <inttypes.h>

#include "cuda.h"

typedef struct {
    Cuda *c;
    Lin columns, rows;              /* kept points; summed points */
    int x, y;                       /* threads of a block: columns / vec, and rows at once */
    int64_t stretch, count;         /* rows of a block along the grid's y; how many stretches */
} Column;

/* A grid has BLOCKS blocks for each of 132 multiprocessors, as CUDA_ENOUGH says.  Told so, nvcc
   gives a thread the registers to have all loads of an unrolled loop under way before it uses the
   first; else it keeps room for more blocks, and loads one row at a time. */
/* few columns have parts: small blocks use more multiprocessors */
enum { BLOCKS = 2, PARTS_BLOCK = 64 };

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to; }

static uint32_t reductions(const Nest *n)
{
    uint32_t many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        many += n->stmt.at[i].kind == S_REDUCE;
    return many;
}

/* Do neighbours in memory belong to one column? */
static bool along_sums(const Nest *n)
{
    int kept = 0, summed = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        kept += s->kind == S_LOAD && n->nouter > 0 && lin_is(s->stride[n->nouter - 1], 1);
        summed += s->kind == S_LOAD && lin_is(s->stride[n->nd - 1], 1) &&
                  !(n->nouter > 0 && lin_is(s->stride[n->nouter - 1], 1));
    }
    return n->nouter == 0 || summed > kept;
}

static void choose(Column *o)
{
    enum { SHARED = 32768 };
    Cuda *c = o->c;
    int64_t columns = lin_at(o->columns, c->full), rows = lin_at(o->rows, c->full);
    if ((int64_t)reductions(c->p.n) * CUDA_BLOCK * c->vec * 8 > SHARED)
        cuda_choose_one(c);
    o->x = 1;
    while (o->x < CUDA_WARP && o->x * c->vec < columns)
        o->x *= 2;
    o->y = CUDA_BLOCK / o->x;
    /* no more than there are rows, but a thread for each column at the end */
    while (o->y > c->vec && o->y / 2 >= rows)
        o->y /= 2;
    int64_t tiles = up(columns, o->x * c->vec), wanted = CUDA_ENOUGH / tiles,
            possible = rows / (o->y * 8);
    o->count = wanted < possible ? wanted : possible;
    o->stretch = rows;
    if (o->count > 1 && reductions(c->p.n) <= NEST_DIMS) {
        o->stretch = up(up(rows, o->count), o->y) * o->y;
        o->count = up(rows, o->stretch);
    }
    if (o->count < 1 || reductions(c->p.n) > NEST_DIMS)
        o->count = 1;
}

/* The kept dimensions: the innermost is j, or the linear index itself where there is no other. */
static void decode_columns(Column *o, const char *linear, bool loads)
{
    Cuda *c = o->c;
    const Nest *n = c->p.n;
    const char *dim[NEST_DIMS];
    for (int d = 0; d < n->nouter; d++)
        dim[d] = n->nouter == 1       ? linear
                 : d == n->nouter - 1 ? "j"
                                      : arena_printf(c->p.a, "i%d", d);
    cuda_decode(c, linear, 0, n->nouter, dim, loads, !loads);
}

static void decode_rows(Column *o)
{
    Cuda *c = o->c;
    const Nest *n = c->p.n;
    const char *dim[NEST_DIMS];
    for (int d = n->nouter; d < n->nd; d++)
        dim[d - n->nouter] =
            n->nd - n->nouter == 1 ? "r" : arena_printf(c->p.a, "r%d", d - n->nouter);
    cuda_decode(c, "r", n->nouter, n->nd, dim, true, false);
}

static void each_reduction(Column *o, void (*fn)(Column *, uint32_t, const Stmt *))
{
    const Nest *n = o->c->p.n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_REDUCE)
            fn(o, i, &n->stmt.at[i]);
}

static void declare(Column *o, uint32_t i, const Stmt *s)
{
    Cuda *c = o->c;
    const char *zero = print_neutral(&c->p, s), *type = type_sum(s->type);
    text_line(c->p.t, "__shared__ %s p%u[%d][%d];", type, i, o->y, o->x * c->vec);
    if (c->vec == 4)
        text_line(c->p.t, "%s s%u[4] = {%s, %s, %s, %s};", type, i, zero, zero, zero, zero);
    else
        text_line(c->p.t, "%s s%u = %s;", type, i, zero);
}

static void publish(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    (void)s;
    if (o->c->vec == 4) {
        text_line(p->t, "for (int k = 0; k < 4; k++)");
        text_line(p->t, "    p%u[threadIdx.y][threadIdx.x * 4 + k] = s%u[k];", i, i);
    } else {
        text_line(p->t, "p%u[threadIdx.y][threadIdx.x] = s%u;", i, i);
    }
}

static void combine(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    text_line(p->t, "%s %s = p%u[0][t];", type_sum(s->type), p->scalar[i], i);
    if (o->y == 1)
        return;
    text_line(p->t, "for (int k = 1; k < %d; k++)", o->y);
    p->t->indent++;
    print_accumulate(p, p->scalar[i], s, arena_printf(p->a, "p%u[k][t]", i));
    p->t->indent--;
}

static void put_part(Column *o, uint32_t i, const Stmt *s)
{
    Cuda *c = o->c;
    const char *part = cuda_part(c, i, lin_at(o->columns, c->full) * o->count *
                                           (int64_t)dtype_size(dtype_sum(s->type)));
    text_line(c->p.t, "%s[static_cast<%s>(blockIdx.y) * %s + column] = %s;", part, c->index,
              print_factor(&c->p, o->columns), c->p.scalar[i]);
}

static void first_part(Column *o, uint32_t i, const Stmt *s)
{
    text_line(o->c->p.t, "%s %s = %s[column];", type_sum(s->type), o->c->p.scalar[i],
              cuda_part_read(o->c, i));
}

static void add_part(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    print_accumulate(p, p->scalar[i], s,
                     arena_printf(p->a, "%s[k * %s + column]", cuda_part_read(o->c, i),
                                  print_factor(p, o->columns)));
}

static void stores(Column *o)
{
    const Nest *n = o->c->p.n;
    decode_columns(o, "column", false);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE)
            print_store(&o->c->p, &n->stmt.at[i]);
}

/* Kernel 2: a thread adds the parts of its column in their order, of all sums at once. */
static void sum_parts(Column *o)
{
    Cuda *c = o->c;
    cuda_kernel(c, PARTS_BLOCK, cuda_grid(c, "pp_cover", o->columns, PARTS_BLOCK),
                arena_printf(c->p.a, "%d", PARTS_BLOCK));
    c->out->kernel[1].blocks = BLOCKS;
    text_line(c->p.t, "const %s column = pp_thread%s();", c->index, cuda_wide(c));
    text_line(c->p.t, "if (column >= %s)", print_lin(&c->p, o->columns));
    text_line(c->p.t, "    return;");
    each_reduction(o, first_part);
    /* loads under way; of all parts it would be long code that runs once */
    text_line(c->p.t, "#pragma unroll 16");
    print_open_loop(&c->p, "int", "k", "1", arena_printf(c->p.a, "%" PRId64, o->count), 1);
    each_reduction(o, add_part);
    print_close_block(&c->p);
    stores(o);
}

/* The rows of this thread for its columns, into s. */
static void thread_sums(Column *o)
{
    Cuda *c = o->c;
    const char *end = print_lin(&c->p, o->rows), *from = "static_cast<int>(threadIdx.y)";
    const char *first = c->p.n->nouter == 1 ? "j" : "e";
    text_line(c->p.t, "const %s %s = static_cast<%s>(blockIdx.x * %d + threadIdx.x%s);", c->index,
              first, c->index, o->x * c->vec, c->vec == 4 ? " * 4" : "");
    each_reduction(o, declare);
    text_line(c->p.t, "if (%s < %s) {", first, print_lin(&c->p, o->columns));
    c->p.t->indent++;
    decode_columns(o, first, true);
    if (o->count > 1) {
        text_line(c->p.t, "const %s begin = static_cast<%s>(blockIdx.y) * %" PRId64 ";", c->index,
                  c->index, o->stretch);
        text_line(c->p.t, "const %s end = begin + %" PRId64 " < %s ? begin + %" PRId64 " : %s;",
                  c->index, o->stretch, end, o->stretch, end);
        from = "begin + static_cast<int>(threadIdx.y)";
        end = "end";
    }
    text_line(c->p.t, "#pragma unroll 4");
    print_open_loop(&c->p, c->index, "r", from, end, o->y);
    decode_rows(o);
    cuda_element(c, "j");
    print_close_block(&c->p);
    print_close_block(&c->p);
}

void cuda_column(Cuda *c)
{
    const Nest *n = c->p.n;
    if (along_sums(n)) {
        c->own->kind = NEST_ROW;
        cuda_row(c);
        return;
    }
    Column o = {.c = c,
                .columns = cuda_product(n, 0, n->nouter),
                .rows = cuda_product(n, n->nouter, n->nd)};
    cuda_choose_vector(c, n->nouter - 1);
    choose(&o);
    int wide = o.x * c->vec;
    const char *grid = cuda_grid(c, "pp_cover", o.columns, wide);
    if (o.count > 1)
        grid = arena_printf(c->p.a, "dim3(%s, %" PRId64 ")", grid, o.count);
    cuda_kernel(c, o.x * o.y, grid, arena_printf(c->p.a, "dim3(%d, %d)", o.x, o.y));
    c->out->kernel[0].blocks = BLOCKS;
    thread_sums(&o);
    each_reduction(&o, publish);
    text_line(c->p.t, "__syncthreads();");
    text_line(c->p.t, "const int t = static_cast<int>(threadIdx.y * %d + threadIdx.x);", o.x);
    text_line(c->p.t, "const %s column = static_cast<%s>(blockIdx.x * %d) + t;", c->index, c->index,
              wide);
    text_line(c->p.t, "if (t < %d && column < %s) {", wide, print_lin(&c->p, o.columns));
    c->p.t->indent++;
    each_reduction(&o, combine);
    if (o.count > 1)
        each_reduction(&o, put_part);
    else
        stores(&o);
    print_close_block(&c->p);
    if (o.count > 1)
        sum_parts(&o);
}

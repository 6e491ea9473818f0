/*
 * cuda_tile.c - points whose operand lies along another dimension than the result: a Transpose and
 * what is fused with it.  In: such a nest.  Out: a kernel in which a block reads 32 x 32 elements
 * along the operand's dimension into shared memory and takes them from there along the result's, so
 * that both sides of the copy are whole lines of memory.  A column more than 32 keeps banks apart.
 */
#include <string.h>

#include "cuda.h"

enum { TILE = 32, SMALLEST = 16, MOST_TILES = 5 };

/* The dimension along which a load goes when it is another than the innermost; -1: none. */
static int lies_along(const Cuda *c, const Stmt *s)
{
    const Nest *n = c->p.n;
    if (s->kind != S_LOAD || s->nindex > 0 || s->nguard > 0 || lin_is(s->stride[n->nd - 1], 1) ||
        lin_is(s->stride[n->nd - 1], 0))
        return -1;
    for (int d = 0; d < n->nd - 1; d++)
        if (lin_is(s->stride[d], 1) && n->ext[d].b == 0 && cuda_most(c, n->ext[d]) >= SMALLEST)
            return d;
    return -1;
}

int cuda_tile_along(Cuda *c)
{
    const Nest *n = c->p.n;
    int along = -1, tiles = 0;
    if (n->nd < 2 || n->ext[n->nd - 1].b != 0 ||
        cuda_most(c, n->ext[n->nd - 1]) < SMALLEST)
        return -1;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        int d = lies_along(c, &n->stmt.at[i]);
        if (along < 0)
            along = d;
        c->tiled[i] = d >= 0 && d == along && tiles < MOST_TILES;
        tiles += c->tiled[i];
    }
    return along;
}

/* How many there are along a dimension; 0: lengths decide it. */
static int64_t tiles(const Cuda *c, Lin ext)
{
    return cuda_varies(c, ext) ? 0 : pp_up(ext.c, TILE);
}

static const char *tiles_text(const Cuda *c, Lin ext)
{
    return out_parts(c->p.a, c->p.n->sized, ext.c, TILE);
}

/* size times the tiles of both dimensions */
static const char *times_tiles(const Cuda *c, Lin size, Lin ext_x, Lin ext_y, bool factor)
{
    const int64_t n = tiles(c, ext_x) * tiles(c, ext_y);
    if (n)
        return (factor ? lin_factor : lin_text)(c->p.a, c->p.n->sized, lin_times(size, n));
    return arena_printf(c->p.a, "(%s * %s * %s)", print_factor(&c->p, size),
                        tiles_text(c, ext_x), tiles_text(c, ext_y));
}

/* Which tile is the block's: first elements along both dimensions, and the other dimensions, out of
 * blockIdx. */
static void open_tile(Cuda *c, int along, Lin others)
{
    const Nest *n = c->p.n;
    int last = n->nd - 1;
    const char *across = tiles_text(c, n->ext[last]), *down = tiles_text(c, n->ext[along]);
    const char *block = arena_printf(c->p.a, "static_cast<%s>(blockIdx.x)", c->index);
    if (tiles(c, n->ext[last]) != 1)
        text_line(c->p.t, "const %s j_from = %s %% %s * %d;", c->index, block, across, TILE);
    if (tiles(c, n->ext[along]) != 1)
        text_line(c->p.t, "const %s %s_from = %s / %s %% %s * %d;", c->index, c->p.dim[along],
                  block, across, down, TILE);
    if (lin_is(others, 1))
        return;
    Lin size = lin(1);
    for (int d = last - 1; d >= 0; d--) {
        if (d == along)
            continue;
        const char *by = times_tiles(c, size, n->ext[last], n->ext[along], true),
                   *q = strcmp(by, "1") ? arena_printf(c->p.a, "%s / %s", block, by) : block;
        bool first = true;
        for (int e = 0; e < d; e++)
            first &= e == along;
        if (first)
            text_line(c->p.t, "const %s %s = %s;", c->index, c->p.dim[d], q);
        else
            text_line(c->p.t, "const %s %s = %s %% %s;", c->index, c->p.dim[d], q,
                      print_factor(&c->p, n->ext[d]));
        size = lin_product(size, n->ext[d]);
    }
}

/* Where the tile begins: nowhere else than at 0 when it is the only one. */
static const char *begin(const Cuda *c, const char *dim, Lin ext)
{
    return tiles(c, ext) != 1 ? arena_printf(c->p.a, "%s_from + ", dim) : "";
}

/* for t: the place (x, t) of a tile, x this thread's, as indices of both dimensions; where there is
 * something */
static void open_walk(Cuda *c, const char *x, const char *t, Lin ext_x, Lin ext_t)
{
    const Nest *n = c->p.n;
    text_open(c->p.t, "for (int t = static_cast<int>(threadIdx.y); t < %d; t += %d) {", TILE,
              PP_BLOCK / TILE);
    text_line(c->p.t, "const %s %s = %sstatic_cast<int>(threadIdx.x), %s = %st;", c->index, x,
              begin(c, x, ext_x), t, begin(c, t, ext_t));
    const bool whole_x = tiles(c, ext_x) && ext_x.c % TILE == 0,
               whole_t = tiles(c, ext_t) && ext_t.c % TILE == 0;
    if (whole_x && whole_t)
        return;
    text_line(c->p.t, "if (%s >= %s || %s >= %s)", x, cg_size(c->p.a, n->sized, ext_x.c), t,
              cg_size(c->p.a, n->sized, ext_t.c));
    text_line(c->p.t, "    continue;");
}

void cuda_tile(Cuda *c, int along)
{
    const Nest *n = c->p.n;
    int last = n->nd - 1;
    Lin others = lin(1);
    for (int d = 0; d < last; d++) {
        c->p.dim[d] = n->nd == 2 ? "i" : arena_printf(c->p.a, "i%d", d);
        if (d != along && !lin_mul(others, n->ext[d], &others))
            BUG("a size that is not affine in the rows");
    }
    cuda_kernel(c, PP_BLOCK,
                arena_printf(c->p.a, "static_cast<unsigned>(%s)",
                             times_tiles(c, others, n->ext[last], n->ext[along], false)),
                "dim3(32, 8)");
    c->p.dim[last] = "j";
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (c->tiled[i])
            text_line(c->p.t, "__shared__ %s %s_tile[%d][%d];", type_sum(n->stmt.at[i].type),
                      print_called(&c->p, i), TILE, TILE + 1);
    open_tile(c, along, others);
    open_walk(c, c->p.dim[along], "j", n->ext[along], n->ext[last]);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (c->tiled[i])
            text_line(c->p.t, "%s_tile[t][threadIdx.x] = %s;", print_called(&c->p, i),
                      print_load(&c->p, &n->stmt.at[i]));
    text_close(c->p.t);
    text_line(c->p.t, "__syncthreads();");
    open_walk(c, "j", c->p.dim[along], n->ext[last], n->ext[along]);
    print_row_values(&c->p, 0);
    cuda_enter_pass(c, 0);
    c->along = last;
    cuda_choose_one(c);
    cuda_element(c, "j");
    text_close(c->p.t);
}

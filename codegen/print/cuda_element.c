/*
 * cuda_element.c - what the CUDA printers share: elements one or four at a time, sizes, the kernels
 * of a nest and what they use.
 *
 * A thread takes four elements that lie together (16 bytes a load) where every result does, else
 * one.  A row need be no multiple of four, if rows begin at one: of its last four it takes those
 * that are there.
 */
#include <inttypes.h>
#include <string.h>

#include "cuda.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

bool cuda_varies(const Cuda *c, Lin x)
{
    const bool varies = cg_varies(c->p.n->sized, x.c);
    return cg_varies(c->p.n->sized, x.b) || varies;
}

int64_t cuda_most(const Cuda *c, Lin x)
{
    return cg_most(c->p.n->sized, lin_at(x, c->full));
}

const char *cuda_number(const Cuda *c, Lin x)
{
    return cg_size(c->p.a, c->p.n->sized, lin_at(x, c->full));
}

const char *cuda_vec(const Cuda *c)
{
    return c->ask ? arena_printf(c->p.a, "%s ? 4 : 1", c->ask) : c->vec == 4 ? "4" : "1";
}

const char *cuda_sum(Cuda *c, const char *index, const char *more)
{
    return strcmp(index, "0") == 0 ? more : arena_printf(c->p.a, "%s + %s", index, more);
}

const char *cuda_grid(Cuda *c, const char *function, Lin n, int64_t per)
{
    return arena_printf(c->p.a, "%s(%s, %" PRId64 ")", function, print_lin(&c->p, n), per);
}

/* ---- four at a time -------------------------------------------------------------------------- */

/* Is it a multiple of four?  Where lengths decide that, yes, if what is added to `ask' is true. */
static bool fours(const Cuda *c, Lin x, const char **ask)
{
    Arena *a = c->p.a;
    if (cg_divisor_lin(c->p.n->sized, x) % 4 == 0)
        return true;
    if (!ask || !cuda_varies(c, x))
        return false;
    const StageGen *sg = c->p.n->sized;
    const char *both = x.b ? arena_printf(a, " && %s %% 4 == 0", cg_size(a, sg, x.b)) : "";
    *ask = arena_printf(a, "%s%s%s %% 4 == 0%s", *ask, **ask ? " && " : "", cg_size(a, sg, x.c),
                        both);
    return true;
}

static void mark_still(Cuda *c)
{
    const Nest *n = c->p.n;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool still = n->nd == 0 || lin_is(s->stride[c->along], 0);
        for (uint32_t j = 0; n->nd > 0 && j < s->nguard; j++)
            still &= lin_is(s->guard[j].coef[c->along], 0);
        for (uint32_t j = 0; s->kind != S_REDUCE && s->kind != S_STORE && j < stmt_reads(s); j++)
            still &= c->still[stmt_read(s, j)];
        c->still[i] = still;
    }
}

/* Rows of dimension d begin at multiples of four. */
static bool apart_by_fours(const Cuda *c, const Stmt *s, int d, const char **ask)
{
    const Lin ext = c->p.n->ext[d];
    const char *own = "";
    if (lin_is(ext, 1))
        return true;
    bool yes = fours(c, s->stride[d], &own);
    if (yes && !*own)
        return true;
    if (cuda_varies(c, ext)) {
        const char *one = arena_printf(c->p.a, "%s == 1", cuda_number(c, ext));
        own = *own ? arena_printf(c->p.a, "(%s || (%s))", one, own) : one;
        yes = true;
    }
    *ask = arena_printf(c->p.a, "%s%s%s", *ask, **ask ? " && " : "", own);
    return yes;
}

/* Four neighbours lie together, and the first at a multiple of four: buffers begin at multiples of
 * PP_ALIGN bytes, or move from there. */
static bool together(const Cuda *c, const Stmt *s, const char **ask)
{
    const Nest *n = c->p.n;
    bool yes = lin_is(s->stride[c->along], 1) && s->nguard == 0 && fours(c, s->base, ask) &&
               fours(c, n->arg.at[s->arg].offset, ask) && fours(c, n->arg.at[s->arg].moves, ask);
    for (int d = 0; d < n->nd && yes; d++)
        yes &= d == c->along || apart_by_fours(c, s, d, ask);
    for (uint32_t j = 0; j < s->nindex && yes; j++)
        yes &= fours(c, s->index[j].stride, ask) && c->still[s->index[j].in];
    return yes;
}

/* May it be any number of elements?  Of a long row, whose dimension is one. */
enum { LONG_ROW = 64 };
static bool may_end(const Cuda *c)
{
    const Nest *n = c->p.n;
    bool one = n->kind == NEST_POINT || (n->kind == NEST_ROW && n->nd == n->nouter + 1);
    return one && n->ext[c->along].b == 0;
}

Lin cuda_extent(const Cuda *c, int d)
{
    Lin x = c->p.n->ext[d];
    return c->tail && d == c->along ? lin((x.c + 3) / 4 * 4) : x;
}

/* Is the dimension one that is taken by fours? */
static bool goes_by_fours(Cuda *c, const char **ask)
{
    const Lin row = c->p.n->ext[c->along];
    const char *own = "";
    if (!fours(c, row, &own)) {
        c->tail = true;
        return may_end(c) && row.c >= LONG_ROW;
    }
    if (*own && may_end(c))
        own = arena_printf(c->p.a, "(%s || %s >= %d)", own, cuda_number(c, row), LONG_ROW);
    *ask = own;
    return true;
}

void cuda_choose_vector(Cuda *c, int along)
{
    const Nest *n = c->p.n;
    const char *ask = "", *some = "";
    c->along = along;
    c->tail = false;
    bool all = n->nd > 0 && goes_by_fours(c, &ask), any = false;
    c->vec = 1;
    mark_still(c);
    for (uint32_t i = 0; all && i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        const char *own = "";
        bool store = s->kind == S_STORE && !s->row && n->kind != NEST_COLUMN,
             may = (store || (s->kind == S_LOAD && !c->still[i])) && together(c, s, &own);
        c->vector[i] = may && !*own;
        any |= c->vector[i];
        if (may && *own)
            some = arena_printf(c->p.a, "%s%s(%s)", some, *some ? " || " : "", own);
        /* one that may be left out is done one by one */
        if (!store || c->vector[i] || n->arg.at[s->arg].optional)
            continue;
        all &= may;
        ask = arena_printf(c->p.a, "%s%s%s", ask, *ask ? " && " : "", own);
    }
    if (all && any && !*ask) {
        c->vec = 4;
        return;
    }
    cuda_choose_one(c);
    if (all && !any && *some)
        ask = arena_printf(c->p.a, "%s%s(%s)", ask, *ask ? " && " : "", some);
    c->ask = all && *ask && (any || *some) ? ask : NULL;
}

void cuda_choose_one(Cuda *c)
{
    c->vec = 1;
    c->ask = NULL;
    c->tail = false;
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++)
        c->vector[i] = false;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* a_row, a_row[c], a_row[k], a_row[c][k], a_row[j] */
static const char *row_buffer(Cuda *c, uint32_t i, bool element)
{
    const char *chunk = c->chunks > 1 ? arena_printf(c->p.a, "[%s]", c->chunk) : "";
    return arena_printf(c->p.a, "%s%s%s", print_row_name(&c->p, i), chunk,
                        c->vec == 4 && element && !c->still[i] ? "[k]" : "");
}

const char *cuda_name(Print *p, uint32_t i)
{
    Cuda *c = (Cuda *)p;
    const Stmt *s = &p->n->stmt.at[i];
    if (s->kind == S_CONST)
        return print_constant(p, s);
    if (s->kind == S_REDUCE || (s->row && p->n->kind != NEST_COLUMN))
        return print_called(p, i);
    const char *name = s->keep && (p->pass > s->pass || c->vector[i])
                           ? row_buffer(c, i, true)
                           : arena_printf(p->a, c->vector[i] ? "%s[k]" : "%s", print_called(p, i));
    return c->vector[i] ? type_read(p->a, s->type, name) : name;        /* four as they lie */
}

/* ---- the elements of a pass ------------------------------------------------------------------ */

static bool computed(const Cuda *c, uint32_t i)
{
    const Stmt *s = &c->p.n->stmt.at[i];
    return c->p.n->kind == NEST_COLUMN ? s->kind != S_STORE : print_in_pass(&c->p, i);
}

static void accumulate(Cuda *c, uint32_t i)
{
    const Stmt *s = &c->p.n->stmt.at[i];
    const char *into = arena_printf(c->p.a, "%s_lane%s", print_called(&c->p, i),
                                    c->p.n->kind == NEST_COLUMN && c->vec == 4 ? "[k]" : "");
    print_accumulate(&c->p, into, s, print_operand(&c->p, s->in[0], BINDS_CHOICE));
}

static void value(Cuda *c, uint32_t i)
{
    const Stmt *s = &c->p.n->stmt.at[i];
    if (s->kind == S_REDUCE) {
        accumulate(c, i);
        return;
    }
    if (c->tiled[i])
        text_line(c->p.t, "const %s %s = %s_tile[threadIdx.x][t];", type_local(s->type),
                  print_called(&c->p, i), print_called(&c->p, i));
    else
        print_value(&c->p, i);
    if (s->keep && s->pass == c->p.pass)
        text_line(c->p.t, "%s = %s;", row_buffer(c, i, true), print_called(&c->p, i));
}

static void one_element(Cuda *c)
{
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++)
        if (computed(c, i) && c->p.n->stmt.at[i].kind != S_STORE)
            value(c, i);
    /* after all loads: the place may be that of an operand */
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++)
        if (computed(c, i) && c->p.n->stmt.at[i].kind == S_STORE)
            print_store(&c->p, &c->p.n->stmt.at[i]);
}

static const char *place(Cuda *c, const Stmt *s)
{
    const char *at = print_address(&c->p, s);
    return strcmp(at, "0") == 0 ? c->p.arg[s->arg]
                                : arena_printf(c->p.a, "%s + %s", c->p.arg[s->arg], at);
}

/* Stored as it was loaded. */
static bool moved(const Cuda *c, const Stmt *store)
{
    return c->vector[store->in[0]] && !store->acc &&
           c->p.n->stmt.at[store->in[0]].type == store->type;
}

/* What a store stores, for the cast before it. */
static const char *stored(Cuda *c, const Stmt *store)
{
    return print_operand(&c->p, store->in[0],
                         *type_narrowing(store->type) ? BINDS_UNARY : BINDS_CHOICE);
}

/* ", 50257 - j": how many are left; "" where there are four. */
static const char *left(Cuda *c)
{
    return c->tail ? arena_printf(c->p.a, ", %s - %s", print_lin(&c->p, c->p.n->ext[c->along]),
                                  c->p.dim[c->along])
                   : "";
}

static void load_four(Cuda *c, uint32_t i)
{
    const Stmt *s = &c->p.n->stmt.at[i];
    if (s->keep) {
        text_line(c->p.t, "pp_load4(%s, %s%s);", row_buffer(c, i, false), place(c, s), left(c));
        return;
    }
    text_line(c->p.t, "%s %s[4];", cg_ctype(s->type), print_called(&c->p, i));
    text_line(c->p.t, "pp_load4(%s, %s%s);", print_called(&c->p, i), place(c, s), left(c));
}

/* Four results before they are stored. */
static const char *four_of(const Cuda *c, const Stmt *store)
{
    return arena_printf(c->p.a, "%s_four", c->p.arg[store->arg]);
}

/* A store of all four, which have to be made. */
static bool gathered(const Cuda *c, uint32_t i)
{
    const Stmt *s = &c->p.n->stmt.at[i];
    return s->kind == S_STORE && c->vector[i] && !moved(c, s);
}

/* What does not vary among the four, and their loads; then each of the four; then their stores. */
static void four_elements(Cuda *c, const char *index)
{
    const Nest *n = c->p.n;
    bool any = false;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (!computed(c, i) || s->kind == S_CONST)
            continue;
        if (c->vector[i] && s->kind == S_LOAD)
            load_four(c, i);
        else if (gathered(c, i))
            text_line(c->p.t, "%s %s[4]%s;", cg_ctype(s->type), four_of(c, s),
                      c->tail ? " = {}" : "");
        else if (c->still[i] && s->kind != S_REDUCE && s->kind != S_STORE)
            value(c, i);
        else
            any |= s->kind != S_STORE;
        if (s->kind == S_STORE && s->acc)
            text_line(c->p.t, "pp_load4(%s, %s%s);", four_of(c, s), place(c, s), left(c));
        any |= s->kind == S_STORE && (gathered(c, i) || !c->vector[i]);
    }
    if (any) {
        text_line(c->p.t, "#pragma unroll");
        text_open(c->p.t, "for (int k = 0; k < 4%s; k++) {",
                  c->tail ? arena_printf(c->p.a, " && %s + k < %s", index,
                                         print_lin(&c->p, n->ext[c->along]))
                          : "");
        c->p.dim[c->along] = cuda_sum(c, index, "k");
        for (uint32_t i = 0; i < n->stmt.n; i++) {
            const Stmt *s = &n->stmt.at[i];
            if (!computed(c, i) || s->kind == S_CONST || (c->vector[i] && s->kind == S_LOAD))
                continue;
            if (gathered(c, i))
                text_line(c->p.t, "%s[k] %s %s%s;", four_of(c, s), s->acc ? "+=" : "=",
                          type_narrowing(s->type),
                          type_written(c->p.a, s->type, stored(c, s), true));
            else if (s->kind == S_REDUCE || (!c->still[i] && s->kind != S_STORE))
                value(c, i);
            else if (s->kind == S_STORE && !c->vector[i])
                print_store(&c->p, s);
        }
        text_close(c->p.t);
        c->p.dim[c->along] = index;
    }
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (!computed(c, i) || s->kind != S_STORE || !c->vector[i])
            continue;
        const Stmt *from = &n->stmt.at[s->in[0]];
        const char *what = !moved(c, s) ? four_of(c, s)
                           : from->keep ? row_buffer(c, s->in[0], false)
                                        : print_called(&c->p, s->in[0]);
        const char *indent = print_if_asked(&c->p, s);
        text_line(c->p.t, "%spp_store4(%s, %s%s);", indent, place(c, s), what, left(c));
    }
}

void cuda_element(Cuda *c, const char *index)
{
    c->p.dim[c->along] = index;
    if (c->vec == 4)
        four_elements(c, index);
    else
        one_element(c);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* What stands in an array of four or in a tile, or is the same for all four and made before them,
 * has its variable. */
static void choose_inlined(Cuda *c)
{
    const Nest *n = c->p.n;
    print_inlined(&c->p, true);
    bool *inlined = c->p.inlined;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool each = !c->still[i] || s->kind == S_REDUCE || (s->kind == S_STORE && !s->row);
        inlined[i] &= !c->vector[i] && !c->tiled[i];
        for (uint32_t j = 0; c->vec == 4 && each && j < stmt_reads(s); j++)
            inlined[stmt_read(s, j)] &= !c->still[stmt_read(s, j)];
    }
}

void cuda_enter_pass(Cuda *c, int pass)
{
    nest_marks(c->p.n, pass, c->p.in_pass);
    choose_inlined(c);
}

void cuda_kernel(Cuda *c, int threads, const char *grid, const char *block)
{
    CudaKernel *k = &c->out->kernel[c->out->n++];
    *k = (CudaKernel){.body = {.a = c->p.a, .indent = 1},
                      .threads = threads,
                      .grid = grid,
                      .block = block,
                      .when = c->when,
                      .first = c->out->n == 1 || c->when != k[-1].when};
    c->p.t = &k->body;
    choose_inlined(c);
}

static const char *use_part(Cuda *c, uint32_t j, PartUse use)
{
    c->out->kernel[c->out->n - 1].part[j] = use;
    return c->out->part[j].name;
}

const char *cuda_part(Cuda *c, uint32_t stmt, int64_t bytes)
{
    CudaNest *o = c->out;
    INSIST(o->parts < NEST_DIMS);
    o->part[o->parts].stmt = stmt;
    o->part[o->parts].name = arena_printf(c->p.a, "%s_parts", print_called(&c->p, stmt));
    o->part[o->parts].type = dtype_sum(c->p.n->stmt.at[stmt].type);
    o->part[o->parts].offset = o->bytes_scratch;
    o->bytes_scratch += align_up(bytes);
    return use_part(c, o->parts++, PART_WRITTEN);
}

const char *cuda_part_read(Cuda *c, uint32_t stmt)
{
    for (uint32_t j = 0; j < c->out->parts; j++)
        if (c->out->part[j].stmt == stmt)
            return use_part(c, j, PART_READ);
    BUG("no kernel before leaves partial results of statement %u", stmt);
}

const char *cuda_wide(const Cuda *c) { return strcmp(c->index, "int") == 0 ? "" : "_wide"; }

/* The dimensions [from, to) out of a linear index, but those on which nothing depends. */
void cuda_decode(Cuda *c, const char *linear, int from, int to, CudaNames names, bool loads,
                 bool stores)
{
    const char *name[NEST_DIMS];
    Lin ext[NEST_DIMS];
    const bool one = to - from == (names.last ? 2 : 1) &&
                     !(names.last && strcmp(names.last, names.base) == 0);
    for (int d = from; d < to; d++) {
        const char *own = one ? names.base : arena_printf(c->p.a, "%s%d", names.base, d - from);
        c->p.dim[d] = names.last && d == to - 1 ? names.last : own;
        const bool said = strcmp(c->p.dim[d], linear) == 0;
        name[d] = !said && print_depends(&c->p, d, loads, stores) ? c->p.dim[d] : NULL;
        ext[d] = cuda_extent(c, d);
    }
    out_places(c->p.t, c->p.n->sized, c->index, linear, to - from, name + from, ext + from);
}

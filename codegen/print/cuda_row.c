/*
 * cuda_row.c - rows on the device.  In: a nest of rows.  Out: one kernel in which a warp, or a part
 * of one, takes a row of up to 1,024 elements, or a block takes a longer one.
 *
 * Where the rows' elements lie apart but the rows side by side (a softmax over channels), each
 * thread takes a row.
 *
 * Every pass gives an element to the same thread, so what a later pass needs again stays in that
 * thread's registers, and a result may take the place of an operand.  A thread adds its elements in
 * order, lanes are folded by shuffles, the warps of a block one after the other through shared
 * memory.
 */
#include <inttypes.h>
#include <string.h>

#include "cuda_row.h"

enum { UNROLLED = 64 };

static int64_t at_once(const Row *r)
{
    return (int64_t)(r->lanes ? r->lanes : r->threads) * r->c->vec;
}

/* ---- what stays in registers ----------------------------------------------------------------- */

int row_words(const Nest *n)
{
    int words = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].keep)
            words += (int)pp_up((int64_t)dtype_size(n->stmt.at[i].type), 4);
    return words;
}

static int64_t registers(const Cuda *c, const Row *r)
{
    return row_words(c->p.n) * pp_up(r->length.c, at_once(r)) * c->vec;
}

/* The passes that first compute a statement, when what is kept is kept. */
static void first_passes(Cuda *c, int *first)
{
    const Nest *n = c->p.n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        first[i] = n->passes;
    for (int p = n->passes - 1; p >= 0; p--) {
        nest_marks(n, p, c->p.in_pass);
        for (uint32_t i = 0; i < n->stmt.n; i++)
            if (c->p.in_pass[i])
                first[i] = p;
    }
}

/* What a pass would compute or load again, and what is new in it reads: those are worth a register,
 * outermost passes first. */
static void keep_more(Cuda *c, const Row *r)
{
    Nest *n = c->own;
    int *first = arena_array(c->p.a, int, n->stmt.n + 1);
    int64_t most = r->threads > 512 ? 24 : r->threads > 256 ? 40 : 64;
    for (int p = 1; p < n->passes; p++) {
        first_passes(c, first);
        nest_marks(n, p, c->p.in_pass);
        for (uint32_t i = 0; i < n->stmt.n; i++) {
            Stmt *s = &n->stmt.at[i];
            if (!print_in_pass(&c->p, i) || first[i] == p ||
                (s->kind != S_OP && s->kind != S_LOAD) || c->still[i] || s->keep)
                continue;
            bool read = false;                          /* by what is new */
            for (uint32_t k = i + 1; k < n->stmt.n; k++)
                for (uint32_t j = 0; c->p.in_pass[k] && first[k] == p && j < n->stmt.at[k].nin; j++)
                    read |= n->stmt.at[k].in[j] == i;
            if (!read)
                continue;
            s->keep = true;
            if (registers(c, r) > most)
                s->keep = false;
        }
    }
}

/* What is kept and read by no later pass, since what would have read it there is kept too, is not.
 */
static void keep_less(Cuda *c)
{
    Nest *n = c->own;
    bool *read = arena_array(c->p.a, bool, n->stmt.n + 1);
    for (int p = 1; p < n->passes; p++) {
        nest_marks(n, p, c->p.in_pass);
        for (uint32_t i = 0; i < n->stmt.n; i++) {
            const Stmt *s = &n->stmt.at[i];
            for (uint32_t j = 0; c->p.in_pass[i] && j < stmt_reads(s); j++)
                read[stmt_read(s, j)] |= n->stmt.at[stmt_read(s, j)].pass < p;
        }
    }
    for (uint32_t i = 0; i < n->stmt.n; i++)
        n->stmt.at[i].keep &= read[i];
}

static bool keeps_any(const Nest *n)
{
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].keep)
            return true;
    return false;
}

/* ---- who takes a row ------------------------------------------------------------------------- */

bool row_is_beside(const Nest *n)
{
    int rows = 0, elements = 0;
    for (uint32_t i = 0; n->nouter > 0 && n->nd > n->nouter && i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->row || (s->kind != S_LOAD && s->kind != S_STORE))
            continue;
        rows += lin_is(s->stride[n->nouter - 1], 1);
        elements += lin_is(s->stride[n->nd - 1], 1);
    }
    return rows > elements;
}

/* A result that takes the place of an operand waits for the last pass: those before read that once
 * more. */
void row_keep_nothing(Cuda *c)
{
    for (uint32_t i = 0; i < c->own->stmt.n; i++) {
        Stmt *s = &c->own->stmt.at[i];
        s->keep = false;
        if (s->kind == S_STORE && !s->row && c->alias[s->arg])
            s->pass = c->own->passes - 1;
    }
}

static void choose(Row *r, int threads)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    const int64_t length = lin_at(r->length, c->full), vectors = pp_up(length, c->vec);
    c->chunks = 0;
    r->lanes = threads > PP_WARP ? 0 : threads;
    r->counted = !threads;
    r->threads = threads > PP_WARP ? threads : threads ? PP_BLOCK : PP_MOST_BLOCK;
    r->lane = r->lanes ? "lane" : "thread";
    if (r->counted) {
        row_keep_nothing(c);
        return;
    }
    if (r->lanes == 1) {
        cuda_choose_one(c);
        c->chunk = n->nd - n->nouter == 1 ? "j" : "e";
    }
    for (int i = r->lanes / 2; i >= 1 && i >= vectors; i /= 2)
        r->lanes = i;
    if (r->length.b != 0)
        return;
    if (cuda_varies(c, r->length)) {
        row_keep_nothing(c);
        return;
    }
    keep_more(c, r);
    keep_less(c);
    int64_t chunks = pp_up(length, at_once(r));
    if (keeps_any(n) || chunks == 1)
        c->chunks = (int)chunks;
}

static const char *reduce_name(const Row *r, const Stmt *s)
{
    return arena_printf(r->c->p.a, "pp_%s_%s<%d>", r->lanes ? "lanes" : "block",
                        print_fold_name(s->op),
                        r->lanes     ? r->lanes
                        : r->counted ? 0
                                     : r->threads);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static void inside(Row *r, const char *linear)
{
    Cuda *c = r->c;
    cuda_decode(c, linear, c->p.n->nouter, c->p.n->nd, (CudaNames){"j", "j"}, true, true);
    cuda_element(c, "j");
}

/* Does the pass ask where it is, or is all it reads in registers? */
static bool addresses(const Cuda *c)
{
    const Nest *n = c->p.n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (print_in_pass(&c->p, i) && n->stmt.at[i].kind != S_OP &&
            n->stmt.at[i].kind != S_REDUCE && n->stmt.at[i].kind != S_CONST)
            return true;
    return false;
}

static void within(Row *r, const char *linear, const char *end)
{
    text_open(r->c->p.t, "if (%s < %s) {", linear, end);
    inside(r, linear);
    text_close(r->c->p.t);
}

/* A block of any size, each thread order.vec neighbours at once, where the launch says that too. */
static void counted_elements(Row *r, const char *linear, const char *begin, const char *end)
{
    Cuda *c = r->c;
    const char *vec = c->ask ? " * order.vec" : c->vec == 4 ? " * 4" : "",
               *i = c->ask ? "first" : linear, *from = arena_printf(c->p.a, "%s%s", r->lane, vec);
    text_open(c->p.t, "for (%s %s = %s; %s < %s; %s += static_cast<int>(blockDim.x)%s) {", c->index,
              i, begin ? cuda_sum(c, from, begin) : from, i, end, i, vec);
    if (c->ask)
        print_open_loop(&c->p, c->index, linear, "first",
                        arena_printf(c->p.a, "first + order.vec && %s < %s", linear, end), 1);
    inside(r, linear);
    if (c->ask)
        text_close(c->p.t);
    text_close(c->p.t);
}

/* The row's elements of this thread, at `from` steps of a whole row of threads: chunk c, or all of
 * a loop's. */
void row_elements(Row *r, const char *begin, const char *end)
{
    Cuda *c = r->c;
    int64_t width = at_once(r);
    const char *linear = c->p.n->nd - c->p.n->nouter == 1 ? "j" : "e";
    const char *lane = r->lanes == 1 ? "0"
                       : c->vec == 4 ? arena_printf(c->p.a, "%s * 4", r->lane)
                                     : r->lane;
    if (c->p.n->nouter == c->p.n->nd) {
        cuda_element(c, "0");
        return;
    }
    if (r->counted || (r->segments && c->ask)) {
        counted_elements(r, linear, begin, end);
        return;
    }
    if (c->chunks == 0) {
        const char *from = begin ? cuda_sum(c, lane, begin) : lane;
        print_open_loop(&c->p, c->index, linear, from, end, (int)width);
        inside(r, linear);
        text_close(c->p.t);
        return;
    }
    if (c->chunks == 1) {
        text_open(c->p.t, "{");
    } else {
        text_line(c->p.t, "#pragma unroll");
        print_open_loop(&c->p, "int", "c", "0", arena_printf(c->p.a, "%d", c->chunks), 1);
    }
    /* each in its place: the buffer's index is the element's */
    if (r->lanes == 1 && width == 1 && c->chunks > 1) {
        if (c->chunks <= UNROLLED)
            text_line(c->p.t, "#pragma unroll");
        print_open_loop(&c->p, "int", c->chunk, "0", end, 1);
        inside(r, linear);
        text_close(c->p.t);
        return;
    }
    bool whole = r->length.c % width == 0;
    const char *at = c->chunks == 1  ? lane
                     : r->lanes == 1 ? arena_printf(c->p.a, "c * %" PRId64, width)
                                     : arena_printf(c->p.a, "c * %" PRId64 " + %s", width, lane);
    if (!whole || addresses(c))
        text_line(c->p.t, "const %s %s = %s;", c->index, linear, at);
    if (!whole)
        within(r, linear, end);
    else if (addresses(c))
        inside(r, linear);
    else
        cuda_element(c, "j");
    text_close(c->p.t);
}

void row_open_sums(Cuda *c)
{
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++)
        if (c->p.in_pass[i] && c->p.n->stmt.at[i].kind == S_REDUCE)
            text_line(c->p.t, "%s %s_lane = %s;", type_sum(c->p.n->stmt.at[i].type),
                      print_called(&c->p, i), print_neutral(&c->p, &c->p.n->stmt.at[i]));
}

void row_close_sums(Row *r, bool part)
{
    Cuda *c = r->c;
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++) {
        const Stmt *s = &c->p.n->stmt.at[i];
        if (!c->p.in_pass[i] || s->kind != S_REDUCE)
            continue;
        const char *x = arena_printf(c->p.a, "%s_lane", print_called(&c->p, i));
        if (r->lanes != 1)
            x = arena_printf(c->p.a, "%s(%s)", reduce_name(r, s), x);
        text_line(c->p.t, "const %s %s = %s;", type_sum(s->type), print_called(&c->p, i),
                  part ? x : type_rounded(c->p.a, s->type, x));
    }
}

bool row_is_stored(const Nest *n, uint32_t i, int pass)
{
    const Stmt *s = &n->stmt.at[i];
    return s->row && s->pass == pass && s->kind == S_STORE;
}

/* The row's threads for one another. */
static void wait_for_row(const Row *r)
{
    if (r->lanes == 0)
        text_line(r->c->p.t, "__syncthreads();");
    else if (r->lanes > 1)
        text_line(r->c->p.t, "pp_lanes_wait<%d>();", r->lanes);
}

void row_store_scalars(Row *r, int pass)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    int stores = 0;
    bool wait = false;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (row_is_stored(n, i, pass)) {
            stores++;
            wait |= c->alias[n->stmt.at[i].arg];
        }
    if (stores == 0)
        return;
    if (wait)
        wait_for_row(r);
    if (r->lanes != 1) {
        text_open(c->p.t, "if (%s == 0%s)%s", r->lane, r->segments ? " && segment == 0" : "",
                  stores > 1 ? " {" : "");
    }
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (row_is_stored(n, i, pass))
            print_store(&c->p, &n->stmt.at[i]);
    if (r->lanes != 1) {
        c->p.t->indent--;
        if (stores > 1)
            text_line(c->p.t, "}");
    }
}

/* One element of the row, read by all its threads: where a result may come to stand on it, none
 * goes on before all have it. */
static void wait_for_picked(Row *r, int pass)
{
    const Cuda *c = r->c;
    bool wait = false;
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++) {
        const Stmt *s = &c->p.n->stmt.at[i];
        wait |= nest_is_picked(s) && s->pass == pass && c->alias[s->arg];
    }
    if (wait)
        wait_for_row(r);
}

static void declare_buffers(const Row *r)
{
    Cuda *c = r->c;
    for (uint32_t i = 0; i < c->p.n->stmt.n; i++) {
        const Stmt *s = &c->p.n->stmt.at[i];
        if (!s->keep)
            continue;
        const char *type = c->vector[i] ? cg_ctype(s->type) : type_local(s->type);
        const char *many = c->chunks > 1 ? arena_printf(c->p.a, "[%d]", c->chunks) : "";
        text_line(c->p.t, "%s %s%s%s%s;", type, print_row_name(&c->p, i), many,
                  c->vec == 4 && !c->still[i] ? "[4]" : "",
                  r->length.c % at_once(r) == 0
                      ? ""
                      : " = {}"); /* threads beyond the end have something too */
    }
}

static void passes(Row *r)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    declare_buffers(r);
    for (c->p.pass = 0; c->p.pass < n->passes; c->p.pass++) {
        print_row_values(&c->p, c->p.pass);
        wait_for_picked(r, c->p.pass);
        row_store_scalars(r, c->p.pass);
        cuda_enter_pass(c, c->p.pass);
        row_open_sums(c);
        row_elements(r, NULL, print_lin(&c->p, r->length));
        row_close_sums(r, false);
    }
    print_row_values(&c->p, n->passes);
    row_store_scalars(r, n->passes);
}

void row_open(Row *r)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    const char *row = n->nouter == 1 ? "i" : "row";
    if (r->lanes == 0) {
        text_line(c->p.t, "const int thread = static_cast<int>(threadIdx.x);");
        if (n->nouter > 0)
            text_line(c->p.t, "const %s %s = static_cast<%s>(blockIdx.x);", c->index, row,
                      c->index);
    } else if (r->lanes == 1) {
        text_line(c->p.t, "const %s %s = pp_thread%s();", c->index, row, cuda_wide(c));
    } else {
        text_line(c->p.t, "const int lane = static_cast<int>(threadIdx.x %% %d);", r->lanes);
        text_line(c->p.t, "const %s %s = pp_thread%s() / %d;", c->index, row, cuda_wide(c),
                  r->lanes);
    }
    if (r->lanes) {
        text_line(c->p.t, "if (%s >= %s)", row, print_lin(&c->p, r->rows));
        text_line(c->p.t, "    return;");
    }
    cuda_decode(c, row, 0, n->nouter, (CudaNames){"i", NULL}, true, true);
}

void row_by_one(Row *r, int threads)
{
    Cuda *c = r->c;
    choose(r, threads);
    const char *grid =
        r->lanes              ? cuda_grid(c, "pp_cover", r->rows, r->threads / r->lanes)
        : c->p.n->nouter != 0 ? arena_printf(c->p.a, "static_cast<unsigned>(%s)",
                                             print_lin(&c->p, r->rows))
                              : "1";
    cuda_kernel(c, r->threads, grid,
                r->counted ? "order.threads" : arena_printf(c->p.a, "%d", r->threads));
    row_open(r);
    passes(r);
}

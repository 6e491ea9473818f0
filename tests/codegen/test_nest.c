/*
 * test_nest.c - the interpreter of loop nests (oracle/nest.c) against the printed C, bit by
 * bit: every nest of small networks and random graphs, forward and backward, for all rows and for
 * one row less; the written order of additions against sums spelled out here; and sums over one-hot
 * rows against the element that codegen/plan/pick.c makes of them.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/print/print.h"
#include "nest_data.h"
#include "net_random.h"
#include "oracle/oracle.h"
#include "tap.h"

typedef void (*Kernel)(int64_t rows, void *const *at);
typedef struct {
    const Nest *nest;
    Func *f;
    uint32_t number;
} One;
typedef struct {
    Arena *a;
    const char *dir;
    void (*build)(Net *);
    uint64_t seed;
    uint32_t nests, wrong;
    char first[256];
} NestCase;

static uint32_t compiled;

static void write_kernel(Arena *a, const Nest *n, uint32_t number, FILE *out)
{
    Text t = {.a = a, .indent = 1};
    const char **name = arena_array(a, const char *, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++)
        name[i] = arena_printf(a, "t%u", i);
    nest_print_c(a, nest_present(a, n), name, &t);
    fprintf(out, "void kernel%u(int64_t rows, void *const *at)\n{\n    (void)rows;\n", number);
    for (uint32_t i = 0; i < n->arg.n; i++)
        fprintf(out, "    %s%s *t%u = at[%u];\n", n->arg.at[i].written ? "" : "const ",
                cg_ctype(n->arg.at[i].type), i, i);
    fprintf(out, "%s}\n\n", t.at ? t.at : "");
}

/* Both files are removed: what is loaded stays. */
static void *compile(Arena *a, const char *path, const char *so)
{
    const char *cmd =
        arena_printf(a,
                     "cc -std=gnu11 -O0 -march=native -w -ffp-contract=off -fno-math-errno "
                     "-fno-trapping-math -fwrapv "
                     "-fopenmp-simd -fPIC -shared -I. -Iruntime -Iruntime/api -o %s %s -lm",
                     so, path);
    INSIST(system(cmd) == 0);
    void *h = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    INSIST(h);
    unlink(so);
    unlink(path);
    return h;
}

static Kernel find_kernel(Arena *a, void *h, uint32_t number)
{
    void *sym = dlsym(h, arena_printf(a, "kernel%u", number));
    Kernel kernel;
    INSIST(sym);
    memcpy(&kernel, &sym, sizeof kernel);
    return kernel;
}

static bool same(Dtype t, const char *x, const char *y, int64_t n)
{
    size_t size = dtype_size(t);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0)
            continue;
        if (!dtype_is_float(t) || !isnan(element_double(t, x, i)) ||
            !isnan(element_double(t, y, i)))
            return false;
    }
    return true;
}

static void compare(NestCase *c, const One *o, Kernel kernel, int64_t rows)
{
    const Nest *n = o->nest;
    void **mine = arena_array(c->a, void *, n->arg.n + 1),
         **theirs = arena_array(c->a, void *, n->arg.n + 1);
    char **whole = arena_array(c->a, char *, 2 * n->arg.n + 1);
    int64_t *room = arena_array(c->a, int64_t, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        size_t size = dtype_size(n->arg.at[i].type);
        room[i] = reach(n, i, rows);
        for (int k = 0; k < 2; k++)
            whole[2 * i + (uint32_t)k] = arena_alloc(c->a, 2 * (size_t)room[i] * size);
        fill(n->arg.at[i].type, whole[2 * i], 2 * room[i]);
        memcpy(whole[2 * i + 1], whole[2 * i], 2 * (size_t)room[i] * size);
        mine[i] = whole[2 * i] + (size_t)room[i] * size;
        theirs[i] = whole[2 * i + 1] + (size_t)room[i] * size;
    }
    nest_interpret(c->a, n, rows, mine);
    kernel(rows, theirs);
    c->nests++;
    for (uint32_t i = 0; i < n->arg.n; i++)
        if (!same(n->arg.at[i].type, whole[2 * i], whole[2 * i + 1], 2 * room[i])) {
            if (c->wrong++ == 0)
                snprintf(c->first, sizeof c->first, "; kernel%u, %d rows, argument %u differs",
                         o->number, (int)rows, i);
            return;
        }
}

static void run(void *arg)
{
    NestCase *c = arg;
    Pipe *p = net_pipe(c->a, c->build, c->seed, 0);
    const char *path = arena_printf(c->a, "%s/nests.c", c->dir),
               *so = arena_printf(c->a, "%s/%u.so", c->dir, compiled++);
    VEC(One) all = {0};
    FILE *out = fopen(path, "w");
    INSIST(out);
    fprintf(out, "#include \"pp_kernel.h\"\n\n");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        StageGen *sg = cg_stage(p->graph->arena, p, s, false);
        for (int k = 0; k < F_COUNT; k++)
            for (uint32_t i = 0; sg->func[k] && i < sg->func[k]->group.n; i++) {
                One o = {sg->func[k]->group.at[i].nest, sg->func[k], all.n};
                if (!o.nest || nest_makes_nothing(o.nest) || sg->func[k]->group.at[i].member.n == 0)
                    continue;
                write_kernel(c->a, o.nest, o.number, out);
                vec_push(c->a, &all, o);
            }
    }
    fclose(out);
    void *h = compile(c->a, path, so);
    for (uint32_t i = 0; i < all.n; i++) {
        Kernel kernel = find_kernel(c->a, h, i);
        for (int64_t less = 0; less < 2 && p->graph->batch > less; less++)
            if (less == 0 || p->uneven.n == 0)
                compare(c, &all.at[i], kernel, p->graph->batch - less);
    }
}

static void check(const char *dir, const char *name, void (*build)(Net *), uint64_t seed)
{
    NestCase c = {.a = arena_new(), .dir = dir, .build = build, .seed = seed};
    int code = diag_run(run, &c);
    ok(code == 0 && c.wrong == 0 && c.nests > 0, "%s %d%s%s: %u nests, bit for bit%s", name,
       (int)seed, net_half ? " in " : "", net_half ? dtype_name(net_half) : "", c.nests, c.first);
    arena_free(c.a);
}

/* ---- the order of additions, spelled out ----------------------------------------------------- */

static Nest *sum_nest(Arena *a, NestKind kind, int64_t outer, int64_t inner)
{
    Nest *n = arena_new_of(a, Nest);
    *n = (Nest){
        .kind = kind, .nd = 2, .nouter = 1, .nrun = 1, .ext = {lin(outer), lin(inner)}, .arena = a};
    bool row = kind == NEST_ROW;
    Stmt load = {
        .kind = S_LOAD, .type = DT_F32, .stride = {lin(row ? inner : 1), lin(row ? 1 : outer)}};
    Stmt sum = {.kind = S_REDUCE, .op = OP_ReduceSum, .type = DT_F32, .nin = 1, .row = true};
    Stmt store = {.kind = S_STORE,
                  .type = DT_F32,
                  .nin = 1,
                  .in = {1},
                  .arg = 1,
                  .stride = {lin(1)},
                  .row = true};
    vec_push(a, &n->stmt, load);
    vec_push(a, &n->stmt, sum);
    vec_push(a, &n->stmt, store);
    nest_schedule(n);
    return n;
}

static void order_of_rows(void)
{
    enum { N = 45 };
    Arena *a = arena_new();
    float x[N], y[1], lane[16] = {0};
    for (int i = 0; i < N; i++) {
        x[i] = (float)(chance() * pow(10, 6 * chance()));
        lane[i % 16] += x[i];
    }
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    void *at[2] = {x, y};
    nest_interpret(a, sum_nest(a, NEST_ROW, 1, N), 1, at);
    ok(y[0] == lane[0], "a row: element j into lane j mod 16, then halves: %.9g and %.9g",
       (double)y[0], (double)lane[0]);
    arena_free(a);
}

static void order_of_columns(void)
{
    enum { R = 150, C = 3 };
    Arena *a = arena_new();
    float x[R * C], y[C], want[C];
    for (int i = 0; i < R * C; i++)
        x[i] = (float)(chance() * pow(10, 6 * chance()));
    for (int c = 0; c < C; c++) {
        float part[3] = {0};
        for (int r = 0; r < R; r++)
            part[r / 64] += x[r * C + c];
        want[c] = (part[0] + part[1]) + part[2];
    }
    void *at[2] = {x, y};
    nest_interpret(a, sum_nest(a, NEST_COLUMN, C, R), 1, at);
    ok(memcmp(y, want, sizeof y) == 0, "columns: 64 rows in order, then the blocks in order");
    arena_free(a);
}

/* ---- sums over one-hot rows ------------------------------------------------------------------ */

/* sum over j of (j == label ? X(j) : 0), and beside it what makes the nest one of several passes.
 */
typedef enum { X_LOAD, X_LOG_SOFTMAX, X_ROW, X_NUMBER, X_TABLE, X_TWICE } WhatX;
/* What is different so that nothing can be picked. */
typedef enum {
    AS_IT_IS,
    FROM_ONE,
    BY_TWO,
    GUARDED,
    NOT_ZERO,
    NO_ROW,
    LARGEST,
    PLANE,
    EMPTY,
    ANOTHER_SUM
} Otherwise;
typedef struct {
    const char *name;
    NestKind kind;
    Dtype type, number;
    Lin ext;
    WhatX x;
    bool swapped;  /* label == j */
    bool elements; /* X is stored as well */
    Otherwise other;
    NestKind kind_after;
    int passes, passes_after;
} Hot;

enum { HOT_ROWS = 40, HOT_WIDE = 64 };

static uint32_t put(Nest *n, Stmt s)
{
    vec_push(n->arena, &n->stmt, s);
    return n->stmt.n - 1;
}

static uint32_t put_op(Nest *n, StmtKind kind, Op op, Dtype t, uint32_t nin, uint32_t a, uint32_t b,
                       uint32_t c)
{
    return put(n, (Stmt){.kind = kind, .op = op, .type = t, .nin = nin, .in = {a, b, c}});
}

/* Of argument arg: x 0, label 1, sum 2, elements 3, table 4. */
static Stmt hot_access(const Hot *h, StmtKind kind, Dtype t, uint32_t arg, bool whole)
{
    bool along = h->kind == NEST_ROW;
    Stmt s = {.kind = kind, .type = t, .arg = arg, .stride = {lin(whole && along ? HOT_WIDE : 1)}};
    s.stride[1] = lin(whole ? along ? 1 : HOT_ROWS : 0);
    return s;
}

static uint32_t hot_x(Nest *n, const Hot *h, uint32_t index)
{
    Dtype t = h->type;
    uint32_t x = put(n, hot_access(h, S_LOAD, t, 0, h->x != X_ROW));
    if (h->other == GUARDED) {
        NestGuard *g = arena_array(n->arena, NestGuard, 1);
        *g = (NestGuard){.coef = {lin(0), lin(1)}, .lo = 2, .hi = h->ext};
        n->stmt.at[x].nguard = 1;
        n->stmt.at[x].guard = g;
    }
    if (h->x == X_LOG_SOFTMAX) {
        x = put_op(n, S_OP, OP_Sub, t, 2, x, put_op(n, S_REDUCE, OP_ReduceMax, t, 1, x, 0, 0), 0);
        uint32_t sum =
            put_op(n, S_REDUCE, OP_ReduceSum, t, 1, put_op(n, S_OP, OP_Exp, t, 1, x, 0, 0), 0, 0);
        return put_op(n, S_OP, OP_Sub, t, 2, x, put_op(n, S_OP, OP_Log, t, 1, sum, 0, 0), 0);
    }
    if (h->x == X_NUMBER)
        return put_op(n, S_OP, OP_Mul, t, 2, x, put_op(n, S_OP, OP_Cast, t, 1, index, 0, 0), 0);
    /* of a row of a table that the label chooses, 3 elements apart */
    if (h->x == X_TABLE) {
        Stmt s = hot_access(h, S_LOAD, t, 4, false);
        s.nindex = 1;
        s.index = arena_array(n->arena, NestIndex, 1);
        uint32_t two = put(n, (Stmt){.kind = S_CONST, .type = h->number, .k = 2, .ki = 2});
        s.index[0] = (NestIndex){.in = put_op(n, S_OP, OP_Mod, h->number, 2, index, two, 0),
                                 .extent = lin(2),
                                 .stride = lin(3 * HOT_WIDE)};
        s.stride[0] = lin(0);
        s.stride[1] = lin(3);
        return put_op(n, S_OP, OP_Add, t, 2, x, put(n, s), 0);
    }
    return x;
}

static uint32_t hot_sum(Nest *n, const Hot *h, uint32_t index, uint32_t label, uint32_t x)
{
    uint32_t is = put_op(n, S_OP, OP_Equal, DT_BOOL, 2, h->swapped ? label : index,
                         h->swapped ? index : label, 0);
    uint32_t zero = put(n, (Stmt){.kind = S_CONST,
                                  .type = h->type,
                                  .k = h->other == NOT_ZERO,
                                  .ki = h->other == NOT_ZERO});
    return put_op(n, S_REDUCE, h->other == LARGEST ? OP_ReduceMax : OP_ReduceSum, h->type, 1,
                  put_op(n, S_OP, OP_Where, h->type, 3, is, x, zero), 0, 0);
}

static Nest *hot_nest(Arena *a, const Hot *h)
{
    Nest *n = arena_new_of(a, Nest);
    *n = (Nest){.kind = h->kind,
                .nd = h->other == PLANE ? 3 : 2,
                .nouter = 1,
                .nrun = 1,
                .ext = {lin(HOT_ROWS), h->ext, lin(1)},
                .arena = a};
    if (h->other == EMPTY)
        n->ext[1] = (Lin){-4, 1};
    const Dtype type[] = {h->type, DT_I64, h->type, h->type, h->type};
    for (uint32_t i = 0; i < 5; i++) {
        NestArg arg = {.type = type[i], .written = i == 2 || i == 3, .buf = i};
        vec_push(a, &n->arg, arg);
    }
    uint32_t label = put(n, hot_access(h, S_LOAD, DT_I64, 1, false));
    if (h->other == NO_ROW)
        n->stmt.at[label].stride[1] = lin(1);
    if (h->number == DT_I32)
        label = put_op(n, S_OP, OP_Cast, DT_I32, 1, label, 0, 0);
    Stmt j = {.kind = S_INDEX,
              .type = h->number,
              .base = lin(h->other == FROM_ONE),
              .stride = {lin(0), lin(h->other == BY_TWO ? 2 : 1)}};
    uint32_t index = put(n, j), x = hot_x(n, h, index), sum = hot_sum(n, h, index, label, x);
    if (h->x == X_TWICE) {
        uint32_t one = put(n, (Stmt){.kind = S_CONST, .type = h->number, .k = 1, .ki = 1});
        uint32_t next = put_op(n, S_OP, OP_Add, h->number, 2, label, one, 0),
                 twice = put_op(n, S_OP, OP_Add, h->type, 2, x, x, 0);
        sum = put_op(n, S_OP, OP_Mul, h->type, 2, sum, hot_sum(n, h, index, next, twice), 0);
    }
    uint32_t another =
        h->other == ANOTHER_SUM ? put_op(n, S_REDUCE, OP_ReduceSum, h->type, 1, x, 0, 0) : NONE;
    Stmt store = hot_access(h, S_STORE, h->type, 2, false),
         all = hot_access(h, S_STORE, h->type, 3, true);
    store.nin = all.nin = 1;
    store.in[0] = sum;
    put(n, store);
    if (another != NONE) {
        store.in[0] = another;
        store.base = lin(HOT_ROWS);
        put(n, store);
    }
    if (h->elements) {
        all.in[0] = put_op(n, S_OP, OP_Add, h->type, 2, x, sum, 0);
        put(n, all);
    }
    nest_mark_rows(n);
    return n;
}

/* Labels inside, at the ends and outside; -0 and what is no number among the elements. */
static void hot_data(const Hot *h, int64_t rows, void **at)
{
    int64_t end = lin_at(h->ext, rows);
    const int64_t labels[] = {0,       1,       -1,        -100,      end - 1,
                              end,     end + 5, INT64_MIN, INT64_MAX, (int64_t)1 << 32,
                              end / 2, -end};
    for (int i = 0; i < 2 * HOT_ROWS; i++)
        ((int64_t *)at[1])[i] = labels[(i * 5 + i / 12) % 12];
    for (int i = 0; dtype_is_float(h->type) && i < HOT_ROWS * HOT_WIDE; i++) {
        double pick = chance(), x = pick < 0.3 || h->x == X_LOG_SOFTMAX ? -0.0
                                    : pick < 0.4                        ? (double)INFINITY
                                                                        : (double)NAN;
        if (pick < 0.5 && h->type == DT_F32)
            ((float *)at[0])[i] = (float)x;
        else if (pick < 0.5)
            ((double *)at[0])[i] = x;
    }
}

/* The nest as it was and with what it picks, interpreted and as C: the same bits. */
static const char *hot_run(Arena *a, const Hot *h, const Nest *const *nest, void *so, int64_t rows)
{
    enum { ROOM = 2 * 4 * HOT_ROWS * HOT_WIDE };
    void *first[5], *at[5], *mine[5];
    for (int i = 0; i < 5; i++)
        fill(i == 1 ? DT_I64 : h->type, first[i] = arena_alloc(a, ROOM * 8), ROOM);
    hot_data(h, rows, first);
    for (int way = 0; way < 4; way++) {
        const Nest *n = nest[way % 2];
        for (int i = 0; i < 5; i++)
            at[i] = way == 0 ? first[i] : memcpy(arena_alloc(a, ROOM * 8), first[i], ROOM * 8);
        memset(at[2], 0x5a, ROOM * 8);
        memset(at[3], 0x5a, ROOM * 8);
        for (uint32_t i = 0; i < n->arg.n; i++) /* without those that it does not use */
            mine[i] = at[n->arg.at[i].buf];
        if (way < 2)
            nest_interpret(a, n, rows, mine);
        else
            find_kernel(a, so, (uint32_t)(way % 2))(rows, mine);
        for (int i = 2; i < 4; i++)
            if (way > 0 && !same(h->type, first[i], at[i], ROOM))
                return arena_printf(a, "; %s, %s, differs in argument %d, %d rows",
                                    way % 2 ? "picked" : "summed", way < 2 ? "interpreted" : "in C",
                                    i, (int)rows);
    }
    return "";
}

static void check_hot(const char *dir, const Hot *h)
{
    Arena *a = arena_new();
    Nest *n = hot_nest(a, h), *m = hot_nest(a, h);
    bool picked = nest_pick(m),
         wanted = h->other == AS_IT_IS || (h->other == ANOTHER_SUM && h->kind == NEST_ROW);
    nest_schedule(n);
    nest_schedule(m);
    if (picked != wanted || n->passes != h->passes ||
        (picked && (m->kind != h->kind_after || m->passes != h->passes_after))) {
        ok(false, "one-hot sum, %s: picked %d, %d passes, kind %d, %d passes", h->name, picked,
           n->passes, (int)m->kind, m->passes);
    } else if (!wanted) {
        bool unchanged = m->stmt.n == n->stmt.n && m->kind == n->kind && m->nd == n->nd;
        for (uint32_t i = 0; unchanged && i < n->stmt.n; i++)
            unchanged =
                m->stmt.at[i].kind == n->stmt.at[i].kind && m->stmt.at[i].op == n->stmt.at[i].op;
        ok(unchanged, "one-hot sum, %s: stays as it was", h->name);
    } else {
        const char *path = arena_printf(a, "%s/hot.c", dir),
                   *so = arena_printf(a, "%s/%u.so", dir, compiled++), *wrong = "";
        FILE *out = fopen(path, "w");
        INSIST(out);
        fprintf(out, "#include \"pp_kernel.h\"\n\n");
        write_kernel(a, n, 0, out);
        write_kernel(a, m, 1, out);
        fclose(out);
        void *code = compile(a, path, so);
        for (int64_t rows = 3; rows < 5 && !*wrong; rows++)
            wrong = hot_run(a, h, (const Nest *const[]){n, m}, code, rows);
        ok(!*wrong, "one-hot sum, %s: the element it picks, to the bit%s", h->name, wrong);
    }
    arena_free(a);
}

// clang-format off
static const Hot hots[] = {
    {"floats", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, AS_IT_IS, NEST_POINT, 1, 1},
    {"doubles, label first", NEST_ROW, DT_F64, DT_I64, {48, 0}, X_LOAD, true, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"int32, affine rows", NEST_ROW, DT_I32, DT_I32, {3, 5}, X_LOAD, false, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"int64, rows of the batch", NEST_ROW, DT_I64, DT_I64, {0, 7}, X_NUMBER, false, true, AS_IT_IS,
     NEST_ROW, 2, 1},
    {"log-softmax", NEST_ROW, DT_F32, DT_I32, {50, 0}, X_LOG_SOFTMAX, false, false, AS_IT_IS,
     NEST_ROW, 3, 2},
    {"log-softmax, stored", NEST_ROW, DT_F64, DT_I32, {50, 0}, X_LOG_SOFTMAX, true, true, AS_IT_IS,
     NEST_ROW, 4, 3},
    {"what does not vary", NEST_ROW, DT_F32, DT_I64, {9, 0}, X_ROW, false, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"numbers of elements", NEST_ROW, DT_F32, DT_I32, {2, 1}, X_NUMBER, true, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"a table", NEST_ROW, DT_F64, DT_I32, {31, 0}, X_TABLE, false, true, AS_IT_IS, NEST_ROW, 2, 1},
    {"two in a row", NEST_ROW, DT_F32, DT_I32, {31, 0}, X_TWICE, false, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"beside another sum", NEST_ROW, DT_F32, DT_I32, {31, 0}, X_LOG_SOFTMAX, false, false,
     ANOTHER_SUM, NEST_ROW, 3, 3},
    {"columns", NEST_COLUMN, DT_F32, DT_I32, {33, 0}, X_LOAD, false, false, AS_IT_IS, NEST_POINT,
     1, 1},
    {"columns, affine", NEST_COLUMN, DT_F64, DT_I64, {3, 5}, X_NUMBER, true, false, AS_IT_IS,
     NEST_POINT, 1, 1},
    {"a column's other sum", NEST_COLUMN, DT_F32, DT_I32, {33, 0}, X_LOAD, false, false,
     ANOTHER_SUM, NEST_COLUMN, 1, 1},
    {"from 1", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, FROM_ONE, NEST_ROW, 1, 1},
    {"every other number", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, BY_TWO,
     NEST_ROW, 1, 1},
    {"a guarded load", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, GUARDED, NEST_ROW,
     1, 1},
    {"or one", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, NOT_ZERO, NEST_ROW, 1, 1},
    {"a label for each element", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, NO_ROW,
     NEST_ROW, 1, 1},
    {"the largest", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, LARGEST, NEST_ROW, 1,
     1},
    {"a row of two dimensions", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, PLANE,
     NEST_ROW, 1, 1},
    {"rows that may be empty", NEST_ROW, DT_F32, DT_I32, {23, 0}, X_LOAD, false, false, EMPTY,
     NEST_ROW, 1, 1},
};
// clang-format on

/* ---- what is written shortly ----------------------------------------------------------------- */

/* -v, v * k, k * v, v / k; k: 1, -1, and none */
enum { TURNS = 10, TURN_ENDS = 6 };
static uint32_t turned(Nest *n, Dtype t, int how, uint32_t v)
{
    const double k[] = {1, -1, (double)NAN};
    if (how == TURNS - 1)
        return put_op(n, S_OP, OP_Neg, t, 1, v, 0, 0);
    uint32_t by = put(n, (Stmt){.kind = S_CONST, .type = t, .k = k[how % 3]});
    return how < 3   ? put_op(n, S_OP, OP_Mul, t, 2, v, by, 0)
           : how < 6 ? put_op(n, S_OP, OP_Mul, t, 2, by, v, 0)
                     : put_op(n, S_OP, OP_Div, t, 2, v, by, 0);
}

/* y turned twice, alone or in a sum with x, a difference, a comparison of its rectification. */
static Nest *turned_nest(Arena *a, Dtype t, int first, int second, int end)
{
    Nest *n = arena_new_of(a, Nest);
    *n = (Nest){.kind = NEST_POINT, .nd = 2, .nouter = 1, .ext = {lin(6), lin(6)}, .arena = a};
    for (uint32_t i = 0; i < 3; i++)
        vec_push(a, &n->arg, ((NestArg){.type = t, .written = i == 2, .buf = i}));
    uint32_t x = put(n, (Stmt){.kind = S_LOAD, .type = t, .stride = {lin(1)}}),
             y = put(n, (Stmt){.kind = S_LOAD, .type = t, .arg = 1, .stride = {lin(0), lin(1)}});
    uint32_t v = turned(n, t, second, turned(n, t, first, y));
    if (end == 5) {
        uint32_t relu = put_op(n, S_OP, OP_Relu, t, 1, v, 0, 0),
                 zero = put(n, (Stmt){.kind = S_CONST, .type = t}),
                 is = put_op(n, S_OP, OP_Greater, DT_BOOL, 2, relu, zero, 0);
        v = put_op(n, S_OP, OP_Where, t, 3, is, x, zero);
    } else if (end > 0) {
        v = put_op(n, S_OP, end < 3 ? OP_Add : OP_Sub, t, 2, end % 2 ? x : v, end % 2 ? v : x, 0);
    }
    Stmt store = {.kind = S_STORE, .type = t, .nin = 1, .in = {v}, .arg = 2};
    store.stride[0] = lin(6);
    store.stride[1] = lin(1);
    put(n, store);
    return n;
}

/* The same bits as before, of zeros and of what is no number too; true: nothing is left to turn. */
static bool turns_alike(Arena *a, Dtype t, int first, int second, int end, int *wrong)
{
    const double value[] = {1.5, -2.25, 0, -0.0, (double)INFINITY, (double)NAN};
    char data[4][36 * 8];
    int turns = 0;
    for (int i = 0; i < 6; i++) {
        element_set_double(t, data[0], i, value[i]);
        element_set_double(t, data[1], i, value[i]);
    }
    for (int k = 0; k < 2; k++) {
        Nest *n = turned_nest(a, t, first, second, end);
        if (k == 1) {
            nest_simplify(n);
            nest_sweep_statements(n);
            for (uint32_t i = 0; i < n->stmt.n; i++)
                turns += stmt_is(&n->stmt.at[i], OP_Neg) || stmt_is(&n->stmt.at[i], OP_Mul) ||
                         stmt_is(&n->stmt.at[i], OP_Div);
        }
        nest_mark_rows(n);
        nest_schedule(n);
        nest_interpret(a, n, 1, (void *[]){data[0], data[1], data[2 + k]});
    }
    *wrong += !same(t, data[2], data[3], 36);
    return turns <= (end == 0 || end > 3);
}

static void check_turned(void)
{
    const Dtype type[] = {DT_F32, DT_F64, DT_F16, DT_BF16};
    int wrong = 0, longer = 0;
    for (int i = 0; i < 4 * TURNS * TURNS * TURN_ENDS; i++) {
        Arena *a = arena_new();
        int first = i / 4 % TURNS, second = i / 4 / TURNS % TURNS;
        bool number =
            (first == TURNS - 1 || first % 3 < 2) && (second == TURNS - 1 || second % 3 < 2);
        longer +=
            !turns_alike(a, type[i % 4], first, second, i / 4 / TURNS / TURNS, &wrong) && number;
        arena_free(a);
    }
    ok(wrong == 0 && longer == 0,
       "x * 1, x / -1, -(-x), x - (-y): to the bit; %d differ, "
       "%d are longer",
       wrong, longer);
}

/* Operands and results along an outer dimension: tiles, whole and with a rest. */
static void net_turned(Net *n)
{
    Graph *g = n->g;
    ValueId t = net_input(n, "turned", DT_F32, S(ROWS, 48, 70)), u = g_transpose(g, t, I(0, 2, 1));
    net_out(n, g_mul(g, g_unary(g, OP_Tanh, u), net_weight(n, S(70, 1))));
    net_out(n, g_mul(g, g_transpose(g, t, I(2, 0, 1)), net_weight(n, S(48))));
    ValueId x = net_input(n, "whole", DT_F32, S(ROWS, 32, 48)),
            y = g_unary(g, OP_Tanh, net_input(n, "plain", DT_F32, S(ROWS, 48, 32)));
    net_out(n, g_add(g, g_transpose(g, x, I(0, 2, 1)), y));
}

int main(void)
{
    char dir[] = "/tmp/test_nest.XXXXXX";
    /* of vjp_cases.h: losses of its own tests */
    (void)make_loss, (void)net_state, (void)net_blocks, (void)net_attentions;
    if (!mkdtemp(dir))
        return 1;
    order_of_rows();
    order_of_columns();
    for (size_t i = 0; i < sizeof hots / sizeof *hots; i++)
        check_hot(dir, &hots[i]);
    check_turned();
    check(dir, "transformer", net_transformer, 1);
    check(dir, "convolutions", net_convolution, 1);
    check(dir, "moves", net_moves, 1);
    check(dir, "sums", net_sums, 1);
    check(dir, "picks", net_picks, 1);
    check(dir, "empty", net_empty, 1);
    check(dir, "turned", net_turned, 1);
    for (uint64_t seed = 1; seed <= 6; seed++)
        check(dir, "shuffled", net_shuffled, seed);
    for (uint64_t seed = 1; seed <= 4; seed++)
        check(dir, "random", net_random, seed);
    net_half = DT_BF16;
    check(dir, "transformer", net_transformer, 1);
    net_half = DT_F16;
    check(dir, "moves", net_moves, 1);
    rmdir(dir);
    return tap_done();
}

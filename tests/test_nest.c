/*
 * test_nest.c - the interpreter of loop nests (codegen/interp.c) against the printed C, bit by bit: every nest of small networks
 * and random graphs, forward and backward, for all rows and for one row less; and the written order of additions against sums
 * spelled out here.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../codegen/cg.h"
#include "nest_data.h"
#include "nets.h"
#include "tap.h"

typedef void (*Kernel)(int64_t rows, void *const *at);
typedef struct { const Nest *nest; Func *f; uint32_t number; } One;
typedef struct {
    Arena *a;
    const char *dir;
    void (*build)(Net *);
    uint64_t seed;
    uint32_t nests, wrong;
    char first[256];
} NestCase;

static uint32_t compiled;

static void print_kernel(Arena *a, const Nest *n, uint32_t number, FILE *out)
{
    Text t = {.a = a, .indent = 1};
    const char **name = arena_array(a, const char *, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++)
        name[i] = arena_printf(a, "t%u", i);
    nest_print_c(a, n, name, &t);
    fprintf(out, "void kernel%u(int64_t rows, void *const *at)\n{\n    (void)rows;\n", number);
    for (uint32_t i = 0; i < n->arg.n; i++)
        fprintf(out, "    %s%s *t%u = at[%u];\n", n->arg.at[i].written ? "" : "const ", cg_ctype(n->arg.at[i].type), i, i);
    fprintf(out, "%s}\n\n", t.at ? t.at : "");
}

static bool same(Dtype t, const char *x, const char *y, int64_t n)
{
    size_t size = dtype_size(t);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0)
            continue;
        double u = t == DT_F32 ? (double)((const float *)(const void *)x)[i] : ((const double *)(const void *)x)[i];
        double v = t == DT_F32 ? (double)((const float *)(const void *)y)[i] : ((const double *)(const void *)y)[i];
        if (!dtype_is_float(t) || !isnan(u) || !isnan(v))
            return false;
    }
    return true;
}

static void compare(NestCase *c, const One *o, Kernel kernel, int64_t rows)
{
    const Nest *n = o->nest;
    void **mine = arena_array(c->a, void *, n->arg.n + 1), **theirs = arena_array(c->a, void *, n->arg.n + 1);
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
                snprintf(c->first, sizeof c->first, "; kernel%u, %d rows, argument %u differs", o->number, (int)rows, i);
            return;
        }
}

static void run(void *arg)
{
    NestCase *c = arg;
    Pipe *p = net_pipe(c->a, c->build, c->seed, 0);
    const char *path = arena_printf(c->a, "%s/nests.c", c->dir), *so = arena_printf(c->a, "%s/%u.so", c->dir, compiled++);
    VEC(One) all = {0};
    FILE *out = fopen(path, "w");
    INSIST(out);
    fprintf(out, "#include \"pp_kernel.h\"\n\n");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        StageGen *sg = cg_stage(p, s);
        for (int k = 0; k < F_COUNT; k++)
            for (uint32_t i = 0; sg->func[k] && i < sg->func[k]->group.n; i++) {
                One o = {sg->func[k]->group.at[i].nest, sg->func[k], all.n};
                if (!o.nest || nest_makes_nothing(o.nest) || sg->func[k]->group.at[i].member.n == 0)
                    continue;
                print_kernel(c->a, o.nest, o.number, out);
                vec_push(c->a, &all, o);
            }
    }
    fclose(out);
    const char *cmd = arena_printf(c->a, "cc -std=gnu11 -O1 -march=native -w -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv "
                                   "-fopenmp-simd -fPIC -shared -Iruntime -o %s %s -lm", so, path);
    INSIST(system(cmd) == 0);
    void *h = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    INSIST(h);
    for (uint32_t i = 0; i < all.n; i++) {
        void *sym = dlsym(h, arena_printf(c->a, "kernel%u", i));
        Kernel kernel;
        memcpy(&kernel, &sym, sizeof kernel);
        for (int64_t less = 0; less < 2 && p->graph->batch > less; less++)
            if (less == 0 || p->uneven.n == 0)
                compare(c, &all.at[i], kernel, p->graph->batch - less);
    }
    unlink(so);
    unlink(path);
}

static void check(const char *dir, const char *name, void (*build)(Net *), uint64_t seed)
{
    NestCase c = {.a = arena_new(), .dir = dir, .build = build, .seed = seed};
    int code = diag_run(run, &c);
    ok(code == 0 && c.wrong == 0 && c.nests > 0, "%s %d: %u nests, bit for bit%s", name, (int)seed, c.nests, c.first);
    arena_free(c.a);
}

/* ---- the order of additions, spelled out ----------------------------------------------------------------------- */

static Nest *sum_nest(Arena *a, NestKind kind, int64_t outer, int64_t inner)
{
    Nest *n = arena_new_of(a, Nest);
    *n = (Nest){.kind = kind, .nd = 2, .nouter = 1, .nrun = 1, .ext = {lin(outer), lin(inner)}, .arena = a};
    bool row = kind == NEST_ROW;
    Stmt load = {.kind = S_LOAD, .type = DT_F32, .stride = {lin(row ? inner : 1), lin(row ? 1 : outer)}};
    Stmt sum = {.kind = S_REDUCE, .op = OP_ReduceSum, .type = DT_F32, .nin = 1, .row = true};
    Stmt store = {.kind = S_STORE, .type = DT_F32, .nin = 1, .in = {1}, .arg = 1, .stride = {lin(1)}, .row = true};
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
    ok(y[0] == lane[0], "a row: element j into lane j mod 16, then halves: %.9g and %.9g", (double)y[0], (double)lane[0]);
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

int main(void)
{
    char dir[] = "/tmp/test_nest.XXXXXX";
    (void)make_loss, (void)net_state;                                    /* of vjp_cases.h: losses of its own tests */
    if (!mkdtemp(dir))
        return 1;
    order_of_rows();
    order_of_columns();
    check(dir, "transformer", net_transformer, 1);
    check(dir, "convolutions", net_convolution, 1);
    check(dir, "moves", net_moves, 1);
    check(dir, "sums", net_sums, 1);
    check(dir, "empty", net_empty, 1);
    for (uint64_t seed = 1; seed <= 6; seed++)
        check(dir, "shuffled", net_shuffled, seed);
    for (uint64_t seed = 1; seed <= 4; seed++)
        check(dir, "random", net_random, seed);
    rmdir(dir);
    return tap_done();
}

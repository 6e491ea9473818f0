/*
 * test_print_cuda.c - the CUDA printer against the interpreter of loop nests
 * (oracle/nest.c), which test_nest.c compares with the C printer bit by bit: every nest of
 * small networks and random graphs, and of one with the sizes from which kernels change their kind:
 * rows for parts of a warp, warps, blocks and several blocks, sums in two steps, columns in
 * stretches, transposes. The kernels run under the CUDA shim with all its checks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/print/print.h"
#include "nest_data.h"
#include "net_random.h"
#include "oracle/oracle.h"
#include "tap.h"

typedef struct {
    Arena *a;
    const char *dir;
    void (*build)(Net *);
    uint64_t seed;
    uint32_t nests;
    StrMap seen;                    /* texts of kernels */
    FILE *code, *data;
    char first[256];
} NestCase;

/* ---- sizes that matter ----------------------------------------------------------------------- */

/* Few rows, and so long that several blocks share one: of one sample, and of the batch's. */
static void long_rows(Net *n)
{
    Graph *g = n->g;
    enum { LONG = 33000 };
    ValueId x = g_mul(g, net_input(n, "long", DT_F32, S(ROWS, 1, LONG)), net_weight(n, S(LONG)));
    net_out(n, g_softmax(g, net_layer_norm(n, x, LONG), 2));
    net_out(n, net_batch_norm(n, net_input(n, "batch", DT_F32, S(ROWS, 2, 1, 9001)), 2));
}

static void net_sizes(Net *n)
{
    static const int64_t width[] = {2048, 1500, 1001, 768, 6000, 40, 9, 3};
    static const int64_t rows[] = {3, 17, 17, 17, 1, 17, 17, 30};
    Graph *g = n->g;
    /* softmax and a norm by rows of these widths */
    for (int i = 0; i < 8; i++) {
        ValueId x =
            net_input(n, arena_printf(g->arena, "x%d", i), DT_F32, S(ROWS, rows[i], width[i]));
        x = g_mul(g, x, net_weight(n, S(width[i])));
        net_out(n, g_softmax(g, net_layer_norm(n, x, width[i]), 2));
    }
    ValueId z = net_input(n, "channels", DT_F32, S(ROWS, 24, 300));
    net_out(n, g_softmax(g, net_op(n, OP_Tanh, z, (Attr){0}), 1));
    z = net_input(n, "many", DT_F32, S(ROWS, 70, 300));
    net_out(n, g_softmax(g, g_mul(g, z, net_weight(n, S(300))), 1));
    ValueId x = net_input(n, "columns", DT_F32, S(ROWS, 600, 36)),
            y = net_input(n, "planes", DT_F32, S(ROWS, 3, 9000));
    net_out(n, g_mul(g, g_add(g, x, net_weight(n, S(36))), net_weight(n, S(36))));
    net_out(n, g_mul(g, y, net_weight(n, S(3, 1))));
    ValueId t = net_input(n, "turned", DT_F32, S(ROWS, 70, 100)), u = g_transpose(g, t, I(0, 2, 1));
    net_out(n, g_mul(g, g_unary(g, OP_Tanh, u), net_weight(n, S(100, 70))));
    net_out(n, g_mul(g, g_transpose(g, t, I(2, 0, 1)), net_weight(n, S(70))));
    long_rows(n);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void put(FILE *f, int64_t x) { fwrite(&x, sizeof x, 1, f); }

typedef struct {
    char *before, *after;
    double *slack;
    int64_t many, bytes;
} Data;

static double number(Dtype t, const char *p, int64_t i)
{
    return t == DT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

/* Floats change by half a unit in their last place at most. */
static void disturb(Dtype t, char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double by = 2 * chance() - 1;
        if (t == DT_F32)
            ((float *)p)[i] = (float)((double)((float *)p)[i] * (1 + by * 0x1p-23));
        else if (t == DT_F64)
            ((double *)p)[i] *= 1 + by * 0x1p-52;
    }
}

/* How far each result moves when all operands are rounded otherwise: what no order of additions can
   be held to.  A sum of numbers that cancel is such a result, or what is divided by it. */
static void find_slack(NestCase *c, const Nest *n, int64_t rows, const Data *data)
{
    void **at = arena_array(c->a, void *, n->arg.n + 1);
    char **room = arena_array(c->a, char *, n->arg.n + 1);
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < n->arg.n; i++) {
            if (turn == 0)
                room[i] = arena_alloc(c->a, (size_t)data[i].bytes);
            memcpy(room[i], data[i].before, (size_t)data[i].bytes);
            disturb(n->arg.at[i].type, room[i], data[i].many);
            at[i] = room[i] + data[i].bytes / 2;
        }
        nest_interpret(c->a, n, rows, at);
        for (uint32_t i = 0; i < n->arg.n; i++)
            for (int64_t k = 0;
                 n->arg.at[i].written && dtype_is_float(n->arg.at[i].type) && k < data[i].many;
                 k++) {
                double far = fabs(number(n->arg.at[i].type, room[i], k) -
                                  number(n->arg.at[i].type, data[i].after, k));
                if (isfinite(far) && far > data[i].slack[k])
                    data[i].slack[k] = far;
            }
    }
}

/* What a nest starts from, what the interpreter makes of it, and how well that is determined. */
static void write_data(NestCase *c, const Nest *n, int64_t rows, int64_t scratch)
{
    void **at = arena_array(c->a, void *, n->arg.n + 1);
    Data *data = arena_array(c->a, Data, n->arg.n + 1);
    int64_t terms = 1;
    for (int d = n->nouter; d < n->nd; d++)
        terms *= lin_at(n->ext[d], rows);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        Data *x = &data[i];
        x->many = 2 * reach(n, i, rows);
        x->bytes = x->many * (int64_t)dtype_size(n->arg.at[i].type);
        x->before = arena_alloc(c->a, (size_t)x->bytes);
        x->after = arena_alloc(c->a, (size_t)x->bytes);
        x->slack = arena_array(c->a, double, x->many);
        fill(n->arg.at[i].type, x->before, x->many);
        memcpy(x->after, x->before, (size_t)x->bytes);
        at[i] = x->after + x->bytes / 2;
    }
    nest_interpret(c->a, n, rows, at);
    find_slack(c, n, rows, data);
    put(c->data, c->nests);
    put(c->data, rows);
    put(c->data, terms);
    put(c->data, scratch);
    put(c->data, n->arg.n);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        put(c->data, (int64_t)n->arg.at[i].type);
        put(c->data, data[i].bytes);
        put(c->data, data[i].bytes / 2);
        fwrite(data[i].before, 1, (size_t)data[i].bytes, c->data);
        fwrite(data[i].after, 1, (size_t)data[i].bytes, c->data);
        fwrite(data[i].slack, sizeof(double), (size_t)data[i].many, c->data);
    }
}

/* ---- code ------------------------------------------------------------------------------------ */

static const char *pointers(NestCase *c, const Nest *n, bool declare)
{
    const char *s = "";
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const char *type = arena_printf(c->a, "%s%s *", n->arg.at[i].written ? "" : "const ",
                                        cg_ctype(n->arg.at[i].type));
        s = declare ? arena_printf(c->a, "%s, [[maybe_unused]] %st%u", s, type, i)
                    : arena_printf(c->a, "%s, (%s)at[%u]", s, type, i);
    }
    return s;
}

/* Has a nest of this net the same kernels already? */
static bool seen(NestCase *c, const Nest *n, const CudaNest *k)
{
    const char *text = pointers(c, n, true);
    for (int i = 0; i < k->n; i++)
        text = arena_printf(c->a, "%s\n%s %s %s", text, k->kernel[i].grid, k->kernel[i].block,
                            k->kernel[i].body.at ? k->kernel[i].body.at : "");
    uint32_t *at = strmap_at(&c->seen, text);
    bool before = *at != NONE;
    *at = 0;
    return before;
}

/* All kernels of a nest take all its arguments.  Bytes of scratch; -1: nothing is written, for they
 * are there. */
static int64_t write_code(NestCase *c, const Nest *n)
{
    const char **name = arena_array(c->a, const char *, n->arg.n + 1), *parts = "", *given = "";
    bool *alias = arena_array(c->a, bool, n->arg.n + 1);
    CudaNest k;
    for (uint32_t i = 0; i < n->arg.n; i++)
        name[i] = arena_printf(c->a, "t%u", i);
    nest_print_cuda(c->a, n, ROWS, name, alias, &k);
    if (seen(c, n, &k))
        return -1;
    for (uint32_t i = 0; i < k.parts; i++) {
        const char *type = cg_ctype(k.part[i].type);
        parts = arena_printf(c->a, "%s, [[maybe_unused]] %s *%s", parts, type, k.part[i].name);
        given = arena_printf(c->a, "%s, (%s *)(scratch + %lld)", given, type,
                             (long long)k.part[i].offset);
    }
    for (int i = 0; i < k.n; i++)
        fprintf(c->code,
                "static __global__ void __launch_bounds__(%d) k%u_%d([[maybe_unused]] %s "
                "rows%s%s)\n{\n%s}\n\n",
                k.kernel[i].threads, c->nests, i, k.index, pointers(c, n, true), parts,
                k.kernel[i].body.at ? k.kernel[i].body.at : "");
    fprintf(c->code,
            "static void run%u(int64_t rows, char *const *at, [[maybe_unused]] char *scratch, "
            "cudaStream_t stream)\n{\n",
            c->nests);
    for (int i = 0; i < k.n; i++)
        fprintf(c->code, "    PP_LAUNCH(k%u_%d, %s, %s, 0, stream, (int)rows%s%s);\n", c->nests, i,
                k.kernel[i].grid, k.kernel[i].block, pointers(c, n, false), given);
    fprintf(c->code, "}\n\n");
    return k.bytes_scratch;
}

static void write_all(void *arg)
{
    NestCase *c = arg;
    Pipe *p = net_pipe(c->a, c->build, c->seed, 0);
    fprintf(c->code, "#include \"nest_device.h\"\n\n");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        StageGen *sg = cg_stage(p->graph->arena, p, s, true);
        for (int f = 0; f < F_COUNT; f++)
            for (uint32_t i = 0; sg->func[f] && i < sg->func[f]->group.n; i++) {
                const Nest *n = sg->func[f]->group.at[i].nest;
                if (!n || nest_makes_nothing(n) || sg->func[f]->group.at[i].member.n == 0)
                    continue;
                int64_t scratch = write_code(c, n);
                if (scratch < 0)
                    continue;
                /* all rows, or one less: in turns, because what a nest has to do is interpreted */
                int64_t less = p->graph->batch > 1 && p->uneven.n == 0 ? c->nests % 2 : 0;
                write_data(c, n, p->graph->batch - less, scratch);
                c->nests++;
            }
    }
    fprintf(c->code, "static NestRun *const runs[] = {");
    for (uint32_t i = 0; i < c->nests; i++)
        fprintf(c->code, "run%u, ", i);
    fprintf(c->code,
            "};\n\nint main(int, char **argv)\n{\n    return nest_main(argv[1], runs);\n}\n");
}

static const char *build_folder(void) { return getenv("BUILD") ? getenv("BUILD") : "build"; }

/* Compiles and runs; the first line that comes out says what is wrong. */
static bool run(NestCase *c)
{
    const char *flags = "-x c++ -std=c++17 -O0 -g1 -ffp-contract=off -Wall -Wextra -Werror "
                        "-Wno-unknown-pragmas -fsanitize=thread "
                        "-fsanitize=alignment -fsanitize=bounds -Itests/cuda_shim -I. -Iruntime "
                        "-Iruntime/api -Itests/share";
    const char *cmd = arena_printf(
        c->a,
        "g++ %s -c -o %s/nests.o %s/nests.cu && g++ -o %s/nests %s/nests.o %s/cuda_shim/libshim.a "
        "%s/libppruntime.a -lpthread -lm && "
        "timeout 300 %s/nests %s/nests.data 2>&1",
        flags, c->dir, c->dir, c->dir, c->dir, build_folder(), build_folder(), c->dir, c->dir);
    FILE *out = popen(cmd, "r");
    INSIST(out);
    for (char line[256]; fgets(line, sizeof line, out);)
        if (!c->first[0])
            snprintf(c->first, sizeof c->first, "; %.*s", (int)strcspn(line, "\n"), line);
    return pclose(out) == 0;
}

static void check(const char *dir, const char *name, void (*build)(Net *), uint64_t seed)
{
    Arena *a = arena_new();
    NestCase c = {.a = a, .dir = dir, .build = build, .seed = seed, .seen.arena = a};
    c.code = fopen(arena_printf(a, "%s/nests.cu", dir), "w");
    c.data = fopen(arena_printf(a, "%s/nests.data", dir), "wb");
    INSIST(c.code && c.data);
    int code = diag_run(write_all, &c);
    fclose(c.code);
    fclose(c.data);
    bool right = code == 0 && c.nests > 0 && run(&c);
    ok(right, "%s %d: %u nests as the interpreter%s", name, (int)seed, c.nests, c.first);
    arena_free(a);
}

/* The kernels of all kinds and sizes, as nvcc reads them; none is run. */
static void check_nvcc(const char *dir)
{
    const char *nvcc =
        system("command -v nvcc >/dev/null") == 0 ? "nvcc" : "/usr/local/cuda/bin/nvcc";
    char command[512];
    if (nvcc[0] == '/' && access(nvcc, X_OK) != 0) {
        ok(1, "nvcc # SKIP no nvcc");
        return;
    }
    snprintf(command, sizeof command,
             "%s -std=c++17 -arch=sm_80 -Xcicc -O0 -Xptxas -O0 --Werror all-warnings "
             "-I. -Iruntime -Iruntime/api -Itests/share -cubin -o %s/nvcc.cubin %s/nests.cu",
             nvcc, dir, dir);
    ok(system(command) == 0, "nvcc: the same kernels compile without a warning");
}

int main(void)
{
    char dir[] = "/tmp/test_print_cuda.XXXXXX", command[512];
    /* of vjp_cases.h: losses of its own tests */
    (void)make_loss, (void)net_state, (void)net_blocks;
    if (system("g++ --version >/dev/null 2>&1") != 0) {
        ok(1, "CUDA printer # SKIP no C++ compiler");
        return tap_done();
    }
    if (!mkdtemp(dir))
        return 1;
    snprintf(command, sizeof command,
             "env -u MAKEFLAGS -u MAKELEVEL make -s BUILD=%s %s/cuda_shim/libshim.a",
             build_folder(), build_folder());
    INSIST(system(command) == 0);
    check(dir, "sizes", net_sizes, 1);
    check_nvcc(dir);
    check(dir, "transformer", net_transformer, 1);
    check(dir, "convolutions", net_convolution, 1);
    check(dir, "moves", net_moves, 1);
    check(dir, "sums", net_sums, 1);
    check(dir, "picks", net_picks, 1);
    check(dir, "empty", net_empty, 1);
    check(dir, "shuffled", net_shuffled, 1);
    for (uint64_t seed = 1; seed <= 2; seed++)
        check(dir, "random", net_random, seed);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) != 0 || tap_done();
}

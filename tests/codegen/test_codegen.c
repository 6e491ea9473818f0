/*
 * test_codegen.c - the C of generated stages against the evaluator, value by value (stage_run.h):
 * every rule of vjp_cases.h and small networks, cut and whole, for all rows and for one row less.
 *
 * With arguments it does the same for a model: test_codegen MODEL.onnx [--loss L] [--split S]..
 * [--bind B].. [--chunk C]..; its inputs are in.NAME.npy and target.npy beside it where there are
 * any.  --cuda as the first argument: the CUDA stages, under the shim.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file/npy.h"
#include "net_masks.h"
#include "net_random.h"
#include "stage_run.h"
#include "tap.h"

/* ---- models from files ----------------------------------------------------------------------- */

static void random_input(StageRun *r, ValueId v, void *data)
{
    const Value *x = val(r->g, v);
    int64_t n = shape_elements(&x->shape);
    for (int64_t i = 0; i < n; i++) {
        double u = run_uniform(r);
        switch (x->dtype) {
        case DT_F32: ((float *)data)[i] = (float)(2 * u - 1); break;
        case DT_F64: ((double *)data)[i] = 2 * u - 1; break;
        case DT_I32: ((int32_t *)data)[i] = u < 0.5; break;
        case DT_I64: ((int64_t *)data)[i] = u < 0.5; break;
        default: ((uint8_t *)data)[i] = u < 0.8; break;
        }
    }
}

/* A file beside the model, when it holds at least as many numbers. */
static bool file_input(StageRun *r, ValueId v, const char *path, void *data)
{
    const Value *x = val(r->g, v);
    size_t bytes = (size_t)shape_elements(&x->shape) * dtype_size(x->dtype);
    NpyFile f;
    char err[256];
    if (npy_open(&f, path, err, sizeof err) != 0)
        return false;
    bool fits = f.dtype == (int)x->dtype && (size_t)f.bytes >= bytes;
    if (fits)
        memcpy(data, f.data, bytes);
    npy_close(&f);
    return fits;
}

static void set_inputs(StageRun *r, const char *dir)
{
    Graph *g = r->g;
    for (uint32_t i = 0; i < g->input.n; i++) {
        ValueId v = g->input.at[i];
        const Value *x = val(g, v);
        void *data =
            arena_calloc(r->a, (size_t)shape_elements(&x->shape) + 1, dtype_size(x->dtype));
        const char *path =
            arena_printf(r->a, "%s/%s%s.npy", dir, v == r->p->target ? "" : "in.", x->name);
        if (r->given && v < r->n_given && r->given[v].data) {
            memcpy(data, r->given[v].data,
                   (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
        } else if (v == r->p->loss_scale) {
            if (x->dtype == DT_F32)
                *(float *)data = 0.125f;
            else
                *(double *)data = 0.125;
        } else if (!file_input(r, v, path, data)) {
            random_input(r, v, data);
        }
        run_set(r, v, data);
    }
    for (uint32_t i = 0; i < g->param.n; i++) {
        Param *p = &g->param.at[i];
        void *data = arena_alloc(r->a, param_size(p) + 1);
        param_bytes(p, data);
        run_set(r, p->value, data);
    }
}

typedef struct {
    ImportOptions import;
    PartitionOptions partition;
    LossOptions loss;
    const char *path, *dir;
    StageRun run;
} Job;

/* Compiles, then runs all rows and one less. */
static void run_pipe(StageRun *r, Pipe *p, const char *dir)
{
    r->p = p;
    r->g = p->graph;
    r->stage = arena_array(r->a, RunStage, p->stage.n + 1);
    if (run_compile(r, "-O0") != 0)
        return;
    for (int k = 0; k < 2; k++) {
        r->rows = r->g->batch > 0 ? r->g->batch - k : 1;
        if (k == 1 && (p->uneven.n > 0 || r->rows < 1))
            break;
        set_inputs(r, dir);
        run_rows(r);
    }
}

static void run_model(void *arg)
{
    Job *j = arg;
    StageRun *r = &j->run;
    Graph *g = import_models(r->a, 1, &j->path, &j->import);
    Loss loss = loss_append(g, &j->loss, &j->import);
    attention_fuse(g, &j->partition.batch, loss.loss, loss.target);
    Pipe *p = pipe_build(g, &j->partition, &loss);
    autodiff(p);
    run_pipe(r, p, j->dir);
}

/* ---- small graphs ---------------------------------------------------------------------------- */

/* The evaluator rounds what it computed in double: where that was a tie, another way. */
#define HALF_TOLERANCE 4e-2

typedef struct {
    const char *dir, *name;
    const Device *device;
    void (*build)(Net *);
    uint64_t seed;
    uint32_t cuts;
    Dtype half;                     /* what it computes in; DT_NONE: f32 */
    StageRun run;
    RunBits bits;
} Small;

static void run_small(void *arg)
{
    Small *s = arg;
    run_pipe(&s->run, net_pipe(s->run.a, s->build, s->seed, s->cuts), "/nowhere");
    if (s->run.wrong)
        return;
    s->run.rows = s->run.g->batch;
    s->run.seed = s->seed;
    set_inputs(&s->run, "/nowhere");
    run_chain(&s->run, &s->bits);
}

/* The shim opens and closes what is allocated for each copy: nothing is left to the next one. */
static void finished(StageRun *r)
{
    if (r->device)
        r->device->release();
    arena_free(r->a);
}

/* whole: the bits of the uncut net, kept when there are no cuts, compared with when there are */
static void check_small(Small s, RunBits *whole, bool verbose)
{
    uint32_t same = 0;
    s.run = (StageRun){.a = arena_new(),
                       .dir = s.dir,
                       .device = s.device,
                       .tolerance = s.half ? HALF_TOLERANCE : 1e-3,
                       .seed = s.seed,
                       .verbose = verbose};
    net_half = s.half;
    int code = diag_run(run_small, &s);
    if (code == 0 && s.run.wrong == 0 && s.cuts > 0 && whole->params > 0)
        same = run_same_bits(&s.run, &s.bits, whole);
    if (s.cuts == 0)
        *whole = s.bits;
    bool empty = code != 0 && code != EXIT_BUG && s.run.compared == 0 && s.run.wrong == 0;
    if (empty || s.run.tie) {
        ok(1, "%s %llu, %u cuts # SKIP %s", s.name, (unsigned long long)s.seed, s.cuts,
           empty ? "a stage would be empty" : "rounding decides a comparison");
        finished(&s.run);
        return;
    }
    ok(code == 0 && s.run.wrong == 0 && s.run.compared > 0,
       "%s %llu, %u cuts: %u tensors, worst %.2g of the tolerance, %u as in one stage%s%s", s.name,
       (unsigned long long)s.seed, s.cuts, s.run.compared, s.run.worst, same,
       s.run.wrong ? "; " : "", s.run.first);
    finished(&s.run);
}

/* ---- the rules of vjp_cases.h, many in one stage ------------------------------------------------
 */

enum { CASES = sizeof cases / sizeof *cases, RULES = 14 };

typedef struct {
    uint32_t from, n;
    Dtype real;
    StageRun run;
} Rules;

static void build_rule(Graph *g, uint32_t i, Dtype real, ValueId *loss, Tensor *given)
{
    T t = {.g = g,
           .seed = i,
           .op = cases[i].op,
           .lo = cases[i].lo,
           .hi = cases[i].hi,
           .real = real,
           .params = true};
    cases[i].build(&t);
    make_loss(&t);
    *loss = *loss == NONE ? t.loss : g_add(g, *loss, t.loss);
    for (uint32_t k = 0; k < t.n; k++) { /* the next case has an x0 as well */
        Value *x = &g->value.at[t.x[k]];
        *strmap_at(&g->by_name, x->name) = NONE;
        x->name = arena_printf(g->arena, "c%u.x%u", i, k);
        *strmap_at(&g->by_name, x->name) = t.x[k];
        given[t.x[k]] = t.data[k];
    }
    for (uint32_t k = 0; k < t.y.n; k++) {
        bool seen = val(g, t.y.at[k])->kind != V_NODE;
        for (uint32_t j = 0; j < g->output.n; j++)
            seen |= g->output.at[j] == t.y.at[k];
        if (!seen) {
            vec_push(g->arena, &g->output, t.y.at[k]);
            vec_push(g->arena, &g->output_name, arena_printf(g->arena, "c%u.y%u", i, k));
        }
    }
}

static void run_rules(void *arg)
{
    Rules *c = arg;
    Arena *a = c->run.a;
    Graph *g = graph_new(a, "test");
    Loss l = {.loss = NONE, .target = NONE, .scale = LOSS_SUM, .text = "sum"};
    PartitionOptions opt = {0};
    c->run.n_given = 20000;
    c->run.given = arena_array(a, Tensor, c->run.n_given);
    for (uint32_t i = c->from; i < c->from + c->n; i++)
        build_rule(g, i, c->real, &l.loss, c->run.given);
    l.loss_scale = graph_input(g, "loss_scale", dtype_sum(c->real), &(Shape){0});
    l.loss = g_mul(g, l.loss, l.loss_scale);
    attention_fuse(g, &opt.batch, l.loss, l.target);
    Pipe *p = pipe_build(g, &opt, &l);
    autodiff(p);
    run_pipe(&c->run, p, "/nowhere");
}

static void check_rules(const char *dir, const Device *device, uint32_t from, uint32_t n,
                        Dtype real)
{
    Rules c = {from,
               n,
               real,
               {.a = arena_new(),
                .dir = dir,
                .device = device,
                .tolerance = dtype_is_half(real) ? HALF_TOLERANCE : 1e-3,
                .seed = from}};
    int code = diag_run(run_rules, &c);
    ok(code == 0 && c.run.wrong == 0 && c.run.compared > 0,
       "%s: rules %s to %s: %u tensors, worst %.2g of the tolerance%s%s", dtype_name(real),
       op_name(cases[from].op), op_name(cases[from + n - 1].op), c.run.compared, c.run.worst,
       c.run.wrong ? "; " : "", c.run.first);
    finished(&c.run);
}

static void remove_files(const char *dir)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", dir);
    if (system(command) != 0)
        printf("# cannot remove %s\n", dir);
}

/* Steps of long rows: what the first one is given begins at no multiple of four, or the second row
   does. */
static void steps_of(Net *n, int64_t wide)
{
    static const int rows[] = {-1, -1, -1, -1};
    Graph *g = n->g, *b = body_new(g);
    ValueId h = graph_input(b, "h", DT_F32, &S(1, wide)),
            x = graph_input(b, "x", DT_F32, &S(1, wide));
    h = g_unary(b, OP_Tanh, g_add(b, h, x));
    vec_push(b->arena, &b->output, h);
    vec_push(b->arena, &b->output, g_mul(b, h, x));
    ValueId w = g_unary(g, OP_Tanh, net_weight(n, S(1, wide + 1)));
    const ValueId in[] = {g_slice_axis(g, w, 1, 1, wide), net_weight(n, S(3, 1, wide))};
    ValueId y = g_recurrence(g, b, (Recurrence){.states = 1, .sequences = 1, .rows = rows}, in);
    y = g_reshape(g, graph_out(g, y, 1), &S(3, wide));
    net_out(n,
            g_mul(g,
                  net_input(n, arena_printf(g->arena, "x%d", (int)wide), DT_F32, S(ROWS, 3, wide)),
                  y));
}

static void net_steps(Net *n)
{
    steps_of(n, 64);
    steps_of(n, 65);
}

static const struct {
    const char *name;
    void (*build)(Net *);
} nets[] = {
    {"transformer", net_transformer},
    {"attentions", net_attentions},
    {"heads that share keys", net_shared},
    {"biases", net_biases},
    {"convolutions", net_convolution},
    {"moves", net_moves},
    {"sums", net_sums},
    {"picks", net_picks},
    {"state", net_state},
    {"blocks", net_blocks},
    {"masks", net_masks},
    {"empty", net_empty},
    {"steps", net_steps},
};

static int model_main(int argc, char **argv, const char *dir, const Device *device)
{
    Job j = {.path = argv[1],
             .run = {.a = arena_new(),
                     .dir = dir,
                     .device = device,
                     .tolerance = 1e-3,
                     .seed = 1,
                     .verbose = true}};
    Arena *a = j.run.a;
    j.import.limits = limits_default();
    const char *slash = strrchr(argv[1], '/');
    j.dir = slash ? arena_strndup(a, argv[1], (size_t)(slash - argv[1])) : ".";
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--loss")) {
            j.loss.loss = argv[i + 1];
            j.import.training = true;
        } else if (!strcmp(argv[i], "--split")) {
            vec_push(a, &j.partition.split, argv[i + 1]);
        } else if (!strcmp(argv[i], "--bind")) {
            vec_push(a, &j.import.bind, argv[i + 1]);
        } else if (!strcmp(argv[i], "--chunk")) {
            vec_push(a, &j.partition.batch.chunk, argv[i + 1]);
            vec_push(a, &j.import.chunk, argv[i + 1]);
        }
    }
    int code = diag_run(run_model, &j);
    ok(code == 0 && j.run.wrong == 0 && j.run.compared > 0,
       "%s: %u tensors, worst %.2g of the tolerance%s%s", argv[1], j.run.compared, j.run.worst,
       j.run.wrong ? "; " : "", j.run.first);
    return tap_done();
}

static int tests(int argc, char **argv, const char *dir, const Device *device)
{
    RunBits whole = {0};
    /* FIRST COUNT: whole and with two and three cuts */
    if (argc > 3 && (!strcmp(argv[1], "--random") || !strcmp(argv[1], "--shuffled"))) {
        for (int i = 0; i < 3 * atoi(argv[3]); i++)
            check_small((Small){.dir = dir,
                                .device = device,
                                .name = argv[1] + 2,
                                .build = argv[1][2] == 'r' ? net_random : net_shuffled,
                                .seed = (uint64_t)(atoi(argv[2]) + i / 3),
                                .cuts = (uint32_t[]){0, 2, 3}[i % 3]},
                        &whole, true);
        return tap_done();
    }
    const char *only = argc > 2 && !strcmp(argv[1], "--net") ? argv[2] : NULL;
    if (argc > 1 && !only)
        return model_main(argc, argv, dir, device);
    for (uint32_t i = 0; i < CASES && !only; i += RULES) {
        check_rules(dir, device, i, i + RULES < CASES ? RULES : CASES - i, DT_F32);
        if (!device || i / RULES % 3 == 0) /* its float64 is the same text but for the type */
            check_rules(dir, device, i, i + RULES < CASES ? RULES : CASES - i, DT_F64);
        if (!device)
            check_rules(dir, device, i, i + RULES < CASES ? RULES : CASES - i, DT_BF16);
    }
    for (uint32_t cuts = 0; cuts < 3 && (!only || !strcmp(only, "biases")); cuts += device ? 2 : 1) {
        check_small((Small){.dir = dir,
                            .device = device,
                            .name = "biases in bf16",
                            .build = net_biases,
                            .seed = 1,
                            .cuts = cuts,
                            .half = DT_BF16},
                    &whole, false);
        ok(cuts || whole.biases == NET_BIASES, "%u biases by the library, uncut", whole.biases);
    }
    for (uint32_t i = 0; i < 3 && !only; i++)
        check_small((Small){.dir = dir,
                            .device = device,
                            .name = i < 2 ? "transformer in bf16" : "transformer in f16",
                            .build = net_transformer,
                            .seed = 1,
                            .cuts = i % 2 * 2,
                            .half = i < 2 ? DT_BF16 : DT_F16},
                    &whole, false);
    if (!only) {
        check_small((Small){.dir = dir,
                            .device = device,
                            .name = "heads that share keys in bf16",
                            .build = net_shared,
                            .seed = 1,
                            .half = DT_BF16},
                    &whole, false);
        ok(whole.shared == NET_SHARED, "%u with heads that are not repeated", whole.shared);
    }
    for (unsigned i = 0; i < sizeof nets / sizeof *nets; i++)
        for (uint32_t cuts = 0; cuts < 3 && (!only || !strcmp(only, nets[i].name));
             cuts += device ? 2 : 1) {
            check_small((Small){.dir = dir,
                                .device = device,
                                .name = nets[i].name,
                                .build = nets[i].build,
                                .seed = 1,
                                .cuts = cuts},
                        &whole, false);
            if (nets[i].build == net_shared)
                ok(whole.attentions == NET_SHARED && whole.shared == NET_SHARED,
                   "%u attentions are one operation each, %u with heads that are not repeated",
                   whole.attentions, whole.shared);
            if (cuts == 0 && nets[i].build == net_masks)
                ok(whole.attentions == MASKS - 1, "%u masked attentions are one operation each",
                   whole.attentions);
        }
    for (uint32_t seed = 1; seed < 3 && !only; seed++)
        for (uint32_t cuts = 0; cuts < (device ? 1 : 3);
             cuts += 2) /* the device's sums follow strides, which a cut changes here */
            check_small((Small){.dir = dir,
                                .device = device,
                                .name = "shuffled",
                                .build = net_shuffled,
                                .seed = seed,
                                .cuts = cuts},
                        &whole, false);
    for (uint32_t seed = 14; seed < 20 && !only; seed++)
        for (uint32_t cuts = 0; cuts < 3; cuts += 2)
            check_small((Small){.dir = dir,
                                .device = device,
                                .name = "random",
                                .build = net_random,
                                .seed = seed,
                                .cuts = cuts},
                        &whole, false);
    return tap_done();
}

int main(int argc, char **argv)
{
    char dir[256] = "/tmp/ppsplit-codegen-XXXXXX";
    const char *keep = getenv("CODEGEN_KEEP");
    if (!keep && !mkdtemp(dir))
        return 1;
    if (keep)
        snprintf(dir, sizeof dir, "%s", keep);
    Device shim, *device = NULL;
    if (argc > 1 && !strcmp(argv[1], "--cuda")) {
        run_device_library(run_on_step, &shim);
        device = &shim;
        argc--;
        argv++;
    } else {
        run_library(run_on_step);
    }
    int code = tests(argc, argv, dir, device);
    if (device)
        device->release();
    if (!keep)
        remove_files(dir);
    return code;
}

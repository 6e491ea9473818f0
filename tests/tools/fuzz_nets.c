// clang-format off
/*
 * fuzz_nets.c - the differential fuzzer: random graphs over all of ops.def (fuzz/), each computed
 * in every way there is, until two disagree.
 *
 *   differences   the evaluator's gradients through all stages' lists, in float64, against central
 *                 differences of its own loss
 *   interpreter   every function of every stage on its planned memory (stage_interp.h) against the
 *                 evaluator, step by step, for all rows and one less; B against I and W; the cut
 *                 graph against the whole, to the bit
 *   compiled      the same with the generated C, many graphs to a compilation
 *   device        the same with the CUDA C under the shim
 *   onnx          the stage files as ONNX, beside the evaluator's numbers, for
 *                 fuzz/onnxruntime_check.py
 *   models        the graphs as models with data, for fuzz/mesh
 *
 *   fuzz_nets [--compiled | --device | --onnx DIR | --models DIR] [--from SEED] [--count N] [--seconds S]
 *             [--batch N] [--keep DIR] [--dtype bf16|f16] [FILE.net]...
 *
 * FUZZ_LOUD prints every difference and what is refused, FUZZ_DUMP the graphs.
 *
 * Graphs run in processes of their own: a crash is a finding too.  A graph that fails is reduced to
 * the smallest that does and printed; with --keep DIR it is written there.  Files are nets kept
 * from before (tests/nets): every one is a test.
 */
// clang-format on
#include <ctype.h>
#include <getopt.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "fuzz/differences.h"
#include "fuzz/graph.h"
#include "fuzz/write_model.h"
#include "fuzz/write_onnx.h"
#include "stage_interp.h"
#include "tap.h"

/* rounded: in float32 alone, and not far */
typedef enum { FINE, REFUSED, ROUNDED, WRONG } Verdict;
typedef struct {
    Verdict verdict;
    uint32_t compared, differences, stages;
    bool op[OP_COUNT];
    char what[600];
} Report;

static struct {
    bool compiled;
    const Device *device;
    const char *dir, *keep, *onnx, *models;
    uint32_t batch;
    bool replays;
    Dtype half;                     /* graphs of f32 compute in it; DT_NONE: in f32 */
} mode;

/* ---- one graph ------------------------------------------------------------------------------- */

typedef struct {
    const Recipe *recipe;
    bool wide, cuts, differences;
    uint32_t number;
    StageRun run;
    RunBits bits;
    Report *out;
} Job;

static const char *prefix_of(const Job *j, uint32_t stage)
{
    return arena_printf(j->run.a, "n%u%s%s_s%u_", j->number, j->cuts ? "c" : "w",
                        j->wide ? "d" : "f", stage);
}

static uint64_t numbers(const Recipe *r) { return r->step[0].seed; }

static void open_job(void *arg)
{
    Job *j = arg;
    StageRun *r = &j->run;
    r->p = fuzz_pipe(r->a, j->recipe, j->wide, j->cuts, mode.half);
    r->g = r->p->graph;
    r->rows = r->g->batch;
    r->stage = arena_array(r->a, RunStage, r->p->stage.n + 1);
    if (getenv("FUZZ_DUMP"))
        pipe_dump(r->p, stdout);
    if (!mode.compiled)
        run_plan(r);
}

static void run_job(void *arg)
{
    Job *j = arg;
    StageRun *r = &j->run;
    if (j->differences && j->recipe->loss && j->wide)
        j->out->differences += differences_agree(r, numbers(j->recipe));
    run_forget_evaluated(r);
    for (int64_t less = 0; less < 2 && r->wrong == 0; less++) {
        r->rows = r->g->batch - less;
        if (less && (r->p->uneven.n > 0 || r->rows < 1))
            break;
        set_all(r, numbers(j->recipe), 0.125, 0);
        run_rows(r);
    }
    r->rows = r->g->batch;
    set_all(r, numbers(j->recipe), 0.125, 0);
    if (r->wrong == 0)
        run_chain(r, &j->bits);
}

static Job job(const Recipe *recipe, bool wide, bool cuts, uint32_t number, Report *out)
{
    Job j = {.recipe = recipe, .wide = wide, .cuts = cuts, .number = number, .out = out};
    j.run = (StageRun){.a = arena_new(),
                       .narrow = !wide,
                       .least = wide ? 1e-2 : 1e-4,
                       .dir = mode.dir,
                       .device = mode.device,
                       .tolerance = mode.half != DT_NONE && !wide ? 4e-2 : 1e-3,
                       .seed = 1,
                       .verbose = getenv("FUZZ_LOUD") != NULL};
    return j;
}

/* whole and cut, in the recipe's type, and for differences in float64 */
enum { WAYS = 4 };

/* In float32, whole. */
static void write_job(void *arg)
{
    Job *j = arg;
    StageRun *r = &j->run;
    r->p = fuzz_pipe(r->a, j->recipe, false, false, mode.half);
    r->g = r->p->graph;
    r->rows = r->g->batch;
    set_all(r, numbers(j->recipe), 1, 0);
    evaluate(r, true);
    write_onnx(r, mode.onnx, j->number);
}

/* The ways of one graph: cut as the recipe says and whole; in float64 as well, where differences
 * are taken. */
typedef struct { Recipe recipe; Job way[WAYS]; uint32_t n; bool open; } Graphs;

static bool has_cuts(const Recipe *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->step[i].cut)
            return true;
    return false;
}

static bool open_ways(Graphs *x, uint32_t number, Report *out)
{
    const Recipe *r = &x->recipe;
    *out = (Report){0};
    x->n = 0;
    if (!mode.compiled || r->wide)
        x->way[x->n++] = job(r, true, true, number, out);
    x->way[0].differences = !mode.compiled;
    if (!r->wide)
        x->way[x->n++] = job(r, false, true, number, out);
    if (has_cuts(r))
        x->way[x->n++] = job(r, r->wide, false, number, out);
    for (uint32_t i = 0; i < x->n; i++) {
        int code = diag_run(open_job, &x->way[i]);
        if (code == 0 && x->way[i].run.wrong == 0)
            continue;
        out->verdict = code == EXIT_MODEL || code == EXIT_USAGE ? REFUSED : WRONG;
        snprintf(out->what, sizeof out->what, "%s",
                 code == 0                 ? x->way[i].run.first
                 : out->verdict == REFUSED ? "refused"
                                           : "an internal error");
        return false;
    }
    return true;
}

static void close_graph(Graphs *x)
{
    for (uint32_t i = 0; i < x->n; i++)
        arena_free(x->way[i].run.a);
}

static void open_graph(Graphs *x, const Recipe *r, uint32_t number, Report *out)
{
    *x = (Graphs){.recipe = *r};
    x->open = open_ways(x, number, out);
    if (out->verdict != REFUSED)
        return;
    for (uint32_t i = 0; i < r->n; i++)                 /* a stage was empty */
        x->recipe.step[i].cut = false;
    close_graph(x);
    x->open = open_ways(x, number, out);
}

static void judge(Graphs *x, Report *out)
{
    for (uint32_t i = 0; i < x->n && out->verdict == FINE; i++) {
        Job *j = &x->way[i];
        StageRun *r = &j->run;
        j->out = out;
        int code = diag_run(run_job, j);
        /* there sums follow strides, which a cut may change */
        bool bits = !mode.device;
        if (code == 0 && r->wrong == 0 && !j->cuts && bits && x->way[i - 1].bits.params > 0)
            run_same_bits(r, &x->way[i - 1].bits, &j->bits);
        out->compared += r->compared;
        out->stages += r->p->stage.n;
        for (uint32_t k = 0; k < r->g->node.n; k++)
            out->op[r->g->node.at[k].op] = true;
        if (code == 0 && r->wrong == 0)
            continue;
        if (r->tie)
            out->verdict = ROUNDED;
        else
            out->verdict =
                code == 0 && !j->wide && r->first_off < 300 && !strstr(r->first, "other bits")
                    ? ROUNDED
                    : WRONG;
        snprintf(out->what, sizeof out->what, "%s", code == 0 ? r->first : "an internal error");
    }
}

/* ---- many graphs ----------------------------------------------------------------------------- */

/* The names that a generated file defines, one after the other: of functions, tables and types. */
static const char *next_defined(Arena *a, const char **text)
{
    static const char *const begins[] = {"static ", "void ", "const Pp", "} "};
    for (const char *p = *text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        static const char bounds[] = "__launch_bounds__";
        size_t line = strcspn(p, "\n"), skip = 0, end;
        bool defines = false;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            defines |= strncmp(p, begins[i], strlen(begins[i])) == 0;
        if (!defines)
            continue;
        const char *first = arena_strndup(a, p, line), *q = strstr(first, bounds);
        skip = q ? (size_t)(q - first) + strcspn(q, ")") + 1 : 0;
        if ((q = strstr(first, "(*const "))) /* a pointer to a function */
            skip = (size_t)(q - first) + 8;
        end = skip + strcspn(first + skip, "()[=;");
        while (end > 0 && first[end - 1] == ' ')
            end--;
        size_t begin = end;
        while (begin > 0 && (isalnum((unsigned char)first[begin - 1]) || first[begin - 1] == '_'))
            begin--;
        *text = p + line;
        if (end < line && end > begin)
            return arena_strndup(a, first + begin, end - begin);
    }
    return NULL;
}

/* A stage's file as part of a larger one: its own names and its table's get the prefix. */
static void include_stage(Arena *a, FILE *out, const char *path, const char *table,
                          const char *prefix)
{
    StrMap name = {.arena = a};
    char out_before = 0;
    FILE *f = fopen(path, "r");
    INSIST(f && fseek(f, 0, SEEK_END) == 0);
    size_t n = (size_t)ftell(f);
    char *text = arena_alloc(a, n + 1);
    rewind(f);
    INSIST(fread(text, 1, n, f) == n);
    fclose(f);
    const char *at = text;
    for (const char *x; (x = next_defined(a, &at)) != NULL;)
        *strmap_at(&name, x) = 1;
    *strmap_at(&name, table) = 1;
    while (*text) {                                     /* but for members of the same name */
        size_t word =
            strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        const char *w = word ? arena_strndup(a, text, word) : "";
        bool member = out_before == '.' || out_before == '>',
             own = word && !member && strmap_get(&name, w) != NONE;
        fprintf(out, "%s%.*s", own ? prefix : "", word ? (int)word : 1, text);
        text += word ? word : 1;
        out_before = text[-1];
    }
    fprintf(out, "\n#undef pp_step\n");
}

/* Writes, compiles and loads all stages of all graphs as one file. */
static bool compile_all(Graphs *x, uint32_t n, uint32_t first)
{
    static const char *const flags[] = {"-O0", "-O1 -march=native", "-O0", "-O0"};
    Arena *a = arena_new();
    const char *path = arena_printf(a, "%s/all.%s", mode.dir, mode.device ? "cu" : "c");
    FILE *out = fopen(path, "w");
    StageRun *any = NULL;
    INSIST(out);
    fprintf(out, "%s#include \"pp_kernel.h\"\n", mode.device ? "#include \"pp_device.h\"\n" : "");
    for (uint32_t g = 0; g < n; g++)
        for (uint32_t w = 0; x[g].open && w < x[g].n; w++) {
            StageRun *r = &x[g].way[w].run;
            any = any ? any : r;
            for (uint32_t i = 0; i < r->p->stage.n; i++) {
                const char *prefix = prefix_of(&x[g].way[w], i),
                           *table = arena_printf(a, "pp_stage%u%s", i, mode.device ? "_cuda" : "");
                include_stage(a, out, run_write(r, i, prefix), table, prefix);
            }
        }
    fclose(out);
    void *so = any ? run_build(any,
                               mode.device    ? "-O0"
                               : mode.replays ? "-O1"
                                              : flags[first / n % 4],
                               path)
                   : NULL;
    for (uint32_t g = 0; g < n && so; g++)
        for (uint32_t w = 0; x[g].open && w < x[g].n; w++)
            for (uint32_t i = 0; i < x[g].way[w].run.p->stage.n; i++)
                run_load(&x[g].way[w].run, i, prefix_of(&x[g].way[w], i), so);
    arena_free(a);
    return so || !any;
}

/* In a process of its own; reports are in memory that both see. */
static void check_here(const Recipe *recipe, uint32_t n, uint32_t first, Report *out)
{
    Graphs *x = calloc(n, sizeof *x);
    for (uint32_t i = 0; i < n && mode.onnx; i++) {
        Job j = job(&recipe[i], false, false, first + i, &out[i]);
        out[i] = (Report){.verdict = diag_run(write_job, &j) ? REFUSED : FINE};
        arena_free(j.run.a);
    }
    for (uint32_t i = 0; i < n && !mode.onnx; i++)
        open_graph(&x[i], &recipe[i], first + i, &out[i]);
    bool loaded = !mode.compiled || mode.onnx || compile_all(x, n, first);
    for (uint32_t i = 0; i < n; i++) {
        if (!loaded && x[i].open)
            out[i] = (Report){.verdict = WRONG, .what = "does not compile"};
        if (x[i].open && loaded) {
            out[i].verdict = WRONG;                     /* what stands here when it crashes */
            snprintf(out[i].what, sizeof out[i].what, "it crashes");
            Report r = {0};
            judge(&x[i], &r);
            out[i] = r;
        }
        close_graph(&x[i]);
    }
    free(x);
}

static Report *shared_reports(uint32_t n)
{
    void *p =
        mmap(NULL, n * sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    return p;
}

static void check_apart(const Recipe *recipe, uint32_t n, uint32_t first, Report *out)
{
    enum { SECONDS_EACH = 60 };
    for (uint32_t i = 0; i < n; i++)
        out[i] = (Report){.verdict = WRONG, .what = "it crashes"};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* of the processor: of a machine that is busy with other things nothing follows */
        setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {SECONDS_EACH + 10 * n, 0}}, NULL);
        if (!getenv("FUZZ_LOUD") && !freopen("/dev/null", "w", stderr))
            _exit(1);
        check_here(recipe, n, first, out);
        fflush(stdout);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0)
        exit(1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (n > 1)                                          /* which one was it? */
        for (uint32_t i = 0; i < n; i++)
            check_apart(&recipe[i], 1, first + i, &out[i]);
}

/* ---- what fails, smaller --------------------------------------------------------------------- */

static Report *small_report;

static bool fails(const Recipe *r)
{
    check_apart(r, 1, 0, small_report);
    return small_report->verdict == WRONG;
}

static void reduce(const Recipe *r, uint64_t seed)
{
    bool before = mode.replays;
    mode.replays = true;                                /* by a compiler that optimises */
    Recipe s = recipe_reduce(*r, fails);
    check_apart(&s, 1, 0, small_report);
    mode.replays = before;
    printf("# reduced, from %llu: %s\n", (unsigned long long)seed, small_report->what);
    recipe_print(&s, stdout);
    if (!mode.keep)
        return;
    char path[512];
    snprintf(path, sizeof path, "%s/%llu.net", mode.keep, (unsigned long long)seed);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "# %s\n", small_report->what);
    recipe_print(&s, f);
    fclose(f);
}

/* ---- the command ----------------------------------------------------------------------------- */

typedef struct {
    uint32_t graphs, count[WRONG + 1], differences, compared, stages;
    bool op[OP_COUNT];
} Total;

static void add(Total *t, const Report *r)
{
    t->graphs++;
    t->count[r->verdict]++;
    t->differences += r->differences;
    t->compared += r->compared;
    t->stages += r->stages;
    for (uint32_t i = 0; i < OP_COUNT; i++)
        t->op[i] |= r->op[i];
}

/* Every row of ops.def that a graph may hold is drawn, but for what is there to falsify a gradient,
   what only the device's own pipe holds, and what is between the members of the tensor axis. */
static void check_rows(const Total *t)
{
    char missing[400] = "";
    for (uint32_t i = 1; i < OP_COUNT; i++)
        if (op_is_core((Op)i) && !t->op[i] && i != OP_StopGradient &&
            i != OP_FlashAttention && i != OP_FlashAttentionGrad && i != OP_MatMulBias && i != OP_Vary && i != OP_Custom && i != OP_Recurrence &&
            !op_is_collective((Op)i))
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s",
                     op_name((Op)i));
    ok(!*missing, "every operation of ops.def is among them%s%s", *missing ? ", but not" : "",
       missing);
}

static void fuzz(uint64_t from, uint64_t count, double seconds)
{
    Recipe *recipe = calloc(mode.batch, sizeof *recipe);
    Report *report = shared_reports(mode.batch);
    Total t = {0};
    time_t start = time(NULL);
    for (uint64_t i = 0; i < count && (seconds <= 0 || difftime(time(NULL), start) < seconds);
         i += mode.batch) {
        uint32_t n = count - i < mode.batch ? (uint32_t)(count - i) : mode.batch;
        for (uint32_t k = 0; k < n; k++)
            recipe[k] = recipe_draw(from + i + k);
        check_apart(recipe, n, (uint32_t)((from + i) % 1000000000), report);
        for (uint32_t k = 0; k < n; k++) {
            add(&t, &report[k]);
            if (report[k].verdict == ROUNDED && getenv("FUZZ_LOUD"))
                printf("# %llu, rounding: %s\n", (unsigned long long)(from + i + k),
                       report[k].what);
            if (report[k].verdict != WRONG)
                continue;
            printf("# %llu: %s\n", (unsigned long long)(from + i + k), report[k].what);
            reduce(&recipe[k], from + i + k);
            fflush(stdout);
        }
    }
    ok(t.graphs > 0 && t.count[WRONG] == 0 && 2 * t.count[REFUSED] <= t.graphs,
       "%u random graphs from %llu in %u stages, %s: %u wrong, %u by rounding alone, %u refused; "
       "%u tensors, %u slopes compared",
       t.graphs, (unsigned long long)from, t.stages,
       mode.device     ? "device"
       : mode.compiled ? "compiled"
                       : "interpreted",
       t.count[WRONG], t.count[ROUNDED], t.count[REFUSED], t.compared, t.differences);
    if (t.graphs >= 1000 && !mode.onnx)
        check_rows(&t);
    free(recipe);
}

static void replay(char **path, int n)
{
    Recipe *recipe = calloc((size_t)n + 1, sizeof *recipe);
    Report *report = shared_reports((uint32_t)n + 1);
    for (int i = 0; i < n; i++) {
        FILE *f = fopen(path[i], "r");
        if (!f || !recipe_read(&recipe[i], f)) {
            fprintf(stderr, "%s: no net\n", path[i]);
            exit(1);
        }
        fclose(f);
    }
    mode.replays = true;
    check_apart(recipe, (uint32_t)n, 0, report);
    for (int i = 0; i < n; i++)
        ok(report[i].verdict == FINE, "%s: %u tensors%s%s", path[i], report[i].compared,
           *report[i].what ? "; " : "", report[i].what);
    free(recipe);
}

static const struct option long_options[] = {
    {"compiled", no_argument, NULL, 'c'},
    {"device", no_argument, NULL, 'd'},
    {"onnx", required_argument, NULL, 'o'},
    {"models", required_argument, NULL, 'm'},
    {"from", required_argument, NULL, 'f'},
    {"count", required_argument, NULL, 'n'},
    {"seconds", required_argument, NULL, 's'},
    {"batch", required_argument, NULL, 'b'},
    {"keep", required_argument, NULL, 'k'},
    {"dtype", required_argument, NULL, 't'},
    {NULL, 0, NULL, 0},
};

int main(int argc, char **argv)
{
    char dir[] = "/tmp/ppsplit-fuzz-XXXXXX", command[64];
    uint64_t from = 1, count = 1000;
    double seconds = 0;
    bool device = false;
    Device shim;
    mode.batch = 1;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        switch (c) {
        case 'c': mode.compiled = true; break;
        case 'd': mode.compiled = device = true; break;
        case 'o': mode.onnx = optarg; break;
        case 'm': mode.models = optarg; break;
        case 'f': from = strtoull(optarg, NULL, 10); break;
        case 'n': count = strtoull(optarg, NULL, 10); break;
        case 's': seconds = atof(optarg), count = UINT64_MAX / 2; break;
        case 'b': mode.batch = (uint32_t)atoi(optarg); break;
        case 'k': mode.keep = optarg; break;
        case 't': mode.half = strcmp(optarg, "f16") == 0 ? DT_F16 : DT_BF16; break;
        default: return 2;
        }
    if (mode.models)
        return !write_models(mode.models, from, count);
    if (!mkdtemp(dir))
        return 1;
    mode.dir = dir;
    mode.batch += mode.batch == 0;
    small_report = shared_reports(1);
    if (device) {
        run_device_library(run_on_step, &shim);
        mode.device = &shim;
    } else if (mode.compiled) {
        run_library(run_on_step);
    }
    if (optind < argc)
        replay(argv + optind, argc - optind);
    else
        fuzz(from, count, seconds);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) == 0 ? tap_done() : 1;
}

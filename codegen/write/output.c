/*
 * output.c - the output folder.  In: the Pipe.  Out: the Pipe in its printed forms, stages as ONNX
 * and as C, parameters, the runtime's sources, a Makefile and a README.
 *
 * Everything is written into a new folder beside the wanted one, which then takes its place
 * (folder.c).  Whatever fails leaves nothing behind.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/hash.h"
#include "partition/print/print.h"
#include "lengths.h"
#include "output.h"

/* ---- one file -------------------------------------------------------------------------------- */

static FILE *create(Arena *a, const char *dir, const char *name)
{
    write_unless_ended();
    const char *path = arena_printf(a, "%s/%s", dir, name);
    FILE *f = arena_fopen(a, path, "w");
    if (!f)
        write_error(path);
    return f;
}

static void finish(Arena *a, FILE *f, const char *dir, const char *name)
{
    bool bad = ferror(f) != 0;
    if (arena_fclose(a, f) != 0 || bad)
        write_error(arena_printf(a, "%s/%s", dir, name));
}

static void put(Arena *a, const char *dir, const char *name, const char *data, size_t n)
{
    FILE *f = create(a, dir, name);
    if (n > 0 && fwrite(data, 1, n, f) != n)
        write_error(arena_printf(a, "%s/%s", dir, name));
    struct stat sb;
    if (n > 2 && !memcmp(data, "#!", 2) && fstat(fileno(f), &sb) == 0)
        fchmod(fileno(f), sb.st_mode | (sb.st_mode & 0444) >> 2); /* whoever reads it may run it */
    finish(a, f, dir, name);
}

/* ---- the texts that are ours ----------------------------------------------------------------- */

static void write_readme(const Pipe *p, const CodegenOptions *opt, const char *dir)
{
    Arena *a = p->graph->arena;
    const Graph *g = p->graph;
    Text t = {.a = a};
    text_add(&t,
             "This folder is a pipeline-parallel program made of an ONNX model by ppsplit.\n\n");
    const char *made = opt->cpu ? "./pipeline" : "./pipeline-cuda";
    text_add(&t, "Build it, then run it; each rank takes %s:\n\n    make%s\n",
             p->stage.n == 1 ? "the one stage" : "one stage or more",
             opt->cpu ? "" : " pipeline-cuda run");
    Text data = {.a = a}, infer = {.a = a}; /* without what the loss compares with */
    for (uint32_t i = 0; i < g->input.n; i++) {
        ValueId v = g->input.at[i];
        if (v == p->loss_scale || graph_is_total(g, v))
            continue;
        const char *pair = arena_printf(a, "%s=FILE.npy", diag_escape(a, val(g, v)->name)),
                   *word = shell_word(a, pair);
        text_add(&data, " --data %s", word);
        if (v != p->target)
            text_add(&infer, " --data %s", word);
    }
    if (p->loss != NONE)
        text_add(&t, "    ./run -n %u train%s --schedule 1f1b --microbatches %u --steps 100\n",
                 p->stage.n, text_all(&data), 2 * p->stage.n);
    const char *first = g->output_name.n ? diag_escape(a, g->output_name.at[0]) : "NAME";
    text_add(&t, "    %s infer%s --output %s\n\n", made, text_all(&infer),
             shell_word(a, arena_printf(a, "%s=y.npy", first)));
    text_add(
        &t,
        "Rows of the files are samples; a microbatch has at most %" PRId64
        ".  ./run starts ranks as processes of MPI; at Ctrl-C\n"
        "and SIGTERM a training with --checkpoint ends its step, saves it, and ends with status "
        "75: --resume goes on.\n"
        "Without ./run the ranks are threads of one process.\n"
        "%s --help and ./run --help tell the rest.  All that is here is yours, without "
        "conditions; there is no warranty.\n\n"
        "    %-38s what was split, and where\n"
        "    %-38s the program; runtime/ is what it links\n"
        "    stageN.onnx stageN.backward.onnx       the same stages for any ONNX runtime\n"
        "    params/                                the weights, by their names in the model, and\n"
        "                                           the long constants\n"
        "    model.skeleton                         the model without them: ppsplit merge "
        "puts trained ones back\n",
        g->batch > 0 ? g->batch : 1, made,
        opt->page ? "pipe.txt pipe.xml pipe.dot pipe.html" : "pipe.txt pipe.xml pipe.dot",
        !opt->cuda ? "stageN.c pipeline.c"
        : opt->cpu ? "stageN.c stageN.cu pipeline.c"
                   : "stageN.cu pipeline.c");
    if (opt->cuda)
        text_add(
            &t,
            "    launches.tsv                           what it launches on a GPU: ppsplit "
            "forecast says how "
            "long a step takes\n"
            "\n    make pipeline-cuda run                 the program for NVIDIA GPUs, with nvcc\n"
            "    make pipeline-shim SHIM=DIR            its CUDA run and checked on the CPU: DIR "
            "is tests/cuda_shim of ppsplit\n");
    put(a, dir, "README", t.at, t.n);
}

/* ---- everything into one folder -------------------------------------------------------------- */

static void print(Pipe *p, const char *dir, const char *name, void (*write)(const Pipe *, FILE *))
{
    FILE *f = create(p->graph->arena, dir, name);
    write(p, f);
    finish(p->graph->arena, f, dir, name);
}

static void write_reports(Pipe *p, const CodegenOptions *opt, const char *dir)
{
    Arena *a = p->graph->arena;
    print(p, dir, "pipe.txt", print_pipe_txt);
    print(p, dir, "pipe.xml", print_pipe_xml);
    print(p, dir, "pipe.dot", print_pipe_dot);
    if (opt->page)
        put(a, dir, "pipe.html", opt->page, strlen(opt->page));
}

/* The Pipe that has the stage's programs: those of the loss over a whole minibatch have other
 * shapes. */
static Pipe *stage_of(Pipe *p, uint32_t i) { return p->stage.at[i].elsewhere ? p->whole : p; }

/* After the parameters, whose bytes they may refer to. */
static void write_stage_models(Pipe *p, const OnnxWeight *weight, OutsideFile *outside,
                               const char *dir)
{
    Arena *a = p->graph->arena;
    for (uint32_t i = 0; i < p->stage.n; i++) {
        const char *name = arena_printf(a, "stage%u.onnx", i),
                   *back = arena_printf(a, "stage%u.backward.onnx", i);
        FILE *f = create(a, dir, name);
        onnx_write_forward(stage_of(p, i), i, weight, outside, f);
        finish(a, f, dir, name);
        if (stage_of(p, i)->stage.at[i].backward.n == 0)
            continue;
        f = create(a, dir, back);
        onnx_write_backward(stage_of(p, i), i, weight, outside, f);
        finish(a, f, dir, back);
    }
}

/* What merge starts from: model.skeleton; of several files in sequence model.skeleton,
 * model1.skeleton, ..., a file named twice once. */
static void write_skeletons(Pipe *p, OutsideFile *outside, const char *dir)
{
    Arena *a = p->graph->arena;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->graph->files.model.n; i++) {
        bool again = false;
        for (uint32_t j = 0; j < i; j++)
            again |= p->graph->files.model.at[j] == p->graph->files.model.at[i];
        if (again)
            continue;
        const char *name = n ? arena_printf(a, "model%u.skeleton", n) : "model.skeleton";
        n++;
        FILE *f = create(a, dir, name);
        skeleton_write(p->graph, p->graph->files.model.at[i], name, outside, f);
        finish(a, f, dir, name);
    }
}

/* What a program is written with, and what its stages leave for later files. */
typedef struct {
    const char *dir, *params, *final_params;
    OnnxWeight *weight;
    OutsideFile *outside;
    uint64_t hash;
    Text launches, tables;
} Written;

static int64_t rows_of(const Pipe *p) { return p->graph->batch > 0 ? p->graph->batch : 1; }

/* Adds it to the program's hash. */
static void put_source(Arena *a, Written *w, const char *name, const Text *text)
{
    const char *all = text_all(text);
    w->hash = hash_bytes(w->hash, all, strlen(all));
    put(a, w->dir, name, all, strlen(all));
}

/* They are made on the host, whatever the target, of programs without lengths. */
static void write_totals(Pipe *p, Written *w)
{
    if (!p->totals)
        return;
    Arena *a = arena_within(p->graph->arena);
    StageGen *sg = cg_stage(a, p->totals, 0, TARGET_C);
    Text c = {.a = a};
    cg_stage_print(sg, &c);
    put_source(a, w, arena_printf(a, "%s.c", sg->name), &c);
    cg_tables_print(sg, NULL, &w->tables);
    arena_free(a);
}

/* Its file and its tables; one of any lengths, as it is with some. */
static StageGen *print_stage(Arena *a, Pipe *p, const CodegenOptions *opt, uint32_t i,
                             Target target, Written *w, Text *file)
{
    Pipe *own = stage_of(p, i);
    if (opt->lengths)
        return lengths_stage(a, opt, i, target, w->outside, file, &w->tables);
    StageGen *sg = cg_stage(a, own, i, target);
    sg->microbatches = own != p ? p : NULL;
    sg->profiled = opt->profile && target == TARGET_C;
    cg_stage_print(sg, file);
    cg_tables_print(sg, w->outside, &w->tables);
    return sg;
}

/* Its file for a target, and what others say of it. */
static void write_stage(Pipe *p, const CodegenOptions *opt, uint32_t i, Target target, Written *w)
{
    Arena *a = arena_within(p->graph->arena);
    Text file = {.a = a};
    StageGen *sg = print_stage(a, p, opt, i, target, w, &file);
    put_source(a, w, arena_printf(a, "stage%u.%s", i, target_row(target)->ending), &file);
    if (target == TARGET_CUDA) {
        const StageGen *most = opt->lengths ? cg_stage(a, opt->lengths->most, i, target) : sg;
        cg_launches_print(cg_launches(most, a), i, rows_of(p), a, &w->launches);
    }
    if (!opt->bare && (target == TARGET_C || !opt->cpu))
        cg_params_write(sg, w->params, w->final_params, opt->link, w->weight);
    arena_free(a);
}

/* pipeline.c */
typedef struct {
    const CodegenOptions *opt;
    const Written *w;
} Program;

static void print_program(void *arg, int k, SizesMet *sizes, Text *t)
{
    const Program *x = arg;
    cg_pipeline_print(x->opt->lengths->pipe[k], x->opt, x->w->hash, &x->w->tables, sizes, t);
}

static void write_program(Pipe *p, const CodegenOptions *opt, Written *w)
{
    Arena *a = p->graph->arena;
    const Lengths *l = opt->lengths;
    Text plan = {.a = a};
    if (l)
        lengths_check(l), lengths_others(l);
    w->hash = HASH_START;
    w->launches.a = w->tables.a = a;
    cg_launches_head(rows_of(p), &w->launches);
    for (uint32_t i = 0; i < p->stage.n; i++) {
        if (opt->cpu)
            write_stage(p, opt, i, TARGET_C, w);
        if (opt->cuda)
            write_stage(p, opt, i, TARGET_CUDA, w);
    }
    if (opt->cuda)
        put(a, w->dir, "launches.tsv", w->launches.at, w->launches.n);
    write_totals(p, w);
    if (l)
        lengths_print(a, l, "pipeline.c", false, print_program, &(Program){opt, w}, &plan);
    else
        cg_pipeline_print(p, opt, w->hash, &w->tables, NULL, &plan);
    put_source(a, w, "pipeline.c", &plan);
}

/* The functions of --ops, for the targets that there are. */
static void write_sources(Pipe *p, const CodegenOptions *opt, const char *dir)
{
    Arena *a = p->graph->arena;
    for (uint32_t i = 0; i < opt->source.n; i++) {
        const char *path = opt->source.at[i];
        const FileMap *f = arena_file(a, path);
        if (strcmp(strrchr(path, '.'), ".cu") ? opt->cpu : opt->cuda)
            put(a, dir, arena_printf(a, "custom_%s", base_name(path)), f->at, f->bytes);
    }
}

static void fill(Pipe *p, const CodegenOptions *opt, const char *dir, const char *final_dir)
{
    Arena *a = p->graph->arena;
    folder_make(a, dir, "params/");
    write_reports(p, opt, dir);
    Written *w = arena_new_of(a, Written);
    OutsideFile *outside = outside_new(a, dir, "params/constants.bin");
    *w = (Written){.dir = dir,
                   .params = arena_printf(a, "%s/params", dir),
                   .final_params = arena_printf(a, "%s/params", final_dir),
                   .weight = arena_array(a, OnnxWeight, p->graph->param.n + 1),
                   .outside = outside};
    write_program(p, opt, w);
    write_stage_models(p, w->weight, outside, dir);
    write_skeletons(p, outside, dir);
    write_sources(p, opt, dir);
    outside_end(outside);
    for (int i = 0; i < embed_count; i++) {
        const EmbedFile *e = &embed_file[i];
        folder_make(a, dir, e->name);
        put(a, dir, e->name, (const char *)e->data, e->size);
    }
    write_readme(p, opt, dir);
    if (opt->runtime)
        put(a, dir, "runtime/compiled", opt->runtime, strlen(opt->runtime));
}

/* ---- whole or not at all --------------------------------------------------------------------- */

typedef struct {
    Pipe *p;
    const CodegenOptions *opt;
    const char *dir, *temp;
} Job;

static void run(void *arg)
{
    Job *j = arg;
    Arena *a = j->p->graph->arena;
    char *real = realpath(j->temp, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL, *final_dir = j->dir;
    if (slash)
        final_dir = arena_printf(a, "%.*s/%s", (int)(slash - real), real, base_name(j->dir));
    free(real);
    fill(j->p, j->opt, j->temp, final_dir);
    diag_files();
    folder_take(a, j->temp, j->dir);
}

void codegen_write(Pipe *p, const CodegenOptions *opt)
{
    Arena *a = p->graph->arena;
    size_t n = strlen(opt->dir);
    while (n > 1 && opt->dir[n - 1] == '/')
        n--;
    const char *dir = arena_strndup(a, opt->dir, n);
    folder_check(a, dir);
    char *temp = arena_printf(a, "%s.XXXXXX", dir);
    int made = folder_parents(a, dir);
    if (!mkdtemp(temp)) {
        int error = errno;
        folder_remove_parents(dir, made);
        errno = error;
        write_error(dir);
    }
    folder_watch_signals(true);
    write_names(temp, dir);
    mode_t mask = umask(0);
    umask(mask);
    chmod(temp, 0777 & ~mask);
    Job job = {p, opt, dir, temp};
    int code = diag_run(run, &job);
    folder_watch_signals(false);
    write_names(NULL, NULL);
    if (code != 0) {
        folder_remove(temp);
        folder_remove_parents(dir, made);
    }
    folder_end_by_signal();
    if (code != 0)
        diag_raise(code);
}

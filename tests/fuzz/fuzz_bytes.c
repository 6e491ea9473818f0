/*
 * fuzz_bytes.c - every reader of bytes that others wrote, and the compiler behind the first of
 * them.  In: a target's name ($FUZZ_TARGET) and bytes.  Out: nothing, unless a reader reads or
 * writes where it may not, fails an assertion, or takes more memory or time than such a file is
 * worth: then the process ends.
 *
 * The two functions at the end are libFuzzer's; drive.c calls them where that is not there.  What is
 * read must either be refused or hold what its header says; this is asserted too.
 */
#include "base/file/index.h"
#include "base/file/json.h"
#include "base/file/npy.h"
#include "base/file/tensors.h"
#include "base/file/token_file.h"
#include "codegen/plan/plan.h"
#include "codegen/write/write.h"
#include "frontend/onnx/onnx.h"
#include "fuzz/fuzz_bytes.h"
#include "fuzz/proto_mutate.h"
#include "ir/facts/attention.h"
#include "planner/planner.h"
#include "ppsplit.h"
#include "report/marks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], file[96], index_file[96];
static FILE *nowhere;
static volatile uint64_t seen; /* of all that readers hand out: each byte is read */

static void look(const void *at, size_t n)
{
    const unsigned char *p = at;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    seen += sum;
}

static void put_file(const char *path, const uint8_t *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd))
        abort();
}

/* ---- models ---- */

typedef struct { Arena *a; const uint8_t *data; size_t n; } Input;

static void scan(void *arg)
{
    Input *in = arg;
    Limits lim = limits_default();
    Wire w;
    wire_scan(in->a, "fuzz", in->data, in->n, &lim, &w);
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, w.length, w.structure);
    if (m)
        onnx__model_proto__free_unpacked(m, NULL);
    for (uint32_t i = 0; i < w.run.n; i++)
        look(in->data + w.run.at[i].offset, (size_t)w.run.at[i].length);
}

static ImportOptions few_options(Input *in)
{
    ImportOptions o = {.limits = limits_default()};
    o.limits.file_bytes = 1 << 20; /* what is slow because it is large is no finding */
    o.limits.nodes = 2000;
    o.limits.unpacked_bytes = 64 << 20;
    o.training = in->n & 1;
    return o;
}

static void import(void *arg)
{
    Input *in = arg;
    const char *path = file;
    ImportOptions o = few_options(in);
    graph_verify(import_models(in->a, 1, &path, &o));
}

/* Some values of the graph, to be cut at, drawn from the bytes. */
static void choose_cuts(Graph *g, const Input *in, PartitionOptions *o)
{
    uint32_t n = in->data[in->n / 2] % 3;
    for (uint32_t i = 0; i < n && g->value.n; i++) {
        const Value *v = val(g, (ValueId)((in->data[in->n / (i + 2)] * UINT32_C(2654435761)) %
                                          g->value.n));
        if (v->kind == V_NODE && v->name && *v->name)
            vec_push(in->a, &o->split, v->name);
    }
}

static void print_stages(Pipe *p, Input *in)
{
    Text tables = {.a = in->a}, t = {.a = in->a};
    OnnxWeight *weight = arena_array(in->a, OnnxWeight, p->graph->param.n + 1);
    for (uint32_t i = 0; i < p->stage.n; i++) {
        for (int k = 0; k < TARGETS; k++) {
            StageGen *sg = cg_stage(in->a, p, i, (Target)k);
            cg_stage_print(sg, &t);
            cg_tables_print(sg, NULL, &tables);
        }
        onnx_write_forward(p, i, weight, NULL, nowhere);
        if (p->stage.at[i].backward.n)
            onnx_write_backward(p, i, weight, NULL, nowhere);
    }
    const CodegenOptions both = {.cpu = true, .cuda = true};
    cg_pipeline_print(p, &both, 0, &tables, NULL, &t);
    for (uint32_t i = 0; i < p->graph->param.n; i++) {
        const Param *q = &p->graph->param.at[i];
        size_t n = param_size(q);
        void *bytes = n < 1 << 24 ? arena_alloc(in->a, n) : NULL;
        if (bytes)
            param_bytes(q, bytes);
    }
    skeleton_write(p->graph, p->graph->files.model.at[0], "model.skeleton", NULL, nowhere);
}

static void compile(void *arg)
{
    static const char *const losses[] = {"mse", "cross_entropy", "l1", NULL};
    Input *in = arg;
    const char *path = file;
    ImportOptions o = few_options(in);
    LossOptions lo = {.loss = losses[in->data[in->n / 3] % 4]};
    PartitionOptions po = {0};
    o.training = lo.loss != NULL;
    Graph *g = import_models(in->a, 1, &path, &o);
    Loss l = loss_append(g, &lo, &o);
    if (in->data[in->n / 3] % 5 == 4)
        graph_autocast(g, DT_BF16);
    choose_cuts(g, in, &po);
    for (uint32_t i = 0; i < po.split.n && getenv("FUZZ_LOUD"); i++)
        fprintf(stderr, "--split '%s'\n", po.split.at[i]);
    attention_fuse(g, &po.batch, l.loss, l.target);
    Pipe *p = pipe_build(g, &po, &l);
    autodiff(p);
    graph_verify(g);
    pipe_verify(p);
    pipe_costs(p);
    print_pipe_txt(p, nowhere);
    print_pipe_xml(p, nowhere);
    print_pipe_dot(p, nowhere);
    report_program(p, in->a);
    print_summary(p, nowhere);
    print_ls(g, NONE, NULL, nowhere);
    print_stages(p, in);
}

static void run_apart(void (*fn)(void *), const uint8_t *data, size_t n)
{
    Input in = {.a = arena_new(), .data = data, .n = n};
    if (n)
        diag_run(fn, &in);
    arena_free(in.a);
}

static void fuzz_wire(const uint8_t *data, size_t n) { run_apart(scan, data, n); }

static void fuzz_import(const uint8_t *data, size_t n)
{
    put_file(file, data, n);
    run_apart(import, data, n);
}

static void fuzz_compile(const uint8_t *data, size_t n)
{
    put_file(file, data, n);
    run_apart(compile, data, n);
}

/* ---- schedules ---- */

static void same_text(const Schedule *s)
{
    SchedError e;
    Schedule *again = NULL;
    size_t n, n_again;
    char *text = sched_text(s, &n), *line = malloc(n + 1);
    INSIST(text && line);
    memcpy(line, text, n);
    line[n] = '\n';
    INSIST(!sched_parse(line, n + 1, "again", &again, &e));
    char *second = sched_text(again, &n_again);
    INSIST(second && n == n_again && !memcmp(text, second, n));
    free(text);
    free(line);
    free(second);
    sched_free(again);
}

static void lower(const Schedule *s, int how)
{
    static const char *const windows[] = {NULL, "1", "2:1", "auto"};
    SchedError e;
    Schedule *c = sched_clone(s);
    SchedCosts costs;
    SchedOffload offload = {.costs = &costs};
    sched_costs_default(&costs);
    SchedNeeds needs = {.unshard = windows[how & 3], .defer = how >> 2 & 1, .send_budget = how >> 3 & 3,
                        .deferred_reduce = how >> 5 & 1, .buffers = how >> 6 & 1,
                        .offload = how & 128 ? &offload : NULL};
    if (c && !sched_lower_for(c, &needs, &e)) {
        SchedSim sim;
        if (!sched_simulate(c, &costs, &sim, &e)) {
            sched_draw_svg(c, &sim, nowhere);
            sched_draw_trace(c, &sim, nowhere);
            sched_sim_free(&sim);
        }
        same_text(c);
    }
    sched_costs_free(&costs);
    sched_free(c);
}

static void fuzz_csv(const uint8_t *data, size_t n)
{
    SchedError e;
    Schedule *s = NULL;
    SchedCosts costs;
    if (sched_parse((const char *)data, n, "fuzz", &s, &e))
        return;
    same_text(s);
    for (int i = 0; i < s->stages; i++)
        seen += (uint64_t)sched_live(s, i) + (uint64_t)sched_live_saved(s, i);
    if (!sched_validate(s, &e) && !sched_verify(s, NULL, 0, NULL, 0, n & 1, &e))
        seen += (uint64_t)s->ranks;
    lower(s, n ? data[n / 2] : 0);
    sched_costs_default(&costs);
    put_file(file, data, n);
    sched_costs_load(&costs, file, s->stages, NULL, &e);
    sched_costs_free(&costs);
    sched_free(s);
}

static void fuzz_costs(const uint8_t *data, size_t n)
{
    SchedError e;
    SchedCosts costs;
    char list[400];
    snprintf(list, sizeof list, "%.*s", (int)(n < 399 ? n : 399), (const char *)data);
    sched_costs_default(&costs);
    sched_costs_set(&costs, list, &e);
    sched_costs_free(&costs);
    sched_costs_default(&costs);
    put_file(file, data, n);
    sched_costs_load(&costs, file, 4, NULL, &e);
    sched_costs_free(&costs);
    int32_t parts[4 * 4];
    sched_recompute_parse(list, 4, 4, parts, &e);
    SchedAction a;
    sched_action_parse(list, &a);
}

/* ---- machines, for plans ---- */

static void read_machine(void *arena)
{
    Machine m = machine_read(file, arena);
    INSIST(m.ranks >= 0 && m.memory >= 0 && m.rates.products > 0 && m.rates.messages > 0);
}

static void fuzz_machine(const uint8_t *data, size_t n)
{
    Arena *a = arena_new();
    put_file(file, data, n);
    int code = diag_run(read_machine, a);
    if (code == EXIT_BUG)
        abort();
    arena_free(a);
}

/* ---- files of tensors ---- */

static void fuzz_safetensors(const uint8_t *data, size_t n)
{
    StFile f;
    char err[ST_ERR];
    put_file(file, data, n);
    if (!st_open(&f, file, err, sizeof err)) {
        for (int i = 0; i < f.n; i++) {
            const StTensor *t = &f.tensor[i];
            int64_t bytes = st_dtype_size(t->dtype);
            for (int d = 0; d < t->rank; d++)
                bytes *= t->dim[d];
            INSIST(bytes == t->bytes && t->data && st_find(&f, t->name));
            look(t->data, (size_t)t->bytes);
        }
        st_close(&f);
    }
    if (!st_open_link(&f, file, err, sizeof err)) {
        for (int i = 0; i < f.n; i++)
            INSIST(f.tensor[i].file && st_find(&f, f.tensor[i].name));
        st_close(&f);
    }
}

/* ---- an index of such files; one.safetensors has a, [2] of float32 ---- */

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_one(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    uint8_t bytes[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    put_file(in_folder("one.safetensors"), bytes, sizeof bytes);
}

static void fuzz_tensors(const uint8_t *data, size_t n)
{
    TensorFiles t;
    char err[ST_ERR];
    put_one();
    put_file(index_file, data, n);
    if (tensors_open(&t, index_file, err, sizeof err))
        return;
    INSIST(t.n > 0 && !tensors_whole(&t, err, sizeof err));
    for (int k = 0; k < t.n; k++)
        for (int i = 0; i < t.file[k].n; i++) {
            const StTensor *s = tensors_find(&t, t.file[k].tensor[i].name, NULL);
            INSIST(s == &t.file[k].tensor[i]);
            look(s->data, (size_t)s->bytes);
        }
    tensors_close(&t);
}

/* ---- tokens: llm.c's file, or the index of Megatron's t.bin, 40 bytes ---- */

static void fuzz_tokens(const uint8_t *data, size_t n)
{
    static const uint8_t zeros[40];
    const char *name[] = {"t.idx", "input"};
    put_file(in_folder("t.bin"), zeros, sizeof zeros);
    put_file(in_folder("t.idx"), data, n);
    put_file(file, data, n);
    for (int i = 0; i < 2; i++) {
        NpyFile f;
        char err[600];
        if (token_file_open(&f, in_folder(name[i]), 0, err, sizeof err))
            continue;
        int64_t bytes = st_dtype_size(f.dtype);
        for (int d = 0; d < f.rank; d++)
            bytes *= f.dim[d];
        INSIST(bytes == f.bytes);
        look(f.data, (size_t)f.bytes);
        npy_close(&f);
    }
}

static void fuzz_npy(const uint8_t *data, size_t n)
{
    NpyFile f;
    char err[ST_ERR];
    put_file(file, data, n);
    if (!npy_open(&f, file, err, sizeof err)) {
        int64_t bytes = st_dtype_size(f.dtype);
        for (int d = 0; d < f.rank; d++)
            bytes *= f.dim[d];
        INSIST(bytes == f.bytes);
        look(f.data, (size_t)f.bytes);
        npy_close(&f);
    }
    if (!npy_open_raw(&f, file, n ? data[0] % 20 : 1, err, sizeof err)) {
        look(f.data, (size_t)f.bytes);
        npy_close(&f);
    }
}

/* ---- a checkpoint: index.json; rank0.safetensors is 4096 bytes of 0, 1, ..., 255, 0, ... ---- */

static const char tail[] = ",\n  \"index_sha256\": \"";

/* The index with the checksum that it must have, unless the first byte asks for none. */
static void put_index(const uint8_t *data, size_t n)
{
    char text[SHA256_TEXT];
    FILE *f = fopen(index_file, "w");
    if (!f)
        abort();
    sha256_of(data, n, text);
    fwrite(data, 1, n, f);
    if (!n || data[0] != '#')
        fprintf(f, "%s%s\"\n}\n", tail, text);
    fclose(f);
}

static void fuzz_index(const uint8_t *data, size_t n)
{
    Index x;
    char err[INDEX_ERR];
    put_index(data, n);
    if (index_open(&x, folder, err, sizeof err))
        return;
    for (int i = 0; i < x.n_tensor; i++) {
        const void *bytes = index_bytes(&x, &x.tensor[i], err, sizeof err);
        INSIST(index_find(&x, x.tensor[i].name));
        if (bytes)
            look(bytes, (size_t)x.tensor[i].bytes);
    }
    index_close(&x);
    int count;
    if (index_newest(&x, folder, INT64_MAX, err, sizeof err))
        index_close(&x);
    free(index_steps(folder, 0, &count));
}

static void fuzz_json(const uint8_t *data, size_t n)
{
    char err[200] = "";
    const char *at = (const char *)data;
    POOL(pool);
    Json j = {at, at + n, at, err, sizeof err, 0, 0, &pool};
    for (size_t i = 0; i < n && !j.bad; i++) {
        int64_t number;
        int yes;
        char *text = NULL;
        json_space(&j);
        switch (j.p < j.end ? *j.p : 0) {
        case '"':
            text = json_text(&j);
            if (text)
                json_put_text(&(JsonOut){.f = nowhere}, NULL, text);
            break;
        case 't':
        case 'f': json_bool(&j, &yes); break;
        case '{':
        case '[':
        case ',':
        case ':':
        case ']':
        case '}': json_char(&j, *j.p); break;
        default: json_int(&j, &number); break;
        }
        INSIST(j.p >= j.start && j.p <= j.end);
    }
}

/* ---- `ppsplit report`: a page, or, beside a good one, a log or a trace ---- */

static const char page[] = "<!DOCTYPE html>" MARK_FACTS MARK_RUNS_BEGIN "2 stages, reads texts -->" MARK_END;

static void fuzz_report(const uint8_t *data, size_t n)
{
    char path[128];
    ReportOptions o = {.arena = arena_new(), .out = folder, .target = "/dev/null"};
    snprintf(path, sizeof path, "%s/pipe.html", folder);
    if (n && data[0] == '<') {
        put_file(path, data, n);
    } else {
        put_file(path, (const uint8_t *)page, sizeof page - 1);
        put_file(file, data, n);
        vec_push(o.arena, &o.run, file);
    }
    diag_run(report_page, &o);
    arena_free(o.arena);
}

/* ---- what is called ---- */

static const FuzzTarget targets[] = {
    {"wire", fuzz_wire, true},       {"import", fuzz_import, true},
    {"compile", fuzz_compile, true}, {"csv", fuzz_csv, false},
    {"costs", fuzz_costs, false},    {"index", fuzz_index, false},
    {"safetensors", fuzz_safetensors, false}, {"tensors", fuzz_tensors, false},
    {"tokens", fuzz_tokens, false},
    {"npy", fuzz_npy, false},        {"json", fuzz_json, false},
    {"report", fuzz_report, false},  {"machine", fuzz_machine, false},
};
static const FuzzTarget *target;

static void clean(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/rank0.safetensors", folder);
    remove(path);
    snprintf(path, sizeof path, "%s/pipe.html", folder);
    remove(path);
    remove(in_folder("one.safetensors"));
    remove(in_folder("t.bin"));
    remove(in_folder("t.idx"));
    remove(file);
    remove(index_file);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *name = getenv("FUZZ_TARGET");
    uint8_t bytes[4096];
    char path[128];
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (name && !strcmp(name, targets[i].name))
            target = &targets[i];
    if (!target) {
        fprintf(stderr, "FUZZ_TARGET: one of");
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
            fprintf(stderr, " %s", targets[i].name);
        fprintf(stderr, "\n");
        exit(2);
    }
    snprintf(folder, sizeof folder, "%s/ppsplit-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
        abort();
    snprintf(file, sizeof file, "%s/input", folder);
    snprintf(index_file, sizeof index_file, "%s/index.json", folder);
    snprintf(path, sizeof path, "%s/rank0.safetensors", folder);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    put_file(path, bytes, sizeof bytes);
    nowhere = fopen("/dev/null", "w");
    diag_to(getenv("FUZZ_LOUD") ? stderr : nowhere);
    setenv("PPSPLIT_ABORT", "1", 1); /* an internal error is a finding */
    atexit(clean);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    target->run(data, n);
    return 0;
}

/* Mutations: of models mostly those of proto_mutate.h. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    if (!target->model || seed % 8 == 0)
        return LLVMFuzzerMutate(data, n, most);
    return proto_mutate(data, n, most, seed, NULL, 0);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two,
                                 uint8_t *out, size_t most, unsigned seed)
{
    size_t n = n_one < most ? n_one : most;
    memcpy(out, one, n);
    if (target->model)
        return proto_mutate(out, n, most, seed, two, n_two);
    size_t from = n_two ? seed % n_two : 0, room = most - n, take = n_two - from;
    take = take < room ? take : room;
    memcpy(out + n, two + from, take);
    return n + take;
}

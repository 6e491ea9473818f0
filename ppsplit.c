/*
 * ppsplit.c - the command.  In: ONNX models and options.  Out: a folder with a pipeline-parallel
 * program.
 *
 * passes[] is the whole compiler, a line a pass; commands[] are the others (command/).  GNU
 * manners: long options with = or a space, data to stdout, diagnostics to stderr, exit codes 0, 1
 * (model refused), 2 (usage), 3 (I/O or resources), 70 (a bug of ours).
 */
#include "annotate/annotate.h"
#include "command/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cli/nearest.h"
#include "base/file/hash.h"

/* ---- the compiler ---- */

/* What the passes hand on: the Graph, then the Pipe, which owns it. */
typedef struct {
    Options *o;
    Graph *graph;
    Loss loss;
    Pipe *pipe;
} State;

static void read_model(State *s)
{
    s->graph = import_models(s->o->arena, s->o->model.n, s->o->model.at, &s->o->import);
    graph_unsort(s->graph, &s->o->partition.batch);
    if (!s->o->settled)
        settle_lengths(s->o, s->graph);
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void take_sources(Options *o, const CustomOp *op)
{
    bool c = false, cu = false;
    for (uint32_t k = 0; k < op->source.n; k++) {
        const char *path = op->source.at[k], *name = file_name(path);
        bool is_cu = !strcmp(strrchr(name, '.'), ".cu"), there = false;
        for (uint32_t i = 0; i < o->codegen.source.n; i++) {
            const char *other = o->codegen.source.at[i];
            there |= !strcmp(other, path);
            if (strcmp(other, path) != 0 && !strcmp(file_name(other), name))
                diag_fatal(EXIT_USAGE, WHERE_FILE(op->path),
                           "'%s' and '%s' would be the same file in the output", other, path);
        }
        if (!there)
            vec_push(o->arena, &o->codegen.source, path);
        c |= !is_cu;
        cu |= is_cu;
    }
    if ((o->codegen.cpu && !c) || (o->codegen.cuda && !cu))
        diag_fatal(EXIT_USAGE, WHERE_FILE(op->path),
                   "the row of %s %s names no .%s file among its sources, which --target %s needs",
                   op->of.domain, op->of.name, o->codegen.cpu && !c ? "c" : "cu",
                   o->codegen.cpu && !c ? "cpu" : "cuda");
}

/* Tables of --ops, and what of their files goes into the output. */
static void read_own(Options *o)
{
    CustomOps *ops = &o->import.custom;
    for (uint32_t i = 0; i < o->ops.n; i++)
        custom_read(ops, o->ops.at[i], o->arena);
    for (uint32_t i = 0; i < ops->op.n; i++)
        take_sources(o, ops->op.at[i]);
}

static void import(State *s)
{
    read_own(s->o);
    auto_given(&s->o->partition.automatic, &s->o->automatic, s->o->arena);
    read_model(s);
}

/* Loops that the data end may run more often with more rows than they were unrolled for. */
static void trip_bounds(const Graph *g, int64_t own)
{
    for (uint32_t i = 0; i < g->trip_bound.n; i++) {
        const TripBound *b = &g->trip_bound.at[i];
        Intervals r = {.g = g, .arena = arena_within(g->arena)};
        for (uint32_t k = 0; k < b->n; k++)
            range_suppose(&r, b->given[k]);
        if (range_of(&r, b->v).hi <= b->most)
            continue;
        diag_hint("export the model for %lld rows, or --bind its dimension", (long long)g->batch);
        diag_fatal(EXIT_MODEL, graph_where(g, b->origin, -1),
                   "with %lld rows it may run more often than with %lld, for which it was read",
                   (long long)g->batch, (long long)own);
    }
}

/* The model's shapes become those of the rows that were asked for: a microbatch's, or, where the
 * loss is one over a minibatch, for now that's. */
static void rows(State *s)
{
    Graph *g = s->graph;
    Options *o = s->o;
    int64_t own = g->batch > 0 ? g->batch : 1;
    if (!o->rows)
        o->rows = own;
    if (!o->minibatch)
        o->minibatch = own;
    int64_t wanted = o->loss.whole ? o->minibatch : o->rows;
    if (o->loss.whole && o->rows > o->minibatch)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--loss-over minibatch: a minibatch of %lld rows is less than a microbatch of "
                   "%lld",
                   (long long)o->minibatch, (long long)o->rows);
    if (wanted == own)
        return;
    BatchNotes notes = {.target = NONE, .loss = NONE};
    batch_analyse(g, 0, &o->partition.batch, &notes);
    if (notes.uneven.n > 0) {
        diag_note("%s", notes.uneven.at[0]);
        diag_hint("export the model for %lld rows, or --bind its dimension", (long long)wanted);
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the model computes with exactly %lld rows, not with %lld", (long long)own,
                   (long long)wanted);
    }
    Ids list = {0}, root = graph_results(g, g->arena);
    for (uint32_t i = 0; i < g->trip_bound.n; i++)
        vec_push(g->arena, &root, g->trip_bound.at[i].v);
    const bool *live = graph_live(g, g->arena, 0, &root, 1);
    for (NodeId n = 0; n < g->node.n; n++)
        if (live[n])
            vec_push(g->arena, &list, n);
    graph_resize(g, wanted, &list);
    trip_bounds(g, own);
}

static void loss(State *s) { s->loss = loss_append(s->graph, &s->o->loss, &s->o->import); }

/* A model whose parameters are of a half type computes in that one. */
static void check_half(const Graph *g, Dtype asked)
{
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        if (n->op != OP_Cast || val(g, n->in[0])->kind != V_PARAM || n->attr.to == asked ||
            !dtype_is_half(n->attr.to))
            continue;
        diag_hint("leave out --dtype; or export the model in float32");
        diag_fatal(EXIT_MODEL, graph_where(g, n->origin, -1),
                   "--dtype %s: the model reads parameter '%s' in %s", dtype_name(asked),
                   val(g, n->in[0])->name, dtype_name(n->attr.to));
    }
}

/* Half precision, where it is asked for; and of a model that is half itself what it rounds. */
static void autocast(State *s)
{
    if (s->o->dtype != DT_NONE)
        check_half(s->graph, s->o->dtype);
    graph_autocast(s->graph, dtype_is_half(s->o->dtype) ? s->o->dtype : DT_NONE);
}

/* Each attention as one operation. */
static void attention(State *s)
{
    attention_fuse(s->graph, &s->o->partition.batch, s->loss.loss, s->loss.target);
}

/* --tensor, --sequence, --expert, or the file's sharding specs: the graph becomes that of one member;
 * false: there are none.  Where members do not fit in --memory, what they keep for backward is made
 * dearer.  plan: of the first axis. */
static bool divide_mesh(State *s, MeshPlan *plan)
{
    MeshOptions *opt = &s->o->mesh;
    const Graph *whole = s->graph;
    const Loss loss = s->loss;
    const double dearer[] = {0, .25, 1, 4, 16};
    bool any = false;
    annotate_read(s->graph, opt);
    for (int x = 0; x < MESH_AXES; x++)
        any |= mesh_has(opt, (MeshAxis)x);
    *plan = (MeshPlan){.members = 1, .chunks = 1};
    for (int i = opt->parts; i < 5 && any; i++) {
        Loss *l = &s->loss;
        opt->keep = dearer[i];
        s->loss = loss;
        s->graph = graph_twin(whole, whole->arena);
        *plan = mesh_divide(s->graph, opt, &s->o->partition.batch, 3,
                            (ValueId *const[]){&l->loss, &l->loss_scale, &l->target});
        if (pipe_fits(s->graph, &s->o->partition, l))
            break;
    }
    if (any)
        mesh_compare(whole, opt, plan);
    return any;
}

static void mesh(State *s)
{
    MeshPlan plan;
    divide_mesh(s, &plan);
}

static void partition(State *s) { s->pipe = pipe_build(s->graph, &s->o->partition, &s->loss); }
static void reverse(State *s)
{
    NodeId end = s->graph->node.n;
    reverse_stages(s->pipe);
    reverse_unreached(s->pipe, end, s->o->import.freeze.n > 0);
}

static void whole(State *s) { pipe_whole(s->pipe, s->o->rows); }

static void stash(State *s) { stash_minimize(s->pipe); }
static void divide(State *s) { divide_backward(s->pipe); }
static void again(State *s) { stash_again(s->pipe); }

/* What reports say of stages is of those that run. */
static void costs(State *s)
{
    Pipe *p = s->pipe;
    pipe_costs(p);
    if (p->whole) {
        pipe_costs(p->whole);
        p->stage.at[p->stage.n - 1].cost = p->whole->stage.at[p->stage.n - 1].cost;
    }
}

/* ---- what of the options changes numbers: checkpoints hold it ---- */

static void note(Options *o, const char *option, const char *value)
{
    vec_push(o->arena, &o->codegen.made, ((MadeWith){option, value}));
}

static void note_list(Options *o, const char *option, uint32_t n, const char *const *word)
{
    const char *all = n ? word[0] : "none";
    for (uint32_t i = 1; i < n; i++)
        all = arena_printf(o->arena, "%s %s", all, word[i]);
    note(o, option, all);
}

/* A loss in a file is its content, wherever that lies. */
static const char *loss_text(const Options *o)
{
    const char *loss = o->loss.loss ? o->loss.loss : "none";
    if (strncmp(loss, "model:", 6) != 0)
        return loss;
    const FileMap *f = arena_file(o->arena, loss + 6);
    uint64_t hash = hash_bytes(HASH_START, f->at, f->bytes);
    return arena_printf(o->arena, "model:%016llx", (unsigned long long)hash);
}

static const char *dropout_text(DropoutMode mode)
{
    return mode == DROPOUT_TRAIN ? "train" : mode == DROPOUT_AS_WRITTEN ? "as-written" : "none";
}

static void note_options(Options *o)
{
    note(o, "loss", loss_text(o));
    note(o, "loss-reduction", o->loss.sum ? "sum" : "mean");
    note(o, "dtype", o->dtype == DT_NONE || o->dtype == DT_F32 ? "none" : dtype_name(o->dtype));
    note_list(o, "freeze", o->import.freeze.n, o->import.freeze.at);
    note_list(o, "train", o->import.train.n, o->import.train.at);
    for (int x = 0; x < MESH_AXES; x++)
        if (x == MESH_TENSOR || mesh_has(&o->mesh, (MeshAxis)x))
            note(o, x == MESH_TENSOR ? "chunks" : mesh_option[x] + 2,
                 mesh_has(&o->mesh, (MeshAxis)x)
                     ? arena_printf(o->arena, "%d", o->mesh.chunks[x])
                     : "none");
    note_list(o, "shard", o->mesh.shard.n, o->mesh.shard.at);
    if (o->mesh.keep > 0)
        note(o, "memory", arena_printf(o->arena, "a byte kept costs %g sent", o->mesh.keep));
    note(o, "dropout", dropout_text(o->import.dropout));
    note_list(o, "stop-gradient", o->import.stop.n, o->import.stop.at);
}

/* ---- lengths that vary ---- */

static Pipe *plan_pipe(void *of, int64_t wanted, const PlanMesh *members, const SplitTexts *split,
                       Arena *a);

/* Models as they were read, each of other rows; then of a member. */
typedef struct { State whole; PlanMesh mesh; } PlanRead;
typedef struct { Options *o; VEC(PlanRead) read; } PlanReader;

typedef struct {
    const Options *o;
    const SplitTexts *split;
    const int64_t *length;
    const PlanMesh *mesh; /* NULL: members do not divide it */
    Pipe *pipe;
    const Graph *whole;
} Sample;

static void sample(void *arg)
{
    Sample *x = arg;
    Options o = *x->o;
    const Lengths *l = &x->o->lengths;
    o.import.bind.at = arena_array(o.arena, const char *, o.import.bind.n + 1);
    memcpy(o.import.bind.at, x->o->import.bind.at, o.import.bind.n * sizeof *o.import.bind.at);
    for (int v = 0; v < l->symbols; v++)
        o.import.bind.at[l->symbol[v].bind] = bound_to(o.arena, &l->symbol[v], x->length[v]);
    o.other = l->pipe[0] ? l->pipe[0]->graph : NULL;
    o.partition.automatic.stages = 0;
    PlanReader r = {.o = &o};
    x->pipe = plan_pipe(&r, o.rows, x->mesh, x->split, o.arena);
    x->whole = r.read.at[0].whole.graph;
}

/* The same with other lengths, cut at the same points; NULL: not if it may fail.  What is warned of
 * is so already. */
static Pipe *sample_pipe(const State *s, const SplitTexts *split, const int64_t *length,
                         bool may_fail)
{
    PlanMesh mesh = {.parts = s->o->mesh.parts};
    bool divided = false;
    for (int i = 0; i < MESH_AXES; i++) {
        mesh.members[i] = s->o->mesh.members[i];
        divided |= s->graph->mesh[i].chunks > 1;
    }
    Sample x = {s->o, split, length, divided ? &mesh : NULL, NULL, NULL};
    char *said = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&said, &n), *before = to ? diag_to(to) : NULL;
    int code = to ? diag_run(sample, &x) : EXIT_IO;
    if (to) {
        diag_to(before);
        fclose(to);
    }
    if (code && !may_fail)
        diag_note("%s", said ? said : "");
    free(said);
    if (code && !may_fail)
        diag_fatal(code, WHERE_FILE(s->graph->file), "not with %s",
                   cg_lengths_text(s->o->arena, &s->o->lengths, length));
    if (!s->o->other_whole)
        s->o->other_whole = x.whole;
    return code ? NULL : x.pipe;
}

/* Where samples are beyond the greatest lengths, constants are as long as theirs. */
static Pipe *longest_pipe(const State *s, const SplitTexts *split)
{
    const Lengths *l = &s->o->lengths;
    int64_t most[SYMBOLS], own[SYMBOLS];
    cg_longest(l, true, most);
    cg_longest(l, false, own);
    return memcmp(most, own, (size_t)l->symbols * sizeof *most) ? sample_pipe(s, split, most, false)
                                                               : s->pipe;
}

typedef struct { State s; SplitTexts split; } Sampler;

static const Pipe *pipe_with(const void *of, const int64_t *length)
{
    const Sampler *x = of;
    return sample_pipe(&x->s, &x->split, length, false);
}

static void lengths(State *s)
{
    Options *o = s->o;
    Lengths *l = &o->lengths;
    Sampler *all = arena_new_of(o->arena, Sampler);
    SplitTexts *split = &all->split;
    check_rows(o, s->pipe);
    if (!l->symbols || !o->codegen.dir)
        return;
    check_lengths(o);
    for (uint32_t i = 0; i < s->pipe->split.n; i++)
        vec_push(o->arena, split, s->pipe->split.at[i]);
    all->s = *s;
    l->with = pipe_with;
    l->of = all;
    Lengths below = *l;
    bool may_fail = lengths_below(&below);
    l->pipe[0] = sample_pipe(s, split, l->at[0], may_fail);
    if (!l->pipe[0]) {
        *l = below;
        l->pipe[0] = sample_pipe(s, split, l->at[0], false);
    }
    for (int k = 1; k < l->n; k++)
        l->pipe[k] = sample_pipe(s, split, l->at[k], false);
    l->most = longest_pipe(s, split);
    o->codegen.lengths = l;
}

static void output(State *s)
{
    note_options(s->o);
    s->o->codegen.runtime = compiled_runtime(s->o->arena);
    if (!s->o->codegen.dir)
        return;
    s->o->codegen.page = report_program(s->pipe, s->o->arena);
    codegen_write(s->pipe, &s->o->codegen);
}

static void summary(State *s)
{
    if (s->o->quiet)
        return;
    print_summary(s->pipe, stdout);
    if (s->pipe->automatic)
        print_automatic(s->pipe->automatic, s->o->arena, stdout);
}

static const struct { void (*run)(State *s); const char *dump; } passes[] = {
    {import, "import"},         /* files to a Graph of core operations, shaped, folded, named */
    {rows, NULL},               /* --rows: shapes of another number of rows */
    {loss, "loss"},             /* the loss is appended, with its inputs target and loss_scale */
    {autocast, "autocast"},     /* --dtype: what computes in half precision, and the casts */
    {attention, "attention"},   /* what lies between the two products of one: one operation */
    {mesh, "mesh"},             /* --tensor, --sequence, --expert: the graph of one member */
    {partition, "partition"},   /* a Pipe: nodes to stages, what crosses a cut, parameters */
    {reverse, "autodiff"},      /* every stage's backward */
    {whole, NULL},              /* --loss-over minibatch: the loss in the shapes of all its rows */
    {stash, "stash"},           /* what forward keeps for it, against what it computes again */
    {divide, "divide"},         /* backward divided into I (of inputs) and W (of weights) */
    /* parts of the stash that a run may compute again instead of keep */
    {again, NULL},
    {costs, NULL},   /* parameters, bytes, operations of each stage */
    {lengths, NULL}, /* --bind NAME=LEAST..MOST: the same with other lengths */
    {output, NULL},  /* stages lowered, fused, laid out, printed; the folder */
    {summary, NULL},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static void verify(const State *s)
{
    graph_verify(s->graph);
    if (s->pipe)
        pipe_verify(s->pipe);
    if (s->pipe && s->pipe->whole) {
        graph_verify(s->pipe->whole->graph);
        pipe_verify(s->pipe->whole);
    }
}

static void dump(const State *s, const char *pass)
{
    printf("# after %s\n", pass);
    if (s->pipe)
        pipe_dump(s->pipe, stdout);
    else
        graph_dump(s->graph, stdout);
    if (s->pipe && s->pipe->whole) {
        printf("# after %s, of the loss over a minibatch\n", pass);
        pipe_dump(s->pipe->whole, stdout);
    }
}

static void compile(void *arg)
{
    State s = {.o = arg};
    for (int i = 0; i < N_PASSES; i++) {
        const char *name = passes[i].dump, *wanted = s.o->dump;
        passes[i].run(&s);
        if (name)
            verify(&s);
        if (name && wanted && (!strcmp(wanted, name) || !strcmp(wanted, "all")))
            dump(&s, name);
    }
}

static void list_modules(void *arg)
{
    State s = {.o = arg};
    bool divided = false;
    import(&s);
    if (s.o->parameters) {
        print_parameters(s.graph, stdout);
        return;
    }
    for (int x = 0; x < MESH_AXES; x++)
        divided |= mesh_has(&s.o->mesh, (MeshAxis)x);
    for (int i = 1; divided && passes[i].run != partition; i++)
        passes[i].run(&s);
    batch_analyse(s.graph, 0, &s.o->partition.batch, NULL);
    diag_files();
    print_ls(s.graph, divided ? s.loss.loss : NONE, stdout);
}

/* ---- plan: the compiler as planner/ asks for it ---- */

/* Members 0: of the whole. */
static const State *plan_have(const PlanReader *r, int64_t rows, const PlanMesh *m)
{
    for (uint32_t i = 0; i < r->read.n; i++) {
        const PlanRead *x = &r->read.at[i];
        if (x->whole.o->rows == rows && !memcmp(x->mesh.members, m->members, sizeof m->members) &&
            x->mesh.parts == m->parts)
            return &x->whole;
    }
    return NULL;
}

static const State *plan_keep(PlanReader *r, State s, PlanMesh m)
{
    vec_push(r->o->arena, &r->read, ((PlanRead){s, m}));
    return &r->read.at[r->read.n - 1].whole;
}

static State plan_twin(const State *from, Arena *a)
{
    State s = {.o = arena_new_of(a, Options), .graph = graph_twin(from->graph, a)};
    s.loss = from->loss;
    *s.o = *from->o;
    s.o->arena = a;
    return s;
}

/* The passes before members and cuts, with these rows; once. */
static const State *plan_whole(PlanReader *r, int64_t wanted)
{
    const PlanMesh none = {0};
    const State *have = plan_have(r, wanted, &none);
    if (have)
        return have;
    State s = {.o = arena_new_of(r->o->arena, Options)};
    *s.o = *r->o;
    s.o->rows = wanted;
    read_model(&s);
    s.graph->other = r->o->other_whole;
    rows(&s);
    loss(&s);
    autocast(&s);
    attention(&s);
    return plan_keep(r, s, none);
}

/* Then a member's, once. */
static const State *plan_member(PlanReader *r, int64_t wanted, const PlanMesh *members)
{
    const State *have = plan_have(r, wanted, members);
    if (have)
        return have;
    State s = plan_twin(plan_whole(r, wanted), r->o->arena);
    MeshOptions *m = &s.o->mesh;
    m->parts = members->parts;
    for (int x = 0; x < MESH_AXES; x++)
        if (!m->members[x])
            m->members[x] = m->chunks[x] = members->members[x];
    mesh(&s);
    return plan_keep(r, s, *members);
}

static int64_t plan_rows(void *of, PlanMesh *mesh)
{
    PlanReader *r = of;
    const State *s = plan_whole(r, r->o->rows);
    MeshOptions own = r->o->mesh;
    annotate_read(s->graph, &own);
    const bool given = r->o->mesh.members[MESH_TENSOR] || own.members[MESH_TENSOR] > 1;
    *mesh = (PlanMesh){.parts = own.parts};
    for (int x = 0; x < MESH_AXES && given; x++)
        mesh->members[x] = own.members[x] ? own.members[x] : 1;
    return s->o->rows;
}

/* A copy in this arena; mesh: NULL: of the whole. */
static State plan_read(PlanReader *r, int64_t wanted, const PlanMesh *members,
                       const SplitTexts *split, Arena *a)
{
    State s = plan_twin(members ? plan_member(r, wanted, members) : plan_whole(r, wanted), a);
    s.graph->other = r->o->other;
    if (split) {
        s.o->partition.split.n = s.o->partition.split.cap = 0;
        for (uint32_t i = 0; i < split->n; i++)
            vec_push(a, &s.o->partition.split, split->at[i]);
    }
    return s;
}

static Graph *plan_graph(void *of, int64_t wanted, const PlanMesh *members, Loss *made, Arena *a)
{
    State s = plan_read(of, wanted, members, NULL, a);
    *made = s.loss;
    return s.graph;
}

static Pipe *plan_pipe(void *of, int64_t wanted, const PlanMesh *members, const SplitTexts *split,
                       Arena *a)
{
    State s = plan_read(of, wanted, members, split, a);
    partition(&s);
    reverse_stages(s.pipe);
    stash(&s);
    divide(&s);
    again(&s);
    return s.pipe;
}

static void plan(void *arg)
{
    Options *o = arg;
    PlanOptions p = plan_options(o);
    p.model = (PlanModel){&(PlanReader){.o = o}, plan_rows, plan_graph, plan_pipe};
    plan_search(&p);
}

/* ---- annotate ---- */

static void annotate(void *arg)
{
    State s = {.o = arg};
    if (s.o->check) {
        annotate_checked(s.o);
        return;
    }
    import(&s);
    uint32_t origins = s.graph->origin.n, stages;
    rows(&s);
    loss(&s);
    autocast(&s);
    attention(&s);
    Annotations all = {.whole = s.graph};
    bool divided = divide_mesh(&s, &all.plan);
    if (!divided)
        s.graph = graph_twin(all.whole, all.whole->arena);
    const uint32_t *stage_of = pipe_stages(s.graph, &s.o->partition, &s.loss, &stages);
    annotate_stages(s.graph, stage_of, stages, origins, &all);
    uint32_t n = annotate_write(all.whole, &all, s.o->codegen.dir);
    if (s.o->quiet)
        return;
    printf("%s: %u nodes in %u stages", s.o->codegen.dir, n, stages);
    if (divided)
        printf(", tensors in %d chunks on %d members", all.plan.chunks, all.plan.members);
    putchar('\n');
}

/* --dump names a pass, or all. */
static void check_dump(const char *word)
{
    const char *names[N_PASSES + 1] = {"all"};
    uint32_t n = 1;
    for (int i = 0; i < N_PASSES; i++)
        if (passes[i].dump)
            names[n++] = passes[i].dump;
    one_of("ppsplit", "dump", word, names, n);
}

/* ---- the commands ---- */

typedef struct { Options *o; int argc; char **argv; } CommandLine;

static void read_options(void *arg)
{
    CommandLine *c = arg;
    read_command_line(c->o, c->argc, c->argv);
    read_lengths(c->o);
    if (c->o->dump)
        check_dump(c->o->dump);
}

static int compile_main(int argc, char **argv, Command command)
{
    static void (*const run[])(void *) = {compile, list_modules, plan, annotate};
    static const char *const name[] = {"ppsplit", "ppsplit ls", "ppsplit plan", "ppsplit annotate"};
    Options o = {.arena = arena_new(), .command = command};
    int code = diag_run(read_options, &(CommandLine){&o, argc, argv});
    if (code) {
        arena_free(o.arena);
        return code;
    }
    if (o.model.n == 0)
        bad_usage(name[command], "missing operand: a MODEL.onnx");
    operands_there(o.model.n, o.model.at);
    if (command == COMMAND_SPLIT && !o.codegen.dir && !o.dump)
        bad_usage("ppsplit", "missing option: -o DIR, the folder to write");
    if (o.loss.whole && !o.loss.loss)
        bad_usage("ppsplit", "--loss-over minibatch without --loss");
    if (command == COMMAND_PLAN)
        plan_check(&o);
    if (command == COMMAND_ANNOTATE)
        annotate_options(&o);
    code = diag_run(run[command], &o);
    arena_free(o.arena);
    return code;
}

static int split_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_SPLIT); }
static int ls_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_LS); }
static int plan_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_PLAN); }
static int annotate_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_ANNOTATE); }

static const struct { const char *name; int (*run)(int argc, char **argv); } commands[] = {
    {"ls", ls_main},
    {"plan", plan_main},
    {"schedule", schedule_main},
    {"report", report_main},
    {"watch", watch_main},
    {"merge", merge_main},
    {"forecast", forecast_main},
    {"annotate", annotate_main},
    {"ops", ops_main},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* Flushes stdout and turns a failed write (a full disk, a closed pipe) into exit code 3. */
static int finish(int code)
{
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ppsplit: error: standard output: %s\n", strerror(errno));
        return code ? code : EXIT_IO;
    }
    return code;
}

/* A first word that is no option and no file, and has no dot or slash as files have: a command that
 * was meant, of ours or of the program that is written. */
static void check_command(const char *word)
{
    enum { OURS = 2 + N_COMMANDS };
    const char *names[OURS + 4] = {"help", "--version"}, *near;
    static const char *const written[] = {"train", "eval", "infer", "measure"};
    bool theirs = false;
    if (word[0] == '-' || strpbrk(word, "./") || !access(word, F_OK))
        return;
    for (int i = 0; i < N_COMMANDS; i++)
        names[i + 2] = commands[i].name;
    for (int i = 0; i < 4; i++)
        names[OURS + i] = written[i];
    near = nearest_name(word, names, OURS + 4);
    for (int i = 0; i < 4; i++)
        theirs |= near == written[i];
    if (theirs)
        bad_usage("ppsplit",
                  "'%s' is not a command of ppsplit; the program has it: `DIR/pipeline %s'", word,
                  near);
    bad_usage("ppsplit", "'%s' is neither a file nor a command%s%s%s", word,
              near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int main(int argc, char **argv)
{
    bool one = argc > 2 && strcmp(argv[2], "help") != 0;
    char help[] = "--help", *asked[] = {argv[0], one ? argv[2] : help, help, NULL};
    if (argc > 1 && !strcmp(argv[1], "help")) {         /* help [COMMAND] */
        argc = one ? 3 : 2;
        argv = asked;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (argc > 1 && !strcmp(argv[1], commands[i].name))
            return finish(commands[i].run(argc - 1, argv + 1));
    if (argc > 1)
        check_command(argv[1]);
    return finish(split_main(argc, argv));
}

/*
 * passes.c - the passes of the compiler.  In: State, as the pass before has left it.  Out: the
 * same, a step further.  ppsplit.c has their order.
 */
#include "annotate/annotate.h"
#include "command/passes.h"

#include <string.h>

void read_model(State *s)
{
    s->graph = import_models(s->o->arena, s->o->model.n, s->o->model.at, &s->o->import);
    graph_unsort(s->graph, &s->o->partition.batch);
    graph_picked(s->graph);
    if (!s->o->settled)
        settle_lengths(s->o, s->graph);
}

static void take_sources(Options *o, const CustomOp *op)
{
    bool c = false, cu = false;
    for (uint32_t k = 0; k < op->source.n; k++) {
        const char *path = op->source.at[k], *name = base_name(path);
        bool is_cu = !strcmp(strrchr(name, '.'), ".cu"), there = false;
        for (uint32_t i = 0; i < o->codegen.source.n; i++) {
            const char *other = o->codegen.source.at[i];
            there |= !strcmp(other, path);
            if (strcmp(other, path) != 0 && !strcmp(base_name(other), name))
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

void pass_import(State *s)
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
void pass_rows(State *s)
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
    Ids root = graph_results(g, g->arena, NONE);
    for (uint32_t i = 0; i < g->trip_bound.n; i++)
        vec_push(g->arena, &root, g->trip_bound.at[i].v);
    const Ids list = graph_leading(g, g->arena, 0, &root, 1);
    graph_resize(g, wanted, &list);
    trip_bounds(g, own);
}

void pass_loss(State *s) { s->loss = loss_append(s->graph, &s->o->loss, &s->o->import); }

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
void pass_autocast(State *s)
{
    if (s->o->dtype != DT_NONE)
        check_half(s->graph, s->o->dtype);
    graph_autocast(s->graph, dtype_is_half(s->o->dtype) ? s->o->dtype : DT_NONE);
}

/* Each attention as one operation. */
void pass_attention(State *s)
{
    attention_fuse(s->graph, &s->o->partition.batch, s->loss.loss, s->loss.target);
}

/* What --stages reads of the graph as it is now. */
void find_joint(State *s)
{
    PartitionOptions *opt = &s->o->partition;
    opt->joint = opt->automatic.stages ? autodiff_joint(s->graph, opt, &s->loss) : NULL;
}

/* As memory asks for it: the cheapest plan that fits. */
static void divide(State *s, const Graph *whole, Loss loss, MeshPlans *plans)
{
    const double dearer[] = {0, .25, 1, 4, MESH_DEAREST};
    MeshOptions *opt = &s->o->mesh;
    const double least = opt->parts && opt->keep < dearer[1] ? dearer[1] : opt->keep;
    for (size_t i = 0; i < sizeof dearer / sizeof *dearer; i++) {
        Loss *l = &s->loss;
        if (dearer[i] < least && dearer[i] < MESH_DEAREST)
            continue;
        opt->keep = dearer[i];
        *l = loss;
        s->graph = graph_twin(whole, whole->arena);
        *plans = mesh_divide(s->graph, opt, &s->o->partition.batch, 3,
                             (ValueId *const[]){&l->loss, &l->loss_scale, &l->target});
        if (s->o->partition.automatic.memory)
            find_joint(s);
        if (pipe_fits(s->graph, &s->o->partition, l))
            break;
    }
}

/* Is the file as it is annotated with these options, but without --loss?  It is trained as the
 * model. */
typedef struct {
    const State *s;
    const Graph *whole;
    MeshOptions opt;
    bool is;
} Untrained;

static void divide_untrained(void *of)
{
    Untrained *u = of;
    ValueId none[] = {NONE, NONE, NONE};
    const MeshPlans plans =
        mesh_divide(graph_twin(u->whole, u->whole->arena), &u->opt, &u->s->o->partition.batch, 3,
                    (ValueId *const[]){&none[0], &none[1], &none[2]});
    u->is = annotate_follows(u->whole, &plans, false);
}

static bool is_untrained(const State *s, const Graph *whole, double keep)
{
    Untrained u = {s, whole, s->o->mesh, false};
    u.opt.keep = keep;
    u.opt.lengths = NULL;
    diag_quietly(divide_untrained, &u, NULL);
    return u.is;
}

bool divide_mesh(State *s, MeshPlans *plans)
{
    MeshOptions *opt = &s->o->mesh;
    const Graph *whole = s->graph;
    const Loss loss = s->loss;
    const bool known = annotate_read(whole, opt);
    const double keep = opt->keep;
    bool any = false;
    for (int x = 0; x < MESH_AXES; x++)
        any |= mesh_has(opt, (MeshAxis)x);
    if (known)
        divide(s, whole, loss, plans);
    if (known && (annotate_follows(whole, plans, false) ||
                  (loss.loss != NONE && is_untrained(s, whole, keep))))
        return true;
    opt->keep = keep;
    annotate_ask(whole, opt);
    if (any) {
        divide(s, whole, loss, plans);
        annotate_follows(whole, plans, true);
    }
    return any;
}

void pass_mesh(State *s)
{
    MeshPlans plans = {0};
    divide_mesh(s, &plans);
}

void pass_partition(State *s)
{
    find_joint(s);
    s->pipe = pipe_build(s->graph, &s->o->partition, &s->loss);
}

void pass_reverse(State *s)
{
    NodeId end = s->graph->node.n;
    reverse_stages(s->pipe);
    reverse_unreached(s->pipe, end, s->o->import.freeze.n > 0);
}

void pass_whole(State *s) { pipe_whole(s->pipe, s->o->rows); }

void pass_stash(State *s) { stash_minimize(s->pipe); }
void pass_divide(State *s) { divide_backward(s->pipe); }
void pass_again(State *s) { stash_again(s->pipe); }

/* What reports say of stages is of those that run. */
void pass_costs(State *s)
{
    Pipe *p = s->pipe;
    pipe_costs(p);
    if (p->whole) {
        pipe_costs(p->whole);
        p->stage.at[p->stage.n - 1].cost = p->whole->stage.at[p->stage.n - 1].cost;
    }
}

void pass_output(State *s)
{
    note_options(s->o);
    s->o->codegen.runtime = compiled_runtime(s->o->arena);
    if (!s->o->codegen.dir)
        return;
    s->o->codegen.page = report_program(s->pipe, s->o->arena);
    codegen_write(s->pipe, &s->o->codegen);
}

void pass_summary(State *s)
{
    if (s->o->quiet)
        return;
    print_summary(s->pipe, stdout);
    if (s->pipe->automatic)
        print_automatic(s->pipe->automatic, s->o->arena, stdout);
}

/*
 * pipe.c - builds the Pipe: stages as lists of nodes, what crosses the cuts, the programs of each
 * stage.
 *
 * In: the graph with its loss, the options.  Out: a Pipe whose forward fields are filled.
 * Stages are built from the last to the first: what a stage reads from earlier ones is then known
 * and is sent or computed again (copy.c), and what nothing reads in the end is left out.  At
 * the end the graph's nodes are put in the order of the stages, so creation order stays a
 * topological order.
 */
#include <stdlib.h>
#include <string.h>

#include "pipe_int.h"

/* ---- before the stages ----------------------------------------------------------------------- */

/* A model output that is an input, a parameter or a constant gets a node of its own: an Identity.
 */
static void name_outputs(Graph *g)
{
    for (uint32_t i = 0; i < g->output.n; i++) {
        ValueId from = g->output.at[i];
        if (val(g, from)->kind == V_NODE)
            continue;
        const char *name = i < g->output_name.n ? g->output_name.at[i] : NULL;
        const ValueId to = pipe_copy(g, from, name, 0);
        for (uint32_t k = i; k < g->output.n; k++)
            if (g->output.at[k] == from)
                g->output.at[k] = to;
    }
}

static const char *product_key(Arena *a, const Node *n)
{
    const Attr *t = &n->attr;
    const char *key =
        arena_printf(a, "%d %u %u %lld", (int)n->op, n->in[0], n->in[1], (long long)t->group);
    for (int i = 0; i < t->n; i++)
        key = arena_printf(a, "%s %lld %lld %lld %lld %lld", key, (long long)t->stride[i],
                           (long long)t->dilation[i], (long long)t->pad[i],
                           (long long)t->pad[t->n + i], (long long)(t->kernel ? t->kernel[i] : 0));
    return key;
}

/*
 * A product that an exporter wrote twice is computed once: torch.onnx turns x @ w + y into a Gemm
 * of its own even where x @ w exists already, and what the model keeps as a skip would be computed
 * again in a later stage.
 */
static void merge_products(Graph *g, ValueId *loss)
{
    Arena *a = arena_within(g->arena);
    StrMap seen = {.arena = a};
    ValueId *is = arena_array(a, ValueId, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        is[v] = v;
    for (NodeId n = 0; n < g->node.n; n++) {
        Node *x = &g->node.at[n];
        for (uint32_t i = 0; i < x->nin; i++)
            x->in[i] = is[x->in[i]];
        if (x->op != OP_MatMul && x->op != OP_Conv)
            continue;
        uint32_t *first = strmap_at(&seen, product_key(a, x));
        if (*first == NONE)
            *first = x->out[0];
        is[x->out[0]] = *first;
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        g->output.at[i] = is[g->output.at[i]];
    for (uint32_t i = 0; i < g->update.n; i++)
        g->update.at[i].value = is[g->update.at[i].value];
    if (*loss != NONE)
        *loss = is[*loss];
    arena_free(a);
}

/* Without a loss nothing trains: Phase is its second operand, and running statistics stay. */
static void drop_training(Graph *g)
{
    for (NodeId n = 0; n < g->node.n; n++)
        if (g->node.at[n].op == OP_Phase)
            g->node.at[n].in[0] = g->node.at[n].in[1];
    g->update.n = 0;
}

static void find_users(Build *b)
{
    const Ids root = graph_results(b->g, b->a, b->p->loss);
    b->needed = arena_array(b->a, bool, b->g->value.n + 1);
    for (uint32_t i = 0; i < root.n; i++)
        b->needed[root.at[i]] = true;
    b->users = graph_readers(b->g, b->a, graph_live(b->g, b->a, 0, &root, 1));
}

/* ---- one stage ------------------------------------------------------------------------------- */

static int by_key(const void *x, const void *y)
{
    const Placed *a = x, *b = y;
    return a->key < b->key ? -1 : a->key > b->key;
}

static int by_id(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Collects the nodes stage t must run and what they read; demands: values of earlier stages. */
static void collect(Build *b, uint32_t t, bool *read, Ids *demands)
{
    const Graph *g = b->g;
    bool *asked = arena_array(b->a, bool, b->values + 1);
    for (NodeId n = b->nodes; n-- > 0;) {
        if (b->home[n] != t)
            continue;
        const Node *x = &g->node.at[n];
        bool run = false;
        for (uint32_t i = 0; i < x->nout; i++)
            run |= b->needed[x->out[i]];
        if (!run)
            continue;
        Placed placed = {n, n};
        vec_push(b->a, &b->list[t], placed);
        for (uint32_t i = 0; i < x->nin; i++) {
            ValueId v = x->in[i];
            const Value *o = val(g, v);
            if (o->kind != V_NODE) {
                read[v] = true;
            } else if (b->home[o->node] == t) {
                b->needed[v] = true;
            } else if (!asked[v]) {
                INSIST(b->home[o->node] < t);
                asked[v] = true;
                vec_push(b->a, demands, v);
            }
        }
    }
}

static void build_stage(Build *b, uint32_t t, ValueId *local)
{
    Graph *g = b->g;
    Ids demands = {0};
    bool *read = arena_array(b->a, bool, b->values + 1);
    memset(local, 0xff, b->values * sizeof *local);
    collect(b, t, read, &demands);
    uint32_t own = b->list[t].n;
    if (demands.n > 1)
        qsort(demands.at, demands.n, sizeof *demands.at, by_id);
    recompute_decide(b, t, &demands, read, local);
    for (uint32_t k = 0; k < own; k++) {
        Node *x = &g->node.at[b->list[t].at[k].node];
        for (uint32_t i = 0; i < x->nin; i++)
            if (x->in[i] < b->values && local[x->in[i]] != NONE)
                x->in[i] = local[x->in[i]];
    }
    if (b->list[t].n > 1)
        qsort(b->list[t].at, b->list[t].n, sizeof *b->list[t].at, by_key);
}

/* Puts the nodes in the order of the stages; what no stage runs comes last. */
static void renumber(Build *b)
{
    Graph *g = b->g;
    Node *was = arena_array(b->a, Node, g->node.n + 1);
    bool *taken = arena_array(b->a, bool, g->node.n + 1);
    memcpy(was, g->node.at, g->node.n * sizeof *was);
    NodeId next = 0;
    for (uint32_t t = 0; t < b->stages; t++)
        for (uint32_t k = 0; k < b->list[t].n; k++) {
            NodeId n = b->list[t].at[k].node;
            taken[n] = true;
            g->node.at[next] = was[n];
            vec_push(b->a, &b->p->stage.at[t].nodes, next);
            next++;
        }
    for (NodeId n = 0; n < g->node.n; n++)
        if (!taken[n])
            g->node.at[next++] = was[n];
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nout; i++)
            g->value.at[g->node.at[n].out[i]].node = n;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

static StageOutput *output_of(Build *b, uint32_t t, ValueId v)
{
    Stage *s = &b->p->stage.at[t];
    uint32_t at = 0;
    while (at < s->output.n && s->output.at[at].value < v)
        at++;
    if (at == s->output.n || s->output.at[at].value != v) {
        StageOutput o = {.value = v};
        vec_push(b->a, &s->output, o);
        for (uint32_t i = s->output.n - 1; i > at; i--)
            s->output.at[i] = s->output.at[i - 1];
        s->output.at[at] = o;
    }
    return &s->output.at[at];
}

static int by_origin(const void *x, const void *y)
{
    const StageInput *a = x, *b = y;
    if (a->from != b->from) { /* model inputs (NONE) first */
        uint32_t fa = a->from + 1, fb = b->from + 1;
        return fa < fb ? -1 : 1;
    }
    return a->value < b->value ? -1 : a->value > b->value;
}

/* stage_of[v]: the stage that makes v. */
static uint32_t *makers(const Build *b)
{
    const Graph *g = b->g;
    uint32_t *stage_of = arena_none(b->a, g->value.n);
    for (uint32_t t = 0; t < b->stages; t++) {
        const Ids *l = &b->p->stage.at[t].nodes;
        for (uint32_t k = 0; k < l->n; k++)
            for (uint32_t i = 0; i < g->node.at[l->at[k]].nout; i++)
                stage_of[g->node.at[l->at[k]].out[i]] = t;
    }
    return stage_of;
}

/* Inputs of stage t, and the parameters it reads. */
static void connect_stage(Build *b, uint32_t t, const uint32_t *stage_of, uint32_t *seen,
                          Ids *params)
{
    const Graph *g = b->g;
    Stage *s = &b->p->stage.at[t];
    for (uint32_t k = 0; k < s->nodes.n; k++) {
        const Node *x = &g->node.at[s->nodes.at[k]];
        for (uint32_t i = 0; i < x->nin; i++) {
            ValueId v = x->in[i];
            const Value *o = val(g, v);
            if (seen[v] == t + 1 || o->kind == V_CONST || (o->kind == V_NODE && stage_of[v] == t))
                continue;
            seen[v] = t + 1;
            if (o->kind == V_PARAM) {
                vec_push(b->a, params, o->param);
                continue;
            }
            StageInput in = {.value = v, .from = o->kind == V_NODE ? stage_of[v] : NONE};
            INSIST(o->kind != V_NODE || in.from < t);
            vec_push(b->a, &s->input, in);
        }
    }
    if (s->input.n > 1)
        qsort(s->input.at, s->input.n, sizeof *s->input.at, by_origin);
    if (params->n > 1)
        qsort(params->at, params->n, sizeof *params->at, by_id);
}

static void connect(Build *b)
{
    const Graph *g = b->g;
    uint32_t *stage_of = makers(b), *seen = arena_array(b->a, uint32_t, g->value.n + 1);
    Ids *params = arena_array(b->a, Ids, b->stages);
    for (uint32_t t = 0; t < b->stages; t++)
        connect_stage(b, t, stage_of, seen, &params[t]);
    for (uint32_t t = 0; t < b->stages; t++)
        for (uint32_t i = 0; i < b->p->stage.at[t].input.n; i++) {
            StageInput in = b->p->stage.at[t].input.at[i];
            if (in.from != NONE)
                vec_push(b->a, &output_of(b, in.from, in.value)->to, t);
        }
    for (uint32_t i = 0; i < g->output.n; i++) {
        ValueId v = g->output.at[i];
        vec_push(b->a, &output_of(b, stage_of[v], v)->outputs, i);
    }
    if (b->training)
        (void)output_of(b, stage_of[b->p->loss], b->p->loss);
    for (uint32_t i = 0; i < g->update.n; i++) { /* a statistic and its update are one stage's */
        const StatUpdate *u = &g->update.at[i];
        for (uint32_t t = 0; t < b->stages; t++)
            for (uint32_t k = 0; k < params[t].n; k++)
                if (params[t].at[k] == u->param && stage_of[u->value] != t) {
                    diag_hint("cut so that all uses of this BatchNormalization are in one stage");
                    diag_fatal(
                        EXIT_USAGE, WHERE_FILE(g->file),
                        "running statistic '%s' would be used in stage %u and updated in stage %u",
                        g->param.at[u->param].name, t, stage_of[u->value]);
                }
    }
    params_place(b, params);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The nodes of a stage that one variant needs. */
static Ids program(const Build *b, const Stage *s, NodePhase phase, bool *read)
{
    const Graph *g = b->g;
    memset(read, 0, g->value.n * sizeof *read);
    for (uint32_t i = 0; i < s->output.n; i++)
        read[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < g->update.n && phase == TRAINING; i++)
        read[g->update.at[i].value] = true;
    return graph_makers(g, b->a, &s->nodes, phase, read, NULL);
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void add_edges(Build *b)
{
    Pipe *p = b->p;
    const Graph *g = b->g;
    for (uint32_t from = 0; from < b->stages; from++)
        for (uint32_t to = from + 1; to < b->stages; to++) {
            const Stage *s = &p->stage.at[to];
            for (uint32_t i = 0; i < s->input.n; i++)
                if (s->input.at[i].from == from) {
                    ValueId v = s->input.at[i].value;
                    Edge e = {from, to, v, EDGE_ACTIVATION, value_bytes(g, v), false};
                    vec_push(b->a, &p->edge, e);
                }
            for (uint32_t i = 0; i < s->param.n; i++)
                if (s->param.at[i].use == USE_TRANSMIT && s->param.at[i].from == from) {
                    const Param *q = &g->param.at[s->param.at[i].param];
                    Edge e = {from,
                              to,
                              q->value,
                              q->trainable ? EDGE_PARAMETER : EDGE_CONSTANT,
                              value_bytes(g, q->value),
                              false};
                    vec_push(b->a, &p->edge, e);
                }
        }
}

/* The loss over the whole minibatch is a stage of its own, behind those that the user cuts. */
static void loss_stage(Build *b, const bool *part)
{
    const Graph *g = b->g;
    bool *any = arena_array(b->a, bool, b->stages + 1);
    for (NodeId n = 0; n < g->node.n; n++) {
        if (part[n])
            b->home[n] = b->stages;
        any[b->home[n]] = true;
    }
    for (uint32_t t = 0; t < b->stages; t++)
        if (!any[t])
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "stage %u would be empty: all that is computed there belongs to the loss "
                       "over the minibatch",
                       t);
    b->stages++;
}

void pipe_prepare(Graph *g, const PartitionOptions *opt, Loss *loss, BatchNotes *notes)
{
    name_outputs(g);
    merge_products(g, &loss->loss);
    if (loss->loss == NONE)
        drop_training(g);
    loss_terms(g, opt, loss, notes);
    *notes = (BatchNotes){.target = loss->target, .loss = loss->loss};
    batch_analyse(g, 0, &opt->batch, notes);
}

static void copy_loss(Pipe *p, const Loss *l)
{
    p->loss = l->loss;
    p->loss_scale = l->loss_scale;
    p->target = l->target;
    p->scale = l->scale;
    p->loss_ignore = l->ignore;
    p->loss_classes = l->classes;
    p->loss_text = l->text;
    p->loss_why = l->why;
}

uint32_t *pipe_stages(Graph *g, const PartitionOptions *opt, const Loss *l, uint32_t *stages)
{
    Pipe *p = arena_new_of(g->arena, Pipe);
    BatchNotes notes = {0};
    Loss own = *l;
    pipe_prepare(g, opt, &own, &notes);
    p->graph = g;
    copy_loss(p, &own);
    return split_assign(p, g->arena, opt, stages);
}

bool pipe_fits(const Graph *from, const PartitionOptions *opt, const Loss *l)
{
    const CutProblem asked = auto_problem(&opt->automatic);
    BatchNotes notes = {0};
    Loss own = *l;
    if (!asked.memory)
        return true;
    Graph *g = graph_twin(from, from->arena);
    pipe_prepare(g, opt, &own, &notes);
    const SplitSearch *s = split_search(g, own.loss, opt->joint, opt, g->arena);
    return auto_solve(split_search_cuts(s), &asked, g->arena).stage_of != NULL;
}

Pipe *pipe_cut(Graph *g, const PartitionOptions *opt, const Loss *l, const BatchNotes *notes)
{
    Pipe *p = arena_new_of(g->arena, Pipe);
    Build b = {.g = g, .a = g->arena, .opt = opt, .p = p, .training = l->loss != NONE};
    p->graph = g;
    p->model_name = arena_strdup(b.a, g->file ? base_name(g->file) : "model");
    copy_loss(p, l);
    p->alone = opt ? opt->alone : NULL;
    p->loss_whole = b.training && l->whole;
    const bool *part = p->loss_whole ? loss_part(g, l, notes) : NULL;
    for (uint32_t i = 0; i < notes->uneven.n; i++)
        if (part && part[notes->uneven_at.at[i]])
            vec_push(b.a, &p->uneven_loss, notes->uneven.at[i]);
        else
            vec_push(b.a, &p->uneven, notes->uneven.at[i]);
    for (uint32_t i = 0; i < notes->mixes.n; i++)
        if (!part || !part[notes->mixes_at.at[i]])
            vec_push(b.a, &p->mixes, notes->mixes.at[i]);
    meet_choose(p, opt, notes, part);

    b.home = split_assign(p, b.a, opt, &b.stages);
    if (part)
        loss_stage(&b, part);
    b.nodes = g->node.n;
    b.values = g->value.n;
    b.list = arena_array(b.a, PlacedList, b.stages);
    find_users(&b);
    recompute_classify(&b);
    for (uint32_t t = 0; t < b.stages; t++) {
        Stage s = {.index = t};
        vec_push(b.a, &p->stage, s);
    }
    ValueId *local = arena_array(b.a, ValueId, b.values + 1);
    for (uint32_t t = b.stages; t-- > 0;)
        build_stage(&b, t, local);
    relay(&b);
    renumber(&b);
    connect(&b);
    bool *read = arena_array(b.a, bool, g->value.n + 1);
    for (uint32_t t = 0; t < b.stages; t++) {
        Stage *s = &p->stage.at[t];
        s->forward = program(&b, s, b.training ? TRAINING : INFERENCE, read);
        s->infer = program(&b, s, INFERENCE, read);
    }
    label_stages(p);
    if (p->loss_whole)
        p->stage.at[p->stage.n - 1].label = "loss";
    add_edges(&b);
    return p;
}

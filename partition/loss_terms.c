/*
 * loss_terms.c - a loss that the model itself computes (--loss output:NAME, model:FILE.onnx), so
 * that the microbatches' losses add up to the minibatch's, whatever the microbatches.
 *
 * In: the graph with its loss, and what the microbatches' values are to the minibatch's
 * (facts/batch_merge.c).  Out: of a mean over rows nothing changes, it is weighted by rows; a sum
 * is a sum.  Where a loss is divided by what the data alone decide, such as the number of targets
 * that count, each sum over rows of this kind becomes a StepTotal: an input, known of the whole
 * step before it begins, and what is computed of it is the same in all microbatches.  So numerator
 * / denominator is a sum.  Sums and means that are added are taken term by term: a mean, or what is
 * the same in all microbatches, counts by the microbatch's share of the rows.  What then is still
 * neither is no loss of several microbatches, and the reason is kept.
 */
#include <string.h>

#include "partition.h"

typedef struct {
    Graph *g;
    const PartitionOptions *opt;
    Loss *l;
    BatchNotes *notes;
    ValueId own;                    /* the model's loss, before it is scaled */
    bool *live;                     /* nodes that lead to it */
    ValueId share;                  /* the microbatch's share of the step's rows; NONE: not made */
    ValueId *part;                  /* by value, what a microbatch adds to it; NONE: not made */
    uint32_t values;                /* of the graph when `part` began */
} Terms;

static void analyse(Terms *t)
{
    Graph *g = t->g;
    *t->notes = (BatchNotes){.target = t->l->target, .loss = t->l->loss};
    batch_analyse(g, 0, &t->opt->batch, t->notes);
    t->own = g->node.at[val(g, t->l->loss)->node].in[0];
    Ids root = {0};
    vec_push(g->arena, &root, t->l->loss);
    t->live = graph_live(g, g->arena, 0, &root, 1);
}

static Fate fate_of(const Terms *t, ValueId v)
{
    return val(t->g, v)->kind == V_NODE ? t->notes->fate[v] : (Fate){.kind = FATE_FIXED};
}

/* Do microbatches have terms of it? */
static bool adds_up(Fate f)
{
    return !f.mixed && (f.kind == FATE_FIXED || f.kind == FATE_SUM || f.kind == FATE_MEAN ||
                        f.kind == FATE_TERMS);
}

/* ---- totals ---------------------------------------------------------------------------------- */

/* What a value is made of: something that trains or is drawn, constants alone, or data. */
typedef enum { OF_OTHERS, OF_CONSTANTS, OF_DATA } Made;

static Made made_by(const Node *n, const Made *of)
{
    Made made = OF_CONSTANTS;
    bool own = n->op == OP_Phase || n->op == OP_Conv || n->op == OP_ConvTranspose;
    if (n->op == OP_Count)          /* it reads no element */
        return OF_DATA;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (of[n->in[i]] == OF_OTHERS)
            return OF_OTHERS;
        made = of[n->in[i]] == OF_DATA ? OF_DATA : made;
    }
    return own || !op_is_pure(n->op) ? OF_OTHERS : made;
}

static Made *made_of(const Terms *t)
{
    const Graph *g = t->g;
    Made *of = arena_array(g->arena, Made, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        of[v] = val(g, v)->kind == V_CONST ? OF_CONSTANTS : OF_OTHERS;
    for (uint32_t i = 0; i < g->input.n; i++)
        of[g->input.at[i]] = g->input.at[i] == t->l->loss_scale ? OF_OTHERS : OF_DATA;
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nout; i++)
            of[g->node.at[n].out[i]] = made_by(&g->node.at[n], of);
    return of;
}

/* Does it make of rows, of the data alone, what adds up over them? */
static bool is_total(const Terms *t, NodeId id, const Made *of)
{
    const Node *n = &t->g->node.at[id];
    ValueId v = n->out[0];
    Fate f = t->notes->fate[v];
    Dtype type = val(t->g, v)->dtype;
    bool begins = n->op == OP_Count;
    for (uint32_t i = 0; i < n->nin; i++)
        begins |= val(t->g, n->in[i])->batch >= 0;
    return begins && of[v] == OF_DATA && val(t->g, v)->batch < 0 && !f.mixed &&
           (f.kind == FATE_SUM || f.kind == FATE_MEAN || f.kind == FATE_COUNT) &&
           (type == DT_F32 || type == DT_F64 || type == DT_I32 || type == DT_I64);
}

static ValueId add_total(Graph *g, ValueId v, bool mean, int level)
{
    const char *name = g->total.n ? arena_printf(g->arena, "total.%u", g->total.n) : "total";
    Shape s = val(g, v)->shape;
    Dtype type = val(g, v)->dtype;
    StepTotal t = {.value = v, .mean = mean, .level = level};
    t.input = graph_input(g, strmap_get(&g->by_name, name) == NONE ? name : NULL, type, &s);
    vec_push(g->arena, &g->total, t);
    return t.input;
}

/* The loss reads the totals instead; says whether there were some. */
static bool take_totals(Terms *t, int level)
{
    Graph *g = t->g;
    uint32_t before = g->total.n;
    const Made *of = made_of(t);
    ValueId *instead = arena_array(g->arena, ValueId, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        instead[v] = v;
    for (NodeId id = 0; id < g->node.n; id++) {
        Node *n = &g->node.at[id];
        for (uint32_t i = 0; i < n->nin && t->live[id]; i++)
            n->in[i] = instead[n->in[i]];
        if (t->live[id] && is_total(t, id, of))
            instead[n->out[0]] =
                add_total(g, n->out[0], t->notes->fate[n->out[0]].kind == FATE_MEAN, level);
    }
    return g->total.n > before;
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* How many rows the microbatch has of the step's. */
static ValueId share_of(Terms *t, Dtype type)
{
    Graph *g = t->g;
    for (uint32_t i = 0; i < g->input.n && t->share == NONE; i++) {
        const Value *x = val(g, g->input.at[i]);
        if (x->batch < 0)
            continue;
        const int64_t axis = x->batch;
        Attr attr = {.n = 1, .axes = &axis, .to = dtype_sum(type)};
        ValueId rows = graph_node(g, OP_Count, 1, &g->input.at[i], attr);
        t->share = g_div(g, rows, add_total(g, rows, false, 1));
    }
    return g_cast(g, t->share, type);
}

/* What a microbatch adds to the minibatch's v. */
static ValueId part_of(Terms *t, ValueId v)
{
    Graph *g = t->g;
    Fate f = fate_of(t, v);
    if (f.kind == FATE_SUM)
        return v;
    if (t->part[v] != NONE)
        return t->part[v];
    if (f.kind != FATE_TERMS)
        return t->part[v] = g_mul(g, v, share_of(t, val(g, v)->dtype));
    const Node n = g->node.at[val(g, v)->node];
    ValueId *in = arena_array(g->arena, ValueId, n.nin + 1);
    for (uint32_t i = 0; i < n.nin; i++) {
        bool factor = fate_of(t, n.in[i]).kind == FATE_FIXED && !batch_adds(n.op);
        in[i] = factor ? n.in[i] : part_of(t, n.in[i]);
    }
    return t->part[v] = graph_out(g, graph_node(g, n.op, n.nin, in, n.attr), val(g, v)->out);
}

static void give_name(Graph *g, ValueId from, ValueId to)
{
    const char *name = val(g, from)->name;
    if (name[0] == '%')             /* made up */
        return;
    g->value.at[from].name = arena_printf(g->arena, "%%%s", name);
    *strmap_at(&g->by_name, g->value.at[from].name) = from;
    *strmap_at(&g->by_name, name) = NONE;
    graph_rename(g, to, name);
}

/* The loss is the sum of its terms' parts, as the loss and as an output. */
static void take_parts(Terms *t)
{
    Graph *g = t->g;
    ValueId old = t->l->loss;
    uint32_t before = g->cur_origin;
    t->share = NONE;
    t->values = g->value.n;
    t->part = arena_none(g->arena, t->values);
    g->cur_origin = g->node.at[val(g, old)->node].origin;
    t->l->loss = g_mul(g, part_of(t, t->own), t->l->loss_scale);
    for (uint32_t i = 0; i < g->output.n; i++)
        if (g->output.at[i] < t->values && t->part[g->output.at[i]] != NONE)
            g->output.at[i] = t->part[g->output.at[i]];
    give_name(g, old, t->l->loss);
    g->cur_origin = before;
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* --merge NAME=sum|mean of the loss as an output: it is the user's word. */
static bool is_said(const Loss *l, const PartitionOptions *opt, LossScale *scale)
{
    const char *loss = strncmp(l->text, "output:", 7) == 0 ? l->text + 7 : NULL;
    bool said = false;
    for (uint32_t i = 0; loss && i < opt->batch.merge.n; i++) {
        const char *text = opt->batch.merge.at[i], *eq = strrchr(text, '=');
        if (!eq || strlen(loss) != (size_t)(eq - text) || memcmp(loss, text, strlen(loss)) != 0)
            continue;
        said = true;
        *scale = strcmp(eq, "=sum") == 0 ? LOSS_SUM : LOSS_MEAN_ROWS;
    }
    return said;
}

void loss_terms(Graph *g, const PartitionOptions *opt, Loss *l, BatchNotes *notes)
{
    enum { LEVELS = 4 };            /* totals that are made of totals */
    Terms t = {.g = g, .opt = opt, .l = l, .notes = notes};
    if (l->loss == NONE || l->whole || l->scale != LOSS_MEAN_ROWS || is_said(l, opt, &l->scale))
        return;
    analyse(&t);
    for (int level = 1; level <= LEVELS && !adds_up(fate_of(&t, t.own)); level++) {
        if (!take_totals(&t, level))
            break;
        analyse(&t);
    }
    Fate f = fate_of(&t, t.own);
    if (!adds_up(f)) {
        l->why = f.mixed ? f.mixed : f.why ? f.why : "it has a row for each sample";
        return;
    }
    if (f.kind == FATE_TERMS) {
        take_parts(&t);
        analyse(&t);
    }
    l->scale = f.kind == FATE_SUM || f.kind == FATE_TERMS ? LOSS_SUM : LOSS_MEAN_ROWS;
}

/* ---- what is said of it ---------------------------------------------------------------------- */

void loss_warn(const Pipe *p)
{
    Arena *a = p->graph->arena;
    const char *text = p->loss_text, *colon = strchr(text, ':');
    diag_note("%s", p->loss_why);
    diag_hint("--loss-over minibatch computes it once, from all rows of a step");
    if (strncmp(text, "output:", 7) == 0)
        diag_hint("use --merge %s=mean or =sum if you want the mean (by rows) or sum of the "
                  "microbatches' losses, each computed by itself",
                  diag_escape(a, colon + 1));
    diag_warn(WHERE_FILE(p->graph->file),
              "the loss of a step does not follow from those of its microbatches, because it is "
              "not made of sums and means over rows: only a single microbatch trains");
}

/*
 * reverse.c - reverse-mode differentiation of the Pipe.  In: every stage's forward list and the
 * loss.  Out: per stage the backward list, the gradients of its inputs and parameters, and those it
 * receives.
 *
 * Stages are visited from the last to the first and the nodes of each in reverse order, one VJP
 * rule a node. Gradients have the same bits whatever the cut because of the order of additions
 * here: the contributions to a value's gradient are added one after the other, in reverse graph
 * order of its uses, whether a use stands in the same stage or in a later one.  So a consumer stage
 * may add its own contributions only when no stage after it contributes; otherwise it sends them
 * one by one.  (partition/relay.c has each stage read such a value from the one before it that
 * does, as a copy: then none but that one is after it.)
 *
 * A parameter's gradient is the sum over its uses of what each use adds up over the microbatches. A
 * use is a node that reads the parameter, or what is made of parameters and constants alone (views,
 * casts, functions of them, and what members exchange of them: partition copies those into each
 * stage that reads them).  So through such nodes each use goes back by itself: the rule is applied
 * once for each of them.
 *
 * Where chunks of members read a parameter that all of them have (Vary), each chunk's part of a use
 * goes back by itself too, and is added up over the microbatches as a use is.
 * The parts are added over the chunks once a step: no member sends a gradient for a microbatch, and
 * the bits depend neither on the number of members nor on the cut.  Where each member keeps a part
 * of the parameter, they add up and divide what the chunks of all of them make of a use for a
 * microbatch.
 */
#include <string.h>

#include "autodiff/vjp/vjp.h"

typedef struct {
    Graph *g;
    /* values of the forward: those below n have the arrays' entries */
    ValueId n;
    /* depends on something trainable, through differentiable operations */
    bool *active;
    /* contributions to a value's gradient so far, within this stage */
    Ids *part;
    uint32_t *from;                 /* of a value's last one: the file's node, 0: none */
    /* made of parameters and constants alone: for each contribution the part of a use that it comes
     * from: use * parts, plus step[x] * (1 + k) where it is piece k's of a member's chunks along
     * axis x */
    const bool *of_params;
    const uint8_t *divided; /* by value, bit x: ... and of one that is divided along axis x */
    Ids *use;
    uint32_t parts, step[MESH_AXES];
    Uses *uses;                     /* of the stage */
    uint32_t at;                    /* the node's place in the list walked: its number as a use */
    Ids *sent;                      /* contributions received from the stages after it */
    uint32_t *names;                /* of a value's gradient: the first number not yet tried */
    Ids out;                        /* the values this stage sends */
} Walk;

static Walk walk_new(Graph *g)
{
    Walk w = {.g = g, .n = g->value.n, .parts = 1};
    for (int x = 0; x < MESH_AXES; x++) {
        w.step[x] = w.parts;
        w.parts *= (uint32_t)graph_pieces(g, (MeshAxis)x) + 1;
    }
    w.active = arena_array(g->arena, bool, w.n + 1);
    w.part = arena_array(g->arena, Ids, w.n + 1);
    w.from = arena_array(g->arena, uint32_t, w.n + 1);
    w.use = arena_array(g->arena, Ids, w.n + 1);
    w.sent = arena_array(g->arena, Ids, w.n + 1);
    w.names = arena_array(g->arena, uint32_t, w.n + 1);
    return w;
}

/* Gradients get names that say whose they are; the '%' keeps them apart from the model's. */
static void name_gradient(Walk *w, ValueId d, ValueId of)
{
    Graph *g = w->g;
    bool made = val(g, d)->made;
    if (val(g, d)->kind != V_NODE || (made && strncmp(val(g, d)->name, "%grad/", 6) == 0))
        return;
    char *name = arena_printf(g->arena, "%%grad/%s", val(g, of)->name);
    for (uint32_t *k = &w->names[of]; strmap_get(&g->by_name, name) != NONE; ++*k)
        name = arena_printf(g->arena, "%%grad/%s%%%u", val(g, of)->name, *k + 2);
    graph_rename(g, d, name);
    g->value.at[d].made = made;
}

/* ((c0 + c1) + c2) + ..: flat and sequential. */
static ValueId add_up(Walk *w, const Ids *part, ValueId of)
{
    if (part->n == 0)
        return NONE;
    ValueId sum = part->at[0];
    for (uint32_t i = 1; i < part->n; i++) {
        sum = g_add(w->g, sum, part->at[i]);
        name_gradient(w, sum, of);
    }
    return sum;
}

/* A parameter in half precision, and views of it: its gradient is the parameter's, in f32.  It is
   made anew in every stage that reads it, so such a gradient crosses no cut. */
static bool is_wide(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    if (x->kind != V_NODE || !dtype_is_half(x->dtype))
        return false;
    const Node *n = &g->node.at[x->node];
    if (n->op == OP_Cast)
        return val(g, n->in[0])->kind == V_PARAM && val(g, n->in[0])->dtype == DT_F32;
    return op_is_view(n->op) && n->nin == 1 && is_wide(g, n->in[0]);
}

static bool of_params(const Walk *w, ValueId v) { return w->of_params && w->of_params[v]; }

/* use: the part of one that it comes from; NONE: the node at hand is one, if `of` is made of
 * parameters. */
static void take(Walk *w, ValueId of, ValueId d, uint32_t use)
{
    Graph *g = w->g;
    d = g_cast(g, d, is_wide(g, of) ? DT_F32 : val(g, of)->dtype);
    INSIST(of < w->n && d < g->value.n);
    if (!shape_equal(&val(g, d)->shape, &val(g, of)->shape)) {
        /* a constant scalar gradient of a larger value */
        Shape s = val(g, of)->shape;
        d = g_expand(g, d, &s);
    }
    INSIST(shape_equal(&val(g, d)->shape, &val(g, of)->shape));
    Ids *part = &w->part[of];
    ValueId both = NONE;
    /* of one node of the file, which no cut divides */
    if (part->n > 0 && !of_params(w, of) && g->cur_origin != 0 && w->from[of] == g->cur_origin)
        both = vjp_together(g, part->at[part->n - 1], d, w->n);
    name_gradient(w, both == NONE ? d : both, of);
    if (both != NONE) {
        part->at[part->n - 1] = both;
        return;
    }
    vec_push(g->arena, part, d);
    w->from[of] = g->cur_origin;
    if (of_params(w, of))
        vec_push(g->arena, &w->use[of],
                 use == NONE ? uses_number(w->uses, of, w->at) * w->parts : use);
}

/* Of which piece along an axis a part is, from 1; 0: of none */
static uint32_t piece_of(const Walk *w, uint32_t part, int x)
{
    return part % w->parts / w->step[x] % ((uint32_t)graph_pieces(w->g, (MeshAxis)x) + 1);
}

/* What one part of a use contributes to v's gradient. */
static Ids parts_of(const Walk *w, ValueId v, uint32_t use)
{
    Ids part = {0};
    for (uint32_t i = 0; i < w->use[v].n; i++)
        if (w->use[v].at[i] == use)
            vec_push(w->g->arena, &part, w->part[v].at[i]);
    return part;
}

/* The last use first, each once. */
static void add_use(const Walk *w, Ids *uses, uint32_t use)
{
    uint32_t at = 0;
    while (at < uses->n && uses->at[at] > use)
        at++;
    if (at < uses->n && uses->at[at] == use)
        return;
    vec_push(w->g->arena, uses, use);
    for (uint32_t i = uses->n - 1; i > at; i--)
        uses->at[i] = uses->at[i - 1];
    uses->at[at] = use;
}

/* One application of the node's rule; use: only to contributions of that one, NONE: to all. */
static void apply(Walk *w, NodeId id, uint32_t use)
{
    Graph *g = w->g;
    /* a copy: the array grows while rules build nodes */
    const Node node = g->node.at[id];
    bool wanted = false;
    ValueId *dy = arena_array(g->arena, ValueId, node.nout),
            *din = arena_none(g->arena, node.nin);
    bool *want = arena_array(g->arena, bool, node.nin),
         *wide = arena_array(g->arena, bool, node.nin);
    for (uint32_t i = 0; i < node.nin; i++) {
        want[i] = node.in[i] != NONE && w->active[node.in[i]];
        wide[i] = want[i] && is_wide(g, node.in[i]);
        wanted |= want[i];
    }
    if (!wanted)
        return;
    for (uint32_t i = 0; i < node.nout; i++) {
        Ids part = use == NONE ? w->part[node.out[i]] : parts_of(w, node.out[i], use);
        dy[i] = add_up(w, &part, node.out[i]);
    }
    /* elements of a parameter are added up in f32 */
    bool moves = wide[0] && (op_is_view(node.op) || op_picks(node.op));
    for (uint32_t i = 0; i < node.nout && moves; i++)
        dy[i] = dy[i] == NONE ? NONE : g_cast(g, dy[i], DT_F32);
    Vjp v = {.g = g,
             .node = id,
             .in = node.in,
             .out = node.out,
             .dy = dy,
             .want = want,
             .wide = wide,
             .din = din,
             .within = grad_values};
    if (!vjp_apply(&v))
        return;
    for (uint32_t i = 0; i < node.nin; i++)
        if (want[i] && din[i] != NONE)
            take(w, node.in[i], vjp_tidy(g, din[i], w->n), use);
}

/* What is made of parameters, once for each of a member's chunks: each one's part of a use. */
static void back_to_chunks(Walk *w, const Node *node)
{
    for (uint32_t k = 0; k < node->nout; k++) {
        Ids uses = {0};
        for (uint32_t i = 0; i < w->use[node->out[k]].n; i++)
            add_use(w, &uses, w->use[node->out[k]].at[i]);
        for (uint32_t i = 0; i < uses.n; i++) {
            Ids part = parts_of(w, node->out[k], uses.at[i]);
            INSIST(piece_of(w, uses.at[i], node->attr.mesh) == 0);
            take(w, node->in[0], add_up(w, &part, node->out[k]),
                 uses.at[i] + w->step[node->attr.mesh] * (1 + k));
        }
    }
}

static void back_through(Walk *w, NodeId id)
{
    const Node copy = w->g->node.at[id], *node = &copy;
    Ids uses = {0};
    bool reached = false;
    w->g->cur_origin = node->origin;
    w->g->cur_mesh = (MeshAxis)node->attr.mesh;
    if (node->op == OP_Vary && of_params(w, node->out[0]) &&
        !(w->divided[node->in[0]] >> node->attr.mesh & 1)) {
        back_to_chunks(w, node);
        return;
    }
    for (uint32_t i = 0; i < node->nout; i++) {
        reached |= w->part[node->out[i]].n > 0;
        for (uint32_t k = 0; k < w->use[node->out[i]].n; k++)
            add_use(w, &uses, w->use[node->out[i]].at[k]);
    }
    for (uint32_t k = 0; k < uses.n; k++)
        apply(w, id, uses.at[k]);
    if (reached && uses.n == 0)
        apply(w, id, NONE);
}

static void walk_back(Walk *w, const NodeId *list, uint32_t n)
{
    uint32_t origin = w->g->cur_origin;
    for (uint32_t i = n; i-- > 0;) {
        w->at = i;
        back_through(w, list[i]);
    }
    w->g->cur_origin = origin;
}

/*
 * A stage sees the values that enter it and not how others made them: while its backward is built
 * they count as inputs, so that no builder looks through a cut (a transpose of a transpose) at a
 * value that is not sent.
 */
static void set_kind(Graph *g, ValueId v, ValueKind kind)
{
    if (val(g, v)->node != NONE)
        g->value.at[v].kind = kind;
}

static void set_borders(Graph *g, const Stage *s, ValueKind kind)
{
    for (uint32_t i = 0; i < s->input.n; i++)
        set_kind(g, s->input.at[i].value, kind);
    for (uint32_t i = 0; i < s->output.n; i++)
        for (uint32_t j = 0; j < s->output.at[i].dys.n; j++)
            set_kind(g, s->output.at[i].dys.at[j], kind);
}

/* What is sent is a value of its own, made in this stage's backward: not one that came in, nor one
 * sent already. */
static ValueId own_value(Walk *w, NodeId first, ValueId d, ValueId of)
{
    const Value *v = val(w->g, d);
    bool made_here = v->kind == V_NODE && v->node >= first;
    for (uint32_t i = 0; i < w->out.n && made_here; i++)
        made_here = w->out.at[i] != d;
    if (!made_here) {
        d = g_unary(w->g, OP_Identity, d);
        name_gradient(w, d, of);
    }
    vec_push(w->g->arena, &w->out, d);
    return d;
}

/* The gradients of a stage's inputs, and what it owes the stages before it. */
static void send_back(Walk *w, Stage *s, NodeId first)
{
    Graph *g = w->g;
    w->out.n = 0;
    for (uint32_t i = 0; i < s->input.n; i++) {
        StageInput *in = &s->input.at[i];
        Ids *part = &w->part[in->value];
        in->gradient = in->from != NONE && part->n > 0;
        if (!in->gradient)
            continue;
        g->cur_origin = g->node.at[val(g, in->value)->node].origin;
        Ids sum = {0};
        /* no later stage contributes: the sum starts here */
        if (w->sent[in->value].n == 0) {
            vec_push(g->arena, &sum, add_up(w, part, in->value));
            part = &sum;
        }
        for (uint32_t j = 0; j < part->n; j++)
            vec_push(g->arena, &in->grads, own_value(w, first, part->at[j], in->value));
        for (uint32_t j = 0; j < in->grads.n; j++)
            vec_push(g->arena, &w->sent[in->value], in->grads.at[j]);
        w->part[in->value] = (Ids){0};
    }
}

enum { ALONG = 1 << MESH_AXES };

/* A use as chunks along some axes read it is one by itself: times ALONG, and these. */
static uint32_t use_of(const Walk *w, uint32_t part)
{
    uint32_t along = 0;
    for (int x = 0; x < MESH_AXES; x++)
        along |= (uint32_t)(piece_of(w, part, x) > 0) << x;
    return part / w->parts * ALONG + along;
}

/* Which of the stage's sums a part is added to; uses: the last one first. */
static uint32_t sum_of(const Walk *w, const ParamUse *u, const Ids *uses, uint32_t part)
{
    uint32_t chunk = 0, number = uses->n - 1, before = uses->n;
    for (int x = MESH_AXES; x-- > 0;)
        if (piece_of(w, part, x) > 0)
            chunk = chunk * (uint32_t)graph_pieces(w->g, (MeshAxis)x) + piece_of(w, part, x) - 1;
    while (uses->at[uses->n - 1 - number] != use_of(w, part))
        number--;
    for (uint32_t i = 0; chunk && u->partial.at[i].use != number; i++)
        before += graph_pieces_along(w->g, u->partial.at[i].along) - 1;
    return chunk ? before + chunk - 1 : number;
}

/* The contributions by use, the last use first, those of one in their order; and which of the
 * stage's sums each comes to. */
static void order_uses(Walk *w, ParamUse *u)
{
    Graph *g = w->g;
    ValueId v = g->param.at[u->param].value;
    Ids parts = {0}, uses = {0};
    for (uint32_t i = 0; i < w->use[v].n; i++) {
        add_use(w, &parts, w->use[v].at[i]);
        add_use(w, &uses, use_of(w, w->use[v].at[i]));
    }
    for (uint32_t k = uses.n; k-- > 0;)
        if (uses.at[k] % ALONG)
            vec_push(g->arena, &u->partial, ((Partial){uses.n - 1 - k, uses.at[k] % ALONG}));
    for (uint32_t k = 0; k < parts.n; k++) {
        const Ids part = parts_of(w, v, parts.at[k]);
        for (uint32_t i = 0; i < part.n; i++) {
            vec_push(g->arena, &u->grads, part.at[i]);
            vec_push(g->arena, &u->of_use, sum_of(w, u, &uses, parts.at[k]));
        }
    }
    u->uses = uses.n;
    w->part[v] = w->use[v] = (Ids){0};
}

static void stage_backward(Walk *w, Pipe *p, Stage *s)
{
    Graph *g = w->g;
    NodeId first = g->node.n;
    uint32_t origin = g->cur_origin;
    for (uint32_t i = 0; i < s->output.n; i++) {
        StageOutput *out = &s->output.at[i];
        out->dys = w->sent[out->value];
        for (uint32_t j = 0; j < out->dys.n; j++)
            vec_push(g->arena, &w->part[out->value], out->dys.at[j]);
    }
    w->uses = uses_find(g, w->of_params, s->forward.at, s->forward.n);
    set_borders(g, s, V_INPUT);
    if (s->index + 1 == p->stage.n && w->active[p->loss])
        vec_push(g->arena, &w->part[p->loss], g_scalar(g, val(g, p->loss)->dtype, 1));
    walk_back(w, s->forward.at, s->forward.n);
    send_back(w, s, first);
    const uint32_t nroot = s->input.n + s->param.n;
    Ids *root = arena_array(g->arena, Ids, nroot);
    for (uint32_t i = 0; i < s->param.n; i++)
        order_uses(w, &s->param.at[i]);
    for (uint32_t i = 0; i < nroot; i++)
        root[i] = *stage_grads(s, i);
    set_borders(g, s, V_NODE);
    uses_free(w->uses);
    s->backward = graph_leading(g, g->arena, first, root, nroot);
    g->cur_origin = origin;
}

static const uint8_t *find_divided(const Graph *g)
{
    uint8_t *divided = arena_array(g->arena, uint8_t, g->value.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        for (int x = 0; x < MESH_AXES && g->param.at[i].divided; x++)
            divided[g->param.at[i].value] |=
                (uint8_t)((g->param.at[i].box.along[x].axis >= 0) << x);
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        unsigned is = 0;
        for (uint32_t i = 0; i < n->nin; i++)
            is |= divided[n->in[i]];
        for (uint32_t o = 0; o < n->nout; o++)
            divided[n->out[o]] = (uint8_t)is;
    }
    return divided;
}

/* A loss over the whole minibatch mixes rows, but what it sends back has those of what came in. */
static const int *rows_of_loss(const Pipe *p)
{
    const Graph *g = p->graph;
    const Stage *s = &p->stage.at[p->stage.n - 1];
    if (!p->loss_whole)
        return NULL;
    int *at = arena_array(g->arena, int, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        at[v] = BATCH_NONE;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t k = 0; k < s->input.at[i].grads.n; k++)
            at[s->input.at[i].grads.at[k]] = val(g, s->input.at[i].value)->batch;
    return at;
}

/* The new values learn their batch dimension; a reason why backward cannot take fewer rows joins
 * forward's; fewer than one row there are not.  after_loss: the first node that is not of the last
 * stage's backward. */
static void find_batch(Pipe *p, ValueId first, NodeId after_loss)
{
    BatchNotes notes = {.target = NONE, .loss = NONE, .known = rows_of_loss(p)};
    batch_analyse(p->graph, first, NULL, &notes);
    for (uint32_t i = 0; i < notes.uneven.n && p->graph->batch > 1; i++)
        if (p->loss_whole && notes.uneven_at.at[i] < after_loss)
            vec_push(p->graph->arena, &p->uneven_loss, notes.uneven.at[i]);
        else
            vec_push(p->graph->arena, &p->uneven, notes.uneven.at[i]);
}

static bool has_stops(const Graph *g)
{
    for (NodeId n = 0; n < g->node.n; n++)
        if (g->node.at[n].op == OP_StopGradient ||
            (g->node.at[n].op == OP_Recurrence && has_stops(g->node.at[n].attr.recurrence->body)))
            return true;
    return false;
}

/* From here on a stopped value is a value: what follows need not know.  Bodies are those of twins
 * of the graph, too, which may not be differentiated yet. */
static void drop_stops(Graph *g)
{
    for (NodeId n = 0; n < g->node.n; n++) {
        Node *x = &g->node.at[n];
        if (x->op == OP_StopGradient)
            x->op = OP_Identity;
        if (x->op != OP_Recurrence || !has_stops(x->attr.recurrence->body))
            continue;
        Recurrence *own = arena_new_of(g->arena, Recurrence);
        *own = *x->attr.recurrence;
        Graph *body = graph_twin(own->body, g->arena);
        drop_stops(body);
        own->body = body;
        x->attr.recurrence = own;
    }
}

void reverse_stages(Pipe *p)
{
    Graph *g = p->graph;
    if (p->loss == NONE || p->stage.n == 0) {
        drop_stops(g);
        return;
    }
    NodeId first = g->node.n;
    Walk w = walk_new(g);
    w.of_params = flow_of_params(g, g->arena);
    w.divided = find_divided(g);
    flow_params(g, w.active);
    for (uint32_t s = 0; s < p->stage.n; s++)
        flow_through(g, w.active, p->stage.at[s].forward.at, p->stage.at[s].forward.n);
    NodeId after_loss = 0;
    for (uint32_t s = p->stage.n; s-- > 0;) {
        stage_backward(&w, p, &p->stage.at[s]);
        after_loss = s + 1 == p->stage.n ? g->node.n : after_loss;
    }
    drop_stops(g);
    scatter_sums(p, first);
    for (uint32_t e = 0; e < p->edge.n; e++)
        p->edge.at[e].gradient = pipe_has_gradient(p, p->edge.at[e].to, p->edge.at[e].value);
    find_batch(p, w.n, after_loss);
}

void autodiff(Pipe *p)
{
    reverse_stages(p);
    stash_minimize(p);
    divide_backward(p);
    stash_again(p);
}

Pipe *autodiff_joint(const Graph *from, const PartitionOptions *opt, const Loss *l)
{
    Pipe *p =
        pipe_build(graph_twin(from, from->arena), &(PartitionOptions){.batch = opt->batch}, l);
    reverse_stages(p);
    stash_minimize(p);
    return p;
}

void grad_values(Graph *g, const NodeId *list, uint32_t n, const Ids *y, const Ids *dy,
                 const Ids *wrt, ValueId *dwrt)
{
    Walk w = walk_new(g);
    for (uint32_t i = 0; i < wrt->n; i++)
        w.active[wrt->at[i]] = true;
    flow_through(g, w.active, list, n);
    for (uint32_t i = 0; i < y->n; i++)
        if (w.active[y->at[i]])
            vec_push(g->arena, &w.part[y->at[i]], dy->at[i]);
    walk_back(&w, list, n);
    for (uint32_t i = 0; i < wrt->n; i++)
        dwrt[i] = add_up(&w, &w.part[wrt->at[i]], wrt->at[i]);
}

void grad_nodes(Graph *g, const NodeId *list, uint32_t n, ValueId y, uint32_t nwrt,
                const ValueId *wrt, ValueId *dwrt)
{
    Ids of = {0}, one = {0}, to = {0};
    vec_push(g->arena, &of, y);
    vec_push(g->arena, &one, g_scalar(g, val(g, y)->dtype, 1));
    for (uint32_t i = 0; i < nwrt; i++)
        vec_push(g->arena, &to, wrt[i]);
    grad_values(g, list, n, &of, &one, &to, dwrt);
}

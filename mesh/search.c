/*
 * search.c - where every value of a graph lies along an axis of the mesh.
 *
 * In: the whole graph, and for each node the ways to compute it chunk by chunk (ops.def, SPREAD).
 * Out: a way for each node.  The nodes are visited in order.  What matters of the decisions so far
 * is where the values lie that are still to be read, and in which forms they have been brought
 * already: a state.  Of the states that agree in it the cheapest is kept, so the plan is the best
 * of all, unless there are more than MOST states at once; then the best of those looked at.  (The
 * dynamic program of Alpa, 2201.12023, section 4, over a graph instead of an integer program.)
 *
 * Along the axis of sequences parameters of products stay whole: rows of these are divided, and
 * what is between them with the rows; where a row meets others, in an attention, keys and values
 * are gathered, or heads divided for as long, whatever sends less.  Along that of experts these are
 * divided beside the sequences.  Convolutions are divided by channels, or by rows (rows.c).
 *
 * The price of a plan is bytes that a member sends in a step's forward and backward of a
 * microbatch, in units of (C - 1) / C of a value, and what else takes time in as many bytes as are
 * sent meanwhile by the built-in rates (ir/facts/rates.h; not by a machine's: numbers depend on the
 * plan): operations of products and of what is between them, and the parameters that a member has,
 * which it updates; and, where memory is short (MeshOptions.keep), what backward reads, in the form
 * in which it is read.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/facts/rates.h"
#include "search.h"

enum {
    TRIES = 5, /* prices of an operation: where nothing is divided the next one, DEARER times */
    DEARER = 16
};

/* ---- what is known of values ---------------------------------------------------------------- */

static void find_plain(Search *s, const bool *live)
{
    const Graph *g = s->g;
    for (ValueId v = 0; v < g->value.n; v++)
        s->about[v].plain = val(g, v)->kind == V_CONST || val(g, v)->kind == V_INPUT;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        bool plain = live[id] && op_is_pure(n->op) && !op_is_product(n->op);
        for (uint32_t i = 0; i < n->nin; i++)
            plain &= s->about[n->in[i]].plain;
        for (uint32_t i = 0; i < n->nout; i++)
            s->about[n->out[i]].plain = plain && !is_front(s, n->out[i]);
    }
}

/* What costs nothing else is kept least: a byte costs a millionth of one that is sent.  Sequences
 * are divided for the sake of what is kept. */
static void find_kept(Search *s, const bool *live)
{
    const Graph *g = s->g;
    double price = s->opt->keep > 0 ? s->opt->keep : s->axis != MESH_TENSOR ? 1 : 1e-6;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        for (uint32_t i = 0; live[id] && i < n->nin && !op_is_linear(n->op); i++) {
            About *b = &s->about[n->in[i]];
            if (s->about[n->out[0]].grad && val(g, n->in[i])->kind == V_NODE)
                b->kept = b->gather * price;
        }
    }
}

static void find_about(Search *s, const bool *live, ValueId loss)
{
    const Graph *g = s->g;
    const bool *active = flow_active(g, s->a, loss);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        About *b = &s->about[v];
        double elements = (double)shape_elements(&val(g, v)->shape);
        b->grad = active[v];
        b->once = x->kind == V_PARAM || mesh_made_again(g, s->of_params, v);
        b->slot = -1;
        b->last = x->node;
        b->gather = elements * (double)dtype_size(x->dtype);
        b->sum = elements *
                 (double)dtype_size(dtype_is_float(x->dtype) ? dtype_sum(x->dtype) : x->dtype);
    }
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t i = 0; live[id] && i < g->node.at[id].nin; i++)
            s->about[g->node.at[id].in[i]].last = id;
    for (uint32_t i = 0; i < g->update.n; i++)
        s->about[g->update.at[i].value].whole = true;
    find_plain(s, live);
    find_kept(s, live);
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* Of a parameter that is divided along another axis of the mesh: its outermost dimension, evenly.
 */
static bool divides_more(const Param *p, Place at, int chunks)
{
    bool outermost = at.groups == 1 && place_fits(&p->shape, at, chunks);
    for (int i = 0; i < at.dim; i++)
        outermost &= p->shape.d[i] == 1;
    for (int x = 0; x < MESH_AXES; x++)
        outermost &= p->box.along[x].axis < 0 || p->box.along[x].axis > at.dim;
    return outermost;
}

/* A parameter that is read for the first time: each place where it may lie. */
static void meet_param(Search *s, ValueId v)
{
    const Param *p = &s->g->param.at[val(s->g, v)->param];
    About *b = &s->about[v];
    Place said;
    bool asked = s->axis == MESH_TENSOR && mesh_asked(s->g, s->opt, val(s->g, v)->param, &said);
    Label *l = arena_array(s->a, Label, s->live.n + 1);
    uint32_t old = s->live.n;
    bool counts = s->axis != MESH_EXPERT || p->shape.rank > 2;
    if (asked && said.dim >= 0 && choices_place(b, said) < 0)
        BUG("'%s' is asked for in too many places", p->name);
    states_open(&s->next, s->a, old + 1);
    for (uint32_t i = 0; i < s->now.state.n; i++)
        for (int made = MADE_WHOLE; made < MADE_DIVIDED + b->places; made++) {
            State x = s->now.state.at[i];
            x.past = (Past){i, (uint32_t)made};
            Place at = made >= MADE_DIVIDED ? b->place[made - MADE_DIVIDED] : place_r();
            bool divided = made >= MADE_DIVIDED;
            if (made == MADE_PARTIAL || at.mirrored || (p->n_each && (!divided || at.dim)) ||
                (divided && !p->trainable && p->stat) ||
                (divided && p->divided && !divides_more(p, at, s->chunks)) ||
                (asked && !place_is(said, at)))
                continue;
            x.price += counts ? b->gather * s->updated / (divided ? s->chunks : 1) : 0;
            memcpy(l, states_labels(&s->now, i), old * sizeof *l);
            l[old] = label_of(made, 0);
            states_add(&s->next, l, x);
        }
    b->slot = (int)old;
    vec_push(s->a, &s->live, v);
    states_end(s, (Stage){.node = NONE, .param = v});
}

/* The values that labels tell of behind a node: those that are read later, then its results. */
static Ids live_after(const Search *s, NodeId id, Ids *kept)
{
    const Node *n = &s->g->node.at[id];
    Ids after = {0};
    for (uint32_t i = 0; i < s->live.n; i++)
        if (s->about[s->live.at[i]].last > id) {
            vec_push(s->a, kept, i);
            vec_push(s->a, &after, s->live.at[i]);
        }
    for (uint32_t i = 0; i < n->nout; i++)
        if (s->about[n->out[i]].last > id && !s->about[n->out[i]].plain)
            vec_push(s->a, &after, n->out[i]);
    return after;
}

static void visit(Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    const Choices list = s->ways[id];
    Ids kept = {0}, after = live_after(s, id, &kept);
    Label *l = arena_array(s->a, Label, s->live.n + 1),
          *out = arena_array(s->a, Label, after.n + 1);
    states_open(&s->next, s->a, after.n);
    for (uint32_t i = 0; i < s->now.state.n; i++)
        for (uint32_t k = 0; k < list.n; k++) {
            const Choice *c = &list.at[k];
            State x = s->now.state.at[i];
            x.past = (Past){i, k};
            x.denied += c->denied;
            x.price += c->price;
            memcpy(l, states_labels(&s->now, i), s->live.n * sizeof *l);
            if (!states_bring(s, c, l, &x.price))
                continue;
            uint32_t m = 0;
            for (; m < kept.n; m++)
                out[m] = l[kept.at[m]];
            for (uint32_t o = 0; o < n->nout; o++) {
                const About *b = &s->about[n->out[o]];
                Label made = label_of(c->made[o], 0);
                if (b->whole)
                    x.price += states_price(s, b, made, WHOLE);
                if (m < after.n && after.at[m] == n->out[o])
                    out[m++] = made;
            }
            states_add(&s->next, out, x);
        }
    s->live = after;
    for (uint32_t i = 0; i < after.n; i++)
        s->about[after.at[i]].slot = (int)i;
    states_end(s, (Stage){.node = id, .choice = list.at});
}

/* ---- the plan ------------------------------------------------------------------------------- */

const Place *mesh_made(const Graph *g, const SpreadWay *const *way, const Place *param, Arena *a)
{
    Place *made = arena_array(a, Place, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        made[v] = x->kind == V_PARAM                  ? param[x->param]
                  : x->kind == V_NODE && way[x->node] ? way[x->node]->out[x->out]
                                                      : place_r();
    }
    return made;
}

/* Back from the best state, which is the first one. */
static MeshPlan plan_of(Search *s)
{
    const Graph *g = s->g;
    const SpreadWay **way = arena_array(s->a, const SpreadWay *, g->node.n + 1);
    Place *param = arena_array(s->a, Place, g->param.n + 1);
    bool *grows = arena_array(s->a, bool, g->node.n + 1);
    uint32_t at = 0;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        grows[id] = n->nin && shape_elements(&val(g, n->in[0])->shape) <=
                                  shape_elements(&val(g, n->out[0])->shape);
    }
    for (uint32_t i = 0; i < g->param.n; i++)
        param[i] = place_r();
    for (uint32_t i = s->stage.n; i-- > 0;) {
        const Stage *t = &s->stage.at[i];
        uint32_t k = t->past[at].choice;
        if (t->node != NONE)
            way[t->node] = t->choice[k].way;
        else if (k >= MADE_DIVIDED)
            param[val(g, t->param)->param] = s->about[t->param].place[k - MADE_DIVIDED];
        at = t->past[at].from;
    }
    return (MeshPlan){.axis = s->axis,
                      .members = s->opt->members[s->axis],
                      .chunks = s->chunks,
                      .of = g,
                      .way = way,
                      .grows = grows,
                      .param = param,
                      .made = mesh_made(g, way, param, s->a),
                      .gathers_again = s->opt->keep > 0 || s->axis != MESH_TENSOR};
}

static bool reads_experts(const Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    bool is = false;
    for (uint32_t i = 0; i < n->nin; i++)
        is |= choices_experts(s, n, n->in[i]);
    return is;
}

/* Something is gained: a parameter is divided, or a product; along the axis of experts theirs. */
static bool divides(const Search *s, const MeshPlan *p)
{
    const Graph *g = s->g;
    const bool experts = s->axis == MESH_EXPERT;
    for (uint32_t i = 0; i < g->param.n && !experts; i++)
        if (p->param[i].dim >= 0)
            return true;
    for (NodeId n = 0; n < g->node.n; n++)
        if (p->way[n] && op_is_product(g->node.at[n].op) && (!experts || reads_experts(s, n)))
            return true;
    return false;
}

/* Without experts nothing is divided among them, at whatever price. */
static bool may_divide(const Search *s, const bool *live)
{
    for (NodeId n = 0; n < s->g->node.n && s->axis == MESH_EXPERT; n++)
        if (live[n] && op_is_product(s->g->node.at[n].op) && reads_experts(s, n))
            return true;
    return s->axis != MESH_EXPERT;
}

bool mesh_made_again(const Graph *g, const bool *of_params, ValueId v)
{
    const Value *x = val(g, v);
    const Node *n = x->kind == V_NODE ? &g->node.at[x->node] : NULL;
    return n && of_params[v] && n->nout == 1 && (op_is_map(n->op) || op_is_view(n->op));
}

static int by_size(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* What a collective takes beside its bytes: of a model whose products are worth dividing, an eighth
 * of what the product in the middle makes. */
static double least_price(const Graph *g, Arena *a, const bool *live)
{
    double *bytes = arena_array(a, double, g->node.n + 1);
    uint32_t n = 0;
    for (NodeId id = 0; id < g->node.n; id++)
        if (live[id] && op_is_product(g->node.at[id].op))
            bytes[n++] = (double)node_bytes(g, &g->node.at[id]);
    qsort(bytes, n, sizeof *bytes, by_size);
    return n ? bytes[n / 2] / 8 : 0;
}

/* The plan where an operation has this price. */
static MeshPlan search(Search *s, const bool *live, double work)
{
    const Graph *g = s->g;
    s->work = work;
    s->stage.n = s->live.n = 0;
    for (ValueId v = 0; v < g->value.n; v++)
        s->about[v].slot = -1;
    for (NodeId id = 0; id < g->node.n; id++)
        if (live[id])
            s->ways[id] = choices_of(s, id); /* every place that a value is asked for in is known */
    states_open(&s->now, s->a, 0);
    vec_push(s->now.a, &s->now.state, ((State){0}));
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        for (uint32_t i = 0; live[id] && i < n->nin; i++)
            if (val(g, n->in[i])->kind == V_PARAM && s->about[n->in[i]].slot < 0)
                meet_param(s, n->in[i]);
        if (live[id])
            visit(s, id);
    }
    MeshPlan p = plan_of(s);
    p.price = s->now.state.at[0].price;
    arena_free(s->now.a);
    return p;
}

SpreadOf mesh_spread(const Graph *g, Arena *a, MeshAxis axis, int chunks, const BatchNotes *notes)
{
    return (SpreadOf){.g = g,
                      .chunks = chunks,
                      .barred = rows_places(g, a, notes->outer),
                      .uneven = !g->lengths.left,
                      .mirrors = axis != MESH_TENSOR};
}

MeshPlan mesh_search(const Graph *g, Arena *a, const MeshOptions *opt, MeshAxis axis,
                     const BatchNotes *notes, const bool *front)
{
    const ValueId loss = notes->loss;
    mesh_check(g, opt);
    Search s = {.g = g,
                .a = a,
                .opt = opt,
                .axis = axis,
                .chunks = opt->chunks[axis],
                .of = mesh_spread(g, a, axis, opt->chunks[axis], notes),
                .front = front,
                .ways = arena_array(a, Choices, g->node.n + 1)};
    const bool *live = graph_needed(g, a, loss);
    if (opt->lengths) {
        s.of.others = opt->lengths->at;
        s.of.n_others = opt->lengths->n;
    }
    for (uint32_t i = opt->asked.n; i-- > 0 && axis == MESH_TENSOR;)
        *idmap_at(a, &s.asked, opt->asked.at[i].node) = i;
    s.of.known = spread_places(&s.of, a);
    s.least = least_price(g, a, live);
    s.of_params = flow_of_params(g, a);
    s.about = arena_array(a, About, g->value.n + 1);
    find_about(&s, live, loss);
    const Rates r = rates_builtin();
    double work = r.link / r.products;
    s.between = axis == MESH_TENSOR && (mesh_has(opt, MESH_SEQUENCE) || mesh_has(opt, MESH_EXPERT))
                    ? 0
                    : r.link / r.quick;
    s.updated = axis == MESH_SEQUENCE ? 0 : r.link / r.updates;
    s.of.rows = axis == MESH_TENSOR ? rows_of_images(g, a, notes, s.chunks) : NULL;
    for (int i = 0; i < TRIES && may_divide(&s, live); i++, work *= DEARER) {
        MeshPlan p = search(&s, live, work);
        if (divides(&s, &p))
            return p;
    }
    static const char *const hint[MESH_AXES] = {
        "heads, features, channels or rows of a table are divided where --chunks divides them, if "
        "it pays; leave out --tensor, or say with --shard what to divide",
        "sequences are divided where --chunks divides their places; leave out --sequence",
        "experts are divided where --chunks divides their number: matrices of one parameter, or "
        "such as differ in their parameters alone; --tensor divides each expert"};
    diag_hint("%s", hint[axis]);
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
               "%s: nothing in the model can be divided into %d chunks", mesh_option[axis],
               s.chunks);
}

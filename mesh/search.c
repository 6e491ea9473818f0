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
 * divided beside the sequences.
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
#include "mesh.h"

enum {
    MOST = 1024, /* states at once */
    PLACES = 20, /* ways to be divided that are looked at of a value */
    TRIES = 5,   /* prices of an operation: where nothing is divided the next one, DEARER times */
    DEARER = 16
};

/* The forms in which a value is read: whole; varied, which is whole for a use of each chunk, so
 * that its gradient is a sum over them; or divided as place[form - DIVIDED].  It is made whole, as
 * partial sums, or divided; which of its forms have been brought about, bits tell beside that. */
enum { WHOLE, VARIED, DIVIDED };
enum { MADE_WHOLE, MADE_PARTIAL, MADE_DIVIDED };
typedef uint32_t Label;
static Label label_of(int made, unsigned forms) { return (unsigned)made | forms << 5; }
static int label_made(Label l) { return (int)(l & 31); }
static unsigned label_forms(Label l) { return l >> 5; }

typedef struct {
    Place place[PLACES];
    int places;
    bool plain;  /* made of constants and inputs alone at little cost: whole, divided for nothing */
    bool grad;   /* a gradient comes back to it */
    bool whole;  /* it is needed whole whoever reads it */
    bool once;   /* a parameter, or what is made of one where it is read: the gradients of its uses
                    are added up once a step */
    NodeId last; /* the node that reads it last, or makes it */
    int slot;    /* of its label in a state; -1: states do not tell of it */
    double sum, gather; /* bytes of a partial sum of it, and of itself */
    double kept;        /* what it costs to keep all of it for backward */
} About;

/* Of one way to compute a node: the forms it reads, how its results are made. */
typedef struct {
    ValueId v;
    int form;
} Need;
typedef struct {
    const SpreadWay *way; /* NULL: everything whole */
    Need *need;
    int needs, *made;
    double price;
} Choice;
typedef VEC(Choice) Choices;
enum { PARTIAL = -1 }; /* Need.form: the operand as partial sums, as it is made */

/* What became of a state: of which one before, by which choice. */
typedef struct {
    uint32_t from, choice;
} Past;
typedef struct {
    NodeId node;
    ValueId param;
    const Choice *choice;
    const Past *past;
} Stage;

/* States after so many stages; they differ in their labels, of which each has `width`. */
typedef struct {
    double price;
    Past past;
} State;
typedef struct {
    Arena *a;
    VEC(State) state;
    VEC(Label) label;
    uint32_t width;
    IdMap of; /* by a hash of the labels */
} States;

typedef struct {
    const Graph *g;
    Arena *a;
    const MeshOptions *opt;
    MeshAxis axis;
    int chunks;
    SpreadOf of;
    About *about;          /* by value */
    const bool *of_params; /* by value: made of parameters and constants alone */
    const bool *front;     /* by value: divided in dimension 0; NULL: none is */
    Choices *ways;         /* by node */
    double work, between;  /* price of an operation of a product, of another one (0: its places are
                              divided along another axis) */
    double updated;        /* ... of a byte of a parameter */
    double least;          /* what a collective costs, however short */
    Ids live;              /* values that the labels of a state tell of, in their order */
    States now, next;
    VEC(Stage) stage;
} Search;

static bool is_front(const Search *s, ValueId v) { return s->front && s->front[v]; }

/* ---- what is known of values ---------------------------------------------------------------- */

/* The number of a place among those of a value; -1: there are too many. */
static int place_number(About *b, Place p)
{
    for (int i = 0; i < b->places; i++)
        if (place_is(b->place[i], p))
            return i;
    if (b->places == PLACES)
        return -1;
    b->place[b->places] = p;
    return b->places++;
}

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
    const bool *active = mesh_active(g, s->a, loss);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        About *b = &s->about[v];
        double elements = (double)shape_elements(&val(graph_sized(s->g), v)->shape);
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

/* ---- the ways to compute a node ------------------------------------------------------------- */

static double sent(const Search *s, double bytes) { return bytes > 0 ? bytes + s->least : 0; }

/* Operations of a node, forward and backward, as bytes; what members along another axis send. */
static double work(const Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    const Graph *sized = graph_sized(s->g);
    const bool grad = s->about[n->out[0]].grad;
    if (op_is_collective(n->op))
        return (double)cost_sent(sized, &sized->node.at[id]) * (grad ? 2 : 1);
    return (double)cost_flops(sized, id) * (grad ? 3 : 1) *
           (op_is_product(n->op) ? s->work : s->between);
}

/* Which form operand i is read in; false: the value has too many. */
static bool need_of(Search *s, const Node *n, uint32_t i, const SpreadWay *w, Need *need)
{
    ValueId v = n->in[i];
    Place p = w ? w->in[i] : place_r();
    int k = p.dim >= 0 ? place_number(&s->about[v], p) : 0;
    *need = (Need){v, p.dim >= 0 ? DIVIDED + k : p.dim == PLACE_P ? PARTIAL : w ? VARIED : WHOLE};
    return k >= 0 && (p.dim != PLACE_P || !s->about[v].plain);
}

static bool choice_of(Search *s, NodeId id, const SpreadWay *w, Choice *c)
{
    const Node *n = &s->g->node.at[id];
    *c = (Choice){.way = w,
                  .need = arena_array(s->a, Need, n->nin + 1),
                  .needs = (int)n->nin,
                  .made = arena_array(s->a, int, n->nout + 1),
                  .price = work(s, id) / (w ? s->chunks : 1) * (w && w->most > 0 ? w->most : 1)};
    if (w)
        c->price +=
            sent(s, 4 * w->moved) + (s->about[n->out[0]].grad ? sent(s, 4 * w->moved_back) : 0);
    for (uint32_t i = 0; i < n->nin; i++)
        if (!need_of(s, n, i, w, &c->need[i]))
            return false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Place p = w ? w->out[i] : place_r();
        int k = p.dim >= 0 ? place_number(&s->about[n->out[i]], p) : 0;
        c->made[i] = p.dim >= 0 ? MADE_DIVIDED + k : p.dim == PLACE_P ? MADE_PARTIAL : MADE_WHOLE;
        if (k < 0)
            return false;
    }
    return true;
}

/* Are the parameters that a product reads several matrices, as those of experts are? */
static bool are_experts(const Search *s, const Node *n, ValueId v)
{
    const Shape *t = &val(s->g, v)->shape;
    return (is_front(s, v) && s->of_params[v]) ||
           (n->op == OP_MatMul && s->of_params[v] && t->rank > 2 &&
            shape_elements(t) > t->d[t->rank - 2] * t->d[t->rank - 1]);
}

/* A product with a parameter divides it, or nothing: what is made of other dimensions, places of a
 * sequence, say, would leave every member the whole parameter.  Along the axis of sequences it does
 * not divide it, along that of experts the matrices of experts alone. */
static bool suits_param(const Search *s, const Node *n, ValueId v, Place at)
{
    const bool whole = at.dim == PLACE_R;
    switch (s->axis) {
    case MESH_TENSOR:
        if (mesh_has(s->opt, MESH_EXPERT) && are_experts(s, n, v) && at.dim >= 0 &&
            at.dim < val(s->g, v)->shape.rank - 2)
            return false; /* so they are divided along that axis */
        return !s->about[v].grad || !whole;
    case MESH_SEQUENCE: return whole;
    default: return are_experts(s, n, v) ? !whole && at.dim < val(s->g, v)->shape.rank - 2 : whole;
    }
}

static bool suits_params(const Search *s, NodeId id, const SpreadWay *w)
{
    const Node *n = &s->g->node.at[id];
    for (uint32_t i = 0; i < n->nin && op_is_product(n->op); i++)
        if (s->of_params[n->in[i]] && !suits_param(s, n, n->in[i], w->in[i]))
            return false;
    return true;
}

/* What has experts in front is divided there. */
static bool suits_front(const Search *s, const Node *n, const SpreadWay *w)
{
    bool suits = true;
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        const Place at = !w ? place_r() : i < n->nin ? w->in[i] : w->out[i - n->nin];
        if (is_front(s, i < n->nin ? n->in[i] : n->out[i - n->nin]))
            suits &= place_is(at, place_s(0, 1));
    }
    return suits;
}

static Choices choices_of(Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    Choices list = {0};
    SpreadWays ways = {0};
    Choice c;
    (void)choice_of(s, id, NULL, &c);
    if (suits_front(s, n, NULL))
        vec_push(s->a, &list, c);
    if (!s->about[n->out[0]].plain)
        spread_ways(&s->of, id, s->a, &ways);
    for (uint32_t i = 0; i < ways.n; i++)
        if (suits_params(s, id, &ways.at[i]) && suits_front(s, n, &ways.at[i]) &&
            choice_of(s, id, &ways.at[i], &c))
            vec_push(s->a, &list, c);
    if (!list.n)
        BUG("%s of experts is not divided", op_name(n->op));
    return list;
}

/* ---- the price of a form -------------------------------------------------------------------- */

/* Are the parts of one division those of the other after one message to each member? */
static bool is_exchange(Place from, Place to)
{
    return from.groups == 1 && to.groups == 1 && from.dim != to.dim;
}

/* What it costs to bring value b, made and brought so far as l says, into one more form: forward,
 * and where it has a gradient backward. */
static double form_price(const Search *s, const About *b, Label l, int form)
{
    int made = label_made(l);
    unsigned forms = label_forms(l);
    bool is_whole = made == MADE_WHOLE || forms & (1u << WHOLE | 1u << VARIED);
    bool same = made >= MADE_DIVIDED && made - MADE_DIVIDED == form - DIVIDED;
    if (forms >> form & 1 || (form == WHOLE && is_whole) || same)
        return 0;
    bool exchanged = !is_whole && made >= MADE_DIVIDED && form >= DIVIDED &&
                     is_exchange(b->place[made - MADE_DIVIDED], b->place[form - DIVIDED]);
    double there = is_whole               ? 0
                   : made == MADE_PARTIAL ? sent(s, form >= DIVIDED ? b->sum : b->sum + b->gather)
                                          : sent(s, exchanged ? b->gather / s->chunks : b->gather);
    double back = form == WHOLE || (form == VARIED && b->once && made == MADE_WHOLE) ? 0
                  : form == VARIED ? sent(s, made >= MADE_DIVIDED ? b->sum : b->sum + b->gather)
                                   : sent(s, exchanged ? b->gather / s->chunks : b->gather);
    bool again = s->axis != MESH_TENSOR && form < DIVIDED && made >= MADE_DIVIDED &&
                 b->kept > 0; /* MeshPlan.gathers_again */
    return there + (b->grad ? back : 0) + (again ? there : 0);
}

/* What is kept of it beside what is kept so far. */
static double kept_price(const Search *s, const About *b, Label l, int form)
{
    unsigned whole = 1u << WHOLE | 1u << VARIED, mine = form >= DIVIDED ? 1u << form : whole;
    return label_forms(l) & mine ? 0 : b->kept / (form >= DIVIDED ? s->chunks : 1);
}

/* ---- states --------------------------------------------------------------------------------- */

static Label *state_labels(const States *t, uint32_t i)
{
    return &t->label.at[(size_t)i * t->width];
}

static uint64_t labels_hash(const Label *l, uint32_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, a label at a time */
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ l[i]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The cheaper one of two states with the same labels stays. */
static void states_add(States *t, const Label *l, State x)
{
    size_t bytes = t->width * sizeof *l;
    uint64_t key = labels_hash(l, t->width);
    for (;; key++) {
        uint32_t *at = idmap_at(t->a, &t->of, key);
        if (*at == NONE) {
            *at = t->state.n;
            vec_push(t->a, &t->state, x);
            for (uint32_t i = 0; i < t->width; i++)
                vec_push(t->a, &t->label, l[i]);
            return;
        }
        if (memcmp(state_labels(t, *at), l, bytes) == 0) {
            if (x.price < t->state.at[*at].price)
                t->state.at[*at] = x;
            return;
        }
    }
}

static int by_price(const void *x, const void *y)
{
    const State *const *a = x, *const *b = y;
    if ((*a)->price != (*b)->price)
        return (*a)->price < (*b)->price ? -1 : 1;
    return (*a > *b) - (*a < *b);
}

static void states_open(States *t, Arena *outer, uint32_t width)
{
    *t = (States){.a = arena_within(outer), .width = width};
}

/* The stage is over: its states become those at hand, the cheapest first, and what is behind them
 * is noted. */
static void stage_end(Search *s, Stage stage)
{
    States *t = &s->next;
    uint32_t n = t->state.n < MOST ? t->state.n : MOST;
    const State **order = arena_array(t->a, const State *, t->state.n + 1);
    Past *past = arena_array(s->a, Past, n + 1);
    for (uint32_t i = 0; i < t->state.n; i++)
        order[i] = &t->state.at[i];
    qsort(order, t->state.n, sizeof *order, by_price);
    arena_free(s->now.a);
    states_open(&s->now, s->a, t->width);
    for (uint32_t i = 0; i < n; i++) {
        past[i] = order[i]->past;
        const Label *l = state_labels(t, (uint32_t)(order[i] - t->state.at));
        vec_push(s->now.a, &s->now.state, *order[i]);
        for (uint32_t k = 0; k < t->width; k++)
            vec_push(s->now.a, &s->now.label, l[k]);
    }
    arena_free(t->a);
    stage.past = past;
    vec_push(s->a, &s->stage, stage);
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
    if (asked && said.dim >= 0 && place_number(b, said) < 0)
        BUG("'%s' is asked for in too many places", p->name);
    states_open(&s->next, s->a, old + 1);
    for (uint32_t i = 0; i < s->now.state.n; i++)
        for (int made = MADE_WHOLE; made < MADE_DIVIDED + b->places; made++) {
            State x = {s->now.state.at[i].price, {i, (uint32_t)made}};
            Place at = made >= MADE_DIVIDED ? b->place[made - MADE_DIVIDED] : place_r();
            bool divided = made >= MADE_DIVIDED;
            if (made == MADE_PARTIAL || at.mirrored || (p->n_each && (!divided || at.dim)) ||
                (divided && !p->trainable && p->stat) ||
                (divided && p->divided && !divides_more(p, at, s->chunks)) ||
                (asked && !place_is(said, at)))
                continue;
            x.price += counts ? b->gather * s->updated / (divided ? s->chunks : 1) : 0;
            memcpy(l, state_labels(&s->now, i), old * sizeof *l);
            l[old] = label_of(made, 0);
            states_add(&s->next, l, x);
        }
    b->slot = (int)old;
    vec_push(s->a, &s->live, v);
    stage_end(s, (Stage){.node = NONE, .param = v});
}

/* What it takes to bring a state's values into the forms that a choice reads; its labels change.
 * False: it reads partial sums where there are none. */
static bool bring(const Search *s, const Choice *c, Label *l, double *price)
{
    for (int i = 0; i < c->needs; i++) {
        const About *b = &s->about[c->need[i].v];
        if (b->plain)
            continue;
        Label *at = &l[b->slot];
        if (c->need[i].form == PARTIAL) {
            if (label_made(*at) != MADE_PARTIAL)
                return false;
            continue;
        }
        *price += form_price(s, b, *at, c->need[i].form) + kept_price(s, b, *at, c->need[i].form);
        *at = label_of(label_made(*at), label_forms(*at) | 1u << c->need[i].form);
    }
    return true;
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
            State x = {s->now.state.at[i].price + c->price, {i, k}};
            memcpy(l, state_labels(&s->now, i), s->live.n * sizeof *l);
            if (!bring(s, c, l, &x.price))
                continue;
            uint32_t m = 0;
            for (; m < kept.n; m++)
                out[m] = l[kept.at[m]];
            for (uint32_t o = 0; o < n->nout; o++) {
                const About *b = &s->about[n->out[o]];
                Label made = label_of(c->made[o], 0);
                if (b->whole)
                    x.price += form_price(s, b, made, WHOLE);
                if (m < after.n && after.at[m] == n->out[o])
                    out[m++] = made;
            }
            states_add(&s->next, out, x);
        }
    s->live = after;
    for (uint32_t i = 0; i < after.n; i++)
        s->about[after.at[i]].slot = (int)i;
    stage_end(s, (Stage){.node = id, .choice = list.at});
}

/* ---- the plan ------------------------------------------------------------------------------- */

static const Place *places_made(const Search *s, const SpreadWay *const *way, const Place *param)
{
    const Graph *g = s->g;
    Place *made = arena_array(s->a, Place, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        made[v] = x->kind == V_PARAM                  ? param[x->param]
                  : x->kind == V_NODE && way[x->node] ? way[x->node]->out[x->out]
                                                      : place_r();
    }
    return made;
}

/* Back from the cheapest state, which is the first one. */
static MeshPlan plan_of(Search *s)
{
    const Graph *g = s->g;
    const SpreadWay **way = arena_array(s->a, const SpreadWay *, g->node.n + 1);
    Place *param = arena_array(s->a, Place, g->param.n + 1);
    uint32_t at = 0;
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
    return (MeshPlan){s->axis,
                      s->opt->members[s->axis],
                      s->chunks,
                      way,
                      param,
                      places_made(s, way, param),
                      s->opt->keep > 0 || s->axis != MESH_TENSOR};
}

/* Something is gained: a parameter is divided, or a product; along the axis of experts theirs. */
static bool divides(const Search *s, const MeshPlan *p)
{
    const Graph *g = s->g;
    const bool experts = s->axis == MESH_EXPERT;
    for (uint32_t i = 0; i < g->param.n && !experts; i++)
        if (p->param[i].dim >= 0)
            return true;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        if (!p->way[n] || !op_is_product(x->op))
            continue;
        bool is = !experts;
        for (uint32_t i = 0; i < x->nin; i++)
            is |= are_experts(s, x, x->in[i]);
        if (is)
            return true;
    }
    return false;
}

bool mesh_made_again(const Graph *g, const bool *of_params, ValueId v)
{
    const Value *x = val(g, v);
    const Node *n = x->kind == V_NODE ? &g->node.at[x->node] : NULL;
    return n && of_params[v] && n->nout == 1 && (op_is_map(n->op) || op_is_view(n->op));
}

/* By value, whether a gradient comes back to it. */
const bool *mesh_active(const Graph *g, Arena *a, ValueId loss)
{
    bool *active = arena_array(a, bool, g->value.n + 1);
    Ids all = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(a, &all, n);
    if (loss != NONE) {
        flow_params(g, active);
        flow_through(g, active, all.at, all.n);
    }
    return active;
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
            bytes[n++] = (double)node_bytes(graph_sized(g), &g->node.at[id]);
    qsort(bytes, n, sizeof *bytes, by_size);
    return n ? bytes[n / 2] / 8 : 0;
}

/* Where rows lie, which is divided inside them alone. */
static const Place *rows_places(const Graph *g, Arena *a, const int64_t *outer)
{
    Place *at = arena_array(a, Place, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        int batch = val(g, v)->batch;
        at[v] = batch < 0 ? place_r() : place_s(batch, outer[v] * g->batch);
    }
    return at;
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
    arena_free(s->now.a);
    return p;
}

MeshPlan mesh_search(const Graph *g, Arena *a, const MeshOptions *opt, MeshAxis axis, ValueId loss,
                     const int64_t *outer, const bool *front)
{
    mesh_check(g, opt);
    Search s = {.g = g,
                .a = a,
                .opt = opt,
                .axis = axis,
                .chunks = opt->chunks[axis],
                .of = {.g = g,
                       .chunks = opt->chunks[axis],
                       .barred = rows_places(g, a, outer),
                       .uneven = !g->varies,
                       .mirrors = axis != MESH_TENSOR},
                .front = front,
                .ways = arena_array(a, Choices, g->node.n + 1)};
    Ids root = graph_results(g, a);
    if (loss != NONE)
        vec_push(a, &root, loss);
    const bool *live = graph_live(g, a, 0, &root, 1);
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
    for (int i = 0; i < TRIES; i++, work *= DEARER) {
        MeshPlan p = search(&s, live, work);
        if (divides(&s, &p))
            return p;
    }
    static const char *const hint[MESH_AXES] = {
        "heads, features, channels or rows of a table are divided where --chunks divides them; "
        "leave out --tensor",
        "sequences are divided where --chunks divides their places; leave out --sequence",
        "experts are divided where --chunks divides their number: matrices of one parameter, or "
        "such as differ in their parameters alone; --tensor divides each expert"};
    diag_hint("%s", hint[axis]);
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
               "%s: nothing in the model can be divided into %d chunks", mesh_option[axis],
               s.chunks);
}

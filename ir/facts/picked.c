/*
 * picked.c - rows that pick their matrices.  In: a graph in which a number of each row looks up its
 * entries of parameters [E, ..], matrices among them that the row is multiplied by, as the
 * "batched_mm" of transformers computes a mixture of experts.  Out: the same with E experts: the
 * rows that pick one are packed, go through all that lies between the first lookup and what reads
 * the last one, and come back to their places (Pack, PackedMatMul and Unpack of ops.def).
 *
 * So no row has a copy of a matrix, and members can divide the experts (mesh/stack.c).  What lies
 * between must be computed of each row by itself: the rules of column SPREAD say so, for as many
 * chunks as there are rows.  Else, or where the rows of all experts would take more than the
 * copies, the graph stays as it is.
 */
#include <string.h>

#include "facts.h"
#include "spread.h"

/* What lies between is made of lookups alone, and has an entry of each row's; or of rows. */
enum { OUTSIDE, ENTRIES, ROWS };

typedef struct {
    Graph *g;
    Graph whole; /* as it was */
    Arena *a;
    const bool *of_params, *live;
    ValueId numbers; /* what the rows look up by, behind Reshapes and Casts */
    int64_t rows, experts;
    SpreadOf of;
    const SpreadWay **way; /* by node between; lookups: NULL */
    bool *between;         /* by node */
    unsigned char *kind;   /* by value */
    NodeId first, last;    /* of them */
    Ids result;            /* rows that others read, and what they are added up to */
    ValueId *sum;
    double copied, packed; /* elements for each row */
    /* of one expert: its number, its rows, whether a packed row is there; by value, what it has */
    int64_t expert;
    ValueId mask, there, *is;
    Ids made;
} Picked;

/* ---- what lies between ---------------------------------------------------------------------- */

static ValueId numbers_of(const Graph *g, ValueId v)
{
    for (const Node *n; (n = graph_maker(g, v)) != NULL; v = n->in[0])
        if (n->op != OP_Reshape &&
            (n->op != OP_Cast || dtype_is_float(n->attr.to) || n->attr.to == DT_BOOL ||
             dtype_is_float(val(g, n->in[0])->dtype)))
            break;
    return v;
}

/* Does it look up an entry of a parameter for each row? */
static bool looks_up(const Graph *g, const bool *of_params, const Node *n)
{
    const bool nd = n->op == OP_GatherND && n->attr.batch_dims == 0;
    if (!nd && (n->op != OP_Gather || n->attr.axis != 0 || n->attr.padding_row != 0))
        return false;
    const Value *index = val(g, n->in[1]);
    return of_params[n->in[0]] && !of_params[n->in[1]] && index->shape.rank == 1 + nd &&
           (!nd || index->shape.d[1] == 1);
}

static bool is_lookup(const Picked *p, const Node *n)
{
    return looks_up(p->g, p->of_params, n) && numbers_of(p->g, n->in[1]) == p->numbers &&
           val(p->g, n->in[1])->shape.d[0] == p->rows &&
           val(p->g, n->in[0])->shape.d[0] == p->experts;
}

/* Nodes on the ways from a lookup to what reads one. */
static void find_between(Picked *p)
{
    const Graph *g = p->g;
    bool *behind = arena_array(p->a, bool, g->value.n + 1),
         *before = arena_array(p->a, bool, g->value.n + 1);
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        const bool looks = is_lookup(p, n);
        p->between[id] = looks;
        for (uint32_t i = 0; i < n->nin; i++)
            p->between[id] |= behind[n->in[i]];
        for (uint32_t i = 0; i < n->nout; i++) {
            behind[n->out[i]] = p->between[id];
            before[n->out[i]] = looks;
        }
    }
    for (NodeId id = g->node.n; id-- > 0;) {
        const Node *n = &g->node.at[id];
        bool leads = false;
        for (uint32_t i = 0; i < n->nin; i++)
            leads |= before[n->in[i]] && graph_maker(g, n->in[i]) &&
                     is_lookup(p, graph_maker(g, n->in[i]));
        for (uint32_t i = 0; i < n->nout; i++)
            leads |= before[n->out[i]];
        p->between[id] &= leads;
        if (p->between[id]) {
            p->first = id;
            p->last = id > p->last ? id : p->last;
        }
        for (uint32_t i = 0; i < n->nin; i++)
            before[n->in[i]] |= leads;
    }
}

static bool suits(const Picked *p, const Node *n, const SpreadWay *w)
{
    bool suits = !w->meets;
    for (uint32_t i = 0; i < n->nin; i++) {
        const Dtype t = val(p->g, n->in[i])->dtype;
        const Place at = w->in[i];
        suits &= p->kind[n->in[i]] != OUTSIDE
                     ? place_is(at, place_s(0, 1))
                     : at.dim == PLACE_R || (at.dim >= 0 && at.groups == 1 && !at.mirrored &&
                                             (dtype_is_float(t) || t == DT_BOOL));
    }
    for (uint32_t i = 0; i < n->nout; i++)
        suits &= place_is(w->out[i], place_s(0, 1));
    return suits;
}

/* A product of rows and entries, of matrices both; at: the entries' operand. */
static bool is_product(const Picked *p, const Node *n, uint32_t *at)
{
    const Shape *x = &val(p->g, n->in[0])->shape, *y = &val(p->g, n->in[1])->shape;
    *at = p->kind[n->in[1]] == ENTRIES;
    return n->op == OP_MatMul && x->rank == 3 && y->rank == 3 && p->kind[n->in[*at]] == ENTRIES &&
           p->kind[n->in[!*at]] != ENTRIES;
}

/* Is it computed of each row by itself? */
static bool judge(Picked *p, NodeId id)
{
    const Node *n = &p->g->node.at[id];
    SpreadWays ways = {0};
    uint32_t slot = 0, at;
    while (p->kind[n->in[slot]] == OUTSIDE)
        slot++;
    spread_ways_at(&p->of, id, slot, place_s(0, 1), p->a, &ways);
    for (uint32_t i = 0; i < ways.n && !p->way[id]; i++)
        p->way[id] = suits(p, n, &ways.at[i]) ? &ways.at[i] : NULL;
    if (!p->way[id] || !op_is_pure(n->op) || op_is_collective(n->op))
        return false;
    unsigned char kind = ENTRIES;
    for (uint32_t i = 0; i < n->nin; i++)
        if (p->kind[n->in[i]] == ROWS ||
            (p->kind[n->in[i]] == OUTSIDE && p->way[id]->in[i].dim >= 0))
            kind = ROWS;
    for (uint32_t i = 0; i < n->nout; i++)
        p->kind[n->out[i]] = kind;
    if (kind == ENTRIES || !op_is_product(n->op))
        return true;
    if (!is_product(p, n, &at))
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        const Shape *s = &val(p->g, i < 2 ? n->in[i] : n->out[0])->shape;
        *(i == at ? &p->copied : &p->packed) += (double)shape_elements(s) / (double)p->rows;
    }
    return true;
}

/* A result that others read; false: they cannot, because they come before the last node. */
static bool add_result(Picked *p, ValueId v, NodeId reader)
{
    if (ids_have(&p->result, v))
        return reader > p->last;
    vec_push(p->a, &p->result, v);
    return reader > p->last && dtype_is_float(val(p->g, v)->dtype);
}

static bool find_results(Picked *p)
{
    const Graph *g = p->g;
    Ids root = graph_results(g, p->a, NONE);
    bool good = true;
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t i = 0; i < g->node.at[id].nin && p->live[id] && !p->between[id]; i++)
            if (p->kind[g->node.at[id].in[i]] == ROWS)
                good &= add_result(p, g->node.at[id].in[i], id);
    for (uint32_t i = 0; i < root.n; i++)
        if (p->kind[root.at[i]] == ROWS)
            good &= add_result(p, root.at[i], NONE);
    return good && p->result.n > 0;
}

static bool find(Picked *p)
{
    const Graph *g = p->g;
    p->between = arena_array(p->a, bool, g->node.n + 1);
    p->kind = arena_array(p->a, unsigned char, g->value.n + 1);
    p->way = arena_array(p->a, const SpreadWay *, g->node.n + 1);
    p->of = (SpreadOf){.g = g, .chunks = p->rows};
    find_between(p);
    for (NodeId id = p->first; id <= p->last; id++) {
        const Node *n = &g->node.at[id];
        if (p->between[id] && is_lookup(p, n))
            p->kind[n->out[0]] = ENTRIES;
        else if (p->between[id] && !judge(p, id))
            return false;
    }
    return p->copied > p->packed * (double)p->experts && find_results(p);
}

/* ---- an expert ------------------------------------------------------------------------------ */

static void set(Picked *p, ValueId v, ValueId is)
{
    p->is[v] = is;
    vec_push(p->a, &p->made, v);
}

static ValueId packed(Picked *p, Op op, ValueId x, int64_t axis)
{
    return graph_node(p->g, op, 2, (ValueId[]){x, p->mask}, (Attr){.axis = axis});
}

static ValueId operand(Picked *p, const Node *n, const SpreadWay *w, uint32_t i)
{
    const ValueId v = n->in[i];
    if (p->kind[v] != OUTSIDE)
        return p->is[v];
    if (w->in[i].dim != 0)
        return w->in[i].dim > 0 ? packed(p, OP_Pack, v, w->in[i].dim) : v;
    if (p->is[v] == NONE)
        set(p, v, packed(p, OP_Pack, v, 0));
    return p->is[v];
}

/* [.., n, m] as [.., m, n] */
static ValueId turned(Graph *g, ValueId x)
{
    Shape s = val(g, x)->shape;
    const int64_t n = s.d[s.rank - 2], m = s.d[s.rank - 1];
    s.d[s.rank - 2] = m;
    s.d[s.rank - 1] = n;
    return n == 1 || m == 1 ? g_reshape(g, x, &s) : g_swap_last(g, x);
}

/* Of `each` rows for one. */
static ValueId mask_of(const Picked *p, int64_t each)
{
    Graph *g = p->g;
    const ValueId line = each == 1 ? p->mask : g_reshape(g, p->mask, &(Shape){2, {p->rows, 1}});
    return each == 1 ? line
                     : g_reshape(g, g_expand(g, line, &(Shape){2, {p->rows, each}}),
                                 &(Shape){1, {p->rows * each}});
}

/* at: which of x and y has the entries; its rows are columns if that is x. */
static ValueId product(Picked *p, const Node *n, ValueId x, ValueId y, uint32_t at)
{
    Graph *g = p->g;
    const ValueId row = at ? x : turned(g, y), entry = at ? y : turned(g, x);
    const Shape r = val(g, row)->shape, e = val(g, entry)->shape;
    const ValueId in[] = {g_reshape(g, row, &(Shape){2, {r.d[0] * r.d[1], r.d[2]}}),
                          g_reshape(g, entry, &(Shape){2, {e.d[1], e.d[2]}}), mask_of(p, r.d[1])};
    const ValueId z = graph_node(g, OP_PackedMatMul, 3, in, (Attr){.to = n->attr.to}),
                  all = g_reshape(g, z, &(Shape){3, {r.d[0], r.d[1], e.d[2]}});
    return at ? all : turned(g, all);
}

static void node_of_rows(Picked *p, const Node *n, const SpreadWay *w)
{
    Graph *g = p->g;
    ValueId *in = arena_array(p->a, ValueId, n->nin + 1);
    uint32_t at;
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = operand(p, n, w, i);
    if (op_is_product(n->op)) {
        (void)is_product(p, n, &at);
        set(p, n->out[0], product(p, n, in[0], in[1], at));
        return;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        const bool entry = p->kind[n->in[i]] == ENTRIES;
        if (entry && !op_is_map(n->op))
            in[i] = g_expand(g, in[i], &val(g, n->in[i])->shape);
        else if (!entry && w->in[i].dim == 0 && op_is_singular(n->op, i) &&
                 dtype_is_float(val(g, in[i])->dtype))
            in[i] = g_only_there(g, p->there, 0, in[i], 1);
    }
    const ValueId first = graph_node(g, n->op, n->nin, in, n->attr);
    for (uint32_t i = 0; i < n->nout; i++) {
        const ValueId y = graph_out(g, first, i);
        const bool zeros = op_is_view(n->op) || n->op == OP_Slice || n->op == OP_Split ||
                           !dtype_is_float(val(g, y)->dtype);
        set(p, n->out[i], zeros ? y : g_only_there(g, p->there, 0, y, 0));
    }
}

/* What one row has of it. */
static void node_of_entries(Picked *p, NodeId id, const Node *n)
{
    ValueId *in = arena_array(p->a, ValueId, n->nin + 1),
            *out = arena_array(p->a, ValueId, n->nout + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = operand(p, n, p->way[id], i);
    Spread s = {.whole = &p->whole,
                .node = id,
                .way = p->way[id],
                .chunks = (int)p->rows,
                .g = p->g,
                .in = in,
                .out = out,
                .number = g_ints(p->g, 1, (int64_t[]){1}, (int64_t[]){0})};
    spread_node(&s);
    for (uint32_t i = 0; i < n->nout; i++)
        set(p, n->out[i], out[i]);
}

static void build_expert(Picked *p, ValueId at, bool negative)
{
    Graph *g = p->g;
    g->cur_origin = p->whole.node.at[p->first].origin;
    p->mask = g_binary(g, OP_Equal, at, g_scalar(g, DT_I64, (double)p->expert));
    if (negative)
        p->mask = g_binary(
            g, OP_Or, p->mask,
            g_binary(g, OP_Equal, at, g_scalar(g, DT_I64, (double)(p->expert - p->experts))));
    p->there = packed(p, OP_Pack, p->mask, 0);
    for (NodeId id = p->first; id <= p->last; id++) {
        const Node *n = &p->whole.node.at[id];
        if (!p->between[id])
            continue;
        g->cur_origin = n->origin;
        if (!p->way[id])
            set(p, n->out[0], g_slice_axis(g, n->in[0], 0, p->expert, 1));
        else if (p->kind[n->out[0]] == ROWS)
            node_of_rows(p, n, p->way[id]);
        else
            node_of_entries(p, id, n);
    }
    for (uint32_t i = 0; i < p->result.n; i++) {
        g->cur_origin = g->node.at[val(g, p->result.at[i])->node].origin;
        const ValueId y = packed(p, OP_Unpack, p->is[p->result.at[i]], 0);
        p->sum[i] = p->expert ? g_add(g, p->sum[i], y) : y;
    }
    for (uint32_t i = 0; i < p->made.n; i++)
        p->is[p->made.at[i]] = NONE;
    p->made.n = 0;
}

/* ---- the graph ------------------------------------------------------------------------------ */

/* Nodes from `first` on come behind the last that lies between. */
static void move_nodes(const Picked *p, NodeId first)
{
    Graph *g = p->g;
    const NodeId to = p->last + 1, n = g->node.n - first;
    Node *block = arena_array(p->a, Node, n + 1);
    memcpy(block, &g->node.at[first], n * sizeof *block);
    memmove(&g->node.at[to + n], &g->node.at[to], (first - to) * sizeof *block);
    memcpy(&g->node.at[to], block, n * sizeof *block);
    for (NodeId id = to; id < g->node.n; id++)
        for (uint32_t i = 0; i < g->node.at[id].nout; i++)
            g->value.at[g->node.at[id].out[i]].node = id;
}

/* The result is what the sum's node makes, and keeps its name; that of the node that made it is
 * read where it was between. */
static void exchange(const Picked *p, ValueId v, ValueId sum)
{
    Graph *g = p->g;
    Value *x = &g->value.at[v], *y = &g->value.at[sum];
    const Value was = *x;
    g->node.at[x->node].out[x->out] = sum;
    g->node.at[y->node].out[y->out] = v;
    x->node = y->node, x->out = y->out;
    y->node = was.node, y->out = was.out;
    for (NodeId id = 0; id <= p->last; id++)
        for (uint32_t i = 0; i < g->node.at[id].nin; i++)
            if (g->node.at[id].in[i] == v)
                g->node.at[id].in[i] = sum;
}

static void rewrite(Picked *p)
{
    Graph *g = p->g;
    const NodeId nodes = g->node.n;
    Intervals known = {.g = g, .arena = p->a};
    const bool negative = !(range_of(&known, p->numbers).lo >= 0);
    p->whole = *g;
    p->sum = arena_array(p->a, ValueId, p->result.n);
    p->is = arena_none(p->a, g->value.n + 1);
    g->cur_origin = g->node.at[p->first].origin;
    const ValueId at = g_cast(g, g_reshape(g, p->numbers, &(Shape){1, {p->rows}}), DT_I64);
    for (p->expert = 0; p->expert < p->experts; p->expert++)
        build_expert(p, at, negative);
    move_nodes(p, nodes);
    for (uint32_t i = 0; i < p->result.n; i++)
        exchange(p, p->result.at[i], p->sum[i]);
}

/* Of a product with matrices that are looked up. */
static void try(Graph *g, NodeId id, const Node *by)
{
    Arena *a = arena_within(g->arena);
    const Ids root = graph_results(g, a, NONE);
    Picked p = {
        .g = g, .a = a, .of_params = flow_of_params(g, a), .live = graph_live(g, a, 0, &root, 1)};
    if (p.live[id] && looks_up(g, p.of_params, by)) {
        p.numbers = numbers_of(g, by->in[1]);
        p.rows = val(g, by->in[1])->shape.d[0];
        p.experts = val(g, by->in[0])->shape.d[0];
        if (find(&p))
            rewrite(&p);
    }
    arena_free(a);
}

void graph_picked(Graph *g)
{
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t i = 0; i < 2 && g->node.at[id].op == OP_MatMul; i++) {
            const ValueId v = graph_behind_views(g, g->node.at[id].in[i]);
            const Node *by = graph_maker(g, v);
            if (by && (by->op == OP_Gather || by->op == OP_GatherND) && val(g, v)->shape.rank == 3)
                try(g, id, by);
        }
}

/*
 * index.c - which elements of the model's inputs choose a row of a table, and what they may be.
 *
 * In: the nodes of the forward.  Out: bounds of elements of a row of an input.  Whole numbers are
 * followed element by element from the inputs to the indices of Gather and Scatter: where they are
 * moved the evaluator moves the elements' places instead; a constant may be added, and elements
 * that equal a constant may be replaced by another (an ignored target).  What is computed in any
 * other way is not known, and nothing is said of it: what is refused for a bound is certainly
 * wrong.
 */
#include <math.h>
#include <stdlib.h>

#include "facts.h"

enum { MOST_ELEMENTS = 1 << 22 }; /* of a value that is followed */

enum { CONSTANT = -1, UNKNOWN = -2 };
typedef struct {
    int64_t of;    /* element, numbered over all inputs; or one of these */
    int64_t shift; /* it is that element + shift; CONSTANT: it is shift */
    int64_t other; /* of that element, if `replaced`: something else stands here then */
    bool replaced;
} Element;

typedef enum { NUMBER, IS, IS_NOT } Meaning; /* whether the element is equal to shift, or is not */
typedef struct {
    Element *at; /* NULL: not known */
    Meaning meaning;
} Known;

typedef struct {
    const Graph *g;
    Arena *arena;
    Known *known;   /* by value */
    int64_t *first; /* by input of the graph: number of its first element */
    int member, *by; /* as which of a rank's nodes are followed; by value: it is known of */
    IndexBounds *bounds;
} Follow;

static int64_t elements_of(const Follow *f, ValueId v)
{
    return shape_elements(&val(f->g, v)->shape);
}

static bool is_whole(Dtype t) { return t == DT_I32 || t == DT_I64; }

static bool constant(const Follow *f, ValueId v, int64_t **at)
{
    int64_t n;
    return is_whole(val(f->g, v)->dtype) && g_const_ints(f->g, v, f->arena, at, &n);
}

/* What is known of an operand; a constant's elements are themselves. */
static Known operand(Follow *f, ValueId v)
{
    int64_t *c, n = elements_of(f, v);
    if (f->known[v].at || n > MOST_ELEMENTS || !constant(f, v, &c))
        return f->known[v];
    f->known[v].at = arena_array(f->arena, Element, n);
    for (int64_t i = 0; i < n; i++)
        f->known[v].at[i] = (Element){.of = CONSTANT, .shift = c[i]};
    return f->known[v];
}

/* ---- moved ---- */

/* The numbers of a value's elements as elements, from `first` on. */
static Tensor places(Follow *f, ValueId v, int64_t first)
{
    Tensor t = {DT_I64, val(f->g, v)->shape, NULL};
    int64_t *at = arena_array(f->arena, int64_t, elements_of(f, v));
    for (int64_t k = 0; k < elements_of(f, v); k++)
        at[k] = first + k;
    t.data = at;
    return t;
}

/* A number that is put in; an unknown element where it is not whole, as -inf in a mask is not. */
static Element put_in(double value)
{
    bool whole = fabs(value) < 0x1p53 && value == floor(value);
    return whole ? (Element){.of = CONSTANT, .shift = (int64_t)value} : (Element){.of = UNKNOWN};
}

/* The first `moved` operands are moved, the others say how. */
static void move(Follow *f, const Node *n, uint32_t moved)
{
    Tensor *in = arena_array(f->arena, Tensor, n->nin),
           *out = arena_array(f->arena, Tensor, n->nout);
    Known *from = arena_array(f->arena, Known, moved);
    int64_t *begin = arena_array(f->arena, int64_t, moved + 1), *how;
    if (elements_of(f, n->out[0]) > MOST_ELEMENTS)
        return;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (i >= moved) {
            if (!constant(f, n->in[i], &how))
                return;
            in[i] = (Tensor){DT_I64, val(f->g, n->in[i])->shape, how};
            continue;
        }
        from[i] = operand(f, n->in[i]);
        if (!from[i].at || from[i].meaning != from[0].meaning)
            return;
        begin[i + 1] = begin[i] + elements_of(f, n->in[i]);
        in[i] = places(f, n->in[i], begin[i]);
    }
    Attr attr = n->attr;
    if (n->op == OP_Pad)
        attr.value = -1;
    for (uint32_t i = 0; i < n->nout; i++)
        out[i] = (Tensor){DT_I64, val(f->g, n->out[i])->shape, NULL};
    eval_node(f->arena, n->op, n->nin, in, &attr, n->nout, out);
    for (uint32_t i = 0; i < n->nout; i++) {
        int64_t count = elements_of(f, n->out[i]);
        const int64_t *place = out[i].data;
        Element *to = arena_array(f->arena, Element, count);
        for (int64_t k = 0; k < count; k++) {
            uint32_t of = 0;
            while (place[k] >= 0 && place[k] >= begin[of + 1])
                of++;
            to[k] = place[k] >= 0 ? from[of].at[place[k] - begin[of]]
                                  : put_in(n->attr.value);
        }
        f->known[n->out[i]] = (Known){to, from[0].meaning};
    }
}

/* The member's part. */
static void shard(Follow *f, const Node *n)
{
    const Shape *from = &val(f->g, n->in[0])->shape, *to = &val(f->g, n->out[0])->shape;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
    int member = f->member;
    for (int x = 0; x < n->attr.mesh; x++)
        member /= f->g->mesh[x].members;
    for (int d = 0; d < from->rank; d++)
        step[d] = 1;
    start[n->attr.axis] = member % f->g->mesh[n->attr.mesh].members * to->d[n->attr.axis];
    Node part = *n;
    part.op = OP_Slice;
    part.attr = (Attr){.n = from->rank, .start = start, .size = to->d, .step = step};
    move(f, &part, 1);
}

/* ---- computed ---- */

/* An operand as broadcast to the shape; NULL: not known. */
static const Element *spread(Follow *f, ValueId v, const Shape *to)
{
    Known k = operand(f, v);
    int64_t n = shape_elements(to);
    if (!k.at || shape_equal(&val(f->g, v)->shape, to))
        return k.at;
    const Tensor from = places(f, v, 0);
    Tensor wide = {DT_I64, *to, NULL};
    eval_node(f->arena, OP_Expand, 1, &from, &(Attr){.n = to->rank, .dims = to->d}, 1, &wide);
    Element *all = arena_array(f->arena, Element, n);
    for (int64_t i = 0; i < n; i++)
        all[i] = k.at[((const int64_t *)wide.data)[i]];
    return all;
}

static Element sum(Element x, Element y, int sign)
{
    Element s = x.of >= 0 ? x : y;
    bool known = (x.of >= 0 && y.of == CONSTANT) || (x.of == CONSTANT && y.of == CONSTANT) ||
                 (x.of == CONSTANT && y.of >= 0 && sign > 0);
    if (!known || __builtin_mul_overflow(y.shift, (int64_t)sign, &y.shift) ||
        __builtin_add_overflow(x.shift, y.shift, &s.shift))
        return (Element){.of = UNKNOWN};
    return s;
}

static Element equal(Element x, Element y)
{
    Element e = x.of >= 0 ? x : y, c = x.of >= 0 ? y : x;
    if (e.of < 0 || e.replaced || c.of != CONSTANT ||
        __builtin_sub_overflow(c.shift, e.shift, &e.shift))
        return (Element){.of = UNKNOWN};
    return e;
}

/* Where the element is test.shift `then` stands, a constant; else the element itself. */
static Element replace(Element test, Element then, Element or_else)
{
    if (test.of < 0 || then.of != CONSTANT || or_else.of != test.of || or_else.replaced)
        return (Element){.of = UNKNOWN};
    or_else.replaced = true;
    or_else.other = test.shift;
    return or_else;
}

static void compute(Follow *f, const Node *n)
{
    ValueId v = n->out[0];
    const Shape *s = &val(f->g, v)->shape;
    int64_t count = shape_elements(s);
    const Element *in[3] = {NULL};
    if (count > MOST_ELEMENTS)
        return;
    for (uint32_t i = 0; i < n->nin; i++)
        if (!(in[i] = spread(f, n->in[i], s)))
            return;
    Meaning first = f->known[n->in[0]].meaning;
    for (uint32_t i = 0; i < n->nin; i++)
        if ((f->known[n->in[i]].meaning != NUMBER) != (n->op == OP_Where && i == 0))
            return;
    Element *to = arena_array(f->arena, Element, count);
    for (int64_t i = 0; i < count; i++)
        to[i] = n->op == OP_Equal ? equal(in[0][i], in[1][i])
                : n->op == OP_Where
                    ? replace(in[0][i], in[first == IS ? 1 : 2][i], in[first == IS ? 2 : 1][i])
                    : sum(in[0][i], in[1][i], n->op == OP_Add ? 1 : -1);
    f->known[v] = (Known){to, n->op == OP_Equal ? IS : NUMBER};
}

/* ---- what is chosen ---- */

/* An element that chooses a row. */
typedef struct {
    uint32_t input;             /* of the graph's */
    int64_t element, row;       /* of its row; of the microbatch */
    int64_t shift, other, rows; /* rows of the table */
    bool replaced;
} Use;

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_kind(const Use *a, const Use *b)
{
    int64_t of[] = {a->input, a->shift, a->replaced, a->replaced ? a->other : 0, a->rows},
            to[] = {b->input, b->shift, b->replaced, b->replaced ? b->other : 0, b->rows};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i] != to[i])
            return compare(of[i], to[i]);
    return 0;
}

static int by_use(const void *x, const void *y)
{
    const Use *a = x, *b = y;
    int kind = by_kind(a, b);
    return kind                       ? kind
           : a->element != b->element ? compare(a->element, b->element)
                                      : compare(a->row, b->row);
}

/* Element number `of` of all inputs: which one of which row.  A row is what the runtime takes for
   one: all pieces of it behind one another. */
static Use find(const Follow *f, int64_t of)
{
    const Graph *g = f->g;
    uint32_t i = 0;
    while (i + 1 < g->input.n && of >= f->first[i + 1])
        i++;
    const Value *v = val(g, g->input.at[i]);
    int64_t at = of - f->first[i], rows = v->batch >= 0 ? g->batch : 1,
            inner = shape_between(&v->shape, v->batch >= 0 ? v->batch : 0, v->shape.rank);
    int64_t piece = inner / rows;
    return (Use){
        .input = i, .element = at / inner * piece + at % inner % piece, .row = at % inner / piece};
}

/* Is it used in the same way in every row of the microbatch?  What is used in some of them only is
   no bound: any row of the data may stand in any. */
static int64_t used(const Follow *f, const Use *u, int64_t left)
{
    int64_t n = 0, distinct = 0;
    for (; n < left && by_kind(u, u + n) == 0 && u[n].element == u->element; n++)
        distinct += n == 0 || u[n].row != u[n - 1].row;
    const Value *v = val(f->g, f->g->input.at[u->input]);
    return distinct == (v->batch >= 0 ? f->g->batch : 1) ? n : -n;
}

static void add(Follow *f, const Use *u, int64_t step, int64_t count, ValueId table)
{
    IndexBound b = {.input = f->g->input.at[u->input],
                    .first = u->element,
                    .step = step,
                    .count = count,
                    .least = -u->rows - u->shift,
                    .most = u->rows - 1 - u->shift,
                    .replaced = u->replaced,
                    .other = u->other,
                    .table = table,
                    .rows = u->rows};
    for (uint32_t i = 0; i < f->bounds->n; i++) {
        IndexBound *o = &f->bounds->at[i];
        if (o->input != b.input || o->step != b.step || o->replaced != b.replaced ||
            o->other != b.other)
            continue;
        const int64_t end = o->first + o->count * step;
        if (o->first <= b.first && b.first + count * step <= end &&
            (b.first - o->first) % step == 0 && o->least >= b.least && o->most <= b.most)
            return;
        /* the next chunk of a sequence */
        if (end == b.first && o->table == table && o->least == b.least && o->most == b.most) {
            o->count += count;
            return;
        }
    }
    vec_push(f->arena, f->bounds, b);
}

/* Elements that are used in the same way, as few arithmetic progressions. */
static void add_all(Follow *f, const Use *u, int64_t n, ValueId table)
{
    const Use *first = NULL;
    int64_t step = 1, count = 0;
    for (int64_t i = 0, k; i < n; i += k) {
        k = used(f, u + i, n - i);
        if (k < 0) {
            k = -k;
            continue;
        }
        int64_t next = first ? u[i].element - first->element : 0;
        if (first && by_kind(first, &u[i]) == 0 && (count == 1 || next == count * step)) {
            step = count == 1 ? next : step;
            count++;
            continue;
        }
        if (first)
            add(f, first, count == 1 ? 1 : step, count, table);
        first = &u[i];
        count = 1;
    }
    if (first)
        add(f, first, count == 1 ? 1 : step, count, table);
}

/* The parameter that a table is, perhaps rounded or turned. */
static ValueId table_of(const Graph *g, ValueId v)
{
    while (val(g, v)->kind == V_NODE) {
        const Node *n = &g->node.at[val(g, v)->node];
        if (n->op != OP_Cast && n->op != OP_Transpose && n->op != OP_Reshape &&
            n->op != OP_Identity && n->op != OP_Vary)
            break;
        v = n->in[0];
    }
    return v;
}

/* Operand 1 is numbers of rows: `depth` of them are of the dimensions `axis`, `axis` + 1, ... */
static void choose(Follow *f, const Node *n, int64_t axis, int64_t depth)
{
    Known index = f->known[n->in[1]];
    int64_t all = elements_of(f, n->in[1]), k = 0;
    if (!index.at || index.meaning != NUMBER || depth < 1)
        return;
    Arena *scratch = arena_within(f->arena);
    Use *u = arena_array(scratch, Use, all);
    for (int64_t i = 0; i < all; i++) {
        const Element *e = &index.at[i];
        if (e->of < 0)
            continue;
        u[k] = find(f, e->of);
        u[k].shift = e->shift;
        u[k].replaced = e->replaced;
        u[k].other = e->other;
        u[k++].rows = val(f->g, n->in[0])->shape.d[axis + i % depth];
    }
    qsort(u, (size_t)k, sizeof *u, by_use);
    add_all(f, u, k, table_of(f->g, n->in[0]));
    arena_free(scratch);
}

static int64_t depth_of(const Graph *g, const Node *n)
{
    const Shape *s = &val(g, n->in[1])->shape;
    return s->rank ? s->d[s->rank - 1] : 0;
}

/* ---- all of it ---- */

static void follow(Follow *f, const Node *n)
{
    if (f->known[n->out[0]].at && f->by[n->out[0]] == f->member)
        return;
    f->by[n->out[0]] = f->member;
    if (op_is_view(n->op))
        move(f, n, 1);
    switch (n->op) {
    case OP_Shard: shard(f, n); break;
    case OP_StopGradient:
    case OP_Pad: move(f, n, 1); break;
    case OP_Concat: move(f, n, n->nin); break;
    case OP_Cast:
        if (is_whole(n->attr.to) && is_whole(val(f->g, n->in[0])->dtype))
            f->known[n->out[0]] = operand(f, n->in[0]);
        break;
    case OP_Add:
    case OP_Sub:
    case OP_Equal:
    case OP_Where: compute(f, n); break;
    case OP_Not:
        f->known[n->out[0]] = f->known[n->in[0]];
        f->known[n->out[0]].meaning = f->known[n->in[0]].meaning == IS ? IS_NOT : IS;
        break;
    case OP_Gather:
    case OP_GatherElements:
        choose(f, n, n->attr.axis, 1);
        move(f, n, 1);
        break;
    case OP_GatherND:
        choose(f, n, n->attr.batch_dims, depth_of(f->g, n));
        move(f, n, 1);
        break;
    case OP_ScatterElements: choose(f, n, n->attr.axis, 1); break;
    case OP_ScatterND: choose(f, n, 0, depth_of(f->g, n)); break;
    default: break;
    }
}

IndexBounds index_bounds(const Graph *g, Arena *a, const Ids *nodes)
{
    IndexBounds bounds = {0};
    Arena *arena = arena_within(a);
    Follow f = {.g = g, .arena = arena, .bounds = &bounds};
    int64_t all = 0;
    f.known = arena_array(arena, Known, g->value.n);
    f.by = arena_array(arena, int, g->value.n);
    f.first = arena_array(arena, int64_t, g->input.n + 1);
    for (uint32_t i = 0; i < g->input.n; i++) {
        ValueId v = g->input.at[i];
        int64_t n = elements_of(&f, v);
        f.first[i] = all;
        if (!is_whole(val(g, v)->dtype) || n > MOST_ELEMENTS || graph_is_total(g, v))
            continue;
        f.known[v].at = arena_array(arena, Element, n);
        for (int64_t k = 0; k < n; k++)
            f.known[v].at[k] = (Element){.of = all + k};
        all += n;
    }
    bool divided = false;
    for (uint32_t i = 0; i < nodes->n; i++)
        divided |= g->node.at[nodes->at[i]].op == OP_Shard;
    for (; f.member < (divided ? graph_members(g) : 1); f.member++)
        for (uint32_t i = 0; i < nodes->n; i++)
            follow(&f, &g->node.at[nodes->at[i]]);
    IndexBounds kept = {0};
    for (uint32_t i = 0; i < bounds.n; i++)
        vec_push(a, &kept, bounds.at[i]);
    arena_free(arena);
    return kept;
}

/*
 * uses.c - the uses of parameters in a stage.  In: a stage's forward list.  Out: for a node that
 * reads a parameter, or what is made of parameters alone, the number of that use.
 *
 * Each use adds up its own gradient over the microbatches, in memory of its own; at the end of a
 * step the sums are added, the last one first (plan/contributions.c).  So the gradient has the same
 * bits wherever the cuts fall between the uses.  No cut divides one node of the model's file, so
 * what that has become (the turns of a recurrent layer) is one use, added up as it comes.  Uses
 * that read no element in common (the parts of a packed weight, the rows of a table of positions)
 * may share their memory, for what the others add to an element is zero: neighbours among a
 * parameter's uses that read disjoint boxes of it have one number.
 */
#include "vjp/vjp.h"

/* A value made of parameters: of several (param MANY), or of a box of one.  plain: its elements lie
 * as they do in the box. */
#define MANY (UINT32_MAX - 1)
typedef struct {
    uint32_t param;
    bool plain;
    int rank;
    int64_t lo[MAX_RANK], end[MAX_RANK];
} Box;

typedef struct { uint32_t at, origin, number; Box box; } Reader;
typedef VEC(Reader) Readers;

struct Uses {
    Graph *g;
    Arena *a;
    const bool *of_params;
    VEC(Box) box;
    uint32_t *at;                   /* by value: its box, from 1 */
    bool *apart;                    /* by parameter: values are made of it and others */
    uint32_t *first; /* by place in the list: the first of the same node of the file */
    Readers *reader;                /* by parameter, in the order of the list */
};

static Box whole(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    Box b = {.param = x->param, .plain = true, .rank = x->shape.rank};
    for (int d = 0; d < b.rank; d++)
        b.end[d] = x->shape.d[d];
    return b;
}

/* Of constants, or made in another stage of what does not train: of no parameter. */
static Box box_of(const Uses *u, ValueId v)
{
    if (v != NONE && u->of_params[v] && val(u->g, v)->kind == V_PARAM)
        return whole(u->g, v);
    return v != NONE && u->at[v] ? u->box.at[u->at[v] - 1] : (Box){.param = NONE};
}

static void stands_apart(const Uses *u, const Box *b)
{
    if (b->param != NONE && b->param != MANY)
        u->apart[b->param] = true;
}

/* The box around both. */
static Box join(const Uses *u, const Box *x, const Box *y)
{
    if (x->param == NONE || y->param == NONE)
        return x->param == NONE ? *y : *x;
    if (x->param != y->param) {
        stands_apart(u, x);
        stands_apart(u, y);
        return (Box){.param = MANY};
    }
    Box b = *x;
    b.plain = false;
    for (int d = 0; d < b.rank; d++) {
        b.lo[d] = y->lo[d] < b.lo[d] ? y->lo[d] : b.lo[d];
        b.end[d] = y->end[d] > b.end[d] ? y->end[d] : b.end[d];
    }
    return b;
}

static void slice(Box *b, const Attr *a)
{
    for (int d = 0; d < b->rank; d++) {
        int64_t first = b->lo[d] + a->start[d],
                last = first + (a->size[d] - 1) * (a->step ? a->step[d] : 1);
        b->plain &= !a->step || a->step[d] == 1;
        b->lo[d] = first < last ? first : last;
        b->end[d] = (first < last ? last : first) + 1;
    }
}

static void split(Box *b, const Attr *a, uint32_t out)
{
    for (uint32_t i = 0; i < out; i++)
        b->lo[a->axis] += a->sizes[i];
    b->end[a->axis] = b->lo[a->axis] + a->sizes[out];
}

/* Rows that constant numbers pick. */
static void gather(const Graph *g, Box *b, const Node *n)
{
    const Value *index = val(g, n->in[1]);
    int64_t extent = b->end[n->attr.axis] - b->lo[n->attr.axis], lo = extent, end = 0;
    b->plain = false;
    if (index->kind != V_CONST || !index->data)
        return;
    for (int64_t i = 0, count = shape_elements(&index->shape); i < count; i++) {
        int64_t row = element_int(index->dtype, index->data, i);
        row += row < 0 ? extent : 0;
        lo = row < lo ? row : lo;
        end = row + 1 > end ? row + 1 : end;
    }
    if (lo < 0 || lo >= end || end > extent)
        return;
    b->end[n->attr.axis] = b->lo[n->attr.axis] + end;
    b->lo[n->attr.axis] += lo;
}

static void follow(Uses *u, const Node *n)
{
    Box b = {.param = NONE};
    for (uint32_t i = 0; i < n->nin; i++) {
        Box x = box_of(u, n->in[i]);
        b = join(u, &b, &x);
    }
    bool inner = b.param != NONE && b.param != MANY && b.plain && box_of(u, n->in[0]).plain;
    for (uint32_t o = 0; o < n->nout; o++) {
        vec_push(u->a, &u->box, b);
        u->at[n->out[o]] = u->box.n;
        Box *at = &u->box.at[u->box.n - 1];
        if (inner && n->op == OP_Slice)
            slice(at, &n->attr);
        else if (inner && n->op == OP_Split)
            split(at, &n->attr, o);
        else if (inner && n->op == OP_Gather)
            gather(u->g, at, n);
        else if (n->op != OP_Identity && n->op != OP_Cast)
            at->plain = false;
    }
}

static void read_by(Uses *u, const Box *b, uint32_t at, uint32_t origin)
{
    if (b->param == NONE || b->param == MANY)
        return;
    Readers *list = &u->reader[b->param];
    Reader *last = list->n ? &list->at[list->n - 1] : NULL;
    if (last && last->at == at)
        last->box = join(u, &last->box, b);
    else
        vec_push(u->a, list, ((Reader){at, origin, u->first[at], *b}));
}

static bool disjoint(const Box *x, const Box *y)
{
    for (int d = 0; d < x->rank; d++)
        if (x->end[d] <= y->lo[d] || y->end[d] <= x->lo[d])
            return true;
    return false;
}

/* Past the nodes that one node of the file has become; 0: made by none. */
static uint32_t unit_end(const Readers *list, uint32_t i)
{
    uint32_t origin = list->at[i++].origin;
    while (origin && i < list->n && list->at[i].origin == origin)
        i++;
    return i;
}

/* Each node of the file joins those before it, unless it reads what one of them does. */
static void number(Readers *list, bool apart)
{
    uint32_t first = 0;
    for (uint32_t i = 0, end; i < list->n; i = end) {
        end = unit_end(list, i);
        bool joins = i > 0 && !apart;
        for (uint32_t j = i; j < end; j++)
            for (uint32_t k = first; k < i && joins; k++)
                joins = disjoint(&list->at[k].box, &list->at[j].box);
        first = joins ? first : i;
        for (uint32_t j = i; j < end; j++)
            list->at[j].number = list->at[first].number;
    }
}

static uint32_t *find_first(const Uses *u, const NodeId *list, uint32_t n)
{
    const Graph *g = u->g;
    uint32_t *first = arena_array(u->a, uint32_t, n + 1),
             *of_origin = arena_array(u->a, uint32_t, g->origin.n + 1);
    for (uint32_t i = n; i-- > 0;)
        if (g->node.at[list[i]].origin < g->origin.n)
            of_origin[g->node.at[list[i]].origin] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t origin = g->node.at[list[i]].origin;
        first[i] = origin && origin < g->origin.n ? of_origin[origin] : i;
    }
    return first;
}

Uses *uses_find(Graph *g, const bool *of_params, const NodeId *list, uint32_t n)
{
    Arena *a = arena_within(g->arena);
    Uses *u = arena_new_of(a, Uses);
    *u = (Uses){.g = g, .a = a, .of_params = of_params};
    u->at = arena_array(a, uint32_t, g->value.n + 1);
    u->apart = arena_array(a, bool, g->param.n + 1);
    u->reader = arena_array(a, Readers, g->param.n + 1);
    u->first = find_first(u, list, n);
    for (uint32_t i = 0; i < n; i++) {
        const Node *x = &g->node.at[list[i]];
        if (x->nout > 0 && of_params[x->out[0]]) {
            follow(u, x);
            continue;
        }
        for (uint32_t j = 0; j < x->nin; j++) {
            Box b = box_of(u, x->in[j]);
            read_by(u, &b, i, x->origin);
        }
    }
    for (uint32_t k = 0; k < g->param.n; k++)
        number(&u->reader[k], u->apart[k]);
    return u;
}

void uses_free(Uses *u) { arena_free(u->a); }

uint32_t uses_number(const Uses *u, ValueId v, uint32_t at)
{
    Box b = box_of(u, v);
    if (b.param != NONE && b.param != MANY)
        for (uint32_t i = 0; i < u->reader[b.param].n; i++)
            if (u->reader[b.param].at[i].at == at)
                return u->reader[b.param].at[i].number;
    return u->first[at];
}

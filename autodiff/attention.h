/*
 * attention.h - what the files that find attentions share: the search through a stage's lists, what
 * it has found, and what the walks ask of the graph.
 */
#ifndef PPSPLIT_ATTENTION_H
#define PPSPLIT_ATTENTION_H

#include "autodiff.h"
#include "ir/facts/mask.h"

enum { MOST_LINKS = 12, MOST_NODES = 64 };

/* A node on the way, and the operand through which it leads. */
typedef struct {
    NodeId node;
    uint32_t operand;
} Link;

typedef struct {
    const Graph *g;
    Arena *a;
    const Stage *s;
    Masks *masks;
    Ids *readers;  /* by value: nodes of the stage's lists, each once */
    bool *inside;  /* by node: in one of the stage's lists */
    uint8_t *list; /* by node: IN_FORWARD or IN_BACKWARD */
    bool *leaves;  /* by value: it is an output, a statistic, a gradient */
} Search;
enum { IN_FORWARD = 1, IN_BACKWARD = 2 };

typedef struct {
    NodeId softmax, scores, result;        /* result: the product by v */
    Link up[MOST_LINKS], down[MOST_LINKS]; /* from the softmax to either product */
    int ups, downs;
    AttentionAttr attr;
    ValueId bias, mask;
    bool trains;
    ValueId dy, dq, dk, dv;
    NodeId gone[MOST_NODES], first; /* of backward; the first of them */
    int n_gone;
} Found;

/* attention_forward.c: from a Softmax to both products; false: it is no attention's, or one that the
   operation cannot do */
bool attention_forward(const Search *x, NodeId softmax, Found *f);
/* attention_backward.c: the nodes of its gradients, if it has any; false: others than the rules' */
bool attention_backward(const Search *x, Found *f);

/* ---- reading the graph: nodes of one of the lists alone -------------------------------------- */

static inline const Node *maker(const Search *x, ValueId v)
{
    const Value *y = val(x->g, v);
    return y->kind == V_NODE && (x->list[y->node] & IN_FORWARD) ? &x->g->node.at[y->node] : NULL;
}

static inline NodeId maker_id(const Search *x, ValueId v) { return val(x->g, v)->node; }

static inline bool same_shape(const Search *x, ValueId v, ValueId w)
{
    return shape_equal(&val(x->g, v)->shape, &val(x->g, w)->shape);
}

/* The only reader of v in that list, of this kind; NONE: there is another, or none. */
static inline NodeId reader(const Search *x, ValueId v, uint8_t list, Op op)
{
    NodeId only = NONE;
    for (uint32_t i = 0; i < x->readers[v].n; i++) {
        NodeId id = x->readers[v].at[i];
        if (!(x->list[id] & list))
            continue;
        if (only != NONE)
            return NONE;
        only = id;
    }
    return only != NONE && x->g->node.at[only].op == op ? only : NONE;
}

static inline uint32_t count_readers(const Search *x, ValueId v, uint8_t list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->readers[v].n; i++)
        n += (x->list[x->readers[v].at[i]] & list) != 0;
    return n;
}

static inline NodeId reader_at(const Search *x, ValueId v, uint8_t list, uint32_t i)
{
    for (uint32_t k = 0; k < x->readers[v].n; k++)
        if ((x->list[x->readers[v].at[k]] & list) && i-- == 0)
            return x->readers[v].at[k];
    return NONE;
}

/* One number, whatever its shape. */
static inline bool number(const Search *x, ValueId v, double *d)
{
    const Value *y = val(x->g, v);
    while (y->kind == V_NODE &&
           (x->g->node.at[y->node].op == OP_Expand || x->g->node.at[y->node].op == OP_Reshape))
        y = val(x->g, x->g->node.at[y->node].in[0]);
    if (y->kind != V_CONST || !y->data || shape_elements(&y->shape) != 1)
        return false;
    *d = element_double(y->dtype, y->data, 0);
    return true;
}

#endif

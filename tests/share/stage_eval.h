/*
 * stage_eval.h - the lists of a Pipe's stages, evaluated (eval.c, the oracle) for any number of
 * rows.  In: a Pipe and the numbers of its inputs for full rows.  Out: a tensor for every value.
 * Dropout drops what generated code drops.
 */
#ifndef STAGE_EVAL_H
#define STAGE_EVAL_H

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/write/write.h"
#include "runtime/api/pp.h"
#include "runtime/api/pp_random.h"
#include "oracle/oracle.h"

enum { GUARD = 256, SEED = 7, STEP = 3, ROW0 = 5 };
enum {
    BLOCK_PARAM, BLOCK_GRAD, BLOCK_CONST, BLOCK_STASH, BLOCK_SAVED, BLOCK_WORK, BLOCK_HALF, BLOCKS
};

typedef struct {
    char *at;
    int64_t bytes;
    char *device; /* the same on the device, guards and all; NULL on the CPU */
} Block;

/* stage_device.cu: a device under the shim. */
typedef struct {
    void *(*alloc)(int64_t);
    void (*put)(void *, const void *, int64_t);
    void (*get)(void *, const void *, int64_t);
    void *(*stream)(void), *(*blas)(void);
    const char *(*error)(void);
    void (*release)(void);
} Device;

typedef struct {
    StageGen *sg;
    void *so;
    const PpStage *table;
    void *state;
    Block block[BLOCKS], *in, *out, *dy, *dx;
    PpCtx ctx;
} RunStage;

typedef struct StageRun {
    Pipe *p;
    Graph *g;
    Arena *a;
    int64_t rows;
    Tensor *at; /* by value id: what the evaluator says */
    uint32_t n_at;
    Tensor *given; /* inputs whose numbers the caller has, by value id; may be NULL */
    uint32_t n_given;
    RunStage *stage;
    const char *dir; /* where the C goes */
    const Device *device; /* NULL: stages of C on the CPU */
    bool training;   /* which operand of Phase, and whether Dropout drops */
    uint64_t seed;
    double tolerance;
    double least;    /* of the numbers that a tolerance is relative to; 0: 1e-4 */
    bool narrow;     /* float32 is computed with: float64 is not better than that */
    uint32_t compared, wrong;
    bool tie;                       /* the first difference is at a step that rounding decides */
    double worst, noise; /* noise: as large as what a sum's terms leave when they cancel */
    char first[512];     /* the first difference */
    double first_off;    /* how many times the tolerance */
    bool verbose;
    RunStage *cur; /* in a call */
    const Func *func;
    /* stage_interp.h: in place of compiled functions; may be NULL */
    void (*interpret)(struct StageRun *, RunStage *, Func *);
} StageRun;

__attribute__((unused)) static StageRun *running; /* the callback has no argument of its own */

__attribute__((unused)) static double run_uniform(StageRun *r)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(r->seed >> 11) / 9007199254740992.0;
}

__attribute__((format(printf, 2, 3))) static void run_wrong(StageRun *r, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (r->wrong++ == 0)
        snprintf(r->first, sizeof r->first, "%s", line);
    if (r->verbose && r->wrong < 30)
        printf("# %s\n", line);
}

/* ---- the evaluator, for fewer rows ----------------------------------------------------------- */

static Shape run_shape(const StageRun *r, ValueId v)
{
    const Value *x = val(r->g, v);
    Shape s = x->shape;
    if (x->batch >= 0 && r->g->batch > 0 && s.d[x->batch] % r->g->batch == 0)
        s.d[x->batch] = s.d[x->batch] / r->g->batch * r->rows;
    return s;
}

static void run_strides(const Shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        stride[d] = n;
        n *= s->d[d];
    }
}

/* The leading rows of a tensor of full rows. */
static Tensor run_leading(const StageRun *r, Dtype t, const Shape *full, const void *data,
                          const Shape *s)
{
    Tensor out = {t, *s, arena_calloc(r->a, (size_t)shape_elements(s) + 1, dtype_size(t))};
    int64_t from[MAX_RANK], n = shape_elements(s);
    size_t size = dtype_size(t);
    run_strides(full, from);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;
        for (int d = s->rank - 1; d >= 0; d--) {
            at += rest % s->d[d] * from[d];
            rest /= s->d[d];
        }
        memcpy((char *)out.data + (size_t)i * size, (const char *)data + (size_t)at * size, size);
    }
    return out;
}

static void run_grow(StageRun *r)
{
    if (r->n_at >= r->g->value.n)
        return;
    Tensor *at = arena_array(r->a, Tensor, r->g->value.n + 1);
    for (uint32_t i = 0; i < r->n_at; i++)
        at[i] = r->at[i];
    r->at = at;
    r->n_at = r->g->value.n;
}

static void run_list(StageRun *r, const Ids *list);

static Tensor run_operand(StageRun *r, ValueId v)
{
    const Value *x = val(r->g, v);
    const Node *n = x->kind == V_NODE ? &r->g->node.at[x->node] : NULL;
    ValueKind of = n ? val(r->g, n->in[0])->kind : V_INPUT;
    /* a copy of a parameter, which no function makes; zeros, which no kernel reads */
    if (!r->at[v].data && n &&
        ((n->op == OP_Cast && of == V_PARAM) || (n->op == OP_Expand && of == V_CONST)))
        run_list(r, &(Ids){.at = &(uint32_t){x->node}, .n = 1});
    if (!r->at[v].data && x->kind == V_CONST) {
        Shape s = run_shape(r, v);
        r->at[v] = run_leading(r, x->dtype, &x->shape, x->data, &s);
    }
    if (!r->at[v].data)
        BUG("value %u (%s) is read before it is made", v, x->name);
    return r->at[v];
}

/* Random takes a shape alone: nothing need be there. */
static Tensor run_argument(StageRun *r, const Node *n, uint32_t i)
{
    if (n->op == OP_Random)
        return (Tensor){val(r->g, n->in[i])->dtype, run_shape(r, n->in[i]), NULL};
    return run_operand(r, n->in[i]);
}

/* Element i of value v, as generated code counts them: its row, and its place e in the row. */
typedef struct { uint64_t row; int64_t e; } Place;
static Place place_of(const StageRun *r, const Value *v, const Shape *s, int64_t i)
{
    int b = v->batch >= 0 ? v->batch : 0;
    int64_t outer = 1, rows = v->batch >= 0 ? r->rows : 1;
    for (int d = 0; d < b; d++)
        outer *= s->d[d];
    int64_t inner = shape_elements(s) / (outer * rows);
    return (Place){(v->batch >= 0 ? ROW0 : 0) + (uint64_t)(i / inner % rows),
                   i / (rows * inner) * inner + i % inner};
}

/* As generated code draws it: philox by row, four elements at a time. */
static void run_dropout(StageRun *r, const Node *n, Tensor x, Tensor *out)
{
    double ratio = n->attr.ratio, scale = dtype_round(dtype_sum(x.dtype), 1 / (1 - ratio));
    uint64_t limit = ratio >= 1 ? UINT64_C(0x100000000) : (uint64_t)(ratio * 4294967296.0);
    for (int64_t i = 0; i < shape_elements(&x.shape); i++) {
        Place at = place_of(r, val(r->g, n->in[0]), &x.shape, i);
        uint32_t random[4];
        pp_philox(SEED, STEP, at.row, (uint64_t)at.e / 4, (uint32_t)n->attr.key, random);
        bool keep = random[at.e % 4] >= limit;
        if (n->nout > 1)
            ((uint8_t *)out[1].data)[i] = keep;
        element_set_double(x.dtype, out[0].data, i,
                           keep ? element_double(x.dtype, x.data, i) * scale : 0);
    }
}

static void run_random(StageRun *r, const Node *n, Tensor y)
{
    uint64_t seed = n->attr.seed ? (uint64_t)n->attr.seed - 1 : SEED;
    int64_t many = y.dtype == DT_F64 ? 2 : 4;
    for (int64_t i = 0; i < shape_elements(&y.shape); i++) {
        Place at = place_of(r, val(r->g, n->out[0]), &y.shape, i);
        uint32_t x[4];
        pp_philox(seed, STEP, at.row, (uint64_t)(at.e / many), (uint32_t)n->attr.key, x);
        int64_t k = at.e % many;
        double u = many == 2 ? pp_uniform(x[2 * k], x[2 * k + 1]) : (double)pp_uniformf(x[k]);
        element_set_double(y.dtype, y.data, i, u);
    }
}

/* A Recurrence whose body has so many rows. */
static Attr run_body(StageRun *r, const Node *n)
{
    Recurrence *own = arena_new_of(r->a, Recurrence);
    Attr at = n->attr;
    Graph *body = body_placed(r->g, n, r->a);
    Ids all = {0};
    for (NodeId id = 0; id < body->node.n; id++)
        vec_push(r->a, &all, id);
    graph_resize(body, r->rows, &all);
    *own = *at.recurrence;
    own->body = body;
    at.recurrence = own;
    return at;
}

/* What a node makes of these operands, for r->rows. */
static void run_apply(StageRun *r, const Node *n, Tensor *in, Tensor *out)
{
    if (n->op == OP_ScatterND && in[1].shape.rank > 1 && in[1].shape.d[0] > in[2].shape.d[0]) {
        Shape s = in[1].shape; /* constant indices, of all rows */
        s.d[0] = in[2].shape.d[0];
        in[1] = run_leading(r, in[1].dtype, &in[1].shape, in[1].data, &s);
    }
    if ((n->op == OP_ScatterND || n->op == OP_ScatterElements) && cg_zeros(r->g, n->in[0])) {
        Shape s = run_shape(r, n->out[0]); /* zeros of all rows */
        in[0] = run_leading(r, in[0].dtype, &in[0].shape, in[0].data, &s);
    }
    for (uint32_t i = 0; i < n->nout; i++)
        out[i] = (Tensor){val(r->g, n->out[i])->dtype, run_shape(r, n->out[i]), NULL};
    Attr at = n->op == OP_Recurrence ? run_body(r, n) : n->attr;
    oracle_node(r->a, n->op, n->nin, in, &at, n->nout, out);
    for (uint32_t i = 0; i < n->nout; i++)
        if (!out[i].data)
            out[i].data = arena_alloc(r->a, 8);
    if (n->op == OP_Dropout && n->attr.ratio > 0)
        run_dropout(r, n, in[0], out);
    if (n->op == OP_Random)
        run_random(r, n, out[0]);
}

static void run_node(StageRun *r, NodeId id)
{
    const Node *n = &r->g->node.at[id];
    Tensor *in = arena_array(r->a, Tensor, n->nin + 1),
           *out = arena_array(r->a, Tensor, n->nout + 1);
    bool made = true;
    for (uint32_t i = 0; i < n->nout; i++)
        made = made && r->at[n->out[i]].data;
    if (made)
        return;
    if (n->op == OP_Phase) {
        r->at[n->out[0]] = run_operand(r, n->in[r->training ? 0 : 1]);
        return;
    }
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE)
            in[i] = run_argument(r, n, i);
    run_apply(r, n, in, out);
    for (uint32_t i = 0; i < n->nout; i++)
        r->at[n->out[i]] = out[i];
}

static void run_list(StageRun *r, const Ids *list)
{
    run_grow(r);
    for (uint32_t i = 0; i < list->n; i++)
        run_node(r, list->at[i]);
}

__attribute__((unused)) static void run_set(StageRun *r, ValueId v, const void *full)
{
    run_grow(r);
    const Value *x = val(r->g, v);
    Shape s = run_shape(r, v);
    r->at[v] = run_leading(r, x->dtype, &x->shape, full, &s);
}

__attribute__((unused)) static void run_forget_evaluated(StageRun *r)
{
    for (uint32_t i = 0; i < r->n_at; i++)
        if (val(r->g, i)->kind == V_NODE ||
            val(r->g, i)->kind == V_CONST) /* constants have leading rows too */
            r->at[i] = (Tensor){0};
}

#endif

/*
 * eval.c - the evaluator: any core op on dense tensors.  It folds constants at import and is the tests'
 * oracle in float64.  Plain loops, one definition of every op; speed is the generated code's business.
 */
#include <math.h>
#include <string.h>

#include "eval.h"

void *eval_scratch(Eval *e, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        BUG("scratch of %zu times %zu bytes", n, size);
    if (bytes <= sizeof e->small - e->used) {
        void *p = e->small.byte + e->used;
        e->used += (bytes + 15) & ~(size_t)15;
        e->used = e->used > sizeof e->small ? sizeof e->small : e->used;
        memset(p, 0, bytes);
        return p;
    }
    if (!e->scratch)
        e->scratch = arena_new();
    return arena_alloc(e->scratch, bytes);
}

/* ---- elements ---- */

const double *eval_doubles(Eval *e, const Tensor *t)
{
    if (t->dtype == DT_F64)
        return t->data;
    int64_t n = shape_elements(&t->shape);
    double *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = eval_double_at(t, i);
    return v;
}

const Wide *eval_wides(Eval *e, const Tensor *t)
{
    int64_t n = shape_elements(&t->shape);
    Wide *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = eval_wide_at(t, i);
    return v;
}

const int64_t *eval_ints(Eval *e, const Tensor *t)
{
    if (t->dtype == DT_I64)
        return t->data;
    int64_t n = shape_elements(&t->shape);
    int64_t *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (int64_t)eval_wide_at(t, i);
    return v;
}

void eval_store_doubles(Tensor *t, const double *v)
{
    int64_t n = shape_elements(&t->shape);
    for (int64_t i = 0; i < n; i++)
        eval_set_double(t, i, v[i]);
}

void eval_store_wides(Tensor *t, const Wide *v)
{
    int64_t n = shape_elements(&t->shape);
    for (int64_t i = 0; i < n; i++)
        eval_set_wide(t, i, v[i]);
}

/* ---- indices ---- */

void eval_strides(const Shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= s->d[i];
    }
}

bool eval_next(const Shape *s, int64_t *index)
{
    for (int i = s->rank - 1; i >= 0; i--) {
        if (++index[i] < s->d[i])
            return true;
        index[i] = 0;
    }
    return false;
}

int64_t eval_index(int64_t i, int64_t d)
{
    int64_t k = i < 0 ? i + d : i;
    if (k < 0 || k >= d)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "index %lld is out of range for a dimension of %lld", (long long)i, (long long)d);
    return k;
}

double eval_max(double a, double b) { return isnan(a) || a > b ? a : b; }
double eval_min(double a, double b) { return isnan(a) || a < b ? a : b; }

/* ---- dispatch ---- */

bool eval_pure(Op op) { return op != OP_Dropout && op != OP_Phase && op != OP_Identity; }

static void run(Eval *e)
{
    switch (e->op) {
    case OP_Cast: eval_cast(e); break;
    case OP_Identity: case OP_StopGradient: case OP_Reshape: case OP_Phase: case OP_Dropout: eval_copy(e); break;
    case OP_Transpose: eval_transpose(e); break;
    case OP_Expand: eval_expand(e); break;
    case OP_Slice: eval_slice(e); break;
    case OP_Split: eval_split(e); break;
    case OP_Concat: eval_concat(e); break;
    case OP_Pad: eval_pad(e); break;
    case OP_Gather: eval_gather(e); break;
    case OP_GatherElements: eval_gather_elements(e); break;
    case OP_GatherND: eval_gather_nd(e); break;
    case OP_ScatterElements: eval_scatter_elements(e); break;
    case OP_ScatterND: eval_scatter_nd(e); break;
    case OP_ReduceSum: case OP_ReduceMean: case OP_ReduceMax: case OP_ReduceMin: case OP_ReduceProd: eval_reduce(e); break;
    case OP_ArgMax: case OP_ArgMin: eval_arg(e); break;
    case OP_CumSum: eval_cumsum(e); break;
    case OP_TopK: eval_topk(e); break;
    case OP_Count: eval_count(e); break;
    case OP_Softmax: case OP_LogSoftmax: eval_softmax(e); break;
    case OP_MatMul: eval_matmul(e); break;
    case OP_Conv: case OP_ConvTranspose: case OP_ConvWeightGrad: eval_conv(e); break;
    case OP_MaxPool: case OP_AveragePool: eval_pool(e); break;
    default:
        if (!op_is_map(e->op))
            BUG("no evaluator for %s", op_name(e->op));
        eval_map(e);
    }
}

void eval_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout, Tensor *out)
{
    bool empty = true;
    Eval e;
    e.op = op, e.nin = nin, e.nout = nout, e.in = in, e.at = attr, e.out = out, e.scratch = NULL, e.used = 0;
    for (uint32_t i = 0; i < nout; i++) {
        int64_t n = shape_elements(&out[i].shape);
        out[i].data = arena_calloc(a, (size_t)n, dtype_size(out[i].dtype));
        empty = empty && n == 0;
    }
    if (empty)
        return;
    run(&e);
    arena_free(e.scratch);
}

/* ---- lists of nodes ---- */

/* The oracle: an f32 value of the graph that is held in doubles. */
static bool is_wide(const Graph *g, const Tensor *at)
{
    for (ValueId v = 0; v < g->value.n; v++)
        if (at[v].data && at[v].dtype == DT_F64 && val(g, v)->dtype == DT_F32)
            return true;
    return false;
}

static Tensor widened(Arena *a, Tensor t)
{
    Tensor to = {.dtype = DT_F64, .shape = t.shape};
    if (t.dtype != DT_F32)
        return t;
    eval_node(a, OP_Cast, 1, &t, &(Attr){.to = DT_F64}, 1, &to);
    return to;
}

static Tensor operand(const Graph *g, Arena *a, ValueId v, Tensor *at, bool wide)
{
    const Value *x = val(g, v);
    if (!at[v].data) {
        if (x->kind != V_CONST)
            BUG("value %s is read before it is made", x->name);
        at[v] = (Tensor){x->dtype, x->shape, NULL};
        memcpy(&at[v].data, &x->data, sizeof at[v].data);
    }
    if (wide)
        at[v] = widened(a, at[v]);
    return at[v];
}

void eval_nodes(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor *at)
{
    bool wide = is_wide(g, at);
    for (uint32_t k = 0; k < n; k++) {
        const Node *x = &g->node.at[list[k]];
        Arena *scratch = arena_new();
        Tensor *in = arena_array(scratch, Tensor, x->nin), *out = arena_array(scratch, Tensor, x->nout);
        for (uint32_t i = 0; i < x->nin; i++)
            in[i] = operand(g, a, x->in[i], at, wide);
        for (uint32_t i = 0; i < x->nout; i++) {
            const Value *v = val(g, x->out[i]);
            out[i] = (Tensor){wide && v->dtype == DT_F32 ? DT_F64 : v->dtype, v->shape, NULL};
        }
        eval_node(a, x->op, x->nin, in, &x->attr, x->nout, out);
        for (uint32_t i = 0; i < x->nout; i++)
            at[x->out[i]] = out[i];
        arena_free(scratch);
    }
}

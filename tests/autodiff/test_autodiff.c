/*
 * test_autodiff.c - the backward of a split model.  A small model (embedding, norms, attention with
 * a packed q k v, a gated MLP, skips, a tied head, cross-entropy) is cut by hand at every position,
 * and at several positions at once.  Each stage is then run by the evaluator as a rank would run
 * it: forward sees only its inputs, backward only its stash, the parameters and the gradients it
 * receives, W only what I saved.  The gradients must be those of the undivided graph, bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "oracle/oracle.h"
#include "cut_messages.h"
#include "tap.h"

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

enum { B = 2, SEQ = 4, D = 6, HEADS = 2, V = 7, BLOCKS = 2, MOST_STAGES = 6 };

typedef struct { Graph *g; Loss loss; uint64_t seed; Tensor *at; } Net;

static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0 - 0.5;
}

static ValueId param(Graph *g, const char *name, Shape s)
{
    return graph_param(g, (Param){.name = name, .dtype = DT_F32, .shape = s, .trainable = true});
}

static ValueId norm(Graph *g, ValueId x, int layer)
{
    ValueId gain = param(g, arena_printf(g->arena, "gain%d", layer), S(D)),
            bias = param(g, arena_printf(g->arena, "bias%d", layer), S(D));
    ValueId d = g_sub(g, x, g_mean(g, x, 1, I(2)));
    ValueId var = g_mean(g, g_mul(g, d, d), 1, I(2));
    ValueId scaled = g_div(g, d, g_unary(g, OP_Sqrt, g_add(g, var, g_scalar(g, DT_F32, 1e-5))));
    return g_add(g, g_mul(g, scaled, gain), bias);
}

static ValueId linear(Graph *g, ValueId x, const char *name, int64_t in, int64_t out)
{
    ValueId w = param(g, name, S(out, in));
    return g_matmul(g, x, g_swap_last(g, w));
}

static ValueId head(Graph *g, ValueId packed, int which)
{
    ValueId part = g_slice_axis(g, packed, 2, which * D, D);
    return g_transpose(g, g_reshape(g, part, &S(B, SEQ, HEADS, D / HEADS)), I(0, 2, 1, 3));
}

static ValueId attention(Graph *g, ValueId x, int layer)
{
    ValueId packed = linear(g, x, arena_printf(g->arena, "qkv%d", layer), D, 3 * D);
    ValueId scores = g_matmul(g, head(g, packed, 0), g_swap_last(g, head(g, packed, 1)));
    ValueId p = g_softmax(g, g_mul(g, scores, g_scalar(g, DT_F32, 0.5)), 3);
    ValueId mixed = g_transpose(g, g_matmul(g, p, head(g, packed, 2)), I(0, 2, 1, 3));
    return linear(g, g_reshape(g, mixed, &S(B, SEQ, D)), arena_printf(g->arena, "proj%d", layer), D,
                  D);
}

static ValueId mlp(Graph *g, ValueId x, int layer)
{
    ValueId h = linear(g, x, arena_printf(g->arena, "up%d", layer), D, 2 * D);
    ValueId gelu = g_mul(g, g_mul(g, h, g_scalar(g, DT_F32, 0.5)),
                         g_add(g, g_unary(g, OP_Erf, g_mul(g, h, g_scalar(g, DT_F32, 0.70710678))),
                               g_scalar(g, DT_F32, 1)));
    ValueId gate =
        g_unary(g, OP_Relu, linear(g, x, arena_printf(g->arena, "gate%d", layer), D, 2 * D));
    return linear(g, g_mul(g, gelu, gate), arena_printf(g->arena, "down%d", layer), 2 * D, D);
}

/* frozen: a model of which only the norms train, so that much of it needs no gradient */
static Net make(Arena *a, const char *loss, bool frozen)
{
    Net m = {.g = graph_new(a, "model"), .seed = 1};
    Graph *g = m.g;
    g->batch = B;
    ValueId ids = graph_input(g, "ids", DT_I64, &S(B, SEQ)), table = param(g, "wte", S(V, D));
    ValueId first = g_add(g, g_gather(g, table, ids, 0), param(g, "wpe", S(SEQ, D))), x = first;
    for (int i = 0; i < BLOCKS; i++) {
        x = g_add(g, x, attention(g, norm(g, x, 2 * i), i));
        ValueId n = norm(g, x, 2 * i + 1);
        /* a skip from the embedding to every block */
        x = g_add(g, g_add(g, x, mlp(g, n, i)), g_mul(g, n, first));
    }
    ValueId y = g_matmul(g, x, g_swap_last(g, table));
    vec_push(a, &g->output, y);
    vec_push(a, &g->output_name, "logits");
    for (uint32_t i = 0; i < g->param.n && frozen; i++)
        g->param.at[i].trainable = strncmp(g->param.at[i].name, "gain", 4) == 0;
    m.loss = loss_append(g, &(LossOptions){.loss = loss}, NULL);
    return m;
}

/* ---- cutting by hand ------------------------------------------------------------------------- */

static uint32_t stage_of(const uint32_t *cut, uint32_t ncut, NodeId n)
{
    uint32_t s = 0;
    while (s < ncut && n >= cut[s])
        s++;
    return s;
}

static StageInput *find_input(Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].value == v)
            return &s->input.at[i];
    return NULL;
}

static void use(Pipe *p, uint32_t s, ValueId v, const uint32_t *cut, uint32_t ncut)
{
    Graph *g = p->graph;
    Stage *stage = &p->stage.at[s];
    const Value *x = val(g, v);
    if (x->kind == V_PARAM) {
        for (uint32_t i = 0; i < stage->param.n; i++)
            if (stage->param.at[i].param == x->param)
                return;
        ParamUse u = {.param = x->param, .from = s};
        vec_push(g->arena, &stage->param, u);
    } else if (x->kind != V_CONST && !find_input(stage, v)) {
        uint32_t from = x->kind == V_NODE ? stage_of(cut, ncut, x->node) : NONE;
        if (from == s)
            return;
        StageInput in = {.value = v, .from = from};
        vec_push(g->arena, &stage->input, in);
        if (from == NONE)
            return;
        Stage *maker = &p->stage.at[from];
        for (uint32_t i = 0; i < maker->output.n; i++)
            if (maker->output.at[i].value == v) {
                vec_push(g->arena, &maker->output.at[i].to, s);
                return;
            }
        StageOutput o = {.value = v};
        vec_push(g->arena, &o.to, s);
        vec_push(g->arena, &maker->output, o);
    }
}

static Pipe *cut_pipe(Net *m, const uint32_t *cut, uint32_t ncut)
{
    Graph *g = m->g;
    Pipe *p = arena_new_of(g->arena, Pipe);
    p->graph = g;
    p->loss = m->loss.loss;
    p->loss_scale = m->loss.loss_scale;
    p->target = m->loss.target;
    p->scale = m->loss.scale;
    for (uint32_t i = 0; i <= ncut; i++) {
        Stage s = {.index = i};
        vec_push(g->arena, &p->stage, s);
    }
    batch_analyse(g, 0, NULL, NULL);
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t s = stage_of(cut, ncut, n);
        vec_push(g->arena, &p->stage.at[s].nodes, n);
        vec_push(g->arena, &p->stage.at[s].forward, n);
        for (uint32_t i = 0; i < g->node.at[n].nin; i++)
            use(p, s, g->node.at[n].in[i], cut, ncut);
    }
    return p;
}

/* ---- running it ------------------------------------------------------------------------------ */

static Tensor filled(Net *m, ValueId v)
{
    const Value *x = val(m->g, v);
    int64_t n = shape_elements(&x->shape);
    Tensor t = {x->dtype, x->shape, arena_alloc(m->g->arena, (size_t)n * 8)};
    for (int64_t i = 0; i < n; i++) {
        double u = uniform(&m->seed);
        if (x->dtype == DT_I64)
            ((int64_t *)t.data)[i] = (int64_t)((u + 0.5) * V);
        else
            ((float *)t.data)[i] = (float)u;
    }
    if (v == m->loss.target && x->dtype == DT_I64)
        ((int64_t *)t.data)[1] = -100;
    if (v == m->loss.loss_scale)
        ((float *)t.data)[0] = 0.125f;
    return t;
}

static void fill_all(Net *m)
{
    m->at = arena_array(m->g->arena, Tensor, m->g->value.n);
    for (uint32_t i = 0; i < m->g->input.n; i++)
        m->at[m->g->input.at[i]] = filled(m, m->g->input.at[i]);
    for (uint32_t i = 0; i < m->g->param.n; i++)
        m->at[m->g->param.at[i].value] = filled(m, m->g->param.at[i].value);
}

static Tensor *fresh(const Net *m, const Pipe *p)
{
    Tensor *at = arena_array(m->g->arena, Tensor, m->g->value.n);
    for (uint32_t i = 0; i < m->g->param.n; i++)
        at[m->g->param.at[i].value] = m->at[m->g->param.at[i].value];
    at[p->loss_scale] = m->at[p->loss_scale];
    return at;
}

static void copy(Tensor *to, const Tensor *from, ValueId v) { to[v] = from[v]; }

/* Forward of every stage; kept[s] holds what backward of s may see. what: everything sent between
 * stages. */
static void run_forward(const Net *m, const Pipe *p, Tensor **kept, Tensor *sent)
{
    for (uint32_t k = 0; k < p->stage.n; k++) {
        const Stage *s = &p->stage.at[k];
        Tensor *at = fresh(m, p);
        for (uint32_t i = 0; i < s->input.n; i++)
            copy(at, s->input.at[i].from == NONE ? m->at : sent, s->input.at[i].value);
        oracle_nodes(m->g, m->g->arena, s->forward.at, s->forward.n, at);
        for (uint32_t i = 0; i < s->output.n; i++)
            copy(sent, at, s->output.at[i].value);
        if (k + 1 == p->stage.n)
            copy(sent, at, p->loss);
        kept[k] = fresh(m, p);
        for (uint32_t i = 0; i < s->stash.n; i++)
            copy(kept[k], at, s->stash.at[i]);
    }
}

static const Tensor *value_at(const Net *m, Tensor *at, ValueId v)
{
    if (!at[v].data && val(m->g, v)->kind == V_CONST) {
        at[v] = (Tensor){val(m->g, v)->dtype, val(m->g, v)->shape, NULL};
        memcpy(&at[v].data, &val(m->g, v)->data, sizeof at[v].data);
    }
    return &at[v];
}

static void accumulate(const Net *m, Tensor *at, const ParamUse *u, Tensor *grad)
{
    for (uint32_t i = 0; i < u->grads.n; i++) {
        const Tensor *d = value_at(m, at, u->grads.at[i]);
        int64_t n = shape_elements(&d->shape);
        float *to = grad[u->param].data;
        for (int64_t k = 0; k < n; k++)
            to[k] = to[k] + ((const float *)d->data)[k];
    }
}

/* Backward of every stage, whole (B), or as I and then W. */
static void run_backward(const Net *m, const Pipe *p, Tensor **kept, Tensor *sent, bool divided,
                         Tensor *grad)
{
    for (uint32_t i = 0; i < m->g->param.n; i++) {
        const Param *q = &m->g->param.at[i];
        grad[i] = (Tensor){q->dtype, q->shape,
                           arena_array(m->g->arena, float, shape_elements(&q->shape))};
    }
    for (uint32_t k = p->stage.n; k-- > 0;) {
        const Stage *s = &p->stage.at[k];
        Tensor *at = arena_array(m->g->arena, Tensor, m->g->value.n), *w = at;
        memcpy(at, kept[k], m->g->value.n * sizeof *at);
        for (uint32_t i = 0; i < s->output.n; i++)
            for (uint32_t j = 0; j < s->output.at[i].dys.n; j++)
                copy(at, sent, s->output.at[i].dys.at[j]);
        const Ids *list = divided ? &s->backward_input : &s->backward;
        oracle_nodes(m->g, m->g->arena, list->at, list->n, at);
        for (uint32_t i = 0; i < s->input.n; i++)
            for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
                copy(sent, at, s->input.at[i].grads.at[j]);
        if (divided) {
            w = arena_array(m->g->arena, Tensor, m->g->value.n);
            memcpy(w, kept[k], m->g->value.n * sizeof *w);
            for (uint32_t i = 0; i < s->saved.n; i++)
                copy(w, at, s->saved.at[i]);
            oracle_nodes(m->g, m->g->arena, s->backward_weight.at, s->backward_weight.n, w);
        }
        for (uint32_t i = 0; i < s->param.n; i++)
            accumulate(m, w, &s->param.at[i], grad);
    }
}

typedef struct { Tensor loss, grad[64]; int64_t stash; } Result;

static Result run(Arena *a, const char *loss, bool frozen, const uint32_t *cut, uint32_t ncut,
                  bool divided)
{
    Net m = make(a, loss, frozen);
    Pipe *p = cut_pipe(&m, cut, ncut);
    autodiff(p);
    graph_verify(m.g);
    fill_all(&m);
    Result r = {0};
    Tensor *kept[MOST_STAGES], *sent = arena_array(a, Tensor, m.g->value.n);
    run_forward(&m, p, kept, sent);
    run_backward(&m, p, kept, sent, divided, r.grad);
    r.loss = sent[p->loss];
    for (uint32_t s = 0; s < p->stage.n; s++)
        for (uint32_t i = 0; i < p->stage.at[s].stash.n; i++) {
            const Value *v = val(m.g, p->stage.at[s].stash.at[i]);
            r.stash += shape_elements(&v->shape) * (int64_t)dtype_size(v->dtype);
        }
    return r;
}

/* The gradients of the undivided graph, by grad_nodes; LogSoftmax in parts, as stages have it: the
 * same additions. */
static Result whole(Arena *a, const char *loss, bool frozen)
{
    Net m = make(a, loss, frozen);
    Graph *g = m.g;
    uint32_t n = g->node.n;
    Ids list = {0};
    Result r = {0};
    ValueId *wrt = arena_array(a, ValueId, g->param.n), *d = arena_array(a, ValueId, g->param.n);
    for (NodeId i = 0; i < n; i++)
        vec_push(a, &list, i);
    for (uint32_t i = 0; i < g->param.n; i++)
        wrt[i] = g->param.at[i].value;
    batch_analyse(g, 0, NULL, NULL);
    grad_nodes(g, list.at, n, m.loss.loss, g->param.n, wrt, d);
    Stage s = {.forward = list};
    NodeId end = g->node.n;
    stage_parts(g, &s);
    list = s.forward;
    fill_all(&m);
    for (NodeId i = n; i < end; i++)
        vec_push(a, &list, i);
    oracle_nodes(g, a, list.at, list.n, m.at);
    for (uint32_t i = 0; i < g->param.n; i++)
        r.grad[i] = m.at[d[i]];
    r.loss = m.at[m.loss.loss];
    return r;
}

static uint32_t count_nodes(const char *loss)
{
    Arena *a = arena_new();
    uint32_t n = make(a, loss, false).g->node.n;
    arena_free(a);
    return n;
}

static bool same(const Tensor *a, const Tensor *b, double tolerance)
{
    int64_t n = shape_elements(&a->shape);
    double norm = 0, off = 0;
    if (!shape_equal(&a->shape, &b->shape))
        return false;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)((const float *)a->data)[i], y = (double)((const float *)b->data)[i];
        norm += x * x;
        off += (x - y) * (x - y);
    }
    return tolerance > 0 ? off <= tolerance * tolerance * norm
                         : memcmp(a->data, b->data, (size_t)n * 4) == 0;
}

/* wte (parameter 0) is used in two stages, whose sums are added apart: equal to rounding. */
static bool agree(const Result *r, const Result *want, uint32_t nparam, bool frozen)
{
    bool good = same(&r->loss, &want->loss, 0);
    for (uint32_t i = 0; i < nparam; i++) {
        const Tensor *t = &r->grad[i];
        /* only the gains train */
        if (frozen && (i < 2 || ((i - 2) % 9 != 0 && (i - 2) % 9 != 4)))
            continue;
        if (!same(t, &want->grad[i], i == 0 ? 1e-6 : 0)) {
            printf("# parameter %u differs\n", i);
            good = false;
        }
    }
    return good;
}

enum { NPARAM = 2 + BLOCKS * 9 };

static void every_cut(const char *loss, bool frozen)
{
    Arena *a = arena_new();
    Result want = whole(a, loss, frozen);
    uint32_t n = count_nodes(loss), bad = 0;
    for (uint32_t cut = 1; cut < n; cut++) {
        Arena *b = arena_new();
        Result r = run(b, loss, frozen, &cut, 1, cut % 2 == 0);
        if (!agree(&r, &want, NPARAM, frozen)) {
            printf("# cut before node %u\n", cut);
            bad++;
        }
        arena_free(b);
    }
    ok(bad == 0, "%s%s: two stages, cut at each of %u places, give the bits of the undivided graph",
       loss, frozen ? ", frozen" : "", n - 1);
    arena_free(a);
}

static void several_cuts(const char *loss)
{
    Arena *a = arena_new();
    Result want = whole(a, loss, false);
    uint32_t n = count_nodes(loss), bad = 0;
    uint64_t seed = 5;
    for (int round = 0; round < 40; round++) {
        uint32_t cut[MOST_STAGES - 1], k = 0;
        for (uint32_t at = 1; k < MOST_STAGES - 1 && at < n; k++) {
            at += 1 + (uint32_t)((uniform(&seed) + 0.5) * n / MOST_STAGES);
            cut[k] = at < n ? at : n - 1;
        }
        Arena *b = arena_new();
        Result r = run(b, loss, false, cut, k, round % 2 == 0);
        bad += !agree(&r, &want, NPARAM, false);
        arena_free(b);
    }
    ok(bad == 0, "%s: six stages at 40 choices of cuts give the same bits", loss);
    arena_free(a);
}

/* ---- what the lists must be ------------------------------------------------------------------ */

/* relu then a square: the stash is relu's output, once; a mask alone is a byte an element. */
static void minimal_stash(void)
{
    Arena *a = arena_new();
    Graph *g = graph_new(a, "model");
    ValueId x = graph_input(g, "x", DT_F32, &S(8, 16)), w = param(g, "w", S(16, 16)),
            v = param(g, "v", S(16));
    ValueId h = g_matmul(g, x, w);
    ValueId y = g_mul(g, g_unary(g, OP_Relu, h), v);
    ValueId z = g_unary(g, OP_Relu, g_add(g, h, v));
    vec_push(a, &g->output, g_add(g, y, z));
    vec_push(a, &g->output_name, "y");
    Net m = {.g = g, .loss = loss_append(g, &(LossOptions){.loss = "l1", .sum = true}, NULL)};
    g->batch = 8;
    Pipe *p = cut_pipe(&m, NULL, 0);
    uint32_t before = p->stage.at[0].forward.n;
    autodiff(p);
    const Stage *s = &p->stage.at[0];
    int64_t bytes = 0;
    for (uint32_t i = 0; i < s->stash.n; i++)
        bytes += shape_elements(&val(g, s->stash.at[i])->shape) *
                 (int64_t)dtype_size(val(g, s->stash.at[i])->dtype);
    /* x for dw, relu(h) for dv (its own mask follows), and for h + v one mask; l1 needs a sign: of
     * y - target, 4 bytes each */
    ok(bytes <= 8 * 16 * 4 * 3,
       "the stash is x, h and the sign, from which the rest follows: %lld bytes", (long long)bytes);
    ok(s->forward.n >= before && s->recompute.n > 0, "cheap values are computed again");
    arena_free(a);
}

static bool stashed(const Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->stash.n; i++)
        if (s->stash.at[i] == v)
            return true;
    return false;
}

/* What products write and read is kept rather than what forward would write for backward alone,
 * though that is a little less. */
static void what_is_there_is_kept(void)
{
    Arena *a = arena_new();
    Graph *g = graph_new(a, "model");
    ValueId x = graph_input(g, "x", DT_F32, &S(8, 64)), w = param(g, "w", S(64, 64)),
            v = param(g, "v", S(64, 256));
    ValueId h = g_matmul(g, x, w);
    ValueId far = g_sub(g, h, g_reduce(g, OP_ReduceMean, h, 1, (int64_t[]){1}));
    ValueId logits = g_matmul(g, g_mul(g, far, far), v);
    vec_push(a, &g->output, logits);
    vec_push(a, &g->output_name, "y");
    Net m = {.g = g, .loss = loss_append(g, &(LossOptions){.loss = "cross_entropy"}, NULL)};
    g->batch = 8;
    Pipe *p = cut_pipe(&m, NULL, 0);
    autodiff(p);
    const Stage *s = &p->stage.at[0];
    ok(stashed(s, h) && !stashed(s, far), "a product and its mean are kept, not their difference");
    ok(stashed(s, logits), "logits are kept, not the logarithms of probabilities");
    arena_free(a);
}

/* Only a mask is asked of h: a byte an element is kept, not four. */
static void masks_are_bytes(void)
{
    Arena *a = arena_new();
    Graph *g = graph_new(a, "model");
    ValueId x = graph_input(g, "x", DT_F32, &S(8, 16)), w = param(g, "w", S(16, 16));
    vec_push(a, &g->output, g_unary(g, OP_Relu, g_matmul(g, x, w)));
    vec_push(a, &g->output_name, "y");
    ValueId sum = g_sum_to(g, g->output.at[0], &(Shape){0});
    g->output.at[0] = sum;
    Net m = {.g = g, .loss = loss_append(g, &(LossOptions){.loss = "output:y"}, NULL)};
    g->batch = 8;
    Pipe *p = cut_pipe(&m, NULL, 0);
    uint32_t before = p->stage.at[0].forward.n;
    autodiff(p);
    const Stage *s = &p->stage.at[0];
    bool mask = false;
    for (uint32_t i = 0; i < s->stash.n; i++)
        mask |= val(g, s->stash.at[i])->dtype == DT_BOOL;
    ok(s->stash.n == 2 && mask && s->forward.n == before + 1,
       "a mask moves into forward and is kept as bytes");
    ok(s->backward_input.n == 0 && s->backward_weight.n == s->backward.n,
       "a first stage's backward is all W");
    arena_free(a);
}

/* Sums over what other sums made, of a norm's backward; in_file: its nodes come of one of the
 * model's file. */
static uint32_t sums_of_sums(Arena *a, bool in_file)
{
    Graph *g = graph_new(a, "model");
    ValueId x = g_matmul(g, graph_input(g, "x", DT_F32, &S(8, D, D)), param(g, "w", S(D, D)));
    if (in_file) {
        vec_push(a, &g->origin, ((Origin){.name = "norm", .type = "LayerNormalization"}));
        g->cur_origin = g->origin.n - 1;
    }
    ValueId y = norm(g, x, 0);
    g->cur_origin = 0;
    vec_push(a, &g->output, y);
    vec_push(a, &g->output_name, "y");
    Net m = {.g = g, .loss = loss_append(g, &(LossOptions){.loss = "mse"}, NULL)};
    g->batch = 8;
    Pipe *p = cut_pipe(&m, NULL, 0);
    autodiff(p);
    const Stage *s = &p->stage.at[0];
    bool *late = arena_array(a, bool, g->value.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->backward.n; i++) {
        const Node *b = &g->node.at[s->backward.at[i]];
        for (uint32_t j = 0; j < b->nin; j++)
            late[b->out[0]] |= b->in[j] != NONE && late[b->in[j]];
        n += b->op == OP_ReduceSum && late[b->out[0]];
        late[b->out[0]] |= b->op == OP_ReduceSum;
    }
    return n;
}

/* A norm's variance sends nothing to its mean, where no cut can come between them. */
static void norms_take_one_pass(void)
{
    Arena *a = arena_new();
    uint32_t apart = sums_of_sums(a, false), one = sums_of_sums(a, true);
    ok(apart == 1 && one == 0,
       "all sums of a norm's backward come from dy: %u of others, %u among nodes that a cut divides",
       one, apart);
    arena_free(a);
}

/* Nothing trains before the cut: nothing is sent back. */
/* Bytes that cross from one stage to another. */
typedef struct {
    int64_t forward, back;
} Crossing;

/* By pair of stages; whether each gradient is sent whole. */
static bool crossings(const Pipe *p, Crossing at[MOST_STAGES][MOST_STAGES])
{
    bool whole = true;
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t i = 0; i < p->stage.at[t].input.n; i++) {
            const StageInput *in = &p->stage.at[t].input.at[i];
            if (in->from == NONE)
                continue;
            whole &= in->grads.n <= 1;
            at[in->from][t].forward += value_bytes(p->graph, in->value);
            for (uint32_t k = 0; k < in->grads.n; k++)
                at[in->from][t].back += value_bytes(p->graph, in->grads.at[k]);
        }
    return whole;
}

/* Cut after these nodes, by partition: does not more cross than a cut's costs say, and as much?  The
 * skip from the embedding is read in all stages. */
static bool counted(const uint32_t *cut, uint32_t ncut, uint32_t *same)
{
    Arena *a = arena_new();
    Net m = make(a, "cross_entropy", false);
    Rates rates = rates_builtin();
    const Pipe *joint = autodiff_joint(m.g, &(PartitionOptions){0}, &m.loss);
    AutoModel *model = auto_model(m.g, m.loss.loss, joint, &rates, 1, a);
    uint32_t *stages = arena_array(a, uint32_t, model->cut.nodes + 1);
    for (uint32_t i = 0; i < model->cut.nodes; i++)
        stages[i] = stage_of(cut, ncut, model->node[i]);
    CutMessages say = cut_messages(&model->cut, stages, ncut + 1, a);
    PartitionOptions opt = {0};
    for (uint32_t i = 0; i < ncut; i++)
        vec_push(a, &opt.split, val(m.g, m.g->node.at[cut[i] - 1].out[0])->name);
    Pipe *p = pipe_build(m.g, &opt, &m.loss);
    reverse_stages(p);
    Crossing is[MOST_STAGES][MOST_STAGES] = {{{0}}};
    bool good = crossings(p, is), all = true;
    for (uint32_t i = 0; i < say.n; i++) {
        const CutMessage *x = &say.at[i];
        Crossing *c = &is[x->from][x->to];
        good &= x->bytes >= c->forward && x->back >= c->back;
        all &= x->bytes == c->forward && x->back == c->back;
        *c = (Crossing){0, 0};
    }
    *same += all;
    for (uint32_t s = 0; s < ncut + 1; s++)
        for (uint32_t t = 0; t < ncut + 1; t++)
            good &= is[s][t].forward == 0 && is[s][t].back == 0;
    arena_free(a);
    return good;
}

static void costs_count_what_crosses(void)
{
    enum { LOSS = 20 }; /* nodes at the end that are its own */
    uint32_t good = 0, same_bytes = 0, cuts = 0, n = count_nodes("cross_entropy") - LOSS;
    for (uint32_t i = 8; i < n; i += 9)
        for (uint32_t k = i + 4; k < n; k += 11) {
            good += counted((const uint32_t[]){i, k}, 2, &same_bytes);
            good += counted((const uint32_t[]){i, (i + k) / 2, k}, 3, &same_bytes);
            cuts += 2;
        }
    /* the others: a view is made again of what crosses anyway */
    ok(good == cuts && same_bytes + 2 >= cuts && cuts > 100,
       "bytes that cross %u cuts are those that their costs count, or fewer in %u", cuts,
       cuts - same_bytes);
}

static void no_needless_gradients(void)
{
    Arena *a = arena_new();
    Net m = make(a, "cross_entropy", false);
    for (uint32_t i = 0; i < m.g->param.n; i++)
        m.g->param.at[i].trainable = strcmp(m.g->param.at[i].name, "down1") == 0;
    uint32_t cut = m.g->node.n / 2;
    Pipe *p = cut_pipe(&m, &cut, 1);
    autodiff(p);
    bool sent = false;
    for (uint32_t i = 0; i < p->stage.at[1].input.n; i++)
        sent |= p->stage.at[1].input.at[i].gradient || p->stage.at[1].input.at[i].grads.n > 0;
    ok(!sent && p->stage.at[0].backward.n == 0 && p->stage.at[0].stash.n == 0,
       "what nothing trainable stands behind gets no gradient");
    arena_free(a);
}

int main(void)
{
    minimal_stash();
    what_is_there_is_kept();
    masks_are_bytes();
    costs_count_what_crosses();
    no_needless_gradients();
    norms_take_one_pass();
    every_cut("cross_entropy", false);
    every_cut("cross_entropy", true);
    every_cut("bce_with_logits", false);
    several_cuts("mse");
    several_cuts("cross_entropy");
    return tap_done();
}

/*
 * launches.c - what each function of a stage launches on a device.  In: the functions with their
 * steps.  Out: for each launch its Work, of which partition/auto/card.h makes seconds.
 *
 * Operations and bytes are those that the runtime counts itself when PP_PROFILE asks
 * (runtime/device/cuda/): of a product its factors and its result, of attention the tiles that its
 * masks leave, of a loop every tensor once.  Where the data choose how many rows there are, all
 * count.
 */
#include "codegen/tables.h"
#include "ir/facts/attention.h"
#include "plan.h"

#include <math.h>

/* ---- c + b * rows ---------------------------------------------------------------------------- */

static PerRows of_lin(Lin x) { return (PerRows){(double)x.c, (double)x.b}; }
static PerRows number(double c) { return (PerRows){c, 0}; }
static PerRows plus(PerRows x, PerRows y) { return (PerRows){x.c + y.c, x.b + y.b}; }
static PerRows scaled(PerRows x, double k) { return (PerRows){x.c * k, x.b * k}; }

/* full: where both have rows, there is no such form: then as much as at so many. */
static PerRows product(PerRows x, PerRows y, double full)
{
    if (x.b != 0 && y.b != 0)
        return (PerRows){0, per_rows(x, full) * per_rows(y, full) / full};
    return (PerRows){x.c * y.c, x.c * y.b + x.b * y.c};
}

/* ---- kinds of steps -------------------------------------------------------------------------- */

typedef struct {
    const Func *f;
    Arena *a;
    double full;
    VEC(Launch) list;
    Launch now; /* part and nodes of what is added */
} Adding;

static void add(Adding *x, const char *kind, Work w)
{
    x->now.kind = kind;
    x->now.work = w;
    vec_push(x->a, &x->list, x->now);
}

static Unit unit_of_products(Dtype t)
{
    return dtype_is_half(t) ? UNIT_TENSOR16 : dtype_size(t) == 8 ? UNIT_PRODUCT64 : UNIT_PRODUCT32;
}

/* Sums over columns come in parts, and the parts are summed; few long rows, whose passes are
   kernels (print/cuda_segments.c), count as one. */
static void add_nest(Adding *x, const Nest *n)
{
    add(x, nest_kind(n),
        (Work){.unit = UNIT_SCALAR,
               .launches = n->kind == NEST_COLUMN ? 2 : 1,
               .operations = of_lin(nest_instructions(n)),
               .bytes = of_lin(nest_bytes(n))});
}

/* Bytes that are no multiple of 16, whatever the rows. */
static bool is_odd(Lin x, Dtype t)
{
    const int64_t size = (int64_t)dtype_size(t);
    return x.c * size % 16 != 0 || x.b * size % 16 != 0;
}

static bool is_side_odd(const Step *s, const Product *p, const ProductSide *of, Dtype t)
{
    bool odd = is_odd(of->ld, t) || is_odd(s->arg.at[of->arg].offset, t);
    for (int d = 0; d < p->nb; d++)
        odd |= is_odd(of->stride[d], t);
    return odd;
}

static void add_product(Adding *x, const Step *s)
{
    const Product *p = s->product;
    const PerRows m = of_lin(p->m), n = of_lin(p->n), k = of_lin(p->k);
    PerRows count = number(1);
    for (int d = 0; d < p->nb; d++)
        count = product(count, of_lin(p->count[d]), x->full);
    const PerRows mn = product(m, n, x->full), read = product(plus(m, n), k, x->full),
                  each = plus(scaled(read, (double)dtype_size(p->type)),
                              scaled(mn, (p->adds ? 2.0 : 1.0) * (double)dtype_size(p->result)));
    PerRows operations = scaled(product(mn, k, x->full), 2);
    if (p->biased)
        operations = plus(operations, mn);
    add(x, "product",
        (Work){.unit = unit_of_products(p->type),
               .launches = 1,
               .operations = product(count, operations, x->full),
               .bytes = product(count, each, x->full),
               .m = m,
               .n = n,
               .k = k,
               .count = count,
               .odd = is_side_odd(s, p, &p->a, p->type) || is_side_odd(s, p, &p->b, p->type) ||
                      is_side_odd(s, p, &p->c, p->result)});
}

static void add_convolution(Adding *x, const Step *s)
{
    const PpConvShape *v = &x->f->sg->conv.at[s->convolution->shape].shape;
    const Dtype type = (Dtype)v->dtype;
    const double size = (double)dtype_size(type);
    double in = (double)v->c, out = (double)v->m, taps = 1;
    for (int d = 0; d < v->spatial; d++) {
        in *= (double)v->in[d];
        out *= (double)v->out[d];
        taps *= (double)v->kernel[d];
    }
    const double weights = (double)v->c / (double)v->group * (double)v->m * taps,
                 written = s->convolution->op == OP_ConvWeightGrad ? 1 + s->convolution->adds : 1;
    const PerRows rows = of_lin(s->convolution->rows);
    add(x, "convolution",
        (Work){.unit = unit_of_products(type),
               .launches = 1,
               .operations = scaled(rows, 2 * out * (double)v->c / (double)v->group * taps),
               .bytes = plus(scaled(rows, size * (in + out)), number(size * weights * written))});
    if (s->then)
        add_nest(x, s->then->nest);
}

/* The part of all scores in whose tiles there is one that counts. */
static double part_of_scores(const AttentionStep *t, double rows, double keys)
{
    enum { TILE = 64 };
    const AttentionAttr *at = t->attr;
    const double diagonal = (double)attention_diagonal(at, t->chunk);
    double seen = 0;
    if (!at->causal)
        return 1;
    for (double i = 0; i < rows; i += TILE) {
        double last = fmin(fmin(i + TILE, rows) - 1 + diagonal, keys - 1), first = 0;
        if (at->window)
            first = fmax(i + diagonal - (double)at->window + 1, 0);
        seen += fmin((floor(last / TILE) + 1) * TILE, keys) - floor(first / TILE) * TILE;
    }
    return seen / (ceil(rows / TILE) * keys);
}

/* Forward; backward: the sums of dy * y, then dk and dv by tiles of keys, then dq by tiles of rows:
   what each computes and meets as often as the runtime has it. */
static void add_attention(Adding *x, const AttentionStep *t)
{
    static const struct {
        double products, tensors;
    } forward[] = {{2, 4}}, back[] = {{0, 2}, {4, 6}, {3, 5}};
    PerRows matrices = number(1);
    for (int d = 0; d < t->nb; d++)
        matrices = product(matrices, of_lin(t->count[d]), x->full);
    const double rows = (double)lin_at(t->rows, (int64_t)x->full),
                 keys = (double)lin_at(t->keys, (int64_t)x->full),
                 width = (double)(t->width + t->width_v) / 2,
                 scores = rows * keys * part_of_scores(t, rows, keys);
    for (int i = 0; i < (t->back ? 3 : 1); i++) {
        const double products = (t->back ? back : forward)[i].products,
                     tensors = (t->back ? back : forward)[i].tensors;
        add(x, "attention",
            (Work){.unit = dtype_is_half(t->type) ? UNIT_MMA16 : UNIT_PRODUCT32,
                   .launches = 1,
                   .operations = scaled(matrices, 2 * products * scores * width),
                   .bytes = scaled(matrices, tensors * (double)dtype_size(t->type) * width *
                                                 (rows + keys) / 2)});
    }
}

static PerRows bytes_of_arg(const Adding *x, const StepArg *arg)
{
    const Value *v = arg->value == NONE ? NULL : val(x->f->g, arg->value);
    PerRows own = number(v ? (double)dtype_size(v->dtype) : 0);
    for (int d = 0; v && d < v->shape.rank; d++)
        own = product(own, of_lin(cg_ext(x->f, arg->value, d)), x->full);
    return own;
}

/* Operands and results, once.  Between members, what a member sends, in two messages where sums are
   handed on. */
static void add_kernel(Adding *x, const Step *s)
{
    const Node *n = &x->f->g->node.at[s->node];
    bool meets = s->kind == STEP_COLLECTIVE;
    PerRows bytes = number(0), sent = number(0);
    for (uint32_t i = 0; i < s->arg.n; i++) {
        const PerRows own = bytes_of_arg(x, &s->arg.at[i]);
        bytes = plus(bytes, own);
        if (i == 0 && meets)
            sent =
                scaled(own, (double)cost_sent(x->f->g, n) / (double)value_bytes(x->f->g, n->in[0]));
    }
    add(x, op_name(n->op),
        (Work){.unit = meets ? UNIT_LINK : UNIT_NONE,
               .launches = n->op == OP_AllReduce ? 2 : 1,
               .operations = sent,
               .bytes = bytes});
}

static Launches of_function(const StageGen *sg, const Func *f, Arena *a);

/* What the body launches, step after step. */
static void add_loop(Adding *x, const Loop *l)
{
    const Launches one = of_function(l->body, l->body->func[F_FORWARD], x->a);
    for (uint32_t i = 0; i < one.n; i++) {
        Work w = one.at[i].work;
        w.launches *= (int)l->steps;
        w.operations = scaled(w.operations, (double)l->steps);
        w.bytes = scaled(w.bytes, (double)l->steps);
        w.near = scaled(w.near, (double)l->steps);
        add(x, one.at[i].kind, w);
    }
}

static void add_step(Adding *x, const Step *s)
{
    if (s->empty)
        return;
    switch (s->kind) {
    case STEP_NEST: add_nest(x, s->nest); break;
    case STEP_PRODUCT: add_product(x, s); break;
    case STEP_CONVOLUTION: add_convolution(x, s); break;
    case STEP_ATTENTION: add_attention(x, s->attention); break;
    case STEP_CUSTOM:
    case STEP_KERNEL: add_kernel(x, s); break;
    case STEP_LOOP: add_loop(x, s->loop); break;
    case STEP_COLLECTIVE:
        if (s->collective->part != ENDS)
            add_kernel(x, s);
        break;
    }
}

/* ---- what the cache has ------------------------------------------------------------------------
 */

/* So many bytes after it was read or written a tensor is taken to be in the second-level cache
   still: the half of the smallest of those of cards.def. */
enum { NEAR = 20000000 };

typedef struct {
    double now; /* bytes that launches have moved so far */
    double *at; /* by buffer: when it was last read or written; 0: never */
} Touched;

/* Of what the step reads that which is there, where it is one launch; then all of it is. */
static void touch(Adding *x, const Step *s, uint32_t first, Touched *t)
{
    PerRows near = number(0);
    for (uint32_t i = 0; i < s->arg.n; i++) {
        const StepArg *arg = &s->arg.at[i];
        const double size = per_rows(bytes_of_arg(x, arg), x->full), at = t->at[arg->buf];
        if (!arg->written && at > 0 && t->now - at + size <= NEAR && at != t->now + 1)
            near = plus(near, bytes_of_arg(x, arg));
        t->at[arg->buf] = t->now + 1; /* once a step */
    }
    for (uint32_t i = first; i < x->list.n; i++)
        t->now += per_rows(x->list.at[i].work.bytes, x->full);
    for (uint32_t i = 0; i < s->arg.n; i++)
        t->at[s->arg.at[i].buf] = t->now;
    if (x->list.n == first + 1) {
        Work *w = &x->list.at[first].work;
        w->near = per_rows(near, x->full) < per_rows(w->bytes, x->full) ? near : w->bytes;
    }
}

static Launches of_function(const StageGen *sg, const Func *f, Arena *a)
{
    Touched t = {.at = arena_array(a, double, f->buf.n + 1)};
    Adding x = {.f = f, .a = a, .full = sg->g->batch > 1 ? (double)sg->g->batch : 1};
    for (uint32_t i = 0; i < f->step.n; i++) {
        const Step *s = &f->step.at[i];
        x.now = (Launch){.part = cg_step_part(f, s), .nodes = cg_step_nodes(f, s, a)};
        const uint32_t first = x.list.n;
        add_step(&x, s);
        touch(&x, s, first, &t);
    }
    return (Launches){x.list.n, x.list.at};
}

/* ---- the end of a step ----------------------------------------------------------------------- */

/* One launch for all parameters that train and that the stage owns: runtime/optim/optim_cuda.cu. */
static void at_the_end(const StageGen *sg, StageLaunches *out, Arena *a)
{
    double bytes = 0, n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const ParamUse *q = &sg->stage->param.at[i];
        const Param *p = &sg->g->param.at[q->param];
        bool trains = sg->params.grad_at.at[i] >= 0 && !p->stat && q->use != USE_TRANSMIT;
        bytes += trains ? (double)value_bytes(sg->g, p->value) : 0;
        n += trains ? (double)shape_elements(&val(sg->g, p->value)->shape) : 0;
    }
    if (bytes == 0)
        return;
    const double half = (double)sg->params.bytes_half;
    Adding x = {.a = a, .now = {.part = 'U', .nodes = ""}}, each = x;
    add(&x, "optimizer", (Work){UNIT_SCALAR, 2, number(2 * n), number(bytes), .m = {0}});
    add(&x, "optimizer",
        (Work){UNIT_SCALAR, 1, number(12 * n), number(3 * bytes + half), .m = {0}});
    add(&x, "fill", (Work){UNIT_NONE, 1, number(0), number(bytes), .m = {0}});
    add(&each, "optimizer", (Work){UNIT_NONE, 0, number(0), number(2 * bytes), .m = {0}});
    out->of[LAUNCHES_UPDATE] = (Launches){x.list.n, x.list.at};
    out->of[LAUNCHES_STATE] = (Launches){each.list.n, each.list.at};
}

const StageLaunches *cg_launches(const StageGen *sg, Arena *a)
{
    StageLaunches *out = arena_new_of(a, StageLaunches);
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k])
            out->of[k] = of_function(sg, sg->func[k], a);
    at_the_end(sg, out, a);
    out->once = sg->microbatches != NULL;
    return out;
}

const char *cg_launches_name(int list, Arena *a)
{
    return list == LAUNCHES_UPDATE  ? "update"
           : list == LAUNCHES_STATE ? "state"
                                    : cg_function_kind(a, (FuncKind)list);
}

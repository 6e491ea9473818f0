/*
 * step.c - the steps of a function.  In: groups in order, their nests, and where every buffer lies.
 * Out: Func.step.
 */
#include <string.h>

#include "plan.h"

/* ---- convolutions ---------------------------------------------------------------------------- */

/* The direct convolution behind the node: its number among those that open() prepares. */
static uint32_t conv_number(Func *f, const Node *n)
{
    StageGen *sg = f->sg;
    const Attr *at = &n->attr;
    bool turned_round = n->op == OP_ConvTranspose;
    const Shape *x = &val(f->g, n->in[0])->shape;
    const Shape *w =
        n->op == OP_ConvWeightGrad ? &val(f->g, n->out[0])->shape : &val(f->g, n->in[1])->shape;
    const Shape *y =
        n->op == OP_ConvWeightGrad ? &val(f->g, n->in[1])->shape : &val(f->g, n->out[0])->shape;
    const Shape *in = turned_round ? y : x, *out = turned_round ? x : y;
    PpConvShape c;
    memset(&c, 0, sizeof c);                            /* compared as bytes */
    c.dtype = (int)val(f->g, n->in[0])->dtype;
    c.spatial = at->n;
    c.group = at->group > 0 ? at->group : 1;
    c.c = in->d[1];
    c.m = out->d[1];
    for (int i = 0; i < at->n; i++) {
        c.in[i] = in->d[i + 2];
        c.out[i] = out->d[i + 2];
        c.kernel[i] = w->d[i + 2];
        c.stride[i] = at->stride[i];
        c.dilation[i] = at->dilation[i];
        c.pad_begin[i] = at->pad[i];
        c.pad_end[i] = at->pad[at->n + i];
    }
    for (uint32_t i = 0; i < sg->conv.n; i++) {
        StageConv *old = &sg->conv.at[i];
        if (memcmp(&c, &old->shape, sizeof c) == 0) {
            old->rows = x->d[0] > old->rows ? x->d[0] : old->rows;
            return i;
        }
    }
    vec_push(f->a, &sg->conv, ((StageConv){c, x->d[0]}));
    return sg->conv.n - 1;
}

static void convolution(Func *f, const Node *n, Step *s)
{
    Convolution *c = arena_new_of(f->a, Convolution);
    *c = (Convolution){.op = n->op,
                       .shape = conv_number(f, n),
                       .rows = cg_ref(f, n->in[0])->ext[0],
                       .adds = f->acc.at[n->out[0]]};
    cg_step_arg(f, s, n->in[0], false);
    cg_step_arg(f, s, n->in[1], false);
    cg_step_arg(f, s, n->out[0], true);
    s->convolution = c;
}

/* ---- kernels of their own kind --------------------------------------------------------------- */

static void kernel(Func *f, const Node *n, Step *s)
{
    s->keyed = n->op == OP_Dropout || n->op == OP_Random;
    s->key = s->keyed ? (uint32_t)n->attr.key : 0;
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && cg_kernel_reads(f, n, i))
            cg_step_arg(f, s, n->in[i], false);
    for (uint32_t i = 0; i < n->nout; i++)
        if (cg_kernel_writes(f, n, i))
            cg_step_arg(f, s, n->out[i], true);
}

/* An operation of the user's own: all of its operands and results. */
static void custom(Func *f, const Node *n, Step *s)
{
    Custom *c = arena_new_of(f->a, Custom);
    c->of = n->attr.custom;
    c->type = arena_array(f->a, Dtype, s->arg.n + 1);
    c->rank = arena_array(f->a, int, s->arg.n + 1);
    c->size = arena_alloc(f->a, (s->arg.n + 1) * sizeof *c->size);
    for (uint32_t k = 0; k < s->arg.n; k++) {
        ValueId v = s->arg.at[k].value;
        c->type[k] = val(f->g, v)->dtype;
        c->rank[k] = val(f->g, v)->shape.rank;
        for (int d = 0; d < c->rank[k]; d++)
            c->size[k][d] = cg_ext(f, v, d);
    }
    s->custom = c;
}

/* ---- nests ----------------------------------------------------------------------------------- */

/* Which arguments share memory with another one, and one of the two is written: a result in its
   operand's place, or in part of the same buffer. */
static bool *shared_arguments(const Func *f, const Nest *n)
{
    bool *shared = arena_array(f->a, bool, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++)
        for (uint32_t j = 0; j < i; j++) {
            const NestArg *x = &n->arg.at[i], *y = &n->arg.at[j];
            const Buffer *b = &f->buf.at[x->buf], *c = &f->buf.at[y->buf];
            bool work = b->cls == BUF_WORK && c->cls == BUF_WORK &&
                        b->offset < c->offset + c->bytes && c->offset < b->offset + b->bytes;
            bool outside = b->cls == c->cls && b->cls != BUF_WORK && b->index == c->index;
            if ((x->written || y->written) && (outside || work))
                shared[i] = shared[j] = true;
        }
    return shared;
}

static void nest(Func *f, const Nest *n, Step *s)
{
    s->nest = n;
    s->shared = shared_arguments(f, n);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const NestArg *x = &n->arg.at[i];
        vec_push(f->a, &s->arg, ((StepArg){x->buf, x->offset, x->written, ROLE_X, NULL, x->value}));
        if (x->written && s->result == NONE)
            s->result = x->value;
    }
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* Made by a backward function, not computed again from the forward. */
bool cg_is_gradient(const Func *f, ValueId v)
{
    if (f->kind < F_BACKWARD || f->kind >= F_AGAIN || v >= f->def.n)
        return false;
    if (f->def.at[v] == NONE)
        return f->kind == F_WEIGHT && idmap_get(&f->sg->saved.position, v) != NONE;
    return idmap_get(&f->sg->position.recomputed, v) == NONE;
}

static Role role(const Func *f, const StepArg *x)
{
    BufClass c = f->buf.at[x->buf].cls;
    bool gradient = c == BUF_DY || c == BUF_DX || cg_is_gradient(f, x->value);
    if (c == BUF_GRAD || c == BUF_PARAM || c == BUF_HALF)
        return c == BUF_GRAD ? ROLE_DW : ROLE_W;
    return x->written ? (gradient ? ROLE_DX : ROLE_Y) : gradient ? ROLE_DY : ROLE_X;
}

/* ---- the function ---------------------------------------------------------------------------- */

static bool no_elements(const Func *f, const Node *n)
{
    for (uint32_t o = 0; o < n->nout; o++)
        if (shape_elements(&val(f->g, n->out[o])->shape) > 0)
            return false;
    return true;
}

static void call(Func *f, NodeId id, Step *s)
{
    const Node *n = &f->g->node.at[id];
    s->node = id;
    s->result = n->out[0];
    s->empty = no_elements(f, n);
    s->kind = cg_is_product(f, n)       ? STEP_PRODUCT
              : cg_is_convolution(n)    ? STEP_CONVOLUTION
              : cg_is_attention(n)      ? STEP_ATTENTION
              : op_is_collective(n->op) ? STEP_COLLECTIVE
              : n->op == OP_Custom      ? STEP_CUSTOM
              : n->op == OP_Recurrence  ? STEP_LOOP
                                        : STEP_KERNEL;
    if (s->empty)
        return;
    if (s->kind == STEP_PRODUCT)
        cg_product(f, n, s);
    else if (s->kind == STEP_CONVOLUTION)
        convolution(f, n, s);
    else if (s->kind == STEP_ATTENTION)
        cg_attention(f, n, s);
    else
        kernel(f, n, s);
    if (s->kind == STEP_CUSTOM)
        custom(f, n, s);
    if (s->kind == STEP_LOOP)
        cg_loop(f, n, s);
    if (s->kind == STEP_COLLECTIVE)
        cg_collective(f, n, s, f->group.at[s->group].until ? BEGINS : AT_ONCE);
}

/* The nest goes with the convolution that is the last step. */
static void follow(Func *f, const Nest *image, const Step *nest)
{
    Step *s = &f->step.at[f->step.n - 1], *then = arena_new_of(f->a, Step);
    INSIST(s->kind == STEP_CONVOLUTION && s->arg.n == THEN_ARGS);
    *then = *nest;
    s->then = then;
    s->image = image;
    s->after = cg_after(f, image, s->arg.at[THEN_ARGS - 1].buf);
    for (uint32_t i = 0; i < then->arg.n; i++)
        vec_push(f->a, &s->arg, then->arg.at[i]);
}

/* The collectives that end before the step at o, in the order in which they were begun. */
static void end_collectives(Func *f, uint32_t o)
{
    for (uint32_t i = 0, n = f->at_once ? f->step.n : 0; i < n; i++) {
        Step s = f->step.at[i];
        if (s.kind != STEP_COLLECTIVE || s.empty || s.collective->part != BEGINS ||
            f->group.at[s.group].until != o)
            continue;
        Collective *c = arena_new_of(f->a, Collective);
        c->part = ENDS;
        s.collective = c;
        memset(&s.arg, 0, sizeof s.arg);
        vec_push(f->a, &f->step, s);
    }
}

void cg_steps(Func *f)
{
    for (uint32_t o = 0; o < f->order.n; o++) {
        uint32_t g = f->order.at[o];
        const Group *k = &f->group.at[g];
        end_collectives(f, o);
        if (k->kind == G_NONE || (k->kind == G_NEST && !k->nest))
            continue;
        INSIST(!k->until || k->until > o); /* what is begun ends */
        Step s = {.group = g, .node = NONE, .result = NONE};
        if (k->kind == G_CALL) {
            call(f, k->member.at[0].node, &s);
        } else {
            s.empty = nest_makes_nothing(k->nest);
            role_learn(f->sg, k->nest);
            nest(f, k->nest, &s);
        }
        for (uint32_t i = 0; i < s.arg.n; i++)
            s.arg.at[i].role = role(f, &s.arg.at[i]),
            s.arg.at[i].known = role_known(f->sg, s.arg.at[i].value);
        if (k->image)
            follow(f, k->image, &s);
        else
            vec_push(f->a, &f->step, s);
    }
    end_collectives(f, f->order.n);
}

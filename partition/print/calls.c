/*
 * calls.c - the Pipe as PiPPy's top-level graph.
 *
 * In: a Pipe.  Out: its calls in order: placeholders, a call per stage, getitems, the loss; then
 * per stage, from the last to the first, the adds where gradients of one value meet and
 * stage_backward.  A transmitted parameter is an output of its owner and an argument of the stages
 * it is sent to, as in PiPPy.
 */
#include <string.h>

#include "print.h"

typedef struct {
    const Pipe *p;
    const Graph *g;
    Arena *a;
    Calls c;
    StrMap taken;
    const char **name;   /* by value: how the calls so far name it */
    const char **submod; /* by stage */
    const char ***grad;  /* by stage: by position among its arguments, the name of its gradient */
    Ids *args;           /* by stage: values it is called with */
    Ids *outs;           /* by stage: values it returns */
    ValueId loss_of;     /* what the loss is computed from */
} Build;

/* fx's way with names: what is no letter or digit becomes _, a second x is x_1. */
static const char *fresh(Build *b, const char *wish)
{
    char *base = arena_alloc(b->a, strlen(wish) + 2), *at = base;
    if (*wish >= '0' && *wish <= '9')
        *at++ = '_';
    for (; *wish; wish++) {
        char c = *wish;
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        *at++ = plain ? c : '_';
    }
    if (at == base)
        *at++ = '_';
    uint32_t *count = strmap_at(&b->taken, base);
    if (*count == NONE) {
        *count = 0;
        return base;
    }
    for (;;) {
        uint32_t k = ++*strmap_at(&b->taken, base);
        const char *name = arena_printf(b->a, "%s_%u", base, k);
        uint32_t *slot = strmap_at(&b->taken, name);
        if (*slot == NONE) {
            *slot = 0;
            return name;
        }
    }
}

static Call *push(Build *b, bool forward, CallKind kind, const char *name)
{
    Call c = {.kind = kind, .name = name};
    if (forward) {
        vec_push(b->a, &b->c.forward, c);
        return &b->c.forward.at[b->c.forward.n - 1];
    }
    vec_push(b->a, &b->c.backward, c);
    return &b->c.backward.at[b->c.backward.n - 1];
}

static bool is_for_loss(const Build *b, ValueId v)
{
    return v == b->p->loss_scale || v == b->p->target;
}

static void find_signature(Build *b, uint32_t t)
{
    const Stage *s = &b->p->stage.at[t];
    for (uint32_t i = 0; i < s->input.n; i++)
        if (!is_for_loss(b, s->input.at[i].value))
            vec_push(b->a, &b->args[t], s->input.at[i].value);
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value != b->p->loss)
            vec_push(b->a, &b->outs[t], s->output.at[i].value);
    for (uint32_t i = 0; i < s->param.n; i++)
        if (s->param.at[i].use == USE_TRANSMIT) {
            ValueId v = b->g->param.at[s->param.at[i].param].value;
            Ids *from = &b->outs[s->param.at[i].from];
            vec_push(b->a, &b->args[t], v);
            ids_add(b->a, from, v);
        }
}

static void placeholders(Build *b)
{
    for (uint32_t i = 0; i < b->g->input.n; i++) {
        ValueId v = b->g->input.at[i];
        if (v == b->p->loss_scale)
            continue;
        Call *c = push(b, true, CALL_PLACEHOLDER, fresh(b, val(b->g, v)->name));
        b->name[v] = c->name;
        c->note = value_text(b->g, b->a, v);
    }
}

static void call_stage(Build *b, uint32_t t)
{
    Call *c = push(b, true, CALL_STAGE, b->submod[t]);
    c->stage = t;
    for (uint32_t i = 0; i < b->args[t].n; i++)
        vec_push(b->a, &c->args, b->name[b->args[t].at[i]]);
    c->note = diag_escape(b->a, b->p->stage.at[t].label ? b->p->stage.at[t].label : "");
    const Ids *outs = &b->outs[t];
    for (uint32_t i = 0; i < outs->n; i++) {
        ValueId v = outs->at[i];
        if (outs->n == 1) { /* as in fx: a stage with one output returns it bare */
            b->name[v] = b->submod[t];
            break;
        }
        Call *item = push(b, true, CALL_GETITEM, fresh(b, "getitem"));
        item->of = b->submod[t];
        item->index = i;
        item->note = value_text(b->g, b->a, v);
        b->name[v] = item->name;
    }
}

static void call_loss(Build *b)
{
    const Pipe *p = b->p;
    if (p->loss == NONE)
        return;
    Call *c = push(b, true, CALL_LOSS, fresh(b, "loss"));
    c->note = p->loss_text ? diag_escape(b->a, p->loss_text) : "";
    b->name[p->loss] = c->name;
    if (b->g->output.n > 0 && b->name[b->g->output.at[0]])
        vec_push(b->a, &c->args, b->name[b->g->output.at[0]]);
    if (p->target != NONE)
        vec_push(b->a, &c->args, b->name[p->target]);
}

/* ---- backward ---- */

/* The gradient of a value that stage t returns: one stage_backward's item, or the adds of several.
 */
static const char *gradient_of(Build *b, uint32_t t, ValueId v)
{
    const char *sum = NULL;
    for (uint32_t k = b->p->stage.n; k-- > t + 1;)
        for (uint32_t i = 0; i < b->args[k].n; i++) {
            if (b->args[k].at[i] != v || !b->grad[k] || !b->grad[k][i])
                continue;
            const char *part = b->grad[k][i];
            if (!sum) {
                sum = part;
                continue;
            }
            Call *c = push(b, false, CALL_ADD, fresh(b, "add"));
            vec_push(b->a, &c->args, sum);
            vec_push(b->a, &c->args, part);
            c->note = value_text(b->g, b->a, v);
            sum = c->name;
        }
    return sum;
}

static bool makes_loss(const Build *b, uint32_t t)
{
    const Stage *s = &b->p->stage.at[t];
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == b->p->loss)
            return b->p->loss != NONE;
    return false;
}

static void call_backward(Build *b, uint32_t t)
{
    const Stage *s = &b->p->stage.at[t];
    bool last = makes_loss(b, t);
    if (pipe_programs(b->p, t)->backward.n == 0)
        return;
    Names grads = {0};
    if (last) {
        const char *none = NULL;
        vec_push(b->a, &grads, none);
    }
    for (uint32_t i = 0; i < b->outs[t].n && !last; i++) {
        const char *grad = gradient_of(b, t, b->outs[t].at[i]);
        vec_push(b->a, &grads, grad);
    }
    Call *c = push(b, false, CALL_BACKWARD, fresh(b, "stage_backward"));
    const char *name = c->name;
    c->stage = t;
    c->of = last ? b->name[b->p->loss] : b->submod[t];
    c->grads = grads;
    c->note = diag_escape(b->a, s->label ? s->label : "");
    for (uint32_t i = 0; i < b->args[t].n; i++)
        vec_push(b->a, &c->args, b->name[b->args[t].at[i]]);
    if (last && b->p->target != NONE)
        vec_push(b->a, &c->args, b->name[b->p->target]);
    b->grad[t] = arena_array(b->a, const char *, b->args[t].n + 1);
    for (uint32_t i = 0; i < b->args[t].n; i++) {
        if (!pipe_has_gradient(b->p, t, b->args[t].at[i]))
            continue;
        Call *item = push(b, false, CALL_GETITEM, fresh(b, "getitem"));
        item->of = name;
        item->index = i;
        item->note = arena_printf(b->a, "gradient of %s", value_text(b->g, b->a, b->args[t].at[i]));
        b->grad[t][i] = item->name;
    }
}

Calls calls_of(const Pipe *p, Arena *a)
{
    Build b = {.p = p, .g = p->graph, .a = a, .taken = {.arena = a}};
    uint32_t n = p->stage.n;
    b.name = arena_array(a, const char *, p->graph->value.n + 1);
    b.submod = arena_array(a, const char *, n);
    b.grad = arena_array(a, const char **, n);
    b.args = arena_array(a, Ids, n);
    b.outs = arena_array(a, Ids, n);
    for (uint32_t t = 0; t < n; t++) { /* our own names first: a model's input must not take them */
        b.submod[t] = fresh(&b, arena_printf(a, "submod_%u", t));
        find_signature(&b, t);
    }
    placeholders(&b);
    for (uint32_t t = 0; t < n; t++)
        call_stage(&b, t);
    call_loss(&b);
    b.c.output.kind = CALL_OUTPUT;
    b.c.output.name = fresh(&b, "output");
    if (p->loss != NONE)
        vec_push(a, &b.c.output.args, b.name[p->loss]);
    for (uint32_t i = 0; i < p->graph->output.n; i++)
        vec_push(a, &b.c.output.args, b.name[p->graph->output.at[i]]);
    for (uint32_t t = n; t-- > 0;)
        call_backward(&b, t);
    return b.c;
}

Meetings meetings_of(const Pipe *p, Arena *a)
{
    const Graph *g = p->graph;
    Meetings list = {0};
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (int back = 0; back < 2; back++) {
            const Ids *of = back ? &p->stage.at[t].backward : &p->stage.at[t].forward;
            for (uint32_t i = 0; i < of->n; i++) {
                const Node *n = &g->node.at[of->at[i]];
                if (op_is_collective(n->op))
                    vec_push(a, &list, ((Meeting){t, back ? "backward" : "forward", n}));
            }
        }
    return list;
}

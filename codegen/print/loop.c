/*
 * loop.c - a Recurrence: a loop over its steps that calls the function of one, whose inputs and
 * outputs move on from step to step.
 */
#include <inttypes.h>

#include "target.h"

static const char *behind(Out *o, int64_t at)
{
    return arena_printf(o->a, "c->work + %" PRId64, o->f->bytes.work + at);
}

/* The function of one step, among the kernels. */
static const char *function(Out *o, const Step *s, const char *comment)
{
    StageGen *body = s->loop->body;
    body->sizes = o->f->sg->sizes;
    const KernelText text = {arena_printf(o->a, "a step of %s", comment), "", "const PpCtx *c",
                             o->lines(body->func[F_FORWARD]), NULL, NULL};
    const int64_t bytes = s->loop->body_room + cg_bytes_work(body);
    o->bytes_scratch = bytes > o->bytes_scratch ? bytes : o->bytes_scratch;
    cg_sizes_part(o->f->sg->sizes);
    return out_kernel(o, s, &text);
}

/* Where the argument is in this step. */
static const char *at_step(Out *o, const Step *s, const LoopPort *x)
{
    const char *base = out_pointer(o, s, x->arg),
               *at = s->loop->reverse ? "(steps - 1 - step)" : "step";
    if (lin_is(x->apart, 0))
        return arena_printf(o->a, "(void *)(%s)", base);
    const char *apart = x->apart.c && x->apart.b ? arena_printf(o->a, "(%s)", out_lin(o, x->apart))
                                                 : out_lin(o, x->apart);
    return arena_printf(o->a, "(char *)(%s) + %s * %s", base, at, apart);
}

/* Where the state that this step leaves is. */
static const char *next_state(Out *o, const Step *s, const LoopPort *x)
{
    const int64_t *room = s->loop->room[x->state];
    const char *last = behind(o, room[1]);
    if (x->arg != NONE)
        last = arena_printf(o->a, "(char *)(%s)", out_pointer(o, s, x->arg));
    return arena_printf(o->a, "(steps - step) %% 2 ? %s : %s", last, behind(o, room[0]));
}

static void declare(Out *o, const Step *s)
{
    const Loop *l = s->loop;
    text_line(&o->text, "const int64_t steps = %s;", out_lin(o, lin(l->steps)));
    text_line(&o->text, "void *in[%u], *out[%u];", l->nin + 1, l->nout + 1);
    text_line(&o->text, "PpCtx one = *c;");
    text_line(&o->text, "one.in = in;");
    text_line(&o->text, "one.out = out;");
    text_line(&o->text, "one.work = %s;", behind(o, l->body_room));
    for (uint32_t i = 0; i < l->nin; i++)
        if (lin_is(l->in[i].apart, 0))
            text_line(&o->text, "in[%u] = %s;", i, at_step(o, s, &l->in[i]));
}

void print_loop(Out *o, const Step *s, const char *comment)
{
    const Loop *l = s->loop;
    const char *name = function(o, s, comment);
    o->reads = true;
    text_open(&o->text, "{");
    declare(o, s);
    text_open(&o->text, "for (int64_t step = 0; step < steps; step++) {");
    for (uint32_t i = 0; i < l->nin; i++)
        if (!lin_is(l->in[i].apart, 0))
            text_line(&o->text, "in[%u] = %s;", i, at_step(o, s, &l->in[i]));
    for (uint32_t i = 0; i < l->nout; i++)
        text_line(&o->text, "out[%u] = %s;", i,
                  l->out[i].state != NONE ? next_state(o, s, &l->out[i])
                                          : at_step(o, s, &l->out[i]));
    text_line(&o->text, "%s(&one);", name);
    for (uint32_t i = 0; i < l->nin; i++)
        for (uint32_t k = 0; k < l->nout; k++)
            if (l->in[i].state != NONE && l->in[i].state == l->out[k].state)
                text_line(&o->text, "in[%u] = out[%u];", i, k);
    for (int k = 0; k < 2; k++) {
        text_close(&o->text);
    }
}

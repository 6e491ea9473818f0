/*
 * optional.c - outputs of the model that nobody reads but the user: logits in float32 beside those
 * in half precision that the loss and its gradient read.  In: the steps of a forward.  Out: which
 * arguments of nests may be NULL, where no such output is asked for; then nothing is written.
 *
 * A nest alone writes such an output, and once: what it computes stands in its variables, so that
 * the others of its statements do not need the place.
 */
#include "plan.h"

/* The only step that has the output's place, and its argument; NULL: it is not only written there,
 * or not only there. */
static NestArg *only_store(Func *f, uint32_t output)
{
    NestArg *found = NULL;
    uint32_t uses = 0;
    for (uint32_t i = 0; i < f->step.n; i++) {
        const Step *s = &f->step.at[i];
        for (uint32_t j = 0; j < s->arg.n; j++) {
            const Buffer *b = &f->buf.at[s->arg.at[j].buf];
            if (b->cls != BUF_OUT || b->index != output)
                continue;
            uses++;
            Nest *n = s->kind == STEP_NEST ? f->group.at[s->group].nest : NULL;
            found = n && !s->shared[j] ? &n->arg.at[j] : NULL;
            for (uint32_t k = 0; found && k < n->stmt.n; k++)
                if (n->stmt.at[k].arg == j && n->stmt.at[k].kind == S_LOAD)
                    found = NULL;
        }
    }
    return uses == 1 && found && found->written && !found->acc ? found : NULL;
}

void cg_optional(Func *f)
{
    const Stage *s = f->sg->stage;
    for (uint32_t i = 0; i < s->output.n && f->kind <= F_INFER; i++) {
        const StageOutput *out = &s->output.at[i];
        bool users = out->to.n == 0 && out->outputs.n == 1 && out->value != f->sg->pipe->loss;
        NestArg *arg = users ? only_store(f, i) : NULL;
        if (!arg)
            continue;
        arg->optional = true;
        f->buf.at[arg->buf].optional = true;
        f->sg->out_optional[i] |= f->kind == F_FORWARD;
    }
}

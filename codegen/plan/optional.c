/*
 * optional.c - outputs of the model that nobody reads but the user: logits in float32 beside those
 * in half precision that the loss and its gradient read, logits that members gather of their parts.
 * In: the steps of a forward.  Out: which arguments of nests and gathers may be NULL, where no such
 * output is asked for; then nothing is written, or sent.
 *
 * One step alone writes such an output, and once: what a nest computes stands in its variables, so
 * that the others of its statements do not need the place.
 */
#include "codegen/tables.h"
#include "plan.h"

/* May argument j of a nest be NULL?  Its statements only write there. */
static bool only_written(const Nest *n, uint32_t j)
{
    bool only = n->arg.at[j].written && !n->arg.at[j].acc;
    for (uint32_t k = 0; only && k < n->stmt.n; k++)
        only = n->stmt.at[k].arg != j || n->stmt.at[k].kind != S_LOAD;
    return only;
}

/* The only step that has the output's place, and its argument j; NULL: there are others, or it does
 * not only write there. */
static const Step *only_store(Func *f, uint32_t output, uint32_t *at)
{
    const Step *found = NULL;
    uint32_t uses = 0;
    for (uint32_t i = 0; i < f->step.n; i++) {
        const Step *s = &f->step.at[i];
        for (uint32_t j = 0; j < s->arg.n; j++) {
            const Buffer *b = &f->buf.at[s->arg.at[j].buf];
            if (b->cls != BUF_OUT || b->index != output)
                continue;
            uses++;
            bool stores = s->kind == STEP_NEST
                              ? !s->shared[j] && only_written(f->group.at[s->group].nest, j)
                              : s->kind == STEP_COLLECTIVE && s->arg.at[j].written &&
                                    s->collective->kind == PP_ALL_GATHER;
            found = stores ? s : NULL;
            *at = j;
        }
    }
    return uses == 1 ? found : NULL;
}

void cg_optional(Func *f)
{
    const Stage *s = f->sg->stage;
    for (uint32_t i = 0; i < s->output.n && f->kind <= F_INFER; i++) {
        const StageOutput *out = &s->output.at[i];
        bool users = out->to.n == 0 && out->outputs.n == 1 && out->value != f->sg->pipe->loss;
        uint32_t j = 0;
        const Step *only = users ? only_store(f, i, &j) : NULL;
        if (!only)
            continue;
        if (only->kind == STEP_NEST)
            f->group.at[only->group].nest->arg.at[j].optional = true;
        f->buf.at[only->arg.at[j].buf].optional = true;
        f->sg->reads.optional[i] |= f->kind == F_FORWARD;
    }
}

/*
 * gathered.c - a loss over the whole minibatch: one block for the rows of all microbatches, for
 * what forward keeps and for the gradients of the rows, from the first microbatch that comes to the
 * last one that is taken.
 */
#include "planner.h"

typedef struct {
    char *at;
    int64_t bytes;
} Block;

static char *part(Block *b, int64_t bytes)
{
    char *p = b->at ? b->at + b->bytes : NULL;
    b->bytes += align_up(bytes);
    return p;
}

/* to: NULL, for the bytes. */
static int64_t lay_out(const PpStage *st, char *block, Gathered *to)
{
    Block b = {block, 0};
    int k = 0;
    for (int i = 0; i < st->n_input; i++) {
        char *in = part(&b, st->input[i].t.bytes);
        if (to)
            to->in[i] = in;
        for (int g = 0; g < st->input[i].grads; g++, k++) {
            char *dx = part(&b, st->input[i].t.bytes);
            if (to)
                to->dx[k] = dx;
        }
    }
    for (int o = 0; o < st->n_output; o++) {
        char *out = part(&b, st->output[o].t.bytes);
        if (to)
            to->out[o] = out;
    }
    char *stash = part(&b, st->bytes.stash);
    if (to)
        to->stash = stash;
    for (k = 0; k < st->n_again; k++) {
        char *again = part(&b, st->again[k].bytes);
        if (to)
            to->part[k] = again;
    }
    return b.bytes;
}

void gathered_walk(Planner *p, int l, int m, int type)
{
    const PpStage *st = p->plan->stage[l].st;
    for (int i = 0; i < st->n_input && type == SA_F; i++)
        plan_touch(p, plan_in(p, l, i, m));
    for (int k = 0; k < st->n_dx && type == SA_B; k++)
        plan_touch(p, plan_dx(p, l, k, m));
    p->inst[plan_whole(p, l)].bytes = lay_out(st->minibatch, NULL, NULL);
    plan_touch(p, plan_whole(p, l));
}

PpStatus gathered_point(Planner *p, int l)
{
    StagePlan *rs = &p->plan->stage[l];
    const PpStage *st = rs->st->minibatch;
    if (!st)
        return PP_OK;
    Pool *pool = &p->plan->pool;
    TRY(pp_take(pool, &rs->whole, 1, sizeof *rs->whole));
    Gathered *g = rs->whole;
    TRY(pp_take(pool, &g->in, st->n_input, sizeof(void *)));
    TRY(pp_take(pool, &g->out, st->n_output, sizeof(void *)));
    TRY(pp_take(pool, &g->dx, st->n_dx, sizeof(void *)));
    lay_out(st, p->plan->at.slots + p->inst[plan_whole(p, l)].offset, g);
    for (int m = 0; m < p->m; m++)
        for (int o = 0; o < st->n_output; o++)
            rs->out[m * st->n_output + o] = g->out[o];
    return PP_OK;
}

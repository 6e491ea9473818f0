/*
 * optimizer.c - which parameters of a rank the optimizer changes, and the numbers of a step.
 */
#include "exec.h"

#include <fnmatch.h>
#include <string.h>

#include "base/file/safetensors.h"

static int matches(const char *pattern, const char *name)
{
    return !strcmp(pattern, name) || !fnmatch(pattern, name, 0);
}

PpStatus optim_patterns(const Options *o, const PpPlan *model)
{
    for (int i = 0; i < o->train.no_decay.n; i++) {
        int any = 0;
        for (ParamName k = {0}; param_next(model, &k);)
            any |= k.p->trainable && matches(o->train.no_decay.at[i], k.name);
        if (!any)
            return pp_fail(PP_ERR_USAGE, "--no-decay %s: no parameter that trains has that name",
                           o->train.no_decay.at[i]);
    }
    return PP_OK;
}

static int group_of(const Options *o, const char *name)
{
    for (int i = 0; i < o->train.no_decay.n; i++)
        if (matches(o->train.no_decay.at[i], name))
            return OPTIM_NO_DECAY;
    return OPTIM_ALL;
}

int optim_states(const Options *o)
{
    return o->mode == MODE_TRAIN ? optimizers[o->train.optimizer].states : 0;
}

int optim_count(const Plan *p)
{
    int n = p->pieces.n;
    for (RankWalk i = {0}; plan_next(p, &i);)
        n += !i.q->n_piece;
    return n;
}

/* All of a parameter that the optimizer leaves as it is. */
static DeviceParam whole(const StagePlan *rs, const RankParam *q)
{
    return (DeviceParam){.value = q->value,
                         .grad = q->grad,
                         .n = q->p->t.bytes / st_dtype_size(q->p->t.dtype),
                         .dtype = q->p->t.dtype,
                         .half = q->half,
                         .half_type = rs->st->half_type,
                         .norm = -1};
}

static DeviceParam of_piece(const Plan *p, const Options *o, const Piece *piece)
{
    const StagePlan *rs = &p->stage[piece->local];
    const RankParam *q = &rs->rp[piece->param];
    const int64_t size = st_dtype_size(q->p->t.dtype), at = piece->first / size;
    DeviceParam own = whole(rs, q);
    own.value = piece->value;
    own.grad = piece->grad;
    own.half = q->half ? q->half + 2 * at : NULL;
    own.n = piece->bytes / size;
    own.group = group_of(o, param_name(p->model, q->p, p->ask.member));
    own.update = q->update;
    own.apart = q->block >= 0;
    if (own.apart)
        own.norm = q->block + at / OPTIM_BLOCK;
    else if (!p->ask.replica)
        own.norm = q->norm;
    for (int j = 0; j < OPTIM_STATES; j++)
        own.state[j] = piece->state[j];
    return own;
}

/* The rank's parameters, once they have their places. */
void optim_list(const Plan *p, const Options *o, DeviceParam *list)
{
    for (RankWalk i = {0}; plan_next(p, &i);) {
        if (!i.q->n_piece)
            *list++ = whole(i.rs, i.q);
        for (int k = i.q->piece; k < i.q->piece + i.q->n_piece; k++)
            *list++ = of_piece(p, o, &p->pieces.at[k]);
    }
}

double optim_rate(const Options *o, int64_t step, int64_t steps)
{
    return o->mode == MODE_TRAIN ? o->train.optim.lr * lr_factor(&o->train.lr, step, steps) : 0;
}

void optim_update(Rank *r, int64_t updates, double lr, double scale)
{
    Device *d = &r->dev;
    const Options *o = r->run->opt;
    DeviceUpdate u = {.optimizer = o->train.optimizer, .scale = scale};
    OptimOptions now = o->train.optim;
    now.lr = lr;
    optimizers[o->train.optimizer].numbers(&now, updates, u.number[OPTIM_ALL]);
    now.weight_decay = 0;
    optimizers[o->train.optimizer].numbers(&now, updates, u.number[OPTIM_NO_DECAY]);
    d->op->math.update(d, d->current, &u);
}

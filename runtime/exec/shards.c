/*
 * shards.c - stages whose parameters are in memory only while they are used: --offload params,
 * --zero 3.  In: UNSHARD, RESHARD and what the plan says of them (plan/sharded.c).  Out: copies of
 * a stage's block between its home, a mapped file or beside a device pinned host memory, and the
 * window; where the stage's functions see it.
 *
 * Copies run beside the computations, in the order of the row (io/store.h): what comes into a place
 * of the window comes after what has gone from there.  A computation waits for its stage's block,
 * which comes only then if another stage's parameter was still on its way home; whoever needs a
 * gradient at home waits for those that are on their way back.  Sums of shared parameters'
 * gradients, half copies, the norm and the update run over what is at home, which kernels may read
 * and write too; the bits are those of a run that holds all of it.
 *
 * --zero 3: at home are a replica's shares, and what is whole on all.  The transfers of UNSHARD
 * (plan/unshard.c) fill the window with all of a stage's parameters; on a device they run in the
 * stream of the copies.
 */
#include "exec.h"

#include <string.h>

/* A number of the store per stage and direction. */
static int number(const Rank *r, int local, int out) { return local + (out ? r->plan.n_stage : 0); }

static void copy(Rank *r, int local, int out, char *home, char *here, int64_t bytes)
{
    Store *s = r->away.home;
    if (!s || bytes <= 0)
        return;
    store_copy(s, number(r, local, out), out, home - store_memory(s), here, bytes);
    *(out ? &r->stage[local].going : &r->stage[local].coming) = 1;
    *(out ? &r->away.count.went : &r->away.count.came) += bytes;
}

PpStatus home_open(Rank *r)
{
    const int device = on_device(r);
    StoreWish w = {.bytes = r->plan.bytes.home,
                   .copies = 2 * r->plan.n_stage,
                   .most = 4 * r->plan.n_stage,
                   .shared = 1,
                   .rank = r->group.rank,
                   .option = device ? "--offload params" : "--offload-dir",
                   .folder = r->run->opt->memory.offload_dir};
    TRY(store_open(&r->away.home, &r->dev, device, &w));
    if (device) /* a file has zeros */
        memset(store_memory(r->away.home), 0, (size_t)w.bytes);
    return PP_OK;
}

/* A parameter of another stage comes home between this UNSHARD and the stage's next computation. */
static int is_awaited(const Rank *r, const Op *op)
{
    for (const Op *k = op + 1; k < r->plan.op + r->plan.n_op; k++)
        if (k->a.stage == op->a.stage && k->a.type == SA_RECV_P)
            return 1;
        else if (k->a.stage == op->a.stage && k->a.type <= SA_R)
            return 0;
    return 0;
}

static void bring(Rank *r, const Op *op)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    char *at = r->plan.at.window + op->window;
    int fresh = shards_fresh(r, op), divided = r->plan.ask.zero == 3;
    r->stage[op->local].late = NULL;
    r->stage[op->local].window = at;
    r->away.count.gathers += divided;
    r->away.count.came += divided ? kept_bytes(&r->plan, rs) : 0;
    copy(r, op->local, 0, rs->param, at, divided ? 0 : values_bytes(rs->st));
    if ((op->shard & SHARD_GRADS) && !fresh)
        copy(r, op->local, 0, rs->grad, at + values_bytes(rs->st), rs->st->bytes.grad);
}

static int is_backward(const Op *op)
{
    return op->a.type == SA_B || op->a.type == SA_I || op->a.type == SA_W;
}

static void return_gradients(Rank *r, int local)
{
    StageRun *own = &r->stage[local];
    const StagePlan *rs = &r->plan.stage[local];
    if (own->changed)
        copy(r, local, 1, rs->grad, param_block(r, local).grad, rs->st->bytes.grad);
    own->changed = 0;
}

static void return_statistics(Rank *r, int local)
{
    const StagePlan *rs = &r->plan.stage[local];
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->st->param[k].stat)
            copy(r, local, 1, rs->rp[k].value, r->stage[local].window + rs->st->param[k].offset,
                 rs->st->param[k].t.bytes);
}

static void send_home(Rank *r, const Op *op)
{
    StageRun *own = &r->stage[op->local];
    const StagePlan *rs = &r->plan.stage[op->local];
    own->late = NULL;
    if (!own->window)
        return;
    if ((op->shard & SHARD_STATS) && r->plan.ask.zero == 3)
        r->away.count.went += stats_bytes(rs->st);
    else if (op->shard & SHARD_STATS)
        return_statistics(r, op->local);
    return_gradients(r, op->local);
    own->window = NULL;
}

static PpStatus wait_for(Rank *r, int local, int out)
{
    int *open = out ? &r->stage[local].going : &r->stage[local].coming, was = *open;
    *open = 0;
    return was ? store_wait(r->away.home, number(r, local, out)) : PP_OK;
}

/* On a CPU nothing but the caller keeps the order: what goes from the window has gone. */
PpStatus home_transfers(Rank *r, const Op *op, PpStatus (*run)(Rank *r, const Op *op, int from))
{
    Device *d = &r->dev;
    int current = d->current;
    for (int l = 0; !on_device(r) && l < r->plan.n_stage; l++)
        TRY(wait_for(r, l, 1));
    device_switch(d, STREAM_STORE);
    PpStatus s = run(r, op, op->first);
    store_note(r->away.home, number(r, op->local, 0));
    r->stage[op->local].coming = 1;
    d->current = current;
    return s;
}

PpStatus home_await(Rank *r, const Op *op)
{
    if (r->stage[op->local].late)
        bring(r, r->stage[op->local].late);
    return wait_for(r, op->local, 0);
}

static void before_computing(Rank *r, const Op *op)
{
    if (shards_fresh(r, op))
        r->dev.op->zero(&r->dev, r->dev.current, param_block(r, op->local).grad,
                        r->plan.stage[op->local].st->bytes.grad);
    r->stage[op->local].changed |= is_backward(op) && r->stage[op->local].window;
}

/* Has the stage a backward from this op on?  Then nobody reads its gradients yet. */
static int goes_on(const Rank *r, int local, const Op *op)
{
    for (; op < r->plan.op + r->plan.n_op; op++)
        if (op->local == local && is_backward(op))
            return 1;
    return 0;
}

PpStatus home_settle(Rank *r, const Op *op)
{
    for (int l = 0; r->away.home && l < r->plan.n_stage; l++) {
        if (r->stage[l].changed && !goes_on(r, l, op))
            return_gradients(r, l);
        TRY(wait_for(r, l, 1));
    }
    return PP_OK;
}

void shards_op(Rank *r, const Op *op)
{
    const int divided = r->plan.ask.zero == 3, brings = op->a.type == SA_UNSHARD;
    if (op->a.type == SA_RESHARD)
        send_home(r, op);
    else if (r->now.stopped || (brings && !r->away.home && !divided))
        return;
    else if (brings && !divided && is_awaited(r, op))
        r->stage[op->local].late = op;
    else if (brings)
        bring(r, op);
    else
        before_computing(r, op);
}

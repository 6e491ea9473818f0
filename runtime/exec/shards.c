/*
 * shards.c - stages whose parameters are in memory only while they are used.  In: UNSHARD, RESHARD
 * and what the plan says of them (plan/sharded.c); at the end of a step the optimizer's list.  Out:
 * where a stage's functions see its parameters; of --offload params the mapped file's pages asked
 * for and given back; bytes counted.
 *
 * Nothing is copied here, and nothing computed otherwise: the functions that see the parameters are
 * those of a run that holds them all the time, over the same list in the same order.  What other
 * replicas send (--zero 3) are transfers of these actions (plan/unshard.c).
 */
#include "exec.h"

static void look(Rank *r)
{
    if (!r->run->opt->report.verbose)
        return;
    int64_t now = mapped_resident(&r->away.file);
    r->away.count.resident = now > r->away.count.resident ? now : r->away.count.resident;
}

/* Every second block of the file, so that each is apart from the next. */
void shards_open(Rank *r)
{
    const Plan *p = &r->plan;
    int n = 0;
    for (int l = 0; r->away.file.base && l < p->n_stage; l++) {
        const StagePlan *rs = &p->stage[l];
        const struct {
            const char *at;
            int64_t bytes;
        } block[] = {{rs->param, kept_bytes(p, rs)}, {rs->grad, rs->st->bytes.grad}};
        for (int k = 0; k < 2; k++)
            if (block[k].at && block[k].bytes > 0 && n++ % 2)
                mapped_apart(&r->away.file, block[k].at, block[k].bytes);
    }
}

void shards_op(Rank *r, const Op *op)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    int grads = op->shard & SHARD_GRADS, fresh = shards_fresh(r, op);
    if (r->away.home) {
        home_op(r, op);
        return;
    }
    if (r->now.stopped)
        return;
    if (op->a.type != SA_UNSHARD && op->a.type != SA_RESHARD) { /* the stage's first backward */
        if (fresh)
            r->dev.op->zero(&r->dev, r->dev.current, rs->grad, rs->st->bytes.grad);
        return;
    }
    if (r->plan.ask.zero == 3) {
        r->stage[op->local].window =
            op->a.type == SA_UNSHARD ? r->plan.at.window + op->window : NULL;
        r->away.count.gathers += op->a.type == SA_UNSHARD;
    }
    if (!r->away.file.base)
        return;
    if (op->a.type == SA_UNSHARD) {
        mapped_need(&r->away.file, rs->param, kept_bytes(&r->plan, rs));
        r->away.count.came += kept_bytes(&r->plan, rs);
        if (grads && !fresh) {
            mapped_need(&r->away.file, rs->grad, rs->st->bytes.grad);
            r->away.count.came += rs->st->bytes.grad;
        }
        return;
    }
    look(r);
    mapped_drop(&r->away.file, rs->param, kept_bytes(&r->plan, rs));
    if (op->shard & SHARD_STATS)
        r->away.count.went += stats_bytes(rs->st);
    if (grads) {
        mapped_drop(&r->away.file, rs->grad, rs->st->bytes.grad);
        r->away.count.went += rs->st->bytes.grad;
    }
}

/* The next parameter that `wanted` says, from i on. */
static int next_of(const Rank *r, int i, int norms)
{
    int n = r->params.n;
    while (i < n && !(norms ? r->params.at[i].norm >= 0 : r->params.at[i].update))
        i++;
    return i;
}

static int64_t bytes_of(const DeviceParam *q) { return q->n * (q->dtype == PP_F64 ? 8 : 4); }

static void drop_gradients(Rank *r)
{
    for (int l = 0; l < r->plan.n_stage; l++)
        mapped_drop(&r->away.file, r->plan.stage[l].grad, r->plan.stage[l].st->bytes.grad);
}

/* Those that were summed while their stage was not in memory. */
void shards_row_ends(Rank *r)
{
    if (!r->away.file.base || !r->plan.ask.train)
        return;
    look(r);
    drop_gradients(r);
}

void shards_leave(Rank *r, int local, int param)
{
    const StagePlan *rs = &r->plan.stage[local];
    if (!r->away.file.base)
        return;
    if (param < 0) {
        look(r);
        mapped_drop(&r->away.file, rs->param, kept_bytes(&r->plan, rs));
        return;
    }
    const RankParam *q = &rs->rp[param];
    mapped_drop(&r->away.file, q->value, q->value ? q->p->t.bytes : 0);
    mapped_drop(&r->away.file, q->half, q->half ? q->p->t.bytes / 2 : 0);
}

void shards_norms(Rank *r, double *sum)
{
    int n = r->params.n;
    for (int i = next_of(r, 0, 1), next; i < n; i = next) {
        const DeviceParam *q = &r->params.at[i];
        next = next_of(r, i + 1, 1);
        if (next < n)
            mapped_need(&r->away.file, r->params.at[next].grad, bytes_of(&r->params.at[next]));
        if (q->apart)
            optim_cpu_block_squares(q->grad, q->n, q->dtype, sum + q->norm);
        else
            sum[q->norm] = optim_cpu_sum_squares(q->grad, q->n, q->dtype);
        mapped_drop(&r->away.file, q->grad, bytes_of(q));
        r->away.count.update_came += bytes_of(q);
    }
    drop_gradients(r); /* what the system has mapped beside them */
}

static void need_all(Rank *r, const DeviceParam *q)
{
    mapped_need(&r->away.file, q->value, bytes_of(q));
    mapped_need(&r->away.file, q->grad, bytes_of(q));
    for (int j = 0; j < r->plan.ask.states; j++)
        mapped_need(&r->away.file, q->state[j], bytes_of(q));
}

static void drop_all(Rank *r, const DeviceParam *q)
{
    int64_t bytes = bytes_of(q);
    mapped_drop_behind(&r->away.file, q->value, bytes);
    mapped_drop_behind(&r->away.file, q->grad, bytes);
    if (q->half)
        mapped_drop_behind(&r->away.file, q->half, bytes / 2);
    for (int j = 0; j < r->plan.ask.states; j++)
        mapped_drop_behind(&r->away.file, q->state[j], bytes);
    r->away.count.update_came += (2 + r->plan.ask.states) * bytes;
    r->away.count.update_went += (1 + r->plan.ask.states) * bytes;
}

void shards_update(Rank *r, const DeviceUpdate *u)
{
    int n = r->params.n;
    for (int i = next_of(r, 0, 0), next; i < n; i = next) {
        next = next_of(r, i + 1, 0);
        if (next < n)
            need_all(r, &r->params.at[next]);
        optim_cpu_update(&r->params.at[i], 1, u);
        look(r);
        drop_all(r, &r->params.at[i]);
    }
}

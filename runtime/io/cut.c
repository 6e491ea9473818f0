/*
 * cut.c - in: rows of the data; out: rows of each step and microbatch, or why the model does not
 * take them.  A step takes `batch` rows, cut among groups and then among their microbatches as
 * torch.tensor_split does (the first rows % M chunks are one longer).  Replicas take the groups in
 * turn: with as many groups as replicas each has one.  Steps go round the data; in
 * training an epoch's left-over rows are skipped; else the last step takes them, fewer than
 * `batch`.
 */
#include "data.h"

#include "base/file/row_order.h"
#include "core/core.h"

#include <inttypes.h>
#include <string.h>

/* The rows left over at the end of a pass fill microbatches one after the other; those that stay
 * empty do nothing. */
static PpStatus cut_rest(Data *d, int64_t rest)
{
    const PpPlan *p = d->model;
    if (rest % p->rows && !p->uneven.ok)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in steps of %" PRId64 " leave %" PRId64
                       " for the last one, but this model runs with exactly %" PRId64
                       " rows a microbatch: %s",
                       d->rows, d->batch, rest, p->rows,
                       p->uneven.why ? p->uneven.why : "its shapes are fixed");
    int64_t chunks = (int64_t)data_chunks(d) * d->replicas;
    TRY(pp_take(&d->pool, &d->row0_rest, chunks + 1, sizeof *d->row0_rest));
    for (int64_t i = 0; i <= chunks; i++)
        d->row0_rest[i] = d->row0[i] < rest ? d->row0[i] : rest;
    d->steps_per_pass++;
    return PP_OK;
}

int data_rounds(const Data *d) { return d->groups / d->replicas; }

int data_passes(const Data *d) { return data_rounds(d) * d->passes; }

int data_chunks(const Data *d) { return data_passes(d) * d->microbatches; }

Data data_of(const Data *d, int replica)
{
    Data own = *d;
    own.replica = replica;
    return own;
}

/* row0 of that step */
static const int64_t *rows_of(const Data *d, int64_t step)
{
    int last = d->row0_rest && step % d->steps_per_pass == d->steps_per_pass - 1;
    return last ? d->row0_rest : d->row0;
}

const int64_t *data_step(const Data *d, int64_t step, int64_t *n)
{
    *n = (int64_t)data_chunks(d) * d->replicas;
    return rows_of(d, step);
}

const int64_t *data_chunk(const Data *d, int64_t step, int m)
{
    int64_t each = (int64_t)d->passes * d->microbatches, round = m / each;
    return rows_of(d, step) + (round * d->replicas + d->replica) * each + m % each;
}

const int64_t *data_pass(const Data *d, int64_t step, int pass)
{
    return data_chunk(d, step, pass * d->microbatches);
}

void data_round(const Data *d, int64_t step, int round, int64_t row[2])
{
    const int64_t *row0 = data_pass(d, step, round * d->passes);
    row[0] = row0[0];
    row[1] = row0[(int64_t)d->passes * d->microbatches];
}

int64_t data_computed(const Data *d, int64_t step, int m)
{
    const int64_t *row0 = data_chunk(d, step, m);
    return d->opt->data.mask ? rows_of(d, step)[data_chunks(d)] : row0[1] - row0[0];
}

int64_t data_before(const Data *d, int64_t step, int m)
{
    return d->opt->data.mask ? *data_chunk(d, step, m) : 0;
}

int64_t data_step_rows(const Data *d, int64_t step)
{
    return rows_of(d, step) == d->row0 ? d->batch : d->rows % d->batch;
}

int64_t data_rows_before(const Data *d, int64_t step)
{
    int64_t pass = d->row0_rest ? d->rows : d->steps_per_pass * d->batch;
    return step / d->steps_per_pass * pass + step % d->steps_per_pass * d->batch;
}

/* In training an epoch ends where what is left of it is less than a step. */
void data_position(const Data *d, int64_t step, int64_t *epoch, int64_t *row)
{
    int train = d->opt->mode == MODE_TRAIN;
    int64_t k = step - d->start.step, left = (d->rows - d->start.row) / d->batch;
    int64_t first = train ? left : d->steps_per_pass;
    *epoch = d->start.epoch + (k < first ? 0 : 1 + (k - first) / d->steps_per_pass);
    *row = k < first ? d->start.row + k * d->batch : (k - first) % d->steps_per_pass * d->batch;
}

int64_t data_rows_seen(const Data *d, int64_t step)
{
    return d->start.rows + (step - d->start.step) * d->batch;
}

/* What several microbatches yield has to meet in each output that is asked for; each needs a target
 * of its own. */
static PpStatus check_meeting(const Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    int64_t all = (int64_t)data_chunks(d) * d->replicas,
            calls = o->mode == MODE_TRAIN ? all : all * d->steps;
    if (all > 1 && p->loss.target_why && o->mode != MODE_INFER)
        return pp_fail(
            PP_ERR_MODEL,
            "it is not known which rows of the target belong to a microbatch: %s; run with "
            "--microbatches 1, or split with --chunk target=DIM, or with --merge OUTPUT=DIM for "
            "the output it is compared with, and --chunk INPUT=replicate|DIM for inputs",
            p->loss.target_why);
    if (all > 1 && p->loss.why && o->mode != MODE_INFER)
        return pp_fail(PP_ERR_MODEL,
                       "the loss of a step does not follow from those of its microbatches: %s; "
                       "split with --loss-over minibatch, or run with --microbatches 1",
                       p->loss.why);
    for (int i = 0; i < p->n_output && p->output_merge; i++)
        for (int k = 0; k < o->data.output.n && calls > 1; k++)
            if (p->output_merge[i] == PP_MERGE_NONE &&
                !strcmp(o->data.output.at[k].name, p->output[i].name))
                return pp_fail(
                    PP_ERR_MODEL,
                    "--output %s: it has no batch dimension, and the results of %" PRId64
                    " microbatches cannot be put together: %s; split with --merge "
                    "%s=DIM|sum|mean, or with --chunk INPUT=replicate|DIM where an "
                    "input has its rows, or make the whole batch one microbatch (--bind)",
                    p->output[i].name, calls, p->output_why[i], p->output[i].name);
    for (int i = 0; i < p->n_output && p->output_merge && data_rounds(d) > 1; i++)
        for (int k = 0; k < o->data.output.n; k++)
            if (p->output[i].batch_dim < 0 && p->output_merge[i] != PP_MERGE_LAST &&
                !strcmp(o->data.output.at[k].name, p->output[i].name))
                return pp_fail(PP_ERR_USAGE,
                               "--output %s: it is a sum or mean over rows, which replicas of "
                               "several groups would add up in another order: use --dp %d",
                               p->output[i].name, d->groups);
    return PP_OK;
}

/* Is the loss's stage asked for more than the loss? */
static int makes_output(const PpPlan *p, const Options *o)
{
    const PpStage *st = p->stage[p->n_stage - 1];
    int any = 0;
    for (int i = 0; i < st->n_output; i++)
        for (int k = 0; k < o->data.output.n && st->output[i].model_output >= 0; k++)
            any |= !strcmp(o->data.output.at[k].name, p->output[st->output[i].model_output].name);
    return any;
}

/* A loss over the whole minibatch is computed by one rank, in one pass, of at most so many rows. */
static PpStatus check_minibatch(const Data *d, int64_t rows)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    if (!p->minibatch.rows || (o->mode == MODE_INFER && !makes_output(p, o)))
        return PP_OK;
    if (d->groups > 1)
        return pp_fail(PP_ERR_USAGE,
                       "--%s %d: the loss is one over the whole minibatch, which %s would divide; "
                       "use more ranks and microbatches instead",
                       d->replicas > 1 ? "dp" : "groups", d->replicas > 1 ? d->replicas : d->groups,
                       d->replicas > 1 ? "replicas" : "groups");
    if (d->passes > 1)
        return pp_fail(PP_ERR_USAGE,
                       "--accumulate %d: the loss is one over the whole minibatch, which passes "
                       "would divide; use --microbatches %d in one pass",
                       d->passes, d->passes * d->microbatches);
    if (rows > p->minibatch.rows || (rows < p->minibatch.rows && p->minibatch.why))
        return pp_fail(PP_ERR_MODEL,
                       "a step has %" PRId64 " rows, but the loss over the minibatch is made for "
                       "%s%" PRId64 "%s%s: --batch %" PRId64
                       ", or ppsplit --loss-over minibatch=%" PRId64,
                       rows, p->minibatch.why ? "exactly " : "", p->minibatch.rows,
                       p->minibatch.why ? ": " : "", p->minibatch.why ? p->minibatch.why : "",
                       p->minibatch.rows, rows);
    return PP_OK;
}

/* Is a target of loss_ignore one that adds nothing? */
static int ignores(const PpPlan *p)
{
    int any = 0;
    for (int k = 0; k < p->n_index; k++)
        any |= p->index[k].input == p->loss.target && !p->index[k].table && p->index[k].has_other &&
               p->index[k].other == p->loss.ignore;
    return any;
}

/* Masked microbatches: rows of others are in what it computes, so must count nowhere. */
static PpStatus check_masked(const Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    if (!o->data.mask)
        return PP_OK;
    if (d->groups > 1 || d->passes > 1)
        return pp_fail(PP_ERR_USAGE,
                       "--debug-mask-minibatches is for one pipeline and one pass of the schedule, "
                       "not for --dp, --groups and --accumulate");
    if (d->batch > p->rows)
        return pp_fail(PP_ERR_MODEL,
                       "--debug-mask-minibatches: each microbatch is all %" PRId64
                       " rows of the step, the model's shapes are those of %" PRId64
                       ": ppsplit --rows %" PRId64,
                       d->batch, p->rows, d->batch);
    if (o->mode != MODE_INFER && !p->minibatch.rows && !ignores(p))
        return pp_fail(PP_ERR_MODEL,
                       "--debug-mask-minibatches: rows of other microbatches would count in this "
                       "loss: ppsplit --loss-over minibatch computes it of each one's own rows");
    for (int k = 0; k < o->data.output.n; k++)
        for (int i = 0; i < p->n_output; i++)
            if (!strcmp(o->data.output.at[k].name, p->output[i].name) &&
                p->output[i].batch_dim < 0 && p->output_merge[i] != PP_MERGE_LAST &&
                d->microbatches > 1)
                return pp_fail(PP_ERR_MODEL,
                               "--debug-mask-minibatches: --output %s is a sum or mean over rows, "
                               "in which those of other microbatches would count",
                               p->output[i].name);
    return PP_OK;
}

/* As many groups as replicas, unless it says more. */
static PpStatus find_groups(Data *d)
{
    const Options *o = d->opt;
    d->replicas = o->machine.dp;
    d->groups = o->machine.groups && (o->mode == MODE_TRAIN || o->eval.on) ? o->machine.groups
                                                                           : o->machine.dp;
    if (d->groups % d->replicas)
        return pp_fail(PP_ERR_USAGE,
                       "--dp %d replicas cannot divide --groups %d evenly: the number of groups "
                       "must be a multiple of the number of replicas",
                       o->machine.dp, d->groups);
    if ((o->memory.offload & OFFLOAD_PARAMS) && d->groups > d->replicas)
        return pp_fail(PP_ERR_USAGE,
                       "--offload params: a replica can run only one group of rows in a step: for "
                       "--groups %d use --dp %d",
                       d->groups, d->groups);
    return PP_OK;
}

/* How many microbatches a step has in each group, in how many passes. */
static PpStatus find_microbatches(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    int64_t passes = o->schedule.accumulate && o->mode == MODE_TRAIN ? o->schedule.accumulate : 1;
    int64_t groups = d->groups, share = (d->batch + groups - 1) / groups,
            least_share = d->batch / groups;
    const char *whose = groups == 1             ? ""
                        : groups == d->replicas ? " in a replica"
                                                  : " in a group";
    if (least_share == 0)
        return pp_fail(PP_ERR_MODEL,
                       "%s: %" PRId64 " rows for %" PRId64 " %s, each of which needs at least one",
                       o->eval.on ? "--eval-data" : "a step", d->batch, groups,
                       groups == d->replicas ? "replicas" : "groups");
    int64_t m = o->schedule.microbatches ? o->schedule.microbatches
                                         : ((share + p->rows - 1) / p->rows + passes - 1) / passes;
    if (m > least_share / passes && passes > 1)
        return pp_fail(PP_ERR_MODEL,
                       "--accumulate %" PRId64 " of %" PRId64 " microbatches: a step has only "
                       "%" PRId64 " rows%s",
                       passes, m, least_share, whose);
    if (m > least_share)
        return pp_fail(PP_ERR_MODEL,
                       "--microbatches %" PRId64 ": a step has only %" PRId64 " rows%s", m,
                       least_share, whose);
    if (m > INT32_MAX / 4 / passes)
        return pp_fail(PP_ERR_MODEL, "%" PRId64 " microbatches are too many", m);
    d->microbatches = (int)m;
    d->passes = (int)passes;
    m *= passes; /* from here on those of a step, in each group */
    int64_t most = o->data.mask ? d->batch : (share + m - 1) / m,
            least = o->data.mask ? d->batch : least_share / m;
    TRY(check_masked(d));
    if (most > p->rows)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in %" PRId64 " microbatches make %" PRId64
                       " rows each, the model's shapes are those of %" PRId64
                       ": give --microbatches %" PRId64 " or more",
                       share, m, most, p->rows, (share + p->rows - 1) / p->rows);
    if (least != p->rows && !p->uneven.ok)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in %" PRId64 " microbatches make microbatches of %" PRId64
                       " rows, but this model runs with exactly %" PRId64 ": %s",
                       least_share, m, least, p->rows,
                       p->uneven.why ? p->uneven.why : "its shapes are fixed");
    return PP_OK;
}

/* Rows of each microbatch, and whether the model takes them. */
PpStatus data_cut(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    int64_t rows = d->rows;
    TRY(find_groups(d));
    d->batch = o->data.batch ? o->data.batch : rows;
    if (o->mode != MODE_TRAIN && d->batch > rows)
        d->batch = rows; /* one step, which is the rest */
    if (d->batch > rows || rows == 0)
        return pp_fail(PP_ERR_MODEL,
                       "too few rows: a step takes %" PRId64 ", the data have %" PRId64, d->batch,
                       rows);
    TRY(find_microbatches(d));
    const int64_t groups = d->groups, m = (int64_t)d->microbatches * d->passes;
    TRY(pp_take(&d->pool, &d->row0, groups * m + 1, sizeof *d->row0));
    row_cut(d->batch, groups, m, d->row0);
    d->steps_per_pass = rows / d->batch;
    if (o->mode != MODE_TRAIN && rows % d->batch)
        TRY(cut_rest(d, rows % d->batch));
    TRY(check_minibatch(d, d->batch));
    if (d->row0_rest)
        TRY(check_minibatch(d, rows % d->batch));
    if (p->minibatch.rows && o->mode != MODE_TRAIN && d->steps_per_pass > 1 && makes_output(p, o))
        return pp_fail(PP_ERR_MODEL,
                       "--output: what is made of a whole minibatch cannot be put together from "
                       "%" PRId64 " steps: --batch %" PRId64 ", or leave it out",
                       d->steps_per_pass, rows);
    if (__builtin_mul_overflow(o->data.epochs, d->steps_per_pass, &d->steps))
        return pp_fail(PP_ERR_USAGE, "--epochs %" PRId64 ": too many", o->data.epochs);
    if (!d->steps)
        d->steps = o->data.steps ? o->data.steps : o->mode == MODE_TRAIN ? 1 : d->steps_per_pass;
    return check_meeting(d);
}

/* A token is an entry of the integer target, else of the first integer input; else a row counts. */
int64_t data_tokens(const Data *d)
{
    const PpPlan *p = d->model;
    for (int k = -1; k < p->n_input; k++) {
        int i = k < 0 ? p->loss.target : k;
        const PpTensor *t = i < 0 ? NULL : &p->input[i];
        if (!t || t->batch_dim < 0 || (t->dtype != PP_I64 && t->dtype != PP_I32))
            continue;
        int64_t n = 1;
        for (int j = 0; j < t->rank; j++)
            n *= tensor_dim(t, j, d->longest);
        return n / p->rows * d->batch;
    }
    return d->batch;
}

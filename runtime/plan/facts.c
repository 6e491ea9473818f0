/*
 * facts.c - what follows from the generated tables and a row alone.
 */
#include "base/file/safetensors.h"
#include "device/library.h"
#include "planner.h"

int64_t stats_bytes(const PpStage *st)
{
    int64_t n = 0;
    for (int k = 0; k < st->n_param; k++)
        n += st->param[k].stat ? align_up(st->param[k].t.bytes) : 0;
    return n;
}

Exchanges plan_exchanges(const PpPlan *model, const PpStage *st, int part)
{
    Exchanges sum = {0, 0, 0};
    for (int k = 0; k < st->mesh.n_collective; k++) {
        const PpCollective *c = &st->mesh.collective[k];
        const double members = plan_members_along(model, c->mesh), others = members - 1,
                     back = c->half
                                ? (double)st_dtype_size(c->half) / (double)st_dtype_size(c->dtype)
                                : 1;
        if (c->part != part || c->kind == PP_SHARD)
            continue;
        sum.calls++;
        sum.messages += c->kind == PP_ALL_REDUCE ? 2 * others : others;
        sum.bytes += (double)c->bytes * (c->kind == PP_ALL_GATHER   ? others
                                         : c->kind == PP_ALL_REDUCE ? (1 + back) * others / members
                                                                    : others / members);
    }
    return sum;
}

int schedule_stages(const PpPlan *model) { return model->n_stage - (model->minibatch.rows > 0); }

/* The next of all lengths, as a number is counted; 0: there is none. */
static int next_length(const PpPlan *model, PpLength *length)
{
    for (int v = 0; v < model->n_length; v++) {
        if (length->of[v]++ < model->length[v].most)
            return 1;
        length->of[v] = model->length[v].least;
    }
    return 0;
}

/* Of its convolutions with every length. */
static int64_t scratch_bytes(const PpPlan *model, const PpStage *st, int threads)
{
    int64_t most = 0;
    PpCtx c = {.rows = 1};
    for (int v = 0; v < model->n_length; v++)
        c.length.of[v] = model->length[v].least;
    do
        for (int i = 0; i < st->conv.n; i++) {
            PpConvShape s = st->conv.of ? st->conv.of(&c, i) : st->conv.shape[i];
            int64_t bytes = library_conv(&s, threads);
            most = bytes > most ? bytes : most;
        }
    while (st->conv.of && next_length(model, &c.length));
    return most;
}

/* Stages take turns with one block. */
int64_t plan_library_bytes(const Plan *p)
{
    int64_t most = 0;
    for (int l = 0; l < p->n_stage && p->model->device == PP_CPU; l++) {
        int64_t own = scratch_bytes(p->model, p->stage[l].st, p->ask.threads);
        most = own > most ? own : most;
    }
    return most;
}

int64_t plan_total(const Plan *p) { return p->bytes.total + p->bytes.library; }

int64_t totals_bytes(const PpPlan *p, const unsigned char *has_input)
{
    int64_t bytes = 0, any = 0;
    for (int k = 0; k < p->totals.n; k++) {
        const PpTensor *t = &p->input[p->totals.of[k].input];
        int64_t sums = t->bytes / st_dtype_size(t->dtype) * (int64_t)sizeof(double);
        any |= has_input[p->totals.of[k].input];
        bytes += align_up(t->bytes) + align_up(sums);
    }
    if (!any)
        return 0;
    for (int i = 0; i < p->totals.stage->n_input; i++)
        bytes += align_up(p->totals.stage->input[i].t.bytes);
    for (int o = 0; o < p->totals.stage->n_output; o++)
        bytes += align_up(p->totals.stage->output[o].t.bytes);
    return bytes + align_up(p->totals.stage->bytes.work[PP_WORK_INFER]);
}

int64_t values_bytes(const PpStage *st)
{
    return align_up(st->bytes.param) + align_up(st->bytes.half);
}

int64_t kept_bytes(const Plan *p, const StagePlan *rs)
{
    return p->ask.zero == 3 ? rs->home : values_bytes(rs->st);
}

int plan_own_weight(const PpStage *st) { return st->call.own_weight && *st->call.own_weight; }

static int first_half(const SchedRow *row, int i)
{
    int part = row->a[i].overlap & SCHED_PART, last = row->a[i].overlap & SCHED_LAST;
    int inside =
        i > 0 && (row->a[i - 1].overlap & SCHED_PART) && !(row->a[i - 1].overlap & SCHED_LAST);
    return part && !last && !inside;
}

static int computes(const SchedAction *a) { return a->type >= SA_F && a->type <= SA_W; }

int plan_pair(const SchedRow *row, int i)
{
    return i + 1 < row->n && first_half(row, i) && (row->a[i + 1].overlap & SCHED_LAST) &&
           computes(&row->a[i]) && computes(&row->a[i + 1]) &&
           row->a[i].stage != row->a[i + 1].stage;
}

int plan_overlaps(const SchedRow *row)
{
    for (int i = 0; i < row->n; i++)
        if (plan_pair(row, i))
            return 1;
    return 0;
}

int plan_host_takes(const Plan *p, const PpStage *st, int output)
{
    int model_output = st->output[output].model_output;
    return (model_output >= 0 && p->data.has_output[model_output]) ||
           (st->index == p->model->loss.stage && output == p->model->loss.output);
}

int plan_skips(const Plan *p, const PpStage *st, int output)
{
    return st->output[output].optional && !p->data.has_output[st->output[output].model_output];
}

const PpParam *shared_param(const PpStage *st, int param, int *at)
{
    for (int k = 0; k < st->n_param; k++)
        if (st->param[k].param == param) {
            *at = k;
            return &st->param[k];
        }
    return NULL;
}

int64_t gradient_tag(const Planner *p, int stage, int param, int use)
{
    const PpStage *st = p->model->stage[stage];
    int64_t tag = p->wire.p[stage] + 2 * (int64_t)st->n_param + use;
    for (int k = 0; k < param; k++)
        tag += 1 + st->param[k].more;
    return tag;
}

int last_user(const PpPlan *model, int stage, int param)
{
    int at;
    for (int s = model->n_stage - 1; s > stage; s--) {
        const PpParam *q = shared_param(model->stage[s], param, &at);
        if (q && q->grad_offset >= 0)
            return 0;
    }
    return 1;
}

int plan_edges(const PpPlan *p, SchedEdge *edge)
{
    int n = 0;
    for (int s = 0; s < p->n_stage; s++)
        for (int from = 0; from < s; from++) {
            SchedEdge e = {.from = from, .to = s};
            int any = 0;
            for (int i = 0; i < p->stage[s]->n_input; i++) {
                const PpInput *in = &p->stage[s]->input[i];
                if (in->from != from)
                    continue;
                any = 1;
                e.bytes_f += (double)in->t.bytes;
                e.bytes_b += (double)in->t.bytes * in->grads;
                e.gradient |= in->grads > 0;
            }
            if (any)
                edge[n++] = e;
        }
    return n;
}

int plan_shared(const PpPlan *p, SchedParam *list, int train)
{
    int n = 0;
    for (int s = 0; s < p->n_stage; s++)
        for (int from = 0; from < p->n_stage; from++)
            for (int replicate = 0; replicate < 2; replicate++) {
                SchedParam e = {.from = from, .to = s, .replicate = replicate};
                int any = 0;
                for (int k = 0; k < p->stage[s]->n_param; k++) {
                    const PpParam *q = &p->stage[s]->param[k];
                    if (q->from != from || from == s ||
                        q->use != (replicate ? PP_REPLICATE : PP_TRANSMIT))
                        continue;
                    any = 1;
                    e.gradient |= train && q->grad_offset >= 0;
                }
                if (any && (!replicate || e.gradient))
                    list[n++] = e;
            }
    return n;
}

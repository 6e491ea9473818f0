/*
 * finite.c - a run whose loss or gradient is not finite ends: no update, no checkpoint.  In: the
 * step's numbers, the same on every rank.  Out: PP_OK, or a failure that all ranks share and that
 * says where it comes from, as far as what is still in memory shows: a parameter that is not
 * finite; a NaN in the data; the microbatch and the value or gradient that was the first, for which
 * the step runs once more.
 */
#include "exec.h"

#include "base/file/safetensors.h"
#include "core/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a rank knows of the cause: its first stage with a parameter that is not finite, the first
   microbatch whose loss is not, and the first input with a NaN (an infinity may well be meant: a
   mask). */
typedef struct {
    int stage, microbatch, input, input_microbatch; /* -1: none */
    char name[200];
    Seen seen[2]; /* as in Seek */
    BadGradient gradient;
} Cause;

static int any_nan(const void *p, int dtype, int64_t bytes)
{
    int found = 0;
    for (int64_t i = 0; i < bytes / st_dtype_size(dtype); i++)
        found |= isnan(number_at(p, i, dtype)) != 0;
    return found;
}

/* But for what was -inf from the beginning: a bias that masks. */
static int all_finite(Rank *r, const RankParam *q)
{
    int64_t bad = 0, lowest = 0;
    int dtype = q->p->t.dtype, whole = q->value != NULL;
    for (int k = 0; k < (whole ? 1 : q->n_piece); k++) {
        const Piece *piece = whole ? NULL : &r->plan.pieces.at[q->piece + k];
        int64_t bytes = whole ? q->p->t.bytes : piece->bytes;
        const void *p = host_copy(&r->files, whole ? q->value : piece->value, bytes);
        for (int64_t i = 0; dtype == PP_F32 && i < bytes / 4; i++)
            bad += !isfinite(((const float *)p)[i]);
        for (int64_t i = 0; dtype == PP_F64 && i < bytes / 8; i++)
            bad += !isfinite(((const double *)p)[i]);
        lowest += params_lowest(p, dtype, bytes);
    }
    return bad == 0 || (bad == q->lowest && lowest == q->lowest);
}

static void look_at_data(const Rank *r, int64_t step, Cause *t)
{
    const Run *run = r->run;
    /* what is there is the last pass's */
    for (int i = run->model->n_input; i-- > 0;)
        for (int m = run->data.microbatches; m-- > 0 && r->feed.host[i];) {
            const PpTensor *in = &run->model->input[i];
            if (!any_nan(r->feed.host[i] + m * r->plan.data.stride[i], in->dtype,
                         tensor_bytes(run->model, in,
                                      data_computed(&r->data, step, exec_in_step(r, m)),
                                      r->feed.length[m])))
                continue;
            t->input = i;
            t->input_microbatch = r->now.pass * run->data.microbatches + m;
        }
}

/* statistics: they count as parameters.  Those that a training step has moved are no cause: it
   normalizes by the rows' own. */
static Cause look(Rank *r, int64_t step, int statistics)
{
    const Run *run = r->run;
    Cause t = {.stage = -1, .microbatch = -1, .input = -1};
    memcpy(t.seen, r->now.seek.seen, sizeof t.seen);
    t.gradient = r->now.seek.gradient;
    look_at_data(r, step, &t);
    for (int l = 0; l < r->plan.n_stage; l++)
        for (int k = 0; k < r->plan.stage[l].st->n_param; k++) {
            const RankParam *q = &r->plan.stage[l].rp[k];
            int stage = r->plan.stage[l].st->index;
            if (q->p->use == PP_TRANSMIT || !(q->p->stat ? statistics : q->p->trainable) ||
                (t.stage >= 0 && t.stage <= stage) || all_finite(r, q))
                continue;
            t.stage = stage;
            snprintf(t.name, sizeof t.name, "%s", q->p->t.name);
        }
    if (run->model->loss.stage >= 0 && r->plan.local_of[run->model->loss.stage] >= 0)
        for (int m = data_chunks(&run->data); m-- > 0;)
            if (!isfinite(r->results.loss[m]))
                t.microbatch = m;
    return t;
}

/* Those of all its members */
static int finite_norms(const Rank *r, const PpParam *q)
{
    int finite = 1;
    for (int k = 0; k < plan_members(r->run->model); k++) {
        int at = norm_of(&r->plan, q, k);
        finite &= at < 0 || isfinite(r->results.norm[1 + at]);
    }
    return finite;
}

/* Backward goes from the last stage to the first: the last one whose gradients are not finite made
 * them so. */
static const PpParam *first_gradient(const Rank *r, int *stage)
{
    const PpPlan *p = r->run->model;
    for (*stage = p->n_stage - 1; *stage >= 0; --*stage)
        for (int k = p->stage[*stage]->n_param; k-- > 0;) {
            const PpParam *q = &p->stage[*stage]->param[k];
            if (q->use != PP_TRANSMIT && !finite_norms(r, q))
                return q;
        }
    return NULL;
}

/* NULL: the step did not run once more, or forward left nothing */
static const Seen *first_seen(const Cause *t)
{
    return t->seen[0].stage >= 0 ? &t->seen[0] : t->seen[1].stage >= 0 ? &t->seen[1] : NULL;
}

static const char *gradient_name(const PpStage *st, const BadGradient *b)
{
    int input = 0;
    if (b->param >= 0)
        return st->param[b->param].t.name;
    for (int dx = b->dx; dx >= st->input[input].grads; input++)
        dx -= st->input[input].grads;
    return st->input[input].t.name;
}

static void report_text(char *to, size_t n, const Rank *r, const StepLog *s, const Cause *t)
{
    int bad_loss = !isfinite(s->loss);
    const char *what = bad_loss ? "loss" : "gradient's norm";
    double number = bad_loss ? s->loss : s->grad_norm,
           value = isnan(number) ? fabs(number) : number;
    const PpParam *q = bad_loss ? NULL : r->now.seek.param;
    char replica[40] = "";
    if (r->run->replicas > 1)
        snprintf(replica, sizeof replica, " of replica %d", t->gradient.replica);
    int at = snprintf(to, n, "step %" PRId64 ": the %s is %g", s->step, what, value);
    if (at < 0 || at >= (int)n)
        return;
    to += at;
    n -= (size_t)at;
    if (t->stage >= 0)
        snprintf(to, n, ": parameter '%s' of stage %d is not finite", t->name, t->stage);
    else if (t->input >= 0)
        snprintf(to, n, ": input '%s' holds a NaN, in microbatch %d",
                 r->run->model->input[t->input].name, t->input_microbatch);
    else if (q && t->gradient.stage >= 0)
        snprintf(to, n,
                 ": in microbatch %d%s that of '%s', in stage %d, is the first not to be finite",
                 t->gradient.microbatch, replica,
                 gradient_name(r->run->model->stage[t->gradient.stage], &t->gradient),
                 t->gradient.stage);
    else if (q)
        snprintf(to, n, ": that of '%s' in stage %d first", q->t.name, r->now.seek.stage);
    else if (t->microbatch >= 0 && r->now.seek.on && first_seen(t))
        snprintf(to, n, ": in microbatch %d %s, in stage %d, is the first value not to be finite",
                 t->microbatch,
                 r->run->model->stage[first_seen(t)->stage]->look.kept[first_seen(t)->kept].name,
                 first_seen(t)->stage);
    else if (t->microbatch >= 0)
        snprintf(to, n, ": microbatch %d first; the parameters are finite", t->microbatch);
}

static PpStatus report(const Rank *r, const StepLog *s, const Cause *t)
{
    char text[600];
    report_text(text, sizeof text, r, s, t);
    return pp_fail(PP_ERR_FINITE, "%s", text);
}

/* What all ranks know together. */
static PpStatus look_everywhere(Rank *r, int64_t step, int statistics, Cause *found)
{
    Cause *all, mine = look(r, step, statistics);
    TRY(group_agree(&r->group,
                    device_check(&r->dev, r->group.rank, "looking for what is not finite")));
    POOL(room);
    TRY(group_gather(&r->group, &mine, sizeof mine, &room, &all));
    *found = (Cause){.stage = -1,
                     .microbatch = -1,
                     .input = -1,
                     .seen = {{-1, -1}, {-1, -1}},
                     .gradient.stage = -1};
    for (int k = 0; k < r->group.ranks; k++) {
        if (all[k].stage >= 0 && (found->stage < 0 || all[k].stage < found->stage)) {
            found->stage = all[k].stage;
            memcpy(found->name, all[k].name, sizeof found->name);
        }
        if (all[k].microbatch >= 0)
            found->microbatch = all[k].microbatch;
        for (int i = 0; i < 2; i++)
            if (all[k].seen[i].stage >= 0 &&
                (found->seen[i].stage < 0 || all[k].seen[i].stage < found->seen[i].stage))
                found->seen[i] = all[k].seen[i];
        const BadGradient *b = &all[k].gradient, *f = &found->gradient;
        if (b->stage >= 0 && (f->stage < 0 || b->row < f->row ||
                              (b->row == f->row && b->stage > f->stage)))
            found->gradient = *b;
        if (all[k].input >= 0 && (found->input < 0 || all[k].input < found->input)) {
            found->input = all[k].input;
            found->input_microbatch = all[k].input_microbatch;
        }
    }
    return PP_OK;
}

PpStatus finite_statistics(Rank *r, int back)
{
    int64_t n = 0;
    if (strcmp(r->run->opt->train.on_nonfinite, "skip") != 0)
        return PP_OK;
    for (int l = 0; l < r->plan.n_stage; l++)
        n += stats_bytes(r->plan.stage[l].st);
    if (!r->now.statistics)
        TRY(pp_take(&r->pool, &r->now.statistics, n, 1));
    char *at = r->now.statistics;
    for (int l = 0; l < r->plan.n_stage; l++)
        for (int k = 0; k < r->plan.stage[l].st->n_param; k++) {
            const RankParam *q = &r->plan.stage[l].rp[k];
            if (!q->p->stat)
                continue;
            if (back)
                host_upload(&r->files, q->value, at, q->p->t.bytes);
            else
                memcpy(at, host_copy(&r->files, q->value, q->p->t.bytes), (size_t)q->p->t.bytes);
            at += q->p->t.bytes;
        }
    return PP_OK;
}

PpStatus finite_again(Rank *r, const StepLog *s, int *again)
{
    Cause t;
    int gradient = isfinite(s->loss) != 0;
    r->now.seek = (Seek){.seen = {{-1, -1}, {-1, -1}}, .gradient.stage = -1};
    r->now.seek.param = first_gradient(r, &r->now.seek.stage);
    TRY(look_everywhere(r, s->step - 1, r->run->opt->mode != MODE_TRAIN, &t));
    *again = r->now.seek.on = !s->skipped && r->run->opt->mode == MODE_TRAIN && t.stage < 0 &&
                              t.input < 0 && (gradient || t.microbatch >= 0);
    r->now.seek.microbatch = gradient ? -1 : t.microbatch;
    return PP_OK;
}

PpStatus finite_stop(Rank *r, const StepLog *s)
{
    Cause t;
    TRY(look_everywhere(r, s->step - 1, r->run->opt->mode != MODE_TRAIN, &t));
    if (!s->skipped || t.stage >= 0)
        return group_agree(&r->group, report(r, s, &t));
    char text[600];
    report_text(text, sizeof text, r, s, &t);
    if (r->group.rank == 0)
        fprintf(stderr, "pipeline: warning: %s: no update\n", text);
    return PP_OK;
}

PpStatus finite_parameters(Rank *r, int64_t done)
{
    Cause t;
    TRY(look_everywhere(r, done - 1, 1, &t));
    if (t.stage < 0)
        return PP_OK;
    return group_agree(
        &r->group, pp_fail(PP_ERR_FINITE,
                           "after step %" PRId64
                           ": parameter '%s' of stage %d is not finite: no checkpoint is written",
                           done, t.name, t.stage));
}

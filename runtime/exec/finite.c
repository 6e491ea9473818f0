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

void finite_found(Finding *first, Finding one, const char *name)
{
    const int64_t *a = one.order, *b = first->order;
    if (one.kind > first->kind ||
        (one.kind == first->kind && (a[0] != b[0] ? a[0] > b[0] : a[1] >= b[1])))
        return;
    snprintf(one.name, sizeof one.name, "%s", name);
    *first = one;
}

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
        for (int64_t i = 0; i < bytes / st_dtype_size(dtype); i++)
            bad += !isfinite(number_at(p, i, dtype));
        lowest += params_lowest(p, dtype, bytes);
    }
    return bad == 0 || (bad == q->lowest && lowest == q->lowest);
}

/* With a NaN: an infinity may well be meant, as a mask.  What is there is the last pass's. */
static void look_at_data(const Rank *r, int64_t step, Finding *first)
{
    const Run *run = r->run;
    for (int i = 0; i < run->model->n_input; i++)
        for (int m = 0; m < run->data.microbatches && r->feed.host[i]; m++) {
            const PpTensor *in = &run->model->input[i];
            const int64_t rows = data_computed(&r->data, step, exec_in_step(r, m));
            if (any_nan(r->feed.host[i] + m * r->plan.data.stride[i], in->dtype,
                        tensor_bytes(run->model, in, rows, r->feed.length[m])))
                finite_found(
                    first,
                    (Finding){.kind = BAD_INPUT, .order = {i, m}, .microbatch = exec_in_step(r, m)},
                    in->name);
        }
}

/* statistics: they count as parameters.  Those that a training step has moved are no cause: it
   normalizes by the rows' own. */
static Finding look(Rank *r, int64_t step, int statistics)
{
    const PpPlan *model = r->run->model;
    Finding first = r->now.seek.on ? r->now.seek.found : (Finding){.kind = BAD_NOTHING};
    look_at_data(r, step, &first);
    for (RankWalk i = {0}; plan_next(&r->plan, &i);) {
        const PpParam *p = i.q->p;
        const int stage = i.rs->st->index;
        if (p->use != PP_TRANSMIT && (p->stat ? statistics : p->trainable) && !all_finite(r, i.q))
            finite_found(&first,
                         (Finding){.kind = BAD_PARAM, .order = {stage, i.param}, .stage = stage},
                         p->t.name);
    }
    const int has_loss = model->loss.stage >= 0 && r->plan.local_of[model->loss.stage] >= 0;
    for (int m = 0; has_loss && m < data_chunks(&r->run->data); m++)
        if (!isfinite(r->results.loss[m]))
            finite_found(&first,
                         (Finding){.kind = BAD_LOSS, .order = {-r->group.rank, m}, .microbatch = m},
                         "");
    return first;
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

static void report_text(char *to, size_t n, const Rank *r, const StepLog *s, const Finding *t)
{
    int bad_loss = !isfinite(s->loss);
    const char *what = bad_loss ? "loss" : "gradient's norm";
    double number = bad_loss ? s->loss : s->grad_norm,
           value = isnan(number) ? fabs(number) : number;
    const PpParam *q = bad_loss ? NULL : r->now.seek.param;
    char replica[40] = "";
    if (r->run->replicas > 1)
        snprintf(replica, sizeof replica, " of replica %d", t->replica);
    int at = snprintf(to, n, "step %" PRId64 ": the %s is %g", s->step, what, value);
    if (at < 0 || at >= (int)n)
        return;
    to += at;
    n -= (size_t)at;
    if (t->kind == BAD_PARAM)
        snprintf(to, n, ": parameter '%s' of stage %d is not finite", t->name, t->stage);
    else if (t->kind == BAD_INPUT)
        snprintf(to, n, ": input '%s' holds a NaN, in microbatch %d", t->name, t->microbatch);
    else if (t->kind == BAD_GRADIENT)
        snprintf(to, n,
                 ": in microbatch %d%s that of '%s', in stage %d, is the first not to be finite",
                 t->microbatch, replica, t->name, t->stage);
    else if (q)
        snprintf(to, n, ": that of '%s' in stage %d first", q->t.name, r->now.seek.stage);
    else if (t->kind == BAD_LOSS)
        snprintf(to, n, ": microbatch %d first; the parameters are finite", t->microbatch);
    else if (t->kind != BAD_NOTHING)
        snprintf(to, n, ": in microbatch %d %s, in stage %d, is the first value not to be finite",
                 t->microbatch, t->name, t->stage);
}

static PpStatus report(const Rank *r, const StepLog *s, const Finding *t)
{
    char text[600];
    report_text(text, sizeof text, r, s, t);
    return pp_fail(PP_ERR_FINITE, "%s", text);
}

/* What all ranks know together. */
static PpStatus look_everywhere(Rank *r, int64_t step, int statistics, Finding *first)
{
    Finding *all, mine = look(r, step, statistics);
    TRY(group_agree(&r->group,
                    device_check(&r->dev, r->group.rank, "looking for what is not finite")));
    POOL(room);
    TRY(group_gather(&r->group, &mine, sizeof mine, &room, &all));
    first->kind = BAD_NOTHING;
    for (int k = 0; k < r->group.ranks; k++)
        finite_found(first, all[k], all[k].name);
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
    for (RankWalk i = {0}; plan_next(&r->plan, &i);) {
        const int64_t bytes = i.q->p->t.bytes;
        if (!i.q->p->stat)
            continue;
        if (back)
            host_upload(&r->files, i.q->value, at, bytes);
        else
            memcpy(at, host_copy(&r->files, i.q->value, bytes), (size_t)bytes);
        at += bytes;
    }
    return PP_OK;
}

PpStatus finite_again(Rank *r, const StepLog *s, int *again)
{
    Finding t;
    const int train = r->run->opt->mode == MODE_TRAIN, gradient = isfinite(s->loss) != 0;
    r->now.seek = (Seek){.found.kind = BAD_NOTHING};
    r->now.seek.param = first_gradient(r, &r->now.seek.stage);
    TRY(look_everywhere(r, s->step - 1, !train, &t));
    *again = r->now.seek.on =
        !s->skipped && train && t.kind > BAD_INPUT && (gradient || t.kind == BAD_LOSS);
    r->now.seek.microbatch = gradient ? -1 : t.microbatch;
    return PP_OK;
}

PpStatus finite_stop(Rank *r, const StepLog *s)
{
    Finding t;
    TRY(look_everywhere(r, s->step - 1, r->run->opt->mode != MODE_TRAIN, &t));
    if (!s->skipped || t.kind == BAD_PARAM)
        return group_agree(&r->group, report(r, s, &t));
    char text[600];
    report_text(text, sizeof text, r, s, &t);
    if (r->group.rank == 0)
        fprintf(stderr, "pipeline: warning: %s: no update\n", text);
    return PP_OK;
}

PpStatus finite_parameters(Rank *r, int64_t done)
{
    Finding t;
    TRY(look_everywhere(r, done - 1, 1, &t));
    if (t.kind != BAD_PARAM)
        return PP_OK;
    return group_agree(
        &r->group, pp_fail(PP_ERR_FINITE,
                           "after step %" PRId64
                           ": parameter '%s' of stage %d is not finite: no checkpoint is written",
                           done, t.name, t.stage));
}

/*
 * seek.c - the first value that is not finite.  In: a step that runs once more because its loss was
 * not finite, and the microbatch that showed it first; out: of the stages of this rank the first in
 * the model's order where such a number is in what forward leaves in memory, and which value holds
 * it (PpStage.kept).  What of the forward is in registers, or in memory for a moment only, is seen
 * in the next value that stays.
 *
 * Minus infinity alone may well be meant, as a mask of attention: values that have nothing else are
 * named only if there is no other.
 *
 * Of a gradient the step runs once more too, and all backwards are looked at: the first that was
 * given finite gradients and leaves another, the first in the order of rows and then from the last
 * stage on, has made it.
 */
#include "exec.h"

#include "base/file/safetensors.h"
#include "core/number.h"

#include <math.h>

enum { FOUND = 1, MASKED = 2 };

static int look_at(double v) { return isnan(v) || v > 0 ? FOUND : MASKED; }

static int look(const void *at, int dtype, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = number_at(at, i, dtype);
        if (!isfinite(v))
            found |= look_at(v);
    }
    return found;
}

/* On a device, piece by piece. */
static int look_through(Rank *r, const char *at, int dtype, int64_t bytes)
{
    int found = 0;
    for (int64_t i = 0, n; i < bytes && found != (FOUND | MASKED); i += n) {
        n = bytes - i < host_room(r) ? bytes - i : host_room(r);
        found |= look(host_copy(&r->files, at + i, n), dtype, n / st_dtype_size(dtype));
    }
    return found;
}

void seek_begin(Rank *r, const PpStage *st, const PpCtx *c)
{
    Device *d = &r->dev; /* padding may hold anything */
    d->op->zero(d, d->current, c->stash, st->bytes.stash);
    for (int k = 0; k < st->n_again; k++)
        d->op->zero(d, d->current, c->again[k], st->again[k].bytes);
}

static int64_t bytes_here(const Rank *r, const PpTensor *t, const PpCtx *c)
{
    return tensor_bytes(r->run->model, t, c->rows, c->length);
}

void seek_end(Rank *r, const PpStage *st, const PpCtx *c)
{
    for (int k = 0; k < st->look.n_kept; k++) {
        const PpKept *v = &st->look.kept[k];
        const char *at = v->output >= 0 ? c->out[v->output]
                         : v->part >= 0 ? c->again[v->part] + v->offset
                                        : c->stash + v->offset;
        if (!at) /* an output that nobody asks for */
            continue;
        int64_t bytes = v->output >= 0 ? bytes_here(r, &st->output[v->output].t, c) : v->bytes;
        int found = look_through(r, at, v->dtype, bytes);
        for (int masked = 0; masked < 2; masked++)
            if (found & (masked ? MASKED : FOUND))
                finite_found(&r->now.seek.found,
                             (Finding){.kind = masked ? BAD_MASKED : BAD_VALUE,
                                       .order = {st->index, k},
                                       .stage = st->index,
                                       .microbatch = r->now.seek.microbatch},
                             v->name);
    }
}

/* ---- gradients ---- */

static int is_bad(Rank *r, const void *at, int dtype, int64_t bytes)
{
    return bytes > 0 && look_through(r, at, dtype, bytes) != 0;
}

/* The parameter whose gradient is not finite, of all of its uses; NULL: none */
static const char *bad_param(Rank *r, const PpStage *st, const PpCtx *c)
{
    for (int k = 0; k < st->n_param; k++) {
        const PpParam *q = &st->param[k];
        if (q->grad_offset < 0)
            continue;
        int bad = is_bad(r, c->grad + q->grad_offset, q->t.dtype, q->t.bytes);
        for (int use = 0; use < q->more; use++)
            bad |= is_bad(r, c->grad + q->more_offset + use * align_up(q->t.bytes), q->t.dtype,
                          q->t.bytes);
        for (int i = 0; i < st->mesh.n_partial; i++)
            for (int64_t at = 0, others = plan_pieces(r->run->model, &st->mesh.partial[i]) - 1;
                 st->mesh.partial[i].param == k && at < others; at++)
                bad |= is_bad(r, c->grad + st->mesh.partial[i].offset + at * align_up(q->t.bytes),
                              q->t.dtype, q->t.bytes);
        if (bad)
            return q->t.name;
    }
    return NULL;
}

/* The input whose gradient, which is sent back, is not finite; NULL: none */
static const char *bad_dx(Rank *r, const PpStage *st, const PpCtx *c)
{
    for (int i = 0, k = 0; i < st->n_input; i++)
        for (int g = 0; g < st->input[i].grads; g++, k++)
            if (is_bad(r, c->dx[k], st->input[i].t.dtype, bytes_here(r, &st->input[i].t, c)))
                return st->input[i].t.name;
    return NULL;
}

static int bad_dy(Rank *r, const PpStage *st, const PpCtx *c)
{
    for (int j = 0; j < st->n_dy; j++) {
        const PpTensor *t = &st->output[st->dy[j].output].t;
        if (is_bad(r, c->dy[j], t->dtype, bytes_here(r, t, c)))
            return 1;
    }
    return 0;
}

/* What a W was given may be gone: its I has looked at it.  A parameter's sum stays bad: it is
 * looked at until then. */
void seek_backward(Rank *r, const Op *op, const PpCtx *c, int64_t row)
{
    StageRun *own = &r->stage[op->local];
    const PpStage *st = r->plan.stage[op->local].st;
    int type = op->a.type;
    if (type != SA_W && bad_dy(r, st, c)) {
        own->bad = 1;
        return;
    }
    const char *dx = type == SA_W ? NULL : bad_dx(r, st, c),
               *param = type == SA_I || own->bad ? NULL : bad_param(r, st, c);
    own->bad |= param != NULL;
    if (dx || param)
        finite_found(&r->now.seek.found,
                     (Finding){.kind = BAD_GRADIENT,
                               .order = {row, -st->index},
                               .stage = st->index,
                               .microbatch = exec_in_step(r, c->microbatch),
                               .replica = r->replica},
                     param ? param : dx);
}

/*
 * seek.c - the first value that is not finite.  In: a step that runs once more because its loss was
 * not finite, and the microbatch that showed it first; out: of the stages of this rank the first in
 * the model's order where such a number is in what forward leaves in memory, and which value holds
 * it (PpStage.kept).  What of the forward is in registers, or in memory for a moment only, is seen
 * in the next value that stays.
 *
 * Minus infinity alone may well be meant, as a mask of attention: values that have nothing else are
 * named only if there is no other.
 */
#include "exec.h"

#include "api/pp_half.h"
#include "base/file/safetensors.h"

#include <math.h>
#include <string.h>

enum { FOUND = 1, MASKED = 2 };

static int look_at(double v) { return isnan(v) || v > 0 ? FOUND : MASKED; }

static int look(const void *at, int dtype, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = 0;
        if (dtype == PP_F32)
            v = (double)((const float *)at)[i];
        else if (dtype == PP_F64)
            v = ((const double *)at)[i];
        else if (dtype == PP_BF16)
            v = (double)pp_from_bf16(((const uint16_t *)at)[i]);
        else if (dtype == PP_F16)
            v = (double)pp_from_f16(((const uint16_t *)at)[i]);
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
    d->op->zero(d, d->current, c->stash, st->bytes_stash);
    for (int k = 0; k < st->n_again; k++)
        d->op->zero(d, d->current, c->again[k], st->again[k].bytes);
}

void seek_end(Rank *r, const PpStage *st, const PpCtx *c)
{
    for (int k = 0; k < st->n_kept; k++) {
        const PpKept *v = &st->kept[k];
        const char *at = v->output >= 0 ? c->out[v->output]
                         : v->part >= 0 ? c->again[v->part] + v->offset
                                        : c->stash + v->offset;
        int64_t bytes = v->output >= 0
                            ? tensor_bytes(&st->output[v->output].t, c->rows, r->run->model->rows)
                            : v->bytes;
        int found = look_through(r, at, v->dtype, bytes);
        for (int masked = 0; masked < 2; masked++) {
            Seen *s = &r->seek.seen[masked];
            if ((found & (masked ? MASKED : FOUND)) && (s->stage < 0 || s->stage > st->index))
                *s = (Seen){st->index, k};
        }
    }
}

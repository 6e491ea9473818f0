/*
 * recompute.c - R: what a backward reads is computed again instead of kept.
 *
 * In: rows; for each (stage, microbatch) what of its stash is to be computed again.  Out: the same
 * rows with an R for each of them in the cell before its backward (B or I), in the place of an idle
 * slot that stands there.  That is as late as it can be: the stash lives from R on, so a rank holds
 * one that was computed again at a time (with I and W apart, those whose W is still to come), and
 * the executor, which receives while it computes, runs R while the gradient of the outputs is on
 * its way: what a backward would have waited for it is hidden.
 */
#include "schedule/rows.h"

#include <stdlib.h>
#include <string.h>

static int32_t *wanted(int32_t *parts, const Schedule *s, const SchedAction *a)
{
    int backward = a->type == SA_B || a->type == SA_I;
    return backward ? &parts[sched_pair(s, a->stage, a->microbatch)] : NULL;
}

/* The R's of a cell, before it. */
static void recompute_before(const Schedule *s, const SchedRow *row, int i, int end, int32_t *parts,
                             SchedRow *out)
{
    for (int k = i; k < end; k++) {
        int32_t *p = wanted(parts, s, &row->a[k]);
        if (!p || !*p)
            continue;
        SchedAction r = sched_act(SA_R, row->a[k].stage, row->a[k].microbatch);
        r.peer = *p;
        if (out->n > 0 && out->cap > 0 && out->a[out->n - 1].type == SA_IDLE)
            out->n--;
        sched_push(out, r);
        *p = 0;
    }
}

int sched_recompute(Schedule *s, const int32_t *parts, SchedError *e)
{
    size_t n = sched_pairs(s);
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int32_t *left = malloc(n * sizeof *left + 1);
    if (!rows || !left) {
        free(left);
        return sched_take_rows(s, rows, sched_nomem(e), e);
    }
    memcpy(left, parts, n * sizeof *left);
    for (int r = 0; r < s->ranks; r++) /* what the rows recompute already they do as they say */
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            if (a->type == SA_R)
                left[sched_pair(s, a->stage, a->microbatch)] = 0;
        }
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n;) {
            int end = sched_cell_end(&s->row[r], i);
            recompute_before(s, &s->row[r], i, end, left, &rows[r]);
            for (; i < end; i++)
                sched_push(&rows[r], s->row[r].a[i]);
        }
    free(left);
    return sched_take_rows(s, rows, SCHED_OK, e);
}

/* ---- --recompute as text ---- */

static int stages_named(const char *text, int stages, int microbatches, int32_t *parts,
                        SchedError *e)
{
    for (const char *p = text;; p++) {
        char *end;
        long stage = *p >= '0' && *p <= '9' ? strtol(p, &end, 10) : -1;
        if (stage < 0 || (*end && *end != ','))
            return sched_fail(e, SCHED_EUSAGE, -1, -1,
                              "--recompute %.60s: expected never, except-last, always, cheap, auto "
                              "or numbers of stages (0,2)",
                              text);
        if (stage >= stages)
            return sched_fail(e, SCHED_EUSAGE, -1, -1,
                              "--recompute %.60s: there is no stage %ld, the last one is %d", text,
                              stage, stages - 1);
        for (int m = 0; m < microbatches; m++)
            parts[(size_t)stage * (size_t)microbatches + (size_t)m] = SCHED_WHOLE;
        p = end;
        if (!*p)
            return SCHED_OK;
    }
}

int sched_recompute_parse(const char *text, int stages, int microbatches, int32_t *parts,
                          SchedError *e)
{
    int cheap = strcmp(text, "cheap") == 0, always = strcmp(text, "always") == 0,
        but_last = strcmp(text, "except-last") == 0;
    memset(parts, 0, (size_t)stages * (size_t)microbatches * sizeof *parts);
    if (strcmp(text, "never") == 0)
        return SCHED_OK;
    if (!cheap && !always && !but_last)
        return stages_named(text, stages, microbatches, parts, e);
    for (int s = 0; s < stages; s++)
        for (int m = 0; m < microbatches - but_last; m++)
            parts[(size_t)s * (size_t)microbatches + (size_t)m] =
                cheap ? SCHED_CHEAP : SCHED_WHOLE;
    return SCHED_OK;
}

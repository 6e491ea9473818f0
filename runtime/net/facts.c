/*
 * facts.c - in: each rank's facts; out: the first difference, or none.  One number of each rank is
 * compared where all are equal; else numbers of a block of facts at a time, and of the first fact
 * that differs its text.
 */
#include "facts.h"

#include "base/file/hash.h"
#include "core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

void facts_add(Facts *f, const char *why, const char *fmt, ...)
{
    Fact one = {.why = why};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(one.text, sizeof one.text, fmt, ap);
    va_end(ap);
    PpStatus s = pp_add(f->pool, &f->at, &f->n, &one, sizeof one);
    if (s == PP_OK)
        facts_digest(f, one.text);
    else
        f->status = s;
}

void facts_digest(Facts *f, const char *digest)
{
    uint64_t h = digest ? hash_bytes(HASH_START, digest, strlen(digest)) : 0;
    if (f->n)
        f->at[f->n - 1].hash = h || !digest ? h : 1;
}

/* ---- where they differ ---- */

typedef struct {
    int fact, rank, other; /* fact -1: nowhere */
} Difference;

/* In facts from .. from + BLOCK - 1; all[]: BLOCK numbers of each rank. */
static Difference find(const uint64_t *all, int ranks, int from)
{
    for (int i = 0; i < BLOCK; i++) {
        int one = -1;
        for (int k = 0; k < ranks; k++) {
            uint64_t h = all[k * BLOCK + i];
            if (!h)
                continue;
            if (one < 0)
                one = k;
            else if (h != all[one * BLOCK + i])
                return (Difference){from + i, k, one};
        }
    }
    return (Difference){.fact = -1};
}

static PpStatus find_all(Group *g, const Facts *f, int64_t n, uint64_t *all, Difference *d)
{
    *d = (Difference){.fact = -1};
    for (int from = 0; from < n && d->fact < 0; from += BLOCK) {
        uint64_t mine[BLOCK] = {0};
        for (int i = 0; i < BLOCK && from + i < f->n; i++)
            mine[i] = f->at[from + i].hash;
        TRY(g->op->gather(g, mine, sizeof mine, all));
        *d = find(all, g->ranks, from);
    }
    return PP_OK;
}

static PpStatus say(Group *g, const Facts *f, const Difference *d)
{
    char mine[FACT_TEXT] = "nothing";
    const char *why = d->fact < f->n ? f->at[d->fact].why : "";
    if (d->fact < f->n)
        snprintf(mine, sizeof mine, "%s", f->at[d->fact].text);
    char *all;
    POOL(room);
    TRY(group_gather(g, mine, sizeof mine, &room, &all));
    return pp_fail(PP_ERR_MODEL, "%s has %s, %s has %s: %s", pp_rank(d->rank).text,
                   all + (size_t)d->rank * sizeof mine, pp_rank(d->other).text,
                   all + (size_t)d->other * sizeof mine, why);
}

PpStatus facts_compare(Group *g, const Facts *f)
{
    struct {
        uint64_t all;
        int64_t n, status;
    } mine = {.all = HASH_START, .n = f->n, .status = f->status}, *list;
    for (int i = 0; i < f->n; i++)
        mine.all = hash_value(mine.all, f->at[i].hash);
    uint64_t *all;
    POOL(room);
    TRY(pp_take(&room, &list, g->ranks, sizeof *list));
    TRY(pp_take(&room, &all, g->ranks, BLOCK * sizeof *all));
    PpStatus s = g->op->gather(g, &mine, sizeof mine, list);
    int64_t most = 0;
    int same = 1;
    for (int k = 0; k < g->ranks && s == PP_OK; k++) {
        same &= list[k].all == list[0].all && list[k].n == list[0].n;
        most = list[k].n > most ? list[k].n : most;
        if (list[k].status)
            s = k == g->rank ? f->status : PP_ERR_PEER;
    }
    Difference d = {.fact = -1};
    if (s == PP_OK && !same)
        s = find_all(g, f, most, all, &d);
    return s == PP_OK && d.fact >= 0 ? say(g, f, &d) : s;
}

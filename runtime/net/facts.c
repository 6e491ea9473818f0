/*
 * facts.c - in: each rank's facts; out: the first difference, or none.  Hashes are compared, and of
 * the first fact that differs its text.
 */
#include "facts.h"

#include "base/file/hash.h"
#include "core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* all: n hashes of each rank */
static Difference find(const uint64_t *all, int ranks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int one = -1;
        for (int k = 0; k < ranks; k++) {
            uint64_t h = all[k * n + i];
            if (h && one >= 0 && h != all[one * n + i])
                return (Difference){(int)i, k, one};
            one = h && one < 0 ? k : one;
        }
    }
    return (Difference){.fact = -1};
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
        int64_t n, status;
    } mine = {f->n, f->status}, *list;
    int64_t most = 0;
    uint64_t *own, *all;
    POOL(room);
    TRY(group_gather(g, &mine, sizeof mine, &room, &list));
    for (int k = 0; k < g->ranks; k++) {
        most = list[k].n > most ? list[k].n : most;
        if (list[k].status)
            return f->status != PP_OK ? f->status : PP_ERR_PEER;
    }
    TRY(group_agree(g, pp_take(&room, &own, most, sizeof *own)));
    for (int i = 0; i < f->n; i++)
        own[i] = f->at[i].hash;
    TRY(group_gather(g, own, (size_t)most * sizeof *own, &room, &all));
    const Difference d = find(all, g->ranks, most);
    return d.fact < 0 ? PP_OK : say(g, f, &d);
}

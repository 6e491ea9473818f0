/*
 * costs.c - the costs a simulation uses: unit costs, or a list on the command line.
 *
 * In: `F=1,I=1,W=1,B=2,c=0` (of one stage: `3F=2`).  Out: SchedCosts.  What is not given follows
 * from what is: B = I + W, and I = W = B / 2.
 */
#include "schedule/rows.h"
#include "simulate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void sched_costs_default(SchedCosts *c)
{
    memset(c, 0, sizeof *c);
    c->time[SA_F] = c->time[SA_I] = c->time[SA_W] = c->time[SA_R] = 1;
    c->time[SA_OFFLOAD] = c->time[SA_FETCH] = 1;
    c->time[SA_B] = 2;
    c->late = 1;
    c->overlap = -1;
}

void sched_costs_free(SchedCosts *c)
{
    free(c->stage_time);
    free(c->stage_reduction);
    free(c->stage_beside);
    free(c->clock);
    if (c->vary) {
        free(c->vary->time);
        free(c->vary->sent);
        free(c->vary->of.length);
        free(c->vary);
    }
    c->vary = NULL;
    c->stage_time = c->stage_reduction = c->stage_beside = c->clock = NULL;
    c->runs = 0;
    c->stages = 0;
}

int sched_costs_stages(SchedCosts *c, int stages, SchedError *e)
{
    const struct {
        double **list;
        size_t each;
        double unknown;
    } of[] = {
        {&c->stage_time, SA_TYPES, -1}, {&c->stage_reduction, 1, -1}, {&c->stage_beside, 1, 0}};
    if (stages <= c->stages)
        return SCHED_OK;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        const size_t n = (size_t)stages * of[k].each;
        double *p = stages > INT_MAX / SA_TYPES / 16 ? NULL : realloc(*of[k].list, n * sizeof *p);
        if (!p)
            return sched_nomem(e);
        for (size_t i = (size_t)c->stages * of[k].each; i < n; i++)
            p[i] = of[k].unknown;
        *of[k].list = p;
    }
    c->stages = stages;
    return SCHED_OK;
}

void sched_costs_complete(double *t)
{
    if (t[SA_B] >= 0 && t[SA_I] < 0 && t[SA_W] < 0)
        t[SA_I] = t[SA_W] = t[SA_B] / 2;
    else if (t[SA_B] >= 0 && t[SA_I] >= 0 && t[SA_W] < 0)
        t[SA_W] = t[SA_B] > t[SA_I] ? t[SA_B] - t[SA_I] : 0;
    else if (t[SA_B] >= 0 && t[SA_W] >= 0 && t[SA_I] < 0)
        t[SA_I] = t[SA_B] > t[SA_W] ? t[SA_B] - t[SA_W] : 0;
    else if (t[SA_B] < 0 && t[SA_I] >= 0 && t[SA_W] >= 0)
        t[SA_B] = t[SA_I] + t[SA_W];
    if (t[SA_R] < 0 && t[SA_F] >= 0)
        t[SA_R] = t[SA_F];
}

static int type_of(const char *name, size_t n)
{
    for (int t = 1; t < SA_TYPES; t++)
        if (strlen(sched_type_name(t)) == n && memcmp(sched_type_name(t), name, n) == 0)
            return t;
    return 0;
}

/* One `KEY=VALUE`; given[]: the types set for all stages. */
static int set_one(SchedCosts *c, const char *p, size_t n, double *given, SchedError *e)
{
    const char *eq = memchr(p, '=', n), *key = p, *key_end;
    char *end, number[64];
    long stage = -1;
    int type, st;
    if (!eq || n - (size_t)(eq - p) - 1 >= sizeof number || eq[1] == ',' ||
        n == (size_t)(eq - p) + 1)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "'%.*s' is not a cost; costs look like F=1,I=1,W=1,B=2,c=0",
                          (int)(n < 60 ? n : 60), p);
    memcpy(number, eq + 1, n - (size_t)(eq - p) - 1);
    number[n - (size_t)(eq - p) - 1] = 0;
    double v = strtod(number, &end);
    if (*end || !(v >= 0) || v > 1e300)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "'%.60s' is not a cost: expected a number of 0 or more", number);
    if (key < eq && *key >= '0' && *key <= '9') {
        stage = strtol(key, &end, 10);
        key = end;
    }
    key_end = eq;
    if (stage < 0 && key_end - key == 1 && *key == 'c') {
        c->latency = v;
        return SCHED_OK;
    }
    if (stage < 0 && key_end - key == 2 && !memcmp(key, "MW", 2)) {
        if (v > 1)
            return sched_fail(e, SCHED_EUSAGE, -1, -1,
                              "'MW=%.40s': it is a part of a chunk's memory, so at most 1", number);
        c->late = v;
        return SCHED_OK;
    }
    if (key_end - key == 2 && !memcmp(key, "AR", 2) && stage <= 1 << 20) {
        if (stage < 0) {
            c->reduction = v;
            return SCHED_OK;
        }
        if ((st = sched_costs_stages(c, (int)stage + 1, e)))
            return st;
        c->stage_reduction[stage] = v;
        return SCHED_OK;
    }
    if (!(type = type_of(key, (size_t)(key_end - key))) || stage > 1 << 20)
        return sched_fail(
            e, SCHED_EUSAGE, -1, -1,
            "'%.*s' has no cost; use F, I, W, B, R or another action, AR (sum over replicas), c "
            "(one message), or MW (the part of a chunk's memory that W frees)",
            (int)(eq - p < 60 ? eq - p : 60), p);
    if (stage < 0) {
        given[type] = v;
        return SCHED_OK;
    }
    if ((st = sched_costs_stages(c, (int)stage + 1, e)))
        return st;
    c->stage_time[stage * SA_TYPES + type] = v;
    return SCHED_OK;
}

int sched_costs_set(SchedCosts *c, const char *list, SchedError *e)
{
    double given[SA_TYPES];
    for (int t = 0; t < SA_TYPES; t++)
        given[t] = -1;
    for (const char *p = list;;) {
        size_t n = strcspn(p, ",");
        int st = set_one(c, p, n, given, e);
        if (st)
            return st;
        if (!p[n])
            break;
        p += n + 1;
    }
    sched_costs_complete(given);
    for (int t = 0; t < SA_TYPES; t++)
        if (given[t] >= 0)
            c->time[t] = given[t];
    for (int s = 0; s < c->stages; s++)
        sched_costs_complete(&c->stage_time[(size_t)s * SA_TYPES]);
    return SCHED_OK;
}

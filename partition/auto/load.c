/*
 * load.c - the load of a set of groups as one stage, kept while groups come and go.
 *
 * A value costs the stage that makes it where any reader is outside, and the stage that reads it
 * where the maker is, and any later reader where it is handed on; a parameter that an earlier stage
 * reads too is sent here.
 */
#include "dag.h"

Load load_new(const Dag *d, const uint32_t *first, Arena *a)
{
    Load l = {.d = d, .first = first};
    l.readers = arena_array(a, uint32_t, d->values + 1);
    l.keepers = arena_array(a, uint32_t, d->values + 1);
    l.before = arena_array(a, uint32_t, d->values + 1);
    l.made = arena_array(a, bool, d->values + 1);
    l.param = arena_array(a, uint32_t, d->params + 1);
    l.owned = arena_array(a, bool, d->params + 1);
    return l;
}

static Ticks link_of(const Load *l, uint32_t v)
{
    const DagValue *x = &l->d->value[v];
    if (l->made[v])
        return l->readers[v] < x->readers ? x->out : 0;
    bool later = x->handed.n > 0 && l->before[v] + l->readers[v] < x->readers;
    return l->readers[v] > 0 ? x->in + (later ? x->out : 0) : 0;
}

static uint32_t read_before(const Load *l, uint32_t v)
{
    const Ids *read = &l->d->value[v].handed;
    uint32_t n = 0;
    for (uint32_t i = 0; i < read->n; i++)
        n += read->at[i] < *l->first;
    return n;
}

static void change_params(Load *l, const Group *x, int by)
{
    for (uint32_t i = 0; i < x->param.n; i++) {
        uint32_t k = x->param.at[i];
        const DagParam *p = &l->d->param[k];
        if (by > 0 ? l->param[k]++ > 0 : --l->param[k] > 0)
            continue;
        bool owned = by > 0 || l->owned[k];
        for (uint32_t j = 0; j < p->read.n && owned && by > 0; j++)
            owned = p->read.at[j] >= *l->first;
        l->owned[k] = owned;
        l->params += by * (p->held + (owned ? p->owned : 0));
        l->link += owned ? 0 : by * p->in;
    }
}

/* by: 1, the group comes; -1, it goes. */
static void change(Load *l, uint32_t group, int by)
{
    const Group *x = &l->d->group[group];
    l->time += by * x->time;
    l->works += (uint32_t)(by * x->works);
    for (uint32_t i = 0; i < x->made.n; i++) {
        uint32_t v = x->made.at[i];
        l->link -= link_of(l, v);
        l->made[v] = by > 0;
        l->link += link_of(l, v);
    }
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t v = x->read.at[i].value;
        if (x->read.at[i].keeps && (by > 0 ? l->keepers[v]++ : --l->keepers[v]) == 0)
            l->stash += by * l->d->value[v].kept;
        if (l->d->value[v].from == group)
            continue;
        l->link -= link_of(l, v);
        if (by > 0 && l->readers[v] == 0)
            l->before[v] = read_before(l, v);
        l->readers[v] += (uint32_t)by;
        l->link += link_of(l, v);
    }
    change_params(l, x, by);
}

void load_add(Load *l, uint32_t group) { change(l, group, 1); }

void load_remove(Load *l, uint32_t group) { change(l, group, -1); }

bool load_fits(const Load *l, uint32_t stage)
{
    const int64_t live = l->d->p->live ? l->d->p->live[stage] : 1;
    return !l->d->most || l->params + live * l->stash <= l->d->most[stage];
}

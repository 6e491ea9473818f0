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

static void read_params(Load *l, const Group *x)
{
    for (uint32_t i = 0; i < x->param.n; i++) {
        uint32_t k = x->param.at[i];
        const DagParam *p = &l->d->param[k];
        if (l->param[k]++ > 0)
            continue;
        bool owned = true;
        for (uint32_t j = 0; j < p->read.n && owned; j++)
            owned = p->read.at[j] >= *l->first;
        l->owned[k] = owned;
        l->params += p->held + (owned ? p->owned : 0);
        l->link += owned ? 0 : p->in;
    }
}

static void leave_params(Load *l, const Group *x)
{
    for (uint32_t i = 0; i < x->param.n; i++) {
        uint32_t k = x->param.at[i];
        const DagParam *p = &l->d->param[k];
        if (--l->param[k] > 0)
            continue;
        l->params -= p->held + (l->owned[k] ? p->owned : 0);
        l->link -= l->owned[k] ? 0 : p->in;
    }
}

void load_add(Load *l, uint32_t group)
{
    const Group *x = &l->d->group[group];
    l->time += x->time;
    l->works += x->works;
    for (uint32_t i = 0; i < x->made.n; i++) {
        uint32_t v = x->made.at[i];
        l->link -= link_of(l, v);
        l->made[v] = true;
        l->link += link_of(l, v);
    }
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t v = x->read.at[i].value;
        if (x->read.at[i].keeps && l->keepers[v]++ == 0)
            l->stash += l->d->value[v].kept;
        if (l->d->value[v].from == group)
            continue;
        l->link -= link_of(l, v);
        if (l->readers[v]++ == 0)
            l->before[v] = read_before(l, v);
        l->link += link_of(l, v);
    }
    read_params(l, x);
}

void load_remove(Load *l, uint32_t group)
{
    const Group *x = &l->d->group[group];
    leave_params(l, x);
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t v = x->read.at[i].value;
        if (x->read.at[i].keeps && --l->keepers[v] == 0)
            l->stash -= l->d->value[v].kept;
        if (l->d->value[v].from == group)
            continue;
        l->link -= link_of(l, v);
        l->readers[v]--;
        l->link += link_of(l, v);
    }
    for (uint32_t i = 0; i < x->made.n; i++) {
        uint32_t v = x->made.at[i];
        l->link -= link_of(l, v);
        l->made[v] = false;
        l->link += link_of(l, v);
    }
    l->time -= x->time;
    l->works -= x->works;
}

bool load_fits(const Load *l, uint32_t stage)
{
    return !l->d->most || load_memory(l, dag_live(l->d, stage)) <= l->d->most[stage];
}

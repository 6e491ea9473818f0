/*
 * contract.c - groups that some best cut has in one stage: fewer ideals, the same optimum.
 *
 * Where all that comes after x is y, x may be pulled to y's stage; where all that x comes after is
 * y, it may be pushed there.  Either is never worse, for either stage, when the messages that end
 * pay for the time that moves and for the messages that begin.  (It would be where x had a stage to
 * itself and leaves it empty: so only where groups are many.)
 */
#include "dag.h"

enum { MANY = 4 }; /* groups for each stage */

/* Whether x's read of v ends v's message to other stages. */
static bool only_reader(const Dag *d, uint32_t v) { return d->value[v].readers == 1; }

static bool reads(const Group *x, uint32_t v)
{
    for (uint32_t i = 0; i < x->read.n; i++)
        if (x->read.at[i].value == v)
            return true;
    return false;
}

/* No parameter of x's is read elsewhere: none would be sent, or no longer, if x moved. */
static bool own_params(const Dag *d, const Group *x)
{
    for (uint32_t i = 0; i < x->param.n; i++)
        if (d->param[x->param.at[i]].read.n > 1)
            return false;
    return true;
}

typedef struct {
    Ticks in, out, sole_out, new_in;
} Messages;

/* Of what x makes; and of what it reads: new_in without what y reads as well. */
static Messages made_by(const Dag *d, const Group *x)
{
    Messages m = {0};
    for (uint32_t i = 0; i < x->made.n; i++) {
        const DagValue *v = &d->value[x->made.at[i]];
        m.in += v->readers > 0 ? v->in : 0;
        m.out += v->readers > 0 ? v->out : 0;
    }
    return m;
}

static Messages read_by(const Dag *d, uint32_t group, const Group *y)
{
    const Group *x = &d->group[group];
    Messages m = {0};
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t v = x->read.at[i].value;
        if (d->value[v].from == group)
            continue;
        m.in += d->value[v].in;
        m.out += d->value[v].out;
        m.sole_out += only_reader(d, v) ? d->value[v].out : 0;
        m.new_in += reads(y, v) ? 0 : d->value[v].in;
    }
    return m;
}

static bool may_pull(const Dag *d, uint32_t group)
{
    const Group *x = &d->group[group];
    if (x->after.n != 1 || !own_params(d, x))
        return false;
    Messages made = made_by(d, x), read = read_by(d, group, &d->group[x->after.at[0]]);
    return x->time + read.new_in <= made.in && read.out <= x->time + made.out;
}

static bool may_push(const Dag *d, uint32_t group)
{
    const Group *x = &d->group[group];
    if (x->before.n != 1 || !own_params(d, x))
        return false;
    Messages made = made_by(d, x), read = read_by(d, group, x);
    return x->time + made.out <= read.sole_out && made.in <= x->time + read.in;
}

bool contract(const Dag *d, CutGraph *g)
{
    uint32_t left = d->n;
    bool *taken = arena_array(d->a, bool, d->n + 1), any = false;
    uint32_t *first = arena_array(d->a, uint32_t, d->n + 1);
    if (d->p->in_order || d->most)
        return false;
    for (uint32_t n = g->nodes; n-- > 0;)
        first[d->group_of[n]] = n;
    for (uint32_t x = 0; x < d->n && left > MANY * d->p->stages; x++) {
        const Group *s = &d->group[x];
        uint32_t y = NONE;
        if (s->after.n == 1 && !taken[s->after.at[0]] && may_pull(d, x))
            y = s->after.at[0];
        else if (s->before.n == 1 && !taken[s->before.at[0]] && may_push(d, x))
            y = s->before.at[0];
        if (y == NONE || taken[x])
            continue;
        taken[x] = taken[y] = any = true;
        left--;
        CutPair pair = {first[x], first[y]};
        vec_push(d->a, &g->together, pair);
    }
    return any;
}

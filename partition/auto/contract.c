/*
 * contract.c - groups that some best cut has in one stage: fewer ideals, the same optimum.
 *
 * Where all that comes after x is y, or all that x comes after, x may go to y's stage.  It is no
 * worse, for either stage, when the messages that end pay for the time that moves and for the
 * messages that begin, and for a third stage nothing does.  A stage that x had to itself is then
 * empty: the cut is the best one of so many stages or fewer.
 */
#include "dag.h"

enum { MANY = 4 }; /* groups for each stage, so that few are empty */

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

/* Of a stage: what it may have to do more, and what it surely no longer does. */
typedef struct {
    Ticks more, less;
} Change;
typedef struct {
    Change left, reached; /* x's stage, y's */
    bool third;           /* another's, maybe */
} Changes;

/* Of a message that x sends: to y alone, to y and others, who may be anywhere, or to others. */
static void no_longer_made(const DagValue *v, bool to_y, Changes *c)
{
    bool others = v->readers > (to_y ? 1 : 0);
    c->left.less += to_y ? v->out : 0;
    c->left.more += others ? v->in : 0;
    c->reached.less += to_y ? v->in : 0;
    c->reached.more += others ? v->out : 0;
}

/* Of one that x is sent: by y, to it alone or not; by another, to y too or not.  What is handed on
 * goes other ways then, between stages that are neither. */
static void no_longer_read(const DagValue *v, uint32_t y, bool by_y, Changes *c)
{
    if (v->from != y && !by_y && v->handed.n > 0) {
        c->third = true;
    } else if (v->from == y && v->readers == 1) {
        c->left.less += v->in;
        c->reached.less += v->out;
    } else if (v->from != y && !by_y) {
        c->left.more += v->out;
        c->reached.more += v->in;
    }
}

/* Where x goes from its stage to y's. */
static bool may_go(const Dag *d, uint32_t group, uint32_t y)
{
    const Group *x = &d->group[group];
    Changes c = {{0, x->time}, {x->time, 0}, false};
    for (uint32_t i = 0; i < x->made.n; i++)
        no_longer_made(&d->value[x->made.at[i]], reads(&d->group[y], x->made.at[i]), &c);
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t v = x->read.at[i].value;
        if (d->value[v].from != group)
            no_longer_read(&d->value[v], y, reads(&d->group[y], v), &c);
    }
    return !c.third && c.left.more <= c.left.less && c.reached.more <= c.reached.less;
}

/* The one before or after x that x may go to; NONE. */
static uint32_t only_beside(const Dag *d, const bool *taken, uint32_t group)
{
    const Group *x = &d->group[group];
    const Ids *beside[] = {&x->after, &x->before};
    for (int i = 0; i < 2; i++)
        if (beside[i]->n == 1 && !taken[beside[i]->at[0]] && may_go(d, group, beside[i]->at[0]))
            return beside[i]->at[0];
    return NONE;
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
        if (taken[x] || !own_params(d, &d->group[x]))
            continue;
        uint32_t y = only_beside(d, taken, x);
        if (y == NONE)
            continue;
        taken[x] = taken[y] = any = true;
        left--;
        CutPair pair = {first[x], first[y]};
        vec_push(d->a, &g->together, pair);
    }
    return any;
}

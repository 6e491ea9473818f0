/*
 * dag.h - what cut_solve()'s files share: the graph with together-nodes as one group, times as
 * whole numbers (sums that are taken back leave nothing), the load of a set of groups, ideals.
 * Private to partition/auto.
 */
#ifndef PPSPLIT_AUTO_DAG_H
#define PPSPLIT_AUTO_DAG_H

#include "cut.h"

typedef int64_t Ticks;
enum { TICK_BITS = 46 }; /* of all times together: 2^46 ticks */
#define TICKS_MOST INT64_MAX
#define TICKS_CAP ((Ticks)1 << 50) /* above all that a stage can take */
enum { STAGES_MOST = 4096 };

typedef struct {
    uint32_t value, keeps;
} GroupRead; /* keeps: so many of its nodes */
typedef struct {
    Ticks time;
    bool begins;         /* it must be the first of a stage */
    bool works;          /* a stage needs one that does */
    Ids made;            /* values that are read */
    VEC(GroupRead) read; /* each value once, its own among them */
    Ids param;
    Ids before, after; /* groups, each once */
} Group;

typedef struct {
    uint32_t from, readers; /* groups, the maker not counted */
    Ids handed;             /* these, where one stage hands it on to the next */
    Ticks in, out;
    int64_t kept;
} DagValue;

typedef struct {
    Ids read; /* groups, each once */
    Ticks in;
    int64_t held, owned;
} DagParam;

typedef struct {
    Arena *a;
    const CutGraph *g;
    const CutProblem *p;
    uint32_t n, values, params;
    uint32_t *group_of; /* by node */
    Group *group;       /* in a topological order */
    DagValue *value;
    DagParam *param;
    double tick;          /* seconds */
    Ticks total, largest; /* times of all groups, of one */
    uint32_t least_live;  /* of the stages */
    const int64_t *most;  /* per stage: bytes it may have; NULL: any */
} Dag;

/* dag.c */
Dag *dag_of(const CutGraph *g, const CutProblem *p, Arena *a);

/* contract.c: adds to g->together what may be so without loss; whether there was anything */
bool contract(const Dag *d, CutGraph *g);

/* bound.c: no cut's slowest stage takes less */
Ticks dag_least(const Dag *d, Arena *a);

/* load.c: the load of one stage, group by group; each can be taken out again, in any order */
typedef struct Load {
    const Dag *d;
    Ticks time, link;
    uint32_t works; /* so many that do */
    int64_t params, stash;
    uint32_t *readers, *keepers; /* by value: in the set */
    uint32_t *before; /* by value that is handed on, while any is in the set: in earlier stages */
    bool *made;
    uint32_t *param; /* by parameter: readers in the set */
    bool *owned;     /* by parameter: it was the first stage to read it */
    /* is the group in an earlier stage? */
    bool (*earlier)(const void *where, uint32_t group);
    const void *where;
} Load;

Load load_new(const Dag *d, Arena *a);
void load_add(Load *l, uint32_t group);
void load_remove(Load *l, uint32_t group);
static inline Ticks load_ticks(const Load *l) { return l->time + l->link; }
static inline int64_t load_memory(const Load *l, uint32_t live)
{
    return l->params + (int64_t)live * l->stash;
}
static inline uint32_t dag_live(const Dag *d, uint32_t stage)
{
    return d->p->live ? d->p->live[stage] : 1;
}
bool load_fits(const Load *l, uint32_t stage);

/* lattice.c: ideals, the empty one first, a smaller one before a larger one, the whole graph last;
   cover: one group more */
typedef struct {
    uint32_t group, ideal;
} Cover;
typedef struct {
    const Dag *d;
    uint32_t n;  /* ideals */
    Ticks *time; /* of the groups in it */
    uint32_t *size;
    uint32_t *first; /* n + 1: covers of ideal i are cover[first[i]..first[i + 1]) */
    Cover *cover;
    const uint32_t *place; /* of an order: by group, its place; NULL: bits */
    uint32_t words;
    uint64_t *bits;      /* by ideal */
    uint64_t most_steps; /* that a search may take; 0: any number */
    bool fewer;          /* stages than asked are as good: the rest are empty */
} Lattice;
/* The prefixes of an order of the groups. */
Lattice lattice_chain(const Dag *d, const uint32_t *order, Arena *a);
/* All ideals; false: more than most. */
bool lattice_all(const Dag *d, uint32_t most, Arena *a, Lattice *l);

/* search.c: dynamic programming over the chains of a lattice */
typedef struct {
    uint32_t *stage_of; /* by group; NULL: none */
    uint32_t stages;    /* that have groups: the first ones */
    Ticks slowest, sum;
    bool fits;     /* every stage in its memory */
    bool given_up; /* by a search, after too many steps: nothing is known */
} Found;
/* The cut with the least slowest stage, of these the least sum; no stage above cap. */
Found search_slowest(const Lattice *l, Ticks cap, Arena *a);
/* The cut with the least sum, no stage above cap. */
Found search_sum(const Lattice *l, Ticks cap, Arena *a);

/* orders.c */
/* Fills the rest of f from stage_of. */
void found_measure(const Dag *d, Found *f, Arena *a);
/* A topological order, one of many: 0 is the groups' own.  With stage_of one in which the stages of
   that cut come one after the other. */
uint32_t *order_number(const Dag *d, const uint32_t *stage_of, uint32_t number, Arena *a);
/* A cut in this order, quickly: prefixes of equal time, then each boundary where it does best. */
Found order_first(const Dag *d, const uint32_t *order, Arena *a);
/* Single groups go to the stage before or after while that helps. */
void order_moves(const Dag *d, Found *f, Arena *a);

#endif

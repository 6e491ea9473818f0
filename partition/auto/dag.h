/*
 * dag.h - what cut_solve()'s files share: the graph with together-nodes as one group, times as
 * whole numbers (sums that are taken back leave nothing), the load of a set of groups.
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
    uint32_t border; /* CutProblem.border of its first node */
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
    Group *group;
    DagValue *value;
    DagParam *param;
    double tick;          /* seconds */
    Ticks total;          /* times of all groups */
    const int64_t *most;  /* per stage: bytes it may have; NULL: any */
} Dag;

/* dag.c */
Dag *dag_of(const CutGraph *g, const CutProblem *p, Arena *a);

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
    const uint32_t *first; /* groups before it are in earlier stages */
} Load;

/* Of groups from *first on. */
Load load_new(const Dag *d, const uint32_t *first, Arena *a);
void load_add(Load *l, uint32_t group);
void load_remove(Load *l, uint32_t group);
static inline Ticks load_ticks(const Load *l) { return l->time + l->link; }
bool load_fits(const Load *l, uint32_t stage);

/* chain.c */
typedef struct {
    uint32_t *end; /* stage s is groups [end[s], end[s + 1]); NULL: none */
    Ticks slowest, sum;
    uint64_t border; /* of the stages but the first */
    bool fits;       /* every stage in its memory */
} Found;
/* The cut with the least slowest stage, of these the least sum, then border. */
Found chain_slowest(const Dag *d, Arena *a);
/* The cut with the least sum, then border, no stage above cap. */
Found chain_sum(const Dag *d, Ticks cap, Arena *a);

#endif

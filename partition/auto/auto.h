/*
 * auto.h - what a model costs, node by node, before it is cut: seconds of F, I and W, bytes of
 * stash, parameters and messages; and `--stages N`, which cuts by that.
 *
 * The cost model is for everybody who has to compare cuts:
 *
 *     AutoModel *m = auto_model(graph, loss, joint, &rates, microbatches, arena);
 *     CutProblem p = {.stages = 4, .link = rates_link(&rates)};
 *     StageCut best = cut_solve(&m->cut, &p, arena);      // or cut_measure() of a given one
 *     best.stage[s].forward, .input, .weight, .link       // seconds of F, I, W, messages
 *     best.stage[s].stash, .params, .received, .memory    // bytes
 *
 * Same graph and rates, same numbers: nothing is timed here.
 */
#ifndef PPSPLIT_AUTO_H
#define PPSPLIT_AUTO_H

#include "card.h"
#include "cut.h"
#include "ir/facts/facts.h"
#include "ir/facts/rates.h"
#include "partition/pipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rates.c: changes of the built-in rates ---- */

/* Of a GPU: what no launch tells, messages and sums over ranks; and of a launch of several nodes how
   its seconds are shared among them. */
Rates rates_of_card(const Card *c);
/* `products=90e9,link=1e9`, or a file of such, a line each, # to the end of a line being remarks;
   fatal where a name or number is none. */
void rates_set(Rates *r, const char *list, Arena *a);
double *rates_find(Rates *r, const char *name);            /* NULL: none is called so */
const char *rates_name(int i, const char **what);          /* number i; NULL: past the last */
CutLink rates_link(const Rates *r);

/* ---- rates_file.c ---- */
const char *rates_word(Arena *a, const char *text, size_t n); /* without the spaces around it */
/* The whole text; NULL: there is no such file.  What is no text, or too long, is fatal. */
const char *rates_file(const char *path, Arena *a);

/* ---- model.c: a Graph as a CutGraph ---- */

typedef struct AutoModel {
    CutGraph cut; /* node i is the graph's node[i]; ascending */
    NodeId *node;
    uint32_t *of; /* by the graph's node: its number in cut; NONE: made from
                     parameters alone, or read by nothing */
    /* by node of the file: the cut node with the seconds of all that was made of it: its first; of
       what is made of parameters alone the first that reads it */
    uint32_t *of_origin;
} AutoModel;

/* The graph with its loss (NONE: without), as it is before it is cut, batch_analyse() done; joint:
   the same differentiated, whose nodes have the same nodes of the file (autodiff_joint).
   microbatches: what is sent once a step costs each of them so much less; 0: sent for each. */
AutoModel *auto_model(const Graph *g, ValueId loss, const Pipe *joint, const Rates *r,
                      uint32_t microbatches, Arena *a);
/* Seconds that a run took for F, I, W and B of a stage; negative: not known. */
typedef struct {
    double forward, input, weight, whole;
} StageTimes;
/* Seconds that a step of a stage's code took, of a call: the nodes of the file that it is of, by
   their names (graph_origin_name).  part: 'F', 'I', 'W'; 'B': I and W in one. */
typedef struct {
    uint32_t stage;
    int part;
    double seconds;
    Strings node;
} StepTime;
typedef VEC(StepTime) StepTimes;

/* ---- measured.c: nodes as a run has shown them ---- */

/* Scales the nodes' seconds to a run's: those of stage_of (by the graph's nodes), each node by its
   share of what the stage's steps took, where they were timed, else of the model's. */
void auto_measured(AutoModel *m, const Graph *g, const uint32_t *stage_of, uint32_t stages,
                   const StageTimes *t, const StepTimes *steps, Arena *a);

/* Scales the nodes' seconds as `to`'s differ from `from`'s, of the same nodes: the model with other
   rows, as a run of these has shown it. */
void auto_scaled(AutoModel *m, const AutoModel *from, const AutoModel *to);

/* ---- automatic.c: --stages ---- */

typedef struct {
    uint32_t stages; /* 0: only where it is said */
    /* as in CutProblem; live and rank_of are of the schedule that is asked for */
    uint32_t microbatches;
    int64_t memory;
    const uint32_t *live, *rank_of;
    Rates rates;
    /* of a run: its split points, and what its stages took; NULL: as modelled */
    const StageTimes *measured;
    bool measured_divided, measured_whole; /* it had I and W; it had B */
    uint32_t measured_stages;
    StepTimes measured_steps; /* of a program that was made with --profile */
    double measured_around; /* seconds of its step beside its actions, slowest rank */
    const double *measured_action; /* by SchedType: means over stages; 0 where there is none */
    Strings measured_split;
    const struct SchedVary *measured_by_length; /* in microseconds; NULL: it says no lengths */
    VEC(const char *) measured_clock; /* of further runs: by what their times were multiplied */
} AutoOptions;

/* given.c: options as they were written; NULL: not there.  Fatal where they mean nothing. */
typedef struct {
    const char *stages, *microbatches, *schedule, *ranks, *memory, *costs;
    Strings rates;
} AutoText;
void auto_given(AutoOptions *o, const AutoText *t, Arena *a);
/* What a run's trace says: measured and the like. */
void auto_of_run(AutoOptions *o, const char *path, Arena *a);
/* measured, of microbatches of these lengths alone; NULL: the run says none.  Fatal where it has
   other dimensions. */
const StageTimes *auto_at_lengths(const AutoOptions *o, int n, const char *const *name,
                                  const int64_t *length, Arena *a);
/* The numbers of options; fatal. */
uint32_t given_number(const char *option, const char *text, uint32_t most);
int64_t given_bytes(const char *option, const char *text);

/* Where a cut may be, and what it is called; by the graph's node, before which it is. */
typedef struct {
    const char **name;        /* NULL: nowhere */
    const bool *begins;       /* a stage begins here anyway */
    const uint32_t *border;   /* how deep the largest module that begins here is; else more */
    const uint32_t *measured; /* stages of AutoOptions.measured */
} AutoPlaces;

/* What --stages found: stage_of by cut node. */
typedef struct AutoCut {
    StageCut cut;
    AutoModel *model;
    const AutoOptions *options;
    Ids first;               /* of each stage but the first: the graph's node */
    VEC(const char *) split; /* split points that say the same: given ones, then chosen */
} AutoCut;

/* One graph whose cuts are compared: in order, at places that have names.  least: stages that split
   points make which are given. */
typedef struct {
    AutoModel *model;
    const AutoOptions *options; /* its rates, and its run */
    CutGraph cut;
    bool *begins;
    uint32_t *border;
    uint32_t least;
} AutoSearch;
AutoSearch *auto_search(const Graph *g, ValueId loss, const Pipe *joint, const AutoOptions *o,
                        const AutoPlaces *places, Arena *a);
CutProblem auto_problem(const AutoOptions *o); /* what is asked for */
/* The best cut, its stage_of NULL where there is none; links and places are the search's. */
StageCut auto_solve(const AutoSearch *s, const CutProblem *asked, Arena *a);

/* The cut; fatal where there is none. */
AutoCut *auto_cut(const Graph *g, ValueId loss, const Pipe *joint, const AutoOptions *o,
                  const AutoPlaces *places, Arena *a);

#ifdef __cplusplus
}
#endif
#endif

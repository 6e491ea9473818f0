/*
 * search.h - what the files of planner/ share while plans are compared.
 */
#ifndef PPSPLIT_PLANNER_SEARCH_H
#define PPSPLIT_PLANNER_SEARCH_H

#include "memory.h"
#include "planner.h"

/* MOST_CELLS: microbatches x stages whose schedules of all kinds, about KINDS, are looked at;
   STEPS: so much more work it is where those of several steps are simulated;
   MOST_MEMBERS: where no option says how many */
enum {
    MOST_STAGES = 1024,
    MOST_MEMBERS = 16,
    MOST_CELLS = 1 << 15,
    KINDS = 24,
    STEPS = 4,
    HALVINGS = 5,
    MOST_KNOTS = HALVINGS + 2 * SYMBOLS,
    PLANS = 10,
    PLANS_KEPT = 16
};

/* What is computed again before a backward. */
typedef enum { AGAIN_NEVER, AGAIN_CHEAP, AGAIN_EXCEPT_LAST, AGAIN_ALWAYS, AGAINS } Again;

/* The model as microbatches of so many rows cost it; where their lengths vary: their seconds are
   means, their bytes at the most. */
typedef struct {
    int64_t rows;
    const AutoSearch *cuts;
    const AutoSearch **at; /* with lengths Search.knot[k] alone */
    double *weight;        /* of these in a mean over microbatches */
    SchedLengths lengths;  /* of all microbatches of a step, as if of one replica */
} Sized;

struct Division;

/* A cut's stages at some rows. */
typedef struct {
    const Sized *size;
    StageCut cut, *knot; /* knot[k]: with Search.knot[k] */
} CutAt;

/* The best cut into so many stages; its program at the model's own rows, made when it is asked for
   (cut_program): a compiler's work, where cuts that are only bounded take milliseconds. */
typedef struct {
    struct Division *of;
    uint32_t stages;
    const StageCut *found; /* at the rows that it was found for */
    VEC(CutAt) at;
    /* by stage: bytes of parameters and their gradients; of parameters that it trains and owns */
    const int64_t *held, *trained;
    const double *summed; /* bytes that a member sends to add up gradients (CutParam) */
    Strings points;
    const Program *program, **knot; /* knot[k]: with Search.knot[k], on a card */
    const Program *exact;   /* for microbatches of so many rows */
    int64_t exact_rows;
    const PpStage *largest; /* the table of the stage with the largest stash, alone */
} Cut;

/* The model at its own rows with some lengths. */
typedef struct {
    PlanSize size;
    Graph *graph; /* as it is cut; its loss */
    Loss loss;
    Pipe *joint; /* the same, differentiated */
    SplitSearch *own;
    /* without a run's costs; NULL: there is no run */
    SplitSearch *modelled;
    const PartitionOptions *unmeasured;
    const Program *forecast; /* on a card: of the model at the points that are given */
} Reading;

/* The model as members of its stages have it. */
typedef struct Division {
    PlanMesh mesh;
    int members; /* along all axes */
    const Card *card; /* with the link that joins its members; NULL: there is none */
    Reading most, *knot; /* with the greatest lengths; with Search.knot[k] */
    double best;         /* estimate of its ways whose parameters fit; 1e300: none do */
    VEC(Sized *) size;
    VEC(Cut *) cut;
} Division;

typedef struct {
    Cut *cut;
    const Sized *size;
    int ranks, replicas, microbatches; /* ranks: stages' of one replica, each of all members */
    Again again;
    bool offload;  /* --offload stash: as many stashes wait in a store as memory asks for */
    int zero; /* --zero: what replicas divide; 2 and 3 with one stage of a rank whole at a time */
    double bound;    /* seconds that no schedule takes less than */
    double estimate; /* in closed form: with the bubble of the best schedule, and messages */
    double guess;    /* bytes that its rank may need by the model of costs; 0: any may be taken */
    bool unlikely; /* more than there are: looked at last, what needs least first */
    bool evaluated, fits, full; /* full: some schedule does not fit */
    bool large;                 /* no schedule can */
    /* of the best schedule */
    char schedule[40];
    int placement;
    Schedule *rows;
    double step, bubble; /* seconds; idle part of the ranks */
    int64_t memory;      /* bytes of the rank that takes most */
    double traffic;      /* bytes between ranks, of a step */
} Candidate;

typedef VEC(Candidate) Candidates;

/* Of all that was planned, what took least. */
typedef struct {
    bool wanted, stopped; /* nothing fits, so it is looked for; there may be less */
    int64_t bytes;        /* 0: nothing was planned */
    char what[200];
    int64_t parts[MEMORY_PARTS];
} Smallest;

typedef struct {
    const PlanOptions *o;
    Arena *a;
    PlanMesh mesh;    /* as it is given; all 0: any number */
    PlanSize *knot;   /* lengths with which the model is read, from the greatest on */
    uint32_t n_knot;  /* 0: microbatches are alike */
    int64_t own_rows; /* of the model; of programs that are resized for others */
    VEC(Division *) division;
    VEC(int64_t) never, seen; /* rows that the model cannot have, and can */
    Candidates list;
    uint32_t best[PLANS_KEPT], n_best; /* by step */
    bool idle;         /* long pipelines of few microbatches, too: there is nothing else */
    Smallest least;
    char why[200];     /* the first that could not be scheduled: its reason */
    bool made;         /* schedules are made to measure */
    uint64_t effort;   /* so far: actions that were planned, nodes compiled */
    /* deep: there are ways with more stages than are looked at; narrow: with other members */
    bool stopped, deep, narrow;
    const char *alone; /* why only one microbatch trains; NULL: several do */
    int states;
    struct { /* large: too much for any schedule; same: as others; longer: take too long to score */
        uint32_t tried, large, same, longer;
    } ways;
} Search;

/* How much work there may be, in actions that are planned: of a processor about a quarter of a
   minute; where nothing fits, a third of that to say so; for schedules that are made to measure,
   half of it. */
enum { EFFORT = 8000000 };

/* ---- sizes.c ---- */
/* How far it is, on a terminal */
void plan_show(const char *format, ...) PRINTF_LIKE(1, 2);
int plan_members_of(const PlanMesh *m); /* along all axes */
const char *plan_among(const Search *x, const Division *d); /* for plan_show(): whose */
bool has_rows(Search *x, Division *d, int64_t rows);        /* can it? */
/* NULL: the model cannot have so many rows. */
const Sized *size_of(Search *x, Division *d, int64_t rows);
/* NULL: nothing of the model can be so divided. */
Division *division_open(Search *x, PlanMesh mesh);

/* ---- lengths.c ---- */
/* Once the model is read: the data's lengths and the knots; fatal where they are not the
   model's. */
void lengths_open(Search *x);
/* What a run took with these lengths; fatal where it says none and has to. */
const StageTimes *lengths_measured(const Search *x, const PlanSize *size);
/* The polynomial of lengths of what is at[k * step] at knot k */
SchedFit lengths_fit(const Search *x, const double *at, int step);
/* lengths, weight, and the mean seconds of its nodes */
void lengths_expect(Search *x, Sized *s);
/* The mean over microbatches of `of' a stage at each knot, beside what it is at the most. */
double lengths_part(const Search *x, const Candidate *c, uint32_t stage,
                    int64_t (*of)(const CutStage *));
int64_t stage_stash(const CutStage *s);
int64_t stage_sent(const CutStage *s);

/* ---- ways.c ---- */
/* A node that is cut is as much work as so many actions that are planned. */
enum { SOLVED = 15 };
/* Ways of all meshes; of one; of one cut */
void add_meshes(Search *x);
void add_ways(Search *x, Division *d);
void add_microbatches(Search *x, Cut *cut, int ranks, int replicas);
Cut *cut_new(Search *x, Division *d, const AutoSearch *of, const StageCut *found);
/* Is there anything that is cheap to compute again? */
bool has_parts(const Program *p);
/* What fits by the model of costs by its estimate; then what is nearest to fit. */
int by_estimate(const void *a, const void *b);

/* ---- search.c ---- */
int optimizer_states(const char *name); /* fatal: there is none of that name */

/* ---- program.c: of a cut ---- */
const Program *cut_program(Search *x, Cut *c);
const Program *cut_program_rows(Search *x, Cut *c, int64_t rows); /* compiled for them */
const Program *cut_program_knot(Search *x, Cut *c, uint32_t k); /* on a card: with Search.knot[k] */
/* Of the stage that by the model of costs takes most; quickly */
const PpStage *cut_largest(Search *x, Cut *c);

/* ---- launches.c: seconds on a card ---- */
/* Of the launches of a list (codegen/tables.h) of one stage */
struct Launches;
double launches_seconds(const Card *c, const struct Launches *list, double rows);
/* The options as if a run of so many rows had taken what the launches do. */
const PartitionOptions *launches_run(Search *x, const Division *d, Reading *at, int64_t rows);
/* The update, with the optimizer's states, of a part of a stage's parameters; of the whole model's,
   whatever its cut. */
double launches_update(const Search *x, const struct StageLaunches *s, double part);
double launches_update_about(const Search *x, const Cut *c, double part);
const Card *launches_card(const Search *x, int members);

/* ---- bound.c: before its schedules are made ---- */
double candidate_beginning(const Search *x); /* seconds of an action, beside what it computes */
double candidate_share(const Candidate *c);      /* of an update, that one replica does */
const StageCut *candidate_measured(const Search *x, const Candidate *c);
const StageCut *candidate_knots(const Search *x, const Candidate *c); /* with each knot */
/* Its bound, estimate and guess, without its program */
void candidate_estimate(const Search *x, Candidate *c);
/* An equal share of parameters, gradients and states, whatever the cut */
int64_t candidate_even(const Search *x, const Candidate *c);
/* The bytes of a rank, at the least: with any schedule; where that is more than there are, or than
   the least so far, without its program if that is seen without it.  With this one, of
   computations alone */
int64_t candidate_floor(Search *x, const Candidate *c);
int64_t candidate_floor_of(Search *x, const Candidate *c, const Schedule *s);

/* ---- evaluate.c: one candidate ---- */
/* Its best schedule that fits; fits, step and the rest */
void candidate_evaluate(Search *x, Candidate *c);
/* Its bytes once more, of the program as it would be compiled: each rank's, or NULL where it does
   not fit after all. */
const int64_t *candidate_exact(Search *x, Candidate *c);

/* ---- words.c ---- */
const char *again_name(Again a);
/* --offload-time: seconds of all copies one way beside those of all forwards, as it is printed */
const char *offload_time(const Search *x, const Candidate *c, Arena *a);
const char *zero_words(const Candidate *c, Arena *a); /* its options, "" without */
/* The same, with something before and behind each */
const char *mesh_words(const Candidate *c, const char *before, const char *behind, Arena *a);

/* ---- tell.c ---- */
void plans_tell(Search *x);
NORETURN void plans_none(const Search *x); /* why there is no plan */

/* ---- network.c: rates whose link and messages are those between these ranks ---- */
Rates rates_of_members(const PlanOptions *o, int members);
Rates rates_of_pipe(const PlanOptions *o, const Candidate *c);
Rates rates_of_replicas(const PlanOptions *o, const Candidate *c);

#endif

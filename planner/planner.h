/*
 * planner.h - `ppsplit plan`: of all ways to train a model on a machine the ones with the shortest
 * step that fit its memory.
 *
 * The room knows both halves of the house.  What an action takes, where a cut may be and the best
 * cut into so many stages are partition/auto/'s; schedules and their times schedule/'s; and what a
 * rank takes of memory is planned by the runtime's own planner (runtime/plan/), from the tables
 * that codegen would print, so the bytes are those of the lines before a run's first step.
 *
 *     members of a stage x stages x stages a rank x replicas x what these divide x microbatches
 *     x schedule x recompute x offload
 *
 * Same model, machine and options, same plans; nothing is timed here.
 */
#ifndef PPSPLIT_PLANNER_H
#define PPSPLIT_PLANNER_H

#include "codegen/codegen.h"
#include "mesh/mesh.h"
#include "partition/auto/card.h"
#include "partition/partition.h"
#include "schedule/simulate/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- machine.c: a file of lines NAME = NUMBER, and card = NAME ---- */

/* What joins nodes, of so many ranks each; node 0: all ranks are in one. */
typedef struct {
    int node;
    double link, latency; /* bytes/s of a rank's messages to other nodes; seconds of an empty one */
} Network;

typedef struct {
    int ranks;      /* 0: not said */
    int threads;    /* of each; 0: not said */
    int64_t memory; /* bytes that each has; 0: not said */
    Rates rates;    /* the card's, or built in, where it does not say others */
    const Card *card; /* NULL: none */
    Network network;
    double efficiency; /* of the card's rates, which have it in them; 0: not said */
} Machine;
/* Fatal, with the line, where it is no such file: unknown names, numbers that are none, names said
   twice. */
Machine machine_read(const char *path, Arena *a);

/* ---- search.c ---- */

/* Members that divide each stage, along each axis; parts: they keep for backward what each has a
 * part of (MeshOptions). */
typedef struct {
    int members[MESH_AXES];
    bool parts;
} PlanMesh;

/* Rows of a microbatch; its lengths along what varies (--bind NAME=LEAST..MOST), 0: the greatest */
typedef struct {
    int64_t rows, length[SYMBOLS];
} PlanSize;

/* The compiler, up to what is asked for. */
typedef struct {
    void *of;
    /* rows of a microbatch as the model has it; and what divides it, as it is given or as the file
       says, all 0: neither does */
    int64_t (*rows)(void *of, PlanMesh *mesh);
    /* a member's graph with its loss, of that size, not yet cut, in that arena; mesh NULL: the
       whole model's */
    Graph *(*graph)(void *of, PlanSize size, const PlanMesh *mesh, Loss *loss, Arena *a);
    /* cut at these points and differentiated, what the program is printed of */
    Pipe *(*pipe)(void *of, PlanSize size, const PlanMesh *mesh, const Strings *split, Arena *a);
    /* once the rows are read: as PlanOptions.ranges, with the samples of a program that no members
       divide */
    const Lengths *whole;
} PlanModel;

typedef struct {
    Arena *arena;
    PlanModel model;
    const PartitionOptions *partition; /* points that are given, rates, a run's costs */
    int ranks;                         /* in all: of members, stages, replicas */
    bool whole;                        /* of one member alone, where nothing says how many */
    /* of each, which want scratch for convolutions; given: the commands say it, too */
    int threads;
    bool given_threads;
    int64_t memory;                    /* bytes that a rank may take; 0: any */
    int64_t batch;                     /* rows of a step */
    const char *optimizer;
    bool device; /* CUDA only */
    Network network;
    const Card *card; /* of each rank, whose actions it has the seconds of; NULL: not known */
    struct {                              /* 0 and NULL: any */
        int stages, each;                 /* each: of a rank */
        int microbatches, rows, dp;       /* rows: of a microbatch */
        const char *schedule, *recompute, *offload;
        int zero; /* what replicas divide, 0 to 3; -1: any */
    } only;
    /* schedules that are made for the model's costs too: the best plan's is written here; NULL:
       none are made */
    const char *csv;
    /* what varies, once the model is read; the data's rows: n 0: not given */
    const Lengths *ranges;
    SchedRows *data;
    /* for the commands: the model and options that say how it is read, as the shell wants them;
       the output folder */
    const char *words, *out;
} PlanOptions;

/* Prints the best plans and the commands of the best one; fatal where there is none. */
void plan_search(void *options); /* const PlanOptions *, for diag_run() */

/* ---- forecast.c: a step of a program on one GPU ---- */

typedef struct {
    Arena *arena;
    const char *out, *optimizer; /* the folder */
    const Card *card;
    int microbatches, longest; /* of a step; so many of its launches are listed */
    bool tf32;
} ForecastOptions;
void forecast_tell(void *options); /* const ForecastOptions *, for diag_run() */

#ifdef __cplusplus
}
#endif
#endif

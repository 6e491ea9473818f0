/*
 * mesh.h - the state of a stage's collectives (pp.h: pp_all_reduce() and so on, in collective.c):
 * links to the other members of the rank, the stage's messages there, and the first failure.
 */
#ifndef PP_MESH_H
#define PP_MESH_H

#include "net/links.h"

/* A collective under way. */
typedef struct PpBegun {
    struct PpMesh *of;
    Device *dev;
    int mesh, own, members, k; /* along an axis; k: row of the table */
    int busy, ahead; /* ahead: all of it has been enqueued */
    int64_t size; /* of an element */
    const char *in;
    char *out, *work;
    int64_t n, outer, block; /* as the calls are told */
    PpAcross across;
    void (*end)(struct PpBegun *a); /* once its messages have arrived */
} PpBegun;

typedef struct PpMesh {
    Links *links; /* along AXIS_MEMBERS */
    const PpPlan *model;
    const PpStage *st;         /* as it runs */
    Message *msg;              /* of the plan: all */
    PpBegun begun[PP_AT_ONCE]; /* each with a set of messages of its own, along each axis */
    DeviceEvent done[PP_AT_ONCE]; /* of a device: of each, once it is there */
    int first[PP_AXES];        /* the first of the stage's: StagePlan.members */
    int64_t tag;               /* of the table's row 0: other stages' have others */
    PpStatus status;           /* the first failure; nothing is sent after it */
    int64_t calls, sent;       /* so far: collectives, and bytes that they have sent */
    double waited;             /* seconds for which the host has waited for them */
    /* The rank waits in row k of stage `st`; -1: not any more */
    void (*note)(void *of, int k);
    void *of;
} PpMesh;

/* "the all-reduce of 'NAME' in stage 1, of ranks 4 to 7", one of which is rank `number` */
void collective_text(char *to, size_t n, const PpPlan *model, const PpStage *st, int k, int number);
/* ... among which is this one, too? */
int collective_has(const PpPlan *model, const PpCollective *c, int number, int other);

#endif

/*
 * profile.h - what the steps of stages' functions take, of a program that ppsplit --profile wrote.
 */
#ifndef PP_PROFILE_H
#define PP_PROFILE_H

#include "api/pp.h"
#include "core/core.h"
#include "schedule/schedule.h"

#include <stdio.h>

typedef struct {
    /* Of each stage of the rank, ascending, and each of its PP_TIMED functions: how often it was
       called, then seconds of its steps, of all calls; NULL: nothing is timed */
    double *at;
    int64_t n;
    int64_t *first; /* by stage of the model: where its numbers begin; -1: elsewhere */
} Profile;

/* How many numbers a rank has. */
int64_t profile_size(const PpPlan *model, const Schedule *s, int rank);
PpStatus profile_open(Profile *p, Pool *pool, const PpPlan *model, const Schedule *s, int rank);
/* A function, PP_TIMED_FORWARD and the like, runs on this thread until profile_end(). */
void profile_begin(const Profile *p, const PpStage *st, int function);
void profile_end(void);
/* As events of a Chrome trace: the steps of a mean call, one after the other. */
void profile_write(FILE *f, const PpPlan *model, const Schedule *s, int rank, const double *at);

#endif

/*
 * begin.c - which checkpoint a run begins with.  In: --resume or --params.  Out: the newest one of
 * which every byte is what was written: one that can be opened is read whole, a share of it by each
 * process and thread, before anything follows from it.  A damaged one is passed over by all ranks
 * alike, and said.
 */
#include "exec.h"

#include "core/team.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* This process's share of it, by all its cores. */
static int damaged(const Index *x, int states, const Group *world, char err[INDEX_ERR])
{
    const int part = world ? world->rank : 0, ranks = world ? world->ranks : 1;
    int parts = team_most(), bad = 0;
#pragma omp parallel for schedule(dynamic) num_threads(parts)
    for (int t = 0; t < parts; t++) {
        char mine[INDEX_ERR];
        if (index_check(x, states, part * parts + t, ranks * parts, mine, sizeof mine))
#pragma omp critical
        {
            bad = 1;
            memcpy(err, mine, sizeof mine);
        }
    }
    return bad;
}

typedef struct {
    int status, damaged;
    char why[INDEX_ERR];
} Found;

/* What the first rank that has met damage says of it: `why` on all; 0: none has, or one cannot go
 * on. */
static PpStatus agree(Group *world, Found *mine)
{
    if (!world)
        return PP_OK;
    Found *all;
    POOL(room);
    TRY(group_gather(world, mine, sizeof *mine, &room, &all));
    int failed = 0;
    for (int k = world->ranks; k-- > 0;) {
        failed |= all[k].status != PP_OK;
        if (all[k].damaged)
            *mine = (Found){mine->status, 1, ""}, memcpy(mine->why, all[k].why, INDEX_ERR);
    }
    if (failed)
        mine->damaged = 0;
    return PP_OK;
}

static PpStatus find(Run *run, Options *o, int64_t below)
{
    TRY(save_find(run, o, below));
    return o->save.params ? params_open(&run->given, o, below) : PP_OK;
}

PpStatus begin_from(Run *run, Options *o, Group *world, PpStatus s)
{
    Index *x = o->save.params ? &run->given : &run->from;
    const char *folder = o->save.params ? o->save.params : o->save.resume,
               *option = o->save.params ? "--params" : "--resume";
    char note[INDEX_ERR] = "";
    int groups = o->machine.groups;
    if (o->mode == MODE_MEASURE)
        return PP_OK;
    for (int64_t below = INT64_MAX;;) {
        Found f = {0};
        o->machine.groups = groups;
        f.status = (int)(s != PP_OK ? s : find(run, o, below));
        if (f.status == PP_OK && x->path)
            f.damaged = damaged(x, !o->save.params, world, f.why);
        TRY(agree(world, &f));
        if (!note[0] && x->note[0])
            memcpy(note, x->note, sizeof note);
        if (f.status == PP_OK && !f.damaged && (x->path || below == INT64_MAX)) {
            memcpy(x->note, note, sizeof note);
            return PP_OK;
        }
        if (s != PP_OK || (f.status != PP_OK && !note[0]))
            return (PpStatus)f.status;
        if (!note[0])
            memcpy(note, f.why, sizeof note);
        if (!f.damaged || index_there(folder)) {
            pp_failure_forget();
            return pp_fail(PP_ERR_MODEL, "%s %s", option, note);
        }
        below = x->step;
        index_close(x);
    }
}

void begin_said(const Rank *r)
{
    const Run *run = r->run;
    const Options *o = run->opt;
    const char *was = run->from.path ? index_state(&run->from, "arithmetic") : NULL;
    if (r->group.rank != 0)
        return;
    if (o->mode == MODE_INFER && !o->sample.on && !o->data.output.n && !o->report.trace &&
        !o->report.log_json)
        fprintf(stderr,
                "pipeline: warning: infer without --output NAME=FILE.npy writes nothing; there is "
                "'%s'\n",
                run->model->output[0].name);
    if (o->memory.zero && run->replicas == 1)
        fprintf(stderr,
                "pipeline: warning: --zero %d divides nothing: there is one replica (--dp 1)\n",
                o->memory.zero);
    if (o->train.lr.warmup > run->data.steps)
        fprintf(stderr,
                "pipeline: warning: --warmup %" PRId64 " is more than all %" PRId64 " steps\n",
                o->train.lr.warmup, run->data.steps);
    if (run->given.note[0])
        fprintf(stderr, "pipeline: warning: %s: an older checkpoint is taken\n", run->given.note);
    if (save_wanted(o))
        checkpoint_unfinished(o, run->from.note);
    if (was && strcmp(was, run->arithmetic) != 0)
        fprintf(stderr,
                "pipeline: warning: %s was computed with %s, this run computes with %s: its bits "
                "may differ from those of a run that was not interrupted\n",
                run->from.path, was, run->arithmetic);
}

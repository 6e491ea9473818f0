/*
 * save.c - when checkpoints are written: every --every steps and after the last.  And where a run
 * begins that resumes one.
 */
#include "exec.h"

#include "core/signals.h"
#include "net/launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the beginning ---- */

/* A dynamic loss scale goes on where it was. */
static PpStatus resume_scale(Run *run)
{
    const Index *x = &run->from;
    int64_t clean, borne;
    TRY(resume_real(x, "loss_scale", &run->scale.scale));
    TRY(resume_number(x, "loss_scale_clean", &clean));
    TRY(resume_number(x, "loss_scale_borne", &borne));
    run->scale.clean = (int)clean;
    run->scale.borne = (int)borne;
    return PP_OK;
}

PpStatus save_find(Run *run, Options *o, int64_t below)
{
    if (o->mode != MODE_TRAIN)
        return PP_OK;
    if (o->save.resume)
        TRY(resume_open(&run->from, run->model, o, below));
    if (o->save.checkpoint)
        TRY(resume_place(&run->from, o, below));
    return run->from.path && !o->machine.groups ? resume_groups(&run->from, o) : PP_OK;
}

/* --by-length: steps and microbatches decide the order of the rows. */
static void cut_text(const Data *d, char *to, size_t n)
{
    snprintf(to, n, "steps of %" PRId64 " rows in %d microbatches", d->batch,
             data_chunks(d) * d->replicas);
}

static PpStatus same_order(const Index *x, const Data *d)
{
    char here[80];
    const char *was = index_state(x, "by_length");
    cut_text(d, here, sizeof here);
    return !order_by_length(d) || !was || !strcmp(was, here)
               ? PP_OK
               : resume_refuse(x,
                               "--by-length put rows of near lengths into %s, here %s: "
                               "other rows would come twice or never; give the same --batch and "
                               "--microbatches",
                               was, here);
}

PpStatus save_resume(Run *run, int first)
{
    const Options *o = run->opt;
    const Index *x = &run->from;
    Data *d = &run->data;
    int64_t rows;
    run->scale = o->train.scale;
    if (!x->path)
        return o->save.states ? params_updates(o->save.states, &run->updates) : PP_OK;
    TRY(resume_options(x, run->model, o));
    TRY(resume_number(x, "data_rows", &rows));
    TRY(resume_number(x, "rows", &d->start.rows));
    TRY(resume_number(x, "epoch", &d->start.epoch));
    TRY(resume_number(x, "epoch_row", &d->start.row));
    TRY(resume_number(x, "updates", &run->updates));
    d->start.step = x->step;
    if (run->scale.window)
        TRY(resume_scale(run));
    if (rows != d->rows || d->start.row > rows)
        return resume_refuse(x,
                             "its data had %" PRId64 " rows, these have %" PRId64
                             ": use --params to start a new run with its parameters",
                             rows, d->rows);
    TRY(same_order(x, d));
    return first ? resume_data(x, d) : PP_OK;
}

int save_wanted(const Options *o)
{
    return o->save.checkpoint && o->mode == MODE_TRAIN && !o->report.until;
}

static int saves(const Rank *r) { return save_wanted(r->run->opt); }

/* Among the first lines, what a signal will do. */
void save_say(const Rank *r)
{
    const Options *o = r->run->opt;
    if (r->group.rank != 0 || o->report.quiet || o->mode != MODE_TRAIN || o->report.until)
        return;
    if (!o->save.checkpoint)
        printf("nothing will be saved, not even at a signal: no --checkpoint\n");
    else
        printf("%s: the step ends, is saved in %s, exit status %d%s\n",
               r->group.processes ? launch_signals() : "Ctrl-C, SIGTERM, SIGHUP",
               o->save.checkpoint, PP_SAVED, r->group.processes ? launch_warning() : "");
    fflush(stdout);
}

PpStatus save_open(Rank *r)
{
    r->save.updates = r->run->updates;
    r->now.scale = r->run->scale;
    r->save.step = r->run->data.start.step;
    return saves(r) ? saver_open(&r->save.saver, &r->plan, &r->files, &r->run->data) : PP_OK;
}

/* ---- checkpoints ---- */

static PpStatus save(Rank *r, int64_t done)
{
    const Data *d = &r->run->data;
    Moment m = {.step = done};
    int64_t epoch, row;
    data_position(d, done, &epoch, &row);
    moment_add(&m, "rows", "%" PRId64, data_rows_seen(d, done));
    moment_add(&m, "epoch", "%" PRId64, epoch);
    moment_add(&m, "epoch_row", "%" PRId64, row);
    moment_add(&m, "data_rows", "%" PRId64, d->rows);
    if (order_by_length(d)) {
        char cut[80];
        cut_text(d, cut, sizeof cut);
        moment_add(&m, "by_length", "%s", cut);
    }
    moment_add(&m, "updates", "%" PRId64, r->save.updates);
    if (r->now.scale.window) {
        moment_add(&m, "loss_scale", "%.17g", r->now.scale.scale);
        moment_add(&m, "loss_scale_clean", "%d", r->now.scale.clean);
        moment_add(&m, "loss_scale_borne", "%d", r->now.scale.borne);
    }
    moment_add(&m, "lr", "%.17g", optim_rate(r->run->opt, done - 1, d->steps));
    moment_add(&m, "arithmetic", "%s", r->run->arithmetic);
    TRY(finite_parameters(r, done));
    r->save.step = done;
    return saver_save(r->save.saver, &r->group, &m);
}

void save_tell(Rank *r)
{
    int speaks = saves(r) && (r->group.processes || r->group.rank == 0);
    r->results.word[WORD_WRITTEN] = saves(r) && saver_written(r->save.saver);
    r->results.word[WORD_SAVE] = speaks && signals_save();
    r->results.word[WORD_END] = speaks && signals_end();
}

PpStatus save_step(Rank *r, int64_t done)
{
    const Options *o = r->run->opt;
    if (!saves(r))
        return PP_OK;
    if (r->results.word[WORD_WRITTEN] >= r->group.ranks)
        TRY(saver_collect(r->save.saver, &r->group));
    r->save.ends = r->results.word[WORD_END] > 0 && done < r->run->data.steps;
    int asked = r->save.ends || r->results.word[WORD_SAVE] > 0;
    if (asked || (o->save.every && done % o->save.every == 0))
        TRY(save(r, done));
    return PP_OK;
}

PpStatus save_end(Rank *r)
{
    const Options *o = r->run->opt;
    if (!saves(r))
        return PP_OK;
    if (!r->save.ends && r->save.step < r->run->data.steps)
        TRY(save(r, r->run->data.steps));
    TRY(saver_finish(r->save.saver, &r->group));
    if (!r->save.ends)
        return PP_OK;
    signals_obeyed();
    if (r->group.rank == 0)
        fprintf(stderr,
                "pipeline: ended by a signal after step %" PRId64
                ", which is in %s: --resume goes on from there\n",
                r->save.step, o->save.checkpoint);
    return PP_OK;
}

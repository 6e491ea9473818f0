/*
 * same.c - what ranks must agree on before the first step.  In: what each was started with, before
 * anything is read, and what it has read.  Out: nothing, or the rank that differs and in what.
 */
#include "exec.h"

#include "base/file/hash.h"
#include "net/facts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- before anything is read ---- */

static void add_options(Facts *f, const Options *o)
{
    static const char *const mode[] = {"train", "eval", "infer", "measure"};
    static const char why[] = "all ranks of a run are started with the same options";
    NumberOption n;
    facts_add(f, why, "the command %s", mode[o->mode]);
    for (int i = 0; options_next_shared(o, &i, &n, f->pool);) {
        if (n.given)
            facts_add(f, why, "--%s%s%s", n.name, n.flag ? "" : " ",
                      n.flag || !n.value ? "" : n.value);
        else
            facts_add(f, why, "no --%s", n.name);
        if (n.value) /* a default that is given is no difference */
            facts_digest(f, n.value);
        else
            f->status = pp_no_memory();
    }
}

PpStatus same_start(Run *run, Group *world)
{
    const PpPlan *p = run->model;
    POOL(pool);
    Facts f = {.pool = &pool};
    char hash[40];
    snprintf(hash, sizeof hash, "%016" PRIx64, hash_value(p->program.hash, p->program.written));
    facts_add(&f, "ppsplit wrote them in different runs; build one, and let all machines have it",
              "a program of %s in %d stages", p->model, p->n_stage);
    facts_digest(&f, hash);
    add_options(&f, run->opt);
    return facts_compare(world, &f);
}

static int accepts_cpu(const Options *o)
{
    int is = 0;
    for (int i = 0; i < o->save.accept.n; i++)
        is |= !strcmp(o->save.accept.at[i], "cpu");
    return is;
}

PpStatus same_arithmetic(Run *run, Group *world)
{
    const DeviceOps *op = device_of(run->model->device)->ops;
    int number = world ? device_number(op, world->host_rank) : 0;
    op->says.arithmetic(number, run->arithmetic, (int)sizeof run->arithmetic);
    if (!world)
        return PP_OK;
    POOL(pool);
    Facts f = {.pool = &pool};
    facts_add(&f,
              "bits depend on which rank computes what, then; --accept cpu goes on all the same",
              "%s", run->arithmetic);
    PpStatus s = facts_compare(world, &f);
    if (s == PP_OK || !accepts_cpu(run->opt))
        return s;
    pp_failure_forget();
    snprintf(run->arithmetic, sizeof run->arithmetic, "ranks that differ");
    return PP_OK;
}

/* ---- what was read, and what follows ---- */

/* What follows from options and data: an error of ours, or files that changed between two ranks'
 * looks at them. */
static void add_plan(Facts *f, const Run *run)
{
    size_t n = 0;
    char *text = sched_text(run->sched, &n);
    const int64_t whole[] = {run->data.microbatches,
                             run->data.batch,
                             run->data.steps,
                             run->data.rows,
                             run->data.groups,
                             run->ranks,
                             run->replicas,
                             run->data.start.step,
                             run->data.start.row,
                             run->updates,
                             run->evaluation ? run->evaluation->data.rows : 0,
                             run->evaluation ? run->evaluation->data.microbatches : 0};
    uint64_t h = hash_bytes(HASH_START, whole, sizeof whole);
    if (!text)
        f->status = pp_no_memory();
    facts_add(f, "all ranks plan the same steps",
              "a schedule of %d ranks, %" PRId64 " steps from step %" PRId64 " on (%016" PRIx64 ")",
              run->ranks, run->data.steps, run->data.start.step,
              text ? hash_bytes(h, text, n) : h);
    free(text);
}

static void add_data(Facts *f, const Data *d)
{
    char key[1000];
    for (int i = 0; i < d->model->n_input; i++)
        for (int k = 0; data_digest_key(d, i, k, key, sizeof key); k++) {
            const DataFile *file = &d->input[i].file[k];
            facts_add(
                f, "their types, shapes or numbers differ, and all ranks are to see the same rows",
                "--%s %s=%s (%.12s)", data_option(d, d->input[i].tokens), d->model->input[i].name,
                file->path, file->sha256);
            facts_digest(f, file->sha256);
        }
}

/* Messages are as long as each rank finds them in its own copy. */
static void add_lengths(Facts *f, const Data *d)
{
    char key[200], digest[SHA256_TEXT];
    for (int v = 0; v < d->model->n_length; v++) {
        lengths_digest(d, v, key, sizeof key, digest);
        facts_add(f, "all ranks are to see the same lengths",
                  "rows of up to %" PRId64 " places of '%s' (%s)", d->longest.of[v],
                  d->model->length[v].name, digest);
        facts_digest(f, digest);
    }
}

static const char other_params[] =
    "their sizes, headers or numbers differ, and the stages of a model are to be of one split";

/* Of every stage that lies there for this rank, whether it is to run it or not. */
static PpStatus add_params(Facts *f, const Run *run, const char *folder)
{
    for (int s = 0; s < run->model->n_stage; s++) {
        char digest[SHA256_TEXT] = "";
        TRY(params_digest(folder, s, digest));
        facts_add(f, other_params, "parameters of stage %d in %s (%.12s)", s, folder, digest);
        facts_digest(f, *digest ? digest : NULL);
    }
    return PP_OK;
}

static PpStatus add_files(Facts *f, const char *option, const char *files)
{
    char digest[SHA256_TEXT];
    TRY(params_files_digest(files, digest));
    facts_add(f, "they are not the same files", "--%s %s (%.12s)", option, files, digest);
    facts_digest(f, digest);
    return PP_OK;
}

static PpStatus add_read(Facts *f, const Run *run)
{
    const Options *o = run->opt;
    char own[sizeof o->command.folder + 16];
    add_plan(f, run);
    add_data(f, &run->data);
    add_lengths(f, &run->data);
    if (run->evaluation)
        add_data(f, &run->evaluation->data), add_lengths(f, &run->evaluation->data);
    const Index *x = run->from.path ? &run->from : &run->given;
    if (x->path) {
        facts_add(f, "they are not the same checkpoint", "%s (%.12s)", x->path, x->sha256);
        facts_digest(f, x->sha256);
    } else if (o->save.params && params_is_file(o->save.params)) {
        TRY(add_files(f, "params", o->save.params));
    } else if (o->save.params) {
        TRY(add_params(f, run, o->save.params));
    }
    if (o->save.states)
        TRY(add_files(f, "states", o->save.states));
    snprintf(own, sizeof own, "%s/params", o->command.folder);
    return add_params(f, run, own);
}

PpStatus same_everywhere(Rank *r)
{
    POOL(pool);
    Facts f = {.pool = &pool};
    PpStatus read = r->group.processes ? add_read(&f, r->run) : PP_OK;
    if (read != PP_OK)
        f.status = read;
    return facts_compare(&r->group, &f);
}

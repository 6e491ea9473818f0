/*
 * log_config.c - the first line of --log-json: {"config": {...}}, what the run is and where it
 * runs.  In: the run, and of each rank its host, its CPUs and threads.
 */
#include "log.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char host[64], cpus[96], where[80];
    int threads;
    int64_t memory, activations; /* planned for a step, bytes */
    double operations;           /* floating-point, of the model's in a step */
} Place;

/* The CPUs that this thread may run on, as taskset says them: 0-3,8. */
static void cpus_text(char *to, size_t n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    to[0] = 0;
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    size_t at = 0;
    for (size_t i = 0; i < CPU_SETSIZE && at < n; i++) {
        size_t end = i;
        if (!CPU_ISSET(i, &set))
            continue;
        while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, &set))
            end++;
        at += (size_t)(end > i ? snprintf(to + at, n - at, "%s%zu-%zu", at ? "," : "", i, end)
                               : snprintf(to + at, n - at, "%s%zu", at ? "," : "", i));
        i = end;
    }
}

static void put_text(JsonOut *o, const char *key, const char *value)
{
    json_put_text(o, key, value && value[0] ? value : NULL);
}

static void put_places(JsonOut *o, const Place *p, int n)
{
    json_begin(o, "places", '[');
    for (int k = 0; k < n; k++) {
        json_begin(o, NULL, '{');
        json_put(o, "rank", "%d", k);
        put_text(o, "host", p[k].host);
        put_text(o, "cpus", p[k].cpus);
        json_put(o, "threads", "%d", p[k].threads);
        put_text(o, "device", p[k].where);
        json_put(o, "memory", "%" PRId64, p[k].memory);
        json_put(o, "activations", "%" PRId64, p[k].activations);
        json_put(o, "operations", "%.17g", p[k].operations);
        json_end(o, "}");
    }
    json_end(o, "]");
}

static PpStatus put_line(const Log *l, const LogConfig *c, const Place *place, int ranks)
{
    static const char *const modes[] = {"train", "eval", "infer"};
    const PpPlan *p = c->model;
    JsonOut o = {.f = l->json};
    json_begin(&o, NULL, '{');
    json_begin(&o, "config", '{');
    json_put_text(&o, "mode", l->opt->sample.on ? "sample" : modes[l->opt->mode]);
    put_text(&o, "model", p->model);
    json_put(&o, "model_hash", "\"%016" PRIx64 "\"", p->program.model_hash);
    json_put(&o, "plan_hash", "\"%016" PRIx64 "\"", p->program.hash);
    json_put(&o, "stages", "%d", p->n_stage);
    json_put(&o, "ranks", "%d", ranks);
    json_put(&o, "tensor", "%d", plan_members(p));
    json_put(&o, "steps", "%" PRId64, l->steps);
    json_put(&o, "first_step", "%" PRId64, c->first_step + 1);
    put_text(&o, "schedule", c->schedule);
    put_text(&o, "transport", c->transport);
    put_text(&o, "mpi", c->mpi);
    put_text(&o, "blas", c->blas);
    put_text(&o, "resumed_from", c->resumed_from);
    put_places(&o, place, ranks);
    json_begin(&o, "arguments", '[');
    for (int i = 1; i < l->opt->command.argc; i++)
        json_put_text(&o, NULL, l->opt->command.argv[i]);
    json_end(&o, "]");
    json_begin(&o, "numbers", '{');
    TRY(options_put_numbers(l->opt, &o));
    return log_line_end(l, &o, "}}}");
}

PpStatus log_config(Log *l, Group *g, const LogConfig *c, const MemoryReport *mine)
{
    Place here = {.threads = mine->threads,
                  .memory = memory_total(mine),
                  .activations = mine->bytes.slots,
                  .operations = (mine->operations - mine->recomputed) * c->passes};
    gethostname(here.host, sizeof here.host - 1);
    cpus_text(here.cpus, sizeof here.cpus);
    snprintf(here.where, sizeof here.where, "%s", mine->where);
    if (!l->opt->report.log_json && !l->opt->report.tensorboard)
        return PP_OK;
    Place *all;
    POOL(room);
    TRY(group_gather(g, &here, sizeof here, &room, &all));
    for (int k = 0; k < g->ranks; k++)
        l->memory = all[k].memory > l->memory ? all[k].memory : l->memory;
    return l->json ? put_line(l, c, all, g->ranks) : PP_OK;
}

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

static void put_places(JsonOut *o, const MemoryReport *m, int n, int passes)
{
    json_begin(o, "places", '[');
    for (int k = 0; k < n; k++) {
        json_begin(o, NULL, '{');
        json_put(o, "rank", "%d", k);
        put_text(o, "host", m[k].machine);
        put_text(o, "cpus", m[k].cpus);
        json_put(o, "threads", "%d", m[k].threads);
        put_text(o, "device", m[k].where);
        json_put(o, "memory", "%" PRId64, memory_total(&m[k]));
        json_put(o, "activations", "%" PRId64, m[k].bytes.slots);
        json_put(o, "operations", "%.17g", (m[k].operations - m[k].recomputed) * passes);
        json_end(o, "}");
    }
    json_end(o, "]");
}

static PpStatus put_line(const Log *l, const LogConfig *c, const MemoryReport *all, int ranks)
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
    put_places(&o, all, ranks, c->passes);
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
    MemoryReport here = *mine, *all;
    POOL(room);
    if (!l->opt->report.log_json && !l->opt->report.tensorboard)
        return PP_OK;
    gethostname(here.machine, sizeof here.machine - 1);
    cpus_text(here.cpus, sizeof here.cpus);
    TRY(group_gather(g, &here, sizeof here, &room, &all));
    for (int k = 0; k < g->ranks; k++)
        l->memory = memory_total(&all[k]) > l->memory ? memory_total(&all[k]) : l->memory;
    if (l->json)
        TRY(put_line(l, c, all, g->ranks));
    l->made = 0;
    return PP_OK;
}

/*
 * log_config.c - the first line of --log-json: {"config": {...}}, what the run is and where it
 * runs.  In: the run, and of each rank its host, its CPUs and threads.
 */
#include "log.h"

#include "base/file/json.h"

#include <errno.h>
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

static void put(FILE *f, const char *key, const char *value)
{
    fprintf(f, ", \"%s\": ", key);
    if (value && value[0])
        json_write_string(f, value);
    else
        fputs("null", f);
}

static void put_places(FILE *f, const Place *p, int n)
{
    fputs(", \"places\": [", f);
    for (int k = 0; k < n; k++) {
        fprintf(f, "%s{\"rank\": %d", k ? ", " : "", k);
        put(f, "host", p[k].host);
        put(f, "cpus", p[k].cpus);
        fprintf(f, ", \"threads\": %d", p[k].threads);
        put(f, "device", p[k].where);
        fprintf(f, ", \"memory\": %" PRId64 ", \"activations\": %" PRId64 ", \"operations\": %.17g",
                p[k].memory, p[k].activations, p[k].operations);
        putc('}', f);
    }
    putc(']', f);
}

static PpStatus put_options(FILE *f, const Options *o)
{
    NumberOption n;
    const char *comma = "";
    POOL(pool);
    fputs(", \"arguments\": [", f);
    for (int i = 1; i < o->command.argc; i++) {
        fputs(i > 1 ? ", " : "", f);
        json_write_string(f, o->command.argv[i]);
    }
    fputs("], \"numbers\": {", f);
    for (int i = 0; options_next_number(o, &i, &n, &pool); comma = ", ") {
        if (!n.value)
            return pp_no_memory();
        fputs(comma, f);
        json_write_string(f, n.name);
        fputs(": ", f);
        json_write_string(f, n.value);
    }
    putc('}', f);
    return PP_OK;
}

static PpStatus put_line(const Log *l, const LogConfig *c, const Place *place, int ranks)
{
    static const char *const modes[] = {"train", "eval", "infer"};
    FILE *f = l->json;
    char hash[20], plan[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, c->model->program.model_hash);
    snprintf(plan, sizeof plan, "%016" PRIx64, c->model->program.hash);
    fprintf(f, "{\"config\": {\"mode\": \"%s\"",
            l->opt->sample.on ? "sample" : modes[l->opt->mode]);
    put(f, "model", c->model->model);
    put(f, "model_hash", hash);
    put(f, "plan_hash", plan);
    fprintf(f,
            ", \"stages\": %d, \"ranks\": %d, \"tensor\": %d, \"steps\": %" PRId64
            ", \"first_step\": %" PRId64,
            c->model->n_stage, ranks, plan_members(c->model), l->steps, c->first_step + 1);
    put(f, "schedule", c->schedule);
    put(f, "transport", c->transport);
    put(f, "mpi", c->mpi);
    put(f, "blas", c->blas);
    put(f, "resumed_from", c->resumed_from);
    put_places(f, place, ranks);
    TRY(put_options(f, l->opt));
    fputs("}}\n", f);
    return fflush(f)
               ? pp_fail(PP_ERR_IO, "--log-json %s: %s", l->opt->report.log_json, strerror(errno))
               : PP_OK;
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

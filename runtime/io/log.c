/*
 * log.c - what a run says: the memory before the first step, one stable line a step or a progress
 * bar on a terminal, a line of JSON a step.  Rank 0 speaks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

PpStatus log_open(Log *l, const Options *o, const Group *g, int64_t steps, int64_t tokens)
{
    *l = (Log){.opt = o, .speaks = g->rank == 0, .steps = steps, .tokens = tokens};
    /* mpirun shows its processes a terminal that is none */
    l->bar = o->mode == MODE_TRAIN && !g->processes && isatty(1);
    if (!l->speaks || !o->log_json)
        return PP_OK;
    l->json = !strcmp(o->log_json, "-") ? stdout : fopen(o->log_json, "w");
    return l->json ? PP_OK : pp_fail(PP_ERR_IO, "--log-json %s: %s", o->log_json, strerror(errno));
}

int64_t memory_total(const MemoryReport *m)
{
    return m->bytes.total + m->bytes.resident + m->library + m->snapshot + m->evaluation;
}

static void print_memory(int rank, const MemoryReport *m, int verbose)
{
    const PlanBytes *b = &m->bytes;
    const struct {
        const char *name;
        int64_t bytes;
    } part[] = {{"in memory of parameters", b->resident + b->window},
                {"parameters", b->param},
                {"half copies", b->half},
                {"gradients", b->grad},
                {"optimizer", b->optimizer},
                {"constants", b->constants},
                {"activations", b->slots},
                {"work", b->work},
                {"data", b->data},
                {"outputs", b->output},
                {"communication", b->comm},
                {"library", m->library},
                {"snapshot", m->snapshot},
                {"evaluation", m->evaluation}};
    const char *comma = "";
    printf("rank %d memory: %" PRId64 " bytes (", rank, memory_total(m));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes && !(b->mapped && i > 0 && i < 5)) { /* which are in a file */
            printf("%s%s %" PRId64, comma, part[i].name, part[i].bytes);
            comma = ", ";
        }
    printf("), live microbatches %d", m->live);
    if (m->live_bound >= 0)
        printf(" of %d", m->live_bound);
    putchar('\n');
    if (!verbose)
        return;
    if (m->where[0])
        printf("rank %d runs on %s, transport %s, %" PRId64 " bytes of pinned host memory\n", rank,
               m->where, m->wire, m->host);
    printf("rank %d plan: activations and work %" PRId64 " bytes, no placement needs less than %" PRId64
           "; %d messages, %d threads%s\n",
           rank, b->block, b->slots_bound, m->messages, m->threads,
           m->overlap ? ", halves of OVERLAP_F_B beside each other" : "");
}

/* Planned buffers are not all that a process has: the program itself, MPI, libraries. */
static void print_process(const MemoryReport *all, const Group *g)
{
    int64_t least = all[0].process, most = least;
    for (int k = 1; g->processes && k < g->ranks; k++) {
        least = all[k].process < least ? all[k].process : least;
        most = all[k].process > most ? all[k].process : most;
    }
    if (!least)
        return;
    printf("process memory: %" PRId64, least);
    if (most > least)
        printf(" to %" PRId64, most);
    printf(" bytes%s beside these planned buffers (program, libraries)\n",
           g->processes ? " of each rank" : "");
}

void log_chosen(const Log *l, const char *text)
{
    if (l->speaks && !l->opt->quiet && text[0])
        printf("%s\n", text);
}

void log_resumed(const Log *l, const Index *x, int64_t done)
{
    if (!l->speaks || !x->path)
        return;
    if (x->note[0])
        fprintf(stderr, "pipeline: warning: %s: an older checkpoint is taken\n", x->note);
    if (!l->opt->quiet)
        printf("resumed from %s, %" PRId64 " steps are done%s\n", x->path, done,
               done >= l->steps ? ": nothing is left to do" : "");
}

/* What products of half types become follows from the CPU, and so may some bits of them. */
static void print_half(const MemoryReport *all, int ranks)
{
    int same = 1;
    for (int k = 1; k < ranks; k++)
        same &= all[k].half_type == all[0].half_type && !strcmp(all[k].half, all[0].half);
    for (int k = 0; k < (same ? 1 : ranks); k++) {
        if (!all[k].half_type)
            continue;
        if (!same)
            printf("rank %d ", k);
        printf("products of %s: %s\n", all[k].half_type == PP_BF16 ? "bf16" : "f16", all[k].half);
    }
}

/* What of a microbatch's stash is computed again; 0: nothing. */
static int32_t again(const SchedRow *row, int stage, int m)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == SA_R && row->a[i].stage == stage && row->a[i].microbatch == m)
            return row->a[i].peer;
    return 0;
}

static void print_parts(int32_t parts)
{
    const char *sep = " parts ";
    if (parts == SCHED_WHOLE)
        printf(" whole");
    for (int k = 0; k < PP_AGAIN && parts != SCHED_WHOLE; k++)
        if (parts >> k & 1) {
            printf("%s%d", sep, k);
            sep = "+";
        }
}

/* `rank 0 recomputes stage 0: 0-2 whole, 3 parts 0+2; 123456 operations a step, 3.20 % more` */
static void print_recomputed(const Schedule *s, const Options *o, int rank, const MemoryReport *m)
{
    const SchedRow *row = &s->row[rank];
    int any = 0, named = -1;
    for (int stage = 0; stage < s->stages; stage++)
        for (int mb = 0; s->rank_of[stage] == rank && mb < s->microbatches; mb++) {
            int32_t parts = again(row, stage, mb);
            int last = mb;
            if (!parts)
                continue;
            while (last + 1 < s->microbatches && again(row, stage, last + 1) == parts)
                last++;
            if (!any++)
                printf("rank %d recomputes", rank);
            else
                putchar(',');
            if (stage != named)
                printf(" stage %d:", named = stage);
            printf(last > mb ? " %d-%d" : " %d", mb, last);
            print_parts(parts);
            mb = last;
        }
    double rest = m->operations - m->recomputed;
    if (any)
        printf("; %.0f operations a step, %.2f %% more\n", m->recomputed,
               rest > 0 ? 100 * m->recomputed / rest : 0);
    else if (o->recompute && strcmp(o->recompute, "never") != 0)
        printf("rank %d recomputes nothing\n", rank);
}

static int offloads(const SchedRow *row, int stage, int m)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == SA_OFFLOAD && row->a[i].stage == stage && row->a[i].microbatch == m)
            return 1;
    return 0;
}

/* `stage 0: 0-5 7, stage 2: 0` */
static void print_offloaded(const Schedule *s, int rank)
{
    const SchedRow *row = &s->row[rank];
    const char *comma = "";
    for (int stage = 0; stage < s->stages; stage++) {
        int any = 0;
        for (int m = 0; s->rank_of[stage] == rank && m < s->microbatches; m++) {
            int last = m;
            if (!offloads(row, stage, m))
                continue;
            while (last + 1 < s->microbatches && offloads(row, stage, last + 1))
                last++;
            if (!any++)
                printf("%sstage %d:", comma, stage);
            printf(last > m ? " %d-%d" : " %d", m, last);
            m = last;
            comma = ", ";
        }
    }
}

static void print_mapped(const Options *o, int rank, const PlanBytes *b)
{
    if (!(o->offload & OFFLOAD_PARAMS) || !b->mapped)
        return;
    printf("rank %d offload: parameters, gradients and optimizer state are %" PRId64
           " bytes in %s, at most %" PRId64 " of them %s; %" PRId64 " bytes in and %" PRId64
           " out a step",
           rank, b->mapped, b->resident ? o->offload_dir : "host memory", b->resident + b->window,
           b->resident ? "in memory" : "on the device", b->shards_in, b->shards_out);
    if (b->update_in)
        printf(", %" PRId64 " in and %" PRId64 " out for the update", b->update_in, b->update_out);
    putchar('\n');
}

static void print_store(const Schedule *s, const Options *o, int rank, const MemoryReport *m)
{
    int stages = 0;
    for (int k = 0; k < s->stages; k++)
        stages += s->rank_of[k] == rank;
    if (!m->offloaded) {
        if (o->offload & OFFLOAD_STASH)
            printf("rank %d offload: 0 of %d stashes: there is no time for copies, or no need\n",
                   rank, stages * s->microbatches);
        return;
    }
    printf("rank %d offload: %d of %d stashes (", rank, m->offloaded, stages * s->microbatches);
    print_offloaded(s, rank);
    printf("), %" PRId64 " bytes out and back a step, %" PRId64 " bytes %s%s\n", m->bytes.moved,
           m->bytes.store, m->where[0] ? "of pinned host memory" : "in ",
           m->where[0] ? "" : o->offload_dir);
}

/* Bytes a parameter: itself, its gradient, its state. */
static void print_divided(const Options *o, int rank, const PlanBytes *b)
{
    double n = (double)b->elements, held = 2 * (double)b->trained;
    if (!o->shard_optimizer || !b->elements)
        return;
    printf("rank %d updates %" PRId64 " bytes of parameters: optimizer state %" PRId64
           " bytes, of a replica alone %" PRId64 "; %.2f bytes a parameter instead of %.2f\n",
           rank, b->updated, b->optimizer, b->optimizer_whole, (held + (double)b->optimizer) / n,
           (held + (double)b->optimizer_whole) / n);
}

PpStatus log_memory(const Log *l, Group *g, const Schedule *sched, const MemoryReport *mine)
{
    MemoryReport *all = malloc((size_t)g->ranks * sizeof *all);
    if (!all)
        return pp_no_memory();
    PpStatus s = g->op->gather(g, mine, sizeof *all, all);
    if (s == PP_OK && l->speaks && !l->opt->quiet)
        print_half(all, g->ranks);
    for (int k = 0; s == PP_OK && l->speaks && !l->opt->quiet && k < g->ranks; k++) {
        print_memory(k, &all[k], l->opt->verbose);
        print_divided(l->opt, k, &all[k].bytes);
        if (k < sched->ranks) { /* those of other replicas are as the first one's */
            print_recomputed(sched, l->opt, k, &all[k]);
            print_store(sched, l->opt, k, &all[k]);
        }
        print_mapped(l->opt, k, &all[k].bytes);
    }
    if (s == PP_OK && l->speaks && !l->opt->quiet)
        print_process(all, g);
    fflush(stdout);
    free(all);
    return s;
}

PpStatus log_live(const Log *l, Group *g, const Schedule *s, int most)
{
    if (!l->opt->verbose || l->opt->mode != MODE_TRAIN)
        return PP_OK;
    int64_t mine = most, *all = malloc((size_t)g->ranks * sizeof *all);
    if (!all)
        return pp_no_memory();
    PpStatus status = g->op->gather(g, &mine, sizeof mine, all);
    for (int k = 0; status == PP_OK && l->speaks && k < g->ranks; k++) {
        int bound = sched_peak_formula(s->name, s->ranks, s->stages, s->microbatches,
                                       k % s->ranks);
        printf("rank %d live microbatches: %" PRId64 " at most", k, all[k]);
        if (bound >= 0)
            printf(", the schedule's closed form is %d", bound);
        putchar('\n');
    }
    free(all);
    return status;
}

PpStatus log_shards(const Log *l, Group *g, const ShardCount *mine)
{
    if (!l->opt->verbose || !(l->opt->offload & OFFLOAD_PARAMS))
        return PP_OK;
    ShardCount *all = malloc((size_t)g->ranks * sizeof *all);
    if (!all)
        return pp_no_memory();
    PpStatus status = g->op->gather(g, mine, sizeof *mine, all);
    for (int k = 0; status == PP_OK && l->speaks && k < g->ranks; k++)
        printf("rank %d offload: %" PRId64 " bytes came and %" PRId64 " went with actions, %" PRId64
               " and %" PRId64 " with updates, %" PRId64 " were in memory at most\n",
               k, all[k].came, all[k].went, all[k].update_came, all[k].update_went,
               all[k].resident);
    free(all);
    return status;
}

/* 17 digits read back exactly; what is not finite, which JSON has no number for, is null. */
static void json_number(FILE *f, const char *key, double v)
{
    if (isfinite(v))
        fprintf(f, ", \"%s\": %.17g", key, v);
    else
        fprintf(f, ", \"%s\": null", key);
}

/* Is the loss scaled at all? */
static int scales(const Log *l)
{
    return l->opt->loss_scale.window || l->opt->loss_scale.scale != 1;
}

static int skips(const Log *l) { return scales(l) || strcmp(l->opt->on_nonfinite, "skip") == 0; }

/* Tokens a second over the last steps.  The first one, in which libraries start, counts until there
 * is another. */
static double mean_rate(Log *l, double seconds)
{
    double sum = 0;
    int64_t at = l->timed > 0 ? l->timed - 1 : 0, n = at + 1 < LOG_RATE ? at + 1 : LOG_RATE;
    l->timed++;
    l->last[at % LOG_RATE] = seconds;
    for (int64_t i = 0; i < n; i++)
        sum += l->last[i];
    return sum > 0 ? (double)(n * l->tokens) / sum : 0;
}

static void progress(const Log *l, const StepLog *s, double rate)
{
    enum { WIDTH = 30 };
    int full = (int)(WIDTH * s->step / l->steps);
    printf("\r[%.*s%*s] %" PRId64 "/%" PRId64 "  loss %.6f  grad_norm %.4g  %.0f tokens/s\033[K",
           full, "##############################", WIDTH - full, "", s->step, l->steps, s->loss,
           s->grad_norm, rate);
    if (s->step == l->steps || !isfinite(s->loss) || (!isfinite(s->grad_norm) && !s->skipped))
        putchar('\n');
    fflush(stdout);
}

PpStatus log_step(Log *l, const StepLog *step)
{
    /* A NaN's sign says nothing, and is not always the same */
    StepLog signless = *step, *s = &signless;
    if (!l->speaks)
        return PP_OK;
    if (isnan(s->loss))
        s->loss = fabs(s->loss);
    if (isnan(s->grad_norm))
        s->grad_norm = fabs(s->grad_norm);
    double rate = s->seconds > 0 ? (double)l->tokens / s->seconds : 0;
    Mode mode = l->opt->mode;
    if (l->json) {
        fprintf(l->json, "{\"step\": %" PRId64, s->step);
        if (mode != MODE_INFER)
            json_number(l->json, "loss", s->loss);
        if (mode == MODE_TRAIN)
            json_number(l->json, "grad_norm", s->grad_norm);
        if (mode == MODE_TRAIN)
            json_number(l->json, "lr", s->lr);
        if (mode == MODE_TRAIN && scales(l))
            json_number(l->json, "loss_scale", s->loss_scale);
        if (mode == MODE_TRAIN && skips(l))
            fprintf(l->json, ", \"skipped\": %s", s->skipped ? "true" : "false");
        json_number(l->json, "seconds", s->seconds);
        json_number(l->json, "tokens_per_second", rate);
        fputs("}\n", l->json);
        if (fflush(l->json))
            return pp_fail(PP_ERR_IO, "--log-json %s: %s", l->opt->log_json, strerror(errno));
    }
    rate = mean_rate(l, s->seconds);
    if (l->opt->quiet)
        return PP_OK;
    if (l->bar) {
        progress(l, s, rate);
        return PP_OK;
    }
    printf("step %" PRId64, s->step);
    if (mode != MODE_INFER)
        printf(" loss %.6f", s->loss);
    if (mode == MODE_TRAIN)
        printf(" grad_norm %.4g", s->grad_norm);
    if (mode == MODE_TRAIN && scales(l))
        printf(" loss_scale %g", s->loss_scale);
    if (s->skipped)
        printf(" skipped");
    printf(" tokens/s %.0f\n", rate);
    fflush(stdout);
    return PP_OK;
}

PpStatus log_mean(const Log *l, double loss, int64_t rows)
{
    if (!l->speaks)
        return PP_OK;
    if (l->json) {
        fprintf(l->json, "{\"rows\": %" PRId64, rows);
        json_number(l->json, "mean_loss", loss);
        fputs("}\n", l->json);
        if (fflush(l->json))
            return pp_fail(PP_ERR_IO, "--log-json %s: %s", l->opt->log_json, strerror(errno));
    }
    if (!l->opt->quiet)
        printf("mean loss %.6f over %" PRId64 " rows\n", loss, rows);
    return PP_OK;
}

PpStatus log_evaluation(const Log *l, int64_t done, double loss, int64_t rows, double seconds)
{
    if (!l->speaks)
        return PP_OK;
    if (isnan(loss))
        loss = fabs(loss);
    if (l->json) {
        /* Only lines of steps have a "step" */
        fputs(isfinite(loss) ? "{\"eval_loss\": " : "{\"eval_loss\": null", l->json);
        if (isfinite(loss))
            fprintf(l->json, "%.17g", loss);
        fprintf(l->json, ", \"eval_step\": %" PRId64 ", \"rows\": %" PRId64, done, rows);
        json_number(l->json, "seconds", seconds);
        fputs("}\n", l->json);
        if (fflush(l->json))
            return pp_fail(PP_ERR_IO, "--log-json %s: %s", l->opt->log_json, strerror(errno));
    }
    if (l->opt->quiet)
        return PP_OK;
    printf("%sstep %" PRId64 " eval_loss %.6f rows %" PRId64 "\n", l->bar ? "\r\033[K" : "", done,
           loss, rows);
    fflush(stdout);
    return PP_OK;
}

PpStatus log_close(Log *l)
{
    if (!l->json)
        return PP_OK;
    int bad = ferror(l->json) | (l->json == stdout ? fflush(stdout) : fclose(l->json));
    l->json = NULL;
    return bad ? pp_fail(PP_ERR_IO, "--log-json %s: write error", l->opt->log_json) : PP_OK;
}

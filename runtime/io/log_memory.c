/*
 * log_memory.c - what a run says before its first step: the memory of each rank, what it computes
 * again and what it offloads.  With --verbose, after the last step, what was alive at once and what
 * a device has taken.
 */
#include "log.h"

#include <inttypes.h>
#include <string.h>

int64_t memory_total(const MemoryReport *m)
{
    return m->bytes.total + m->library + m->snapshot + m->evaluation;
}

static void print_memory(int rank, const MemoryReport *m, int verbose)
{
    const PlanBytes *b = &m->bytes;
    const struct {
        const char *name;
        int64_t bytes;
    } part[] = {{"parameters in memory", b->home ? b->window : 0},
                {"parameters", b->param},
                {"half copies", b->half},
                {"gradients", b->grad},
                {"optimizer", b->optimizer},
                {"constants", b->constants},
                {"activations", b->slots},
                {"work", b->work},
                {"data", b->data},
                {"outputs", b->output},
                {"window", b->home ? 0 : b->window},
                {"communication", b->comm},
                {"library", m->library},
                {"snapshot", m->snapshot},
                {"evaluation", m->evaluation}};
    const char *comma = "";
    printf("rank %d memory: %" PRId64 " bytes (", rank, memory_total(m));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes && !(b->home && i > 0 && i < 5)) { /* which are elsewhere */
            printf("%s%s %" PRId64, comma, part[i].name, part[i].bytes);
            comma = ", ";
        }
    printf("), live microbatches %d\n", m->live);
    if (!verbose)
        return;
    if (m->where[0])
        printf("rank %d runs on %s, transport %s, %" PRId64 " bytes of pinned host memory\n", rank,
               m->where, m->wire, m->host);
    printf("rank %d plan: activations and work %" PRId64
           " bytes, no placement needs less than %" PRId64 "; %d message%s, %d thread%s\n",
           rank, b->block, b->slots_bound, m->messages, m->messages == 1 ? "" : "s", m->threads,
           m->threads == 1 ? "" : "s");
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
    printf(" bytes%s in addition (program, libraries)\n", g->processes ? " of each rank" : "");
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

/* What an action of the type says of a microbatch; 0: there is none. */
static int32_t said(const SchedRow *row, int type, int stage, int m)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == type && row->a[i].stage == stage && row->a[i].microbatch == m)
            return type == SA_R ? row->a[i].peer : 1;
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

/* `stage 0: 0-2 whole, 3 parts 0+2, stage 2: 0 whole', or of others than R `stage 0: 0-5 7, stage
 * 2: 0': the microbatches of a rank of which an action of the type says something. */
static void print_runs(const Schedule *s, int pipe, int type)
{
    const SchedRow *row = &s->row[pipe];
    int named = -1;
    for (int stage = 0; stage < s->stages; stage++)
        for (int m = 0, last; s->rank_of[stage] == pipe && m < s->microbatches; m = last + 1) {
            const int32_t of = said(row, type, stage, m);
            last = m;
            if (!of)
                continue;
            while (last + 1 < s->microbatches && said(row, type, stage, last + 1) == of)
                last++;
            if (stage != named)
                printf("%sstage %d: ", named < 0 ? "" : ", ", stage);
            else
                printf(type == SA_R ? ", " : " ");
            named = stage;
            printf(last > m ? "%d-%d" : "%d", m, last);
            if (type == SA_R)
                print_parts(of);
        }
}

/* `rank 0 recomputes stage 0: 0-2 whole, 3 parts 0+2; 123456 operations a step, 3.20 % more` */
static void print_recomputed(const Schedule *s, const Options *o, int pipe, int rank,
                             const MemoryReport *m)
{
    const double rest = m->operations - m->recomputed;
    int any = 0;
    for (int i = 0; i < s->row[pipe].n; i++)
        any |= s->row[pipe].a[i].type == SA_R && s->row[pipe].a[i].peer;
    if (any) {
        printf("rank %d recomputes ", rank);
        print_runs(s, pipe, SA_R);
        printf("; %.0f operations a step, %.2f %% more\n", m->recomputed,
               rest > 0 ? 100 * m->recomputed / rest : 0);
    } else if (o->memory.recompute && strcmp(o->memory.recompute, "never") != 0) {
        printf("rank %d recomputes nothing\n", rank);
    }
}

static void print_home(const Options *o, int rank, const MemoryReport *m)
{
    const PlanBytes *b = &m->bytes;
    if (b->home)
        printf("rank %d offload: parameters, gradients and optimizer state are %" PRId64
               " bytes in %s, at most %" PRId64 " of them %s; %" PRId64 " bytes in and %" PRId64
               " out a step\n",
               rank, b->home, m->where[0] ? "host memory" : o->memory.offload_dir, b->window,
               m->where[0] ? "on the device" : "in memory", b->travels.in, b->travels.out);
}

static void print_store(const Schedule *s, const Options *o, int pipe, int rank,
                        const MemoryReport *m)
{
    int stages = 0;
    for (int k = 0; k < s->stages; k++)
        stages += s->rank_of[k] == pipe;
    if (!m->offloaded) {
        if (o->memory.offload & OFFLOAD_STASH)
            printf("rank %d offload: 0 of %d stashes: there is no time for copies, or no need\n",
                   rank, stages * s->microbatches);
        return;
    }
    printf("rank %d offload: %d of %d stashes (", rank, m->offloaded, stages * s->microbatches);
    print_runs(s, pipe, SA_OFFLOAD);
    printf("), %" PRId64 " bytes out and back a step, %" PRId64 " bytes %s%s\n", m->bytes.moved,
           m->bytes.store, m->where[0] ? "of pinned host memory" : "in ",
           m->where[0] ? "" : o->memory.offload_dir);
}

/* Bytes a parameter: itself, its gradient, its state. */
static void print_divided(const Options *o, int rank, const PlanBytes *b)
{
    double n = (double)b->replicas.elements, held = (double)b->replicas.stays;
    if (!o->memory.zero || !b->replicas.elements)
        return;
    printf("rank %d updates %" PRId64 " bytes of parameters: optimizer state %" PRId64
           " bytes instead of %" PRId64 ", %.2f bytes a parameter instead of %.2f\n",
           rank, b->replicas.updated, b->optimizer, b->replicas.optimizer,
           (held + (double)b->optimizer) / n,
           (2 * (double)b->replicas.trained + (double)b->replicas.optimizer) / n);
}

static void print_gathers(int rank, const PlanBytes *b)
{
    if (b->gathers)
        printf("rank %d gathers parameters %" PRId64 " times in a pass of the schedule, %" PRId64
               " bytes in and %" PRId64 " out; at most %" PRId64 " of %" PRId64
               " bytes are whole at once\n",
               rank, b->gathers, b->travels.gathered_in, b->travels.gathered_out, b->brought,
               b->values);
}

PpStatus log_memory(const Log *l, Group *g, const Schedule *sched, int members,
                    const MemoryReport *mine)
{
    MemoryReport *all;
    POOL(room);
    TRY(group_gather(g, mine, sizeof *all, &room, &all));
    const int says = l->speaks && !l->opt->report.quiet;
    if (says)
        print_half(all, g->ranks);
    for (int k = 0; says && k < g->ranks; k++) {
        print_memory(k, &all[k], l->opt->report.verbose);
        print_divided(l->opt, k, &all[k].bytes);
        print_gathers(k, &all[k].bytes);
        if (k < sched->ranks * members && k % members == 0) { /* others are as the first one */
            print_recomputed(sched, l->opt, k / members, k, &all[k]);
            print_store(sched, l->opt, k / members, k, &all[k]);
        }
        print_home(l->opt, k, &all[k]);
    }
    if (says)
        print_process(all, g);
    fflush(stdout);
    return PP_OK;
}

static void print_after(const Log *l, int members, int rank, const RunReport *m)
{
    if (m->taken >= 0)
        printf("rank %d device memory: %" PRId64 " bytes planned, %" PRId64 " taken\n", rank,
               m->planned, m->taken);
    if (l->opt->mode == MODE_TRAIN)
        printf("rank %d live microbatches: %" PRId64 " at most\n", rank, m->live);
    if (members > 1)
        printf("rank %d collectives: %" PRId64 " in a step, %" PRId64 " bytes sent\n", rank,
               m->calls, m->sent);
    if (l->opt->memory.offload & OFFLOAD_PARAMS)
        printf("rank %d offload: %" PRId64 " bytes came and %" PRId64 " went with actions\n", rank,
               m->shards.came, m->shards.went);
    else if (l->opt->memory.zero == 3)
        printf("rank %d has gathered parameters %" PRId64 " times\n", rank, m->shards.gathers);
}

PpStatus log_after(const Log *l, Group *g, int members, const RunReport *mine)
{
    int64_t calls = 0, sent = 0;
    RunReport *all;
    POOL(room);
    TRY(group_gather(g, mine, sizeof *mine, &room, &all));
    for (int k = 0; l->speaks && k < g->ranks; k++) {
        calls = all[k].calls > calls ? all[k].calls : calls;
        sent = all[k].sent > sent ? all[k].sent : sent;
        if (l->opt->report.verbose)
            print_after(l, members, k, &all[k]);
    }
    if (l->speaks && !l->opt->report.quiet && members > 1)
        printf("collectives: at most %" PRId64 " of a rank in a step, %" PRId64
               " bytes sent by it\n",
               calls, sent);
    return PP_OK;
}

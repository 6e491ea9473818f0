/*
 * bound.c - what a way takes at the least, before its schedules are made: seconds by the model of
 * costs, bytes by its program.
 *
 * A backward of a stage needs the stage's stash, made by its F or again by an R, and its workspace;
 * all that while its rank holds the parameters, gradients, states and constants of all its stages.
 * Rows of a schedule say more: how many microbatches a rank holds at once.  None of it counts what
 * may be freed earlier, messages and alignment, so a rank takes no less.
 */
#include <string.h>

#include "schedule/rows.h"
#include "search.h"

static double larger(double a, double b) { return a > b ? a : b; }

/* ---- seconds --------------------------------------------------------------------------------- */

double candidate_beginning(const Search *x)
{
    const AutoOptions *o = &x->o->partition->automatic;
    return o->measured ? 0 : 1 / o->rates.actions;
}

StageCut candidate_measured(const Candidate *c, Arena *a)
{
    StageCut cut;
    CutProblem p = {.stages = c->cut->stages, .link = rates_link(&c->size->cuts->options->rates)};
    cut_measure(&c->size->cuts->model->cut, &p, c->cut->found->stage_of, a, &cut);
    return cut;
}

/* Of one stage, whichever way it is computed: where a run had I and W, divide() says how much less
   a B may take. */
static double least_backward(const Search *x, const CutStage *at)
{
    const AutoOptions *o = &x->o->partition->automatic;
    double parts = at->input + at->weight, least = at->whole < parts ? at->whole : parts;
    return o->measured && o->measured_divided && !o->measured_whole ? 0.5 * least : least;
}

static double least_again(const Candidate *c, const CutStage *at, double begin)
{
    bool whole = c->again == AGAIN_EXCEPT_LAST || c->again == AGAIN_ALWAYS;
    return whole && at->input + at->weight + at->whole > 0 ? at->forward + begin : 0;
}

double candidate_bound(const Search *x, const Candidate *c)
{
    Arena *a = arena_new();
    StageCut cut = candidate_measured(c, a);
    double begin = candidate_beginning(x), all = 0, before = 0, most = 0;
    int agains = c->microbatches - (c->again == AGAIN_EXCEPT_LAST);
    for (uint32_t s = 0; s < cut.stages; s++) {
        const CutStage *at = &cut.stage[s];
        double work = c->microbatches * (at->forward + least_backward(x, at) + 2 * begin) +
                      agains * least_again(c, at, begin);
        all += work;
        most = larger(most, before + work);
        before += at->forward + begin;
    }
    arena_free(a);
    return larger(all / c->ranks, most);
}

/* ---- bytes, by the model of costs ------------------------------------------------------------ */

/* What a replica holds of trained parameters, their gradients and states all the time: held is of
   the first two, and of what does not train. */
static double holds(const Search *x, const Candidate *c, double held, double trained)
{
    int shares = c->zero ? x->states + c->zero - 1 : 0;
    return held + trained * (x->states - shares) + trained / c->replicas * shares;
}

static int64_t stage_holds(const Search *x, const Candidate *c, uint32_t s)
{
    return (int64_t)holds(x, c, (double)c->cut->held[s], (double)c->cut->trained[s]);
}

int64_t candidate_even(const Search *x, const Candidate *c)
{
    int64_t all = 0;
    for (uint32_t s = 0; s < c->cut->stages; s++)
        all += stage_holds(x, c, s);
    return all / c->ranks;
}

/* The ranks together hold all stages' parameters and gradients. */
static int64_t parameters_alone(const Search *x, const Candidate *c)
{
    int64_t most = candidate_even(x, c);
    for (uint32_t s = 0; s < c->cut->stages; s++)
        most = stage_holds(x, c, s) > most ? stage_holds(x, c, s) : most;
    return most;
}

double candidate_guess(const Search *x, const Candidate *c)
{
    Arena *a = arena_new();
    StageCut cut = candidate_measured(c, a);
    double stash = 0, once = 0;
    bool kept = c->again <= AGAIN_CHEAP && !c->offload;
    int live = c->ranks < c->microbatches ? c->ranks : c->microbatches;
    for (uint32_t s = 0; s < cut.stages; s++) {
        double received = (double)cut.stage[s].received;
        once = larger(once, (double)cut.stage[s].stash);
        stash += kept ? (double)cut.stage[s].stash : received;
    }
    arena_free(a);
    return (double)parameters_alone(x, c) + live * stash / c->ranks + (kept ? 0 : once);
}

/* ---- bytes, by the program ------------------------------------------------------------------- */

/* What a stage of it takes: always; of a microbatch that waits for its backward; while one is in
   its forward, its backward, and that divided. */
typedef struct {
    double held, waits, forward, whole, divided;
} Least;

static double trained_bytes(const PpStage *st)
{
    double sum = 0;
    for (int k = 0; k < st->n_param; k++) {
        const PpParam *q = &st->param[k];
        bool trains = q->trainable && !q->stat && q->grad_offset >= 0;
        sum += trains && q->use != PP_TRANSMIT ? (double)q->t.bytes : 0;
    }
    return sum;
}

/* Inputs that other ranks send; of: NULL: not known which. */
static double received(const PpStage *st, const Schedule *of)
{
    double sum = 0;
    for (int i = 0; i < st->n_input && of; i++) {
        const PpInput *in = &st->input[i];
        bool sent = in->from >= 0 && of->rank_of[in->from] != of->rank_of[st->index];
        sum += sent && in->t.batch_dim >= 0 ? (double)in->t.bytes : 0;
    }
    return sum;
}

static Least least_of(const Search *x, const Candidate *c, const PpStage *st, const Schedule *of)
{
    const double rows = (double)c->size->rows / (double)x->own_rows;
    const int64_t *work = st->bytes_work;
    double stash = (double)st->bytes_stash * rows, saved = (double)st->bytes_saved * rows, all = stash;
    for (int k = 0; k < st->n_again; k++)
        all += (double)st->again[k].bytes * rows;
    Least l = {.forward = (double)work[PP_WORK_FORWARD] * rows};
    l.held = holds(x, c,
                   (double)(st->bytes_param + (c->zero < 3 ? st->bytes_half : 0) + st->bytes_grad +
                            st->bytes_const),
                   trained_bytes(st));
    if (!st->has_backward)
        return l;
    l.waits = c->offload ? 0 : c->again == AGAIN_NEVER ? all : stash;
    if (c->again > AGAIN_CHEAP)
        l.waits = received(st, of) * rows;
    l.whole = all + (double)work[PP_WORK_BACKWARD] * rows;
    l.divided = saved + larger(all + (double)work[PP_WORK_INPUT] * rows,
                               (double)work[PP_WORK_WEIGHT] * rows);
    return l;
}

static const Least *least_of_stages(Search *x, const Candidate *c, const Schedule *of, Arena *a)
{
    const PpPlan *p = &cut_program(x, c->cut)->plan;
    Least *list = arena_array(a, Least, p->n_stage + 1);
    for (int s = 0; s < p->n_stage; s++)
        list[s] = least_of(x, c, p->stage[s], of);
    return list;
}

static double once(const Least *l)
{
    return larger(l->forward, l->whole < l->divided ? l->whole : l->divided);
}

int64_t candidate_floor(Search *x, const Candidate *c)
{
    const int64_t most = !x->least_wanted ? x->o->memory : x->least ? x->least : INT64_MAX,
                  alone = parameters_alone(x, c);
    if (alone > most)
        return alone;
    const Least l = least_of(x, c, cut_largest(x, c->cut), NULL);
    if (l.held + once(&l) > (double)most)
        return (int64_t)(l.held + once(&l));
    Arena *a = arena_new();
    const Least *of = least_of_stages(x, c, NULL, a);
    int stages = (int)c->cut->stages;
    double *held = arena_array(a, double, c->ranks), *once_of = arena_array(a, double, c->ranks),
           least = 0;
    for (int p = SCHED_PLACE_LOOP; p <= SCHED_PLACE_BLOCK; p++) {
        double largest = 0;
        memset(held, 0, (size_t)c->ranks * sizeof *held);
        memset(once_of, 0, (size_t)c->ranks * sizeof *once_of);
        for (int s = 0; s < stages; s++) {
            int r = sched_placed(p, c->ranks, stages, s);
            held[r] += of[s].held;
            once_of[r] = larger(once_of[r], once(&of[s]));
        }
        for (int r = 0; r < c->ranks; r++)
            largest = larger(largest, held[r] + once_of[r]);
        least = p == SCHED_PLACE_LOOP || largest < least ? largest : least;
    }
    arena_free(a);
    return (int64_t)least;
}

/* Of one rank, along its row: what is alive while each of its computations runs. */
static double row_floor(const Schedule *s, int rank, const Least *of)
{
    double held = 0, waits = 0, most = 0;
    for (int i = 0; i < s->stages; i++)
        held += s->rank_of[i] == rank ? of[i].held : 0;
    for (int i = 0; i < s->row[rank].n; i++) {
        const SchedAction *t = &s->row[rank].a[i];
        const Least *l = t->stage >= 0 ? &of[t->stage] : NULL;
        if (t->type == SA_F) {
            most = larger(most, waits + larger(l->forward, l->waits));
            waits += l->waits;
        } else if (t->type == SA_B || t->type == SA_I) {
            waits -= l->waits;
            most = larger(most, waits + (t->type == SA_B ? l->whole : l->divided));
        }
    }
    return held + most;
}

int64_t candidate_floor_of(Search *x, const Candidate *c, const Schedule *s)
{
    Arena *a = arena_new();
    const Least *of = least_of_stages(x, c, s, a);
    double most = 0;
    for (int r = 0; r < s->ranks; r++)
        most = larger(most, row_floor(s, r, of));
    arena_free(a);
    return (int64_t)most;
}

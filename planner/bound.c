/*
 * bound.c - what a way takes, before its schedules are made: by the model of costs, in closed form,
 * its seconds and bytes; and bytes at the least by its program.
 *
 * In closed form a step is the work of the busiest rank and a bubble of P - 1 times what a
 * microbatch takes in one stage, without the weights' gradients that may fill it (Qi et al.,
 * 2401.10241); then messages, sums over replicas (2104.04473, section 3) and the update.
 *
 * A backward of a stage needs the stage's stash, made by its F or again by an R, and its workspace;
 * all that while its rank holds the parameters, gradients, states and constants of all its stages.
 * Rows of a schedule say more: how many microbatches a rank holds at once.  None of it counts what
 * may be freed earlier, messages and alignment, so a rank takes no less.
 */
#include <math.h>
#include <string.h>

#include "schedule/rows.h"
#include "search.h"

static double larger(double a, double b) { return a > b ? a : b; }

/* ---- of the stages --------------------------------------------------------------------------- */

double candidate_beginning(const Search *x)
{
    const AutoOptions *o = &x->o->partition->automatic;
    return o->measured ? 0 : 1 / o->rates.actions;
}

/* Found once for a cut and rows. */
static const CutAt *cut_at(const Search *x, const Candidate *c)
{
    Cut *cut = c->cut;
    for (uint32_t i = 0; i < cut->at.n; i++)
        if (cut->at.at[i].size == c->size)
            return &cut->at.at[i];
    CutAt at = {.size = c->size};
    CutProblem p = {.stages = cut->stages, .link = rates_link(&c->size->cuts->options->rates)};
    cut_measure(&c->size->cuts->model->cut, &p, cut->found->stage_of, x->a, &at.cut);
    at.knot = arena_array(x->a, StageCut, x->n_knot + 1);
    for (uint32_t k = 0; k < x->n_knot; k++)
        cut_measure(&c->size->at[k]->model->cut, &p, cut->found->stage_of, x->a, &at.knot[k]);
    vec_push(x->a, &cut->at, at);
    return &cut->at.at[cut->at.n - 1];
}

const StageCut *candidate_measured(const Search *x, const Candidate *c)
{
    return &cut_at(x, c)->cut;
}

const StageCut *candidate_knots(const Search *x, const Candidate *c) { return cut_at(x, c)->knot; }

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

/* ---- in closed form -------------------------------------------------------------------------- */

/* The stages of a candidate, put together. */
typedef struct {
    double work, least;   /* seconds of a microbatch on the rank that takes most; on average */
    double chain;         /* least seconds of a step: one stage behind what comes before it */
    double fill, divided; /* of a microbatch in one stage of a rank: F and B; F and I - W */
    double message;       /* bytes from stage to stage, on average */
    double trained;       /* bytes of parameters of the rank that has most */
    double summed;        /* bytes of the rank that sends most to members who add up gradients */
    double stash, once;   /* bytes of a microbatch that waits, on average; of one in its backward */
} Whole;

static Whole whole_of(const Search *x, const Candidate *c)
{
    const StageCut *cut = candidate_measured(x, c);
    const double begin = candidate_beginning(x), m = c->microbatches,
                 agains = (m - (c->again == AGAIN_EXCEPT_LAST)) / m;
    const bool kept = c->again <= AGAIN_CHEAP && !c->offload;
    const int ranks = c->ranks, stages = (int)cut->stages;
    Whole w = {0};
    double before = 0;
    for (int r = 0; r < ranks; r++) {
        double work = 0, trained = 0, summed = 0;
        for (int s = r; s < stages; s += ranks) {
            const CutStage *at = &cut->stage[s];
            work += at->forward + least_backward(x, at) + 2 * begin +
                    agains * least_again(c, at, begin);
            trained += (double)c->cut->trained[s];
            summed += c->cut->summed[s];
        }
        w.work = larger(w.work, work);
        w.least += work / ranks;
        w.trained = larger(w.trained, trained);
        w.summed = larger(w.summed, summed);
    }
    for (int s = 0; s < stages; s++) {
        const CutStage *at = &cut->stage[s];
        double again = least_again(c, at, begin), input = at->forward + at->input - at->weight,
               both = at->forward + least_backward(x, at) + 2 * begin;
        w.chain = larger(w.chain, before + m * (both + agains * again));
        before += at->forward + begin;
        w.fill += (both + again) / stages;
        w.divided += larger(input + again, 0) / stages;
        w.message += (double)at->received / stages;
        w.stash += kept ? (double)at->stash / stages : (double)at->received / stages;
        w.once = larger(w.once, kept ? 0 : (double)at->stash);
    }
    return w;
}

double candidate_share(const Candidate *c) { return c->zero ? 1.0 / c->replicas : 1; }

/* Of a rank with so many trained bytes.  Without a card: their gradients are read for the norm, and
   zeroed; of its share values, gradients and states are read, values and states written. */
static double update_of(const Search *x, const Candidate *c, double trained)
{
    double all = 0;
    for (uint32_t s = 0; s < c->cut->stages; s++)
        all += (double)c->cut->trained[s];
    if (x->o->card)
        return all > 0 ? launches_update_about(x, c->cut, candidate_share(c) * trained / all) : 0;
    return trained * (2 + (3 + 2 * x->states) * candidate_share(c)) /
           rates_of_replicas(x->o, c).updates;
}

/* Of the update, of what members of whole parameters add up and of what replicas tell each other:
   what no backward hides is about the sums of one stage. */
static double end_of_step(const Search *x, const Candidate *c, const Whole *w)
{
    const Rates peers = rates_of_replicas(x->o, c);
    const double part = (double)(c->replicas - 1) / c->replicas, trained = w->trained,
                 chunks = (double)c->cut->stages / c->ranks,
                 sums = part * trained * (c->zero ? 1 : 2) / peers.link;
    return update_of(x, c, trained) + w->summed / rates_of_members(x->o, c->cut->of->members).link +
           sums / chunks + (c->zero && c->zero < 3 ? part * trained / peers.link : 0);
}

/* Seconds in which a stage's parameters come from the other replicas, for a step: before each round
   of microbatches its stage computes, forward and backward. */
static double gathered(const Search *x, const Candidate *c, double trained)
{
    double rounds = ceil((double)c->microbatches / c->ranks),
           part = (double)(c->replicas - 1) / c->replicas;
    return c->zero < 3 ? 0 : 2 * rounds * part * trained / rates_of_replicas(x->o, c).link;
}

/* As 1f1b has it, or interleaved; where W fills gaps, with that memory a third of its bubble, with
   twice that, or two stages as a V, less. */
static double estimate_of(const Search *x, const Candidate *c, const Whole *w)
{
    const Rates pipe = rates_of_pipe(x->o, c);
    const double others = c->ranks - 1, m = c->microbatches,
                 hop = 1 / pipe.messages + w->message / pipe.link,
                 busy = larger(m * w->work, gathered(x, c, w->trained)),
                 sent = 2 * m * (c->cut->stages - 1) / c->ranks * w->message / pipe.link,
                 bubble = others * (w->divided < w->fill ? w->divided : w->fill);
    return larger(busy + bubble, sent) + 2 * others * hop + end_of_step(x, c, w);
}

/* About the bytes that the rank which takes most needs under 1f1b */
static double guess_of(const Search *x, const Candidate *c, const Whole *w)
{
    int live = c->ranks < c->microbatches ? c->ranks : c->microbatches;
    double stages = (double)c->cut->stages / c->ranks,
           whole = c->zero < 3 ? 0 : 2 * w->trained / stages; /* of one stage at a time */
    return (double)parameters_alone(x, c) + live * w->stash * stages + w->once + whole;
}

void candidate_estimate(const Search *x, Candidate *c)
{
    const Whole w = whole_of(x, c);
    c->bound = larger(c->microbatches * w.least, w.chain);
    c->estimate = larger(c->bound, estimate_of(x, c, &w));
    c->guess = x->o->memory > 0 ? guess_of(x, c, &w) : 0;
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
    const int64_t *work = st->bytes.work;
    double stash = (double)st->bytes.stash * rows, saved = (double)st->bytes.saved * rows,
           all = stash;
    for (int k = 0; k < st->n_again; k++)
        all += (double)st->again[k].bytes * rows;
    Least l = {.forward = (double)work[PP_WORK_FORWARD] * rows};
    l.held = holds(x, c,
                   (double)(st->bytes.param + (c->zero < 3 ? st->bytes.half : 0) + st->bytes.grad +
                            st->bytes.constants),
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
    const int64_t most = !x->least.wanted  ? x->o->memory
                         : x->least.bytes ? x->least.bytes
                                          : INT64_MAX,
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

/*
 * launches.c - what actions take on a card.  In: the launches of a program's stages, and a card of
 * partition/auto/cards.def.  Out: their seconds; and for cuts, whose nodes have none, a run that
 * never was: the steps of the whole program, each with the floor of its launches, as a run of a
 * program that was made with --profile tells them (partition/auto/measured.c shares them out).
 */
#include <string.h>

#include "codegen/tables.h"
#include "search.h"

static void add_up(const Card *c, const Launches *list, double rows, double times, Launched *sum)
{
    for (uint32_t i = 0; i < list->n; i++) {
        sum->floors += times * card_seconds(c, &list->at[i].work, rows, NULL);
        sum->launches += times * list->at[i].work.launches;
    }
}

double launches_seconds(const Card *c, const Launches *list, double rows)
{
    Launched sum = {0};
    add_up(c, list, rows, 1, &sum);
    return card_launched(c, sum);
}

double launches_update(const Search *x, const StageLaunches *s, double part)
{
    Launched sum = {0};
    add_up(x->o->card, &s->of[LAUNCHES_UPDATE], 1, part, &sum);
    add_up(x->o->card, &s->of[LAUNCHES_STATE], 1, part * x->states, &sum);
    return card_launched(x->o->card, sum);
}

double launches_update_about(const Search *x, const Cut *c, double part)
{
    const Program *p = c->of->most.forecast;
    double sum = 0;
    for (int s = 0; s < p->plan.n_stage; s++)
        sum += launches_update(x, p->launches[s], part);
    return sum;
}

const Card *launches_card(const Search *x, int members)
{
    Card *c = x->o->card ? arena_new_of(x->a, Card) : NULL;
    if (c) {
        *c = *x->o->card;
        c->rate[UNIT_LINK] = rates_of_members(x->o, members).link;
    }
    return c;
}

/* Lines of names, each for itself. */
static void add_steps(const Search *x, const Launches *list, const Card *card, uint32_t stage,
                      double rows, StepTimes *out)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const Launch *l = &list->at[i];
        StepTime t = {.stage = stage, .part = l->part};
        t.seconds = card_seconds(card, &l->work, rows, NULL);
        for (const char *at = l->nodes; *at;) {
            size_t n = strcspn(at, "\n");
            vec_push(x->a, &t.node, arena_strndup(x->a, at, n));
            at += n + (at[n] == '\n');
        }
        vec_push(x->a, out, t);
    }
}

const PartitionOptions *launches_run(Search *x, const Division *d, Reading *at, int64_t rows)
{
    PartitionOptions *out = arena_new_of(x->a, PartitionOptions);
    AutoOptions *run = &out->automatic;
    *out = *x->o->partition;
    if (!at->forecast)
        at->forecast = program_of(at->joint, true, x->a);
    const int stages = at->forecast->plan.n_stage;
    StageTimes *t = arena_array(x->a, StageTimes, stages + 1);
    for (int s = 0; s < stages; s++) {
        const Launches *of = at->forecast->launches[s]->of;
        t[s] = (StageTimes){.input = -1, .weight = -1};
        t[s].forward = launches_seconds(d->card, &of[F_FORWARD], (double)rows);
        t[s].whole = launches_seconds(d->card, &of[F_BACKWARD], (double)rows);
        add_steps(x, &of[F_FORWARD], d->card, (uint32_t)s, (double)rows, &run->measured_steps);
        add_steps(x, &of[F_BACKWARD], d->card, (uint32_t)s, (double)rows, &run->measured_steps);
    }
    run->measured = t;
    run->measured_stages = (uint32_t)stages;
    run->measured_whole = true;
    for (uint32_t i = 0; i < out->split.n; i++)
        vec_push(x->a, &run->measured_split, out->split.at[i]);
    return out;
}

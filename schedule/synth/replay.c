/*
 * replay.c - the keys of a policy that leads to given rows: when each of their actions
 * begins, by the task's times.
 */
#include "state.h"

#include <stdlib.h>

/* The next action of a row, if its input is there. */
static int step(const SynthTask *t, const SchedAction *a, SynthState *v, SynthPolicy *p)
{
    const int s = a->stage, back = a->type == SA_I || a->type == SA_B;
    double when = a->type == SA_F ? state_ready(t, v, s, SA_F) : back ? state_ready(t, v, s, SA_I) : 0;
    if (when == HUGE_VAL)
        return 0;
    when = most_of(when, v->clock[t->rank_of[s]]);
    const size_t k = state_place(t, s, state_take(t, v, s, a->type, when));
    (a->type == SA_F ? p->key_f : a->type == SA_W ? p->key_w : p->key_i)[k] = when;
    if (a->type == SA_B)
        p->key_w[k] = when + t->i[s];
    return 1;
}

int synth_replay(const SynthTask *t, const Schedule *s, SynthPolicy *p)
{
    void *memory = malloc(state_size(t));
    int *cursor = calloc((size_t)t->ranks, sizeof *cursor), good = memory && cursor;
    SynthState v;
    if (good)
        v = state_begin(t, memory);
    for (int go = good; go;) {
        go = 0;
        for (int r = 0; r < t->ranks; r++)
            for (; cursor[r] < s->row[r].n && step(t, &s->row[r].a[cursor[r]], &v, p); go = 1)
                cursor[r]++;
    }
    for (int r = 0; good && r < t->ranks; r++)
        good = cursor[r] == s->row[r].n;
    free(memory);
    free(cursor);
    return good;
}

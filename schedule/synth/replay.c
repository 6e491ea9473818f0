/*
 * replay.c - the keys of a policy that leads to given rows: when each of their actions
 * begins, by the task's times.
 */
#include "state.h"

typedef struct {
    const SynthTask *t;
    const Schedule *s;
    SynthPolicy *p;
    SynthState v;
    SchedTurns turn;
} Replay;

/* The next action of a row, if its input is there. */
static int step(void *of, int r)
{
    Replay *x = of;
    const SynthTask *t = x->t;
    const SchedAction *a = &x->s->row[r].a[x->turn.cursor[r]];
    const int s = a->stage, back = a->type == SA_I || a->type == SA_B;
    double when = a->type == SA_F || back ? state_ready(t, &x->v, s, back ? SA_I : SA_F) : 0;
    if (when == HUGE_VAL)
        return 0;
    when = most_of(when, x->v.clock[t->rank_of[s]]);
    const size_t k = state_place(t, s, state_take(t, &x->v, s, a->type, when));
    (a->type == SA_F ? x->p->key_f : a->type == SA_W ? x->p->key_w : x->p->key_i)[k] = when;
    if (a->type == SA_B)
        x->p->key_w[k] = when + t->i[s];
    sched_wake_readers(&x->turn, x->s, t->g, a);
    x->turn.cursor[r]++;
    return 1;
}

int synth_replay(const SynthTask *t, const Schedule *s, SynthPolicy *p)
{
    POOL(room);
    void *memory = sched_room(&room, state_size(t), 1);
    Replay x = {.t = t, .s = s, .p = p};
    sched_turns(&x.turn, t->ranks, &room);
    if (room.lost)
        return 0;
    x.v = state_begin(t, memory);
    return sched_run(&x.turn, s, step, &x) < 0;
}

/*
 * states.c - what a search has decided so far, as far as it matters for what is still to come.
 *
 * In: states, which say of each value that is still to be read how it is made and which forms of it
 * there are.  Out: of those that agree the best, and of these the MOST best; the price of one more
 * form of a value.
 */
#include <stdlib.h>
#include <string.h>

#include "search.h"

Label *states_labels(const States *t, uint32_t i) { return &t->label.at[(size_t)i * t->width]; }

static uint64_t labels_hash(const Label *l, uint32_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a, a label at a time */
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ l[i]) * 1099511628211u;
    return h ^ h >> 32;
}

static bool is_better(const State *x, const State *y)
{
    return x->denied != y->denied ? x->denied < y->denied : x->price < y->price;
}

void states_add(States *t, const Label *l, State x)
{
    size_t bytes = t->width * sizeof *l;
    uint64_t key = labels_hash(l, t->width);
    for (;; key++) {
        uint32_t *at = idmap_at(t->a, &t->of, key);
        if (*at == NONE) {
            *at = t->state.n;
            vec_push(t->a, &t->state, x);
            for (uint32_t i = 0; i < t->width; i++)
                vec_push(t->a, &t->label, l[i]);
            return;
        }
        if (memcmp(states_labels(t, *at), l, bytes) == 0) {
            if (is_better(&x, &t->state.at[*at]))
                t->state.at[*at] = x;
            return;
        }
    }
}

static int by_price(const void *x, const void *y)
{
    const State *const *a = x, *const *b = y;
    const int worse = is_better(*b, *a) - is_better(*a, *b);
    return worse ? worse : (*a > *b) - (*a < *b);
}

void states_open(States *t, Arena *outer, uint32_t width)
{
    *t = (States){.a = arena_within(outer), .width = width};
}

void states_end(Search *s, Stage stage)
{
    States *t = &s->next;
    uint32_t n = t->state.n < MOST ? t->state.n : MOST;
    const State **order = arena_array(t->a, const State *, t->state.n + 1);
    Past *past = arena_array(s->a, Past, n + 1);
    for (uint32_t i = 0; i < t->state.n; i++)
        order[i] = &t->state.at[i];
    qsort(order, t->state.n, sizeof *order, by_price);
    arena_free(s->now.a);
    states_open(&s->now, s->a, t->width);
    for (uint32_t i = 0; i < n; i++) {
        past[i] = order[i]->past;
        const Label *l = states_labels(t, (uint32_t)(order[i] - t->state.at));
        vec_push(s->now.a, &s->now.state, *order[i]);
        for (uint32_t k = 0; k < t->width; k++)
            vec_push(s->now.a, &s->now.label, l[k]);
    }
    arena_free(t->a);
    stage.past = past;
    vec_push(s->a, &s->stage, stage);
}

/* ---- what it takes to read a value ----------------------------------------------------------- */

double states_price(const Search *s, const About *b, Label l, int form)
{
    int made = label_made(l);
    unsigned forms = label_forms(l);
    bool is_whole = made == MADE_WHOLE || forms & (1u << WHOLE | 1u << VARIED);
    bool same = made >= MADE_DIVIDED && made - MADE_DIVIDED == form - DIVIDED;
    if (forms >> form & 1 || (form == WHOLE && is_whole) || same)
        return 0;
    bool exchanged = !is_whole && made >= MADE_DIVIDED && form >= DIVIDED &&
                     place_exchanges(b->place[made - MADE_DIVIDED], b->place[form - DIVIDED]);
    double there = is_whole ? 0
                   : made == MADE_PARTIAL
                       ? choices_sent(s, form >= DIVIDED ? b->sum : b->sum + b->gather)
                       : choices_sent(s, exchanged ? b->gather / s->chunks : b->gather);
    bool once = form == VARIED && b->once && made == MADE_WHOLE;
    /* what is added up once a step counts where rows are divided, and so what reads all weights */
    double back = form == WHOLE || (once && !s->of.rows) ? 0
                  : once                                 ? b->sum + b->gather
                  : form == VARIED
                      ? choices_sent(s, made >= MADE_DIVIDED ? b->sum : b->sum + b->gather)
                      : choices_sent(s, exchanged ? b->gather / s->chunks : b->gather);
    bool again = s->axis != MESH_TENSOR && form < DIVIDED && made >= MADE_DIVIDED &&
                 b->kept > 0; /* MeshPlan.gathers_again */
    return there + (b->grad ? back : 0) + (again ? there : 0);
}

/* What is kept of it beside what is kept so far. */
static double kept_price(const Search *s, const About *b, Label l, int form)
{
    unsigned whole = 1u << WHOLE | 1u << VARIED, mine = form >= DIVIDED ? 1u << form : whole;
    return label_forms(l) & mine ? 0 : b->kept / (form >= DIVIDED ? s->chunks : 1);
}

bool states_bring(const Search *s, const Choice *c, Label *l, double *price)
{
    for (int i = 0; i < c->needs; i++) {
        const About *b = &s->about[c->need[i].v];
        if (b->plain)
            continue;
        Label *at = &l[b->slot];
        if (c->need[i].form == PARTIAL) {
            if (label_made(*at) != MADE_PARTIAL)
                return false;
            continue;
        }
        *price += states_price(s, b, *at, c->need[i].form) + kept_price(s, b, *at, c->need[i].form);
        *at = label_of(label_made(*at), label_forms(*at) | 1u << c->need[i].form);
    }
    return true;
}

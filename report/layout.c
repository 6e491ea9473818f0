/*
 * layout.c - a layered drawing: the order of boxes within their layers, then their
 * places.
 *
 * Order: sweeps down and up by the mean place of neighbours, and exchanges of two beside each
 * other; the order with the fewest crossings is kept (Sugiyama, Tagawa and Toda 1981; Gansner and
 * others 1993).  Places: Brandes and Koepf 2001: each box is aligned with the middle one of its
 * neighbours, once for each of the four corners from which one may begin, and stands at the mean of
 * the two middle ones of these four places.
 */
#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEPS = 24 };

typedef struct {
    Layout *l;
    Arena *a;
    Ids *row;           /* per layer: its boxes, from left to right */
    Ids *above, *below; /* per box: neighbours */
    uint32_t *at;       /* per box: its place in its row */
    double *key;
} Order;

static void number_row(const Order *o, uint32_t layer)
{
    for (uint32_t i = 0; i < o->row[layer].n; i++)
        o->at[o->row[layer].at[i]] = i;
}

/* Of two boxes of one layer, x at the left: how many of their edges to that side cross. */
static int64_t pair_crossings(const Order *o, const Ids *side, uint32_t x, uint32_t y)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < side[x].n; i++)
        for (uint32_t k = 0; k < side[y].n; k++)
            n += o->at[side[x].at[i]] > o->at[side[y].at[k]];
    return n;
}

static int64_t crossings(const Order *o)
{
    int64_t n = 0;
    for (uint32_t t = 0; t < o->l->layers; t++)
        for (uint32_t i = 0; i < o->row[t].n; i++)
            for (uint32_t k = i + 1; k < o->row[t].n; k++)
                n += pair_crossings(o, o->below, o->row[t].at[i], o->row[t].at[k]);
    return n;
}

/* What has no neighbour stays where it is; of the same mean too, or, turn, in the other order. */
static void sort_row(const Order *o, uint32_t layer, const Ids *side, bool turn)
{
    Ids *row = &o->row[layer];
    for (uint32_t i = 0; i < row->n; i++) {
        const Ids *to = &side[row->at[i]];
        double sum = 0;
        for (uint32_t k = 0; k < to->n; k++)
            sum += o->at[to->at[k]];
        o->key[row->at[i]] = to->n ? sum / to->n : -1;
    }
    for (uint32_t i = 1; i < row->n; i++)
        for (uint32_t k = i; k > 0; k--) {
            uint32_t x = row->at[k - 1], y = row->at[k];
            if (o->key[y] < 0 || o->key[x] < 0 || o->key[x] < o->key[y] ||
                (!turn && o->key[x] <= o->key[y]))
                break;
            row->at[k - 1] = y;
            row->at[k] = x;
        }
    number_row(o, layer);
}

/* equal: also where as many cross then, which leads on from where no single exchange does. */
static bool exchange(const Order *o, uint32_t layer, bool equal)
{
    Ids *row = &o->row[layer];
    bool better = false;
    for (uint32_t i = 1; i < row->n; i++) {
        uint32_t x = row->at[i - 1], y = row->at[i];
        int64_t gain = pair_crossings(o, o->above, x, y) + pair_crossings(o, o->below, x, y) -
                       pair_crossings(o, o->above, y, x) - pair_crossings(o, o->below, y, x);
        if (gain < 0 || (!gain && !equal))
            continue;
        row->at[i - 1] = y;
        row->at[i] = x;
        o->at[y] = i - 1;
        o->at[x] = i;
        better |= gain > 0;
    }
    return better;
}

static void find_order(Order *o)
{
    uint32_t n = o->l->box.n, layers = o->l->layers;
    uint32_t *best = arena_array(o->a, uint32_t, n);
    int64_t least = crossings(o);
    memcpy(best, o->at, n * sizeof *best);
    for (int sweep = 0; sweep < SWEEPS && least > 0; sweep++) {
        for (uint32_t t = 1; t < layers; t++)
            sort_row(o, sweep % 2 ? layers - 1 - t : t, sweep % 2 ? o->below : o->above,
                     sweep % 4 > 1);
        bool better = true;
        for (int k = 0; k < SWEEPS && better; k++) {
            better = false;
            for (uint32_t t = 0; t < layers; t++)
                better |= exchange(o, t, sweep % 4 > 1 && !k);
        }
        int64_t now = crossings(o);
        if (now < least) {
            least = now;
            memcpy(best, o->at, n * sizeof *best);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        o->row[o->l->box.at[i].layer].at[best[i]] = i;
    memcpy(o->at, best, n * sizeof *best);
}

/* ---- places ---- */

/* One of the four: from above or below, from the left or from the right. */
typedef struct {
    const Order *o;
    bool up, right;
    uint32_t *root;
    double *x;
} Corner;

/* An edge between bends goes straight: one that crosses it is not aligned.  edge by its end below.
 */
static bool conflicts(const Order *o, uint32_t from, uint32_t to)
{
    const Layout *l = o->l;
    for (uint32_t i = 0; i < l->edge.n && !(l->box.at[from].bend && l->box.at[to].bend); i++) {
        uint32_t f = l->edge.at[i].from, t = l->edge.at[i].to;
        if (l->box.at[f].layer == l->box.at[from].layer && l->box.at[f].bend && l->box.at[t].bend &&
            ((o->at[f] < o->at[from] && o->at[t] > o->at[to]) ||
             (o->at[f] > o->at[from] && o->at[t] < o->at[to])))
            return true;
    }
    return false;
}

static int by_number(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The neighbours of v from the corner's side on, by place. */
static uint32_t middle(const Corner *c, uint32_t v, int which)
{
    const Ids *side = c->up ? &c->o->below[v] : &c->o->above[v];
    uint32_t wanted = which ? side->n / 2 : (side->n - 1) / 2;
    if (c->right)
        wanted = side->n - 1 - wanted;
    for (uint32_t i = 0; i < side->n; i++) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < side->n; k++)
            before += c->o->at[side->at[k]] < c->o->at[side->at[i]];
        if (before == wanted)
            return side->at[i];
    }
    return side->at[0];
}

static void align(Corner *c)
{
    const Order *o = c->o;
    uint32_t n = o->l->box.n, layers = o->l->layers;
    for (uint32_t v = 0; v < n; v++)
        c->root[v] = v;
    for (uint32_t step = 1; step < layers; step++) {
        uint32_t layer = c->up ? layers - 1 - step : step;
        const Ids *row = &o->row[layer];
        double taken = c->right ? HUGE_VAL : -1; /* places up to it are taken */
        for (uint32_t i = 0; i < row->n; i++) {
            uint32_t v = row->at[c->right ? row->n - 1 - i : i];
            uint32_t degree = c->up ? o->below[v].n : o->above[v].n;
            for (int which = 0; which < 2 && degree && c->root[v] == v; which++) {
                uint32_t u = middle(c, v, which);
                double at = o->at[u];
                if ((c->right ? at >= taken : at <= taken) ||
                    conflicts(o, c->up ? v : u, c->up ? u : v))
                    continue;
                c->root[v] = c->root[u];
                taken = at;
            }
        }
    }
}

/* Blocks of aligned boxes as far to the corner's side as they go, then back to those beside them.
 */
static void compact(Corner *c)
{
    typedef struct {
        uint32_t left, right;
        double apart;
    } Beside;
    const Layout *l = c->o->l;
    VEC(Beside) beside = {0};
    for (uint32_t t = 0; t < l->layers; t++)
        for (uint32_t i = 1; i < c->o->row[t].n; i++) {
            uint32_t x = c->o->row[t].at[i - 1], y = c->o->row[t].at[i];
            Beside b = {c->root[x], c->root[y],
                        (l->box.at[x].width + l->box.at[y].width) / 2 + l->gap};
            vec_push(c->o->a, &beside, c->right ? ((Beside){b.right, b.left, b.apart}) : b);
        }
    bool more = true;
    for (uint32_t round = 0; more && round <= l->box.n; round++) {
        more = false;
        for (uint32_t i = 0; i < beside.n; i++) {
            const Beside *b = &beside.at[i];
            if (c->x[b->right] < c->x[b->left] + b->apart) {
                c->x[b->right] = c->x[b->left] + b->apart;
                more = true;
            }
        }
    }
    double *room = arena_array(c->o->a, double, l->box.n);
    more = true;
    for (uint32_t round = 0; more && round <= l->box.n; round++) {
        more = false;
        for (uint32_t i = 0; i < l->box.n; i++)
            room[i] = HUGE_VAL;
        for (uint32_t i = 0; i < beside.n; i++)
            room[beside.at[i].left] =
                fmin(room[beside.at[i].left], c->x[beside.at[i].right] - beside.at[i].apart);
        for (uint32_t i = 0; i < l->box.n; i++)
            if (room[i] < HUGE_VAL && room[i] > c->x[i] + 1e-9) {
                c->x[i] = room[i];
                more = true;
            }
    }
    for (uint32_t i = 0; i < l->box.n; i++)
        if (c->root[i] != i)
            c->x[i] = c->x[c->root[i]];
    for (uint32_t i = 0; i < l->box.n && c->right; i++)
        c->x[i] = -c->x[i];
}

static void extent(const Layout *l, const double *x, double *least, double *most)
{
    *least = HUGE_VAL;
    *most = -HUGE_VAL;
    for (uint32_t i = 0; i < l->box.n; i++) {
        *least = fmin(*least, x[i] - l->box.at[i].width / 2);
        *most = fmax(*most, x[i] + l->box.at[i].width / 2);
    }
}

static void find_places(Order *o)
{
    Layout *l = o->l;
    uint32_t n = l->box.n;
    Corner c[4];
    double least[4], most[4];
    int narrow = 0;
    for (int k = 0; k < 4; k++) {
        c[k] =
            (Corner){o, k & 1, k & 2, arena_array(o->a, uint32_t, n), arena_array(o->a, double, n)};
        align(&c[k]);
        compact(&c[k]);
        extent(l, c[k].x, &least[k], &most[k]);
        narrow = most[k] - least[k] < most[narrow] - least[narrow] ? k : narrow;
    }
    for (uint32_t i = 0; i < n; i++) {
        double x[4];
        for (int k = 0; k < 4; k++)
            x[k] = c[k].x[i] + (c[k].right ? most[narrow] - most[k] : least[narrow] - least[k]);
        qsort(x, 4, sizeof *x, by_number);
        l->box.at[i].x = (x[1] + x[2]) / 2;
    }
}

void layout_place(Arena *outer, Layout *l)
{
    uint32_t n = l->box.n;
    Arena *a = arena_within(outer);
    Order o = {l,
               a,
               arena_array(a, Ids, l->layers),
               arena_array(a, Ids, n),
               arena_array(a, Ids, n),
               arena_array(a, uint32_t, n),
               arena_array(a, double, n)};
    for (uint32_t i = 0; i < n; i++)
        vec_push(a, &o.row[l->box.at[i].layer], i);
    for (uint32_t i = 0; i < l->edge.n; i++) {
        vec_push(a, &o.below[l->edge.at[i].from], l->edge.at[i].to);
        vec_push(a, &o.above[l->edge.at[i].to], l->edge.at[i].from);
    }
    for (uint32_t t = 0; t < l->layers; t++)
        number_row(&o, t);
    find_order(&o);
    find_places(&o);
    arena_free(a);
}

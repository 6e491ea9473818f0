/*
 * lengths.c - --bind NAME=LEAST..MOST: in: the options.  Out: a model that is bound to the greatest
 * length, and with which others its program is compared.  A range of the rows of a microbatch needs
 * none: any program takes fewer of them.
 */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 24 };

/* Is it NAME=LEAST..MOST? */
static bool is_range(Options *o, const char *bind, Lengths *l)
{
    const char *value = strrchr(bind, '='), *dots = value ? strstr(value, "..") : NULL;
    char *end;
    if (!dots)
        return false;
    l->name = arena_strndup(o->arena, bind, (size_t)(value - bind));
    l->least = strtoll(value + 1, &end, 10);
    bool bad = end != dots || end == value + 1;
    l->most = strtoll(dots + 2, &end, 10);
    bad |= *end || end == dots + 2 || l->least < 1 || l->most < l->least || l->most > INT32_MAX;
    if (bad)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: two numbers, from 1 on: %s=1..2048", bind,
                   l->name);
    return true;
}

static bool is_prime(int64_t n)
{
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

/* Primes, each about as much less than the one before, from below the greatest length to one that
 * is a little more than the 16 lanes of sums: no other size of the model is a multiple of all of
 * them, and where a program does something else with few places than with many, they differ.  Below
 * 43 there are too few of them, and other odd and then even numbers are taken. */
static void choose_few(Lengths *l)
{
    int64_t taken = 0, n = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int64_t i = l->most; i > 16 && n < LENGTHS; i--)
            if (!(taken >> i & 1) && (kind == 0 ? is_prime(i) : kind == 2 || i % 2 == 1)) {
                taken |= (int64_t)1 << i;
                n++;
            }
    for (int64_t i = l->most, k = 0; k < LENGTHS; i--)
        if (taken >> i & 1)
            l->at[k++] = i;
}

static void choose(Lengths *l)
{
    static const int64_t least[LENGTHS] = {43, 41, 37, 31, 29, 23, 19, 17};
    if (l->most < least[0]) {
        choose_few(l);
        return;
    }
    const double factor = pow((double)least[LENGTHS - 1] / (double)l->most, 1.0 / (LENGTHS - 1));
    double wanted = (double)l->most;
    int64_t next = l->most;
    for (int k = 0; k < LENGTHS; k++, wanted *= factor) {
        next = (int64_t)(wanted + .5) < next ? (int64_t)(wanted + .5) : next - 1;
        while (!is_prime(next))
            next--;
        l->at[k] = next = next < least[k] ? least[k] : next;
    }
}

void read_lengths(Options *o)
{
    for (uint32_t i = 0; i < o->import.bind.n; i++) {
        Lengths l = {0};
        const char *bind = o->import.bind.at[i];
        if (!is_range(o, bind, &l))
            continue;
        vec_push(o->arena, &o->range, ((Range){l, i}));
        o->import.varies = true;
        o->import.bind.at[i] = bound_to(o->arena, &l, l.most);
    }
}

const char *bound_to(Arena *a, const Lengths *l, int64_t length)
{
    return arena_printf(a, "%s=%lld", l->name, (long long)length);
}

NORETURN static void bad_range(const Graph *g, const Lengths *l, const char *why)
{
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--bind %s=%lld..%lld: %s", l->name,
               (long long)l->least, (long long)l->most, why);
}

void settle_lengths(Options *o, Graph *g)
{
    const char *rows = g->rows_at.n ? g->rows_at.at[g->rows_by].name : NULL;
    for (uint32_t i = 0; i < o->range.n; i++) {
        const Range *r = &o->range.at[i];
        if (rows && !strcmp(r->of.name, rows)) {
            if (r->of.least != 1)
                bad_range(g, &r->of, "a microbatch may have any fewer rows: LEAST is 1");
            o->rows_vary = &r->of;
            continue;
        }
        if (o->lengths.name)
            bad_range(
                g, &r->of,
                arena_printf(o->arena,
                             "'%s' varies already, and only one dimension may beside the rows",
                             o->lengths.name));
        if (r->of.most < FEWEST)
            bad_range(g, &r->of,
                      arena_printf(o->arena, "the greatest length is %d at least", FEWEST));
        o->lengths = r->of;
        o->varies = r->bind;
        choose(&o->lengths);
    }
}

void check_rows(const Options *o, const Pipe *p)
{
    if (o->rows_vary && p->uneven.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(p->graph->file),
                   "--bind %s=1..%lld: the model takes exactly so many rows: %s",
                   o->rows_vary->name, (long long)o->rows_vary->most, p->uneven.at[0]);
}

static bool is_divided(const Graph *g)
{
    bool is = false;
    for (int x = 0; x < MESH_AXES; x++)
        is |= g->mesh[x].chunks > 1;
    return is;
}

/* What has one length only. */
void check_lengths(const Options *o, const Graph *g)
{
    const char *what = o->codegen.cuda ? "--target cuda"
                       : is_divided(g) ? "a program whose members divide it"
                       : o->ops.n      ? "--ops"
                       : o->loss.whole ? "--loss-over minibatch"
                                       : NULL;
    if (o->lengths.name && what)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s=%lld..%lld: %s takes one length so far",
                   o->lengths.name, (long long)o->lengths.least, (long long)o->lengths.most, what);
}

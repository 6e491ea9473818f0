/*
 * lengths.c - --bind NAME=LEAST..MOST: in: the option.  Out: a model that is bound to the greatest
 * length, and with which others its program is compared.
 */
#include "command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 48 };

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
    if (l->most < FEWEST)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the greatest length is %d at least", bind,
                   FEWEST);
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
 * them, and where a program does something else with few places than with many, they differ. */
static void choose(Lengths *l)
{
    static const int64_t least[LENGTHS] = {43, 41, 37, 31, 29, 23, 19, 17};
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
        if (o->lengths.name)
            diag_fatal(EXIT_USAGE, WHERE_NONE,
                       "--bind %s: '%s' varies already, and only one dimension may", bind,
                       o->lengths.name);
        o->lengths = l;
        o->varies = i;
        o->import.varies = true;
        choose(&o->lengths);
        o->import.bind.at[i] = bound_to(o, l.most);
    }
}

const char *bound_to(const Options *o, int64_t length)
{
    return arena_printf(o->arena, "%s=%lld", o->lengths.name, (long long)length);
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

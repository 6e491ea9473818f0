/*
 * lengths.c - --bind NAME=LEAST..MOST: in: the options.  Out: a model that is bound to the greatest
 * lengths, and with which others its program is compared.  A range of the rows of a microbatch
 * needs none: any program takes fewer of them.
 */
#include "command.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Is it NAME=LEAST..MOST? */
static bool is_range(Options *o, const char *bind, Symbol *s)
{
    const char *value = strrchr(bind, '='), *dots = value ? strstr(value, "..") : NULL;
    char *end;
    if (!dots)
        return false;
    s->name = arena_strndup(o->arena, bind, (size_t)(value - bind));
    s->least = strtoll(value + 1, &end, 10);
    bool bad = end != dots || end == value + 1;
    s->most = strtoll(dots + 2, &end, 10);
    bad |= *end || end == dots + 2 || s->least < 1 || s->most < s->least || s->most > INT32_MAX;
    if (bad)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: two numbers, from 1 on: %s=1..2048", bind,
                   s->name);
    return true;
}

static bool is_prime(int64_t n)
{
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

/* Several symbols share the primes by their remainders, so that none has a length of another. */
static bool is_for(int64_t n, int symbol, int symbols)
{
    return is_prime(n) && (n % 5 - 1) * symbols / 4 == symbol;
}

/* Primes, each about as much less than the one before, from below the greatest length to one that
 * is a little more than the 16 lanes of sums: no other size of the model is a multiple of all of
 * them, and where a program does something else with few places than with many, they differ.  With
 * a range that has too few of them, they are beyond it. */
static void choose(Symbol *s, int symbol, int symbols)
{
    int64_t least[NODES];
    for (int64_t n = 17, k = NODES; k > 0; n++)
        if (is_for(n, symbol, symbols))
            least[--k] = n;
    /* less than the greatest, of which a constant is a part in all samples */
    int64_t next = s->most > least[0] ? s->most - 1 : least[0];
    const double factor = pow((double)least[NODES - 1] / (double)next, 1.0 / (NODES - 1));
    double wanted = (double)next;
    for (int k = 0; k < NODES; k++, wanted *= factor) {
        next = (int64_t)(wanted + .5) < next ? (int64_t)(wanted + .5) : next - (k > 0);
        while (next > least[k] && !is_for(next, symbol, symbols))
            next--;
        s->node[k] = next = next < least[k] ? least[k] : next;
    }
}

static int falling(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool is_taken(const Lengths *l, int64_t n)
{
    for (int v = 0; v < l->symbols; v++)
        for (int k = 0; k < NODES; k++)
            if (l->symbol[v].node[k] == n)
                return true;
    return false;
}

/* The greatest NODES numbers from 17 to `last` that no symbol has, and that are no whole lanes:
 * primes, then other odd and then even ones; falling. */
static void choose_below(Lengths *l, Symbol *s, int64_t last)
{
    int n = 0;
    for (int kind = 0; kind < 3; kind++)
        for (int64_t i = last; i > 16 && n < NODES; i--)
            if (i % 16 && !is_taken(l, i) && (kind == 0 ? is_prime(i) : kind == 2 || i % 2 == 1))
                s->node[n++] = i;
    qsort(s->node, NODES, sizeof *s->node, falling);
}

/* A model whose tables end there has no lengths beyond: other numbers for what has some, within its
 * range; where that is short, as few more as it takes for all to differ. */
bool lengths_below(Lengths *l)
{
    const int64_t enough = 17 + (int64_t)NODES * l->symbols; /* 32 is none */
    bool beyond[SYMBOLS], any = false;
    for (int v = 0; v < l->symbols; v++) {
        Symbol *s = &l->symbol[v];
        any |= beyond[v] = s->node[0] > s->most;
        if (beyond[v])
            memset(s->node, 0, sizeof s->node);
    }
    for (int v = 0; v < l->symbols; v++)
        if (beyond[v]) {
            const int64_t last = l->symbol[v].most - 1;
            choose_below(l, &l->symbol[v], last > enough ? last : enough);
        }
    cg_sample(l);
    return any;
}

void read_lengths(Options *o)
{
    for (uint32_t i = 0; i < o->import.bind.n; i++) {
        Symbol s = {.bind = i};
        if (!is_range(o, o->import.bind.at[i], &s))
            continue;
        vec_push(o->arena, &o->range, s);
        o->import.varies = true;
        o->import.bind.at[i] = bound_to(o->arena, &s, s.most);
    }
}

const char *bound_to(Arena *a, const Symbol *s, int64_t length)
{
    return arena_printf(a, "%s=%" PRId64, s->name, length);
}

NORETURN static void bad_range(const Graph *g, const Symbol *s, const char *why)
{
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--bind %s=%" PRId64 "..%" PRId64 ": %s", s->name,
               s->least, s->most, why);
}

void settle_lengths(Options *o, const Graph *g)
{
    const char *rows = g->rows_at.n ? g->rows_at.at[g->rows_by].name : NULL;
    Lengths *l = &o->lengths;
    o->settled = true;
    for (uint32_t i = 0; i < o->range.n; i++) {
        const Symbol *s = &o->range.at[i];
        if (rows && !strcmp(s->name, rows)) {
            if (s->least != 1)
                bad_range(g, s, "a microbatch may have any fewer rows: LEAST is 1");
            o->rows_vary = s;
            continue;
        }
        if (l->symbols == SYMBOLS)
            bad_range(
                g, s,
                arena_printf(o->arena, "%d dimensions vary already, which is the most", SYMBOLS));
        l->symbol[l->symbols++] = *s;
    }
    for (int v = 0; v < l->symbols; v++)
        choose(&l->symbol[v], v, l->symbols);
    if (l->symbols)
        cg_sample(l);
}

void check_rows(const Options *o, const Pipe *p)
{
    if (o->rows_vary && p->uneven.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(p->graph->file),
                   "--bind %s=1..%" PRId64 ": the model takes exactly so many rows: %s",
                   o->rows_vary->name, o->rows_vary->most, p->uneven.at[0]);
}

/* What has one length only. */
void check_lengths(const Options *o)
{
    const char *what = o->codegen.cuda ? "--target cuda"
                       : o->ops.n      ? "--ops"
                       : o->loss.whole ? "--loss-over minibatch"
                                       : NULL;
    const Symbol *s = &o->lengths.symbol[0];
    if (o->lengths.symbols && what)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--bind %s=%" PRId64 "..%" PRId64 ": %s takes one length so far", s->name,
                   s->least, s->most, what);
}

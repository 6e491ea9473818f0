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

/* What is wrong with the numbers; NULL: nothing. */
static const char *fault(Arena *a, const Symbol *s, bool one)
{
    if (s->least < 1)
        return "the least is 1";
    if (s->most > INT32_MAX || s->least > INT32_MAX)
        return "the most is 2147483647";
    if (s->most < s->least)
        return arena_printf(a, "%" PRId64 " is less than %" PRId64, s->most, s->least);
    return one && (s->only < s->least || s->only > s->most)
               ? arena_printf(a, "%" PRId64 " is not in %" PRId64 "..%" PRId64, s->only, s->least,
                              s->most)
               : NULL;
}

/* Is it NAME=LEAST..MOST, or NAME=N@LEAST..MOST? */
static bool is_range(Options *o, const char *bind, Symbol *s)
{
    const char *value = strrchr(bind, '='), *dots = value ? strstr(value, "..") : NULL,
               *at = value ? strchr(value, '@') : NULL;
    char *end;
    if (!dots)
        return false;
    s->name = arena_strndup(o->arena, bind, (size_t)(value - bind));
    const bool one = at && at < dots;
    const char *why = NULL;
    if (one) {
        s->only = strtoll(value + 1, &end, 10);
        why = end != at || end == value + 1 ? "before '@' is no number" : NULL;
        value = at;
    }
    s->least = strtoll(value + 1, &end, 10);
    bool bad = end != dots || end == value + 1;
    s->most = strtoll(dots + 2, &end, 10);
    if (!why && (bad || *end || end == dots + 2))
        why = "before and behind '..' are numbers";
    why = why ? why : fault(o->arena, s, one);
    if (why) {
        diag_hint("%s=1..2048 is any length up to 2048; %s=7@1..2048 is 7, divided as that is",
                  s->name, s->name);
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: %s", bind, why);
    }
    return true;
}

static bool is_prime(int64_t n)
{
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return n > 1;
}

/* How ill a number suits: programs do something else with what their widths divide, which are
 * powers of two.  No other size of the model is a multiple of a prime. */
enum { PRIME, FOUR_TIMES = 3 }; /* between: odd, twice odd; those of 8 never */

static int kind_of(int64_t n) { return is_prime(n) ? PRIME : 1 + __builtin_ctzll((uint64_t)n); }

static bool is_free(const Lengths *l, int64_t n, int kind)
{
    bool is = kind_of(n) <= kind;
    for (int v = 0; v < l->symbols; v++)
        for (int k = 0; k < NODES; k++)
            is &= l->symbol[v].node[k] != n;
    return is;
}

/* From a little more than the 16 lanes of sums up to where there are enough for all symbols; for a
 * table that ends before, from half of that, still to more than 16: a program that does something
 * else with fewer than 16 places is then refused.  Where no length has 16, samples need not, if one
 * has all that the greatest length has: of that and a place more there may be 16. */
enum { FIRST = 17, HALF = 9, FEW = 3, LANES = 16 };

static int64_t enough(const Lengths *l, int64_t first, int kind)
{
    int64_t n = first - 1;
    for (int have = 0; have < NODES * l->symbols;)
        have += kind_of(++n) <= kind;
    return n;
}

/* Numbers that no other symbol has, each about as much less than the one before: where a program
 * does something else with few places than with many, they differ. */
static void choose(const Lengths *l, Symbol *s, int64_t first, int64_t last)
{
    int64_t least[NODES], next = last;
    int kind = PRIME, k = NODES;
    for (; k > 0; kind += k > 0) {
        k = NODES;
        for (int64_t n = first; k > 0 && n <= last; n++)
            if (is_free(l, n, kind))
                least[--k] = n;
    }
    const double factor = pow((double)least[NODES - 1] / (double)last, 1.0 / (NODES - 1));
    double wanted = (double)last;
    for (; k < NODES; k++, wanted *= factor) {
        next = (int64_t)(wanted + .5) < next ? (int64_t)(wanted + .5) : next - (k > 0);
        while (next > least[k] && !is_free(l, next, kind))
            next--;
        s->node[k] = next = next < least[k] ? least[k] : next;
    }
}

/* That most numbers divide. */
static int64_t divided_most(const Symbol *s)
{
    enum { ALL = 720720 };
    int64_t best = s->most;
    for (int64_t n = s->most; n >= s->least && size_gcd(best, ALL) < ALL; n--)
        best = size_gcd(n, ALL) > size_gcd(best, ALL) ? n : best;
    return best;
}

static int64_t *one_more(Lengths *l) { return memcpy(l->at[l->all++], l->at[0], sizeof l->at[0]); }

/* Those that are no samples. */
static void add_others(Lengths *l)
{
    l->all = l->n;
    for (int v = 0; v < l->symbols; v++) {
        one_more(l)[v] = l->symbol[v].least;
        one_more(l)[v] = divided_most(&l->symbol[v]);
    }
    int64_t *least = l->symbols > 1 ? one_more(l) : NULL;
    for (int v = 0; v < l->symbols && least; v++)
        least[v] = l->symbol[v].least;
    cg_longest(l, true, one_more(l));
}

/* Below the greatest length, of which a constant is a part in all samples.  With a short range they
 * are beyond it: primes, or, for a model whose tables end there, as few more as it takes for all to
 * differ, and then fewer and fewer. */
bool choose_lengths(Lengths *l, int tries)
{
    const int64_t primes = enough(l, FIRST, PRIME), any = enough(l, FIRST, FOUR_TIMES),
                  half = enough(l, HALF, FOUR_TIMES), least = tries > 0 ? any + 1 - tries : primes,
                  first = least < half ? FEW : least < any ? HALF : FIRST;
    bool beyond = false, few = true;
    for (int v = 0; v < l->symbols; v++)
        memset(l->symbol[v].node, 0, sizeof l->symbol[v].node);
    for (int v = 0; v < l->symbols; v++) {
        const int64_t below = l->symbol[v].most - (first > FEW);
        beyond |= below < least;
        few &= l->symbol[v].most < LANES;
        choose(l, &l->symbol[v], first, below > least ? below : least);
    }
    cg_sample(l);
    add_others(l);
    return beyond && least > (few ? enough(l, FEW, FOUR_TIMES) : half);
}

void read_lengths(Options *o)
{
    for (uint32_t i = 0; i < o->import.bind.n; i++) {
        Symbol s = {.bind = i};
        if (!is_range(o, o->import.bind.at[i], &s))
            continue;
        vec_push(o->arena, &o->range, s);
        o->import.left = arena_new_of(o->arena, struct GraphLeft);
        o->import.left->arena = o->arena;
        o->import.bind.at[i] = bound_to(o->arena, &s, s.only ? s.only : s.most);
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
    const char *rows = g->rows.at.n ? g->rows.at.at[g->rows.by].name : NULL;
    Lengths *l = &o->lengths;
    o->settled = true;
    for (uint32_t i = 0; i < o->range.n; i++) {
        const Symbol *s = &o->range.at[i];
        if (s->only && o->command == COMMAND_PLAN)
            continue; /* which decides about members itself */
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
        if (!s->only != !o->range.at[0].only)
            bad_range(g, s, "NAME=N@LEAST..MOST is for all ranges, or for none");
        l->symbol[l->symbols++] = *s;
    }
}

void check_rows(const Options *o, const Pipe *p)
{
    if (o->rows_vary && p->uneven.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(p->graph->file),
                   "--bind %s=1..%" PRId64 ": the model takes exactly so many rows: %s",
                   o->rows_vary->name, o->rows_vary->most, p->uneven.at[0]);
}

/* NAME=K*SYMBOL: K; 0: another. */
static int64_t times_of(const char *bind, const Symbol *s)
{
    const char *times = strrchr(bind, '*');
    return times && !strcmp(times + 1, s->name) ? strtoll(strrchr(bind, '=') + 1, NULL, 10) : 0;
}

/* The same lengths, of those that the chunks divide. */
static void hint_chunks(const Options *o, const Symbol *s, int64_t chunks)
{
    const char *name = s->name;
    int64_t k = 1;
    for (uint32_t i = 0; i < o->import.bind.n && k == 1; i++) {
        const char *bind = o->import.bind.at[i];
        const int64_t times = times_of(bind, s);
        if (times > 0) {
            k = times;
            name = arena_strndup(o->arena, bind, (size_t)(strrchr(bind, '=') - bind));
        }
    }
    const int64_t each = k / size_gcd(k, chunks) * chunks, most = s->most * k / each;
    diag_hint("--bind '%s=%" PRId64 "*n' --bind n=1..%" PRId64, name, each, most < 1 ? 1 : most);
}

/* Chunks of a sequence are of one size with each length: one of them at least is bound to a
 * multiple of their number, NAME=K*SYMBOL. */
static void check_chunks(const Options *o)
{
    const Symbol *s = &o->lengths.symbol[0];
    int64_t chunks = 1;
    bool divides = false;
    for (int x = MESH_SEQUENCE; x < MESH_AXES; x++)
        chunks *= mesh_has(&o->mesh, (MeshAxis)x) ? o->mesh.chunks[x] : 1;
    for (uint32_t i = 0; i < o->import.bind.n; i++) {
        for (int v = 0; v < o->lengths.symbols; v++) {
            const int64_t k = times_of(o->import.bind.at[i], &o->lengths.symbol[v]);
            divides |= k > 0 && k % chunks == 0;
        }
    }
    if (chunks == 1 || divides)
        return;
    hint_chunks(o, s, chunks);
    diag_fatal(EXIT_USAGE, WHERE_NONE,
               "--bind %s=%" PRId64 "..%" PRId64 ": sequences are divided into %" PRId64
               " chunks of one size, so a length is a multiple of that",
               s->name, s->least, s->most, chunks);
}

/* What has one length only. */
void check_lengths(const Options *o)
{
    if (o->lengths.symbols)
        check_chunks(o);
    const char *what = o->ops.n ? "--ops" : o->loss.whole ? "--loss-over minibatch" : NULL;
    const Symbol *s = &o->lengths.symbol[0];
    if (o->lengths.symbols && what)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--bind %s=%" PRId64 "..%" PRId64 ": %s takes one length so far", s->name,
                   s->least, s->most, what);
}

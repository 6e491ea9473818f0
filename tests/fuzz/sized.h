/*
 * sized.h - a model whose dimensions are polynomials of symbols (fuzz_lengths.c): how it is drawn,
 * and written as an exporter does, which computes sizes from Shape.
 */
#ifndef FUZZ_SIZED_H
#define FUZZ_SIZED_H

#include <stdbool.h>

#include "models/write.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

/* ---- dimensions ------------------------------------------------------------------------------ */

enum { B, S, T, SYMBOLS, MOST_RANK = 5, ROWS = 2, MICROBATCHES = 2, MOST_PLACES = 20000 };
enum { TERMS = 27 };
static const int place[SYMBOLS] = {1, 3, 9};

/* c[i + 3 * j + 9 * k] times b^i s^j t^k */
typedef struct {
    int c[TERMS];
} Dim;
typedef struct {
    char name[24];
    int type, rank;
    Dim d[MOST_RANK];
} Val;

static Dim of(int n) { return (Dim){{n}}; }
static Dim symbol(int v)
{
    Dim d = {{0}};
    d.c[place[v]] = 1;
    return d;
}
static Dim plus(Dim x, int times, Dim y)
{
    for (int i = 0; i < TERMS; i++)
        x.c[i] += times * y.c[i];
    return x;
}
static int power(int term, int v) { return term / place[v] % 3; }
static bool times(Dim x, Dim y, Dim *z)
{
    *z = of(0);
    for (int i = 0; i < TERMS; i++)
        for (int j = 0; j < TERMS; j++) {
            if (!x.c[i] || !y.c[j])
                continue;
            for (int v = 0; v < SYMBOLS; v++)
                if (power(i, v) + power(j, v) > 2)
                    return false;
            z->c[i + j] += x.c[i] * y.c[j];
        }
    return true;
}
static bool same(Dim x, Dim y) { return !memcmp(&x, &y, sizeof x); }
static bool fixed(Dim x) { return same(x, of(x.c[0])); }
static bool divides(int k, Dim x)
{
    bool all = true;
    for (int i = 0; i < TERMS; i++)
        all &= x.c[i] % k == 0;
    return all;
}
static Dim quotient(Dim x, int k)
{
    for (int i = 0; i < TERMS; i++)
        x.c[i] /= k;
    return x;
}
static long at_lengths(Dim x, const long *n)
{
    long sum = 0;
    for (int i = 0; i < TERMS; i++) {
        long c = x.c[i];
        for (int v = 0; v < SYMBOLS; v++)
            for (int k = power(i, v); k > 0; k--)
                c *= n[v];
        sum += c;
    }
    return sum;
}

/* ---- the model that is drawn ----------------------------------------------------------------- */

enum { MOST_VALUES = 60 };
static Val known[MOST_VALUES];
static int n_known, n_input, n_name, n_weight, n_symbols;
static bool output[MOST_VALUES];
static int twice[SYMBOLS] = {1, 1,
                             1}; /* the model's dimension is this times the symbol that is bound */
static long least[SYMBOLS] = {ROWS, 1, 1}, most[SYMBOLS] = {ROWS, 1, 1};

static int below(int n) { return n > 0 ? (int)(uniform() * n) : 0; }
static bool chance(int percent) { return below(100) < percent; }

/* As the model has it */
static Dim of_model(int v)
{
    Dim d = symbol(v);
    d.c[place[v]] = twice[v];
    return d;
}

/* the least that it is with any lengths */
static long least_of(Dim x)
{
    long low = 1L << 40;
    for (long s = least[S]; s < least[S] + 4; s++)
        for (long t = least[T]; t < least[T] + 4; t++) {
            const long now = at_lengths(x, (long[]){ROWS, s, t});
            low = now < low ? now : low;
        }
    return low;
}
static bool fits(const Val *v)
{
    long n = 1;
    for (int d = 0; d < v->rank; d++) {
        n *= at_lengths(v->d[d], (long[]){ROWS, most[S], most[T]});
        if (least_of(v->d[d]) < 1)
            return false;
    }
    return n <= MOST_PLACES && v->rank <= MOST_RANK;
}

/* Names live as long as the program. */
static const char *name_of(char kind, int n)
{
    char *name = strdup(f("%c%d", kind, n));
    if (!name)
        exit(3);
    return name;
}
static const char *fresh(void) { return name_of('v', n_name++); }
/* One node; in: names with spaces between */
static const char *emit(const char *op, const char *in)
{
    const char *out = fresh();
    node("", f("_%d", n_name), op, out, in);
    return out;
}
static const char *emit2(const char *op, const char *x, const char *y)
{
    return emit(op, join(x, y, ""));
}
static const char *emit3(const char *op, const char *x, const char *y, const char *z)
{
    return emit(op, join(x, y, z));
}

static const char *as_float(const char *x)
{
    attr_int("to", F32);
    return emit("Cast", x);
}

static const char *integers(int n, const long *v)
{
    const char *name = name_of('i', n_name++);
    ints(name, n, v);
    return name;
}
static const char *integer(long v) { return integers(1, &v); }
static const char *real(double v)
{
    const char *name = name_of('c', n_name++);
    scalar(name, (float)v);
    return name;
}
static const char *weights_of(int rank, const long *dim)
{
    const char *name = name_of('w', n_weight++);
    weight_of(name, rank, dim, 0.5, 0);
    return name;
}

/* The size of dimension d of a value, as a tensor of one integer */
static const char *size_of(const Val *v, int d)
{
    attributes.n = 0;
    const char *shape = emit("Shape", v->name);
    return emit2("Gather", shape, integer(chance(30) ? d - v->rank : d));
}
static const char *symbol_size(int v)
{
    const Dim want = of_model(v);
    for (int k = 0, from = below(n_known); k < n_known; k++) {
        const Val *x = &known[(from + k) % n_known];
        for (int d = 0; d < x->rank; d++)
            if (same(x->d[d], want))
                return twice[v] > 1 ? emit2("Div", size_of(x, d), integer(twice[v]))
                                    : size_of(x, d);
    }
    exit(70);
}

/* The same of any */
static const char *size(Dim want)
{
    if (fixed(want))
        return integer(want.c[0]);
    for (int k = 0, from = below(n_known); k < n_known && chance(80); k++) {
        const Val *x = &known[(from + k) % n_known];
        for (int d = 0; d < x->rank; d++)
            if (same(x->d[d], want))
                return size_of(x, d);
    }
    const char *sum = NULL;
    for (int i = 0; i < TERMS; i++) {
        if (!want.c[i])
            continue;
        const char *part = integer(want.c[i]);
        for (int v = 0; v < SYMBOLS; v++)
            for (int k = power(i, v); k > 0; k--)
                part = emit2("Mul", part, symbol_size(v));
        sum = sum ? emit2("Add", sum, part) : part;
    }
    return sum ? sum : integer(0);
}

/* A shape; rest: so many of a dimension that follows may be -1 */
static const char *shape_text(int rank, const Dim *d, bool rest)
{
    const int open = rest && chance(40) ? below(rank) : -1;
    char all[512] = "";
    for (int i = 0; i < rank; i++)
        strcat(strcat(all, " "), i == open ? integer(-1) : size(d[i]));
    attr_int("axis", 0);
    return emit("Concat", all);
}

static Val unary(const char *op, const Val *x)
{
    Val v = *x;
    snprintf(v.name, sizeof v.name, "%s", emit(op, x->name));
    return v;
}
static Val made(const char *name, const Val *like)
{
    Val v = *like;
    snprintf(v.name, sizeof v.name, "%s", name);
    return v;
}
static Val bounded(const Val *x) { return unary("Tanh", x); }

/* A dimension but the first */
static int axis_of(const Val *x) { return 1 + below(x->rank - 1); }
/* One that varies, if there is one */
static int varied(const Val *x)
{
    int found = axis_of(x);
    for (int k = 1; k < x->rank; k++) {
        const int d = 1 + (found - 1 + k) % (x->rank - 1);
        found = fixed(x->d[found]) ? d : found;
    }
    return found;
}

/* A weight that broadcasts with it */
static const char *fitting(const Val *x)
{
    long dim[MOST_RANK];
    int rank = below(x->rank) + 1;
    for (int d = 0; d < rank; d++) {
        const Dim *of_x = &x->d[x->rank - rank + d];
        dim[d] = fixed(*of_x) && chance(80) ? of_x->c[0] : 1;
    }
    return weights_of(rank, dim);
}

#endif

/*
 * polynomial.c - numbers of a program that lengths decide.  In: what they are in each sample.  Out:
 * the polynomial of the lengths on which all of them lie.
 *
 * Samples are a principal lattice: with nodes x_0, x_1, ... of each length, all points (x_i, y_j,
 * ...) with i + j + ... below DEGREES.  Newton's divided differences along one length after the
 * other give the polynomial of that degree through them (Isaacson, Keller: Analysis of Numerical
 * Methods, 1966, 6.6); of one with whole coefficients all of them are whole.  Points outside the
 * lattice have to lie on it too.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/cg.h"

static const int stride[SYMBOLS] = {1, DEGREES, DEGREES *DEGREES};
_Static_assert(SYMBOLS == 3, "a stride for each");

int cg_power(int term, int symbol) { return term / stride[symbol] % DEGREES; }

static int sum_of_powers(int term)
{
    int n = 0;
    for (int v = 0; v < SYMBOLS; v++)
        n += cg_power(term, v);
    return n;
}

static int terms(const Lengths *l) { return stride[l->symbols - 1] * DEGREES; }

void cg_sample(Lengths *l)
{
    l->n = 0;
    for (int k = 0; k < terms(l); k++)
        if (sum_of_powers(k) < DEGREES) {
            for (int v = 0; v < l->symbols; v++)
                l->at[l->n][v] = l->symbol[v].node[cg_power(k, v)];
            l->n++;
        }
    for (int k = 0; k < CHECKS; k++, l->n++)
        for (int v = 0; v < l->symbols; v++)
            l->at[l->n][v] = l->symbol[v].node[DEGREES + (k + v) % CHECKS];
}

/* In place, of so many numbers that are `step` apart. */
static bool differences(const int64_t *x, int64_t *d, int n, int step)
{
    for (int order = 1; order < n; order++)
        for (int k = n - 1; k >= order; k--) {
            int64_t rise, run = x[k] - x[k - order];
            if (__builtin_sub_overflow(d[k * step], d[(k - 1) * step], &rise) || rise % run != 0)
                return false;
            d[k * step] = rise / run;
        }
    return true;
}

/* From Newton's form to powers. */
static void expand(const int64_t *x, int64_t *d, int n, int step)
{
    for (int order = n - 2; order >= 0; order--)
        for (int k = order; k < n - 1; k++)
            d[k * step] -= x[order] * d[(k + 1) * step];
}

bool cg_fit(const Lengths *l, const int64_t *v, Polynomial *p)
{
    int n = terms(l), next = 0;
    *p = (Polynomial){0};
    for (int k = 0; k < n; k++)
        if (sum_of_powers(k) < DEGREES)
            p->c[k] = v[next++];
    for (int to_powers = 0; to_powers < 2; to_powers++)
        for (int s = 0; s < l->symbols; s++)
            for (int k = 0; k < n; k++) {
                const int many = DEGREES - sum_of_powers(k);
                if (cg_power(k, s) > 0 || many < 2)
                    continue;
                if (to_powers)
                    expand(l->symbol[s].node, &p->c[k], many, stride[s]);
                else if (!differences(l->symbol[s].node, &p->c[k], many, stride[s]))
                    return false;
            }
    for (int k = next; k < l->n; k++)
        if (cg_value(l, p, l->at[k]) != v[k])
            return false;
    for (int k = 0; k < n; k++)
        if (p->c[k] != 0 && sum_of_powers(k) > p->degree)
            p->degree = sum_of_powers(k);
    return true;
}

int64_t cg_value(const Lengths *l, const Polynomial *p, const int64_t *length)
{
    int64_t sum = 0;
    for (int k = 0; k < terms(l); k++) {
        int64_t c = p->c[k];
        for (int v = 0; c && v < l->symbols; v++)
            for (int i = cg_power(k, v); i > 0; i--)
                c *= length[v];
        sum += c;
    }
    return sum;
}

void cg_longest(const Lengths *l, bool samples, int64_t *length)
{
    for (int v = 0; v < l->symbols; v++) {
        const Symbol *s = &l->symbol[v];
        length[v] = samples && s->node[0] >= s->most ? s->node[0] + 1 : s->most;
    }
}

int64_t cg_value_most(const Lengths *l, const Polynomial *p, bool samples)
{
    int64_t most[SYMBOLS];
    cg_longest(l, samples, most);
    return cg_value(l, p, most);
}

void cg_bounds(const Lengths *l, const Polynomial *p, int above, double *low, double *high)
{
    *low = *high = 0;
    for (int i = 0; i < TERMS; i++) {
        double least = (double)p->c[i], most = least;
        for (int v = 0; v < l->symbols; v++) {
            const Symbol *s = &l->symbol[v];
            const int64_t from = s->least + above < s->most ? s->least + above : s->most;
            least *= pow((double)from, cg_power(i, v));
            most *= pow((double)s->most, cg_power(i, v));
        }
        *low += p->c[i] < 0 ? most : least;
        *high += p->c[i] < 0 ? least : most;
    }
}

/* ---- as text --------------------------------------------------------------------------------- */

const char *const cg_length_name[SYMBOLS] = {"length", "length1", "length2"};

const char *cg_polynomial_text(Arena *a, const Polynomial *p, bool wide)
{
    Text t = {.a = a};
    for (int i = TERMS - 1; i >= 0; i--) {
        const int64_t c = p->c[i], size = c < 0 ? -c : c;
        if (c == 0)
            continue;
        bool any = i == 0 || size != 1;
        text_add(&t, "%s%s",
                 t.n     ? (c < 0 ? " - " : " + ")
                 : c < 0 ? "-"
                         : "",
                 wide ? "(int64_t)" : "");
        if (any)
            text_add(&t, "%" PRId64, size);
        for (int v = 0; v < SYMBOLS; v++)
            for (int k = cg_power(i, v); k > 0; k--, any = true)
                text_add(&t, "%s%s", any ? " * " : "", cg_length_name[v]);
    }
    const char *text = text_all(&t);
    return strchr(text, ' ') || *text == '-' ? arena_printf(a, "(%s)", text) : text;
}

bool cg_is_large(const Lengths *l, const Polynomial *p)
{
    double all = 0;
    for (int i = 0; i < TERMS; i++) {
        double part = fabs((double)p->c[i]);
        for (int v = 0; v < l->symbols; v++)
            part *= pow((double)l->symbol[v].most, cg_power(i, v));
        all += part;
    }
    return all > INT32_MAX;
}

const char *cg_lengths_text(Arena *a, const Lengths *l, const int64_t *length)
{
    Text t = {.a = a};
    for (int v = 0; v < l->symbols; v++)
        text_add(&t, "%s%s of %" PRId64, v ? ", " : "", l->symbol[v].name, length[v]);
    return text_all(&t);
}

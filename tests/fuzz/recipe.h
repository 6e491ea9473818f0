/*
 * recipe.h - a random graph as a list of steps that can be written down, read back and made
 * smaller.
 *
 * A step is an operation by its name, a number that all its choices are drawn from, and the steps
 * whose results it takes. Every operation is total (operations.h): where it does not apply to what
 * it is given, its result is its first operand.  So a step can be left out and its readers take its
 * first operand instead, and what is left is a graph again: that is how a graph that fails is
 * reduced, step by step, to the smallest that still does (delta debugging; Zeller and Hildebrandt
 * 2002).
 *
 * What an operation draws, and in which order, is part of the meaning of the nets that are kept
 * (tests/nets): what is added to one later draws from a number of its own.
 */
#ifndef FUZZ_RECIPE_H
#define FUZZ_RECIPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 40, MOST_CUTS = 3 };

typedef struct {
    uint32_t operation;             /* index into operations[] */
    uint32_t seed;
    uint32_t x, y;                  /* steps before this one */
    bool output, cut;               /* an output of the graph; the next stage begins behind it */
} DrawStep;

typedef struct {
    /* of the batch, dimension 0 of every input; 0: the graph has no batch */
    int64_t rows;
    bool wide;                      /* float64 */
    /* half the sum of the outputs' squares; without it the program only infers */
    bool loss;
    uint32_t n;
    DrawStep step[MOST_STEPS];
} Recipe;

/* operations.h */
uint32_t operation_count(void);
uint32_t operation_weight(uint32_t i);                  /* how often it is drawn */
const char *operation_name(uint32_t i);

static uint64_t fuzz_next(uint64_t *seed)               /* splitmix64 */
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t fuzz_below(uint64_t *seed, int64_t n)
{
    return n > 0 ? (int64_t)(fuzz_next(seed) % (uint64_t)n) : 0;
}

static uint32_t draw_operation(uint64_t *seed)
{
    int64_t all = 0;
    for (uint32_t i = 1; i < operation_count(); i++)
        all += operation_weight(i);
    int64_t at = fuzz_below(seed, all);
    for (uint32_t i = 1; i < operation_count(); i++)
        if ((at -= operation_weight(i)) < 0)
            return i;
    return 0;
}

/* The newest steps are taken as operands more often. */
static uint32_t draw_operand(uint64_t *seed, uint32_t n)
{
    uint32_t near = n < 5 ? n : 5;
    return fuzz_below(seed, 10) < 7 ? n - 1 - (uint32_t)fuzz_below(seed, near)
                                    : (uint32_t)fuzz_below(seed, n);
}

static Recipe recipe_draw(uint64_t seed)
{
    Recipe r = {0};
    uint64_t s = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    r.rows = fuzz_below(&s, 10) < 6 ? 2 + fuzz_below(&s, 4) : 0;
    r.wide = fuzz_below(&s, 4) == 0;
    r.loss = fuzz_below(&s, 8) != 0;
    r.n = 3 + (uint32_t)fuzz_below(&s, fuzz_below(&s, 3) ? 12 : MOST_STEPS - 3);
    uint32_t cuts = 0;
    for (uint32_t i = 0; i < r.n; i++) {
        DrawStep *t = &r.step[i];
        t->seed = (uint32_t)fuzz_next(&s);
        t->operation = i < 1 || (i < 3 && fuzz_below(&s, 2)) ? 0 : draw_operation(&s);
        t->x = i ? draw_operand(&s, i) : 0;
        t->y = i ? draw_operand(&s, i) : 0;
        t->output = i + 1 == r.n || (i > 1 && fuzz_below(&s, 8) == 0);
        t->cut = cuts < MOST_CUTS && i > 1 && i + 1 < r.n && fuzz_below(&s, 7) == 0;
        cuts += t->cut;
    }
    return r;
}

/* ---- as text --------------------------------------------------------------------------------- */

static void recipe_print(const Recipe *r, FILE *f)
{
    fprintf(f, "net rows %d %s %s\n", (int)r->rows, r->wide ? "f64" : "f32",
            r->loss ? "loss" : "infer");
    for (uint32_t i = 0; i < r->n; i++) {
        const DrawStep *t = &r->step[i];
        fprintf(f, "%u %s %u %u %u%s%s\n", i, operation_name(t->operation), t->seed, t->x, t->y,
                t->output ? " output" : "", t->cut ? " cut" : "");
    }
}

/* The first net of a file; lines that begin with # are remarks.  false: it is none. */
static bool recipe_read(Recipe *r, FILE *f)
{
    char line[256], type[8], what[8], name[64], mark[2][16];
    int rows;
    *r = (Recipe){0};
    while (fgets(line, sizeof line, f)) {
        if (*line == '#' || *line == '\n')
            continue;
        if (sscanf(line, "net rows %d %7s %7s", &rows, type, what) == 3) {
            r->rows = rows;
            r->wide = !strcmp(type, "f64");
            r->loss = !strcmp(what, "loss");
            continue;
        }
        unsigned at, seed, x, y;
        int k =
            sscanf(line, "%u %63s %u %u %u %15s %15s", &at, name, &seed, &x, &y, mark[0], mark[1]);
        if (k < 5 || at != r->n || r->n == MOST_STEPS || (at && (x >= at || y >= at)))
            return false;
        DrawStep *t = &r->step[r->n++];
        *t = (DrawStep){.operation = UINT32_MAX, .seed = seed, .x = x, .y = y};
        for (uint32_t i = 0; i < operation_count(); i++)
            if (!strcmp(operation_name(i), name))
                t->operation = i;
        for (int i = 0; i < k - 5; i++) {
            t->output |= !strcmp(mark[i], "output");
            t->cut |= !strcmp(mark[i], "cut");
        }
        if (t->operation == UINT32_MAX)
            return false;
    }
    return r->n > 0;
}

/* ---- smaller --------------------------------------------------------------------------------- */

/* Without step `at`: its readers read its first operand. */
static Recipe recipe_without(const Recipe *r, uint32_t at)
{
    Recipe s = *r;
    s.n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (i == at)
            continue;
        DrawStep t = r->step[i];
        uint32_t *const from[2] = {&t.x, &t.y};
        for (int k = 0; k < 2; k++) {
            if (*from[k] == at && i > at)
                *from[k] = r->step[at].x;
            if (*from[k] > at)
                *from[k] -= 1;
        }
        s.step[s.n++] = t;
    }
    if (s.n > 0 && at == r->n - 1)
        s.step[s.n - 1].output = true;
    return s;
}

/* The smallest recipe for which fails() is true that leaving out steps, outputs, cuts, the loss and
 * the batch leads to. */
static Recipe recipe_reduce(Recipe r, bool (*fails)(const Recipe *))
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (uint32_t i = r.n; i-- > 0 && r.n > 1;) {
            Recipe s = recipe_without(&r, i);
            if (i > 0 && fails(&s)) {
                r = s;
                smaller = true;
                i = i < r.n ? i : r.n;
            }
        }
        for (uint32_t i = 0; i < 2 * r.n + 2; i++) {
            Recipe s = r;
            bool *const mark = i < r.n        ? &s.step[i].cut
                               : i < 2 * r.n  ? &s.step[i - r.n].output
                               : i == 2 * r.n ? &s.loss
                                              : &s.wide;
            if (!*mark)
                continue;
            *mark = false;
            if (fails(&s)) {
                r = s;
                smaller = true;
            }
        }
        Recipe s = r;
        s.rows = 0;
        if (r.rows && fails(&s)) {
            r = s;
            smaller = true;
        }
    }
    return r;
}

#endif

/*
 * lengths.c - --bind NAME=LEAST..MOST.  In: the model with several lengths, each a Pipe of its own.
 * Out: the one text that each stage and the program have with all of them.
 *
 * Sizes are polynomials of the lengths.  A stage is planned, and a file printed, with each length
 * until all sizes that it asks for are known (plan/size.c): each time at least one more is.  Then
 * memory stands where it does with the greatest lengths, a size that varies is printed as its
 * polynomial, and the texts are compared: a microbatch of these lengths is computed by the very
 * program that the model has when it is bound to them, and any other by what all of these have in
 * common: least general generalisation (Plotkin, 1970).
 */
#include "codegen/plan/plan.h"
#include "lengths.h"

#include <math.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t divisor_of(const Polynomial *p)
{
    int64_t all = 0;
    for (int i = 0; i < TERMS; i++)
        all = size_gcd(all, p->c[i]);
    return all;
}

/* How many sizes a part asks for in each sample. */
static uint32_t asked(const Lengths *l, SizesMet *const *met, uint32_t part, bool *same)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (int k = 0; k < l->n; k++) {
        const uint32_t n = cg_sizes_end(met[k], part) - met[k]->from.at[part];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    *same &= least == most;
    return least;
}

static bool is_one_number(const Lengths *l, const int64_t *v)
{
    bool one = true;
    for (int k = 1; k < l->n && one; k++)
        one = v[k] == v[0];
    return one;
}

/* Size i of a part, v[k] in sample k.  Which one it is follows from the answers before; sound: they
 * were right.  Is this one as well?  wide: lengths are ints. */
static bool learn_size(Arena *a, const Lengths *l, SizesMet *const *met, const uint32_t *at,
                       bool wide, bool sound)
{
    int64_t v[SAMPLES];
    Polynomial p;
    SizeKnown now = {0};
    for (int k = 0; k < l->n; k++)
        v[k] = met[k]->met.at[at[k]];
    if (is_one_number(l, v)) {
        now = (SizeKnown){true, v[0], size_gcd(0, v[0]), NULL, 0};
    } else if (cg_fit(l, v, &p)) {
        const bool constant = met[0]->constant.at[at[0]];
        double low, high;
        cg_bounds(l, &p, 0, &low, &high);
        now = (SizeKnown){true, cg_value_most(l, &p, constant), divisor_of(&p),
                          cg_polynomial_text(a, &p, wide && cg_is_large(l, &p)), fmax(-low, high)};
    } else if (sound) {
        lengths_differ(l,
                       arena_printf(a, "a size that it takes is no polynomial of the lengths: %s",
                                    lengths_two(l, v)));
    }
    bool right = now.known;
    for (int k = 0; k < l->n; k++) {
        SizeKnown *said = &met[k]->said.at[at[k]];
        right &= cg_size_same(said, &now);
        *said = now;
    }
    return right;
}

/* What was said becomes what should have been.  true: it was. */
static bool learn(Arena *a, const Lengths *l, SizesMet *const *met, bool wide)
{
    bool sound = true, same = true;
    uint32_t parts = met[0]->from.n;
    for (int k = 1; k < l->n; k++) {
        same &= met[k]->from.n == met[0]->from.n;
        parts = met[k]->from.n < parts ? met[k]->from.n : parts;
    }
    for (uint32_t part = 0; part < parts; part++) {
        const uint32_t n = asked(l, met, part, &same);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at[SAMPLES];
            for (int k = 0; k < l->n; k++)
                at[k] = met[k]->from.at[part] + i;
            sound &= learn_size(a, l, met, at, wide, sound);
        }
        for (int k = 0; k < l->n; k++)
            for (uint32_t i = met[k]->from.at[part] + n; i < cg_sizes_end(met[k], part); i++)
                met[k]->said.at[i] = (SizeKnown){0};
    }
    if (!same && sound)
        lengths_differ(l, arena_printf(a, "the program is another one with %s than with %s",
                                       cg_lengths_text(a, l, l->at[1]),
                                       cg_lengths_text(a, l, l->at[0])));
    return sound;
}

/* Sizes to be asked for once more, with what was learnt. */
static void ask_anew(Arena *a, const Lengths *l, SizesMet **met)
{
    write_unless_ended();
    met[0] = cg_sizes_anew(a, met[0]);
    for (int k = 1; k < l->n; k++)
        met[k] = cg_sizes_like(a, met[0]);
}

/* In each sample, with what is known. */
static void plan_once(Arena *a, const Lengths *l, uint32_t index, Target target, SizesMet **met,
                      StageGen **sg)
{
    ask_anew(a, l, met);
    for (int k = 0; k < l->n; k++)
        sg[k] = cg_stage_sized(a, l->pipe[k], index, target, l, met[k]);
}

/* ---- one text -------------------------------------------------------------------------------- */

static const char *line_end(const char *s)
{
    const char *end = strchr(s, '\n');
    return end ? end : s + strlen(s);
}

/* The line that is read at s. */
static const char *line_of(Arena *a, const char *begin, const char *s)
{
    const char *first = s;
    while (first > begin && first[-1] != '\n')
        first--;
    first += strspn(first, " ");
    return arena_strndup(a, first, (size_t)(line_end(first) - first));
}

/* The comment above, whose first line names nodes of the model. */
static const char *title_of_line(Arena *a, const char *begin, const char *at)
{
    const char *found = NULL;
    for (const char *s = at; s > begin; s--) {
        if (s[-1] != '\n')
            continue;
        bool comment = s[strspn(s, " ")] == '/';
        if (found && !comment)
            break;
        found = comment ? s + strspn(s, " /") : found;
    }
    return found ? arena_strndup(a, found, (size_t)(line_end(found) - found)) : "its begin";
}

/* All texts are the first one, or the program is refused. */
static void check_text(Arena *a, const Lengths *l, const char *file, const Text *text)
{
    for (int k = 1; k < l->n; k++) {
        const char *x = text_all(&text[0]), *y = text_all(&text[k]), *from = x, *other = y;
        if (!strcmp(x, y))
            continue;
        while (*x == *y)
            x++, y++;
        diag_note("%s, with %s: %s", file, cg_lengths_text(a, l, l->at[0]), line_of(a, from, x));
        diag_note("%s, with %s: %s", file, cg_lengths_text(a, l, l->at[k]), line_of(a, other, y));
        lengths_differ(
            l, arena_printf(a, "the program is another one at %s", title_of_line(a, from, x)));
    }
}

void lengths_print(Arena *a, const Lengths *l, const char *file, bool wide, LengthsPrint *print,
                   void *of, Text *to)
{
    SizesMet *met[SAMPLES] = {NULL};
    Text text[SAMPLES];
    do {
        ask_anew(a, l, met);
        for (int k = 0; k < l->n; k++) {
            text[k] = (Text){.a = a};
            cg_sizes_part(met[k]);
            print(of, k, met[k], &text[k]);
        }
    } while (!learn(a, l, met, wide));
    check_text(a, l, file, text);
    *to = text[0];
}

/* ---- the stage ------------------------------------------------------------------------------- */

typedef struct {
    Arena *a;
    const CodegenOptions *opt;
    uint32_t index;
    Target target;
    const StageGen *most;
    SizesMet *planned[SAMPLES];
    StageGen *sg[SAMPLES];
    OutsideFile *outside;
    bool printed; /* once: it is planned anew */
    size_t end;   /* of the stage's file, behind which are its tables */
} Sampled;

static void print_sample(void *arg, int k, SizesMet *met, Text *t)
{
    Sampled *x = arg;
    const Lengths *l = x->opt->lengths;
    if (k == 0) {
        if (x->printed)
            plan_once(x->a, l, x->index, x->target, x->planned, x->sg);
        lengths_constants(x->a, l, x->most, x->sg);
        x->printed = true;
    }
    StageGen *sg = x->sg[k];
    sg->sizes = met;
    sg->profiled = x->opt->profile && x->target == TARGET_C;
    cg_stage_print(sg, t);
    x->end = t->n;
    cg_tables_print(sg, x->outside, t);
}

StageGen *lengths_stage(Arena *a, const CodegenOptions *opt, uint32_t index, Target target,
                        OutsideFile *outside, Text *file, Text *tables)
{
    const Lengths *l = opt->lengths;
    Sampled x = {a, opt, index, target, cg_stage(a, l->most, index, target), .outside = outside};
    Text all;
    do
        plan_once(a, l, index, target, x.planned, x.sg);
    while (!learn(a, l, x.planned, false));
    lengths_print(a, l, arena_printf(a, "stage%u.%s", index, target_row(target)->ending),
                  target_row(target)->device, print_sample, &x, &all);
    text_add(file, "%.*s", (int)x.end, all.at);
    text_add(tables, "%s", all.at + x.end);
    return x.sg[0];
}

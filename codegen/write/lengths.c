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
 *
 * Constants are no text.  A constant that grows has, with each length, the
 * first elements of that of the greatest one, along each dimension, and is read where they stand
 * there; or one length decides it, and the program has it with each.
 */
#include "codegen/plan/plan.h"
#include "lengths.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- refusals -------------------------------------------------------------------------------- */

const char *lengths_option(Arena *a, const Lengths *l)
{
    Text t = {.a = a};
    for (int v = 0; v < l->symbols; v++)
        text_add(&t, "%s--bind %s=%" PRId64 "..%" PRId64, v ? " " : "", l->symbol[v].name,
                 l->symbol[v].least, l->symbol[v].most);
    return text_all(&t);
}

void lengths_refuse(const Lengths *l, Where where, const char *what)
{
    Arena *a = l->pipe[0]->graph->arena;
    const Symbol *s = &l->symbol[0];
    diag_hint("--bind %s=%" PRId64 " is a program of that length alone", s->name, s->most);
    diag_fatal(EXIT_MODEL, where, "%s: %s", lengths_option(a, l), what);
}

NORETURN static void differ(const Lengths *l, const char *what)
{
    lengths_refuse(l, WHERE_FILE(l->pipe[0]->graph->file), what);
}

/* "12 with seq of 43, 11 with seq of 41": a sample that differs from the first one */
static const char *two(const Lengths *l, const int64_t *v)
{
    Arena *a = l->pipe[0]->graph->arena;
    int k = 1;
    while (k + 1 < l->n && v[k] == v[0])
        k++;
    return arena_printf(a, "%" PRId64 " with %s, %" PRId64 " with %s", v[0],
                        cg_lengths_text(a, l, l->at[0]), v[k], cg_lengths_text(a, l, l->at[k]));
}

/* Is it another model with other lengths?  Then it has other values, from one on that is named;
 * end: so many are compared. */
static void check_values(const Lengths *l, const Pipe *with, const int64_t *length, ValueId end)
{
    const Graph *g = l->pipe[0]->graph, *own = with->graph;
    for (ValueId v = 0; v < end && (v < g->value.n || v < own->value.n); v++) {
        const Value *x = v < g->value.n ? val(g, v) : NULL,
                    *y = v < own->value.n ? val(own, v) : NULL;
        bool same = x && y && x->kind == y->kind && x->shape.rank == y->shape.rank &&
                    (x->kind != V_NODE || g->node.at[x->node].op == own->node.at[y->node].op);
        const Value *known = x ? x : y;
        const Graph *of = x ? g : own;
        if (!same)
            lengths_refuse(l,
                           known->kind == V_NODE
                               ? graph_where(of, of->node.at[known->node].origin, -1)
                               : WHERE_FILE(g->file),
                           arena_printf(g->arena,
                                        "with %s and with %s it is computed by other operations "
                                        "from here on",
                                        cg_lengths_text(g->arena, l, l->at[0]),
                                        cg_lengths_text(g->arena, l, length)));
    }
}

/* the first node that reads it, or the file */
static Where reader(const Graph *g, ValueId v)
{
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin; i++)
            if (g->node.at[n].in[i] == v)
                return graph_where(g, g->node.at[n].origin, (int)i);
    return WHERE_FILE(g->file);
}

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
        now = (SizeKnown){true, v[0], size_gcd(0, v[0]), NULL};
    } else if (cg_fit(l, v, &p)) {
        const bool constant = met[0]->constant.at[at[0]];
        now = (SizeKnown){true, cg_value_most(l, &p, constant), divisor_of(&p),
                          cg_polynomial_text(a, &p, wide && cg_is_large(l, &p))};
    } else if (sound) {
        differ(l, arena_printf(a, "a size that it takes is no polynomial of the lengths: %s",
                               two(l, v)));
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
        differ(l, arena_printf(a, "the program is another one with %s than with %s",
                               cg_lengths_text(a, l, l->at[1]), cg_lengths_text(a, l, l->at[0])));
    return sound;
}

/* Sizes to be asked for once more, with what was learnt. */
static void ask_anew(Arena *a, const Lengths *l, SizesMet **met)
{
    write_unless_ended();
    for (int k = 0; k < l->n; k++)
        met[k] = cg_sizes_anew(a, met[k]);
}

/* In each sample, with what is known. */
static void plan_once(Arena *a, const Lengths *l, uint32_t index, Target target, SizesMet **met,
                      StageGen **sg)
{
    ask_anew(a, l, met);
    for (int k = 0; k < l->n; k++)
        sg[k] = cg_stage_sized(a, l->pipe[k], index, target, l, met[k]);
}

/* ---- constants ------------------------------------------------------------------------------- */

/* Where element i of a shape is in a larger one, at whose begin it stands. */
static int64_t begin_of(int64_t i, const Shape *x, const Shape *in)
{
    int64_t at = 0, stride = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        at += i % x->d[d] * stride;
        i /= x->d[d];
        stride *= in->d[d];
    }
    return at;
}

/* Are the elements of x the first ones of `all`, in each dimension, or one after the other where
 * view.c reads them so? */
static bool is_begin(const Value *x, const Value *all)
{
    int64_t n = shape_elements(&x->shape), size = (int64_t)dtype_size(x->dtype), first, step;
    if (cg_iota(x, &first, &step))
        return !memcmp(x->data, all->data, (size_t)(n * size));
    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)x->data + i * size,
                   (const char *)all->data + begin_of(i, &x->shape, &all->shape) * size,
                   (size_t)size) != 0)
            return false;
    return true;
}

/* The shape that v[k] with the lengths of sample k, has with the greatest of all samples. */
static bool shape_most(const Lengths *l, const Value *const *v, Shape *most)
{
    *most = v[0]->shape;
    for (int d = 0; d < most->rank; d++) {
        int64_t size[SAMPLES];
        Polynomial p;
        for (int k = 0; k < l->n; k++)
            size[k] = v[k]->shape.d[d];
        if (!cg_fit(l, size, &p))
            return false;
        most->d[d] = cg_value_most(l, &p, true);
    }
    return true;
}

/* Is `most` the constant of the greatest length, of which those of the others are the begin? */
static bool begins(const Lengths *l, const Value *const *v, const Value *most)
{
    Shape is;
    if (most->dtype != v[0]->dtype || !shape_most(l, v, &is) || !shape_equal(&is, &most->shape))
        return false;
    for (int k = 0; k < l->n; k++)
        if (!is_begin(v[k], most))
            return false;
    return true;
}

static bool same_constant(const Value *x, const Value *y)
{
    return shape_equal(&x->shape, &y->shape) &&
           !memcmp(x->data, y->data, (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
}

static bool never_changes(const Lengths *l, const Value *const *v)
{
    bool same = true;
    for (int k = 1; k < l->n && same; k++)
        same = same_constant(v[k], v[0]);
    return same;
}

/* All elements are the one that x has: what is broadcast has no other. */
static bool is_filled(const Value *all, const Value *x)
{
    const size_t size = dtype_size(x->dtype);
    bool filled = shape_elements(&x->shape) == 1 && all->dtype == x->dtype;
    for (int64_t i = 0; i < shape_elements(&all->shape) && filled; i++)
        filled = !memcmp((const char *)all->data + (size_t)i * size, x->data, size);
    return filled;
}

/* One that is one number: a whole one is a polynomial's. */
static bool number_follows(const Lengths *l, const Value *const *v, const int64_t *length,
                           const Value *own)
{
    int64_t whole[SAMPLES];
    Polynomial p;
    for (int k = 0; k <= l->n; k++) {
        const Value *x = k < l->n ? v[k] : own;
        const double number = element_double(x->dtype, x->data, 0);
        if (!(fabs(number) < 0x1p53) || number != floor(number))
            return true;
        whole[k] = (int64_t)number;
    }
    return !cg_fit(l, whole, &p) || cg_value(l, &p, length) == whole[l->n];
}

bool lengths_constant(const Lengths *l, ValueId id, const int64_t *length, const Value *own)
{
    const Graph *most = l->imported[l->all - 1];
    const Value *v[SAMPLES] = {NULL};
    for (int k = 0; k < l->n; k++)
        v[k] = val(l->imported[k], id);
    if (v[0]->kind != V_CONST || own->kind != V_CONST)
        return true;
    if (never_changes(l, v))
        return same_constant(own, v[0]) || is_filled(own, v[0]);
    if (shape_elements(&v[0]->shape) == 1)
        return number_follows(l, v, length, own);
    const Value *all = id < most->value.n ? val(most, id) : own;
    return !begins(l, v, all) || is_begin(own, all);
}

/* The one symbol that decides what it is; symbols: there is none. */
static int decided_by(const Lengths *l, const Value *const *v)
{
    int s = 0;
    for (bool alone = false; s < l->symbols; s++) {
        alone = true;
        for (int k = 0; k < l->n && alone; k++)
            for (int j = 0; j < k && alone; j++)
                alone = l->at[k][s] != l->at[j][s] || same_constant(v[k], v[j]);
        if (alone)
            break;
    }
    return s;
}

/* x, with dimensions of this size, at the begin of which it stands; flat: one element after the
 * other */
static void put_begin(const Value *x, const Shape *of, bool flat, char *to)
{
    const int64_t size = (int64_t)dtype_size(x->dtype);
    for (int64_t i = 0; i < shape_elements(&x->shape); i++)
        memcpy(to + (flat ? i : begin_of(i, &x->shape, of)) * size,
               (const char *)x->data + i * size, (size_t)size);
}

enum { MOST_TABLES = 512, MOST_TABLE_BYTES = 1 << 26 };

/* A constant of each length, one behind the other, each in the place of the greatest: what a
 * resized table is multiplied with.  false: it would be too long. */
static bool find_tables(Arena *a, const Lengths *l, const Value *const *v, uint32_t index,
                        StageGen **sg)
{
    const int s = decided_by(l, v);
    const ValueId id = sg[0]->constants.at[index].value;
    const Symbol *symbol = &l->symbol[s < l->symbols ? s : 0];
    Shape slot;
    if (s == l->symbols || !shape_most(l, v, &slot))
        return false;
    const int64_t n = symbol->most - symbol->least + 1, size = (int64_t)dtype_size(v[0]->dtype),
                  bytes = align_up(shape_elements(&slot) * size);
    int64_t first, step;
    if (n > MOST_TABLES || bytes > MOST_TABLE_BYTES / n)
        return false;
    Value *all = arena_new_of(a, Value);
    *all = *v[0];
    all->shape = shape_of(1, n * bytes / size);
    char *data = arena_alloc(a, (size_t)(n * bytes));
    all->data = data;
    for (int64_t i = 0; i < n; i++) {
        int64_t length[SYMBOLS];
        memcpy(length, l->at[0], sizeof length);
        length[s] = symbol->least + i;
        const Pipe *p = l->with(l->of, length);
        check_values(l, p, length, id + 1);
        put_begin(val(p->graph, id), &slot, cg_iota(v[0], &first, &step), data + i * bytes);
    }
    for (int k = 0; k < l->n; k++) {
        StageConst *c = &sg[k]->constants.at[index];
        c->most = all;
        c->inlined = false;
        c->offset = sg[k]->bytes_const;
        c->shift = (l->at[k][s] - symbol->least) * bytes;
        sg[k]->bytes_const += n * bytes;
    }
    return true;
}

static void find_constants(Arena *a, const Lengths *l, const StageGen *most, StageGen **sg)
{
    for (uint32_t i = 0; i < sg[0]->constants.n; i++) {
        const Value *v[SAMPLES], *all = NULL;
        for (int k = 0; k < l->n; k++) {
            if (sg[k]->constants.n != sg[0]->constants.n)
                differ(l, "its constants are others with other lengths");
            v[k] = val(sg[k]->g, sg[k]->constants.at[i].value);
        }
        if (never_changes(l, v))
            continue;
        for (uint32_t j = 0; j < most->constants.n && !all; j++) {
            const Value *x = val(most->g, most->constants.at[j].value);
            all = begins(l, v, x) ? x : NULL;
        }
        for (int k = 0; k < l->n && all; k++)
            sg[k]->constants.at[i].most = all;
        if (!all && !find_tables(a, l, v, i, sg))
            lengths_refuse(l, reader(sg[0]->g, sg[0]->constants.at[i].value),
                           arena_printf(a,
                                        "a constant%s, %s with %s, is not a part of the one that "
                                        "the greatest lengths have, and too long to have one for "
                                        "each",
                                        out_value_text(a, sg[0]->g, sg[0]->constants.at[i].value),
                                        shape_print(a, v[0]->dtype, &v[0]->shape),
                                        cg_lengths_text(a, l, l->at[0])));
    }
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
        differ(l, arena_printf(a, "the program is another one at %s", title_of_line(a, from, x)));
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
        find_constants(x->a, l, x->most, x->sg);
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

/* ---- the model ------------------------------------------------------------------------------- */

/* How dimension d of value v grows. */
static Polynomial grows(const Lengths *l, ValueId v, int d)
{
    const Graph *g = l->pipe[0]->graph;
    const Value *x = val(g, v);
    const bool made = x->kind == V_NODE;
    int64_t size[SAMPLES];
    Polynomial p;
    for (int k = 0; k < l->n; k++)
        size[k] = val(l->pipe[k]->graph, v)->shape.d[d];
    if (!cg_fit(l, size, &p))
        lengths_refuse(
            l, made ? graph_where(g, g->node.at[x->node].origin, -1) : WHERE_FILE(g->file),
            arena_printf(g->arena, "dimension %d of %s is %s: no polynomial of it", d,
                         made ? "its result" : arena_printf(g->arena, "'%s'", x->name),
                         two(l, size)));
    return p;
}

/* Sizes of a value. */
static void check_sizes(const Lengths *l, ValueId v)
{
    for (int d = 0; d < val(l->pipe[0]->graph, v)->shape.rank; d++)
        grows(l, v, d);
}

/* The symbol of which it is a multiple, symbols: none. */
static int multiple_of(const Lengths *l, const Polynomial *p)
{
    Polynomial rest = *p;
    int v = 0, term = 1;
    while (v < l->symbols && p->c[term] < 1)
        v++, term *= DEGREES;
    if (v < l->symbols)
        rest.c[term] = 0;
    for (int k = 0; k < TERMS; k++)
        if (rest.c[k])
            return l->symbols;
    return v;
}

/* A file's rows have the places one behind the other; each length is a dimension's, or it is not
 * known which a file's rows have. */
static void check_input(const Lengths *l, ValueId v, bool *any)
{
    const Value *x = val(l->pipe[0]->graph, v);
    for (int d = 0; d < x->shape.rank; d++) {
        Polynomial p = grows(l, v, d);
        if (p.degree == 0)
            continue;
        int symbol = multiple_of(l, &p);
        if (x->batch < 0 || d <= x->batch || symbol == l->symbols)
            differ(l,
                   arena_printf(l->pipe[0]->graph->arena,
                                "dimension %d of input '%s' is no multiple of one of them behind "
                                "the dimension of its rows",
                                d, x->name));
        any[symbol] = true;
    }
}

static void check_output(const Lengths *l, ValueId v)
{
    const Value *x = val(l->pipe[0]->graph, v);
    for (int d = 0; d < x->shape.rank; d++)
        if (grows(l, v, d).degree > 0 && (x->batch < 0 || d <= x->batch))
            differ(l, arena_printf(l->pipe[0]->graph->arena,
                                   "output '%s' has it not behind the dimension of its rows",
                                   x->name));
}

void lengths_check(const Lengths *l)
{
    const Pipe *p = l->pipe[0];
    bool any[SYMBOLS + 1] = {false};
    for (int k = 1; k < l->n; k++)
        check_values(l, l->pipe[k], l->at[k], NONE);
    for (uint32_t i = 0; i < p->graph->input.n; i++)
        check_input(l, p->graph->input.at[i], any);
    for (uint32_t i = 0; i < p->graph->output.n; i++)
        check_output(l, p->graph->output.at[i]);
    for (int v = 0; v < l->symbols; v++)
        if (!any[v])
            differ(l,
                   arena_printf(p->graph->arena, "no input has dimension '%s'", l->symbol[v].name));
    if (p->totals)
        differ(l, "what the data of a step alone decide is computed of rows of one length");
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const Stage *x = &p->stage.at[s];
        for (uint32_t i = 0; i < x->forward.n; i++)
            check_sizes(l, p->graph->node.at[x->forward.at[i]].out[0]);
        for (uint32_t i = 0; i < x->input.n; i++)
            check_sizes(l, x->input.at[i].value);
    }
}

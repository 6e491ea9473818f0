/*
 * size.c - sizes where lengths vary.  In: a size, as it is with the length that the stage is
 * planned or printed for.  Out: what it is with the greatest length, whether it varies, what
 * divides it with any length, and its text: of one that varies an expression of the lengths.
 *
 * The stage is planned or printed once more each time more of them are known (write/lengths.c):
 * programs of several lengths ask for the same sizes in the same order.  So the first sample alone
 * recalls them, and the others are told what it was at the same place: 19 may be a length or 19
 * classes, where the first sample has 43 and 19.  What is known of a number is so wherever it is
 * asked for, so that a pass never has two answers; where it is several sizes with this length, the
 * order tells them apart.  What is known of one decides which are asked for next: parts, such as a
 * step in print, keep that from moving all that come behind.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "plan.h"

uint32_t cg_sizes_end(const SizesMet *s, uint32_t part)
{
    return part + 1 < s->from.n ? s->from.at[part + 1] : s->met.n;
}

void cg_sizes_part(SizesMet *s)
{
    if (!s)
        return;
    vec_push(s->a, &s->from, s->met.n);
    if (s->before && s->from.n <= s->before->from.n)
        s->next = s->before->from.at[s->from.n - 1];
}

bool cg_size_same(const SizeKnown *x, const SizeKnown *y)
{
    return x->known == y->known && x->most == y->most && x->divisor == y->divisor &&
           !x->text == !y->text && (!x->text || !strcmp(x->text, y->text));
}

static const uint32_t SEVERAL = NONE - 1;
static uint64_t key_of(int64_t size, bool constant) { return (uint64_t)size * 2 + constant; }

SizesMet *cg_sizes_like(Arena *a, const SizesMet *first)
{
    SizesMet *s = arena_new_of(a, SizesMet);
    *s = (SizesMet){.a = a, .first = first};
    return s;
}

SizesMet *cg_sizes_anew(Arena *a, const SizesMet *before)
{
    SizesMet *s = cg_sizes_like(a, NULL);
    s->before = before;
    s->learnt = before ? before->said.at : NULL;
    for (uint32_t i = 0; before && i < before->met.n; i++) {
        if (!s->learnt[i].known)
            continue;
        uint32_t *of = idmap_at(a, &s->of, key_of(before->met.at[i], before->constant.at[i]));
        if (*of == NONE)
            *of = i;
        else if (*of != SEVERAL && !cg_size_same(&s->learnt[*of], &s->learnt[i]))
            *of = SEVERAL;
    }
    return s;
}

/* What was learnt of this size; of several that are this number of the next one, among a few. */
static SizeKnown recall(SizesMet *s, int64_t size, bool constant)
{
    enum { FEW = 16 };
    const uint32_t part = s->from.n - 1, only = idmap_get(&s->of, key_of(size, constant));
    SizeKnown known = {false, size, 1, NULL, 0};
    if (s->before && part < s->before->from.n)
        for (uint32_t i = s->next; i < cg_sizes_end(s->before, part) && i < s->next + FEW; i++)
            if (s->before->met.at[i] == size && s->before->constant.at[i] == constant &&
                s->learnt[i].known) {
                s->next = i + 1;
                known = s->learnt[i];
                break;
            }
    return only == NONE || only == SEVERAL ? known : s->learnt[only];
}

/* What the first sample was told at this place, unless it cannot be of this size. */
static SizeKnown follow(const SizesMet *s, int64_t size, bool constant)
{
    const SizeKnown unknown = {false, size, 1, NULL, 0};
    const uint32_t part = s->from.n - 1;
    if (part >= s->first->from.n)
        return unknown;
    const uint32_t at = s->first->from.at[part] + s->met.n - s->from.at[part];
    if (at >= cg_sizes_end(s->first, part) || s->first->constant.at[at] != constant)
        return unknown;
    const SizeKnown *known = &s->first->said.at[at];
    return known->text || (known->known && known->most == size) ? *known : unknown;
}

static SizeKnown ask(SizesMet *s, int64_t size, bool constant)
{
    if (!s)
        return (SizeKnown){true, size, size, NULL, 0};
    const SizeKnown known = s->first ? follow(s, size, constant) : recall(s, size, constant);
    vec_push(s->a, &s->met, size);
    vec_push(s->a, &s->constant, constant);
    vec_push(s->a, &s->said, known);
    return known;
}

static SizesMet *sizes_of(const StageGen *sg) { return sg ? sg->sizes : NULL; }

int64_t cg_most(const StageGen *sg, int64_t size) { return ask(sizes_of(sg), size, false).most; }

int64_t cg_most_constant(const StageGen *sg, int64_t size)
{
    return ask(sizes_of(sg), size, true).most;
}

bool cg_varies(const StageGen *sg, int64_t size)
{
    const SizeKnown known = ask(sizes_of(sg), size, false);
    return !known.known || known.text;
}

bool cg_stays(const StageGen *sg, int64_t size) { return !ask(sizes_of(sg), size, false).text; }

int64_t cg_divisor(const StageGen *sg, int64_t size)
{
    const int64_t divisor = ask(sizes_of(sg), size, false).divisor;
    /* what is known may be of another size, until all are */
    return (divisor == 0 ? size : size % divisor) == 0 ? divisor : 1;
}

int64_t cg_divisor_lin(const StageGen *sg, Lin x)
{
    const int64_t rows = cg_divisor(sg, x.b);
    return size_gcd(cg_divisor(sg, x.c), rows);
}

/* ---- as text --------------------------------------------------------------------------------- */

int64_t cg_size_outside(SizesMet *s, int64_t size) { return ask(s, size, false).most; }

const char *cg_size_text(Arena *a, SizesMet *s, int64_t size)
{
    const SizeKnown known = ask(s, size < 0 && size > INT64_MIN ? -size : size, false);
    if (known.text)
        return arena_printf(a, "%s%s", size < 0 ? "-" : "", known.text);
    return arena_printf(a, "%" PRId64, size);
}

const char *cg_size(Arena *a, const StageGen *sg, int64_t size)
{
    return cg_size_text(a, sizes_of(sg), size);
}

/* "rows * 128", "(2 * length - 1)" */
static const char *sum_text(Arena *a, const StageGen *sg, Lin x)
{
    const char *r = x.b == 1    ? "rows"
                    : x.b == -1 ? "-rows"
                                : arena_printf(a, "rows * %s", cg_size(a, sg, x.b));
    if (x.c == 0)
        return r;
    return arena_printf(a, "%s %c %s", r, x.c > 0 ? '+' : '-',
                        cg_size(a, sg, x.c > 0 ? x.c : -x.c));
}

const char *lin_text(Arena *a, const StageGen *sg, Lin x)
{
    return x.b == 0 ? cg_size(a, sg, x.c) : sum_text(a, sg, x);
}

const char *lin_factor(Arena *a, const StageGen *sg, Lin x)
{
    const char *text = lin_text(a, sg, x);
    const bool simple = x.b == 0 ? x.c >= 0 : x.c == 0 && x.b == 1;
    return simple ? text : arena_printf(a, "(%s)", text);
}

const char *cg_shape(Arena *a, const StageGen *sg, Dtype t, const Shape *s)
{
    Text all = {.a = a};
    if (!sizes_of(sg))
        return shape_print(a, t, s);
    for (int d = 0; d < s->rank; d++)
        text_add(&all, "%s%s", d ? "," : "", cg_size(a, sg, s->d[d]));
    return arena_printf(a, "%s[%s]", dtype_name(t), text_all(&all));
}

/* Are all whole numbers up to this one numbers of the type?  The odd one of the last two decides.
 */
static bool holds_whole(Dtype t, double x)
{
    return !dtype_is_half(t) || (dtype_round(t, x) == x && dtype_round(t, x - 1) == x - 1);
}

/* A length as a fraction, or 1 divided by it, as they are rounded. */
const char *cg_literal(Arena *a, const StageGen *sg, Dtype t, double f, int64_t i)
{
    const char *plain = cg_number(a, t, f, i);
    if (!sizes_of(sg))
        return plain;
    if (!dtype_is_float(t))
        return i > INT32_MAX || i < -INT32_MAX ? plain : cg_size(a, sg, i);
    const bool wide = t == DT_F64;
    const double x = fabs(dtype_is_half(t) ? dtype_round(t, f) : f);
    const char *type = wide ? "double" : "float", *sign = f < 0 ? "-" : "";
    int64_t n = x < 1e9 ? (int64_t)x : 0;
    if (n > 0 && (double)n == x) {
        const SizeKnown known = ask(sg->sizes, n, false);
        return known.text && holds_whole(t, known.bound)
                   ? arena_printf(a, "%s(%s)%s", sign, type, known.text)
                   : plain;
    }
    n = x > 1e-9 && x < 1 ? (int64_t)(1 / x + .5) : 0;
    const double again = n ? 1 / (double)n : 0;
    if (n == 0 || (wide ? again != x : (float)again != (float)x))
        return plain;
    const char *text = ask(sg->sizes, n, false).text;
    return text ? arena_printf(a, "%s(%s)(1.0 / (double)%s)", sign, type, text) : plain;
}

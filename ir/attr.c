/*
 * attr.c - the attributes of each op, from the ATTRS column of ops.def: which there are, their
 * defaults, copies, comparison and text.
 */
#include <stddef.h>
#include <string.h>

#include "node.h"

/* NUMBERs are int64_t, CHOICEs int; an ARRAY has n elements, and where said more.  Of the rest the
 * bytes are all there is to them. */
typedef enum { NUMBER, CHOICE, REAL, TYPE, RECORD, PART, ARRAY, PAIRS, WHOLE_WEIGHT } Kind;

/* ops.def's name, field, kind, what is not given (elements of an array that is not), whether an
 * array must be given */
// clang-format off
#define EACH_ATTR(X) \
    X(AXIS,              axis,              NUMBER,       0, false)    \
    X(BATCH_DIMS,        batch_dims,        NUMBER,       0, false)    \
    X(KEY,               key,               NUMBER,       0, false)    \
    X(K,                 k,                 NUMBER,       0, false)    \
    X(CEIL_MODE,         ceil_mode,         NUMBER,       0, false)    \
    X(PADDING_ROW,       padding_row,       NUMBER,       0, false)    \
    X(SEED,              seed,              NUMBER,       0, false)    \
    X(GROUP,             group,             NUMBER,       1, false)    \
    X(DIMS,              dims,              ARRAY,        0, true)     \
    X(PERM,              perm,              ARRAY,        0, true)     \
    X(AXES,              axes,              ARRAY,        0, true)     \
    X(START,             start,             ARRAY,        0, true)     \
    X(SIZES,             sizes,             ARRAY,        0, true)     \
    X(BEGIN,             begin,             ARRAY,        0, false)    \
    X(STRIDE,            stride,            ARRAY,        1, false)    \
    X(SIZE,              size,              ARRAY,        0, true)     \
    X(END,               end,               ARRAY,        0, false)    \
    X(DILATION,          dilation,          ARRAY,        1, false)    \
    X(STEP,              step,              ARRAY,        1, false)    \
    X(PADS,              pad,               PAIRS,        0, false)    \
    X(KERNEL_DIMS,       kernel,            ARRAY,        0, true)     \
    X(OUT_DIMS,          out_dims,          ARRAY,        0, true)     \
    X(WEIGHT_DIMS,       weight_dims,       WHOLE_WEIGHT, 0, true)     \
    X(VALUE,             value,             REAL,         0, false)    \
    X(RATIO,             ratio,             REAL,         0, false)    \
    X(MODE,              mode,              CHOICE,       0, false)    \
    X(REDUCTION,         reduction,         CHOICE,       0, false)    \
    X(SCAN,              scan,              CHOICE,       0, false)    \
    X(LARGEST,           largest,           CHOICE,       0, false)    \
    X(SELECT_LAST,       select_last,       CHOICE,       0, false)    \
    X(TO_FIRST,          to_first,          CHOICE,       0, false)    \
    X(COUNT_INCLUDE_PAD, count_include_pad, CHOICE,       0, false)    \
    X(TO,                to,                TYPE,         0, false)    \
    X(ATTENTION,         attention,         RECORD,       0, false)    \
    X(TO_AXIS,           to_axis,           NUMBER,       0, false)    \
    X(RESULTS,           n,                 CHOICE,       0, false)    \
    X(PIECE,             piece,             PART,         0, false)    \
    X(MESH,              mesh,              CHOICE,       0, false)    \
    X(CUSTOM,            custom,            RECORD,       0, false)    \
    X(BODY,              recurrence,        RECORD,       0, false)
// clang-format on
#define NUMBERED(name, ...) name,
enum { NONE_LEFT, EACH_ATTR(NUMBERED) };
enum { MOST = 6 };

static const struct {
    const char *name;
    size_t at, size;
    Kind kind;
    int64_t otherwise;
    bool needed;
} known[] = {
#define ROW(name, field, kind, otherwise, needed)                                                  \
    [name] = {#field, offsetof(Attr, field), sizeof((Attr *)NULL)->field, kind, otherwise, needed},
    EACH_ATTR(ROW)
};

static const uint8_t attrs_of[OP_COUNT][MOST + 1] = {
#define ATTRS(...) {__VA_ARGS__, NONE_LEFT}
#define NO_ATTRS {NONE_LEFT}
#define OP(name, lo, hi, since, import, nin, nout, attrs, ...) [OP_##name] = attrs,
#include "ops.def"
};

static void *field(Attr *t, int k) { return (char *)t + known[k].at; }
static const void *field_of(const Attr *t, int k) { return (const char *)t + known[k].at; }

static bool is_array(int k) { return known[k].kind >= ARRAY; }

static int length(const Attr *t, int k)
{
    return known[k].kind == PAIRS ? 2 * t->n : known[k].kind == WHOLE_WEIGHT ? t->n + 2 : t->n;
}

static const int64_t *array_of(const Attr *t, int k)
{
    const int64_t *const *at = field_of(t, k);
    return *at;
}

static void copy_array(Arena *a, Op op, const Attr *from, int k, Attr *to)
{
    const int64_t *v = array_of(from, k), **out = field(to, k);
    int n = length(from, k);
    if (!v && n > 0 && known[k].needed)
        BUG("%s without %s", op_name(op), known[k].name);
    int64_t *copy = arena_array(a, int64_t, n);
    for (int i = 0; i < n; i++)
        copy[i] = v ? v[i] : known[k].otherwise;
    *out = copy;
}

Chunks chunks_none(void)
{
    Chunks p;
    for (int x = 0; x < MESH_AXES; x++)
        p.along[x] = (Chunk){.axis = -1, .pieces = 1, .chunks = 1, .groups = 1};
    return p;
}

int chunks_number(const Chunks *p)
{
    int n = 0;
    for (int x = MESH_AXES; x-- > 0;)
        n = n * p->along[x].pieces + p->along[x].piece;
    return n;
}

const char *chunks_name(Arena *a, const char *whole, const Chunks *p)
{
    for (int x = 0; x < MESH_AXES; x++)
        if (p->along[x].pieces > 1)
            whole = arena_printf(a, "%s[%d]", whole, p->along[x].piece);
    return whole;
}

static const Chunks *piece_own(Arena *a, const Chunks *from)
{
    Chunks *own = from ? arena_new_of(a, Chunks) : NULL;
    if (own)
        *own = *from;
    return own;
}

/* A Chunks is ints alone. */
static bool piece_equal(const Chunks *x, const Chunks *y)
{
    return x == y || (x && y && memcmp(x, y, sizeof *x) == 0);
}

Attr attr_own(Arena *a, Op op, const Attr *t)
{
    Attr own = {0};
    for (const uint8_t *k = attrs_of[op]; *k; k++) {
        if (is_array(*k)) {
            own.n = t->n;
            copy_array(a, op, t, *k, &own);
        } else if (known[*k].kind == PART) {
            own.piece = piece_own(a, t->piece);
        } else {
            memcpy(field(&own, *k), field_of(t, *k), known[*k].size);
            if (known[*k].otherwise && *(int64_t *)field(&own, *k) == 0)
                *(int64_t *)field(&own, *k) = known[*k].otherwise;
        }
    }
    INSIST(own.n >= 0 && (own.n <= MAX_RANK || op == OP_Split || op == OP_Vary ||
                          op == OP_Recurrence));
    return own;
}

bool attr_equal(Op op, const Attr *x, const Attr *y)
{
    for (const uint8_t *k = attrs_of[op]; *k; k++) {
        bool same;
        if (is_array(*k)) {
            size_t n = (size_t)length(x, *k) * sizeof(int64_t);
            same = x->n == y->n && (n == 0 || !memcmp(array_of(x, *k), array_of(y, *k), n));
        } else {
            same = known[*k].kind == PART ? piece_equal(x->piece, y->piece)
                                          : !memcmp(field_of(x, *k), field_of(y, *k), known[*k].size);
        }
        if (!same)
            return false;
    }
    return true;
}

static const int64_t *one_more(Arena *a, const int64_t *x, int n, int64_t first, int64_t by)
{
    int64_t *y = arena_array(a, int64_t, n + 1);
    y[0] = first;
    for (int i = 0; i < n; i++)
        y[i + 1] = x[i] + by;
    return y;
}

Attr attr_lifted(Arena *a, Op op, const Attr *t, int64_t n)
{
    Attr out = *t;
    if (op_is_product(op)) /* of matrices, whatever stands in front of them */
        return out;
    for (const uint8_t *k = attrs_of[op]; *k; k++) {
        const int64_t **array = is_array(*k) ? field(&out, *k) : NULL;
        if (*k == AXIS || *k == TO_AXIS)
            ++*(int64_t *)field(&out, *k);
        else if (*k == AXES)
            *array = one_more(a, *array, t->n, 0, 1) + 1;
        else if (*k == PERM)
            *array = one_more(a, *array, t->n, 0, 1);
        else if (array && *k != SIZES)
            *array = one_more(a, *array, t->n, *k == START ? 0 : *k == STEP ? 1 : n, 0);
        if (array && *k != AXES && *k != SIZES)
            out.n = t->n + 1;
    }
    return out;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void dump_array(const char *name, const int64_t *v, int n, FILE *f)
{
    fprintf(f, " %s=[", name);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)v[i]);
    fputc(']', f);
}

static void dump_attention(const AttentionAttr *t, FILE *f)
{
    fprintf(f, " scale=%.9g fill=%.9g ratio=%.9g key=%lld", t->scale, t->fill, t->ratio,
            (long long)t->key);
    if (t->causal)
        fprintf(f, " diagonal=%lld", (long long)t->diagonal);
    if (t->step)
        fprintf(f, " step=%lld", (long long)t->step);
    if (t->window)
        fprintf(f, " window=%lld", (long long)t->window);
    fprintf(f, "%s%s", t->bias ? " bias" : "", !t->mask ? "" : t->forbids ? " forbids" : " mask");
}

static void dump_piece(const Chunks *all, FILE *f)
{
    for (int x = 0; all && x < MESH_AXES; x++) {
        const Chunk *p = &all->along[x];
        if (p->axis >= 0)
            fprintf(f, " axis=%d piece=%d/%d of %d groups=%d", p->axis, p->piece, p->pieces,
                    p->chunks, p->groups);
    }
}

void attr_dump(Op op, const Attr *t, FILE *f)
{
    bool theirs = attrs_of[op][0] == TO && t->to == DT_NONE;    /* a product's own type */
    if (attrs_of[op][0] == NONE_LEFT || theirs)
        return;
    fputs(" {", f);
    for (const uint8_t *k = attrs_of[op]; *k; k++) {
        const void *at = field_of(t, *k);
        if (is_array(*k))
            dump_array(known[*k].name, array_of(t, *k), length(t, *k), f);
        else if (known[*k].kind == NUMBER)
            fprintf(f, " %s=%lld", known[*k].name, (long long)*(const int64_t *)at);
        else if (known[*k].kind == REAL)
            fprintf(f, " %s=%.9g", known[*k].name, *(const double *)at);
        else if (known[*k].kind == CHOICE)
            fprintf(f, " %s=%d", known[*k].name, *(const int *)at);
        else if (*k == CUSTOM)
            fprintf(f, " function=%s", t->custom->function);
        else if (*k == BODY)
            fprintf(f, " states=%u sequences=%u%s", t->recurrence->states, t->recurrence->sequences,
                    t->recurrence->reverse ? " reverse" : "");
        else if (known[*k].kind == RECORD)
            dump_attention(t->attention, f);
        else if (known[*k].kind == PART)
            dump_piece(t->piece, f);
        else if (t->to != DT_NONE)
            fprintf(f, " %s=%s", known[*k].name, dtype_name(t->to));
    }
    fputs(" }", f);
}

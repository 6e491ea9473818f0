/*
 * dtype.c - element types, shapes and their text.
 */
#include <string.h>

#include "ir.h"

enum { REAL = 1, HALF, BFLOAT, MINI, SIGNED, UNSIGNED, FLAG, OPAQUE };

static const struct {
    const char *name;
    int bits;
    int kind;
    uint32_t field;
    Dtype held;
} types[DT_LAST + 1] = {
#define DTYPE(name, number, text, bits, kind, stored, field, held, safetensors, npy, code) \
    [DT_##name] = {text, bits, kind, field, DT_##held},
#include "base/file/dtype.def"
#undef DTYPE
};

static bool has_row(Dtype t) { return t <= DT_LAST && types[t].name; }

int dtype_bits(Dtype t) { return has_row(t) ? types[t].bits : 0; }

size_t dtype_size(Dtype t) { return (size_t)dtype_bits(t) / 8; }

/* OCP 8-bit Floating Point and Microscaling Formats (MX) 1.0; FNUZ: Noune et al., 2206.02915 */
const MiniFormat *dtype_mini(Dtype t)
{
    static const MiniFormat formats[DT_LAST + 1] = {
        [DT_F8E4M3FN] = {3, 7, 448, MINI_NAN},
        [DT_F8E4M3FNUZ] = {3, 8, 240, MINI_UNSIGNED_ZERO},
        [DT_F8E5M2] = {2, 15, 57344, MINI_IEEE},
        [DT_F8E5M2FNUZ] = {2, 16, 57344, MINI_UNSIGNED_ZERO},
        [DT_F4E2M1] = {1, 1, 6, MINI_FINITE},
        [DT_F8E8M0] = {0, 127, 0x1p127, MINI_SCALE},
    };
    return t <= DT_LAST && formats[t].most > 0 ? &formats[t] : NULL;
}

const char *dtype_name(Dtype t)
{
    return t == DT_NONE ? "none" : has_row(t) ? types[t].name : "type?";
}

uint32_t dtype_onnx_field(Dtype t) { return has_row(t) ? types[t].field : 0; }

bool dtype_is_float(Dtype t)
{
    return has_row(t) &&
           (types[t].kind == REAL || types[t].kind == HALF || types[t].kind == BFLOAT);
}

bool dtype_is_half(Dtype t)
{
    return has_row(t) && (types[t].kind == HALF || types[t].kind == BFLOAT);
}

Dtype dtype_sum(Dtype t) { return dtype_is_half(t) ? DT_F32 : t; }

bool dtype_is_signed(Dtype t) { return has_row(t) && types[t].kind == SIGNED; }

bool dtype_is_computable(Dtype t) { return t != DT_NONE && dtype_held(t) == t; }

Dtype dtype_held(Dtype t) { return has_row(t) ? types[t].held : DT_NONE; }

bool shape_countable(const Shape *s, int64_t *n)
{
    enum { MOST_ELEMENTS_LOG2 = 56 };
    *n = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 0 || s->d[i] >> MOST_ELEMENTS_LOG2 ||
            __builtin_mul_overflow(*n, s->d[i], n) || *n >> MOST_ELEMENTS_LOG2)
            return false;
    return true;
}

enum { DIMS_TEXT = MAX_RANK * 24 };

static const char *dims_text(const Shape *s, char text[DIMS_TEXT])
{
    char *p = text;
    *p = '\0';
    for (int i = 0; i < s->rank; i++)
        p += snprintf(p, DIMS_TEXT - (size_t)(p - text), "%s%lld", i ? "," : "",
                      (long long)s->d[i]);
    return text;
}

int64_t size_gcd(int64_t x, int64_t y)
{
    for (int64_t rest; y; y = rest) {
        rest = x % y;
        x = y;
    }
    return x < 0 ? -x : x;
}

int64_t shape_elements(const Shape *s)
{
    int64_t n;
    char text[DIMS_TEXT];
    if (!shape_countable(s, &n))
        diag_fatal(EXIT_MODEL, WHERE_NONE, "a shape's element count overflows 56 bits: [%s]",
                   dims_text(s, text));
    return n;
}

bool shape_equal(const Shape *a, const Shape *b)
{
    return a->rank == b->rank && !memcmp(a->d, b->d, (size_t)a->rank * sizeof a->d[0]);
}

Shape shape_of(int rank, ...)
{
    Shape s = {.rank = rank};
    va_list ap;
    va_start(ap, rank);
    for (int i = 0; i < rank; i++)
        s.d[i] = va_arg(ap, int64_t);
    va_end(ap);
    return s;
}

int64_t shape_between(const Shape *s, int from, int end)
{
    int64_t n = 1;
    for (int i = from; i < end; i++)
        n *= s->d[i];
    return n;
}

Shape shape_with(const Shape *s, int dim, int64_t n)
{
    Shape more = *s;
    INSIST(s->rank < MAX_RANK);
    memcpy(more.d + dim + 1, s->d + dim, (size_t)(more.rank++ - dim) * sizeof *s->d);
    more.d[dim] = n;
    return more;
}

Shape shape_without(const Shape *s, int dim)
{
    Shape less = *s;
    memcpy(less.d + dim, s->d + dim + 1, (size_t)(--less.rank - dim) * sizeof *s->d);
    return less;
}

Shape shape_turned(const Shape *s, bool turned)
{
    return turned ? shape_of(2, s->d[1], s->d[0]) : *s;
}

char *shape_print(Arena *a, Dtype t, const Shape *s)
{
    char text[DIMS_TEXT];
    return arena_printf(a, "%s[%s]", dtype_name(t), dims_text(s, text));
}

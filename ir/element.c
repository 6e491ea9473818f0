/*
 * element.c - single elements of arrays in memory: every element type's bytes to a number and back.
 * Whole numbers pass through 128 bits, so that all of i64 and of u64 fit.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "element.h"

/* ---- real numbers as whole ones ---- */

int64_t element_int64(double v)
{
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

static int32_t to_int32(double v)
{
    return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN;
}

static uint64_t to_uint64(double v)
{
    return v >= 0x1p63 && v < 0x1p64 ? (uint64_t)v : (uint64_t)element_int64(v);
}

/* ---- elements ---- */

/* By value and in place: memcpy, as bytes mapped from a file stand at any address.  i may be below
 * 0: a view runs backwards from where it begins. */
#define AT(bytes) ((ptrdiff_t)i * (ptrdiff_t)(bytes))
#define LOAD(T) T x; memcpy(&x, (const uint8_t *)data + AT(sizeof x), sizeof x)
#define STORE(T, v) T x = (T)(v); memcpy((uint8_t *)data + AT(sizeof x), &x, sizeof x)

NORETURN static void no_number(Dtype t) { BUG("an element of type %s", dtype_name(t)); }

static double mini_double(const MiniFormat *f, Dtype t, uint8_t code)
{
    int width = dtype_bits(t), sign = f->kind == MINI_SCALE ? 0 : code >> (width - 1),
        rest = code & ((1 << (width - (f->kind != MINI_SCALE))) - 1);
    int exponent = rest >> f->fraction, digits = rest & ((1 << f->fraction) - 1),
        top = (1 << (width - 1 - f->fraction)) - 1;
    if (f->kind == MINI_SCALE)
        return code == 0xff ? (double)NAN : ldexp(1, code - f->bias);
    if (f->kind == MINI_IEEE && exponent == top)
        return digits ? (double)NAN : sign ? -(double)INFINITY : (double)INFINITY;
    if ((f->kind == MINI_NAN && rest == (1 << (width - 1)) - 1) ||
        (f->kind == MINI_UNSIGNED_ZERO && sign && rest == 0))
        return (double)NAN;
    int one = exponent ? 1 << f->fraction : 0;
    double x = ldexp(one + digits, (exponent ? exponent : 1) - f->bias - f->fraction);
    return sign ? -x : x;
}

void element_doubles(Dtype t, const void *data, int64_t from, int64_t n, double *out)
{
    const uint8_t *at = (const uint8_t *)data + (t == DT_F32 ? (size_t)from * sizeof(float) : 0);
    for (int64_t i = 0; i < n; i++) {
        float x;
        if (t == DT_F32) {
            memcpy(&x, at + (size_t)i * sizeof x, sizeof x);
            out[i] = (double)x;
        } else {
            out[i] = element_double(t, data, from + i);
        }
    }
}

double element_double(Dtype t, const void *data, int64_t i)
{
    switch (t) {
#define GET_REAL(T) LOAD(T); return (double)x;
#define GET_HALF(T) LOAD(T); return half_to_double(x);
#define GET_BFLOAT(T) LOAD(T); return bfloat_to_double(x);
#define GET_MINI(T) LOAD(T); return mini_double(dtype_mini(t), t, x);
#define GET_SIGNED(T) LOAD(T); return (double)x;
#define GET_UNSIGNED(T) LOAD(T); return (double)x;
#define GET_FLAG(T) LOAD(T); return x ? 1 : 0;
#define GET_OPAQUE(T) no_number(t);
#define DTYPE(name, number, text, bits, kind, stored, ...) case DT_##name: { GET_##kind(stored) }
#include "base/file/dtype.def"
#undef DTYPE
    default: no_number(t);
    }
}

Wide element_wide(Dtype t, const void *data, int64_t i)
{
    switch (t) {
#define WHOLE_REAL(T) return element_int64(element_double(t, data, i));
#define WHOLE_HALF(T) return element_int64(element_double(t, data, i));
#define WHOLE_BFLOAT(T) return element_int64(element_double(t, data, i));
#define WHOLE_MINI(T) return element_int64(element_double(t, data, i));
#define WHOLE_SIGNED(T) LOAD(T); return x;
#define WHOLE_UNSIGNED(T) LOAD(T); return x;
#define WHOLE_FLAG(T) LOAD(T); return x != 0;
#define WHOLE_OPAQUE(T) no_number(t);
#define DTYPE(name, number, text, bits, kind, stored, ...) case DT_##name: { WHOLE_##kind(stored) }
#include "base/file/dtype.def"
#undef DTYPE
    default: no_number(t);
    }
}

void element_set_wide(Dtype t, void *data, int64_t i, Wide v)
{
    switch (t) {
#define PUT_REAL(T) STORE(T, v); return;                /* one rounding, not through double */
#define PUT_HALF(T) STORE(T, half_of_double((double)v)); return;
#define PUT_BFLOAT(T) STORE(T, bfloat_of_double((double)v)); return;
#define PUT_MINI(T) no_number(t);                      /* held as f32 */
#define PUT_SIGNED(T) STORE(T, v); return;
#define PUT_UNSIGNED(T) STORE(T, v); return;
#define PUT_FLAG(T) STORE(T, v != 0); return;
#define PUT_OPAQUE(T) no_number(t);
#define DTYPE(name, number, text, bits, kind, stored, ...) case DT_##name: { PUT_##kind(stored) }
#include "base/file/dtype.def"
#undef DTYPE
    default: no_number(t);
    }
}

void element_set_double(Dtype t, void *data, int64_t i, double v)
{
    switch (t) {
#define ROUND_REAL(T) STORE(T, v); return;
#define ROUND_HALF(T) STORE(T, half_of_double(v)); return;
#define ROUND_BFLOAT(T) STORE(T, bfloat_of_double(v)); return;
#define ROUND_MINI(T) no_number(t);
#define ROUND_SIGNED(T) STORE(T, sizeof(T) == 4 ? to_int32(v) : element_int64(v)); return;
#define ROUND_UNSIGNED(T)                                                                          \
    STORE(T, sizeof(T) == 8 ? to_uint64(v) : (uint64_t)element_int64(v));                          \
    return;
#define ROUND_FLAG(T) STORE(T, v < 0 || v > 0 || isnan(v)); return;
#define ROUND_OPAQUE(T) no_number(t);
#define DTYPE(name, number, text, bits, kind, stored, ...) case DT_##name: { ROUND_##kind(stored) }
#include "base/file/dtype.def"
#undef DTYPE
    default: no_number(t);
    }
}

void element_set_int(Dtype t, void *data, int64_t i, int64_t v) { element_set_wide(t, data, i, v); }

int64_t element_int(Dtype t, const void *data, int64_t i)
{
    return (int64_t)element_wide(t, data, i);
}

void element_copy(Dtype to, void *out, Dtype from, const void *in, int64_t i)
{
    if (dtype_is_float(from) || dtype_mini(from))
        element_set_double(to, out, i, element_double(from, in, i));
    else
        element_set_wide(to, out, i, element_wide(from, in, i));
}

double dtype_round(Dtype t, double v)
{
    double rounded;
    INSIST(dtype_is_computable(t) && dtype_is_float(t));
    if (dtype_is_half(t))
        v = dtype_round(DT_F32, v);
    element_set_double(t, &rounded, 0, v);
    return element_double(t, &rounded, 0);
}

/* each equals the one before it */
bool blocks_equal(const void *at, int64_t runs, int64_t n, size_t block)
{
    const char *first = at;
    bool equal = true;
    for (int64_t r = 0; r < runs && n > 1 && equal; r++, first += (size_t)n * block)
        equal = !memcmp(first, first + block, (size_t)(n - 1) * block);
    return equal;
}

/*
 * dtype.c - element types, shapes and their text.
 */
#include <string.h>

#include "ir.h"

static const struct { const char *name, *safetensors; size_t size; } types[DT_LAST + 1] = {
    [DT_NONE] = {"none", "", 0},       [DT_F32] = {"f32", "F32", 4},    [DT_U8] = {"u8", "U8", 1},
    [DT_I8] = {"i8", "I8", 1},         [DT_U16] = {"u16", "U16", 2},    [DT_I16] = {"i16", "I16", 2},
    [DT_I32] = {"i32", "I32", 4},      [DT_I64] = {"i64", "I64", 8},    [DT_STRING] = {"string", "", 0},
    [DT_BOOL] = {"bool", "BOOL", 1},   [DT_F16] = {"f16", "F16", 2},    [DT_F64] = {"f64", "F64", 8},
    [DT_U32] = {"u32", "U32", 4},      [DT_U64] = {"u64", "U64", 8},    [DT_C64] = {"c64", "C64", 8},
    [DT_C128] = {"c128", "", 16},      [DT_BF16] = {"bf16", "BF16", 2},
};

size_t dtype_size(Dtype t) { return t <= DT_LAST ? types[t].size : 0; }

const char *dtype_name(Dtype t) { return t <= DT_LAST && types[t].name ? types[t].name : "type?"; }

const char *dtype_safetensors(Dtype t) { return types[t].safetensors; }

bool dtype_is_float(Dtype t) { return t == DT_F32 || t == DT_F64 || t == DT_F16 || t == DT_BF16; }

bool dtype_is_computable(Dtype t)
{
    return t == DT_F32 || t == DT_F64 || t == DT_I32 || t == DT_I64 || t == DT_BOOL;
}

int64_t shape_elements(const Shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 0 || __builtin_mul_overflow(n, s->d[i], &n))
            diag_fatal(EXIT_MODEL, WHERE_NONE, "a shape's element count overflows 63 bits");
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

char *shape_print(Arena *a, Dtype t, const Shape *s)
{
    char text[MAX_RANK * 24], *p = text;
    *p = '\0';
    for (int i = 0; i < s->rank; i++)
        p += snprintf(p, sizeof text - (size_t)(p - text), "%s%lld", i ? "," : "", (long long)s->d[i]);
    return arena_printf(a, "%s[%s]", dtype_name(t), text);
}

/*
 * type.c - element types in generated code, from the CODE column of dtype.def: C types, suffixes,
 * literals, extremes, and the names that the runtime and the libraries have for them.  A type
 * without that column is refused.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cg.h"

typedef struct {
    const char *type, *local, *narrowing, *suffix, *literal, *lowest, *highest, *nan, *library;
    Dtype sum;
    const char *half, *runtime;
} TypeText;

static const TypeText text[DT_LAST + 1] = {
#define CODE(type, local, narrowing, suffix, literal, lowest, highest, nan, library, sum) \
    type, local, narrowing, suffix, literal, lowest, highest, nan, library, DT_##sum
#define NO_CODE NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, DT_NONE
#define WHOLE(text) NULL
#define HALF(text) text
#define BFLOAT(text) text
#define MINI WHOLE
#define REAL WHOLE
#define SIGNED WHOLE
#define UNSIGNED WHOLE
#define FLAG WHOLE
#define OPAQUE WHOLE
#define ROW(name, half, ...) [DT_##name] = {__VA_ARGS__, half, "PP_" #name},
#define DTYPE(name, number, text, bits, kind, stored, field, held, safetensors, npy, code)        \
    ROW(name, kind(text), code)
#include "base/file/dtype.def"
};

static const TypeText *of(Dtype t)
{
    if (t > DT_LAST || !text[t].type)
        BUG("no code for elements of type %s", dtype_name(t));
    return &text[t];
}

const char *cg_ctype(Dtype t) { return of(t)->type; }

const char *type_local(Dtype t) { return of(t)->local; }

const char *type_suffix(Dtype t) { return of(t)->suffix; }

const char *type_lowest(Dtype t) { return of(t)->lowest; }

const char *type_highest(Dtype t) { return of(t)->highest; }

const char *type_library(Dtype t) { return of(t)->library; }

const char *type_runtime(Dtype t) { return of(t)->runtime; }

const char *type_sum(Dtype t) { return cg_ctype(of(t)->sum); }

/* "pp_from_bf16(x)"; x itself where t is no half. */
static const char *by_half(Arena *a, const char *function, Dtype t, const char *x)
{
    const char *half = of(t)->half;
    return half ? arena_printf(a, "pp_%s_%s(%s)", function, half, x) : x;
}

const char *type_read(Arena *a, Dtype t, const char *x) { return by_half(a, "from", t, x); }

const char *type_rounded(Arena *a, Dtype t, const char *x) { return by_half(a, "round", t, x); }

const char *type_nearest(Arena *a, Dtype t, const char *x) { return by_half(a, "nearest", t, x); }

const char *type_written(Arena *a, Dtype t, const char *x, bool rounded)
{
    return by_half(a, rounded ? "pack" : "to", t, x);
}

const char *type_narrowing(Dtype t) { return of(t)->narrowing; }

const char *cg_stored_number(Arena *a, Dtype t, double f, int64_t i)
{
    uint16_t bits;
    if (!dtype_is_half(t))
        return cg_number(a, t, f, i);
    element_set_double(t, &bits, 0, f);
    return arena_printf(a, "0x%04x", bits);
}

/* A literal that reads back to the same value in any locale. */
const char *cg_number(Arena *a, Dtype t, double f, int64_t i)
{
    if (!dtype_is_float(t)) {
        if ((t == DT_I64 && i == INT64_MIN) || (t == DT_I32 && i == INT32_MIN))
            return type_lowest(t); /* C has no literal of it: a minus is an operator */
        bool wide = i > INT32_MAX || i < -INT32_MAX;
        return arena_printf(a, wide ? "INT64_C(%" PRId64 ")" : "%" PRId64, i);
    }
    if (dtype_is_half(t)) {                             /* the float that is this half */
        f = dtype_round(t, f);
        t = DT_F32;
    }
    if (isnan(f))
        return of(t)->nan;
    if (isinf(f))
        return f < 0 ? type_lowest(t) : type_highest(t);
    char *s = arena_printf(a, "%.17g", f);
    for (int digits = 1; digits < 17; digits++) {       /* the shortest that reads back */
        char *shorter = arena_printf(a, "%.*g", digits, f);
        double back = dtype_round(t, strtod(shorter, NULL)), is = dtype_round(t, f);
        if (!(back < is) && !(back > is)) {
            s = shorter;
            break;
        }
    }
    for (char *p = s; *p; p++)
        if (*p == ',')
            *p = '.';
    bool dot = strpbrk(s, ".e") != NULL;
    return arena_printf(a, "%s%s%s", s, dot ? "" : ".0", of(t)->literal);
}

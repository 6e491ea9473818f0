/*
 * type.h - element types, shapes, and tensors in memory.
 */
#ifndef PPSPLIT_TYPE_H
#define PPSPLIT_TYPE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TensorProto.DataType: DT_F32 = 1, ...; one row each in dtype.def. */
typedef enum {
    DT_NONE = 0,
#define DTYPE(name, number, ...) DT_##name = number,
#include "base/file/dtype.def"
#undef DTYPE
    DT_LAST = 26 /* the greatest that ONNX has */
} Dtype;

enum { MAX_RANK = 16 };
typedef struct { int rank; int64_t d[MAX_RANK]; } Shape;

/*
 * A float of 8 bits or fewer: a sign (MINI_SCALE has none), an exponent, `fraction` bits.  All its
 * numbers are numbers of f32, which stands for it in the graph.
 */
typedef struct {
    int fraction, bias;
    double most; /* the largest finite one */
    enum {
        MINI_IEEE = 1,      /* infinities and NaN, as in f32 */
        MINI_NAN,           /* no infinity; all bits but the sign: NaN */
        MINI_UNSIGNED_ZERO, /* the sign alone: NaN */
        MINI_FINITE,        /* neither */
        MINI_SCALE          /* powers of two; all bits: NaN */
    } kind;
} MiniFormat;

/* dtype.c */
/* bytes of an element; 0 for strings and for types smaller than a byte */
size_t dtype_size(Dtype t);
int dtype_bits(Dtype t);                                /* of an element; 0 for strings */
/* of a float of 8 bits or fewer; NULL: another type */
const MiniFormat *dtype_mini(Dtype t);
const char *dtype_name(Dtype t);                        /* "f32", "i64", "bool", ... */
/* the repeated field of TensorProto with such elements; 0: none */
uint32_t dtype_onnx_field(Dtype t);
bool dtype_is_float(Dtype t);
bool dtype_is_half(Dtype t);                            /* f16, bf16: computed in f32 */
bool dtype_is_signed(Dtype t);                          /* a whole number that may be negative */
bool dtype_is_computable(Dtype t);                      /* f32 f64 f16 bf16 i32 i64 bool */
/* the computable type that stands for t; DT_NONE: none */
Dtype dtype_held(Dtype t);
/* the type in which numbers of type t are added up: f32 for a half */
Dtype dtype_sum(Dtype t);
/* true if no dim is negative, and each dim and their product fit in 56 bits, so that bytes and
   strides fit in 63. */
bool shape_countable(const Shape *s, int64_t *n);
/* fatal for the model if the shape is not countable */
int64_t shape_elements(const Shape *s);
int64_t size_gcd(int64_t x, int64_t y);                 /* of 0 and y: y */
bool shape_equal(const Shape *a, const Shape *b);
Shape shape_of(int rank, ...);                          /* int64_t each */
int64_t shape_between(const Shape *s, int from, int end); /* product of dims from .. end - 1 */
Shape shape_with(const Shape *s, int dim, int64_t n);     /* with one of n before number `dim' */
Shape shape_without(const Shape *s, int dim);
Shape shape_turned(const Shape *s, bool turned);        /* its two dims exchanged, where they are */
char *shape_print(Arena *a, Dtype t, const Shape *s);   /* "f32[4,8,128,64]" */

/* Dense row-major bytes in memory: constants, and what the evaluator computes with. */
typedef struct { Dtype dtype; Shape shape; void *data; } Tensor;

/* element.c: element i of an array in memory, of any type with numbers and at any alignment.  Real
   numbers become whole ones by dropping the fraction, and what 64 bits cannot hold becomes the
   least; halves are rounded to nearest even. */
/* a real number as a whole one, as x86 converts: what no 64 bits hold becomes the smallest */
int64_t element_int64(double v);
double element_double(Dtype t, const void *data, int64_t i);
/* elements from, from + 1, ... as n doubles */
void element_doubles(Dtype t, const void *data, int64_t from, int64_t n, double *out);
int64_t element_int(Dtype t, const void *data, int64_t i);
void element_set_double(Dtype t, void *data, int64_t i, double v);
void element_set_int(Dtype t, void *data, int64_t i, int64_t v);
/* the nearest value of a computable float type; of a half type: of the nearest f32 */
double dtype_round(Dtype t, double v);
/* element i, whole numbers exactly */
void element_copy(Dtype to, void *out, Dtype from, const void *in, int64_t i);
/* Are the n blocks of each run the same bytes? */
bool blocks_equal(const void *at, int64_t runs, int64_t n, size_t block);

/* Bytes of a tensor still in its file (mapped, not copied). */
typedef struct {
    const uint8_t *at;                                  /* NULL: all zeros (a restored bias) */
    size_t length;
    const char *file;                                   /* the path it was mapped from */
    uint64_t offset;                                    /* in that file, for --params link */
    /* typed data arrays were unpacked into the arena: no offset */
    bool converted;
    /* its file is not there: at is zeros (--params none) */
    bool absent;
} Payload;

#ifdef __cplusplus
}
#endif
#endif

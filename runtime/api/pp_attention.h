/*
 * pp_attention.h - y = dropout(softmax(scale q k' + bias, where allowed)) v for many matrices at
 * once, and its gradients: what is computed, on which memory.  On CPUs: device/cpu/attention.c; on
 * GPUs: device/cuda/attention_cuda.cu.  Neither leaves the scores in memory; both have the same
 * bits every time.  Plain C and C++.
 */
#ifndef PP_ATTENTION_CALL_H
#define PP_ATTENTION_CALL_H

#include <stdbool.h>

#include "pp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PLACES: so many threads of a CPU at most have matrices of their own; LEAST, MOST, SCORES: rows
   of a matrix that are computed at once, and about so many scores of them */
enum {
    PP_ATTENTION_DIMS = 8,
    PP_ATTENTION_WIDTH = 256,
    PP_ATTENTION_PLACES = 32,
    PP_ATTENTION_LEAST = 128,
    PP_ATTENTION_MOST = 1024,
    PP_ATTENTION_SCORES = 1 << 21
};

/* Row r, column c of matrix (i0, i1, ..): at + r row + c col + sum of batch[d] i_d, in elements. at
   NULL: none.  On CPUs row or col is 1, but of bias, allowed and stats. */
typedef struct {
    void *at;
    int64_t row, col, batch[PP_ATTENTION_DIMS];
} PpMatrix;
typedef struct {
    /* PP_F32, PP_BF16 or PP_F16: of q, k, v, y and their gradients; of bias */
    int dtype, bias_dtype;
    /* queries and keys of a matrix; columns of q and k, of v and y: at most PP_ATTENTION_WIDTH */
    int64_t rows, keys;
    int width, width_v;
    int dims;                                           /* count[0] * count[1] * .. matrices */
    int64_t count[PP_ATTENTION_DIMS];
    float scale;
    /* fill: what a masked score is: one of a key beyond row + diagonal (causal), and one that
       `allowed` does not allow, or forbids; a causal fill is so low that e^(fill - x) is 0, and
       diagonal >= 0; of the keys up to the diagonal only the last `window` are allowed (0: all),
       some in each row */
    struct {
        float fill;
        bool causal, forbids;
        int64_t diagonal, window;
    } mask;
    PpMatrix q, k, v, y, bias, allowed;                 /* k: [keys, width]; allowed: bytes */
    /* float32 [rows, 2], maximum and 1 / sum: forward writes it where there is one */
    PpMatrix stats;
    /* dropout: what a kept score is multiplied with; a number below limit drops (0: none); a
       matrix' row and its first element in the generator, see pp_random.h; first: of matrix 0 */
    struct {
        float kept;
        uint64_t limit, seed, step, row0;
        uint32_t key;
        int64_t first, row[PP_ATTENTION_DIMS], element[PP_ATTENTION_DIMS];
    } drop;
    PpMatrix dy, dq, dk, dv;                            /* backward */
    /* on CPUs of pp_attention_room(); on GPUs, backward, a number for each row of each matrix */
    float *room;
} PpAttention;

void pp_attention(const PpCtx *c, const PpAttention *a);
void pp_attention_backward(const PpCtx *c, const PpAttention *a);

/* Dimensions along which the gradients of keys and values stay in place go behind the others.  So
   many neighbouring matrices then share those gradients: their owner adds them up in order. */
static inline int64_t pp_attention_group(PpAttention *a)
{
    PpMatrix *const matrix[] = {&a->q,     &a->k,  &a->v,  &a->y,  &a->bias, &a->allowed,
                                &a->stats, &a->dy, &a->dq, &a->dk, &a->dv};
    enum { MATRICES = sizeof matrix / sizeof *matrix };
    int64_t *list[MATRICES + 3] = {a->count, a->drop.row, a->drop.element};
    int64_t group = 1;
    for (int m = 0; m < MATRICES; m++)
        list[3 + m] = matrix[m]->batch;
    for (int i = a->dims - 1, last = a->dims - 1; i >= 0; i--) {
        if (a->dk.batch[i] != 0 || a->dv.batch[i] != 0)
            continue;
        group *= a->count[i];
        for (int l = 0; l < MATRICES + 3; l++)
            for (int d = i; d < last; d++) {
                const int64_t t = list[l][d];
                list[l][d] = list[l][d + 1];
                list[l][d + 1] = t;
            }
        last--;
    }
    return group;
}

/* Elements from row to row of scores: of long rows no large power of two; of a row of float32. */
static inline int64_t pp_attention_line(int64_t keys)
{
    const int64_t line = (keys + 15) / 16 * 16;
    return line % 128 == 0 ? line + 16 : line;
}
static inline int64_t pp_attention_row(int64_t keys) { return (keys + 15) / 16 * 16 + 48; }
/* Elements of the gradient of keys or values. */
static inline int64_t pp_attention_gradient(const PpAttention *a)
{
    return (a->keys * (a->width > a->width_v ? a->width : a->width_v) + 15) / 16 * 16;
}

/* Rows of a matrix that a CPU computes at once: all of few, of many some tiles of a band. */
static inline int64_t pp_attention_strip(int64_t rows, int64_t keys)
{
    const int64_t least = PP_ATTENTION_LEAST, most = PP_ATTENTION_MOST;
    int64_t n = PP_ATTENTION_SCORES / pp_attention_line(keys) / PP_TILE * PP_TILE;
    n = n < least ? least : n > most ? most : n;
    const int64_t strips = (rows + n - 1) / n, each = strips ? (rows + strips - 1) / strips : 0;
    return strips > 1 ? (each + PP_TILE - 1) / PP_TILE * PP_TILE : rows;
}

/* What a CPU needs for so many matrices: for each of `places` threads the scores of a strip, of 16
   bits forward y in float32 as well, backward two, so for half as many, and, of 16 bits, the
   gradients that several strips or queries add up to; for each thread that may be some rows.  Of
   more rows or keys it is no less. */
typedef struct {
    int64_t places, place, row, bytes;
} PpAttentionRoom;
static inline PpAttentionRoom pp_attention_room(const PpAttention *a, int64_t matrices, int shared,
                                                int back)
{
    const int64_t half = a->dtype != PP_F32, drops = a->drop.limit > 0,
                  line = pp_attention_line(a->keys), about = PP_ATTENTION_SCORES,
                  least = PP_ATTENTION_LEAST * line, strip = least > about ? least : about,
                  scores = 4 * (a->rows * line < strip ? a->rows * line : strip),
                  high = PP_ATTENTION_MOST, most_rows = a->rows < high ? a->rows : high,
                  sums = (4 * most_rows * (a->width_v + 1) + 63) / 64 * 64,
                  rows = back ? (drops ? 3 + half : 2 * half) : (drops ? 2 : half);
    PpAttentionRoom r = {0, scores, 4 * rows * pp_attention_row(a->keys), 0};
    const int64_t most = PP_ATTENTION_PLACES, own = back ? (matrices + 1) / 2 : matrices;
    const int several = shared || pp_attention_strip(a->rows, a->keys) < a->rows;
    r.places = own < most ? own : most;
    if (back)
        r.place = 2 * scores + (half && several ? 8 * pp_attention_gradient(a) : 0);
    else if (half)
        r.place += sums;
    r.bytes = r.places * r.place + most * r.row;
    return r;
}

#ifdef __cplusplus
}
#endif

#endif

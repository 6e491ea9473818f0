/*
 * pp_order.h - the order in which a device adds up: how many threads share a row or a column, and
 * the stretches that blocks share one in.  In: how many rows there are and how long they are.  The
 * compiler asks where sizes are known, and a program where lengths decide them, with the same
 * answer: a sequence of any length is added up as in the program of that length (docs/numbers.md).
 */
#ifndef PP_ORDER_H
#define PP_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* PP_BUSY: blocks that keep a large device busy, two for each of 132 multiprocessors */
enum { PP_BLOCK = 256, PP_WARP = 32, PP_MOST_BLOCK = 1024, PP_BUSY = 264, PP_WARP_ROW = 1024 };

static inline int64_t pp_up(int64_t n, int64_t to) { return (n + to - 1) / to; }

/* Rows of `length' elements, of which a thread takes `vec' neighbours at once. */
typedef struct {
    int64_t rows, length;
    int vec;
    /* passes over a row, and 32-bit words of an element that stay with its thread meanwhile */
    int passes, words;
    bool whole;  /* a block takes it, whatever its length */
    bool beside; /* neighbours in memory are the same element of neighbouring rows */
    bool parts;  /* blocks may share a row */
} PpRows;

/* threads: 1; PP_WARP, or as many of a warp as there is something for; else a block's.  parts:
 * stretches of `size' elements of a row, a block for each. */
typedef struct {
    int threads, vec;
    int64_t parts, size;
} PpRowOrder;

static inline PpRowOrder pp_row_order(PpRows r)
{
    enum { FEW_ROWS = 64, MANY_ROWS = 1024, SHORT_ROW = 128, LEAST_BLOCK = 128, HELD = 32 };
    enum { REGISTERS = 64, LOADS = 8 };
    const int64_t step = (int64_t)PP_BLOCK * r.vec, wanted = r.rows ? PP_BUSY / r.rows : 1,
                  possible = r.length / (step * LOADS), vectors = pp_up(r.length, r.vec);
    PpRowOrder o = {PP_WARP, r.vec, wanted < possible ? wanted : possible, r.length};
    const bool short_row = r.rows > 1 && !r.whole && r.length <= PP_WARP_ROW,
               held = r.passes > 1 && r.length <= PP_MOST_BLOCK * HELD;
    if (o.parts > 1 && r.parts && !held) {
        o.threads = PP_BLOCK;
        o.size = pp_up(pp_up(r.length, o.parts), step) * step;
        o.parts = pp_up(r.length, o.size);
        return o;
    }
    o.parts = 1;
    if (short_row && r.beside && r.rows >= MANY_ROWS)
        o.threads = 1;
    else if (!short_row || (r.rows < FEW_ROWS && r.length > SHORT_ROW)) {
        o.threads = LEAST_BLOCK;
        while (o.threads < PP_MOST_BLOCK && o.threads < pp_up(vectors, 4))
            o.threads *= 2;
        while (o.threads < PP_MOST_BLOCK &&
               r.words * pp_up(r.length, (int64_t)o.threads * r.vec) * r.vec > REGISTERS)
            o.threads *= 2;
    }
    return o;
}

/* Columns that are summed over rows: y threads of a block take every y-th row of a stretch, for x
 * times vec columns. */
typedef struct {
    int x, y, vec;
    int64_t parts, stretch;
} PpColumnOrder;

static inline PpColumnOrder pp_column_order(int64_t columns, int64_t rows, int vec, bool parts)
{
    enum { LOADS = 8 };
    PpColumnOrder o = {1, 0, vec, 1, rows};
    while (o.x < PP_WARP && (int64_t)o.x * vec < columns)
        o.x *= 2;
    /* no more than there are rows, but a thread for each column at the end */
    for (o.y = PP_BLOCK / o.x; o.y > vec && o.y / 2 >= rows;)
        o.y /= 2;
    const int64_t tiles = pp_up(columns, (int64_t)o.x * vec), wanted = tiles ? PP_BUSY / tiles : 1,
                  possible = rows / (o.y * LOADS), most = wanted < possible ? wanted : possible;
    if (most > 1 && parts) {
        o.stretch = pp_up(pp_up(rows, most), o.y) * o.y;
        o.parts = pp_up(rows, o.stretch);
    }
    return o;
}

#endif

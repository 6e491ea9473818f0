/*
 * weights.c - a parameter's bytes out of the mapped file, in PyTorch's shape: the first moment at
 * which weights are read at all.
 */
#include <string.h>

#include "frontend/frontend.h"

size_t param_size(const Param *p)
{
    return (size_t)shape_elements(&p->shape) * dtype_size(p->dtype);
}

/* Tiles keep both sides of the exchange in cache. */
void param_turn(uint8_t *out, const uint8_t *in, int64_t rows, int64_t cols, size_t size)
{
    enum { TILE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
                    memcpy(out + (size_t)(c * rows + r) * size, in + (size_t)(r * cols + c) * size,
                           size);
}

void param_bytes(const Param *p, void *out)
{
    size_t n = param_size(p);
    if (!p->bytes.at) {
        memset(out, 0, n);
        return;
    }
    INSIST(p->bytes.length == n);
    if (p->transposed && p->shape.rank == 2)
        param_turn(out, p->bytes.at, p->shape.d[1], p->shape.d[0], dtype_size(p->dtype));
    else
        memcpy(out, p->bytes.at, n);
}

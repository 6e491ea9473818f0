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
static void transpose(uint8_t *out, const uint8_t *in, size_t rows, size_t cols, size_t size)
{
    enum { TILE = 32 };
    for (size_t r0 = 0; r0 < rows; r0 += TILE)
        for (size_t c0 = 0; c0 < cols; c0 += TILE)
            for (size_t r = r0; r < rows && r < r0 + TILE; r++)
                for (size_t c = c0; c < cols && c < c0 + TILE; c++)
                    memcpy(out + (r * cols + c) * size, in + (c * rows + r) * size, size);
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
        transpose(out, p->bytes.at, (size_t)p->shape.d[0], (size_t)p->shape.d[1],
                  dtype_size(p->dtype));
    else
        memcpy(out, p->bytes.at, n);
}

/*
 * lin.c - arithmetic of extents and strides: numbers of the form c + b * rows, where rows is the
 * number of rows of the microbatch at hand.
 */
#include <stdlib.h>

#include "nest.h"

bool lin_mul(Lin x, Lin y, Lin *z)
{
    if (x.b != 0 && y.b != 0)
        return false;
    *z = (Lin){x.c * y.c, x.c * y.b + x.b * y.c};
    return true;
}

Lin lin_product(Lin x, Lin y)
{
    Lin z;
    if (!lin_mul(x, y, &z))
        BUG("a size that is not affine in the rows");
    return z;
}

bool lin_chains(Lin outer, Lin inner, Lin ext)
{
    Lin z;
    return lin_mul(inner, ext, &z) && lin_eq(outer, z);
}

int64_t lin_far(Lin x) { return llabs(lin_at(x, 1009)); }

bool lin_div(Lin x, Lin y, Lin *z)
{
    if (y.b == 0) {
        if (y.c == 0 || x.c % y.c != 0 || x.b % y.c != 0)
            return false;
        *z = (Lin){x.c / y.c, x.b / y.c};
        return true;
    }
    /* (c + b r) / (c' + b' r) is exact for every r only as a constant */
    if (x.b % y.b != 0)
        return false;
    int64_t q = x.b / y.b;
    if (x.c != q * y.c)
        return false;
    *z = lin(q);
    return true;
}

bool lin_piece(Lin x, Lin y, Lin *piece)
{
    Lin q;
    const bool whole = lin_div(x, y, &q);
    *piece = whole ? y : x;
    return whole || lin_div(y, x, &q);
}

bool lin_past(Lin *ext, Lin *stride, Lin piece)
{
    return lin_div(*ext, piece, ext) && (lin_is(*ext, 1) || lin_mul(*stride, piece, stride));
}

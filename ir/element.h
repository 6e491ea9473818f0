/*
 * element.h - whole numbers of any element type, in 128 bits.  Private to ir/element.c and the
 * evaluator.
 */
#ifndef PPSPLIT_ELEMENT_H
#define PPSPLIT_ELEMENT_H

#include "ir/ir.h"

__extension__ typedef __int128 Wide;

Wide element_wide(Dtype t, const void *data, int64_t i);
void element_set_wide(Dtype t, void *data, int64_t i, Wide v);

#endif

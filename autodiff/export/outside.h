/* outside.h - constants outside of the ONNX files that read them (outside.c). */
#ifndef PPSPLIT_OUTSIDE_H
#define PPSPLIT_OUTSIDE_H

#include "autodiff/autodiff.h"
#include "base/protobuf.h"

enum { LONG_CONSTANT = 1 << 20 };                       /* bytes from which one stands outside */

/* The bytes of a TensorProto as external data: their SHA-256; NULL, and nothing put, where they are
 * few or o is NULL: they belong inside.  They stay where they are until outside_end(). */
const char *outside_put(OutsideFile *o, PbMessage *tensor, const void *at, size_t n);
/* Refuses a file that nobody could read. */
void onnx_check_size(const char *name, uint64_t n);

#endif

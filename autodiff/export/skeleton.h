/* skeleton.h - what skeleton.c, which writes the model without its trainable bytes, and merge.c,
 * which puts trained ones in, agree on. */
#ifndef PPSPLIT_SKELETON_H
#define PPSPLIT_SKELETON_H

#include "autodiff/autodiff.h"

/* Keys of TensorProto.external_data by which a skeleton's initializer names the parameter it stands
 * for. */
#define SKELETON_PARAMETER "ppsplit.parameter"
#define SKELETON_TRANSPOSED "ppsplit.transposed"
/* Of a constant outside of the skeleton: the checksum of its bytes. */
#define SKELETON_SHA256 "ppsplit.sha256"

#endif

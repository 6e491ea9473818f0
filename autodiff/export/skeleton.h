/* skeleton.h - what skeleton.c, which writes the model without its trainable bytes, and merge.c,
 * which puts trained ones in, agree on. */
#ifndef PPSPLIT_SKELETON_H
#define PPSPLIT_SKELETON_H

#include "autodiff/autodiff.h"
#include "base/protobuf.h"

/* Keys of TensorProto.external_data by which a skeleton's initializer names the parameter it stands
 * for. */
#define SKELETON_PARAMETER "ppsplit.parameter"
#define SKELETON_TRANSPOSED "ppsplit.transposed"
#define SKELETON_TIED "ppsplit.tied" /* another name of it in the model's state_dict */
#define SKELETON_CHANGED                                                                           \
    "ppsplit.changed" /* what folding did to the model's own, whose name it has */
/* Of a constant outside of the skeleton: the checksum of its bytes. */
#define SKELETON_SHA256 "ppsplit.sha256"

/* skeleton_tensor.c: messages in which there are tensors */
typedef enum {
    IN_NOTHING, /* that has any */
    IN_MODEL,
    IN_FUNCTION,
    IN_GRAPH,
    IN_NODE,
    IN_ATTRIBUTE,
    IN_SPARSE,
    IS_TENSOR
} Holder;
Holder holder_of(Holder in, uint32_t field);            /* what this field of such a message is */

/* The elements of a tensor that is no parameter: outside where they are many, wherever they were */
void skeleton_put_elements(OutsideFile *o, PbMessage *tensor, const void *at, size_t n);
/* The field of a message of kind `in`, as it is but for the elements of its constants */
void skeleton_put_field(Model *m, OutsideFile *o, PbMessage *to, const PbField *f, Holder in);

#endif

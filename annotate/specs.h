/* specs.h - the sharding specs of a model's nodes, for write.c; specs.c. */
#ifndef PPSPLIT_ANNOTATE_SPECS_H
#define PPSPLIT_ANNOTATE_SPECS_H

#include "annotate.h"
#include "base/protobuf.h"
#include "frontend/onnx/onnx.h"

typedef struct Specs Specs;

/* of a stage */
int64_t specs_members(const MeshPlans *plans);
Specs *specs_open(Arena *a, const Model *m, const Annotations *what);
/* Those of a node's operands and results, into its NodeDeviceConfigurationProto. */
void specs_put(const Specs *s, PbMessage *entry, uint32_t node);

#endif

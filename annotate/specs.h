/* specs.h - the sharding specs of a model's nodes, for write.c; specs.c. */
#ifndef PPSPLIT_ANNOTATE_SPECS_H
#define PPSPLIT_ANNOTATE_SPECS_H

#include "base/protobuf.h"
#include "check.h"

typedef struct Specs Specs;

/* Where a tensor lies, by axis; the places that follow are of the part that a member has along the
   ones before. */
typedef struct {
    Place at[MESH_AXES];
    Shape shape;
} Lies;

/* of a stage */
int64_t specs_members(const MeshPlans *plans);
Specs *specs_open(Arena *a, const Model *m, const Annotations *what);
/* Where the plans have an operand or a result of a node of the file; false: no spec can say it. */
bool specs_lies(const Specs *s, uint32_t node, const char *tensor, Lies *out);
/* ... as shards on the devices of the first stage; axes: .axis, .members and .chunks of each.
   NULL: no spec can say it, or there are more than `most` shards. */
const Layout *specs_layout(Arena *a, const MeshPlans *axes, const Lies *lies, int64_t most);
/* Those of a node's operands and results, into its NodeDeviceConfigurationProto. */
void specs_put(const Specs *s, PbMessage *entry, uint32_t node);

#endif

/*
 * annotate.h - the multi-device annotations of the ONNX standard, in a model's file: checked, and
 * written.
 *
 * ModelProto.configuration says how many devices there are, NodeProto.device_configurations in
 * which pipeline stage a node is and, by a ShardingSpecProto for each tensor that it reads or
 * makes, how the tensor is divided among devices.  onnx/docs/proposals/ShardingFormalism.md has the
 * rules.
 */
#ifndef PPSPLIT_ANNOTATE_H
#define PPSPLIT_ANNOTATE_H

#include "frontend/frontend.h"
#include "mesh/mesh.h"
#include "partition/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* check.c: reports each violation as an error, prints to f what was checked, and returns the number
   of violations.  g: the model's graph, for shapes that the file lacks, or NULL.  verbose: also
   prints nodes to which no rule was applied. */
uint32_t annotate_check(Arena *a, const char *path, const Limits *lim, const Graph *g, bool verbose,
                        FILE *f);

/* What is written of a model's nodes: by node of the file its stage, NONE: left out; and where the
   values of `whole`, its graph, lie along each axis (no plans: nothing is divided), which follows
   from these options. */
typedef struct {
    uint32_t stages;
    const uint32_t *stage;
    const Graph *whole;
    const MeshOptions *mesh;
    MeshPlans plans;
} Annotations;

/* read.c: what the annotations of g's file (the first and only one) say of the mesh: where opt has
   none, the numbers of members and chunks along each axis (1 for a file without specs).  True: they
   are of `ppsplit annotate', whose other options are in opt now, too; so a search for a plan finds
   theirs, unless annotate_follows() denies it. */
bool annotate_read(const Graph *g, MeshOptions *opt);
/* Into opt how they want tensors to be divided along the tensor axis. */
void annotate_ask(const Graph *g, MeshOptions *opt);
/* Do plans of g divide everything as its file says?  say: warns how many specs, but those of
   parameters, say otherwise. */
bool annotate_follows(const Graph *g, const MeshPlans *plans, bool say);
/* The name of the configuration. */
const char *annotate_name(Arena *a, const Annotations *what);

/* stages.c: of the first model of g, whose nodes have stages (pipe_stages()).  Origins from `loss`
   on are none of the model's.  Says which nodes are left out. */
void annotate_stages(const Graph *g, const uint32_t *stage_of, uint32_t stages, uint32_t loss,
                     Annotations *to);
/* write.c: writes the first model of g with these annotations in place of its own; returns how many
   nodes have one. */
uint32_t annotate_write(const Graph *g, const Annotations *what, const char *path);

#ifdef __cplusplus
}
#endif
#endif

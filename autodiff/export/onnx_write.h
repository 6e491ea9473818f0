/*
 * onnx_write.h - what onnx_write.c (files, tensors) and onnx_write_ops.c (core nodes as standard
 * operators) share.
 */
#ifndef PPSPLIT_ONNX_WRITE_H
#define PPSPLIT_ONNX_WRITE_H

#include "autodiff/autodiff.h"
#include "base/protobuf.h"

/* One operator of the file. Attributes follow its creation, in any order. */
typedef struct { PbMessage msg; } OnnxNode;

typedef struct Ow Ow;
struct Ow {
    const Pipe *p;
    const Graph *g;
    Arena *a;
    PbMessage node, init, input, output;  /* fields of GraphProto, in order */
    Ids param;                      /* parameters whose bytes follow when the file is written */
    const char **alias;             /* by value id: another name than its own, in this file */
    OutsideFile *outside;               /* for long constants; NULL: inside */
    StrMap param_name;              /* names that parameters take in every file */
    uint32_t made, nodes;           /* numbers for made-up names */
    int opset;                      /* that a node needs, where that is newer than others do */
    VEC(const char *) domain;       /* of its operators, beside ONNX's own */
    void (*write)(Ow *w, NodeId id); /* ow_node, for the nodes of a body */
};

/* onnx_node.c */
/* and whatever must be in the file for it */
const char *ow_name(Ow *w, ValueId v);
const char *ow_made(Ow *w);                                             /* a fresh name */
/* an i64 initializer: rank 0 or 1 */
const char *ow_ints(Ow *w, int rank, int64_t n, const int64_t *v);
const char *ow_number(Ow *w, Dtype t, double v);                        /* a scalar initializer */
OnnxNode ow_begin(Ow *w, const char *op, uint32_t nin, const char *const *in, uint32_t nout,
                  const char *const *out);
void ow_int(OnnxNode *n, const char *name, int64_t v);
void ow_real(OnnxNode *n, const char *name, double v);
void ow_int_list(OnnxNode *n, const char *name, int count, const int64_t *v);
void ow_string(OnnxNode *n, const char *name, const char *v);
void ow_domain(OnnxNode *n, const char *domain);
void ow_import(Ow *w, const char *domain);              /* the file has operators of this domain */
void ow_end(Ow *w, OnnxNode *n);
/* a TensorProto up to its bytes */
PbMessage ow_tensor_head(Arena *a, const char *name, Dtype t, const Shape *s);
/* a ValueInfoProto, as that field of `list` */
void ow_info(Ow *w, PbMessage *list, uint32_t field, const char *name, const Value *x);
/* in every file: a parameter's is PyTorch's */
const char *ow_plain_name(Ow *w, ValueId v);

/* onnx_write_ops.c */
void ow_node(Ow *w, NodeId id);

#endif

/*
 * skeleton.h - the wire format field by field, for skeleton.c (writes the model without its
 * trainable bytes) and merge.c (puts trained bytes into it).
 */
#ifndef PPSPLIT_SKELETON_H
#define PPSPLIT_SKELETON_H

#include "autodiff/autodiff.h"

/* Keys of TensorProto.external_data by which a skeleton's initializer names the parameter it stands for. */
#define SKELETON_PARAMETER "ppsplit.parameter"
#define SKELETON_TRANSPOSED "ppsplit.transposed"

typedef struct { const uint8_t *at, *end; bool broken; } WireSpan;
typedef struct {
    uint32_t number;
    uint64_t value;                                     /* of a varint; length of a body */
    WireSpan body;                                      /* of a length-delimited field */
    const uint8_t *start, *end;                         /* the whole field, key included */
} WireField;
bool wire_next(WireSpan *s, WireField *f);              /* false at the end, or (s->broken) at nonsense */

void wire_put_varint(FILE *f, uint64_t v);
void wire_put_int(FILE *f, uint32_t number, uint64_t v);
void wire_put_bytes(FILE *f, uint32_t number, const void *at, size_t n);
void wire_put_string(FILE *f, uint32_t number, const char *s);

/* A message under construction, in memory. */
typedef struct { FILE *f; char *bytes; size_t n; } WireMessage;
void wire_open(WireMessage *m);
void wire_close(WireMessage *m, FILE *into, uint32_t number);
void wire_put_entry(FILE *tensor, const char *key, const char *value);     /* TensorProto.external_data */

#endif

/*
 * protobuf.h - the wire format of protocol buffers: messages written into memory; base/file/proto.h
 * reads.
 */
#ifndef PPSPLIT_PROTOBUF_H
#define PPSPLIT_PROTOBUF_H

#include "base.h"
#include "base/file/proto.h"

typedef struct { Arena *a; uint8_t *at; size_t n, cap; } PbMessage;

void pb_put(PbMessage *m, const void *at, size_t n); /* fields that are already encoded */
void pb_put_varint(PbMessage *m, uint64_t v);
void pb_put_key(PbMessage *m, uint32_t number, int kind);
void pb_put_int(PbMessage *m, uint32_t number, int64_t v);
void pb_put_bytes(PbMessage *m, uint32_t number, const void *at, size_t n);
void pb_put_string(PbMessage *m, uint32_t number, const char *s);
void pb_put_message(PbMessage *m, uint32_t number, const PbMessage *inner);

#endif

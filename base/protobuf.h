/*
 * protobuf.h - the wire format of protocol buffers: fields of a message read one by one, messages
 * written into memory.
 *
 * A field is a number and a kind; the caller knows what the numbers mean.  Reading is safe on any
 * bytes.
 */
#ifndef PPSPLIT_PROTOBUF_H
#define PPSPLIT_PROTOBUF_H

#include "base.h"

enum { PB_VARINT = 0, PB_64 = 1, PB_BYTES = 2, PB_32 = 5 };
enum { PB_VARINT_MAX = 10 };                            /* bytes of a 64-bit number */

/* ---- reading ---- */

/* Reads a number of at most max bytes; returns how many bytes it takes, 0 when it does not end. */
size_t pb_varint(const uint8_t *at, const uint8_t *end, size_t max, uint64_t *v);
/* Reads a packed array of numbers into out, unless out is NULL, and counts them in *n; false when
 * the array is broken. */
bool pb_packed(const uint8_t *at, uint64_t length, uint64_t *out, uint64_t *n);

typedef struct { const uint8_t *at, *end; bool broken; } PbSpan;
typedef struct {
    uint32_t number;
    uint64_t value;                                     /* of a varint; length of a body */
    PbSpan body;                                        /* of a length-delimited field */
    const uint8_t *start, *end;                         /* the whole field, key included */
} PbField;
bool pb_next(PbSpan *s, PbField *f); /* false at the end, or (s->broken) at nonsense */

/* ---- writing ---- */

typedef struct { Arena *a; uint8_t *at; size_t n, cap; } PbMessage;

size_t pb_encode(uint8_t out[PB_VARINT_MAX], uint64_t v);               /* bytes it takes */
void pb_put(PbMessage *m, const void *at, size_t n); /* fields that are already encoded */
void pb_put_varint(PbMessage *m, uint64_t v);
void pb_put_key(PbMessage *m, uint32_t number, int kind);
void pb_put_int(PbMessage *m, uint32_t number, int64_t v);
void pb_put_bytes(PbMessage *m, uint32_t number, const void *at, size_t n);
void pb_put_string(PbMessage *m, uint32_t number, const char *s);
void pb_put_message(PbMessage *m, uint32_t number, const PbMessage *inner);

#endif

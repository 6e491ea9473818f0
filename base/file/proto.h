/*
 * proto.h - the wire format of protocol buffers, numbers written and messages read: fields of a
 * message one by one, safe on any bytes.  A field is a number and a kind; the caller knows what the
 * numbers mean.  Needs libc only.
 */
#ifndef PP_PROTO_H
#define PP_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PB_VARINT = 0, PB_64 = 1, PB_BYTES = 2, PB_32 = 5 };
enum { PB_VARINT_MAX = 10 };                            /* bytes of a 64-bit number */

size_t pb_encode(uint8_t out[PB_VARINT_MAX], uint64_t v); /* bytes it takes */
/* Reads a number of at most max bytes; returns how many bytes it takes, 0 when it does not end. */
size_t pb_varint(const uint8_t *at, const uint8_t *end, size_t max, uint64_t *v);
/* Reads a packed array of numbers into out, unless out is NULL, and counts them in *n; false when
 * the array is broken. */
bool pb_packed(const uint8_t *at, uint64_t length, uint64_t *out, uint64_t *n);

typedef struct { const uint8_t *at, *end; bool broken; } PbSpan;
typedef struct {
    uint32_t number;
    int kind;
    uint64_t value;                                     /* of a varint; length of PB_BYTES */
    PbSpan body;                                        /* behind the key and that length */
    const uint8_t *start, *end;                         /* the whole field, key included */
} PbField;
bool pb_next(PbSpan *s, PbField *f); /* false at the end, or (s->broken) at nonsense */

#endif

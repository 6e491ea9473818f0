/* protobuf.c - https://protobuf.dev/programming-guides/encoding: base 128 numbers, low bits first;
 * length before bytes. */
#include "protobuf.h"

#include <string.h>

void pb_put(PbMessage *m, const void *at, size_t n)
{
    if (m->cap - m->n < n) {
        size_t cap = m->cap * 2 + n + 64;
        uint8_t *to = arena_alloc(m->a, cap);
        if (m->n)
            memcpy(to, m->at, m->n);
        m->at = to;
        m->cap = cap;
    }
    if (n)
        memcpy(m->at + m->n, at, n);
    m->n += n;
}

void pb_put_varint(PbMessage *m, uint64_t v)
{
    uint8_t bytes[PB_VARINT_MAX];
    pb_put(m, bytes, pb_encode(bytes, v));
}

void pb_put_key(PbMessage *m, uint32_t number, int kind)
{
    pb_put_varint(m, (uint64_t)number << 3 | (uint64_t)kind);
}

void pb_put_int(PbMessage *m, uint32_t number, int64_t v)
{
    pb_put_key(m, number, PB_VARINT);
    pb_put_varint(m, (uint64_t)v);
}

void pb_put_bytes(PbMessage *m, uint32_t number, const void *at, size_t n)
{
    pb_put_key(m, number, PB_BYTES);
    pb_put_varint(m, n);
    pb_put(m, at, n);
}

void pb_put_string(PbMessage *m, uint32_t number, const char *s)
{
    pb_put_bytes(m, number, s, strlen(s));
}
void pb_put_message(PbMessage *m, uint32_t number, const PbMessage *inner)
{
    pb_put_bytes(m, number, inner->at, inner->n);
}

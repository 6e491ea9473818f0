/*
 * pb.h - writes protobuf's wire format, as much as a model needs: a growing buffer per message.
 * For programs that make models (and hostile ones on purpose); out of memory exits.
 */
#ifndef PB_H
#define PB_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned char *at; size_t n, cap; } Buf;

static inline void put(Buf *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 64;
        b->at = realloc(b->at, b->cap);
        if (!b->at)
            exit(3);
    }
    if (n)
        memcpy(b->at + b->n, p, n);
    b->n += n;
}

static inline void put_varint(Buf *b, uint64_t v)
{
    unsigned char c;
    for (; v >= 128; v >>= 7) {
        c = (unsigned char)(v | 128);
        put(b, &c, 1);
    }
    c = (unsigned char)v;
    put(b, &c, 1);
}

static inline void put_int(Buf *b, int field, int64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)v);
}

static inline void put_bytes(Buf *b, int field, const void *p, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, p, n);
}

static inline void put_string(Buf *b, int field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

static inline void put_message(Buf *b, int field, Buf *m)
{
    put_bytes(b, field, m->at, m->n);
    free(m->at);
    *m = (Buf){0};
}

#endif

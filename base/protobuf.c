/* protobuf.c - https://protobuf.dev/programming-guides/encoding: base 128 numbers, low bits first;
 * length before bytes. */
#include "protobuf.h"

#include <string.h>

size_t pb_varint(const uint8_t *at, const uint8_t *end, size_t max, uint64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < max && i < (size_t)(end - at); i++) {
        *v |= (uint64_t)(at[i] & 127) << 7 * i;
        if (at[i] < 128)
            return i + 1;
    }
    return 0;
}

bool pb_packed(const uint8_t *at, uint64_t length, uint64_t *out, uint64_t *n)
{
    const uint8_t *end = at + length;
    uint64_t count = 0, v;
    for (size_t taken; at < end; at += taken, count++) {
        taken = pb_varint(at, end, PB_VARINT_MAX, &v);
        if (taken == 0)
            return false;
        if (out)
            out[count] = v;
    }
    *n = count;
    return true;
}

static bool take(PbSpan *s, uint64_t *v)
{
    size_t taken = pb_varint(s->at, s->end, PB_VARINT_MAX, v);
    s->at += taken;
    s->broken |= taken == 0;
    return taken > 0;
}

static void skip(PbSpan *s, uint64_t n)
{
    if (n > (uint64_t)(s->end - s->at))
        s->broken = true;
    else
        s->at += n;
}

bool pb_next(PbSpan *s, PbField *f)
{
    uint64_t key;
    *f = (PbField){.start = s->at};
    if (s->at >= s->end || s->broken || !take(s, &key))
        return false;
    f->number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case PB_VARINT: take(s, &f->value); break;
    case PB_64: skip(s, 8); break;
    case PB_32: skip(s, 4); break;
    case PB_BYTES:
        if (!take(s, &f->value))
            break;
        f->body.at = s->at;
        skip(s, f->value);
        f->body.end = s->at;
        break;
    default: s->broken = true;
    }
    f->end = s->at;
    return !s->broken;
}

size_t pb_encode(uint8_t out[PB_VARINT_MAX], uint64_t v)
{
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

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

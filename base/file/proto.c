/* proto.c - https://protobuf.dev/programming-guides/encoding: base 128 numbers, low bits first;
 * length before bytes. */
#include "proto.h"

size_t pb_encode(uint8_t out[PB_VARINT_MAX], uint64_t v)
{
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

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
    s->broken |= key >> 3 > UINT32_MAX;
    f->number = (uint32_t)(key >> 3);
    f->kind = (int)(key & 7);
    f->body.at = s->at;
    switch (key & 7) {
    case PB_VARINT: take(s, &f->value); break;
    case PB_64: skip(s, 8); break;
    case PB_32: skip(s, 4); break;
    case PB_BYTES:
        if (take(s, &f->value)) {
            f->body.at = s->at;
            skip(s, f->value);
        }
        break;
    default: s->broken = true;
    }
    f->body.end = f->end = s->at;
    return !s->broken;
}

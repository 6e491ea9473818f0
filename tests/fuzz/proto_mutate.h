/*
 * proto_mutate.h - mutations of a model that are a model again: in, the bytes of an .onnx file;
 * out, those of another, of which fields were dropped, repeated, exchanged, moved from elsewhere or
 * given other values.  What bytes flipped at random never pass, the wire, these do: what they find
 * lies behind it.
 *
 * The file is a tree of fields; which of them are messages protobuf-c's descriptors say, as in
 * frontend/onnx/wire.c.
 */
#ifndef PROTO_MUTATE_H
#define PROTO_MUTATE_H

#include "base/protobuf.h"
#include "onnx.pb-c.h"

#include <string.h>

typedef struct ProtoField ProtoField;
typedef VEC(ProtoField *) ProtoList;
struct ProtoField {
    const ProtobufCMessageDescriptor *in; /* the message it is a field of */
    const ProtobufCFieldDescriptor *type; /* NULL: the format has none of this number */
    uint32_t number;
    int kind; /* PB_VARINT, ... */
    uint64_t value;
    const uint8_t *at; /* of PB_BYTES that are no message, and of fixed numbers with their key */
    size_t n;
    bool message;
    ProtoList field;
};

typedef struct { Arena *a; uint64_t seed; ProtoList all; } ProtoTree;

static uint64_t proto_random(ProtoTree *t, uint64_t below)
{
    t->seed = t->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = t->seed >> 29;
    return below ? (x ^ x >> 17) % below : 0;
}

/* ---- bytes to tree, tree to bytes ---- */

static void proto_read(ProtoTree *t, ProtoList *to, const ProtobufCMessageDescriptor *in,
                       PbSpan bytes, int depth)
{
    PbField f;
    while (pb_next(&bytes, &f)) {
        ProtoField *p = arena_new_of(t->a, ProtoField);
        const uint8_t *key = f.start;
        uint64_t word;
        key += pb_varint(key, f.end, PB_VARINT_MAX, &word);
        *p = (ProtoField){.in = in, .number = f.number, .kind = (int)(word & 7), .value = f.value};
        p->type = protobuf_c_message_descriptor_get_field(in, f.number);
        p->message = p->type && p->type->type == PROTOBUF_C_TYPE_MESSAGE && p->kind == PB_BYTES &&
                     depth < 60;
        if (p->message) {
            proto_read(t, &p->field, p->type->descriptor, f.body, depth + 1);
        } else if (p->kind == PB_BYTES) {
            p->at = f.body.at;
            p->n = (size_t)(f.body.end - f.body.at);
        } else if (p->kind != PB_VARINT) {
            p->at = f.start;
            p->n = (size_t)(f.end - f.start);
        }
        vec_push(t->a, to, p);
        vec_push(t->a, &t->all, p);
    }
}

static void proto_write(ProtoTree *t, const ProtoList *from, PbMessage *m)
{
    for (uint32_t i = 0; i < from->n; i++) {
        const ProtoField *p = from->at[i];
        PbMessage inner = {.a = t->a};
        if (p->message) {
            proto_write(t, &p->field, &inner);
            pb_put_message(m, p->number, &inner);
        } else if (p->kind == PB_BYTES) {
            pb_put_bytes(m, p->number, p->at, p->n);
        } else if (p->kind == PB_VARINT) {
            pb_put_int(m, p->number, (int64_t)p->value);
        } else {
            pb_put(m, p->at, p->n);
        }
    }
}

/* ---- one change ---- */

static uint64_t proto_number(ProtoTree *t, uint64_t was)
{
    static const int64_t odd[] = {0,  1,   2,    3,         -1,        -2,        7,        16,
                                  64, 127, 1024, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    switch (proto_random(t, 4)) {
    case 0: return (uint64_t)odd[proto_random(t, sizeof odd / sizeof *odd)];
    case 1: return was + 1;
    case 2: return was - 1;
    default: return was ^ UINT64_C(1) << proto_random(t, 8);
    }
}

/* Another field of the same message type and number, where there is one. */
static ProtoField *proto_alike(ProtoTree *t, const ProtoField *p)
{
    for (int tries = 0; tries < 40; tries++) {
        ProtoField *q = t->all.at[proto_random(t, t->all.n)];
        if (q != p && q->in == p->in && q->number == p->number)
            return q;
    }
    return NULL;
}

static void proto_bytes(ProtoTree *t, ProtoField *p)
{
    uint8_t *at = arena_alloc(t->a, p->n + 16);
    if (p->n)
        memcpy(at, p->at, p->n);
    size_t where = (size_t)proto_random(t, p->n);
    switch (proto_random(t, 4)) {
    case 0: p->n = where; break;
    case 1: memset(at + p->n, (int)proto_random(t, 256), 8), p->n += 8; break;
    case 2: at[where] = (uint8_t)proto_random(t, 256), p->n += p->n == 0; break;
    default: at[where] ^= (uint8_t)(1 << proto_random(t, 8)), p->n += p->n == 0; break;
    }
    p->at = at;
}

/* A name of the model's for another: what reads and what makes is joined differently. */
static void proto_value(ProtoTree *t, ProtoField *p)
{
    bool text = p->kind == PB_BYTES && p->type && p->type->type == PROTOBUF_C_TYPE_STRING;
    if (p->kind == PB_VARINT) {
        p->value = proto_number(t, p->value);
    } else if (text && proto_random(t, 4)) {
        for (int tries = 0; tries < 40; tries++) {
            const ProtoField *q = t->all.at[proto_random(t, t->all.n)];
            if (q->kind != PB_BYTES || q->message || !q->type ||
                q->type->type != PROTOBUF_C_TYPE_STRING)
                continue;
            p->at = q->at;
            p->n = q->n;
            break;
        }
    } else if (p->kind == PB_BYTES) {
        proto_bytes(t, p);
    } else {
        static const float odd[] = {0, -1, 1, 1e30f, -1e30f, 0.5f, 1e-30f};
        uint8_t *at = arena_alloc(t->a, p->n + 8);
        memcpy(at, p->at, p->n);
        if (p->kind == PB_32 && proto_random(t, 2))
            memcpy(at + p->n - 4, &odd[proto_random(t, 7)], 4);
        else
            at[p->n - 1 - proto_random(t, 4)] ^= (uint8_t)proto_random(t, 256);
        p->at = at;
    }
}

static void proto_insert(ProtoTree *t, ProtoList *l, uint32_t i, ProtoField *p)
{
    vec_push(t->a, l, p);
    memmove(l->at + i + 1, l->at + i, (l->n - 1 - i) * sizeof *l->at);
    l->at[i] = p;
}

/* The list that holds the k-th field of the tree, counted down, and its place there. */
static ProtoList *proto_find(ProtoList *l, uint32_t *k, uint32_t *at)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if ((*k)-- == 0) {
            *at = i;
            return l;
        }
        ProtoList *found = l->at[i]->message ? proto_find(&l->at[i]->field, k, at) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

static uint32_t proto_count(const ProtoList *l)
{
    uint32_t n = l->n;
    for (uint32_t i = 0; i < l->n; i++)
        n += l->at[i]->message ? proto_count(&l->at[i]->field) : 0;
    return n;
}

/* All of it: a field may go into itself, and a tree it stays. */
static ProtoField *proto_copy(ProtoTree *t, const ProtoField *p)
{
    ProtoField *copy = arena_new_of(t->a, ProtoField);
    *copy = *p;
    copy->field = (ProtoList){0};
    for (uint32_t i = 0; i < p->field.n; i++)
        vec_push(t->a, &copy->field, proto_copy(t, p->field.at[i]));
    return copy;
}

static void proto_change(ProtoTree *t, ProtoList *root)
{
    uint32_t k = (uint32_t)proto_random(t, proto_count(root)), i = 0;
    ProtoList *l = proto_find(root, &k, &i);
    if (!l)
        return;
    ProtoField *p = l->at[i], *other;
    uint64_t what = proto_random(t, 16);
    if (what < 2) {
        memmove(l->at + i, l->at + i + 1, (--l->n - i) * sizeof *l->at);
    } else if (what < 3) {
        proto_insert(t, l, i, proto_copy(t, p));
    } else if (what < 5) {
        uint32_t j = (uint32_t)proto_random(t, l->n);
        l->at[i] = l->at[j];
        l->at[j] = p;
    } else if (what < 9 || p->message) {
        other = proto_alike(t, p);
        if (other)
            l->at[i] = proto_copy(t, other);
    } else {
        l->at[i] = proto_copy(t, p);
        proto_value(t, l->at[i]);
    }
}

/* In place, at most `most` bytes; other: a second model of which fields may come, or NULL. */
static size_t proto_mutate(uint8_t *data, size_t n, size_t most, uint64_t seed,
                           const uint8_t *other, size_t n_other)
{
    ProtoTree t = {.a = arena_new(), .seed = seed * 2 + 1};
    ProtoList root = {0}, ignored = {0};
    PbMessage m = {.a = t.a};
    const ProtobufCMessageDescriptor *model = &onnx__model_proto__descriptor;
    proto_random(&t, 2);
    proto_read(&t, &root, model, (PbSpan){data, data + n, false}, 0);
    if (other)
        proto_read(&t, &ignored, model, (PbSpan){other, other + n_other, false}, 0);
    for (uint64_t i = 1 + proto_random(&t, 4); t.all.n && i > 0; i--)
        proto_change(&t, &root);
    proto_write(&t, &root, &m);
    bool fits = m.n <= most;
    if (fits && m.n)
        memcpy(data, m.at, m.n);
    n = fits ? m.n : n;
    arena_free(t.a);
    return n;
}

#endif

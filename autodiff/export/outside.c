/*
 * outside.c - long constants outside of the ONNX files that read them: one file, in which each stands
 * once, whichever files refer to it.
 *
 * A message of protobuf ends at 2 GB, and a mask that every stage reads may have that many bytes
 * alone.  Offsets are multiples of 4096, as ONNX asks for of data that are to be mapped.
 */
#include <errno.h>
#include <string.h>

#include "onnx_fields.h"
#include "outside.h"

enum { ALIGNED = 4096 };

static const uint64_t protobuf_end = UINT64_C(1) << 31;

typedef struct { const void *at; size_t n; int64_t offset; } Place;

struct OnnxOutside {
    Arena *a;
    const char *path, *name;
    FILE *f;                                            /* once there is something to write */
    int64_t end;
    VEC(Place) place;
};

OnnxOutside *outside_new(Arena *a, const char *folder, const char *name)
{
    OnnxOutside *o = arena_new_of(a, OnnxOutside);
    *o = (OnnxOutside){.a = a, .path = arena_printf(a, "%s/%s", folder, name), .name = name};
    return o;
}

static _Noreturn void cannot_write(const OnnxOutside *o)
{
    diag_fatal(EXIT_IO, WHERE_FILE(o->path), "cannot write: %s", strerror(errno));
}

static int64_t append(OnnxOutside *o, const void *at, size_t n)
{
    if (!o->f)
        o->f = arena_fopen(o->a, o->path, "w");
    int64_t offset = (o->end + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (!o->f || fseeko(o->f, offset, SEEK_SET) || file_put(at, n, o->f) != n)
        cannot_write(o);
    o->end = offset + (int64_t)n;
    vec_push(o->a, &o->place, ((Place){at, n, offset}));
    return offset;
}

/* By address first: the stages share most of what they read. */
static int64_t find(OnnxOutside *o, const void *at, size_t n)
{
    for (uint32_t i = 0; i < o->place.n; i++)
        if (o->place.at[i].at == at && o->place.at[i].n == n)
            return o->place.at[i].offset;
    for (uint32_t i = 0; i < o->place.n; i++)
        if (o->place.at[i].n == n && !memcmp(o->place.at[i].at, at, n))
            return o->place.at[i].offset;
    return append(o, at, n);
}

bool outside_put(OnnxOutside *o, PbMessage *tensor, const void *at, size_t n)
{
    if (!o || n < LONG_CONSTANT)
        return false;
    onnx_put_external(tensor, o->name, (uint64_t)find(o, at, n), n);
    return true;
}

void outside_end(OnnxOutside *o)
{
    bool bad = o->f && ferror(o->f);
    if (o->f && (arena_fclose(o->a, o->f) || bad))
        cannot_write(o);
    o->f = NULL;
}

void onnx_check_size(const char *name, uint64_t n)
{
    if (n < protobuf_end)
        return;
    diag_hint("constants of 1 MiB and more stand outside of it: the model has very many shorter ones");
    diag_fatal(EXIT_MODEL, WHERE_NONE, "%s would have %llu bytes, and an ONNX file ends at 2 GB",
               name, (unsigned long long)n);
}

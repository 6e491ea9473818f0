/*
 * outside.c - constants outside of what reads them: one file, in which each stands once, whether
 * the program, its stages as ONNX or the skeleton refer to it.
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

typedef struct { const void *at; size_t n; OutsidePlace place; } Met;

struct OutsideFile {
    Arena *a;
    const char *path, *name;
    FILE *f;                                            /* once there is something to write */
    int64_t end;
    VEC(Met) met;
};

OutsideFile *outside_new(Arena *a, const char *folder, const char *name)
{
    OutsideFile *o = arena_new_of(a, OutsideFile);
    *o = (OutsideFile){.a = a, .path = arena_printf(a, "%s/%s", folder, name), .name = name};
    return o;
}

static _Noreturn void cannot_write(const OutsideFile *o)
{
    diag_fatal(EXIT_IO, WHERE_FILE(o->name), "cannot write: %s", strerror(errno));
}

static int64_t append(OutsideFile *o, const void *at, size_t n)
{
    if (!o->f)
        o->f = arena_fopen(o->a, o->path, "w");
    int64_t offset = (o->end + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (!o->f || fseeko(o->f, offset, SEEK_SET) || file_put(at, n, o->f) != n)
        cannot_write(o);
    o->end = offset + (int64_t)n;
    return offset;
}

/* By address first: the stages share most of what they read. */
OutsidePlace outside_place(OutsideFile *o, const void *at, size_t n)
{
    Met new = {at, n, {0}};
    for (uint32_t i = 0; i < o->met.n; i++)
        if (o->met.at[i].at == at && o->met.at[i].n == n)
            return o->met.at[i].place;
    sha256_of(at, n, new.place.sha256);
    uint32_t same = 0;
    while (same < o->met.n && (o->met.at[same].n != n ||
                               strcmp(o->met.at[same].place.sha256, new.place.sha256) != 0))
        same++;
    new.place.offset = same < o->met.n ? o->met.at[same].place.offset : append(o, at, n);
    vec_push(o->a, &o->met, new);
    return new.place;
}

const char *outside_put(OutsideFile *o, PbMessage *tensor, const void *at, size_t n)
{
    if (!o || n < LONG_CONSTANT)
        return NULL;
    OutsidePlace place = outside_place(o, at, n);
    onnx_put_external(tensor, o->name, (uint64_t)place.offset, n);
    return arena_strdup(tensor->a, place.sha256);
}

void outside_end(OutsideFile *o)
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
    diag_hint("constants of 1 MiB and more are stored elsewhere, but the model has too many "
              "smaller ones");
    diag_fatal(EXIT_MODEL, WHERE_NONE,
               "%s would have %llu bytes, but an ONNX file cannot exceed 2 GB", name,
               (unsigned long long)n);
}

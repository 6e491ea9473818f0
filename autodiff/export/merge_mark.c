/*
 * merge_mark.c - merge never writes over a model that it has not made itself.
 *
 * A merged model has an entry in its metadata: the hash of the skeleton that it was made from.  Of
 * a merged model that was split in its turn the skeleton has that entry too, and thus another hash.
 * So a file whose entry is the skeleton's hash is an earlier merge of the same output, and goes;
 * another file, the model itself among them, stays.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file/hash.h"
#include "merge_mark.h"
#include "onnx_fields.h"

static const char key[] = MERGE_MARK;

const char *merge_mark(Arena *a, PbSpan skeleton)
{
    return arena_printf(a, "%016" PRIx64,
                        hash_bytes(HASH_START, skeleton.at, (size_t)(skeleton.end - skeleton.at)));
}

void merge_put_mark(PbMessage *model, const char *mark)
{
    onnx_put_entry(model, MODEL_METADATA, key, mark);
}

static bool is(PbSpan s, const char *text)
{
    size_t n = (size_t)(s.end - s.at);
    return n == strlen(text) && !memcmp(s.at, text, n);
}

/* The last entry counts: a model that was merged before has older ones. */
static bool has_mark(PbSpan model, const char *mark)
{
    bool has = false;
    for (PbField f; pb_next(&model, &f);) {
        PbSpan name = {0}, value = {0};
        if (f.number != MODEL_METADATA)
            continue;
        for (PbField e; pb_next(&f.body, &e);)
            *(e.number == ENTRY_KEY ? &name : &value) = e.body;
        if (is(name, key))
            has = is(value, mark);
    }
    return has && !model.broken;
}

/* A model has it in its metadata; a file of tensors, or an index of such, says it in its JSON. */
static int is_merge(const char *at, size_t n, const void *mark)
{
    char text[64];
    enum { HEADER = 16 << 20 };
    int k = snprintf(text, sizeof text, "\"%s\":\"%s\"", key, (const char *)mark);
    const uint8_t *file = (const uint8_t *)at;
    return has_mark((PbSpan){file, file + n, false}, mark) ||
           memmem(at, n < HEADER ? n : HEADER, text, (size_t)k) != NULL;
}

void spare_others(const char *path, const FileOurs *ours)
{
    char why[FILE_WHY];
    if (!file_spare(path, ours, why))
        return;
    diag_hint("give another name with -o, or remove the file first");
    diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", why);
}

void merge_spare(const char *path, const char *mark)
{
    spare_others(path, &(FileOurs){is_merge, mark, "an earlier merge of this output; it may be the "
                                                   "model itself"});
}

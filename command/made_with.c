/*
 * made_with.c - which options change numbers.  In: Options.  Out: CodegenOptions.made, which
 * checkpoints hold: a run resumes only what was made alike.
 */
#include "command/passes.h"

#include <string.h>

#include "base/file/hash.h"

static void note(Options *o, const char *option, const char *value)
{
    vec_push(o->arena, &o->codegen.made, ((MadeWith){option, value}));
}

static void note_list(Options *o, const char *option, uint32_t n, const char *const *word)
{
    const char *all = n ? word[0] : "none";
    for (uint32_t i = 1; i < n; i++)
        all = arena_printf(o->arena, "%s %s", all, word[i]);
    note(o, option, all);
}

/* A loss in a file is its content, wherever that lies. */
static const char *loss_text(const Options *o)
{
    const char *loss = o->loss.loss ? o->loss.loss : "none";
    if (strncmp(loss, "model:", 6) != 0)
        return loss;
    const FileMap *f = arena_file(o->arena, loss + 6);
    uint64_t hash = hash_bytes(HASH_START, f->at, f->bytes);
    return arena_printf(o->arena, "model:%016llx", (unsigned long long)hash);
}

static const char *dropout_text(DropoutMode mode)
{
    return mode == DROPOUT_TRAIN ? "train" : mode == DROPOUT_AS_WRITTEN ? "as-written" : "none";
}

void note_options(Options *o)
{
    note(o, "loss", loss_text(o));
    note(o, "loss-reduction", o->loss.sum ? "sum" : "mean");
    note(o, "dtype", o->dtype == DT_NONE || o->dtype == DT_F32 ? "none" : dtype_name(o->dtype));
    note_list(o, "freeze", o->import.freeze.n, o->import.freeze.at);
    note_list(o, "train", o->import.train.n, o->import.train.at);
    for (int x = 0; x < MESH_AXES; x++)
        if (x == MESH_TENSOR || mesh_has(&o->mesh, (MeshAxis)x))
            note(o, x == MESH_TENSOR ? "chunks" : mesh_option[x] + 2,
                 mesh_has(&o->mesh, (MeshAxis)x) ? arena_printf(o->arena, "%d", o->mesh.chunks[x])
                                                 : "none");
    note_list(o, "shard", o->mesh.shard.n, o->mesh.shard.at);
    if (o->mesh.keep > 0)
        note(o, "memory", arena_printf(o->arena, "a byte kept costs %g sent", o->mesh.keep));
    note(o, "dropout", dropout_text(o->import.dropout));
    note_list(o, "stop-gradient", o->import.stop.n, o->import.stop.at);
}

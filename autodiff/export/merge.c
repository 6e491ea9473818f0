/*
 * merge.c - puts trained weights back into the model: what `ppsplit merge OUT CHECKPOINT -o M.onnx`
 * does.
 *
 * In: OUT/model.skeleton (skeleton.c) and the tensors of a checkpoint, under the parameters' names
 * and in PyTorch's shapes. Out: M.onnx, weights inside it while the file stays under 2 GB,
 * else in M.onnx.data beside it; of several files in sequence M.onnx, M1.onnx, ... from
 * model.skeleton, model1.skeleton, ...  All appear whole or not at all.  Running statistics go back
 * like parameters, long constants (outside.c) as they were.
 *
 * A file is a list of pieces (merge.h): it is known to fit together, and every checksum compared,
 * before its first byte is written, and is never in memory as a whole.  None takes the place of a
 * model that merge has not written (merge_mark.c).  Asked for M.safetensors, it is a list of the
 * parameters instead (state_dict.c).
 */
#include <string.h>
#include <unistd.h>

#include "merge.h"
#include "merge_mark.h"
#include "onnx_fields.h"
#include "onnx_write.h"
#include "outside.h"

static const uint64_t inline_limit = UINT64_C(1800) << 20; /* protobuf ends at 2 GiB */

static void add_message(Merge *m, Pieces *to, const PbMessage *p)
{
    merge_add(m->arena, to, (Piece){.at = p->at, .n = p->n});
}

/* As field `number` of what `graph` becomes. */
static void add_tensor(Merge *m, Pieces *graph, uint32_t number, const Slot *s)
{
    Piece bytes = s->parameter ? merge_parameter(m, s, true) : merge_constant(m, s);
    PbMessage head = {.a = m->arena},
              tensor = ow_tensor_head(m->arena, s->name ? s->name : "", (Dtype)s->dtype, &s->shape);
    if (m->data_name) {
        onnx_put_external(&tensor, m->data_name, m->data.n, bytes.n);
    } else {
        pb_put_key(&tensor, TENSOR_RAW, PB_BYTES); /* the last: its bytes are the next piece */
        pb_put_varint(&tensor, bytes.n);
    }
    pb_put_key(&head, number, PB_BYTES);
    pb_put_varint(&head, tensor.n + (m->data_name ? 0 : bytes.n));
    add_message(m, graph, &head);
    add_message(m, graph, &tensor);
    merge_add(m->arena, m->data_name ? &m->data : graph, bytes);
    m->result.parameters += s->parameter != NULL;
}

static void add_pieces(Merge *m, Pieces *to, uint32_t number, const Pieces *part)
{
    PbMessage head = {.a = m->arena};
    pb_put_key(&head, number, PB_BYTES);
    pb_put_varint(&head, part->n);
    add_message(m, to, &head);
    for (uint32_t i = 0; i < part->piece.n; i++)
        merge_add(m->arena, to, part->piece.at[i]);
}

/* The message of kind `in`, with the tensors that are not in it. */
static Pieces merge_part(Merge *m, PbSpan body, Holder in, const char *path)
{
    Pieces out = {0};
    for (PbField f; pb_next(&body, &f);) {
        Holder is = holder_of(in, f.number);
        Slot s = is == IS_TENSOR ? merge_slot(m, f.body) : (Slot){0};
        if (s.parameter || s.sha256) {
            add_tensor(m, &out, f.number, &s);
        } else if (is != IN_NOTHING && is != IS_TENSOR) {
            Pieces part = merge_part(m, f.body, is, path);
            add_pieces(m, &out, f.number, &part);
        } else {
            merge_add(m->arena, &out, (Piece){.at = f.start, .n = (size_t)(f.end - f.start)});
        }
    }
    merge_check_read(&body, path);
    return out;
}

/* One model: false when there is no skeleton of that number. */
static bool merge_model(Merge *m, uint32_t i)
{
    const char *path, *target = merge_target(m, m->ask->target, i);
    PbSpan skeleton = merge_open_skeleton(m, i, &path);
    if (!skeleton.at)
        return false;
    uint32_t parameters = m->result.parameters;
    const char *data = NULL;
    m->data_name = NULL;
    Pieces model = merge_part(m, skeleton, IN_MODEL, path);
    if (model.n > inline_limit) {
        data = arena_printf(m->arena, "%s.data", target);
        m->data_name = base_name(data);
        m->data = (Pieces){0};
        m->result.parameters = parameters;
        model = merge_part(m, skeleton, IN_MODEL, path);
        onnx_check_size(target, model.n);
    }
    const char *mark = merge_mark(m->arena, skeleton);
    PbMessage *metadata = arena_new_of(m->arena, PbMessage);
    metadata->a = m->arena;
    merge_put_mark(metadata, mark);
    add_message(m, &model, metadata);
    merge_spare(target, mark);
    if (data && access(target, F_OK))
        merge_spare(data, mark);
    if (data)
        merge_write(m, data, &m->data);
    merge_write(m, target, &model);
    vec_push(m->arena, &m->result.file, target);
    return true;
}

static void merge(void *arg)
{
    Merge *m = arg;
    bool tensors = merge_is_tensors(m->ask->target);
    merge_refuse_half(m);
    for (uint32_t i = 0; tensors ? state_dict_model(m, i) : merge_model(m, i); i++)
        ;
    diag_files();
    merge_place(m);
}

bool merge_is_tensors(const char *target)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(target);
    return n > sizeof end - 1 && !strcmp(target + n - (sizeof end - 1), end);
}

Merged merge_weights(Arena *a, const MergeAsk *ask)
{
    Merge m = {.arena = a, .ask = ask};
    merge_run(&m, merge, &m);
    return m.result;
}

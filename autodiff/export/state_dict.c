/*
 * state_dict.c - trained weights as PyTorch's state_dict: what `ppsplit merge OUT CHECKPOINT -o
 * M.safetensors` does.
 *
 * In: a skeleton, which says which parameters the model has and of which type, and the checkpoint's
 * tensors under the parameters' names and in PyTorch's shapes.  Out: M.safetensors with them, and
 * with the buffers that the exporter's list calls persistent; with --shard-size, where one file is
 * not enough, M-00001-of-00003.safetensors, ... and M.safetensors.index.json, as transformers has
 * them; with --states a file of the optimizer's states, exp_avg.NAME for example, and step.
 *
 * Tied parameters stand there under each of their names, as in a state_dict.  What the export has
 * left no name of, or no bytes, is said.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/json.h"
#include "base/file/memory.h"
#include "base/file/safetensors.h"
#include "frontend/params/params.h"
#include "merge.h"
#include "merge_mark.h"
#include "onnx_fields.h"

typedef struct {
    const char *name, *parameter; /* in the file; of the checkpoint, NULL: a buffer */
    int dtype;
    Shape shape;
    Piece bytes;
    uint32_t shard;
} Entry;

typedef struct {
    Merge *m;
    uint32_t model;
    const char *path, *mark;
    Signature sig; /* n 0: the exporter left no list */
    VEC(Entry) entry;
    StrMap names; /* of entries -> 1 */
    StrMap known; /* of parameters that folding changed -> 1 */
    VEC(const char *) unnamed, changed, outside;
} Dict;

/* ---- names ---- */

static bool below(const char *name, const char *module)
{
    size_t n = strlen(module);
    return !strncmp(name, module, n) && name[n] == '.';
}

/* The name in the state_dict that is asked for; NULL: it is of another module. */
static const char *name_in(Dict *d, const char *name)
{
    const char *file = arena_printf(d->m->arena, "model%u", d->model), *module = d->m->ask->module;
    if (d->model > 0 && below(name, file))
        name += strlen(file) + 1;
    if (!module)
        return name;
    return below(name, module) ? name + strlen(module) + 1 : NULL;
}

/* Is it a name that a module gave? */
static bool is_own_name(const Dict *d, const char *name)
{
    return d->sig.n ? strmap_get(&d->sig.by_target, name) != NONE : !param_is_made_up(name);
}

/* ---- what is in the dict ---- */

static void add_entry(Dict *d, const char *name, Entry e)
{
    Arena *a = d->m->arena;
    e.name = name_in(d, name);
    if (!e.name) {
        vec_push(a, &d->outside, name);
        return;
    }
    if (strmap_get(&d->names, e.name) != NONE)
        return;
    *strmap_at(&d->names, e.name) = 1;
    vec_push(a, &d->entry, e);
}

static void add_parameter(Dict *d, const Slot *s)
{
    Entry e = {.parameter = s->parameter,
               .dtype = (int)s->dtype,
               .shape = shape_turned(&s->shape, s->transposed)};
    e.bytes = merge_parameter(d->m, s, false);
    const char *own = s->parameter, *file = arena_printf(d->m->arena, "model%u", d->model);
    if (d->model > 0 && below(own, file))
        own += strlen(file) + 1;
    if (s->changed) {
        *strmap_at(&d->known, own) = 1;
        vec_push(d->m->arena, &d->changed, arena_printf(d->m->arena, "%s (%s)", own, s->changed));
        return;
    }
    if (!is_own_name(d, own))
        vec_push(d->m->arena, &d->unnamed, own);
    add_entry(d, own, e);
    for (uint32_t i = 0; i < s->tied.n; i++)
        add_entry(d, s->tied.at[i], e);
}

/* A constant of the graph, if it is a buffer that a state_dict has. */
static void add_buffer(Dict *d, const Slot *s)
{
    uint32_t e = s->name ? strmap_get(&d->sig.by_target, s->name) : NONE;
    if (e == NONE || d->sig.entry[e].kind != SIG_BUFFER || !d->sig.entry[e].persistent)
        return;
    Entry b = {.dtype = (int)s->dtype, .shape = s->shape};
    b.bytes = s->sha256 ? merge_constant(d->m, s)
                        : (Piece){.at = s->raw.at, .n = (size_t)(s->raw.end - s->raw.at)};
    if (st_dtype_size(b.dtype) * shape_elements(&b.shape) == (int64_t)b.bytes.n)
        add_entry(d, s->name, b);
}

static void collect(Dict *d, PbSpan body, Holder in)
{
    for (PbField f; pb_next(&body, &f);) {
        Holder is = holder_of(in, f.number);
        if (is == IS_TENSOR) {
            Slot s = merge_slot(d->m, f.body);
            if (s.parameter)
                add_parameter(d, &s);
            else if (in == IN_GRAPH && d->sig.n)
                add_buffer(d, &s);
        } else if (is != IN_NOTHING) {
            collect(d, f.body, is);
        }
    }
    merge_check_read(&body, d->path);
}

/* The exporter's list, which is metadata of the graph. */
static void read_signature(Dict *d, PbSpan model)
{
    enum { GRAPH_METADATA = 16 };
    static const char wanted[] = "pkg.torch.export.ExportedProgram.graph_signature";
    Arena *a = d->m->arena;
    for (PbField f; pb_next(&model, &f);)
        for (PbField g; f.number == MODEL_GRAPH && pb_next(&f.body, &g);) {
            const char *key = "", *value = "";
            for (PbField e; g.number == GRAPH_METADATA && pb_next(&g.body, &e);)
                *(e.number == ENTRY_KEY ? &key : &value) =
                    arena_strndup(a, (const char *)e.body.at, (size_t)(e.body.end - e.body.at));
            if (!strcmp(key, wanted))
                meta_signature(a, value, &d->sig);
        }
}

/* ---- what is said of it ---- */

static const char *joined(Arena *a, const char *const *name, uint32_t n)
{
    enum { SHOWN = 12 };
    const char *text = "";
    for (uint32_t i = 0; i < n && i < SHOWN; i++)
        text = arena_printf(a, "%s%s%.128s", text, i ? ", " : "", diag_escape(a, name[i]));
    return n > SHOWN ? arena_printf(a, "%s and %u more", text, n - SHOWN) : text;
}

static void report(Dict *d)
{
    Arena *a = d->m->arena;
    VEC(const char *) lost = {0};
    if (d->entry.n == 0) {
        const char *near = d->m->ask->module && d->outside.n ? d->outside.at[0] : NULL;
        if (near)
            diag_hint("the first parameter is '%s'", near);
        diag_fatal(EXIT_USAGE, WHERE_FILE(d->path), "module '%s' has no parameters",
                   d->m->ask->module ? d->m->ask->module : "");
    }
    for (uint32_t i = 0; i < d->sig.n; i++) {
        const SigEntry *e = &d->sig.entry[i];
        const char *name = e->kind == SIG_PARAMETER ? name_in(d, e->target) : NULL;
        if (name && strmap_get(&d->names, name) == NONE && strmap_get(&d->known, e->target) == NONE)
            vec_push(a, &lost, name);
    }
    if (lost.n) {
        diag_hint("load_state_dict(..., strict=False) leaves them as the model has them");
        diag_warn(WHERE_FILE(d->path),
                  "%u parameter%s of the model %s not in the program, which did not train %s: %s",
                  lost.n, lost.n == 1 ? "" : "s", lost.n == 1 ? "is" : "are",
                  lost.n == 1 ? "it" : "them", joined(a, lost.at, lost.n));
    }
    if (d->changed.n) {
        diag_hint("export with optimize=False, in training mode: then they are in the file");
        diag_warn(WHERE_FILE(d->path), "%u parameter%s left out, because the export changed %s: %s",
                  d->changed.n, d->changed.n == 1 ? " is" : "s are",
                  d->changed.n == 1 ? "it" : "them", joined(a, d->changed.at, d->changed.n));
    }
    if (d->unnamed.n) {
        diag_hint("export with optimize=False or do_constant_folding=False, or split with "
                  "--params-from FILE.safetensors");
        diag_warn(WHERE_FILE(d->path),
                  "%u parameter%s lost %s in the export, so no state_dict can contain %s: %s",
                  d->unnamed.n, d->unnamed.n == 1 ? " has" : "s have",
                  d->unnamed.n == 1 ? "its name" : "their names", d->unnamed.n == 1 ? "it" : "them",
                  joined(a, d->unnamed.at, d->unnamed.n));
    }
}

/* ---- files ---- */

/* The order in which the library safetensors writes them: wide elements first, then by name. */
static int in_order(const void *x, const void *y)
{
    const Entry *a = x, *b = y;
    int64_t wide = st_dtype_size(b->dtype) - st_dtype_size(a->dtype);
    return a->shard != b->shard ? (a->shard > b->shard) - (a->shard < b->shard)
           : wide               ? (wide > 0) - (wide < 0)
                                : strcmp(a->name, b->name);
}

/* A text of memory_open(), as it was closed, as a piece. */
static Piece text_piece(Merge *m, Memory *text)
{
    if (!text->at)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    Piece p = {.at = arena_strndup(m->arena, text->at, text->n), .n = text->n};
    free(text->at);
    return p;
}

/* transformers asks for "format". */
static void write_tensors(Dict *d, const char *path, const Entry *e, uint32_t n)
{
    Merge *m = d->m;
    Memory header;
    Pieces file = {0};
    StWriter w;
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    stw_meta(&w, MERGE_MARK, d->mark);
    for (uint32_t i = 0; i < n; i++)
        stw_declare(&w, e[i].name, e[i].dtype, e[i].shape.rank, e[i].shape.d);
    stw_header(&w, 8, &header);
    stw_abandon(&w);
    merge_add(m->arena, &file, text_piece(m, &header));
    for (uint32_t i = 0; i < n; i++)
        merge_add(m->arena, &file, e[i].bytes);
    merge_spare(path, d->mark);
    merge_write(m, path, &file);
}

/* "model-00001-of-00003.safetensors" for "model.safetensors" */
static const char *shard_path(Dict *d, const char *target, uint32_t shard, uint32_t shards)
{
    size_t stem = strlen(target) - strlen(".safetensors");
    return arena_printf(d->m->arena, "%.*s-%05u-of-%05u.safetensors", (int)stem, target, shard + 1,
                        shards);
}

static void write_index(Dict *d, const char *target, uint32_t shards)
{
    Memory text;
    Pieces file = {0};
    uint64_t total = 0;
    const char *path = arena_printf(d->m->arena, "%s.index.json", target);
    for (uint32_t i = 0; i < d->entry.n; i++)
        total += d->entry.at[i].bytes.n;
    FILE *f = memory_open(&text);
    JsonOut o = {.f = f, .lines = 2};
    if (f) {
        json_begin(&o, NULL, '{');
        json_put(&o, "metadata", "{\"total_size\":%" PRIu64 ",\"%s\":\"%s\"}", total, MERGE_MARK,
                 d->mark);
        json_begin(&o, "weight_map", '{');
    }
    for (uint32_t i = 0; f && i < d->entry.n; i++)
        json_put_text(&o, d->entry.at[i].name,
                      base_name(shard_path(d, target, d->entry.at[i].shard, shards)));
    if (f)
        json_end(&o, "}}"), putc('\n', f);
    memory_close(f, &text);
    merge_add(d->m->arena, &file, text_piece(d->m, &text));
    merge_spare(path, d->mark);
    merge_write(d->m, path, &file);
    vec_push(d->m->arena, &d->m->result.file, path);
}

/* In how many files they go, in the model's order; one may be larger than asked for. */
static uint32_t divide(Dict *d)
{
    uint64_t most = d->m->ask->shard_bytes, in_it = 0;
    uint32_t shard = 0;
    for (uint32_t i = 0; i < d->entry.n; i++) {
        Entry *e = &d->entry.at[i];
        if (most && in_it && in_it + e->bytes.n > most) {
            shard++;
            in_it = 0;
        }
        in_it += e->bytes.n;
        e->shard = shard;
    }
    return shard + 1;
}

static void write_dict(Dict *d, const char *target)
{
    uint32_t shards = divide(d), n;
    qsort(d->entry.at, d->entry.n, sizeof *d->entry.at, in_order);
    for (uint32_t i = 0; i < d->entry.n; i += n) {
        const Entry *e = &d->entry.at[i];
        for (n = 1; i + n < d->entry.n && d->entry.at[i + n].shard == e->shard;)
            n++;
        write_tensors(d, shards > 1 ? shard_path(d, target, e->shard, shards) : target, e, n);
    }
    if (shards > 1)
        write_index(d, target, shards);
    if (shards > 1 && access(target, F_OK) == 0) {
        /* an earlier merge in one file, which transformers would read instead */
        merge_spare(target, d->mark);
        vec_push(d->m->arena, &d->m->file, ((Written){.gone = target}));
    }
    if (shards == 1)
        vec_push(d->m->arena, &d->m->result.file, target);
}

/* ---- the optimizer's states ---- */

static void add_states(Dict *to, const Entry *e, const IndexTensor *t, const char *state)
{
    const void *bytes;
    const char *name = arena_printf(to->m->arena, "%s.%s", state, e->name);
    Entry s = {.name = name, .dtype = t->dtype, .shape = {.rank = t->rank}};
    merge_tensor(to->m, t->name, &bytes);
    memcpy(s.shape.d, t->dim, (size_t)t->rank * sizeof *t->dim);
    s.bytes = (Piece){.at = bytes, .n = (size_t)t->bytes};
    vec_push(to->m->arena, &to->entry, s);
}

/* exp_avg.NAME, exp_avg_sq.NAME or momentum_buffer.NAME, and step, as torch.optim counts it. */
static void write_states(const Dict *d, const char *path)
{
    static const char prefix[] = "optimizer/";
    Merge *m = d->m;
    Dict states = {.m = m, .mark = d->mark};
    const char *updates = index_state(&m->index, "updates");
    float *step = arena_new_of(m->arena, float);
    *step = updates ? strtof(updates, NULL) : (float)m->index.step;
    for (int k = 0; k < m->index.n_tensor; k++) {
        const IndexTensor *t = &m->index.tensor[k];
        const char *state = t->name + sizeof prefix - 1, *of;
        if (strncmp(t->name, prefix, sizeof prefix - 1) || !(of = strchr(state, '/')))
            continue;
        state = arena_strndup(m->arena, state, (size_t)(of - state));
        for (uint32_t i = 0; i < d->entry.n; i++)
            if (d->entry.at[i].parameter && !strcmp(d->entry.at[i].parameter, of + 1))
                add_states(&states, &d->entry.at[i], t, state);
    }
    vec_push(m->arena, &states.entry,
             ((Entry){.name = "step", .dtype = DT_F32, .bytes = {.at = step, .n = sizeof *step}}));
    qsort(states.entry.at, states.entry.n, sizeof *states.entry.at, in_order);
    write_tensors(&states, path, states.entry.at, states.entry.n);
    vec_push(m->arena, &m->result.file, path);
}

bool state_dict_model(Merge *m, uint32_t i)
{
    Dict d = {.m = m, .model = i, .names.arena = m->arena, .known.arena = m->arena};
    const char *target = merge_target(m, m->ask->target, i);
    PbSpan skeleton = merge_open_skeleton(m, i, &d.path);
    if (!skeleton.at)
        return false;
    d.mark = merge_mark(m->arena, skeleton);
    read_signature(&d, skeleton);
    collect(&d, skeleton, IN_MODEL);
    report(&d);
    m->result.parameters += d.entry.n;
    write_dict(&d, target);
    if (m->ask->states)
        write_states(&d, merge_target(m, m->ask->states, i));
    return true;
}

/*
 * file.c - parameters that the user gives in files, because folding left them in the model in
 * no way that can be undone, and the numbers that they begin with.  In: --params-from
 * FILE.safetensors or the index of several.  Out: a parameter's shape and bytes, in the type asked
 * for.
 */
#include <string.h>

#include "base/file/tensors.h"
#include "fx.h"

/* The file's tensor in type t, which is a float type; what is no number to train is refused. */
static RawTensor *read_tensor(Arena *a, const char *path, const StTensor *s, Dtype t)
{
    RawTensor raw = {.name = path,
                     .dtype = (Dtype)s->dtype,
                     .shape = {.rank = s->rank},
                     .bytes = {.at = arena_alloc(a, (size_t)s->bytes + 1),
                               .length = (size_t)s->bytes}};
    Tensor wide, out = {.dtype = t};
    if (s->rank > MAX_RANK || !dtype_is_float(raw.dtype))
        diag_fatal(EXIT_MODEL, WHERE_FILE(path), "%s: parameters must be floating-point tensors",
                   dtype_name(raw.dtype));
    for (int i = 0; i < s->rank; i++)
        raw.shape.d[i] = s->dim[i];
    memcpy((void *)(uintptr_t)raw.bytes.at, s->data, (size_t)s->bytes);
    wide = tensor_widen(a, &raw, WHERE_FILE(path));
    out.shape = wide.shape;
    if (wide.dtype == t)
        out = wide;
    else
        eval_node(a, OP_Cast, 1, &wide, &(Attr){.to = t}, 1, &out);
    RawTensor *r = arena_new_of(a, RawTensor);
    *r = (RawTensor){.name = path, .dtype = t, .shape = out.shape};
    r->bytes = (Payload){.at = out.data,
                         .length = (size_t)shape_elements(&out.shape) * dtype_size(t),
                         .file = path,
                         .converted = true};
    return r;
}

static void close_shards(void *f) { tensors_close(f); }

static TensorFiles *open_shards(Arena *a, const char *path)
{
    TensorFiles *f = arena_new_of(a, TensorFiles);
    char err[ST_ERR];
    arena_hold(a, close_shards, f);
    if (tensors_open(f, path, err, sizeof err))
        diag_fatal(EXIT_IO, WHERE_NONE, "%s", err); /* which begins with the file */
    return f;
}

static void leave_shards(Arena *a, TensorFiles *f)
{
    diag_files();
    arena_drop(a, f);
    tensors_close(f);
}

/* NULL when the file has no tensor of this name. */
static RawTensor *from_safetensors(Arena *a, const char *from, const char *name, Dtype t)
{
    TensorFiles *f = open_shards(a, from);
    const StTensor *s = tensors_find(f, name, NULL);
    RawTensor *r = s ? read_tensor(a, tensors_path(from), s, t) : NULL;
    leave_shards(a, f);
    return r;
}

const RawTensor *param_given(const Params *p, const char *name, Dtype t)
{
    Arena *a = p->m->arena;
    for (uint32_t i = 0; i < p->opt->params_from.n; i++) {
        const RawTensor *r = from_safetensors(a, p->opt->params_from.at[i], name, t);
        if (r)
            return r;
    }
    return NULL;
}

/* The names in the files of --params-from. */
uint32_t param_given_names(const Params *p, const char *const **name)
{
    Arena *a = p->m->arena;
    VEC(const char *) all = {0};
    for (uint32_t i = 0; i < p->opt->params_from.n; i++) {
        TensorFiles *f = open_shards(a, p->opt->params_from.at[i]);
        for (int k = 0; k < f->n; k++)
            for (int j = 0; j < f->file[k].n; j++) {
                const StTensor *t = &f->file[k].tensor[j];
                if (dtype_is_float((Dtype)t->dtype))
                    vec_push(a, &all,
                             arena_printf(a, "%s%s%s", f->module ? f->module : "",
                                          f->module ? "." : "", t->name));
            }
        leave_shards(a, f);
    }
    *name = all.at;
    return all.n;
}

/* ---- values ---- */

/* Numbers of a transposed parameter as its file holds them. */
static Payload exchanged(Arena *a, const Payload *b, const Shape *s, Dtype t)
{
    uint8_t *to = arena_alloc(a, b->length + 1);
    param_turn(to, b->at, s->d[0], s->d[1], dtype_size(t));
    return (Payload){.at = to, .length = b->length, .file = b->file, .converted = true};
}

/* The tensor as the parameter's numbers: where it lies, if it needs no other form. */
static void take(const Params *p, Param *q, const StTensor *t, const StFile *f)
{
    Arena *a = p->m->arena;
    Shape s = {.rank = t->rank};
    if (t->rank <= MAX_RANK)
        memcpy(s.d, t->dim, (size_t)t->rank * sizeof *t->dim);
    if (t->rank > MAX_RANK || !shape_equal(&s, &q->shape)) {
        diag_hint("give the parameters of this model");
        diag_fatal(EXIT_MODEL, WHERE_FILE(f->map->path),
                   "tensor '%.128s' is %s, but the model's is %s", diag_escape(a, t->name),
                   t->rank > MAX_RANK ? "of too high a rank" : shape_print(a, (Dtype)t->dtype, &s),
                   shape_print(a, q->dtype, &q->shape));
    }
    if ((Dtype)t->dtype == q->dtype)
        q->bytes = (Payload){.at = (const uint8_t *)t->data,
                             .length = (size_t)t->bytes,
                             .file = f->map->path,
                             .offset = (uint64_t)(t->data - f->map->at)};
    else
        q->bytes = read_tensor(a, f->map->path, t, q->dtype)->bytes;
    if (q->transposed)
        q->bytes = exchanged(a, &q->bytes, &q->shape, q->dtype);
}

/* The parameter by its name, or by another that the exporter's list has for it. */
static bool take_named(const Params *p, Param *q, const TensorFiles *f)
{
    const ParamNote *tied = p->m->tied.at;
    for (uint32_t i = 0; i <= p->m->tied.n; i++) {
        const char *name = i == 0                                    ? q->name
                           : !strcmp(tied[i - 1].parameter, q->name) ? tied[i - 1].text
                                                                     : NULL;
        const StFile *file;
        const StTensor *t = name ? tensors_find(f, name, &file) : NULL;
        if (t)
            return take(p, q, t, file), true;
    }
    return false;
}

/* The files stay mapped: the numbers are read where they are needed. */
void param_take_given(Params *p)
{
    Arena *a = p->m->arena;
    Graph *g = p->g;
    bool *taken = arena_array(a, bool, g->param.n + 1);
    uint32_t missing = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < p->opt->params_from.n; i++) {
        const TensorFiles *f = open_shards(a, p->opt->params_from.at[i]);
        for (uint32_t k = 0; k < g->param.n; k++)
            taken[k] = taken[k] || take_named(p, &g->param.at[k], f);
    }
    for (uint32_t k = 0; k < g->param.n; k++)
        if (!taken[k] && missing++ == 0)
            first = g->param.at[k].name;
    if (!p->opt->params_from.n || !missing)
        return;
    diag_hint("if the file is the state_dict of a module, use --params-from MODULE=FILE");
    diag_warn(WHERE_FILE(p->m->path),
              "%u of %u parameters are not in the files of --params-from and keep the model's "
              "values: %.128s%s",
              missing, g->param.n, diag_escape(a, first), missing > 1 ? ", ..." : "");
}

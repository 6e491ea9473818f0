/*
 * file.c - parameters that the user gives in files, because folding left them in the model in
 * no way that can be undone.  In: --param NAME=FILE.npy|FILE.safetensors, --params-from
 * FILE.safetensors.  Out: a parameter's shape and bytes, in the type asked for.
 */
#include <string.h>

#include "base/file/npy.h"
#include "base/file/safetensors.h"
#include "fx.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* The file's tensor in type t, which is a float type; what is no number to train is refused. */
static RawTensor *read_tensor(Arena *a, const char *path, int dtype, int rank, const int64_t *dim,
                              const void *data, size_t bytes, Dtype t)
{
    RawTensor raw = {.name = path,
                     .dtype = (Dtype)dtype,
                     .shape = {.rank = rank},
                     .bytes = {.at = arena_alloc(a, bytes + 1), .length = bytes}};
    Tensor wide, out = {.dtype = t};
    if (rank > MAX_RANK || !dtype_is_float(raw.dtype))
        diag_fatal(EXIT_MODEL, WHERE_FILE(path), "%s: parameters are floating-point tensors",
                   dtype_name(raw.dtype));
    for (int i = 0; i < rank; i++)
        raw.shape.d[i] = dim[i];
    memcpy((void *)(uintptr_t)raw.bytes.at, data, bytes);
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

static void close_npy(void *f) { npy_close(f); }
static void close_st(void *f) { st_close(f); }

static RawTensor *from_npy(Arena *a, const char *path, Dtype t)
{
    NpyFile *f = arena_new_of(a, NpyFile);
    char err[256];
    arena_hold(a, close_npy, f);
    if (npy_open(f, path, err, sizeof err))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", err);
    RawTensor *r = read_tensor(a, path, f->dtype, f->rank, f->dim, f->data, (size_t)f->bytes, t);
    diag_files();
    arena_drop(a, f);
    npy_close(f);
    return r;
}

/* NULL when the file has no tensor of this name. */
static RawTensor *from_safetensors(Arena *a, const char *path, const char *name, Dtype t)
{
    StFile *f = arena_new_of(a, StFile);
    char err[ST_ERR];
    arena_hold(a, close_st, f);
    if (st_open(f, path, err, sizeof err))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", err);
    const StTensor *s = st_find(f, name);
    RawTensor *r =
        s ? read_tensor(a, path, s->dtype, s->rank, s->dim, s->data, (size_t)s->bytes, t) : NULL;
    diag_files();
    arena_drop(a, f);
    st_close(f);
    return r;
}

const RawTensor *param_given(const Params *p, const char *name, Dtype t)
{
    Arena *a = p->m->arena;
    size_t n = strlen(name);
    for (uint32_t i = 0; i < p->opt->given.n; i++) {
        const char *given = p->opt->given.at[i], *path = given + n + 1;
        if (strncmp(given, name, n) || given[n] != '=')
            continue;
        if (!ends_with(path, ".safetensors"))
            return from_npy(a, path, t);
        const RawTensor *r = from_safetensors(a, path, name, t);
        if (!r)
            diag_fatal(EXIT_USAGE, WHERE_FILE(path), "no tensor '%s'", name);
        return r;
    }
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
        StFile *f = arena_new_of(a, StFile);
        char err[ST_ERR];
        arena_hold(a, close_st, f);
        if (st_open(f, p->opt->params_from.at[i], err, sizeof err))
            diag_fatal(EXIT_IO, WHERE_FILE(p->opt->params_from.at[i]), "%s", err);
        for (int k = 0; k < f->n; k++)
            if (dtype_is_float((Dtype)f->tensor[k].dtype))
                vec_push(a, &all, arena_strdup(a, f->tensor[k].name));
        arena_drop(a, f);
        st_close(f);
    }
    *name = all.at;
    return all.n;
}

/* Each --param names a parameter of one of the models. */
void param_check_given(const ImportOptions *opt, uint32_t n, Params *const *p)
{
    Arena *a = p[0]->m->arena;
    VEC(const char *) name = {0};
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t e = 0; e < p[k]->sig.n; e++)
            if (p[k]->sig.entry[e].kind == SIG_PARAMETER)
                vec_push(a, &name, p[k]->sig.entry[e].target);
    for (uint32_t i = 0; i < opt->given.n; i++) {
        const char *given = opt->given.at[i], *equals = strchr(given, '=');
        bool known = false;
        if (!equals || !equals[1])
            diag_fatal(EXIT_USAGE, WHERE_NONE,
                       "--param wants NAME=FILE.npy or NAME=FILE.safetensors, not '%s'", given);
        const char *own = arena_strndup(a, given, (size_t)(equals - given));
        for (uint32_t k = 0; k < name.n && !known; k++)
            known = !strcmp(name.at[k], own);
        if (known)
            continue;
        const char *near = nearest_name(own, name.at, name.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        else if (name.n == 0)
            diag_hint("models exported by PyTorch's dynamo exporter list their parameters; of "
                      "others --train NAME makes initializers parameters");
        diag_fatal(EXIT_USAGE, WHERE_FILE(p[0]->m->path),
                   "--param %s: the model declares no such parameter", own);
    }
}

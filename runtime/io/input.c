/*
 * input.c - in: a name on the command line and a file; out: the model's input of that name, one
 * more file of it, the rows so far.
 */
#include "data.h"

#include "base/cli/nearest.h"
#include "base/file/safetensors.h"
#include "core/core.h"

#include <string.h>

const char *data_dtype_text(int dtype)
{
    switch (dtype) {
    case 1: return "float32";
    case 2: return "uint8";
    case 3: return "int8";
    case 4: return "uint16";
    case 6: return "int32";
    case 7: return "int64";
    case 9: return "bool";
    case 10: return "float16";
    case 11: return "float64";
    case 16: return "bfloat16";
    default: return "another type";
    }
}

const char *data_option(const Data *d, int tokens)
{
    static const char *const name[2][2] = {{"data", "tokens"}, {"eval-data", "eval-tokens"}};
    return name[d->opt->eval.on][tokens];
}

int data_total(const PpPlan *p, int input)
{
    for (int k = 0; k < p->totals.n; k++)
        if (p->totals.of[k].input == input)
            return k;
    return -1;
}

PpStatus data_find(const PpPlan *p, const char *option, const char *name, int *at)
{
    const char **names;
    size_t n = 0;
    POOL(room);
    TRY(pp_take(&room, &names, p->n_input, sizeof *names));
    *at = -1;
    for (int i = 0; i < p->n_input; i++) {
        if (data_total(p, i) >= 0)
            continue;
        names[n++] = p->input[i].name;
        if (!strcmp(p->input[i].name, name))
            *at = i;
    }
    char meant[200];
    nearest_text(name, names, n, meant, sizeof meant);
    if (*at >= 0)
        return PP_OK;
    return pp_fail(PP_ERR_USAGE, "--%s %s: the model has no such input%s", option, name, meant);
}

PpStatus data_add(Data *d, int input, const char *path, DataFile **added)
{
    DataInput *in = &d->input[input];
    const DataFile f = {.path = path, .first = in->rows, .set = in->sets - 1};
    TRY(pp_add(&d->pool, &in->file, &in->n, &f, sizeof f));
    *added = &in->file[in->n - 1];
    return PP_OK;
}

/* A tensor whose numbers were decoded is no longer read from its file. */
void data_place(const DataInput *in, const DataFile *f)
{
    int64_t size = st_dtype_size(f->npy.dtype), piece = in->tokens ? in->outer * in->inner
                                                                    : in->inner;
    const char *first = f->npy.data + (in->tokens ? in->shift * size : 0);
    if (!f->npy.own && f->rows > 0 && !in->ragged)
        file_rows(f->npy.map, (size_t)(first - f->npy.map->at), (size_t)(piece * size),
                  (size_t)f->rows);
}

PpStatus data_count(DataInput *in, const DataFile *f, const char *name)
{
    return __builtin_add_overflow(in->rows, f->rows, &in->rows)
               ? pp_fail(PP_ERR_MODEL, "%s=%s: too many rows", name, f->path)
               : PP_OK;
}

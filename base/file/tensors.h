/*
 * tensors.h - the tensors of a model that stand in one .safetensors file or in several, as
 * transformers writes them: beside MODEL-00001-of-00003.safetensors and its sisters an index
 *
 *     {"metadata": {"total_size": N}, "weight_map": {"lm_head.weight": "MODEL-00001-of-...", ...}}
 *
 * called MODEL.safetensors.index.json.  Used by the compiler and by every generated program; needs
 * libc only.  Functions return 0, or -1 with a one-line message in err.
 */
#ifndef PP_TENSORS_H
#define PP_TENSORS_H

#include "base/file/safetensors.h"

typedef struct {
    Pool pool;
    StFile *file;
    const char **name; /* of the files, as the index has them */
    int n;
    const char *module; /* the files have the names of this module's state_dict; NULL: all */
} TensorFiles;

/* path: of a .safetensors file, or of an index, which ends in .json; with MODULE= before it where
 * it has the state_dict of that module of the model */
int tensors_open(TensorFiles *s, const char *path, char *err, size_t nerr);
/* The tensor of which the model's name is this one; NULL: there is none.  file: where it stands,
 * may be NULL */
const StTensor *tensors_find(const TensorFiles *s, const char *name, const StFile **file);
/* The file in MODULE=FILE, or the text itself */
const char *tensors_path(const char *text);
/* -1: a file was cut short while it was read */
int tensors_whole(const TensorFiles *s, char *err, size_t nerr);
void tensors_close(TensorFiles *s);

#endif

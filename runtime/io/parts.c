/*
 * parts.c - a parameter of a stage is all of the model's, or a part of it (PpParam.axis), another
 * one for each member.  In: its row; out: the whole's shape, and which bytes of it a member has.
 */
#include "files.h"

#include "base/file/safetensors.h"

#include <string.h>

void param_shape(const PpParam *p, int64_t dim[PP_MAX_RANK])
{
    memcpy(dim, p->t.dim, sizeof p->t.dim);
    if (param_divided(p))
        dim[p->axis] = p->whole;
}

int64_t param_bytes(const PpParam *p)
{
    return !param_divided(p) || !p->t.bytes ? p->t.bytes
                                            : p->t.bytes / p->t.dim[p->axis] * p->whole;
}

Box param_box(const PpParam *p, int member)
{
    int64_t dim[PP_MAX_RANK], groups = p->groups > 1 ? p->groups : 1;
    if (!param_divided(p) || !p->t.bytes)
        return box_whole(p->t.bytes);
    param_shape(p, dim);
    return box_along(p->t.rank, dim, p->axis, groups, p->first + member * p->step,
                     p->t.dim[p->axis] / groups, st_dtype_size(p->t.dtype));
}

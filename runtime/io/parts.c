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
    if (p->outer.whole)
        dim[p->outer.dim] = p->outer.whole;
}

int64_t param_bytes(const PpParam *p)
{
    int64_t dim[PP_MAX_RANK], bytes = st_dtype_size(p->t.dtype);
    param_shape(p, dim);
    for (int i = 0; i < p->t.rank; i++)
        bytes *= dim[i];
    return bytes;
}

static int64_t groups_of(const PpParam *p) { return p->groups > 1 ? p->groups : 1; }

int64_t param_from(const PpParam *p, int member) { return p->first + member * p->step; }

int64_t param_many(const PpParam *p, int member)
{
    int64_t n = p->t.dim[p->axis] / groups_of(p),
            left = p->whole / groups_of(p) - param_from(p, member);
    return n < left ? n : left;
}

int64_t param_outer(const PpPlan *model, const PpParam *p, int member)
{
    return p->outer.first + plan_member_along(model, member, p->outer.mesh) * p->outer.step;
}

Box param_box(const PpPlan *model, const PpParam *p, int member)
{
    const int own = plan_own_part(model, p, member);
    int64_t dim[PP_MAX_RANK], groups = groups_of(p);
    if (!param_divided(p) || !p->t.bytes)
        return box_whole(p->t.bytes);
    int64_t n = param_many(p, own);
    param_shape(p, dim);
    Box b = box_along(p->t.rank, dim, p->axis, groups, param_from(p, own), n,
                      st_dtype_size(p->t.dtype));
    b.gap = b.size / n * (p->t.dim[p->axis] / groups - n);
    b.bytes = p->t.bytes;
    if (p->outer.whole) /* it comes before what is cut: a range of the box's bytes */
        b.first = p->t.bytes / p->t.dim[p->outer.dim] * param_outer(model, p, member);
    return b;
}

Box box_piece(Box b, const Piece *piece)
{
    b.first += piece ? piece->first : 0;
    b.bytes = piece ? piece->bytes : b.bytes;
    return b;
}

int param_next(const PpPlan *model, ParamName *i)
{
    for (; i->stage < model->n_stage; i->stage++, i->param = 0)
        for (; i->param < model->stage[i->stage]->n_param; i->param++, i->nth = 0) {
            i->p = &model->stage[i->stage]->param[i->param];
            if (i->nth == param_names(i->p))
                continue;
            i->name = param_nth(i->p, i->nth++);
            return 1;
        }
    return 0;
}

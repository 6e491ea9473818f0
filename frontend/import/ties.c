/*
 * ties.c - who has the gradient of equal elements.  In: a node that takes the larger or the
 * smaller.  Out: what PyTorch's call does, as dynamo's metadata or the nodes around tell it; and
 * what is to be said where nothing tells.
 *
 * torch.maximum and amax share it; max(dim) gives it to the element at the index that it returns; a
 * clamp by a number has none at its bound.
 */
#include <string.h>

#include "driver.h"

static bool calls_one_of(const char *fx, const char *const *target, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(fx, target[i]))
            return true;
    return false;
}

/* A clamp by numbers is written with tensors too, which its arguments say. */
bool im_shares_ties(const Import *im)
{
    static const char *const of_tensors[] = {
        "aten.maximum.default]", "aten.minimum.default]",   "aten.max.other]",
        "aten.min.other]",       "aten.clamp.Tensor]",      "aten.clamp_min.Tensor]",
        "aten.clamp_max.Tensor]"};
    const char *fx = im->node->fx_node;
    return fx && calls_one_of(fx, of_tensors, sizeof of_tensors / sizeof *of_tensors) &&
           !strstr(fx, "%scalar_tensor");
}

/* Both results of max(dim): an ArgMax of the same operand along the same axis. */
static bool has_arg(const Import *im, int axis, int rank)
{
    const char *arg = im->op == OP_ReduceMax ? "ArgMax" : "ArgMin";
    const RawNodes *list = im->state->list;
    for (uint32_t i = 0; list && i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (strcmp(n->op_type, arg) || n->nin != 1 || strcmp(n->in[0], im->node->in[0]))
            continue;
        int64_t at = raw_int(n, "axis", 0);
        if ((at < 0 ? at + rank : at) == axis)
            return true;
    }
    return false;
}

bool im_has_index(const Import *im, int axis)
{
    static const char *const of_dim[] = {"target=torch.ops.aten.max.dim]",
                                         "target=torch.ops.aten.min.dim]"};
    ImportState *s = im->state;
    const char *fx = im->node->fx_node;
    if (!im->training || fx || !s->m->from_pytorch)
        return im->training && fx && calls_one_of(fx, of_dim, 2);
    if (has_arg(im, axis, val(im->g, im->in[0])->shape.rank))
        return true;
    if (import_carries(s, im->in[0]))
        import_note(&s->ties, im->node);
    return false;
}

void ties_report(const ImportState *s)
{
    if (s->ties.n == 0)
        return;
    diag_hint("if elements can be equal, export with dynamo=True, which records which one it is");
    diag_warn(WHERE_FILE(s->m->path),
              "%u ReduceMax or ReduceMin of TorchScript (first '%.128s'): equal elements share the "
              "gradient, as in amax; if the model calls max(dim), one of them should have it, but "
              "the file does not say so",
              s->ties.n, diag_escape(s->m->arena, s->ties.first));
}

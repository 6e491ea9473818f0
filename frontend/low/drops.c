/*
 * drops.c - which Dropouts drop in training.  In: the nodes of a model, --dropout.  Out: im_drops()
 * and im_lost_dropout() for the importers.
 *
 * A Dropout of opset 12 and later has a training_mode.  Both exporters of PyTorch write
 * scaled_dot_product_attention's, and so that of nn.MultiheadAttention and of what is made of it,
 * without one, which ONNX takes for false; dynamo's optimizer then removes it, and the metadata
 * alone has its ratio.  So where others drop, one without a mode does too; one whose mode is false
 * (a backbone that was exported in evaluation mode) stays as it is written.
 */
#include <string.h>

#include "state.h"

/* Calls of PyTorch that drop among the weights of attention, and where their ratio stands. */
static const struct {
    const char *target;
    int position;
} attention[] = {
    {"aten.scaled_dot_product_attention.default", 4},
    {"aten._scaled_dot_product_flash_attention.default", 3},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", 3},
    {"aten._scaled_dot_product_efficient_attention.default", 5},
};

/* The ratio that PyTorch's attention was given, 0: it was given none. */
static double told_ratio(const RawNode *n)
{
    double ratio;
    for (size_t i = 0; n->fx_node && i < sizeof attention / sizeof *attention; i++)
        if (meta_number(n->fx_node, attention[i].target, attention[i].position, "dropout_p",
                        &ratio))
            return ratio > 0 && ratio <= 1 ? (double)(float)ratio : 0;
    return 0;
}

static bool is_dropout(const RawNode *n) { return !*n->domain && !strcmp(n->op_type, "Dropout"); }

/* ---- what a mode is ---- */

static bool is_other_than_0(const ImportState *s, const RawTensor *t, Where w)
{
    Tensor x = tensor_widen(s->m->arena, t, w);
    return shape_elements(&x.shape) == 1 && element_double(x.dtype, x.data, 0) != 0;
}

/* Is the value a constant other than 0?  Copies and casts of one are looked through. */
static bool is_set(const ImportState *s, const RawNodes *list, const char *name)
{
    const RawNode *n = raw_maker(list, name);
    while (n && n->nin == 1 && (!strcmp(n->op_type, "Identity") || !strcmp(n->op_type, "Cast"))) {
        name = n->in[0];
        n = raw_maker(list, name);
    }
    const Onnx__AttributeProto *a =
        n && !strcmp(n->op_type, "Constant") ? raw_attr(n, "value") : NULL;
    uint32_t init = n ? NONE : strmap_get(&s->m->init_index, name), at;
    if (a && a->t) {
        RawTensor t;
        tensor_read(s->m, a->t, raw_where(s->m, n, -1), &t);
        return is_other_than_0(s, &t, raw_where(s->m, n, -1));
    }
    if (init != NONE)
        return is_other_than_0(s, &s->m->init.at[init], WHERE_FILE(s->m->path));
    at = n ? NONE : strmap_get(&s->env, name); /* an input that has a value */
    double x;
    return at != NONE && !s->slot.at[at].is_sequence &&
           g_const_double(s->g, s->slot.at[at].v, &x) && x != 0;
}

void drops_find(ImportState *s, const RawNodes *list)
{
    Drops *d = &s->drops;
    d->dropout.arena = s->g->arena;
    for (uint32_t i = 0; i < list->n && s->opt->training; i++) {
        const RawNode *n = list->at[i];
        if (n->dead)
            continue;
        if (is_dropout(n) && n->fx_node)
            *strmap_at(&d->dropout, n->fx_node) = 1;
        d->any = d->any || told_ratio(n) > 0 ||
                 (is_dropout(n) && n->nin > 2 && *n->in[2] && is_set(s, list, n->in[2]));
    }
}

/* ---- what the importers ask ---- */

/* The node's mode is lost, or it is false as others are. */
static bool lost_one_drops(const Import *im, bool lost)
{
    Drops *d = &im->state->drops;
    bool drops = im->state->opt->dropout == DROPOUT_TRAIN ||
                 (im->state->opt->dropout == DROPOUT_OF_ATTENTION && d->any && lost);
    if (!drops && !lost && d->any)
        return false;
    import_note(im->state, drops ? UNTOLD_DROPS : UNTOLD_STAYS, im->node);
    return drops;
}

bool im_drops(const Import *im, double ratio)
{
    if (!im->training || ratio == 0)
        return false;
    if (im->opset < 12)
        return true;
    return im_const_double(im, 2, 0) != 0 || lost_one_drops(im, im_in(im, 2) == NONE);
}

double im_lost_dropout(const Import *im)
{
    double ratio = im->training ? told_ratio(im->node) : 0;
    if (ratio == 0 || strmap_get(&im->state->drops.dropout, im->node->fx_node) != NONE)
        return 0;
    return lost_one_drops(im, true) ? ratio : 0;
}

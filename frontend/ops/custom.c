/*
 * custom.c - a node of the user's own domain, as the table of --ops describes it: one core
 * operation, whose functions the program calls.
 */
#include <string.h>

#include "frontend/low/low.h"
#include "frontend/low/state.h"

const CustomOp *custom_find(const CustomOps *ops, const RawNode *n)
{
    for (uint32_t i = 0; i < ops->op.n; i++)
        if (!strcmp(ops->op.at[i]->of.domain, n->domain) &&
            !strcmp(ops->op.at[i]->of.name, n->op_type))
            return ops->op.at[i];
    return NULL;
}

enum { INT_ATTRIBUTE = 2 }; /* AttributeProto.AttributeType */

/* The node's numbers, for its own copies of the row. */
static void read_numbers(Import *im, CustomAttr *c)
{
    double *number = arena_array(im->g->arena, double, c->n_number + 1);
    bool *whole = arena_array(im->g->arena, bool, c->n_number + 1);
    for (uint32_t k = 0; k < c->n_number; k++) {
        int64_t v;
        const Onnx__AttributeProto *a = raw_attr(im->node, c->number_name[k]);
        if (!a)
            low_fatal(im, -1,
                      "it has no attribute '%s', which its row in the table of --ops asks for",
                      c->number_name[k]);
        whole[k] =
            a->has_type && (int)a->type == INT_ATTRIBUTE && im_value_int(im, c->number_name[k], &v);
        number[k] = whole[k] ? (double)v : im_float(im, c->number_name[k], 0);
    }
    c->number = number;
    c->whole = whole;
}

/* What the functions do not hear of would be lost. */
static void check_attributes(const Import *im, const CustomAttr *c)
{
    for (uint32_t i = 0; i < im->node->nattr; i++) {
        const char *name = im->node->attr[i]->name;
        bool known = false;
        for (uint32_t k = 0; k < c->n_number; k++)
            known |= !strcmp(name, c->number_name[k]);
        if (known)
            continue;
        diag_hint("if it is a number, add it to its row: numbers = %s",
                  diag_escape(im->arena, name));
        low_fatal(im, -1, "its row in the table of --ops does not name the attribute '%s'",
                  diag_escape(im->arena, name));
    }
}

void import_custom(Import *im)
{
    Graph *g = im->g;
    const CustomOp *row = custom_find(&im->state->opt->custom, im->node);
    CustomAttr *c = arena_new_of(g->arena, CustomAttr);
    *c = row->of;
    if (im->nin != c->nin || im->nout != c->nout)
        low_fatal(im, -1, "it has %u inputs and %u outputs, but its row in %s has %u and %u",
                  im->nin, im->nout, row->path, c->nin, c->nout);
    check_attributes(im, c);
    read_numbers(im, c);
    if (c->gradient) {
        CustomAttr *back = arena_new_of(g->arena, CustomAttr);
        *back = *c->gradient;
        back->n_number = c->n_number;
        back->number_name = c->number_name;
        back->number = c->number;
        back->whole = c->whole;
        c->gradient = back;
    }
    for (uint32_t i = 0; i < c->nin; i++) {
        low_need(im, i);
        if (c->rows[i] && low_shape(g, im->in[i]).rank == 0)
            low_fatal(im, (int)i, "its row in %s says that it holds samples, but it is a scalar",
                      row->path);
    }
    im->out[0] = graph_node(g, OP_Custom, c->nin, im->in, (Attr){.n = (int)c->nout, .custom = c});
    for (uint32_t o = 1; o < c->nout; o++)
        im->out[o] = graph_out(g, im->out[0], o);
}

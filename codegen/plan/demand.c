/*
 * demand.c - what library calls and kernels of their own kind demand of their operands and results:
 * where these may stand, which are read and written through memory at all, and who can add to what
 * is there.
 */
#include "plan.h"

bool cg_is_convolution(const Node *n)
{
    return n->op == OP_Conv || n->op == OP_ConvTranspose || n->op == OP_ConvWeightGrad;
}

/* Kernels of a body take four elements at once of what it is given. */
static bool begins(const Func *f, const Node *n, const Ref *r)
{
    return n->op != OP_Recurrence || cg_divisor_lin(f->sg, r->off) % 4 == 0;
}

bool cg_call_reads(Func *f, const Node *n, uint32_t i)
{
    if (n->op == OP_Concat)
        return true;
    if (cg_is_factor(f, n, i))
        return cg_product_reads(f, n->in[i]) && (i > 0 || cg_product_folds(f, n)) &&
               (!cg_ref(f, n->in[i])->wide || cg_batches_fit(f, n));
    if ((n->op == OP_ScatterElements || n->op == OP_ScatterND) && i == 0 &&
        cg_zeros(f->g, n->in[0]))
        return true;                                    /* not read: the kernel clears */
    if (n->op == OP_Random)
        return true;                                    /* a shape alone */
    const Ref *r = cg_ref(f, n->in[i]);
    if (cg_is_attention(n))
        return cg_attention_reads(f, n, i) && (!r->wide || cg_attention_fits(f, n));
    return !r->wide && cg_is_dense(r) && begins(f, n, r);
}

bool cg_call_writes(const Func *f, const Node *n, const Ref *r)
{
    if (n->op == OP_Concat)
        return true;
    if (cg_is_product(f, n))
        return cg_product_writes(f, n, r);
    return cg_is_attention(n) ? cg_attention_writes(f, n, r) : cg_is_dense(r) && begins(f, n, r);
}

bool cg_call_adds(const Func *f, const Node *n)
{
    switch (n->op) {
    /* a half is rounded before it is added */
    case OP_MatMul:
    case OP_PackedMatMul: return cg_is_product(f, n) && !dtype_is_half(val(f->g, n->out[0])->dtype);
    case OP_ConvWeightGrad: return true;
    case OP_ScatterElements:
    case OP_ScatterND: return n->attr.reduction == SCATTER_ADD && cg_zeros(f->g, n->in[0]);
    default: return false;
    }
}

bool cg_kernel_reads(const Func *f, const Node *n, uint32_t i)
{
    bool scatter = n->op == OP_ScatterElements || n->op == OP_ScatterND;
    if (n->op == OP_Random)
        return false;
    return !(scatter && i == 0 && (f->acc.at[n->out[0]] || cg_zeros(f->g, n->in[0])));
}

const Accesses *cg_accesses(Func *f, uint32_t o)
{
    Group *k = &f->group.at[f->order.at[o]];
    const Node *n = k->kind == G_CALL ? &f->g->node.at[k->member.at[0].node] : NULL;
    if (k->access.n)
        return &k->access;
    for (uint32_t i = 0; k->nest && i < k->nest->arg.n; i++)
        vec_push(f->a, &k->access, ((Access){k->nest->arg.at[i].buf, k->nest->arg.at[i].written}));
    for (uint32_t i = 0; n && i < n->nin; i++)
        if (n->in[i] != NONE && cg_kernel_reads(f, n, i))
            vec_push(f->a, &k->access, ((Access){cg_ref(f, n->in[i])->buf, false}));
    for (uint32_t i = 0; n && i < n->nout; i++)
        if (cg_kernel_writes(f, n, i))
            vec_push(f->a, &k->access, ((Access){cg_ref(f, n->out[i])->buf, true}));
    return &k->access;
}

/* A second result that nobody reads is not made, nor any of a Recurrence. */
bool cg_kernel_writes(const Func *f, const Node *n, uint32_t out)
{
    if (((n->op == OP_MaxPool || n->op == OP_FlashAttention) && out == 1) || n->op == OP_Dropout ||
        n->op == OP_Recurrence)
        return f->needed[n->out[out]];
    return true;
}

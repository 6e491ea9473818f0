/*
 * onnx_write.c - a stage as two ONNX models.  stageN.onnx: the stage's inputs -> its outputs and
 * its stash, as in training. stageN.backward.onnx: the stash and grad/OUTPUT -> grad/INPUT and
 * grad/PARAMETER.  Value names are the model's, so the files of all stages chain by name; gradients
 * of one value that several files yield are added by the caller.
 *
 * The wire format is written directly: structure is built in memory, parameters are copied one by
 * one into the stream, or referred to where they already stand when they are large; long constants
 * are outside of all files (outside.c).
 */
#include <stdlib.h>
#include <string.h>

#include "onnx_fields.h"
#include "onnx_write.h"
#include "outside.h"

enum { IR_VERSION = 8, OPSET = 18, NEWER_IR_VERSION = 13 };     /* that of opset 26 */

/* ---- the file -------------------------------------------------------------------------------- */

static void add_input(Ow *w, ValueId v, const char *name)
{
    if (w->alias[v])
        return;
    w->alias[v] = name ? name : ow_plain_name(w, v);
    ow_info(w, &w->input, GRAPH_INPUT, w->alias[v], val(w->g, v));
}

/* loss_scale, where one of them reads it and it is not listed as an input */
static void add_scale(Ow *w, const Ids *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *n = &w->g->node.at[list->at[i]];
        for (uint32_t j = 0; j < n->nin; j++)
            if (n->in[j] == w->p->loss_scale)
                add_input(w, n->in[j], NULL);
    }
}

static Ow begin(const Pipe *p, OutsideFile *outside, Arena *a)
{
    Ow w = {.p = p,
            .g = p->graph,
            .a = a,
            .node.a = a,
            .init.a = a,
            .input.a = a,
            .output.a = a,
            .write = ow_node,
            .outside = outside,
            .param_name.arena = a};
    w.alias = arena_array(a, const char *, w.g->value.n + 1);
    for (uint32_t i = 0; i < w.g->param.n; i++)
        *strmap_at(&w.param_name, diag_escape(a, w.g->param.at[i].name)) = i;
    return w;
}

static void write_all(const PbMessage *b, FILE *f)
{
    if (b->n && fwrite(b->at, 1, b->n, f) != b->n)
        diag_fatal(EXIT_IO, WHERE_NONE, "cannot write a stage's ONNX file");
}

/* A parameter: its TensorProto without the bytes, and, when they follow, how many. */
typedef struct { PbMessage head; const Param *p; size_t bytes; } Weight;

enum { INSIDE_LIMIT = 64 << 20 };

static void write_weight(const Weight *x, FILE *f)
{
    write_all(&x->head, f);
    if (x->bytes == 0)
        return;
    unsigned char *bytes = malloc(x->bytes);
    if (!bytes)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory (%zu bytes asked for)", x->bytes);
    param_bytes(x->p, bytes);
    bool good = fwrite(bytes, 1, x->bytes, f) == x->bytes;
    free(bytes);
    if (!good)
        diag_fatal(EXIT_IO, WHERE_NONE, "cannot write a stage's ONNX file");
}

static Weight weight_inside(Ow *w, const Param *p, const char *name, size_t bytes)
{
    PbMessage head = ow_tensor_head(w->a, name, p->dtype, &p->shape), whole = {.a = w->a};
    pb_put_key(&head, TENSOR_RAW, PB_BYTES);
    pb_put_varint(&head, bytes);
    pb_put_key(&whole, GRAPH_INITIALIZER, PB_BYTES);
    pb_put_varint(&whole, head.n + bytes);
    pb_put(&whole, head.at, head.n);
    return (Weight){whole, p, bytes};
}

static Weight weight_outside(Ow *w, const Param *p, const char *name, size_t bytes,
                             const OnnxWeight *at)
{
    PbMessage head = ow_tensor_head(w->a, name, p->dtype, &p->shape), whole = {.a = w->a};
    onnx_put_external(&head, at->file, (uint64_t)at->offset, bytes);
    pb_put_message(&whole, GRAPH_INITIALIZER, &head);
    return (Weight){whole, p, 0};
}

/* Every parameter the file reads: inside, outside, or (no head) an input. */
static Weight *place_weights(Ow *w, const OnnxWeight *at)
{
    Weight *weight = arena_array(w->a, Weight, w->param.n + 1);
    size_t all = 0;
    for (uint32_t i = 0; i < w->param.n; i++)
        all += (size_t)param_size(&w->g->param.at[w->param.at[i]]);
    for (uint32_t i = 0; i < w->param.n; i++) {
        const Param *p = &w->g->param.at[w->param.at[i]];
        const char *name = ow_name(w, p->value);
        size_t bytes = (size_t)param_size(p);
        if (p->divided || p->bytes.absent)        /* each member has another part */
            ow_info(w, &w->input, GRAPH_INPUT, name, val(w->g, p->value));
        else if (all <= INSIDE_LIMIT)
            weight[i] = weight_inside(w, p, name, bytes);
        else if (at && at[w->param.at[i]].file)
            weight[i] = weight_outside(w, p, name, bytes, &at[w->param.at[i]]);
        else
            ow_info(w, &w->input, GRAPH_INPUT, name, val(w->g, p->value));
    }
    return weight;
}

static void finish(Ow *w, const char *name, const OnnxWeight *at, FILE *f)
{
    Weight *weight = place_weights(w, at);
    PbMessage graph_name = {.a = w->a}, model = {.a = w->a}, opset = {.a = w->a};
    pb_put_string(&graph_name, GRAPH_NAME, name);
    size_t length = w->node.n + graph_name.n + w->init.n + w->input.n + w->output.n;
    for (uint32_t i = 0; i < w->param.n; i++)
        length += weight[i].head.n + weight[i].bytes;
    onnx_check_size(arena_printf(w->a, "%s.onnx", name), length);
    pb_put_int(&model, MODEL_IR, w->opset > OPSET ? NEWER_IR_VERSION : IR_VERSION);
    pb_put_string(&model, MODEL_PRODUCER, "ppsplit");
    pb_put_int(&opset, OPSET_VERSION, w->opset > OPSET ? w->opset : OPSET);
    pb_put_message(&model, MODEL_OPSET, &opset);
    for (uint32_t i = 0; i < w->domain.n; i++) {
        PbMessage ours = {.a = w->a};
        pb_put_string(&ours, OPSET_DOMAIN, w->domain.at[i]);
        pb_put_int(&ours, OPSET_VERSION, 1);
        pb_put_message(&model, MODEL_OPSET, &ours);
    }
    pb_put_key(&model, MODEL_GRAPH, PB_BYTES);
    pb_put_varint(&model, length);
    write_all(&model, f);
    write_all(&w->node, f);
    write_all(&graph_name, f);
    write_all(&w->init, f);
    for (uint32_t i = 0; i < w->param.n; i++)
        write_weight(&weight[i], f);
    write_all(&w->input, f);
    write_all(&w->output, f);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void add_output(Ow *w, bool *listed, ValueId v)
{
    if (listed[v])
        return;
    listed[v] = true;
    ow_info(w, &w->output, GRAPH_OUTPUT, ow_name(w, v), val(w->g, v));
}

void onnx_write_forward(const Pipe *p, uint32_t stage, const OnnxWeight *weight,
                        OutsideFile *outside, FILE *f)
{
    Arena *a = arena_within(p->graph->arena);
    Ow w = begin(p, outside, a);
    const Stage *s = &p->stage.at[stage];
    bool *listed = arena_array(a, bool, w.g->value.n + 1);
    for (uint32_t i = 0; i < s->input.n; i++) {
        add_input(&w, s->input.at[i].value, NULL);
        listed[s->input.at[i].value] = true;            /* kept as it came: whoever fed it has it */
    }
    add_scale(&w, &s->forward);
    if (p->loss_scale != NONE)
        listed[p->loss_scale] = true;
    for (uint32_t i = 0; i < s->forward.n; i++)
        ow_node(&w, s->forward.at[i]);
    for (uint32_t i = 0; i < s->output.n; i++)
        add_output(&w, listed, s->output.at[i].value);
    if (stage + 1 == p->stage.n && p->loss != NONE)
        add_output(&w, listed, p->loss);
    for (uint32_t i = 0; i < s->stash.n; i++)
        add_output(&w, listed, s->stash.at[i]);
    finish(&w, arena_printf(a, "stage%u", stage), weight, f);
    arena_free(a);
}

/* ---- backward -------------------------------------------------------------------------------- */

static const char *of_gradient(Ow *w, ValueId v)
{
    return arena_printf(w->a, "grad/%s", ow_plain_name(w, v));
}

/* The gradients that come in for one output are one input, added by the caller: the first of them
 * stands for all. */
static void add_received(Ow *w, const StageOutput *out)
{
    for (uint32_t j = 0; j < out->dys.n; j++)
        if (j == 0)
            add_input(w, out->dys.at[0], of_gradient(w, out->value));
        else
            w->alias[out->dys.at[j]] = ow_number(w, val(w->g, out->value)->dtype, 0);
}

/* sum: NULL: nothing so far */
static const char *plus(Ow *w, const char *sum, const char *x)
{
    if (!sum || !x)
        return sum ? sum : x;
    const char *next = ow_made(w);
    OnnxNode n = ow_begin(w, "Add", 2, (const char *[]){sum, x}, 1, &next);
    ow_end(w, &n);
    return next;
}

static const char *over_members(Ow *w, const char *x, uint32_t along)
{
    for (int k = 0; x && k < MESH_AXES; k++) {
        const char *sum = ow_made(w);
        if (!(along >> k & 1) || w->g->mesh[k].members == 1)
            continue;
        OnnxNode n = ow_begin(w, "AllReduce", 1, &x, 1, &sum);
        ow_int(&n, "members", w->g->mesh[k].members);
        ow_domain(&n, "ppsplit");
        ow_end(w, &n);
        ow_import(w, "ppsplit");
        x = sum;
    }
    return x;
}

/* By contribution the axes of the mesh, over whose members it is a part of a sum. */
static uint32_t *partial(Ow *w, const ParamUse *u)
{
    uint32_t *along = arena_array(w->a, uint32_t, u->grads.n + 1);
    for (uint32_t i = 0; i < u->grads.n; i++) {
        uint32_t before = u->uses, at = u->of_use.at[i];
        for (uint32_t k = 0; k < u->partial.n; k++) {
            uint32_t others = graph_pieces_along(w->g, u->partial.at[k].along) - 1;
            if (at == u->partial.at[k].use || (at >= before && at < before + others))
                along[i] = u->partial.at[k].along;
            before += others;
        }
    }
    return along;
}

/* along: by contribution, over which members it is a part of a sum, NULL: over none */
static void add_gradient(Ow *w, const Ids *grads, const uint32_t *along, ValueId of)
{
    const char *sum = NULL;
    if (grads->n == 0)
        return;
    for (uint32_t which = 0; which < 1u << MESH_AXES; which++) {
        const char *parts = NULL;
        for (uint32_t i = 0; i < grads->n; i++)
            if ((along ? along[i] : 0) == which)
                parts = plus(w, parts, ow_name(w, grads->at[i]));
        sum = plus(w, sum, over_members(w, parts, which));
    }
    const char *name = of_gradient(w, of);
    OnnxNode n = ow_begin(w, "Identity", 1, &sum, 1, &name);
    ow_end(w, &n);
    ow_info(w, &w->output, GRAPH_OUTPUT, name, val(w->g, of));
}

void onnx_write_backward(const Pipe *p, uint32_t stage, const OnnxWeight *weight,
                         OutsideFile *outside, FILE *f)
{
    Arena *a = arena_within(p->graph->arena);
    Ow w = begin(p, outside, a);
    const Stage *s = &p->stage.at[stage];
    for (uint32_t i = 0; i < s->stash.n; i++)
        add_input(&w, s->stash.at[i], NULL);
    for (uint32_t i = 0; i < s->output.n; i++)
        add_received(&w, &s->output.at[i]);
    add_scale(&w, &s->backward);
    for (uint32_t i = 0; i < s->backward.n; i++)
        ow_node(&w, s->backward.at[i]);
    for (uint32_t i = 0; i < s->input.n; i++)
        add_gradient(&w, &s->input.at[i].grads, NULL, s->input.at[i].value);
    for (uint32_t i = 0; i < s->param.n; i++)
        add_gradient(&w, &s->param.at[i].grads, partial(&w, &s->param.at[i]),
                     w.g->param.at[s->param.at[i].param].value);
    finish(&w, arena_printf(a, "stage%u.backward", stage), weight, f);
    arena_free(a);
}

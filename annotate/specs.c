/*
 * specs.c - places along an axis of the mesh as sharding specs.
 *
 * In: the plan of a graph, the tensors of the model's file.  Out: a ShardingSpecProto for each
 * operand, of a parameter where it is kept, of another as the node reads it, and for each result,
 * as it is made.  A tensor in C chunks is in C shards: member m of stage s is device s * T + m,
 * named for each of its C / T chunks.  A dimension of g groups is two parts, of which the second is
 * divided.  Mirrored groups, of which a chunk has parts of both ends, are pairs in 2 C shards. What
 * is whole, or a sum over the members when it has been added up, is on all devices of the stage.
 */
#include <string.h>

#include "autodiff/export/onnx_fields.h"
#include "ir/facts/attention.h"
#include "specs.h"

struct Specs {
    const Model *m;
    const Annotations *what;
    Ids *core; /* by node of the file: its nodes in the graph, but parts of an attention */
    const bool *part;
    StrMap param; /* an initializer's name -> its parameter */
};

Specs *specs_open(Arena *a, const Model *m, const Annotations *what)
{
    Specs *s = arena_new_of(a, Specs);
    const Graph *g = what->whole;
    *s = (Specs){
        m, what, arena_array(a, Ids, m->graph->n_node + 1), attention_parts(g, a), {.arena = a}};
    for (NodeId n = 0; what->plan.chunks > 1 && n < g->node.n; n++) {
        uint32_t origin = g->node.at[n].origin, at = origin ? g->origin.at[origin].index : NONE;
        if (at < m->graph->n_node && !s->part[n])
            vec_push(a, &s->core[at], n);
    }
    for (uint32_t p = 0; what->plan.chunks > 1 && p < g->param.n; p++)
        if (g->param.at[p].initializer) {
            uint32_t *slot = strmap_at(&s->param, g->param.at[p].initializer);
            *slot = *slot == NONE ? p : *slot;
        }
    return s;
}

/* ---- where a tensor lies ---- */

typedef struct {
    Place at;
    Shape shape;
} Lies;

/* As the file has it, whose two dims may be exchanged. */
static bool param_lies(const Specs *s, uint32_t p, Lies *out)
{
    const Param *q = &s->what->whole->param.at[p];
    uint32_t init = strmap_get(&s->m->init_index, q->initializer);
    const Shape *file = init == NONE ? NULL : &s->m->init.at[init].shape;
    Shape shape = q->shape;
    *out = (Lies){s->what->plan.param[p], shape};
    if (q->transposed) {
        out->shape.d[0] = shape.d[1];
        out->shape.d[1] = shape.d[0];
        out->at.dim = out->at.dim >= 0 ? 1 - out->at.dim : out->at.dim;
    }
    return file && file->rank == shape.rank &&
           !memcmp(file->d, out->shape.d, (size_t)file->rank * sizeof file->d[0]);
}

static bool made_lies(const Specs *s, const char *tensor, Lies *out)
{
    const Graph *g = s->what->whole;
    ValueId v = strmap_get(&g->by_name, tensor);
    if (v == NONE || val(g, v)->kind == V_CONST ||
        (val(g, v)->kind == V_NODE && s->part[val(g, v)->node]))
        return false;
    *out = (Lies){s->what->plan.made[v], val(g, v)->shape};
    return true;
}

/* Does a part of a node of the file read what another part makes, divided otherwise than it is
 * made? */
static bool divides_within(const Specs *s, uint32_t node, NodeId id)
{
    const Graph *g = s->what->whole;
    const SpreadWay *way = s->what->plan.way[id];
    for (uint32_t i = 0; way && i < g->node.at[id].nin; i++) {
        const Value *x = val(g, g->node.at[id].in[i]);
        uint32_t origin = x->kind == V_NODE ? g->node.at[x->node].origin : 0;
        if (origin && g->origin.at[origin].index == node && way->in[i].dim >= 0 &&
            !place_is(way->in[i], s->what->plan.made[g->node.at[id].in[i]]))
            return true;
    }
    return false;
}

/* Where the parts of a node read a value: none does, all there, or one spec cannot say it. */
typedef enum { READ_NOT, READ_ALIKE, READ_APART } HowRead;

static HowRead read_at(const Specs *s, uint32_t node, ValueId v, Place *out)
{
    const Graph *g = s->what->whole;
    uint32_t found = 0;
    for (uint32_t k = 0; k < s->core[node].n; k++) {
        NodeId id = s->core[node].at[k];
        const SpreadWay *way = s->what->plan.way[id];
        for (uint32_t i = 0; i < g->node.at[id].nin; i++) {
            Place at = way ? way->in[i] : place_r();
            if (g->node.at[id].in[i] != v)
                continue;
            if ((found++ && !place_is(*out, at)) || divides_within(s, node, id))
                return READ_APART;
            *out = at;
        }
    }
    return found ? READ_ALIKE : READ_NOT;
}

/* An operand.  A parameter that the node reads otherwise than it is kept has no spec there: the
 * standard has one for both.  Nor has an operand of a later part that is computed otherwise divided
 * than the node's first: the standard has one division for each loop of a node. */
static bool read_lies(const Specs *s, uint32_t node, const char *tensor, Lies *out)
{
    const Graph *g = s->what->whole;
    uint32_t p = strmap_get(&s->param, tensor);
    ValueId v = p != NONE ? g->param.at[p].value : strmap_get(&g->by_name, tensor);
    Place at;
    HowRead how = v != NONE ? read_at(s, node, v, &at) : READ_NOT;
    if (how == READ_APART)
        return false;
    if (p != NONE)
        return (how == READ_NOT || place_is(at, s->what->plan.param[p])) && param_lies(s, p, out);
    if (how == READ_NOT)
        return made_lies(s, tensor, out);
    *out = (Lies){at, val(g, v)->shape};
    return true;
}

/* ---- the message ---- */

static void put_part(PbMessage *dim, int64_t size, int64_t shards)
{
    PbMessage part = {.a = dim->a};
    if (size)
        pb_put_int(&part, PART_SIZE, size);
    pb_put_int(&part, PART_SHARDS, shards);
    pb_put_message(dim, SHARDED_PART, &part);
}

static void put_divided(PbMessage *spec, const MeshPlan *w, const Lies *lies, int64_t first)
{
    PbMessage dim = {.a = spec->a};
    const Place at = lies->at;
    const int shards = w->chunks * (at.mirrored ? 2 : 1);
    const int64_t groups = at.groups / (at.mirrored ? 2 : 1);
    for (int k = 0; k < shards; k++)
        pb_put_int(spec, SPEC_DEVICE,
                   first + (k < w->chunks ? k : shards - 1 - k) / (w->chunks / w->members));
    pb_put_int(&dim, SHARDED_AXIS, at.dim);
    if (groups > 1)
        put_part(&dim, groups, 1);
    put_part(&dim, groups > 1 ? lies->shape.d[at.dim] / groups : 0, shards);
    pb_put_message(spec, SPEC_DIM, &dim);
}

static void put_whole(PbMessage *spec, const MeshPlan *w, int64_t first)
{
    PbMessage group = {.a = spec->a};
    pb_put_int(spec, SPEC_DEVICE, w->members > 1 ? -1 : first);
    if (w->members == 1)
        return;
    pb_put_int(&group, GROUP_KEY, -1);
    for (int k = 0; k < w->members; k++)
        pb_put_int(&group, GROUP_DEVICE, first + k);
    pb_put_message(spec, SPEC_GROUP, &group);
}

static void put_spec(const Specs *s, PbMessage *entry, uint32_t node, const char *tensor,
                     const Lies *lies)
{
    PbMessage spec = {.a = entry->a};
    int64_t first = (int64_t)s->what->stage[node] * s->what->plan.members;
    pb_put_string(&spec, SPEC_TENSOR, tensor);
    if (lies->at.dim >= 0)
        put_divided(&spec, &s->what->plan, lies, first);
    else
        put_whole(&spec, &s->what->plan, first);
    pb_put_message(entry, ENTRY_SPEC, &spec);
}

/* Has it an operand without a spec that it may read divided?  All but parameters may be: of what
 * was folded nothing is known. */
static bool reads_unknown(const Specs *s, uint32_t node)
{
    const Onnx__NodeProto *n = s->m->graph->node[node];
    const Graph *g = s->what->whole;
    for (size_t i = 0; i < n->n_input; i++) {
        const char *tensor = n->input[i] ? n->input[i] : "";
        uint32_t p = strmap_get(&s->param, tensor);
        Lies lies;
        Place at;
        if (!*tensor || read_lies(s, node, tensor, &lies))
            continue;
        if (p == NONE || (read_at(s, node, g->param.at[p].value, &at) == READ_ALIKE && at.dim >= 0))
            return true;
    }
    return false;
}

/* A node that reads what is not known has none: what is said of its others might not fit. */
void specs_put(const Specs *s, PbMessage *entry, uint32_t node)
{
    const Onnx__NodeProto *n = s->m->graph->node[node];
    Lies lies;
    if (s->what->plan.chunks < 2 || reads_unknown(s, node))
        return;
    for (size_t i = 0; i < n->n_input; i++) {
        bool before = false;
        for (size_t k = 0; k < i; k++)
            before |= n->input[k] && n->input[i] && !strcmp(n->input[k], n->input[i]);
        if (!before && n->input[i] && *n->input[i] && read_lies(s, node, n->input[i], &lies))
            put_spec(s, entry, node, n->input[i], &lies);
    }
    for (size_t i = 0; i < n->n_output; i++)
        if (n->output[i] && *n->output[i] && made_lies(s, n->output[i], &lies))
            put_spec(s, entry, node, n->output[i], &lies);
}

/*
 * specs.c - places along the axes of the mesh as sharding specs.
 *
 * In: the plan of each axis, the first of the file's graph, the next of what that one makes of it;
 * the tensors of the model's file.  Out: a ShardingSpecProto for each operand, of a parameter where
 * it is kept, of another as the node reads it, and for each result, as it is made.  A tensor that
 * an axis has in C chunks is in C shards, which T members have: member m of stage s is device s *
 * members + m, and of its number the first axis is the fastest.  A dimension of g groups is two
 * parts, of which the second is divided; mirrored groups, of which a chunk has parts of both ends,
 * are pairs in 2 C shards; what two axes divide is in the shards of both.  What is whole along an
 * axis, or a sum over its members when it has been added up, is on all of them.
 */
#include <string.h>

#include "autodiff/export/onnx_fields.h"
#include "ir/facts/attention.h"
#include "specs.h"

struct Specs {
    Arena *a;
    const Model *m;
    const Annotations *what;
    const Graph *g; /* of the first plan */
    Ids *core;      /* by node of the file: its nodes there, but parts of an attention */
    const bool *part;
    StrMap param; /* an initializer's name -> its parameter */
};

int64_t specs_members(const MeshPlans *plans)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < plans->n; i++)
        n *= plans->at[i].members;
    return n;
}

Specs *specs_open(Arena *a, const Model *m, const Annotations *what)
{
    Specs *s = arena_new_of(a, Specs);
    const Graph *g = what->plans.n ? what->plans.at[0].of : what->whole;
    *s = (Specs){.a = a,
                 .m = m,
                 .what = what,
                 .g = g,
                 .core = arena_array(a, Ids, m->graph->n_node + 1),
                 .part = attention_parts(g, a),
                 .param.arena = a};
    for (NodeId n = 0; what->plans.n && n < g->node.n; n++) {
        uint32_t origin = g->node.at[n].origin, at = origin ? g->origin.at[origin].index : NONE;
        if (at < m->graph->n_node && !s->part[n])
            vec_push(a, &s->core[at], n);
    }
    for (uint32_t p = 0; what->plans.n && p < g->param.n; p++)
        if (g->param.at[p].initializer) {
            uint32_t *slot = strmap_at(&s->param, g->param.at[p].initializer);
            *slot = *slot == NONE ? p : *slot;
        }
    return s;
}

/* ---- where a tensor lies ---- */

static bool same_places(const Specs *s, const Place *x, const Place *y)
{
    bool same = true;
    for (uint32_t k = 0; k < s->what->plans.n; k++)
        same &= place_is(x[k], y[k]);
    return same;
}

/* A value of plan k's graph, as it is made, along it and those that follow. */
static void places_made(const Specs *s, uint32_t k, ValueId v, Place *at)
{
    for (; k < s->what->plans.n; k++) {
        const MeshPlan *p = &s->what->plans.at[k];
        at[k] = v == NONE ? place_r() : p->made[v];
        v = v == NONE || !p->became ? NONE : p->became[v];
    }
}

/* As the file has it, whose two dims may be exchanged. */
static bool param_lies(const Specs *s, uint32_t p, Lies *out)
{
    const Param *q = &s->g->param.at[p];
    uint32_t init = strmap_get(&s->m->init_index, q->initializer);
    const Shape *file = init == NONE ? NULL : &s->m->init.at[init].shape;
    out->shape = shape_turned(&q->shape, q->transposed);
    places_made(s, 0, q->value, out->at);
    for (uint32_t k = 0; k < s->what->plans.n && q->transposed; k++)
        out->at[k].dim = out->at[k].dim >= 0 ? 1 - out->at[k].dim : out->at[k].dim;
    return file && shape_equal(file, &out->shape);
}

static bool made_lies(const Specs *s, const char *tensor, Lies *out)
{
    const Graph *g = s->g;
    ValueId v = strmap_get(&g->by_name, tensor);
    if (v == NONE || val(g, v)->kind == V_CONST ||
        (val(g, v)->kind == V_NODE && s->part[val(g, v)->node]))
        return false;
    out->shape = val(g, v)->shape;
    places_made(s, 0, v, out->at);
    return true;
}

/* Does a part of a node of the file read what another part makes, divided otherwise than it is
 * made, or as what members exchange of it is? */
static bool divides_within(const MeshPlan *p, uint32_t node, NodeId id)
{
    const Graph *g = p->of;
    const SpreadWay *way = p->way[id];
    for (uint32_t i = 0; way && i < g->node.at[id].nin; i++) {
        const Value *x = val(g, g->node.at[id].in[i]);
        uint32_t origin = x->kind == V_NODE ? g->node.at[x->node].origin : 0;
        if (!origin || g->origin.at[origin].index != node)
            continue;
        if ((way->in[i].dim >= 0 && !place_is(way->in[i], p->made[g->node.at[id].in[i]])) ||
            (op_is_collective(g->node.at[x->node].op) && divides_within(p, node, x->node)))
            return true;
    }
    return false;
}

/* Where the parts of a node read a value: none does, all there, or one spec cannot say it. */
typedef enum { READ_NOT, READ_ALIKE, READ_APART } HowRead;

/* Along plan k and those that follow, of value v of its graph; ids: the parts of the node there. */
static HowRead read_at(const Specs *s, uint32_t k, uint32_t node, const Ids *ids, ValueId v,
                       Place *out)
{
    const MeshPlan *p = &s->what->plans.at[k];
    uint32_t found = 0;
    for (uint32_t j = 0; j < ids->n; j++) {
        const NodeId id = ids->at[j];
        for (uint32_t i = 0; i < p->of->node.at[id].nin; i++) {
            Place at[MESH_AXES];
            Ids next = {0};
            if (p->of->node.at[id].in[i] != v)
                continue;
            at[k] = p->way[id] ? p->way[id]->in[i] : place_r();
            const ValueId as = p->read && p->read[id] ? p->read[id][i] : NONE;
            places_made(s, k + 1, as, at);
            for (NodeId x = as == NONE ? 0 : p->first[id]; as != NONE && x < p->first[id + 1]; x++)
                vec_push(p->of->arena, &next, x);
            if ((next.n && k + 1 < s->what->plans.n &&
                 read_at(s, k + 1, node, &next, as, at) == READ_APART) ||
                divides_within(p, node, id))
                return READ_APART;
            for (uint32_t x = k; x < s->what->plans.n && found; x++)
                if (!place_is(out[x], at[x]))
                    return READ_APART;
            memcpy(out + k, at + k, (MESH_AXES - k) * sizeof *at);
            found++;
        }
    }
    return found ? READ_ALIKE : READ_NOT;
}

static bool is_whole(const Specs *s, const Lies *lies)
{
    bool whole = true;
    for (uint32_t k = 0; k < s->what->plans.n; k++)
        whole &= lies->at[k].dim < 0;
    return whole;
}

/* An operand.  What a node that is part of another operation, as of an attention, reads divided is
 * not known.  A parameter that the node reads otherwise than it is kept has no spec there: the
 * standard has one for both.  Nor has an operand of a later part that is computed otherwise divided
 * than the node's first: the standard has one division for each loop of a node. */
static bool read_lies(const Specs *s, uint32_t node, const char *tensor, Lies *out)
{
    uint32_t p = strmap_get(&s->param, tensor);
    ValueId v = p != NONE ? s->g->param.at[p].value : strmap_get(&s->g->by_name, tensor);
    Place at[MESH_AXES];
    HowRead how = v != NONE ? read_at(s, 0, node, &s->core[node], v, at) : READ_NOT;
    if (how == READ_APART)
        return false;
    if (p != NONE) {
        Place kept[MESH_AXES];
        places_made(s, 0, v, kept);
        return (how == READ_NOT || same_places(s, at, kept)) && param_lies(s, p, out);
    }
    if (how == READ_NOT)
        return made_lies(s, tensor, out) && (s->core[node].n || is_whole(s, out));
    memcpy(out->at, at, sizeof at);
    out->shape = val(s->g, v)->shape;
    return true;
}

static bool makes(const Onnx__NodeProto *n, const char *tensor)
{
    bool is = false;
    for (size_t i = 0; i < n->n_output; i++)
        is |= n->output[i] && !strcmp(n->output[i], tensor);
    return is;
}

bool specs_lies(const Specs *s, uint32_t node, const char *tensor, Lies *out)
{
    return makes(s->m->graph->node[node], tensor) ? made_lies(s, tensor, out)
                                                  : read_lies(s, node, tensor, out);
}

/* ---- in shards on devices ---- */

/* The axes that divide a dimension, the outer first. */
typedef struct {
    uint32_t plan[MESH_AXES], n;
    int64_t shards;
} Dim;

static int64_t pairs(Place p) { return p.groups / (p.mirrored ? 2 : 1); }
static int64_t shards_of(const MeshPlan *p, Place at) { return p->chunks * (at.mirrored ? 2 : 1); }

/* By dimension; false: one that no spec can say: parts of it are divided in other groups. */
static bool find_dims(const MeshPlans *axes, const Lies *lies, Dim *dim)
{
    memset(dim, 0, MAX_RANK * sizeof *dim);
    for (uint32_t k = 0; k < axes->n; k++) {
        const Place at = lies->at[k];
        Dim *d = at.dim >= 0 ? &dim[at.dim] : NULL;
        if (!d)
            continue;
        const Place outer = d->n ? lies->at[d->plan[d->n - 1]] : at;
        if (d->n && (outer.mirrored || pairs(at) != outer.groups))
            return false;
        d->shards = (d->n ? d->shards : 1) * shards_of(&axes->at[k], at);
        d->plan[d->n++] = k;
    }
    return true;
}

/* Which member of each axis has shard `number`, of which the last dimension's counts fastest; -1:
 * all have it. */
static void find_holder(const MeshPlans *axes, const Lies *lies, const Dim *dim, int64_t number,
                        int *member)
{
    for (int d = MAX_RANK; d-- > 0;) {
        int64_t own = dim[d].n ? number % dim[d].shards : 0;
        number /= dim[d].n ? dim[d].shards : 1;
        for (uint32_t i = dim[d].n; i-- > 0;) {
            const uint32_t k = dim[d].plan[i];
            const MeshPlan *p = &axes->at[k];
            const int64_t shards = shards_of(p, lies->at[k]), c = own % shards;
            member[k] = (int)((c < p->chunks ? c : shards - 1 - c) / (p->chunks / p->members));
            own /= shards;
        }
    }
}

/* The devices of these members, in rising order. */
static const Ids *find_devices(Arena *a, const MeshPlans *axes, const int *member)
{
    Ids *device = arena_new_of(a, Ids);
    vec_push(a, device, 0);
    for (uint32_t k = 0, step = 1; k < axes->n; step *= (uint32_t)axes->at[k++].members) {
        const uint32_t n = device->n, own = (uint32_t)(member[k] < 0 ? 0 : member[k]),
                       end = member[k] < 0 ? (uint32_t)axes->at[k].members : own + 1;
        for (uint32_t c = own + 1; c < end; c++)
            for (uint32_t i = 0; i < n; i++)
                vec_push(a, device, device->at[i] + c * step);
        for (uint32_t i = 0; i < n; i++)
            device->at[i] += own * step;
    }
    return device;
}

const Layout *specs_layout(Arena *a, const MeshPlans *axes, const Lies *lies, int64_t most)
{
    Layout *l = arena_new_of(a, Layout);
    Dim dim[MAX_RANK];
    int64_t shards = 1;
    if (!find_dims(axes, lies, dim))
        return NULL;
    for (int d = 0; d < MAX_RANK; d++) {
        const int64_t groups = dim[d].n ? pairs(lies->at[dim[d].plan[0]]) : 1;
        if (!dim[d].n)
            continue;
        if (groups > 1)
            vec_push(a, &l->axis[d], ((Part){groups, 1}));
        vec_push(a, &l->axis[d],
                 ((Part){groups > 1 ? lies->shape.d[d] / groups : 0, dim[d].shards}));
        l->order[l->n++] = d;
        shards *= dim[d].shards;
        if (shards > most)
            return NULL;
    }
    l->holder = arena_array(a, const Ids *, shards);
    for (int64_t i = 0; i < shards; i++) {
        int member[MESH_AXES] = {-1, -1, -1};
        find_holder(axes, lies, dim, i, member);
        l->holder[i] = find_devices(a, axes, member);
    }
    return l;
}

static const Layout *layout_at(const Specs *s, uint32_t node, const char *tensor)
{
    Lies lies;
    return specs_lies(s, node, tensor, &lies)
               ? specs_layout(s->a, &s->what->plans, &lies, INT64_MAX)
               : NULL;
}

/* ---- the message ---- */

static void put_dim(PbMessage *spec, int axis, const Parts *parts)
{
    PbMessage dim = {.a = spec->a};
    pb_put_int(&dim, SHARDED_AXIS, axis);
    for (uint32_t i = 0; i < parts->n; i++) {
        PbMessage part = {.a = spec->a};
        if (parts->at[i].size)
            pb_put_int(&part, PART_SIZE, parts->at[i].size);
        pb_put_int(&part, PART_SHARDS, parts->at[i].shards);
        pb_put_message(&dim, SHARDED_PART, &part);
    }
    pb_put_message(spec, SPEC_DIM, &dim);
}

/* A shard's devices, as one or as a group of them with a key of its own. */
static void put_holder(PbMessage *spec, PbMessage *groups, int64_t first, const Ids *holder,
                       Ids *known)
{
    PbMessage group = {.a = spec->a};
    uint32_t key = 0; /* groups differ in their first device */
    if (holder->n == 1) {
        pb_put_int(spec, SPEC_DEVICE, first + holder->at[0]);
        return;
    }
    while (key < known->n && known->at[key] != holder->at[0])
        key++;
    pb_put_int(spec, SPEC_DEVICE, -1 - (int64_t)key);
    if (key < known->n)
        return;
    vec_push(spec->a, known, holder->at[0]);
    pb_put_int(&group, GROUP_KEY, -1 - (int64_t)key);
    for (uint32_t i = 0; i < holder->n; i++)
        pb_put_int(&group, GROUP_DEVICE, first + holder->at[i]);
    pb_put_message(groups, SPEC_GROUP, &group);
}

static void put_spec(const Specs *s, PbMessage *entry, uint32_t node, const char *tensor)
{
    const Layout *l = tensor && *tensor ? layout_at(s, node, tensor) : NULL;
    const int64_t first = s->what->stage[node] * specs_members(&s->what->plans);
    PbMessage spec = {.a = entry->a}, groups = {.a = entry->a};
    Ids known = {0};
    if (!l)
        return;
    pb_put_string(&spec, SPEC_TENSOR, tensor);
    for (int64_t i = 0; i < layout_count(l); i++)
        put_holder(&spec, &groups, first, l->holder[i], &known);
    pb_put(&spec, groups.at, groups.n);
    for (int k = 0; k < l->n; k++)
        put_dim(&spec, l->order[k], &l->axis[l->order[k]]);
    pb_put_message(entry, ENTRY_SPEC, &spec);
}

/* May a parameter be read divided here? */
static bool reads_part(const Specs *s, uint32_t node, uint32_t p)
{
    Lies lies;
    return read_at(s, 0, node, &s->core[node], s->g->param.at[p].value, lies.at) == READ_ALIKE &&
           !is_whole(s, &lies);
}

/* Has it an operand without a spec that it may read divided?  All but parameters may be: of what
 * was folded nothing is known. */
static bool reads_unknown(const Specs *s, uint32_t node)
{
    const Onnx__NodeProto *n = s->m->graph->node[node];
    for (size_t i = 0; i < n->n_input; i++) {
        const char *tensor = n->input[i] ? n->input[i] : "";
        uint32_t p = strmap_get(&s->param, tensor);
        if (*tensor && !layout_at(s, node, tensor) && (p == NONE || reads_part(s, node, p)))
            return true;
    }
    return false;
}

/* A node that reads what is not known has none: what is said of its others might not fit. */
void specs_put(const Specs *s, PbMessage *entry, uint32_t node)
{
    const Onnx__NodeProto *n = s->m->graph->node[node];
    if (!s->what->plans.n || reads_unknown(s, node))
        return;
    for (size_t i = 0; i < n->n_input; i++) {
        bool before = false;
        for (size_t k = 0; k < i; k++)
            before |= n->input[k] && n->input[i] && !strcmp(n->input[k], n->input[i]);
        if (!before)
            put_spec(s, entry, node, n->input[i]);
    }
    for (size_t i = 0; i < n->n_output; i++)
        put_spec(s, entry, node, n->output[i]);
}

/*
 * read.c - what the file's sharding specs (ONNX's NodeProto.device_configurations) say of the axes
 * of the mesh.
 *
 * In: the nodes of the file, the graph made of them.  Out: MeshOptions.asked: where a parameter is
 * to lie, as a node that reads it says, and where another value lies as its node makes it; how many
 * members and chunks there are.  A spec that divides one axis, or one part of it behind groups that
 * are whole, with each shard on one device and as many neighbouring shards on each device, is one
 * of an axis, and so is one that divides nothing; of sequences also one of twice as many shards, of
 * which the second half is on the devices of the first, the other way round.  Others are ignored,
 * which is said once.  A file of several axes says their numbers in its configuration's name, and
 * of parameters how the tensor axis divides them.
 */
#include <stdio.h>
#include <string.h>

#include "annotate.h"
#include "frontend/onnx/onnx.h"
#include "ir/facts/attention.h"

static const char *const axis_name[MESH_AXES] = {"ppsplit", "ppsplit sequence", "ppsplit expert"};
static const char *const axis_numbers[MESH_AXES] = {" tensor=", " sequence=", " expert="};

const char *annotate_name(Arena *a, const MeshPlans *plans)
{
    const char *name = axis_name[MESH_TENSOR];
    if (plans->n == 1)
        return axis_name[plans->at[0].axis];
    for (uint32_t i = 0; i < plans->n; i++)
        name = arena_printf(a, "%s%s%d/%d", name, axis_numbers[plans->at[i].axis],
                            plans->at[i].members, plans->at[i].chunks);
    return name;
}

typedef struct {
    const Graph *g;
    const Model *m;
    MeshOptions *opt;
    MeshAxis axis;
    const bool *part;    /* by node: of an attention, in which nothing is asked for */
    StrMap param;        /* an initializer's name -> its first parameter */
    int members, chunks; /* of all specs; 0: they divide nothing */
    MeshOptions several; /* of the name of a file of several axes; else no members */
    const char *unlike;  /* why they are none of one axis */
    uint32_t ignored;
    Where first; /* node of the first that is */
    const char *tensor;
} Reading;

typedef struct {
    int64_t axis, groups;
    int members, chunks;
    bool mirrored;
} Division;

/* Is the second half of the devices the first from its other end? */
static bool is_mirrored(const Onnx__ShardingSpecProto *s)
{
    const size_t n = s->n_device;
    bool is = n > 1 && n % 2 == 0;
    for (size_t i = 0; is && i < n / 2; i++)
        is = s->device[n - 1 - i] == s->device[i];
    return is;
}

/* The name of a configuration of several axes. */
static bool read_numbers(const char *name, MeshOptions *to)
{
    bool some = false;
    for (int x = 0; x < MESH_AXES; x++) {
        const char *at = name ? strstr(name, axis_numbers[x]) : NULL;
        int *t = &to->members[x], *c = &to->chunks[x];
        *t = *c = 1;
        if (!at)
            continue;
        some = true;
        if (sscanf(at + strlen(axis_numbers[x]), "%5d/%5d", t, c) != 2 || *t < 1 || *c < *t ||
            *c > MESH_MOST || *c % *t || (*c / *t & (*c / *t - 1)))
            return false;
    }
    return some;
}

/* Of the devices that have a shard, which are one stage's. */
static int64_t tensor_member(const Reading *r, const Onnx__ShardingSpecProto *s, size_t shard)
{
    int64_t device = s->device[shard];
    for (size_t i = 0; device < 0 && i < s->n_index_to_device_group_map; i++) {
        const Onnx__IntIntListEntryProto *e = s->index_to_device_group_map[i];
        if (e->key == s->device[shard] && e->n_value)
            device = e->value[0];
    }
    return device < 0 ? -1 : device % r->several.members[MESH_TENSOR];
}

/* Are the n shards of a dimension perhaps those of another axis of one member? */
static bool is_anothers(const Reading *r, size_t n)
{
    bool is = false;
    for (int x = MESH_TENSOR + 1; x < MESH_AXES; x++) {
        const size_t chunks = (size_t)r->several.chunks[x];
        is |= r->several.members[x] == 1 && chunks > 1 && (n == chunks || n == 2 * chunks);
    }
    return is;
}

/* Has one device the shards of each chunk at which the other axes' are the first?  Those of an axis
   that has several members are on several. */
static bool one_device(const Onnx__ShardingSpecProto *s, size_t chunks, size_t apart)
{
    bool is = apart <= s->n_device / chunks;
    for (size_t c = 1; is && c < chunks; c++)
        is = s->device[c * apart] == s->device[0];
    return is;
}

/* Of several axes: the dimension along which the members of the first differ, or, if there is one
   member, which has all its chunks.  False: that may be another axis'. */
static bool read_tensor_axis(const Reading *r, const Onnx__ShardingSpecProto *s, Division *d)
{
    const int members = r->several.members[MESH_TENSOR], chunks = r->several.chunks[MESH_TENSOR];
    size_t step = 1;
    *d = (Division){.axis = -1, .groups = 1};
    for (size_t i = s->n_sharded_dim; i-- > 0;) {
        const Onnx__ShardedDimProto *a = s->sharded_dim[i];
        const Onnx__SimpleShardedDimProto *last =
            a->n_simple_sharding ? a->simple_sharding[a->n_simple_sharding - 1] : NULL;
        const size_t n = last && last->num_shards > 0 ? (size_t)last->num_shards : 1,
                     at = step * (n - 1);
        bool is = members == 1 && n > 1 && n % (size_t)chunks == 0 &&
                  one_device(s, (size_t)chunks, step * (n / (size_t)chunks));
        if (is && is_anothers(r, n))
            return false;
        if (members > 1 && n > 1 && at < s->n_device)
            is = tensor_member(r, s, 0) != tensor_member(r, s, at);
        if (is && d->axis < 0) {
            d->axis = a->axis;
            d->groups = a->n_simple_sharding > 1 ? a->simple_sharding[0]->dim_value : 1;
            d->chunks = chunks;
        }
        step *= n;
    }
    return true;
}

/* Devices in runs of one length, each another device. */
static bool read_devices(MeshAxis axis, const Onnx__ShardingSpecProto *s, Division *d)
{
    enum { MOST = 4096 };
    d->mirrored = axis != MESH_TENSOR && is_mirrored(s);
    size_t n = d->mirrored ? s->n_device / 2 : s->n_device, run = 1;
    while (run < n && s->device[run] == s->device[0])
        run++;
    if (n == 0 || n > MOST || n % run)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s->device[i] < 0 || s->device[i] != s->device[i / run * run])
            return false;
        for (size_t k = 0; i % run == 0 && k < i; k += run)
            if (s->device[k] == s->device[i])
                return false;
    }
    d->members = (int)(n / run);
    d->chunks = (int)n;
    return true;
}

/* The axis that is divided; -1: none is.  False: no spec of the mesh's axis. */
static bool read_division(MeshAxis axis, const Onnx__ShardingSpecProto *s, Division *d)
{
    *d = (Division){.axis = -1, .groups = 1};
    for (size_t i = 0; i < s->n_sharded_dim; i++) {
        const Onnx__ShardedDimProto *a = s->sharded_dim[i];
        for (size_t k = 0; k < a->n_simple_sharding; k++) {
            const Onnx__SimpleShardedDimProto *p = a->simple_sharding[k];
            const Onnx__SimpleShardedDimProto *before = k ? a->simple_sharding[0] : NULL;
            if (p->num_shards == 1)
                continue;
            if (d->chunks || k > 1 || p->num_shards < 1 || p->num_shards != (int64_t)s->n_device ||
                (before && before->dim_value < 1))
                return false;
            d->axis = a->axis;
            if (!read_devices(axis, s, d))
                return false;
            d->groups = (before ? before->dim_value : 1) * (d->mirrored ? 2 : 1);
        }
    }
    return true;
}

static void ignore(Reading *r, uint32_t node, const char *tensor)
{
    const Onnx__NodeProto *n = r->m->graph->node[node];
    if (r->ignored++)
        return;
    r->first = (Where){r->m->path, "node", node, n->name, n->op_type, -1};
    r->tensor = tensor;
}

/* All specs that divide something are of one axis, among whose members the devices are divided. */
static void same_axis(Reading *r, const char *tensor, const Division *d)
{
    Arena *a = r->g->arena;
    int32_t devices = r->m->proto->n_configuration ? r->m->proto->configuration[0]->num_devices : 0;
    if (!d->chunks || (r->members == d->members && r->chunks == d->chunks))
        return;
    if (r->chunks && !r->unlike)
        r->unlike =
            arena_printf(a, "'%s' is in %d shards on %d devices, others are in %d on %d",
                         diag_escape(a, tensor), d->chunks, d->members, r->chunks, r->members);
    if (devices % d->members && !r->unlike)
        r->unlike = arena_printf(a, "'%s' is on %d devices, the configuration has %d",
                                 diag_escape(a, tensor), d->members, devices);
    r->members = d->members;
    r->chunks = d->chunks;
}

/* false: another spec of it says something else */
static bool ask(Reading *r, uint32_t param, ValueId value, const Division *d, int rank, bool turned)
{
    int dim = (int)(d->axis < 0 && d->chunks ? d->axis + rank : d->axis);
    Place at = place_s(dim < 0 ? PLACE_R : turned ? 1 - dim : dim, d->groups);
    at.mirrored = d->mirrored;
    if (dim >= rank || dim < -1 || (d->chunks && dim < 0))
        return false;
    for (uint32_t i = 0; i < r->opt->asked.n; i++) {
        const MeshAsked *old = &r->opt->asked.at[i];
        if (old->param == param && old->value == value)
            return place_is(old->at, at);
    }
    vec_push(r->g->arena, &r->opt->asked, ((MeshAsked){param, value, at}));
    return true;
}

/* Every parameter of which the file has this initializer; false: there is none. */
static bool ask_params(Reading *r, const char *tensor, const Division *d, bool *good)
{
    const Graph *g = r->g;
    uint32_t first = strmap_get(&r->param, tensor);
    for (uint32_t p = first; first != NONE && p < g->param.n; p++) {
        const Param *q = &g->param.at[p];
        if (q->initializer && !strcmp(q->initializer, tensor))
            *good &= ask(r, p, NONE, d, q->shape.rank, q->transposed);
    }
    return first != NONE;
}

static void read_spec(Reading *r, uint32_t node, const Onnx__ShardingSpecProto *s)
{
    const Onnx__NodeProto *n = r->m->graph->node[node];
    const char *tensor = s->tensor_name ? s->tensor_name : "";
    Division d;
    const bool several = r->several.members[MESH_TENSOR] > 0;
    bool good = several || read_division(r->axis, s, &d), made = false;
    if (several && !read_tensor_axis(r, s, &d))
        return;
    if (!several && good)
        same_axis(r, tensor, &d);
    for (size_t k = 0; k < n->n_output; k++)
        made |=
            n->output[k] && !strcmp(n->output[k], tensor) && r->several.members[MESH_TENSOR] != 1;
    if (good && !ask_params(r, tensor, &d, &good) && made) {
        ValueId v = strmap_get(&r->g->by_name, tensor);
        good = v == NONE || (val(r->g, v)->kind == V_NODE && r->part[val(r->g, v)->node]) ||
               ask(r, NONE, v, &d, val(r->g, v)->shape.rank, false);
    }
    if (!good)
        ignore(r, node, tensor);
}

static void check_shard(const MeshOptions *opt)
{
    if (opt->shard.n && opt->chunks[MESH_TENSOR] == 1)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--shard without --tensor");
}

/* Numbers that the options leave open are those of the specs. */
static void take_numbers(const Reading *r)
{
    MeshOptions *opt = r->opt;
    int pieces = r->members ? r->chunks / r->members : 1;
    if (opt->members[MESH_TENSOR])
        return;
    if (r->several.members[MESH_TENSOR]) {
        memcpy(opt->members, r->several.members, sizeof opt->members);
        memcpy(opt->chunks, r->several.chunks, sizeof opt->chunks);
        check_shard(opt);
        return;
    }
    if (r->unlike || (pieces & (pieces - 1))) {
        if (r->unlike)
            diag_note("%s", r->unlike);
        else
            diag_note("a device has %d shards, which is not a power of two", pieces);
        diag_hint("use --tensor T, or --tensor 1, instead");
        diag_fatal(EXIT_MODEL, WHERE_FILE(r->g->file),
                   "the sharding specs do not describe a tensor axis");
    }
    opt->members[MESH_TENSOR] = opt->chunks[MESH_TENSOR] = 1;
    opt->members[r->axis] = r->members ? r->members : 1;
    opt->chunks[r->axis] = r->chunks ? r->chunks : 1;
    check_shard(opt);
}

static void read_specs(Reading *r)
{
    const Graph *g = r->g;
    for (uint32_t p = g->param.n; p-- > 0;)
        if (g->param.at[p].initializer)
            *strmap_at(&r->param, g->param.at[p].initializer) = p;
    for (uint32_t i = 0; i < r->m->graph->n_node; i++) {
        const Onnx__NodeDeviceConfigurationProto *e = node_devices(r->m, r->m->graph->node[i]);
        for (size_t k = 0; e && k < e->n_sharding_spec; k++)
            read_spec(r, i, e->sharding_spec[k]);
    }
    if (r->ignored)
        diag_warn(
            r->first,
            "%u sharding spec%s ignored (the first is of '%s'): a tensor must be divided along one "
            "axis with each shard on one device, and a parameter always in the same way",
            r->ignored, r->ignored == 1 ? " is" : "s are", r->tensor);
}

void annotate_read(const Graph *g, MeshOptions *opt)
{
    Arena *a = arena_within(g->arena);
    Reading r = {.g = g, .m = g->model.at[0], .opt = opt, .param.arena = a};
    r.part = attention_parts(g, a);
    const Onnx__ModelProto *m = r.m->proto;
    const char *name = m->n_configuration ? m->configuration[0]->name : NULL;
    for (int x = 0; x < MESH_AXES; x++)
        if (name && !strcmp(name, axis_name[x]))
            r.axis = (MeshAxis)x;
    if (!read_numbers(name, &r.several))
        r.several = (MeshOptions){0};
    if (g->model.n == 1 && r.several.chunks[MESH_TENSOR] != 1)
        read_specs(&r);
    arena_free(a);
    take_numbers(&r);
}

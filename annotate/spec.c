/*
 * spec.c - a ShardingSpecProto by itself.
 *
 * In: the spec, the tensor's shape as far as it is known.  Out: the tensor's Layout, and every
 * violation: an axis out of range or given twice, numbers of shards that are none, more shards than
 * elements, parts that are not the dimension, shards without a device and devices without a shard,
 * devices that the configuration does not have.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Check *c;
    Where w;
    const char *what;
    const Onnx__ShardingSpecProto *spec;
    bool broken;
} Spec;

#define BROKEN(s, ...) ((s)->broken = true, VIOLATION((s)->c, (s)->w, __VA_ARGS__))

/* ---- devices ---- */

static bool device_there(Spec *s, int64_t device)
{
    int32_t n = s->c->configuration->num_devices;
    if (device >= 0 && device < n)
        return true;
    if (!s->c->quiet)
        diag_note("configuration '%s' has %d devices", check_text(s->c->configuration->name), n);
    if (device < 0)
        BROKEN(s, "%s: device %lld is no key of index_to_device_group_map", s->what,
               (long long)device);
    else
        BROKEN(s, "%s: device %lld is out of range", s->what, (long long)device);
    return false;
}

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static const Ids *group_read(Spec *s, const Onnx__IntIntListEntryProto *e)
{
    Ids *group = arena_new_of(s->c->a, Ids);
    for (size_t i = 0; i < e->n_value; i++)
        if (device_there(s, e->value[i]))
            vec_push(s->c->a, group, (uint32_t)e->value[i]);
    if (e->n_value == 0)
        BROKEN(s, "%s: group %lld of index_to_device_group_map is empty", s->what,
               (long long)e->key);
    if (group->n > 1)
        qsort(group->at, group->n, sizeof *group->at, by_number);
    for (uint32_t i = 1; i < group->n; i++)
        if (group->at[i] == group->at[i - 1]) {
            BROKEN(s, "%s: group %lld has device %u twice", s->what, (long long)e->key,
                   group->at[i]);
            break;
        }
    return group;
}

/* By entry of `device`, the devices that hold the shard. */
static const Ids **holders(Spec *s)
{
    const Onnx__ShardingSpecProto *p = s->spec;
    Arena *a = s->c->a;
    const Ids **group = arena_array(a, const Ids *, p->n_index_to_device_group_map + 1),
              **out = arena_array(a, const Ids *, p->n_device + 1);
    IdMap key = {0};
    for (size_t i = 0; i < p->n_index_to_device_group_map; i++) {
        const Onnx__IntIntListEntryProto *e = p->index_to_device_group_map[i];
        uint32_t *slot = idmap_at(a, &key, (uint64_t)e->key);
        if (!e->has_key || *slot != NONE)
            BROKEN(s, "%s: a key of index_to_device_group_map is %s", s->what,
                   e->has_key ? "there twice" : "missing");
        *slot = (uint32_t)i;
        group[i] = group_read(s, e);
    }
    for (size_t i = 0; i < p->n_device; i++) {
        uint32_t of = idmap_get(&key, (uint64_t)p->device[i]);
        Ids *one = arena_new_of(a, Ids);
        if (of == NONE && device_there(s, p->device[i]))
            vec_push(a, one, (uint32_t)p->device[i]);
        out[i] = of == NONE ? one : group[of];
    }
    return out;
}

/* ---- axes ---- */

/* The parts of an axis against its size. */
static void check_parts(Spec *s, long long axis, const Parts *p, const Size *size)
{
    int64_t product = 1;
    uint32_t open = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        open += p->at[i].size == 0;
        if (p->at[i].size && __builtin_mul_overflow(product, p->at[i].size, &product))
            product = -1;
    }
    if (open > 1 && p->n > 1)
        BROKEN(s, "%s: axis %lld is %u parts, of which only one may be without dim_value", s->what,
               axis, p->n);
    if (size->size < 0 || open > 1)
        return;
    if (product <= 0 || (open ? size->size % product != 0 : product != size->size)) {
        BROKEN(s, "%s: axis %lld has size %lld, its parts have %lld", s->what, axis,
               (long long)size->size, (long long)product);
        return;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        int64_t of = p->at[i].size ? p->at[i].size : size->size / product, n = p->at[i].shards;
        if (n > of)
            BROKEN(s, "%s: axis %lld: %lld shards of %lld elements", s->what, axis, (long long)n,
                   (long long)of);
        else
            s->c->uneven += of % n != 0;
    }
}

static Parts read_parts(Spec *s, long long axis, const Onnx__ShardedDimProto *d, const Size *size)
{
    Parts out = {0};
    bool divided = false;
    if (d->n_simple_sharding == 0)
        BROKEN(s, "%s: axis %lld has no simple_sharding", s->what, axis);
    for (size_t i = 0; i < d->n_simple_sharding; i++) {
        const Onnx__SimpleShardedDimProto *p = d->simple_sharding[i];
        bool number = p->dim_case == ONNX__SIMPLE_SHARDED_DIM_PROTO__DIM_DIM_VALUE;
        bool symbol = p->dim_case == ONNX__SIMPLE_SHARDED_DIM_PROTO__DIM_DIM_PARAM;
        if (!p->has_num_shards || p->num_shards < 1 || p->num_shards > INT32_MAX)
            BROKEN(s, "%s: axis %lld: num_shards is %lld", s->what, axis,
                   (long long)(p->has_num_shards ? p->num_shards : 0));
        if (number && p->dim_value < 1)
            BROKEN(s, "%s: axis %lld: dim_value is %lld", s->what, axis, (long long)p->dim_value);
        if (symbol && size->name && d->n_simple_sharding == 1 &&
            strcmp(p->dim_param, size->name) != 0)
            BROKEN(s, "%s: axis %lld is '%s' in the spec, '%s' in the model", s->what, axis,
                   p->dim_param, size->name);
        divided |= p->num_shards != 1;
        vec_push(s->c->a, &out, ((Part){number ? p->dim_value : 0, p->num_shards}));
    }
    if (!s->broken)
        check_parts(s, axis, &out, size);
    return divided ? out : (Parts){0};
}

/* One entry of sharded_dim.  Returns its number of shards. */
static int64_t read_axis(Spec *s, const Onnx__ShardedDimProto *d, const Sizes *sizes, Layout *l)
{
    static const Size unknown = {-1, NULL};
    long long axis = (long long)d->axis, rank = sizes->rank;
    if (!d->has_axis)
        BROKEN(s, "%s: an entry of sharded_dim has no axis", s->what);
    if (rank >= 0 && (axis < -rank || axis >= rank))
        BROKEN(s, "%s: axis %lld is out of range: the rank is %lld", s->what, axis, rank);
    if (s->broken)
        return 1;
    bool known = rank >= 0;
    int at = known ? (int)(axis < 0 ? axis + rank : axis) : 0;
    Parts parts = read_parts(s, axis, d, known ? &sizes->d[at] : &unknown);
    for (int k = 0; known && parts.n && k < l->n; k++)
        if (l->order[k] == at)
            BROKEN(s, "%s: axis %lld is given twice", s->what, axis);
    if (known && parts.n && !s->broken) {
        l->axis[at] = parts;
        l->order[l->n++] = at;
    }
    return s->broken ? 1 : layout_shards(&parts);
}

const Layout *spec_read(Check *c, Where w, const char *what, const Onnx__ShardingSpecProto *p,
                        const Sizes *sizes)
{
    Spec s = {c, w, what, p, false};
    Layout *l = arena_new_of(c->a, Layout);
    int64_t shards = 1;
    bool all = true;
    for (size_t i = 0; i < p->n_sharded_dim; i++) {
        s.broken = false;
        int64_t n = read_axis(&s, p->sharded_dim[i], sizes, l);
        all &= !s.broken;
        if (__builtin_mul_overflow(shards, n, &shards))
            shards = INT64_MAX;
    }
    l->holder = holders(&s);
    if (all && shards != (int64_t)p->n_device) {
        if (p->n_sharded_dim == 0 && p->n_device > 1 && !c->quiet)
            diag_hint("to replicate a tensor, name the devices as one group of "
                      "index_to_device_group_map");
        BROKEN(&s, "%s: %lld shard%s, but %zu device%s or group%s of devices", what,
               (long long)shards, shards == 1 ? "" : "s", p->n_device, p->n_device == 1 ? "" : "s",
               p->n_device == 1 ? "" : "s");
    }
    return all && !s.broken && sizes->rank >= 0 ? l : NULL;
}

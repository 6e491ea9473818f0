/*
 * read.c - what the file's annotations (ONNX's NodeProto.device_configurations) say of the mesh.
 *
 * In: the nodes of the file, the graph made of them.  Out: MeshOptions: numbers of members and
 * chunks, how tensors are divided along the tensor axis; and which specs a plan does not follow.
 *
 * What `ppsplit annotate' has written says in its configuration's name which options its plan
 * follows from: the same search finds it again.  Its specs are compared with that plan; where
 * somebody has changed them, and in files of others, a plan is searched for that follows as many as
 * can be, and those of parameters in any case.  A spec means the places of which it is the spec
 * (specs.c).  Those of others are of one axis: as many neighbouring shards on each device, whatever
 * its number.
 */
#include <stdlib.h>
#include <string.h>

#include "specs.h"

static const char *const number_of[MESH_AXES] = {" tensor=", " sequence=", " expert="};
static const char keep_of[] = " keep=", shard_of[] = " shard=", writer[] = "ppsplit";

/* ---- the configuration's name ---------------------------------------------------------------- */

const char *annotate_name(Arena *a, const Annotations *what)
{
    const char *name = writer;
    for (uint32_t i = 0; i < what->plans.n; i++) {
        const MeshPlan *p = &what->plans.at[i];
        name = arena_printf(a, "%s%s%d/%d", name, number_of[p->axis], p->members, p->chunks);
    }
    if (what->plans.n && what->mesh && what->mesh->keep > 0)
        name = arena_printf(a, "%s%s%g", name, keep_of, what->mesh->keep);
    for (uint32_t i = 0; what->plans.n && what->mesh && i < what->mesh->shard.n; i++)
        name = arena_printf(a, "%s%s%s", name, shard_of, what->mesh->shard.at[i]);
    return name;
}

/* Behind a word of it; NULL: it is not there. */
static const char *behind(const char *at, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(at, word, n) ? NULL : at + n;
}

/* Members and chunks, "2/4"; NULL: none that can be. */
static const char *read_number(const char *at, int *members, int *chunks)
{
    char *end;
    const long t = strtol(at, &end, 10), c = *end == '/' ? strtol(end + 1, &end, 10) : 0;
    if (t < 1 || c < t || c > MESH_MOST || c % t || (c / t & (c / t - 1)))
        return NULL;
    *members = (int)t;
    *chunks = (int)c;
    return end;
}

/* False: it is not of annotate_name(), or of no axis. */
static bool read_name(Arena *a, const char *name, MeshOptions *to)
{
    const char *at = name ? behind(name, writer) : NULL;
    bool some = false;
    for (int x = 0; x < MESH_AXES; x++) {
        const char *number = at ? behind(at, number_of[x]) : NULL;
        to->members[x] = to->chunks[x] = 1;
        at = number ? read_number(number, &to->members[x], &to->chunks[x]) : at;
        some |= mesh_has(to, (MeshAxis)x);
    }
    const char *keep = at ? behind(at, keep_of) : NULL;
    char *end = NULL;
    to->keep = keep ? strtod(keep, &end) : 0;
    at = keep ? end : at;
    for (const char *shard; at && (shard = behind(at, shard_of));) {
        const char *next = strstr(shard, shard_of);
        at = next ? next : shard + strlen(shard);
        vec_push(a, &to->shard, arena_strndup(a, shard, (size_t)(at - shard)));
    }
    return some && at && !*at && to->keep >= 0 && to->keep <= MESH_DEAREST;
}

/* Has the configuration as many devices?  Each may stand in a spec. */
static bool is_on(const MeshOptions *own, int64_t devices)
{
    enum { MOST = 1 << 16 };
    int64_t n = 1;
    for (int x = 0; x < MESH_AXES; x++)
        n *= own->members[x];
    return n <= devices && n <= MOST;
}

/* ---- specs ----------------------------------------------------------------------------------- */

typedef struct {
    uint32_t node;
    const char *tensor;
    uint32_t param;       /* the first of this initializer, or NONE */
    const Layout *layout; /* on the devices of the first stage */
    Place at;             /* along the tensor axis */
    bool open;            /* that may be another place as well */
} Said;

typedef struct {
    Check c; /* for spec_read() */
    Arena *a;
    StrMap param;    /* an initializer's name -> its first parameter */
    bool named;      /* by annotate_name() */
    MeshOptions own; /* members and chunks; of a name also the rest */
    MeshPlans axes;  /* ... of the axes that it has */
    VEC(Said) said;
    const char *unlike; /* why they are none of one axis */
    uint32_t ignored;
    Where first; /* node of the first that is */
    const char *tensor;
} Reading;

static void add_axis(Reading *r, MeshAxis x, int members, int chunks)
{
    const MeshPlan axis = {.axis = x, .members = members, .chunks = chunks};
    vec_push(r->a, &r->axes, axis);
}

/* What is behind groups that are whole has a size that follows from theirs. */
static bool same_layout(const Layout *x, const Layout *y)
{
    bool same = x->n == y->n;
    for (int k = 0; same && k < x->n; k++) {
        const Parts *p = &x->axis[x->order[k]], *q = &y->axis[y->order[k]];
        same = x->order[k] == y->order[k] && p->n == q->n && p->n <= 2 &&
               p->at[p->n - 1].shards == q->at[q->n - 1].shards &&
               (p->n == 1 ||
                (p->at[0].size == q->at[0].size && p->at[0].shards == 1 && q->at[0].shards == 1));
    }
    for (int64_t i = 0; same && x->n && i < layout_count(x); i++) {
        const Ids *p = x->holder[i], *q = y->holder[i];
        same = p->n == q->n && !memcmp(p->at, q->at, p->n * sizeof *p->at);
    }
    return same;
}

/* Each place of axis k and those that follow that makes of `lies' what is said.  How many fit. */
static uint32_t fit_places(const Reading *r, uint32_t k, Lies *lies, Said *x)
{
    const Layout *l = x->layout;
    uint32_t fit = 0;
    if (k == r->axes.n) {
        const Layout *is = specs_layout(r->a, &r->axes, lies, layout_count(l));
        if (!is || !same_layout(is, l))
            return 0;
        x->open |= x->at.dim != MAX_RANK && !place_is(x->at, lies->at[0]);
        x->at = lies->at[0];
        return 1;
    }
    lies->at[k] = place_r();
    fit += fit_places(r, k + 1, lies, x);
    for (int i = 0; i < l->n; i++)
        for (int mirrored = 0; mirrored <= (r->axes.at[k].axis != MESH_TENSOR); mirrored++) {
            const Parts *parts = &l->axis[l->order[i]];
            const int64_t groups = parts->n > 1 ? parts->at[0].size : 1;
            if (groups > INT32_MAX)
                continue;
            lies->at[k] = (Place){l->order[i], groups * (mirrored ? 2 : 1), mirrored};
            fit += groups > 0 ? fit_places(r, k + 1, lies, x) : 0;
        }
    return fit;
}

/* The devices in the order in which they come, of others than annotate; else of their stage. */
static uint32_t number_devices(const Reading *r, const Layout *from, Layout *to)
{
    const uint32_t n = (uint32_t)layout_count(from),
                   all = (uint32_t)(r->named ? specs_members(&r->axes) : 1),
                   base = from->holder[0]->n ? from->holder[0]->at[0] / all * all : 0;
    IdMap number = {0};
    uint32_t met = 0;
    to->holder = arena_array(r->a, const Ids *, n);
    for (uint32_t i = 0; i < n; i++) {
        Ids *own = arena_new_of(r->a, Ids);
        for (uint32_t k = 0; k < from->holder[i]->n; k++) {
            uint32_t *slot = idmap_at(r->a, &number, from->holder[i]->at[k]);
            *slot = *slot == NONE ? met++ : *slot;
            vec_push(r->a, own, r->named ? from->holder[i]->at[k] - base : *slot);
        }
        to->holder[i] = own;
    }
    return met;
}

/* Of others all specs that divide something are of one axis, among whose members the devices are
   divided. */
static void same_axis(Reading *r, const char *tensor, int members, int chunks)
{
    int *t = &r->own.members[MESH_TENSOR], *c = &r->own.chunks[MESH_TENSOR];
    if (*t == members && *c == chunks)
        return;
    tensor = diag_escape(r->a, tensor);
    if (*c > 1 && !r->unlike)
        r->unlike = arena_printf(r->a, "'%s' is in %d shards on %d devices, others are in %d on %d",
                                 tensor, chunks, members, *c, *t);
    if (r->c.configuration->num_devices % members && !r->unlike)
        r->unlike = arena_printf(r->a, "'%s' is on %d devices, the configuration has %d", tensor,
                                 members, r->c.configuration->num_devices);
    if ((chunks / members & (chunks / members - 1)) && !r->unlike)
        r->unlike = arena_printf(r->a, "a device has %d shards, which is not a power of two",
                                 chunks / members);
    *t = members;
    *c = chunks;
}

/* The places that it says; false: they are none of the axes. */
static bool understand(Reading *r, Said *x)
{
    Layout *l = arena_new_of(r->a, Layout);
    Lies lies = {0};
    *l = *x->layout;
    x->at = place_r();
    if (!l->n)
        return true;
    const uint32_t devices = number_devices(r, x->layout, l);
    const int64_t shards = layout_count(l);
    if (!r->named) {
        if (shards % devices || shards > MESH_MOST)
            return false;
        r->axes.n = 0;
        add_axis(r, MESH_TENSOR, (int)devices, (int)shards);
    }
    x->layout = l;
    x->at.dim = MAX_RANK;
    if (!fit_places(r, 0, &lies, x))
        return false;
    if (!r->named)
        same_axis(r, x->tensor, (int)devices, (int)shards);
    if (r->axes.at[0].axis != MESH_TENSOR)
        x->at = place_r();
    return true;
}

static void ignore(Reading *r, uint32_t node, const char *tensor)
{
    const Onnx__NodeProto *n = r->c.m->graph->node[node];
    if (r->ignored++)
        return;
    r->first = (Where){r->c.m->path, "node", node, n->name, n->op_type, -1};
    r->tensor = tensor;
}

static void read_spec(Reading *r, uint32_t node, const Onnx__ShardingSpecProto *s)
{
    const Graph *g = r->c.g;
    Said x = {.node = node, .tensor = check_text(s->tensor_name)};
    x.param = strmap_get(&r->param, x.tensor);
    const ValueId v =
        x.param != NONE ? g->param.at[x.param].value : strmap_get(&g->by_name, x.tensor);
    Sizes sizes = {.rank = v == NONE ? 0 : val(g, v)->shape.rank};
    for (int k = 0; k < MAX_RANK; k++)
        sizes.d[k].size = -1;
    if (v == NONE)
        return;
    x.layout = spec_read(&r->c, WHERE_NONE, x.tensor, s, &sizes);
    if (x.layout && understand(r, &x))
        vec_push(r->a, &r->said, x);
    else
        ignore(r, node, x.tensor);
}

static void read_file(Reading *r, const Graph *g, Arena *a)
{
    const Onnx__ModelProto *m = g->files.model.at[0]->proto;
    *r = (Reading){.a = a, .param.arena = a};
    r->c = (Check){.a = a, .m = g->files.model.at[0], .g = g, .quiet = true};
    r->named = m->n_configuration && read_name(g->arena, m->configuration[0]->name, &r->own) &&
               is_on(&r->own, m->configuration[0]->num_devices);
    for (int x = 0; x < MESH_AXES; x++)
        if (!r->named)
            r->own.members[x] = r->own.chunks[x] = 1;
        else if (mesh_has(&r->own, (MeshAxis)x))
            add_axis(r, (MeshAxis)x, r->own.members[x], r->own.chunks[x]);
    if (!m->n_configuration || g->files.model.n != 1)
        return;
    r->c.configuration = m->configuration[0];
    for (uint32_t p = g->param.n; p-- > 0;)
        if (g->param.at[p].initializer)
            *strmap_at(&r->param, g->param.at[p].initializer) = p;
    for (uint32_t i = 0; i < r->c.m->graph->n_node; i++) {
        const Onnx__NodeDeviceConfigurationProto *e = node_devices(r->c.m, r->c.m->graph->node[i]);
        for (size_t k = 0; e && k < e->n_sharding_spec; k++)
            read_spec(r, i, e->sharding_spec[k]);
    }
    r->axes.n = r->named ? r->axes.n : 0;
    if (!r->named)
        add_axis(r, MESH_TENSOR, r->own.members[MESH_TENSOR], r->own.chunks[MESH_TENSOR]);
}

/* ---- what the options are -------------------------------------------------------------------- */

bool annotate_read(const Graph *g, MeshOptions *opt)
{
    Arena *a = arena_within(g->arena);
    Reading r;
    read_file(&r, g, a);
    const bool given = opt->members[MESH_TENSOR] > 0;
    if (!given && r.unlike) {
        diag_note("%s", r.unlike);
        diag_hint("use --tensor T, or --tensor 1, instead");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the sharding specs do not describe a tensor axis");
    }
    if (!given) {
        memcpy(opt->members, r.own.members, sizeof opt->members);
        memcpy(opt->chunks, r.own.chunks, sizeof opt->chunks);
    }
    const bool same = r.named && !memcmp(opt->members, r.own.members, sizeof opt->members) &&
                      !memcmp(opt->chunks, r.own.chunks, sizeof opt->chunks);
    for (uint32_t i = 0; same && i < opt->shard.n; i++)
        vec_push(g->arena, &r.own.shard, opt->shard.at[i]);
    if (same) {
        opt->shard.at = r.own.shard.at; /* the last that fits wins */
        opt->shard.n = opt->shard.cap = r.own.shard.n;
        opt->keep = opt->keep > r.own.keep ? opt->keep : r.own.keep;
    }
    if (!given && opt->shard.n && !mesh_has(opt, MESH_TENSOR))
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--shard without --tensor");
    arena_free(a);
    return same;
}

/* False: another spec of it says something else. */
static bool ask(const Graph *g, MeshOptions *opt, uint32_t param, const Said *x)
{
    const Param *q = &g->param.at[param];
    MeshAsked asked = {param, x->node, q->value, x->at};
    if (asked.at.dim >= 0 && q->transposed)
        asked.at.dim = 1 - asked.at.dim;
    for (uint32_t i = 0; i < opt->asked.n; i++)
        if (opt->asked.at[i].param == param)
            return place_is(opt->asked.at[i].at, asked.at);
    vec_push(g->arena, &opt->asked, asked);
    return true;
}

void annotate_ask(const Graph *g, MeshOptions *opt)
{
    Arena *a = arena_within(g->arena);
    Reading r;
    read_file(&r, g, a);
    memset(&opt->asked, 0, sizeof opt->asked);
    for (uint32_t i = 0; i < r.said.n; i++) {
        const Said *x = &r.said.at[i];
        bool good = true;
        if (x->open)
            continue;
        if (x->param == NONE)
            vec_push(g->arena, &opt->asked,
                     ((MeshAsked){NONE, x->node, strmap_get(&g->by_name, x->tensor), x->at}));
        for (uint32_t p = x->param; p < g->param.n; p++)
            if (g->param.at[p].initializer && !strcmp(g->param.at[p].initializer, x->tensor))
                good &= ask(g, opt, p, x);
        if (!good)
            ignore(&r, x->node, x->tensor);
    }
    if (r.ignored)
        diag_warn(
            r.first,
            "%u sharding spec%s ignored (the first is of '%s'): a tensor must be divided along one "
            "axis with each shard on one device, and a parameter always in the same way",
            r.ignored, r.ignored == 1 ? " is" : "s are", r.tensor);
    arena_free(a);
}

/* ---- what a plan makes of it ------------------------------------------------------------------*/

/* Of an axis that the plans do not have nothing is to be followed; then the places along the tensor
 * axis tell alone. */
static bool follows(const Reading *r, const Specs *s, const MeshPlans *plans, const Said *x)
{
    Lies is, lies = {0};
    uint32_t axes = 0;
    bool same = true;
    if (!specs_lies(s, x->node, x->tensor, &is))
        return true; /* of what is not known nothing is said */
    lies.shape = is.shape;
    for (uint32_t k = 0; k < r->axes.n; k++) {
        lies.at[k] = place_r();
        for (uint32_t i = 0; i < plans->n; i++) {
            if (plans->at[i].axis != r->axes.at[k].axis)
                continue;
            lies.at[k] = is.at[i];
            axes++;
            if (r->axes.at[k].axis == MESH_TENSOR && !x->open)
                same = x->at.dim < 0 ? is.at[i].dim < 0 : place_is(x->at, is.at[i]);
        }
    }
    if (axes < r->axes.n)
        return same;
    const Layout *l = specs_layout(r->a, &r->axes, &lies, layout_count(x->layout));
    return l && same_layout(l, x->layout);
}

bool annotate_follows(const Graph *g, const MeshPlans *plans, bool say)
{
    Arena *a = arena_within(g->arena);
    const Annotations what = {.whole = g, .plans = *plans};
    uint32_t n = 0;
    const char *first = NULL;
    Reading r;
    read_file(&r, g, a);
    const Specs *s = r.said.n ? specs_open(a, g->files.model.at[0], &what) : NULL;
    for (uint32_t i = 0; i < r.said.n; i++) {
        const Said *x = &r.said.at[i];
        if ((say && x->param != NONE) || follows(&r, s, plans, x))
            continue;
        first = n++ ? first : x->tensor;
    }
    if (n && say && r.named)
        diag_hint(
            "where nobody has changed them: annotate the model with the options of this run, as "
            "--loss");
    if (n && say)
        diag_warn(
            WHERE_FILE(g->file), "%u sharding spec%s not followed (the first is of '%s'): %s", n,
            n == 1 ? " is" : "s are", first,
            r.axes.at[0].axis == MESH_TENSOR
                ? "no division by the rules of ops, with parameters as asked for, follows more"
                : "they decide along the axis of --tensor alone");
    arena_free(a);
    return n == 0;
}

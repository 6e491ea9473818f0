/*
 * inline.c - calls of local functions and the bodies of branches and loops become plain nodes.  In:
 * GraphProto, FunctionProtos.  Out: a flat list of RawNodes over names that are unique in the whole
 * model, attribute references resolved, in topological order (sort.c).
 *
 * A Frame is one activation: how the names of a body map to names of the model, and what its
 * attribute references are bound to.  Recursion is as deep as the call chain, which may not repeat
 * a function.
 */
#include <string.h>

#include "names.h"

enum { MAX_CALLS = 64, MOST_IMPORTS = 1000, MOST_ATTRIBUTES = 1000 };

typedef struct Frame {
    /* the frame of the caller, or of the graph around a branch */
    struct Frame *outer;
    const Onnx__FunctionProto *function;                /* NULL: the graph itself, or a branch */
    bool top;
    const char *prefix;                                 /* of the names made here */
    StrMap map;                                         /* local name -> index into name */
    VEC(const char *) name;
    const RawNode *site;                                /* the call, or the If */
    const char *scope;                                  /* of a function's body */
    int depth;
} Frame;

static const char *text(const char *s) { return s ? s : ""; }

static bool is_standard(const char *domain) { return !*domain || !strcmp(domain, "ai.onnx"); }

static void define(Model *m, Frame *f, const char *local, const char *global)
{
    *strmap_at(&f->map, local) = f->name.n;
    vec_push(m->arena, &f->name, global);
}

static const char *resolve(Model *m, const Frame *f, const char *local)
{
    if (!*local)
        return "";
    for (const Frame *at = f; at && !at->top; at = at->function ? NULL : at->outer) {
        uint32_t i = strmap_get(&at->map, local);
        if (i != NONE)
            return at->name.at[i];
        if (at->function)
            return arena_printf(m->arena, "%s/%s", at->prefix, local);
    }
    return local;
}

/* ---- attributes ---- */

static Onnx__AttributeProto *bound_attribute(const Frame *f, const char *name)
{
    while (f && !f->function && !f->top)
        f = f->outer;
    if (!f || !f->function)
        return NULL;
    for (uint32_t i = 0; i < f->site->nattr; i++)
        if (!strcmp(text(f->site->attr[i]->name), name))
            return f->site->attr[i];
    for (size_t i = 0; i < f->function->n_attribute_proto; i++)
        if (!strcmp(text(f->function->attribute_proto[i]->name), name))
            return f->function->attribute_proto[i];
    return NULL;
}

static void copy_attributes(Model *m, const Frame *f, const Onnx__NodeProto *p, RawNode *n)
{
    if (p->n_attribute > MOST_ATTRIBUTES)
        diag_fatal(EXIT_MODEL, raw_where(m, n, -1), "%zu attributes", p->n_attribute);
    n->attr = arena_array(m->arena, Onnx__AttributeProto *, p->n_attribute);
    for (size_t i = 0; i < p->n_attribute; i++) {
        Onnx__AttributeProto *a = p->attribute[i];
        for (uint32_t j = 0; j < n->nattr; j++)
            if (!strcmp(text(n->attr[j]->name), text(a->name)))
                diag_fatal(EXIT_MODEL, raw_where(m, n, -1), "attribute '%s' occurs twice",
                           text(a->name));
        if (a->ref_attr_name && *a->ref_attr_name) {
            const Onnx__AttributeProto *bound = bound_attribute(f, a->ref_attr_name);
            if (!bound)
                continue; /* an optional attribute the caller left out */
            Onnx__AttributeProto *copy = arena_new_of(m->arena, Onnx__AttributeProto);
            *copy = *bound;
            copy->name = a->name;
            a = copy;
        }
        n->attr[n->nattr++] = a;
    }
}

/* ---- nodes ---- */

static int opset_in(size_t n, Onnx__OperatorSetIdProto **import, const char *domain)
{
    for (size_t i = 0; i < n; i++) {
        const char *d = text(import[i]->domain);
        if (is_standard(d) ? is_standard(domain) : !strcmp(d, domain))
            return import[i]->version > 0 && import[i]->version < 1000 ? (int)import[i]->version
                                                                       : 0;
    }
    return 0;
}

static int opset_of(const Model *m, const Frame *f, const char *domain)
{
    int v = 0;
    for (; f && !v; f = f->outer)
        if (f->function)
            v = opset_in(f->function->n_opset_import, f->function->opset_import, domain);
    return v ? v : opset_in(m->proto->n_opset_import, m->proto->opset_import, domain);
}

static int stage_annotation(const Model *m, const Onnx__NodeProto *p)
{
    const Onnx__NodeDeviceConfigurationProto *e = node_devices(m, p);
    if (e && e->has_pipeline_stage && e->pipeline_stage >= 0)
        return e->pipeline_stage;
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->has_i && !strcmp(text(p->attribute[i]->name), "pipeline_stage") &&
            p->attribute[i]->i >= 0 && p->attribute[i]->i < 1 << 20)
            return (int)p->attribute[i]->i;
    const char *value = metadata_get(p->n_metadata_props, p->metadata_props, "pipeline_stage");
    uint64_t stage;
    return value && raw_decimal(value, &stage) && stage < 1 << 20 ? (int)stage : -1;
}

static _Noreturn void too_many(const Model *m)
{
    diag_hint("--limit=nodes=N raises the limit");
    diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "more than %u nodes after inlining",
               m->limits.nodes);
}

static void count_nodes(Model *m, uint64_t n)
{
    m->inlined_nodes += n;
    if (m->inlined_nodes > m->limits.nodes)
        too_many(m);
}

static RawNode *raw_node(Model *m, Frame *f, const Onnx__NodeProto *p, uint32_t index)
{
    count_nodes(m, 1);
    Arena *a = m->arena;
    const RawNode *site = f->site;
    RawNode *n = arena_new_of(a, RawNode);
    *n = (RawNode){
        .name = text(p->name),
        .op_type = text(p->op_type),
        .domain = text(p->domain),
        .frame = f,
        .bias = NONE,
        .index = site ? site->index : index,
        .inlined = site != NULL,
        .pipeline_stage = stage_annotation(m, p),
        .call_scope = f->scope,
        .nin = (uint32_t)p->n_input,
        .nout = (uint32_t)p->n_output,
        .name_scopes =
            metadata_get(p->n_metadata_props, p->metadata_props, "pkg.torch.onnx.name_scopes"),
        .fx_node = metadata_get(p->n_metadata_props, p->metadata_props, "pkg.torch.onnx.fx_node"),
        .stack = metadata_get(p->n_metadata_props, p->metadata_props, "pkg.torch.onnx.stack_trace"),
    };
    if (is_standard(n->domain))
        n->domain = "";
    n->opset = opset_of(m, f, n->domain);
    if (site && n->pipeline_stage < 0)
        n->pipeline_stage = site->pipeline_stage;
    if (site && !n->fx_node) {
        n->fx_node = site->fx_node;
        n->stack = site->stack;
    }
    if (site && site->name_scopes && !n->name_scopes)
        n->name_scopes = site->name_scopes;
    if (n->name_scopes)
        n->call_scope = NULL;
    n->in = arena_array(a, const char *, n->nin);
    n->out = arena_array(a, const char *, n->nout);
    for (uint32_t i = 0; i < n->nin; i++)
        n->in[i] = resolve(m, f, text(p->input[i]));
    for (uint32_t i = 0; i < n->nout; i++)
        n->out[i] = resolve(m, f, text(p->output[i]));
    copy_attributes(m, f, p, n);
    return n;
}

static const char *function_key(const Model *m, const char *domain, const char *name,
                                const char *overload)
{
    return arena_printf(m->arena, "%s\n%s\n%s", is_standard(text(domain)) ? "" : domain, text(name),
                        text(overload));
}

static void index_functions(Model *m)
{
    m->function.arena = m->arena;
    for (size_t i = 0; i < m->proto->n_functions; i++) {
        const Onnx__FunctionProto *f = m->proto->functions[i];
        Where w = {m->path, "function", (uint32_t)i, text(f->name), NULL, -1};
        if (f->n_opset_import > MOST_IMPORTS)
            diag_fatal(EXIT_MODEL, w, "%zu opset imports", f->n_opset_import);
        uint32_t *slot = strmap_at(&m->function, function_key(m, f->domain, f->name, f->overload));
        if (*slot != NONE)
            diag_fatal(EXIT_MODEL, w, "two functions have this name");
        *slot = (uint32_t)i;
    }
}

static const Onnx__FunctionProto *find_function(const Model *m, const Onnx__NodeProto *p)
{
    uint32_t i = strmap_get(&m->function, function_key(m, p->domain, p->op_type, p->overload));
    return i == NONE ? NULL : m->proto->functions[i];
}

/* A prefix nobody has: the call's name, numbered when it repeats. */
static const char *new_prefix(Model *m, const Frame *f, const char *name, const char *op_type)
{
    const char *base = *name ? name : op_type;
    if (!f->top)
        base = arena_printf(m->arena, "%s/%s", f->prefix, base);
    uint32_t *slot = strmap_at(&m->prefix, base);
    *slot = *slot == NONE ? 0 : *slot + 1;
    return *slot == 0 ? base : arena_printf(m->arena, "%s#%u", base, *slot);
}

static Frame *new_frame(Model *m, Frame *outer, const RawNode *site)
{
    Frame *f = arena_new_of(m->arena, Frame);
    *f = (Frame){.outer = outer, .map.arena = m->arena, .site = site, .depth = outer->depth + 1};
    f->prefix = new_prefix(m, outer, site->name, site->op_type);
    if (f->depth > MAX_CALLS)
        diag_fatal(EXIT_MODEL, raw_where(m, site, -1),
                   "calls and branches are nested more than %d deep", MAX_CALLS);
    return f;
}

static void identity(Model *m, Frame *f, const char *from, const char *to, RawNodes *list)
{
    Onnx__NodeProto p = ONNX__NODE_PROTO__INIT;
    char op_type[] = "Identity";
    p.op_type = op_type;
    RawNode *n = raw_node(m, f, &p, 0);
    n->op_type = "Identity";
    n->nin = n->nout = 1;
    n->in = arena_array(m->arena, const char *, 1);
    n->out = arena_array(m->arena, const char *, 1);
    n->in[0] = from;
    n->out[0] = to;
    vec_push(m->arena, list, n);
}

static void add_nodes(Model *m, Frame *f, size_t n, Onnx__NodeProto **node, RawNodes *list);

static void inline_call(Model *m, Frame *outer, const RawNode *site, const Onnx__FunctionProto *fn,
                        RawNodes *list)
{
    for (const Frame *f = outer; f; f = f->outer)
        if (f->function == fn)
            diag_fatal(EXIT_MODEL, raw_where(m, site, -1), "function '%s' calls itself",
                       text(fn->name));
    if (site->nin > fn->n_input || site->nout > fn->n_output)
        diag_fatal(EXIT_MODEL, raw_where(m, site, -1),
                   "the call has %u inputs and %u outputs, function '%s' %zu and %zu", site->nin,
                   site->nout, text(fn->name), fn->n_input, fn->n_output);
    Frame *f = new_frame(m, outer, site);
    f->function = fn;
    uint32_t call;
    const char *own = site->call_scope
                          ? site->call_scope
                          : scope_own(m->arena, site->name, NULL, site->name_scopes, &call);
    f->scope = scope_of_call(m, own, site->nin, site->in);
    if (!f->scope && !m->from_pytorch && *site->name)
        f->scope = outer->scope ? arena_printf(m->arena, "%s.%s", outer->scope, site->name)
                                : site->name;
    for (size_t i = 0; i < fn->n_input; i++)
        define(m, f, text(fn->input[i]), i < site->nin ? site->in[i] : "");
    for (size_t i = 0; i < site->nout; i++) {
        if (!*site->out[i])
            continue;
        if (strmap_get(&f->map, text(fn->output[i])) != NONE)
            identity(m, f, resolve(m, f, text(fn->output[i])), site->out[i], list);
        else
            define(m, f, text(fn->output[i]), site->out[i]);
    }
    add_nodes(m, f, fn->n_node, fn->node, list);
}

/* ---- Constants become initializers, which may be parameters ---- */

/* The one attribute of a Constant, or of a ConstantOfShape; NULL: it is no such node, or has other
 * ones, or what the call names is no local value. */
static const Onnx__AttributeProto *value_of(const Frame *f, const Onnx__NodeProto *p,
                                            const char *op)
{
    bool is = !strcmp(text(p->op_type), op) && is_standard(text(p->domain)) && p->n_output == 1 &&
              p->n_attribute == 1;
    bool own = !f->function || strmap_get(&f->map, text(p->output[0])) == NONE;
    return is && own && !*text(p->attribute[0]->ref_attr_name) ? p->attribute[0] : NULL;
}

static Payload floats(Arena *a, size_t n, const float *from, bool same)
{
    float *to = arena_array(a, float, n + 1);
    for (size_t i = 0; i < n; i++)
        to[i] = from[same ? 0 : i];
    return (Payload){.at = (const uint8_t *)to, .length = n * sizeof *to, .converted = true};
}

/* An initializer, or a Constant a few nodes before. */
static bool shape_known(const Model *m, const RawNodes *list, const char *name, Shape *s)
{
    enum { FEW = 64 };
    const RawTensor *held = raw_array(m, name);
    RawTensor t = held ? *held : (RawTensor){0};
    for (uint32_t i = list->n; !held && i-- > 0 && list->n - i < FEW;) {
        const RawNode *n = list->at[i];
        const Onnx__AttributeProto *value = raw_attr(n, "value");
        if (n->nout == 1 && !strcmp(n->out[0], name) && !strcmp(n->op_type, "Constant") && value &&
            value->t)
            tensor_read((Model *)(uintptr_t)m, value->t, raw_where(m, n, -1), &t);
    }
    if (t.dtype != DT_I64 || t.shape.rank != 1 || t.shape.d[0] > MAX_RANK)
        return false;
    s->rank = (int)t.shape.d[0];
    memcpy(s->d, t.bytes.at, t.bytes.length);
    return true;
}

/* Floats of one dimension or more that a Constant holds, or, outside of PyTorch's files (in which
 * they are numbers of the program), a ConstantOfShape. */
static bool numbers_of(Model *m, const Frame *f, const Onnx__NodeProto *p, const RawNodes *list,
                       Where w, RawTensor *out)
{
    enum { MOST = 1 << 22 };
    const Onnx__AttributeProto *v = value_of(f, p, "Constant");
    if (f->function && m->from_pytorch)
        return false;
    if (v && v->t && v->t->n_dims > 0 && dtype_is_float((Dtype)v->t->data_type)) {
        tensor_read(m, v->t, w, out);
        return true;
    }
    *out = (RawTensor){.name = "", .dtype = DT_F32};
    if (v && v->n_floats) {
        out->shape = shape_of(1, (int64_t)v->n_floats);
        out->bytes = floats(m->arena, v->n_floats, v->floats, false);
        return true;
    }
    v = f->top && !m->from_pytorch ? value_of(f, p, "ConstantOfShape") : NULL;
    if (!v || !v->t || (Dtype)v->t->data_type != DT_F32 || p->n_input != 1 ||
        !shape_known(m, list, text(p->input[0]), &out->shape))
        return false;
    int64_t n = 1;
    for (int i = 0; i < out->shape.rank; i++)
        if (out->shape.d[i] < 0 || __builtin_mul_overflow(n, out->shape.d[i], &n) || n > MOST)
            return false;
    RawTensor one;
    tensor_read(m, v->t, w, &one);
    if (n < 2 || one.bytes.length != sizeof(float))
        return false;
    float value;
    memcpy(&value, one.bytes.at, sizeof value);
    out->bytes = floats(m->arena, (size_t)n, &value, true);
    return true;
}

/* One initializer for all calls of a function, all copies of a body. */
static bool lift(Model *m, Frame *f, const Onnx__NodeProto *p, uint32_t index, const RawNodes *list)
{
    const char *local = p->n_output ? text(p->output[0]) : "",
               *key = arena_printf(m->arena, "%p", (const void *)p);
    uint32_t known = f->top ? NONE : strmap_get(&m->body, key);
    RawTensor r;
    Where w = {m->path, "constant", index, local, NULL, -1};
    if (known != NONE) {
        define(m, f, local, m->init.at[known].name);
        return true;
    }
    if (!numbers_of(m, f, p, list, w, &r))
        return false;
    const char *global = resolve(m, f, local);
    uint32_t *slot = strmap_at(&m->init_index, global);
    if (*slot != NONE)
        diag_fatal(EXIT_MODEL, w, "value '%s' is defined twice", global);
    *slot = m->init.n;
    if (!f->top)
        *strmap_at(&m->body, key) = m->init.n;
    r.name = global;
    r.is_lifted = true;
    r.home = p;
    r.is_inside = !f->top;
    if (!f->top)
        define(m, f, local, global);
    if (!f->top && !f->function)
        tensor_single(m->arena, &r);
    vec_push(m->arena, &m->init, r);
    return true;
}

static void add_nodes(Model *m, Frame *f, size_t n, Onnx__NodeProto **node, RawNodes *list)
{
    for (size_t i = 0; i < n; i++) {
        if (lift(m, f, node[i], (uint32_t)i, list))
            continue;
        RawNode *raw = raw_node(m, f, node[i], (uint32_t)i);
        const Onnx__FunctionProto *fn = m->proto->n_functions ? find_function(m, node[i]) : NULL;
        if (fn)
            inline_call(m, f, raw, fn, list);
        else
            vec_push(m->arena, list, raw);
    }
}

/*
 * How many nodes a list becomes, callees included: computed before anything is expanded, so that
 * forty functions that call each other twice are refused at once.  size[f]: 0 not yet known,
 * UINT64_MAX in progress.
 */
static uint64_t expanded(const Model *m, size_t n, Onnx__NodeProto **node, uint64_t *size,
                         int depth)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n && total <= m->limits.nodes; i++) {
        uint32_t f = strmap_get(
            &m->function, function_key(m, node[i]->domain, node[i]->op_type, node[i]->overload));
        total++;
        if (f == NONE)
            continue;
        const Onnx__FunctionProto *fn = m->proto->functions[f];
        Where w = {m->path, "function", f, text(fn->name), NULL, -1};
        if (size[f] == UINT64_MAX)
            diag_fatal(EXIT_MODEL, w, "it calls itself");
        if (depth > MAX_CALLS)
            diag_fatal(EXIT_MODEL, w, "calls are nested more than %d deep", MAX_CALLS);
        if (size[f] == 0) {
            size[f] = UINT64_MAX;
            size[f] = 1 + expanded(m, fn->n_node, fn->node, size, depth + 1);
        }
        total += size[f];
    }
    return total;
}

static void check_size(Model *m)
{
    uint64_t *size = arena_array(m->arena, uint64_t, m->proto->n_functions + 1);
    if (expanded(m, m->graph->n_node, m->graph->node, size, 0) > m->limits.nodes)
        too_many(m);
}

void inline_model(Model *m)
{
    Frame *f = arena_new_of(m->arena, Frame);
    *f = (Frame){.top = true, .prefix = "", .map.arena = m->arena};
    index_functions(m);
    check_size(m);
    add_nodes(m, f, m->graph->n_node, m->graph->node, &m->node);
}

/* Initializers of a body are those of all its copies: a loop's weights are one parameter. */
static void body_initializers(Model *m, Frame *f, const Onnx__GraphProto *g)
{
    const char *key = arena_printf(m->arena, "%p", (const void *)g);
    uint32_t *first = strmap_at(&m->body, key);
    bool seen = *first != NONE;
    if (!seen)
        *first = m->init.n;
    for (size_t i = 0; i < g->n_initializer; i++) {
        const char *local = text(g->initializer[i]->name);
        if (seen) {
            define(m, f, local, m->init.at[*first + i].name);
            continue;
        }
        const char *global = arena_printf(m->arena, "%s/%s", f->prefix, local);
        define(m, f, local, global);
        RawTensor r;
        tensor_read(m, g->initializer[i],
                    (Where){m->path, "initializer", (uint32_t)i, local, NULL, -1}, &r);
        r.name = global;
        r.home = g->initializer[i];
        r.is_inside = true;
        tensor_single(m->arena, &r);
        *strmap_at(&m->init_index, global) = m->init.n;
        vec_push(m->arena, &m->init, r);
    }
}

static const char *define_own(Model *m, Frame *f, const char *local)
{
    const char *global = arena_printf(m->arena, "%s/%s", f->prefix, local);
    define(m, f, local, global);
    return global;
}

uint64_t inline_body_cost(const Onnx__GraphProto *g) { return 4 * (uint64_t)g->n_node + 8; }

Body inline_body(Model *m, const RawNode *n, const char *attr)
{
    Body b = {0};
    const Onnx__AttributeProto *own = raw_attr(n, attr);
    const Onnx__GraphProto *g = own ? own->g : NULL;
    if (!g)
        diag_fatal(EXIT_MODEL, raw_where(m, n, -1), "it has no graph attribute '%s'", attr);
    count_nodes(m, inline_body_cost(g) - g->n_node);
    Frame *f = new_frame(m, n->frame, n);
    f->scope = n->scope;
    body_initializers(m, f, g);
    b.nin = (uint32_t)g->n_input;
    b.in = arena_array(m->arena, const char *, b.nin);
    for (uint32_t i = 0; i < b.nin; i++)
        b.in[i] = define_own(m, f, text(g->input[i]->name));
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t j = 0; j < g->node[i]->n_output; j++)
            define_own(m, f, text(g->node[i]->output[j]));
    add_nodes(m, f, g->n_node, g->node, &b.node);
    b.nout = (uint32_t)g->n_output;
    b.out = arena_array(m->arena, const char *, b.nout);
    for (uint32_t i = 0; i < b.nout; i++)
        b.out[i] = resolve(m, f, text(g->output[i]->name));
    return b;
}

static void captured_in(Model *m, const RawNode *n, const Onnx__GraphProto *g,
                        void (*fn)(void *, const char *), void *to)
{
    for (size_t i = 0; i < g->n_node; i++) {
        for (size_t j = 0; j < g->node[i]->n_input; j++)
            fn(to, resolve(m, n->frame, text(g->node[i]->input[j])));
        for (size_t j = 0; j < g->node[i]->n_attribute; j++)
            if (g->node[i]->attribute[j]->g)
                captured_in(m, n, g->node[i]->attribute[j]->g, fn, to);
    }
    for (size_t i = 0; i < g->n_output; i++)
        fn(to, resolve(m, n->frame, text(g->output[i]->name)));
}

void inline_captured(Model *m, const RawNode *n, void (*fn)(void *, const char *), void *to)
{
    bool gradient = !strcmp(n->op_type, "Gradient") && *n->domain;
    for (uint32_t j = 0; j < n->nattr; j++) {
        const Onnx__AttributeProto *a = n->attr[j];
        if (a->g)
            captured_in(m, n, a->g, fn, to);
        else if (gradient && !strcmp(text(a->name), "y") && a->has_s)
            fn(to, arena_strndup(m->arena, (const char *)a->s.data, a->s.len));
        for (size_t i = 0; gradient && i < a->n_strings; i++)
            fn(to, arena_strndup(m->arena, (const char *)a->strings[i].data, a->strings[i].len));
    }
}

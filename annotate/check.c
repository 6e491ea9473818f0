/*
 * check.c - the checker that ShardingFormalism.md asks for.
 *
 * In: a model's file.  Out: every violation, and what no rule was applied to.  Nodes are taken in
 * the order of the file: what is known of a tensor's sharding where it is made, said or inferred,
 * is what holds where a reader does not say otherwise.  A model's inputs and initializers are not
 * divided.
 */
#include "check.h"

#include <string.h>

#include "autodiff/export/onnx_fields.h"

/* ---- the model's part ---- */

static void check_model(Check *c)
{
    const Onnx__ModelProto *p = c->m->proto;
    Where w = WHERE_FILE(c->m->path);
    if (p->ir_version < IR_WITH_DEVICES)
        VIOLATION(c, w, "device configurations are of IR version %d, the file says %lld",
                  IR_WITH_DEVICES, (long long)p->ir_version);
    for (size_t i = 0; i < p->n_configuration; i++) {
        const Onnx__DeviceConfigurationProto *k = p->configuration[i];
        const char *name = check_text(k->name);
        if (!*name)
            VIOLATION(c, w, "configuration %zu has no name", i);
        for (size_t j = 0; j < i; j++)
            if (*name && !strcmp(check_text(p->configuration[j]->name), name))
                VIOLATION(c, w, "two configurations have the name '%s'", name);
        if (!k->has_num_devices || k->num_devices < 1)
            VIOLATION(c, w, "configuration '%s': num_devices is %d", name, k->num_devices);
        else if (k->n_device && k->n_device != (size_t)k->num_devices)
            VIOLATION(c, w, "configuration '%s': num_devices is %d, but %zu devices have names",
                      name, k->num_devices, k->n_device);
    }
}

/* ---- a node's part ---- */

static Where where_node(const Check *c, uint32_t i, int input)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    return (Where){c->m->path, "node", i, n->name, n->op_type, input};
}

/* Entries of a node that belong to no configuration, or two to one. */
static void check_entries(Check *c, uint32_t i)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    const Onnx__ModelProto *p = c->m->proto;
    const char **name = arena_array(c->a, const char *, p->n_configuration + 1);
    for (size_t k = 0; k < p->n_configuration; k++)
        name[k] = check_text(p->configuration[k]->name);
    for (size_t k = 0; k < n->n_device_configurations; k++) {
        const char *id = check_text(n->device_configurations[k]->configuration_id);
        bool there = false, twice = false;
        for (size_t j = 0; j < p->n_configuration; j++)
            there |= !strcmp(id, name[j]);
        for (size_t j = 0; j < k; j++)
            twice |= !strcmp(id, check_text(n->device_configurations[j]->configuration_id));
        const char *near = there ? NULL : nearest_name(id, name, p->n_configuration);
        if (near)
            diag_hint("did you mean '%s'?", near);
        if (!there)
            VIOLATION(c, where_node(c, i, -1), "the model has no configuration '%s'", id);
        if (twice)
            VIOLATION(c, where_node(c, i, -1), "two entries for configuration '%s'", id);
    }
}

static const Onnx__NodeDeviceConfigurationProto *entry_of(const Check *c, const Onnx__NodeProto *n)
{
    for (size_t k = 0; k < n->n_device_configurations; k++)
        if (!strcmp(check_text(n->device_configurations[k]->configuration_id),
                    check_text(c->configuration->name)))
            return n->device_configurations[k];
    return NULL;
}

static Made *made(Check *c, const char *tensor)
{
    static const Layout plain; /* of inputs and initializers */
    uint32_t *slot = strmap_at(&c->made_of, tensor);
    if (*slot == NONE) {
        *slot = c->made.n;
        vec_push(c->a, &c->made, ((Made){&plain, -1, NONE}));
    }
    return &c->made.at[*slot];
}

/* The layouts of the node's operands and results that its entry says; NULL: it does not, or the
   spec is broken. */
typedef struct {
    const Layout **in, **out;
    bool *in_said, *out_said;
} Said;

static bool says(Check *c, uint32_t i, const Onnx__ShardingSpecProto *s, const Said *to)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    const char *name = check_text(s->tensor_name);
    bool found = false;
    for (size_t k = 0; k < n->n_input && *name; k++) {
        if (strcmp(check_text(n->input[k]), name) != 0)
            continue;
        Sizes sizes = shape_of_tensor(c, name);
        to->in[k] = found ? to->in[k]
                          : spec_read(c, where_node(c, i, (int)k), arena_printf(c->a, "'%s'", name),
                                      s, &sizes);
        for (size_t j = 0; found && j < k; j++)
            if (!strcmp(check_text(n->input[j]), name))
                to->in[k] = to->in[j];
        found = to->in_said[k] = true;
    }
    for (size_t k = 0; k < n->n_output && *name && !found; k++) {
        if (strcmp(check_text(n->output[k]), name) != 0)
            continue;
        Sizes sizes = shape_of_tensor(c, name);
        to->out[k] =
            spec_read(c, where_node(c, i, -1), arena_printf(c->a, "output '%s'", name), s, &sizes);
        found = to->out_said[k] = true;
    }
    return found;
}

static void check_specs(Check *c, uint32_t i, const Onnx__NodeDeviceConfigurationProto *e,
                        const Said *to)
{
    StrMap seen = {.arena = c->a};
    for (size_t k = 0; k < e->n_sharding_spec; k++) {
        const Onnx__ShardingSpecProto *s = e->sharding_spec[k];
        const char *name = check_text(s->tensor_name);
        uint32_t *slot = strmap_at(&seen, name);
        c->specs++;
        if (*slot != NONE)
            VIOLATION(c, where_node(c, i, -1), "two sharding specs for '%s'", name);
        else if (!says(c, i, s, to))
            VIOLATION(c, where_node(c, i, -1),
                      "a sharding spec for '%s', which it neither reads nor "
                      "makes",
                      name);
        *slot = 0;
    }
}

static void check_stage(Check *c, uint32_t i, int stage)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    for (size_t k = 0; stage >= 0 && k < n->n_input; k++) {
        const Made *from = *check_text(n->input[k]) ? made(c, n->input[k]) : NULL;
        if (!from || from->stage <= stage)
            continue;
        diag_note("'%s' is made by node %u, in stage %d", n->input[k], from->node, from->stage);
        diag_warn(where_node(c, i, (int)k), "pipeline_stage %d: it reads what a later stage makes",
                  stage);
    }
}

/* ---- rules ---- */

static void leave(Check *c, uint32_t i, const char *why)
{
    const char *text = arena_printf(
        c->a, "%s, %s", diag_escape(c->a, check_text(c->m->graph->node[i]->op_type)), why);
    uint32_t *slot = strmap_at(&c->unchecked, text);
    if (c->verbose)
        diag_warn(where_node(c, i, -1), "not checked: %s", why);
    if (*slot == NONE) {
        *slot = 0;
        vec_push(c->a, &c->unchecked_name, text);
    }
    ++*slot;
}

/* Of a node without a rule: nothing is known of its results, unless none of its operands is divided
   or on devices of its own. */
static const Layout *without_rule(const Onnx__NodeProto *n, const Layout *const *in)
{
    static const Layout plain;
    for (size_t k = 0; k < n->n_input; k++)
        if (*check_text(n->input[k]) && (!in[k] || in[k]->n || in[k]->holder))
            return NULL;
    return &plain;
}

static const Layout *infer(Check *c, uint32_t i, const Layout *const *in, bool broken,
                           bool annotated)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    Loops l;
    const char *why = loops_find(c, n, &l);
    if (why) {
        if (annotated)
            leave(c, i, why);
        return without_rule(n, in);
    }
    const Layout **operand = arena_array(c->a, const Layout *, l.operands + 1);
    bool known = true;
    for (uint32_t k = 0; k < l.operands; k++) {
        operand[k] = in[l.operand[k]];
        known &= operand[k] != NULL;
    }
    if (annotated && known)
        c->by_rule++;
    else if (annotated && !broken)
        leave(c, i, "how an input is divided is not known");
    return compose(c, where_node(c, i, -1), n, &l, operand, annotated);
}

static void check_node(Check *c, uint32_t i)
{
    const Onnx__NodeProto *n = c->m->graph->node[i];
    const Onnx__NodeDeviceConfigurationProto *e = entry_of(c, n);
    Said said = {arena_array(c->a, const Layout *, n->n_input + 1),
                 arena_array(c->a, const Layout *, n->n_output + 1),
                 arena_array(c->a, bool, n->n_input + 1), arena_array(c->a, bool, n->n_output + 1)};
    uint32_t before = c->violations;
    int stage = e && e->has_pipeline_stage ? e->pipeline_stage : -1;
    c->annotated += e != NULL;
    if (e)
        check_specs(c, i, e, &said);
    check_stage(c, i, stage);
    for (size_t k = 0; k < n->n_input; k++)
        if (!said.in_said[k] && *check_text(n->input[k]))
            said.in[k] = made(c, n->input[k])->layout;
    const Layout *out = infer(c, i, said.in, c->violations > before, e && e->n_sharding_spec);
    for (size_t k = 0; k < n->n_output; k++)
        if (*check_text(n->output[k]))
            *made(c, n->output[k]) = (Made){said.out_said[k] ? said.out[k] : out, stage, i};
}

/* ---- all of it ---- */

/* Annotated nodes of bodies and functions. */
static uint32_t inside(size_t n, Onnx__NodeProto *const *node, bool top)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += !top && node[i]->n_device_configurations;
        for (size_t k = 0; k < node[i]->n_attribute; k++) {
            const Onnx__AttributeProto *a = node[i]->attribute[k];
            if (a->g)
                count += inside(a->g->n_node, a->g->node, false);
            for (size_t j = 0; j < a->n_graphs; j++)
                count += inside(a->graphs[j]->n_node, a->graphs[j]->node, false);
        }
    }
    return count;
}

static uint32_t not_reached(const Model *m)
{
    uint32_t n = inside(m->graph->n_node, m->graph->node, true);
    for (size_t i = 0; i < m->proto->n_functions; i++)
        n += inside(m->proto->functions[i]->n_node, m->proto->functions[i]->node, false);
    return n;
}

static void check_configuration(Check *c, const Onnx__DeviceConfigurationProto *k, FILE *f)
{
    c->configuration = k;
    c->annotated = c->specs = c->by_rule = c->uneven = 0;
    c->made.n = c->unchecked_name.n = 0;
    c->made_of = c->unchecked = (StrMap){.arena = c->a};
    for (uint32_t i = 0; i < c->m->graph->n_node; i++)
        check_node(c, i);
    fprintf(f, "configuration '%s', %d devices: %u of %zu nodes annotated, %u sharding specs\n",
            diag_escape(c->a, check_text(k->name)), k->num_devices, c->annotated,
            c->m->graph->n_node, c->specs);
    fprintf(f, "  %u nodes checked by the rule of their operation\n", c->by_rule);
    for (uint32_t i = 0; i < c->unchecked_name.n; i++)
        fprintf(f, "  %u not: %s\n", strmap_get(&c->unchecked, c->unchecked_name.at[i]),
                c->unchecked_name.at[i]);
    if (c->uneven)
        fprintf(f,
                "  %u axes are divided in shards of different sizes, which a backend may refuse\n",
                c->uneven);
}

uint32_t annotate_check(Arena *a, const char *path, const Limits *lim, const Graph *g, bool verbose,
                        FILE *f)
{
    Model *m = model_read(a, path, lim);
    Check c = {.a = m->arena, .m = m, .g = g, .verbose = verbose, .shape_of.arena = m->arena};
    uint32_t any = not_reached(m), other = any;
    for (uint32_t i = 0; i < m->graph->n_node; i++)
        any += m->graph->node[i]->n_device_configurations > 0;
    if (any == 0 && m->proto->n_configuration == 0) {
        fprintf(f, "no annotations\n");
        return 0;
    }
    shapes_read(&c);
    check_model(&c);
    for (uint32_t i = 0; i < m->graph->n_node; i++)
        check_entries(&c, i);
    for (size_t k = 0; k < m->proto->n_configuration; k++)
        check_configuration(&c, m->proto->configuration[k], f);
    if (other)
        fprintf(f, "%u annotated nodes of bodies and functions are not checked\n", other);
    fprintf(f, "%u violation%s\n", c.violations, c.violations == 1 ? "" : "s");
    return c.violations;
}

/*
 * ls.c - `ppsplit ls`: the module tree with parameters, FLOPs and activation bytes.
 *
 * In: a graph.  Out: a line per module in graph order, its figures including those of the modules
 * inside it. A parameter counts for the module of the first node that reads it; FLOPs and bytes are
 * those of one microbatch; of a member's graph, differentiated, also the bytes that it sends to
 * others.  A file without modules has nodes: those that read parameters
 * stand in their place, each with what follows up to the next.
 */
#include <string.h>

#include "print.h"

enum { DEEPEST = 64 }; /* scopes are untrusted: their further components are not shown */

typedef struct {
    const char *path; /* "h.0.attn" */
    uint32_t parent, first_child, last_child, next;
    int depth;
    int64_t nodes, parameters, flops, bytes, sent;
} Module;

typedef struct {
    const Graph *g;
    Arena *a;
    ValueId loss; /* NONE: there is none */
    StrMap by_path;
    uint32_t *of_origin; /* the module of what is shown of a node of the file */
    VEC(Module) module; /* 0: the model itself */
    bool flat;          /* no node is in a module */
    uint32_t last;      /* flat: the newest module */
    StrMap node;        /* flat: names of nodes that are modules */
} Tree;

/* A module inside module `in`, the last of those there. */
static uint32_t add_module(Tree *t, const char *path, uint32_t in)
{
    uint32_t at = t->module.n;
    Module m = {path, in, NONE, NONE, NONE, .depth = in == NONE ? 0 : t->module.at[in].depth + 1};
    vec_push(t->a, &t->module, m);
    if (in == NONE)
        return at;
    Module *up = &t->module.at[in];
    *(up->last_child == NONE ? &up->first_child : &t->module.at[up->last_child].next) = at;
    return up->last_child = at;
}

static uint32_t module_at(Tree *t, const char *scope)
{
    uint32_t at = 0;
    size_t length = 0;
    while (scope[length] && t->module.at[at].depth < DEEPEST) {
        length += strcspn(scope + length, ".");
        const char *path = arena_strndup(t->a, scope, length);
        uint32_t *slot = strmap_at(&t->by_path, path);
        if (*slot == NONE)
            *slot = add_module(t, path, at);
        at = *slot;
        length += scope[length] == '.';
    }
    return at;
}

static bool is_flat(const Graph *g, const bool *live)
{
    for (NodeId n = 0; n < g->node.n; n++)
        if (live[n] && *graph_scope(g, n))
            return false;
    return true;
}

static bool reads_parameter(const Graph *g, const Node *x)
{
    for (uint32_t i = 0; i < x->nin; i++) {
        const Value *v = val(g, x->in[i]);
        if (v->kind == V_PARAM && !g->param.at[v->param].stat)
            return true;
    }
    return false;
}

/* The module of a node of a file that names none. */
static uint32_t module_of_node(Tree *t, const Node *x)
{
    const Graph *g = t->g;
    const char *name = x->origin < g->origin.n ? g->origin.at[x->origin].name : NULL;
    if (!name || !*name || !reads_parameter(g, x))
        return t->last;
    uint32_t *slot = strmap_at(&t->node, name);
    if (*slot == NONE)
        *slot = add_module(t, name, 0);
    return t->last = *slot;
}

/* Figures of each module's own nodes. */
static void count(Tree *t)
{
    const Graph *g = t->g;
    const bool *live = graph_needed(t->g, t->a, t->loss); /* the rest is not shown */
    t->flat = is_flat(g, live);
    bool *counted = arena_array(t->a, bool, g->param.n + 1);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        if (!live[n])
            continue;
        /* may move them */
        uint32_t at = t->flat ? module_of_node(t, x) : module_at(t, graph_scope(g, n));
        Module *m = &t->module.at[at];
        m->nodes++;
        m->flops = cost_sum(m->flops, cost_flops(g, n));
        if (x->origin < g->origin.n)
            t->of_origin[x->origin] = at;
        for (uint32_t i = 0; i < x->nout && !op_is_view(x->op); i++)
            m->bytes = cost_sum(m->bytes, value_bytes(g, x->out[i]));
        for (uint32_t i = 0; i < x->nin; i++) {
            const Value *v = val(g, x->in[i]);
            if (v->kind != V_PARAM || counted[v->param] || g->param.at[v->param].stat)
                continue;
            counted[v->param] = true;
            m->parameters = cost_sum(m->parameters, shape_elements(&v->shape));
        }
    }
}

/* What its nodes and their gradients send. */
static void count_sent(Tree *t, const Graph *g, const Ids *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *x = &g->node.at[list->at[i]];
        Module *m = &t->module.at[x->origin < t->g->origin.n ? t->of_origin[x->origin] : 0];
        if (op_is_collective(x->op))
            m->sent = cost_sum(m->sent, cost_sent(g, x));
    }
}

/* Children were made after their parents: from the last to the first, each adds itself to its
 * parent. */
static void add_up(Tree *t)
{
    for (uint32_t i = t->module.n; i-- > 1;) {
        Module *m = &t->module.at[i], *up = &t->module.at[m->parent];
        up->nodes += m->nodes;
        up->parameters = cost_sum(up->parameters, m->parameters);
        up->flops = cost_sum(up->flops, m->flops);
        up->bytes = cost_sum(up->bytes, m->bytes);
        up->sent = cost_sum(up->sent, m->sent);
    }
}

static void print_module(const Tree *t, const Module *m, FILE *f)
{
    const char *sends = "";
    if (graph_members(t->g) > 1)
        sends = arena_printf(t->a, " %12s", bytes_text(t->a, m->sent));
    fprintf(f, "%11s %11s %12s%s %7lld  %*s%s\n", count_text(t->a, m->parameters),
            count_text(t->a, m->flops), bytes_text(t->a, m->bytes), sends, (long long)m->nodes,
            2 * m->depth, "", diag_escape(t->a, m->depth ? m->path : "(model)"));
}

void print_ls(Graph *g, ValueId loss, const Pipe *joint, FILE *f)
{
    Tree t = {.g = g, .a = arena_within(g->arena), .loss = loss};
    t.by_path.arena = t.node.arena = t.a;
    t.of_origin = arena_array(t.a, uint32_t, g->origin.n + 1);
    add_module(&t, "", NONE);
    count(&t);
    for (uint32_t k = 0; joint && k < joint->stage.n; k++) {
        count_sent(&t, joint->graph, &joint->stage.at[k].forward);
        count_sent(&t, joint->graph, &joint->stage.at[k].backward);
    }
    add_up(&t);
    fprintf(f, "%11s %11s %12s%s %7s  %s\n", "parameters", "FLOPs", "activations",
            graph_members(g) > 1 ? " members send" : "", "nodes",
            t.flat && t.module.n > 1 ? "node, with those up to the next" : "module");
    for (uint32_t i = 0; i != NONE;) { /* depth first, without recursion */
        const Module *m = &t.module.at[i];
        print_module(&t, m, f);
        if (m->first_child != NONE) {
            i = m->first_child;
            continue;
        }
        while (i != NONE && t.module.at[i].next == NONE)
            i = t.module.at[i].parent;
        if (i != NONE)
            i = t.module.at[i].next;
    }
    for (uint32_t i = 0; i < g->input.n; i++)
        fprintf(f, "input %s\n", value_text(g, t.a, g->input.at[i]));
    for (uint32_t i = 0; i < g->files.bound.n; i++)
        fprintf(f, "input %s\n", g->files.bound.at[i]);
    for (uint32_t i = 0; i < g->output.n; i++)
        fprintf(f, "output %s\n", output_text(g, t.a, i));
    arena_free(t.a);
}

/* ---- --parameters ---- */

void print_parameters(const Graph *g, FILE *f)
{
    Arena *a = arena_within(g->arena);
    int name = 4, shape = 5;
    for (uint32_t i = 0; i < g->files.array.n; i++) {
        const ArrayNote *n = &g->files.array.at[i];
        int wide = (int)strlen(diag_escape(a, n->name)),
            tall = (int)strlen(shape_print(a, n->dtype, &n->shape));
        name = wide > name && wide <= 48 ? wide : name;
        shape = tall > shape ? tall : shape;
    }
    fprintf(f, "%-*s %-*s %-6s %s\n", name, "name", shape, "shape", "trains", "why");
    for (uint32_t i = 0; i < g->files.array.n; i++) {
        const ArrayNote *n = &g->files.array.at[i];
        const char *as = n->as ? arena_printf(a, ": %s", diag_escape(a, n->as)) : "";
        fprintf(f, "%-*s %-*s %-6s %s%s\n", name, diag_escape(a, n->name), shape,
                shape_print(a, n->dtype, &n->shape), n->trains ? "yes" : "no", n->why, as);
    }
    arena_free(a);
}

/*
 * xml.c - pipe.xml, of the schema pipe.xsd.
 *
 * In: a Pipe.  Out: one element per stage with what enters, leaves and is owned; per edge its
 * bytes; the replicated sets; the calls of pipe.txt.  Shapes are dimensions between commas ("" for
 * a scalar); batch_dim is the dimension that holds the rows, -1 when there is none, -2 when the
 * rows are mixed into several.
 */
#include <string.h>

#include "print.h"

typedef struct {
    const Pipe *p;
    const Graph *g;
    Arena *a;
    FILE *f;
    int depth;
    bool open; /* the last tag may get more attributes */
} Xml;

static void begin(Xml *x, const char *name)
{
    fprintf(x->f, "%s%*s<%s", x->open ? ">\n" : "", 2 * x->depth++, "", name);
    x->open = true;
}

static void end(Xml *x, const char *name)
{
    x->depth--;
    if (x->open)
        fputs("/>\n", x->f);
    else
        fprintf(x->f, "%*s</%s>\n", 2 * x->depth, "", name);
    x->open = false;
}

/* What stands for these characters in a value; NULL: they do themselves. */
static const char *entity(const char *p)
{
    switch (*p) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    default: return NULL;
    }
}

/* Names are shown printable; what XML 1.0 forbids besides (noncharacters) is replaced. */
static void attr(Xml *x, const char *name, const char *value)
{
    fprintf(x->f, " %s=\"", name);
    for (const char *p = diag_escape(x->a, value); *p; p++) {
        bool character = strncmp(p, "\xef\xbf\xbe", 3) && strncmp(p, "\xef\xbf\xbf", 3);
        const char *e = character ? entity(p) : "???";
        if (e)
            fputs(e, x->f);
        else
            putc(*p, x->f);
        p += character ? 0 : 2;
    }
    putc('"', x->f);
}

static void attr_int(Xml *x, const char *name, int64_t value)
{
    attr(x, name, arena_printf(x->a, "%lld", (long long)value));
}

static const char *dims(Arena *a, const Shape *s)
{
    char *t = arena_alloc(a, (size_t)s->rank * 22 + 1), *at = t;
    for (int i = 0; i < s->rank; i++)
        at += snprintf(at, 22, "%s%lld", i ? "," : "", (long long)s->d[i]);
    return t;
}

static void put_value(Xml *x, const char *key, ValueId v)
{
    const Value *is = val(x->g, v);
    attr(x, key, param_or_value_name(x->g, v));
    attr(x, "dtype", dtype_name(is->dtype));
    attr(x, "shape", dims(x->a, &is->shape));
}

static void put_meetings(Xml *x, uint32_t stage)
{
    const Meetings meet = meetings_of(x->p, x->a);
    for (uint32_t i = 0; i < meet.n; i++) {
        const Node *n = meet.at[i].node;
        if (meet.at[i].stage != stage)
            continue;
        begin(x, "collective");
        attr(x, "pass", meet.at[i].pass);
        attr(x, "op", op_name(n->op));
        put_value(x, "value", n->out[0]);
        attr(x, "placement", node_placement(x->a, n));
        attr_int(x, "sent", cost_sent(x->g, n));
        end(x, "collective");
    }
}

static void put_stage(Xml *x, const Stage *s)
{
    begin(x, "stage");
    attr_int(x, "index", s->index);
    if (s->label)
        attr(x, "modules", s->label);
    attr_int(x, "nodes", pipe_programs(x->p, s->index)->forward.n);
    attr_int(x, "parameters", s->cost.parameters);
    attr_int(x, "bytes_param", s->cost.bytes_param);
    attr_int(x, "bytes_stash", s->cost.bytes_stash);
    attr_int(x, "flops", s->cost.flops_forward);
    for (uint32_t i = 0; i < s->input.n; i++) {
        if (s->input.at[i].value == x->p->loss_scale)
            continue;
        begin(x, "input");
        put_value(x, "name", s->input.at[i].value);
        attr_int(x, "batch_dim", val(x->g, s->input.at[i].value)->batch);
        end(x, "input");
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        begin(x, "output");
        put_value(x, "name", s->output.at[i].value);
        attr_int(x, "batch_dim", val(x->g, s->output.at[i].value)->batch);
        end(x, "output");
    }
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        begin(x, "parameter");
        put_value(x, "name", x->g->param.at[u->param].value);
        attr(x, "use", use_name(u->use));
        attr_int(x, "from", u->from);
        end(x, "parameter");
    }
    put_meetings(x, s->index);
    end(x, "stage");
}

static void put_edges(Xml *x)
{
    for (uint32_t i = 0; i < x->p->edge.n; i++) {
        const Edge *e = &x->p->edge.at[i];
        begin(x, "edge");
        attr_int(x, "from", e->from);
        attr_int(x, "to", e->to);
        put_value(x, "value", e->value);
        attr_int(x, "bytes", e->bytes);
        attr(x, "kind", edge_kind(e->kind));
        attr(x, "gradient", e->gradient ? "yes" : "no");
        end(x, "edge");
    }
}

static void put_replicated(Xml *x)
{
    begin(x, "replicated");
    for (uint32_t k = 0; k < x->g->param.n; k++) {
        const Ids stage = replicas_of(x->p, x->a, k);
        if (stage.n == 0)
            continue;
        begin(x, "set");
        for (uint32_t i = 0; i < stage.n; i++) {
            begin(x, "copy");
            attr_int(x, "stage", stage.at[i]);
            attr(x, "name", x->g->param.at[k].name);
            end(x, "copy");
        }
        end(x, "set");
    }
    end(x, "replicated");
}

static void put_call(Xml *x, const Call *c)
{
    static const char *const kind[] = {"placeholder",    "call_stage", "getitem", "loss",
                                       "stage_backward", "add",        "output"};
    begin(x, kind[c->kind]);
    attr(x, "name", c->name);
    if (c->kind == CALL_STAGE || c->kind == CALL_BACKWARD)
        attr_int(x, "stage", c->stage);
    if (c->kind == CALL_GETITEM) {
        attr(x, "of", c->of);
        attr_int(x, "index", c->index);
    }
    if (c->kind == CALL_BACKWARD) {
        attr(x, "stage_output", c->of);
        attr(x, "output_grads", join_names(x->a, &c->grads, "", " "));
        attr(x, "input_values", join_names(x->a, &c->args, "", " "));
    } else if (c->kind != CALL_GETITEM && c->kind != CALL_PLACEHOLDER) {
        attr(x, "args", join_names(x->a, &c->args, "", " "));
    }
    end(x, kind[c->kind]);
}

static void put_calls(Xml *x)
{
    Calls c = calls_of(x->p, x->a);
    begin(x, "forward");
    for (uint32_t i = 0; i < c.forward.n; i++)
        put_call(x, &c.forward.at[i]);
    put_call(x, &c.output);
    end(x, "forward");
    begin(x, "backward");
    for (uint32_t i = 0; i < c.backward.n; i++)
        put_call(x, &c.backward.at[i]);
    end(x, "backward");
}

void print_pipe_xml(const Pipe *p, FILE *f)
{
    Xml x = {.p = p, .g = p->graph, .a = arena_within(p->graph->arena), .f = f};
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", f);
    begin(&x, "pipe");
    attr(&x, "model", p->model_name);
    attr_int(&x, "stages", p->stage.n);
    attr(&x, "loss", p->loss != NONE && p->loss_text ? p->loss_text : "none");
    if (p->whole)
        attr_int(&x, "minibatch_rows", p->whole->graph->batch);
    for (uint32_t t = 0; t < p->stage.n; t++)
        put_stage(&x, &p->stage.at[t]);
    put_edges(&x);
    put_replicated(&x);
    put_calls(&x);
    end(&x, "pipe");
    arena_free(x.a);
}

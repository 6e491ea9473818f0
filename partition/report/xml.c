/*
 * xml.c - pipe.xml and its schema pipe.xsd.
 *
 * In: a Pipe.  Out: one element per stage with what enters, leaves and is owned; per edge its
 * bytes; the replicated sets; the calls of pipe.txt.  Shapes are dimensions between commas ("" for
 * a scalar); batch_dim is the dimension that holds the rows, -1 when there is none, -2 when the
 * rows are mixed into several.
 */
#include <string.h>

#include "report.h"

/* An element: its attributes as they will stand in the file, and the elements in it. */
typedef struct Element Element;
struct Element {
    const char *name;
    VEC(const char *) attribute;
    VEC(Element *) child;
};

typedef struct {
    const Pipe *p;
    const Graph *g;
    Arena *a;
} Xml;

static Element *element(Xml *x, const char *name)
{
    Element *e = arena_new_of(x->a, Element);
    e->name = name;
    return e;
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
static void attr(Xml *x, Element *n, const char *name, const char *value)
{
    const char *from = diag_escape(x->a, value);
    char *to = arena_alloc(x->a, strlen(name) + 6 * strlen(from) + 5), *at = to;
    at += sprintf(at, " %s=\"", name);
    for (const char *p = from; *p; p++) {
        bool character = strncmp(p, "\xef\xbf\xbe", 3) && strncmp(p, "\xef\xbf\xbf", 3);
        const char *e = character ? entity(p) : "???";
        if (e)
            at = stpcpy(at, e);
        else
            *at++ = *p;
        p += character ? 0 : 2;
    }
    strcpy(at, "\"");
    vec_push(x->a, &n->attribute, to);
}

static void attr_int(Xml *x, Element *n, const char *name, int64_t value)
{
    attr(x, n, name, arena_printf(x->a, "%lld", (long long)value));
}

static Element *child(Xml *x, Element *parent, const char *name)
{
    Element *n = element(x, name);
    vec_push(x->a, &parent->child, n);
    return n;
}

static const char *dims(Arena *a, const Shape *s)
{
    char *t = arena_alloc(a, (size_t)s->rank * 22 + 1), *at = t;
    for (int i = 0; i < s->rank; i++)
        at += snprintf(at, 22, "%s%lld", i ? "," : "", (long long)s->d[i]);
    return t;
}

static void put_value(Xml *x, Element *n, const char *key, ValueId v)
{
    const Value *is = val(x->g, v);
    attr(x, n, key, param_or_value_name(x->g, v));
    attr(x, n, "dtype", dtype_name(is->dtype));
    attr(x, n, "shape", dims(x->a, &is->shape));
}

static void put_stage(Xml *x, Element *pipe, const Stage *s)
{
    Element *stage = child(x, pipe, "stage");
    attr_int(x, stage, "index", s->index);
    if (s->label)
        attr(x, stage, "modules", s->label);
    attr_int(x, stage, "nodes", pipe_programs(x->p, s->index)->forward.n);
    attr_int(x, stage, "parameters", s->cost.parameters);
    attr_int(x, stage, "bytes_param", s->cost.bytes_param);
    attr_int(x, stage, "bytes_stash", s->cost.bytes_stash);
    attr_int(x, stage, "flops", s->cost.flops_forward);
    for (uint32_t i = 0; i < s->input.n; i++) {
        if (s->input.at[i].value == x->p->loss_scale)
            continue;
        Element *n = child(x, stage, "input");
        put_value(x, n, "name", s->input.at[i].value);
        attr_int(x, n, "batch_dim", val(x->g, s->input.at[i].value)->batch);
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        Element *n = child(x, stage, "output");
        put_value(x, n, "name", s->output.at[i].value);
        attr_int(x, n, "batch_dim", val(x->g, s->output.at[i].value)->batch);
    }
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        Element *n = child(x, stage, "parameter");
        put_value(x, n, "name", x->g->param.at[u->param].value);
        attr(x, n, "use", use_name(u->use));
        attr_int(x, n, "from", u->from);
    }
}

static void put_edges(Xml *x, Element *pipe)
{
    for (uint32_t i = 0; i < x->p->edge.n; i++) {
        const Edge *e = &x->p->edge.at[i];
        Element *n = child(x, pipe, "edge");
        attr_int(x, n, "from", e->from);
        attr_int(x, n, "to", e->to);
        put_value(x, n, "value", e->value);
        attr_int(x, n, "bytes", e->bytes);
        attr(x, n, "kind", edge_kind(e->kind));
        attr(x, n, "gradient", e->gradient ? "yes" : "no");
    }
}

static void put_replicated(Xml *x, Element *pipe)
{
    Element *all = child(x, pipe, "replicated");
    for (uint32_t k = 0; k < x->g->param.n; k++) {
        Element *set = NULL;
        for (uint32_t t = 0; t < x->p->stage.n; t++) {
            const Stage *s = &x->p->stage.at[t];
            for (uint32_t i = 0; i < s->param.n; i++) {
                if (s->param.at[i].param != k || s->param.at[i].use != USE_REPLICATE)
                    continue;
                if (!set)
                    set = child(x, all, "set");
                Element *n = child(x, set, "copy");
                attr_int(x, n, "stage", t);
                attr(x, n, "name", x->g->param.at[k].name);
            }
        }
    }
}

static void put_modules(Xml *x, Element *pipe)
{
    ModuleGraph m = module_graph(x->p, x->a);
    Element *all = child(x, pipe, "modules");
    for (uint32_t i = 0; i < m.box.n; i++) {
        const ModuleBox *b = &m.box.at[i];
        Element *n = child(x, all, "module");
        attr_int(x, n, "index", i);
        attr_int(x, n, "stage", b->stage);
        attr(x, n, "kind", box_kind(b->kind));
        attr(x, n, "name", b->name);
        attr_int(x, n, "nodes", b->nodes);
        attr_int(x, n, "parameters", b->parameters);
        attr_int(x, n, "flops", b->flops);
    }
    for (uint32_t i = 0; i < m.flow.n; i++) {
        const ModuleFlow *e = &m.flow.at[i];
        Element *n = child(x, all, "flow");
        attr_int(x, n, "from", e->from);
        attr_int(x, n, "to", e->to);
        attr(x, n, "kind", edge_kind(e->kind));
        attr_int(x, n, "values", e->values);
        attr_int(x, n, "bytes", e->bytes);
        if (e->name)
            attr(x, n, "value", e->name);
    }
}

static void put_call(Xml *x, Element *parent, const Call *c)
{
    static const char *const kind[] = {"placeholder",    "call_stage", "getitem", "loss",
                                       "stage_backward", "add",        "output"};
    Element *n = child(x, parent, kind[c->kind]);
    attr(x, n, "name", c->name);
    if (c->kind == CALL_STAGE || c->kind == CALL_BACKWARD)
        attr_int(x, n, "stage", c->stage);
    if (c->kind == CALL_GETITEM) {
        attr(x, n, "of", c->of);
        attr_int(x, n, "index", c->index);
    }
    if (c->kind == CALL_BACKWARD) {
        attr(x, n, "stage_output", c->of);
        attr(x, n, "output_grads", join_names(x->a, &c->grads, "", " "));
        attr(x, n, "input_values", join_names(x->a, &c->args, "", " "));
    } else if (c->kind != CALL_GETITEM && c->kind != CALL_PLACEHOLDER) {
        attr(x, n, "args", join_names(x->a, &c->args, "", " "));
    }
}

static void put_calls(Xml *x, Element *pipe)
{
    Calls c = calls_of(x->p, x->a);
    Element *forward = child(x, pipe, "forward"), *backward = child(x, pipe, "backward");
    for (uint32_t i = 0; i < c.forward.n; i++)
        put_call(x, forward, &c.forward.at[i]);
    put_call(x, forward, &c.output);
    for (uint32_t i = 0; i < c.backward.n; i++)
        put_call(x, backward, &c.backward.at[i]);
}

static void put_element(const Element *e, int depth, FILE *f)
{
    fprintf(f, "%*s<%s", 2 * depth, "", e->name);
    for (uint32_t i = 0; i < e->attribute.n; i++)
        fputs(e->attribute.at[i], f);
    fputs(e->child.n ? ">\n" : "/>\n", f);
    for (uint32_t i = 0; i < e->child.n; i++)
        put_element(e->child.at[i], depth + 1, f);
    if (e->child.n)
        fprintf(f, "%*s</%s>\n", 2 * depth, "", e->name);
}

void report_pipe_xml(const Pipe *p, FILE *f)
{
    Xml x = {p, p->graph, arena_within(p->graph->arena)};
    Element *pipe = element(&x, "pipe");
    attr(&x, pipe, "model", p->model_name);
    attr_int(&x, pipe, "stages", p->stage.n);
    attr(&x, pipe, "loss", p->loss != NONE && p->loss_text ? p->loss_text : "none");
    if (p->whole)
        attr_int(&x, pipe, "minibatch_rows", p->whole->graph->batch);
    for (uint32_t t = 0; t < p->stage.n; t++)
        put_stage(&x, pipe, &p->stage.at[t]);
    put_edges(&x, pipe);
    put_replicated(&x, pipe);
    put_modules(&x, pipe);
    put_calls(&x, pipe);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", f);
    put_element(pipe, 0, f);
    arena_free(x.a);
}

/* ---- the schema ---- */

static const char *const schema[] = {
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
    "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\">",
    "  <xs:annotation><xs:documentation>",
    "    pipe.xml, the partition report of ppsplit. Bytes and flops are those of one microbatch at "
    "full rows, flops",
    "    those of the forward; a parameter edge is sent once a step. shape: dimensions between "
    "commas, empty for a",
    "    scalar. batch_dim: the dimension that holds the rows; -1: none; -2: the rows are mixed "
    "into several.",
    "    A value that several modules of another stage read counts in the flow to the first of "
    "them.",
    "    from of a parameter: the stage that owns it, or the first that holds a copy. Names in "
    "forward and backward",
    "    refer to calls before them; lists are separated by spaces; None: no gradient.",
    "  </xs:documentation></xs:annotation>",
    "  <xs:simpleType name=\"shape\"><xs:restriction base=\"xs:string\"><xs:pattern "
    "value=\"([0-9]+(,[0-9]+)*)?\"/></xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"dtype\"><xs:restriction base=\"xs:string\"><xs:pattern "
    "value=\"[a-z0-9]+\"/></xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"count\"><xs:restriction base=\"xs:long\"><xs:minInclusive "
    "value=\"0\"/></xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"batch\"><xs:restriction base=\"xs:int\"><xs:minInclusive "
    "value=\"-2\"/></xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"use\"><xs:restriction base=\"xs:string\">",
    "    <xs:enumeration value=\"own\"/><xs:enumeration value=\"transmit\"/><xs:enumeration "
    "value=\"replicate\"/>",
    "  </xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"kind\"><xs:restriction base=\"xs:string\">",
    "    <xs:enumeration value=\"activation\"/><xs:enumeration "
    "value=\"parameter\"/><xs:enumeration "
    "value=\"constant\"/>",
    "  </xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"yesno\"><xs:restriction base=\"xs:string\">",
    "    <xs:enumeration value=\"yes\"/><xs:enumeration value=\"no\"/>",
    "  </xs:restriction></xs:simpleType>",
    "  <xs:simpleType name=\"names\"><xs:list itemType=\"xs:NCName\"/></xs:simpleType>",
    "  <xs:complexType name=\"value\">",
    "    <xs:attribute name=\"name\" type=\"xs:string\" use=\"required\"/>",
    "    <xs:attribute name=\"dtype\" type=\"dtype\" use=\"required\"/>",
    "    <xs:attribute name=\"shape\" type=\"shape\" use=\"required\"/>",
    "    <xs:attribute name=\"batch_dim\" type=\"batch\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"parameter\">",
    "    <xs:attribute name=\"name\" type=\"xs:string\" use=\"required\"/>",
    "    <xs:attribute name=\"dtype\" type=\"dtype\" use=\"required\"/>",
    "    <xs:attribute name=\"shape\" type=\"shape\" use=\"required\"/>",
    "    <xs:attribute name=\"use\" type=\"use\" use=\"required\"/>",
    "    <xs:attribute name=\"from\" type=\"count\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"stage\">",
    "    <xs:sequence>",
    "      <xs:element name=\"input\" type=\"value\" minOccurs=\"0\" maxOccurs=\"unbounded\"/>",
    "      <xs:element name=\"output\" type=\"value\" minOccurs=\"0\" maxOccurs=\"unbounded\"/>",
    "      <xs:element name=\"parameter\" type=\"parameter\" minOccurs=\"0\" "
    "maxOccurs=\"unbounded\"/>",
    "    </xs:sequence>",
    "    <xs:attribute name=\"index\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"nodes\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"parameters\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"bytes_param\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"modules\" type=\"xs:string\"/>",
    "    <xs:attribute name=\"bytes_stash\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"flops\" type=\"count\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"edge\">",
    "    <xs:attribute name=\"from\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"to\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"value\" type=\"xs:string\" use=\"required\"/>",
    "    <xs:attribute name=\"dtype\" type=\"dtype\" use=\"required\"/>",
    "    <xs:attribute name=\"shape\" type=\"shape\" use=\"required\"/>",
    "    <xs:attribute name=\"bytes\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"kind\" type=\"kind\" use=\"required\"/>",
    "    <xs:attribute name=\"gradient\" type=\"yesno\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:simpleType name=\"box\"><xs:restriction base=\"xs:string\">",
    "    <xs:enumeration value=\"module\"/><xs:enumeration value=\"operations\"/>",
    "    <xs:enumeration value=\"input\"/><xs:enumeration value=\"output\"/>",
    "  </xs:restriction></xs:simpleType>",
    "  <xs:complexType name=\"module\">",
    "    <xs:attribute name=\"index\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"stage\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"kind\" type=\"box\" use=\"required\"/>",
    "    <xs:attribute name=\"name\" type=\"xs:string\" use=\"required\"/>",
    "    <xs:attribute name=\"nodes\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"parameters\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"flops\" type=\"count\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"flow\">",
    "    <xs:attribute name=\"from\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"to\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"kind\" type=\"kind\" use=\"required\"/>",
    "    <xs:attribute name=\"values\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"bytes\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"value\" type=\"xs:string\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"set\">",
    "    <xs:sequence>",
    "      <xs:element name=\"copy\" maxOccurs=\"unbounded\"><xs:complexType>",
    "        <xs:attribute name=\"stage\" type=\"count\" use=\"required\"/>",
    "        <xs:attribute name=\"name\" type=\"xs:string\" use=\"required\"/>",
    "      </xs:complexType></xs:element>",
    "    </xs:sequence>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"named\">",
    "    <xs:attribute name=\"name\" type=\"xs:NCName\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"call\">",
    "    <xs:attribute name=\"name\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"args\" type=\"names\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"call_stage\">",
    "    <xs:attribute name=\"name\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"stage\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"args\" type=\"names\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"getitem\">",
    "    <xs:attribute name=\"name\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"of\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"index\" type=\"count\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:complexType name=\"stage_backward\">",
    "    <xs:attribute name=\"name\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"stage\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"stage_output\" type=\"xs:NCName\" use=\"required\"/>",
    "    <xs:attribute name=\"output_grads\" type=\"names\" use=\"required\"/>",
    "    <xs:attribute name=\"input_values\" type=\"names\" use=\"required\"/>",
    "  </xs:complexType>",
    "  <xs:element name=\"pipe\"><xs:complexType>",
    "    <xs:sequence>",
    "      <xs:element name=\"stage\" type=\"stage\" maxOccurs=\"unbounded\"/>",
    "      <xs:element name=\"edge\" type=\"edge\" minOccurs=\"0\" maxOccurs=\"unbounded\"/>",
    "      <xs:element name=\"replicated\"><xs:complexType><xs:sequence>",
    "        <xs:element name=\"set\" type=\"set\" minOccurs=\"0\" maxOccurs=\"unbounded\"/>",
    "      </xs:sequence></xs:complexType></xs:element>",
    "      <!-- modules as far as a page has room: each box lies in one stage, and no flow leads "
    "back -->",
    "      <xs:element name=\"modules\"><xs:complexType><xs:sequence>",
    "        <xs:element name=\"module\" type=\"module\" minOccurs=\"0\" "
    "maxOccurs=\"unbounded\"/>",
    "        <xs:element name=\"flow\" type=\"flow\" minOccurs=\"0\" "
    "maxOccurs=\"unbounded\"/>",
    "      </xs:sequence></xs:complexType></xs:element>",
    "      <xs:element name=\"forward\"><xs:complexType><xs:choice minOccurs=\"0\" "
    "maxOccurs=\"unbounded\">",
    "        <xs:element name=\"placeholder\" type=\"named\"/>",
    "        <xs:element name=\"call_stage\" type=\"call_stage\"/>",
    "        <xs:element name=\"getitem\" type=\"getitem\"/>",
    "        <xs:element name=\"loss\" type=\"call\"/>",
    "        <xs:element name=\"output\" type=\"call\"/>",
    "      </xs:choice></xs:complexType></xs:element>",
    "      <xs:element name=\"backward\"><xs:complexType><xs:choice minOccurs=\"0\" "
    "maxOccurs=\"unbounded\">",
    "        <xs:element name=\"stage_backward\" type=\"stage_backward\"/>",
    "        <xs:element name=\"getitem\" type=\"getitem\"/>",
    "        <xs:element name=\"add\" type=\"call\"/>",
    "      </xs:choice></xs:complexType></xs:element>",
    "    </xs:sequence>",
    "    <xs:attribute name=\"model\" type=\"xs:string\" use=\"required\"/>",
    "    <xs:attribute name=\"stages\" type=\"count\" use=\"required\"/>",
    "    <xs:attribute name=\"loss\" type=\"xs:string\" use=\"required\"/>",
    "    <!-- the last stage is the loss over all rows of a minibatch, of so many -->",
    "    <xs:attribute name=\"minibatch_rows\" type=\"xs:positiveInteger\"/>",
    "  </xs:complexType></xs:element>",
    "</xs:schema>",
};

void report_pipe_xsd(FILE *f)
{
    for (size_t i = 0; i < sizeof schema / sizeof *schema; i++)
        fprintf(f, "%s\n", schema[i]);
}

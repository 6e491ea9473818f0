/*
 * names.c - what buffers are called in a stage's functions: after the modules of the model.  In:
 * the buffers of all functions of a stage.  Out: an identifier for each, the same in all functions;
 * for each field of a repeated sequence one that leaves out the numbers in which its turns differ.
 *
 * A parameter is "ln_1_weight", what a module computes "c_attn", another of its values
 * "c_attn_mat_mul", and a gradient has d_ before the name of what it is the gradient of.  Where
 * several would have one name, it is that of the module's result, and the others say more: the
 * operation; their layer, "h_2_c_attn"; the module around theirs; the whole path; in the end a
 * number.
 */
#include <ctype.h>
#include <string.h>

#include "names.h"

/* How much of the path a name says; each first without the operation, then with it. */
enum { AT_MODULE, AT_LAYER, AT_PARENT, AT_PATH, PLACES, LONGEST_PART = 40 };

typedef VEC(Named) NamedList;

typedef struct StageNames {
    StrMap value;                   /* name -> the first value of the graph that has it */
    bool *result;                   /* by value: read outside of the module that makes it */
    StrMap of;                      /* class and number -> position in name */
    StrMap taken;                   /* all names of the stage's functions */
    const char **name;
} StageNames;

/* ---- identifiers ----------------------------------------------------------------------------- */

/* Is the name, n characters, a word of the list? */
static bool is_among(const char *words, const char *name, size_t n)
{
    for (const char *at = words; (at = strchr(at, ' ')) && at[1]; at++)
        if (strncmp(at + 1, name, n) == 0 && at[n + 1] == ' ')
            return true;
    return false;
}

/* Words of C and C++ in lower case, and what generated functions call their own variables and
 * types; of some with any number behind: "key1". */
static bool is_reserved(const char *name)
{
    static const char words[] =
        " a alignas alignof and and_eq asm auto batch bitand bitor bool break c call case catch "
        "char class compl concept const const_cast consteval constexpr constinit continue conv "
        "count counted "
        "decltype default delete dim do double dynamic_cast else enum errno explicit export extern "
        "false float for friend from g goto i if in inline int key length linux long mask mutable n "
        "namespace new noexcept not not_eq nullptr number one operator or or_eq order out pool "
        "private protected public register reinterpret_cast requires restrict return rows short "
        "signed sizeof state "
        "static static_assert static_cast stderr stdin stdout step steps stream "
        "stride_a stride_b stride_c struct switch template this thread_local throw to true try "
        "typedef typeid typename typeof union unix "
        "unsigned using virtual void volatile wchar_t while xor xor_eq ";
    static const char numbered[] = " a c char dim double float g i int key length long n short ";
    size_t n = strlen(name);
    if (strncmp(name, "pp_", 3) == 0 || strncmp(name, "stage", 5) == 0 ||
        is_among(words, name, n))
        return true;
    while (n > 0 && isdigit((unsigned char)name[n - 1]))
        n--;
    return is_among(numbered, name, n);
}

/* In lower case, words apart by one _: "h.2" is "h_2", "onnx::MatMul_12" is "onnx_matmul_12". */
static void add_part(Text *t, const char *part, size_t n)
{
    bool gap = t->n > 0;
    for (size_t i = 0; i < n && i < LONGEST_PART; i++) {
        if (!isalnum((unsigned char)part[i]) || (unsigned char)part[i] >= 128) {
            gap = t->n > 0;
            continue;
        }
        if (t->n == 0 && isdigit((unsigned char)part[i]))
            text_add(t, "m");
        text_add(t, gap ? "_%c" : "%c", tolower((unsigned char)part[i]));
        gap = false;
    }
}

/* Where the component before `end` begins; a number belongs to what stands before it: "h.2". */
static size_t component(const char *path, size_t end)
{
    size_t at = end;
    for (bool number = true; number && at > 0;) {
        size_t stop = at;
        while (at > 0 && path[at - 1] != '.')
            at--;
        number = stop > at && strspn(path + at, "0123456789#") >= stop - at && at > 0;
        at -= number;
    }
    return at;
}

static bool has_number(const char *part, size_t n)
{
    return strcspn(part, "0123456789") < n;
}

/* The layer that a module is in: the innermost of those around it that is numbered. */
static void add_layer(Text *t, const char *path, size_t end)
{
    size_t from = end;
    for (size_t to = end; to > 0; to = from ? from - 1 : 0) {
        from = component(path, to);
        if (has_number(path + from, to - from)) {
            add_part(t, path + from, to - from);
            return;
        }
    }
}

/* The module, and of those around it what the place asks for. */
static void add_module(Text *t, const char *path, int place)
{
    size_t n = strlen(path), last = component(path, n), end = last ? last - 1 : 0;
    if (place == AT_PATH)
        last = 0;
    else if (place >= AT_LAYER)
        add_layer(t, path, end);
    size_t parent = component(path, end);
    if (place >= AT_PARENT && last > 0 && !has_number(path + parent, end - parent))
        add_part(t, path + parent, end - parent);
    add_part(t, path + last, n - last);
}

static const char *name_at(Arena *a, const Named *x, int place, bool operation)
{
    Text t = {.a = a};
    add_module(&t, x->path, place);
    add_part(&t, x->own, strlen(x->own));
    if (operation || t.n == 0)
        add_part(&t, x->op, strlen(x->op));
    const char *name = t.n == 0 ? "value" : text_all(&t);
    name = x->gradient ? arena_printf(a, "d_%s", name) : name;
    return is_reserved(name) ? arena_printf(a, "%s_", name) : name;
}

const char *names_short(Arena *a, const Named *x) { return name_at(a, x, AT_MODULE, !x->result); }

/* ---- a name for each ------------------------------------------------------------------------- */

/* How many of those without a name would have this one, all and results of modules. */
typedef struct { StrMap all, results; } Claims;

static void claim(StrMap *m, const char *name)
{
    uint32_t *n = strmap_at(m, name);
    *n = *n == NONE ? 1 : *n + 1;
}

/* Gives each of the list its name; none is in `taken`, where all stand in the end.  Where several
 * would have one, it is that of a module's result. */
static const char **choose(Arena *a, const NamedList *list, StrMap *taken)
{
    const char **name = arena_array(a, const char *, list->n + 1);
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].fixed)
            *strmap_at(taken, name[i] = list->at[i].fixed) = 0;
    for (int level = 0; level < 2 * PLACES; level++) {
        Claims claims = {{.arena = a}, {.arena = a}};
        const char **own = arena_array(a, const char *, list->n + 1);
        for (uint32_t i = 0; i < list->n; i++)
            if (!name[i]) {
                claim(&claims.all, own[i] = name_at(a, &list->at[i], level / 2, level % 2));
                if (list->at[i].result)
                    claim(&claims.results, own[i]);
            }
        for (uint32_t i = 0; i < list->n; i++)
            if (own[i] && strmap_get(taken, own[i]) == NONE &&
                strmap_get(list->at[i].result ? &claims.results : &claims.all, own[i]) == 1)
                *strmap_at(taken, name[i] = own[i]) = 0;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const char *own = name[i] ? NULL : name_at(a, &list->at[i], AT_PARENT, true);
        for (int k = 1; !name[i]; k++) {
            const char *numbered = arena_printf(a, "%s_%d", own, k);
            if (strmap_get(taken, numbered) == NONE)
                *strmap_at(taken, name[i] = numbered) = 0;
        }
    }
    return name;
}

/* ---- what a buffer is ------------------------------------------------------------------------ */

/* "layernorm" of an operation of the model, or of ours; an attention has the place of several */
static const char *op_text(Arena *a, const Graph *g, const Node *n, bool ours)
{
    if (n->op == OP_FlashAttention || n->op == OP_FlashAttentionGrad)
        return "attention";
    const char *type = n->origin < g->origin.n ? g->origin.at[n->origin].type : NULL;
    return title_plain(a, ours || !type || !*type ? op_name(n->op) : type);
}

/* What an attention makes beside its results; NULL: v is something else. */
static const char *attention_part(const Node *n, ValueId v)
{
    const bool forward = n && n->op == OP_FlashAttention;
    if (!forward && !(n && n->op == OP_FlashAttentionGrad))
        return NULL;
    for (uint32_t i = 0; i < (forward ? 1 : 3); i++)
        if (v == n->out[i])
            return NULL;
    return forward && v == n->out[1] ? "attention_stats" : "attention_room";
}

/* "add_2" of "/Add_2_output_0" */
static const char *value_name(Arena *a, const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name,
               *output = slash ? strstr(last, "_output_") : NULL;
    return output ? arena_strndup(a, last, (size_t)(output - last)) : last;
}

static const StageNames *names_of(StageGen *sg);

static void of_value(const Func *f, ValueId v, Named *x)
{
    const Graph *g = f->g;
    const StageNames *names = names_of(f->sg);
    const Value *of = val(g, v);
    const char *forward = title_gradient_of(f->a, of);
    if (forward) {
        ValueId w = strmap_get(&names->value, forward);
        x->gradient = true;
        if (w != NONE) {
            of_value(f, w, x);
            return;
        }
    }
    const Node *n = of->kind == V_NODE ? &g->node.at[of->node] : NULL;
    const Origin *origin = n && n->origin < g->origin.n ? &g->origin.at[n->origin] : NULL;
    const char *known = role_known(f->sg, v);
    bool named = *of->name && *of->name != '%';
    x->path = origin && origin->scope ? origin->scope : "";
    x->own = "";
    x->result = names->result[v];
    x->op = n ? op_text(f->a, g, n, !named) : "";
    if (!named && !*x->path && origin)
        x->path = value_name(f->a, origin->name);
    if (known)
        x->own = arena_strndup(f->a, known, strlen(known) - 1);
    else if (attention_part(n, v))
        x->own = attention_part(n, v), x->op = "";
    else if (n && !named)
        x->own = x->op, x->op = "";
    else if (!*x->path)
        x->own = value_name(f->a, of->name);
}

const char *names_param(const Func *f, const Buffer *b)
{
    const uint32_t i = b->index % f->sg->stage->param.n;
    return f->g->param.at[f->sg->stage->param.at[i].param].name;
}

static void of_param(const Func *f, const Buffer *b, Named *x)
{
    const char *name = names_param(f, b), *dot = strrchr(name, '.');
    x->path = dot ? arena_strndup(f->a, name, (size_t)(dot - name)) : "";
    x->own = dot ? dot + 1 : name;
    x->op = "";
}

static Named named(const Func *f, const Buffer *b)
{
    Named x = {.path = "", .own = "", .op = ""};
    switch (b->guest ? BUF_WORK : b->cls) {
    case BUF_PARAM: of_param(f, b, &x); break;
    case BUF_GRAD:
        of_param(f, b, &x);
        x.gradient = true;
        break;
    case BUF_HALF:
        of_param(f, b, &x);
        x.own = arena_printf(f->a, "%s_half", x.own);
        break;
    case BUF_CONST: x.fixed = arena_printf(f->a, "c%u", cg_constant(f->sg, b->value)); break;
    case BUF_COUNT: x.fixed = arena_printf(f->a, "n%u", b->index); break;
    default:
        of_value(f, b->value, &x);
        x.gradient |= b->cls == BUF_DY || b->cls == BUF_DX || cg_is_gradient(f, b->value);
    }
    return x;
}

static const char *key_of(const Func *f, const Buffer *b)
{
    BufClass c = b->guest ? BUF_WORK : b->cls;
    bool value = c == BUF_STASH || c == BUF_SAVED || c == BUF_WORK;
    return arena_printf(f->a, "%d %u", value ? BUF_WORK : (int)c, value ? b->value : b->index);
}

static const char *scope_of(const Graph *g, const Node *n)
{
    const char *scope = n->origin < g->origin.n ? g->origin.at[n->origin].scope : NULL;
    return scope ? scope : "";
}

static bool *results(const StageGen *sg)
{
    const Graph *g = sg->g;
    bool *result = arena_array(sg->a, bool, g->value.n + 1);
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->nin; j++) {
            if (n->in[j] == NONE || val(g, n->in[j])->kind != V_NODE)
                continue;
            const char *maker = scope_of(g, &g->node.at[val(g, n->in[j])->node]),
                       *reader = scope_of(g, n);
            const size_t k = strlen(maker);
            result[n->in[j]] |= k && (strncmp(reader, maker, k) != 0 ||
                                      (reader[k] && reader[k] != '.'));
        }
    }
    return result;
}

static const StageNames *names_of(StageGen *sg)
{
    if (sg->print.names)
        return sg->print.names;
    StageNames *s = sg->print.names = arena_array(sg->a, StageNames, 1);
    NamedList list = {0};
    *s = (StageNames){{.arena = sg->a}, results(sg), {.arena = sg->a}, {.arena = sg->a}, NULL};
    for (ValueId v = 0; v < sg->g->value.n; v++) {
        uint32_t *first = strmap_at(&s->value, sg->g->value.at[v].name);
        *first = *first == NONE ? v : *first;
    }
    for (int k = 0; k < F_COUNT; k++)
        for (uint32_t i = 0; sg->func[k] && i < sg->func[k]->buf.n; i++) {
            const Func *f = sg->func[k];
            uint32_t *slot = strmap_at(&s->of, key_of(f, &f->buf.at[i]));
            if (*slot != NONE || !f->buf.at[i].used)
                continue;
            *slot = list.n;
            vec_push(sg->a, &list, named(f, &f->buf.at[i]));
        }
    s->name = choose(sg->a, &list, &s->taken);
    return s;
}

const char *out_name(const Func *f, uint32_t buf)
{
    const StageNames *s = names_of(f->sg);
    uint32_t at = strmap_get(&s->of, key_of(f, &f->buf.at[buf]));
    if (at == NONE)
        BUG("a buffer of class %d that no function uses", (int)f->buf.at[buf].cls);
    return s->name[at];
}

bool names_has(StageGen *sg, const char *name)
{
    bool has = strmap_get(&names_of(sg)->taken, name) != NONE;
    for (uint32_t i = 0; i < sg->loops.body.n && !has; i++)
        has = names_has(sg->loops.body.at[i], name);
    return has;
}

/* ---- fields of a repeated sequence ----------------------------------------------------------- */

/* What its turns have in common, numbers apart: "h.#.ln_1". */
static Named named_field(const Func *f, const Repeat *r, const RepeatField *x)
{
    Named both = named(f, &f->buf.at[x->buf[0]]);
    if (repeat_constant(r, x))
        return both;
    const Named next = named(f, &f->buf.at[x->buf[1]]);
    both.path = text_pattern(f->a, both.path, next.path);
    both.own = text_pattern(f->a, both.own, next.own);
    both.fixed = NULL;
    return both;
}

Named names_of_argument(const Out *o, const Step *s, uint32_t arg)
{
    return o->repeat ? named_field(o->f, o->repeat, &o->repeat->field.at[out_field(o, arg)])
                     : named(o->f, &o->f->buf.at[s->arg.at[arg].buf]);
}

/* The field that has in the next turn what field i has in each, and would have its name, too; NONE:
 * none has. */
static uint32_t handed_to(const Repeat *r, const NamedList *list, uint32_t i)
{
    const RepeatField *x = &r->field.at[i];
    for (uint32_t j = 0; j < r->field.n && !repeat_constant(r, x); j++) {
        if (strcmp(list->at[i].path, list->at[j].path) || strcmp(list->at[i].own, list->at[j].own))
            continue;
        const RepeatField *y = &r->field.at[j];
        uint32_t t = 1;
        while (t < repeat_turns(r, y) && y->buf[t] == x->buf[t - 1])
            t++;
        if (t > 1 && t == repeat_turns(r, y))
            return j;
    }
    return NONE;
}

const char **names_of_fields(const Out *o, const Repeat *r)
{
    uint32_t *to = arena_array(o->a, uint32_t, r->field.n + 1);
    NamedList list = {0};
    StrMap taken = {.arena = o->a};
    for (uint32_t i = 0; i < o->f->buf.n; i++)
        if (o->named[i]) /* it stands before the loop */
            *strmap_at(&taken, out_name(o->f, i)) = 0;
    for (uint32_t i = 0; i < r->field.n; i++) {
        Named x = named_field(o->f, r, &r->field.at[i]);
        if (repeat_constant(r, &r->field.at[i]))
            x.fixed = out_name(o->f, r->field.at[i].buf[0]);
        vec_push(o->a, &list, x);
    }
    for (uint32_t i = 0; i < r->field.n; i++) {
        to[i] = handed_to(r, &list, i);
        if (to[i] != NONE && handed_to(r, &list, to[i]) != NONE)
            to[i] = NONE;
        if (to[i] != NONE)
            list.at[i].fixed = ""; /* "next_ln_1", once that has its name */
    }
    const char **name = choose(o->a, &list, &taken);
    for (uint32_t i = 0; i < r->field.n; i++) {
        if (to[i] == NONE)
            continue;
        name[i] = arena_printf(o->a, "next_%s", name[to[i]]);
        while (strmap_get(&taken, name[i]) != NONE)
            name[i] = arena_printf(o->a, "%s_", name[i]);
        *strmap_at(&taken, name[i]) = 0;
    }
    return name;
}

/*
 * turn.c - a repeated sequence of steps as one function, and the loop that calls it.  In: a Repeat.
 * Out: a struct with a pointer for each buffer that a turn has, a function over it with the steps
 * of one turn, and in the caller a loop that fills the struct from the table of offsets.  The same
 * sequence in another function of the stage shares the struct and the function.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "target.h"

/* ---- names ----------------------------------------------------------------------------------- */

static const char **field_names(Out *o, const Repeat *r)
{
    static const char *const prefix[] = {"w",  "dw", "c", "x",  "y", "dy",
                                         "dx", "t",  "dt", "wh", "n"};
    uint32_t many[11] = {0};
    const char **name = arena_array(o->a, const char *, r->field.n + 1);
    for (uint32_t i = 0; i < r->field.n; i++) {
        const Buffer *b = &o->f->buf.at[r->field.at[i].buf[0]];
        bool gradient = cg_is_gradient(o->f, b->value) || b->cls == BUF_DY || b->cls == BUF_DX;
        int kind = b->cls == BUF_PARAM   ? 0
                   : b->cls == BUF_GRAD  ? 1
                   : b->cls == BUF_CONST ? 2
                   : b->cls == BUF_HALF  ? 9
                   : b->cls == BUF_COUNT ? 10
                   : gradient            ? 8
                                         : 7;
        name[i] = arena_printf(o->a, "%s%u", prefix[kind], ++many[kind]);
    }
    return name;
}

/* ---- one turn -------------------------------------------------------------------------------- */

/* In whose place the buffer comes to stand, where that is another field. */
static const char *place_taken(Out *o, const Repeat *r, const RepeatField *x,
                               const char *const *name)
{
    uint32_t over = o->f->buf.at[x->buf[0]].over;
    for (uint32_t i = 0; over != NONE && i < r->field.n; i++)
        if (r->field.at[i].buf[0] == over)
            return arena_printf(o->a, "; in place of %s", name[i]);
    return "";
}

static const char *value_text(Out *o, const Repeat *r, const RepeatField *x,
                              const char *const *name)
{
    const Graph *g = o->f->g;
    const ValueId first = o->f->buf.at[x->buf[0]].value, second = o->f->buf.at[x->buf[1]].value;
    const Value *v = val(g, first);
    return arena_printf(o->a, "%s%s%s", shape_print(o->a, v->dtype, &v->shape),
                        out_pattern(o->a, out_value_text(o->a, g, first),
                                    out_value_text(o->a, g, second)),
                        place_taken(o, r, x, name));
}

static const char *pointer_type(const Out *o, const RepeatField *x)
{
    return arena_printf(o->a, "%s%s *", x->written ? "" : "const ",
                        cg_ctype(o->f->buf.at[x->buf[0]].type));
}

static void print_struct(Out *o, const Repeat *r, const char *const *name, Text *t)
{
    t->indent = 1;
    for (uint32_t i = 0; i < r->field.n; i++)
        text_noted(t, 40, arena_printf(o->a, "%s%s;", pointer_type(o, &r->field.at[i]), name[i]),
                   value_text(o, r, &r->field.at[i], name));
    for (uint32_t i = 0; i < r->keyed.n; i++) {
        const Step *s = &o->f->step.at[r->first + r->keyed.at[i]];
        text_noted(t, 40, arena_printf(o->a, "uint32_t key%u;", i + 1),
                   s->kind == STEP_COLLECTIVE ? "a row of the stage's collectives"
                                              : "of a Dropout");
    }
    t->indent = 0;
}

/* The steps of the first turn, on the struct's pointers; `head` declares what they use. */
static void print_body(Out *o, const Repeat *r, const char *const *name, Text *t)
{
    Out turn = {.f = o->f,
                .a = o->a,
                .target = o->target,
                .name = o->name,
                .named = o->named,
                .text = {.a = o->a, .indent = 1},
                .repeat = r,
                .field = name};
    for (turn.at = 0; turn.at < r->length; turn.at++) {
        uint32_t first = r->first + turn.at;
        if (r->tail && turn.at == r->tail)
            text_line(&turn.text, "if (last)\n        return;");
        print_step(&turn, first, first + r->length);
    }
    t->indent = 1;
    out_declare(&turn, t);
    t->indent = 0;
    if (t->n)
        text_add(t, "\n");
    text_add(t, "%s", turn.text.at);
    if (turn.bytes_scratch > o->bytes_scratch)
        o->bytes_scratch = turn.bytes_scratch;
}

/* ---- where a field's buffers stand ----------------------------------------------------------- */

typedef struct {
    bool plain;                     /* all turns but `except` have it in the same block */
    bool parts;                     /* all have it in a part of the stash, not in the same one */
    uint32_t except;                /* the first turn or the last one; NONE: none */
    BufClass cls;
    uint32_t part;                  /* of the stash; NONE: of what is always kept */
} Placing;

static bool same_block(const Out *o, const RepeatField *x, uint32_t from, uint32_t to)
{
    if (from >= to)
        return false;
    const Buffer *first = &o->f->buf.at[x->buf[from]];
    for (uint32_t t = from; t < to; t++) {
        const Buffer *b = &o->f->buf.at[x->buf[t]];
        if (b->cls != first->cls || place_part(o->f, b) != place_part(o->f, first) ||
            place_in_source(o, x->buf[t]))
            return false;
    }
    return true;
}

static bool in_parts(const Out *o, const RepeatField *x, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++)
        if (place_part(o->f, &o->f->buf.at[x->buf[t]]) == NONE)
            return false;
    return true;
}

/* How many turns have the field: the last one may end before. */
static uint32_t turns_with(const Repeat *r, const RepeatField *x)
{
    return x->buf[r->turns - 1] == NONE ? r->turns - 1 : r->turns;
}

static Placing placing(const Out *o, const Repeat *r, const RepeatField *x)
{
    uint32_t n = turns_with(r, x), one = 0;
    Placing p = {.plain = true, .except = NONE};
    if (!same_block(o, x, 0, n)) {
        if (in_parts(o, x, n))
            p.parts = true;
        else if (same_block(o, x, 1, n))
            one = 1, p.except = 0;
        else if (same_block(o, x, 0, n - 1))
            p.except = n - 1;
        else
            p.plain = false;
    }
    p.cls = o->f->buf.at[x->buf[one]].cls;
    p.part = place_part(o->f, &o->f->buf.at[x->buf[one]]);
    return p;
}

/* The offsets by turn: one number, the first and the step, or all of them. */
static const char *offsets(Out *o, const Repeat *r, const RepeatField *x, const Placing *p,
                           const char *section, const char *name)
{
    int64_t *at = arena_array(o->a, int64_t, r->turns), *step = arena_array(o->a, int64_t, 1);
    uint32_t n = turns_with(r, x), from = p->except == 0,
             to = p->except == NONE || p->except == 0 ? n : n - 1;
    for (uint32_t t = from; t < to; t++)
        at[t] = place_at(o->f, x->buf[t]);
    *step = to - from > 1 ? at[from + 1] - at[from] : 0;
    bool affine = true;
    for (uint32_t t = from; t + 1 < to; t++)
        affine &= at[t + 1] - at[t] == *step;
    if (affine && from == 1)
        at[0] = at[1] - *step;
    const char *title = arena_printf(o->a, "%u turns; NAME_step: from one to the next", r->turns);
    const char *first =
        offset_of(o, section, title, name, at, affine ? 1 : r->turns, place_block(p->cls));
    if (!affine)
        return arena_printf(o->a, "%s[i]", first);
    if (*step == 0)
        return first;
    const char *by =
        offset_of(o, section, title, arena_printf(o->a, "%s_step", name), step, 1, NULL);
    return arena_printf(o->a, "%s + i * %s", first, by);
}

/* The pointer by turn to a part of the stash. */
static const char *parts_by_turn(Out *o, const Repeat *r, const RepeatField *x,
                                 const char *section, const char *name)
{
    int64_t *part = arena_array(o->a, int64_t, r->turns);
    for (uint32_t t = 0; t < turns_with(r, x); t++)
        part[t] = place_part(o->f, &o->f->buf.at[x->buf[t]]);
    return arena_printf(o->a, "again[%s[i]]",
                        offset_of(o, section, "", arena_printf(o->a, "%s_part", name), part,
                                  r->turns, "its part of the stash, by turn"));
}

static const char *field_place(Out *o, const Repeat *r, uint32_t i, const char *section,
                               const char *name)
{
    const RepeatField *x = &r->field.at[i];
    const char *type = pointer_type(o, x);
    bool constant = true;
    for (uint32_t t = 1; t < turns_with(r, x); t++)
        constant &= x->buf[t] == x->buf[0];
    if (constant)
        return out_straight(o, x->buf[0]);
    Placing p = placing(o, r, x);
    /* pointers of their own, one for each turn */
    if (!p.plain) {
        Text list = {.a = o->a};
        for (uint32_t t = 0; t < r->turns; t++)
            text_add(&list, "%s%s", t ? ", " : "",
                     x->buf[t] == NONE ? "NULL" : out_straight(o, x->buf[t]));
        text_line(&o->text, "%s const %s_%s[] = {%s};", type, section, name, text_all(&list));
        return arena_printf(o->a, "%s_%s[i]", section, name);
    }
    const char *offset = offsets(o, r, x, &p, section, name), *place,
               *block = p.parts          ? parts_by_turn(o, r, x, section, name)
                        : p.part != NONE ? arena_printf(o->a, "again[%u]", p.part)
                                         : place_block(p.cls);
    if (place_is_pointer(p.cls))
        place = arena_printf(o->a, "%sc->%s[%s]",
                             o->target->cplusplus ? arena_printf(o->a, "(%s)", type) : "", block,
                             offset);
    else
        place = arena_printf(
            o->a, p.cls == BUF_COUNT ? "(%s)((char *)%s + %s)" : "(%s)(c->%s + %s)", type, block,
            offset);
    if (p.except == NONE)
        return place;
    return arena_printf(o->a, "i == %u ? %s : %s", p.except, out_straight(o, x->buf[p.except]),
                        place);
}

/* The keys of a step by turn: they stand in the table as well. */
static const char *keys(Out *o, const Repeat *r, uint32_t step, const char *section,
                        const char *name)
{
    int64_t *key = arena_array(o->a, int64_t, r->turns);
    for (uint32_t t = 0; t < r->turns; t++)
        key[t] = repeat_has(r, t, step) ? o->f->step.at[r->first + t * r->length + step].key : 0;
    return offset_of(o, section, "", name, key, r->turns, "of a Dropout, by turn");
}

static void print_loop(Out *o, const Repeat *r, const char *const *name, const char *section,
                       const char *type, const char *function)
{
    const char **place = arena_array(o->a, const char *, r->field.n + 1);
    for (uint32_t i = 0; i < r->field.n; i++)
        place[i] = field_place(o, r, i, section, name[i]);
    text_line(&o->text, "for (int64_t i = 0; i < %u; i++) {", r->turns);
    o->text.indent++;
    text_line(&o->text, "const %s p = {", type);
    o->text.indent++;
    for (uint32_t i = 0; i < r->field.n; i++)
        text_line(&o->text, o->target->cplusplus ? "/* %s */ %s," : ".%s = %s,", name[i], place[i]);
    for (uint32_t i = 0; i < r->keyed.n; i++) {
        const char *key = arena_printf(o->a, "key%u", i + 1),
                   *at = keys(o, r, r->keyed.at[i], section, key);
        text_line(&o->text,
                  o->target->cplusplus ? "/* %s */ (uint32_t)%s[i]," : ".%s = (uint32_t)%s[i],",
                  key, at);
    }
    o->text.indent--;
    text_line(&o->text, "};");
    if (r->tail)
        text_line(&o->text, "%s(c, &p, i == %u);", function, r->turns - 1);
    else
        text_line(&o->text, "%s(c, &p);", function);
    o->text.indent--;
    text_line(&o->text, "}");
}

/* "Backward1" of "backward", 1 */
static const char *type_name(Arena *a, const char *function)
{
    char *name = arena_strdup(a, function), *to = name;
    bool up = true;
    for (const char *p = function; *p; p++) {
        if (*p != '_')
            *to++ = up ? (char)toupper((unsigned char)*p) : *p;
        up = *p == '_';
    }
    *to = '\0';
    return name;
}

void print_repeat(Out *o, uint32_t number)
{
    const Repeat *r = &o->f->repeat.at[number];
    const char **name = field_names(o, r);
    KernelList *shared = &o->f->sg->turns[o->f->sg->target];
    Text fields = {.a = o->a}, body = {.a = o->a};
    print_struct(o, r, name, &fields);
    print_body(o, r, name, &body);
    const char *section = arena_printf(o->a, "%s_%u", o->name, number + 1);
    uint32_t *slot = strmap_at(&shared->of, arena_printf(o->a, "%s|%s", fields.at, body.at));
    if (*slot == NONE) {
        *slot = shared->name.n;
        vec_push(o->a, &shared->name, section);
        text_add(&o->before, "// one turn of the %u of %s\ntypedef struct {\n%s} %s;\n\n", r->turns,
                 o->name, fields.at, type_name(o->a, section));
        text_add(&o->before, "static void %s(const PpCtx *c, const %s *p%s)\n{\n%s}\n\n", section,
                 type_name(o->a, section), r->tail ? ", int last" : "", body.at);
    }
    const char *function = shared->name.at[*slot];
    print_loop(o, r, name, section, type_name(o->a, function), function);
}

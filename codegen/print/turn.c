/*
 * turn.c - a repeated sequence of steps as a loop.  In: a Repeat.  Out: a loop over its turns with
 * the steps of one; what differs from turn to turn is a pointer, declared where it is first used:
 * an offset that grows by the same number, or one of a list that stands before the loop.
 */
#include "target.h"

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
    return arena_printf(o->a, "%s%s%s", cg_shape(o->a, o->f->sg, v->dtype, &v->shape),
                        text_pattern(o->a, out_value_text(o->a, g, first),
                                    out_value_text(o->a, g, second)),
                        place_taken(o, r, x, name));
}

static const char *pointer_type(const Out *o, const RepeatField *x)
{
    return arena_printf(o->a, "%s%s *", x->written ? "" : "const ",
                        cg_ctype(o->f->buf.at[x->buf[0]].type));
}

/* ---- where a field's buffers stand ----------------------------------------------------------- */

/* In one block, in turn i at first + i * step, but for one of the turns. */
typedef struct {
    int64_t first, step;
    uint32_t except;                /* the first turn or the last one; NONE: none */
    uint32_t like;                  /* the buffer of another turn */
} Placing;

/* Of the turns from .. to - 1; false: they stand otherwise. */
static bool places(const Out *o, const RepeatField *x, uint32_t from, uint32_t to, Placing *p)
{
    if (from >= to)
        return false;
    const Buffer *like = &o->f->buf.at[p->like = x->buf[from]];
    int64_t at = place_at(o->f, p->like);
    p->step = to - from > 1 ? place_at(o->f, x->buf[from + 1]) - at : 0;
    p->first = at - (int64_t)from * p->step;
    for (uint32_t t = from; t < to; t++) {
        const Buffer *b = &o->f->buf.at[x->buf[t]];
        if (b->cls != like->cls || place_part(o->f, b) != place_part(o->f, like) ||
            place_in_source(o, x->buf[t]) || place_at(o->f, x->buf[t]) != p->first + t * p->step)
            return false;
    }
    return true;
}

static const char *by_turn(Out *o, const Placing *p)
{
    if (p->step == 0)
        return out_lin(o, lin(p->first));
    const char *step = out_lin(o, lin(p->step < 0 ? -p->step : p->step));
    if (p->first == 0 && p->step > 0)
        return arena_printf(o->a, "i * %s", step);
    return arena_printf(o->a, "%s %c i * %s", out_lin(o, lin(p->first)), p->step < 0 ? '-' : '+',
                        step);
}

/* Where the field is in turn i.  before: what must stand before the loop */
static const char *field_place(Out *o, const Repeat *r, const RepeatField *x, const char *name,
                               Text *before)
{
    const char *type = pointer_type(o, x);
    uint32_t n = repeat_turns(r, x);
    Placing p = {.except = NONE};
    if (places(o, x, 0, n, &p))
        return place_text(o, p.like, type, by_turn(o, &p));
    p.except = places(o, x, 1, n, &p) ? 0 : places(o, x, 0, n - 1, &p) ? n - 1 : NONE;
    if (p.except != NONE)
        return arena_printf(o->a, "i == %u ? %s : %s", p.except,
                            place_whole(o, x->buf[p.except], type),
                            place_text(o, p.like, type, by_turn(o, &p)));
    Text list = {.a = o->a};
    for (uint32_t t = 0; t < r->turns; t++)
        text_add(&list, "%s%s", t ? ", " : "",
                 x->buf[t] == NONE ? "NULL" : place_whole(o, x->buf[t], type));
    text_line(before, "%sconst %s_by_turn[] = {%s};", type, name, text_all(&list));
    return arena_printf(o->a, "%s_by_turn[i]", name);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The keys of its steps by turn. */
static void print_keys(const Out *o, const Repeat *r, Text *t)
{
    for (uint32_t i = 0; i < r->keyed.n; i++) {
        const uint32_t step = r->keyed.at[i];
        Text list = {.a = o->a};
        for (uint32_t k = 0; k < r->turns; k++)
            text_add(&list, "%s%u", k ? ", " : "",
                     repeat_has(r, k, step) ? o->f->step.at[r->first + k * r->length + step].key
                                            : 0);
        text_noted(t, 64, arena_printf(o->a, "static const uint32_t key%u[] = {%s};", i + 1,
                                       text_all(&list)),
                   o->f->step.at[r->first + step].kind == STEP_COLLECTIVE
                       ? "rows of the stage's collectives"
                       : "of a Dropout");
    }
}

/* By field: what declares it in the loop, where turns have it in different places. */
static const char **declarations(Out *o, const Repeat *r)
{
    const char **declaration = arena_array(o->a, const char *, r->field.n + 1);
    for (uint32_t i = 0; i < r->field.n; i++) {
        const RepeatField *x = &r->field.at[i];
        Text t = {.a = o->a, .indent = o->text.indent + 1};
        if (repeat_constant(r, x)) {
            out_straight(o, x->buf[0]);
            continue;
        }
        const char *at = field_place(o, r, x, o->field[i], &t);
        text_noted(&t, 64, arena_printf(o->a, "%s%s = %s;", pointer_type(o, x), o->field[i], at),
                   value_text(o, r, x, o->field));
        declaration[i] = text_all(&t);
    }
    return declaration;
}

void print_repeat(Out *o, uint32_t number)
{
    const Repeat *r = &o->f->repeat.at[number];
    o->field = names_of_fields(o, r);
    o->declaration = declarations(o, r);
    text_add(&o->text, o->text.n ? "\n" : "");
    out_fresh(o, &o->text);
    text_open(&o->text, "for (int64_t i = 0; i < %u; i++) {", r->turns);
    print_keys(o, r, &o->text);
    o->repeat = r;
    for (o->at = 0; o->at < r->length; o->at++) {
        uint32_t first = r->first + o->at;
        if (r->tail && o->at == r->tail)
            text_line(&o->text, "if (i == %u) break;", r->turns - 1);
        print_step(o, first, first + r->length);
    }
    o->repeat = NULL;
    text_close(&o->text);
}

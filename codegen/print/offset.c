/*
 * offset.c - where buffers stand: one table for each stage.  Functions ask for an offset by its
 * name while they are printed; the table has a section for each block of the stage's memory, for
 * each function's workspace and for each repeated sequence.
 */
#include <inttypes.h>
#include <string.h>

#include "target.h"

static OffsetSection *section(Offsets *k, Arena *a, const char *name, const char *title)
{
    for (uint32_t i = 0; i < k->section.n; i++)
        if (strcmp(k->section.at[i].name, name) == 0)
            return &k->section.at[i];
    OffsetSection s = {.name = name, .title = title, .of = {.arena = a}};
    vec_push(a, &k->section, s);
    return &k->section.at[k->section.n - 1];
}

const char *offset_of(Out *o, const char *block, const char *title, const char *name,
                      const int64_t *at, uint32_t n, const char *note)
{
    OffsetSection *s = section(&o->f->sg->offsets[o->f->sg->target], o->a, block, title);
    uint32_t *slot = strmap_at(&s->of, name);
    if (*slot == NONE) {
        *slot = s->row.n;
        OffsetRow r = {.name = name, .note = note, .n = n, .at = at, .step = note == NULL};
        vec_push(o->a, &s->row, r);
    }
    return arena_printf(o->a, "offset.%s.%s", block, name);
}

static void print_members(const OffsetSection *s, Text *t)
{
    Text line = {.a = t->a};
    for (uint32_t i = 0; i < s->row.n; i++) {
        const OffsetRow *r = &s->row.at[i];
        text_add(&line, r->n == 1 ? "%s%s" : "%s%s[%u]", i ? ", " : "", r->name, r->n);
    }
    text_line(t, "struct { int64_t %s; } %s;", line.at, s->name);
}

static void print_row(const OffsetRow *r, const OffsetRow *step, Text *t)
{
    Text line = {.a = t->a};
    for (uint32_t j = 0; j < r->n; j++)
        text_add(&line, "%s%" PRId64, j ? ", " : "", r->at[j]);
    if (r->n > 1) {
        text_line(t, "// %s: %s", r->name, r->note);
        text_line(t, "{%s},", line.at);
    } else if (step) {
        text_noted(t, 24, arena_printf(t->a, "%s, %" PRId64 ",", line.at, step->at[0]),
                   arena_printf(t->a, "%s, %s: %s", r->name, step->name, r->note));
    } else {
        text_noted(t, 24, arena_printf(t->a, "%s,", line.at),
                   arena_printf(t->a, "%s: %s", r->name, r->note));
    }
}

static void print_values(const OffsetSection *s, Text *t)
{
    text_line(t, "{   // %s: %s", s->name, s->title);
    t->indent++;
    for (uint32_t i = 0; i < s->row.n; i++) {
        const OffsetRow *r = &s->row.at[i], *next = i + 1 < s->row.n ? r + 1 : NULL;
        bool stepped = next && next->step;
        print_row(r, stepped ? next : NULL, t);
        i += stepped;
    }
    t->indent--;
    text_line(t, "},");
}

void offset_print(const Offsets *k, Text *t)
{
    if (k->section.n == 0)
        return;
    text_add(
        t,
        "// ---- memory: where buffers stand, in bytes from the beginning of their block ----\n\n");
    text_line(t, "static const struct {");
    t->indent = 1;
    for (uint32_t i = 0; i < k->section.n; i++)
        print_members(&k->section.at[i], t);
    t->indent = 0;
    text_line(t, "} offset = {");
    t->indent = 1;
    for (uint32_t i = 0; i < k->section.n; i++)
        print_values(&k->section.at[i], t);
    t->indent = 0;
    text_line(t, "};\n");
}

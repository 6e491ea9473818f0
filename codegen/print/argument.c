/*
 * argument.c - what kernels of nests call their arguments.  In: a kernel, printed with what each
 * argument is to its step ("x", "dy", "w") behind a TEXT_LATER, and its calls.  Out: its text with
 * names after the model: what its callers call the argument, where all call it the same; else what
 * their modules have in common, "ln_1_weight" or "weight"; else what it is to the step.
 */
#include <ctype.h>
#include <string.h>

#include "names.h"

typedef struct Argument {
    const char *text;   /* in the text */
    const char *role;   /* what it is to the step, or that it holds means or the like */
    bool known;         /* the latter */
    bool parameter;     /* or its gradient */
    bool stored;
    const char *called; /* by all callers; NULL: they differ */
    Named of;           /* what they have in common; path, own NULL: nothing */
} Argument;

/* A longer name does not read better than a role. */
enum { LONGEST_NAME = 32 };

/* ---- callers --------------------------------------------------------------------------------- */

/* NULL: they differ in more than numbers. */
static const char *join(Arena *a, const char *x, const char *y)
{
    const char *both = x && y ? text_pattern(a, x, y) : NULL;
    return both == x && x && strcmp(x, y) != 0 ? NULL : both;
}

static const char *role(const StepArg *x)
{
    static const char *const of[] = {[ROLE_X] = "x",   [ROLE_Y] = "y", [ROLE_DX] = "dx",
                                     [ROLE_DY] = "dy", [ROLE_W] = "w", [ROLE_DW] = "dw"};
    return x->known ? x->known : of[x->role];
}

static Argument argument(const Out *o, const Step *s, uint32_t i)
{
    const StepArg *x = &s->arg.at[i];
    const bool used = o->f->buf.at[x->buf].used;
    return (Argument){.role = role(x),
                      .known = x->known != NULL,
                      .parameter = x->role == ROLE_W || x->role == ROLE_DW,
                      .stored = x->written,
                      .called = o->repeat ? o->field[out_field(o, i)]
                                : used    ? out_name(o->f, x->buf)
                                          : NULL,
                      .of = names_of_argument(o, s, i)};
}

void argument_join(const Out *o, const Step *s, const Ids *named, StageKernel *k)
{
    const bool first = !k->arg;
    if (first) {
        k->args = s->nest->arg.n;
        k->named = *named;
        k->arg = arena_array(o->a, Argument, k->args + 1);
        const char **text = argument_names(o, s);
        for (uint32_t i = 0; i < k->args; i++) {
            k->arg[i] = argument(o, s, i);
            k->arg[i].text = text[i];
        }
    }
    for (uint32_t i = 0; i < named->n && !first; i++) {
        Argument *x = &k->arg[k->named.at[i]];
        const Argument y = argument(o, s, named->at[i]);
        const bool alike = x->of.result == y.of.result && strcmp(x->of.op, y.of.op) == 0;
        x->called = x->called && y.called && strcmp(x->called, y.called) == 0 ? x->called : NULL;
        x->of.fixed = y.of.fixed ? x->of.fixed : NULL;
        x->of.path = alike ? join(o->a, x->of.path, y.of.path) : NULL;
        x->of.own = x->of.gradient == y.of.gradient ? join(o->a, x->of.own, y.of.own) : NULL;
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *name_of(Arena *a, const Argument *x)
{
    if (x->known)
        return x->role;
    if (x->of.fixed) /* its own name is that of the array in the source */
        return "constant";
    if (x->called && strlen(x->called) <= LONGEST_NAME)
        return x->called;
    Named of = x->of;
    const char *names[2] = {NULL, NULL};
    if (of.path && of.own && (*of.path || *of.own))
        names[0] = names_short(a, &of);
    of.op = "";
    of.path = "";
    if (x->parameter && of.own && *of.own)
        names[1] = names_short(a, &of);
    for (int i = 0; i < 2; i++)
        if (names[i] && strlen(names[i]) <= LONGEST_NAME)
            return names[i];
    return x->role;
}

/* A name that no other of the arguments has. */
static const char *longer(Arena *a, const char *const *name, uint32_t n, const char *of)
{
    of = arena_printf(a, "%s_", of);
    for (uint32_t i = 0; i < n; i++)
        if (name[i] && strcmp(name[i], of) == 0)
            return longer(a, name, n, of);
    return of;
}

/* Each its name, with a number where several have it: "x0". */
static const char **numbered(Arena *a, const char *const *base, uint32_t n)
{
    const char **name = arena_array(a, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t j = 0; j < n; j++) {
            same += strcmp(base[i], base[j]) == 0;
            before += j < i && strcmp(base[i], base[j]) == 0;
        }
        const bool number = isdigit((unsigned char)base[i][strlen(base[i]) - 1]);
        const char *own = same == 1 ? base[i]
                                    : arena_printf(a, number ? "%s_%u" : "%s%u", base[i], before);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(name[j], own) == 0)
                own = longer(a, name, i, own);
        name[i] = own;
    }
    return name;
}

const char **argument_names(const Out *o, const Step *s)
{
    const uint32_t n = s->nest->arg.n;
    const char **base = arena_array(o->a, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        base[i] = arena_printf(o->a, "%c%s", TEXT_LATER, role(&s->arg.at[i]));
    return numbered(o->a, base, n);
}

/* A module has one result: of several values that have its name alone none is called so. */
static const char **chosen(Arena *a, const StageKernel *k)
{
    const char **of = arena_array(a, const char *, k->args + 1),
               **base = arena_array(a, const char *, k->args + 1);
    for (uint32_t i = 0; i < k->args; i++)
        of[i] = base[i] = name_of(a, &k->arg[i]);
    for (uint32_t i = 0; i < k->args; i++) {
        const Argument *x = &k->arg[i];
        for (uint32_t j = 0; j < k->args; j++)
            if (i != j && !x->parameter && of[i] != x->called && strcmp(of[i], of[j]) == 0)
                base[i] = x->role;
    }
    for (uint32_t i = 0; i < k->args; i++)
        for (uint32_t j = 0; j < k->args; j++)
            if (k->arg[i].stored && !k->arg[j].stored && strcmp(base[i], base[j]) == 0)
                base[i] = arena_printf(a, "new_%s", base[i]);
    return numbered(a, base, k->args);
}

/* ---- the text -------------------------------------------------------------------------------- */

/* What is made of an argument, such as its element, has its name, too.  marked: the arguments
 * themselves are still told from other words. */
static const char *under_names(Arena *a, const StageKernel *k, const char *const *name,
                               const char *text, bool marked)
{
    Text t = {.a = a};
    for (const char *at; (at = strchr(text, TEXT_LATER));) {
        size_t n = 1;
        while (isalnum((unsigned char)at[n]))
            n++;
        uint32_t i = 0;
        while (strncmp(k->arg[i].text, at, n) != 0 || k->arg[i].text[n])
            INSIST(++i < k->args);
        text_add(&t, "%.*s%.*s%s", (int)(at - text), text, marked && at[n] != '_', at, name[i]);
        text = at + n;
    }
    text_add(&t, "%s", text);
    return text_all(&t);
}

const char *argument_text(Arena *a, const StageKernel *k, const char *text)
{
    if (!k->arg)
        return text;
    const char **name = chosen(a, k), *code = arena_printf(a, "%s\n%s", k->params, k->body),
               *words = under_names(a, k, name, code, true);
    for (uint32_t i = 0; i < k->args;) {
        if (!text_has(words, name[i++]))
            continue;
        name[i - 1] = longer(a, name, k->args, name[i - 1]);
        INSIST(strlen(name[i - 1]) < 2 * LONGEST_NAME);
        words = under_names(a, k, name, code, true);
        i = 0;
    }
    return under_names(a, k, name, text, false);
}

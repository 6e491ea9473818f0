/*
 * meta.c - parses what the dynamo exporter of PyTorch leaves in metadata strings: Python lists of
 * scopes, the text of fx nodes, the graph signature.  All of it is untrusted text: nothing here can
 * fail, it can only find less.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

enum { LONGEST = 1 << 20 };

/* A Python string literal at *p; leaves *p behind its closing quote. */
static const char *literal(Arena *a, const char **p)
{
    char quote = *(*p)++;
    const char *s = *p;
    while (*s && *s != quote)
        s += s[0] == '\\' && s[1] ? 2 : 1;
    char *out = arena_alloc(a, (size_t)(s - *p) + 1), *o = out;
    for (const char *c = *p; c < s; c++) {
        if (*c == '\\' && c + 1 < s)
            c++;
        *o++ = *c;
    }
    *p = *s ? s + 1 : s;
    return out;
}

uint32_t meta_list(Arena *a, const char *text, const char ***item)
{
    VEC(const char *) list = {0};
    if (strlen(text) < LONGEST)
        for (const char *p = text; *p;) {
            if (*p == '\'' || *p == '"')
                vec_push(a, &list, literal(a, &p));
            else
                p++;
        }
    *item = list.at;
    return list.n;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const char *word(Arena *a, const char *p, const char *also)
{
    const char *e = p;
    while (*e && (is_word(*e) || strchr(also, *e)))
        e++;
    return arena_strndup(a, p, (size_t)(e - p));
}

/* The %names between p and the matching ')' or '}', with the top-level position each stands at. */
static const char *arguments(Arena *a, const char *p, bool keyword, FxNode *fx)
{
    VEC(FxArg) list = {.at = fx->arg, .n = fx->n, .cap = fx->n};
    int depth = 1, position = 0, element = -1;
    for (; *p && depth > 0; p++) {
        if (*p == '\'' || *p == '"') {
            literal(a, &p);
            p--;
        } else if (*p == '(' || *p == '[' || *p == '{') {
            element = depth++ == 1 ? 0 : element;
        } else if (*p == ')' || *p == ']' || *p == '}') {
            element = --depth == 1 ? -1 : element;
        } else if (*p == ',' && depth <= 2) {
            position += depth == 1;
            element += depth == 2;
        } else if (*p == '%') {
            const char *name = word(a, p + 1, "");
            vec_push(a, &list, ((FxArg){name, keyword ? -1 : position, element}));
            p += strlen(name);
        } else if (keyword && depth == 1 &&
                   (!strncmp(p, "alpha:", 6) || !strncmp(p, "beta:", 5) ||
                    !strncmp(p, "value:", 6))) {
            fx->scaled = true;
        }
        if (!*p)
            break;
    }
    fx->arg = list.at;
    fx->n = list.n;
    return p;
}

bool meta_fx(Arena *a, const char *text, FxNode *fx)
{
    *fx = (FxNode){0};
    if (!text || strlen(text) >= LONGEST || text[0] != '%')
        return false;
    fx->name = word(a, text + 1, "");
    const char *target = strstr(text, "target=");
    const char *args = strstr(text, "args = (");
    if (!target || !args)
        return false;
    fx->target = word(a, target + strlen("target="), ".:");
    const char *aten = strstr(fx->target, "aten.");
    fx->target = aten ? aten : fx->target;
    const char *rest = arguments(a, args + strlen("args = ("), false, fx);
    const char *keywords = strstr(rest, "kwargs = {");
    if (keywords)
        arguments(a, keywords + strlen("kwargs = {"), true, fx);
    return true;
}

/* The end of an argument: the comma or bracket behind it that is not inside of brackets. */
static const char *argument_end(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        depth += *at == '(' || *at == '[' || *at == '{';
        if (depth == 0 && (*at == ',' || *at == ')' || *at == '}'))
            break;
        depth -= *at == ')' || *at == ']' || *at == '}';
    }
    return at;
}

/* The argument of a call of this target, by position or keyword; NULL: the text has none. */
static const char *argument(const char *text, const char *target, int position, const char *keyword)
{
    const char *at = text && strlen(text) < LONGEST ? strstr(text, target) : NULL;
    size_t n = strlen(keyword);
    if (!at || at[strlen(target)] != ']' || !(at = strstr(at, "args = (")))
        return NULL;
    at += strlen("args = (");
    for (int i = 0; i < position && at; i++) {
        at = argument_end(at);
        at = *at == ',' ? at + 1 : NULL;
    }
    if (!at) {                                          /* not by its position */
        at = strstr(text, "kwargs = {");
        for (at = at ? at + strlen("kwargs = {") : NULL; at; at = *at == ',' ? at + 2 : NULL) {
            if (!strncmp(at, keyword, n) && at[n] == ':')
                break;
            at = argument_end(at);
        }
        at = at ? at + n + 1 : NULL;
    }
    return at && *at == ' ' ? at + 1 : at;
}

bool meta_number(const char *text, const char *target, int position, const char *keyword, double *v)
{
    const char *at = argument(text, target, position, keyword);
    if (at && (!strncmp(at, "True", 4) || !strncmp(at, "False", 5))) {
        *v = *at == 'T';
        return true;
    }
    char *stop;
    *v = at ? strtod(at, &stop) : 0;
    return at && stop > at && stop == argument_end(at) && isfinite(*v);
}

bool meta_trains_norm(const RawNode *n)
{
    static const char *const target[] = {"aten._native_batch_norm_legit_functional.default",
                                         "aten.batch_norm.default"};
    double trains = n->opset >= 14 ? raw_int(n, "training_mode", 0) != 0
                                   : n->nout > 1 && *n->out[1];
    for (size_t i = 0; i < sizeof target / sizeof *target && trains == 0; i++)
        if (!meta_number(n->fx_node, target[i], 5, "training", &trains))
            trains = 0;                                 /* input, weight, bias, mean, var */
    return trains != 0;
}

bool meta_signature(Arena *a, const char *text, Signature *sig)
{
    VEC(SigEntry) list = {0};
    *sig = (Signature){.by_arg.arena = a, .by_target.arena = a};
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        while (*line == '\n')
            line++;
        if (!strncmp(line, "# outputs", 9))
            break;
        const char *arg = word(a, line, ""), *p = line + strlen(arg);
        SigEntry e = {.arg = arg};
        if (!*arg || strncmp(p, ": ", 2))
            continue;
        p += 2;
        if (!strncmp(p, "PARAMETER", 9))
            e.kind = SIG_PARAMETER;
        else if (!strncmp(p, "BUFFER", 6))
            e.kind = SIG_BUFFER;
        else if (!strncmp(p, "CONSTANT", 8))
            e.kind = SIG_CONSTANT;
        else
            continue;
        const char *end = strchr(p, '\n'), *target = strstr(p, "target=");
        if (!target || (end && target > end))
            continue;
        target += strlen("target=");
        if (*target == '\'' || *target == '"')
            e.target = literal(a, &target);
        e.persistent = !strncmp(target, " persistent=True", strlen(" persistent=True"));
        if (!e.target)
            continue;
        *strmap_at(&sig->by_arg, e.arg) = list.n;
        *strmap_at(&sig->by_target, e.target) = list.n;
        vec_push(a, &list, e);
    }
    sig->n = list.n;
    sig->entry = list.at;
    return list.n > 0;
}

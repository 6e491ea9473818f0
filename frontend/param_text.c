/*
 * param_text.c - the source lines that the dynamo exporter keeps beside a node.  In: the text of a stack trace.  Out: is an
 * attribute read there, and what methods are called on it ("s.shared.unsqueeze(0).expand(n, -1, -1)"): evidence of what
 * folding did to a parameter, never more than that.  Untrusted: nothing here can fail, it can only find less.
 */
#include <string.h>

#include "param_fx.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The next place behind `from` where the attribute is read: behind its name. */
static const char *next_read(const char *from, const char *leaf)
{
    size_t n = strlen(leaf);
    for (const char *p = from; n && (p = strstr(p, leaf)); p++)
        if (p > from && p[-1] == '.' && !is_word(p[n]))
            return p + n;
    return NULL;
}

bool text_reads(const char *stack, const char *leaf) { return stack && next_read(stack, leaf) != NULL; }

/* The word alone: a local variable is often called after the attribute. */
bool text_names(const char *stack, const char *leaf)
{
    size_t n = strlen(leaf);
    for (const char *p = stack; p && n > 2 && (p = strstr(p, leaf)); p++)
        if ((p == stack || !is_word(p[-1])) && !is_word(p[n]))
            return true;
    return false;
}

/* The text between the bracket at *p and its partner; leaves *p behind it. */
static const char *bracket(Arena *a, const char **p)
{
    const char *from = *p + 1;
    int depth = 0;
    for (const char *c = *p; *c && *c != '\n'; c++) {
        depth += *c == '(' || *c == '[' || *c == '{';
        depth -= *c == ')' || *c == ']' || *c == '}';
        if (depth == 0) {
            *p = c + 1;
            return arena_strndup(a, from, (size_t)(c - from));
        }
    }
    return NULL;
}

/* The comma-separated arguments at the top level. */
static void split_arguments(Arena *a, const char *text, TextCall *call)
{
    int depth = 0;
    const char *from = text;
    for (const char *c = text; call->n < TEXT_ARGUMENTS; c++) {
        if ((*c == ',' && depth == 0) || !*c) {
            while (*from == ' ')
                from++;
            if (c > from)
                call->arg[call->n++] = arena_strndup(a, from, (size_t)(c - from));
            from = c + 1;
        }
        if (!*c)
            break;
        depth += *c == '(' || *c == '[' || *c == '{';
        depth -= *c == ')' || *c == ']' || *c == '}';
    }
}

/* What is called on the attribute, first to last; the last place that reads it decides. */
uint32_t text_calls(Arena *a, const char *stack, const char *leaf, TextCall *call, uint32_t most)
{
    const char *at = NULL;
    uint32_t n = 0;
    for (const char *p = stack; p && (p = next_read(p, leaf));)
        at = p;
    while (at && n < most && (*at == '.' || *at == '[')) {
        TextCall c = {.name = "[]"};
        if (*at == '.') {
            const char *e = at + 1;
            while (is_word(*e))
                e++;
            c.name = arena_strndup(a, at + 1, (size_t)(e - at - 1));
            if (*e != '(')
                break;
            at = e;
        }
        const char *inside = bracket(a, &at);
        if (!inside)
            break;
        split_arguments(a, inside, &c);
        call[n++] = c;
    }
    return n;
}

/* Does the text put the attribute into a call of this function: "exp(self.A_log"? */
bool text_applies(const char *stack, const char *function, const char *leaf)
{
    size_t n = strlen(function);
    for (const char *p = stack; p && (p = next_read(p, leaf));) {
        const char *q = p - strlen(leaf);
        while (q > stack && (is_word(q[-1]) || q[-1] == '.'))
            q--;
        if ((size_t)(q - stack) > n && q[-1] == '(' && !strncmp(q - 1 - n, function, n))
            return true;
    }
    return false;
}

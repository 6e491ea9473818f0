/*
 * text.c - the source lines that the dynamo exporter keeps beside a node.  In: the text of a
 * stack trace, the name of an fx node.  Out: is an attribute read there, and what methods are
 * called on it ("s.shared.unsqueeze(0).expand(n, -1, -1)"): evidence of what folding did to a
 * parameter, never more than that.  Untrusted: nothing here can fail, it can only find less.
 */
#include <stdlib.h>
#include <string.h>

#include "fx.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t fx_base(const char *name)
{
    size_t n = strlen(name), k = n;
    while (k > 0 && name[k - 1] >= '0' && name[k - 1] <= '9')
        k--;
    return k < n && k > 1 && name[k - 1] == '_' ? k - 1 : n;
}

long fx_number(const char *name)
{
    size_t n = fx_base(name);
    return name[n] ? strtol(name + n + 1, NULL, 10) : 0;
}

bool fx_may_lack(Arena *a, const StrMap *index, const char *name, long last)
{
    enum { MOST = 10000 };
    int base = (int)fx_base(name);
    for (long k = 0; k < last && last <= MOST; k++) {
        const char *other = k ? arena_printf(a, "%.*s_%ld", base, name, k)
                              : arena_strndup(a, name, (size_t)base);
        if (strmap_get(index, other) == NONE)
            return true;
    }
    return last < 0 || last > MOST;
}

bool fx_is_base(const char *name, const char *base)
{
    return fx_base(name) == strlen(base) && !strncmp(name, base, strlen(base));
}

bool fx_is_one_of(const char *name, const char *const *base)
{
    for (; *base; base++)
        if (fx_is_base(name, *base))
            return true;
    return false;
}

bool fx_same_base(const char *a, const char *b)
{
    size_t n = fx_base(a);
    return n == fx_base(b) && !strncmp(a, b, n);
}

bool fx_is_filled(const char *name)
{
    static const char *const base[] = {"new_zeros",  "new_ones",   "new_full", "new_empty",
                                       "zeros_like", "ones_like",  "full_like", "empty_like",
                                       "zeros",      "ones",       "full",     "empty",
                                       "arange",     NULL};
    return fx_is_one_of(name, base);
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

bool text_reads(const char *stack, const char *leaf)
{
    return stack && next_read(stack, leaf) != NULL;
}

/* Stack traces go from the outside in: '  File "x.py", line 3, in forward' and the line itself, by
 * turns. */
const char *text_last(const char *stack)
{
    const char *last = stack;
    for (const char *p = stack; p && (p = strchr(p, '\n')); p++) {
        const char *line = p + 1 + strspn(p + 1, " ");
        if (*line && *line != '\n' && strncmp(line, "File ", 5))
            last = line;
    }
    return last;
}

/* The word alone: a local variable is often called after the attribute. */
bool text_names(const char *stack, const char *leaf)
{
    size_t n = strlen(leaf);
    for (const char *p = stack; p && n > 2 && (p = strstr(p, leaf)); p++)
        if ((p == stack || !is_word(p[-1])) && !is_word(p[n]))
            return true;
    return false;
}

/* Where the word, or one that begins with it, first stands; NONE: nowhere. */
uint32_t text_place(const char *line, const char *leaf)
{
    size_t n = strlen(leaf), end = line ? strcspn(line, "\n") : 0;
    for (const char *p = line; p && n > 2 && (p = strstr(p, leaf)) && (size_t)(p - line) < end; p++)
        if (p == line || !is_word(p[-1]))
            return (uint32_t)(p - line);
    return NONE;
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

static uint32_t calls_at(Arena *a, const char *at, TextCall *call, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && (*at == '.' || *at == '[')) {
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

/* What is called on the attribute, first to last, where most is: "s.w.view(s.w.shape[0], -1)" reads
 * it twice. */
uint32_t text_calls(Arena *a, const char *stack, const char *leaf, TextCall *call, uint32_t most)
{
    TextCall *other = arena_array(a, TextCall, most);
    uint32_t n = 0;
    for (const char *p = stack; p && (p = next_read(p, leaf));) {
        uint32_t k = calls_at(a, p, other, most);
        if (k <= n)
            continue;
        memcpy(call, other, k * sizeof *call);
        n = k;
    }
    return n;
}

/* Does the text put the attribute into a call of this function, "exp(self.A_log"?  Alone? */
static bool applies(const char *stack, const char *function, const char *leaf, bool alone)
{
    size_t n = strlen(function);
    for (const char *p = stack; p && (p = next_read(p, leaf));) {
        const char *q = p - strlen(leaf);
        while (q > stack && (is_word(q[-1]) || q[-1] == '.'))
            q--;
        if ((size_t)(q - stack) > n && q[-1] == '(' && !strncmp(q - 1 - n, function, n) &&
            (!alone || *p == ')'))
            return true;
    }
    return false;
}

bool text_applies(const char *stack, const char *function, const char *leaf)
{
    return applies(stack, function, leaf, false);
}

bool text_is_of(const char *stack, const char *function, const char *leaf)
{
    return applies(stack, function, leaf, true);
}

/* Is the attribute an argument of a function, of whose result something is asked further, and that
 * function none that only moves: "normalize(self.w, dim=-1).t()"?  Then what is asked is asked of
 * another value. */
bool text_wraps(Arena *a, const char *line, const char *path)
{
    static const char *const moves[] = {"unsqueeze", "squeeze", "expand",     "view", "reshape",
                                        "flatten",   "t",       "transpose",  "exp",  "permute",
                                        "clone",     "to",      "contiguous", NULL};
    size_t end = line ? strcspn(line, "\n") : 0;
    for (const char *p = line; p && (p = next_read(p, path)) && (size_t)(p - line) < end;) {
        const char *q = p - strlen(path);
        while (q > line && (is_word(q[-1]) || q[-1] == '.'))
            q--;
        if (q == line || q[-1] != '(' || *p == '.' || *p == '[')
            continue;
        const char *name = --q, *behind = q;
        while (name > line && is_word(name[-1]))
            name--;
        bool moved = name == q; /* brackets alone */
        for (int i = 0; moves[i]; i++)
            moved |= strlen(moves[i]) == (size_t)(q - name) &&
                     !strncmp(name, moves[i], (size_t)(q - name));
        if (!moved && bracket(a, &behind) && *behind == '.')
            return true;
    }
    return false;
}

RowText text_row(Arena *a, const char *line, const char *leaf, int64_t *row)
{
    RowText all = ROW_UNSAID;
    for (const char *p = line; p && (p = next_read(p, leaf));) {
        const char *inside = *p == '[' ? bracket(a, &p) : NULL;
        if (!inside || *inside == ':' || !strncmp(inside, "...", 3) || !strncmp(inside, "None", 4))
            continue;
        char *end;
        long long v = strtoll(inside, &end, 10);
        bool number = end > inside && (*end == ',' || !*end);
        bool again = all == ROW_NUMBER && number && v == *row;
        all = number && (all == ROW_UNSAID || again) ? ROW_NUMBER : ROW_VARIABLE;
        *row = v;
    }
    return all;
}

static bool read_bound(const char **p, int64_t absent, int64_t *v)
{
    char *end;
    *p += strspn(*p, " ");
    *v = strtoll(*p, &end, 10);
    if (end == *p)
        *v = absent;
    *p = end + strspn(end, " ");
    return *v >= 0;
}

bool text_slices(Arena *a, const char *stack, const char *path, const int64_t *size, uint32_t n)
{
    int64_t at = 0;
    uint32_t i = 0;
    for (const char *p = stack; p && (p = next_read(p, path));) {
        int64_t from, to;
        const char *q = p + 1, *inside = *p == '[' ? bracket(a, &p) : NULL;
        if (!inside)
            continue;
        if (i == n || !read_bound(&q, 0, &from) || *q++ != ':' || from != at ||
            !read_bound(&q, at + size[i], &to) || *q != ']' || to != at + size[i])
            return false;
        at = to;
        i++;
    }
    return i == n;
}

/* ---- where a parameter is, seen from a node ---- */

const char *fx_leaf(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? dot + 1 : target;
}

Distance fx_distance(const char *target, const char *scope)
{
    size_t n = strlen(target) - strlen(fx_leaf(target)), s = strlen(scope);
    n -= n > 0;
    if (n == s && !strncmp(target, scope, n))
        return OWN;
    bool inside = s < n && (s == 0 || target[s] == '.') && !strncmp(target, scope, s);
    bool around = n < s && (n == 0 || scope[n] == '.') && !strncmp(target, scope, n);
    return inside || around ? NEAR : FAR;
}

const char *fx_path_from(const char *target, const char *scope)
{
    size_t n = strlen(scope);
    bool inside = n == 0 || (!strncmp(target, scope, n) && target[n] == '.');
    return inside ? target + n + (n > 0) : fx_leaf(target);
}

bool fx_is_near(const RawNode *n, const char *target)
{
    return fx_distance(target, n->scope) != FAR;
}

bool fx_reads(const RawNode *n, const char *target)
{
    return fx_is_near(n, target) &&
           text_reads(text_last(n->stack), fx_path_from(target, n->scope));
}

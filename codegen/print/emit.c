/*
 * emit.c - text of generated programs: its lines, and the only two doors through which a
 * model's strings pass: cg_comment() and cg_string().  Everything else printed is made of our own
 * numbers and words.
 */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cg.h"

enum { WIDTH = 120 };

/* Does one of the operators before which a line may be cut stand here? */
static bool at_operator(const char *p)
{
    static const char *const before[] = {" + ", " - ", " * ", " && ", " || ",
                                         " ? ", " : ", " = ", "; "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strncmp(p, before[i], strlen(before[i])) == 0)
            return true;
    return false;
}

/* Where a line that is too long is cut: behind a comma or before an operator, not within brackets
 * or braces where that can be; NULL: nowhere. */
static const char *cut(const char *s, int room)
{
    const char *at = NULL, *within = NULL;
    int depth = 0;
    for (const char *p = s; *p && p - s < room; p++) {
        const char **best = depth == 0 ? &at : &within;
        depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
        if (p > s && p[-1] == ',' && *p == ' ')
            *best = p;
        else if (p > s && at_operator(p) && !(*best && p - *best < 30))         /* rather a comma */
            *best = *p == ';' ? p + 1 : p;
    }
    return at ? at : within;
}

static void indented(Text *t, int indent, const char *s, int n)
{
    for (int i = 0; i < indent && n > 0; i++)
        text_add(t, "    ");
    text_add(t, "%.*s\n", n, s);
}

static void put_line(Text *t, const char *all)
{
    const char *s = all;
    int indent = t->indent;
    bool comment = strncmp(s, "//", 2) == 0,
         whole = strchr(s, TEXT_LATER) ||
                 (!comment && (strpbrk(s, "\"\n#") || strstr(s, " // ")));
    while ((int)strlen(s) + 4 * (indent + (comment && s != all)) > WIDTH && !whole) {
        const char *at = cut(s, WIDTH - 4 * (indent + (comment && s != all)) + 1);
        if (!at)
            break;
        if (comment && s != all)
            indented(t, indent, arena_printf(t->a, "//  %.*s", (int)(at - s), s),
                     (int)(at - s) + 4);
        else
            indented(t, indent, s, (int)(at - s));
        s = at + 1;
        if (!comment && indent == t->indent)
            indent++;
    }
    if (comment && s != all)
        s = arena_printf(t->a, "//  %s", s);
    indented(t, indent, s, (int)strlen(s));
}

void text_line(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_line(t, arena_vprintf(t->a, fmt, ap));
    va_end(ap);
}

void text_lines(Text *t, const char *lines)
{
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        const size_t blank = strspn(lines, " ") / 4 * 4;
        t->indent = (int)blank / 4;
        put_line(t, arena_strndup(t->a, lines + blank, (size_t)(end - lines) - blank));
    }
    t->indent = 0;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool in_comment(const char *code, const char *p)
{
    bool is = false;
    for (; p > code && p[-1] != '\n'; p--)
        is |= p[-1] == '/' && p[0] == '/';
    return is;
}

bool text_has(const char *code, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = code; (p = strstr(p, name)); p += n) {
        const char before = p == code ? ' ' : p[-1];
        if (!is_word(before) && before != '.' && before != '>' && before != TEXT_LATER &&
            !is_word(p[n]) && !in_comment(code, p))
            return true;
    }
    return false;
}

void text_open(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_line(t, arena_vprintf(t->a, fmt, ap));
    va_end(ap);
    t->indent++;
}

void text_close(Text *t)
{
    t->indent--;
    put_line(t, "}");
}

void text_item(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_add(t, "%s%s", t->n ? ", " : "", arena_vprintf(t->a, fmt, ap));
    va_end(ap);
}

/* "/h.0/attn" and "/h.1/attn": "/h.#/attn", which goes on with a third; the first itself, when they
 * differ in more than numbers. */
const char *text_pattern(Arena *a, const char *x, const char *y)
{
    char *out = arena_alloc(a, strlen(x) + 2), *to = out;
    const char *from = x;
    while (*x || *y) {
        size_t m = strspn(x, "0123456789#"), n = strspn(y, "0123456789#");
        if (m > 0 && n > 0 && (m != n || memcmp(x, y, m) != 0)) {
            *to++ = '#';
        } else if (m > 0 && m == n) {
            memcpy(to, x, m);
            to += m;
        } else if (*x != *y) {
            return from;
        } else {
            *to++ = *x;
            m = n = 1;
        }
        x += m;
        y += n;
    }
    return out;
}

const char *text_numbers(Arena *a, const int64_t *x, int n)
{
    Text t = {.a = a};
    for (int i = 0; i < n; i++)
        text_item(&t, "%" PRId64, x[i]);
    return text_all(&t);
}

void text_noted(Text *t, int column, const char *code, const char *note)
{
    int used = 4 * t->indent + ((int)strlen(code) > column ? (int)strlen(code) : column) + 4;
    int room = WIDTH - used, n = (int)strlen(note);
    const char *name = strchr(note, ' ');
    if (used >= WIDTH - 20) {
        text_line(t, "// %s", note);
        text_line(t, "%s", code);
        return;
    }
    int before = name ? (int)(name - note) + (strncmp(name, " in ", 4) == 0 ? 4 : 1) : 0;
    if (n <= room)
        text_line(t, "%-*s // %s", column, code, note);
    else if (before + 12 <= room)
        text_line(t, "%-*s // %.*s..%s", column, code, before, note,
                  note + n - (room - before - 2));
    else
        text_line(t, "%-*s // %.*s..", column, code, room - 2, note);
}

/* Printable, without an end of comment, a trigraph or a trailing backslash; long names are cut. */
const char *cg_comment(Arena *a, const char *s)
{
    enum { LONGEST = 160 };
    size_t n = strlen(s);
    char *out = arena_alloc(a, (n > LONGEST ? LONGEST : n) + 8);
    size_t k = 0;
    for (size_t i = 0; i < n && k < LONGEST; i++) {
        char c = s[i];
        bool plain = c >= 32 && c < 127 && c != '\\' && c != '?';
        if (c == '/' && k > 0 && out[k - 1] == '*')
            plain = false;
        if (c == '*' && k > 0 && out[k - 1] == '/')
            plain = false;
        out[k++] = plain ? c : '_';
    }
    if (n > LONGEST)
        memcpy(out + k, "...", 4);
    else
        out[k] = '\0';
    return out;
}

const char *cg_string(Arena *a, const char *s)
{
    size_t n = strlen(s), k = 0;
    char *out = arena_alloc(a, 4 * n + 3);
    out[k++] = '"';
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 32 && c < 127 && c != '\\' && c != '"' && c != '?') {
            out[k++] = (char)c;
        } else {                                        /* three octal digits end the escape */
            out[k++] = '\\';
            out[k++] = (char)('0' + (c >> 6));
            out[k++] = (char)('0' + ((c >> 3) & 7));
            out[k++] = (char)('0' + (c & 7));
        }
    }
    out[k++] = '"';
    out[k] = '\0';
    return out;
}

const char *cg_node_text(const Graph *g, NodeId id)
{
    const Node *n = &g->node.at[id];
    const char *op = n->op == OP_Identity ? "copy" : op_name(n->op);
    if (n->origin >= g->origin.n || !g->origin.at[n->origin].name || !*g->origin.at[n->origin].name)
        return op;
    return arena_printf(g->arena, "%s %s", op, cg_comment(g->arena, g->origin.at[n->origin].name));
}

/*
 * svg.c - what all figures of the page share: colours in light and dark, how wide letters are, how
 * an SVG begins and ends, and how a figure stands in the page.
 *
 * A figure is drawn in currentColor within groups of a class: c0 .. c7 for stages and curves
 * (colours that are told apart with every kind of colour blindness, 3 : 1 on their ground at
 * least), soft for what is less important, rule for lines behind all, paper for the ground.  In the
 * page the classes are those of its own style; a figure in a file has them with it.
 */
#include <string.h>

#include "figures.h"

const char *const page_colours =
    "svg { color: #1d222b; font-variant-numeric: tabular-nums }\n"
    ".c0 { color: #2b6cb0 } .c1 { color: #c2570c } .c2 { color: #0b8060 } .c3 { color: #a3418f }\n"
    ".c4 { color: #8a6d00 } .c5 { color: #1d8a9e } .c6 { color: #8f5a3c } .c7 { color: #66707f }\n"
    ".soft { color: #586273 } .rule { color: #d3d9e1 } .paper { color: #fff }\n"
    "@media screen and (prefers-color-scheme: dark) {\n"
    "svg { color: #e3e7ed }\n"
    ".c0 { color: #6cabf0 } .c1 { color: #f0925a } .c2 { color: #45c29c } .c3 { color: #dc8bcb }\n"
    ".c4 { color: #d9b83f } .c5 { color: #5cc8dc } .c6 { color: #c99a7c } .c7 { color: #a2adbd }\n"
    ".soft { color: #a4aebd } .rule { color: #363d48 } .paper { color: #14181e }\n"
    "}\n";

const char *html_text(Arena *a, const char *s)
{
    const char *t = diag_escape(a, s);
    char *out = arena_alloc(a, 6 * strlen(t) + 1), *at = out;
    for (; *t; t++) {
        const char *entity = *t == '&'    ? "&amp;"
                             : *t == '<'  ? "&lt;"
                             : *t == '>'  ? "&gt;"
                             : *t == '"'  ? "&quot;"
                             : *t == '\'' ? "&#39;"
                                          : NULL;
        if (entity)
            at = stpcpy(at, entity);
        else
            *at++ = *t;
    }
    return out;
}

Text svg_begin(Arena *a, double width, double height, const char *title)
{
    Text t = {.a = a};
    text_add(
        &t,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" role=\"img\" font-family=\"Helvetica, Arial, 'DejaVu Sans', "
        "sans-serif\" font-size=\"%d\" fill=\"currentColor\">\n<title>%s</title>\n",
        width, height, width, height, SVG_EM, title);
    return t;
}

const char *svg_end(Text *t)
{
    text_add(t, "</svg>\n");
    return text_all(t);
}

const char *svg_file(Arena *a, const char *svg, size_t n)
{
    size_t tag = strcspn(svg, ">") + 1;
    return arena_printf(a, "%.*s\n<style>\n%s</style>%.*s", (int)tag, svg, page_colours,
                        (int)(n - tag), svg + tag);
}

/* Ems, as in DejaVu Sans, the widest of those that are usual. */
static double letter(unsigned char c)
{
    return strchr("ijlI.,:;|'!", c)                         ? 0.34
           : strchr("frt()[]-/ ", c)                        ? 0.41
           : strchr("mwMW@%", c)                            ? 0.98
           : (c >= 'A' && c <= 'Z') || strchr("+=<>~#_", c) ? 0.77
                                                            : 0.64;
}

double text_width(const char *s, double size)
{
    double ems = 0;
    for (; *s; s++)
        if ((unsigned char)*s < 0x80)
            ems += letter((unsigned char)*s);
        else if (((unsigned char)*s & 0xc0) == 0xc0)
            ems += 1;
    return ems * size;
}

/* Of a long name both ends: the end tells modules apart. */
const char *text_shortened(Arena *a, const char *s, double size, double width)
{
    size_t n = strlen(s), head, tail, most = (size_t)(4 * width / size) + 4;
    if (n <= most && text_width(s, size) <= width)
        return s;
    for (size_t keep = n - 1 < most ? n - 1 : most; keep > 2; keep--) {
        for (head = keep / 3; head && ((unsigned char)s[head] & 0xc0) == 0x80;)
            head--;
        for (tail = n - (keep - keep / 3); s[tail] && ((unsigned char)s[tail] & 0xc0) == 0x80;)
            tail++;
        const char *out = arena_printf(a, "%.*s...%s", (int)head, s, s + tail);
        if (text_width(out, size) <= width)
            return out;
    }
    return "...";
}

/* ---- in the page ---- */

void put_figure(Text *t, Figure x, const char *class)
{
    text_add(t,
             "<figure id=\"figure-%s\"%s>\n<figcaption><b>%s.</b> %s</figcaption>\n<div>%s</div>\n"
             "</figure>\n",
             x.name, class, x.title, x.caption, x.svg);
}

const char *numbered(Arena *a, const char *name, uint32_t k)
{
    return k ? arena_printf(a, "%s-%u", name, k + 1) : name;
}

void put_fact(Text *t, const char *name, const char *value)
{
    text_add(t, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

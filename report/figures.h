/*
 * figures.h - the figures of the page and how they are put into it.  Private to report/.
 */
#ifndef PPSPLIT_REPORT_FIGURES_H
#define PPSPLIT_REPORT_FIGURES_H

#include "partition/print/print.h"

/* ---- svg.c: what all figures share ---- */

enum { PAGE_COLOURS = 8, SVG_EM = 12 };
extern const char *const page_colours;          /* CSS: what the classes of figures look like */
const char *html_text(Arena *a, const char *s); /* printable, and escaped for XHTML */
/* Begins an SVG, its title as XHTML; it ends with "</svg>\n". */
Text svg_begin(Arena *a, double width, double height, const char *title);
const char *svg_end(Text *t);
/* As it stands in a file of its own: the first n bytes of svg, with the colours. */
const char *svg_file(Arena *a, const char *svg, size_t n);
/* Pixels at most, in the fonts that figures ask for; and a text cut in the middle to fit */
double text_width(const char *s, double size);
const char *text_shortened(Arena *a, const char *s, double size, double width);

/* A figure in the page.  name: of its file, without ending; class: an attribute, or "". */
typedef struct {
    const char *name;
    const char *title, *caption; /* XHTML */
    const char *svg;
} Figure;
void put_figure(Text *t, Figure x, const char *class);
/* Several figures of one name: the k-th from the second on has its number. */
const char *numbered(Arena *a, const char *name, uint32_t k);
/* An entry of the list of facts at the top of the page */
void put_fact(Text *t, const char *name, const char *value);

/* ---- figures.c: lines over one another, memory of ranks ---- */

typedef struct {
    const char *label;
    uint32_t n;
    double *at, *value; /* a value that is NAN: a gap */
    bool dots;          /* a dot at each point, where these are few */
} Curve;
/* x, y: of the axes, with their units */
const char *draw_curves(Arena *a, uint32_t n, const Curve *curve, const char *x, const char *y);

/* A rank's bytes over the step, each held until the next point; planned: at most, -1: unknown */
typedef struct {
    uint32_t n;
    const double *at, *bytes;
    double planned;
} Lane;
/* whole: of the time axis, whose name is x */
const char *draw_lanes(Arena *a, uint32_t n, const Lane *lane, double whole, const char *x);

/* ---- table.c: numbers of the stages beside one another ---- */

typedef struct {
    const char *name;
    double *value;     /* per stage */
    const char **text; /* per stage */
} Quantity;
/* A row for each stage, and below how far each quantity is from even; label: of each stage, or
 * NULL. */
void put_balance(Text *t, uint32_t stages, const char *const *label, uint32_t n,
                 const Quantity *quantity);

/* ---- drawing.c: the modules in their stages ---- */

const char *draw_modules(Arena *a, const Pipe *p); /* NULL: there are too many of them */

#endif

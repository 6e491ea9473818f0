/*
 * page_draw.c - figures of the page that are no schedules: curves, and the stages with what
 * crosses.
 *
 * In: numbers.  Out: SVG that stands by itself, drawn in the colour of the text around it, so that
 * it shows on light ground and on dark.  No text is placed where another can be: each label has a
 * row, or a column, of its own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

static const char *const colour[] = {"#4477aa", "#ee6677", "#228833",
                                     "#aa8800", "#66a5c8", "#aa3377"};
enum { COLOURS = sizeof colour / sizeof *colour };

FILE *page_open(Memory *m)
{
    FILE *f = memory_open(m);
    if (!f)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    return f;
}

const char *page_text(Arena *a, FILE *f, Memory *m)
{
    if (memory_close(f, m))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    const char *out = arena_strndup(a, m->at, m->n);
    free(m->at);
    return out;
}

static FILE *begin(Memory *m, double width, double height, const char *title)
{
    FILE *f = page_open(m);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" role=\"img\" font-family=\"sans-serif\" font-size=\"11\" "
            "fill=\"currentColor\">\n<title>%s</title>\n",
            width, height, width, height, title);
    return f;
}

/* ---- curves ---- */

enum { WIDTH = 520, PLOT = 180, LEFT = 78, RIGHT = 12, TOP = 24, ROW = 15, MOST_POINTS = 1000 };

typedef struct {
    double least, most;
} Range;

static Range range(uint32_t n, const Curve *c, bool values)
{
    Range r = {HUGE_VAL, -HUGE_VAL};
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < c[k].n; i++) {
            double v = values ? c[k].value[i] : c[k].at[i];
            if (!isfinite(v) || !isfinite(c[k].value[i]))
                continue;
            r.least = v < r.least ? v : r.least;
            r.most = v > r.most ? v : r.most;
        }
    return r;
}

/* Beyond the colours. */
static const char *dash(uint32_t k)
{
    return k < COLOURS       ? ""
           : k < 2 * COLOURS ? " stroke-dasharray=\"6 3\""
                             : " stroke-dasharray=\"2 3\"";
}

/* Of many points every k-th, and the last. */
static void polyline(FILE *f, const Curve *c, uint32_t k, Range x, Range y, bool steps)
{
    uint32_t by = c->n > MOST_POINTS ? (c->n + MOST_POINTS - 1) / MOST_POINTS : 1;
    bool open = false;
    double dx = x.most > x.least ? (WIDTH - LEFT - RIGHT) / (x.most - x.least) : 0,
           dy = y.most > y.least ? PLOT / (y.most - y.least) : 0, before = 0;
    for (uint32_t i = 0; i < c->n; i = i + by < c->n || i == c->n - 1 ? i + by : c->n - 1) {
        if (!isfinite(c->value[i]) || !isfinite(c->at[i])) {
            fputs(open ? "\"/>\n" : "", f);
            open = false;
            continue;
        }
        double px = LEFT + (c->at[i] - x.least) * dx,
               py = dy > 0 ? TOP + PLOT - (c->value[i] - y.least) * dy : TOP + PLOT / 2.0;
        if (!open)
            fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s points=\"",
                    colour[k % COLOURS], dash(k));
        else if (steps)
            fprintf(f, "%.1f,%.1f ", px, before);
        fprintf(f, "%.1f,%.1f ", px, py);
        open = true;
        before = py;
    }
    fputs(open ? "\"/>\n" : "", f);
}

const char *draw_curves(Arena *a, uint32_t n, const Curve *curve, const char *x, const char *y,
                        bool steps)
{
    Memory m;
    Range rx = range(n, curve, false), ry = range(n, curve, true);
    bool empty = !(ry.least <= ry.most);
    double base = TOP + PLOT, height = base + 2 * ROW + 8 + (n > 1 ? ROW * (int)n : 0);
    FILE *f = begin(&m, WIDTH, height, html_text(a, arena_printf(a, "%s by %s", y, x)));
    fprintf(f, "<text x=\"4\" y=\"14\">%s</text>\n", html_text(a, y));
    fprintf(f,
            "<path d=\"M%d %dV%.0fH%d\" fill=\"none\" stroke=\"currentColor\" "
            "stroke-opacity=\"0.6\"/>\n",
            LEFT, TOP, base, WIDTH - RIGHT);
    if (empty) {
        fprintf(f, "<text x=\"%d\" y=\"%d\">no number</text>\n", LEFT + 20, TOP + PLOT / 2);
    } else {
        double end[2] = {ry.most, ry.least};
        for (int k = ry.most > ry.least ? 0 : 1; k < 2; k++) {
            double at = ry.most > ry.least ? (k ? base : TOP + 4) : TOP + PLOT / 2.0;
            fprintf(f, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.5g</text>\n", LEFT - 6, at,
                    end[k]);
        }
        fprintf(f,
                "<text x=\"%d\" y=\"%.0f\">%.5g</text>\n<text x=\"%d\" y=\"%.0f\" "
                "text-anchor=\"end\">%.5g</text>\n",
                LEFT, base + ROW, rx.least, WIDTH - RIGHT, base + ROW, rx.most);
    }
    fprintf(f, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, base + ROW, html_text(a, x));
    for (uint32_t k = 0; k < n; k++) {
        polyline(f, &curve[k], k, rx, ry, steps);
        if (n == 1)
            continue;
        double at = base + 2 * ROW + 8 + ROW * k;
        fprintf(f,
                "<path d=\"M%d %.0fh30\" stroke=\"%s\" stroke-width=\"1.6\"%s/><text x=\"%d\" "
                "y=\"%.0f\">%s</text>\n",
                LEFT, at - 4, colour[k % COLOURS], dash(k), LEFT + 38, at,
                html_text(a, curve[k].label));
    }
    fputs("</svg>\n", f);
    return page_text(a, f, &m);
}

/* ---- stages ---- */

enum { BOX_X = 10, BOX_W = 300, BOX_H = 44, PITCH = 88, COLUMN = 118 };

/* All that goes from one stage to another, by kind. */
typedef struct {
    uint32_t from, to, n, column;
    int64_t bytes;
    bool parameter;
} Bundle;
typedef VEC(Bundle) Bundles;

static Bundles bundles(Arena *a, const PagePipe *p)
{
    Bundles b = {0};
    for (uint32_t i = 0; i < p->edge.n; i++) {
        const PageEdge *e = &p->edge.at[i];
        bool parameter = !strcmp(e->kind, "parameter");
        uint32_t k = 0, from = e->from < e->to ? e->from : e->to,
                 to = e->from < e->to ? e->to : e->from;
        while (k < b.n &&
               (b.at[k].from != from || b.at[k].to != to || b.at[k].parameter != parameter))
            k++;
        if (k == b.n)
            vec_push(a, &b, ((Bundle){.from = from, .to = to, .parameter = parameter}));
        b.at[k].n++;
        b.at[k].bytes += e->bytes;
    }
    return b;
}

static bool beside(const Bundle *b) { return b->to - b->from > 1 || b->parameter; }

/* The first column in which nothing else is between these stages; how many there are. */
static uint32_t place(Bundles *b)
{
    uint32_t columns = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        Bundle *x = &b->at[i];
        for (uint32_t k = 0; beside(x) && k < i; k++) {
            const Bundle *y = &b->at[k];
            if (beside(y) && y->column == x->column && x->from < y->to && y->from < x->to) {
                x->column++;
                k = UINT32_MAX; /* all again */
            }
        }
        if (beside(x) && x->column >= columns)
            columns = x->column + 1;
    }
    return columns;
}

/* What has room in a box. */
static const char *shortened(Arena *a, const char *s)
{
    size_t n = 34;
    if (strlen(s) <= n)
        return s;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80) /* within a character */
        n--;
    return arena_printf(a, "%.*s...", (int)n, s);
}

const char *draw_stages(Arena *a, const PagePipe *p)
{
    Memory m;
    Bundles b = bundles(a, p);
    uint32_t columns = place(&b);
    double right = BOX_X + BOX_W, width = right + 30 + (columns ? columns * COLUMN : 10);
    FILE *f = begin(&m, width, 20.0 + PITCH * (p->stage.n - 1) + BOX_H, "stages, and what crosses");
    for (uint32_t i = 0; i < b.n; i++) {
        const Bundle *x = &b.at[i];
        double from = 10 + PITCH * (double)x->from, to = 10 + PITCH * (double)x->to,
               at = right + 24 + COLUMN * x->column;
        const char *text =
            arena_printf(a, "%s, %u value%s", bytes_text(a, x->bytes), x->n, x->n == 1 ? "" : "s");
        if (beside(x))
            fprintf(f,
                    "<path d=\"M%.0f %.0fH%.0fV%.0fH%.0f\" fill=\"none\" "
                    "stroke=\"currentColor\"%s/>\n<text x=\"%.0f\" y=\"%.0f\">%s</text><text "
                    "x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                    right, from + BOX_H - 8, at, to + 8, right,
                    x->parameter ? " stroke-dasharray=\"5 3\"" : "", at + 4,
                    (from + to + BOX_H) / 2 - 4, bytes_text(a, x->bytes), at + 4,
                    (from + to + BOX_H) / 2 + 10,
                    x->parameter ? "parameters" : arena_printf(a, "skips, %u", x->n));
        else
            fprintf(f,
                    "<path d=\"M%d %.0fV%.0f\" stroke=\"currentColor\" stroke-width=\"2\"/>\n<text "
                    "x=\"%d\" y=\"%.0f\">%s</text>\n",
                    BOX_X + 40, from + BOX_H, to, BOX_X + 50, (from + BOX_H + to) / 2 + 4, text);
    }
    for (uint32_t i = 0; i < p->stage.n; i++) {
        double y = 10 + PITCH * (double)i;
        fprintf(f,
                "<rect x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" "
                "fill-opacity=\"0.35\" stroke=\"%s\"/>\n<text x=\"%d\" y=\"%.0f\">"
                "<tspan font-weight=\"bold\">stage %u</tspan> %s</text><text x=\"%d\" "
                "y=\"%.0f\">%s parameters, %s operations</text>\n",
                BOX_X, y, BOX_W, BOX_H, colour[i % COLOURS], colour[i % COLOURS], BOX_X + 10,
                y + 18, i, html_text(a, shortened(a, p->stage.at[i].modules)), BOX_X + 10, y + 34,
                count_text(a, p->stage.at[i].parameters), count_text(a, p->stage.at[i].flops));
    }
    fputs("</svg>\n", f);
    return page_text(a, f, &m);
}

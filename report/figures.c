/*
 * figures.c - figures of numbers: curves, memory of ranks over a step.
 *
 * In: numbers.  Out: SVG by itself.  No text is placed where another can be: each label has a row,
 * or a column, of its own, as wide as svg.c says that it is.
 */
#include <math.h>
#include <string.h>

#include "figures.h"

enum { SMALL = 11, ROW = 16, MOST_POINTS = 1000, TICKS = 5 };

/* ---- axes ---- */

typedef struct {
    double least, most, step; /* of what is shown, and from mark to mark */
} Range;

/* 1, 2 or 5 times a power of ten, so that there are TICKS marks or fewer. */
static double round_step(double span)
{
    double ten = pow(10, floor(log10(span / TICKS)));
    static const double times[] = {1, 2, 5, 10};
    for (int k = 0; k < 3; k++)
        if (span / (times[k] * ten) <= TICKS)
            return times[k] * ten;
    return 10 * ten;
}

/* A little more than the numbers, so that it ends at marks.  What differs in the last digits only
   is drawn as equal: marks that tell it apart are wider than their column, and it is rounding. */
static Range marked(double least, double most)
{
    double span = most - least, size = fmax(fabs(most), fabs(least));
    if (!(span > 2e-5 * size)) {
        least = most;
        span = size > 0 ? size : 1;
    }
    Range r = {least, most, round_step(span)};
    r.least = floor(least / r.step + 1e-9) * r.step;
    r.most = ceil(most / r.step - 1e-9) * r.step;
    if (r.most <= r.least)
        r.most = r.least + r.step;
    return r;
}

static const char *mark_text(Arena *a, double v, double step)
{
    double size = fmax(fabs(v), step);
    if (size >= 1e12 || size < 1e-4)
        return arena_printf(a, "%.3g", fabs(v) < step / 2 ? 0 : v);
    if (size >= 1e6) {
        const double unit = size >= 1e9 ? 1e9 : 1e6;
        int digits = step < unit ? (int)ceil(-log10(step / unit) - 1e-9) : 0;
        return arena_printf(a, "%.*f %c", digits, v / unit, unit > 1e6 ? 'G' : 'M');
    }
    int digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    return arena_printf(a, "%.*f", digits, fabs(v) < step / 2 ? 0 : v);
}

/* ---- curves ---- */

enum { WIDTH = 480, PLOT = 190, LEFT = 62, RIGHT = 14, TOP = 30 };

typedef struct {
    Range x, y;
} Scale;

static double at_x(const Scale *s, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (x - s->x.least) / (s->x.most - s->x.least);
}

static double at_y(const Scale *s, double y)
{
    return TOP + PLOT * (s->y.most - y) / (s->y.most - s->y.least);
}

static bool find_scale(Scale *s, uint32_t n, const Curve *c)
{
    double x[2] = {HUGE_VAL, -HUGE_VAL}, y[2] = {HUGE_VAL, -HUGE_VAL};
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < c[k].n; i++)
            if (isfinite(c[k].at[i]) && isfinite(c[k].value[i])) {
                x[0] = fmin(x[0], c[k].at[i]);
                x[1] = fmax(x[1], c[k].at[i]);
                y[0] = fmin(y[0], c[k].value[i]);
                y[1] = fmax(y[1], c[k].value[i]);
            }
    if (!(y[0] <= y[1]) || y[1] - y[0] > 1e300)
        return false;
    s->y = marked(y[0], y[1]);
    double span = x[1] > x[0] ? x[1] - x[0] : 1;
    s->x = (Range){x[0], x[0] + span, round_step(span)};
    return true;
}

static void draw_grid(Arena *a, const Scale *s, Text *out)
{
    text_add(out, "<g class=\"rule\" stroke=\"currentColor\">");
    int marks = (int)lround((s->y.most - s->y.least) / s->y.step);
    for (int k = 0; k <= marks; k++)
        text_add(out, "<path d=\"M%d %.1fH%d\"/>", LEFT, at_y(s, s->y.least + k * s->y.step),
                 WIDTH - RIGHT);
    text_add(out, "</g>\n<g class=\"soft\" fill=\"currentColor\" font-size=\"11\">\n");
    for (int k = 0; k <= marks; k++)
        text_add(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 7,
                 at_y(s, s->y.least + k * s->y.step) + 4,
                 mark_text(a, s->y.least + k * s->y.step, s->y.step));
    double end = -HUGE_VAL; /* of the last text */
    for (double v = ceil(s->x.least / s->x.step - 1e-9) * s->x.step; v <= s->x.most * (1 + 1e-12);
         v += s->x.step) {
        const char *text = mark_text(a, v, s->x.step < 1 ? s->x.step : 1);
        double wide = text_width(text, SMALL), x = at_x(s, v);
        if (x - wide / 2 < end || x + wide / 2 > WIDTH)
            continue;
        text_add(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
                 TOP + PLOT + ROW, text);
        end = x + wide / 2 + 8;
    }
    text_add(out, "</g>\n");
}

/* Beyond the colours. */
static const char *dash(uint32_t k)
{
    return k < PAGE_COLOURS       ? ""
           : k < 2 * PAGE_COLOURS ? " stroke-dasharray=\"6 3\""
                                  : " stroke-dasharray=\"2 3\"";
}

/* Single points, which no line shows. */
static void draw_dots(const Scale *s, const Curve *c, Text *out)
{
    enum { FEW = 60 };
    for (uint32_t i = 0; i < c->n && c->n <= FEW && (c->dots || c->n == 1); i++)
        if (isfinite(c->value[i]) && isfinite(c->at[i]))
            text_add(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"currentColor\"/>",
                     at_x(s, c->at[i]), at_y(s, c->value[i]));
}

/* Of many points every k-th, and the last. */
static void draw_curve(const Scale *s, const Curve *c, uint32_t k, Text *out)
{
    uint32_t by = c->n > MOST_POINTS ? (c->n + MOST_POINTS - 1) / MOST_POINTS : 1;
    bool open = false;
    text_add(out,
             "<g class=\"c%u\" stroke=\"currentColor\" stroke-width=\"1.8\" fill=\"none\"%s "
             "stroke-linejoin=\"round\">",
             k % PAGE_COLOURS, dash(k));
    for (uint32_t i = 0; i < c->n; i = i + by < c->n || i == c->n - 1 ? i + by : c->n - 1) {
        if (!isfinite(c->value[i]) || !isfinite(c->at[i])) {
            text_add(out, "%s", open ? "\"/>" : "");
            open = false;
            continue;
        }
        double x = at_x(s, c->at[i]), y = at_y(s, c->value[i]);
        if (!open)
            text_add(out, "<polyline points=\"");
        text_add(out, "%.1f,%.1f ", x, y);
        open = true;
    }
    text_add(out, "%s", open ? "\"/>" : "");
    draw_dots(s, c, out);
    text_add(out, "</g>\n");
}

/* In as many columns as have room; how many rows. out NULL: only that. */
static uint32_t draw_names(Arena *a, uint32_t n, const Curve *c, double top, Text *out)
{
    double wide = 0;
    for (uint32_t k = 0; k < n; k++)
        wide = fmax(wide, text_width(c[k].label, SMALL) + 52);
    uint32_t columns = wide > 0 ? (uint32_t)((WIDTH - 8) / wide) : 1, rows;
    columns = columns < 1 ? 1 : columns;
    rows = (n + columns - 1) / columns;
    for (uint32_t k = 0; k < n && out; k++) {
        double x = 8 + wide * (k / rows), y = top + ROW * (k % rows);
        text_add(out,
                 "<g class=\"c%u\" stroke=\"currentColor\" stroke-width=\"2\"%s><path d=\"M%.0f "
                 "%.0fh26\"/></g><text x=\"%.0f\" y=\"%.0f\" font-size=\"%d\">%s</text>\n",
                 k % PAGE_COLOURS, dash(k), x, y - 4, x + 32, y, SMALL,
                 html_text(a, text_shortened(a, c[k].label, SMALL, WIDTH - 50)));
    }
    return rows;
}

const char *draw_curves(Arena *a, uint32_t n, const Curve *curve, const char *x, const char *y)
{
    Scale s;
    bool any = find_scale(&s, n, curve);
    double base = TOP + PLOT, names = base + 2.0 * ROW + 22;
    uint32_t rows = n > 1 ? draw_names(a, n, curve, 0, NULL) : 0;
    Text svg = svg_begin(a, WIDTH, rows ? names + ROW * (double)rows - 8 : base + 2.0 * ROW + 8,
                         html_text(a, arena_printf(a, "%s by %s", y, x))),
         *out = &svg;
    text_add(out, "<text x=\"4\" y=\"15\" font-weight=\"bold\">%s</text>\n", html_text(a, y));
    if (any) {
        draw_grid(a, &s, out);
        for (uint32_t k = 0; k < n; k++)
            draw_curve(&s, &curve[k], k, out);
    } else {
        text_add(out, "<text x=\"%d\" y=\"%d\">no number</text>\n", LEFT + 20, TOP + PLOT / 2);
    }
    text_add(out,
             "<g class=\"soft\" fill=\"currentColor\"><text x=\"%d\" y=\"%.0f\" "
             "text-anchor=\"middle\" font-size=\"%d\">%s</text></g>\n",
             (LEFT + WIDTH - RIGHT) / 2, base + 2 * ROW, SMALL, html_text(a, x));
    if (rows)
        draw_names(a, n, curve, names, out);
    return svg_end(out);
}

/* ---- memory of ranks ---- */

/* LANE_LEFT and LANE_RIGHT as draw.c has them: the same moments stand below one another. */
enum { LANES = 1000, LANE = 58, LANE_GAP = 28, LANE_LEFT = 60, LANE_RIGHT = 10 };

static void draw_lane(Arena *a, const Lane *l, uint32_t rank, double top, double whole, double most,
                      Text *out)
{
    double wide = LANES - LANE_LEFT - LANE_RIGHT, peak = 0, base = top + LANE, x = LANE_LEFT;
    bool planned = l->planned > 0;
    text_add(out,
             "<g class=\"c0\" fill=\"currentColor\" stroke=\"currentColor\"><path "
             "fill-opacity=\"0.25\" stroke-width=\"1.2\" d=\"M%d %.1f",
             LANE_LEFT, base);
    for (uint32_t i = 0; i < l->n; i++) {
        x = LANE_LEFT + wide * fmin(fmax(l->at[i] / whole, 0), 1);
        text_add(out, "H%.1fV%.1f", x, base - LANE * l->bytes[i] / most);
        peak = fmax(peak, l->bytes[i]);
    }
    text_add(out, "V%.1fz\"/></g>\n", base);
    if (planned)
        text_add(out,
                 "<g class=\"c1\" stroke=\"currentColor\" stroke-width=\"1.4\" "
                 "stroke-dasharray=\"6 3\"><path d=\"M%d %.1fH%.1f\"/></g>\n",
                 LANE_LEFT, base - LANE * l->planned / most, x);
    text_add(out,
             "<text x=\"4\" y=\"%.1f\" font-weight=\"bold\">rank %u</text>\n<text x=\"%d\" "
             "y=\"%.1f\" font-size=\"%d\">%sin use %s at most</text>\n",
             base - 4, rank, LANE_LEFT, top - 7, SMALL,
             planned ? arena_printf(a, "planned %s, ", bytes_text(a, (int64_t)l->planned)) : "",
             bytes_text(a, (int64_t)peak));
}

const char *draw_lanes(Arena *a, uint32_t n, const Lane *lane, double whole, const char *x)
{
    double most = 1, base = n * (double)(LANE + LANE_GAP), wide = LANES - LANE_LEFT - LANE_RIGHT;
    for (uint32_t r = 0; r < n; r++) {
        most = fmax(most, lane[r].planned);
        for (uint32_t i = 0; i < lane[r].n; i++)
            most = fmax(most, lane[r].bytes[i]);
    }
    Text svg = svg_begin(a, LANES, base + 2 * ROW + 6, "memory of each rank over the step"),
         *out = &svg;
    double step = round_step(whole);
    text_add(out, "<g class=\"soft\" fill=\"currentColor\" font-size=\"11\">\n");
    for (int k = 0; k * step <= whole * (1 + 1e-9); k++) {
        double at = LANE_LEFT + wide * k * step / whole;
        const char *text = mark_text(a, k * step, step);
        if (at + text_width(text, SMALL) / 2 < LANES)
            text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", at,
                     base + ROW, text);
    }
    text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text></g>\n",
             LANE_LEFT + wide / 2, base + 2 * ROW, html_text(a, x));
    text_add(out, "<g class=\"rule\" stroke=\"currentColor\">");
    for (int k = 0; k * step <= whole * (1 + 1e-9); k++)
        text_add(out, "<path d=\"M%.1f %d.5V%.1f\"/>", LANE_LEFT + wide * k * step / whole,
                 LANE_GAP, base);
    text_add(out, "</g>\n");
    for (uint32_t r = 0; r < n; r++)
        draw_lane(a, &lane[r], r, LANE_GAP + r * (double)(LANE + LANE_GAP), whole, most, out);
    return svg_end(out);
}

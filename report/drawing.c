/*
 * drawing.c - the modules in their stages: a band for each stage, a row for each module.
 *
 * In: the boxes and flows of modules.h.  Out: SVG.  Above its modules a band has a row for all that
 * a box of another stage sends there, to which a line leads from that box, on the right of the
 * bands.  Lines that pass each other have lanes of their own, the shortest the innermost.
 */
#include <math.h>
#include <stdlib.h>

#include "figures.h"
#include "modules.h"

enum {
    MARGIN = 14,
    PAD = 8,
    ROW_HIGH = 22,
    BOX_HIGH = 18,
    NAME_MOST = 300,
    NUMBER = 74,
    LANE_WIDE = 13,
    SMALL = 11,
    MOST_ROWS = 400
};

typedef struct {
    Arena *a;
    const Pipe *p;
    ModuleGraph g;
    double *box, *flow; /* the middle of their rows */
    double *top;        /* of each stage's band, and where the last one ends */
    uint32_t *lane;     /* by flow */
    double name, right; /* how wide names are; where bands end */
    uint32_t lanes;
} Drawing;

static uint32_t source(const Drawing *d, uint32_t flow)
{
    return d->g.box.at[d->g.flow.at[flow].from].stage;
}

/* "96 B, 2 values, from h.0.mlp"; "wte.weight shared, 3 KiB, from wte" */
static const char *flow_text(const Drawing *d, uint32_t i)
{
    const ModuleFlow *f = &d->g.flow.at[i];
    Text t = {.a = d->a};
    if (f->shared && f->name)
        text_add(&t, "%s shared, ", text_shortened(d->a, f->name, SMALL, 110));
    else if (f->shared)
        text_add(&t, "%u shared, ", f->values);
    text_add(&t, "%s", bytes_text(d->a, f->bytes));
    if (!f->shared && f->values > 1)
        text_add(&t, ", %u values", f->values);
    if (!f->shared && f->stage > source(d, i) + 1)
        text_add(&t, ", skips %u", f->stage - source(d, i) - 1);
    text_add(&t, ", from %s", text_shortened(d->a, d->g.box.at[f->from].name, SMALL, 110));
    return text_all(&t);
}

/* ---- places ---- */

static void find_rows(Drawing *d)
{
    double y = MARGIN;
    d->name = 150;
    for (uint32_t t = 0; t < d->p->stage.n; t++) {
        d->top[t] = y;
        y += PAD + ROW_HIGH;
        for (uint32_t i = 0; i < d->g.flow.n; i++)
            if (d->g.flow.at[i].stage == t) {
                d->flow[i] = y + ROW_HIGH / 2.0;
                d->name = fmax(d->name, text_width(flow_text(d, i), SMALL) - 2 * NUMBER);
                y += ROW_HIGH;
            }
        for (uint32_t i = 0; i < d->g.box.n; i++)
            if (d->g.box.at[i].stage == t) {
                d->box[i] = y + ROW_HIGH / 2.0;
                d->name = fmax(d->name, fmin(text_width(d->g.box.at[i].name, SVG_EM), NAME_MOST));
                y += ROW_HIGH;
            }
        y += 2 * PAD;
    }
    d->top[d->p->stage.n] = y;
    d->right = 2 * MARGIN + d->name + 2 * NUMBER + 4 * PAD;
}

static bool pass(const Drawing *d, uint32_t x, uint32_t y)
{
    const double a = d->box[d->g.flow.at[x].from], b = d->flow[x], c = d->box[d->g.flow.at[y].from],
                 e = d->flow[y];
    return fmax(fmin(a, b), fmin(c, e)) <= fmin(fmax(a, b), fmax(c, e));
}

static int by_length(const void *x, const void *y, void *drawing)
{
    const Drawing *d = drawing;
    const uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
    const double a = fabs(d->flow[i] - d->box[d->g.flow.at[i].from]),
                 b = fabs(d->flow[k] - d->box[d->g.flow.at[k].from]);
    return a != b ? (a > b) - (a < b) : (i > k) - (i < k);
}

static void find_lanes(Drawing *d)
{
    uint32_t *order = arena_array(d->a, uint32_t, d->g.flow.n);
    for (uint32_t i = 0; i < d->g.flow.n; i++)
        order[i] = i;
    qsort_r(order, d->g.flow.n, sizeof *order, by_length, d);
    for (uint32_t i = 0; i < d->g.flow.n; i++) {
        uint32_t *lane = &d->lane[order[i]];
        for (uint32_t k = 0; k < i; k++)
            if (d->lane[order[k]] == *lane && pass(d, order[k], order[i])) {
                ++*lane;
                k = NONE; /* from the first one again */
            }
        d->lanes = *lane >= d->lanes ? *lane + 1 : d->lanes;
    }
}

/* ---- drawing ---- */

static void draw_bands(const Drawing *d, Text *out)
{
    for (uint32_t t = 0; t < d->p->stage.n; t++) {
        const StageCost *s = &d->p->stage.at[t].cost;
        const double top = d->top[t], high = d->top[t + 1] - top - PAD;
        text_add(out,
                 "<g class=\"c%u\" fill=\"currentColor\"><rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" "
                 "height=\"%.1f\" rx=\"4\" fill-opacity=\"0.08\"/><rect x=\"%d\" y=\"%.1f\" "
                 "width=\"5\" height=\"%.1f\" rx=\"2\"/></g>\n",
                 t % PAGE_COLOURS, MARGIN, top, d->right - MARGIN, high, MARGIN, top, high);
        text_add(
            out,
            "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">stage %u</text>\n<g class=\"soft\" "
            "fill=\"currentColor\" font-size=\"%d\"><text x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"end\">%s parameters, %s operations</text></g>\n",
            2 * MARGIN, top + PAD + 15, t, SMALL, d->right - PAD, top + PAD + 15,
            count_text(d->a, s->parameters), count_text(d->a, s->flops_forward));
    }
}

static void draw_number(double right, double y, const char *text, Text *out)
{
    text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" font-size=\"%d\">%s</text>",
             right, y, SMALL, text);
}

static void draw_box(const Drawing *d, uint32_t i, Text *out)
{
    const ModuleBox *b = &d->g.box.at[i];
    const double y = d->box[i], wide = d->right - 2 * MARGIN - PAD;
    const char *parameters = count_text(d->a, b->parameters), *flops = count_text(d->a, b->flops);
    text_add(out,
             "<g><title>%s: stage %u, %u nodes, %s parameters, %s operations</title><g "
             "class=\"c%u\" fill=\"currentColor\"><rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" "
             "height=\"%d\" rx=\"3\" fill-opacity=\"0.18\"/></g>",
             html_text(d->a, b->name), b->stage, b->nodes, parameters, flops,
             b->stage % PAGE_COLOURS, 2 * MARGIN, y - BOX_HIGH / 2.0, wide, BOX_HIGH);
    text_add(out, "<text x=\"%d\" y=\"%.1f\">%s</text>", 2 * MARGIN + PAD, y + 4,
             html_text(d->a, text_shortened(d->a, b->name, SVG_EM, d->name)));
    if (b->parameters)
        draw_number(d->right - 2 * PAD - NUMBER, y + 4, parameters, out);
    draw_number(d->right - 2 * PAD, y + 4, flops, out);
    text_add(out, "</g>\n");
}

/* What a stage receives, and the line to it, of the colour of the stage that sends it. */
static void draw_flow(const Drawing *d, uint32_t i, Text *out)
{
    const ModuleFlow *f = &d->g.flow.at[i];
    const double x = d->right + LANE_WIDE * (d->lane[i] + 1.0), from = d->box[f->from],
                 to = d->flow[i];
    text_add(out,
             "<g class=\"c%u\" stroke=\"currentColor\" stroke-width=\"1.8\"><path fill=\"none\"%s "
             "d=\"M%.1f %.1fH%.1fV%.1fH%.1f\"/><path stroke=\"none\" fill=\"currentColor\" "
             "d=\"M%.1f %.1fl7 -4v8z\"/></g>\n",
             source(d, i) % PAGE_COLOURS, f->shared ? " stroke-dasharray=\"5 4\"" : "",
             d->right - PAD, from, x, to, d->right - PAD, d->right - 2 * PAD, to);
    text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" font-size=\"%d\">%s</text>\n",
             d->right - 2 * PAD - 5, to + 4, SMALL, html_text(d->a, flow_text(d, i)));
}

const char *draw_modules(Arena *a, const Pipe *p)
{
    Drawing d = {.a = a, .p = p, .g = module_graph(p, a)};
    const uint32_t boxes = d.g.box.n, flows = d.g.flow.n;
    if (!boxes || boxes + flows > MOST_ROWS)
        return NULL;
    d.box = arena_array(a, double, boxes);
    d.flow = arena_array(a, double, flows);
    d.lane = arena_array(a, uint32_t, flows);
    d.top = arena_array(a, double, p->stage.n + 1);
    find_rows(&d);
    find_lanes(&d);
    Text text = svg_begin(a, d.right + LANE_WIDE * (d.lanes + 1.0),
                          d.top[p->stage.n] + MARGIN - PAD, "modules by stage, and what crosses");
    draw_bands(&d, &text);
    for (uint32_t i = 0; i < boxes; i++)
        draw_box(&d, i, &text);
    for (uint32_t i = 0; i < flows; i++)
        draw_flow(&d, i, &text);
    return svg_end(&text);
}

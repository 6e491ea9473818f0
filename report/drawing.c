/*
 * drawing.c - the module graph: a layered drawing, a band for each stage.
 *
 * In: the boxes and flows of modules.h.  Out: SVG.  A box stands in a layer below all that it
 * reads; stages follow each other from top to bottom.  What crosses into a stage passes a label
 * above its band, one for each box that it comes from: all of what that box sends there.  A flow
 * over several layers passes a bend in each.
 */
#include <math.h>
#include <string.h>

#include "figures.h"
#include "layout.h"
#include "modules.h"

enum {
    GUTTER = 150,
    MARGIN = 14,
    GAP = 26,
    BOX_HIGH = 38,
    PILL_HIGH = 22,
    LABEL_HIGH = 20,
    LAYER_GAP = 24,
    BAND_PAD = 13,
    LABEL_PAD = 8,
    BOX_MOST = 190,
    MOST_DRAWN = 400,
    MOST_SPANS = 4000,
    SMALL = 11,
    LEGEND = 40,
};

typedef enum { IS_BOX, IS_LABEL, IS_BEND } PlaceKind;

/* What stands in the layout, beside LayoutBox of the same number. */
typedef struct {
    PlaceKind kind;
    uint32_t box;     /* IS_BOX: of the pipe; else whose colour it has */
    const char *text; /* in the box, as long as there is room; unescaped */
    bool shared;      /* of a shared parameter: broken lines */
    double top, high;
} Place;

/* All that a box sends into another stage, activations or parameters. */
typedef struct {
    uint32_t from, stage, place;
    bool shared;
    int64_t bytes;
    uint32_t values;
    const char *name; /* of the only parameter */
    Ids to;
} Bundle;

typedef struct {
    uint32_t box;
    bool shared, crosses;
} Line;

typedef struct {
    Arena *a;
    const Pipe *p;
    const ModuleGraph *g;
    Layout layout;
    VEC(Place) place;
    VEC(Bundle) bundle;
    uint32_t *layer;  /* per box of the pipe */
    uint32_t *labels; /* per stage: the layer of labels above it; none above the first */
    VEC(Line) line;   /* per edge of the layout */
    double *top;      /* per layer */
    uint32_t *band_begin, *band_end; /* per stage, layers */
    double width, height;
} Drawing;

static const ModuleBox *module(const Drawing *d, uint32_t box) { return &d->g->box.at[box]; }

static bool within(const Drawing *d, const ModuleFlow *e)
{
    return module(d, e->from)->stage == module(d, e->to)->stage;
}

/* ---- layers ---- */

/* A layer below all that it reads; then what reads nothing comes down to what reads it. */
static uint32_t *find_depths(const Drawing *d)
{
    uint32_t n = d->g->box.n, *depth = arena_array(d->a, uint32_t, n),
             *next = arena_array(d->a, uint32_t, n);
    bool *reads = arena_array(d->a, bool, n), more = true;
    for (uint32_t round = 0; more && round < n; round++) {
        more = false;
        for (uint32_t i = 0; i < d->g->flow.n; i++) {
            const ModuleFlow *e = &d->g->flow.at[i];
            reads[e->to] = true;
            if (!within(d, e) || depth[e->to] > depth[e->from])
                continue;
            depth[e->to] = depth[e->from] + 1;
            more = true;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        next[i] = UINT32_MAX;
    for (uint32_t i = 0; i < d->g->flow.n; i++) {
        const ModuleFlow *e = &d->g->flow.at[i];
        if (within(d, e) && depth[e->to] < next[e->from])
            next[e->from] = depth[e->to];
    }
    for (uint32_t i = 0; i < n; i++)
        if (!reads[i] && next[i] != UINT32_MAX)
            depth[i] = next[i] - 1;
    return depth;
}

static void find_layers(Drawing *d)
{
    uint32_t stages = d->p->stage.n, at = 0;
    uint32_t *depth = find_depths(d), *deep = arena_array(d->a, uint32_t, stages);
    bool *entered = arena_array(d->a, bool, stages);
    for (uint32_t i = 0; i < d->g->box.n; i++) {
        uint32_t t = module(d, i)->stage;
        deep[t] = depth[i] + 1 > deep[t] ? depth[i] + 1 : deep[t];
    }
    for (uint32_t i = 0; i < d->g->flow.n; i++) {
        const ModuleFlow *e = &d->g->flow.at[i];
        if (!within(d, e))
            entered[module(d, e->to)->stage] = true;
    }
    d->labels = arena_array(d->a, uint32_t, stages);
    d->band_begin = arena_array(d->a, uint32_t, stages);
    d->band_end = arena_array(d->a, uint32_t, stages);
    for (uint32_t t = 0; t < stages; t++) {
        d->labels[t] = at;
        at += entered[t];
        d->band_begin[t] = at;
        at += deep[t] ? deep[t] : 1;
        d->band_end[t] = at - 1;
    }
    d->layout.layers = at;
    d->layer = arena_array(d->a, uint32_t, d->g->box.n);
    for (uint32_t i = 0; i < d->g->box.n; i++)
        d->layer[i] = d->band_begin[module(d, i)->stage] + depth[i];
}

/* ---- boxes, labels and bends ---- */

static uint32_t add_place(Drawing *d, uint32_t layer, double width, Place x)
{
    vec_push(d->a, &d->layout.box,
             ((LayoutBox){.layer = layer, .width = width, .bend = x.kind == IS_BEND}));
    vec_push(d->a, &d->place, x);
    return d->place.n - 1;
}

static const char *numbers_of(const Drawing *d, const ModuleBox *m)
{
    return arena_printf(d->a, "%s, %s", count_text(d->a, m->parameters),
                        count_text(d->a, m->flops));
}

static void add_boxes(Drawing *d)
{
    for (uint32_t i = 0; i < d->g->box.n; i++) {
        const ModuleBox *m = module(d, i);
        bool box = m->kind == BOX_MODULE;
        Place x = {IS_BOX, i, text_shortened(d->a, m->name, box ? SVG_EM : SMALL, BOX_MOST),
                   false,  0, box ? BOX_HIGH : PILL_HIGH};
        double wide = text_width(x.text, box ? SVG_EM : SMALL);
        if (box)
            wide = fmax(fmax(wide, text_width(numbers_of(d, m), SMALL)), 70);
        add_place(d, d->layer[i], wide + 22, x);
    }
}

/* A line from place to place, with a bend in each layer between. */
static void connect(Drawing *d, uint32_t from, uint32_t to, Line how)
{
    for (uint32_t t = d->layout.box.at[from].layer + 1; t < d->layout.box.at[to].layer; t++) {
        uint32_t bend = add_place(d, t, 6, (Place){.kind = IS_BEND, .box = how.box});
        vec_push(d->a, &d->layout.edge, ((LayoutEdge){from, bend}));
        vec_push(d->a, &d->line, how);
        from = bend;
    }
    vec_push(d->a, &d->layout.edge, ((LayoutEdge){from, to}));
    vec_push(d->a, &d->line, how);
}

static void add_bundle(Drawing *d, const ModuleFlow *e)
{
    bool shared = e->kind != EDGE_ACTIVATION;
    uint32_t stage = module(d, e->to)->stage, k = 0;
    while (k < d->bundle.n && (d->bundle.at[k].from != e->from || d->bundle.at[k].stage != stage ||
                               d->bundle.at[k].shared != shared))
        k++;
    if (k == d->bundle.n)
        vec_push(d->a, &d->bundle, ((Bundle){.from = e->from, .stage = stage, .shared = shared}));
    Bundle *b = &d->bundle.at[k];
    b->name = b->values ? NULL : e->name;
    b->values += e->values;
    b->bytes = __builtin_add_overflow(b->bytes, e->bytes, &b->bytes) ? INT64_MAX : b->bytes;
    vec_push(d->a, &b->to, e->to);
}

static const char *label_of(const Drawing *d, const Bundle *b)
{
    const char *bytes = bytes_text(d->a, b->bytes);
    uint32_t over = b->stage - module(d, b->from)->stage - 1;
    if (b->shared)
        return b->name ? arena_printf(d->a, "%s shared, %s",
                                      text_shortened(d->a, b->name, SMALL, 110), bytes)
                       : arena_printf(d->a, "%u shared, %s", b->values, bytes);
    if (over)
        return arena_printf(d->a, "%s, skips %u", bytes, over);
    return b->values > 1 ? arena_printf(d->a, "%s, %u values", bytes, b->values) : bytes;
}

static void add_lines(Drawing *d)
{
    for (uint32_t i = 0; i < d->g->flow.n; i++) {
        const ModuleFlow *e = &d->g->flow.at[i];
        if (within(d, e))
            connect(d, e->from, e->to, (Line){e->from, false, false});
        else
            add_bundle(d, e);
    }
    for (uint32_t i = 0; i < d->bundle.n; i++) {
        Bundle *b = &d->bundle.at[i];
        const char *text = label_of(d, b);
        b->place = add_place(d, d->labels[b->stage], text_width(text, SMALL) + 14,
                             (Place){IS_LABEL, b->from, text, b->shared, 0, LABEL_HIGH});
        connect(d, b->from, b->place, (Line){b->from, b->shared, true});
        for (uint32_t k = 0; k < b->to.n; k++)
            connect(d, b->place, b->to.at[k], (Line){b->from, b->shared, true});
    }
}

/* ---- places ---- */

static void find_tops(Drawing *d)
{
    double *high = arena_array(d->a, double, d->layout.layers), at = MARGIN;
    d->top = arena_array(d->a, double, d->layout.layers);
    for (uint32_t i = 0; i < d->place.n; i++) {
        double *h = &high[d->layout.box.at[i].layer];
        *h = fmax(fmax(*h, d->place.at[i].high), PILL_HIGH);
    }
    for (uint32_t t = 0; t < d->p->stage.n; t++) {
        at += t ? LABEL_PAD : 0;
        if (d->labels[t] < d->band_begin[t]) {
            d->top[d->labels[t]] = at;
            at += high[d->labels[t]] + LABEL_PAD;
        }
        at += BAND_PAD;
        for (uint32_t k = d->band_begin[t]; k <= d->band_end[t]; k++) {
            if (d->band_begin[t] == d->band_end[t])
                high[k] = BOX_HIGH; /* room for what the stage says */
            d->top[k] = at;
            at += high[k] + (k < d->band_end[t] ? LAYER_GAP : BAND_PAD);
        }
    }
    for (uint32_t i = 0; i < d->place.n; i++) {
        uint32_t k = d->layout.box.at[i].layer;
        Place *x = &d->place.at[i];
        x->high = x->kind == IS_BEND ? high[k] : x->high;
        x->top = d->top[k] + (high[k] - x->high) / 2;
    }
    d->height = at + MARGIN + LEGEND;
}

static void find_sides(Drawing *d)
{
    double least = HUGE_VAL, most = -HUGE_VAL;
    d->layout.gap = GAP;
    layout_place(d->a, &d->layout);
    for (uint32_t i = 0; i < d->layout.box.n; i++) {
        const LayoutBox *b = &d->layout.box.at[i];
        least = fmin(least, b->x - b->width / 2);
        most = fmax(most, b->x + b->width / 2);
    }
    double room = fmax(most - least, 380);
    for (uint32_t i = 0; i < d->layout.box.n; i++)
        d->layout.box.at[i].x += GUTTER + MARGIN - least + (room - (most - least)) / 2;
    d->width = GUTTER + room + 3 * MARGIN;
}

/* ---- drawing ---- */

static uint32_t colour_of(const Drawing *d, uint32_t box)
{
    return module(d, box)->stage % PAGE_COLOURS;
}

static void draw_bands(const Drawing *d, Text *out)
{
    for (uint32_t t = 0; t < d->p->stage.n; t++) {
        const StageCost *s = &d->p->stage.at[t].cost;
        double top = d->top[d->band_begin[t]] - BAND_PAD, x = MARGIN + 16;
        double end = t + 1 < d->p->stage.n ? d->top[d->labels[t + 1]] - LABEL_PAD
                                           : d->height - MARGIN - LEGEND;
        if (t + 1 < d->p->stage.n && d->labels[t + 1] == d->band_begin[t + 1])
            end -= BAND_PAD;
        text_add(out,
                 "<g class=\"c%u\" fill=\"currentColor\"><rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" "
                 "height=\"%.1f\" rx=\"4\" fill-opacity=\"0.08\"/><rect x=\"%d\" y=\"%.1f\" "
                 "width=\"5\" height=\"%.1f\" rx=\"2\"/></g>\n",
                 t % PAGE_COLOURS, MARGIN, top, d->width - 2 * MARGIN, end - top, MARGIN, top,
                 end - top);
        text_add(out,
                 "<text x=\"%.0f\" y=\"%.1f\" font-weight=\"bold\">stage %u</text>\n"
                 "<g class=\"soft\" fill=\"currentColor\" font-size=\"%d\"><text x=\"%.0f\" "
                 "y=\"%.1f\">%s parameters</text><text x=\"%.0f\" y=\"%.1f\">%s "
                 "operations</text></g>\n",
                 x, top + 18, t, SMALL, x, top + 33, count_text(d->a, s->parameters), x, top + 47,
                 count_text(d->a, s->flops_forward));
    }
}

static void draw_line(const Drawing *d, uint32_t i, Text *out)
{
    const LayoutEdge *e = &d->layout.edge.at[i];
    const Line *how = &d->line.at[i];
    const Place *from = &d->place.at[e->from], *to = &d->place.at[e->to];
    double x = d->layout.box.at[e->from].x, tx = d->layout.box.at[e->to].x,
           y = from->top + from->high, ty = to->top - (to->kind == IS_BOX ? 5 : 0),
           half = (ty - y) / 2;
    char name[24] = "soft";
    if (how->crosses)
        snprintf(name, sizeof name, "c%u", colour_of(d, how->box));
    text_add(out,
             "<g class=\"%s\" stroke=\"currentColor\" stroke-width=\"%s\"><path fill=\"none\"%s "
             "d=\"M%.1f %.1f",
             name, how->crosses ? "1.8" : "1.1", how->shared ? " stroke-dasharray=\"5 4\"" : "", x,
             from->kind == IS_BEND ? from->top : y);
    if (from->kind == IS_BEND)
        text_add(out, "V%.1f", y);
    if (fabs(x - tx) < 1)
        text_add(out, "V%.1f\"/>", ty);
    else
        text_add(out, "C%.1f %.1f %.1f %.1f %.1f %.1f\"/>", x, y + half, tx, ty - half, tx, ty);
    if (to->kind == IS_BOX)
        text_add(out,
                 "<path stroke=\"none\" fill=\"currentColor\" d=\"M%.1f %.1fl-3.6 -6.5h7.2z\"/>",
                 tx, to->top - 0.5);
    text_add(out, "</g>\n");
}

static void draw_label(const Drawing *d, uint32_t i, Text *out)
{
    const LayoutBox *b = &d->layout.box.at[i];
    const Place *x = &d->place.at[i];
    text_add(out,
             "<g class=\"paper\" fill=\"currentColor\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
             "height=\"%d\" rx=\"4\"/></g><g class=\"c%u\" stroke=\"currentColor\"><rect "
             "x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"4\" fill=\"none\"%s/></g>"
             "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"%d\">%s</text>\n",
             b->x - b->width / 2, x->top, b->width, LABEL_HIGH, colour_of(d, x->box),
             b->x - b->width / 2, x->top, b->width, LABEL_HIGH,
             x->shared ? " stroke-dasharray=\"5 4\"" : "", b->x, x->top + 14, SMALL,
             html_text(d->a, x->text));
}

static void draw_box(const Drawing *d, uint32_t i, Text *out)
{
    const LayoutBox *b = &d->layout.box.at[i];
    const Place *x = &d->place.at[i];
    const ModuleBox *m = module(d, x->box);
    bool is_module = m->kind == BOX_MODULE,
         is_end = m->kind != BOX_MODULE && m->kind != BOX_OPERATIONS;
    const char *name = html_text(d->a, x->text);
    text_add(out,
             "<g><title>%s: stage %u, %u nodes, %s parameters, %s operations</title><g "
             "class=\"paper\" fill=\"currentColor\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
             "height=\"%.0f\" "
             "rx=\"%d\"/></g><g class=\"%s\" fill=\"currentColor\" stroke=\"currentColor\"><rect "
             "x=\"%.1f\" "
             "y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"%d\" fill-opacity=\"%s\"/></g>",
             html_text(d->a, m->name), m->stage, m->nodes, count_text(d->a, m->parameters),
             count_text(d->a, m->flops), b->x - b->width / 2, x->top, b->width, x->high,
             is_module ? 6 : PILL_HIGH / 2,
             is_end ? "soft" : arena_printf(d->a, "c%u", colour_of(d, x->box)), b->x - b->width / 2,
             x->top, b->width, x->high, is_module ? 6 : PILL_HIGH / 2,
             is_module ? "0.26"
             : is_end  ? "0"
                       : "0.1");
    if (is_module)
        text_add(out,
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text><text x=\"%.1f\" "
                 "y=\"%.1f\" text-anchor=\"middle\" font-size=\"%d\">%s</text></g>\n",
                 b->x, x->top + 16, name, b->x, x->top + 31, SMALL, numbers_of(d, m));
    else
        text_add(
            out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"%d\"%s>%s</text></g>\n",
            b->x, x->top + 15, SMALL, is_end ? " font-style=\"italic\"" : "", name);
}

/* What lines mean, of those that are there. */
static void draw_legend(const Drawing *d, Text *out)
{
    static const struct {
        const char *line, *text;
    } how[3] = {
        {"class=\"soft\" stroke-width=\"1.1\"", "within a stage"},
        {"class=\"c0\" stroke-width=\"1.8\"", "to another stage, bytes a microbatch"},
        {"class=\"c0\" stroke-width=\"1.8\" stroke-dasharray=\"5 4\"", "shared, bytes a step"}};
    bool there[3] = {false};
    double x = MARGIN, y = d->height - MARGIN;
    for (uint32_t i = 0; i < d->line.n; i++)
        there[d->line.at[i].shared ? 2 : d->line.at[i].crosses] = true;
    for (int k = 0; k < 3; k++) {
        if (!there[k])
            continue;
        text_add(
            out,
            "<g %s stroke=\"currentColor\"><path d=\"M%.0f %.0fh24\"/></g><text class=\"soft\" "
            "x=\"%.0f\" y=\"%.0f\" font-size=\"%d\">%s</text>\n",
            how[k].line, x, y - 4, x + 30, y, SMALL, how[k].text);
        x += 48 + text_width(how[k].text, SMALL);
    }
    text_add(out,
             "<text class=\"soft\" x=\"%d\" y=\"%.0f\" font-size=\"%d\">in a box: its name, its "
             "parameters, operations of a microbatch's forward</text>\n",
             MARGIN, y - 18, SMALL);
}

const char *draw_modules(Arena *a, const Pipe *p, double *width, double *height)
{
    ModuleGraph g = module_graph(p, a);
    Drawing d = {.a = a, .p = p, .g = &g};
    if (!g.box.n || g.box.n > MOST_DRAWN || g.flow.n > 2 * MOST_DRAWN)
        return NULL;
    find_layers(&d);
    uint64_t spans = 0;
    for (uint32_t i = 0; i < g.flow.n; i++)
        spans += d.layer[g.flow.at[i].to] - d.layer[g.flow.at[i].from];
    if (spans > MOST_SPANS)
        return NULL;
    add_boxes(&d);
    add_lines(&d);
    find_tops(&d);
    find_sides(&d);
    *width = d.width;
    *height = d.height;
    Text text = svg_begin(a, d.width, d.height, "modules by stage, and what crosses");
    draw_bands(&d, &text);
    for (uint32_t i = 0; i < d.layout.edge.n; i++)
        draw_line(&d, i, &text);
    for (uint32_t i = 0; i < d.place.n; i++)
        if (d.place.at[i].kind == IS_LABEL)
            draw_label(&d, i, &text);
        else if (d.place.at[i].kind == IS_BOX)
            draw_box(&d, i, &text);
    draw_legend(&d, &text);
    return svg_end(&text);
}

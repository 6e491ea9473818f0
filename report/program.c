/*
 * program.c - the page of a program: what is known before it runs.
 *
 * In: a Pipe.  Out: XHTML in one file, without scripts and without anything fetched, its figures
 * inline SVG: the modules in their stages, the balance of the stages, what crosses, inputs and
 * outputs.  Two marks say where page.c puts what runs measured.
 */
#include <string.h>

#include "figures.h"
#include "marks.h"
#include "report.h"

static const char *const style =
    ":root { color-scheme: light dark }\n"
    "body { font: 15px/1.55 system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; "
    "max-width: 1040px; margin: 0 auto 4em; padding: 0 20px; color: #1d222b; background: #fff; "
    "font-variant-numeric: tabular-nums }\n"
    "h1 { font-size: 1.9em; line-height: 1.2; margin: 1.3em 0 .2em; overflow-wrap: anywhere }\n"
    "h2 { font-size: 1.3em; margin: 2.4em 0 .4em; padding-top: .7em; border-top: 1px solid #d3d9e1 "
    "}\n"
    "h3 { font-size: 1em; margin: 1.6em 0 .2em }\n"
    "p { max-width: 46em; margin: .5em 0 }\n"
    "code { font: .9em ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere }\n"
    "dl.facts { display: flex; flex-wrap: wrap; gap: .9em 2em; margin: 1.4em 0 }\n"
    "dt { font-size: .82em; color: #586273 }\n"
    "dd { margin: 0; font-size: 1.2em; font-weight: 600 }\n"
    ".scroll { overflow-x: auto } .scroll td.n { white-space: nowrap }\n"
    "table { border-collapse: collapse; margin: .8em 0; font-size: .92em }\n"
    "th, td { padding: .28em .9em .28em 0; border-bottom: 1px solid #d3d9e1; text-align: left; "
    "vertical-align: top }\n"
    "th { font-weight: 600; color: #586273 }\n"
    "td.n, th.n { text-align: right }\n"
    "figure { margin: 1.2em 0; break-inside: avoid }\n"
    "figure > div { overflow-x: auto }\n"
    "figcaption { margin-bottom: .5em; max-width: 46em }\n"
    "figure svg { max-width: 100%; height: auto; display: block }\n"
    "@media screen and (min-width: 900px) { figure.beside { display: grid; grid-template-columns: "
    "minmax(0, max-content) minmax(220px, 1fr); column-gap: 28px } .beside figcaption { order: 2 } "
    "}\n"
    "@media screen and (max-width: 700px) { figure svg { max-width: none } }\n"
    ".pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), "
    "1fr)); "
    "column-gap: 36px; align-items: start }\n"
    ".key { padding: 0 .5em; color: #111; border-radius: 2px }\n"
    ".key, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact }\n"
    "@media screen and (prefers-color-scheme: dark) {\n"
    "body { color: #e3e7ed; background: #14181e }\n"
    "h2, th, td { border-color: #363d48 } dt, th { color: #a4aebd }\n"
    "}\n"
    "@media print {\n"
    "@page { size: A4; margin: 13mm }\n"
    ":root { color-scheme: light }\n"
    "body { margin: 0; padding: 0; max-width: none; font-size: 9.5pt; color: #1d222b; background: "
    "#fff }\n"
    "h1 { margin-top: 0 } h2 { margin-top: 1.6em } table, tr, dl, figcaption { break-inside: avoid "
    "}\n"
    "h2, h3, h2 + p:has(+ figure, + .pair), figcaption, tr:first-child { break-after: avoid }\n"
    "figure > div, .scroll { overflow: visible } figure svg { max-height: 222mm; width: auto }\n"
    ".pair { grid-template-columns: 1fr 1fr; column-gap: 6mm }\n"
    "}\n";

/* ---- the model ---- */

static void put_model(const Pipe *p, Arena *a, Text *out)
{
    const char *svg = draw_modules(a, p);
    text_add(out, "<h2 id=\"model\">The model in stages</h2>\n");
    if (!svg) {
        text_add(out, "<p>%u stages have too many modules to be drawn.</p>\n", p->stage.n);
        return;
    }
    put_figure(out,
               (Figure){"modules", "Modules",
                        "Each band is a stage. A row is a module, with its parameters and the "
                        "operations of its forward, or what a module has outside of its inner "
                        "ones. Above them is what the stage receives: the bytes of a microbatch. "
                        "Broken lines join stages that share a parameter; their bytes are a "
                        "step's. Gradients go the same ways back.",
                        svg},
               " class=\"beside\"");
}

/* ---- the balance of stages ---- */

static int64_t plus(int64_t a, int64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? INT64_MAX : a;
}

/* What leaves a stage forwards; gradients take the same ways back. */
static int64_t sent(const Pipe *p, uint32_t stage)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->edge.n; i++)
        if (p->edge.at[i].from == stage && p->edge.at[i].kind == EDGE_ACTIVATION)
            n = plus(n, p->edge.at[i].bytes);
    return n;
}

static void put_quantities(const Pipe *p, Arena *a, Text *out)
{
    enum { PARAMETERS, FLOPS, STASH, SENT, AMONG, QUANTITIES };
    static const char *const name[QUANTITIES] = {"parameters", "forward operations", "stash",
                                                 "sends", "members send"};
    const uint32_t quantities = graph_members(p->graph) > 1 ? QUANTITIES : AMONG;
    uint32_t stages = p->stage.n;
    const char **label = arena_array(a, const char *, stages);
    Quantity q[QUANTITIES];
    for (uint32_t c = 0; c < quantities; c++) {
        q[c] = (Quantity){name[c], arena_array(a, double, stages),
                          arena_array(a, const char *, stages)};
        for (uint32_t t = 0; t < stages; t++) {
            const StageCost *cost = &p->stage.at[t].cost;
            int64_t v = c == PARAMETERS ? cost->parameters
                        : c == FLOPS    ? cost->flops_forward
                        : c == STASH    ? cost->bytes_stash
                        : c == SENT     ? sent(p, t)
                                        : plus(cost->sent[0], cost->sent[1]);
            label[t] = p->stage.at[t].label;
            q[c].value[t] = (double)v;
            q[c].text[t] = c >= STASH ? bytes_text(a, v) : count_text(a, v);
        }
    }
    text_add(
        out,
        "<h2 id=\"balance\">Balance of the stages</h2>\n<p>For one microbatch. A pipeline is as "
        "fast as its slowest stage. Below each quantity is the largest value divided by the "
        "mean: 1.00 is even. The stash is what forward keeps for backward.</p>\n");
    put_balance(out, stages, label, quantities, q);
}

/* ---- tables ---- */

static const char *batch_text(Arena *a, int batch)
{
    return batch == BATCH_NONE    ? "none"
           : batch == BATCH_MIXED ? "mixed"
                                  : arena_printf(a, "%d", batch);
}

static void put_crossings(const Pipe *p, Arena *a, Text *out)
{
    const Graph *g = p->graph;
    if (!p->edge.n)
        return;
    text_add(out,
             "<h2 id=\"crosses\">What crosses, value by value</h2>\n<div class=\"scroll\">\n<table>"
             "<tr><th>from</th><th>to</th><th>value</th><th>shape</th><th class=\"n\">bytes</th>"
             "<th>kind</th><th>gradient</th></tr>\n");
    for (uint32_t i = 0; i < p->edge.n; i++) {
        const Edge *e = &p->edge.at[i];
        const Value *v = val(g, e->value);
        text_add(out,
                 "<tr><td>%u</td><td>%u</td><td><code>%s</code></td><td>%s</td><td "
                 "class=\"n\">%s</td><td>%s</td><td>%s</td></tr>\n",
                 e->from, e->to, html_text(a, param_or_value_name(g, e->value)),
                 shape_print(a, v->dtype, &v->shape), bytes_text(a, e->bytes), edge_kind(e->kind),
                 e->gradient ? "yes" : "no");
    }
    text_add(out, "</table>\n</div>\n");
}

static void put_meetings(const Pipe *p, Arena *a, Text *out)
{
    const Graph *g = p->graph;
    const Meetings meet = meetings_of(p, a);
    if (!meet.n)
        return;
    text_add(out,
             "<h2 id=\"members\">What members of a stage tell one another</h2>\n<p>Of a "
             "microbatch. R: all have the same; S(d): each has a part of dimension d; P: what they "
             "have adds up to it.</p>\n<div class=\"scroll\">\n<table><tr><th>stage</th><th></th>"
             "<th>operation</th><th>placement</th><th>value</th><th>shape</th><th class=\"n\">each "
             "sends</th></tr>\n");
    for (uint32_t i = 0; i < meet.n; i++) {
        const Node *n = meet.at[i].node;
        const Value *v = val(g, n->out[0]);
        text_add(out,
                 "<tr><td>%u</td><td>%s</td><td>%s</td><td>%s</td><td><code>%s</code></td><td>%s"
                 "</td><td class=\"n\">%s</td></tr>\n",
                 meet.at[i].stage, meet.at[i].pass, op_name(n->op), node_placement(a, n),
                 html_text(a, v->name), shape_print(a, v->dtype, &v->shape),
                 bytes_text(a, cost_sent(g, n)));
    }
    text_add(out, "</table>\n</div>\n");
}

static void put_end(const Graph *g, Arena *a, const char *what, const char *name, ValueId id,
                    Text *out)
{
    const Value *v = val(g, id);
    text_add(out, "<tr><td>%s</td><td><code>%s</code></td><td>%s</td><td>%s</td></tr>\n", what,
             html_text(a, name), shape_print(a, v->dtype, &v->shape), batch_text(a, v->batch));
}

static void put_ends(const Pipe *p, Arena *a, Text *out)
{
    const Graph *g = p->graph;
    text_add(out,
             "<h2 id=\"ends\">Inputs and outputs</h2>\n<div class=\"scroll\">\n<table><tr><th></th>"
             "<th>name</th><th>shape</th><th>dimension of the rows</th></tr>\n");
    for (uint32_t i = 0; i < g->input.n; i++)
        if (g->input.at[i] != p->loss_scale)
            put_end(g, a, "input", val(g, g->input.at[i])->name, g->input.at[i], out);
    for (uint32_t i = 0; i < g->output.n; i++)
        put_end(g, a, "output", g->output_name.at[i], g->output.at[i], out);
    text_add(out, "</table>\n</div>\n");
    if (!p->uneven.n && !p->mixes.n)
        text_add(out, "<p>A step may be cut into microbatches of any number of rows.</p>\n");
    for (uint32_t i = 0; i < p->uneven.n; i++)
        text_add(out, "<p>Microbatches must have equal rows: %s.</p>\n",
                 html_text(a, p->uneven.at[i]));
    for (uint32_t i = 0; i < p->mixes.n; i++)
        text_add(out, "<p>%s.</p>\n", html_text(a, p->mixes.at[i]));
}

/* ---- the page ---- */

/* Has an input several whole numbers a row, as texts have? */
static bool reads_texts(const Pipe *p)
{
    for (uint32_t i = 0; i < p->graph->input.n; i++) {
        const Value *v = val(p->graph, p->graph->input.at[i]);
        if (p->graph->input.at[i] != p->target && (v->dtype == DT_I64 || v->dtype == DT_I32) &&
            v->shape.rank > 1 && v->batch != BATCH_NONE)
            return true;
    }
    return false;
}

static void put_facts(const Pipe *p, Arena *a, Text *out)
{
    int64_t parameters = 0, flops = 0, crosses = 0;
    for (uint32_t t = 0; t < p->stage.n; t++) {
        parameters = plus(parameters, p->stage.at[t].cost.parameters);
        flops = plus(flops, p->stage.at[t].cost.flops_forward);
        crosses = plus(crosses, sent(p, t));
    }
    text_add(out, "<dl class=\"facts\">\n");
    put_fact(out, "stages", arena_printf(a, "%u", p->stage.n));
    put_fact(out, "parameters", count_text(a, parameters));
    put_fact(out, "operations, forward", count_text(a, flops));
    put_fact(out, "crosses, forward", bytes_text(a, crosses));
    text_add(out, MARK_FACTS "</dl>\n</header>\n");
}

const char *report_program(const Pipe *p, Arena *outer)
{
    Arena *a = arena_within(outer);
    Text text = {.a = outer}, *out = &text;
    const char *model = html_text(a, p->model_name), *s = p->stage.n == 1 ? "" : "s",
               *loss = p->loss == NONE ? "no loss"
                       : p->loss_text  ? arena_printf(a, "loss %s", html_text(a, p->loss_text))
                                       : "a loss";
    text_add(
        out,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>"
        "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\"/>\n"
        "<title>%s: %u stage%s</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<header>\n"
        "<h1>%s</h1>\n<p>%u stage%s, %s. The model is cut into stages, which ranks (processes) "
        "compute one after the other. The rows of a step are cut into microbatches, so that "
        "all ranks work at once.</p>\n",
        model, p->stage.n, s, style, page_colours, model, p->stage.n, s, loss);
    put_facts(p, a, out);
    text_add(out, "<main>\n");
    put_model(p, a, out);
    put_quantities(p, a, out);
    text_add(out, MARK_RUNS, p->stage.n, reads_texts(p) ? "texts" : "rows");
    text_add(out,
             "\n<p><code>ppsplit report OUT LOG.json TRACE.json -o FILE</code> adds the loss and "
             "the times of a run, which has written them with <code>--log-json FILE</code> and "
             "<code>--trace FILE.json</code>.</p>\n" MARK_END);
    put_crossings(p, a, out);
    put_meetings(p, a, out);
    put_ends(p, a, out);
    text_add(out, "</main>\n</body>\n</html>\n");
    arena_free(a);
    return text_all(out);
}

/*
 * html.c - pipe.html: one static page with the stages, what crosses, the parameters and the batch
 * dimensions.  No scripts; every name is escaped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file/memory.h"
#include "report.h"

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

static const char head[] = "<style>\n"
                           "body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: "
                           "2em auto; padding: 0 1em; color: #222; "
                           "background: #fff }\n"
                           "table { border-collapse: collapse; margin: 1em 0 }\n"
                           "th, td { padding: .25em .8em; border-bottom: 1px solid #ddd; "
                           "text-align: left; vertical-align: top }\n"
                           "td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }\n"
                           "code, pre { font: 13px/1.4 ui-monospace, monospace }\n"
                           "pre { overflow-x: auto; background: #f6f6f6; padding: 1em }\n"
                           ".bar { background: #4477aa; height: .8em; display: inline-block }\n"
                           "@media (prefers-color-scheme: dark) { body { color: #ddd; background: "
                           "#1a1a1a } pre { background: #262626 } th, "
                           "td { border-color: #444 } }\n"
                           "</style>\n";

static const char *batch_text(Arena *a, int batch)
{
    return batch == BATCH_NONE    ? "none"
           : batch == BATCH_MIXED ? "mixed"
                                  : arena_printf(a, "%d", batch);
}

static void put_stages(const Pipe *p, Arena *a, FILE *f)
{
    int64_t most = 1;
    for (uint32_t t = 0; t < p->stage.n; t++)
        if (p->stage.at[t].cost.flops_forward > most)
            most = p->stage.at[t].cost.flops_forward;
    fputs("<h2>Stages</h2>\n<table><tr><th>stage<th>modules<th class=n>nodes<th "
          "class=n>parameters<th class=n>bytes"
          "<th class=n>forward FLOPs<th class=n>backward FLOPs<th class=n>activations<th "
          "class=n>stash<th></tr>\n",
          f);
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        const StageCost *c = &s->cost;
        fprintf(f,
                "<tr><td>%u<td><code>%s</code><td class=n>%u<td class=n>%s<td class=n>%s<td "
                "class=n>%s<td "
                "class=n>%s<td class=n>%s"
                "<td class=n>%s<td><span class=bar style=\"width: %dpx\"></span></tr>\n",
                t, html_text(a, s->label ? s->label : ""), pipe_programs(p, t)->forward.n,
                count_text(a, c->parameters), bytes_text(a, c->bytes_param),
                count_text(a, c->flops_forward), count_text(a, c->flops_backward),
                bytes_text(a, c->bytes_activation), bytes_text(a, c->bytes_stash),
                (int)(120.0 * (double)c->flops_forward / (double)most));
    }
    fputs("</table>\n", f);
}

static void put_edges(const Pipe *p, Arena *a, FILE *f)
{
    const Graph *g = p->graph;
    fputs("<h2>What crosses</h2>\n<table><tr><th>from<th>to<th>value<th>shape<th>batch<th "
          "class=n>bytes<th>kind<th>gradient</tr>\n",
          f);
    for (uint32_t i = 0; i < p->edge.n; i++) {
        const Edge *e = &p->edge.at[i];
        const Value *v = val(g, e->value);
        fprintf(f,
                "<tr><td>%u<td>%u<td><code>%s</code><td>%s<td>%s<td class=n>%s<td>%s<td>%s</tr>\n",
                e->from, e->to, html_text(a, param_or_value_name(g, e->value)),
                shape_print(a, v->dtype, &v->shape),
                batch_text(a, v->kind == V_PARAM ? BATCH_NONE : v->batch), bytes_text(a, e->bytes),
                edge_kind(e->kind), e->gradient ? "yes" : "no");
    }
    fputs("</table>\n", f);
}

static void put_ends(const Pipe *p, Arena *a, FILE *f)
{
    const Graph *g = p->graph;
    fputs("<h2>Inputs and outputs</h2>\n<table><tr><th><th>name<th>shape<th>batch dimension</tr>\n",
          f);
    for (uint32_t i = 0; i < g->input.n + g->output.n; i++) {
        bool in = i < g->input.n;
        ValueId id = in ? g->input.at[i] : g->output.at[i - g->input.n];
        const Value *v = val(g, id);
        const char *name =
            in || i - g->input.n >= g->output_name.n ? v->name : g->output_name.at[i - g->input.n];
        if (id != p->loss_scale)
            fprintf(f, "<tr><td>%s<td><code>%s</code><td>%s<td>%s</tr>\n", in ? "input" : "output",
                    html_text(a, name), shape_print(a, v->dtype, &v->shape),
                    batch_text(a, v->batch));
    }
    fputs("</table>\n", f);
    if (p->uneven.n + p->mixes.n == 0) {
        fputs("<p>A minibatch may be cut into chunks of any number of rows.</p>\n", f);
        return;
    }
    fputs("<ul>\n", f);
    for (uint32_t i = 0; i < p->uneven.n; i++)
        fprintf(f, "<li>Microbatches must have equal rows: %s</li>\n",
                html_text(a, p->uneven.at[i]));
    for (uint32_t i = 0; i < p->mixes.n; i++)
        fprintf(f, "<li>%s</li>\n", html_text(a, p->mixes.at[i]));
    fputs("</ul>\n", f);
}

static void put_params(const Pipe *p, Arena *a, FILE *f)
{
    const Graph *g = p->graph;
    fputs(
        "<h2>Parameters</h2>\n<table><tr><th>stage<th>name<th>shape<th class=n>bytes<th>use</tr>\n",
        f);
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t i = 0; i < p->stage.at[t].param.n; i++) {
            const ParamUse *u = &p->stage.at[t].param.at[i];
            const Param *q = &g->param.at[u->param];
            fprintf(f, "<tr><td>%u<td><code>%s</code><td>%s<td class=n>%s<td>%s", t,
                    html_text(a, q->name), shape_print(a, q->dtype, &q->shape),
                    bytes_text(a, value_bytes(g, q->value)), use_name(u->use));
            if (u->use == USE_TRANSMIT)
                fprintf(f, " from stage %u", u->from);
            fprintf(f, "%s</tr>\n", q->stat ? ", statistic" : q->trainable ? "" : ", frozen");
        }
    fputs("</table>\n", f);
}

typedef struct { FILE *f; Memory text; } PipeText;

static void release(void *at)
{
    PipeText *t = at;
    if (t->f)
        memory_close(t->f, &t->text);
    free(t->text.at);
}

static void put_pipe(const Pipe *p, Arena *a, FILE *f)
{
    PipeText *t = arena_new_of(a, PipeText);
    arena_hold(a, release, t);
    t->f = memory_open(&t->text);
    if (t->f)
        report_pipe_txt(p, t->f);
    int bad = memory_close(t->f, &t->text);
    t->f = NULL;
    if (bad)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    fputs("<h2>The pipe</h2>\n<pre>", f);
    /* by lines: escaping would show the line ends */
    for (char *at = t->text.at, *end; at && *at; at = end) {
        end = strchr(at, '\n');
        if (end)
            *end++ = '\0';
        else
            end = at + strlen(at);
        fprintf(f, "%s\n", html_text(a, at));
    }
    fputs("</pre>\n", f);
    arena_drop(a, t);
    release(t);
}

void report_pipe_html(const Pipe *p, FILE *f)
{
    Arena *a = arena_within(p->graph->arena);
    const char *model = html_text(a, p->model_name);
    fprintf(
        f,
        "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n<title>%s: %u stages</title>\n%s",
        model, p->stage.n, head);
    fprintf(f, "<h1>%s</h1>\n<p>%u stage%s, %s%s</p>\n", model, p->stage.n,
            p->stage.n == 1 ? "" : "s", p->loss == NONE ? "no loss" : "loss ",
            p->loss == NONE || !p->loss_text ? "" : html_text(a, p->loss_text));
    put_stages(p, a, f);
    put_edges(p, a, f);
    put_ends(p, a, f);
    put_params(p, a, f);
    put_pipe(p, a, f);
    fputs("</html>\n", f);
    arena_free(a);
}

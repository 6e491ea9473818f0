/*
 * training.c - what logs say: loss, gradient norm, throughput and learning rate by step.
 */
#include <math.h>

#include "page.h"

/* Rows a second, where a log's tokens are the rows themselves or the model reads none.  A log that
 * does not say its rows is taken as it is. */
void rows_for_tokens(Page *p)
{
    bool rows = p->log.n > 0;
    for (uint32_t k = 0; k < p->log.n; k++) {
        const RunLog *l = &p->log.at[k];
        const double *v = l->step.at[0].value;
        bool tokens = p->reads_texts && v[LOG_TOKENS] * v[LOG_SECONDS] > 1.5 * l->batch;
        rows &= l->batch > 0 && !tokens;
    }
    for (uint32_t k = 0; k < p->log.n && rows; k++)
        for (uint32_t i = 0; i < p->log.at[k].step.n; i++) {
            double *v = p->log.at[k].step.at[i].value;
            v[LOG_TOKENS] = p->log.at[k].batch / v[LOG_SECONDS];
        }
    p->throughput = rows ? "rows a second" : "tokens a second";
}

static Curve curve_of(const Page *p, const char *label, uint32_t n, const LogStep *step, int column)
{
    Curve c = {label, n, arena_array(p->a, double, n + 1), arena_array(p->a, double, n + 1), false};
    for (uint32_t i = 0; i < n; i++) {
        c.at[i] = step[i].step;
        c.value[i] = step[i].value[column];
    }
    return c;
}

static bool any_number(const Curve *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (isfinite(c->value[i]))
            return true;
    return false;
}

static void put_curve(Page *p, int column, const char *name, const char *title, const char *unit,
                      const char *caption)
{
    Curve *c = arena_array(p->a, Curve, 2 * p->log.n);
    uint32_t n = 0;
    bool any = false;
    for (uint32_t k = 0; k < p->log.n; k++) {
        const RunLog *l = &p->log.at[k];
        c[n] =
            curve_of(p, l->schedule ? arena_printf(p->a, "%s (%s)", l->path, l->schedule) : l->path,
                     l->step.n, l->step.at, column);
        any |= any_number(&c[n++]);
    }
    if (!any)
        return;
    const RunLog *l = &p->log.at[0];
    double last = l->step.at[l->step.n - 1].value[column];
    if (isfinite(last))
        caption = arena_printf(p->a, "%s In the last step %.6g.", caption, last);
    for (uint32_t k = 0; k < p->log.n && column == LOG_LOSS; k++) {
        l = &p->log.at[k];
        c[n] = curve_of(p, arena_printf(p->a, "%s, evaluated", l->path), l->eval.n, l->eval.at,
                        LOG_EVAL);
        c[n].dots = true;
        if (!any_number(&c[n]))
            continue;
        const LogStep *e = &l->eval.at[l->eval.n - 1];
        if (k == 0 && isfinite(e->value[LOG_EVAL]))
            caption = arena_printf(p->a, "%s Of the rows of --eval-data, after step %.0f, %.6g.",
                                   caption, e->step, e->value[LOG_EVAL]);
        n++;
    }
    put_figure(&p->text, (Figure){name, title, caption, draw_curves(p->a, n, c, "step", unit)}, "");
}

/* Of runs that have not come to their end, as far as the log goes. */
static void put_progress(Page *p)
{
    for (uint32_t k = 0; k < p->log.n; k++) {
        const RunLog *l = &p->log.at[k];
        double step = l->step.at[l->step.n - 1].step;
        if (step < l->steps)
            text_add(&p->text,
                     "<p><code>%s</code>: step %.0f of %.0f; the run goes on, or was ended.</p>\n",
                     html_text(p->a, l->path), step, l->steps);
    }
}

void put_training(Page *p)
{
    text_add(&p->text, "<h2 id=\"training\">Training</h2>\n");
    if (!p->log.n) {
        text_add(&p->text,
                 "<p>No log was given: a run writes one with <code>--log-json FILE</code>.</p>\n");
        return;
    }
    put_progress(p);
    text_add(&p->text, "<div class=\"pair\">\n");
    put_curve(p, LOG_LOSS, "loss", "Loss", "loss", "Over the whole minibatch of each step.");
    put_curve(p, LOG_NORM, "gradient-norm", "Gradient norm", "gradient norm",
              "The Euclidean norm of all parameters' gradients, before any clipping.");
    put_curve(p, LOG_TOKENS, "throughput", "Throughput", p->throughput,
              "The first steps are slower: libraries start, pages are touched.");
    put_curve(p, LOG_LR, "learning-rate", "Learning rate", "learning rate",
              "Of each step, as its schedule gave it.");
    text_add(&p->text, "</div>\n");
}

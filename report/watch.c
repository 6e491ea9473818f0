/*
 * watch.c - `ppsplit watch`: a log of --log-json as a screen of text, while its run goes on.
 *
 * In: the log, whose last line may be half written.  Out: how far the run is, and its loss and
 * throughput drawn with letters: a column is the mean of some steps, the axis goes from the least
 * to the greatest.
 */
#include <math.h>
#include <stdio.h>

#include "page.h"

enum { LABEL = 11, LEAST_WIDTH = 20, MOST_WIDTH = 200 };

/* Means of as many steps as share a column; NAN: none of them has a number. */
static void columns(const RunLog *l, int column, uint32_t width, double *mean)
{
    uint32_t n = l->step.n;
    for (uint32_t c = 0; c < width; c++) {
        uint32_t from = (uint32_t)((uint64_t)c * n / width), end, many = 0;
        end = (uint32_t)((uint64_t)(c + 1) * n / width);
        end = end > from ? end : from + 1;
        double sum = 0;
        for (uint32_t i = from; i < end; i++)
            if (isfinite(l->step.at[i].value[column]))
                sum += l->step.at[i].value[column], many++;
        mean[c] = many ? sum / many : (double)NAN;
    }
}

static void draw(Text *t, const RunLog *l, int column, const char *title, uint32_t width,
                 uint32_t height)
{
    double mean[MOST_WIDTH], low = (double)INFINITY, high = -(double)INFINITY;
    columns(l, column, width, mean);
    for (uint32_t c = 0; c < width; c++) {
        low = isfinite(mean[c]) ? fmin(low, mean[c]) : low;
        high = isfinite(mean[c]) ? fmax(high, mean[c]) : high;
    }
    if (!(low <= high))
        return;
    text_add(t, "\n%s\n", title);
    for (uint32_t row = height; row-- > 0;) {
        char line[MOST_WIDTH + 1], label[32] = "";
        uint32_t end = 0;
        for (uint32_t c = 0; c < width; c++) {
            double at = high > low ? (mean[c] - low) / (high - low) * (height - 1) : 0;
            bool here = isfinite(mean[c]) && (uint32_t)lround(at) == row;
            line[c] = here ? '*' : ' ';
            end = here ? c + 1 : end;
        }
        line[end] = 0;
        if (row == height - 1 || (row == 0 && high > low))
            snprintf(label, sizeof label, "%.5g", row ? high : low);
        text_add(t, "%*s |%s\n", LABEL, label, line);
    }
    char first[32];
    int n = snprintf(first, sizeof first, "%.0f", l->step.at[0].step);
    text_add(t, "%*s +", LABEL, "");
    for (uint32_t c = 0; c < width; c++)
        text_add(t, "-");
    text_add(t, "\n%*s  %s%*.0f\n", LABEL, "", first, (int)width - n,
             l->step.at[l->step.n - 1].step);
}

/* Of the last steps, as the run itself says it. */
static double recent(const RunLog *l, int column)
{
    enum { STEPS = 20 };
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = l->step.n; i-- > (l->step.n > 1) && n < STEPS;)
        if (isfinite(l->step.at[i].value[column]))
            sum += l->step.at[i].value[column], n++;
    return n ? sum / n : (double)NAN;
}

static void say(Text *t, const char *name, int digits, double v, const char *unit)
{
    if (isfinite(v))
        text_add(t, "  %s %.*g%s", name, digits, v, unit);
}

static void head(Text *t, const RunLog *l, double peak)
{
    text_add(t, "%s:", l->path);
    if (l->model)
        text_add(t, " %s, %.0f stages on %u ranks", diag_escape(t->a, l->model), l->stages,
                 l->place.n);
    text_add(t, "%s%s\n", l->schedule ? ", " : "",
             l->schedule ? diag_escape(t->a, l->schedule) : "");
    if (!l->step.n) {
        text_add(t, "no step yet\n");
        return;
    }
    const LogStep *s = &l->step.at[l->step.n - 1];
    double seconds = recent(l, LOG_SECONDS), left = (l->steps - s->step) * seconds;
    text_add(t, "step %.0f", s->step);
    if (isfinite(l->steps))
        text_add(t, "/%.0f", l->steps);
    say(t, "loss", 7, s->value[LOG_LOSS], "");
    say(t, "grad_norm", 4, s->value[LOG_NORM], "");
    say(t, "lr", 4, s->value[LOG_LR], "");
    say(t, "tokens/s", 5, recent(l, LOG_TOKENS), "");
    if (peak > 0)
        say(t, "MFU", 3, 100 * l->operations / seconds / (peak * l->place.n), " %");
    say(t, "bubble", 3, 100 * recent(l, LOG_BUBBLE), " %");
    if (left > 0)
        text_add(t, "  left %.0f:%02d", floor(left / 60), (int)fmod(left, 60));
    text_add(t, "\n");
    if (l->eval.n) {
        const LogStep *e = &l->eval.at[l->eval.n - 1];
        text_add(t, "evaluated after step %.0f:", e->step);
        say(t, "loss", 7, e->value[LOG_EVAL], "");
        text_add(t, "\n");
    }
}

void watch_tell(void *options)
{
    WatchOptions *o = options;
    RunLog l = log_read(o->arena, o->log);
    Text t = {.a = o->arena};
    uint32_t width = o->width > LABEL + 3 + LEAST_WIDTH ? o->width - LABEL - 3 : LEAST_WIDTH;
    width = width < MOST_WIDTH ? width : MOST_WIDTH;
    head(&t, &l, o->peak);
    if (l.step.n) {
        draw(&t, &l, LOG_LOSS, "loss", width, o->height);
        draw(&t, &l, LOG_TOKENS, "tokens a second", width, o->height / 2 + 1);
    }
    o->text = text_all(&t);
    o->goes_on = !l.step.n || !isfinite(l.steps) || l.step.at[l.step.n - 1].step < l.steps;
}

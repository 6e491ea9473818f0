/*
 * log.c - what a run says of its steps: one stable line a step or a progress bar on a terminal, a
 * line of JSON a step, a last line.  Rank 0 speaks.
 */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file of --log-json ---- */

/* The number of a step that the line is about, 0 where it is about none. */
static int64_t step_of(const char *line)
{
    static const char *const key[] = {"{\"step\": ", "\"eval_step\": "};
    for (size_t k = 0; k < sizeof key / sizeof *key; k++) {
        const char *at = strstr(line, key[k]);
        if (at && (k || at == line))
            return strtoll(at + strlen(key[k]), NULL, 10);
    }
    return 0;
}

/* A resumed run does the steps after `done` again: their lines go, and so does the last line where
 * the run before was ended in the middle of it. */
static PpStatus keep_lines(FILE *f, int64_t done)
{
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    for (ssize_t n; (n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n'; kept += n)
        if (step_of(line) > done)
            break;
    free(line);
    return ferror(f) || fseeko(f, kept, SEEK_SET) || ftruncate(fileno(f), kept) ? PP_ERR_IO : PP_OK;
}

static PpStatus open_json(Log *l)
{
    const char *path = l->opt->report.log_json;
    struct stat sb;
    const int out = !strcmp(path, "-"), there = !out && !stat(path, &sb);
    int goes_on = l->first > 0 && there && S_ISREG(sb.st_mode);
    l->json = out ? stdout : fopen(path, goes_on ? "r+" : "w");
    l->made = !there && !out;
    if (!l->json || (goes_on && keep_lines(l->json, l->first) != PP_OK))
        return pp_fail(PP_ERR_IO, "--log-json %s: %s", path, strerror(errno));
    return PP_OK;
}

PpStatus log_open(Log *l, const Options *o, const Group *g, const Data *d)
{
    *l = (Log){.opt = o,
               .speaks = g->rank == 0,
               .first = d->start.step,
               .steps = d->steps,
               .tokens = o->sample.on ? d->batch : data_tokens(d),
               .done = d->start.step,
               .begun = pp_now()};
    /* mpirun shows its processes a terminal that is none */
    l->bar = o->mode == MODE_TRAIN && !g->processes && isatty(1);
    if (l->speaks && o->report.tensorboard)
        TRY(events_open(&l->events, o->report.tensorboard, l->first + 1));
    return l->speaks && o->report.log_json ? open_json(l) : PP_OK;
}

void log_chosen(const Log *l, const char *text)
{
    if (l->speaks && !l->opt->report.quiet && text[0])
        printf("%s\n", text);
}

void log_resumed(const Log *l, const Index *x, int64_t done)
{
    if (!l->speaks || !x->path)
        return;
    if (x->note[0])
        fprintf(stderr, "pipeline: warning: %s: an older checkpoint is taken\n", x->note);
    if (!l->opt->report.quiet)
        printf("resumed from %s, %" PRId64 " steps are done%s\n", x->path, done,
               done >= l->steps ? ": nothing is left to do" : "");
}

/* A line of the file, and its end */
static JsonOut line(const Log *l)
{
    JsonOut o = {.f = l->json};
    json_begin(&o, NULL, '{');
    return o;
}

PpStatus log_line_end(const Log *l, JsonOut *o, const char *brackets)
{
    json_end(o, brackets);
    putc('\n', l->json);
    return fflush(l->json)
               ? pp_fail(PP_ERR_IO, "--log-json %s: %s", l->opt->report.log_json, strerror(errno))
               : PP_OK;
}

/* Is the loss scaled at all? */
static int scales(const Log *l)
{
    return l->opt->train.scale.window || l->opt->train.scale.scale != 1;
}

static int skips(const Log *l)
{
    return scales(l) || strcmp(l->opt->train.on_nonfinite, "skip") == 0;
}

/* Seconds of a step, the mean over the last ones.  The first one, in which libraries start, counts
 * until there is another. */
static double mean_seconds(Log *l, double seconds)
{
    double sum = 0;
    int64_t at = l->timed > 0 ? l->timed - 1 : 0, n = at + 1 < LOG_RATE ? at + 1 : LOG_RATE;
    l->timed++;
    l->last[at % LOG_RATE] = seconds;
    for (int64_t i = 0; i < n; i++)
        sum += l->last[i];
    return sum / (double)n;
}

static double rate(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

/* ---- numbers as a reader wants them ---- */

typedef struct {
    char text[32];
} Shown;

/* Seven digits that say something: 2.302585, and 1e-07 where that is the loss. */
static Shown loss_text(double v)
{
    Shown s;
    snprintf(s.text, sizeof s.text, v != 0 && fabs(v) < 0.1 ? "%.7g" : "%.6f", v);
    return s;
}

/* 4.2s, 0:42, 1:05:00, 2d03:15 */
static Shown time_text(double seconds)
{
    Shown s;
    int64_t t = seconds < 1e12 ? llround(seconds) : 0, day = 86400, hour = 3600;
    if (seconds < 10)
        snprintf(s.text, sizeof s.text, "%.1fs", seconds);
    else if (t >= day)
        snprintf(s.text, sizeof s.text, "%" PRId64 "d%02d:%02d", t / day, (int)(t % day / hour),
                 (int)(t % hour / 60));
    else if (t >= hour)
        snprintf(s.text, sizeof s.text, "%d:%02d:%02d", (int)(t / hour), (int)(t % hour / 60),
                 (int)(t % 60));
    else
        snprintf(s.text, sizeof s.text, "%d:%02d", (int)(t / 60), (int)(t % 60));
    return s;
}

/* ---- a step ---- */

static void progress(const Log *l, const StepLog *s, double seconds)
{
    enum { WIDTH = 20 };
    int full = (int)(WIDTH * s->step / l->steps);
    printf("\r[%.*s%*s] %" PRId64 "/%" PRId64
           "  loss %s  grad_norm %.4g  lr %.4g  %.0f tokens/s  %s left\033[K",
           full, "####################", WIDTH - full, "", s->step, l->steps,
           loss_text(s->loss).text, s->grad_norm, s->lr, rate((double)l->tokens, seconds),
           time_text(seconds * (double)(l->steps - s->step)).text);
    if (s->step == l->steps || !isfinite(s->loss) || (!isfinite(s->grad_norm) && !s->skipped))
        putchar('\n');
    fflush(stdout);
}

static void step_line(const Log *l, const StepLog *s, double seconds)
{
    Mode mode = l->opt->mode;
    printf("step %" PRId64 "/%" PRId64, s->step, l->steps);
    if (mode != MODE_INFER)
        printf(" loss %s", loss_text(s->loss).text);
    if (mode == MODE_TRAIN)
        printf(" grad_norm %.4g lr %.4g", s->grad_norm, s->lr);
    if (mode == MODE_TRAIN && scales(l))
        printf(" loss_scale %g", s->loss_scale);
    if (s->skipped)
        printf(" skipped");
    printf(" tokens/s %.0f left %s\n", rate((double)l->tokens, seconds),
           time_text(seconds * (double)(l->steps - s->step)).text);
    fflush(stdout);
}

static PpStatus step_json(const Log *l, const StepLog *s)
{
    Mode mode = l->opt->mode;
    JsonOut o = line(l);
    json_put(&o, "step", "%" PRId64, s->step);
    if (mode != MODE_INFER)
        json_put_real(&o, "loss", s->loss);
    if (mode == MODE_TRAIN) {
        json_put_real(&o, "grad_norm", s->grad_norm);
        json_put_real(&o, "lr", s->lr);
    }
    if (mode == MODE_TRAIN && scales(l))
        json_put_real(&o, "loss_scale", s->loss_scale);
    if (mode == MODE_TRAIN && skips(l))
        json_put(&o, "skipped", "%s", s->skipped ? "true" : "false");
    json_put_real(&o, "seconds", s->seconds);
    json_put_real(&o, "tokens_per_second", rate((double)l->tokens, s->seconds));
    if (mode == MODE_TRAIN && !isnan(s->bubble))
        json_put_real(&o, "bubble", s->bubble);
    return log_line_end(l, &o, "}");
}

/* Of a training. */
static PpStatus step_events(const Log *l, const StepLog *s)
{
    Scalar of[] = {{"train/loss", s->loss},
                   {"train/grad_norm", s->grad_norm},
                   {"train/learning_rate", s->lr},
                   {"speed/tokens_per_second", rate((double)l->tokens, s->seconds)},
                   {"speed/seconds", s->seconds},
                   {"memory/largest_rank", (double)l->memory},
                   {NULL, 0},
                   {NULL, 0}};
    int n = 6;
    if (!isnan(s->bubble))
        of[n++] = (Scalar){"speed/bubble", s->bubble};
    if (scales(l))
        of[n++] = (Scalar){"train/loss_scale", s->loss_scale};
    return events_write(l->events, s->step, of, n);
}

PpStatus log_step(Log *l, const StepLog *step)
{
    /* A NaN's sign says nothing, and is not always the same */
    StepLog signless = *step, *s = &signless;
    l->done = s->step;
    if (!l->speaks)
        return PP_OK;
    if (isnan(s->loss))
        s->loss = fabs(s->loss);
    if (isnan(s->grad_norm))
        s->grad_norm = fabs(s->grad_norm);
    if (l->json)
        TRY(step_json(l, s));
    if (l->events)
        TRY(step_events(l, s));
    double seconds = mean_seconds(l, s->seconds);
    if (!l->opt->report.quiet)
        (l->bar ? progress : step_line)(l, s, seconds);
    return PP_OK;
}

/* ---- the loss over many rows ---- */

PpStatus log_mean(const Log *l, double loss, int64_t rows)
{
    if (!l->speaks)
        return PP_OK;
    if (l->json) {
        JsonOut o = line(l);
        json_put(&o, "rows", "%" PRId64, rows);
        json_put_real(&o, "mean_loss", loss);
        TRY(log_line_end(l, &o, "}"));
    }
    if (!l->opt->report.quiet || !l->json)
        printf("mean loss %s over %" PRId64 " rows\n", loss_text(loss).text, rows);
    return PP_OK;
}

PpStatus log_evaluation(const Log *l, int64_t done, double loss, int64_t rows, double seconds)
{
    if (!l->speaks)
        return PP_OK;
    if (isnan(loss))
        loss = fabs(loss);
    if (l->json) {
        JsonOut o = line(l); /* only lines of steps have a "step" */
        json_put_real(&o, "eval_loss", loss);
        json_put(&o, "eval_step", "%" PRId64, done);
        json_put(&o, "rows", "%" PRId64, rows);
        json_put_real(&o, "seconds", seconds);
        TRY(log_line_end(l, &o, "}"));
    }
    if (l->events)
        TRY(events_write(l->events, done, &(Scalar){"eval/loss", loss}, 1));
    if (l->opt->report.quiet)
        return PP_OK;
    printf("%sstep %" PRId64 "/%" PRId64 " eval_loss %s rows %" PRId64 "\n",
           l->bar ? "\r\033[K" : "", done, l->steps, loss_text(loss).text, rows);
    fflush(stdout);
    return PP_OK;
}

/* ---- the end ---- */

void log_end(const Log *l, int64_t saved)
{
    double took = pp_now() - l->begun;
    int64_t n = l->done - l->first;
    if (!l->speaks || l->opt->report.quiet)
        return;
    printf("done: ");
    if (l->first || l->done < l->steps)
        printf("steps %" PRId64 " to %" PRId64 " of %" PRId64, l->first + 1, l->done, l->steps);
    else
        printf("%" PRId64 " step%s", n, n == 1 ? "" : "s");
    printf(" in %s, %.0f tokens/s", time_text(took).text, rate((double)(n * l->tokens), took));
    if (l->opt->mode == MODE_TRAIN && l->opt->save.checkpoint && saved > 0)
        printf("; saved in %s/step_%" PRId64 "\n", l->opt->save.checkpoint, saved);
    else
        puts(l->opt->mode == MODE_TRAIN ? "; nothing was saved: no --checkpoint" : "");
    fflush(stdout);
}

PpStatus log_close(Log *l)
{
    PpStatus events = events_close(l->events);
    l->events = NULL;
    if (!l->json)
        return events;
    const char *path = l->opt->report.log_json;
    int bad = ferror(l->json) | (l->json == stdout ? fflush(stdout) : fclose(l->json));
    l->json = NULL;
    if (bad && l->made)
        unlink(path); /* there was no room for its first line */
    return bad ? pp_fail(PP_ERR_IO, "--log-json %s: write error", path) : events;
}

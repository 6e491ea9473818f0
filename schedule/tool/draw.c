/*
 * draw.c - pictures of a schedule: a grid on a terminal, SVG, and the Chrome trace of a simulation.
 *
 * In: rows and the times of a simulation.  Out: text on a FILE.  One line, lane or thread per rank,
 * time from left to right. Colours: forwards blue, backwards green, weight gradients orange, as the
 * papers draw them.
 */
#include "schedule/rows.h"
#include "schedule/simulate/trace.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int colour_of(const SchedAction *a) /* index of the colours below */
{
    switch (a->type) {
    case SA_F: return 1;
    case SA_B: return 2;
    case SA_I: return 3;
    case SA_W: return 4;
    case SA_R: return 5;
    default: return 0;
    }
}

static double shortest(const Schedule *s, const SchedSim *sim)
{
    double least = sim->makespan;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            double d = sim->end[r][i] - sim->start[r][i];
            if (sched_is_compute(s->row[r].a[i].type) && d > 0 && d < least)
                least = d;
        }
    return least;
}

/* ---- Terminal ---- */

typedef struct {
    char *text;
    unsigned char *colour;
} Line;

static void draw_cell(Line *l, int columns, int from, int to, const SchedAction *a)
{
    char name[64];
    if (to > columns)
        to = columns;
    if (from >= to)
        return;
    int n = sched_action_text(name, sizeof name, a), room = to - from;
    /* Too narrow for the whole: type and microbatch, then the type alone. */
    if (n >= room && a->microbatch >= 0)
        n = snprintf(name, sizeof name, "%s%d", sched_type_name(a->type), a->microbatch);
    if (n >= room && room > 1)
        n = snprintf(name, sizeof name, "%s", sched_type_name(a->type));
    for (int k = from; k < to; k++) {
        l->text[k] = k - from < n ? name[k - from] : '-';
        l->colour[k] = (unsigned char)colour_of(a);
    }
    if (room > 1)
        l->text[to - 1] = '|';
}

void sched_draw_grid(const Schedule *s, const SchedSim *sim, FILE *f, int columns)
{
    static const char *const code[] = {
        "", "\033[44;97m", "\033[42;30m", "\033[46;30m", "\033[43;30m", "\033[45;97m"};
    int colours = isatty(fileno(f)) && !getenv("NO_COLOR");
    double least = shortest(s, sim), scale;
    int width = sim->makespan > 0 && least > 0 && 5 * sim->makespan / least < 100000
                    ? (int)ceil(5 * sim->makespan / least)
                    : 100000;
    if (columns <= 0)
        columns = 200;
    width = width < columns ? width : columns;
    scale = sim->makespan > 0 ? width / sim->makespan : 1;
    Line l = {malloc((size_t)width + 1), malloc((size_t)width + 1)};
    for (int r = 0; l.text && l.colour && r < s->ranks; r++) {
        int now = 0;
        memset(l.text, ' ', (size_t)width);
        memset(l.colour, 0, (size_t)width);
        for (int i = 0; i < s->row[r].n; i++)
            if (sched_is_compute(s->row[r].a[i].type))
                draw_cell(&l, width, (int)floor(sim->start[r][i] * scale + 1e-9),
                          (int)floor(sim->end[r][i] * scale + 1e-9), &s->row[r].a[i]);
        fprintf(f, "rank %-3d ", r);
        for (int k = 0; k < width; k++) {
            if (colours && l.colour[k] != now) {
                fputs(now ? "\033[0m" : "", f);
                fputs(code[l.colour[k]], f);
                now = l.colour[k];
            }
            fputc(l.text[k], f);
        }
        fputs(now ? "\033[0m\n" : "\n", f);
    }
    free(l.text);
    free(l.colour);
}

/* ---- SVG ---- */

enum { LANE = 26, LEFT = 60, MARGIN = 10 };

static void svg_action(FILE *f, const SchedAction *a, double start, double end, double scale,
                       double y, double unit)
{
    static const char *const fill[] = {"#bbbbbb", "#6fa8dc", "#93c47d",
                                       "#76c7c0", "#f6b26b", "#c27ba0"};
    double x = LEFT + start * scale, w = (end - start) * scale;
    char name[64];
    int beside = sched_copies(a->type); /* a thin line below the computations */
    if (a->type == SA_IDLE || w <= 0)
        return;
    sched_action_text(name, sizeof name, a);
    fprintf(f,
            "<g><title>%s %.6g - %.6g%s</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
            "height=\"%d\" "
            "fill=\"%s\" stroke=\"#444\" "
            "stroke-width=\"0.5\"/>",
            name, start / unit, end / unit, unit > 1 ? " ms" : "", x, beside ? y + 22 : y, w,
            beside ? 3 : 22, fill[colour_of(a)]);
    if (!beside && w >= 6.0 * (double)strlen(name) + 2)
        fprintf(f, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#111\">%s</text>",
                x + w / 2, y + 15, name);
    fprintf(f, "</g>\n");
}

/* Idle time is what stays of a lane's ground, which ends with the schedule. */
static void svg(const Schedule *s, const SchedSim *sim, double scale, double width, double unit,
                const char *what, FILE *f)
{
    int height = LANE * s->ranks + 30;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" "
            "viewBox=\"0 0 %.0f %d\" role=\"img\" font-family=\"sans-serif\" "
            "font-size=\"10\" fill=\"currentColor\">\n<title>%s, %d ranks, %d stages, %d "
            "microbatches</title>\n",
            width, height, width, height, what, s->ranks, s->stages, s->microbatches);
    for (int r = 0; r < s->ranks; r++) {
        double y = 5 + LANE * r, idle = sim->makespan - sim->busy[r];
        fprintf(f,
                "<text x=\"4\" y=\"%.1f\">rank %d</text><g><title>rank %d idle %.6g%s of %.6g"
                "</title><rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"22\" fill=\"#888\" "
                "fill-opacity=\"0.18\"/></g>\n",
                y + 15, r, r, idle / unit, unit > 1 ? " ms" : "", sim->makespan / unit, LEFT, y,
                sim->makespan * scale);
        for (int i = 0; i < s->row[r].n; i++)
            svg_action(f, &s->row[r].a[i], sim->start[r][i], sim->end[r][i], scale, y, unit);
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%d\">0</text><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"end\">%.*g%s</text>\n</svg>\n",
            LEFT, height - 8, fmax(LEFT + sim->makespan * scale, LEFT + 90), height - 8,
            unit > 1 ? 5 : 10, sim->makespan / unit, unit > 1 ? " ms" : "");
}

void sched_draw_svg(const Schedule *s, const SchedSim *sim, FILE *f)
{
    double least = shortest(s, sim), scale = least > 0 ? 28 / least : 1;
    if (sim->makespan * scale > 20000)
        scale = 20000 / sim->makespan;
    svg(s, sim, scale, LEFT + sim->makespan * scale + MARGIN, 1, s->name, f);
}

void sched_draw_svg_in(const Schedule *s, const SchedSim *sim, double whole, double width,
                       const char *what, FILE *f)
{
    svg(s, sim, whole > 0 ? (width - LEFT - MARGIN) / whole : 1, width, 1000, what, f);
}

void sched_draw_trace(const Schedule *s, const SchedSim *sim, FILE *f)
{
    sched_trace_open(f, s->name, s->ranks);
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0, copies = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            if (sched_copies(a->type) && !copies++)
                sched_trace_name(f, r, s->ranks, 0, LINE_COPIES);
            if (a->type != SA_IDLE)
                sched_trace_event(
                    f, sched_copies(a->type) ? 2 * s->ranks + r : r, a, 0,
                    (SchedSpan){sim->start[r][i], sim->end[r][i] - sim->start[r][i], -1, 0, NULL});
        }
    sched_trace_close(f);
}

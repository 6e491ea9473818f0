/*
 * forecast.c - how long a step takes on a GPU at the least.  In: launches.tsv of an output folder,
 * what the program launches.  Out: seconds by kind and the longest launches, by the model of
 * partition/auto/card.h, of which plans have their seconds too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/map.h"
#include "search.h"

/* ---- launches.tsv ---------------------------------------------------------------------------- */

/* Launches that are alike, of a step. */
typedef struct {
    const char *kind, *function, *nodes;
    int stage, part;
    double times; /* of a step */
    Work work;
    double seconds; /* of all */
    Bound bound;
} Line;

typedef struct {
    Arena *arena;
    const char *out, *file;
    Card card;
    int microbatches, longest, states;
    int64_t rows;
    int stages;
    VEC(Line) line;
} Forecast;

static NORETURN void damaged(const Forecast *f, uint32_t line)
{
    diag_fatal(EXIT_IO, WHERE_FILE(f->file), "line %u is not what ppsplit writes", line);
}

static double number(const Forecast *f, uint32_t line, const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0) || v > 1e300)
        damaged(f, line);
    return v;
}

/* How often it runs in a step of training; 0: it does not. */
static double times_of(const Forecast *f, const char *function, bool once)
{
    if (!strcmp(function, "forward") || !strcmp(function, "backward"))
        return once ? 1 : f->microbatches;
    if (!strcmp(function, "state"))
        return f->states;
    return !strcmp(function, "update");
}

static Unit unit_find(const Forecast *f, uint32_t line, const char *name)
{
    for (int u = 0; u < UNIT_COUNT; u++)
        if (!strcmp(name, unit_name[u]))
            return (Unit)u;
    damaged(f, line);
}

static bool same(const Line *x, const Line *y)
{
    const Work *a = &x->work, *b = &y->work;
    return x->stage == y->stage && x->part == y->part && !strcmp(x->kind, y->kind) &&
           !strcmp(x->function, y->function) && a->unit == b->unit && a->launches == b->launches &&
           a->operations.c == b->operations.c && a->bytes.c == b->bytes.c &&
           a->near.c == b->near.c && a->m.c == b->m.c && a->n.c == b->n.c && a->k.c == b->k.c &&
           a->odd == b->odd;
}

static void add_line(Forecast *f, Line x)
{
    x.seconds = x.times * card_seconds(&f->card, &x.work, 0, &x.bound);
    f->stages = x.stage >= f->stages ? x.stage + 1 : f->stages;
    for (uint32_t i = 0; i < f->line.n; i++)
        if (same(&f->line.at[i], &x)) {
            f->line.at[i].times += x.times;
            f->line.at[i].seconds += x.seconds;
            return;
        }
    vec_push(f->arena, &f->line, x);
}

static void read_launch(Forecast *f, uint32_t n, char *text)
{
    enum {
        STAGE,
        FUNCTION,
        ONCE,
        PART,
        KIND,
        UNIT,
        STARTS,
        OPERATIONS,
        BYTES,
        M,
        N,
        K,
        COUNT,
        ODD,
        NEAR,
        NODE_TEXT,
        FIELDS
    };
    char *field[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        field[i] = text;
        text = text ? strchr(text, '\t') : NULL;
        if (!text && i + 1 < FIELDS)
            damaged(f, n);
        if (text && i + 1 < FIELDS)
            *text++ = '\0';
    }
    double v[NEAR + 1];
    for (int i = STARTS; i <= NEAR; i++)
        v[i] = number(f, n, field[i]);
    Line x = {.kind = field[KIND],
              .function = field[FUNCTION],
              .nodes = field[NODE_TEXT],
              .stage = (int)number(f, n, field[STAGE]),
              .part = *field[PART],
              .times = times_of(f, field[FUNCTION], number(f, n, field[ONCE]) > 0),
              .work = {.unit = unit_find(f, n, field[UNIT]),
                       .launches = (int)v[STARTS],
                       .operations = {v[OPERATIONS], 0},
                       .bytes = {v[BYTES], 0},
                       .near = {v[NEAR], 0},
                       .m = {v[M], 0},
                       .n = {v[N], 0},
                       .k = {v[K], 0},
                       .count = {v[COUNT], 0},
                       .odd = v[ODD] > 0}};
    if (x.times > 0)
        add_line(f, x);
}

static void read_launches(Forecast *f)
{
    char why[FILE_WHY];
    f->file = arena_printf(f->arena, "%s/launches.tsv", f->out);
    FileMap *map = file_map(f->file, why);
    if (!map) {
        diag_hint("ppsplit MODEL.onnx --loss LOSS --target cuda -o %s writes it", f->out);
        diag_fatal(EXIT_IO, WHERE_FILE(f->file), "%s", why);
    }
    char *text = arena_strndup(f->arena, (const char *)map->at, map->bytes), *end;
    file_unmap(map);
    for (uint32_t n = 1; *text; n++, text = end) {
        end = text + strcspn(text, "\n");
        if (*end)
            *end++ = '\0';
        if (n == 1 && strncmp(text, "rows\t", 5))
            damaged(f, n);
        if (n == 1)
            f->rows = (int64_t)number(f, n, text + 5);
        else if (n > 2)
            read_launch(f, n, text);
    }
}

/* ---- what is said of them -------------------------------------------------------------------- */

typedef struct {
    const char *kind;
    double launches, seconds, operations, bytes;
} Kind;

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
    return x != y ? (x < y ? 1 : -1) : strcmp(((const Line *)a)->nodes, ((const Line *)b)->nodes);
}
static int by_kind(const void *a, const void *b)
{
    const double x = ((const Kind *)a)->seconds, y = ((const Kind *)b)->seconds;
    return x != y ? (x < y ? 1 : -1) : strcmp(((const Kind *)a)->kind, ((const Kind *)b)->kind);
}

/* Of loops the operations are instructions: no FLOP. */
static void add_to(Kind *k, const Line *x)
{
    k->launches += x->times * x->work.launches;
    k->seconds += x->seconds;
    k->operations += x->work.unit > UNIT_SCALAR ? x->times * x->work.operations.c : 0;
    k->bytes += x->times * x->work.bytes.c;
}

static void print_kind(const Kind *k, double all)
{
    char flops[24] = "-";
    if (k->operations > 0)
        snprintf(flops, sizeof flops, "%.0f", k->operations / k->seconds * 1e-12);
    printf("%-14s %8.0f %10.3f %6.1f %% %9s %9.0f\n", k->kind, k->launches, k->seconds * 1e3,
           all > 0 ? 100 * k->seconds / all : 0, flops, k->bytes / k->seconds * 1e-9);
}

/* With what launches take beyond their floors, where the CPU is not done with the next. */
static void print_kinds(const Forecast *f, double step)
{
    VEC(Kind) kind = {0};
    Kind all = {.kind = "all"}, host = {.kind = "host"};
    for (uint32_t i = 0; i < f->line.n; i++) {
        uint32_t k = 0;
        while (k < kind.n && strcmp(kind.at[k].kind, f->line.at[i].kind))
            k++;
        if (k == kind.n)
            vec_push(f->arena, &kind, (Kind){.kind = f->line.at[i].kind});
        add_to(&kind.at[k], &f->line.at[i]);
        add_to(&all, &f->line.at[i]);
    }
    host.seconds = step - all.seconds;
    all.seconds = step;
    if (host.seconds > 1e-9 * step)
        vec_push(f->arena, &kind, host);
    qsort(kind.at, kind.n, sizeof *kind.at, by_kind);
    printf("\n%-14s %8s %10s %8s %9s %9s\n", "kind", "launches", "ms", "of all", "TFLOP/s", "GB/s");
    for (uint32_t k = 0; k < kind.n; k++)
        print_kind(&kind.at[k], all.seconds);
    print_kind(&all, all.seconds);
}

static void print_longest(const Forecast *f)
{
    printf("\n%10s %6s %-10s %s\n", "ms", "times", "bound by", "what");
    for (uint32_t i = 0; i < f->line.n && i < (uint32_t)f->longest; i++) {
        const Line *x = &f->line.at[i];
        const char *bound = x->bound == BOUND_LAUNCH   ? "launch"
                            : x->bound == BOUND_MEMORY ? "memory"
                                                       : unit_name[x->work.unit];
        printf("%10.3f %6.0f %-10s %s, %s", x->seconds * 1e3, x->times, bound, x->kind,
               x->function);
        if (f->stages > 1)
            printf(" of stage %d", x->stage);
        if (x->work.m.c > 0)
            printf(", %.0f x %.0f x %.0f", x->work.m.c, x->work.n.c, x->work.k.c);
        if (*x->nodes)
            printf(": %.60s%s", x->nodes, strlen(x->nodes) > 60 ? ".." : "");
        printf("\n");
    }
}

/* The optimizer's states are a part of its update. */
static double sum(const Forecast *f, int stage, const char *function)
{
    Launched s = {0};
    for (uint32_t i = 0; i < f->line.n; i++) {
        const Line *x = &f->line.at[i];
        const char *of = strcmp(x->function, "state") ? x->function : "update";
        bool part = x->stage == stage && !strcmp(of, function);
        s.floors += part ? x->seconds : 0;
        s.launches += part ? x->times * x->work.launches : 0;
    }
    return card_launched(&f->card, s);
}


void forecast_tell(void *options)
{
    const ForecastOptions *o = options;
    Forecast own = {.arena = o->arena,
                    .out = o->out,
                    .card = o->tf32 ? card_tf32(o->card) : *o->card,
                    .microbatches = o->microbatches,
                    .longest = o->longest,
                    .states = optimizer_states(o->optimizer)},
             *f = &own;
    double step = 0;
    read_launches(f);
    for (int s = 0; s < f->stages; s++)
        step += sum(f, s, "forward") + sum(f, s, "backward") + sum(f, s, "update");
    if (f->line.n > 0)
        qsort(f->line.at, f->line.n, sizeof *f->line.at, by_seconds);
    printf("a step on one %s: %.3f ms at the least, %d microbatch%s of %" PRId64 " row%s\n",
           f->card.title, step * 1e3, f->microbatches, f->microbatches > 1 ? "es" : "", f->rows,
           f->rows == 1 ? "" : "s");
    for (int s = 0; s < f->stages; s++)
        printf("stage %d: forward %.3f ms, backward %.3f ms, update %.3f ms\n", s,
               sum(f, s, "forward") * 1e3, sum(f, s, "backward") * 1e3, sum(f, s, "update") * 1e3);
    print_kinds(f, step);
    print_longest(f);
}

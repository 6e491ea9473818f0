/*
 * trace.c - the Chrome trace, of a simulation and of a run alike.
 *
 * In: open, any number of events, close; times in microseconds.  Out: on a FILE complete events
 * ("ph":"X"), `name` the action's text, `cat` its type, pid 0, tid the rank, args
 * {"step":N,"stage":S,"microbatch":M}.  Of a run also metadata events: "split", args
 * {"points":[...]}: how its model was cut; for each rank "memory planned" and "memory always", args
 * {"bytes":N}: what its step takes at most, and what is in use between steps; and in args of each
 * action "bytes": what is in use while it runs, "members": for how long of it the rank waited for
 * other members, and, where lengths vary, "lengths": {"seq":17}, those of its microbatch.
 * Time that a rank waits is an event of its own named "wait", cat "wait", so that the duration of
 * an action is the action's alone.  Of a program that ppsplit --profile wrote, pid 1 has the steps
 * of its stages' functions, each of its mean duration: cat "kernel",
 * args {"stage":S,"part":"F","nodes":[...]}.
 */
#include "trace.h"
#include "base/file/json.h"

#include <string.h>

/* What all events have; of metadata, which have no category, the args are open. */
static JsonOut event(FILE *f, const char *name, const char *cat, int pid, int tid)
{
    JsonOut o = {.f = f, .compact = 1};
    json_begin(&o, NULL, '{');
    json_put_text(&o, "name", name);
    if (cat)
        json_put_text(&o, "cat", cat);
    json_put_text(&o, "ph", cat ? "X" : "M");
    json_put(&o, "pid", "%d", pid);
    json_put(&o, "tid", "%d", tid);
    if (!cat)
        json_begin(&o, "args", '{');
    return o;
}

static JsonOut another(FILE *f, const char *name, const char *cat, int pid, int tid)
{
    fputs(",\n", f);
    return event(f, name, cat, pid, tid);
}

/* Its args are open. */
static JsonOut span(FILE *f, const char *name, const char *cat, int pid, int tid, double ts,
                    double dur)
{
    JsonOut o = another(f, name, cat, pid, tid);
    json_put(&o, "ts", "%.3f", ts);
    json_put(&o, "dur", "%.3f", dur);
    json_begin(&o, "args", '{');
    return o;
}

static void named(FILE *f, const char *what, int pid, int tid, const char *name)
{
    JsonOut o = another(f, what, NULL, pid, tid);
    json_put_text(&o, "name", name);
    json_end(&o, "}}");
}

void sched_trace_open(FILE *f, const char *title, int ranks)
{
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", f);
    JsonOut o = event(f, "process_name", NULL, 0, 0);
    json_put_text(&o, "name", title);
    json_end(&o, "}}");
    for (int r = 0; r < ranks; r++)
        sched_trace_name(f, r, ranks, 0, 0);
}

void sched_trace_split(FILE *f, const char *const *point, int n)
{
    JsonOut o = another(f, "split", NULL, 0, 0);
    json_begin(&o, "points", '[');
    for (int i = 0; i < n; i++)
        json_put_text(&o, NULL, point[i]);
    json_end(&o, "]}}");
}

int sched_trace_line(int rank, int ranks, int member, int line)
{
    return (member * LINES + line) * ranks + rank;
}

void sched_trace_name(FILE *f, int rank, int ranks, int member, int line)
{
    static const char *const what[LINES] = {"", ", beside", ", copies", ", sums over replicas",
                                            ", gathers of parameters"};
    char of[32] = "", name[80];
    if (member)
        snprintf(of, sizeof of, ", member %d", member);
    snprintf(name, sizeof name, "rank %d%s%s", rank, of, what[line]);
    named(f, "thread_name", 0, sched_trace_line(rank, ranks, member, line), name);
}

void sched_trace_kernels(FILE *f, int line, int stage, const char *function)
{
    char name[80];
    snprintf(name, sizeof name, "stage %d, %s", stage, function);
    named(f, "process_name", 1, 0, "steps of a mean call");
    named(f, "thread_name", 1, line, name);
}

void sched_trace_kernel(FILE *f, int line, int stage, int part, const char *nodes, double ts,
                        double dur)
{
    char one[512];
    JsonOut o = span(f, "kernel", "kernel", 1, line, ts, dur);
    json_put(&o, "stage", "%d", stage);
    json_put(&o, "part", "\"%c\"", part);
    json_begin(&o, "nodes", '[');
    for (const char *at = nodes; *at;) {
        size_t n = strcspn(at, "\n");
        snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), at);
        json_put_text(&o, NULL, one);
        at += n + (at[n] == '\n');
    }
    json_end(&o, "]}}");
}

static JsonOut action(FILE *f, const char *name, const char *cat, int rank, const SchedAction *a,
                      int step, SchedSpan s)
{
    JsonOut o = span(f, name, cat, 0, rank, s.ts, s.dur);
    json_put(&o, "step", "%d", step);
    json_put(&o, "stage", "%d", a->stage);
    if (a->microbatch >= 0)
        json_put(&o, "microbatch", "%d", a->microbatch);
    if (s.bytes >= 0)
        json_put(&o, "bytes", "%.0f", s.bytes);
    if (s.members > 0)
        json_put(&o, "members", "%.3f", s.members);
    if (!s.places || a->microbatch < 0 || !s.places->n)
        return o;
    json_begin(&o, "lengths", '{');
    for (int v = 0; v < s.places->n; v++)
        json_put(&o, s.places->name[v], "%lld", (long long)s.places->of[v]);
    json_end(&o, "}");
    return o;
}

void sched_trace_memory(FILE *f, int rank, double planned, double always)
{
    for (int k = 0; k < 2; k++) {
        JsonOut o = another(f, k ? "memory always" : "memory planned", NULL, 0, rank);
        json_put(&o, "bytes", "%.0f", k ? always : planned);
        json_end(&o, "}}");
    }
}

void sched_trace_event(FILE *f, int rank, const SchedAction *a, int step, SchedSpan s)
{
    char name[64];
    sched_action_text(name, sizeof name, a);
    JsonOut o = action(f, name, sched_type_name(a->type), rank, a, step, s);
    json_end(&o, "}}");
}

void sched_trace_replicas(FILE *f, int tid, const char *what, int stage, int step, SchedSpan s,
                          double beside)
{
    SchedAction a = {.stage = stage, .microbatch = -1};
    char name[32];
    snprintf(name, sizeof name, "%d%s", stage, what);
    JsonOut o = action(f, name, what, tid, &a, step, s);
    if (beside > 0)
        json_put(&o, "beside", "%.3f", beside);
    json_end(&o, "}}");
}

void sched_trace_around(FILE *f, int rank, const char *name, int step, double ts, double dur)
{
    JsonOut o = span(f, name, "step", 0, rank, ts, dur);
    json_put(&o, "step", "%d", step);
    json_end(&o, "}}");
}

void sched_trace_wait(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur)
{
    char name[64];
    sched_action_text(name, sizeof name, a);
    JsonOut o = action(f, "wait", "wait", rank, a, step, (SchedSpan){ts, dur, -1, 0, NULL});
    json_put_text(&o, "for", name);
    json_end(&o, "}}");
}

void sched_trace_close(FILE *f) { fprintf(f, "\n]}\n"); }

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

void sched_trace_open(FILE *f, const char *title, int ranks)
{
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":"
               "\"M\",\"pid\":0,"
               "\"tid\":0,\"args\":{\"name\":");
    json_write_string(f, title);
    fprintf(f, "}}");
    for (int r = 0; r < ranks; r++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":"
                "\"rank %d\"}}",
                r, r);
}

void sched_trace_split(FILE *f, const char *const *point, int n)
{
    fputs(",\n{\"name\":\"split\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"points\":[", f);
    for (int i = 0; i < n; i++) {
        fputs(i ? "," : "", f);
        json_write_string(f, point[i]);
    }
    fputs("]}}", f);
}

int sched_trace_line(int rank, int ranks, int member, int line)
{
    return (member * LINES + line) * ranks + rank;
}

void sched_trace_name(FILE *f, int rank, int ranks, int member, int line)
{
    static const char *const what[LINES] = {"", ", beside", ", copies", ", sums over replicas",
                                            ", gathers of parameters"};
    char of[32] = "";
    if (member)
        snprintf(of, sizeof of, ", member %d", member);
    fprintf(f,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":"
            "\"rank %d%s%s\"}}",
            sched_trace_line(rank, ranks, member, line), rank, of, what[line]);
}

void sched_trace_kernels(FILE *f, int line, int stage, const char *function)
{
    fprintf(f,
            ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":"
            "\"steps of a mean call\"}}"
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":"
            "\"stage %d, %s\"}}",
            line, stage, function);
}

void sched_trace_kernel(FILE *f, int line, int stage, int part, const char *nodes, double ts,
                        double dur)
{
    char one[512];
    fprintf(f,
            ",\n{\"name\":\"kernel\",\"cat\":\"kernel\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,"
            "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"stage\":%d,\"part\":\"%c\",\"nodes\":[",
            line, ts, dur, stage, part);
    for (const char *at = nodes; *at;) {
        size_t n = strcspn(at, "\n");
        fputs(at == nodes ? "" : ",", f);
        snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), at);
        json_write_string(f, one);
        at += n + (at[n] == '\n');
    }
    fputs("]}}", f);
}

/* Its args are not closed. */
static void event(FILE *f, const char *name, const char *cat, int rank, const SchedAction *a,
                  int step, SchedSpan s)
{
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{"
            "\"step\":%d,\"stage\":%d",
            name, cat, rank, s.ts, s.dur, step, a->stage);
    if (a->microbatch >= 0)
        fprintf(f, ",\"microbatch\":%d", a->microbatch);
    if (s.bytes >= 0)
        fprintf(f, ",\"bytes\":%.0f", s.bytes);
    if (s.members > 0)
        fprintf(f, ",\"members\":%.3f", s.members);
    for (int v = 0; s.places && a->microbatch >= 0 && v < s.places->n; v++) {
        fputs(v ? "," : ",\"lengths\":{", f);
        json_write_string(f, s.places->name[v]);
        fprintf(f, ":%lld%s", (long long)s.places->of[v], v + 1 < s.places->n ? "" : "}");
    }
}

static void memory(FILE *f, int rank, const char *which, double bytes)
{
    fprintf(f,
            ",\n{\"name\":\"memory %s\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{"
            "\"bytes\":%.0f}}",
            which, rank, bytes);
}

void sched_trace_memory(FILE *f, int rank, double planned, double always)
{
    memory(f, rank, "planned", planned);
    memory(f, rank, "always", always);
}

void sched_trace_event(FILE *f, int rank, const SchedAction *a, int step, SchedSpan s)
{
    char name[64];
    sched_action_text(name, sizeof name, a);
    event(f, name, sched_type_name(a->type), rank, a, step, s);
    fprintf(f, "}}");
}

void sched_trace_replicas(FILE *f, int tid, const char *what, int stage, int step, SchedSpan s,
                          double beside)
{
    SchedAction a = {.stage = stage, .microbatch = -1};
    char name[32];
    snprintf(name, sizeof name, "%d%s", stage, what);
    event(f, name, what, tid, &a, step, s);
    if (beside > 0)
        fprintf(f, ",\"beside\":%.3f", beside);
    fprintf(f, "}}");
}

void sched_trace_around(FILE *f, int rank, const char *name, int step, double ts, double dur)
{
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{"
            "\"step\":%d}}",
            name, rank, ts, dur, step);
}

void sched_trace_wait(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur)
{
    char name[64];
    sched_action_text(name, sizeof name, a);
    event(f, "wait", "wait", rank, a, step, (SchedSpan){ts, dur, -1, 0, NULL});
    fprintf(f, ",\"for\":\"%s\"}}", name);
}

void sched_trace_close(FILE *f) { fprintf(f, "\n]}\n"); }

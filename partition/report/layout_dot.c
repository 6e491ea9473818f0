/*
 * layout_dot.c - places by graphviz's dot, where it is installed: its order of boxes and its
 * network simplex for x.  In: a Layout.  Out: x, read from `dot -Tplain`.
 *
 * dot is given numbers only, no name of a model.  It is run without a shell, reads a file without a
 * name, and is ended when it takes longer than LONGEST or says more than there can be.
 */
#include "layout.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 10000, INCH = 72 }; /* milliseconds */
extern char **environ;

static void put_graph(const Layout *l, FILE *f)
{
    fprintf(f,
            "digraph g {\nnodesep=%.4f\nranksep=0.3\nnode [shape=box fixedsize=true height=0.3 "
            "label=\"\"]\nedge [arrowhead=none]\n",
            l->gap / INCH);
    /* a column of boxes keeps the layers apart */
    for (uint32_t t = 0; t < l->layers; t++) {
        fprintf(f, "{ rank=same a%u [width=0.01 style=invis]", t);
        for (uint32_t i = 0; i < l->box.n; i++)
            if (l->box.at[i].layer == t)
                fprintf(f, " n%u [width=%.4f]", i, fmax(l->box.at[i].width, 1) / INCH);
        fputs(" }\n", f);
        if (t)
            fprintf(f, "a%u -> a%u [style=invis]\n", t - 1, t);
    }
    for (uint32_t i = 0; i < l->edge.n; i++) {
        const LayoutEdge *e = &l->edge.at[i];
        bool bends = l->box.at[e->from].bend && l->box.at[e->to].bend;
        fprintf(f, "n%u -> n%u [weight=%d]\n", e->from, e->to, bends ? 8 : 2);
    }
    fputs("}\n", f);
}

/* dot, which reads `in`; -1: there is none. */
static pid_t start(int in, int out)
{
    posix_spawn_file_actions_t files;
    char program[] = "dot", how[] = "-Tplain", *argv[] = {program, how, NULL};
    pid_t pid = -1;
    if (posix_spawn_file_actions_init(&files))
        return -1;
    int bad = posix_spawn_file_actions_adddup2(&files, in, 0) ||
              posix_spawn_file_actions_adddup2(&files, out, 1) ||
              posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0) ||
              posix_spawnp(&pid, program, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return bad ? -1 : pid;
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* All that it says, up to `most` bytes; NULL: it says more, or takes too long. */
static char *listen_to(Arena *a, int fd, size_t most)
{
    char *text = arena_alloc(a, most + 1);
    int64_t end = now() + LONGEST;
    for (size_t n = 0; n < most;) {
        int64_t left = end - now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            return NULL;
        ssize_t got = read(fd, text + n, most - n);
        if (got <= 0)
            return got < 0 ? NULL : text;
        n += (size_t)got;
    }
    return NULL;
}

/* node NAME x y ..., a line each, in inches.  false: one is missing. */
static bool read_places(Layout *l, double *x, char *text)
{
    uint32_t found = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned i;
        char at[64], *end;
        if (sscanf(line, "node n%u %63s", &i, at) != 2 || i >= l->box.n)
            continue;
        double v = strtod(at, &end);
        if (*end || !(fabs(v) < 1e6) || isfinite(x[i]))
            return false;
        x[i] = v * INCH;
        found++;
    }
    return found == l->box.n;
}

const char *layout_dot(Arena *outer, Layout *l)
{
    Arena *a = arena_within(outer);
    double *x = arena_array(a, double, l->box.n);
    const char *why = "there is no program dot";
    FILE *f = tmpfile();
    int to[2];
    for (uint32_t i = 0; i < l->box.n; i++)
        x[i] = HUGE_VAL;
    if (!f || pipe(to) != 0) {
        if (f)
            fclose(f);
        arena_free(a);
        return "no file could be opened for dot";
    }
    put_graph(l, f);
    rewind(f);
    fcntl(to[0], F_SETFD, FD_CLOEXEC);
    fcntl(to[1], F_SETFD, FD_CLOEXEC);
    pid_t pid = start(fileno(f), to[1]);
    close(to[1]);
    if (pid > 0) {
        int status = 1;
        char *text = listen_to(a, to[0], 4096 + 512 * ((size_t)l->box.n + l->edge.n + l->layers));
        if (!text)
            kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        why = !text                      ? "dot took too long"
              : status != 0              ? "dot failed"
              : !read_places(l, x, text) ? "dot said something else"
                                         : NULL;
    }
    close(to[0]);
    fclose(f);
    for (uint32_t i = 0; i < l->box.n && !why; i++)
        l->box.at[i].x = x[i];
    arena_free(a);
    return why;
}

/*
 * runtime_run.h - pp_main() on a pipeline written by hand, as `out/pipeline` would be called: in a
 * child process, its files in a folder of the test; TAP lines.
 */
#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H

#include "base/file/npy.h"
#include "base/file/safetensors.h"
#include "runtime/api/pp.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int number, failed;
static char folder[256];

static void ok(int good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void ok(int good, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("%sok %d - %s\n", good ? "" : "not ", ++number, text);
    failed |= !good;
}

static const char *at(const char *name)
{
    static char path[8][400];
    static int k;
    snprintf(path[k = (k + 1) % 8], sizeof path[0], "%s/%s", folder, name);
    return path[k];
}

/* Runs the command in a child (a failure may end it), its words in OUT and ERR; its exit status. */
static int run_words(const PpPlan *p, int n, char **argv)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(at("out"), "w", stdout) || !freopen(at("err"), "w", stderr))
            _exit(99);
        alarm(20);
        int s = pp_main(n, argv, p);
        fflush(stdout);
        exit(s);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int command(const PpPlan *p, ...)
{
    static char words[64][500], *argv[65];
    int n = 0;
    va_list ap;
    va_start(ap, p);
    snprintf(words[n++], sizeof words[0], "pipeline");
    for (const char *s; (s = va_arg(ap, const char *)) != NULL;)
        snprintf(words[n++], sizeof words[0], "%s", s);
    va_end(ap);
    for (int i = 0; i <= n; i++)
        argv[i] = i < n ? words[i] : NULL;
    return run_words(p, n, argv);
}

/* The same of a line whose words have no spaces. */
__attribute__((format(printf, 2, 3))) static inline int command_line(const PpPlan *p,
                                                                     const char *fmt, ...)
{
    static char line[8000], *argv[65];
    int n = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    argv[n++] = (char[]){"pipeline"};
    for (char *w = strtok(line, " "); w && n < 64; w = strtok(NULL, " "))
        argv[n++] = w;
    argv[n] = NULL;
    return run_words(p, n, argv);
}

static char *slurp(const char *path)
{
    static char text[20000];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}

static inline double field(const char *json, const char *key)
{
    const char *p = strstr(json, key);
    return p ? strtod(p + strlen(key) + 2, NULL) : (double)NAN;
}

static void make_folder(void)
{
    char temporary[] = "/tmp/test_runtime.XXXXXX";
    if (!mkdtemp(temporary))
        exit(3);
    snprintf(folder, sizeof folder, "%s", temporary);
}

static void remove_folder(void)
{
    char remove[300];
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    if (system(remove))
        printf("# left behind: %s\n", folder);
}

#endif

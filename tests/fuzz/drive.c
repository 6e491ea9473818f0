/*
 * drive.c - runs a target of fuzz_bytes.c without libFuzzer: in, folders of first inputs; out, a TAP
 * line with the number of executions, and inputs that end the process, in files.
 *
 *   FUZZ_TARGET=NAME drive [--count N] [--seconds S] [--from SEED] [--keep DIR] FOLDER|FILE...
 *
 * Mutations are drawn from the seed alone, so that a run can be repeated.  The inputs of a round are
 * run in a process of its own; one that takes more than ten seconds of the processor has failed too.
 */
#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz_bytes.h"
#include "tap.h"

enum { MOST = 1 << 16, ROUND = 2000, PATIENCE = 10 };
/* seconds of the processor: of a busy machine nothing follows */
static const struct itimerval patience = {.it_value = {PATIENCE, 0}};

typedef struct { uint8_t *at; size_t n; } Bytes;
static struct { Bytes *at; int n; } seeds;
/* Shared with the process of a round: what it is doing. */
static struct { long done; size_t n; uint8_t data[MOST]; } *now;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '-', ',', '"', '{', '[', '\n'};
    for (uint64_t times = 1 + draw(4); times > 0; times--) {
        size_t at = n ? (size_t)draw(n) : 0, length = 1 + (size_t)draw(8);
        length = length < n - at ? length : n - at;
        switch (n ? draw(6) : 4) {
        case 0: data[at] ^= (uint8_t)(1 << draw(8)); break;
        case 1: data[at] = odd[draw(sizeof odd)]; break;
        case 2: data[at] = (uint8_t)draw(256); break;
        case 3:
            memmove(data + at, data + at + length, n - at - length);
            n -= length;
            break;
        case 4:
            if (n == most)
                break;
            memmove(data + at + 1, data + at, n - at);
            data[at] = draw(2) ? odd[draw(sizeof odd)] : (uint8_t)draw(256);
            n++;
            break;
        default:
            if (n + length > most)
                break;
            memmove(data + at + length, data + at, n - at);
            n += length;
            break;
        }
    }
    return n;
}

static void read_seed(const char *path)
{
    FILE *f = fopen(path, "rb");
    Bytes b = {malloc(MOST), 0};
    seeds.at = realloc(seeds.at, (size_t)(seeds.n + 1) * sizeof *seeds.at);
    if (!f || !b.at || !seeds.at)
        exit(3);
    b.n = fread(b.at, 1, MOST, f);
    if (b.n < MOST)
        seeds.at[seeds.n++] = b;
    fclose(f);
}

static void read_seeds(const char *path)
{
    struct dirent **e;
    int n = scandir(path, &e, NULL, alphasort);
    if (n < 0)
        read_seed(path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        if (e[i]->d_name[0] != '.' &&
            snprintf(file, sizeof file, "%s/%s", path, e[i]->d_name) < (int)sizeof file)
            read_seed(file);
        free(e[i]);
    }
    if (n >= 0)
        free(e);
}

/* Each seed as it is, then mutations of them. */
static void run_round(uint64_t from, long first, long count)
{
    for (long i = 0; i < count; i++) {
        const Bytes *one = &seeds.at[(first + i) % seeds.n];
        state = from + (uint64_t)(first + i) * UINT64_C(0x9e3779b97f4a7c15);
        const Bytes *two = &seeds.at[draw((uint64_t)seeds.n)];
        now->n = one->n;
        memcpy(now->data, one->at, one->n);
        if (first + i >= seeds.n && draw(8) == 0)
            now->n = LLVMFuzzerCustomCrossOver(one->at, one->n, two->at, two->n, now->data, MOST,
                                               (unsigned)draw(1u << 31));
        else if (first + i >= seeds.n)
            now->n = LLVMFuzzerCustomMutator(now->data, now->n, MOST, (unsigned)draw(1u << 31));
        setitimer(ITIMER_PROF, &patience, NULL);
        uint8_t *copy = malloc(now->n ? now->n : 1); /* of its own: what reads past it is seen */
        memcpy(copy, now->data, now->n);
        LLVMFuzzerTestOneInput(copy, now->n);
        free(copy);
        now->done++;
    }
}

static void keep(const char *folder, const char *target, uint64_t from)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%llu-%ld", folder, target, (unsigned long long)from,
             now->done);
    FILE *f = fopen(path, "wb");
    if (f) {
        fwrite(now->data, 1, now->n, f);
        fclose(f);
        printf("# %s\n", path);
    }
}

static const struct option options[] = {{"count", required_argument, NULL, 'n'},
                                        {"seconds", required_argument, NULL, 's'},
                                        {"from", required_argument, NULL, 'f'},
                                        {"keep", required_argument, NULL, 'k'},
                                        {NULL, 0, NULL, 0}};

int main(int argc, char **argv)
{
    long count = 10000, failed = 0, tried = 0;
    double seconds = 0;
    uint64_t from = 1;
    const char *folder = ".", *target = getenv("FUZZ_TARGET");
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n': count = atol(optarg); break;
        case 's': seconds = atof(optarg), count = 1L << 60; break;
        case 'f': from = strtoull(optarg, NULL, 10); break;
        case 'k': folder = optarg; break;
        default: return 2;
        }
    for (int i = optind; i < argc; i++)
        read_seeds(argv[i]);
    now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (now == MAP_FAILED || !seeds.n)
        return 3;
    time_t start = time(NULL);
    while (now->done + failed < count &&
           (seconds <= 0 || difftime(time(NULL), start) < seconds)) {
        int status;
        long most = count - tried < ROUND ? count - tried : ROUND, before = now->done;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            LLVMFuzzerInitialize(&argc, &argv);
            run_round(from, tried, most);
            exit(0);
        }
        waitpid(pid, &status, 0);
        tried += now->done - before;
        if (status) {
            failed++;
            tried++;
            keep(folder, target, from);
        }
    }
    ok(!failed, "%s: %ld executions, %ld failed", target, tried, failed);
    return tap_done();
}

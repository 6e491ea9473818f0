/*
 * count_alloc.c - a second opinion on memory, for memory.t: preloaded into out/pipeline it counts
 * allocations.
 *
 * Aligned blocks that the program itself asks for hold tensors (the arena of a rank, scratch space
 * handed to libraries): their live bytes and the peak of those are what the program predicts.
 * Between the second step's line on standard output and the last but one's (COUNT_ALLOC_STEPS=N
 * says how many there are) every allocation of the process is counted, under the name of the object
 * that made it.  The report goes to the file $COUNT_ALLOC (of several processes: that name and the
 * rank's number).
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 1024, OBJECTS = 64 };
static struct { void *at; size_t bytes; } block[BLOCKS];        /* live tensor blocks */
static struct { char name[64]; long calls; } object[OBJECTS];   /* who allocated inside steps */
static size_t live, peak, largest;
static int steps, counting;
static uintptr_t exe_from, exe_to;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

/* The first object that dl_iterate_phdr shows is the program. */
static int find_exe(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
            continue;
        exe_from = (uintptr_t)(info->dlpi_addr + h->p_vaddr);
        exe_to = exe_from + h->p_memsz;
    }
    return 1;
}

static int by_program(const void *caller)
{
    if (!exe_to)
        dl_iterate_phdr(find_exe, NULL);
    return (uintptr_t)caller >= exe_from && (uintptr_t)caller < exe_to;
}

static void note(const void *caller, size_t bytes)
{
    int own = by_program(caller);
    if (own && bytes > largest)
        largest = bytes;
    if (!__atomic_load_n(&counting, __ATOMIC_ACQUIRE))
        return;
    Dl_info info;
    const char *name = "program", *slash;
    if (!own) {
        name = dladdr(caller, &info) && info.dli_fname ? info.dli_fname : "unknown";
        slash = strrchr(name, '/');
        name = slash ? slash + 1 : name;
    }
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < OBJECTS - 1 && object[i].calls &&
           strncmp(object[i].name, name, sizeof object[i].name - 1) != 0)
        i++;
    snprintf(object[i].name, sizeof object[i].name, "%s", name);
    object[i].calls++;
    pthread_mutex_unlock(&lock);
}

static void tensor(void *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < BLOCKS - 1 && block[i].at)
        i++;
    block[i].at = p;
    block[i].bytes = bytes;
    live += bytes;
    peak = live > peak ? live : peak;
    pthread_mutex_unlock(&lock);
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t n)
{
    note(CALLER, n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note(CALLER, n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note(CALLER, n);
    return __libc_realloc(p, n);
}

static void *aligned(const void *caller, size_t alignment, size_t n)
{
    void *p = __libc_memalign(alignment, n);
    if (by_program(caller) && p)
        tensor(p, n);
    else
        note(caller, n);
    if (__atomic_load_n(&counting, __ATOMIC_ACQUIRE) && by_program(caller))
        note(caller, 0);
    return p;
}

void *aligned_alloc(size_t alignment, size_t n) { return aligned(CALLER, alignment, n); }
void *memalign(size_t alignment, size_t n) { return aligned(CALLER, alignment, n); }

int posix_memalign(void **out, size_t alignment, size_t n)
{
    *out = aligned(CALLER, alignment, n);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; p && i < BLOCKS; i++)
        if (block[i].at == p) {
            live -= block[i].bytes;
            block[i].at = NULL;
            break;
        }
    pthread_mutex_unlock(&lock);
    __libc_free(p);
}

/* The program flushes standard output after each step's line, once all ranks have ended the step's
 * actions. */
int fflush(FILE *f)
{
    static int (*real)(FILE *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fflush");
    const char *n = getenv("COUNT_ALLOC_STEPS");
    /* rank 0 is the first thread */
    if (f == stdout && by_program(CALLER) && gettid() == getpid() && n) {
        steps++;                                        /* 1: the lines on memory */
        __atomic_store_n(&counting, steps >= 3 && steps < atoi(n), __ATOMIC_RELEASE);
    }
    return real(f);
}

__attribute__((destructor)) static void report(void)
{
    char path[4096];
    const char *to = getenv("COUNT_ALLOC"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    counting = 0;
    if (!to || !steps)
        return;
    snprintf(path, sizeof path, "%s%s", to, rank ? rank : "");
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "tensors %zu\nother %zu\nsteps %d\n", peak, largest, steps - 2);
    for (int i = 0; i < OBJECTS && object[i].calls; i++)
        fprintf(f, "inside %s %ld\n", object[i].name, object[i].calls);
    fclose(f);
}

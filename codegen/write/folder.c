/*
 * folder.c - how an output folder takes the place of an earlier one.  In: a new folder, complete;
 * the wanted one.  Out: the wanted one, new; what others have put there stays.
 *
 * One that is not there yet, or is empty, appears by a rename.  Another is replaced in two steps:
 * the new one becomes FOLDER/.next by a rename, and from then on the output is the new one; then
 * its files go where they belong, each by a rename, in any order and as often as need be.  Ended in
 * between, whoever comes next goes on from there: ppsplit itself, or the folder's Makefile; merge
 * and the program refuse it until then.  So at any moment it is the old output or the new one, and
 * never some files of each.  .next/.stale lists what of the old one has no place in the new.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/map.h"
#include "base/file/replace.h"
#include "write.h"

static const char next[] = ".next", stale[] = ".stale";

/* The folder that is being written, and the name that it will have, which messages have already. */
static const char *temporary, *wanted;

void write_names(const char *temp, const char *dir)
{
    temporary = temp;
    wanted = dir;
}

void write_error(const char *path)
{
    const char *why = strerror(errno);
    char shown[PATH_MAX];
    const size_t n = temporary ? strlen(temporary) : 0;
    const bool in_it = n && !strncmp(path, temporary, n);
    snprintf(shown, sizeof shown, "%s%s", in_it ? wanted : "", path + (in_it ? n : 0));
    diag_fatal(EXIT_IO, WHERE_FILE(shown), "cannot write: %s", why);
}

static void make_dir(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        write_error(path);
}

void folder_make(Arena *a, const char *dir, const char *name)
{
    make_dir(dir);
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/'))
        make_dir(arena_printf(a, "%s/%.*s", dir, (int)(slash - name), name));
}

int folder_parents(Arena *a, const char *dir)
{
    int made = 0;
    for (const char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        const char *parent = arena_strndup(a, dir, (size_t)(slash - dir));
        if (mkdir(parent, 0777) == 0)
            made++;
        else if (errno != EEXIST)
            write_error(parent);
    }
    return made;
}

void folder_remove_parents(const char *dir, int made)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", dir);
    while (made-- > 0) {
        *strrchr(parent, '/') = '\0';
        rmdir(parent);
    }
}

/* ---- signals ---------------------------------------------------------------------------------- */

/* The signal that is to end ppsplit, once nothing is left behind; 0: none.  A second one ends it at
 * once. */
static volatile sig_atomic_t ended;

static void end_by(int sig) { ended = sig; }

void folder_watch_signals(bool on)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction s = {.sa_handler = on ? end_by : SIG_DFL, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!sigaction(ends[i], NULL, &before) && before.sa_handler == (on ? SIG_DFL : end_by))
            sigaction(ends[i], &s, NULL);
}

void write_unless_ended(void)
{
    if (ended)
        diag_raise(EXIT_IO);
}

void folder_end_by_signal(void)
{
    if (ended)
        raise(ended);
}

/* ---- walks ----------------------------------------------------------------------------------- */

typedef void EachFile(Arena *a, const char *dir, const char *name, void *arg);

static bool is_folder(const char *path)
{
    struct stat sb;
    return lstat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static void close_folder(void *at)
{
    DIR **d = at;
    if (*d)
        closedir(*d);
}

/* What ppsplit writes under a folder, names relative to it: its files, those of params/, and
   runtime/ with all its folders; a folder comes after what is in it. */
static void each_file(Arena *a, const char *dir, const char *sub, EachFile *fn, void *arg)
{
    DIR **d = arena_new_of(a, DIR *);
    arena_hold(a, close_folder, d);
    *d = opendir(arena_printf(a, "%s/%s", dir, sub));
    VEC(const char *) name = {0};
    for (struct dirent *e; *d && (e = readdir(*d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            vec_push(a, &name, arena_printf(a, "%s%s", sub, e->d_name));
    arena_drop(a, d);
    close_folder(d);
    for (uint32_t i = 0; i < name.n; i++) {
        if ((*sub || !strcmp(name.at[i], "params") || !strcmp(name.at[i], "runtime")) &&
            is_folder(arena_printf(a, "%s/%s", dir, name.at[i])))
            each_file(a, dir, arena_printf(a, "%s/", name.at[i]), fn, arg);
        fn(a, dir, name.at[i], arg);
    }
}

static void remove_one(Arena *a, const char *dir, const char *name, void *arg)
{
    (void)arg;
    if (file_remove(dir, name) != 0)
        rmdir(arena_printf(a, "%s/%s", dir, name));
}

typedef struct { const char *dir; Arena *a; } Removed;

static void remove_all(void *arg)
{
    Removed *r = arg;
    r->a = arena_new();
    each_file(r->a, r->dir, "", remove_one, NULL);
}

void folder_remove(const char *dir)
{
    Removed r = {.dir = dir};
    diag_run(remove_all, &r);
    arena_free(r.a);
    rmdir(dir);
}

/* ---- the files of .next to their places ------------------------------------------------------ */

static bool same_bytes(const char *one, const char *other)
{
    char why[FILE_WHY];
    FileMap *f = file_map(one, why), *g = file_map(other, why);
    bool same = f && g && f->bytes == g->bytes && !memcmp(f->at, g->at, f->bytes);
    file_unmap(f);
    file_unmap(g);
    return same;
}

/* A file whose bytes are there already stays, with its time: what was built of it is not built
 * again. */
static void move_one(Arena *a, const char *from_dir, const char *name, void *arg)
{
    const char *from = arena_printf(a, "%s/%s", from_dir, name),
               *to = arena_printf(a, "%s/%s", (const char *)arg, name);
    if (!strcmp(name, stale) || is_folder(from))
        return;
    folder_make(a, arg, name);
    if (same_bytes(from, to) ? unlink(from) : rename(from, to))
        write_error(to);
}

static void remove_listed(Arena *a, const char *dir, const char *list)
{
    FILE *f = arena_fopen(a, list, "r");
    char name[512];
    while (f && fgets(name, sizeof name, f)) {
        name[strcspn(name, "\n")] = 0;
        if (file_remove(dir, name) != 0)
            write_error(arena_printf(a, "%s/%s", dir, name));
    }
    if (f)
        arena_fclose(a, f);
}

/* Complete, or with an error that says so; to be called again then. */
static void settle(Arena *a, const char *dir)
{
    const char *from = arena_printf(a, "%s/%s", dir, next);
    if (!is_folder(from))
        return;
    remove_listed(a, dir, arena_printf(a, "%s/%s", from, stale));
    each_file(a, from, "", move_one, (void *)(uintptr_t)dir);
    folder_remove(from);
    if (is_folder(from))
        write_error(from);
}

/* ---- a new one ------------------------------------------------------------------------------- */

typedef struct { const char *new; FILE *list; } Stale;

/* stageN_weight.c, stageN_weight.cu: the user's. */
static bool is_own_weight(const char *base)
{
    const char *end = base + strlen("stage");
    end += strspn(end, "0123456789");
    return !strcmp(end, "_weight.c") || !strcmp(end, "_weight.cu");
}

/* Stage files of an earlier run with more stages, or with totals, or with long constants, its
 * parameters in the other form, sources of another runtime. */
static void list_stale(Arena *a, const char *dir, const char *name, void *arg)
{
    const Stale *s = arg;
    const char *base = base_name(name), *ending = strrchr(base, '.');
    bool stage = (strncmp(base, "stage", 5) == 0 && base[5] >= '0' && base[5] <= '9' &&
                  !is_own_weight(base)) || strcmp(name, "totals.c") == 0 ||
                 strcmp(name, "params/constants.bin") == 0;
    bool source = strncmp(name, "runtime/", 8) == 0 && ending &&
                  (!strcmp(ending, ".c") || !strcmp(ending, ".cu") || !strcmp(ending, ".h"));
    if ((stage || source) && !strchr(name, '\n') && strlen(name) < 500 &&
        !is_folder(arena_printf(a, "%s/%s", dir, name)) &&
        access(arena_printf(a, "%s/%s", s->new, name), F_OK) != 0)
        fprintf(s->list, "%s\n", name);
}

static void write_stale(Arena *a, const char *dir, const char *temp)
{
    const char *path = arena_printf(a, "%s/%s", temp, stale);
    Stale s = {temp, arena_fopen(a, path, "w")};
    if (!s.list)
        write_error(path);
    each_file(a, dir, "", list_stale, &s);
    bool bad = ferror(s.list) != 0;
    if (arena_fclose(a, s.list) != 0 || bad)
        write_error(path);
}

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n == 0;
}

/* Through it files outside the folder would be replaced and removed. */
static void refuse_link(Arena *a, const char *dir, const char *name, void *arg)
{
    struct stat sb;
    const char *path = arena_printf(a, "%s/%s", dir, name);
    (void)arg;
    if ((strcmp(name, "params") != 0 && strncmp(name, "runtime", 7) != 0) ||
        lstat(path, &sb) != 0 || !S_ISLNK(sb.st_mode) || stat(path, &sb) != 0 ||
        !S_ISDIR(sb.st_mode))
        return;
    diag_hint("remove the link; --params link leaves weights in the model's own files");
    diag_fatal(EXIT_IO, WHERE_FILE(path), "is a link to a folder, into which ppsplit would write");
}

void folder_check(Arena *a, const char *dir)
{
    struct stat sb;
    if (stat(dir, &sb) != 0)
        return;
    if (!S_ISDIR(sb.st_mode))
        diag_fatal(EXIT_IO, WHERE_FILE(dir), "is not a folder");
    each_file(a, dir, "", refuse_link, NULL);
    settle(a, dir);
    if (!is_empty(dir) && access(arena_printf(a, "%s/pipe.xml", dir), F_OK) != 0) {
        diag_hint("choose another folder with -o, or remove this one");
        diag_fatal(EXIT_IO, WHERE_FILE(dir), "is not empty and was not written by ppsplit");
    }
}

void folder_take(Arena *a, const char *temp, const char *dir)
{
    struct stat sb;
    if (stat(dir, &sb) != 0 || (is_folder(dir) && is_empty(dir))) {
        if (rename(temp, dir) != 0)
            write_error(dir);
        return;
    }
    write_stale(a, dir, temp);
    const char *to = arena_printf(a, "%s/%s", dir, next);
    if (rename(temp, to) != 0)
        write_error(to);
    settle(a, dir);
}

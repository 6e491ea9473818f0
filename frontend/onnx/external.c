/*
 * external.c - the bytes of a tensor that lie in another file.  In: a TensorProto with
 * data_location EXTERNAL. Out: a Payload in the mapped file, untouched.  This is the only function
 * by which a model opens a file: the path is resolved beneath the model's folder without following
 * any link, and what was opened (not what was named) must be a regular file with one name.  Each
 * file is mapped once.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx.h"

/* One component after the other, none of them a link. */
static int open_beneath(Arena *a, int folder, const char *location)
{
    char *path = arena_strdup(a, location);
    int at = dup(folder);
    for (char *part = path, *next; at >= 0 && part; part = next) {
        next = strchr(part, '/');
        if (next)
            *next++ = '\0';
        const bool out = !strcmp(part, "..");
        int inner = out ? -1 : openat(at, *part ? part : ".",
                                      O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK),
            error = out ? EXDEV : errno;
        close(at);
        at = inner;
        errno = error;
    }
    return at;
}

static const char *why_not(int error)
{
    switch (error) {
    case EXDEV: return "it lies outside the model's folder";
    case ELOOP: return "it is, or passes through, a symbolic link";
    default: return strerror(error);
    }
}

static const ExternalFile *file_of(Model *m, const char *location, Where w)
{
    External *e = &m->external;
    for (uint32_t i = 0; i < e->file.n; i++)
        if (!strcmp(e->file.at[i].location, location))
            return &e->file.at[i];
    if (location[0] == '/' || !*location)
        diag_fatal(EXIT_MODEL, w,
                   "external data '%s': the path must be relative to the model's folder", location);
    int folder = open(*e->folder_name ? e->folder_name : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        diag_fatal(EXIT_IO, w, "cannot open the model's folder: %s", strerror(errno));
    int fd = open_beneath(m->arena, folder, location), failed = errno;
    close(folder);
    errno = failed;
    if (fd < 0 && errno == ENOENT && m->limits.absent) {
        vec_push(m->arena, &e->file, ((ExternalFile){.location = location, .absent = true}));
        return &e->file.at[e->file.n - 1];
    }
    if (fd < 0 && errno == ENOENT)
        diag_hint("--params none makes a program without weights, which starts with --init");
    errno = failed;
    if (fd < 0)
        diag_fatal(errno == ENOENT || errno == EACCES ? EXIT_IO : EXIT_MODEL, w,
                   "external data '%s': %s", location, why_not(errno));
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1) {
        close(fd);
        diag_fatal(EXIT_MODEL, w,
                   "external data '%s': it must be a regular file without hard links", location);
    }
    ExternalFile f = {.location = location, .size = (uint64_t)st.st_size};
    f.path = arena_printf(m->arena, "%s%s", e->folder_name, location);
    if (f.size) {
        f.at = arena_map(m->arena, f.path, fd, (size_t)f.size);
        if (!f.at) {
            int error = errno;
            close(fd);
            diag_fatal(EXIT_IO, w, "external data '%s': cannot map %llu bytes: %s", location,
                       (unsigned long long)f.size, strerror(error));
        }
    }
    close(fd);
    vec_push(m->arena, &e->file, f);
    return &e->file.at[e->file.n - 1];
}

Payload external_bytes(Model *m, const Onnx__TensorProto *t, uint64_t expected, Where w)
{
    const char *location = NULL, *value[3] = {NULL, NULL, NULL};
    static const char *const key[3] = {"offset", "length", "checksum"};
    for (size_t i = 0; i < t->n_external_data; i++) {
        const char *k = t->external_data[i]->key ? t->external_data[i]->key : "";
        const char *v = t->external_data[i]->value ? t->external_data[i]->value : "", **to = NULL;
        if (!strcmp(k, "location"))
            to = &location;
        for (int j = 0; j < 3; j++)
            if (!strcmp(k, key[j]))
                to = &value[j];
        if (!to || *to)
            diag_fatal(EXIT_MODEL, w, "external data: %s key '%s'", to ? "repeated" : "unknown", k);
        *to = v;
    }
    if (!location)
        diag_fatal(EXIT_MODEL, w, "external data without a location");
    uint64_t offset = 0, length = expected, end;
    if ((value[0] && !raw_decimal(value[0], &offset)) || (value[1] && !raw_decimal(value[1], &length)))
        diag_fatal(EXIT_MODEL, w,
                   "external data: offset '%s' or length '%s' is not a decimal number",
                   value[0] ? value[0] : "", value[1] ? value[1] : "");
    if (length != expected)
        diag_fatal(EXIT_MODEL, w,
                   "external data: length %llu, but the tensor's shape needs %llu bytes",
                   (unsigned long long)length, (unsigned long long)expected);
    const ExternalFile *f = file_of(m, location, w);
    if (f->absent) {
        const void *zeros = length ? arena_zeros(m->arena, (size_t)length) : "";
        if (!zeros)
            diag_fatal(EXIT_IO, w, "external data '%s', %llu bytes: %s", location,
                       (unsigned long long)length, strerror(errno));
        return (Payload){.at = zeros, .length = (size_t)length, .file = location, .absent = true};
    }
    if (__builtin_add_overflow(offset, length, &end) || end > f->size)
        diag_fatal(EXIT_MODEL, w,
                   "external data '%s': bytes %llu to %llu are past its end (%llu bytes)", location,
                   (unsigned long long)offset, (unsigned long long)offset + length,
                   (unsigned long long)f->size);
    if (!length)
        return (Payload){.at = (const uint8_t *)"", .file = f->path, .offset = offset};
    return (Payload){
        .at = f->at + offset, .length = (size_t)length, .file = f->path, .offset = offset};
}

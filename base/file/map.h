/*
 * map.h - files that are read: regular ones only, and mapped.  A pipe, a socket, a device or a
 * folder is refused by what it is, without waiting for it.  A mapped file that is cut short while it
 * is read, or that its disk no longer gives, is named with the place, where else SIGBUS would end
 * the program without a word.  Needs libc only.
 */
#ifndef PP_MAP_H
#define PP_MAP_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FileMap {
    const char *at; /* "" where it has no bytes */
    size_t bytes;
    char *path;
    dev_t device;
    ino_t inode;
    /* Rows lie from byte `first` on, pieces of so many bytes, row after row and then again the
     * first: a place in it is said by its row; piece 0: by its byte. */
    size_t first, piece, rows;
    struct FileMap *next;
} FileMap;

enum { FILE_WHY = 128 };

/* For reading: a descriptor; -1: why, of FILE_WHY bytes, without the path */
int file_open(const char *path, char *why);
/* What a file of this st_mode is, "is a named pipe, not a file"; NULL: a regular one */
const char *file_unfit(mode_t mode);
/* All of it; NULL: why, likewise */
FileMap *file_map(const char *path, char *why);
/* Its first n bytes, of an open file; NULL: errno */
FileMap *file_map_open(const char *path, int fd, size_t n);
/* What others have mapped of an open file at `at`, so that SIGBUS is told of it, too: as path; NULL:
 * errno.  Before it is unmapped, file_forget(). */
FileMap *file_map_note(const char *path, int fd, const void *at, size_t n);
void file_forget(FileMap *m); /* NULL: nothing */
void file_unmap(FileMap *m);  /* NULL: nothing */

void file_advise(const FileMap *m, int advice); /* madvise()'s, of all of it */

/* Where its rows are, for messages. */
void file_rows(FileMap *m, size_t first, size_t piece, size_t rows);
/* Has it still as many bytes as were mapped?  Of what has been cut off the rest of a page reads as
 * zeros, without a signal.  0, or -1 and err.  A file that was replaced, or removed, is whole. */
int file_whole(const FileMap *m, char *err, size_t nerr);
int files_whole(char *err, size_t nerr); /* all that are mapped now */
/* fwrite() of bytes that may be mapped: what cannot be read is met here, not by the system. */
size_t file_put(const void *at, size_t n, FILE *f);

/* What a place that cannot be read ends in, on the thread that met it, in a signal handler: told
 * "FILE, row N: ..."; does not return. */
void file_lost(void (*then)(const char *text));

#ifdef __cplusplus
}
#endif
#endif

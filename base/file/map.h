/*
 * map.h - files for reading: regular files only, mapped.  A pipe, a socket, a device or a folder is
 * refused, with its kind, without waiting for it.  When a mapped file is cut short while it is
 * read, or its disk fails, the message names the file and the place; without this SIGBUS would end
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
    /* Rows begin at byte `first`; each has `piece` bytes, and after `rows` of them the first comes
     * again.  Messages name a place by its row; where piece is 0, by its byte. */
    size_t first, piece, rows;
    struct FileMap *next;
} FileMap;

enum { FILE_WHY = 128 };

/* Opens for reading: a descriptor, or -1 and the reason, without the path, in why[FILE_WHY] */
int file_open(const char *path, char *why);
/* What a file of this st_mode is, "is a named pipe, not a file"; NULL: a regular one */
const char *file_unfit(mode_t mode);
/* Maps the whole file; NULL: the reason is in why[FILE_WHY] */
FileMap *file_map(const char *path, char *why);
/* Maps the first n bytes of an open file; NULL: errno */
FileMap *file_map_open(const char *path, int fd, size_t n);
/* Registers n bytes of an open file that the caller has mapped at `at`, so that messages about it
 * name `path`; NULL: errno.  The caller calls file_forget() before it unmaps them. */
FileMap *file_map_note(const char *path, int fd, const void *at, size_t n);
void file_forget(FileMap *m); /* NULL: nothing */
void file_unmap(FileMap *m);  /* NULL: nothing */

/* madvise() for the whole mapping; NULL: what never was in a file, which is whole, too */
void file_advise(const FileMap *m, int advice);

/* Sets where the rows are, for messages. */
void file_rows(FileMap *m, size_t first, size_t piece, size_t rows);
/* Has the file still as many bytes as were mapped?  0, or -1 and err.  It must be asked: where a
 * file was cut off in the middle of a page, the rest of the page reads as zeros without a signal.
 * A file that was replaced or removed counts as whole. */
int file_whole(const FileMap *m, char *err, size_t nerr);
int files_whole(char *err, size_t nerr); /* all that are mapped now */
/* fwrite() of bytes that may be mapped: reads them first, so that a failure is met here and not
 * within the system call. */
size_t file_put(const void *at, size_t n, FILE *f);

/* From now on it is kept which files are mapped or noted as read, under the names by which they
 * were: a command may not write over them (file_try()).  What was kept before is forgotten. */
void file_remember(void);
void file_note_read(const char *path);
int file_was_read(const char *path); /* is it one of them, by whatever name? */

/* Sets what happens when mapped bytes cannot be read: then("FILE, row N: ...") is called in a
 * signal handler on the thread that read them, and does not return. */
void file_lost(void (*then)(const char *text));

#ifdef __cplusplus
}
#endif
#endif

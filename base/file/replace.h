/*
 * replace.h - removes files and folders or writes them anew, never through a symbolic link: the
 * link is removed, and what it points to stays.  The path that the user gave may pass through
 * links; paths below it may not.  Needs libc only.
 */
#ifndef PP_REPLACE_H
#define PP_REPLACE_H

#include "map.h"

/* A new file for writing, in the place of any file or link of this name; NULL: errno */
FILE *file_new(const char *path);
/* A file that is written whole or not at all: beside its place, with the owner and mode of what is
 * there, then renamed; of a link, beside what it leads to.  Written as they are: what is no regular
 * file, as a pipe and standard output, "-"; a link that leads to nothing; a file of several names;
 * one whose folder or owner does not let it be replaced */
typedef struct {
    FILE *f;
    const char *path;
    char *place, *beside; /* private; beside NULL: it is written as it is */
    char why[FILE_WHY];   /* of what failed: without the path */
} FileWhole;
FILE *file_begin(FileWhole *w, const char *path); /* its f; NULL: why */
/* In one go, or one after the other where several files are to appear together: all of its bytes
 * are on the disk; it is in its place.  0; -1: why, and it is dropped */
int file_end(FileWhole *w);
int file_finish(FileWhole *w);
int file_place(FileWhole *w);
void file_drop(FileWhole *w); /* what is not in its place yet is gone */
/* May it be written, and is it none of the files that were read (file_remember())?  Nothing is
 * touched.  0; -1: the reason, without the path, in why[FILE_WHY] */
int file_try(const char *path, char *why);
/* What may be lost: a command writes over an earlier file of the kind that it writes, and over no
 * other that has bytes.  is(): are these such a file's? */
typedef struct {
    int (*is)(const char *at, size_t n, const void *of);
    const void *of;
    const char *what;
} FileOurs;
int file_starts(const char *at, size_t n, const void *text); /* is() of what begins with a text */
int file_spare(const char *path, const FileOurs *ours, char *why); /* as file_try() */
FILE *file_begin_ours(FileWhole *w, const char *path, const FileOurs *ours); /* as file_begin() */
/* Removes the file `name`, which may lie in folders below `folder`.  0: it is gone, or was not
 * there; -1: errno (ENOTDIR: one of the folders is a link). */
int file_remove(const char *folder, const char *name);
/* Removes a folder with its files, or a link to a folder.  Folders in it stay, and then the folder
 * stays too.  0, or -1 and errno */
int folder_clear(const char *path);

#endif

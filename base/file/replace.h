/*
 * replace.h - files and folders that are removed or written anew, never through a symbolic link:
 * what a link points to stays, the link itself goes.  A path as the user gave it may pass through
 * links; what lies in it may not.  Needs libc only.
 */
#ifndef PP_REPLACE_H
#define PP_REPLACE_H

#include <stdio.h>

/* A new file for writing, in the place of whatever file or link has the name; NULL: errno */
FILE *file_new(const char *path);
/* The file `name`, which may lie in folders of `folder`, none of them a link: 0, or -1 and errno
 * (ENOTDIR: one is).  It is gone, or was not there. */
int file_remove(const char *folder, const char *name);
/* A folder with the files in it, or a link to one; folders in it stay, and then it does too.  0, or
 * -1 and errno */
int folder_clear(const char *path);

#endif

/*
 * version.h - the one place for the version, and what both commands print about themselves.  The
 * Makefile, the output's Makefile and pkg-config's files take it from here; a test holds the manual
 * and the Debian package to it.
 */
#ifndef PP_VERSION_H
#define PP_VERSION_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PPSPLIT_VERSION "0.1"
/* The end of every --help. */
#define PPSPLIT_REPORT                                                                             \
    "Report mistakes in the issues of the repository that ppsplit came from, with its version,\n"  \
    "the command, and the model or what `ppsplit ls MODEL.onnx' says of it.\n"
/* The second line of a pipeline.c: this text and the hash of what follows it.  The program that is
 * built has the same hash. */
#define PPSPLIT_WRITTEN "// A program that was built of another text than this one says so: "

/* Prints for --version: `what', the version and the licence. */
void version_print(const char *what, FILE *f);

#ifdef __cplusplus
}
#endif
#endif

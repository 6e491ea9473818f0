/*
 * version.h - the one place for the version, and what both commands say of themselves.  The
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
/* The second line of a pipeline.c: this and the hash of what follows, which the program has too. */
#define PPSPLIT_WRITTEN "// A program that was built of another text than this one says so: "

/* What --version prints: `what' and the version, the licence. */
void version_print(const char *what, FILE *f);

#ifdef __cplusplus
}
#endif
#endif

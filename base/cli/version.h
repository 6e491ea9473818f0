/*
 * version.h - the one place for the version, and what both commands say of themselves.  The
 * Makefile, the man page's test, the output's Makefile and pkg-config's files take it from here.
 */
#ifndef PP_VERSION_H
#define PP_VERSION_H

#define PPSPLIT_VERSION "0.1"
#define PPSPLIT_LICENCE                                                                            \
    "Copyright (C) 2026 the authors of ppsplit\n"                                                  \
    "License: MIT. What ppsplit writes, and the runtime in it, is yours without conditions.\n"     \
    "There is no warranty.\n"
#define PPSPLIT_REPORT                                                                             \
    "Report mistakes in the issues of the repository that ppsplit came from, with its version,\n"  \
    "the command, and the model or what `ppsplit ls MODEL.onnx' says of it.\n"

/* The second line of a pipeline.c: this and the hash of what follows, which the program has too. */
#define PPSPLIT_WRITTEN "// A program that was built of another text than this one says so: "

#endif

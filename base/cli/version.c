/* version.c - in: what a command is; out: its --version. */
#include "version.h"

void version_print(const char *what, FILE *f)
{
    fprintf(f,
            "%s " PPSPLIT_VERSION "\n"
            "Copyright (C) 2026 the authors of ppsplit\n"
            "License: MIT. What ppsplit writes, and the runtime in it, is yours without "
            "conditions.\n"
            "There is no warranty.\n",
            what);
}

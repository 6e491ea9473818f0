/*
 * ppsplit.h - the compiler as a library, libppsplit: what ppsplit.c, the command, calls, for
 * programs in C and C++.
 *
 *     cc my.c $(pkg-config --cflags --libs ppsplit)      and in it: #include <ppsplit/ppsplit.h>
 *
 * docs/library.md has whole programs.  The passes are called in this order: frontend/frontend.h,
 * autodiff/autodiff.h (the loss), ir/facts/attention.h, partition/partition.h, autodiff/ again,
 * codegen/codegen.h; diag_run(), which calls them, is in base/base.h.
 *
 * Options that are all zero are the command's defaults, but for ImportOptions.limits and one target
 * in CodegenOptions.
 *
 * Errors.  No call ends the process or returns "failed": what goes wrong is said (diag_to() says
 * where) and leaves the function that diag_run() runs; its result is 0, EXIT_MODEL (the model is
 * refused), EXIT_USAGE (an option's value), EXIT_IO (a file, memory) or EXIT_BUG.  It leaves by
 * longjmp(), so in C++ no object with a destructor may live inside that function.  Only the headers
 * of schedule/ do without: their functions return a status.
 *
 * Threads.  A Graph and what is made of it belong to one thread at a time; several threads may each
 * compile a model of their own.
 *
 * A value, a node, a stage is a number: an index into the Graph's or Pipe's arrays, which grow, so
 * keep no pointers into them over a call that may add to them.  What the structures hold is in
 * ir/ir.h and partition/partition.h.
 */
#ifndef PPSPLIT_H
#define PPSPLIT_H

#include "autodiff/autodiff.h"
#include "base/base.h"
#include "base/cli/version.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "ir/facts/attention.h"
#include "ir/facts/facts.h"
#include "ir/ir.h"
#include "partition/partition.h"
#include "report/report.h"
#include "schedule/schedule.h"
#include "schedule/tool/tool.h"

#endif

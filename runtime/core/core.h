/*
 * core.h - what every part of the runtime uses: statuses and failures, sizes of tensors, the clock.
 */
#ifndef PP_CORE_H
#define PP_CORE_H

#include "api/pp.h"
#include "base/file/memory.h"
#include "base/file/pack.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* failure.c: the failure of this thread, which runs a rank. */
/* records a failure, unless there is one already */
__attribute__((format(printf, 2, 3))) PpStatus pp_fail(PpStatus s, const char *fmt, ...);
PpStatus pp_no_memory(void);
const char *pp_failure_text(void); /* the recorded message */
void pp_failure_print(void);       /* the recorded message, to stderr, once */
void pp_failure_tell(void);  /* tells all ranks that one has printed it */
int pp_failure_told(void);
void pp_failure_forget(void); /* drops the recorded failure */
/* for file_lost(): prints at once and ends the process */
void pp_failure_lost(const char *text);
/* True once, for the first rank of this process that fails when the others cannot be asked */
int pp_failure_first(void);

/* ranks.c: a rank's name, from its number in the run: "rank 5", or if ranks have members
 * "rank 5 (replica 0, pipe 1, member 1)" */
typedef struct {
    char text[72];
} RankName;
RankName pp_rank(int number);
/* sets the ranks of a pipeline and the members of each, before any rank begins */
void pp_rank_shape(int ranks, int members);

/* core.c */
int64_t tensor_dim(const PpTensor *t, int i, PpLength length); /* at full rows */
/* Where lengths vary, dimension i is a multiple of one: its number, and of how much; -1: it is not
 */
int tensor_varies(const PpTensor *t, int i, int64_t *of);
int tensor_any_varies(const PpTensor *t, int length); /* does this length decide a size of it? */
PpLength length_most(const PpPlan *p);
/* of so many rows, of these lengths where they vary */
int64_t tensor_bytes(const PpPlan *p, const PpTensor *t, int64_t rows, PpLength length);
/* Calloc of at least one */
void *zeroed(int64_t n, size_t size);
/* *to, a pointer, becomes so many elements of a pool, at least one, zero. */
PpStatus pp_take(Pool *p, void *to, int64_t n, size_t size);
/* One more element behind the n of the pool's array that `list` points to: a copy. */
PpStatus pp_add(Pool *p, void *list, int *n, const void *one, size_t size);
double pp_now(void); /* seconds, monotonic */
double pp_median(double *of, int n); /* sorts them; of none: 0 */

#ifdef __cplusplus
}
#endif
#endif

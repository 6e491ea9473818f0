/*
 * beats.h - datagrams from every process of a run to its first ones, beside MPI.
 *
 * A socket is bound to the one address in use: the loopback where all ranks are on this machine,
 * else the address from which the others are reached.  A datagram counts only if it comes from the
 * address and port that MPI has said of its rank, and begins with the key that rank 0 has drawn for
 * this job; the kernel drops those without the key before they take room (where it has filters).
 */
#ifndef PP_BEATS_H
#define PP_BEATS_H

#include "net/group.h"

/* ranks that the others send to; bytes of a beat at most */
enum { BEATS_HEARERS = 2, BEATS_BYTES = 16 << 10 };

typedef struct Beats Beats;

PpStatus beats_open(Beats **b, Group *g); /* all ranks call it */
void beats_close(Beats *b);               /* NULL: nothing */
const char *beats_host(const Beats *b, int rank);
/* To each hearer but this rank itself; at most BEATS_BYTES */
void beats_send(const Beats *b, const void *beat, size_t bytes);
/* Calls take() for what has come of ranks. 1: others have sent too, so that beats may be lost. */
int beats_hear(const Beats *b, void (*take)(void *of, int rank, const void *beat, size_t bytes),
               void *of);

#endif

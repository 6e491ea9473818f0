/*
 * worker.h - a thread beside a rank's own, which does what it is given, one thing after the other.
 * It takes no signals of the process, and talks to no other rank.  One thread gives.
 */
#ifndef PP_WORKER_H
#define PP_WORKER_H

#include <stdint.h>

typedef struct Worker Worker;

/* most: things under way at once; one more waits.  NULL: no thread, or no memory */
Worker *worker_open(int most);
/* Has work(arg) done beside the caller, and gives its number, which counts from 1 on. */
int64_t worker_give(Worker *w, void (*work)(void *), void *arg);
void worker_await(Worker *w, int64_t number); /* until that is done; what was before it is, too */
int worker_idle(Worker *w);                   /* is all done that was given? */
void worker_finish(Worker *w);                /* until it is; NULL: nothing */
void worker_close(Worker *w);                 /* then the thread ends; NULL: nothing */

#endif

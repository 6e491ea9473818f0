/*
 * worker.h - a thread beside a rank's own, which does one thing at a time: what it is given.  It
 * takes no signals of the process, and talks to no other rank.
 */
#ifndef PP_WORKER_H
#define PP_WORKER_H

typedef struct Worker Worker;

Worker *worker_open(void); /* NULL: no thread, or no memory */
/* Waits for what was given before, then has work(arg) done beside the caller. */
void worker_give(Worker *w, void (*work)(void *), void *arg);
int worker_idle(Worker *w);   /* is what was given done? */
void worker_await(Worker *w); /* until it is; NULL: nothing */
void worker_close(Worker *w); /* then the thread ends; NULL: nothing */

#endif

/*
 * signals.h - what a run is asked from outside: SIGTERM, SIGUSR2, SIGHUP, Ctrl-C: save and end;
 * SIGUSR1: save and go on.  Handlers only take note; ranks look at the end of each step, and before
 * the first one wherever much time may pass.
 */
#ifndef PP_SIGNALS_H
#define PP_SIGNALS_H

#include "core/status.h"

/* The process takes note from now on; a second Ctrl-C ends it at once. */
void signals_take(void);
int signals_save(void); /* asked since the last call? */
int signals_end(void);  /* likewise: to save and end */
/* Before the first step: PP_SAVED where an end has been asked for, as nothing has changed yet; all
 * ranks agree on it afterwards */
PpStatus signals_heed(void);
/* The run has saved and ended because it was asked: the program's exit status is PP_SAVED. */
void signals_obeyed(void);
int signals_were_obeyed(void);

#endif

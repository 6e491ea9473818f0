/*
 * signals.c - in: signals; out: what they ask for.
 */
#include "signals.h"

#include "core/core.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t save, end, interrupts;
static int obeyed;

static void on_signal(int number)
{
    if (number == SIGINT && interrupts++) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    *(number == SIGUSR1 ? &save : &end) = 1;
}

void signals_take(void)
{
    static const int number[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    struct sigaction a, was;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART;
    for (unsigned i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i] != SIGHUP || sigaction(SIGHUP, NULL, &was) || was.sa_handler != SIG_IGN)
            sigaction(number[i], &a, NULL); /* but with nohup */
}

int signals_save(void)
{
    int asked = save;
    save = 0;
    return asked;
}

int signals_end(void) { return end; }

PpStatus signals_heed(void)
{
    return end ? pp_fail(PP_SAVED, "ended by a signal before the first step: no checkpoint has "
                                   "changed; run the same command again")
               : PP_OK;
}

void signals_obeyed(void) { __atomic_store_n(&obeyed, 1, __ATOMIC_SEQ_CST); }
int signals_were_obeyed(void) { return __atomic_load_n(&obeyed, __ATOMIC_SEQ_CST); }

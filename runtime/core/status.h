/*
 * status.h - what a runtime function returns, and TRY, which passes a failure up and leaves its
 * road in the log (PP_LOG=debug).  The first failure of a rank writes the message; later ones
 * change nothing.
 */
#ifndef PP_STATUS_H
#define PP_STATUS_H

typedef enum {
    PP_OK = 0,
    PP_ERR_MODEL = 1,  /* the model, plan, schedule or data is refused */
    PP_ERR_USAGE = 2,  /* wrong command line */
    PP_ERR_IO = 3,     /* a file, memory, another resource */
    PP_ERR_FINITE = 4, /* the loss or the gradient is not finite */
    PP_ERR_PEER = 5,   /* another rank failed; it has said why */
    PP_ERR_BUG = 70,
    PP_SAVED = 75 /* at a signal: the same command with --resume goes on (EX_TEMPFAIL) */
} PpStatus;

void pp_trail(const char *file, int line, const char *call, PpStatus s);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        PpStatus try_status = (call);                                                              \
        if (try_status != PP_OK) {                                                                 \
            pp_trail(__FILE__, __LINE__, #call, try_status);                                       \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

#endif

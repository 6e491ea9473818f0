/*
 * library.h - what the open() functions of stages take beside the arena: scratch memory that the
 * convolutions of stages share which never run at the same time.  A value of the rank; while open()
 * runs it is the thread's pp_library, for generated code hands open() nothing but a number of
 * threads.
 */
#ifndef PP_LIBRARY_H
#define PP_LIBRARY_H

#include "api/pp.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define PP_THREAD_LOCAL __thread
#else
#define PP_THREAD_LOCAL _Thread_local
#endif

typedef struct PpLibrary {
    char *scratch; /* conv.c: of the host, as much as the largest convolution needs */
    int64_t scratch_bytes;
    void *cuda;          /* conv_cuda.cu: scratch of the stage that opens */
    int64_t bytes;       /* all that was taken, on the host or on the device */
    const char *failure; /* NULL: none */
} PpLibrary;

/* NULL: a convolution that opens now has a scratch of its own */
extern PP_THREAD_LOCAL PpLibrary *pp_library;
/* conv_shape.c: bytes of scratch that opening it takes, in all of so many threads */
int64_t library_conv(const PpConvShape *s, int threads);
void pp_library_close(PpLibrary *l); /* after the stages that were opened with it */

#ifdef __cplusplus
}
#endif
#endif

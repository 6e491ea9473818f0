/*
 * store.h - where a rank keeps what is not on its device: a file beside the CPU, pinned host memory
 * beside a GPU.
 *
 * Copies there and back run beside the computations, one at a time, in the order in which they were
 * started: a thread of the rank with a queue, or a stream with events.  A copy has a number below
 * StoreWish.copies; several with the same number are waited for together.
 */
#ifndef PP_STORE_H
#define PP_STORE_H

#include "device/device.h"

typedef struct Store Store;

typedef struct {
    int64_t bytes;    /* that it holds */
    int copies, most; /* numbers; copies under way at once, at most: one more waits */
    int rank;
    int timed; /* store_span() will be asked for */
    const char *option, *folder; /* CPU: where the file is made, and which option says so */
    int shared;                  /* the caller reads and writes it too, at store_memory() */
} StoreWish;

/* The file has no name and all its room from the beginning: it is gone with the process, and a full
 * disk is found here. */
PpStatus store_open(Store **to, Device *d, int on_device, const StoreWish *w);
void store_close(Store *s); /* NULL is fine; copies under way are finished */
/* Whose current stream copies follow from now on: the same device's */
void store_follow(Store *s, Device *d);
char *store_memory(const Store *s); /* the pinned memory, or the file mapped; NULL: neither */

/* After all work so far of the device's current stream.  The bytes stay as they are, and are not
 * read, until the copy has been waited for. */
void store_copy(Store *s, int number, int out, int64_t at, void *memory, int64_t bytes);
/* Of a device: what its stream STREAM_STORE has got so far belongs to this number too */
void store_note(Store *s, int number);
/* The current stream, or on the CPU the caller, waits; a copy that has failed says so here. */
PpStatus store_wait(Store *s, int number);

/* --trace: the events of a copy number, of a device; NULL: there are none */
DeviceEvent store_event(const Store *s, int number, int end);
/* Seconds of pp_now(): when the first copy of this number began and its last ended, of the CPU. */
void store_span(Store *s, int number, double *begin, double *end);

/* store_file.c: the CPU's, behind the functions above */
typedef struct StoreFile StoreFile;
PpStatus store_file_open(StoreFile **to, const StoreWish *w);
void store_file_close(StoreFile *f);
char *store_file_memory(const StoreFile *f);
void store_file_start(StoreFile *f, int number, int write, int64_t at, void *memory, int64_t bytes);
PpStatus store_file_wait(StoreFile *f, int number);
void store_file_span(StoreFile *f, int number, double *begin, double *end);

#endif

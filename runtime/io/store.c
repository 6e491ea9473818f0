/*
 * store.c - where a rank keeps what is not on its device.  Beside the CPU all is passed on to
 * store_file.c; beside a GPU it is pinned memory, and the copies are the stream STREAM_STORE.
 */
#include "store.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdlib.h>

struct Store {
    Pool pool;
    Device *dev;
    StoreFile *file; /* NULL: a device */
    char *pinned;
    /* device: before a copy; per number: after its last one, --trace: before its first */
    DeviceEvent ready, *done, *begun;
    unsigned char *open; /* device, per number: a copy has been started and not waited for */
    int copies;
};

static PpStatus pinned_open(Store *s, const StoreWish *w)
{
    Device *d = s->dev;
    TRY(pp_take(&s->pool, &s->done, w->copies, sizeof *s->done));
    TRY(pp_take(&s->pool, &s->begun, w->copies, sizeof *s->begun));
    TRY(pp_take(&s->pool, &s->open, w->copies, 1));
    s->ready = d->op->event(d, 0);
    for (int k = 0; k < w->copies; k++) {
        s->done[k] = d->op->event(d, w->timed);
        s->begun[k] = w->timed ? d->op->event(d, 1) : NULL;
    }
    s->pinned = d->op->memory.alloc_host(d, w->bytes);
    if (!s->pinned)
        return pp_fail(PP_ERR_IO, "%s: no %" PRId64 " bytes of pinned host memory for %s: %s",
                       pp_rank(w->rank).text, w->bytes, w->option, d->op->error());
    return device_check(d, w->rank, w->option);
}

PpStatus store_open(Store **to, Device *d, int on_device, const StoreWish *w)
{
    Store *s = *to = zeroed(1, sizeof *s);
    if (!s)
        return pp_no_memory();
    s->dev = d;
    s->copies = w->copies;
    return on_device ? pinned_open(s, w) : store_file_open(&s->file, w);
}

void store_close(Store *s)
{
    if (!s)
        return;
    Device *d = s->dev;
    store_file_close(s->file);
    for (int k = 0; s->open && k < s->copies; k++) {
        d->op->event_free(d, s->done[k]);
        d->op->event_free(d, s->begun[k]);
    }
    d->op->event_free(d, s->ready);
    if (s->pinned)
        d->op->memory.release_host(d, s->pinned);
    pool_free(&s->pool);
    free(s);
}

void store_follow(Store *s, Device *d) { s->dev = d; }

char *store_memory(const Store *s) { return s->file ? store_file_memory(s->file) : s->pinned; }

/* After the current stream, before whoever waits for `done`. */
static void pinned_copy(Store *s, int number, void *to, const void *from, int64_t bytes)
{
    Device *d = s->dev;
    d->op->record(d, d->current, s->ready);
    d->op->wait(d, STREAM_STORE, s->ready);
    if (s->begun[number] && !s->open[number])
        d->op->record(d, STREAM_STORE, s->begun[number]);
    s->open[number] = 1;
    d->op->copy(d, STREAM_STORE, to, from, bytes);
    d->op->record(d, STREAM_STORE, s->done[number]);
}

void store_note(Store *s, int number)
{
    if (s->file)
        return;
    s->open[number] = 1;
    s->dev->op->record(s->dev, STREAM_STORE, s->done[number]);
}

void store_copy(Store *s, int number, int out, int64_t at, void *memory, int64_t bytes)
{
    if (s->file)
        store_file_start(s->file, number, out, at, memory, bytes);
    else
        pinned_copy(s, number, out ? s->pinned + at : memory, out ? memory : s->pinned + at, bytes);
}

PpStatus store_wait(Store *s, int number)
{
    Device *d = s->dev;
    if (s->file)
        return store_file_wait(s->file, number);
    s->open[number] = 0;
    d->op->wait(d, d->current, s->done[number]);
    return PP_OK;
}

DeviceEvent store_event(const Store *s, int number, int end)
{
    return s->file ? NULL : end ? s->done[number] : s->begun[number];
}

void store_span(Store *s, int number, double *begin, double *end)
{
    store_file_span(s->file, number, begin, end);
}

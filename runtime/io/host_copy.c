/*
 * host_copy.c - tensors between the host and the rank's device, for files.
 */
#include "files.h"

#include <string.h>

const void *host_copy(HostCopy *h, const void *p, int64_t bytes)
{
    if (!h->room)
        return p;
    host_fetch(h, h->room, p, bytes);
    host_await(h);
    return h->room;
}

void host_fetch(HostCopy *h, void *to, const void *p, int64_t bytes)
{
    h->dev->op->copy(h->dev, h->dev->current, to, p, bytes);
}

void host_await(HostCopy *h)
{
    Device *d = h->dev;
    d->op->record(d, d->current, h->done);
    if (links_await(h->links, h->done) != PP_OK)
        pp_fail(PP_ERR_PEER, "another rank has failed");
}

void host_upload(HostCopy *h, void *to, const void *from, int64_t bytes)
{
    Device *d = h->dev;
    if (!h->room) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    d->op->copy(d, d->current, to, from, bytes); /* `from` may be any memory */
    d->op->record(d, d->current, h->done);
    d->op->sync(d, h->done);
}

/*
 * streams.c - one stream after another.  The thread of a rank runs ahead of its device;
 * Device.current is the stream after whose work the next work comes, and going to another stream
 * takes one event.
 */
#include "device.h"

void device_switch(Device *d, int stream)
{
    if (d->current == stream)
        return;
    d->op->record(d, d->current, d->turn);
    d->op->wait(d, stream, d->turn);
    d->current = stream;
}

void device_fork(Device *d, int first, int second)
{
    int from = d->current;
    d->op->record(d, from, d->turn);
    if (first != from)
        d->op->wait(d, first, d->turn);
    if (second != from)
        d->op->wait(d, second, d->turn);
    d->current = first;
}

void device_join(Device *d, int first, int second)
{
    d->current = first;
    device_switch(d, second);
}

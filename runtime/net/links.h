/*
 * links.h - how tensors travel between the ranks of a group: the plan's messages along one axis,
 * each with its state, over one wire.
 *
 * Buffers are the device's.  All is in the order of the device's current stream: a message that is
 * posted comes after what was enqueued before, and what is enqueued after links_finish() comes
 * after the message.
 */
#ifndef PP_LINKS_H
#define PP_LINKS_H

#include "device/device.h"
#include "net/group.h"
#include "plan/plan.h"

typedef struct Links Links;

typedef struct {
    /* When messages have their buffers; all ranks call it.  These two may be NULL */
    PpStatus (*open)(Links *l);
    void (*close)(Links *l, int broken);
    PpStatus (*post)(Links *l, int first, int count, int receive); /* of Plan.msg */
    PpStatus (*finish)(Links *l, int message);
    /* Has it arrived, or left?  Then neither this nor finish() again.  NULL: the host cannot know
     */
    PpStatus (*test)(Links *l, int message, int *done);
    PpStatus (*poll)(Links *l); /* NULL: the group's */
    /* NULL, or 0 when what was enqueued may never end, another rank having failed */
    int (*alive)(Links *l);
    int enqueues; /* neither post() nor finish() keeps the host waiting */
} WireOps;

/* One message under way. */
typedef struct {
    int pending; /* posted and not finished */
    Request req;
    /* Where lengths vary a header goes before the message, by its name: the microbatch's lengths */
    int heading; /* it is under way */
    Request header;
    PpLength said; /* received */
    /* Of a device: the stream's work before the message; its end */
    DeviceEvent ready, done;
    void *wire; /* what the wire keeps of it */
} Link;

struct Links {
    Group *group;
    Group *world; /* all ranks of the run: who shares a device with whom */
    int axis;     /* of the plan's messages, those along it */
    Device *dev;
    const Plan *plan;
    Pool pool;  /* of what these and the wire have */
    Link *link; /* per message of the plan */
    const WireOps *op;
    const char *name; /* of the wire */
    void *state;      /* the wire's */
    int64_t pinned;   /* bytes of the host that the wire took */
};

/* Whether this message of the plan travels along these links */
static inline int links_carry(const Links *l, int message)
{
    return l->plan->msg[message].axis == l->axis;
}

/* links.c */
/* Messages of one action together.  finish and over: PP_ERR_MODEL where a message's header has
 * other lengths than this rank found in the data. */
PpStatus links_start(Links *l, int first, int count, int receive);
PpStatus links_finish(Links *l, int first, int count);
PpStatus links_finish_all(Links *l);
PpStatus links_poll(Links *l); /* lets what is under way move on; nothing where it is not open */
/* Whether all of them are over, as far as the host can know; does not wait. */
PpStatus links_over(Links *l, int first, int count, int *over);
void links_close(Links *l, int broken);
/* The host waits for an event in a way that ends when another rank has failed, along any axis, and
 * the event may never come. */
PpStatus links_await(Links all[AXES], DeviceEvent e);

/* wires.c: chooses one by --transport (NULL: auto) and by where ranks and devices are; all ranks
 * call it.  of: group, world, axis, dev and plan of the links. */
PpStatus links_open(Links *l, Links of, int on_device, const char *transport, const char *device);

#endif

/*
 * wires.h - the wires there are, one row each, and what --transport may say.
 */
#ifndef PP_WIRES_H
#define PP_WIRES_H

#include "net/links.h"

extern const WireOps wire_host, wire_local, wire_staged, wire_nccl;

/* What --transport takes; NULL past the end */
const char *transport_name(int i);
/* Can it be: PP_ERR_USAGE after a message */
PpStatus transport_check(const char *name, int processes, int device);
int transport_may_be_nccl(const char *name); /* on a device */

#endif

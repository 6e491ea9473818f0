/*
 * devices.c - the kinds of device, one row each.  CUDA's functions are in the program when its .cu
 * files were compiled; else the weak references are NULL.
 */
#include "device.h"

#include "core/core.h"

#include <string.h>

extern const DeviceOps device_cuda __attribute__((weak));
extern const NcclOps nccl_ops __attribute__((weak));

static const DeviceRow devices[] = {
    {"cpu", PP_CPU, &device_cpu},
    {"cuda", PP_CUDA, &device_cuda},
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

const char *device_name(int i) { return i < N_DEVICES ? devices[i].name : NULL; }

const DeviceRow *device_of(int kind)
{
    int i = 0;
    while (devices[i].kind != kind)
        i++;
    return &devices[i];
}

const DeviceRow *device_named(const char *name)
{
    for (int i = 0; i < N_DEVICES; i++)
        if (!strcmp(devices[i].name, name))
            return &devices[i];
    return NULL;
}

const NcclOps *device_nccl(void) { return &nccl_ops; }

int device_number(const DeviceOps *op, int host_rank)
{
    int n = op->count();
    return n > 0 ? host_rank % n : 0;
}

PpStatus device_check(const Device *d, int rank, const char *what)
{
    const char *why = d->op->error();
    return *why ? pp_fail(PP_ERR_IO, "%s, %s: %s", pp_rank(rank).text, what, why) : PP_OK;
}

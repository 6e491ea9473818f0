/*
 * manifest.h - a checkpoint's manifest.json as its readers see it: written last, so without one a
 * checkpoint is unfinished, and with a CRC-32 of every tensor.  Used by `ppsplit merge` and by
 * every generated program; needs libc only.
 */
#ifndef PP_MANIFEST_H
#define PP_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

uint32_t st_crc32(uint32_t crc, const void *data, size_t n); /* CRC-32 (IEEE); start with 0 */

char *manifest_read(const char *path); /* the text, to be freed; NULL: errno says why */
/* 1: the manifest has the tensor with the checksum of these bytes; 0: it has another or none; -1:
 * out of memory */
int manifest_confirms(const char *manifest, const char *tensor, const void *data, int64_t bytes);

#endif

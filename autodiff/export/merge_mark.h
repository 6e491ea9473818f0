/* merge_mark.h - what tells a merged model from others; merge_mark.c. */
#ifndef PPSPLIT_MERGE_MARK_H
#define PPSPLIT_MERGE_MARK_H

#include "base/base.h"
#include "base/file/replace.h"
#include "base/protobuf.h"

/* The key of a merged model's metadata */
#define MERGE_MARK "ppsplit.merged"

/* Of models that are merged from this skeleton. */
const char *merge_mark(Arena *a, PbSpan skeleton);
void merge_put_mark(PbMessage *model, const char *mark);
/* Refuses a path where a file of another kind is. */
void spare_others(const char *path, const FileOurs *ours);
/* Refuses a path where another model, or another file, is. */
void merge_spare(const char *path, const char *mark);

#endif

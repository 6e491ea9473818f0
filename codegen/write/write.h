/*
 * write.h - the files of the output folder.
 */
#ifndef PPSPLIT_WRITE_H
#define PPSPLIT_WRITE_H

#include "codegen/print/target.h"
#include "codegen/tables.h"

/* stage.c */
void cg_stage_functions(StageGen *sg);  /* prints them */
void cg_stage_print(StageGen *sg, Text *t); /* stageN.c, stageN.cu */

/* tables.c */
/* those that stand in the source */
void cg_short_constants(const StageGen *sg, const char *prefix, Text *t);
/* what the stage's file defines for pipeline.c */
void cg_stage_prototypes(const StageGen *sg, Text *t);
/* "stage0", "stage0_cuda": how names of its tables begin */
const char *cg_table_name(const StageGen *sg);
/* after the stage's functions; outside: has the constants that do not stand in the source; NULL:
   nothing has */
void cg_tables_print(const StageGen *sg, OutsideFile *outside, Text *t);

/* launches.c: launches.tsv, its head and a stage's lines; rows: of a microbatch */
void cg_launches_head(int64_t rows, Text *t);
void cg_launches_print(const StageLaunches *s, uint32_t stage, int64_t rows, Arena *a, Text *t);

/* pipeline.c; sizes: where lengths vary, with those of the Pipe; NULL */
void cg_pipeline_print(Pipe *p, const CodegenOptions *opt, uint64_t hash, const Text *tables,
                       SizesMet *sizes, Text *t);

/* params.c; dir: where to write; final_dir: where that will lie in the end, absolute; weight: where
 * each parameter's bytes went */
void cg_params_write(StageGen *sg, const char *dir, const char *final_dir, bool link,
                     OnnxWeight *weight);

/* folder.c: the output folder as a whole */
NORETURN void write_error(const char *path);            /* what errno says of it */
/* What is written to the folder `temp` is told of as `dir`; NULL: no longer */
void write_names(const char *temp, const char *dir);
/* From on to off a signal that ends ppsplit is noted; then it does.  Meanwhile leaves, where there was
   one: to be called before what takes long. */
void folder_watch_signals(bool on);
void folder_end_by_signal(void);
void write_unless_ended(void);
/* the folders of a file below dir; dir itself */
void folder_make(Arena *a, const char *dir, const char *name);
/* The folders that dir is to lie in, where they are not there yet: how many are new. */
int folder_parents(Arena *a, const char *dir);
void folder_remove_parents(const char *dir, int made);
/* One that may be written: not there, empty, or ours; if its replacement was cut short before, that
   is completed. */
void folder_check(Arena *a, const char *dir);
/* temp, complete and beside dir, takes its place. */
void folder_take(Arena *a, const char *temp, const char *dir);
/* One that is ours: its files, params/, runtime/. */
void folder_remove(const char *dir);

#endif

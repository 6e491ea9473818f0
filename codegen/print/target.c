/* target.c - the targets by number. */
#include "target.h"

const TargetRow *target_row(Target t)
{
    static const TargetRow *const row[TARGETS] = {
        [TARGET_C] = &target_cpu, [TARGET_CUDA] = &target_cuda};
    return row[t];
}

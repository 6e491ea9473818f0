/*
 * current.c - is the program built of what lies beside it?  In: its folder, whose pipeline.c says
 * the hash of its text.  Out: nothing, or that ppsplit wrote the folder anew and make has not run:
 * params/ is then of another split than the program.
 */
#include "exec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cli/version.h"

/* What pipeline.c in the folder says; 0: nothing, or there is none. */
static uint64_t hash_beside(const char *folder)
{
    char path[sizeof((Options *)0)->command.folder + 16], line[160] = "";
    uint64_t hash = 0;
    snprintf(path, sizeof path, "%s/pipeline.c", folder);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    for (int i = 0; i < 2; i++)
        if (!fgets(line, sizeof line, f))
            line[0] = 0;
    fclose(f);
    size_t n = strlen(PPSPLIT_WRITTEN);
    return !strncmp(line, PPSPLIT_WRITTEN, n) && sscanf(line + n, "%" SCNx64, &hash) == 1 ? hash
                                                                                          : 0;
}

PpStatus program_current(const PpPlan *model, const char *folder)
{
    uint64_t now = hash_beside(folder);
    if (!now || !model->program.written || now == model->program.written)
        return PP_OK;
    return pp_fail(PP_ERR_MODEL,
                   "%s was written again after this program was built, with another split or other "
                   "options: run make -C '%s'",
                   folder, folder);
}

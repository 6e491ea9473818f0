/* merge.c - `ppsplit merge`: trained weights back into the model. */
#include "command.h"

#include "base/cli/options.h"

static const char merge_usage[] = "Usage: ppsplit merge OUT CHECKPOINT -o M.onnx\n"
                                  "Put trained weights back into the model.\n"
                                  "\n"
                                  "OUT is the folder that ppsplit wrote, CHECKPOINT a folder that "
                                  "its program wrote with --checkpoint\n"
                                  "(or one step_N in it).  M.onnx opens in any ONNX runtime and "
                                  "computes what the pipeline computed.\n"
                                  "Of several models in sequence the first is M.onnx, the next "
                                  "ones M1.onnx, M2.onnx, ..., a model named twice once.\n"
                                  "\n"
                                  "Examples:\n"
                                  "  ppsplit merge out checkpoints -o trained.onnx\n"
                                  "  ppsplit merge out checkpoints/step_200 -o step200.onnx\n";

typedef struct { Arena *arena; const char *out, *checkpoint, *target; } MergeOptions;

static void merge(void *arg)
{
    MergeOptions *o = arg;
    Merged m = merge_weights(o->arena, o->out, o->checkpoint, o->target);
    printf("merged %u parameters into ", m.parameters);
    for (uint32_t i = 0; i < m.file.n; i++)
        printf("%s%s", i ? ", " : "", m.file.at[i]);
    printf("\n");
}

int merge_main(int argc, char **argv)
{
    static const OptionName table[] = {{"output", "M.onnx", 'o'}, {"help", NULL, 'h'}};
    MergeOptions o = {0};
    OptionReader r = option_reader(argc, argv, table, 2);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit merge", "%s", r.wrong);
        else if (k == 0)
            o.target = r.value;
        else if (k == 1)
            return printf("%s%s", merge_usage, report_to), 0;
        else if (o.checkpoint)
            bad_usage("ppsplit merge", "unexpected operand '%s'", r.value);
        else
            *(o.out ? &o.checkpoint : &o.out) = r.value;
    if (!o.target)
        operands_there(!o.out ? 0 : !o.checkpoint ? 1 : 2, (const char *[]){o.out, o.checkpoint});
    if (!o.checkpoint)
        bad_usage("ppsplit merge", "missing operand: %s", o.out ? "CHECKPOINT" : "OUT");
    if (!o.target)
        bad_usage("ppsplit merge", "missing option: -o M.onnx");
    o.arena = arena_new();
    int code = diag_run(merge, &o);
    arena_free(o.arena);
    return code;
}

/* merge.c - `ppsplit merge`: trained weights back into the model. */
#include "command.h"

#include <string.h>

typedef struct {
    Arena *arena;
    MergeAsk ask;
    const char *shard_size;
} MergeOptions;

// clang-format off
static const ArgumentRow rows[] = {
    {{"output", "FILE", 'o', "M.onnx, or model.safetensors"}, offsetof(MergeOptions, ask.target)},
    {{"module", "PATH", 0,
      "the state_dict of this module, with names that begin behind PATH"},
     offsetof(MergeOptions, ask.module)},
    {{"shard-size", "BYTES", 0,
      "write several files of at most so many bytes (5G), and model.safetensors.index.json"},
     offsetof(MergeOptions, shard_size)},
    {{"states", "FILE.safetensors", 0,
      "also write the optimizer's states: exp_avg.NAME, ..., and step"},
     offsetof(MergeOptions, ask.states)},
};
// clang-format on
static const Arguments arguments = {
    "ppsplit merge",
    "Usage: ppsplit merge OUT CHECKPOINT -o M.onnx\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o model.safetensors [OPTION]...\n"
    "Put trained weights back into the model, or into a file for PyTorch.\n"
    "\n"
    "OUT is the folder that ppsplit wrote.  CHECKPOINT is the folder of --checkpoint, or one\n"
    "step_N in it.  M.onnx opens in any ONNX runtime and computes what the pipeline computed.  If\n"
    "several models run in sequence, they are M.onnx, M1.onnx, M2.onnx, ..., and a model named\n"
    "twice is written once.  model.safetensors is the model's state_dict, for load_state_dict and\n"
    "from_pretrained.\n",
    "Examples:\n"
    "  ppsplit merge out checkpoints -o trained.onnx\n"
    "  ppsplit merge out checkpoints/step_200 -o gpt2/model.safetensors --module model\n",
    rows, sizeof rows / sizeof *rows};

static void merge(void *arg)
{
    MergeOptions *o = arg;
    Merged m = merge_weights(o->arena, &o->ask);
    printf("merged %u parameters into ", m.parameters);
    for (uint32_t i = 0; i < m.file.n; i++)
        printf("%s%s", i ? ", " : "", m.file.at[i]);
    printf("\n");
}

static _Noreturn void wrong(const char *text) { bad_usage("ppsplit merge", "%s", text); }

/* Options that say how a state_dict is written. */
static void check(const MergeAsk *ask)
{
    if (!ask->target)
        operands_there(!ask->out          ? 0
                       : !ask->checkpoint ? 1
                                          : 2,
                       (const char *[]){ask->out, ask->checkpoint});
    if (!ask->checkpoint)
        bad_usage("ppsplit merge", "missing operand: %s", ask->out ? "CHECKPOINT" : "OUT");
    if (!ask->target)
        wrong("missing option: -o M.onnx, or -o model.safetensors");
    const char *suffix = strrchr(ask->target, '.');
    if (!merge_is_tensors(ask->target) && (!suffix || strcmp(suffix, ".onnx") != 0))
        wrong("-o: expected a name that ends in .onnx or .safetensors");
    if (!merge_is_tensors(ask->target) && (ask->module || ask->shard_bytes || ask->states))
        wrong("--module, --shard-size and --states are for -o FILE.safetensors");
    if (ask->states && !merge_is_tensors(ask->states))
        wrong("--states: expected a name that ends in .safetensors");
    if (ask->states && !strcmp(ask->states, ask->target))
        wrong("-o and --states name the same file");
}

int merge_main(int argc, char **argv)
{
    MergeOptions o = {.arena = arena_new()};
    const Strings operand = read_arguments(&arguments, &o, 2, o.arena, argc, argv);
    int64_t bytes = 0;
    if (o.shard_size && (!option_bytes(o.shard_size, &bytes) || bytes <= 0))
        bad_usage("ppsplit merge", "--shard-size: expected a number of bytes, not '%s'",
                  o.shard_size);
    o.ask.shard_bytes = (uint64_t)bytes;
    o.ask.out = operand.n > 0 ? operand.at[0] : NULL;
    o.ask.checkpoint = operand.n > 1 ? operand.at[1] : NULL;
    check(&o.ask);
    int code = diag_run(merge, &o);
    arena_free(o.arena);
    return code;
}

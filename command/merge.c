/* merge.c - `ppsplit merge`: trained weights back into the model. */
#include "command.h"

#include <string.h>

#include "base/cli/options.h"

static const char merge_usage[] =
    "Usage: ppsplit merge OUT CHECKPOINT -o M.onnx\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o model.safetensors [OPTION]...\n"
    "Put trained weights back into the model, or into a file for PyTorch.\n"
    "\n"
    "OUT is the folder that ppsplit wrote.  CHECKPOINT is the folder of --checkpoint, or one\n"
    "step_N in it.  M.onnx opens in any ONNX runtime and computes what the pipeline computed.  If\n"
    "several models run in sequence, they are M.onnx, M1.onnx, M2.onnx, ..., and a model named\n"
    "twice is written once.  model.safetensors is the model's state_dict, for load_state_dict and\n"
    "from_pretrained.\n"
    "\n"
    "  -o, --output=FILE           M.onnx, or model.safetensors\n"
    "      --module=PATH           the state_dict of this module, with names that begin behind\n"
    "                              PATH\n"
    "      --shard-size=BYTES      write several files of at most so many bytes (5G), and\n"
    "                              model.safetensors.index.json\n"
    "      --states=FILE.safetensors\n"
    "                              also write the optimizer's states: exp_avg.NAME, ..., and\n"
    "                              step\n"
    "  -h, --help                  this text\n"
    "\n"
    "Examples:\n"
    "  ppsplit merge out checkpoints -o trained.onnx\n"
    "  ppsplit merge out checkpoints/step_200 -o gpt2/model.safetensors --module model\n";

typedef struct {
    Arena *arena;
    MergeAsk ask;
} MergeOptions;

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
    if (!merge_is_tensors(ask->target) && (ask->module || ask->shard_bytes || ask->states))
        wrong("--module, --shard-size and --states are for -o FILE.safetensors");
    if (ask->states && !merge_is_tensors(ask->states))
        wrong("--states: expected a name that ends in .safetensors");
    if (ask->states && !strcmp(ask->states, ask->target))
        wrong("-o and --states name the same file");
}

int merge_main(int argc, char **argv)
{
    enum { OUTPUT, MODULE, SHARD_SIZE, STATES, HELP, N };
    static const OptionName table[] = {[OUTPUT] = {"output", "FILE", 'o'},
                                       [MODULE] = {"module", "PATH", 0},
                                       [SHARD_SIZE] = {"shard-size", "BYTES", 0},
                                       [STATES] = {"states", "FILE.safetensors", 0},
                                       [HELP] = {"help", NULL, 'h'}};
    MergeOptions o = {0};
    int64_t bytes;
    OptionReader r = option_reader(argc, argv, table, N);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        switch (k) {
        case OPTION_WRONG: wrong(r.wrong);
        case OUTPUT: o.ask.target = r.value; break;
        case MODULE: o.ask.module = r.value; break;
        case STATES: o.ask.states = r.value; break;
        case SHARD_SIZE:
            if (!option_bytes(r.value, &bytes) || bytes <= 0)
                bad_usage("ppsplit merge", "--shard-size: expected a number of bytes, not '%s'",
                          r.value);
            o.ask.shard_bytes = (uint64_t)bytes;
            break;
        case HELP: return printf("%s%s", merge_usage, report_to), 0;
        default:
            if (o.ask.checkpoint)
                bad_usage("ppsplit merge", "unexpected operand '%s'", r.value);
            *(o.ask.out ? &o.ask.checkpoint : &o.ask.out) = r.value;
        }
    check(&o.ask);
    o.arena = arena_new();
    int code = diag_run(merge, &o);
    arena_free(o.arena);
    return code;
}

/* annotate.c - `ppsplit annotate`: its help, and --check. */
#include "command.h"


#include "annotate/annotate.h"

const char annotate_usage[] =
    "Usage: ppsplit annotate [OPTION]... MODEL.onnx -o M.onnx    write the split into the model\n"
    "  or:  ppsplit annotate --check [OPTION]... MODEL.onnx      check a model's annotations\n"
    "Write or check ONNX's own annotations for several devices "
    "(NodeProto.device_configurations): the\n"
    "pipeline stage of each node, and how tensors are divided among devices.\n"
    "\n"
    "M.onnx is MODEL.onnx with the stages and the division that --split, --stages, --tensor, "
    "--shard\n"
    "and the other options of `ppsplit --help' ask for. `ppsplit M.onnx' cuts and divides "
    "accordingly.\n"
    "With --loss the division is that of training. What MODEL.onnx is annotated with stays where\n"
    "it is not named again.\n"
    "Weights in files of their own stay there, so write M.onnx beside MODEL.onnx.\n"
    "\n"
    "      --check                 print each violation of the standard's rules about devices, "
    "axes, numbers\n"
    "                              of shards and operands; exit status 1 if there is one\n"
    "  -v, --verbose               with --check: print each node that no rule covers\n"
    "  -o, --output M.onnx         the file to write\n"
    "  -q, --quiet                 no report on standard output\n"
    "  -h, --help                  this text\n"
    "\n"
    "Examples:\n"
    "  ppsplit annotate model.onnx --split layers.1:begin -o annotated.onnx\n"
    "  ppsplit annotate --check annotated.onnx\n";

void annotate_options(const Options *o)
{
    static const char command[] = "ppsplit annotate";
    if (o->model.n > 1)
        bad_usage(command, "unexpected operand '%s': give one model", o->model.at[1]);
    if (o->check && o->codegen.dir)
        bad_usage(command, "--check writes nothing, so it takes no -o %s", o->codegen.dir);
    if (!o->check && !o->codegen.dir)
        bad_usage(command, "missing option: -o M.onnx, the file to write");
}

/* ---- --check ---- */

typedef struct {
    Options *o;
    Graph *graph;
} Reading;

static void read_graph(void *of)
{
    Reading *r = of;
    r->graph = import_models(r->o->arena, r->o->model.n, r->o->model.at, &r->o->import);
    batch_analyse(r->graph, 0, &r->o->partition.batch, NULL);
}

/* For shapes that the file does not declare.  A model that ppsplit does not read is checked
 * without. */
static const Graph *graph_of(Options *o)
{
    Reading r = {.o = o};
    return diag_quietly(read_graph, &r, NULL) ? NULL : r.graph;
}

void annotate_checked(Options *o)
{
    const Graph *g = graph_of(o);
    uint32_t violations =
        annotate_check(o->arena, o->model.at[0], &o->import.limits, g, o->verbose, stdout);
    diag_files();
    if (violations)
        diag_raise(EXIT_MODEL);
}

/* ops.c - `ppsplit ops`: what is supported. */
#include "command.h"

int ops_main(int argc, char **argv)
{
    static const Arguments arguments = {
        .name = "ppsplit ops",
        .head = "Usage: ppsplit ops\n"
                "List the operators: the first opset, what it is (map: elementwise; view: costs\n"
                "nothing; composite: becomes others), whether it has a gradient, and its code.\n",
        .tail = "Example:\n"
                "  ppsplit ops | grep Norm\n"};
    read_arguments(&arguments, NULL, 0, NULL, argc, argv);
    ops_print(stdout);
    return 0;
}

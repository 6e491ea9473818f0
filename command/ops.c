/* ops.c - `ppsplit ops`: what is supported. */
#include "command.h"

#include "base/cli/options.h"

static const char ops_usage[] =
    "Usage: ppsplit ops\n"
    "List the operators: the first opset, what it is (map: elementwise; view: costs nothing;\n"
    "composite: becomes others), whether it has a gradient, and its code.\n"
    "\n"
    "Example:\n"
    "  ppsplit ops | grep Norm\n";

int ops_main(int argc, char **argv)
{
    static const OptionName table[] = {{"help", NULL, 'h'}};
    OptionReader r = option_reader(argc, argv, table, 1);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit ops", "%s", r.wrong);
        else if (k == OPTION_OPERAND)
            bad_usage("ppsplit ops", "unexpected operand '%s'", r.value);
        else
            return printf("%s%s", ops_usage, report_to), 0;
    ops_print(stdout);
    return 0;
}

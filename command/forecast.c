/* forecast.c - `ppsplit forecast`: its options; what it says is planner/forecast.c's. */
#include "command.h"

#include "base/cli/options.h"

static const char forecast_usage[] =
    "Usage: ppsplit forecast [OPTION]... OUT\n"
    "The least time of a training step on a GPU, and what bounds it: each launch of the program\n"
    "with its bytes and operations, against what the card reaches.  Nothing is run.  OUT is a\n"
    "folder that ppsplit wrote with --target cuda.\n"
    "\n"
    "      --card=h100|h200|b200|a100\n"
    "                              the card (default h100); its rates are in\n"
    "                              partition/auto/cards.def\n"
    "      --microbatches=M        microbatches in a step (default 1)\n"
    "      --optimizer=sgd|momentum|adam|adamw\n"
    "                              the optimizer, whose states are read and written (default\n"
    "                              adamw)\n"
    "      --tf32                  products in float32 on tensor cores, as the program's --tf32\n"
    "      --longest=N             how many of the longest launches to print (default 10)\n"
    "  -h, --help                  this text\n"
    "\n"
    "Example:\n"
    "  ppsplit forecast out --card h100 --microbatches 8\n";

static const char command[] = "ppsplit forecast";

static const Card *card_asked(const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    uint32_t n = 0;
    for (; n < MOST && card_name((int)n); n++)
        names[n] = card_name((int)n);
    return card_find(names[one_of(command, "card", name, names, n)]);
}

static int number(const char *option, const char *text)
{
    return (int)given_number(option, text, 1 << 20);
}

typedef struct {
    ForecastOptions o;
    const char *microbatches, *longest;
} Asked;

static void run(void *arg)
{
    Asked *x = arg;
    x->o.microbatches = number("microbatches", x->microbatches);
    x->o.longest = number("longest", x->longest);
    forecast_tell(&x->o);
}

int forecast_main(int argc, char **argv)
{
    enum { CARD, MICROBATCHES, OPTIMIZER, TF32, LONGEST, HELP, N_OPTIONS };
    static const OptionName table[N_OPTIONS] = {{"card", "NAME", 0},      {"microbatches", "M", 0},
                                                {"optimizer", "NAME", 0}, {"tf32", NULL, 0},
                                                {"longest", "N", 0},      {"help", NULL, 'h'}};
    Asked x = {.o = {.arena = arena_new(), .optimizer = "adamw"}, "1", "10"};
    const char *card = "h100";
    OptionReader r = option_reader(argc, argv, table, N_OPTIONS);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        switch (k) {
        case CARD: card = r.value; break;
        case MICROBATCHES: x.microbatches = r.value; break;
        case OPTIMIZER: x.o.optimizer = r.value; break;
        case TF32: x.o.tf32 = true; break;
        case LONGEST: x.longest = r.value; break;
        case HELP: return printf("%s%s", forecast_usage, report_to), 0;
        case OPTION_WRONG: bad_usage(command, "%s", r.wrong);
        default:
            if (x.o.out)
                bad_usage(command, "expected one operand: OUT, a folder that ppsplit wrote");
            x.o.out = r.value;
        }
    if (!x.o.out)
        bad_usage(command, "missing operand: OUT, a folder that ppsplit wrote");
    operands_there(1, &x.o.out);
    x.o.card = card_asked(card);
    int code = diag_run(run, &x);
    arena_free(x.o.arena);
    return code;
}

/* forecast.c - `ppsplit forecast`: its options; what it says is planner/forecast.c's. */
#include "command.h"

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
    const char *card, *microbatches, *longest;
} Asked;

// clang-format off
static const ArgumentRow rows[] = {
    {{"card", "h100|h200|b200|a100", 0,
      "the card (default h100); its rates are in partition/auto/cards.def"}, offsetof(Asked, card)},
    {{"microbatches", "M", 0, "microbatches in a step (default 1)"}, offsetof(Asked, microbatches)},
    {{"optimizer", "sgd|momentum|adam|adamw", 0,
      "the optimizer, whose states are read and written (default adamw)"},
     offsetof(Asked, o.optimizer)},
    {{"tf32", NULL, 0,
      "products in float32 on tensor cores, as the program's --tf32"}, offsetof(Asked, o.tf32)},
    {{"longest", "N", 0,
      "how many of the longest launches to print (default 10)"}, offsetof(Asked, longest)},
};
// clang-format on
static const Arguments arguments = {
    command,
    "Usage: ppsplit forecast [OPTION]... OUT\n"
    "The least time of a training step on a GPU, and what bounds it: each launch of the program\n"
    "with its bytes and operations, against what the card reaches.  Nothing is run.  OUT is a\n"
    "folder that ppsplit wrote with --target cuda.\n",
    "Example:\n"
    "  ppsplit forecast out --card h100 --microbatches 8\n",
    rows, sizeof rows / sizeof *rows};

static void run(void *arg)
{
    Asked *x = arg;
    x->o.microbatches = number("microbatches", x->microbatches);
    x->o.longest = number("longest", x->longest);
    forecast_tell(&x->o);
}

int forecast_main(int argc, char **argv)
{
    Asked x = {{.arena = arena_new(), .optimizer = "adamw"}, "h100", "1", "10"};
    const Strings out = read_arguments(&arguments, &x, 1, x.o.arena, argc, argv);
    if (!out.n)
        bad_usage(command, "missing operand: OUT, a folder that ppsplit wrote");
    x.o.out = out.at[0];
    operands_there(1, &x.o.out);
    x.o.card = card_asked(x.card);
    int code = diag_run(run, &x);
    arena_free(x.o.arena);
    return code;
}

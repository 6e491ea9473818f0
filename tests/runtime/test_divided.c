/* --shard-optimizer: replicas that each update their share of the parameters end in the bits of
   replicas that update all, with every optimizer, clipped, replicated parameters too; in as many
   bytes as promised; their checkpoints are one another's.  And with --offload params: replicas whose
   parameters are in files, divided or not, end in the same bits, and move the bytes planned. */
#define COLUMNS 9000 /* three blocks of a parameter's norm */
#include "runtime_plan.h"

#include "runtime_params.h"
#include "runtime_run.h"
#include "runtime_train.h"

#include <unistd.h>

enum { N = 22 };
static float x[N * D], target[D * N], par[4][D];

/* Of each rank of a run of so many steps: what was planned to come to memory and to go has, in
 * actions. */
static int moved_as_planned(int steps)
{
    const char *text = slurp(at("out"));
    int ranks = 0, good = 1;
    char want[60];
    for (;; ranks++) {
        long all, most, in, out, came, went;
        snprintf(want, sizeof want, "rank %d offload: parameters", ranks);
        const char *plan = strstr(text, want);
        snprintf(want, sizeof want, "rank %d offload: ", ranks);
        const char *count = plan ? strstr(plan + 20, want) : NULL;
        if (!plan || !count)
            return ranks && good && !plan;
        good &= sscanf(strstr(plan, " are ") + 5, "%ld", &all) == 1 &&
                sscanf(strstr(plan, "at most ") + 8,
                       "%ld of them in memory; %ld bytes in and %ld out a step", &most, &in, &out) == 3 &&
                sscanf(strchr(count, ':') + 1, " %ld bytes came and %ld went", &came, &went) == 2 &&
                came == steps * in && went == steps * out;
        if (!good) {
            printf("# %.500s\n", count);
            printf("# %.500s\n", plan);
            return 0;
        }
    }
}

/* Parameters in files; divided or not. */
static void offloaded(int which, const char *how, const char *last)
{
    char line[800], numbers[200];
    snprintf(numbers, sizeof numbers, "%s", last);
    for (int divided = 0; divided < 2; divided++) {
        snprintf(line, sizeof line,
                 "%s --lr 0.02 --params %s --offload params --offload-dir %s --unshard %d --verbose "
                 "--dump-grads %s%s", how, at("params"), folder, 1 + divided, at("g3"),
                 divided ? " --shard-optimizer" : "");
        const char *a = train(&plans[which], 3, "away", line);
        ok(!strcmp(a, numbers) && same_checkpoints(at("whole/step_3"), at("away/step_3")),
           "plan %d, %s, %s parameters in files: the same bits", which, how,
           divided ? "divided" : "whole");
        ok(moved_as_planned(3), "what has come and gone was planned");
        forget("away");
    }
}

/* --verbose: as many gathers as the rows have, of every rank; with one stage at a time in memory.
 */
static int gathered_as_planned(int steps)
{
    const char *text = slurp(at("out"));
    char want[60];
    for (int ranks = 0;; ranks++) {
        long planned = 0, ran = 0, in = 0, out = 0, most = 0, all = 0;
        snprintf(want, sizeof want, "rank %d gathers parameters ", ranks);
        const char *plan = strstr(text, want);
        snprintf(want, sizeof want, "rank %d has gathered parameters ", ranks);
        const char *count = strstr(text, want);
        if (!plan || !count)
            return ranks && !plan && !count;
        if (sscanf(strstr(plan, "parameters ") + 11,
                   "%ld times in a pass of the schedule, %ld bytes in and %ld out; at most %ld of "
                   "%ld",
                   &planned, &in, &out, &most, &all) != 5 ||
            sscanf(strstr(count, "parameters ") + 11, "%ld times", &ran) != 1 ||
            ran != steps * planned || most > all) {
            printf("# %.200s\n# %.200s\n", plan, count);
            return 0;
        }
    }
}

/* Gradients divided, parameters too. */
static void windows(int which, const char *whole, const char *last)
{
    char line[900], numbers[200], how[600];
    snprintf(numbers, sizeof numbers, "%s", last);
    snprintf(how, sizeof how, "%.*s", (int)(strstr(whole, " --params") - whole), whole);
    for (int zero = 2; zero <= 3; zero++)
        for (int window = 1; window <= zero - 1; window++) {
            snprintf(line, sizeof line, "%s --params %s --zero %d --unshard %d --verbose", how,
                     at("params"), zero, window);
            const char *b = train(&plans[which], 3, "window", line);
            ok(!strcmp(b, numbers) && same_checkpoints(at("whole/step_3"), at("window/step_3")),
               "plan %d, %s, --zero %d --unshard %d: the same bits", which, how, zero, window);
            if (zero == 3)
                ok(gathered_as_planned(3), "as many gathers as planned");
            forget("window");
        }
}

/* Planned for rank 0. */
static long planned(void)
{
    const char *line = strstr(slurp(at("out")), "rank 0 memory: ");
    return line ? strtol(line + strlen("rank 0 memory: "), NULL, 10) : -1;
}

/* A parameter that does not train is in pieces as well. */
static void frozen(void)
{
    PpStage stage = *plans[1].stage[1];
    PpParam fixed = stage.param[0];
    const PpStage *list[] = {plans[1].stage[0], &stage, plans[1].stage[2]};
    PpPlan p = plans[1];
    fixed.trainable = 0;
    fixed.grad_offset = -1;
    stage.param = &fixed;
    p.stage = list;
    const char *last[3];
    char name[3][40], line[600], numbers[200];
    long bytes[3];
    write_params(&plans[1], at("params"), par);
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "frozen%d", i);
        snprintf(line, sizeof line,
                 "--dp 3 --ranks 3 --schedule loopedbfs --optimizer adam --lr 0.02 --unshard 1 "
                 "--zero %d %s %s",
                 i == 1 ? 3 : 2, i < 2 ? "--params" : "--resume", at(i < 2 ? "params" : "frozen1"));
        last[i] = train(&p, i == 2 ? 5 : 3, name[i], line);
        bytes[i] = planned();
        if (!i)
            snprintf(numbers, sizeof numbers, "%s", last[0]);
    }
    ok(!strcmp(last[1], numbers) && same_checkpoints(at("frozen0/step_3"), at("frozen1/step_3")) &&
           bytes[1] < bytes[0],
       "a parameter that does not train: the same bits, in pieces");
    ok(last[2][0] != 0, "and back");
    for (int i = 0; i < 3; i++)
        forget(name[i]);
}

/* Several stages of a rank, one whole at a time: no level takes more, each less where it falls. */
static void levels(int which, const char *how, int falls)
{
    char whole[600], line[700];
    long bytes[4];
    write_params(&plans[which], at("params"), par);
    snprintf(whole, sizeof whole, "%s --lr 0.02 --params %s", how, at("params"));
    for (int zero = 0; zero < 4; zero++) {
        snprintf(line, sizeof line, "%s --zero %d%s", whole, zero, zero > 1 ? " --unshard 1" : "");
        char first[200];
        const char *a = train(&plans[which], 3, zero ? "window" : "whole", line);
        if (!zero)
            snprintf(first, sizeof first, "%s", a);
        bytes[zero] = planned();
        ok(!strcmp(a, first) &&
               (!zero || same_checkpoints(at("whole/step_3"), at("window/step_3"))) &&
               (!zero || bytes[zero] <= bytes[zero - 1] - falls),
           "plan %d, %s, --zero %d: the same bits, in %ld bytes", which, how, zero, bytes[zero]);
        forget("window");
    }
    forget("whole");
}

/* Divided or not: the bits of parameters, states, loss and norm; of gradients too. */
static void same_bits(int which, const char *how)
{
    char whole[600], divided[700];
    write_params(&plans[which], at("params"), par);
    snprintf(whole, sizeof whole, "%s --lr 0.02 --params %s", how, at("params"));
    snprintf(divided, sizeof divided, "%s --shard-optimizer --dump-grads %s", whole, at("g2"));
    snprintf(whole + strlen(whole), 200, " --dump-grads %s", at("g1"));
    const char *a = train(&plans[which], 3, "whole", whole),
               *b = train(&plans[which], 3, "divided", divided);
    ok(a[0] && !strcmp(a, b) && same_checkpoints(at("whole/step_3"), at("divided/step_3")),
       "plan %d, %s: the bits of one optimizer", which, how);
    for (int s = 0; s < plans[which].n_stage; s++) {
        char one[60], other[60], err[ST_ERR];
        StFile f = {0}, g = {0};
        snprintf(one, sizeof one, "g1/stage%d.safetensors", s);
        snprintf(other, sizeof other, "g2/stage%d.safetensors", s);
        int same = !st_open(&f, at(one), err, sizeof err) &&
                   !st_open(&g, at(other), err, sizeof err);
        for (int i = 0; same && i < f.n; i++) {
            const StTensor *t = st_find(&g, f.tensor[i].name);
            same = t && !memcmp(t->data, f.tensor[i].data, (size_t)t->bytes);
        }
        if (!same)
            ok(0, "plan %d, %s: gradients of stage %d", which, how, s);
        st_close(&f);
        st_close(&g);
    }
    offloaded(which, how, a);
    windows(which, whole, a);
    forget("whole"), forget("divided");
}

/* Every byte of state is one replica's; each has its share of parameters but for two blocks. */
static void memory(void)
{
    enum { REPLICAS = 3, RANKS = 3, OWN = 2 }; /* the last stage's parameter is another's */
    const long vector = D * 4, block = 4096 * 4;
    write_params(&plans[0], at("params"), par);
    char how[600];
    snprintf(how, sizeof how, "--dp 3 --optimizer adam --shard-optimizer --params %s",
             at("params"));
    train(&plans[0], 1, "whole", how);
    long sum[OWN] = {0}, good = 1;
    const char *text = slurp(at("out"));
    for (int i = 0; i < REPLICAS * OWN; i++) {
        int k = i / OWN * RANKS + i % OWN;
        long updated = 0, state = 0, alone = 0, planned = 0, all = (k % RANKS ? 1 : 2) * vector;
        double each = 0;
        char want[40];
        snprintf(want, sizeof want, "rank %d updates ", k);
        const char *line = strstr(text, want), *head;
        good &= line && sscanf(line + strlen(want),
                               "%ld bytes of parameters: optimizer state %ld bytes instead of "
                               "%ld, %lf bytes a parameter",
                               &updated, &state, &alone, &each) == 4;
        snprintf(want, sizeof want, "rank %d memory: ", k);
        head = strstr(text, want);
        head = head ? strstr(head, ", optimizer ") : NULL;
        good &= head && sscanf(head, ", optimizer %ld", &planned) == 1 && planned == state;
        good &= state >= 2 * updated && state < 2 * updated + 6 * 64 && alone >= 2 * all &&
                labs(updated - all / REPLICAS) < 2 * block &&
                fabs(each - 8 - 4 * (double)state / (double)all) < 0.005;
        sum[k % RANKS] += updated;
    }
    ok(good && sum[0] == 2 * vector && sum[1] == vector,
       "8 bytes a parameter and 8 / 3: the plan's bytes");
    forget("whole");
}

/* Any number of replicas that divides the groups has the bits of as many as there are groups: of
 * parameters, states, loss and norm, rows that do not divide evenly, uses in several stages. */
static void groups(int which, const char *how, const char *const *other)
{
    char line[700];
    write_params(&plans[which], at("params"), par);
    snprintf(line, sizeof line, "%s --dp 4 --lr 0.02 --params %s", how, at("params"));
    const char *a = train(&plans[which], 3, "whole", line);
    ok(a[0] != 0, "plan %d, %s: four replicas", which, how);
    for (int i = 0; other[i]; i++) {
        snprintf(line, sizeof line, "%s --groups 4 %s --lr 0.02 --params %s", how, other[i],
                 at("params"));
        const char *b = train(&plans[which], 3, "grouped", line);
        ok(!strcmp(a, b) && same_checkpoints(at("whole/step_3"), at("grouped/step_3")),
           "plan %d, %s, %s: their bits", which, how, other[i]);
        forget("grouped");
    }
    forget("whole");
}

/* Checkpoints do not say who wrote them. */
static void resumed(void)
{
    const PpPlan *p = &plans[1];
    char begin[2][600], from[2][600];
    static const char how[] = "--dp 2 --optimizer adamw --lr 0.02 --clip-norm 0.5";
    write_params(p, at("params"), par);
    for (int i = 0; i < 2; i++) {
        snprintf(begin[i], sizeof begin[i], "%s --params %s%s", how, at("params"),
                 i ? " --shard-optimizer --every 1 --keep 1" : "");
        snprintf(from[i], sizeof from[i], "%s --resume %s", how, at(i ? "b" : "a"));
    }
    train(p, 6, "straight", begin[0]);
    train(p, 2, "a", begin[1]);
    ok(access(at("a/step_2/rank4.safetensors"), F_OK) == 0, "every rank with a share has written");
    strcat(from[0], " --schedule zb-h1");
    train(p, 4, "b", from[0]);
    ok(access(at("b/step_4/rank4.safetensors"), F_OK) != 0, "replica 0 alone has written");
    strcat(from[1], " --shard-optimizer --schedule gpipe --ranks 4 --bucket 20K");
    train(p, 6, "c", from[1]);
    ok(same_checkpoints(at("straight/step_6"), at("c/step_6")),
       "divided, whole, divided: the bits of a run that was not interrupted");
    snprintf(begin[0], sizeof begin[0], "--optimizer adamw --lr 0.02 --clip-norm 0.5 --resume %s",
             at("b"));
    train(p, 6, "d", begin[0]);
    ok(same_checkpoints(at("straight/step_6"), at("d/step_6")),
       "two replicas, then one that runs their groups one after the other: the same bits");
    int s = command_line(p, "train --data x=%s --data target=%s --resume %s --steps 6 --optimizer "
                            "adamw --lr 0.02 --clip-norm 0.5 --dp 3", at("x.npy"), at("t.npy"),
                         at("b"));
    ok(s == 1 && strstr(slurp(at("err")), "sums over 2 groups of rows, which --dp 3 cannot divide"),
       "a number of replicas that cannot have these groups: refused, and named");
    s = command_line(p, "eval --data x=%s --data target=%s --params %s", at("x.npy"), at("t.npy"),
                     at("a"));
    ok(s == 0, "its parameters, from pieces");
}

int main(void)
{
    char err[ST_ERR];
    make_folder();
    fill(x, N * D, 7), fill(target, N * D, 8), fill(par[0], 4 * D, 9);
    npy_write(at("x.npy"), PP_F32, 2, (int64_t[]){N, D}, x, err, sizeof err);
    npy_write(at("t.npy"), PP_F32, 2, (int64_t[]){D, N}, target, err, sizeof err);
    same_bits(0, "--dp 2 --optimizer adamw --clip-norm 0.5 --no-decay w");
    same_bits(1, "--dp 3 --optimizer adamw --clip-norm 0.5 --schedule zb-h1 --bucket 20K");
    same_bits(1, "--dp 2 --optimizer momentum --ranks 4 --schedule gpipe --bucket 1");
    same_bits(2, "--dp 2 --optimizer sgd --ranks 4 --schedule interleaved1f1b");
    same_bits(3, "--dp 5 --optimizer adam --ranks 10 --schedule zbvzerobubble");
    levels(3, "--dp 4 --ranks 4 --schedule loopedbfs --optimizer adamw --clip-norm 0.5", 1);
    levels(2, "--dp 3 --ranks 3 --schedule loopedbfs --optimizer momentum --groups 6", 0);
    levels(2,
           "--dp 3 --ranks 3 --schedule loopedbfs --optimizer adam --accumulate 2 "
           "--microbatches 2",
           0);
    levels(1, "--dp 4 --ranks 4 --schedule gpipe --optimizer sgd --bucket 20K", 0);
    groups(0, "--optimizer adamw --microbatches 2 --accumulate 2 --clip-norm 0.5",
           (const char *const[]){"--schedule gpipe", "--dp 2 --shard-optimizer --bucket 20K", NULL});
    groups(1, "--optimizer adam --microbatches 3",
           (const char *const[]){"--ranks 1", "--dp 2 --schedule zb-h1 --bucket 1 --ranks 4", NULL});
    groups(3, "--optimizer momentum --microbatches 2",
           (const char *const[]){"--schedule interleaved1f1b --ranks 2 --bucket 20K",
                                 "--dp 2 --shard-optimizer --ranks 8 --schedule 1f1b", NULL});
    memory();
    frozen();
    resumed();
    remove_folder();
    printf("1..%d\n", number);
    return failed;
}

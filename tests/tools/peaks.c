/*
 * peaks.c - how far what is planned is from what nothing could go below.
 *
 * In: a model and options of ppsplit, of a split with a loss.  Out: for each rank of 1F1B over as
 * many ranks as stages, with each way to recompute, a line
 *
 *     MODEL rank R VARIANT: planned A of B
 *
 * A: bytes of the block that holds what lives between actions, and workspaces; B: the most of both
 * that is alive at one step of one function of an action, where a function's workspace is what its
 * buffers need that are alive at that step, and what stands behind it for loops.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/plan/plan.h"
#include "command/command.h"
#include "ir/facts/attention.h"
#include "planner/memory.h"
/* names that the compiler has, too */
#define Op PlanOp
#define Piece PlanPiece
#define Options RunOptions
#include "runtime/plan/plan.h"
#undef Op
#undef Piece
#undef Options

enum { MICROBATCHES = 4 };

typedef struct {
    int argc;
    char **argv;
    Options o;
    Program *program;
    StageGen **gen; /* per stage */
    Arena *a;
    const char *name;
    int wrong;
} Peaks;

/* ---- the model ------------------------------------------------------------------------------- */

static Pipe *pipe_of(Options *o)
{
    Graph *g = import_models(o->arena, o->model.n, o->model.at, &o->import);
    Loss loss = loss_append(g, &o->loss, &o->import);
    if (o->dtype != DT_NONE && o->dtype != DT_F32)
        graph_autocast(g, o->dtype);
    attention_fuse(g, &o->partition.batch, loss.loss, loss.target);
    Pipe *p = pipe_build(g, &o->partition, &loss);
    reverse_stages(p);
    stash_minimize(p);
    divide_backward(p);
    stash_again(p);
    return p;
}

/* ---- what functions need --------------------------------------------------------------------- */

static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

static int64_t needed(const Func *f) { return f->bytes.live + f->bytes.scratch; }

/* Alive at one step of the functions that an action runs. */
static int64_t alive(const Peaks *x, const PlanOp *op)
{
    if (op->local < 0 || op->a.type > SA_R || op->a.type == SA_IDLE)
        return 0;
    const StageGen *g = x->gen[op->a.stage];
    static const FuncKind of[] = {[SA_F] = F_FORWARD, [SA_B] = F_BACKWARD, [SA_I] = F_INPUT,
                                  [SA_W] = F_WEIGHT};
    const Func *f = op->a.type == SA_R ? NULL : g->func[of[op->a.type]];
    int64_t bytes = f ? needed(f) : 0;
    if (op->a.type == SA_R && op->again == SCHED_WHOLE && g->func[F_FORWARD])
        bytes = needed(g->func[F_FORWARD]);
    for (int k = 0; op->a.type == SA_R && op->again > 0 && k < AGAIN_MOST; k++)
        if (op->again >> k & 1 && g->func[F_AGAIN + k])
            bytes = most(bytes, needed(g->func[F_AGAIN + k]));
    return bytes;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void tell(Peaks *x, const Schedule *s, int rank, const char *variant)
{
    int64_t row0[MICROBATCHES + 1];
    int *wanted = arena_array(x->a, int, x->program->plan.n_output + 1);
    for (int i = 0; i <= MICROBATCHES; i++)
        row0[i] = x->program->plan.rows * i;
    for (int i = 0; i < x->program->plan.n_output; i++)
        wanted[i] = -1;
    PlanRequest ask = {.model = &x->program->plan,
                       .schedule = s,
                       .rank = rank,
                       .microbatches = MICROBATCHES,
                       .replicas = 1,
                       .bucket = 4 << 20,
                       .row0 = row0,
                       .train = 1,
                       .on_device = x->program->plan.device != PP_CPU,
                       .output.wanted = wanted,
                       .output.rows = row0[MICROBATCHES],
                       .tags = INT64_MAX};
    Plan p = {0};
    if (plan_build(&p, &ask) != PP_OK) {
        printf("%s rank %d %s: %s\n", x->name, rank, variant, pp_failure_text());
        x->wrong = 1;
    } else {
        int64_t least = 0, rest = p.bytes.total - p.bytes.block;
        for (int k = 0; k < p.n_op; k++)
            least = most(least, p.live[k] - rest - plan_work_bytes(&p, &p.op[k]) +
                                    alive(x, &p.op[k]));
        printf("%s rank %d %s: planned %lld of %lld\n", x->name, rank, variant,
               (long long)p.bytes.block, (long long)least);
    }
    plan_free(&p);
}

static Schedule *rows_of(Peaks *x, const char *variant, const Crossing *cross, SchedError *e)
{
    Schedule *s = NULL;
    int n = x->program->plan.n_stage, m = MICROBATCHES;
    int32_t *parts = arena_array(x->a, int32_t, n * m + 1);
    SchedNeeds needs = {.edge = cross->edge,
                        .n_edge = cross->n_edge,
                        .param = cross->param,
                        .n_param = cross->n_param,
                        .buffers = 1 << 20};
    if (sched_generate("1f1b", n, n, m, SCHED_PLACE_DEFAULT, &s, e) ||
        sched_recompute_parse(variant, n, m, parts, e))
        return NULL;
    sched_drop_idle(s);
    for (int i = 0; i < n * m; i++) {
        const PpStage *st = x->program->plan.stage[i / m];
        if (!st->has_backward)
            parts[i] = 0;
        else if (parts[i] > 0)
            parts[i] &= (1 << st->n_again) - 1;
    }
    return sched_recompute(s, parts, e) || sched_lower_for(s, &needs, e) ? NULL : s;
}

static void peaks(void *of)
{
    static const char *const variant[] = {"never", "always", "cheap"};
    Peaks *x = of;
    Options *o = &x->o;
    o->arena = x->a;
    read_command_line(o, x->argc, x->argv);
    Pipe *p = pipe_of(o);
    bool device = o->codegen.cuda;
    x->name = o->model.at[0];
    x->program = program_of(p, device, x->a);
    x->gen = arena_array(x->a, StageGen *, p->stage.n + 1);
    for (uint32_t i = 0; i < p->stage.n; i++) {
        x->gen[i] = cg_stage(x->a, p, i, device);
        if (device)
            cg_scratch(x->gen[i]);
    }
    Crossing cross = crossing_of(&x->program->plan, x->a);
    SchedError *e = arena_new_of(x->a, SchedError);
    for (int v = 0; v < 3; v++) {
        Schedule *s = rows_of(x, variant[v], &cross, e);
        if (!s) {
            printf("%s %s: %s\n", x->name, variant[v], e->text);
            x->wrong = 1;
            continue;
        }
        for (int r = 0; r < s->ranks; r++)
            tell(x, s, r, variant[v]);
        sched_free(s);
    }
}

int main(int argc, char **argv)
{
    Peaks x = {.argc = argc, .argv = argv, .a = arena_new()};
    int code = diag_run(peaks, &x);
    arena_free(x.a);
    return code ? code : x.wrong;
}

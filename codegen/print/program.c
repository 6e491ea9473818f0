/*
 * program.c - one function of a stage as text.  In: its steps and what of them repeats.  Out: the
 * list of kernel and library calls, each with the names of the nodes that it comes from and the
 * pointers that it is the first to use.
 */
#include <inttypes.h>

#include "print.h"
#include "target.h"

/* ---- the function ---------------------------------------------------------------------------- */

static const char *const func_title[] = {
    "the forward in training: keeps what the backward reads",
    "the forward for eval and inference: keeps nothing",
    "the backward: gradients of inputs and of parameters",
    "one half of the backward: gradients of the stage's inputs (I of a schedule)",
    "the other half: gradients of the stage's parameters (W of a schedule)",
};

static const char *title(const StageGen *sg, FuncKind kind)
{
    return kind < F_AGAIN ? func_title[kind]
                          : arena_printf(sg->a,
                                         "part %d of what the forward keeps once more, %" PRId64
                                         " bytes (R of a schedule)",
                                         kind - F_AGAIN, sg->stash.again.at[kind - F_AGAIN].bytes);
}

const char *cg_function_name(const StageGen *sg, FuncKind kind)
{
    return arena_printf(sg->a, "%s%s_%s", sg->name, target_row(sg->target)->table,
                        cg_function_kind(sg->a, kind));
}

static void print_steps(Out *o)
{
    const Func *f = o->f;
    uint32_t next = 0;
    for (uint32_t i = 0; i < f->step.n;) {
        if (next < f->repeat.n && f->repeat.at[next].first == i) {
            i += repeat_steps(&f->repeat.at[next]);
            print_repeat(o, next++);
        } else {
            print_step(o, i++, NONE);
        }
    }
    if (f->sg->print.probe_end)
        text_line(&o->text, "%s", f->sg->print.probe_end);
}

/* The lines of the function. */
static const char *lines(Func *f)
{
    Out o = {.f = f,
             .a = f->a,
             .target = target_row(f->sg->target),
             .lines = lines,
             .text = {.a = f->a, .indent = 1},
             .fresh = {.a = f->a, .indent = 1},
             .named = arena_array(f->a, bool, f->buf.n + 1)};
    Text head = {.a = f->a, .indent = 1};
    print_steps(&o);
    out_declare(&o, &head);
    if (f->counted.n)
        text_noted(&head, 64, arena_printf(f->a, "int64_t counted[%u];", f->counted.n),
                   "of masks, how many places are there");
    if (!o.reads && !head.n)
        text_line(&head, "(void)c;");
    if (o.bytes_scratch > f->bytes.scratch)
        f->bytes.scratch = o.bytes_scratch;
    return arena_printf(f->a, "%s\n%s", text_all(&head), text_all(&o.text));
}

void cg_function_print(Func *f)
{
    Text *t = &f->body;
    const char *body = lines(f);
    *t = (Text){.a = f->a};
    text_add(t, "// %s\n", title(f->sg, f->kind));
    if (f->bytes.scratch)
        text_add(t, "// behind the workspace %" PRId64 " bytes that steps use while they run\n",
                 f->bytes.scratch);
    text_add(t, "void %s(const PpCtx *c)\n{\n%s}\n\n", cg_function_name(f->sg, f->kind), body);
}

/* ---- without it ------------------------------------------------------------------------------ */

static int64_t scratch_of(const Func *f, const Step *s)
{
    const Step *nest = s->then ? s->then : s;
    if (s->kind == STEP_LOOP) {
        cg_scratch(s->loop->body);
        return s->loop->body_room + cg_bytes_work(s->loop->body);
    }
    return nest->kind == STEP_NEST
               ? nest_scratch_cuda(nest->nest, f->g->batch > 1 ? f->g->batch : 1, nest->shared)
               : 0;
}

void cg_scratch(StageGen *sg)
{
    for (int k = 0; k < F_COUNT; k++) {
        Func *f = sg->func[k];
        for (uint32_t i = 0; f && i < f->step.n; i++) {
            const int64_t bytes = f->step.at[i].empty ? 0 : scratch_of(f, &f->step.at[i]);
            if (bytes > f->bytes.scratch)
                f->bytes.scratch = bytes;
        }
    }
}

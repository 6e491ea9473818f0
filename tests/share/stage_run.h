/*
 * stage_run.h - runs generated stages beside the evaluator.  In: a complete Pipe and the numbers of
 * its inputs.  Out: the first value that differs, by its node.
 *
 * Every list of every stage is evaluated (eval.c, the oracle) for a number of rows; every
 * function's C, with a call back between its steps, is compiled to a shared object and run on
 * blocks laid out as PpStage says.  Each step's results are compared where they stand, with what
 * the evaluator has for them.  Blocks are full of NaNs and stand between guards: what is read
 * before it is written, or beyond its block, shows up as a NaN; what is written beyond, in the
 * guards.  CUDA stages run under the shim: blocks go to the device before a call and come back at
 * every step.
 */
#ifndef STAGE_RUN_H
#define STAGE_RUN_H

#include "base/file/hash.h"
#include "stage_compare.h"

/* ---- generating, compiling ------------------------------------------------------------------- */

/* Workspace that is read has been written before. */
static void run_check_order(StageRun *r, const Func *f)
{
    bool *written = arena_array(r->a, bool, f->buf.n + 1);
    /* 1.05 of what is alive at once, and of a few small buffers what aligning them costs */
    if (f->bytes_work * 20 > f->bytes_live * 21 && f->bytes_work > f->bytes_live + cg_align(512))
        run_wrong(r, "stage %u %s: a workspace of %lld bytes for %lld alive at once",
                  f->sg->stage->index, run_func_name(f), (long long)f->bytes_work,
                  (long long)f->bytes_live);
    for (uint32_t o = 0; o < f->order.n; o++) {
        const Nest *n = f->group.at[f->order.at[o]].nest;
        const Node *call = &f->g->node.at[f->group.at[f->order.at[o]].member.at[0].node];
        for (uint32_t i = 0; n && i < n->arg.n; i++) {
            const Buffer *b = &f->buf.at[n->arg.at[i].buf];
            if (!n->arg.at[i].written && b->cls == BUF_WORK && !written[n->arg.at[i].buf]) {
                ValueId v = n->arg.at[i].value;
                NodeId def = f->def.at[v];
                run_wrong(
                    r,
                    "stage %u %s: step %u reads t%u (%s, def %s in group %d) before it is written",
                    f->sg->stage->index, run_func_name(f), o, v, val(f->g, v)->name,
                    def == NONE ? "none" : op_name(f->g->node.at[def].op), (int)f->group_of.at[v]);
                const Group *k = &f->group.at[f->order.at[o]];
                for (uint32_t m = 0; r->verbose && m < k->member.n; m++) {
                    const Node *x = &f->g->node.at[k->member.at[m].node];
                    printf("#     t%u = %s", x->out[0], op_name(x->op));
                    for (uint32_t j = 0; j < x->nin; j++)
                        printf(" t%u(root %u)", x->in[j],
                               x->in[j] == NONE ? NONE
                                                : cg_ref((Func *)(uintptr_t)f, x->in[j])->root);
                    printf("\n");
                }
            }
        }
        for (uint32_t i = 0; n && i < n->arg.n; i++)
            written[n->arg.at[i].buf] |= n->arg.at[i].written;
        for (uint32_t i = 0; !n && f->group.at[f->order.at[o]].kind == G_CALL && i < call->nout;
             i++) {
            const Ref *ref = cg_ref((Func *)(uintptr_t)f, call->out[i]);
            if (ref->buf != NONE)
                written[ref->buf] = true;
        }
    }
}

static uint32_t run_compiled;       /* libraries so far */

static const char *run_out(void) { return getenv("BUILD") ? getenv("BUILD") : "build"; }

static const char *run_file(Arena *a, const char *name)
{
    const char *build = run_out();
    char here[4096];
    if (*build != '/' && getcwd(here, sizeof here))
        return arena_printf(a, "%s/%s/tests/%s", here, build, name);
    return arena_printf(a, "%s/tests/%s", build, name);
}

/* To C, or to CUDA C under the shim's headers. */
static char *run_command(StageRun *r, const char *flags, const char *source, const char *so)
{
    if (r->device)
        return arena_printf(r->a,
                            "g++ -x c++ -std=c++17 %s -ffp-contract=off -Wall -Wextra -Werror "
                            "-Wno-missing-field-initializers -Wno-unknown-pragmas -fPIC -shared"
                            " -Itests/cuda_shim -I. -Iruntime -Iruntime/api -o %s %s -x none %s",
                            flags, so, source, run_file(r->a, "libdevice.so"));
    return arena_printf(r->a,
                        "cc -std=gnu11 %s -ffp-contract=off -fno-math-errno -fno-trapping-math "
                        "-fwrapv -fopenmp-simd"
                        " -fPIC -shared -I. -Iruntime -Iruntime/api -o %s %s %s -lm",
                        flags, so, source, run_file(r->a, "libpp.so"));
}

/* Generates stage i and writes its text.  Returns the file. */
static const char *run_write(StageRun *r, uint32_t i, const char *prefix)
{
    Target target = r->device ? TARGET_CUDA : TARGET_C;
    RunStage *s = &r->stage[i];
    Text t = {.a = r->a};
    s->sg = cg_stage(r->p->graph->arena, r->p, i, r->device != NULL);
    s->sg->probe = "pp_step(0);";
    s->sg->probe_end = "pp_step(1);";
    for (int k = 0; k < F_COUNT; k++)
        if (s->sg->func[k])
            run_check_order(r, s->sg->func[k]);
    cg_stage_print(s->sg, target, &t);
    text_add(&t, r->device ? "extern \"C\" {\n" : "");
    cg_tables_print(s->sg, !r->device, r->device ? s->sg : NULL, &t);
    text_add(&t, r->device ? "}\n" : "");
    const char *c =
        arena_printf(r->a, "%s/%sstage%u.%s", r->dir, prefix, i, r->device ? "cu" : "c");
    FILE *f = fopen(c, "w");
    if (!f)
        BUG("cannot write %s", c);
    fprintf(f, "extern %s void (*pp_hook)(unsigned);\n#define pp_step(i) pp_hook(i)\n%s",
            r->device ? "\"C\"" : "", r->device ? "#define PP_WITH_CUDA 1\n" : "");
    fwrite(t.at, 1, t.n, f);
    fclose(f);
    return c;
}

/* Source files, with spaces between, to one library; NULL: they do not compile. */
static void *run_build(StageRun *r, const char *flags, const char *sources)
{
    /* dlopen knows names, not files */
    const char *so = arena_printf(r->a, "%s/%u.so", r->dir, run_compiled++);
    if (system(run_command(r, flags, sources, so)) != 0)
        return NULL;
    void *h = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    unlink(so);
    return h;
}

/* The table is called PREFIXpp_stageI there. */
static void run_load(StageRun *r, uint32_t i, const char *prefix, void *so)
{
    RunStage *s = &r->stage[i];
    s->so = so;
    s->table = dlsym(so, arena_printf(r->a, "%spp_stage%u%s", prefix, i, r->device ? "_cuda" : ""));
    INSIST(s->table);
}

__attribute__((unused)) static int run_compile(StageRun *r, const char *flags)
{
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        const char *c = run_write(r, i, "");
        void *so = run_build(r, flags, c);
        if (!so) {
            run_wrong(r, "stage %u does not compile", i);
            return -1;
        }
        run_load(r, i, "", so);
    }
    return 0;
}

/* A library of the Makefile that all tests share, made when it is not there. */
static void *run_shared(Arena *a, const char *name)
{
    const char *so = run_file(a, name);
    if (system(arena_printf(a, "env -u MAKEFLAGS -u MAKELEVEL make -s BUILD=%s %s", run_out(),
                            so)) != 0)
        BUG("%s is not made", so);
    void *h = dlopen(so, RTLD_LAZY | RTLD_GLOBAL);
    if (!h)
        BUG("%s", dlerror());
    return h;
}

/* The runtime's products and convolutions, and the callback, once for all stages. */
static void run_library(void (*hook)(unsigned))
{
    Arena *a = arena_new();
    *(void (**)(unsigned))dlsym(run_shared(a, "libpp.so"), "pp_hook") = hook;
    arena_free(a);
}

/* The shim, cuBLAS's stand-in and the runtime's products and convolutions of the device. */
__attribute__((unused)) static void run_device_library(void (*hook)(unsigned), Device *d)
{
    Arena *a = arena_new();
    void *h = run_shared(a, "libdevice.so");
    *(void (**)(unsigned))dlsym(h, "pp_hook") = hook;
    *(void **)&d->alloc = dlsym(h, "device_alloc");
    *(void **)&d->put = dlsym(h, "device_put");
    *(void **)&d->get = dlsym(h, "device_get");
    *(void **)&d->stream = dlsym(h, "device_stream");
    *(void **)&d->blas = dlsym(h, "device_blas");
    *(void **)&d->error = dlsym(h, "device_error");
    *(void **)&d->release = dlsym(h, "device_release");
    arena_free(a);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static Block run_block(StageRun *r, int64_t bytes)
{
    char *p = arena_alloc(r->a, (size_t)bytes + 2 * GUARD + PP_ALIGN);
    p += (PP_ALIGN - (uintptr_t)p % PP_ALIGN) % PP_ALIGN;
    memset(p, 0xff, (size_t)bytes + 2 * GUARD);
    char *device = r->device ? (char *)r->device->alloc(bytes + 2 * GUARD) + GUARD : NULL;
    return (Block){p + GUARD, bytes, device};
}

/* What a stage is given: the block's place on the device, or here. */
static char *run_place(const Block *b) { return b->device ? b->device : b->at; }

static void run_move(const StageRun *r, const Block *b, int n, bool out)
{
    for (int i = 0; i < n; i++)
        if (out)
            r->device->put(b[i].device - GUARD, b[i].at - GUARD, b[i].bytes + 2 * GUARD);
        else
            r->device->get(b[i].at - GUARD, b[i].device - GUARD, b[i].bytes + 2 * GUARD);
}

static void run_move_all(const StageRun *r, const RunStage *s, bool out)
{
    run_move(r, s->block, BLOCKS, out);
    run_move(r, s->in, s->table->n_input, out);
    run_move(r, s->out, s->table->n_output, out);
    run_move(r, s->dy, s->table->n_dy, out);
    run_move(r, s->dx, s->table->n_dx, out);
}

/* One function of a stage: on the device with the blocks moved there and back. */
static void run_function(StageRun *r, RunStage *s, FuncKind kind, void (*fn)(const PpCtx *))
{
    if (r->interpret) {
        r->interpret(r, s, s->sg->func[kind]);
        return;
    }
    if (r->device)
        run_move_all(r, s, true);
    fn(&s->ctx);
    if (!r->device)
        return;
    run_move_all(r, s, false);
    if (r->device->error()[0])
        run_wrong(r, "stage %d: %s", s->table->index, r->device->error());
}

static void run_poison(Block *b) { memset(b->at, 0xff, (size_t)b->bytes); }

static void run_guards(StageRun *r, const RunStage *s, const Block *b, const char *what, uint32_t i)
{
    for (int k = 0; k < GUARD; k++)
        if ((uint8_t)b->at[-1 - k] != 0xff || (uint8_t)b->at[b->bytes + k] != 0xff) {
            run_wrong(r, "stage %d: written beyond %s %u", s->table->index, what, i);
            return;
        }
}

static void run_check_guards(StageRun *r, const RunStage *s)
{
    static const char *const name[BLOCKS] = {"param", "grad",  "const", "stash",
                                             "saved", "work", "half"};
    for (uint32_t i = 0; i < BLOCKS; i++)
        run_guards(r, s, &s->block[i], name[i], 0);
    for (int i = 0; i < s->table->n_input; i++)
        run_guards(r, s, &s->in[i], "in", (uint32_t)i);
    for (int i = 0; i < s->table->n_output; i++)
        run_guards(r, s, &s->out[i], "out", (uint32_t)i);
    for (int i = 0; i < s->table->n_dy; i++)
        run_guards(r, s, &s->dy[i], "dy", (uint32_t)i);
    for (int i = 0; i < s->table->n_dx; i++)
        run_guards(r, s, &s->dx[i], "dx", (uint32_t)i);
}

static void run_put(StageRun *r, Block *b, int64_t offset, ValueId v)
{
    Tensor t = run_operand(r, v);
    memcpy(b->at + offset, t.data, (size_t)shape_elements(&t.shape) * dtype_size(t.dtype));
}

/* The copies that the runtime makes of parameters. */
static void run_put_halves(StageRun *r, RunStage *s)
{
    run_poison(&s->block[BLOCK_HALF]);
    for (int i = 0; i < s->table->n_param && s->table->half_type; i++) {
        const PpParam *q = &s->table->param[i];
        Tensor p = run_operand(r, r->g->param.at[s->sg->stage->param.at[i].param].value),
               copy = {.dtype = (Dtype)s->table->half_type, .shape = p.shape};
        if (q->half_offset < 0)
            continue;
        eval_node(r->a, OP_Cast, 1, &p, &(Attr){.to = copy.dtype}, 1, &copy);
        memcpy(s->block[BLOCK_HALF].at + q->half_offset, copy.data,
               (size_t)shape_elements(&p.shape) * dtype_size(copy.dtype));
    }
}

static void run_put_params(StageRun *r, RunStage *s)
{
    run_put_halves(r, s);
    run_poison(&s->block[BLOCK_PARAM]);
    for (int i = 0; i < s->table->n_param; i++) {
        const Param *p = &r->g->param.at[s->sg->stage->param.at[i].param];
        run_put(r, &s->block[BLOCK_PARAM], s->table->param[i].offset, p->value);
    }
}

static ValueId run_dy_value(const StageRun *r, const PpDy *d)
{
    return r->p->stage.at[d->from].input.at[d->input].grads.at[d->index];
}

/* All blocks of the stash, one behind the other. */
static int64_t run_stash_bytes(const PpStage *t)
{
    int64_t bytes = t->bytes_stash;
    for (int k = 0; k < t->n_again; k++)
        bytes += t->again[k].bytes;
    return bytes;
}

static void run_allocate(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    const int64_t bytes[BLOCKS] = {t->bytes_param, t->bytes_grad,  t->bytes_const,
                                   run_stash_bytes(t), t->bytes_saved, t->bytes_work,
                                   t->bytes_half};
    void **in = arena_array(r->a, void *, t->n_input + 1),
         **out = arena_array(r->a, void *, t->n_output + 1);
    void **dy = arena_array(r->a, void *, t->n_dy + 1),
         **dx = arena_array(r->a, void *, t->n_dx + 1);
    for (int i = 0; i < BLOCKS; i++)
        s->block[i] = run_block(r, bytes[i]);
    s->in = arena_array(r->a, Block, t->n_input + 1);
    s->out = arena_array(r->a, Block, t->n_output + 1);
    s->dy = arena_array(r->a, Block, t->n_dy + 1);
    s->dx = arena_array(r->a, Block, t->n_dx + 1);
    for (int i = 0; i < t->n_input; i++)
        in[i] = run_place((s->in[i] = run_block(r, t->input[i].t.bytes), &s->in[i]));
    for (int i = 0; i < t->n_output; i++)
        out[i] = run_place((s->out[i] = run_block(r, t->output[i].t.bytes), &s->out[i]));
    for (int i = 0; i < t->n_dy; i++)
        dy[i] = run_place((s->dy[i] = run_block(r, t->output[t->dy[i].output].t.bytes), &s->dy[i]));
    for (int i = 0, k = 0; i < t->n_input; i++)
        for (int j = 0; j < t->input[i].grads; j++, k++)
            dx[k] = run_place((s->dx[k] = run_block(r, t->input[i].t.bytes), &s->dx[k]));
    for (int i = 0; i < t->n_const; i++) {
        if (t->constants[i].data) {
            memcpy(s->block[BLOCK_CONST].at + t->constants[i].offset, t->constants[i].data,
                   (size_t)t->constants[i].t.bytes);
            continue;
        }
        uint32_t k = 0;
        for (int found = 0; found <= i; k++)
            found += !s->sg->constants.at[k].inlined;
        const Value *v = val(r->g, s->sg->constants.at[k - 1].value);
        memcpy(s->block[BLOCK_CONST].at + t->constants[i].offset, v->data,
               (size_t)shape_elements(&v->shape) * dtype_size(v->dtype));
    }
    s->state = t->open ? t->open(1) : NULL;
    s->ctx = (PpCtx){.rows = r->rows,
                     .stage = t->index,
                     .param = run_place(&s->block[BLOCK_PARAM]),
                     .grad = run_place(&s->block[BLOCK_GRAD]),
                     .constants = run_place(&s->block[BLOCK_CONST]),
                     .stash = run_place(&s->block[BLOCK_STASH]),
                     .saved = run_place(&s->block[BLOCK_SAVED]),
                     .work = run_place(&s->block[BLOCK_WORK]),
                     .half = run_place(&s->block[BLOCK_HALF]),
                     .in = in,
                     .out = out,
                     .dy = dy,
                     .dx = dx,
                     .seed = SEED,
                     .step = STEP,
                     .row0 = ROW0,
                     .stream = r->device ? r->device->stream() : NULL,
                     .blas = r->device ? r->device->blas() : NULL,
                     .state = s->state};
    int64_t at = t->bytes_stash;
    for (int k = 0; k < t->n_again; at += t->again[k++].bytes)
        s->ctx.again[k] = s->ctx.stash + at;
}

static uint32_t run_steps;          /* of this function so far */
/* Before each step, and at the end. */
static void run_on_step(unsigned end)
{
    if (running && run_steps > 0) {
        if (running->device)
            run_move_all(running, running->cur, false);
        run_check_step(running, run_steps - 1);
    }
    run_steps = end ? 0 : run_steps + 1;
}

/* ---- calling ------------------------------------------------------------------------------------
 */

static void run_call(StageRun *r, RunStage *s, FuncKind kind, void (*fn)(const PpCtx *))
{
    Func *f = s->sg->func[kind];
    run_poison(&s->block[BLOCK_WORK]);
    r->cur = s;
    r->func = f;
    running = f ? r : NULL;
    run_steps = 0;
    if (f)
        run_list(r, &f->node);
    run_function(r, s, kind, fn);
    running = NULL;
    run_check_guards(r, s);
}

static void run_dense(StageRun *r, ValueId v, const char *base, const char *plus, const char *where)
{
    int64_t stride[MAX_RANK];
    Shape s = run_shape(r, v);
    run_strides(&s, stride);
    run_compare(r, v, base, stride, plus, where);
}

static void run_check_outputs(StageRun *r, RunStage *s)
{
    for (int i = 0; i < s->table->n_output; i++)
        run_dense(r, s->sg->stage->output.at[i].value, s->out[i].at, NULL, "output");
}

/* A parameter's uses in the stage, and `later`, the sum of those in stages after it (NULL: none),
   added from the last one on.  grad: the stage's block. */
static char *run_add_uses(StageRun *r, const PpParam *p, const char *grad, const char *later)
{
    int64_t n = p->t.bytes / (int64_t)dtype_size((Dtype)p->t.dtype);
    char *sum = arena_alloc(r->a, (size_t)p->t.bytes + 1);
    for (int use = p->more; use >= 0; use--) {
        const char *own =
            grad + (use ? p->more_offset + (use - 1) * cg_align(p->t.bytes) : p->grad_offset);
        if (use == p->more && !later) {
            memcpy(sum, own, (size_t)p->t.bytes);
            continue;
        }
        const char *from = use == p->more ? later : sum;
        for (int64_t i = 0; i < n; i++)
            if (p->t.dtype == PP_F32)
                ((float *)(void *)sum)[i] =
                    ((const float *)(const void *)own)[i] + ((const float *)(const void *)from)[i];
            else
                ((double *)(void *)sum)[i] = ((const double *)(const void *)own)[i] +
                                             ((const double *)(const void *)from)[i];
    }
    return sum;
}

/* Gradients were `before`; the contributions were added to it. */
static void run_check_grads(StageRun *r, RunStage *s, const char *before)
{
    for (int i = 0; i < s->table->n_param; i++) {
        const ParamUse *u = &s->sg->stage->param.at[i];
        const Param *p = &r->g->param.at[u->param];
        int64_t n = shape_elements(&p->shape), at = s->table->param[i].grad_offset;
        if (at < 0)
            continue;
        ValueId v = p->value;
        Tensor keep = run_operand(r, v), sum = {p->dtype, p->shape, NULL};
        double *x = arena_array(r->a, double, n + 1);
        for (uint32_t j = 0; j < u->grads.n; j++) {
            Tensor t = run_operand(r, u->grads.at[j]);
            r->noise = fmax(r->noise, run_noise(r, u->grads.at[j], 6));
            for (int64_t k = 0; k < n; k++)
                x[k] += run_number(t.dtype, t.data, k);
        }
        Tensor wide = {DT_F64, p->shape, x};
        eval_node(r->a, OP_Cast, 1, &wide, &(Attr){.to = p->dtype}, 1, &sum);
        r->at[v] = sum;
        run_dense(r, v, run_add_uses(r, &s->table->param[i], s->block[BLOCK_GRAD].at, NULL),
                  before + at,
                  arena_printf(r->a, "gradient of parameter %s:", p->name));
        r->at[v] = keep;
        r->noise = 0;
    }
}

static void run_check_dx(StageRun *r, RunStage *s)
{
    int k = 0;
    for (int i = 0; i < s->table->n_input; i++)
        for (int j = 0; j < s->table->input[i].grads; j++, k++)
            run_dense(r, s->sg->stage->input.at[i].grads.at[(uint32_t)j], s->dx[k].at, NULL, "dx");
}

static void run_reset_grad(StageRun *r, RunStage *s, const char *before)
{
    (void)r;
    memcpy(s->block[BLOCK_GRAD].at, before, (size_t)s->block[BLOCK_GRAD].bytes);
    for (int i = 0; i < s->table->n_dx; i++)
        run_poison(&s->dx[i]);
}

static char *run_copy(StageRun *r, const Block *b)
{
    char *p = arena_alloc(r->a, (size_t)b->bytes + 1);
    memcpy(p, b->at, (size_t)b->bytes);
    return p;
}

static void run_same(StageRun *r, RunStage *s, const char *x, const Block *b, const char *what,
                     int i)
{
    if (memcmp(x, b->at, (size_t)b->bytes) != 0)
        run_wrong(r, "stage %d: %s %d differs from the other way", s->table->index, what, i);
}

/* What the runtime may have given away meanwhile. */
static void run_forget(RunStage *s, int after)
{
    for (int i = 0; i < s->table->n_input; i++)
        if (s->table->input[i].stashed < after)
            run_poison(&s->in[i]);
    for (int i = 0; i < s->table->n_output; i++)
        if (s->table->output[i].stashed < after)
            run_poison(&s->out[i]);
}

/* Each part of the stash again, alone, after the others were lost as well: the same bits. */
static void run_again(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    Block *stash = &s->block[BLOCK_STASH];
    char *before = run_copy(r, stash), *after = run_copy(r, stash);
    int64_t at = t->bytes_stash;
    for (int k = 0; k < t->n_again; at += t->again[k++].bytes) {
        memset(stash->at + t->bytes_stash, 0xff, (size_t)(stash->bytes - t->bytes_stash));
        for (int i = 0; i < t->n_input; i++)
            if (!(t->input[i].again >> k & 1) && t->input[i].from >= 0)
                run_poison(&s->in[i]);
        run_call(r, s, (FuncKind)(F_AGAIN + k), t->again[k].make);
        memcpy(after + at, stash->at + at, (size_t)t->again[k].bytes);
        for (int i = 0; i < t->n_input; i++)
            run_put(r, &s->in[i], 0, s->sg->stage->input.at[i].value);
    }
    memcpy(stash->at, after, (size_t)stash->bytes);
    run_same(r, s, before, stash, "parts of the stash, as forward made them and again,", 0);
}

static void run_backward(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    Block *grad = &s->block[BLOCK_GRAD];
    char *before = arena_alloc(r->a, (size_t)grad->bytes + 1),
         **dx = arena_array(r->a, char *, t->n_dx + 1);
    for (int i = 0; i < t->n_param; i++) {
        const PpParam *p = &t->param[i];
        for (int64_t k = 0;
             p->grad_offset >= 0 && k < p->t.bytes / (int64_t)dtype_size((Dtype)p->t.dtype); k++)
            if (p->t.dtype == PP_F32)
                ((float *)(void *)(before + p->grad_offset))[k] = (float)(0.01 * run_uniform(r));
            else
                ((double *)(void *)(before + p->grad_offset))[k] = 0.01 * run_uniform(r);
    }
    for (int i = 0; i < t->n_dy; i++)
        run_put(r, &s->dy[i], 0, run_dy_value(r, &t->dy[i]));
    run_again(r, s);
    run_forget(s, 1);
    run_reset_grad(r, s, before);
    run_call(r, s, F_BACKWARD, t->backward);
    run_check_dx(r, s);
    run_check_grads(r, s, before);
    char *b = run_copy(r, grad);
    for (int i = 0; i < t->n_dx; i++)
        dx[i] = run_copy(r, &s->dx[i]);
    run_reset_grad(r, s, before);
    run_call(r, s, F_INPUT, t->backward_input);
    run_check_dx(r, s);
    for (int i = 0; i < t->n_dx; i++)
        run_same(r, s, dx[i], &s->dx[i], "dx", i);
    run_forget(s, 2);
    for (int i = 0; i < t->n_dx; i++)
        run_poison(&s->dx[i]);
    for (int i = 0; i < t->n_dy; i++)
        if (t->dy[i].stashed != 2)
            run_poison(&s->dy[i]);
    run_call(r, s, F_WEIGHT, t->backward_weight);
    run_check_grads(r, s, before);
    run_same(r, s, b, grad, "gradients", 0);
}

static void run_check_stats(StageRun *r, RunStage *s)
{
    for (int i = 0; i < s->table->n_param; i++)
        for (uint32_t u = 0; u < r->g->update.n; u++)
            if (r->g->update.at[u].param == s->sg->stage->param.at[i].param)
                run_dense(r, r->g->update.at[u].value,
                          s->block[BLOCK_PARAM].at + s->table->param[i].offset, NULL, "statistic");
}

static void run_forget_evaluated(StageRun *r)
{
    for (uint32_t i = 0; i < r->n_at; i++)
        if (val(r->g, i)->kind == V_NODE ||
            val(r->g, i)->kind == V_CONST) /* constants have leading rows too */
            r->at[i] = (Tensor){0};
}

/* Everything but compiling, for r->rows. at[]: inputs and parameters of full rows are set by
 * run_set. */
static void run_rows(StageRun *r)
{
    r->training = false;
    for (uint32_t i = 0; i < r->p->stage.n; i++)
        run_list(r, &r->p->stage.at[i].infer);
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_allocate(r, s);
        run_put_params(r, s);
        for (int k = 0; k < s->table->n_input; k++)
            run_put(r, &s->in[k], 0, s->sg->stage->input.at[k].value);
        if (s->sg->func[F_INFER]) {
            run_call(r, s, F_INFER, s->table->infer);
            run_check_outputs(r, s);
        }
    }
    run_forget_evaluated(r);
    r->training = true;
    for (uint32_t i = 0; i < r->p->stage.n; i++)
        run_list(r, &r->p->stage.at[i].forward);
    for (uint32_t i = r->p->stage.n; i-- > 0;)
        run_list(r, &r->p->stage.at[i].backward);
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_put_params(r, s);
        for (int k = 0; k < s->table->n_input; k++)
            run_put(r, &s->in[k], 0, s->sg->stage->input.at[k].value);
        for (int k = 0; k < s->table->n_output; k++)
            run_poison(&s->out[k]);
        run_call(r, s, F_FORWARD, s->table->forward);
        run_check_outputs(r, s);
        run_check_stats(r, s);
        run_put_params(r, s);
        if (s->table->has_backward)
            run_backward(r, s);
        if (s->table->close)
            s->table->close(s->state);
        s->state = NULL;
    }
    run_forget_evaluated(r);
}

/* ---- all stages in a row, on what they make themselves ------------------------------------------
 */

enum { RUN_MOST = 256 };
typedef struct {
    uint32_t params, outputs;
    uint32_t biases;     /* that the device's library adds to a product */
    uint32_t attentions; /* that are one operation: where a cut divides one, bits are other ones */
    uint64_t param[RUN_MOST], output[RUN_MOST];
} RunBits; /* 0: not known */

static uint64_t run_hash(const char *p, int64_t n)
{
    return hash_bytes(HASH_START, p, (size_t)n) | 1;
}

static void run_chain_forward(StageRun *r, RunBits *bits)
{
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_allocate(r, s);
        run_put_params(r, s);
        memset(s->block[BLOCK_GRAD].at, 0, (size_t)s->block[BLOCK_GRAD].bytes);
        for (int k = 0; k < s->table->n_input; k++) {
            const PpInput *in = &s->table->input[k];
            if (in->from >= 0)
                memcpy(s->in[k].at, r->stage[in->from].out[in->from_output].at,
                       (size_t)in->t.bytes);
            else
                run_put(r, &s->in[k], 0, s->sg->stage->input.at[k].value);
        }
        run_function(r, s, F_FORWARD, s->table->forward);
        for (int k = 0; k < s->table->n_output; k++)
            if (s->table->output[k].model_output >= 0 &&
                s->table->output[k].model_output < RUN_MOST)
                bits->output[s->table->output[k].model_output] =
                    run_hash(s->out[k].at, s->out[k].bytes);
        run_put_params(r, s);
    }
}

/* Forward, then B of every stage from the last to the first.  Parameters of one stage alone count.
 */
static void run_chain(StageRun *r, RunBits *bits)
{
    char *sum[RUN_MOST] = {0};
    *bits = (RunBits){.params = r->g->param.n, .outputs = r->g->output.n};
    running = NULL;
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        const Ids *list = &r->stage[i].sg->stage->forward;
        bits->biases += r->stage[i].sg->chain.n;
        for (uint32_t k = 0; k < list->n; k++)
            bits->attentions += r->g->node.at[list->at[k]].op == OP_FlashAttention;
    }
    run_chain_forward(r, bits);
    for (uint32_t i = r->p->stage.n; i-- > 0;) {
        RunStage *s = &r->stage[i];
        const PpStage *t = s->table;
        for (int k = 0; k < t->n_dy; k++) {
            const RunStage *from = &r->stage[t->dy[k].from];
            int at = t->dy[k].index;
            for (int j = 0; j < t->dy[k].input; j++)
                at += from->table->input[j].grads;
            memcpy(s->dy[k].at, from->dx[at].at, (size_t)s->dy[k].bytes);
        }
        if (t->has_backward)
            run_function(r, s, F_BACKWARD, t->backward);
        for (int k = 0; k < t->n_param; k++) {
            uint32_t p = s->sg->stage->param.at[k].param;
            if (p >= RUN_MOST || t->param[k].grad_offset < 0)
                continue;
            sum[p] = run_add_uses(r, &t->param[k], s->block[BLOCK_GRAD].at, sum[p]);
            bits->param[p] = run_hash(sum[p], t->param[k].t.bytes);
        }
        if (t->close)
            t->close(s->state);
    }
}

/* How many tensors both know; the first that differs is told. */
static uint32_t run_same_bits(StageRun *r, const RunBits *x, const RunBits *y)
{
    uint32_t known = 0;
    if (x->attentions != y->attentions)
        return 0;
    for (uint32_t i = 0; i < x->params && i < RUN_MOST; i++) {
        known += x->param[i] && y->param[i];
        if (x->param[i] && y->param[i] && x->param[i] != y->param[i])
            run_wrong(r, "the gradient of parameter %s has other bits than in one stage",
                      r->g->param.at[i].name);
    }
    for (uint32_t i = 0; i < x->outputs && i < RUN_MOST; i++) {
        known += x->output[i] && y->output[i];
        if (x->output[i] && y->output[i] && x->output[i] != y->output[i])
            run_wrong(r, "output %u has other bits than in one stage", i);
    }
    return known;
}

#endif

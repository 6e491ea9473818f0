/*
 * stage_build.h - from a stage's functions to ones that can be called.  In: a StageRun whose stages
 * are planned.  Out: their C or CUDA C, with a call back between steps, compiled to shared objects
 * (BUILD's tests/), and the libraries of the runtime and the shim that these call; first, that the
 * planned order reads nothing of the workspace before it is written.
 */
#ifndef STAGE_BUILD_H
#define STAGE_BUILD_H

#include "base/file/hash.h"
#include "stage_compare.h"

/* Workspace that is read has been written before. */
static void run_check_order(StageRun *r, const Func *f)
{
    bool *written = arena_array(r->a, bool, f->buf.n + 1);
    /* 1.05 of what is alive at once, and of a few small buffers what aligning them costs */
    if (f->bytes.work * 20 > f->bytes.live * 21 && f->bytes.work > f->bytes.live + align_up(512))
        run_wrong(r, "stage %u %s: a workspace of %lld bytes for %lld alive at once",
                  f->sg->stage->index, run_func_name(f), (long long)f->bytes.work,
                  (long long)f->bytes.live);
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

/* gold links in half of the time. */
#define RUN_LINK "-fPIC -shared $(command -v ld.gold >/dev/null && echo -fuse-ld=gold)"

/* To C, or to CUDA C under the shim's headers, half of whose time they are: compiled once, as of
   the library that is made of them. */
static char *run_command(StageRun *r, const char *flags, const char *source, const char *so)
{
    if (!r->device)
        return arena_printf(r->a,
                            "cc -std=gnu11 %s -ffp-contract=off -fno-math-errno -fno-trapping-math "
                            "-fwrapv -fopenmp-simd " RUN_LINK
                            " -I. -Iruntime -Iruntime/api -o %s %s %s -lm",
                            flags, so, source, run_file(r->a, "libpp.so"));
    const char *header = arena_printf(r->a, "%s/pp_device.h", r->dir),
               *library = run_file(r->a, "libdevice.so");
    const char *compile =
        arena_printf(r->a,
                     "-std=c++17 %s -ffp-contract=off -Wall -Wextra -Werror -fsanitize=alignment "
                     "-fno-sanitize-recover=alignment -Wno-missing-field-initializers "
                     "-Wno-unknown-pragmas -fPIC -DPP_WITH_CUDA=1 -Itests/cuda_shim -I. -Iruntime "
                     "-Iruntime/api",
                     flags);
    return arena_printf(r->a,
                        "{ [ %s.gch -nt %s ] || g++ -x c++-header %s -o %s.gch "
                        "runtime/api/pp_device.h; } && g++ -x c++ %s -include %s " RUN_LINK
                        " -o %s %s -x none %s",
                        header, library, compile, header, compile, header, so, source, library);
}

/* What kernels hand on needs as much room without printing as it did with it. */
static void run_check_scratch(StageGen *sg)
{
    int64_t printed[F_COUNT] = {0};
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k])
            printed[k] = sg->func[k]->bytes.scratch, sg->func[k]->bytes.scratch = 0;
    cg_scratch(sg);
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k] && cg_function_like(sg, (FuncKind)k) == (FuncKind)k)
            INSIST(sg->func[k]->bytes.scratch == printed[k]);
}

/* Generates stage i and writes its text.  Returns the file. */
static const char *run_write(StageRun *r, uint32_t i, const char *prefix)
{
    RunStage *s = &r->stage[i];
    Text t = {.a = r->a};
    s->sg = cg_stage(r->p->graph->arena, r->p, i, r->device ? TARGET_CUDA : TARGET_C);
    s->sg->print.probe = "pp_step(0);";
    s->sg->print.probe_end = "pp_step(1);";
    for (int k = 0; k < F_COUNT; k++)
        if (s->sg->func[k])
            run_check_order(r, s->sg->func[k]);
    cg_stage_print(s->sg, &t);
    if (r->device)
        run_check_scratch(s->sg);
    text_add(&t, r->device ? "extern \"C\" {\n" : "");
    cg_tables_print(s->sg, NULL, &t);
    text_add(&t, r->device ? "}\n" : "");
    const char *c =
        arena_printf(r->a, "%s/%sstage%u.%s", r->dir, prefix, i, r->device ? "cu" : "c");
    FILE *f = fopen(c, "w");
    if (!f)
        BUG("cannot write %s", c);
    fprintf(f, "extern %s void (*pp_hook)(unsigned);\n#define pp_step(i) pp_hook(i)\n",
            r->device ? "\"C\"" : "");
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
__attribute__((unused)) static void run_library(void (*hook)(unsigned))
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

#endif

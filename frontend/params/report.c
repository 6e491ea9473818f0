/*
 * report.c - what is said of a model's parameters: one warning a kind of what an export lost, and
 * the list of all arrays of floats (Graph.files.array), each with why it trains or does not, and
 * the names of tied ones.
 */
#include <string.h>

#include "fx.h"

/* The two remedies of what an export lost. */
static const char *remedies(const Params *p)
{
    return arena_printf(p->m->arena,
                        "export with %s, or give the model's parameters: --params-from "
                        "FILE.safetensors",
                        p->has_signature ? "optimize=False" : "do_constant_folding=False");
}

static const char *join(Arena *a, const char *const *name, uint32_t n)
{
    enum { ENOUGH = 1600 };
    const char *text = "";
    uint32_t shown = 0;
    for (; shown < n && strlen(text) < ENOUGH; shown++)
        text = arena_printf(a, "%s%s%.128s", text, shown ? ", " : "", name[shown]);
    return shown < n ? arena_printf(a, "%s and %u more", text, n - shown) : text;
}

void param_say(const Model *m, const char *hint, const char *what, const Strings *list)
{
    if (list->n && hint)
        diag_hint("%s", hint);
    if (list->n)
        diag_warn(WHERE_FILE(m->path), "%s: %s", what, join(m->arena, list->at, list->n));
}

/* What TorchScript's folding renamed, transposed, cut or computed trains as the file holds it. */
static void report_renamed(const Params *p)
{
    Strings list = {0};
    for (uint32_t i = p->first_param; i < p->g->param.n && p->m->from_pytorch; i++)
        if (p->g->param.at[i].trainable && strstr(p->g->param.at[i].name, "::"))
            vec_push(p->m->arena, &list, p->g->param.at[i].name);
    param_say(
        p->m, remedies(p),
        "parameters that lost their names in folding and may be computed from others train as in "
        "the file",
        &list);
}

static bool is_batchnorm(const Params *p, const char *name)
{
    const char *dot = strrchr(name, '.');
    int module = dot ? (int)(dot - name) + 1 : 0;
    const char *mean = arena_printf(p->m->arena, "%.*srunning_mean", module, name);
    return strmap_get(&p->sig.by_target, mean) != NONE;
}

static void note_norms(void)
{
    diag_note(
        "BatchNormalization in evaluation form trains without its statistics; export in training "
        "mode to keep them");
}

/* Parameters of the exporter's list of which the file has nothing, or no node reads it. */
static bool report_lost(const Params *p)
{
    Strings lost = {0};
    bool norm = false;
    for (uint32_t i = 0; i < p->sig.n; i++)
        if (p->sig.entry[i].kind == SIG_PARAMETER && p->sig_param[i] == NONE) {
            vec_push(p->m->arena, &lost, p->sig.entry[i].target);
            norm |= is_batchnorm(p, p->sig.entry[i].target);
        }
    if (norm)
        note_norms();
    if (lost.n && p->lost.unfit.n)
        diag_note(
            "in the files of --params-from, but no initializer is made from these numbers: %s",
            join(p->m->arena, p->lost.unfit.at, p->lost.unfit.n));
    param_say(p->m, p->is_whole ? NULL : remedies(p),
              p->is_whole
                  ? "parameters will not train, no node uses them"
                  : "parameters will not train, folded away by the export, merged with equal "
                    "ones or not used",
              &lost);
    return norm;
}

static const char train[] = "--train NAME makes them parameters";

static void report_arrays(const Params *p)
{
    const Lost *l = &p->lost;
    param_say(p->m, train, "arrays named or placed like buffers do not train", &l->doubtful);
    param_say(
        p->m,
        "use --freeze NAME for buffers and --train NAME for parameters; dynamo's files say which "
        "is which",
        "arrays that repeat a few numbers or rise step by step, as filters and grids do, train as "
        "parameters",
        &l->repeating);
    report_renamed(p);
    param_say(p->m, remedies(p), "parameters were recovered from what the export folded them into",
              &l->inferred);
    param_say(
        p->m,
        "export in training mode to keep BatchNormalization apart, by dynamo with optimize=False",
        "parameters are multiplied by a BatchNormalization that the export folded, and train that "
        "way",
        &l->scaled);
    if (l->partial.n && !p->opt->listing && !p->is_whole) {
        diag_hint("%s", remedies(p));
        diag_fatal(EXIT_MODEL, WHERE_FILE(p->m->path),
                   "the export folded uses of parameters into numbers, so these would train with a "
                   "part of their gradient: %s",
                   join(p->m->arena, l->partial.at, l->partial.n));
    }
    param_say(p->m, p->is_whole ? NULL : remedies(p),
              "uses of parameters that the export folded get no gradient", &l->partial);
}

static void warn(const Params *p)
{
    bool ours = p->m->from_pytorch;
    if (!p->opt->training)
        return;
    report_arrays(p);
    bool said = report_lost(p);
    param_say(p->m, ours ? remedies(p) : train,
              ours ? "constants that folding made do not train" : "constants do not train",
              &p->lost.constant);
    if (p->lost.frozen_batchnorms == 0 || said)
        return;
    note_norms();
    diag_warn(WHERE_FILE(p->m->path), "%u BatchNormalization node%s in evaluation form",
              p->lost.frozen_batchnorms, p->lost.frozen_batchnorms == 1 ? " is" : "s are");
}

/* ---- the list ---- */

/* "weight of Conv", "added or multiplied along features (Add)" */
static const char *why_it_trains(Arena *a, const SlotRead *r)
{
    uint32_t as = r ? r->as & (~r->as + 1) : 0;
    const char *op = r && r->node ? diag_escape(a, r->node->op_type) : "";
    switch (as) {
    case SLOT_WEIGHT: return arena_printf(a, "weight of %.64s", op);
    case SLOT_BIAS: return arena_printf(a, "bias of %.64s", op);
    case SLOT_SCALE: return arena_printf(a, "scale of %.64s", op);
    case SLOT_OTHER: return arena_printf(a, "operand %u of %.64s", r->input, op);
    case SLOT_FEATURE: return arena_printf(a, "along features, by %.64s", op);
    case SLOT_JOINED: return arena_printf(a, "joined with features, by %.64s", op);
    default: return "named as parameters are";
    }
}

static const char *why_not(const Params *p, const RawTensor *t)
{
    static const char *const why[] = {[RULE_NOT_READ] = "no node reads it",
                                      [RULE_ONE_DIM] = "a weight has two dimensions, or a name",
                                      [RULE_ONE_NUMBER] = "one number without a name",
                                      [RULE_NUMBERS] =
                                          "its numbers are a mask's, a table's or a grid's",
                                      [RULE_LITERAL] = "a number of the program",
                                      [RULE_NO_NAME] = "no slot of a parameter, and no name",
                                      [RULE_OF_DATA] = "a statistic of the data",
                                      [RULE_LOSS] = "it weighs the loss",
                                      [RULE_STATISTIC] = "a running statistic",
                                      [RULE_FREQUENCY] = "the frequencies of a table of positions",
                                      [RULE_NEVER] = "a setting, bound or size"};
    const SlotRead *by;
    Verdict rule = param_rule(p, t, &by);
    if (rule == RULE_NEVER && by->node)
        return arena_printf(p->m->arena, "%s: operand %u of %.64s", why[rule], by->input,
                            diag_escape(p->m->arena, by->node->op_type));
    if (param_is_buffer(p, t->name))
        return "called, or placed, as buffers are";
    return rule == RULE_TRAINS ? "made of parameters" : why[rule];
}

static const char *signature_says(const Params *p, const RawTensor *t)
{
    uint32_t e = strmap_get(&p->sig.by_target, t->name);
    return e == NONE                               ? "no parameter of the exporter's list"
           : p->sig.entry[e].kind == SIG_PARAMETER ? "in no use that is understood"
                                                   : "a buffer of the exporter's list";
}

/* The recipes of the nodes, by the initializers they stand for: only parameters are in them. */
static StrMap made_of_parameters(const Params *p)
{
    StrMap made = {.arena = p->m->arena};
    for (uint32_t i = 0; i < p->m->node.n; i++) {
        const RawNode *n = p->m->node.at[i];
        for (uint32_t j = 0; n->made && j < n->nin; j++) {
            uint32_t q = n->made[j] ? recipe_only_param(n->made[j]) : NONE;
            if (q != NONE && strmap_get(&p->m->init_index, n->in[j]) != NONE)
                *strmap_at(&made, n->in[j]) = q;
        }
    }
    return made;
}

static ArrayNote note_of_param(const Params *p, uint32_t param, const RawTensor *t)
{
    const Param *q = &p->g->param.at[param];
    const SlotRead *by = NULL;
    ArrayNote a = {.name = q->name,
                   .param = param,
                   .dtype = q->dtype,
                   .shape = q->shape,
                   .trains = q->trainable};
    if (t && !p->has_signature)
        param_rule(p, t, &by);
    if (!q->trainable)
        a.why = q->stat ? "a running statistic" : "frozen";
    else if (param_thawed(p, q->name))
        a.why = "--train";
    else if (p->has_signature && t)
        a.why = "a parameter of the exporter's list";
    else
        a.why = t ? why_it_trains(p->m->arena, by) : "made again of what the export folded";
    return a;
}

/* Each array of floats in the order of the file, then parameters that no array is. */
static void list(Params *p)
{
    Graph *g = p->g;
    StrMap made = made_of_parameters(p), seen = {.arena = p->m->arena};
    for (uint32_t i = 0; i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        uint32_t q = strmap_get(&made, t->name);
        bool own = false;
        if (!dtype_is_float(t->dtype))
            continue;
        for (uint32_t k = p->first_param; k < g->param.n && !own; k++)
            if (g->param.at[k].initializer && !strcmp(g->param.at[k].initializer, t->name)) {
                ArrayNote a = note_of_param(p, k, t);
                a.as = strcmp(a.name, t->name) ? t->name : NULL;
                vec_push(g->arena, &g->files.array, a);
                *strmap_at(&seen, g->param.at[k].name) = own = true;
            }
        if (own)
            continue;
        ArrayNote a = {.name = t->name, .param = q, .dtype = t->dtype, .shape = t->shape};
        if (q != NONE) {
            a.as = g->param.at[q].name;
            a.trains = g->param.at[q].trainable;
            a.why = "made of a parameter";
        } else {
            a.why = p->has_signature ? signature_says(p, t) : why_not(p, t);
        }
        vec_push(g->arena, &g->files.array, a);
    }
    for (uint32_t k = p->first_param; k < g->param.n; k++)
        if (strmap_get(&seen, g->param.at[k].name) == NONE)
            vec_push(g->arena, &g->files.array, note_of_param(p, k, NULL));
}

/* Names of the exporter's list that are other names of a parameter. */
static void note_ties(Params *p)
{
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const SigEntry *s = &p->sig.entry[e];
        uint32_t q = s->kind == SIG_PARAMETER ? p->sig_param[e] : NONE;
        if (q != NONE && strcmp(p->g->param.at[q].name, s->target))
            vec_push(p->m->arena, &p->m->tied, ((ParamNote){p->g->param.at[q].name, s->target}));
    }
}

static void note_changed_one(Params *p, const char *name, const char *how)
{
    vec_push(p->m->arena, &p->m->changed, ((ParamNote){name, how}));
}

/* The bias of the product whose weight a BatchNormalization has scaled has its shift in it. */
static void note_shifted(Params *p, const char *weight)
{
    for (uint32_t i = 0; i < p->m->node.n; i++) {
        const RawNode *n = p->m->node.at[i];
        const Recipe *w = n->made && n->nin > 1 ? n->made[1] : NULL;
        uint32_t q = w ? recipe_only_param(w) : NONE;
        if (q == NONE || strcmp(p->g->param.at[q].name, weight))
            continue;
        uint32_t bias = n->nin > 2 && n->made[2] ? recipe_only_param(n->made[2]) : n->bias;
        if (bias != NONE)
            note_changed_one(p, p->g->param.at[bias].name, "the shift of a BatchNormalization");
    }
}

static void note_changed(Params *p)
{
    for (uint32_t i = 0; i < p->lost.scaled.n; i++) {
        note_changed_one(p, p->lost.scaled.at[i], "multiplied by a BatchNormalization");
        note_shifted(p, p->lost.scaled.at[i]);
    }
}

/* Numbers that are not there can be a parameter's only: a constant's are the program. */
static void check_absent(const Params *p)
{
    StrMap made = made_of_parameters(p);
    for (uint32_t i = 0; i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        if (!(t->bytes.absent || t->half_bytes.absent) || strmap_get(&made, t->name) != NONE)
            continue;
        diag_hint("onnx.save_model(..., size_threshold=BYTES) leaves small constants in the model; "
                  "--train '%s' makes it a parameter",
                  t->name);
        diag_fatal(EXIT_IO, (Where){p->m->path, "initializer", NONE, t->name, NULL, -1},
                   "its numbers are in '%s', which is missing, and it is not a parameter",
                   (t->bytes.absent ? &t->bytes : &t->half_bytes)->file);
    }
}

void param_report(Params *p)
{
    check_absent(p);
    warn(p);
    list(p);
    note_ties(p);
    note_changed(p);
}

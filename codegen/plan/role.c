/*
 * role.c - what the scalars of a row are: max, sum, mean, var, std, rstd, where statements say so.
 * A value that one step writes as such is known as such to all that read it, also in other
 * functions of the stage.
 */
#include <string.h>

#include "plan.h"

/* The number of elements that a reduction adds up. */
static bool is_count(const Nest *n, uint32_t i)
{
    const Stmt *s = &n->stmt.at[i];
    Lin all = lin(1);
    for (int d = n->nouter; d < n->nd; d++)
        if (!lin_mul(all, n->ext[d], &all))
            return false;
    if (s->kind == S_LIN)
        return lin_eq(s->base, all);
    return s->kind == S_CONST && all.b == 0 &&
           (dtype_is_float(s->type) ? s->k == (double)all.c : s->ki == all.c);
}

static bool is_mean(const Nest *n, uint32_t i)
{
    const Stmt *s = &n->stmt.at[i];
    return stmt_is(&n->stmt.at[i], OP_Div) && n->stmt.at[s->in[0]].kind == S_REDUCE &&
           n->stmt.at[s->in[0]].op == OP_ReduceSum && is_count(n, s->in[1]);
}

/* The mean of a square. */
static bool is_variance(const Nest *n, uint32_t i)
{
    if (!is_mean(n, i))
        return false;
    const Stmt *sum = &n->stmt.at[n->stmt.at[i].in[0]], *q = &n->stmt.at[sum->in[0]];
    return q->kind == S_OP && q->op == OP_Mul && q->in[0] == q->in[1];
}

static bool is_deviation(const Nest *n, uint32_t i)
{
    if (!stmt_is(&n->stmt.at[i], OP_Sqrt))
        return false;
    uint32_t x = n->stmt.at[i].in[0];
    if (stmt_is(&n->stmt.at[x], OP_Add))
        return is_variance(n, n->stmt.at[x].in[0]) || is_variance(n, n->stmt.at[x].in[1]);
    return is_variance(n, x);
}

const char *role_of(const Nest *n, uint32_t i)
{
    const Stmt *s = &n->stmt.at[i];
    if (s->kind == S_REDUCE)
        return s->op == OP_ReduceSum   ? "sum"
               : s->op == OP_ReduceMax ? "max"
               : s->op == OP_ReduceMin ? "min"
                                       : "prod";
    if (s->kind != S_OP || !s->row)
        return NULL;
    if (is_mean(n, i))
        return is_variance(n, i) ? "var" : "mean";
    if (is_deviation(n, i))
        return "std";
    return stmt_is(&n->stmt.at[i], OP_Reciprocal) && is_deviation(n, s->in[0]) ? "rstd" : NULL;
}

const char **role_names(Arena *a, const Nest *n)
{
    const char **name = arena_array(a, const char *, n->stmt.n + 1),
               **role = arena_array(a, const char *, n->stmt.n + 1);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        uint32_t before = 0;
        role[i] = role_of(n, i);
        for (uint32_t j = 0; role[i] && j < i; j++)
            before += role[j] && strcmp(role[i], role[j]) == 0;
        name[i] = before ? arena_printf(a, "%s%u", role[i], before + 1) : role[i];
    }
    return name;
}

static const char *const known[] = {"maxs",  "sums", "mins", "prods",
                                    "means", "vars", "stds", "rstds"};
enum { KNOWN = sizeof known / sizeof *known };

void role_learn(StageGen *sg, const Nest *n)
{
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        const char *role = s->kind == S_STORE && s->row && !s->acc && n->kind == NEST_ROW
                               ? role_of(n, s->in[0])
                               : NULL;
        for (uint32_t k = 0; role && k < KNOWN; k++)
            if (strncmp(known[k], role, strlen(role)) == 0 && known[k][strlen(role)] == 's' &&
                !known[k][strlen(role) + 1])
                *idmap_at(sg->a, &sg->position.known, n->arg.at[s->arg].value) = k;
    }
}

const char *role_known(const StageGen *sg, ValueId v)
{
    uint32_t k = idmap_get(&sg->position.known, v);
    return k == NONE ? NULL : known[k];
}

const char *role_one(Arena *a, const char *name)
{
    name += *name == TEXT_LATER;
    const size_t n = strcspn(name, "0123456789");
    for (uint32_t k = 0; k < KNOWN; k++)
        if (n == strlen(known[k]) && strncmp(name, known[k], n) == 0)
            return arena_printf(a, "%.*s%s", (int)n - 1, name, name + n);
    return NULL;
}

/*
 * expr.c - statements of a nest as expressions that are C and CUDA C alike: what both printers
 * share.  In: a statement, and the printer's names for its operands and for the indices of the
 * dimensions.  Out: text.
 */
#include <math.h>
#include <string.h>

#include "print.h"

/* ---- names and numbers ----------------------------------------------------------------------- */

const char *print_lin(const Print *p, Lin x) { return lin_text(p->a, p->n->sized, x); }

const char *print_factor(const Print *p, Lin x) { return lin_factor(p->a, p->n->sized, x); }

const char *print_constant(const Print *p, const Stmt *s)
{
    return cg_literal(p->a, p->n->sized, s->type, s->k, s->ki);
}

const char *print_letter(Arena *a, uint32_t i)
{
    static const char letters[] = "abdfghuvz"; /* others are indices and arguments */
    const uint32_t n = sizeof letters - 1;
    return arena_printf(a, i < n ? "%c" : "%c%u", letters[i % n], i / n + 1);
}

/* "x_row" of "x_j" */
const char *print_row_name(Print *p, uint32_t i)
{
    const char *name = print_called(p, i), *end = NULL;
    for (const char *at = name; (at = strstr(at, "_j")); at++)
        end = at[2 + strspn(at + 2, "0123456789")] ? NULL : at;
    return arena_printf(p->a, "%.*s_row%s", (int)(end ? end - name : (long)strlen(name)), name,
                        end ? end + 2 : "");
}

const char *print_called(Print *p, uint32_t i)
{
    const char **name = &p->names.of[i];
    return *name ? *name : (*name = print_letter(p->a, p->names.letters++));
}

/* ---- expressions ----------------------------------------------------------------------------- */

/* Needs an operand no parentheses?  "j", "pp_index(r0, 64)", "x[i * 4]" */
static bool is_atom(const char *x)
{
    int depth = 0;
    for (; *x; x++) {
        depth += (*x == '(' || *x == '[') - (*x == ')' || *x == ']');
        if (*x == ' ' && depth == 0)
            return false;
    }
    return true;
}

const char *print_term(Print *p, Lin c, const char *index)
{
    if (lin_is(c, 1))
        return index;
    return arena_printf(p->a, is_atom(index) ? "%s * %s" : "(%s) * %s", index, print_factor(p, c));
}

/* The i-th index of an address: where sums run over rows, the column's comes behind the row's. */
static int index_order(const Nest *n, int i)
{
    if (n->kind != NEST_COLUMN || i < n->nouter - 1)
        return i;
    return i < n->nd - 1 ? i + 1 : n->nouter - 1;
}

/* base + sum of coef[d] * index d */
const char *print_affine(Print *p, Lin base, const Lin *coef)
{
    const char *s = NULL;
    for (int i = 0; i < p->n->nd; i++) {
        const int d = index_order(p->n, i);
        if (lin_is(coef[d], 0))
            continue;
        const char *x = print_term(p, coef[d], p->dim[d]);
        s = s ? arena_printf(p->a, "%s + %s", s, x) : x;
    }
    if (!s)
        return print_lin(p, base);
    return lin_is(base, 0) ? s : arena_printf(p->a, "%s + %s", s, print_factor(p, base));
}

bool print_sign(Op op, PrintSign *sign)
{
    const char *text = op_map_text(op);
    int end = 0;
    if (!text || sscanf(text, "(a) %2[-+*/=<>&|] (b)%n", sign->text, &end) != 1 || !end ||
        text[end])
        return false;
    const char s = sign->text[0];
    sign->binds = s == '+' || s == '-'   ? BINDS_SUM
                  : s == '*' || s == '/' ? BINDS_PRODUCT
                  : s != '&' && s != '|' ? BINDS_COMPARE
                  : sign->text[1]        ? BINDS_LOGIC
                                         : BINDS_CHOICE;
    return true;
}

/* How tightly the expression of an operation binds. */
static PrintBinds op_binds(const Stmt *s)
{
    PrintSign sign;
    if (s->op == OP_Div && !dtype_is_float(s->type))
        return BINDS_ATOM;
    if (print_sign(s->op, &sign))
        return sign.binds;
    if (s->op == OP_Reciprocal || s->op == OP_Neg || s->op == OP_Not)
        return s->op == OP_Reciprocal ? BINDS_PRODUCT : BINDS_UNARY;
    return strncmp(op_map_text(s->op), "pp_", 3) == 0 ? BINDS_ATOM : BINDS_CHOICE;
}

/* How tightly its operands have to, so as to need no parentheses; additions are not associative. */
static PrintBinds operand_binds(const Stmt *s, uint32_t operand)
{
    switch (op_binds(s)) {
    case BINDS_SUM: return operand == 0 ? BINDS_SUM : BINDS_PRODUCT;
    case BINDS_PRODUCT:
        return operand == 0 && s->op != OP_Reciprocal ? BINDS_PRODUCT : BINDS_UNARY;
    case BINDS_COMPARE: return BINDS_SUM;
    case BINDS_LOGIC: return BINDS_COMPARE;
    default: return s->op == OP_Where ? BINDS_COMPARE : BINDS_ATOM;
    }
}

/* A half is a float while it is computed with. */
static bool is_cast_to_itself(const Print *p, const Stmt *s)
{
    Dtype from = p->n->stmt.at[s->in[0]].type;
    return s->kind == S_OP && s->op == OP_Cast && s->type != DT_BOOL &&
           (dtype_is_half(s->type) || dtype_is_half(from)) && dtype_sum(from) == dtype_sum(s->type);
}

static PrintBinds binds(const Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    if (!p->inlined[i] || p->rounding[i] != PRINT_AS_IT_IS)
        return BINDS_ATOM;
    if (s->kind == S_LOAD)
        return s->nguard ? BINDS_CHOICE : BINDS_ATOM;
    if (s->kind != S_OP)
        return BINDS_UNARY;
    if (is_cast_to_itself(p, s))
        return binds(p, s->in[0]);
    if (s->op == OP_Cast)
        return s->type == DT_BOOL ? BINDS_COMPARE : BINDS_UNARY;
    return op_binds(s);
}

const char *print_operand(Print *p, uint32_t i, PrintBinds least)
{
    if (!p->inlined[i])
        return p->name(p, i);
    const char *x = print_expression(p, i);
    return binds(p, i) < least ? arena_printf(p->a, "(%s)", x) : x;
}

/* The MAP text with operands for a, b, c and the type's suffix on every pp_ function. */
static const char *map_text(Print *p, const Stmt *s)
{
    const char *m = op_map_text(s->op), *out = "";
    /* just after a function's name: its parentheses stay */
    bool call = false;
    Dtype t = p->n->stmt.at[s->in[0]].type;
    if (s->op == OP_Where)
        t = s->type;
    if (s->op == OP_Div && !dtype_is_float(s->type))
        m = "pp_div(a, b)";
    while (*m) {
        size_t k = strspn(m, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        if (k == 0) {
            if (!call && m[0] == '(' && m[1] >= 'a' && m[1] <= 'c' && m[2] == ')') {
                uint32_t operand = (uint32_t)(m[1] - 'a');
                const char *x = print_operand(p, s->in[operand], operand_binds(s, operand));
                bool bare = x[0] != '-' || !*out;
                out = arena_printf(p->a, bare ? "%s%s" : "%s(%s)", out, x);
                m += 3;
                continue;
            }
            out = arena_printf(p->a, "%s%c", out, *m++);
            call = false;
        } else if (k == 1 && m[0] >= 'a' && m[0] <= 'c') {
            out = arena_printf(p->a, "%s%s", out,
                               print_operand(p, s->in[m[0] - 'a'], BINDS_CHOICE));
            m++;
        } else {
            bool function = strncmp(m, "pp_", 3) == 0;
            out = arena_printf(p->a, "%s%.*s%s", out, (int)k, m, function ? type_suffix(t) : "");
            call = function;
            m += k;
        }
    }
    return out;
}

const char *print_address(Print *p, const Stmt *s)
{
    const char *at = print_affine(p, s->base, s->stride);
    for (uint32_t i = 0; i < s->nindex; i++) {
        const bool within = s->index[i].within;
        const char *x = print_operand(p, s->index[i].in, within ? BINDS_ATOM : BINDS_CHOICE);
        if (!within)
            x = arena_printf(p->a, "pp_index(%s, %s)", x, print_lin(p, s->index[i].extent));
        x = print_term(p, s->index[i].stride, x);
        at = strcmp(at, "0") == 0 ? x : arena_printf(p->a, "%s + %s", at, x);
    }
    return at;
}

const char *print_guard(Print *p, const Stmt *s)
{
    const char *guard = NULL;
    for (uint32_t i = 0; i < s->nguard; i++) {
        const NestGuard *g = &s->guard[i];
        const char *x = print_affine(p, lin(0), g->coef);
        const char *hi = print_factor(p, g->hi);
        const char *c = g->lo > 0
                            ? arena_printf(p->a, "%s >= %s && %s < %s", x,
                                           cg_size(p->a, p->n->sized, g->lo), x, hi)
                            : arena_printf(p->a, "%s < %s", x, hi);
        guard = guard ? arena_printf(p->a, "%s && %s", guard, c) : c;
    }
    return guard;
}

const char *print_load(Print *p, const Stmt *s)
{
    const char *load = arena_printf(p->a, "%s[%s]", p->arg[s->arg], print_address(p, s)),
               *guard = print_guard(p, s);
    load = type_read(p->a, s->type, load);
    return guard ? arena_printf(p->a, "%s ? %s : %s", guard, load,
                                print_constant(p, s))
                 : load;
}

static const char *plain_expression(Print *p, const Stmt *s)
{
    switch (s->kind) {
    case S_LIN:
        return arena_printf(p->a, "(%s)(%s)", type_sum(s->type), print_lin(p, s->base));
    case S_INDEX: {
        const char *x = print_affine(p, s->base, s->stride);
        if (s->type == DT_I64)
            return x;
        return arena_printf(p->a, is_atom(x) ? "(%s)%s" : "(%s)(%s)", cg_ctype(s->type), x);
    }
    case S_LOAD: return print_load(p, s);
    case S_OP:
        if (is_cast_to_itself(p, s))
            return print_operand(p, s->in[0], BINDS_CHOICE);
        if (s->op == OP_Cast && s->type == DT_BOOL)
            return arena_printf(p->a, "%s != 0", print_operand(p, s->in[0], BINDS_SUM));
        if (s->op == OP_Cast)
            return arena_printf(p->a, "(%s)%s", type_sum(s->type),
                                print_operand(p, s->in[0], BINDS_UNARY));
        return map_text(p, s);
    default: BUG("no expression for a statement of kind %d", (int)s->kind);
    }
}

const char *print_expression(Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    const char *x = plain_expression(p, s);
    switch (p->rounding[i]) {
    case PRINT_AS_IT_IS: return x;
    case PRINT_ROUNDED: return type_rounded(p->a, s->type, x);
    case PRINT_NEAREST: return type_nearest(p->a, s->type, x);
    }
    BUG("no rounding of kind %d", (int)p->rounding[i]);
}

void print_value(Print *p, uint32_t i)
{
    const Stmt *s = &p->n->stmt.at[i];
    if (s->kind == S_CONST || p->inlined[i])
        return;
    text_line(p->t, "const %s %s = %s;", type_local(s->type), print_called(p, i),
              print_expression(p, i));
}

const char *print_if_asked(Print *p, const Stmt *s)
{
    if (!p->n->arg.at[s->arg].optional)
        return "";
    text_line(p->t, "if (%s)", p->arg[s->arg]);
    return "    ";
}

void print_store(Print *p, const Stmt *s)
{
    const Stmt *x = &p->n->stmt.at[s->in[0]];
    bool sum = x->kind == S_REDUCE && p->n->kind == NEST_COLUMN;
    INSIST(!s->acc || !dtype_is_half(s->type));         /* it would be rounded twice */
    const char *cast = type_narrowing(s->type);
    const char *value = print_operand(p, s->in[0], *cast ? BINDS_UNARY : BINDS_CHOICE);
    const char *place = p->arg[s->arg];
    const char *indent = print_if_asked(p, s);
    text_line(p->t, "%s%s[%s] %s %s%s;", indent, place, print_affine(p, s->base, s->stride),
              s->acc ? "+=" : "=", cast, type_written(p->a, s->type, value, !sum));
}

const char *print_neutral(Print *p, const Stmt *s)
{
    if (s->op == OP_ReduceMax)
        return type_lowest(s->type);
    if (s->op == OP_ReduceMin)
        return type_highest(s->type);
    bool product = s->op == OP_ReduceProd;
    return cg_number(p->a, s->type, product, product);
}

void print_cleared(Print *p, const char *array, int n, const Stmt *s)
{
    const char *zero = print_neutral(p, s);
    if (s->op == OP_ReduceSum) {
        text_line(p->t, "%s %s[%d] = {0};", type_sum(s->type), array, n);
        return;
    }
    text_line(p->t, "%s %s[%d];", type_sum(s->type), array, n);
    text_line(p->t, "for (int k = 0; k < %d; k++)", n);
    text_line(p->t, "    %s[k] = %s;", array, zero);
}

const char *print_fold_name(Op op)
{
    return op == OP_ReduceSum    ? "sum"
           : op == OP_ReduceProd ? "prod"
           : op == OP_ReduceMax  ? "max"
                                 : "min";
}

void print_accumulate(Print *p, const char *into, const Stmt *s, const char *x)
{
    if (s->op == OP_ReduceSum)
        text_line(p->t, "%s += %s;", into, x);
    else if (s->op == OP_ReduceProd)
        text_line(p->t, "%s *= %s;", into, x);
    else
        text_line(p->t, "%s = pp_%s%s(%s, %s);", into, print_fold_name(s->op), type_suffix(s->type),
                  into, x);
}

/* ---- loops ----------------------------------------------------------------------------------- */

void print_open_loop(Print *p, const char *type, const char *index, const char *from,
                     const char *to, int step)
{
    const char *by = step == 1 ? "++" : arena_printf(p->a, " += %d", step);
    text_open(p->t, "for (%s %s = %s; %s < %s; %s%s) {", type, index, from, index, to, index, by);
}

bool print_in_pass(const Print *p, uint32_t i)
{
    return p->in_pass[i] && !(p->n->stmt.at[i].row && p->n->stmt.at[i].kind != S_REDUCE);
}

bool print_depends(const Print *p, int d, bool loads, bool stores)
{
    const Nest *n = p->n;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (s->kind == S_STORE ? !stores : !loads)
            continue;
        if (n->kind == NEST_ROW && d >= n->nouter && !print_in_pass(p, i))
            continue;
        if (!lin_is(s->stride[d], 0))
            return true;
        for (uint32_t j = 0; j < s->nguard; j++)
            if (!lin_is(s->guard[j].coef[d], 0))
                return true;
    }
    return false;
}

void print_row_values(Print *p, int pass)
{
    for (uint32_t i = 0; i < p->n->stmt.n; i++) {
        const Stmt *s = &p->n->stmt.at[i];
        if (s->row && s->pass == pass && s->kind != S_REDUCE && s->kind != S_STORE)
            print_value(p, i);
    }
}

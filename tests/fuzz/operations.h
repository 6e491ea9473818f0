/*
 * operations.h - what a step of a random graph (recipe.h) does: operations over all of ops.def, as
 * exporters write them and as they do not, on shapes with ones, along every axis.
 *
 * In: the graph so far and the step's operands x and y, floats of any shape.  Out: a float. Choices
 * are drawn from the step's own number.  Total: where an operation does not apply, x is the result.
 * Arguments of functions with poles and edges are brought where they are smooth, so that
 * differences say what the gradient is.
 */
#ifndef FUZZ_OPERATIONS_H
#define FUZZ_OPERATIONS_H

#include "elementwise.h"
#include "moves.h"
#include "sums.h"

static const struct {
    const char *name;
    uint32_t weight;
    ValueId (*make)(Fuzz *, ValueId, ValueId);
} operations[] = {
    {"input", 0, do_input},
    {"weight", 2, do_weight},
    {"embedding", 2, do_embedding},
    {"unary", 6, do_unary},
    {"round", 1, do_round},
    {"cast", 1, do_cast},
    {"arithmetic", 10, do_arithmetic},
    {"square", 2, do_square},
    {"where", 4, do_where},
    {"leaky", 3, do_leaky},
    {"ends", 4, do_ends},
    {"masked_softmax", 4, do_masked_softmax},
    {"integers", 2, do_integers},
    {"bits", 1, do_bits},
    {"reshape", 6, do_reshape},
    {"squeeze", 2, do_squeeze},
    {"transpose", 7, do_transpose},
    {"slice", 5, do_slice},
    {"expand", 5, do_expand},
    {"split", 4, do_split},
    {"concat", 4, do_concat},
    {"pad", 3, do_pad},
    {"gather", 3, do_gather},
    {"gather_elements", 2, do_gather_elements},
    {"gather_nd", 2, do_gather_nd},
    {"scatter_elements", 2, do_scatter_elements},
    {"scatter_nd", 2, do_scatter_nd},
    {"reduce", 5, do_reduce},
    {"minus_reduced", 6, do_minus_reduced},
    {"norm", 4, do_norm},
    {"softmax", 6, do_softmax},
    {"log_sum_exp", 2, do_log_sum_exp},
    {"argmax", 2, do_argmax},
    {"picked", 2, do_picked},
    {"cumsum", 2, do_cumsum},
    {"topk", 2, do_topk},
    {"suppress", 1, do_suppress},
    {"linear", 5, do_linear},
    {"matmul", 5, do_matmul},
    {"packed", 2, do_packed},
    {"attention", 3, do_attention},
    {"conv", 3, do_conv},
    {"conv_transpose", 2, do_conv_transpose},
    {"pool", 2, do_pool},
    {"dropout", 1, do_dropout},
    {"random", 1, do_random},
    {"phase", 1, do_phase},
};

uint32_t operation_count(void) { return sizeof operations / sizeof *operations; }
uint32_t operation_weight(uint32_t i) { return operations[i].weight; }
const char *operation_name(uint32_t i) { return operations[i].name; }

#endif

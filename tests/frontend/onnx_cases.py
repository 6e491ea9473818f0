#!/usr/bin/env python3
"""Writes the node cases of the onnx package that is installed (1.23: 1,884) as folders, as tests/tools/onnx_backend reads
them, and beside them DIR/operators: a line for each case, "CASE OPERATOR", and "- OPERATOR" for each of the specification.

    tests/frontend/onnx_cases.py DIR && make operators CASES=DIR
"""
import os
import re
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def proto(value, name, kind):
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
        if value is None:
            return onnx.OptionalProto(name=name, elem_type=onnx.OptionalProto.UNDEFINED)
    if kind.HasField("sequence_type"):
        return numpy_helper.from_list(value, name)
    if isinstance(value, onnx.TensorProto):
        value.name = name
        return value
    return numpy_helper.from_array(np.asarray(value), name)


def full_name(domain, name):
    return f"{domain}.{name}" if domain else name


def main(out):
    warnings.simplefilter("ignore")
    cases = collect_testcases(None)
    operator = {c.name: full_name(c.model.graph.node[-1].domain, c.model.graph.node[-1].op_type) for c in cases}
    lines = []
    for c in cases:
        folder = f"{out}/{c.name}"
        graph = c.model.graph
        os.makedirs(folder)
        with open(f"{folder}/model.onnx", "wb") as f:
            f.write(c.model.SerializeToString())
        for i, data in enumerate(c.data_sets):
            os.makedirs(f"{folder}/test_data_set_{i}")
            for kind, values, infos in zip(("input", "output"), data, (graph.input, graph.output)):
                for k, value in enumerate(values):
                    with open(f"{folder}/test_data_set_{i}/{kind}_{k}.pb", "wb") as f:
                        f.write(proto(value, infos[k].name, infos[k].type).SerializeToString())
        plain = re.sub(r"_expanded(_ver\d+)?$", "", c.name)   # a function's case, its body in place
        lines.append(f"{c.name} {operator.get(plain, operator[c.name])}")
    lines += [f"- {full_name(s.domain, s.name)}" for s in onnx.defs.get_all_schemas()]
    with open(f"{out}/operators", "w") as f:
        f.write("\n".join(lines) + "\n")


main(sys.argv[1])

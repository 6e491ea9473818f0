#!/usr/bin/env python3
"""Runs what `fuzz_nets --onnx DIR` wrote under ONNX Runtime and compares.  usage: onnxruntime_check.py DIR

Needs onnxruntime and numpy, which neither the product nor its tests do.  Graphs with an operator that ONNX Runtime does not have,
or with Dropout, are counted, not failed.  Closing line: N passed, N failed."""
import glob, os, re, sys
import numpy as np
import onnx
import onnxruntime as ort

TYPE = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}

def values(path):
    given, wanted = {}, {}
    for line in open(path):
        what, name, dtype, rank, *rest = line.split()
        shape = [int(d) for d in rest[:int(rank)]]
        t = np.array([float(x) if dtype[0] == "f" else int(x) for x in rest[int(rank):]]).astype(TYPE[dtype]).reshape(shape)
        (given if what == "in" else wanted)[name] = t
    return given, wanted

def run(path, given):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.load(path)
    if any(n.op_type == "Dropout" for n in model.graph.node):
        raise NotImplementedError("NOT_IMPLEMENTED: its random numbers are its own")
    for i in model.graph.initializer:                   # parameters have the values of this run
        if i.name in given:
            i.CopyFrom(onnx.numpy_helper.from_array(given[i.name], i.name))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: given[i.name] for i in session.get_inputs()})))

def main():
    passed = failed = absent = 0
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.values"))):
        base = path[:-len(".values")]
        given, wanted = values(path)
        try:
            made = run(base + ".forward.onnx", given)
            if os.path.getsize(base + ".backward.onnx"):
                made.update(run(base + ".backward.onnx", {**given, **made}))
        except Exception as e:
            text = str(e)
            if re.search(r"NOT_IMPLEMENTED|Could not find an implementation", text):
                absent += 1
            else:
                failed += 1
                print(f"not ok - {base}: {text[:300]}")
            continue
        wrong = None
        most = max((np.abs(w[np.isfinite(w)]).max(initial=0) for w in wanted.values()), default=0)      # what cancels leaves noise
        for name, w in wanted.items():
            if name not in made:
                wrong = wrong or f"{name} is not made"
                continue
            g, w = made[name].astype(np.float64), w.astype(np.float64)
            scale = np.abs(w[np.isfinite(w)]).max(initial=0) + 1e-3 * most + 1e-6
            with np.errstate(invalid="ignore"):
                off = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0, np.abs(g - w)).max(initial=0) / scale if g.shape == w.shape else np.inf
            if not off <= 2e-3:
                wrong = wrong or f"{name} is off by {off:.2g}"
        failed += wrong is not None
        passed += wrong is None
        if wrong:
            print(f"not ok - {base}: {wrong}")
    if absent:
        print(f"# {absent} with an operator that ONNX Runtime does not have, or that is random")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)

main()

"""members_chain.py MODEL.onnx OPTION... -- NAME=FILE.npy... - a chain of members under ONNX Runtime, all in this process (no part of `make check`: it needs Python with onnx and onnxruntime).

Divides the model (PPSPLIT, or build/ppsplit, with these options), runs every stageN.onnx once for each member, the collectives of domain ppsplit between members in numpy, a stage's
outputs as the next one's inputs, and compares the model's first output with ONNX Runtime's of MODEL.onnx itself.  Members are along one axis, a chunk each."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


def safetensors(path):
    data = open(path, "rb").read()
    size, = struct.unpack("<Q", data[:8])
    return {k: np.frombuffer(data[8 + size:][slice(*e["data_offsets"])], TYPES[e["dtype"]]).reshape(e["shape"])
            for k, e in json.loads(data[8:8 + size]).items() if k != "__metadata__"}


def parts(text):
    """By parameter of a program's tables (pipeline.c): axis, groups, whole, step of a member's part; first, step, names of what each member has another one of."""
    found, lists = {}, {k: re.findall(r'"([^"]*)"', v) for k, v in re.findall(r"(\w+)\[\d*\] = \{([^}]*)\}", text)}
    for entry in text.split("{.t = {.name = ")[1:]:
        box = re.search(r"\.axis = (\d+), \.groups = (\d+), \.whole = (\d+), \.first = 0, \.step = (\d+)", entry)
        each = re.search(r"\.each = \{\w+, \d+, (\d+), (\d+), (\w+)\}", entry)
        if box or each:
            found[entry.split('"')[1]] = box and tuple(map(int, box.groups())), each and (int(each[1]), int(each[2]), lists[each[3]])
    return found


def part(read, name, found, member):
    """As runtime/api/pp.h says (PpParam)."""
    box, each = found
    x = read[each[2][each[0] + member * each[1]]][None] if each else read[name]
    axis, groups, whole, step = box or (0, 1, 0, 0)
    if not step:
        return x
    run = whole // groups
    pieces = [np.take(x, range(g * run + member * step, min(g * run + (member + 1) * step, (g + 1) * run)), axis) for g in range(groups)]
    return np.concatenate([np.pad(p, [(0, (step - p.shape[axis]) * (i == axis)) for i in range(x.ndim)]) for p in pieces], axis)


def reading(nodes):
    """What they read, in bodies too, and do not make."""
    made = {o for n in nodes for o in n.output}
    read = {i for n in nodes for i in n.input}
    for body in (a.g for n in nodes for a in n.attribute if a.HasField("g")):
        read |= reading(body.node) - {t.name for t in (*body.input, *body.initializer)}
    return read - made - {""}


def run(nodes, model, known, wanted):
    """Nodes by ONNX Runtime: what they read is in `known`, where what is read of them later goes."""
    made = {o for n in nodes for o in n.output}
    reads = reading(nodes)
    gives = sorted((made & wanted) - {""})
    def typed(name):
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(known[name].dtype), known[name].shape)
    given = [typed(i) for i in sorted(reads)]
    graph = onnx.helper.make_graph(nodes, "part", given, [onnx.ValueInfoProto(name=o) for o in gives])
    part = onnx.helper.make_model(graph, opset_imports=[o for o in model.opset_import if not o.domain], ir_version=model.ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    known.update(zip(gives, ort.InferenceSession(part.SerializeToString(), options).run(gives, {i.name: known[i.name] for i in given})))


def collective(node, xs):
    at = {a.name: a.i for a in node.attribute}
    axis, members = at.get("axis", 0), len(xs)
    assert at["members"] == members, f"{node.op_type} of {at['members']} members"
    if node.op_type in ("AllReduce", "ReduceScatter"):
        while len(xs) > 1:  # a balanced tree
            xs = [a + b for a, b in zip(xs[::2], xs[1::2])]
        return list(xs) * members if node.op_type == "AllReduce" else np.split(xs[0], members, axis)
    if node.op_type == "Shard":
        return [np.split(x, members, axis)[m] for m, x in enumerate(xs)]
    whole = np.concatenate(xs, axis)
    return [whole] * members if node.op_type == "AllGather" else np.split(whole, members, at["to_axis"])


def stage(path, known):
    """known: by member what it has; its outputs are added."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    graph, waiting, calls = model.graph, [], 0
    for t in graph.initializer:
        for k in known:
            k[t.name] = onnx.numpy_helper.to_array(t)
    later = {o.name for o in graph.output} | {i for n in graph.node if n.domain for i in n.input}
    def flush(end):
        need = later.union(*(reading([n]) for n in graph.node[end:]))
        for k in known if waiting else []:
            run(waiting, model, k, need)
        waiting.clear()
    for i, n in enumerate(graph.node):
        if n.domain != "ppsplit":
            waiting.append(n)
            continue
        flush(i)
        for k, y in zip(known, collective(n, [k[n.input[0]] for k in known])):
            k[n.output[0]] = y
        calls += 1
    flush(len(graph.node))
    return calls


def main():
    cut = sys.argv.index("--")
    model, options, data = sys.argv[1], sys.argv[2:cut], dict(a.split("=", 1) for a in sys.argv[cut + 1:])
    members = int(next(options[i + 1] for i, o in enumerate(options) if o in ("--tensor", "--sequence", "--expert")))
    whole = onnx.load(model)
    rows = whole.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    inputs = {k: np.load(f)[:rows or None] for k, f in data.items()}
    want = ort.InferenceSession(model).run(None, {i.name: inputs[i.name] for i in whole.graph.input if i.name in inputs})[0]
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([os.environ.get("PPSPLIT", "build/ppsplit"), "-q", model, *options, "-o", out], check=True)
        boxes = parts(open(os.path.join(out, "pipeline.c")).read())
        stages = sorted((f for f in os.listdir(out) if re.fullmatch(r"stage\d+\.onnx", f)), key=lambda f: int(f[5:-5]))
        known, calls = [{"loss_scale": np.array(1, np.float32), **inputs} for _ in range(members)], 0
        for s in stages:
            read = safetensors(os.path.join(out, "params", s.replace(".onnx", ".safetensors")))
            for m, k in enumerate(known):
                k.update({name: part(read, name, boxes.get(name, (None, None)), m) for name in read})
            calls += stage(os.path.join(out, s), known)
        got = [k[whole.graph.output[0].name] for k in known]
    alike = all(np.array_equal(g, got[0]) for g in got)
    error = float(np.abs(got[0] - want).max() / np.abs(want).max())
    print(f"{len(stages)} stages of {members} members, {calls} collectives: {whole.graph.output[0].name} {list(want.shape)}, relative error {error:.1e}, members {'alike' if alike else 'DIFFER'}")
    sys.exit(not (alike and error < 1e-5))


if __name__ == "__main__":
    main()

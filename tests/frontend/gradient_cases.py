#!/usr/bin/env python3
"""Writes cases of Gradient (ai.onnx.preview.training) as folders for tests/tools/onnx_backend, with PyTorch's float64 numbers; they stand in
onnx_new.tar.gz: of a layer, of an intermediate tensor at another value, of a gradient.

usage: gradient_cases.py DIR
"""
import os, sys
import onnx, torch
from onnx import helper as h, numpy_helper

TRAINING = "ai.onnx.preview.training"

def case(name, nodes, inputs, outputs):
    d = os.path.join(sys.argv[1], "test_gradient_" + name); os.makedirs(d + "/test_data_set_0", exist_ok=True)
    info = lambda n, t: h.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, list(t.shape))
    g = h.make_graph(nodes, name, [info(*i) for i in inputs.items()], [info(*o) for o in outputs.items()])
    onnx.save(h.make_model(g, ir_version=8, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(TRAINING, 1)]), d + "/model.onnx")
    for kind, all in (("input", inputs), ("output", outputs)):
        for i, (n, t) in enumerate(all.items()):
            open(f"{d}/test_data_set_0/{kind}_{i}.pb", "wb").write(numpy_helper.from_array(t.detach().numpy(), n).SerializeToString())

def gradient(xs, y, operands, results, zs=()):
    return h.make_node("Gradient", operands, results, domain=TRAINING, xs=list(xs), y=y, **({"zs": list(zs)} if zs else {}))

def wave(*shape, phase): return torch.sin(.7 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + phase).reshape(shape).requires_grad_()

x, w, z = wave(2, 3, phase=.1), wave(3, 4, phase=.5), wave(2, 4, phase=.9)
layer = [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Tanh", ["a"], ["hidden"]), h.make_node("Mul", ["hidden", "z"], ["y"])]
hidden = torch.tanh(x @ w); y = hidden * z
dx, dw = torch.autograd.grad(y.sum(), (x, w), create_graph=True)
case("of_layer", layer + [gradient("xw", "y", ["x", "w", "z"], ["dx", "dw"], zs="z")], {"x": x, "w": w, "z": z}, {"y": y, "dx": dx, "dw": dw})

other = wave(2, 4, phase=1.3); at = torch.sigmoid(other) * other * z
dh, dz = torch.autograd.grad(at.sum(), (other, z), create_graph=True)
case("of_intermediate", layer[:2] + [h.make_node("Sigmoid", ["hidden"], ["s"]), h.make_node("Mul", ["s", "hidden"], ["t"]), h.make_node("Mul", ["t", "z"], ["y"]),
                                     gradient(["hidden", "z"], "y", ["other", "z"], ["dh", "dz"])],
     {"x": x, "w": w, "z": z, "other": other}, {"dh": dh, "dz": dz})

d2x, = torch.autograd.grad(dw.sum(), x)
case("of_gradient", layer + [gradient("xw", "y", ["x", "w", "z"], ["", "dw"], zs="z"), gradient("xw", "dw", ["x", "w", "z"], ["d2x"], zs="z")],
     {"x": x, "w": w, "z": z}, {"dw": dw, "d2x": d2x})

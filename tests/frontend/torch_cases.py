#!/usr/bin/env python3
"""Writes cases as folders for tests/tools/onnx_backend, with PyTorch's float64 numbers; they stand in onnx_new.tar.gz.

  gradient_*   Gradient (ai.onnx.preview.training): of a layer, of an intermediate tensor at another value, of a gradient; of operators that goldens.py has not
  sized_*      NonMaxSuppression, Compress and Unique of data, whose results' sizes are not known; with gradients, which no constants have
  picked_*     what TorchScript exports of modules that pick rows by the data and go on with them: torchvision's steps behind a detector, sums over the rows, loops over them
  loop_*       Loop and Scan as often as the data say: counted, down to zero, until a sum is small, over rows that were picked; what trips yield, and lists that they append to
usage: torch_cases.py DIR
"""
import os, sys
import onnx, torch, torchvision
from onnx import helper as h, numpy_helper

TRAINING = "ai.onnx.preview.training"

def case(name, nodes, inputs, outputs):
    d = os.path.join(sys.argv[1], "test_" + name); os.makedirs(d + "/test_data_set_0", exist_ok=True)
    info = lambda n, t: h.make_tensor_value_info(n, onnx.TensorProto.BOOL if t.dtype == torch.bool else onnx.TensorProto.DOUBLE, list(t.shape))
    g = h.make_graph(nodes, name, [info(*i) for i in inputs.items()], [info(*o) for o in outputs.items()])
    onnx.save(h.make_model(g, ir_version=8, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(TRAINING, 1), h.make_opsetid("ai.onnx.preview", 1)]), d + "/model.onnx")
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
case("gradient_of_layer", layer + [gradient("xw", "y", ["x", "w", "z"], ["dx", "dw"], zs="z")], {"x": x, "w": w, "z": z}, {"y": y, "dx": dx, "dw": dw})

other = wave(2, 4, phase=1.3); at = torch.sigmoid(other) * other * z
dh, dz = torch.autograd.grad(at.sum(), (other, z), create_graph=True)
case("gradient_of_intermediate", layer[:2] + [h.make_node("Sigmoid", ["hidden"], ["s"]), h.make_node("Mul", ["s", "hidden"], ["t"]), h.make_node("Mul", ["t", "z"], ["y"]),
                                     gradient(["hidden", "z"], "y", ["other", "z"], ["dh", "dz"])],
     {"x": x, "w": w, "z": z, "other": other}, {"dh": dh, "dz": dz})

d2x, = torch.autograd.grad(dw.sum(), x)
case("gradient_of_gradient", layer + [gradient("xw", "y", ["x", "w", "z"], ["", "dw"], zs="z"), gradient("xw", "dw", ["x", "w", "z"], ["d2x"], zs="z")],
     {"x": x, "w": w, "z": z}, {"dw": dw, "d2x": d2x})

def const(name, *v, shape=None, kind=onnx.TensorProto.INT64): return h.make_node("Constant", [], [name], value=h.make_tensor(name, kind, [len(v)] if shape is None else shape, v))
def put(rows, at, like, width, result):
    """The rows at their places, zeros elsewhere."""
    return [const("column", 1), h.make_node("Unsqueeze", [at, "column"], ["places"]), const("none", *[0.] * (like * width), shape=[like, width], kind=onnx.TensorProto.DOUBLE),
            h.make_node("ScatterND", ["none", "places", rows], [result])]

x, keep = wave(6, 3, phase=.1), torch.tensor([True, False, True, True, False, True])
y = torch.where(keep[:, None], torch.tanh(x), torch.zeros_like(x)); dx, = torch.autograd.grad((y * y).sum(), x)
case("sized_compress", [const("all", *range(6)), h.make_node("Compress", ["all", "keep"], ["at"], axis=0), h.make_node("Compress", ["x", "keep"], ["rows"], axis=0),
                        h.make_node("Tanh", ["rows"], ["t"])] + put("t", "at", 6, 3, "y") + [h.make_node("Mul", ["y", "y"], ["yy"]), gradient(["x"], "yy", ["x", "keep"], ["dx"], zs=["keep"])],
     {"x": x, "keep": keep}, {"y": y, "dx": dx})

kept = torch.sin(x)[keep]; best = kept[:, 0].topk(3); y = torch.cat([kept.mean(0), kept.amax(0), kept[best.indices][:, 1]]); dx, = torch.autograd.grad((y * y).sum(), x)
case("sized_reduced", [h.make_node("Sin", ["x"], ["sin"]), h.make_node("Compress", ["sin", "keep"], ["rows"], axis=0), h.make_node("ReduceMean", ["rows"], ["mean"], axes=[0], keepdims=0),
                       h.make_node("ReduceMax", ["rows"], ["most"], axes=[0], keepdims=0), h.make_node("Shape", ["rows"], ["shape"]), const("first", 0), const("second", 1, shape=[]), const("zero", 0, shape=[]), const("three", 3),
                       h.make_node("Gather", ["shape", "first"], ["n"], axis=0), h.make_node("Min", ["n", "three"], ["k"]), h.make_node("Gather", ["rows", "zero"], ["keys"], axis=1), h.make_node("TopK", ["keys", "k"], ["", "best"]),
                       h.make_node("Gather", ["rows", "best"], ["few"], axis=0), h.make_node("Gather", ["few", "second"], ["some"], axis=1), h.make_node("ReduceSumSquare", ["some"], ["ss"], keepdims=0),
                       h.make_node("Concat", ["mean", "most"], ["y"], axis=0), h.make_node("ReduceSumSquare", ["y"], ["yy"], keepdims=0), h.make_node("Add", ["ss", "yy"], ["all"]), gradient(["x"], "all", ["x", "keep"], ["dx"], zs=["keep"])],
     {"x": x, "keep": keep}, {"y": y[:6], "dx": dx})

B, N = 2, 6
corner = wave(B, N, 2, phase=.3).detach(); boxes = torch.cat([corner, corner + 1.5 + .5 * wave(B, N, 2, phase=1.1).detach()], 2); scores = wave(B, 1, N, phase=.7).detach(); f = wave(B * N, 3, phase=.2)
taken = [b * N + k for b in range(B) for k in [i for i in torchvision.ops.nms(boxes[b], scores[b, 0], .3).tolist() if scores[b, 0, i] > -.5][:4]]
assert 2 < len(taken) < 8
mask = torch.zeros(B * N, dtype=torch.bool); mask[taken] = True
y = torch.where(mask[:, None], torch.sigmoid(f), torch.zeros_like(f)); df, = torch.autograd.grad((y * y).sum(), f)
case("sized_nms", [const("most", 4), const("overlap", .3, kind=onnx.TensorProto.FLOAT), const("least", -.5, kind=onnx.TensorProto.FLOAT),
                   h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["index"])] +
     [n for k, name in ((0, "sample"), (2, "box")) for n in (const(name + "_column", k, shape=[]), h.make_node("Gather", ["index", name + "_column"], [name], axis=1))] +
     [const("n", N, shape=[]), h.make_node("Mul", ["sample", "n"], ["first"]), h.make_node("Add", ["first", "box"], ["at"]), h.make_node("Gather", ["f", "at"], ["rows"], axis=0), h.make_node("Sigmoid", ["rows"], ["t"])] +
     put("t", "at", B * N, 3, "y") + [h.make_node("Mul", ["y", "y"], ["yy"]), gradient(["f"], "yy", ["f", "boxes", "scores"], ["df"], zs=["boxes", "scores"])],
     {"f": f, "boxes": boxes, "scores": scores}, {"y": y, "df": df})

x = torch.tensor([[2., 1, 2], [1, 1, 0], [2, 1, 2], [1, 1, 0], [0, 5, 3]], dtype=torch.float64).requires_grad_()
for kept in (1, 0):                                     # rows that are different, in order or as they come, times how often each is there
    rows, count = torch.unique(x.detach(), dim=0, return_counts=True)
    first = [int((x == r).all(1).nonzero()[0]) for r in rows]; order = range(len(first)) if kept else sorted(range(len(first)), key=lambda k: first[k])
    at = torch.zeros(5, 1, dtype=torch.float64); at[torch.tensor([first[k] for k in order])] = count[torch.tensor(list(order))].double()[:, None]
    y = torch.sigmoid(x) * at; dx, = torch.autograd.grad((y * y).sum(), x)
    turn = torch.unique(x.detach(), dim=0, return_inverse=True)[1]; turn = turn if kept else torch.tensor([[*order].index(int(k)) for k in turn])
    case("sized_unique_" + ("sorted" if kept else "unsorted"),
         [h.make_node("Unique", ["x"], ["rows", "at", "turn", "count"], axis=0, sorted=kept), h.make_node("Cast", ["count"], ["n"], to=onnx.TensorProto.DOUBLE), const("last", 1),
          h.make_node("Unsqueeze", ["n", "last"], ["n1"]), h.make_node("Sigmoid", ["rows"], ["s"]), h.make_node("Mul", ["s", "n1"], ["t"])] + put("t", "at", 5, 3, "y") +
         [h.make_node("Mul", ["y", "y"], ["yy"]), gradient(["x"], "yy", ["x"], ["dx"]), h.make_node("Cast", ["turn"], ["z"], to=onnx.TensorProto.DOUBLE)],
         {"x": x}, {"y": y, "dx": dx, "z": turn.double()})

class Boxes(torch.nn.Module):                           # of each class the best few that score, then batched_nms and the first of what is left
    def forward(self, boxes, scores):
        at, of, kinds = [], [], []
        for k in range(2):
            keep = scores[:, k] > .3; few = boxes[keep]; best, index = scores[keep, k].topk(min(5, few.shape[0]) if not torch.onnx.is_in_onnx_export() else D._utils._topk_min(scores[keep, k], 5, 0))
            at.append(few[index]); of.append(best); kinds.append(torch.full_like(best, k, dtype=torch.int64))
        at, of, kinds = torch.cat(at), torch.cat(of), torch.cat(kinds)
        keep = torchvision.ops.batched_nms(at, of, kinds, .4)[:4]
        return at[keep], of[keep], kinds[keep]

class Levels(torch.nn.Module):                          # boxes that are large enough, pooled from two maps by their size, then a layer and each row's best classes
    def __init__(self): super().__init__(); self.w = torch.nn.Parameter(torch.randn(3, 8, dtype=torch.float64))
    def forward(self, boxes, a, b):
        boxes = boxes[(boxes[:, 2] - boxes[:, 0]) > 2]; boxes = boxes[boxes[:, 3] > boxes[:, 1] + 1]
        large = (boxes[:, 2] - boxes[:, 0]) > 4; regions = torch.cat([torch.full_like(boxes[:, :1], 0), boxes], 1); y = torch.zeros((boxes.shape[0], 2, 2, 2), dtype=torch.float64)
        for level, x in ((~large, a), (large, b)):
            at = torch.where(level)[0]; y[at] = torchvision.ops.roi_align(x, regions[at], (2, 2), .5, 2)
        p = (y.flatten(1) @ self.w.t()).softmax(1); wide = boxes[:, None, :] * p[:, :, None]
        p, wide = p.reshape(-1), wide.reshape(-1, 4); keep = torch.where(p > .3)[0]
        return wide[keep], p[keep]

class Rows(torch.nn.Module):                            # how many, their mean and extremes, what is shared among them, a power of their number
    def forward(self, x):
        rows = x[x[:, 0] > 0]; y = torch.tanh(rows)
        return y.mean(0), y.amax(0), y.sum(), (y * y).amin(), y[:, 1].softmax(0) @ y, rows.shape[0] * x.sum(0), y.argmax(0)

class Alone(torch.nn.Module):                           # what each row makes of itself: a convolution, a recurrence, products, windows, an attention, running sums
    def __init__(self): super().__init__(); self.conv = torch.nn.Conv1d(1, 2, 3, padding=1); self.cells = torch.nn.LSTM(1, 4, batch_first=True)
    def forward(self, x):
        rows = x[x[:, 0] > 0]; y = torch.einsum("nd,ne->nde", self.conv(rows[:, None]).sum(1), self.cells(rows[:, :, None])[0][:, -1])
        y = torch.nn.functional.max_pool1d(y, 2); y = torch.nn.functional.scaled_dot_product_attention(y, y, y).flatten(1).cumsum(1)
        return y, torch.triu(y.view(-1, 4, 2)).sum(0), y.repeat(1, 2).logsumexp(0)

@torch.jit.script
def powers(x: torch.Tensor, rows: torch.Tensor):
    y = x.sum(0)
    for _ in range(rows.shape[0]): y = y * .5 + 1
    if rows.shape[0] == 0: y = y - 7
    else: y = y + rows.sum(0)
    return y
class Trips(torch.nn.Module):
    def forward(self, x): return powers(x, x[x[:, 0] > 0])

def exported(name, m, inputs, names, kind="picked_"):
    m = m.double(); d = os.path.join(sys.argv[1], "test_" + kind + name); os.makedirs(d + "/test_data_set_0", exist_ok=True); out = m(*inputs.values())
    torch.onnx.export(m, tuple(inputs.values()), d + "/model.onnx", input_names=list(inputs), output_names=names, opset_version=17, dynamo=False)
    for kind, all in (("input", inputs), ("output", dict(zip(names, out if isinstance(out, tuple) else (out,))))):
        for i, (n, t) in enumerate(all.items()): open(f"{d}/test_data_set_0/{kind}_{i}.pb", "wb").write(numpy_helper.from_array(t.detach().numpy(), n).SerializeToString())

import torchvision.models.detection as D, torchvision.models.detection._utils
torch.manual_seed(5)
corner = torch.rand(12, 2, dtype=torch.float64) * 6; boxes = torch.cat([corner, corner + 1 + 4 * torch.rand(12, 2, dtype=torch.float64)], 1)
exported("boxes", Boxes(), {"boxes": boxes, "scores": torch.rand(12, 2, dtype=torch.float64)}, ["at", "score", "kind"])
exported("no_boxes", Boxes(), {"boxes": boxes, "scores": torch.rand(12, 2, dtype=torch.float64) * .2}, ["at", "score", "kind"])
corner = torch.rand(10, 2, dtype=torch.float64) * 6; boxes = torch.cat([corner, corner + 6 * torch.rand(10, 2, dtype=torch.float64)], 1)
exported("levels", Levels(), {"boxes": boxes, "a": torch.rand(1, 2, 8, 8, dtype=torch.float64), "b": torch.rand(1, 2, 6, 6, dtype=torch.float64)}, ["at", "p"])
for name, x in (("some", torch.randn(7, 3, dtype=torch.float64)), ("none", -torch.rand(7, 3, dtype=torch.float64))):
    if name == "some": exported("rows", Rows(), {"x": x}, ["mean", "most", "sum", "least", "shared", "times", "at"])
    exported("trips_" + name, Trips(), {"x": x}, ["y"])

# ---- gradients of what goldens.py has not
def with_gradient(name, nodes, xs, others, out, y):
    """y of all inputs; the gradients of the sum of its squares for xs"""
    dx = torch.autograd.grad((y * y).sum(), list(xs.values())); case(name, nodes + [h.make_node("Mul", [out, out], ["out_squared"]), gradient(list(xs), "out_squared", list(xs) + list(others), ["d_" + n for n in xs], zs=list(others))],
         {**xs, **others}, {out: y, **{"d_" + n: d for n, d in zip(xs, dx)}})

S, N, I, H = 4, 2, 3, 5
X, h0, c0 = wave(S, N, I, phase=.1), wave(2, N, H, phase=.7), wave(2, N, H, phase=1.9)
rnn = torch.nn.RNN(I, H, nonlinearity="relu", bidirectional=True).double(); p = dict(rnn.named_parameters())
both = lambda k: torch.stack([p[f"{k}_l0"], p[f"{k}_l0_reverse"]]).detach().requires_grad_()
W, R, b, c = both("weight_ih"), both("weight_hh"), both("bias_ih"), both("bias_hh"); B = torch.cat([b, c], 1).detach().requires_grad_()
def relu_rnn(X, W, R, B, h0):
    ys = []
    for d in range(2):
        hs, o = h0[d], []
        for t in (range(S) if d == 0 else reversed(range(S))): hs = torch.relu(X[t] @ W[d].t() + hs @ R[d].t() + B[d, :H] + B[d, H:]); o.append(hs)
        ys.append(torch.stack(o if d == 0 else o[::-1]))
    return torch.stack(ys, 1)
y = relu_rnn(X, W, R, B, h0); whole = torch.nn.utils.stateless.functional_call(rnn, {**{k: W[i] for i, k in enumerate(("weight_ih_l0", "weight_ih_l0_reverse"))}, **{k: R[i] for i, k in enumerate(("weight_hh_l0", "weight_hh_l0_reverse"))},
     **{f"bias_{a}_l0{r}": B[i, j * H:j * H + H] for i, r in enumerate(("", "_reverse")) for j, a in enumerate(("ih", "hh"))}}, (X, h0))[0]
assert torch.equal(y.transpose(1, 2).reshape(S, N, 2 * H), whole) or (y.transpose(1, 2).reshape(S, N, 2 * H) - whole).abs().max() < 1e-12
with_gradient("gradient_of_rnn_relu", [h.make_node("RNN", ["X", "W", "R", "B", "", "h0"], ["Y"], hidden_size=H, direction="bidirectional", activations=["Relu", "Relu"])], {"X": X, "W": W, "R": R, "B": B, "h0": h0}, {}, "Y", y)

W, R, B, P = wave(1, 4 * H, I, phase=.3), wave(1, 4 * H, H, phase=.5), wave(1, 8 * H, phase=.2), wave(1, 3 * H, phase=1.2)
lens = torch.tensor([4, 2], dtype=torch.int32); hs, cs = h0[:1][0].detach().requires_grad_(), c0[:1][0].detach().requires_grad_(); hh, cc, o = hs, cs, []
for t in range(S):                                      # ONNX: gates i o f c, peepholes i o f; a sample that has ended keeps its state and yields zeros
    z = X[t] @ W[0].t() + hh @ R[0].t() + B[0, :4 * H] + B[0, 4 * H:]; zi, zo, zf, zc = z.split(H, 1); pi, po, pf = P[0].split(H)
    i, f = torch.sigmoid(zi + pi * cc), torch.sigmoid(zf + pf * cc); cn = f * cc + i * torch.tanh(zc); hn = torch.sigmoid(zo + po * cn) * torch.tanh(cn)
    live = (t < lens)[:, None]; hh, cc = torch.where(live, hn, hh), torch.where(live, cn, cc); o.append(torch.where(live, hn, torch.zeros_like(hn)))
h1, c1 = hs[None].detach().requires_grad_(), cs[None].detach().requires_grad_()
y = torch.stack(o)[:, None]; dx = torch.autograd.grad((y * y).sum(), (X, W, R, B, P, hs, cs))
case("gradient_of_lstm_peepholes", [const("lens", *lens.tolist(), kind=onnx.TensorProto.INT32), h.make_node("LSTM", ["X", "W", "R", "B", "lens", "h0", "c0", "P"], ["Y"], hidden_size=H), h.make_node("Mul", ["Y", "Y"], ["YY"]),
     gradient(["X", "W", "R", "B", "P", "h0", "c0"], "YY", ["X", "W", "R", "B", "P", "h0", "c0"], ["dX", "dW", "dR", "dB", "dP", "dh", "dc"])],
     {"X": X, "W": W, "R": R, "B": B, "P": P, "h0": h1, "c0": c1}, {"Y": y, **{n: (d[None] if n in ("dh", "dc") else d) for n, d in zip(("dX", "dW", "dR", "dB", "dP", "dh", "dc"), dx)}})

signal, window = wave(2, 24, 1, phase=.4), wave(8, phase=.9)
y = torch.view_as_real(torch.stft(signal[:, :, 0], 8, hop_length=4, window=window, center=False, return_complex=True)).transpose(1, 2)
with_gradient("gradient_of_stft", [const("step", 4, shape=[]), const("length", 8, shape=[]), h.make_node("STFT", ["signal", "step", "window", "length"], ["Y"], onesided=1)], {"signal": signal, "window": window}, {}, "Y", y)

q, k, v = wave(2, 4, 3, 4, phase=.1), wave(2, 2, 5, 4, phase=.6), wave(2, 2, 5, 4, phase=1.7)
capped = h.make_graph([const("cap", 2., shape=[], kind=onnx.TensorProto.DOUBLE), h.make_node("Div", ["score", "cap"], ["u"]), h.make_node("Tanh", ["u"], ["t"]), h.make_node("Mul", ["t", "cap"], ["modified"])], "score_mod",
                      [h.make_tensor_value_info("score", onnx.TensorProto.DOUBLE, [2, 4, 3, 5])], [h.make_tensor_value_info("modified", onnx.TensorProto.DOUBLE, [2, 4, 3, 5])])
squared = h.make_graph([h.make_node("Mul", ["prob", "prob"], ["modified"])], "prob_mod", [h.make_tensor_value_info("prob", onnx.TensorProto.DOUBLE, [2, 4, 3, 5])], [h.make_tensor_value_info("modified", onnx.TensorProto.DOUBLE, [2, 4, 3, 5])])
from torch.nn.attention.flex_attention import flex_attention
shared = lambda x: x.repeat_interleave(2, 1)
y = torch.softmax(2 * torch.tanh(q @ shared(k).transpose(2, 3) * .4 / 2), 3); y = (y * y) @ shared(v)
plain = flex_attention(q.detach(), k.detach(), v.detach(), score_mod=lambda s, b, n, i, j: 2 * torch.tanh(s / 2), scale=.4, enable_gqa=True)
assert (plain - torch.softmax(2 * torch.tanh(q @ shared(k).transpose(2, 3) * .4 / 2), 3) @ shared(v)).abs().max() < 1e-12
with_gradient("gradient_of_flexattention", [h.make_node("FlexAttention", ["q", "k", "v"], ["Y"], domain="ai.onnx.preview", scale=.4, score_mod=capped, prob_mod=squared)], {"q": q, "k": k, "v": v}, {}, "Y", y)

# ---- loops of which the data decide how often they run
def info(name, kind, shape): return h.make_tensor_value_info(name, kind, shape)
double, boolean, int64 = onnx.TensorProto.DOUBLE, onnx.TensorProto.BOOL, onnx.TensorProto.INT64

w = wave(3, 3, phase=.4)
step = [h.make_node("MatMul", ["h", "w"], ["hw"]), h.make_node("Tanh", ["hw"], ["after"])]
counted = h.make_graph([h.make_node("Identity", ["go"], ["more"])] + step + [h.make_node("ReduceSum", ["after", "rows"], ["yielded"], keepdims=0)], "counted",
                       [info("i", int64, []), info("go", boolean, []), info("h", double, [4, 3])], [info("more", boolean, []), info("after", double, [4, 3]), info("yielded", double, [3])])
for name, keep in (("some", [True, False, True, True, False, False]), ("none", [False] * 6), ("all", [True] * 6)):
    x, keep = wave(4, 3, phase=.1), torch.tensor(keep); hh, ys = x, [torch.zeros(0, 3, dtype=torch.float64)]
    for _ in range(int(keep.sum())): hh = torch.tanh(hh @ w); ys.append(hh.sum(0)[None])
    ys = torch.cat(ys); squares = (hh * hh).sum() + (ys * ys).sum(); dx, dw = torch.autograd.grad(squares, (x, w), allow_unused=True)
    case("loop_counted_" + name, [const("rows", 0), h.make_node("Cast", ["keep"], ["kept"], to=int64), h.make_node("ReduceSum", ["kept"], ["n"], keepdims=0), h.make_node("Loop", ["n", "", "x"], ["y", "ys"], body=counted),
         h.make_node("ReduceSumSquare", ["y"], ["a"], keepdims=0), h.make_node("ReduceSumSquare", ["ys"], ["b"], keepdims=0), h.make_node("Add", ["a", "b"], ["c"]), gradient(["x", "w"], "c", ["x", "w", "keep"], ["dx", "dw"], zs=["keep"])],
         {"x": x, "w": w, "keep": keep}, {"y": hh, "ys": ys, "dx": dx, "dw": torch.zeros_like(w) if dw is None else dw})

for backward in (0, 1):                                 # a Scan over the rows that a mask picks
    x, keep = wave(6, 3, phase=.2), torch.tensor([True, False, True, True, False, True]); rows = x[keep]; hh, ys = torch.zeros(3, dtype=torch.float64), []
    for t in reversed(range(4)) if backward else range(4): hh = torch.tanh(rows[t] + hh @ w); ys.append(hh * rows[t])
    ys = torch.stack(ys); squares = (hh * hh).sum() + (ys * ys).sum(); dx, dw = torch.autograd.grad(squares, (x, w))
    body = h.make_graph([h.make_node("MatMul", ["h", "w"], ["hw"]), h.make_node("Add", ["hw", "row"], ["sum"]), h.make_node("Tanh", ["sum"], ["after"]), h.make_node("Mul", ["after", "row"], ["yielded"])], "body",
                        [info("h", double, [3]), info("row", double, [3])], [info("after", double, [3]), info("yielded", double, [3])])
    case("loop_scan_" + ("backward" if backward else "forward"), [h.make_node("Compress", ["x", "keep"], ["rows"], axis=0), const("start", 0., 0., 0., kind=double), h.make_node("Scan", ["start", "rows"], ["y", "ys"], body=body, num_scan_inputs=1, scan_input_directions=[backward]),
         h.make_node("ReduceSumSquare", ["y"], ["a"], keepdims=0), h.make_node("ReduceSumSquare", ["ys"], ["b"], keepdims=0), h.make_node("Add", ["a", "b"], ["c"]), gradient(["x", "w"], "c", ["x", "w", "keep"], ["dx", "dw"], zs=["keep"])],
         {"x": x, "w": w, "keep": keep}, {"y": hh, "ys": ys, "dx": dx, "dw": dw})

@torch.jit.script
def countdown(x: torch.Tensor, n: torch.Tensor):        # and a loop in it that goes as far as the outer one has
    k, y = n.clamp(0, 4).amax(), x
    while bool(k > 0):
        k = k - 1; j = k.clone()
        while bool(j > 1): y = torch.sin(y) + j; j = j - 2
        y = y * .5 + k
    return y
@torch.jit.script
def listed(x: torch.Tensor, n: torch.Tensor):           # appended in each trip, and in some only
    out, few = [x], [x]
    for i in range(int(n.clamp(0, 4).amax())):
        x = torch.tanh(x) + i; out.append(x)
        if bool(x.sum() < 8): few.append(x * 2)
    return torch.stack(out), torch.cat(few, 1), out[-1] * len(few)
@torch.jit.script
def falling(x: torch.Tensor):                           # no more often than its sigmoid says
    i, y = 0, x
    while i < int(torch.ceil(torch.sigmoid(x.mean()) * 5)): y = y * .5 + i; i += 1
    return y
class Down(torch.nn.Module):
    def forward(self, x, n): return countdown(x, n)
class Listed(torch.nn.Module):
    def forward(self, x, n): return listed(x, n)
class Falling(torch.nn.Module):
    def forward(self, x): return falling(x)
x = wave(2, 3, phase=.8).detach()
for name, n in (("few", [1, 2]), ("none", [0, -3]), ("most", [2, 9])):
    exported("down_" + name, Down(), {"x": x, "n": torch.tensor(n)}, ["y"], "loop_"); exported("listed_" + name, Listed(), {"x": x, "n": torch.tensor(n)}, ["out", "few", "last"], "loop_")
exported("falling", Falling(), {"x": x}, ["y"], "loop_")
exported("alone", Alone(), {"x": wave(7, 4, phase=.4).detach()}, ["y", "upper", "all"])

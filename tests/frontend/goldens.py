#!/usr/bin/env python3
"""Makes goldens.h: values and gradients of operators by PyTorch and torchvision in float64, for test_import_golden.c.

usage: goldens.py > goldens.h
An operand is a wave, offset + high * sin(0.7 k + phase) of its k-th element, or whole numbers that are constants; the gradients are those
of sum(y * sin(0.7 k + 0.9)), of all waves that are no data.  A 0 stands for the gradient of an operand that PyTorch gives none.
"""
import torch, torch.nn.functional as F
from torchvision import ops

def wave(shape, phase, high=1.0, offset=0.0):
    n = torch.Size(shape).numel()
    return (offset + high * torch.sin(0.7 * torch.arange(n, dtype=torch.float64) + phase)).reshape(shape)

rows, numbers = [], []

def row(op, opset, attrs, operands, fn):
    """operands: (shape, phase[, high[, offset]][, "data"]), or a list of whole numbers, or (shape, list), or None; fn takes them as tensors."""
    given, text = [], []
    for o in operands:
        if o is None: given.append(None); text.append("{.kind = NOTHING}"); continue
        whole = o if isinstance(o, list) else o[1] if isinstance(o[1], list) else None
        if whole is not None:
            shape = [len(whole)] if isinstance(o, list) else list(o[0])
            given.append(torch.tensor(whole).reshape(shape))
            text.append("{.kind = WHOLE, .shape = {%d, {%s}}, .at = {%s}}" % (len(shape), ", ".join(map(str, shape)) or "0", ", ".join(map(str, whole))))
        else:
            data = o[-1] == "data"; o = o[:-1] if data else o
            shape, phase, high, offset = o + (1.0, 0.0)[len(o) - 2:]
            given.append(wave(shape, phase, high, offset).requires_grad_(not data))
            text.append("{.kind = %s, .shape = {%d, {%s}}, .phase = %g, .high = %g, .offset = %g}" % ("DATA" if data else "WAVE", len(shape), ", ".join(map(str, shape)), phase, high, offset))
    y = fn(*given)
    (y * wave(y.shape, 0.9)).sum().backward()
    first = len(numbers); numbers.extend(y.flatten().tolist())
    for g in given:
        if g is not None and g.requires_grad: numbers.extend((g.grad if g.grad is not None else torch.zeros_like(g)).flatten().tolist())
    rows.append('    {OP_%s, %d, "%s", %d,\n     {%s},\n     %d},' % (op, opset, attrs, len(operands), ",\n      ".join(text), first))

for mode in ("linear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            row("GridSample", 20, f"mode={mode} padding_mode={padding} align_corners={corners}i", [((1, 2, 2, 3, 3), .1), ((1, 1, 2, 3, 3), .5, 1.3)],
                lambda x, g: F.grid_sample(x, g, mode="bilinear" if mode == "linear" else mode, padding_mode=padding, align_corners=bool(corners)))
for corners in (0, 1):
    row("AffineGrid", 20, f"align_corners={corners}i", [((2, 2, 3), .1), [2, 1, 2, 3]], lambda t, s: F.affine_grid(t, s.tolist(), align_corners=bool(corners)))
    row("AffineGrid", 20, f"align_corners={corners}i", [((1, 3, 4), .2), [1, 1, 2, 2, 3]], lambda t, s: F.affine_grid(t, s.tolist(), align_corners=bool(corners)))

def cumprod(x, axis, exclusive, reverse):
    d = int(axis)
    if reverse: x = x.flip(d)
    if exclusive: x = torch.cat([torch.ones_like(x.narrow(d, 0, 1)), x.narrow(d, 0, x.shape[d] - 1)], d)
    y = x.cumprod(d)
    return y.flip(d) if reverse else y
for e in (0, 1):
    for r in (0, 1): row("CumProd", 26, f"exclusive={e}i reverse={r}i", [((2, 4), .3), ((), [1])], lambda x, a: cumprod(x, a, e, r))
row("Det", 22, "", [((2, 3, 3), .3)], torch.det)
row("Det", 22, "", [((2, 2), .3)], torch.det)
row("Col2Im", 18, "dilations=[1,1] pads=[0,0,0,0] strides=[2,1]", [((1, 8, 6), .2), [4, 4], [2, 2]], lambda x, i, b: F.fold(x, i.tolist(), b.tolist(), stride=(2, 1)))
row("Col2Im", 18, "dilations=[2,1] pads=[1,0,1,0] strides=[1,1]", [((1, 8, 12), .2), [4, 4], [2, 2]], lambda x, i, b: F.fold(x, i.tolist(), b.tolist(), dilation=(2, 1), padding=(1, 0)))
_, where = F.max_pool2d(wave((1, 1, 4, 6), .4), 2, return_indices=True)
for op, more, f in (("AveragePool", " count_include_pad=1i", lambda *a: F.avg_pool2d(*a, True, True)), ("AveragePool", "", lambda *a: F.avg_pool2d(*a, True, False)), ("MaxPool", "", lambda *a: F.max_pool2d(*a, 1, True))):
    row(op, 19, "kernel_shape=[5,3] strides=[5,2] pads=[1,0,1,0] ceil_mode=1i" + more, [((1, 2, 2, 6), .1)], lambda x, f=f: f(x, (5, 3), (5, 2), (1, 0)))      # the only window is larger than the data
row("MaxUnpool", 22, "kernel_shape=[2,2] strides=[2,2]", [((1, 1, 2, 3), .1), ((1, 1, 2, 3), where.flatten().tolist())], lambda x, i: F.max_unpool2d(x, i, 2))
for aligned, mode in ((True, "half_pixel"), (False, "output_half_pixel")):
    row("RoiAlign", 22, f"output_height=2i output_width=3i sampling_ratio=2i spatial_scale=0.5f coordinate_transformation_mode={mode}",
        [((2, 2, 5, 6), .1), ((2, 4), .3, 3.0, 4.0, "data"), [1, 0]],
        lambda x, r, i: ops.roi_align(x, torch.cat([i.double()[:, None], r], 1), (2, 3), .5, 2, aligned))
row("MaxRoiPool", 22, "pooled_shape=[2,2]", [((2, 2, 5, 6), .1), ((2, 5), [1, 0, 0, 4, 4, 0, 2, 1, 3, 3])], lambda x, r: ops.roi_pool(x, r.double(), (2, 2)))
row("DeformConv", 22, "group=2i offset_group=2i", [((1, 4, 4, 5), .1), ((2, 2, 2, 2), .2), ((1, 16, 3, 4), .3, .4), ((2,), .4), ((1, 8, 3, 4), .5, .5, .5)],
    lambda x, w, o, b, m: ops.deform_conv2d(x, o, w, b, mask=m))
row("DeformConv", 22, "strides=[2,1] pads=[1,1,1,1] dilations=[1,2]", [((1, 2, 4, 5), .1), ((2, 2, 2, 2), .2), ((1, 8, 3, 5), .3, .9)],
    lambda x, w, o: ops.deform_conv2d(x, o, w, stride=(2, 1), padding=(1, 1), dilation=(1, 2)))
row("CausalConvWithState", 27, "activation=silu", [((2, 3, 4), .1), ((3, 1, 3), .2), ((3,), .3), ((2, 3, 2), .4)],
    lambda x, w, b, p: F.silu(F.conv1d(torch.cat([p, x], 2), w, b, groups=3)))
row("CausalConvWithState", 27, "", [((1, 2, 5), .1), ((2, 1, 2), .2)], lambda x, w: F.conv1d(F.pad(x, (1, 0)), w, groups=2))
row("SwiGLU", 28, "", [((2, 3), .1, 2.0), ((2, 3), .2)], lambda x, y: F.silu(x) * y)

def recurrent(cls, gates, order, **kw):
    """[direction, gates * H, ..] in ONNX's order of gates as PyTorch's; Y is [steps, directions, batch, H]."""
    def run(x, w, r, b, lens, h, *c):
        H = r.shape[2]; m = cls(x.shape[2], H, bidirectional=True, **kw).double()
        def torch_order(v): return torch.cat([v[g * H:(g + 1) * H] for g in order])
        p = {}
        for d, end in enumerate(("", "_reverse")):
            p["weight_ih_l0" + end] = torch_order(w[d]); p["weight_hh_l0" + end] = torch_order(r[d])
            p["bias_ih_l0" + end] = torch_order(b[d, :gates * H]); p["bias_hh_l0" + end] = torch_order(b[d, gates * H:])
        y, _ = torch.func.functional_call(m, p, (x, (h, c[0]) if c else h))
        return y.reshape(*y.shape[:2], 2, H).transpose(1, 2)
    return run
for op, cls, gates, order, attrs, kw in (("RNN", torch.nn.RNN, 1, (0,), "activations=Relu,Relu", {"nonlinearity": "relu"}), ("RNN", torch.nn.RNN, 1, (0,), "", {}),
                                         ("GRU", torch.nn.GRU, 3, (1, 0, 2), "linear_before_reset=1i", {}), ("LSTM", torch.nn.LSTM, 4, (0, 2, 3, 1), "", {})):
    if "Relu" in attrs: continue                        # a list of strings: nothing here makes one
    row(op, 22, ("direction=bidirectional hidden_size=2i " + attrs).strip(),
        [((3, 2, 2), .1), ((2, 2 * gates, 2), .2), ((2, 2 * gates, 2), .3), ((2, 4 * gates), .4), None, ((2, 2, 2), .6)] + ([((2, 2, 2), .7)] if op == "LSTM" else []),
        recurrent(cls, gates, order, **kw))

def linear_attention(rule, heads):
    """The recurrence as it is: S = decay S + k u', u = v or beta (v - S' k); y = q S / sqrt(dk)."""
    def run(q, k, v, state, decay=None, beta=None):
        n = 2; dk, dv = k.shape[2] // n, v.shape[2] // n; q, k, v = (t[0].reshape(t.shape[1], -1, d) for t, d in ((q, dk), (k, dk), (v, dv))); out = []; S = state[0]
        for t in range(q.shape[0]):
            if decay is not None: S = S * decay[0, t].reshape(n, -1, 1).exp()
            u = v[t]
            if beta is not None: u = beta[0, t].reshape(-1, 1) * (u - (S * k[t][:, :, None]).sum(1))
            S = S + k[t][:, :, None] * u[:, None, :]
            out.append((q[t][:, :, None] * S.repeat_interleave(heads // n, 0)).sum(1).flatten() / dk ** .5)
        return torch.stack(out)[None]
    return run
for rule, heads, decay, beta in (("linear", 4, 0, 0), ("gated", 4, 2, 0), ("delta", 2, 0, 2), ("gated_delta", 2, 6, 2)):
    row("LinearAttention", 27, f"update_rule={rule} q_num_heads={heads}i kv_num_heads=2i chunk_size=4i",
        [((1, 6, heads * 3), .1), ((1, 6, 6), .2, .7), ((1, 6, 4), .3), ((1, 2, 3, 2), .4)] + ([((1, 6, decay), .5, .4, -.5)] if decay else [None] if beta else []) + ([((1, 6, beta), .6, .3, .5)] if beta else []),
        linear_attention(rule, heads))
row("DFT", 20, "", [((1, 6, 1), .1), None, ((), [1])], lambda x, n, a: torch.view_as_real(torch.fft.fft(x[..., 0], dim=1)))
row("DFT", 20, "inverse=1i", [((1, 6, 2), .1), None, ((), [1])], lambda x, n, a: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=1)))

print("/* goldens.h - made by goldens.py: PyTorch's numbers in float64. */\n// clang-format off")
print("static const Golden golden[] = {"); print("\n".join(rows)); print("};")
print("static const double numbers[] = {")
for i in range(0, len(numbers), 5): print("    " + ", ".join("%.15g" % v for v in numbers[i:i + 5]) + ",")
print("};\n// clang-format on")

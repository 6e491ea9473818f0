#!/usr/bin/env python3
"""Prints opsets.golden: what PyTorch has in float64 for the nets of test_opsets.c, the weighted sums of output and gradients.

usage: opsets.py > opsets.golden          opsets.py DIR: the files that test_opsets left there against onnx's checker and ONNX Runtime
"""
import sys, glob, numpy as np, torch, torch.nn.functional as F

def at(shape, step, first, period, scale, start=0):
    n = int(np.prod(shape)); i = np.arange(start, start + n)
    return torch.tensor((((i * step + first) % period - period // 2) / scale).astype(np.float32).astype(np.float64)).reshape(shape)
c = lambda t, k: at(t.shape, 17, 5, 23, 10., k)

def axes(x, w):
    m = x @ w; lse = m.logsumexp(3, True)
    pad = F.pad(m[..., 1:], (0, 1), value=.5)
    return pad * m.amax(1, True) + m.mean(3, True) * m.square().sum((2, 3), True).sqrt() + m[:, :1] * lse + m.sum(2)[:, :, None] + m[:, 1:].sum(1, True)
def softmax(x, w):
    m = x @ w; y = m.softmax(-1) * m.flatten(2).softmax(-1).view_as(m) + .25 * m.log_softmax(-1)
    y = y.clamp(-.75, -.125); return torch.where(y > 0, y, y * .5)
def norm(x, w):
    b = torch.tensor([.5, -.25, 1.]).double(); e = np.float64(np.float32(.01))
    bn = F.batch_norm(x, None, None, w, b, True, eps=e)
    return F.instance_norm(x, weight=w, bias=b, eps=e) * bn + F.local_response_norm(bn, 3, .1, .5, 2.)
def resize(x, w):
    m = x @ w; near = m.repeat_interleave(2, 2).repeat_interleave(2, 3)
    def line(v, d): i = torch.arange(4); a, b = v, v.index_select(d, (i + 1).clamp(max=3)); return torch.stack((a, (a + b) / 2), d + 1).flatten(d, d + 1)
    return near * line(line(m, 2), 3)
def pick(x, w):
    m = x @ w; rows = m[:, :, [3, 0, 0, 1]]; f = m.sum((0, 1)); to = torch.tensor([[2, 0, 1, 3], [3, 1, 0, 2], [0, 1, 2, 3]])
    moved = torch.cat((torch.zeros_like(f[:3]).scatter(1, to, f[:3]), f[3:]))
    return torch.where(m >= rows, m.cumsum(3), rows * moved) + m.topk(2, 3)[0].sum(3, True)
def types(x, w):
    rest = x - x.trunc().detach(); pool = F.max_pool2d(rest, 3, 2, ceil_mode=True); mean = F.avg_pool2d(x, 2)
    flat = torch.maximum(x, rest ** 2).flatten(2).flatten(0, 1); g = (.5 * flat @ w).mean(1, keepdim=True)
    both = ((pool + mean + pool + pool + mean) / 3).view(6, 1, 4).expand(6, 2, 4)
    return torch.cat((both.reshape(6, 8), g, torch.zeros(6, 1)), 1)
def functions(x, w):
    h = x * w; y = F.gelu(h) + F.silu(h) + F.mish(h) + F.hardswish(h) + F.celu(h); e = np.float64(np.float32(.01))
    rms = F.rms_norm(y, (4,), w, e); layer = F.layer_norm(y, (4,), w, None, e)
    return (rms @ layer.transpose(2, 3)).tril() + F.group_norm(y, 3, eps=e)

NETS = [(axes, (4, 4), 7), (softmax, (4, 4), 7), (norm, (3,), 7), (resize, (4, 4), 7), (pick, (4, 4), 9), (types, (16, 5), 7), (functions, (4,), 9)]

def check(d):
    import onnx, onnxruntime as ort
    x = at((2, 3, 4, 4), 37, 11, 101, 25.).numpy().astype(np.float32); seen = {}; bad = 0
    for f in sorted(glob.glob(d + "/*.onnx")):
        try:
            onnx.checker.check_model(f, full_check=True)
            s = ort.SessionOptions(); s.log_severity_level = 4
            y = ort.InferenceSession(f, s, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0].astype(np.float64)
            i = np.arange(y.size); got = float((y.ravel() * (((i * 17 + 5) % 23 - 11) / 10)).sum()); seen.setdefault(f.split("/")[-1].split("-")[0], []).append(got)
        except Exception as e: print(f, str(e).strip().split("\n")[0][:150]); bad += 1
    for k, v in seen.items(): print(k, len(v), min(v), max(v))

if len(sys.argv) > 1: sys.exit(check(sys.argv[1]))
for f, shape, first in NETS:
    x = at((2, 3, 4, 4), 37, 11, 101, 25.).requires_grad_(); w = at(shape, 29, 7, 53, 20.).requires_grad_()
    y = f(x, w); l = (y * c(y, 0)).sum(); l.backward()
    print("    {\"%s\", %s, %d, %d, {%.12g, %.12g, %.12g}}," % (f.__name__, f.__name__, first, y.dim(), l.item(), (x.grad * c(x, 1)).sum().item(), (w.grad * c(w, 2)).sum().item()))

#!/usr/bin/env python3
"""Makes the cases of this folder: small models of which public threads report that other pipelines train them wrong, hang or
refuse them, with PyTorch's float64 numbers (models/export.py says what a case holds).

usage: make.py [-o DIR] [NAME...]

Each case: the threads, what went wrong there, the model.  known.t trains each whole and cut, under several schedules.
"""
import argparse
import importlib.util
import os
import sys

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("export", os.path.join(HERE, "../../models/export.py"))
export = importlib.util.module_from_spec(spec)
spec.loader.exec_module(export)


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class RopeLayer(nn.Module):                              # grouped keys, rotary positions, SwiGLU
    def __init__(self, d, heads, keys):
        super().__init__()
        self.heads, self.keys, self.width = heads, keys, d // heads
        self.norm1, self.norm2 = Norm(d), Norm(d)
        self.q, self.o = nn.Linear(d, d, False), nn.Linear(d, d, False)
        self.k, self.v = nn.Linear(d, keys * self.width, False), nn.Linear(d, keys * self.width, False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d, False), nn.Linear(d, 2 * d, False), nn.Linear(2 * d, d, False)

    def forward(self, x, cos, sin):
        n, t, d = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(n, t, -1, self.width).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (s.repeat_interleave(self.heads // self.keys, 1) for s in (k, v))
        a = q @ k.transpose(-2, -1) * self.width ** -.5 + torch.full((t, t), float("-inf")).triu(1).to(x.dtype)
        x = x + self.o((a.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Rope(nn.Module):
    def __init__(self, vocab=48, d=16, layers=4):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab, False)
        self.layers = nn.ModuleList([RopeLayer(d, 4, 2) for _ in range(layers)])
        self.norm = Norm(d)
        self.register_buffer("inv_freq", 100.0 ** -(torch.arange(0, 2) / 2))

    def forward(self, ids):
        x = self.emb(ids)
        at = torch.arange(ids.shape[1])[:, None].to(x.dtype) * self.inv_freq
        cos, sin = at.cos(), at.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Stack(nn.Module):
    """Blocks with LayerNorm, between a table and a head."""
    def __init__(self, vocab=24, d=12, n=3, tied=False):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab, False)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(n)])
        if tied:
            self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Dropped(Stack):
    """Zeros are drawn between blocks."""
    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = x + F.dropout(block(x), 0.4, self.training)
        return self.head(x)


class Aux(Stack):                                        # each block adds to the loss, which the model computes itself
    def forward(self, ids, target):
        x, more = self.emb(ids), 0
        for block in self.blocks:
            x = x + block(x)
            more = more + x.square().mean()
        y = self.head(x)
        return y, F.cross_entropy(y.flatten(0, 1), target.flatten()) + 0.1 * more


class EmbeddingSkip(Stack):                              # what the table gives is read once more by the last stage
    def forward(self, ids):
        first = x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x + first)


class Relay(nn.Module):                                  # the first layer's result is read by each later one, the second's by the last
    def __init__(self, d=12):
        super().__init__()
        self.first, self.second, self.third, self.last = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        a = torch.tanh(self.first(x))
        b = torch.tanh(self.second(a))
        c = torch.tanh(self.third(b * a))
        return self.last(c + a * b)


class Masked(nn.Module):                                 # a mask of each sample, and a table that all share
    def __init__(self, vocab=24, d=12):
        super().__init__()
        self.emb, self.inner, self.head = nn.Embedding(vocab, d), nn.Linear(d, d), nn.Linear(d, vocab)

    def forward(self, ids, mask, bias):
        x = self.emb(ids)
        a = (x @ x.transpose(1, 2) + bias).masked_fill(mask[:, None, :] == 0, -1e9).softmax(-1)
        x = torch.relu(self.inner(a @ x))
        return self.head(x + (x @ x.transpose(1, 2) + bias).masked_fill(mask[:, None, :] == 0, -1e9).softmax(-1) @ x)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.fc1, self.fc2 = nn.Linear(8 * 16, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv2(torch.relu(self.conv1(x)))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Experts(nn.Module):                                # the two best of four experts, as products with one-hot weights
    def __init__(self, vocab=24, d=12, n=4):
        super().__init__()
        self.emb, self.router, self.head = nn.Embedding(vocab, d), nn.Linear(d, n, False), nn.Linear(d, vocab)
        self.up, self.down = nn.Parameter(torch.randn(n, d, 2 * d) * d ** -.5), nn.Parameter(torch.randn(n, 2 * d, d) * (2 * d) ** -.5)

    def forward(self, ids):
        x = self.emb(ids)
        p = self.router(x).softmax(-1)
        best, which = p.topk(2, -1)
        weight = (F.one_hot(which, p.shape[-1]).to(x.dtype) * (best / best.sum(-1, keepdim=True))[..., None]).sum(-2)
        y = torch.einsum("ntd,edh->neth", x, self.up)
        y = torch.einsum("neth,ehd->netd", torch.relu(y), self.down)
        return self.head(x + (y * weight.transpose(1, 2)[..., None]).sum(1))


def tokens(vocab, t):
    return lambda n: {"ids": torch.randint(0, vocab, (n, t))}


def masked(n):
    mask = torch.ones(n, 6, dtype=torch.int64)
    for i in range(n):
        mask[i, 6 - i % 5:] = 0
    return {"ids": torch.randint(0, 24, (n, 6)), "mask": mask}


CASES = {
    "rope": dict(model=Rope, inputs=tokens(48, 8), splits=["layers.2:begin", "layers.1:begin,layers.2:begin,layers.3:begin"],
                 report="pytorch#184361, pytorch#182644, pytorch#126626, llama.cpp#14424, torchtitan#1750, torchtitan#3412",
                 wrong="sines that every layer reads land in two stages, or in none; grouped keys; a gated unit has no gradient; the loss depends on the number of members that divide a layer"),
    "embedding-skip": dict(model=EmbeddingSkip, inputs=tokens(24, 6), splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"],
                           report="pytorch#110775", wrong="an embedding is skipped to a later stage: a gradient of integers is asked for"),
    "relay": dict(model=Relay, inputs=lambda n: {"x": torch.randn(n, 5, 12)}, loss="mse", splits=["third:begin", "second:begin,third:begin,last:begin"],
                  report="pytorch#127964, PiPPy#1008, onnxruntime#3823, pytorch#65038",
                  wrong="values skip stages: schedules send to neighbours only, or one message per pass"),
    "tied": dict(model=lambda: Stack(tied=True), inputs=tokens(24, 6), splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"],
                 report="PiPPy#32, pytorch#51931, Megatron-LM#656, Megatron-LM#5737",
                 wrong="the embedding is also the head, in the first and last stage: half of its gradient is lost, or the copies drift apart"),
    "masked-tokens": dict(model=Stack, inputs=tokens(24, 6), ignore=True, splits=["blocks.1:begin"],
                          report="torchtitan#2972, DeepSpeed#7773, AReaL#1273, prime-rl#2358, prime-rl#2359, torchtitan#1733, pytorch#144530, DeepSpeed#823",
                          wrong="microbatches with unequal numbers of counted tokens: the loss is a mean of means, a sum, or divided twice; gradients of replicas are not summed under zero-bubble schedules; replicas that divide gradients are refused"),
    "uneven-rows": dict(model=Stack, inputs=tokens(24, 6), rows=8, mb=3, splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"],
                        report="pytorch#126600, DeepSpeed#3195", wrong="eight rows in three microbatches: refused, or rows silently dropped"),
    "shared-inputs": dict(model=Masked, inputs=masked, whole={"bias": lambda: torch.randn(6, 6)}, splits=["inner:begin", "inner:begin,inner:end"],
                          extra="--chunk bias=replicate",
                          report="torchtitan#1723, torchtitan#4098, ColossalAI#3881, NeMo Automodel#1171",
                          wrong="each microbatch uses the mask of the whole batch; a table without samples is cut; the last stage gets wrong inputs"),
    "digits": dict(model=Digits, inputs=lambda n: {"x": torch.randn(n, 1, 12, 12)}, splits=["conv2:begin", "conv2:begin,fc1:begin,fc2:begin"],
                   report="onnxruntime#5918, PiPPy#1137", wrong="a small digit classifier does not train on two processes; one stage is made where two were asked for"),
    "experts": dict(model=Experts, inputs=tokens(24, 6), splits=["router:begin", "router:begin,head:begin"],
                    report="pytorch#160285", wrong="the gradients of experts are exactly doubled"),
    "sum": dict(model=Stack, inputs=tokens(24, 6), splits=["blocks.1:begin"], extra="--loss-reduction sum", sum=True,
                report="alpa#405", wrong="the gradient is right only if the loss is a mean"),
    "aux": dict(model=Aux, inputs=lambda n: {k: torch.randint(0, 24, (n, 6)) for k in ("ids", "target")}, loss="output:loss",
                splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"],
                report="torchtitan#2061", wrong="a loss to which several stages contribute is wrong under every schedule but 1F1B"),
    "dropout": dict(model=Dropped, inputs=tokens(24, 6), exporter="ts", random="yes", splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"],
                    report="pytorch#55036", wrong="the elements that dropout drops depend on the number of stages"),
    "resumed": dict(model=Stack, inputs=tokens(24, 6), splits=["blocks.1:begin"],
                    report="Megatron-DeepSpeed#248, Megatron-DeepSpeed#274, Megatron-DeepSpeed#405, DeepSpeed#3924, DeepSpeed#5405, pytorch#162822",
                    wrong="the loss jumps after resuming, mostly under another cut or on other ranks; an evaluation before the first step breaks the backward"),
}


def make_with_loss(name, spec, out):
    """As export.make does, of a model whose second output is its loss"""
    torch.manual_seed(1)
    model, x, d = spec["model"]().eval(), spec["inputs"](spec["rows"]), os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    torch.onnx.export(model, tuple(v[:spec["mb"]] for v in x.values()), os.path.join(d, "model.onnx"), input_names=list(x), output_names=["logits", "loss"],
                      dynamo=True, optimize=False, external_data=False)
    file = onnx.load(os.path.join(d, "model.onnx"))
    for p in (p for n in file.graph.node for p in n.metadata_props if "stack_trace" in p.key):
        p.value = ""
    onnx.save(file, os.path.join(d, "model.onnx"))
    y, loss = model.double()(**x)
    loss.backward()
    for k, v in x.items():
        np.save(os.path.join(d, k + ".npy" if k == "target" else f"in.{k}.npy"), v.numpy())
    np.save(os.path.join(d, "out.npy"), y.detach().float().numpy())
    export.save_file({k: p.grad.float().contiguous() for k, p in model.named_parameters()}, os.path.join(d, "grads.safetensors"))
    with open(os.path.join(d, "case.env"), "w", encoding="utf-8") as f:
        env = {"loss": spec["loss"], "rows": spec["rows"], "mb": spec["mb"], "loss_value": loss.item(), "splits": " ".join(spec["splits"])}
        f.write("".join(f"{k}='{v}'\n" for k, v in env.items()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("-o", default=HERE)
    a = p.parse_args()
    for name in a.names or CASES:
        spec = dict(rows=8, mb=2, loss="cross_entropy", exporter="dynraw") | CASES[name]
        (make_with_loss if spec["loss"] == "output:loss" else export.make)(name, spec, a.o)
        with open(os.path.join(a.o, name, "case.env"), "a", encoding="utf-8") as f:
            f.write("".join(f"{k}='{spec[k]}'\n" for k in ("extra", "random", "report", "wrong") if k in spec))
        if os.path.exists(os.path.join(a.o, name, "case.json")):
            os.unlink(os.path.join(a.o, name, "case.json"))


if __name__ == "__main__":
    sys.exit(main())

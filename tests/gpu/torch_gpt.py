"""torch_gpt.py - the GPT of models/make_gpt.c in PyTorch, timed as tests/gpu/run times ours: the same sizes, microbatches, optimizer and precision.

Prints one line: mode, median seconds of a step, peak memory in GiB, the first loss.
    python3 torch_gpt.py --vocab 50304 --dim 768 --layers 12 --heads 12 --seq 1024 --rows 4 --microbatches 8 [--tf32 | --bf16] [--compile] [--sdpa]
Attention is written out, as the exported model has it; --sdpa uses PyTorch's fused one.  --bf16: under torch.autocast, weights and
moments in float32, as --dtype bf16 has it.
"""
import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.ln_1, self.ln_2 = nn.LayerNorm(o.dim), nn.LayerNorm(o.dim)
        self.c_attn, self.c_proj = nn.Linear(o.dim, 3 * o.dim), nn.Linear(o.dim, o.dim)
        self.c_fc, self.c_out = nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)

    def attention(self, x, mask):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.o.heads, d // self.o.heads).transpose(1, 2) for t in self.c_attn(x).split(d, dim=2))
        if self.o.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = (q @ k.transpose(2, 3)) * (1 / math.sqrt(d // self.o.heads))
            y = torch.softmax(torch.where(mask, a, -math.inf), dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, s, d))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(o.vocab, o.dim), nn.Embedding(o.seq, o.dim)
        self.h = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.ln_f = nn.LayerNorm(o.dim)
        self.register_buffer("mask", torch.ones(o.seq, o.seq, dtype=torch.bool).tril())
        self.register_buffer("position", torch.arange(o.seq))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, target):
        x = self.wte(ids) + self.wpe(self.position)
        for block in self.h:
            x = block(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def main():
    p = argparse.ArgumentParser()
    for name, value in (("vocab", 256), ("dim", 64), ("layers", 4), ("heads", 4), ("seq", 64), ("rows", 4), ("microbatches", 8), ("steps", 10)):
        p.add_argument("--" + name, type=int, default=value)
    for name in ("tied", "tf32", "bf16", "compile", "sdpa"):
        p.add_argument("--" + name, action="store_true")
    p.add_argument("--device", default="cuda")
    o = p.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.tf32
    model = Gpt(o).to(o.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=o.device == "cuda")
    step_model = torch.compile(model) if o.compile else model
    ids = torch.randint(o.vocab, (o.microbatches, o.rows, o.seq), device=o.device)
    target = torch.randint(o.vocab, (o.microbatches, o.rows, o.seq), device=o.device)
    wait = torch.cuda.synchronize if o.device == "cuda" else lambda: None
    times, first = [], None
    for step in range(o.steps):
        wait()
        start = time.perf_counter()
        total = torch.zeros((), device=o.device)
        for i in range(o.microbatches):
            with torch.autocast(o.device, dtype=torch.bfloat16, enabled=o.bf16):
                loss = step_model(ids[i], target[i]) / o.microbatches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        first = float(total) if first is None else first
        wait()
        times.append(time.perf_counter() - start)
    name = ("compile" if o.compile else "eager") + (" sdpa" if o.sdpa else "") + (" tf32" if o.tf32 else "") + (" bf16" if o.bf16 else "")
    memory = torch.cuda.max_memory_allocated() / 2**30 if o.device == "cuda" else 0
    print(f"{name}\t{statistics.median(times[len(times) // 3:]):.6f}\t{memory:.2f}\t{first:.4f}")


if __name__ == "__main__":
    main()

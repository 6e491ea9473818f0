"""torch_step.py DTYPE [STEPS] [--dim N --layers N --heads N --seq N --vocab N --rows N] [--cut BLOCK[.5]] [--infer] - the step of one of
tests/bench/run's GPTs (default: the big one) in PyTorch: torch.distributed.pipelining, two processes with a thread each, 8 microbatches,
1F1B and SGD, or forward only.  DTYPE: float32, or bfloat16 for torch.autocast.  --cut 2: before block 2; 2.5: inside of it, behind the
product of queries, keys and values.  Prints the median seconds of a step, and the processor's seconds that both processes take for it."""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

CHUNKS = 8


class Block(torch.nn.Module):
    """GPT-2's; `begin` and `end` are the parts before and after a cut inside of attention."""

    def __init__(self, o):
        super().__init__()
        self.o = o
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(o.dim), torch.nn.LayerNorm(o.dim)
        self.c_attn, self.c_proj = torch.nn.Linear(o.dim, 3 * o.dim), torch.nn.Linear(o.dim, o.dim)
        self.c_fc, self.c_out = torch.nn.Linear(o.dim, 4 * o.dim), torch.nn.Linear(4 * o.dim, o.dim)

    def begin(self, x):
        return self.c_attn(self.ln_1(x))

    def end(self, x, qkv):
        o = self.o
        q, k, v = (t.view(-1, o.seq, o.heads, o.dim // o.heads).transpose(1, 2) for t in qkv.split(o.dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(-1, o.seq, o.dim))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def forward(self, x):
        return self.end(x, self.begin(x))


class First(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(o.vocab, o.dim), torch.nn.Embedding(o.seq, o.dim)
        self.h = torch.nn.Sequential(*(Block(o) for _ in range(int(o.cut))))
        self.part = Block(o) if o.cut % 1 else None

    def forward(self, ids):
        x = self.h(self.wte(ids) + self.wpe.weight)
        return (x, self.part.begin(x)) if self.part else x


class Last(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        whole = o.layers - int(o.cut) - (1 if o.cut % 1 else 0)
        self.part = Block(o) if o.cut % 1 else None
        self.h, self.ln_f = torch.nn.Sequential(*(Block(o) for _ in range(whole))), torch.nn.LayerNorm(o.dim)
        self.lm_head = torch.nn.Linear(o.dim, o.vocab, bias=False)

    def forward(self, x, qkv=None):
        return self.lm_head(self.ln_f(self.h(self.part.end(x, qkv) if self.part else x)))


def loss_of(logits, target):
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten()) / CHUNKS


def rank_main(rank, o, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    module = First(o) if rank == 0 else Last(o)
    half = getattr(torch, o.dtype)
    cast = torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bfloat16")
    ids = torch.randint(o.vocab, (o.rows * CHUNKS, o.seq))
    target = torch.randint(o.vocab, (o.rows * CHUNKS, o.seq))
    edge = torch.zeros(o.rows, o.seq, o.dim, requires_grad=not o.infer)
    if o.cut % 1:
        edge = (edge, torch.zeros(o.rows, o.seq, 3 * o.dim, dtype=half, requires_grad=not o.infer))
    logits = torch.zeros(o.rows, o.seq, o.vocab, dtype=half)
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), input_args=(ids[:o.rows],) if rank == 0 else edge,
                          output_args=edge if rank == 0 else logits)
    schedule = ScheduleGPipe(stage, CHUNKS) if o.infer else Schedule1F1B(stage, CHUNKS, loss_fn=loss_of, scale_grads=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    seconds, busy = [], []
    for _ in range(o.steps):
        dist.barrier()
        start, used = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with cast, torch.set_grad_enabled(not o.infer):
            schedule.step(*([ids] if rank == 0 else []), **({} if rank == 0 or o.infer else {"target": target}))
        if not o.infer:
            optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    total = torch.tensor(statistics.median(busy[2:]))
    dist.all_reduce(total)
    if rank == 0:
        out.put((statistics.median(seconds[2:]), total.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("dtype", choices=["float32", "bfloat16"])
    p.add_argument("steps", type=int, nargs="?", default=20)
    for name, default in ("dim", 256), ("layers", 4), ("heads", 8), ("seq", 128), ("vocab", 1024), ("rows", 4):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--cut", type=float, default=2.5)
    p.add_argument("--infer", action="store_true")
    options = p.parse_args()
    mp.set_start_method("spawn")
    queue = mp.SimpleQueue()
    mp.spawn(rank_main, (options, 20000 + os.getpid() % 20000, queue), 2)
    print("%.6f %.6f" % queue.get())

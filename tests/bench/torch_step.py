"""torch_step.py DTYPE [STEPS] - the step of tests/bench/run's big GPT in PyTorch: torch.distributed.pipelining, two processes with a
thread each, 1F1B, the same cut, SGD.  DTYPE: float32, or bfloat16 for torch.autocast.  Prints the median seconds of a step."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

DIM, LAYERS, HEADS, SEQ, VOCAB, ROWS, CHUNKS = 256, 4, 8, 128, 1024, 4, 8


class Block(torch.nn.Module):
    """GPT-2's; `begin` and `end` are the parts before and after the cut inside of attention."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.c_attn, self.c_proj = torch.nn.Linear(DIM, 3 * DIM), torch.nn.Linear(DIM, DIM)
        self.c_fc, self.c_out = torch.nn.Linear(DIM, 4 * DIM), torch.nn.Linear(4 * DIM, DIM)

    def begin(self, x):
        return self.c_attn(self.ln_1(x))

    def end(self, x, qkv):
        q, k, v = (t.view(-1, SEQ, HEADS, DIM // HEADS).transpose(1, 2) for t in qkv.split(DIM, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(-1, SEQ, DIM))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def forward(self, x):
        return self.end(x, self.begin(x))


class First(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, DIM), torch.nn.Embedding(SEQ, DIM)
        self.h = torch.nn.ModuleList(Block() for _ in range(2))
        self.cut = Block()

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return x, self.cut.begin(x)


class Last(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cut, self.h, self.ln_f = Block(), Block(), torch.nn.LayerNorm(DIM)
        self.lm_head = torch.nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x, qkv):
        return self.lm_head(self.ln_f(self.h(self.cut.end(x, qkv))))


def loss_of(logits, target):
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten()) / CHUNKS


def rank_main(rank, dtype, steps, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    module = First() if rank == 0 else Last()
    cast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")
    ids = torch.randint(VOCAB, (ROWS * CHUNKS, SEQ))
    target = torch.randint(VOCAB, (ROWS * CHUNKS, SEQ))
    edge = (torch.zeros(ROWS, SEQ, DIM, requires_grad=True),
            torch.zeros(ROWS, SEQ, 3 * DIM, dtype=getattr(torch, dtype), requires_grad=True))
    logits = torch.zeros(ROWS, SEQ, VOCAB, dtype=getattr(torch, dtype))
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), input_args=(ids[:ROWS],) if rank == 0 else edge,
                          output_args=edge if rank == 0 else logits)
    schedule = Schedule1F1B(stage, CHUNKS, loss_fn=loss_of, scale_grads=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    seconds = []
    for _ in range(steps):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with cast:
            schedule.step(*([ids] if rank == 0 else []), **({} if rank == 0 else {"target": target}))
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        out.put(statistics.median(seconds[2:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    queue = mp.SimpleQueue()
    mp.spawn(rank_main, (sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20, 20000 + os.getpid() % 20000, queue), 2)
    print(f"{queue.get():.6f}")

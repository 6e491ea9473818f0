"""torch_tensor.py STEPS DIM SEQ VOCAB - the step of a GPT of tests/bench/tensor in PyTorch, divided as there by DTensor: two processes with a thread each, Megatron's column and
row products, tables by rows of the vocabulary, the cross entropy of a divided vocabulary; SGD.  Prints the median seconds of a step."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

STEPS, DIM, SEQ, VOCAB = (int(x) for x in sys.argv[1:])
LAYERS, HEADS, ROWS = 4, DIM // 64, 4


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.c_proj = (torch.nn.Linear(DIM, DIM) for _ in range(4))
        self.c_fc, self.c_out = torch.nn.Linear(DIM, 4 * DIM), torch.nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        y = self.ln_1(x)
        q, k, v = (f(y).view(ROWS, SEQ, -1, DIM // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(ROWS, SEQ, -1))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, DIM), torch.nn.Parameter(torch.randn(SEQ, DIM))
        self.h, self.ln_f = torch.nn.Sequential(*(Block() for _ in range(LAYERS))), torch.nn.LayerNorm(DIM)
        self.lm_head = torch.nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        return self.lm_head(self.ln_f(self.h(self.wte(ids) + self.wpe)))


def rank_main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model = GPT()
    plan = {"wte": RowwiseParallel(input_layouts=Replicate()), "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    for i in range(LAYERS):
        plan.update({f"h.{i}.{name}": ColwiseParallel() for name in ("q", "k", "v", "c_fc")})
        plan.update({f"h.{i}.{name}": RowwiseParallel() for name in ("c_proj", "c_out")})
    parallelize_module(model, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    ids, target = torch.randint(VOCAB, (ROWS, SEQ)), torch.randint(VOCAB, (ROWS, SEQ))
    seconds = []
    for _ in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with loss_parallel():
            F.cross_entropy(model(ids).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(f"{statistics.median(seconds[1:]):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, (29500 + os.getpid() % 2000,), nprocs=2)

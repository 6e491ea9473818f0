"""losses.py OUT LOG ROWS HEADS MICROBATCHES LR - the losses of LOG, an AdamW run of ROWS rows a step of the GPT in OUT/params on
x.npy and target.npy, beside those of PyTorch in one process, on the same microbatches and on whole steps: how far they are
apart at most."""
import glob
import json
import sys

import torch
import torch.nn.functional as F


def safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        raw = bytearray(f.read())
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            yield name, torch.frombuffer(raw[begin:end], dtype=torch.float32).reshape(t["shape"]).clone().requires_grad_()


def npy(path):
    with open(path, "rb") as f:
        raw = f.read()
    rows, seq = eval(raw[10:128].decode())["shape"]
    return torch.frombuffer(bytearray(raw[128:]), dtype=torch.int64).reshape(rows, seq)


def forward(p, ids, heads):
    n, t = ids.shape
    x = p["wte.weight"][ids] + p["wpe.weight"]
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])
    linear = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]
    for i in range(sum(name.endswith("ln_1.bias") for name in p)):
        h = f"h.{i}."
        q, k, v = (s.view(n, t, heads, -1).transpose(1, 2) for s in linear(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(x.shape), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "ln_f") @ p["lm_head.weight"]


def train(out, steps, rows, heads, lr, microbatches):
    """PyTorch's losses; the gradients of a step's microbatches add up, as does the loss."""
    p = {k: v for path in sorted(glob.glob(out + "/params/stage*.safetensors")) for k, v in safetensors(path)}
    ids, target, losses = npy("x.npy"), npy("target.npy"), []
    optimizer = torch.optim.AdamW(p.values(), lr=lr)
    for step in range(steps):
        at, total = step % (len(ids) // rows) * rows, 0
        optimizer.zero_grad()
        for x, y in zip(*(d[at:at + rows].chunk(microbatches) for d in (ids, target))):
            loss = F.cross_entropy(forward(p, x, heads).flatten(0, 1), y.flatten()) / microbatches
            loss.backward()
            total += loss.item()
        losses.append(total)
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    out, log, rows, heads, microbatches, lr = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6])
    with open(log) as f:
        ours = [step["loss"] for step in map(json.loads, f) if "loss" in step]
    print(f"{len(ours)} steps of AdamW, loss {ours[0]:.3f} to {ours[-1]:.3f}, apart from PyTorch's:")
    for m in (microbatches, 1):
        apart = [abs(a - b) for a, b in zip(ours, train(out, len(ours), rows, heads, lr, m))]
        print(f"    of {m} microbatches: at most {max(apart):.1e}, at step {1 + apart.index(max(apart))}; mean {sum(apart) / len(apart):.1e}")


main()

#!/usr/bin/env python3
"""The cases of this folder on torch.distributed.pipelining: each cut by its tracer (pipeline()) at the same points, a process for each
stage, over Gloo, in float64; beside the gradients of the uncut model.  Writes the last table of docs/known-bugs.md, of the cases NAME or all.

usage: torch_pipelining.py [NAME...]        needs torch (and what make.py needs)

A gradient is another where it differs by more than 1e-9 of the largest of its parameter: both are float64.
"""
import importlib.util
import os
import re
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("make", os.path.join(HERE, "make.py"))
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
SECONDS = 90


def loss_of(case):
    if case.get("loss") == "mse":
        return F.mse_loss
    if case.get("loss") == "output:loss":
        return lambda y, t: y[1]
    how = "sum" if case.get("sum") else "mean"
    return lambda y, t: F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1), reduction=how)


def data(case):
    rows = case.get("rows", 8)
    torch.manual_seed(0)
    model = case["model"]().double()
    x = {k: v.double() if v.is_floating_point() else v for k, v in case["inputs"](rows).items()}
    whole = {k: v().double() for k, v in case.get("whole", {}).items()}
    if case.get("loss") == "output:loss":
        return model, x, whole, x["target"]
    y = model(**x, **whole)
    target = torch.randn_like(y) if case.get("loss") == "mse" else torch.randint(0, y.shape[-1], y.shape[:-1])
    if case.get("ignore"):                               # rows count from one token to all but one, as in the case's own target
        for i in range(rows):
            target[i, 1 + i % (target.shape[1] - 1):] = -100
    return model, x, whole, target.detach()


def one(rank, ranks, store, case, split, schedule, out):
    """A stage: its gradients and the losses, or what was raised."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks, timeout=timedelta(seconds=SECONDS / 2))
        model, x, whole, target = data(case)
        count = -(-case.get("rows", 8) // case.get("mb", 2))
        points = {p.split(":")[0]: SplitPoint.END if p.endswith(":end") else SplitPoint.BEGINNING for p in split.split(",")}
        first = {k: v.chunk(count)[0] for k, v in x.items()}
        pipe = pipeline(model, mb_args=(*first.values(), *whole.values()), split_spec=points)
        if pipe.num_stages != ranks:
            raise RuntimeError(f"{pipe.num_stages} stages where {ranks} were asked for")
        stage = pipe.build_stage(rank, torch.device("cpu"))
        chunks = (*(TensorChunkSpec(0) for _ in x), *(_Replicate() for _ in whole))
        run = schedule(stage, count, loss_fn=loss_of(case), args_chunk_spec=chunks, scale_grads=not case.get("sum"))
        losses = []
        run.step(*((*x.values(), *whole.values()) if rank == 0 else ()), **({"target": target, "losses": losses} if rank == ranks - 1 else {}))
        grads = {k: p.grad for k, p in stage.submod.named_parameters()}
        torch.save({"grads": grads, "losses": [v.item() for v in losses]}, f"{out}.{rank}")
    except Exception as e:
        while e.__cause__:
            e = e.__cause__
        torch.save({"error": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}, f"{out}.{rank}")
        os._exit(1)


def together(case, split, schedule):
    """What came of it, a line"""
    ranks = split.count(",") + 2
    with tempfile.TemporaryDirectory() as d:
        group = [mp.get_context("fork").Process(target=one, args=(r, ranks, d + "/store", case, split, schedule, d + "/out")) for r in range(ranks)]
        for p in group:
            p.start()
        for p in group:
            p.join(SECONDS)
        hung = [p for p in group if p.is_alive()]
        for p in hung:
            p.kill()
        parts = [torch.load(f"{d}/out.{r}", weights_only=False) for r in range(ranks) if os.path.exists(f"{d}/out.{r}")]
    errors = [p for p in parts if "error" in p]
    # of several the one that is not about a connection that the others closed
    errors.sort(key=lambda p: "onnection" in p["error"] or "gloo" in p["error"].lower())
    if errors:
        if os.environ.get("TRACE"):
            print(errors[0]["trace"], file=sys.stderr)
        return "ends: " + re.sub(r"\s+", " ", errors[0]["error"])[:160]
    if hung or len(parts) < ranks:
        return f"does not end in {SECONDS} s"
    model, x, whole, target = data(case)
    loss = loss_of(case)(model(**x, **whole), target)
    loss.backward()
    losses = parts[-1]["losses"]
    theirs = sum(losses) / (1 if case.get("sum") else len(losses))
    want = {k: p.grad for k, p in model.named_parameters(remove_duplicate=False)}
    wrong = []
    for k, part in enumerate(parts):
        for name, grad in part["grads"].items():
            if name not in want:
                wrong.append(f"a parameter {name}")
            elif grad is None:
                wrong.append(f"{name} (stage {k}) has no gradient")
            else:
                off = ((grad - want[name]).abs().max() / want[name].abs().max()).item()
                if off > 1e-9:
                    wrong.append((off, f"most of all {name} (stage {k}), by {off:.2g} of its largest"))
    wrong.sort(key=lambda w: -w[0] if isinstance(w, tuple) else -9)
    text = f"loss {theirs:.6f}" + ("" if abs(theirs - loss.item()) < 1e-9 * abs(loss.item()) else f" instead of {loss.item():.6f}")
    many = sum(len(p["grads"]) for p in parts)
    return text + (f"; {len(wrong)} of {many} gradients differ: {wrong[0][1] if isinstance(wrong[0], tuple) else wrong[0]}" if wrong else f"; all {many} gradients are equal")


def publish(rows):
    """Rows of the table at the end of docs/known-bugs.md: of the cases that were run anew, of others as they are"""
    path = os.path.join(HERE, "../../docs/known-bugs.md")
    with open(path, encoding="utf-8") as f:
        before, table = f.read().split(TABLE)
    old = [line for line in table.splitlines() if line.split(" | ")[0][2:] not in rows]
    new = [f"| {name} | {line} |" for name in rows for line in rows[name]]
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + TABLE + "".join(line + "\n" for line in sorted(old + new) if line))


TABLE = "| case | cut | schedule | PyTorch |\n| --- | --- | --- | --- |\n"


def main():
    print("torch", torch.__version__, flush=True)
    rows = {}
    for name in sys.argv[1:] or make.CASES:
        case, rows[name] = make.CASES[name], []
        # what is drawn is another there; a checkpoint is not its task; labels that the last stage alone reads
        # are given to the first, too, so it says nothing of several losses
        if name in ("dropout", "resumed", "aux"):
            continue
        for split in case["splits"]:
            if len({p.split(":")[0] for p in split.split(",")}) <= split.count(","):
                continue                                 # its points are a dict of modules: a module has one
            by = {}                                      # what schedules give
            for schedule in (ScheduleGPipe, Schedule1F1B):
                by.setdefault(together(case, split, schedule), []).append(schedule.__name__[8:])
            rows[name] += [f"{split} | {', '.join(schedules)} | {text}" for text, schedules in by.items()]
            print(name, *rows[name], sep="\n  ", flush=True)
    publish({name: lines for name, lines in rows.items() if lines})


if __name__ == "__main__":
    main()

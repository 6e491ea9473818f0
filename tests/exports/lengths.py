#!/usr/bin/env python3
"""lengths.py - models with dimensions that vary, beside exports of one length each and PyTorch.

    python3 tests/exports/lengths.py [NAME...]      needs torch and transformers; ten minutes
    OPTIONS='--tensor 2' python3 tests/exports/lengths.py [NAME...]

Each model is exported once with open dimensions, bound to ranges, and once at each of eight
lengths.  A step of the one program has, to the bit, the loss, the output and the gradients of the
program of the export of that length; at three of them they are those of PyTorch in float64.  With
OPTIONS of ppsplit it is the model bound to that length, which members divide as they do the range.
"""
import json
import os
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from configs import CONFIGS, PPSPLIT, run

ROWS, MICROBATCHES = 2, 2
OPTIONS = os.environ.get("OPTIONS", "").split()


def library(name, **more):
    """Of transformers, small, without dropout."""
    import transformers
    kind, sizes = CONFIGS[name]
    config = getattr(transformers, kind).config_class(**dict(sizes, **more))
    for key, value in list(config.to_dict().items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    return getattr(transformers, kind)(config)


def first(model, **more):
    """The model with its first result alone."""
    import torch

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, **inputs):
            return self.model(**inputs, **more)[0]
    return First()


def unet():
    """Two levels down and up, with skips."""
    import torch
    nn = torch.nn

    class Twice(nn.Sequential):
        def __init__(self, i, o):
            super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.ReLU(),
                             nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([Twice(3, 8), Twice(8, 16)])
            self.middle = Twice(16, 16)
            self.up = nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2), nn.Upsample(scale_factor=2)])
            self.join = nn.ModuleList([Twice(32, 8), Twice(16, 8)])
            self.out = nn.Conv2d(8, 5, 1)

        def forward(self, pixel_values):
            x, skips = pixel_values, []
            for d in self.down:
                x = d(x)
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.middle(x)
            for u, j in zip(self.up, self.join):
                x = j(torch.cat([u(x), skips.pop()], 1))
            return self.out(x).movedim(1, -1)
    return UNet()


def tagger(kind):
    """Two layers of an LSTM or a GRU, in both directions."""
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(100, 16)
            self.steps = kind(16, 12, num_layers=2, batch_first=True, bidirectional=True)
            self.out = torch.nn.Linear(24, 100)

        def forward(self, input_ids):
            return self.out(self.steps(self.embed(input_ids))[0])
    return Tagger()


def tokens(*shape):
    import torch
    return torch.randint(3, 100, shape)


def text(n, rows):
    return {"input_ids": tokens(rows, n)}, tokens(rows, n)


def masked(n, rows):
    """Rows that end early, except the first."""
    import torch
    data, target = text(n, rows)
    ends = torch.tensor([n if k % 2 == 0 else (n + 1) // 2 for k in range(rows)])
    mask = (torch.arange(n) < ends[:, None]).long()
    return dict(data, attention_mask=mask), target.masked_fill(mask == 0, -100)


def pair(n, m, rows):
    return {"input_ids": tokens(rows, n), "decoder_input_ids": tokens(rows, m)}, tokens(rows, m)


def heard(n, rows):
    import torch
    features = torch.randn(rows, 16, 64)
    return {"input_features": features, "decoder_input_ids": tokens(rows, n)}, tokens(rows, n)


def picture(h, w, rows):
    import torch
    return {"pixel_values": torch.randn(rows, 3, h, w)}, torch.randint(0, 10, (rows,))


def scene(h, w, rows):
    import torch
    return {"pixel_values": torch.randn(rows, 3, h, w)}, torch.randint(0, 5, (rows, h, w))


SEQ = [(1,), (2,), (5,), (16,), (17,), (31,), (40,), (48,)]
# model, data, open dimensions by input, ranges, lengths
MODELS = {
    "GPT": (lambda: first(library("GPT-2")), text, {"input_ids": {1: "n"}}, ["n=1..48"], SEQ),
    "Llama": (lambda: first(library("Llama")), text, {"input_ids": {1: "n"}}, ["n=1..48"], SEQ),
    "T5": (lambda: first(library("T5"), use_cache=False), pair,
           {"input_ids": {1: "n"}, "decoder_input_ids": {1: "m"}}, ["n=1..40", "m=1..30"],
           [(1, 1), (2, 7), (9, 1), (16, 16), (17, 30), (33, 12), (40, 3), (40, 30)]),
    "BERT": (lambda: first(library("BERT")), masked,
             {"input_ids": {1: "n"}, "attention_mask": {1: "n"}}, ["n=1..48"], SEQ),
    "Whisper": (lambda: first(library("Whisper"), use_cache=False), heard,
                {"decoder_input_ids": {1: "n"}}, ["n=1..30"],
                [(1,), (2,), (5,), (11,), (16,), (17,), (23,), (30,)]),
    "ViT": (lambda: first(library("ViT"), interpolate_pos_encoding=True), picture,
            {"pixel_values": {2: "h", 3: "w"}}, ["h=8*y", "w=8*x", "y=1..8", "x=1..8"],
            [(8, 8), (8, 40), (16, 24), (32, 32), (40, 16), (56, 48), (64, 8), (64, 64)]),
    "U-Net": (unet, scene, {"pixel_values": {2: "h", 3: "w"}},
              ["h=4*y", "w=4*x", "y=1..10", "x=1..10"],
              [(4, 4), (4, 20), (8, 12), (16, 16), (20, 36), (32, 8), (36, 40), (40, 40)]),
    "LSTM": (lambda: tagger(__import__("torch").nn.LSTM), text, {"input_ids": {1: "n"}},
             ["n=1..48"], SEQ),
    "GRU": (lambda: tagger(__import__("torch").nn.GRU), text, {"input_ids": {1: "n"}},
            ["n=1..48"], SEQ),
}


def bound(ranges, n):
    """The ranges as --bind of one length of each: NAME=N@LEAST..MOST"""
    size = dict(zip((r.split("=")[0] for r in ranges), n))
    for name, value in (r.split("=") for r in ranges):
        if "*" in value:
            k, of = value.split("*")
            size[of] = size[name] // int(k)
    return [r if "*" in r else r.replace("=", f"={size[r.split('=')[0]]}@") for r in ranges]


def export(model, inputs, dims, path):
    """dims: the open ones' names by input; {}: none."""
    import torch
    sizes = {k: {0: "batch", **dims.get(k, {})} for k in inputs} if dims else None
    if hasattr(model, "steps"):             # whose steps the other exporter unrolls
        torch.onnx.export(model, tuple(inputs.values()), path, dynamo=False,
                          input_names=list(inputs), dynamic_axes=sizes,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
        return
    of = {}
    shapes = sizes and {k: {d: of.setdefault(n, torch.export.Dim.DYNAMIC) for d, n in v.items()}
                        for k, v in sizes.items()}
    try:
        program = torch.export.export(model, (), inputs, strict=False, dynamic_shapes=shapes)
        program.run_decompositions()
    except Exception:                       # as ppsplit-export does
        model.model.set_attn_implementation("eager")
        program = torch.export.export(model, (), inputs, strict=False, dynamic_shapes=shapes)
    program._guards_code = []               # sizes that it assumes, which the exporter cannot write
    torch.onnx.export(program, dynamo=True, optimize=False, verbose=False,
                      dynamic_shapes=sizes and list(sizes.values())).save(path)


def program(path, out, binds, work):
    options = [o for b in binds for o in ("--bind", b)]
    run(PPSPLIT, "-q", path, "--stages", 2, "--loss", "cross_entropy", *options, *OPTIONS,
        "-o", out)
    run("make", "-s", "-C", out, "pipeline", "STAGE_CFLAGS=-O1", "CFLAGS=-O1", *RUNTIME)


RUNTIME = [f"{k}={os.environ[v]}" for k, v in (("RUNTIME", "LENGTHS_RUNTIME"),
                                               ("RUNTIME_BUILD", "LENGTHS_BUILD"))
           if v in os.environ]


def trained(out, data, work):
    """The bytes of a step's loss, output and gradients."""
    import shutil
    shutil.rmtree(f"{work}/grads", ignore_errors=True)
    options = [o for k in data for o in ("--data", f"{k}={work}/{k}.npy")]
    run(f"{out}/pipeline", "train", *options, "--microbatches", MICROBATCHES,
        "--steps", 1, "--lr", 0, "--optimizer", "sgd", "--quiet", "--dump-grads", f"{work}/grads",
        "--log-json", f"{work}/log", "--output", f"{output_name(out)}={work}/out.npy",
        env=dict(os.environ, OMP_NUM_THREADS="1"))
    import safetensors.numpy
    with open(f"{work}/log") as f:
        loss = next(json.loads(s)["loss"] for s in f if '"step"' in s)
    grads = {}
    for file in sorted(os.listdir(f"{work}/grads")):
        if file.endswith(".safetensors"):
            grads.update(safetensors.numpy.load_file(f"{work}/grads/{file}"))
    return loss, numpy.load(f"{work}/out.npy"), grads


def output_name(out):
    said = run(f"{out}/pipeline", "--help")
    line = next(s for s in said.splitlines() if s.strip().startswith("outputs:"))
    return line.split(":")[1].split(",")[0].strip()


def expected(model, data, target):
    """PyTorch's, in float64: the mean over what counts."""
    import torch
    model = model.double()
    model.zero_grad()
    y = model(**{k: v.double() if v.is_floating_point() else v for k, v in data.items()})
    loss = torch.nn.functional.cross_entropy(y.flatten(0, -2), target.flatten())
    loss.backward()
    grads = {}
    for n, p in model.named_parameters(remove_duplicate=False):
        if p.grad is not None:
            grads.setdefault(p, []).append(n)
    result = float(loss.detach()), {tuple(n): p.grad.numpy().copy() for p, n in grads.items()}
    model.float()
    return result


def same(a, b):
    """What differs, in words; "": nothing."""
    if a[0] != b[0]:
        return f"loss {a[0]!r} and {b[0]!r}"
    if a[1].tobytes() != b[1].tobytes():
        return f"outputs, by {numpy.abs(a[1] - b[1]).max():.1e}"
    if a[2].keys() != b[2].keys():
        return f"gradients of {sorted(a[2].keys() ^ b[2].keys())[:3]}"
    bad = [k for k in a[2] if a[2][k].tobytes() != b[2][k].tobytes()]
    if not bad:
        return ""
    apart = numpy.abs(a[2][bad[0]] - b[2][bad[0]]).max()
    return f"gradients of {len(bad)}: {bad[0]}, by {apart:.1e}"


def beside(got, want):
    """How far from PyTorch's, relative."""
    loss = abs(got[0] - want[0]) / max(1e-3, abs(want[0]))
    largest = max(float(numpy.abs(w).max()) for w in want[1].values())
    worst = 0.0
    for names, w in want[1].items():
        g = next((got[2][n] for n in names if n in got[2]), None)
        if g is None:
            raise RuntimeError(f"no gradient of {names[0]}")
        worst = max(worst, float(numpy.abs(g.astype("f8") - w).max())
                    / max(float(numpy.abs(w).max()), 1e-3 * largest))
    return loss, worst


def one(name, work):
    """Lines of what is wrong."""
    import torch
    make, draw, dims, ranges, lengths = MODELS[name]
    torch.manual_seed(1)
    wrong, model = [], make().train()
    inputs, _ = draw(*lengths[len(lengths) // 2], rows=ROWS)
    export(model, inputs, dims, f"{work}/any.onnx")
    program(f"{work}/any.onnx", f"{work}/any", [f"batch={ROWS}", *ranges], work)
    for k, n in enumerate(lengths):
        data, target = draw(*n, rows=ROWS * MICROBATCHES)
        if OPTIONS:
            program(f"{work}/any.onnx", f"{work}/one", [f"batch={ROWS}", *bound(ranges, n)], work)
        else:
            export(model, {key: v[:ROWS] for key, v in data.items()}, {}, f"{work}/one.onnx")
            program(f"{work}/one.onnx", f"{work}/one", [], work)
        for key, v in dict(data, target=target).items():
            numpy.save(f"{work}/{key}.npy", v.numpy())
        got = trained(f"{work}/any", [*data, "target"], work)
        said = same(got, trained(f"{work}/one", [*data, "target"], work))
        if said:
            wrong.append(f"{n}: {said}")
        if k in (0, 3, 6):
            loss, worst = beside(got, expected(model, data, target))
            if not (loss < 1e-5 and worst < 1e-3):
                wrong.append(f"{n}: PyTorch's loss is {loss:.1e} apart, gradients {worst:.1e}")
    return wrong


def main(names):
    failed = 0
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as work:
            try:
                wrong = one(name, work)
            except Exception as e:
                wrong = [str(e)[:3000]]
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {name}", *wrong, sep="\n  # ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

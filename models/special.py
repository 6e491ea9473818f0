#!/usr/bin/env python3
"""Makes models/special: small cases for what one exported file cannot show, with PyTorch's float64 numbers (tests/frontend.t).

  sequence    a.onnx, b.onnx run as a, b, a: a module used twice, across files
  lossmodel   a model and loss.onnx, a loss in a file of its own
  ownloss     a model whose output `loss` is its loss
  valid       its loss is a mean over the labels that are not -100, which are few in some rows and none in others, one
              over a mask that is at least 1, a mean and a sum over rows, one of them in the first stage, and a number of the parameters;
              root.onnx: the root of a mean
  shifted     its loss compares all but the last step with all but the first label, flattened: a view that strides cannot say
  annotated   pipeline_stage on every node (IR 11)
  twice       a module called twice inside one file; folded.onnx: the same with constant folding, which transposes its weight twice
  looped      a module called five times and its weight once more, transposed: several uses in one stage, also in one between others
  passthrough outputs that are also intermediates, an input used late, a stage without parameters
  stopped     ppsplit::StopGradient where a VQ-VAE detaches; a stage that only stopped values leave; plain.onnx: the same without these nodes;
              hard.onnx: straight-through estimators of what has no gradient
  detached    PyTorch's dynamo exporter without its optimizer, which writes what detach() does; undecided.onnx: a VQ-VAE, with it: the fx nodes name it still;
              cloned.onnx: a detach() of which nothing is left but the line of source
  samples     samples as groups of a convolution, two inputs joined along the batch and taken apart, sequence first, relative positions
  contrast    logits of every sample with every other one, and outputs that add up over microbatches, or do not: out.NAME.npy
  features    features of an image put where its tokens stand (masked_scatter): those of a microbatch, one after the other; more than are used
  folded      parameters that dynamo's optimizer folded: tied, expanded, computed, looked up, rows; a padding row
  given       parameters of which folding left too little: weight normalisation, a view, a table's rows; weights.safetensors has them
  normed      PyTorch's dynamo exporter without its optimizer, in training mode: it writes BatchNormalization in evaluation form, of which the fx nodes say otherwise;
              evaluated.onnx: in evaluation mode
  unsorted    pack_padded_sequence(enforce_sorted=False): rows sorted and put back, once more by hand with argsort; ranked.onnx: what is added to a row is by its
              place in the order
  packed      an operator's W, R and B packed of a GRU's and an LSTM's matrices; what nothing can be told of: a standardised
              convolution, a normalised weight, a number computed of a bias; penalty.onnx: a penalty over all parameters; heads.onnx: rows of a bias; rows.onnx: rows by numbers, by a loop, and copies in one dim; probe.onnx: numbers that a function of others comes near to;
              alike.onnx: what was computed of parameters has the numbers of one; three.onnx, half.onnx: equal norms, equal numbers that are one node
  beside      TorchScript with constant folding: a head that is a tied embedding and one more weight, functions of parameters;
              merged.onnx: one that has the parameter's numbers; fused.onnx: a BatchNormalization in a convolution;
              called.onnx: parameters that are called as buffers are; weights.safetensors has the model's own
  recurrent   an EmbeddingBag (a Loop over the samples), a bidirectional LSTM, a GRU, and an image sampled at computed places
  bounded     scripted: a while loop that ends on the data or at its bound, an If in it and one behind, parameters in all bodies, one in several
  trips       scripted: as many steps as the longest of the rows is long, bounded by its dim; their states, kept in a list; a number counted
              down to zero; model.onnx is for microbatches of two rows; unbounded.onnx: the same without what bounds the first; counted.onnx: a trip for each row that is long;
              endless.onnx: until a sum is small
  routed      experts that pick their rows with NonZero: two of three for each row, one more by a mask; the loop over the experts that are hit, of which the
              example hits three of five, and the same over a list of modules; lacking.onnx: that list, where the example hit two of three;
              counted.onnx: rows by a mask, then their mean; four.onnx: the same as model.onnx of four experts each;
              looked.onnx: rows that look up their matrices (gradients: looked.safetensors); slots.onnx: places in
              slots of experts
  graph       layers of PyTorch Geometric, which drop self loops by a mask and add one for each node, put weights where a mask says so, and detach a softmax's
              maximum; TorchScript's: rest.onnx: zeros for what a mask leaves out;
              fit.onnx: a product that needs a mask of five; drop.onnx: a dropout of what is picked
  parts       a Split whose sizes are data, a layer for each part, the parts joined again; raw.onnx: the same with a SplitToSequence; wrong.npy: sizes of other rows
  partly      dynamo's optimizer packs a GRU's biases, which are small enough to compute, and leaves its matrices; addcmul of views of parameters
  relative    ten blocks, each with its own table of relative positions: a part of the stash that is nothing but a loop over blocks
  gathered    a parameter that three products read: members divide one of them, and have it whole for the two that are small
  half        parameters, a buffer and running statistics in float16 (f16.onnx) and bfloat16 (bf16.onnx, its data in another file), a tied embedding, a
              Linear used twice, MatMul with a transposed weight; gradients of PyTorch's own half model
  clip        two towers, a loss over every image and every text of the minibatch: for any rows (model.onnx), for all of them (static.onnx), and
              in a file of its own (pairs.onnx, contrast.onnx: second_loss, pairs.safetensors)
  stateful    a recurrent model whose rows are second in all inputs and in the output, by their name alone: as many as there are steps, as a table has entries
  lengths     sequences of any length: a GPT of two blocks, rows of 1 to 48 tokens, filled up to 48 with targets that do not count; mean.onnx: the mean
              over a sequence; distant.onnx: numbers of how far apart its places are, some of which are dropped; convolved.onnx: a convolution along it;
              ahead.onnx: of how many come; pair.onnx: an encoder and a decoder, each of its own; both.onnx: two, in one table; rest.onnx: eight
              numbers of each place but the first, summed; equal.onnx: of places that are 30; patches.onnx: images of any height and width,
              with a table of positions that is resized; pictures.onnx: a CNN with statistics of the batch and of a sample; tagger.onnx: recurrent layers
usage: special.py DIR [NAME...]
"""
import copy, os, re, sys
import numpy as np, onnx, torch, torch.nn as nn, torch.nn.functional as F
from onnx import helper as h
from safetensors.torch import save_file

torch.manual_seed(3)
ROWS, MB = 8, 2

def export(model, args, path, inputs, outputs, fold=False, **more):
    torch.onnx.export(model, args, path, input_names=inputs, output_names=outputs, opset_version=17, dynamo=False, do_constant_folding=fold, training=torch.onnx.TrainingMode.TRAINING, **more)

def write(d, loss, grads, splits, files, out=None, extra="", name="logits", mb=MB, second="", schedules="", folded="", **data):
    for k, v in data.items(): np.save(f"{d}/{'target' if k == 'target' else 'in.' + k}.npy", v.numpy())
    save_file({k: v.float().contiguous() for k, v in grads.items()}, f"{d}/grads.safetensors")
    if out is not None: np.save(f"{d}/out.npy", out.detach().float().numpy())
    kind, value = loss
    open(f"{d}/case.env", "w").write(f"files='{files}'\nloss='{kind}'\nloss_value='{value!r}'\nrows='{ROWS}'\nmb='{mb}'\nsplits='{splits}'\nmodel_output='{name}'\nextra='{extra}'\n" + (f"second_loss='{second}'\n" if second else "") + (f"schedules='{schedules}'\n" if schedules else "") + (f"folded='{folded}'\n" if folded else ""))
    print(d, value)

def grads_of(*models): return {k: p.grad for m in models for k, p in m.named_parameters() if p.grad is not None}

class A(nn.Module):
    def __init__(self): super().__init__(); self.first = nn.Linear(6, 6)
    def forward(self, x): return torch.tanh(self.first(x))
class B(nn.Module):
    def __init__(self): super().__init__(); self.second = nn.Linear(6, 6)
    def forward(self, x): return F.silu(self.second(x)) + x

def sequence(d):
    a, b = A(), B(); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(a, torch.randn(MB, 6), f"{d}/a.onnx", ["x"], ["y"]); export(b, torch.randn(MB, 6), f"{d}/b.onnx", ["x"], ["y"])
    a, b = a.double(), b.double(); y = a(b(a(x.double()))); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(a, b), "", "a.onnx b.onnx a.onnx", y, name="y", x=x, target=t)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(11, 24, mode="sum"); self.rnn = nn.LSTM(6, 3, batch_first=True, bidirectional=True); self.gru = nn.GRU(6, 6, batch_first=True)
        self.theta = nn.Linear(24, 6); self.head = nn.Linear(24, 5); self.added_output_bias, self.val_scale = nn.Parameter(torch.randn(5)), nn.Parameter(torch.rand(5))  # called as exporters call values
        self.register_buffer("base", F.affine_grid(torch.eye(2, 3)[None], (1, 1, 4, 6), align_corners=False).reshape(24, 2))
    def forward(self, x):
        b = self.bag(x); y, _ = self.rnn(b.reshape(-1, 4, 6)); y, _ = self.gru(y)
        theta = self.theta(b).reshape(-1, 2, 3) * .5; grid = torch.matmul(self.base, theta[:, :, :2].transpose(1, 2)) + theta[:, :, 2].unsqueeze(1)
        z = F.grid_sample(y.unsqueeze(1), grid.reshape(-1, 4, 6, 2), padding_mode="border", align_corners=False)
        return self.head(z.flatten(1)) * self.val_scale + self.added_output_bias

def recurrent(d):
    m = Recurrent(); x, t = torch.randint(0, 11, (ROWS, 3)), torch.randint(0, 5, (ROWS,))
    export(m, x[:MB], f"{d}/model.onnx", ["x"], ["logits"])
    m = m.double(); y = m(x); l = F.cross_entropy(y, t); l.backward()
    write(d, ("cross_entropy", l.item()), grads_of(m), "rnn:begin,gru:begin", "model.onnx", y, x=x, target=t)

class Normed(nn.Module):
    def __init__(self):
        super().__init__(); self.i, self.n, self.c = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Conv1d(1, 4, 3); self.m = nn.BatchNorm1d(4, momentum=.3); self.o, self.t = nn.Linear(16, 3), nn.BatchNorm1d(6, track_running_stats=False)
        for n in (self.n, self.m): n.running_mean.normal_(); n.running_var.uniform_(.5, 2)
    def forward(self, x):
        h = self.t(torch.relu(self.n(torch.tanh(self.i(x)))))
        return self.o(torch.tanh(self.m(torch.relu(self.c(h[:, None])))).flatten(1))

def normed(d):
    m, x, t = Normed(), torch.randn(ROWS, 5), torch.randn(ROWS, 3)
    for name in ("model", "evaluated"):
        torch.onnx.export(m.train(name == "model"), (x[:4],), f"{d}/{name}.onnx", input_names=["x"], output_names=["logits"], dynamo=True, optimize=False, external_data=False)
        o = onnx.load(f"{d}/{name}.onnx")
        for n in [*o.graph.node, *(n for f in o.functions for n in f.node)]:
            for p in n.metadata_props:
                if p.key.endswith("stack_trace"): p.value = ""
        onnx.save(o, f"{d}/{name}.onnx")
    m = m.double().train(); y = torch.cat([m(x[i:i + 4].double()) for i in (0, 4)]); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "n:begin,o:begin", "model.onnx", y, mb=4, x=x, target=t)

class Unsorted(nn.Module):
    def __init__(self, ranked=False):
        super().__init__(); self.i, self.rnn, self.o = nn.Linear(5, 6), nn.LSTM(6, 4, batch_first=True, bidirectional=True), nn.Linear(8, 3); self.u, self.ranked = nn.Parameter(torch.randn(8, 8) / 2), ranked
    def forward(self, x, lens):
        x = nn.utils.rnn.pack_padded_sequence(self.i(x), lens, batch_first=True, enforce_sorted=False)
        y = nn.utils.rnn.pad_packed_sequence(self.rnn(x)[0], batch_first=True, total_length=6)[0].amax(1)
        order = y[:, 0].sort().indices; z = torch.tanh(y[order] @ self.u)
        if self.ranked: z = z + torch.arange(4.)[:, None]
        return self.o(y + z[order.sort().indices])

def unsorted(d):
    m, x, lens, t = Unsorted(), torch.randn(ROWS, 6, 5), torch.tensor([2, 6, 1, 3, 5, 6, 6, 4]), torch.randint(0, 3, (ROWS,))
    for name, one in (("model", m), ("ranked", Unsorted(True))): export(one, (x[:4], lens[:4]), f"{d}/{name}.onnx", ["x", "lens"], ["logits"])
    m = m.double(); y = m(x.double(), lens); l = F.cross_entropy(y, t); l.backward()
    write(d, ("cross_entropy", l.item()), grads_of(m), "rnn:begin,o:begin", "model.onnx", y, mb=4, x=x, lens=lens, target=t)

@torch.jit.script
def bounded_steps(x, w, b, u):
    i = 0
    while bool(x.abs().sum() < 14.) and i < 4:
        y = torch.tanh(x @ w + b)
        if bool(y.sum() > 0): x = x * 1.25 + y
        else: x = x * 1.5 - y @ u
        i += 1
    if bool(x.mean() > 0): x = x @ u
    return x
class Bounded(nn.Module):
    def __init__(self, d=4):
        super().__init__(); self.i, self.o = nn.Linear(d, d), nn.Linear(d, 3); self.w, self.b, self.u = (nn.Parameter(torch.randn(*s) / 2) for s in ((d, d), (d,), (d, d)))
    def forward(self, x): return self.o(bounded_steps(self.i(x), self.w, self.b, self.u))

def bounded(d):
    m, x, t = Bounded(), torch.randn(ROWS, 4) * torch.tensor([.2, .2, .7, .7, 1.5, 1.5, 4., 4.])[:, None], torch.randn(ROWS, 3)
    export(m, x[:MB], f"{d}/model.onnx", ["x"], ["y"])
    m = m.double(); y = torch.cat([m(x[i:i + MB].double()) for i in range(0, ROWS, MB)]); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "o:begin", "model.onnx", y, name="y", x=x, target=t)

@torch.jit.script
def trips_steps(x, lens, w, u):
    h, kept = torch.zeros_like(x[:, 0]), [x[:, 0]]
    for t in range(min(int(lens.max()), x.shape[1])):
        h = torch.where((lens > t).unsqueeze(1), torch.tanh(x[:, t] @ w + h @ u), h); kept.append(h)
    y, k = torch.stack(kept, 1).sum(1) + kept[-1], lens.clamp(0, 3).min()
    while bool(k > 0): y = torch.sin(y) + y * k; k = k - 1
    return y
@torch.jit.script
def trips_unbounded(x, lens, w, u):
    h = torch.zeros_like(x[:, 0])
    for t in range(int(lens.max())): h = torch.tanh(h @ w + h @ u)
    return h
@torch.jit.script
def trips_counted(x, lens, w, u):
    h = x[:, 0]
    for t in range(int((lens > 2).sum())): h = torch.tanh(h @ w + h @ u)
    return h
@torch.jit.script
def trips_endless(x, lens, w, u):
    h = x[:, 0]
    while bool(h.abs().sum() > .1): h = torch.tanh(h @ w)
    return h
class Trips(nn.Module):
    def __init__(self, steps, d=4):
        super().__init__(); self.i, self.o, self.steps = nn.Linear(d, d), nn.Linear(d, 3), steps; self.w, self.u = (nn.Parameter(torch.randn(d, d) / 2) for _ in range(2))
    def forward(self, x, lens): return self.o(self.steps(self.i(x), lens, self.w, self.u))

def trips(d):
    m, x, lens, t = Trips(trips_steps), torch.randn(ROWS, 5, 4), torch.tensor([2, 4, 1, 0, 9, 3, 5, 2]), torch.randn(ROWS, 3)
    export(m, (x[:MB], lens[:MB]), f"{d}/model.onnx", ["x", "lens"], ["y"])
    for name, steps in (("unbounded", trips_unbounded), ("counted", trips_counted), ("endless", trips_endless)): export(Trips(steps), (x[:MB], lens[:MB]), f"{d}/{name}.onnx", ["x", "lens"], ["y"])
    m = m.double(); y = torch.cat([m(x[i:i + MB].double(), lens[i:i + MB]) for i in range(0, ROWS, MB)]); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "/i/Add_output_0,o:begin", "model.onnx", y, name="y", x=x, lens=lens, target=t)

class Routed(nn.Module):                                # as transformers' Mixtral did
    def __init__(self, d=4, experts=3):
        super().__init__(); self.experts = experts
        self.gate = nn.Linear(d, experts, bias=False); self.w1 = nn.ModuleList([nn.Linear(d, 6) for _ in range(experts)]); self.w2 = nn.ModuleList([nn.Linear(6, d) for _ in range(experts)]); self.more = nn.Linear(d, d)
    def forward(self, x):
        x = x.reshape(-1, 4); w = F.softmax(self.gate(x), 1); w, pick = torch.topk(w, 2, dim=-1); w = w / w.sum(-1, keepdim=True)
        y = torch.zeros_like(x); mask = F.one_hot(pick, self.experts).permute(2, 1, 0)
        for e in range(self.experts):
            slot, row = torch.where(mask[e])
            y = y.index_add(0, row, self.w2[e](F.gelu(self.w1[e](x[None, row].reshape(-1, 4)))) * w[row, slot, None])
        row = torch.nonzero(x[:, 0] > 0)[:, 0]
        y = y.index_add(0, row, torch.tanh(self.more(x[row])))
        return y.reshape(-1, 3, 4)
class Hit(nn.Module):                                   # as transformers 5's do: a trip for each expert that the example hits
    def __init__(self, d=4, experts=5):
        super().__init__(); self.experts = experts; self.gate, self.other = nn.Linear(d, experts, bias=False), nn.Linear(d, 3, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(experts, 12, d) / 2), nn.Parameter(torch.randn(experts, d, 6) / 2); self.more = nn.ModuleList([nn.Linear(d, d) for _ in range(3)])
    def forward(self, x):
        x = x.reshape(-1, 4); w, pick = torch.topk(F.softmax(self.gate(x), 1), 2, dim=-1); y = torch.zeros_like(x)
        with torch.no_grad(): mask = F.one_hot(pick, self.experts + 1).permute(2, 1, 0); hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        self.hits = [int(e) for e in hit]
        for e in hit:
            e = e[0]
            if e == self.experts: continue
            slot, row = torch.where(mask[e]); a, b = F.linear(x[row], self.up[e]).chunk(2, dim=-1)
            y.index_add_(0, row, F.linear(F.silu(a) * b, self.down[e]) * w[row, slot, None])
        w, pick = torch.topk(F.softmax(self.other(x), 1), 1, dim=-1)
        mask = F.one_hot(pick, 3).permute(2, 1, 0); hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero(); self.more_hits = [int(e) for e in hit]
        for e in hit:
            slot, row = torch.where(mask[e].squeeze(0)) if mask[e].dim() > 2 else torch.where(mask[e])
            y.index_add_(0, row, torch.tanh(self.more[int(e)](x[row])) * w[row, slot, None])
        return y.reshape(-1, 3, 4)
class Counted(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 4)
    def forward(self, x): return self.a(x[torch.nonzero(x[:, 0] > 0)[:, 0]]).mean(0) + x

class Looked(nn.Module):                                # as transformers' batched_mm: a row has two experts, a copy of the matrices of each
    def __init__(self, n=4):
        super().__init__(); self.i, self.gate, self.o = nn.Linear(3, 24), nn.Linear(24, n), nn.Linear(24, 3)
        self.up, self.bias, self.down = nn.Parameter(torch.randn(n, 12, 16) / 4), nn.Parameter(torch.randn(n, 16)), nn.Parameter(torch.randn(n, 24, 16) / 4)
    def forward(self, x):
        h = self.i(x.transpose(1, 2)).reshape(-1, 24); w, i = self.gate(h).softmax(-1).topk(2); i = i.reshape(-1)
        y = torch.bmm(h.repeat_interleave(2, 0).view(-1, 2, 12), self.up[i]) + self.bias[i].unsqueeze(1)
        y = torch.bmm(self.down[i], (F.silu(y) * torch.rsqrt((y * y).mean(-1, keepdim=True))).transpose(1, 2)).sum(-1)
        return self.o((y * w.reshape(-1, 1)).view(-1, 2, 24).sum(1)).view(len(x), 4, 3).transpose(1, 2) + x

class Slots(nn.Module):                                 # as in GShard: of four groups of places each expert takes two slots
    def __init__(self): super().__init__(); self.gate, self.up, self.down, self.o = nn.Linear(8, 8), nn.Parameter(torch.randn(4, 8, 16) / 4), nn.Parameter(torch.randn(4, 16, 8) / 4), nn.Linear(8, 3)
    def forward(self, x):
        x = x.view(len(x), 4, 16, 8); w = self.gate(x).view(*x.shape[:3], 4, 2)
        y = torch.einsum("bgtec,bgth->ebgch", w.softmax(2), x).reshape(4, -1, 8)
        y = (torch.relu(y @ self.up) @ self.down).view(4, len(x), 4, 2, 8)
        return self.o(torch.einsum("bgtec,ebgch->bgth", w.flatten(3).softmax(3).view(w.shape), y) + x).flatten(1, 2)

def routed(d):
    x, t = torch.randn(ROWS, 3, 4), torch.randn(ROWS, 3, 4)
    class Two(nn.Module):
        def __init__(self, a=3, b=5): super().__init__(); self.a, self.b, self.o = Routed(experts=a), Hit(experts=b), nn.Linear(4, 4)
        def forward(self, x): x = self.a(x) + x; return self.o(self.b(x) + x)
    def example(m, hit, first, second):                 # that hits so many experts
        while True:
            x = torch.randn(MB, 3, 4); m(x)
            if len(hit.hits) == first and len(hit.more_hits) == second: return x
    m, lacking = Two(), Hit(); export(lacking, example(lacking, lacking, 3, 2), f"{d}/lacking.onnx", ["x"], ["y"]); export(m, example(m, m.b, 3, 3), f"{d}/model.onnx", ["x"], ["y"]); export(Counted(), torch.randn(6, 4), f"{d}/counted.onnx", ["x"], ["y"])
    m = m.double(); hits = []
    for i in range(0, ROWS, MB): m(x[i:i + MB].double()); hits.append((len(m.b.hits), len(m.b.more_hits)))
    print("experts hit by the microbatches", hits); assert len(set(hits)) > 1 and max(hits)[0] > 3
    y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "b:begin,o:begin", "model.onnx", y, name="y", x=x, target=t)
    four = Two(4, 4); export(four, example(four, four.b, 3, 3), f"{d}/four.onnx", ["x"], ["y"])
    with torch.random.fork_rng():
        torch.manual_seed(4); m = Looked(); export(m, x[:MB], f"{d}/looked.onnx", ["x"], ["y"]); m = m.double(); F.mse_loss(m(x.double()), t.double()).backward()
        save_file({k: v.float() for k, v in grads_of(m).items()}, f"{d}/looked.safetensors")
        export(Slots(), torch.randn(MB, 64, 8), f"{d}/slots.onnx", ["x"], ["y"])

class Graph(nn.Module):
    def __init__(self, G):
        super().__init__(); self.a, self.b, self.c, self.d, self.o = G.GCNConv(6, 6), G.ChebConv(6, 6, K=2), G.ClusterGCNConv(6, 6), G.GATv2Conv(6, 3, heads=2), nn.Linear(6, 3)
    def forward(self, x, edges):
        for layer in (self.a, self.b, self.c, self.d): x = torch.tanh(layer(x, edges))
        return self.o(x)
class Fit(nn.Module):                                   # of runs in which as many rows are picked as it has
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.arange(30.).reshape(5, 6) / 8)
    def forward(self, x): return (x[x[:, 0] > 0] * self.w).sum()
class Drop(Fit):
    def forward(self, x): return (F.dropout(x[x[:, 0] > 0], .5) * self.w).sum()
class Rest(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 4)
    def forward(self, x): y = self.a(x[x[:, 0] > 0]).sum(1); return torch.cat([y, torch.zeros(6 - y.shape[0])])

def graph(d):
    import torch_geometric.nn as G
    torch.manual_seed(7); m = Graph(G)
    for p in m.parameters(): p.data = torch.randn_like(p) / 2
    x, t, edges, example = torch.randn(ROWS, 6), torch.randint(0, 3, (ROWS,)), *torch.randint(0, ROWS, (2, 2, 14)); example[1, :3] = example[0, :3]; edges[1, 5:7] = edges[0, 5:7]
    dynamo(m, (torch.randn(ROWS, 6), example), f"{d}/model.onnx", ["x", "edges"], ["logits"], optimize=False)
    o = onnx.load(f"{d}/model.onnx"); del o.metadata_props[:]
    for n in o.graph.node:                              # of its metadata no more than where it detaches
        keep = [p for p in n.metadata_props if "aten.detach" in p.value]; del n.metadata_props[:]; n.metadata_props.extend(keep)
    onnx.save(o, f"{d}/model.onnx")
    export(Rest(), torch.randn(6, 4), f"{d}/rest.onnx", ["x"], ["y"])
    five = torch.arange(ROWS)[:, None] % 3 * torch.ones(6) - .75; np.save(f"{d}/five.npy", five.numpy()); np.save(f"{d}/two.npy", (five - 1).numpy()); export(Fit(), five, f"{d}/fit.onnx", ["x"], ["loss"]); export(Drop(), five, f"{d}/drop.onnx", ["x"], ["loss"])
    m = m.double(); y = m(x.double(), edges); l = F.cross_entropy(y, t); l.backward()
    write(d, ("cross_entropy", l.item()), grads_of(m), "c:begin,d:begin", "model.onnx", y, mb=ROWS, x=x, edges=edges, target=t)

class Parts(nn.Module):                                 # as JetMoe's experts
    def __init__(self): super().__init__(); self.e, self.o = nn.ModuleList(nn.Linear(4, 5) for _ in range(3)), nn.Linear(5, 2)
    def forward(self, x, sizes):
        sizes = sizes.tolist()
        for n in sizes: torch._check(n >= 0)
        torch._check(sizes[0] + sizes[1] + sizes[2] == x.shape[0])
        return self.o(torch.cat([torch.tanh(e(p)) for e, p in zip(self.e, x.split(sizes))]) + x.mean())

def parts(d):
    torch.manual_seed(9); m, x, t, sizes = Parts(), torch.randn(ROWS, 4), torch.randn(ROWS, 2), torch.tensor([5, 0, 3])
    for name in ("model", "raw"): dynamo(m, (x, torch.tensor([2, 3, 3])), f"{d}/{name}.onnx", ["x", "sizes"], ["y"], optimize=name == "model")
    m = m.double(); y = m(x.double(), sizes); l = F.mse_loss(y, t.double()); l.backward(); np.save(f"{d}/wrong.npy", np.array([5, 1, 3]))
    write(d, ("mse", l.item()), grads_of(m), "", "model.onnx", y, mb=ROWS, name="y", x=x, sizes=sizes, target=t)

class Features(nn.Module):                              # as vision-language models put them where an image's tokens stand
    def __init__(self): super().__init__(); self.e = nn.Embedding(9, 4); self.f = nn.Linear(3, 4); self.g = nn.Linear(3, 4); self.h = nn.Linear(4, 5)
    def forward(self, ids, few, many):
        e = self.e(ids)
        e = e.masked_scatter((ids == 7).unsqueeze(-1).expand_as(e), torch.tanh(self.f(few)))
        return self.h(e.masked_scatter((ids == 8).unsqueeze(-1).expand_as(e), self.g(many)))

def features(d):
    m = Features(); few, many, t = torch.randn(ROWS, 2, 3), torch.randn(ROWS, 8, 3), torch.randn(ROWS, 6, 5)
    ids = torch.randint(0, 7, (ROWS, 6)); ids[:, 1:3] = 7; ids[:, 4] = 6 + 2 * torch.randint(0, 2, (ROWS,)); ids[::3, 5] = 8
    export(m, (ids[:MB], few[:MB], many[:MB]), f"{d}/model.onnx", ["ids", "few", "many"], ["y"]); m = m.double()
    y = torch.cat([m(ids[i:i + MB], few[i:i + MB].double(), many[i:i + MB].double()) for i in range(0, ROWS, MB)]); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "g:begin,h:begin", "model.onnx", y, extra="--merge y=0", name="y", ids=ids, few=few, many=many, target=t)

class Quartic(nn.Module):
    def forward(self, y, target): return ((y - target) ** 4).mean() + (y - target).abs().mean()

def lossmodel(d):
    m = nn.Sequential(A(), B()); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(m, torch.randn(MB, 6), f"{d}/model.onnx", ["x"], ["logits"]); export(Quartic(), (torch.randn(MB, 6), torch.randn(MB, 6)), f"{d}/loss.onnx", ["y", "target"], ["loss"])
    m = m.double(); y = m(x.double()); l = Quartic()(y, t.double()); l.backward()
    write(d, ("model:loss.onnx", l.item()), grads_of(m), "0:end", "model.onnx", y, x=x, target=t)

class OwnLoss(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = A(), B()
    def forward(self, x, labels): y = self.b(self.a(x)); return F.cross_entropy(y, labels), y

def ownloss(d):
    m = OwnLoss(); x, t = torch.randn(ROWS, 6), torch.randint(0, 6, (ROWS,))
    export(m, (torch.randn(MB, 6), torch.randint(0, 6, (MB,))), f"{d}/model.onnx", ["x", "labels"], ["loss", "logits"])
    m = m.double(); l, y = m(x.double(), t); l.backward()
    write(d, ("output:loss", l.item()), grads_of(m), "b:begin", "model.onnx", y, x=x, labels=t)

class Valid(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.s = A(), B(), nn.Parameter(torch.tensor(.3))
    def forward(self, x, labels, mask):
        h = self.a(x); y = self.b(h)
        l = F.cross_entropy(y[:, :-1].reshape(-1, 6), labels[:, 1:].reshape(-1)); e = (y * y).mean(2)
        return l * torch.exp(-self.s) + self.s + .1 * h.pow(2).mean() + .02 * h.abs().sum() + (e * mask).sum() / mask.sum().clamp(min=1), y
class Root(Valid):
    def forward(self, x): return torch.sqrt(self.b(self.a(x)).pow(2).mean())

def valid(d):
    m = Valid(); g = torch.Generator().manual_seed(4); rows = lambda n: (torch.randn(n, 4, 6, generator=g), torch.randint(0, 6, (n, 4), generator=g), (torch.rand(n, 4, generator=g) < .3).float())
    x, t, k = rows(ROWS); t[torch.rand(ROWS, 4, generator=g) < .5] = -100; t[:3] = -100; t[0, 1] = 2; k[5:] = 0
    names = ["x", "labels", "mask"]
    export(m, rows(MB), f"{d}/model.onnx", names, ["loss", "logits"]); export(Root(), rows(MB)[:1], f"{d}/root.onnx", names[:1], ["loss"])
    m = m.double(); l, y = m(x.double(), t, k.double()); l.backward(); np.save(f"{d}/loss.npy", l.detach().float().numpy())
    write(d, ("output:loss", l.item()), grads_of(m), "b:begin", "model.onnx", y, extra="--train s", x=x, labels=t, mask=k)

class Shifted(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = A(), B()
    def forward(self, x, labels): y = self.b(self.a(x)); return F.cross_entropy(y[:, :-1].reshape(-1, 6), labels[:, 1:].reshape(-1)), y

def shifted(d):
    m = Shifted(); x, t = torch.randn(ROWS, 5, 6), torch.randint(0, 6, (ROWS, 5))
    export(m, (torch.randn(MB, 5, 6), torch.randint(0, 6, (MB, 5))), f"{d}/model.onnx", ["x", "labels"], ["loss", "logits"])
    m = m.double(); l, y = m(x.double(), t); l.backward()
    write(d, ("output:loss", l.item()), grads_of(m), "b:begin", "model.onnx", y, x=x, labels=t)

def annotated(d):
    m = nn.Sequential(A(), B(), A()); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(m, torch.randn(MB, 6), f"{d}/model.onnx", ["x"], ["logits"])
    o = onnx.load(f"{d}/model.onnx"); o.ir_version = 11
    for n in o.graph.node:
        c = n.device_configurations.add(); c.configuration_id = "pipe"; c.pipeline_stage = int(n.name.split("/")[1][0])
    c = o.configuration.add(); c.name = "pipe"; c.num_devices = 3
    onnx.save(o, f"{d}/model.onnx")
    m = m.double(); y = m(x.double()); l = F.l1_loss(y, t.double()); l.backward()
    write(d, ("l1", l.item()), grads_of(m), "", "model.onnx", y, x=x, target=t)

class Twice(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = A(), B()
    def forward(self, x): return self.a(self.b(self.a(x)))
class Third(Twice):                                     # a product of three dims is a MatMul, and no Gemm
    def forward(self, x): return super().forward(x[:, None])[:, 0]

def twice(d):
    m = Twice(); x, t = torch.randn(ROWS, 6), torch.rand(ROWS, 6)
    export(m, torch.randn(MB, 6), f"{d}/model.onnx", ["x"], ["logits"]); third = Third(); third.load_state_dict(m.state_dict())
    export(third, torch.zeros(MB, 6), f"{d}/folded.onnx", ["x"], ["logits"], fold=True, keep_initializers_as_inputs=True)  # which keeps equal ones apart
    m = m.double(); y = m(x.double()); l = F.binary_cross_entropy_with_logits(y, t.double()); l.backward()
    write(d, ("bce_with_logits", l.item()), grads_of(m), "b:begin,b:end", "model.onnx", y, x=x, target=t)

class Beside(nn.Module):                                # MobileBERT's head, SigLIP's scale
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 4); self.lin = nn.Linear(4, 6); self.more = nn.Linear(11, 2, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor([.3])); self.rows = nn.Parameter(torch.randn(11, 3))
    def forward(self, x):
        y = torch.tanh(self.lin(self.emb(x))) @ torch.cat((self.emb.weight.t(), self.more.weight))
        return y * self.logit_scale.double().float().exp() - self.rows[:, 0]

def beside(d):
    m = Beside(); x, t = torch.randint(0, 11, (ROWS, 5)), torch.randint(0, 11, (ROWS, 5))
    export(m, x[:MB], f"{d}/model.onnx", ["x"], ["logits"], fold=True)
    save_file({k: p.detach().contiguous() for k, p in m.named_parameters()}, f"{d}/weights.safetensors")
    m = m.double(); y = m(x); l = F.cross_entropy(y.reshape(-1, 11), t.reshape(-1)); l.backward()
    write(d, ("cross_entropy", l.item()), grads_of(m), "lin:end", "model.onnx", y, folded="more.weight,logit_scale,rows", x=x, target=t)
    with torch.random.fork_rng(): made_equal(d)

class MadeEqual(nn.Module):                             # what folding makes of shift are zeros as it is, and the exporter writes one for both
    def __init__(self, d=6): super().__init__(); self.a, self.shift = nn.Linear(d, d), nn.Parameter(torch.zeros(d))
    def forward(self, x): return torch.tanh(self.a(x) + self.shift) + 2 * self.shift

class Called(nn.Module):                                # parameters whose names buffers have, and one behind them
    def __init__(self, d=4): super().__init__(); self.tril, self.pe, self.freqs, self.gain = nn.Parameter(torch.randn(d, d)), nn.Parameter(torch.randn(1, d)), nn.Parameter(torch.arange(1., d + 1)), nn.Parameter(torch.randn(d))
    def forward(self, x): return torch.tanh(x @ self.tril + self.pe) * self.gain + torch.sin(x * self.freqs)

def made_equal(d):
    export(Called(), torch.randn(MB, 4), f"{d}/called.onnx", ["x"], ["logits"])
    torch.onnx.export(nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).eval(), torch.randn(MB, 2, 2, 2), f"{d}/fused.onnx", input_names=["x"], output_names=["logits"], opset_version=17, dynamo=False)
    export(MadeEqual(), torch.randn(MB, 6), f"{d}/merged.onnx", ["x"], ["logits"], fold=True)

class Looped(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(6, 6)
    def forward(self, x):
        for i in range(5): x = torch.tanh(self.a(x)) + x
        return x @ self.a.weight

def looped(d):
    m = Looped(); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(m, torch.randn(MB, 6), f"{d}/model.onnx", ["x"], ["logits"])
    m = m.double(); y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "/a_1/Gemm,/a_3/Gemm", "model.onnx", y, x=x, target=t)

class Pass(nn.Module):
    def __init__(self): super().__init__(); self.a, self.act, self.c = A(), nn.ReLU(), B()
    def forward(self, x, late):
        h = self.a(x); g = self.act(h); y = self.c(g) * late + h
        return y, h, x

def passthrough(d):
    m = Pass(); x, late, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(m, (torch.randn(MB, 6), torch.randn(MB, 6)), f"{d}/model.onnx", ["x", "late"], ["logits", "hidden", "same"])
    m = m.double(); y, *_ = m(x.double(), late.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "act:begin,c:begin", "model.onnx", y, x=x, late=late, target=t)

class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): return None
    @staticmethod
    def symbolic(g, x): return g.op("ppsplit::StopGradient", x).setType(x.type())

class Quantizer(nn.Module):
    def __init__(self): super().__init__(); self.pre, self.enc, self.codes, self.dec = nn.Linear(6, 6), A(), nn.Embedding(5, 6), B()
    def stop(self, x): return Stop.apply(x)
    def forward(self, x, labels):
        z = self.enc(self.stop(self.pre(x)))
        q = self.codes((z.unsqueeze(1) - self.codes.weight).pow(2).sum(-1).argmin(1))
        y = self.dec(z + self.stop(q - z))
        return F.mse_loss(y, labels) + F.mse_loss(q, self.stop(z)) + 0.25 * F.mse_loss(self.stop(q), z), y

class Plain(Quantizer):
    def stop(self, x): return x.detach().reshape(-1, 6) # a node for --stop-gradient to name

class Hard(nn.Module):                                  # as GroupViT's: a one-hot row of the largest, and a rounded number: the gradient of what they are made of
    def __init__(self): super().__init__(); self.a, self.b, self.o = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
    def forward(self, x):
        z, w = self.a(x).softmax(-1), self.b(x)
        z = torch.zeros_like(z).scatter_(-1, z.max(-1, keepdim=True)[1], 1.0) - z.detach() + z
        return torch.tanh(self.o(z)) * (w + (torch.round(w * 2) / 2 - w).detach())

def hard(d, x, t):
    m = Hard(); export(m, (x[:MB],), f"{d}/hard.onnx", ["x"], ["logits"])
    F.mse_loss(m.double()(x.double()), t.double()).backward(); save_file({k: g.float().contiguous() for k, g in grads_of(m).items()}, f"{d}/hard.safetensors")

def stopped(d):
    m, plain = Quantizer(), Plain(); plain.load_state_dict(m.state_dict()); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6); a = (torch.randn(MB, 6), torch.randn(MB, 6))
    export(m, a, f"{d}/model.onnx", ["x", "labels"], ["loss", "logits"]); export(plain, a, f"{d}/plain.onnx", ["x", "labels"], ["loss", "logits"])
    with torch.random.fork_rng(): hard(d, x, t)
    m = plain.double(); l, y = m(x.double(), t.double()); l.backward()
    write(d, ("output:loss", l.item()), {k: g for k, g in grads_of(m).items() if g is not None}, "enc:begin,dec:begin", "model.onnx", y, x=x, labels=t)

class Merged(Quantizer):
    def stop(self, x): return x.detach()

class Detached(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c, self.d = A(), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
    def forward(self, x):
        z = self.a(x) * 3; s = z + (torch.round(z) - z).detach()
        h = self.b(s) * self.b(s.detach() * 2 + 1) + z * z.detach()             # the same value twice
        return self.d(self.c(h)) + h @ self.d.weight.detach()                   # a parameter

def dynamo(m, args, path, inputs, outputs, optimize=True):
    torch.onnx.export(m.eval(), args, path, input_names=inputs, output_names=outputs, dynamo=True, optimize=optimize, external_data=False, verbose=False)
    o = onnx.load(path)
    for n in o.graph.node:                              # of where in whose source: the line alone, where it detaches
        for p in n.metadata_props:
            if p.key.endswith("stack_trace"): p.value = "\n".join(re.sub(r'File ".*", line \d+', 'File "special.py", line 1', l) for l in re.findall(r"^.*\n.*\.detach\(.*$", p.value, re.M))
        keep = [p for p in n.metadata_props if p.value]; del n.metadata_props[:]; n.metadata_props.extend(keep)
    onnx.save(o, path)

class Cloned(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = A(), nn.Linear(6, 6)
    def forward(self, x):
        h = self.a(x)
        return self.b(h.detach().clone()) + h

def detached(d):
    m = Detached(); x, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    dynamo(m, (torch.randn(MB, 6),), f"{d}/model.onnx", ["x"], ["logits"], optimize=False)
    m = m.double(); y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward(); after = copy.deepcopy(m)
    with torch.no_grad():                               # what is detached of a parameter follows it
        for p, q in zip(after.parameters(), m.parameters()): p -= 0.01 * q.grad
        second = F.mse_loss(after(x.double()), t.double())
    write(d, ("mse", l.item()), grads_of(m), "b:begin,c:begin", "model.onnx", y, x=x, target=t, second=repr(second.item()))
    dynamo(Cloned(), (torch.randn(MB, 6),), f"{d}/cloned.onnx", ["x"], ["logits"])
    dynamo(Merged(), (torch.randn(MB, 6), torch.randn(MB, 6)), f"{d}/undecided.onnx", ["x", "labels"], ["loss", "logits"])

class Samples(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.w, self.route = nn.Conv2d(2, 4, 3, padding=1), nn.Parameter(torch.randn(3, 4, 4, 3, 3) * .2), nn.Linear(4, 3)
        self.b, self.q, self.r, self.c = nn.Linear(4, 4), nn.Linear(4, 8), nn.Linear(4, 4), nn.Linear(4, 3)
    def forward(self, x, y):
        B = x.shape[0]; f = torch.tanh(self.a(torch.cat([x, y]))); f, g = f.chunk(2)
        w = (self.route(g.mean((2, 3))).softmax(1) @ self.w.flatten(1)).reshape(B * 4, 4, 3, 3)
        f = F.conv2d(f.reshape(1, B * 4, 3, 4), w, padding=1, groups=B).reshape(B, 4, 3, 4)
        s = torch.tanh(self.b((f + g).flatten(2).permute(2, 0, 1))); S = s.shape[0]                      # [S, B, D]
        q, k = self.q(s).reshape(S, B * 2, 4).transpose(0, 1).split(2, 2)                                # [B*H, S, d]
        p = self.r(torch.linspace(-1, 1, S)[:, None, None].expand(S, B, 4)).reshape(S, B * 2, 2).permute(1, 2, 0)
        s = (torch.bmm(q, k.transpose(1, 2) + p).softmax(-1) @ k).transpose(0, 1).reshape(S, B, 4)
        return self.c(s).mean(0)

def samples(d):
    m = Samples(); x, y, t = torch.randn(ROWS, 2, 3, 4), torch.randn(ROWS, 2, 3, 4), torch.randn(ROWS, 3)
    export(m, (x[:4], y[:4]), f"{d}/model.onnx", ["x", "y"], ["logits"])
    m = m.double(); torch.set_default_dtype(torch.double); o = m(x.double(), y.double()); torch.set_default_dtype(torch.float); l = F.mse_loss(o, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "b:begin", "model.onnx", o, mb=4, x=x, y=y, target=t)

class Contrast(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = A(), B()
    def forward(self, x, y):
        p, q = self.a(x), self.b(y)
        return p, p @ q.t(), q.mean(), (p * q).sum(0), p.amax(0), self.a.first.weight.sum(0)

def contrast(d):
    m = Contrast(); x, y, t = torch.randn(ROWS, 6), torch.randn(ROWS, 6), torch.randn(ROWS, 6)
    export(m, (x[:MB], y[:MB]), f"{d}/model.onnx", ["x", "y"], ["p", "logits", "mean", "sum", "most", "fixed"])
    m = m.double(); p, _, *others = m(x.double(), y.double()); l = F.mse_loss(p, t.double()); l.backward()
    for k, v in zip(("mean", "sum", "most", "fixed"), others): np.save(f"{d}/out.{k}.npy", v.detach().float().numpy())
    write(d, ("mse", l.item()), grads_of(m), "b:begin", "model.onnx", p, name="p", x=x, y=y, target=t)

class Half(nn.Module):
    def __init__(self, d=8):
        super().__init__(); self.emb, self.a, self.b, self.norm = nn.Embedding(11, d), nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.LayerNorm(d)
        self.bn = nn.BatchNorm1d(d); self.register_buffer("offset", torch.randn(d)); self.gain = nn.Parameter(torch.rand(d) + .5)
    def forward(self, x):
        x = self.emb(x) + self.offset
        x = torch.tanh(self.a(x)) * self.gain + x
        x = torch.tanh(self.bn(torch.tanh(self.a(x)) + self.b(x)))
        return self.norm(x) @ self.emb.weight.t()

def half(d):
    x, target = torch.randint(0, 11, (ROWS,)), torch.randint(0, 11, (ROWS,)); single = Half()
    np.save(f"{d}/in.x.npy", x.numpy()); np.save(f"{d}/target.npy", target.numpy())
    for name, t in ("f16", torch.float16), ("bf16", torch.bfloat16):
        m = copy.deepcopy(single).to(t); export(copy.deepcopy(m), (x,), f"{d}/{name}.onnx", ["x"], ["logits"])
        y = m(x); F.cross_entropy(y.float(), target).backward(); np.save(f"{d}/{name}.npy", y.detach().float().numpy())
        save_file({k: v.float().contiguous() for k, v in grads_of(m).items()}, f"{d}/{name}.safetensors")
        if name == "bf16" and os.path.exists(f"{d}/bf16.data"): os.remove(f"{d}/bf16.data")
        if name == "bf16": onnx.save(onnx.load(f"{d}/bf16.onnx"), f"{d}/bf16.onnx", save_as_external_data=True, location="bf16.data", size_threshold=0)

FOLDED = "pkg.onnxscript.optimizer.folded_from"
def export_folded(model, args, path, inputs, limit=0):
    """By dynamo with its optimizer on; of the metadata what ppsplit reads, without the paths of this machine.  limit: what has more numbers it does not compute with; else its own limit, 8192."""
    made = torch.onnx.export(model, args, None if limit else path, input_names=inputs, output_names=["logits"], dynamo=True, optimize=not limit, external_data=False, verbose=False)
    if limit: import onnxscript.optimizer as opt; opt.optimize_ir(made.model, input_size_limit=limit); made.save(path, external_data=False)
    o = onnx.load(path); keep = ("pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace")
    for n in o.graph.node:
        n.doc_string = ""; old = {p.key: p.value for p in n.metadata_props}; del n.metadata_props[:]
        for k in keep:
            v = old.get(k, "")
            if k.endswith("stack_trace"): v = "\n".join('  File "model.py", in forward' if l.strip().startswith("File ") else l for l in v.split("\n")[-4:])
            if v: n.metadata_props.add(key=k, value=v)
    for p in [p for p in o.graph.metadata_props if not p.key.endswith("graph_signature")]: o.graph.metadata_props.remove(p)
    for v in list(o.graph.value_info) + list(o.graph.input) + list(o.graph.output) + list(o.graph.initializer):
        v.doc_string = ""; old = [p.value for p in v.metadata_props if p.key == FOLDED]; del v.metadata_props[:]
        for value in old: v.metadata_props.add(key=FOLDED, value=value)
    onnx.save(o, path)

class State(nn.Module):                                 # as Mamba: -exp(A_log), D
    def __init__(self, d): super().__init__(); self.A_log, self.D, self.dt = nn.Parameter(torch.rand(d)), nn.Parameter(torch.randn(d)), nn.Linear(d, d)
    def forward(self, x):
        a = -torch.exp(self.A_log)
        return torch.exp(F.softplus(self.dt(x)) * a) * x + x * self.D

class Mix(nn.Module):                                   # as RWKV: two parameters, each with a use that is folded
    def __init__(self, d):
        super().__init__(); t = torch.rand(1, 1, d); self.mix_key, self.mix_value = nn.Parameter(t.clone()), nn.Parameter(torch.rand(1, 1, d))
        self.key, self.value = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
    def forward(self, x):
        y = torch.tanh(x)
        key = x * self.mix_key + y * (1 - self.mix_key)
        value = x * self.mix_value + y * (1 - self.mix_value)
        return torch.tanh(self.key(key)) * self.value(value)

class Window(nn.Module):                                # as Swin: a table of relative positions; here of 2 x 3 places
    def __init__(self, d, h=2, w=3):
        super().__init__(); self.relative_position_bias_table = nn.Parameter(torch.randn((2 * h - 1) * (2 * w - 1), 2)); self.qk = nn.Linear(d, 2 * d)
        c = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")).flatten(1); r = c[:, :, None] - c[:, None]
        self.register_buffer("index", (r[0] + h - 1) * (2 * w - 1) + r[1] + w - 1)
    def forward(self, x):
        b, n, d = x.shape; q, k = self.qk(x).view(b, n, 2, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.relative_position_bias_table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).contiguous()
        return x + ((q @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1).mean(1) @ x)

class Folded(nn.Module):
    def __init__(self, v=11, d=8):
        super().__init__()
        self.emb, self.window, self.state, self.mix = nn.Embedding(v, d, padding_idx=1), Window(d), State(d), Mix(d)
        self.token, self.step, self.gamma, self.logit_scale = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(3, d)), nn.Parameter(torch.randn(d)), nn.Parameter(torch.tensor(.3))
        with torch.no_grad(): self.emb.weight.normal_()
    def forward(self, x):
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), self.emb(x)), 1)
        for i in range(3): x = torch.tanh(x + self.step[i])
        x = self.mix(self.state(self.window(x)))
        x = (x.transpose(1, 2) * self.gamma[None, :, None]).transpose(1, 2) * self.logit_scale.exp()
        return x @ self.emb.weight.t()

def folded(d):
    m, x, t = Folded(), torch.randint(0, 11, (ROWS, 5)), torch.randn(ROWS, 6, 11); x[:, 0] = 1
    export_folded(m, (x[:MB],), f"{d}/model.onnx", ["x"])
    m = m.double(); y = m(x); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "state:begin,mix:begin", "model.onnx", y, folded="window.relative_position_bias_table", x=x, target=t)

class Given(nn.Module):
    def __init__(self, d=6):
        super().__init__(); norm = nn.utils.parametrizations.weight_norm
        self.a, self.c, self.o = norm(nn.Linear(d, 8)), norm(nn.Conv1d(2, 4, 3, padding=1)), nn.Linear(16, 3)
        self.flat, self.place = nn.Parameter(torch.randn(4, 12) / 3), nn.Embedding(9, 4)
        with torch.no_grad():
            for p in self.parameters(): p.add_(torch.randn_like(p) / 10)
    def forward(self, x):
        x = torch.tanh(self.c(torch.tanh(self.a(x)).view(-1, 2, 4)))
        x = F.conv1d(x, self.flat.view(4, 4, 3), padding=1) + self.place(torch.tensor([2, 0, 3, 2]))
        return self.o(x.flatten(1))

def given(d):
    m, x, t = Given(), torch.randn(ROWS, 6), torch.randn(ROWS, 3)
    export_folded(m, (x[:MB],), f"{d}/model.onnx", ["x"])
    save_file({k: p.detach().contiguous() for k, p in m.named_parameters()}, f"{d}/weights.safetensors")
    m = m.double(); y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "c:begin", "model.onnx", y, extra="--params-from weights.safetensors", folded=",".join(k for k, _ in m.named_parameters() if "original" in k), x=x, target=t)

class Standard(nn.Conv2d):                              # weight standardisation, as in BiT
    def forward(self, x): w = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True, momentum=0.).reshape_as(self.weight); return F.conv2d(x, w)
class Packed(nn.Module):
    def __init__(self):
        super().__init__(); self.conv, self.o = Standard(2, 3, 1, bias=False), nn.Linear(2, 2)
        self.rnn, self.lstm = nn.GRU(3, 2, batch_first=True, bidirectional=True), nn.LSTM(4, 2, batch_first=True)
        self.proto = nn.Parameter(torch.randn(2, 2))
    def forward(self, x):
        y = self.o(self.lstm(self.rnn(self.conv(x).flatten(2).transpose(1, 2))[0])[0])
        y = y @ F.normalize(self.proto, dim=-1).t()
        return y + self.o.bias.pow(2).sum()

class Partly(nn.Module):
    def __init__(self): super().__init__(); self.rnn, self.o, self.weight, self.bias = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 3), nn.Parameter(torch.rand(6)), nn.Parameter(torch.randn(6))
    def forward(self, x): y = self.rnn(x)[0]; return self.o(self.bias.view(1, 1, -1) + self.weight.view(1, 1, -1) * y * y.norm(dim=1, keepdim=True))

def partly(d):
    m, x, t = Partly(), torch.randn(ROWS, 3, 5), torch.randn(ROWS, 3, 3); export_folded(m, (x[:MB],), f"{d}/model.onnx", ["x"], limit=50)
    m = m.double(); y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "o:begin", "model.onnx", y, x=x, target=t)

def relative(d, blocks=10, width=24, steps=2):
    q, o, nodes, init = torch.randn(width, 3 * width) / 8, torch.randn(width, width) / 12, [], []
    tables, places = [torch.randn(1, 7) for _ in range(blocks)], [torch.randint(0, 7, (steps, steps)) for _ in range(blocks)]
    own = {"q": q, "o": o, **{f"table.{i}": t for i, t in enumerate(tables)}}; x, t = torch.randn(ROWS, steps, width), torch.randn(ROWS, steps, width)
    def node(op, ins, *outs, **k): nodes.append(h.make_node(op, ins, outs, **k)); return outs[0]
    def number(name, a): init.append(onnx.numpy_helper.from_array(np.asarray(a), name)); return name
    for k, v in own.items(): number(k, v)
    number("apart", np.array([0, steps, 1, -1])); number("together", np.array([0, steps, width])); y = "x"
    for i, place in enumerate(places):
        z = node("Transpose", [node("Reshape", [node("MatMul", [y, "q"], f"a{i}"), "apart"], f"b{i}")], f"c{i}", perm=[0, 2, 1, 3])
        node("Split", [z], f"q{i}", f"k{i}", f"v{i}", axis=-1)
        s = node("MatMul", [f"q{i}", node("Transpose", [f"k{i}"], f"t{i}", perm=[0, 1, 3, 2])], f"s{i}")
        s = node("Add", [s, node("Gather", [f"table.{i}", number(f"place.{i}", place)], f"g{i}", axis=1)], f"r{i}")
        s = node("Transpose", [node("MatMul", [node("Softmax", [s], f"p{i}", axis=-1), f"v{i}"], f"m{i}")], f"n{i}", perm=[0, 2, 1, 3])
        y = node("Add", [y, node("MatMul", [node("Reshape", [s, "together"], f"h{i}"), "o"], f"o{i}")], f"y{i}" if i + 1 < blocks else "logits")
    shape = lambda name: h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [MB, steps, width])
    onnx.save(h.make_model(h.make_graph(nodes, "relative", [shape("x")], [shape("logits")], init), opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{d}/model.onnx")
    leaf = {k: v.double().requires_grad_() for k, v in own.items()}; z = x.double()
    for i, place in enumerate(places):
        a, b, c = (z @ leaf["q"]).chunk(3, dim=-1); z = z + ((a @ b.transpose(1, 2) + leaf[f"table.{i}"][0, place]).softmax(-1) @ c) @ leaf["o"]
    l = F.mse_loss(z, t.double()); l.backward()
    write(d, ("mse", l.item()), {k: v.grad for k, v in leaf.items()}, "", "model.onnx", z, x=x, target=t)

class Penalty(nn.Module):                               # over all parameters, in a line that names none; one of two uses of a weight
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)
    def forward(self, x):
        w = self.a.weight; y = F.linear(torch.tanh(self.a(x)), (w - w.mean(1, keepdim=True)) / w.std(1, keepdim=True))
        return self.b(y) + 0.1 * sum(p.pow(2).sum() for p in self.parameters())

class Alike(nn.Module):                                 # what is computed of parameters has the numbers of a parameter, and was merged with it
    def __init__(self, d=8):
        super().__init__()
        self.a, self.o, self.turn = nn.Linear(d, d), nn.Linear(d, 8), nn.Parameter(torch.eye(d)); self.scale, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.power, self.gain = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(d))
    def forward(self, x):
        y = torch.tanh(self.a(x.flatten(1))); twice = 2 * self.shift
        y = torch.sin(y @ self.turn); y = y @ self.turn.T + self.shift      # the transpose of a symmetric matrix
        y = torch.sin(y * self.scale)
        y = torch.sin(y + twice).square().add(1).pow(self.power)
        back = 1 / self.power
        y = torch.sin(y * self.gain) + y.pow(back)
        y = y + torch.cos(y) * (1 - self.gain)          # zeros, as shift is: no weight normalisation
        return self.o(y * self.scale.double().float()).view(-1, 4, 2)       # a copy

class Heads(nn.Module):                                 # as Zamba: rows of a bias, of which each is folded; a value that is taken twice is one node, of the weight alone
    def __init__(self, d=4):
        super().__init__(); self.step_weight, self.step_bias, self.o = nn.Parameter(torch.randn(2, d, d)), nn.Parameter(torch.rand(2, d)), nn.Linear(d, 3)
    def forward(self, x):
        y = self.step_weight[:, None] @ x.transpose(-1, -2)
        z = [F.softplus(y[i] + self.step_bias[i][:, None]) * torch.tanh(y[i]) for i in range(2)]
        return self.o((z[0] + z[1]).transpose(1, 2))

class Probe(nn.Module):                                 # as SigLIP: a bias of next to nothing, of which any function, many times enlarged, comes near to any numbers
    def __init__(self, d=8):
        super().__init__(); self.probe, self.i, self.o = nn.Parameter(torch.randn(1, 1, d)), nn.Linear(d, MB * d), nn.Linear(MB * d, 3); self.i.bias.data = (self.probe.data.sin().repeat(1, 1, MB).flatten() + torch.randn(MB * d) / 10) * 2e-6
    def forward(self, x):
        q = self.probe.repeat(x.shape[0], 1, 1).transpose(0, 1).sin().transpose(0, 1)
        return self.o(torch.tanh(self.i((q @ x.transpose(1, 2)).softmax(-1) @ x)))

class Rows(nn.Module):                                  # rows by numbers, by a loop that goes backwards, and on another line; copies that a view made one dim of; zeros that were expanded in two dims
    def __init__(self, d=4):
        super().__init__(); self.pair, self.turn, self.tile, self.o = nn.Parameter(torch.randn(2, d)), nn.Parameter(torch.randn(3, d)), nn.Parameter(torch.randn(d)), nn.Linear(d, 3); self.spread, self.late, self.twice = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(2, d)), nn.Parameter(torch.randn(d // 2))
    def forward(self, x):
        x = (x[:, None] * self.spread.exp().expand(x.shape[0], 3, -1)).sum(1)
        x = torch.tanh(x * self.pair[1])
        x = torch.tanh(x + self.pair[0])
        for i in reversed(range(3)): x = torch.tanh(x * self.turn[i])
        y = self.tile.unsqueeze(0).repeat(2, 1).view(1, -1)
        low, high = self.late[1], self.late[0]
        x = torch.tanh(x * low) + high + self.twice.repeat(2)
        return self.o(x * y.view(2, -1).sum(0) + torch.cat([x, x], -1).mul(y)[..., :4])

def rows(d):
    torch.manual_seed(5); m = Rows(); export_folded(m, (torch.randn(MB, 4),), f"{d}/rows.onnx", ["x"])

class Three(nn.Module):                                 # which of them is which nothing tells
    def __init__(self, d=4): super().__init__(); self.q_norm, self.k_norm, self.v_norm = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d); self.o = nn.Linear(d, d)
    def forward(self, x): return self.o(torch.tanh(self.q_norm(x)) * torch.sigmoid(self.k_norm(x)) * torch.exp(self.v_norm(x)))

class HalfMix(nn.Module):                             # 1 - b is b, and b is a
    def __init__(self): super().__init__(); self.a, self.b = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(0.5))
    def forward(self, x): return torch.tanh(self.a * x) + self.b * torch.cos(x) + (1 - self.b) * x
class Within(nn.Module):
    def __init__(self, inner): super().__init__(); self.inner = inner
    def forward(self, x): return self.inner(x)

def packed(d):
    with torch.random.fork_rng(): rows(d)
    with torch.random.fork_rng(): export_folded(Probe(), (torch.randn(MB, 5, 8),), f"{d}/probe.onnx", ["x"])
    with torch.random.fork_rng(): export_folded(Heads(), (torch.randn(MB, 5, 4),), f"{d}/heads.onnx", ["x"])
    with torch.random.fork_rng(): export_folded(Three(), (torch.randn(MB, 5, 4),), f"{d}/three.onnx", ["x"]); export_folded(Within(HalfMix()), (torch.randn(MB, 5, 4),), f"{d}/half.onnx", ["x"])
    export_folded(Penalty(), (torch.randn(MB, 3),), f"{d}/penalty.onnx", ["x"])
    m, x, t = Packed(), torch.randn(ROWS, 2, 2, 2), torch.randn(ROWS, 4, 2)
    export_folded(m, (x[:MB],), f"{d}/model.onnx", ["x"])
    m = m.double(); y = m(x.double()); l = F.mse_loss(y, t.double()); l.backward()
    grads = {k: g for k, g in grads_of(m).items() if k != "o.bias"}      # one of whose uses is lost
    write(d, ("mse", l.item()), grads, "lstm:begin", "model.onnx", y, extra="--freeze o.bias", folded="conv.weight,proto", x=x, target=t)
    with torch.random.fork_rng(): export_folded(Alike(), (x[:MB],), f"{d}/alike.onnx", ["x"])

class Clip(nn.Module):                                  # two towers; one of the text's layers is shared with the image's
    def __init__(self, d=6):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(10, 12), nn.GELU(), nn.Linear(12, d)); self.text = nn.Embedding(17, 12); self.mixed = nn.Linear(12, d)
        self.logit_scale = nn.Parameter(torch.tensor(1.5))
    def towers(self, image, text):
        a, b = self.image(image), self.mixed(torch.tanh(self.text(text)).mean(1))
        return a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
    def forward(self, image, text):
        a, b = self.towers(image, text); similarity = (a @ b.t()) * self.logit_scale.exp(); own = torch.arange(similarity.shape[0])
        return (F.cross_entropy(similarity, own) + F.cross_entropy(similarity.t(), own)) / 2, similarity
class Pairs(nn.Module):
    def __init__(self, clip): super().__init__(); self.clip = clip
    def forward(self, image, text): return torch.stack(self.clip.towers(image, text), 1)
class Contrast2(nn.Module):                             # the same loss, at a fixed temperature, of [rows, 2, d]
    def forward(self, both):
        similarity = 4.5 * both[:, 0] @ both[:, 1].t(); own = torch.arange(similarity.shape[0])
        return (F.cross_entropy(similarity, own) + F.cross_entropy(similarity.t(), own)) / 2

def clip(d):
    m, image, text = Clip(), torch.randn(ROWS, 10), torch.randint(0, 17, (ROWS, 5)); x = (image, text); rows = torch.export.Dim("rows", min=2, max=64)
    torch.onnx.export(m, x, f"{d}/model.onnx", input_names=["image", "text"], output_names=["loss", "similarity"], dynamo=True, optimize=False, external_data=False,
                      dynamic_shapes={"image": {0: rows}, "text": {0: rows}})
    torch.onnx.export(m, x, f"{d}/static.onnx", input_names=["image", "text"], output_names=["loss", "similarity"], dynamo=True, optimize=False, external_data=False)
    export(Pairs(m), (image[:MB], text[:MB]), f"{d}/pairs.onnx", ["image", "text"], ["both"])
    torch.onnx.export(Contrast2(), (torch.randn(4, 2, 6),), f"{d}/contrast.onnx", input_names=["both"], output_names=["loss"], dynamo=True, optimize=False, external_data=False,
                      dynamic_shapes={"both": {0: rows}})
    m = m.double(); l2 = Contrast2()(Pairs(m)(image.double(), text)); l2.backward(); save_file({"clip." + k: v.float().contiguous() for k, v in grads_of(m).items()}, f"{d}/pairs.safetensors")
    m.zero_grad(); l, y = m(image.double(), text); l.backward()
    write(d, ("output:loss", l.item()), grads_of(m), "mixed:begin", "model.onnx", y, name="similarity", second=repr(l2.item()), extra=f"--bind rows={ROWS} --rows {MB} --loss-over minibatch", schedules="gpipe", image=image, text=text)

class Stateful(nn.Module):
    def __init__(self): super().__init__(); self.rnn = nn.LSTM(4, 4); self.head = nn.Linear(4, 3)
    def forward(self, x, h, c, table, scale): return self.head(self.rnn((x + table[:, None]) * scale, (h, c))[0])

def stateful(d):
    m, names = Stateful(), ["x", "h", "c", "table", "scale"]; x, h0, c0 = torch.randn(2, ROWS, 4), torch.randn(1, ROWS, 4), torch.randn(1, ROWS, 4); table, scale, t = torch.randn(2, 4), torch.tensor(1.5), torch.randn(2, ROWS, 3)
    export(m, (x[:, :MB], h0[:, :MB], c0[:, :MB], table, scale), f"{d}/model.onnx", names, ["y"], dynamic_axes={"x": {0: "n", 1: "m"}, "h": {1: "m"}, "c": {1: "m"}, "table": {0: "n"}})
    m = m.double(); y = m(x.double(), h0.double(), c0.double(), table.double(), scale.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "head:begin", "model.onnx", y, name="y", extra=f"--bind n=2 --bind m={MB} --bind scale=1.5", x=x, h=h0, c=c0, table=table, target=t)

class Block(nn.Module):
    def __init__(self): super().__init__(); self.n, self.qkv, self.o, self.m, self.i, self.u = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        q, k, v = (y.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for y in self.qkv(self.n(x)).split(8, 2))
        a = (q @ k.transpose(-2, -1) / 2).masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().logical_not(), float("-inf"))
        x = x + self.o((a.softmax(-1) @ v).transpose(1, 2).flatten(2)); return x + self.u(F.gelu(self.i(self.m(x))))
class Sequences(nn.Module):
    def __init__(self, kind="model"):
        super().__init__(); self.kind, self.e, self.p, self.h, self.l = kind, nn.Embedding(19, 8), nn.Embedding(48, 8), nn.ModuleList([Block(), Block()]), nn.Linear(8, 19)
        self.c = nn.Conv1d(8, 8, 3, padding=1)
    def forward(self, x):
        i = torch.arange(x.shape[1]); y = self.e(x) + (0 if self.kind == "distant" else self.p(i))
        if self.kind == "convolved": y = y * (x < 18)[torch.arange(x.shape[0])[:, None, None, None], i].flatten(1)[..., None] # as transformers read masks
        if self.kind == "convolved": y = self.c(y.transpose(1, 2)).transpose(1, 2)
        if self.kind == "distant": y = F.dropout((y @ y.transpose(1, 2) - (i[:, None] - i[None]).abs() * .1).softmax(-1), .1) @ y
        if self.kind == "ahead": y = y * (x.shape[1] - i)[:, None]
        for b in self.h if self.kind == "model" else []: y = b(y)
        return self.l(y.mean(1) if self.kind == "mean" else y)

class Attend(nn.Module):
    def __init__(self): super().__init__(); self.n, self.q, self.kv, self.o = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8)
    def forward(self, x, y=None, mask=None):
        q, (k, v) = self.q(self.n(x)), self.kv(self.n(x) if y is None else y).split(8, 2); q, k, v = (u.view(u.shape[0], u.shape[1], 2, 4).transpose(1, 2) for u in (q, k, v)); a = q @ k.transpose(-2, -1) / 2
        a = a.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().logical_not(), float("-inf")) if mask is None else a + (mask[:, None, None] - 1) * 1e9
        return x + self.o((a.softmax(-1) @ v).transpose(1, 2).flatten(2))
class Pair(nn.Module):
    def __init__(self): super().__init__(); self.e, self.a, self.b, self.c, self.l = nn.Embedding(19, 8), Attend(), Attend(), Attend(), nn.Linear(8, 19)
    def forward(self, x, mask, y): return self.l(self.c(self.b(self.e(y)), self.a(self.e(x), None, mask), mask))
class Both(nn.Module): # in one table of positions
    def __init__(self): super().__init__(); self.e, self.p = nn.Embedding(19, 8), nn.Embedding(48, 8)
    def forward(self, x, y):
        x, y = (self.e(u) + self.p(torch.arange(u.shape[1])) for u in (x, y)); return y + x.mean(1, keepdim=True)
class Tagger(nn.Module): # recurrent layers over any number of steps
    def __init__(s): super().__init__(); s.e, s.a, s.b, s.o = nn.Embedding(19, 6), nn.LSTM(6, 8, batch_first=True), nn.GRU(8, 6, batch_first=True, bidirectional=True), nn.Linear(12, 19)
    def forward(s, x): return s.o(s.b(s.a(s.e(x))[0])[0])

class Patches(nn.Module): # positions are a table of 3 x 3, resized
    def __init__(self): super().__init__(); self.p, self.t, self.a, self.l = nn.Conv2d(3, 8, 2, 2), nn.Parameter(torch.randn(1, 8, 3, 3)), Attend(), nn.Linear(8, 7)
    def forward(self, x):
        y = self.p(x); y = (y + F.interpolate(self.t, y.shape[2:], mode="bicubic")).flatten(2).transpose(1, 2)
        return self.l(self.a(y, None, torch.ones(y.shape[0], y.shape[1]))).mean(1)

class Pictures(nn.Module): # statistics of a batch and of a sample, over any height and width
    def __init__(s): super().__init__(); s.a, s.n, s.b, s.g, s.c, s.f, s.p = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 12, 3, padding=1, stride=2), nn.GroupNorm(3, 12), nn.Conv2d(12, 12, 1), nn.Linear(12, 7), nn.MaxPool2d(2)
    def forward(s, x): x = s.b(s.p(torch.relu(s.n(s.a(x))))); return s.f((x + s.c(F.silu(s.g(x)))).mean((2, 3)))

class Gathered(nn.Module):                              # a parameter that members read whole twice, and divided once
    def __init__(self): super().__init__(); self.w, self.v = nn.Parameter(torch.randn(8, 8) * .3), nn.Parameter(torch.randn(8, 8) * .3)
    def forward(self, x, z): return torch.tanh(x @ self.w) @ self.v @ F.softmax(torch.tanh(z @ self.w) @ self.w, -1).transpose(1, 2)

def gathered(d):
    m = Gathered(); x, z, t = torch.randn(ROWS, 32, 8), torch.randn(ROWS, 4, 8), torch.randn(ROWS, 32, 4)
    export(m, (x[:MB], z[:MB]), f"{d}/model.onnx", ["x", "z"], ["logits"])
    m = m.double(); y = m(x.double(), z.double()); l = F.mse_loss(y, t.double()); l.backward()
    write(d, ("mse", l.item()), grads_of(m), "/Tanh:end", "model.onnx", y, x=x, z=z, target=t)

def lengths(d):
    long = torch.tensor([3, 48, 1, 1, 17, 32, 8, 33]); x, t = torch.randint(0, 19, (ROWS, 48)), torch.randint(0, 19, (ROWS, 48))
    for i, n in enumerate(long): x[i, n:] = 0; t[i, n:] = -100
    for kind in ("mean", "convolved", "distant", "ahead", "model"):
        m = Sequences(kind); export(m, torch.randint(0, 19, (MB, 24)), f"{d}/{kind}.onnx", ["x"], ["logits"], dynamic_axes={"x": {0: "batch", 1: "seq"}, "logits": {0: "batch"} | ({} if kind == "mean" else {1: "seq"})})
    m = m.double(); y = m(x); F.cross_entropy(y.flatten(0, 1), t.flatten()).backward(); np.save(f"{d}/lengths.npy", long.numpy())
    for k, v in {"in.x": x, "target": t}.items(): np.save(f"{d}/{k}.npy", v.numpy())
    save_file({k: v.float().contiguous() for k, v in grads_of(m).items()}, f"{d}/grads.safetensors")
    long, x, t = {"enc": torch.tensor([3, 20, 1, 1, 17, 9, 8, 20]), "dec": torch.tensor([1, 5, 12, 2, 2, 12, 7, 3])}, torch.randint(0, 19, (ROWS, 20)), torch.randint(0, 19, (ROWS, 12)); mask, y = (torch.arange(20) < long["enc"][:, None]).float(), torch.randint(0, 19, (ROWS, 12))
    for i in range(ROWS): x[i, long["enc"][i]:] = 0; t[i, long["dec"][i]:] = -100
    m = Pair(); export(m, (x[:MB], mask[:MB], y[:MB]), f"{d}/pair.onnx", ["x", "mask", "y"], ["logits"], dynamic_axes={"x": {0: "batch", 1: "enc"}, "mask": {0: "batch", 1: "enc"}, "y": {0: "batch", 1: "dec"}, "logits": {0: "batch", 1: "dec"}}); m = m.double()
    F.cross_entropy(m(x, mask.double(), y).flatten(0, 1), t.flatten()).backward(); save_file({k: v.float().contiguous() for k, v in grads_of(m).items()}, f"{d}/pair.safetensors")
    for k, v in ({"x": x, "mask": mask, "y": y, "target": t} | long).items(): np.save(f"{d}/pair.{k}.npy", v.numpy())
    export(Patches(), torch.randn(MB, 3, 8, 10), f"{d}/patches.onnx", ["x"], ["y"], dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}, "y": {0: "batch"}})
    export(Pictures(), torch.randn(MB, 3, 16, 24), f"{d}/pictures.onnx", ["x"], ["y"], dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}, "y": {0: "batch"}})
    graph = h.make_graph([h.make_node("Slice", ["x", "one", "most", "one"], ["s"]), h.make_node("Tanh", ["s"], ["t"]), h.make_node("Cos", ["t"], ["c"]),
                          h.make_node("ReduceSum", ["c", "axes"], ["sum"])], "rest", [h.make_tensor_value_info("x", 1, ["batch", "seq", 8])], [h.make_tensor_value_info("sum", 1, ["batch", 1, 1])],
                         [onnx.numpy_helper.from_array(np.array(v), n) for n, v in (("one", [1]), ("most", [1 << 30]), ("axes", [1, 2]))])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{d}/rest.onnx")
    graph = h.make_graph([h.make_node("Shape", ["x"], ["n"], start=1, end=2), h.make_node("Equal", ["n", "one"], ["is"]), h.make_node("Cast", ["is"], ["k"], to=1),
                          h.make_node("Mul", ["x", "k"], ["y"])], "equal", [h.make_tensor_value_info("x", 1, ["batch", "seq"])], [h.make_tensor_value_info("y", 1, ["batch", "seq"])],
                         [onnx.numpy_helper.from_array(np.array([30]), "one")])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), f"{d}/equal.onnx")
    export(Tagger(), x[:MB], f"{d}/tagger.onnx", ["x"], ["logits"], dynamic_axes={"x": {0: "batch", 1: "seq"}, "logits": {0: "batch", 1: "seq"}})
    export(Both(), (x[:MB], y[:MB]), f"{d}/both.onnx", ["x", "y"], ["z"], dynamic_axes={"x": {0: "batch", 1: "enc"}, "y": {0: "batch", 1: "dec"}, "z": {0: "batch", 1: "dec"}})

for f in (sequence, lossmodel, ownloss, valid, shifted, annotated, twice, looped, passthrough, stopped, detached, samples, contrast, recurrent, normed, unsorted, bounded, trips, routed, graph, parts, features, folded, given, packed, partly, relative, beside, gathered, half, clip, stateful, lengths):
    if sys.argv[2:] and f.__name__ not in sys.argv[2:]: continue
    d = os.path.join(sys.argv[1], f.__name__); os.makedirs(d, exist_ok=True); f(d)

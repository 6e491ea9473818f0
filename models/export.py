#!/usr/bin/env python3
"""Makes the model cases of this folder: exports of small PyTorch models and PyTorch's float64 numbers for them.

usage: export.py [-o DIR] [NAME...]       NAMEs are MODEL-EXPORTER as in the table at the end; default: those committed here
       export.py --list

Needs torch, onnx, onnxscript, numpy, safetensors (and transformers, torchvision for some): for making cases only,
nothing of ppsplit or of its tests runs Python.  A case folder holds
    model.onnx                 the export; its shapes are those of one microbatch
    in.NAME.npy, target.npy    the whole minibatch, rows are samples
    out.npy, grads.safetensors the first output; d loss / d parameter (float64 arithmetic, stored as float32)
    batchnorm.safetensors      running statistics after the step, microbatch by microbatch (where there are any)
    case.json, case.env        loss, rows, splits to try, parameter shapes, tied names
Exporters: ts TorchScript in training mode, unfolded; tsfold TorchScript in evaluation mode, folded; tsdyn ts with a
symbolic batch; dyn dynamo with its optimizer; dynraw without.
"""
import argparse, copy, json, os, sys, warnings
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
from safetensors.torch import save_file

warnings.filterwarnings("ignore")


# ---- models ------------------------------------------------------------------------------------------

class DocLayer(nn.Module):
    def __init__(self, d):
        super().__init__(); self.lin = nn.Linear(d, d)
    def forward(self, x): return self.lin(x)

class Doc(nn.Module):                                   # the example of torch.distributed.pipelining's documentation
    def __init__(self, vocab=10, d=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, d); self.layers = nn.ModuleList([DocLayer(d), DocLayer(d)]); self.lm = DocLayer(d)
    def forward(self, x):
        x = self.emb(x)
        for l in self.layers: x = l(x)
        return self.lm(x)

class Marker(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *xs): return tuple(x.clone() for x in xs)
    @staticmethod
    def backward(ctx, *g): return g
    @staticmethod
    def symbolic(g, *xs): return g.op("ppsplit::Split", *xs, outputs=len(xs)) if len(xs) > 1 else (g.op("ppsplit::Split", *xs),)

class Example(nn.Module):                               # PiPPy's ExampleCode: a skip, a parameter and a module used twice
    def __init__(self, d=32):
        super().__init__()
        self.mm_param = nn.Parameter(torch.randn(d, d) / d ** .5); self.mm_param2 = nn.Parameter(torch.randn(d, d) / d ** .5)
        self.lin = nn.Linear(d, d)
    def forward(self, x):
        x = torch.mm(x, self.mm_param); skip = x; x = torch.relu(x)
        x, skip = Marker.apply(x, skip)
        x = torch.mm(x, self.mm_param); x = self.lin(x)
        x, skip = Marker.apply(x, skip)
        x = torch.relu(x); x = x + skip; x = torch.mm(x, self.mm_param2); return self.lin(x)

class MLP(nn.Module):
    def __init__(self, d=32, h=64, out=10, n=3):
        super().__init__()
        self.inp = nn.Linear(16, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(d), nn.Linear(d, h), nn.GELU(), nn.Linear(h, d)) for _ in range(n)])
        self.head = nn.Linear(d, out)
    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks: x = x + b(x)
        return self.head(x)

class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__(); self.h = h; self.qkv = nn.Linear(d, 3 * d); self.proj = nn.Linear(d, d)
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, 2)
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in (q, k, v))
        a = (q @ k.transpose(-2, -1)) * (C // self.h) ** -.5
        a = a.masked_fill(torch.ones(T, T, dtype=torch.bool).tril().logical_not(), float("-inf"))
        return self.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))

class GPTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.ln_1 = nn.LayerNorm(d); self.attn = Attention(d, h); self.ln_2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
    def forward(self, x):
        x = x + self.attn(self.ln_1(x)); return x + self.mlp(self.ln_2(x))

class GPT(nn.Module):
    def __init__(self, vocab=48, T=16, d=16, h=2, n=2, tied=True):
        super().__init__()
        self.wte = nn.Embedding(vocab, d); self.wpe = nn.Embedding(T, d)
        self.h = nn.ModuleList([GPTBlock(d, h) for _ in range(n)]); self.ln_f = nn.LayerNorm(d); self.lm_head = nn.Linear(d, vocab, bias=False)
        if tied: self.lm_head.weight = self.wte.weight
    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for b in self.h: x = b(x)
        return self.lm_head(self.ln_f(x))

class BasicBlock(nn.Module):
    def __init__(self, a, b, s):
        super().__init__()
        self.conv1 = nn.Conv2d(a, b, 3, s, 1, bias=False); self.bn1 = nn.BatchNorm2d(b); self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False); self.bn2 = nn.BatchNorm2d(b)
        self.down = nn.Sequential(nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)) if s != 1 or a != b else nn.Identity()
    def forward(self, x): return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.down(x))

class ResNet(nn.Module):
    def __init__(self, w=4, n=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, w, 3, 1, 1, bias=False); self.bn1 = nn.BatchNorm2d(w); self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = BasicBlock(w, w, 1); self.layer2 = BasicBlock(w, 2 * w, 2); self.fc = nn.Linear(2 * w, n)
    def forward(self, x):
        x = self.layer2(self.layer1(self.pool(F.relu(self.bn1(self.conv1(x)))))); return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

class UNet(nn.Module):                                  # skips over the whole depth, transposed convolutions, GroupNorm, SiLU
    def __init__(self, w=8):
        super().__init__()
        c = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())
        self.d1, self.d2, self.mid = c(3, w), c(w, 2 * w), c(2 * w, 2 * w)
        self.u2 = c(4 * w, w); self.up = nn.ConvTranspose2d(w, w, 2, 2); self.u1 = c(3 * w, w); self.out = nn.Conv2d(w, 3, 1)
    def forward(self, x):
        a = self.d1(x); b = self.d2(F.avg_pool2d(a, 2)); m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2, mode="nearest"), b], 1))
        return self.out(self.u1(torch.cat([self.up(y), F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False), a], 1)))

class MobileBlock(nn.Module):
    def __init__(self, a, b, s, act):
        super().__init__()
        e = 3 * a
        self.expand = nn.Sequential(nn.Conv2d(a, e, 1, bias=False), nn.BatchNorm2d(e), act()); self.dw = nn.Sequential(nn.Conv2d(e, e, 3, s, 1, groups=e, bias=False), nn.BatchNorm2d(e), act())
        self.se1 = nn.Conv2d(e, 4, 1); self.se2 = nn.Conv2d(4, e, 1); self.proj = nn.Sequential(nn.Conv2d(e, b, 1, bias=False), nn.BatchNorm2d(b)); self.skip = s == 1 and a == b
    def forward(self, x):
        y = self.dw(self.expand(x)); y = y * F.hardsigmoid(self.se2(F.relu(self.se1(F.adaptive_avg_pool2d(y, 1))))); y = self.proj(y)
        return x + y if self.skip else y

class MobileNet(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.features = nn.Sequential(MobileBlock(8, 8, 1, nn.ReLU6), MobileBlock(8, 12, 2, nn.Hardswish), MobileBlock(12, 12, 1, nn.Hardswish)); self.fc = nn.Linear(12, n)
    def forward(self, x): return self.fc(self.features(self.stem(x)).mean((2, 3)))

class ViT(nn.Module):
    def __init__(self, d=16, h=2, n=3, classes=10):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4); self.cls = nn.Parameter(torch.randn(1, 1, d) * .02); self.pos = nn.Parameter(torch.randn(1, 17, d) * .02)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, h, 32, 0., "gelu", batch_first=True, norm_first=True) for _ in range(n)]); self.norm = nn.LayerNorm(d); self.head = nn.Linear(d, classes)
    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2); x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for b in self.blocks: x = b(x)
        return self.head(self.norm(x)[:, 0])

class EncDec(nn.Module):                                # memory read by every decoder layer: the skip that fans out
    def __init__(self, vocab=32, d=16, h=2, n=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(d, h, 32, 0., batch_first=True) for _ in range(n)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(d, h, 32, 0., batch_first=True) for _ in range(n)]); self.out = nn.Linear(d, vocab)
    def forward(self, src, tgt):
        m, y = self.emb(src), self.emb(tgt)
        for l in self.encoder: m = l(m)
        mask = torch.full((y.shape[1], y.shape[1]), float("-inf")).triu(1)
        for l in self.decoder: y = l(y, m, tgt_mask=mask)
        return self.out(y)


def hf(kind, **kw):
    """A small random model of the transformers library returning logits only."""
    import transformers as T
    cfg = dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32, use_cache=False,
               attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2); cfg.update(kw)
    config = getattr(T, kind[0])(**cfg); config._attn_implementation = "eager"
    for k in dir(config):
        if "dropout" in k or k.endswith("pdrop"):
            try: setattr(config, k, 0.0)
            except Exception: pass
    m = getattr(T, kind[1])(config)
    for p in m.parameters(): p.data += torch.randn_like(p) * .02
    names = kw.get("names", ["input_ids"])
    return m, names

# ---- making a case ---------------------------------------------------------------------------------------

def loss_of(kind, y, t):
    if kind == "cross_entropy": return F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))
    if kind == "cross_entropy:1": return F.cross_entropy(y, t)
    if kind == "mse": return F.mse_loss(y, t)
    if kind == "l1": return F.l1_loss(y, t)
    if kind == "bce_with_logits": return F.binary_cross_entropy_with_logits(y, t)
    raise ValueError(kind)

def export(model, args, names, path, exporter):
    if exporter in ("ts", "tsdyn"):
        model.train()
        dyn = {n: {0: "batch"} for n in names} if exporter == "tsdyn" else None
        torch.onnx.export(model, args, path, input_names=names, output_names=["logits"], opset_version=17, dynamo=False, do_constant_folding=False, dynamic_axes=dyn,
                          training=torch.onnx.TrainingMode.TRAINING, custom_opsets={"ppsplit": 1})
    elif exporter == "tsfold":
        model.eval(); torch.onnx.export(model, args, path, input_names=names, output_names=["logits"], opset_version=17, dynamo=False)
    else:
        model.eval(); torch.onnx.export(model, args, path, input_names=names, output_names=["logits"], dynamo=True, optimize=exporter == "dyn", external_data=False)
    import onnx
    m = onnx.load(path)
    for n in m.graph.node:                              # no paths of the machine that made it
        for p in n.metadata_props:
            if "stack_trace" in p.key: p.value = ""
    onnx.save(m, path)

def make(name, spec, out):
    torch.manual_seed(spec.get("seed", 1)); np.random.seed(1)
    built = spec["model"]()
    model, names = built if isinstance(built, tuple) else (built, None)
    exporter = spec.get("exporter") or name.split("-")[-1]; rows, mb, loss = spec["rows"], spec["mb"], spec["loss"]
    inputs = spec["inputs"](rows); whole = {k: f() for k, f in spec.get("whole", {}).items()}; names = names or [*inputs, *whole]; d = os.path.join(out, name); os.makedirs(d, exist_ok=True)
    if spec.get("logits"):
        fwd = type(model).forward
        model.forward = lambda *a, **k: fwd(model, **{**dict(zip(names, a)), **k, **spec.get("kw", {})})[0]
    first = -(-rows // (rows // mb if rows % mb == 0 else -(-rows // mb)))
    export(copy.deepcopy(model) if not spec.get("logits") else model, (*(v[:first] for v in inputs.values()), *whole.values()), names, os.path.join(d, "model.onnx"), exporter)
    if any("running_" in k for k, _ in model.named_buffers()):     # tracing moved the statistics: the file holds those after it
        import onnx
        file = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(os.path.join(d, "model.onnx")).graph.initializer}
        for k, b in model.named_buffers():
            if k in file: b.copy_(torch.from_numpy(file[k].copy()))
    train = exporter in ("ts", "tsdyn"); model = model.double().train(train)
    ins = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    shared = [v.double() if v.is_floating_point() else v for v in whole.values()]     # of no sample
    m = -(-rows // mb)
    with torch.no_grad(): probe = copy.deepcopy(model)(*[v[:mb] for v in ins.values()], *shared) if not spec.get("logits") else model(*[v[:mb] for v in ins.values()])
    shape = (rows,) + tuple(probe.shape[1:])
    if loss == "cross_entropy": target = torch.randint(0, shape[-1], shape[:-1])
    elif loss == "cross_entropy:1": target = torch.randint(0, shape[1], shape[:1] + shape[2:])
    elif loss == "bce_with_logits": target = torch.rand(shape)
    else: target = torch.randn(shape)
    if spec.get("ignore"): target.view(-1)[::3] = -100
    t = target.double() if target.is_floating_point() else target
    outs = [model(*c, *shared) for c in zip(*[v.tensor_split(m) for v in ins.values()])]
    y = torch.cat(outs); l = loss_of(loss, y, t) * (t.numel() if spec.get("sum") else 1); l.backward()
    for k, v in {**inputs, **whole}.items(): np.save(os.path.join(d, f"in.{k}.npy"), v.numpy())
    np.save(os.path.join(d, "target.npy"), target.numpy()); np.save(os.path.join(d, "out.npy"), y.detach().float().numpy())
    params = dict(model.named_parameters()); alls = dict(model.named_parameters(remove_duplicate=False)); aliases = {}
    for k, p in alls.items():
        if k not in params: aliases.setdefault(next(n for n, q in params.items() if q is p), []).append(k)
    params = {k: p for k, p in params.items() if p.grad is not None}
    save_file({k: p.grad.float().contiguous() for k, p in params.items()}, os.path.join(d, "grads.safetensors"))
    if train:
        b = {k: v.float() for k, v in model.named_buffers() if "running_" in k}
        if b: save_file(b, os.path.join(d, "batchnorm.safetensors"))
    case = {"name": name, "exporter": exporter, "loss": loss, "microbatch_rows": first, "rows": rows, "loss_value": l.item(), "splits": spec["splits"], "output": "logits",
            "parameters": {k: list(p.shape) for k, p in params.items()}, "aliases": aliases, "shared": spec.get("shared", []) + [x for k, v in aliases.items() for x in [k, *v]], "folded": spec.get("folded", [])}
    if exporter == "tsdyn": case["bind"] = {"batch": first}
    json.dump(case, open(os.path.join(d, "case.json"), "w"), indent=1)
    env = {"loss": loss, "rows": rows, "mb": first, "loss_value": repr(l.item()), "splits": " ".join(spec["splits"]), "bind": "".join(f"{k}={v}" for k, v in case.get("bind", {}).items()), "shared": ",".join(case["shared"]), "folded": ",".join(case["folded"])}
    open(os.path.join(d, "case.env"), "w").write("".join(f"{k}='{v}'\n" for k, v in env.items()))     # the same for shell scripts
    print(name, "loss", l.item(), "bytes", os.path.getsize(os.path.join(d, "model.onnx")), flush=True)


img = lambda n, s=16: {"x": torch.randn(n, 3, s, s)}
ids = lambda v, T: lambda n: {"input_ids": torch.randint(0, v, (n, T))}
CASES = {
    "doc": dict(model=Doc, inputs=lambda n: {"x": torch.randint(0, 10, (n, 4))}, rows=8, mb=2, loss="cross_entropy", splits=["layers.1:begin", "layers.0:end,lm:begin"]),
    "example": dict(model=Example, inputs=lambda n: {"x": torch.randn(n, 32)}, rows=503, mb=101, loss="mse", splits=["markers"], shared=["mm_param", "lin.weight", "lin.bias"]),
    "mlp": dict(model=MLP, inputs=lambda n: {"x": torch.randn(n, 16)}, rows=14, mb=4, loss="cross_entropy", splits=["blocks.1:begin", "blocks.1:begin,blocks.2:begin,head:begin"]),
    "gpt": dict(model=GPT, inputs=ids(48, 16), rows=8, mb=2, loss="cross_entropy", splits=["h.1:begin", "h.0.mlp:begin,h.1:begin,h.1.mlp:end"]),
    "gptmask": dict(model=GPT, inputs=ids(48, 16), rows=7, mb=2, loss="cross_entropy", splits=["h.1:begin"], ignore=True),
    "resnet": dict(model=ResNet, inputs=lambda n: img(n, 12), rows=8, mb=4, loss="cross_entropy", splits=["layer2:begin", "layer1:begin,layer2:begin,fc:begin"]),
    "unet": dict(model=UNet, inputs=img, rows=8, mb=2, loss="mse", splits=["mid:begin", "d2:begin,mid:begin,u1:begin"]),
    "mobilenet": dict(model=MobileNet, inputs=img, rows=8, mb=4, loss="cross_entropy", splits=["features.1:begin", "features.0:begin,features.1:begin,features.2:begin"]),
    "vit": dict(model=ViT, inputs=img, rows=7, mb=2, loss="cross_entropy", splits=["blocks.1:begin", "blocks.0:begin,blocks.1:begin,blocks.2:begin"]),
    "encdec": dict(model=EncDec, inputs=lambda n: {"src": torch.randint(0, 32, (n, 6)), "tgt": torch.randint(0, 32, (n, 5))}, rows=8, mb=2, loss="cross_entropy",
                   splits=["decoder.0:begin", "encoder.1:begin,decoder.0:begin,decoder.1:begin"], shared=["emb.weight"]),
}
HF = {
    "hfllama": ("LlamaConfig", "LlamaForCausalLM", dict(num_key_value_heads=2), "model.layers"), "hfqwen2": ("Qwen2Config", "Qwen2ForCausalLM", dict(num_key_value_heads=2), "model.layers"),
    "hfmistral": ("MistralConfig", "MistralForCausalLM", dict(num_key_value_heads=2, sliding_window=8, head_dim=8), "model.layers"), "hfgemma": ("GemmaConfig", "GemmaForCausalLM", dict(num_key_value_heads=1, head_dim=8), "model.layers"),
    "hfneox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}, "gpt_neox.layers"), "hfopt": ("OPTConfig", "OPTForCausalLM", dict(ffn_dim=64, word_embed_proj_dim=32), "model.decoder.layers"),
    "hfphi": ("PhiConfig", "PhiForCausalLM", {}, "model.layers"), "hfbloom": ("BloomConfig", "BloomForCausalLM", dict(n_layer=4, n_head=4), "transformer.h"),
    "hfgpt2": ("GPT2Config", "GPT2LMHeadModel", dict(n_layer=4, n_head=4, n_embd=32, n_positions=32), "transformer.h"), "hfbert": ("BertConfig", "BertForMaskedLM", {}, "bert.encoder.layer"),
    "hfdistil": ("DistilBertConfig", "DistilBertForMaskedLM", dict(dim=32, hidden_dim=64, n_layers=4, n_heads=4), "distilbert.transformer.layer"), "hfalbert": ("AlbertConfig", "AlbertForMaskedLM", dict(embedding_size=16), None),
    "hfroberta": ("RobertaConfig", "RobertaForMaskedLM", {}, "roberta.encoder.layer"), "hffalcon": ("FalconConfig", "FalconForCausalLM", {}, "transformer.h"), "hfmpt": ("MptConfig", "MptForCausalLM", dict(d_model=32, n_heads=4, n_layers=4, expansion_ratio=2), "transformer.blocks"),
    "hft5": ("T5Config", "T5ForConditionalGeneration", dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, names=["input_ids", "decoder_input_ids"]), "decoder.block"),
    "hfbart": ("BartConfig", "BartForConditionalGeneration", dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, names=["input_ids", "decoder_input_ids"]), "model.decoder.layers"),
}
for k, (c, m, kw, where) in HF.items():
    names = kw.get("names", ["input_ids"]); n2 = 2 if len(names) == 2 else 4
    CASES[k] = dict(model=lambda c=c, m=m, kw=kw: hf((c, m), **kw), inputs=lambda n, names=names: {x: torch.randint(3, 96, (n, 16 if i == 0 else 12)) for i, x in enumerate(names)}, rows=8, mb=2, loss="cross_entropy",
                    splits=[f"{where}.{n2 // 2}:begin"] + ([",".join(f"{where}.{i}:begin" for i in range(n2))] if n2 == 4 else []) if where else ["predictions:begin"], logits=True, kw=dict(return_dict=False, use_cache=False))
def tv(name, **kw):
    import torchvision
    return getattr(torchvision.models, name)(num_classes=10, **kw)
for k, (n, size, splits) in {"tvresnet18": ("resnet18", 32, ["layer2:begin", "layer1.1:begin,layer2.1:begin,layer3.1:begin"]), "tvmobilenetv2": ("mobilenet_v2", 32, ["features.8:begin"]), "tvmobilenetv3": ("mobilenet_v3_small", 32, ["features.5:begin"]),
                             "tvvit": ("vit_b_16", 32, ["encoder.layers.encoder_layer_6:begin"]), "tvconvnext": ("convnext_tiny", 32, ["features.5:begin"]), "tvefficientnet": ("efficientnet_b0", 32, ["features.4:begin"]),
                             "tvswin": ("swin_t", 64, ["features.4:begin"]), "tvdensenet": ("densenet121", 32, ["features.denseblock3:begin"]), "tvsqueezenet": ("squeezenet1_1", 64, ["features.6:begin"]), "tvregnet": ("regnet_y_400mf", 32, ["trunk_output.block3:begin"])}.items():
    CASES[k] = dict(model=lambda n=n, size=size: tv(n, **({"image_size": 32} if n == "vit_b_16" else {})), inputs=lambda r, size=size: img(r, size), rows=8, mb=4, loss="cross_entropy", splits=splits)
COMMITTED = ["doc-ts", "doc-dyn", "example-ts", "mlp-ts", "mlp-dyn", "gpt-ts", "gpt-dyn", "gpt-tsdyn", "gptmask-ts", "resnet-ts", "unet-ts", "mobilenet-ts", "vit-dyn", "encdec-ts"]

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*"); ap.add_argument("-o", default=os.path.dirname(os.path.abspath(__file__))); ap.add_argument("--list", action="store_true"); a = ap.parse_args()
    if a.list: print("\n".join(CASES)); return
    bad = 0
    for n in a.names or COMMITTED:
        try: make(n, CASES[n.rsplit("-", 1)[0]], a.o)
        except Exception as e: bad += 1; print(n, "FAILED:", type(e).__name__, str(e).strip().splitlines()[:1], flush=True)
    sys.exit(bad > 0)
if __name__ == "__main__": main()

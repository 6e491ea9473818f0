#!/usr/bin/env python3
"""configs.py - configurations of transformers by ppsplit-export, split in two, beside PyTorch.

    python3 tests/exports/configs.py [NAME...]      needs torch and transformers; ten minutes
    python3 tests/exports/configs.py --write        and writes the table of docs/exporting.md

Small models of the library's own classes, random weights, no dropout.  Each row: the export by one
command, --stages 2, a step of 8 rows in 2 microbatches on two ranks under 1F1B; its loss and
gradients beside those of the model itself.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PPSPLIT = os.environ.get("PPSPLIT", f"{TOP}/build/ppsplit")
DECODER = dict(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=64, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
               pad_token_id=0)
GROUPED = dict(DECODER, num_key_value_heads=2, head_dim=8)
EXPERTS = dict(GROUPED, num_local_experts=4, num_experts=4, num_experts_per_tok=2,
               moe_intermediate_size=32)
ENCODER = dict(DECODER, type_vocab_size=2)
IMAGE = dict(image_size=32, patch_size=8, num_channels=3, hidden_size=32, num_hidden_layers=2,
             num_attention_heads=4, intermediate_size=64, num_labels=10)
ENDS = dict(vocab_size=128, bos_token_id=1, eos_token_id=2)
CONFIGS = {
    "GPT-2": ("GPT2LMHeadModel", dict(ENDS, n_positions=64, n_embd=32, n_layer=2, n_head=4)),
    "GPT-NeoX": ("GPTNeoXForCausalLM", DECODER),
    "OPT": ("OPTForCausalLM", dict(DECODER, ffn_dim=64, word_embed_proj_dim=32)),
    "Falcon": ("FalconForCausalLM", dict(DECODER, new_decoder_architecture=False, alibi=False)),
    "Bloom": ("BloomForCausalLM", dict(ENDS, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0)),
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Mistral": ("MistralForCausalLM", dict(GROUPED, sliding_window=8)),
    "Qwen2": ("Qwen2ForCausalLM", GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", GROUPED),
    "Gemma": ("GemmaForCausalLM", GROUPED),
    "Gemma 3": ("Gemma3ForCausalLM", dict(GROUPED, sliding_window=8, sliding_window_pattern=2,
                                              query_pre_attn_scalar=8)),
    "Phi": ("PhiForCausalLM", dict(DECODER, partial_rotary_factor=0.5)),
    "Phi-3": ("Phi3ForCausalLM", GROUPED),
    "OLMo 2": ("Olmo2ForCausalLM", GROUPED),
    "GPT-OSS": ("GptOssForCausalLM", dict(EXPERTS, sliding_window=8)),
    "Mixtral": ("MixtralForCausalLM", EXPERTS),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", EXPERTS),
    "T5": ("T5ForConditionalGeneration",
           dict(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)),
    "Whisper": ("WhisperForConditionalGeneration",
                dict(ENDS, d_model=32, encoder_layers=2, decoder_layers=2,
                     encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                     decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=32,
                     max_target_positions=32, pad_token_id=0, decoder_start_token_id=1,
                     suppress_tokens=None, begin_suppress_tokens=None)),
    "BERT": ("BertForMaskedLM", ENCODER),
    "RoBERTa": ("RobertaForMaskedLM", dict(ENCODER, max_position_embeddings=80)),
    "DistilBERT": ("DistilBertForMaskedLM", dict(vocab_size=128, dim=32, n_layers=2, n_heads=4,
                                                 hidden_dim=64, max_position_embeddings=64,
                                                 pad_token_id=0)),
    "ViT": ("ViTForImageClassification", IMAGE),
    "DeiT": ("DeiTForImageClassification", IMAGE),
}


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900,
                          **more)
    if done.returncode:
        lines = [s for s in (done.stderr + done.stdout).strip().splitlines() if s]
        said = next((s for s in lines if "error" in s.lower()), lines[-1] if lines else "failed")
        raise RuntimeError(f"{os.path.basename(str(command[0]))}: {said}")
    return done.stdout


def tool():
    """ppsplit-export, as a module."""
    import importlib.machinery
    import importlib.util
    loader = importlib.machinery.SourceFileLoader("ppsplit_export", f"{TOP}/tools/ppsplit-export")
    spec = importlib.util.spec_from_loader("ppsplit_export", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def expected(folder, stem):
    """PyTorch's loss and gradients of the samples, in float64."""
    import argparse
    import numpy
    import torch
    model, named = tool().from_transformers(folder, argparse.Namespace(rows=4, length=16, seed=0))
    model = model.double().train()
    data = {k: torch.from_numpy(numpy.load(f"{stem}.{k}.npy")) for k in named}
    data = {k: v.double() if v.is_floating_point() else v for k, v in data.items()}
    target = torch.from_numpy(numpy.load(f"{stem}.target.npy"))
    loss = 0
    for k in range(2):                       # microbatches of four rows, as in the pipeline
        y = model(**{n: v[4 * k:4 * k + 4] for n, v in data.items()})[0]
        t = target[4 * k:4 * k + 4]
        loss = loss + torch.nn.functional.cross_entropy(y.flatten(0, -2), t.flatten()) / 2
    loss.backward()
    names = {}                               # of a parameter: all that tied modules have for it
    for n, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(p, []).append(n)
    grads = {tuple(ns): p.grad.numpy() for p, ns in names.items() if p.grad is not None}
    return float(loss.detach()), grads


def trained(source, work, *options):
    """Exports to WORK/model.onnx, splits in two, trains a step: the loss, the gradients by name."""
    import safetensors.numpy
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMP_NUM_THREADS="1")
    said = run(sys.executable, f"{TOP}/tools/ppsplit-export", source, "-o", f"{work}/model.onnx",
               "--length", 16, env=env)
    data = re.search(r"(--data .*) --microbatches", said).group(1).split()
    run(PPSPLIT, "-q", f"{work}/model.onnx", "--stages", 2, "--loss", "cross_entropy",
        "-o", f"{work}/out")
    run("make", "-s", "-j2", "-C", f"{work}/out", "STAGE_CFLAGS=-O0")
    run(f"{work}/out/pipeline", "train", *data, "--microbatches", 2, "--ranks", 2, "--steps", 1,
        "--lr", 0, "--dump-grads", f"{work}/grads", "--log-json", f"{work}/log.json", "--quiet",
        *options, env=env)
    with open(f"{work}/log.json") as f:
        loss = next(json.loads(s)["loss"] for s in f if '"step"' in s)
    got = {}
    for file in sorted(os.listdir(f"{work}/grads")):
        if file.endswith(".safetensors"):
            got.update(safetensors.numpy.load_file(f"{work}/grads/{file}"))
    return loss, got


def one(name, work):
    """The loss's difference, the gradients' worst relative to their largest number, parameters."""
    import numpy
    import transformers
    transformers.set_seed(0)
    kind, sizes = CONFIGS[name]
    folder, stem = os.path.join(work, "config"), os.path.join(work, "model")
    config = getattr(transformers, kind).config_class(**sizes, architectures=[kind])
    for key, value in list(config.to_dict().items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    with_weights = name == "GPT-2"           # the others' are drawn by the tool
    (getattr(transformers, kind)(config) if with_weights else config).save_pretrained(folder)
    loss, got = trained(folder, work)
    want_loss, want = expected(folder, stem)
    found = {ns: next((got[n] for n in ns if n in got), None) for ns in want}
    missing = [ns[0] for ns, g in found.items() if g is None]
    if missing:
        raise RuntimeError(f"no gradient of {', '.join(missing)}")
    largest = max(float(numpy.abs(w).max()) for w in want.values())
    worst = max(float(numpy.abs(found[ns].astype("f8") - w).max())
                / max(float(numpy.abs(w).max()), 1e-3 * largest) for ns, w in want.items())
    return abs(loss - want_loss) / abs(want_loss), worst, len(want)


def main(names):
    write = "--write" in names
    rows, failed = [], 0
    for name in [n for n in names if n != "--write"] or CONFIGS:
        with tempfile.TemporaryDirectory() as work:
            try:
                loss, worst, n = one(name, work)
                good = loss < 1e-5 and worst < 1e-3
                row = f"| {name} | `{CONFIGS[name][0]}` | {n} | {loss:.0e} | {worst:.0e} |"
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                good, row = False, f"| {name} | `{CONFIGS[name][0]}` | | {str(e)[:160]} | |"
        failed += not good
        rows.append(row)
        print("ok" if good else "not ok", row, flush=True)
    if write:
        path = f"{TOP}/docs/exporting.md"
        with open(path) as f:
            text = f.read()
        head = ("| model | class | parameters | loss apart | gradients apart |\n"
                "| --- | --- | --- | --- | --- |\n")
        start = text.index(head) + len(head)
        end = text.index("\n\n", start) + 1
        with open(path, "w") as f:
            f.write(text[:start] + "".join(r + "\n" for r in rows) + text[end:])
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""conv_models.py export NAME train|infer FILE.onnx - writes one of tests/bench/conv's models, with 4 rows of 224 x 224, and FILE.x.npy and
FILE.target.npy beside it: by TorchScript, in training mode without folding, or as it is for inference (norms folded into convolutions).
conv_models.py serve - what others take for it: for each line `NAME torch|torch_last|onnxruntime train|infer STEPS FILE.onnx` of its input the
median seconds of a step on one thread, as a line; 0: it is not there.  torch_last: PyTorch's layout channels_last.  A training step is forward, cross entropy,
backward and SGD."""
import statistics
import sys
import time
import warnings

import numpy as np
import torch
import torchvision

ROWS, SIDE, CLASSES = 4, 224, 1000


class FirstOf(torch.nn.Module):
    """A model that returns several results by name."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return self.model(x)[self.name]


def segformer():
    from transformers import SegformerConfig, SegformerForSemanticSegmentation
    return FirstOf(SegformerForSemanticSegmentation(SegformerConfig()), "logits")


def tv(name):
    return lambda: getattr(torchvision.models, name)()


MODELS = {
    "resnet50": tv("resnet50"),
    "resnext50": tv("resnext50_32x4d"),
    "mobilenet_v2": tv("mobilenet_v2"),
    "shufflenet_v2": tv("shufflenet_v2_x1_0"),
    "lraspp": lambda: FirstOf(torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), "out"),
    "segformer": segformer,
}


def model_of(name, mode):
    torch.manual_seed(0)
    model = MODELS[name]().train(mode == "train")
    return model, torch.randn(ROWS, 3, SIDE, SIDE)


def export(name, mode, path):
    model, x = model_of(name, mode)
    options = dict(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False) if mode == "train" else {}
    torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], output_names=["y"], opset_version=17, **options)
    np.save(path + ".x.npy", x.numpy())
    np.save(path + ".target.npy", np.arange(ROWS, dtype=np.int64) % CLASSES)


def torch_step(name, mode, layout):
    model, x = model_of(name, mode)
    model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    target = torch.arange(ROWS) % CLASSES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    def infer():
        with torch.inference_mode():
            model(x)

    return train if mode == "train" else infer


def runtime_step(path):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = np.load(path + ".x.npy")
    return lambda: session.run(None, {"x": x})


def step_of(name, who, mode, path):
    if who != "onnxruntime":
        return torch_step(name, mode, torch.channels_last if who == "torch_last" else torch.contiguous_format)
    try:
        return runtime_step(path)
    except ImportError:
        return None


def median_of(step, steps):
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def serve():
    steps_of = {}
    torch.set_num_threads(1)
    for line in sys.stdin:
        name, who, mode, steps, path = line.split()
        key = name, who, mode
        if key not in steps_of:
            steps_of[key] = step_of(name, who, mode, path)
        print("%.6f" % (median_of(steps_of[key], int(steps)) if steps_of[key] else 0), flush=True)


warnings.filterwarnings("ignore")
if sys.argv[1] == "serve":
    serve()
else:
    export(*sys.argv[2:])

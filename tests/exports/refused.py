#!/usr/bin/env python3
"""refused.py - what ppsplit-export says of models and inputs that it cannot take: one line each, and no traceback.

    python3 tests/exports/refused.py torch|jax      needs torch and onnxscript, or jax and jax2onnx
"""
import contextlib
import io
import os
import sys
import tempfile
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import configs                                 # noqa: E402


def of_torch():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out = torch.nn.Linear(3, 2)
            self.register_buffer("table", torch.zeros(1, 999))

        def forward(self, *x):
            return self.out(sum(x) + self.table[:, :3])
    x, one = torch.ones(4, 3), torch.tensor(2.0)

    def raises():
        return torch.ones(2) @ torch.ones(3), ()

    def interrupted():
        raise KeyboardInterrupt
    yield "no pair", lambda: Net(), "at:model is to return a model and its inputs, as a pair"
    yield "no inputs", lambda: (Net(), ()), "the inputs have no array with rows"
    yield "a scalar alone", lambda: (Net(), (one,)), "the inputs have no array with rows"
    yield "no rows", lambda: (Net(), (torch.ones(0, 3),)), "input 0 has the shape [0, 3], that is no numbers"
    yield "its own code fails", raises, f"{__file__}:{raises.__code__.co_firstlineno + 1}: RuntimeError"
    yield "a scalar first", lambda: (Net(), (one, x)), ""
    yield "a name with a dot", lambda: (Net(), {"a.b": x}), "PyTorch exports no input called a.b"
    yield "no module", lambda: ("Net", (x,)), "the model is of type str"
    yield "interrupted", interrupted, "interrupted"


def of_jax():
    import jax
    import jax.numpy as jnp

    def two(p, x):
        return x["a.b"] @ p["a.b"] @ p["a"]["b"] if isinstance(x, dict) else x @ p["a.b"] @ p["a"]["b"]
    w, x = jnp.ones((3, 3)), jnp.ones((4, 3))
    named = jax.tree_util.Partial(lambda p, w: w @ p["w"], {"w": w})
    yield "one name twice", lambda: (jax.tree_util.Partial(two, {"a.b": w, "a": {"b": w}}), (x,)), "two arrays of the model and its inputs are called"
    yield "no parameters", lambda: (lambda x: x, (x,)), "the function holds no parameters"
    big = jax.tree_util.Partial(lambda p, x: x @ p, jnp.ones((3, 999)))
    yield "weights beside the file, twice", lambda: (big, (x,)), ""
    yield "no rows", lambda: (named, {"w": x[:0]}), "input w has the shape [0, 3], that is no numbers"


def main(kind):
    failed, tool = 0, configs.tool()
    tool.LARGE = 64                            # bytes: weights, and large buffers, stand beside the file
    at = sys.modules["at"] = types.ModuleType("at")
    for name, model, want in globals()["of_" + kind]():
        at.model, said = model, io.StringIO()
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            for k in (0, 1):                   # the second time the files are there
                code = tool.main(["at:model", "-o", f"{work}/model.onnx"])
            beside = os.path.exists(f"{work}/model.onnx.data")
        said = [s for s in said.getvalue().splitlines() if "error" in s]
        good = code == bool(want) != beside and (not want or len(said) == 2 and want in said[0])
        failed += not good
        print("ok" if good else "not ok", name, *([] if good else [code, said]), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

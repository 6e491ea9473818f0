#!/usr/bin/env python3
"""frameworks.py - models of flax, JAX and Keras by ppsplit-export, split in two.

    python3 tests/exports/frameworks.py NAME...     nnx, linen, tree need jax2onnx, keras torch

A step of 8 rows in 2 microbatches on two ranks: loss, gradients and running statistics beside JAX
in float64 and Keras in float32, at most 1e-5 of the largest number apart.
"""
import glob
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import configs                                 # noqa: E402

ROWS, CLASSES = 4, 5


def images():
    import numpy
    return numpy.random.default_rng(0).standard_normal((ROWS, 6, 6, 3)).astype("f4")


def nnx():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.table = nnx.Embed(CLASSES, 8, rngs=rngs)
            self.norm = nnx.LayerNorm(8, rngs=rngs)
            self.attend = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)

        def __call__(self, ids):
            x = self.table(ids)
            x = x + self.attend(self.norm(x))
            return self.table.attend(x + self.down(nnx.gelu(self.up(x))))
    return Net(nnx.Rngs(0)), ([[(3 * i + j * j) % CLASSES for j in range(6)] for i in range(ROWS)],)


def linen():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3))(x)))
            return nn.Dense(CLASSES)(nn.Dropout(0.0, deterministic=not train)(x.mean((1, 2))))
    return Net(), {"x": images(), "train": True}


def tree():
    import jax
    import numpy
    rng = numpy.random.default_rng(0)
    p = {"in": {"w": rng.standard_normal((108, 16)) / 10, "b": numpy.zeros(16)},
         "out": rng.standard_normal((16, CLASSES))}
    p = jax.tree.map(lambda x: jax.numpy.asarray(x, "float32"), p)

    def forward(p, x):
        h = jax.numpy.tanh(x @ p["in"]["w"] + p["in"]["b"])
        h = h.at[:, jax.numpy.array([0, 2, 0])].add(h[:, 1:4])
        return (h * jax.lax.stop_gradient(h)) @ p["out"]
    return jax.tree_util.Partial(forward, p), (images().reshape(ROWS, -1),)


def keras():
    from keras import Model, layers
    x = first = layers.Input((6, 6, 3))
    x = layers.Conv2D(8, 3, padding="same", trainable=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x))
    return Model(first, layers.Dense(CLASSES)(x)), (images(),)


def by_jax(name, batches):
    """Loss, gradients and running statistics after microbatches, under the file's names."""
    import jax
    from jax import numpy as jnp
    of = configs.tool()
    model, inputs = globals()[name]()
    forward, parts, arrays, call_with = of.jax_forward(model, inputs, 0)

    def loss(parameters, rest, x, target):
        y, after = forward(parameters, rest, call_with([x]), True)
        return -jnp.take_along_axis(jax.nn.log_softmax(y), target[..., None], -1).mean(), after
    jax.config.update("jax_enable_x64", True)
    parameters, rest = jax.tree.map(lambda a: a.astype("f8") if a.dtype == "f4" else a, parts)
    total, sums = 0, jax.tree.map(jnp.zeros_like, parameters)
    for x, target in batches:
        x = x.astype("f8") if x.dtype == "f4" else x
        (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(parameters, rest, x, target)
        total, sums = total + value, jax.tree.map(jnp.add, sums, grads)
    grads = {n: g / len(batches) for n, _, g in of.jax_arrays((sums, {}))[0]}
    rest = {n: x for n, _, x in of.jax_arrays(({}, rest))[0] if x.dtype == "f8"}
    return total / len(batches), grads, rest


def by_keras(name, batches):
    import torch
    from torch.nn.functional import cross_entropy
    model, _ = seeded()
    trained = model.trainable_variables
    losses = [cross_entropy(model(x, training=True), torch.from_numpy(t)) for x, t in batches]
    loss = sum(losses) / len(losses)
    grads = torch.autograd.grad(loss, [v.value for v in trained])
    rest = {v.path: v.numpy() for v in model.non_trainable_variables if "moving" in v.path}
    return loss.item(), {v.path: g.numpy() for v, g in zip(trained, grads)}, rest


def seeded():
    """What ppsplit-export is given, so that both sides draw the same weights."""
    import keras as k
    k.utils.set_random_seed(0)
    return keras()


def apart(got, want):
    """The largest difference of each, relative to the largest number wanted.  A bias before a norm,
    or of attention's keys, has no gradient but rounding: one below a millionth of the largest
    number of all is measured by that number."""
    largest = {n: float(abs(w).max()) for n, w in want.items()}
    most = max(largest.values(), default=0)
    if set(got) != set(want):
        raise RuntimeError(f"{sorted(got)} instead of {sorted(want)}")
    return max((float(abs(got[n] - w).max()) / (largest[n] if largest[n] > 1e-6 * most else most)
                for n, w in want.items()), default=0)


def one(name, work):
    import numpy
    from safetensors.numpy import load_file
    source = f"{os.path.abspath(__file__)}:{'seeded' if name == 'keras' else name}"
    loss, got = configs.trained(source, work, "--checkpoint", f"{work}/ck")
    configs.run(configs.PPSPLIT, "merge", f"{work}/out", f"{work}/ck",
                "-o", f"{work}/trained.safetensors")
    kept = load_file(f"{work}/trained.safetensors")
    x, target = (numpy.load(glob.glob(f"{work}/model.{n}.npy")[0]) for n in ("[ix]*", "target"))
    batches = [(x[k:k + ROWS], target[k:k + ROWS]) for k in (0, ROWS)]
    want_loss, want, rest = (by_keras if name == "keras" else by_jax)(name, batches)
    off = abs(loss - float(want_loss)) / float(want_loss)
    return off, apart(got, want), len(want), apart({n: kept[n] for n in rest}, rest), len(rest)


def main(names):
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            try:
                loss, worst, n, moved, m = one(name, work)
                good = max(loss, worst, moved) < 1e-5
                said = (f"loss {loss:.0e}, {n} gradients {worst:.0e}, "
                        f"{m} statistics {moved:.0e} apart")
            except RuntimeError as e:
                good, said = False, str(e)
        failed += not good
        print("ok" if good else "not ok", name, said, flush=True)
    return failed > 0


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "torch")
    sys.exit(main(sys.argv[1:]))

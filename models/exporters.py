#!/usr/bin/env python3
"""Makes models/exporters: small models of other frameworks, exported by what each of them has, for tests/frontend/exporters.t.

A folder holds model.onnx as the exporter wrote it, the minibatch (in.NAME.npy, target.npy), out.npy: what the framework itself
computes of it, grads.safetensors: d loss / d parameter by central differences of the file evaluated in float64 (onnx.reference), for each
initializer that holds a trainable weight of the framework's model, and case.env.

usage: exporters.py DIR [NAME...]       needs tensorflow, keras, tf2onnx, jax, flax, jax2onnx, scikit-learn, skl2onnx, torch, onnxscript, onnx, onnxruntime, safetensors
"""
import os, re, sys, warnings
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", KERAS_BACKEND="tensorflow", JAX_PLATFORMS="cpu")
warnings.filterwarnings("ignore")
import numpy as np, onnx, onnxruntime
from onnx import TensorProto as T, numpy_helper as nh
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import save_file

ROWS, MB = 4, 2
EPS = 1e-5
rng = np.random.default_rng(1)
normal = lambda *s: rng.normal(size=s).astype("f")

# ---- the file in float64 -----------------------------------------------------------------------------

def double(m):
    """The same model in float64, so that differences of a millionth can be told."""
    m = onnx.ModelProto.FromString(m.SerializeToString())
    def tensor(t):
        if t.data_type == T.FLOAT: t.CopyFrom(nh.from_array(nh.to_array(t).astype("d"), t.name))
    def nodes(list_):
        for n in list_:
            for a in n.attribute:
                if a.HasField("t"): tensor(a.t)
                if a.name == "to" and a.i == T.FLOAT: a.i = T.DOUBLE
                if n.op_type == "Constant" and a.name in ("value_float", "value_floats"):
                    v = np.array(a.f if a.name == "value_float" else list(a.floats), "d"); n.attribute.remove(a); n.attribute.append(onnx.helper.make_attribute("value", nh.from_array(v)))
                if a.HasField("g"): graph(a.g)
    def graph(g):
        for t in g.initializer: tensor(t)
        for v in [*g.input, *g.output, *g.value_info]:
            if v.type.tensor_type.elem_type == T.FLOAT: v.type.tensor_type.elem_type = T.DOUBLE
        nodes(g.node)
    graph(m.graph)
    for f in m.functions: nodes(f.node)
    return m

def constants(m):
    """Every float tensor a parameter may be in: initializers, and Constants of functions under the names they get inlined."""
    out = {t.name: t for t in m.graph.initializer if t.data_type in (T.FLOAT, T.DOUBLE)}
    function = {(f.domain, f.name): f for f in m.functions}
    def calls(nodes, before):
        for n in nodes:
            f = function.get((n.domain, n.op_type))
            if f: calls(f.node, before + (n.name or n.op_type) + "/")
            for a in n.attribute if before and n.op_type == "Constant" else []:
                if a.name == "value" and a.t.data_type in (T.FLOAT, T.DOUBLE): out[before + n.output[0]] = a.t
    calls(m.graph.node, "")
    return out

def evaluate(m, name, chunks):
    """onnx.reference's Loop joins what a body stacks: ONNX Runtime computes those."""
    if any(n.op_type == "Loop" for n in m.graph.node): s = onnxruntime.InferenceSession(m.SerializeToString()); return np.concatenate([s.run([name], c)[0] for c in chunks])
    return np.concatenate([ReferenceEvaluator(m).run([name], c)[0] for c in chunks])

# ---- a case --------------------------------------------------------------------------------------------

def loss_of(kind, y, t):
    if kind == "mse": return ((y - t) ** 2).mean()
    y = y.reshape(-1, y.shape[-1]); z = y - y.max(1, keepdims=True)
    return (np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), t.reshape(-1)]).mean()

def same(a, b):
    """Equal numbers in any arrangement: exporters reshape, transpose and concatenate."""
    return a.size == b.size and np.allclose(np.sort(a, axis=None), np.sort(b, axis=None), rtol=1e-6, atol=1e-7)

def write(d, model, inputs, y, weights, loss, splits, held=(), output=0, bind=""):
    """y: the framework's; weights: its trainable ones; held: initializers that are some, but not one of them alone."""
    os.makedirs(d, exist_ok=True); onnx.save(model, f"{d}/model.onnx"); size = os.path.getsize(f"{d}/model.onnx")
    assert size < 100_000, size
    wide = double(model); at = constants(wide); name = model.graph.output[output].name
    feed = {k: v.astype("d") if v.dtype == np.float32 else v for k, v in inputs.items()}
    chunks = [{k: v[i:i + MB] for k, v in feed.items()} for i in range(0, ROWS, MB)]
    run = lambda: evaluate(wide, name, chunks)
    assert np.allclose(run(), y, rtol=1e-4, atol=1e-5), "the file computes something else than its framework"
    target = normal(*y.shape) if loss == "mse" else rng.integers(0, y.shape[-1], y.shape[:-1])
    grads = {}; found = set()
    for k, t in at.items():
        x = nh.to_array(t).copy(); hit = [i for i, w in enumerate(weights) if same(x, w)]
        packed = held == "packed" and re.match(r"[WRB]\d*__", k)
        if (x.size < 2 and k not in held) or not (hit or packed or k in held): continue
        found |= set(hit[:1]) if k not in held else set(); g = np.zeros(x.size)
        for i in range(x.size):
            v = []
            for s in (1, -1):
                p = x.copy().reshape(-1); p[i] += s * EPS; t.CopyFrom(nh.from_array(p.reshape(x.shape), t.name)); v.append(loss_of(loss, run(), target))
            g[i] = (v[0] - v[1]) / (2 * EPS)
        t.CopyFrom(nh.from_array(x, t.name)); grads[k] = g.reshape(x.shape).astype("f")
    print(os.path.basename(d), "bytes", size, "parameters in", len(grads), "tensors; not found alone:", [w.shape for i, w in enumerate(weights) if i not in found])
    save_file(grads, f"{d}/grads.safetensors"); np.save(f"{d}/out.npy", np.ascontiguousarray(y, "f")); np.save(f"{d}/target.npy", target)
    for k, v in inputs.items(): np.save(f"{d}/in.{k}.npy", v)
    value = loss_of(loss, run(), target); open(f"{d}/case.env", "w").write(f"loss='{loss}'\nloss_value='{value!r}'\nrows='{ROWS}'\nmb='{MB}'\nsplits='{splits}'\nbind='{bind}'\nmodel_output='{name}'\n".replace("np.float64(", "").replace(")'", "'"))

# ---- TensorFlow and Keras ----------------------------------------------------------------------------

def bound(m):
    """The option that gives its open batch a size; tf2onnx calls it by a number that differs from run to run."""
    d = m.graph.input[0].type.tensor_type.shape.dim[0]
    for v in [*m.graph.input, *m.graph.output]:
        for i, k in enumerate(v.type.tensor_type.shape.dim):
            if k.dim_param: k.dim_param = "batch" if i == 0 else k.dim_param
    return f"batch={MB}" if d.dim_param else "" if d.dim_value else f"{m.graph.input[0].name}.0={MB}"

def keras_model(d, model, x, splits, loss="mse", **kw):
    import keras
    for w in model.trainable_weights: w.assign(w + normal(*w.shape) * .2)
    y = np.asarray(model(x)); os.makedirs(d, exist_ok=True); model.export(f"{d}/model.onnx", format="onnx", verbose=False)
    m = onnx.load(f"{d}/model.onnx"); bind = bound(m)
    write(d, m, {m.graph.input[0].name: x}, y, [np.asarray(w) for w in model.trainable_weights], loss, splits, bind=bind, **kw)

def keras_cnn(d):
    import keras; L = keras.layers; keras.utils.set_random_seed(1)
    i = keras.Input((6, 6, 2), name="x"); h = L.Conv2D(3, 3, padding="same", activation="relu")(i); s = h
    h = L.DepthwiseConv2D(3, padding="same")(h); h = L.SeparableConv2D(4, 3, strides=2, padding="same", activation="swish")(h)
    h = L.Conv2DTranspose(3, 2, strides=2)(h); h = L.Concatenate()([h, s]); h = L.LayerNormalization()(h); h = L.AveragePooling2D(2)(h); h = L.Flatten()(h)
    keras_model(d, keras.Model(i, L.Dense(3)(L.Dropout(.5)(h)), name="cnn"), normal(ROWS, 6, 6, 2), "separable_conv2d_1:begin,conv2d_transpose_1:begin")

def keras_transformer(d):
    import keras; L = keras.layers; keras.utils.set_random_seed(1)
    i = keras.Input((4,), dtype="int32", name="ids"); h = L.Embedding(7, 4, name="embed")(i)
    for _ in range(2):
        a = L.LayerNormalization()(h); a = L.MultiHeadAttention(2, 2)(a, a, use_causal_mask=True); h = L.Add()([h, a])
        a = L.LayerNormalization()(h); a = L.Dense(6, activation="tanh")(a); h = L.Add()([h, L.Dense(4)(a)])
    keras_model(d, keras.Model(i, L.Dense(7, name="head")(h), name="gpt"), rng.integers(0, 7, (ROWS, 4)).astype("int32"), "layer_normalization_2_1:begin,head_1:begin", "cross_entropy")

def keras_lstm(d):
    import keras; L = keras.layers; keras.utils.set_random_seed(1)
    # tf2onnx packs a cell's matrices into W, R and B of an operator; B holds zeros as well
    m = keras.Sequential([keras.Input((3, 2), name="x"), L.LSTM(3, return_sequences=True), L.Bidirectional(L.LSTM(2)), L.Dense(2)])
    keras_model(d, m, normal(ROWS, 3, 2), "bidirectional_1:begin,dense_1:begin", held="packed")

def keras_gru(d):
    import keras; L = keras.layers; keras.utils.set_random_seed(1)
    keras_model(d, keras.Sequential([keras.Input((3, 2), name="x"), L.GRU(3), L.Dense(2)]), normal(ROWS, 3, 2), "dense_1:begin")

def tf_module(d):
    import tensorflow as tf, tf2onnx
    class Layer(tf.Module):
        def __init__(self, n, k, name): super().__init__(name=name); self.w = tf.Variable(normal(n, k), name="w"); self.b = tf.Variable(normal(k), name="b")
        @tf.Module.with_name_scope
        def __call__(self, x): return tf.matmul(x, self.w) + self.b
    class Net(tf.Module):
        def __init__(self): super().__init__(name="net"); self.scale = tf.Variable(normal(6), name="scale"); self.layers = [Layer(5, 6, "first"), Layer(6, 6, "second"), Layer(6, 3, "third")]
        @tf.function(input_signature=[tf.TensorSpec((MB, 5), tf.float32, name="x")])
        def run(self, x):
            with self.name_scope:
                x = tf.nn.softplus(self.layers[0](x)); x = x + self.scale * tf.math.l2_normalize(self.layers[1](x), -1); return self.layers[2](x)
    net = Net(); x = normal(ROWS, 5)
    y = np.concatenate([net.run(tf.constant(x[i:i + MB])).numpy() for i in range(0, ROWS, MB)])
    m, _ = tf2onnx.convert.from_function(net.run, net.run.input_signature, opset=17)
    write(d, m, {"x": x}, y, [v.numpy() for v in net.variables], "mse", "second:begin,third:begin")

# ---- JAX ---------------------------------------------------------------------------------------------

def jax_model(d, net, x, splits, loss="mse", weights=None):
    import jax; from flax import nnx; from jax2onnx import to_onnx
    m = to_onnx(net, [jax.ShapeDtypeStruct((MB,) + x.shape[1:], x.dtype)])
    leaves = weights if weights is not None else jax.tree_util.tree_leaves(nnx.state(net, nnx.Param))
    y = np.concatenate([np.asarray(net(x[i:i + MB])) for i in range(0, ROWS, MB)])
    write(d, m, {m.graph.input[0].name: x}, y, [np.asarray(w) for w in leaves], loss, splits)

def shaken(net):
    import jax; from flax import nnx
    state = nnx.state(net, nnx.Param); nnx.update(net, jax.tree_util.tree_map(lambda w: w + normal(*w.shape) * .2, state)); return net

def jax_mlp(d):
    from flax import nnx
    class Net(nnx.Module):
        def __init__(self, r): self.a, self.n, self.b, self.c = nnx.Linear(5, 6, rngs=r), nnx.LayerNorm(6, rngs=r), nnx.Linear(6, 6, rngs=r), nnx.Linear(6, 3, use_bias=False, rngs=r)
        def __call__(self, x): x = nnx.silu(self.a(x)); return self.c(x + nnx.gelu(self.b(self.n(x))))
    jax_model(d, shaken(Net(nnx.Rngs(0))), normal(ROWS, 5), "node_Gemm_15,node_Gemm_19")

def jax_blocks(d):
    from flax import nnx; from jax2onnx import onnx_function
    import jax.numpy as jnp
    @onnx_function
    class Block(nnx.Module):
        def __init__(self, r): self.n1, self.n2 = nnx.LayerNorm(4, rngs=r), nnx.RMSNorm(4, rngs=r); self.att = nnx.MultiHeadAttention(2, 4, rngs=r, decode=False); self.up, self.down = nnx.Linear(4, 6, rngs=r), nnx.Linear(6, 4, rngs=r)
        def __call__(self, x): x = x + self.att(self.n1(x)); return x + self.down(nnx.relu(self.up(self.n2(x))))
    class Net(nnx.Module):
        def __init__(self, r): self.e, self.blocks, self.o = nnx.Embed(7, 4, rngs=r), nnx.List([Block(r) for _ in range(2)]), nnx.Linear(4, 7, rngs=r)
        def __call__(self, x):
            x = self.e(x)
            for b in self.blocks: x = b(x)
            return self.o(x)
    jax_model(d, shaken(Net(nnx.Rngs(0))), rng.integers(0, 7, (ROWS, 3)).astype("int32"), "Block_1:begin,Block_2:begin", "cross_entropy")

def jax_cnn(d):
    from flax import nnx
    class Net(nnx.Module):
        def __init__(self, r): self.a, self.n, self.b, self.o = nnx.Conv(2, 4, (3, 3), rngs=r), nnx.GroupNorm(4, num_groups=2, rngs=r), nnx.Conv(4, 4, (3, 3), strides=2, rngs=r), nnx.Linear(16, 3, rngs=r)
        def __call__(self, x): x = nnx.relu(self.n(self.a(x))); x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2)); x = nnx.tanh(self.b(x)); return self.o(x.reshape(x.shape[0], -1))
    jax_model(d, shaken(Net(nnx.Rngs(0))), normal(ROWS, 8, 8, 2), "node_Conv_29,node_Gemm_33")

def jax_rnn(d):
    import jax, jax.numpy as jnp
    w, u, b, o = normal(2, 4), normal(4, 4) * .5, normal(4), normal(4, 3)
    def net(x):
        def cell(h, v): h = jnp.tanh(v @ w + h @ u + b); return h, h
        h, hs = jax.lax.scan(cell, jnp.zeros((x.shape[0], 4)), jnp.swapaxes(x, 0, 1)); return h @ o + hs.mean(0) @ o
    jax_model(d, net, normal(ROWS, 5, 2), "node_Gemm_3", weights=[w, u, b, o])

# ---- PyTorch, then ONNX Runtime's optimizer -----------------------------------------------------------

def ort_attention(d):
    """Names and metadata are gone; a causal mask of the batch's size and tables of sines stand where parameters may."""
    import torch, torch.nn as nn, tempfile
    class Attention(nn.Module):
        def __init__(self): super().__init__(); self.e, self.q, self.k, self.v, self.o = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 7)
        def forward(self, ids):
            x = self.e(ids); n = x.shape[1]; at = torch.arange(n)[:, None] * torch.tensor([1., .1, 1., .1]); turn = lambda y: y * at.cos() + torch.cat([-y[..., 2:], y[..., :2]], -1) * at.sin()
            mask = torch.full((n, n), -3e38).triu(1).expand(x.shape[0], n, n)
            return self.o(x + (turn(self.q(x)) @ turn(self.k(x)).transpose(1, 2) * .5 + mask).softmax(-1) @ self.v(x))
    torch.manual_seed(1); m = Attention().eval(); ids = torch.tensor(rng.integers(0, 7, (ROWS, 3)))
    with tempfile.TemporaryDirectory() as t:
        torch.onnx.export(m, (ids[:MB],), f"{t}/a.onnx", input_names=["ids"], output_names=["logits"], dynamo=True, optimize=True, external_data=False, verbose=False)
        so = onnxruntime.SessionOptions(); so.optimized_model_filepath = f"{t}/b.onnx"; so.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED; so.log_severity_level = 4
        # onnx.reference does not know what these make
        onnxruntime.InferenceSession(f"{t}/a.onnx", so, providers=["CPUExecutionProvider"], disabled_optimizers=["MatMulScaleFusion", "MatmulTransposeFusion"]); f = onnx.load(f"{t}/b.onnx")
    del f.opset_import[:]; f.opset_import.add(domain="", version=18)
    write(d, f, {"ids": ids.numpy()}, m(ids).detach().numpy(), [p.detach().numpy() for p in m.parameters()], "cross_entropy", "node_add,node_add_3")

# ---- scikit-learn -------------------------------------------------------------------------------------

def skl(d, kind, y, splits, output, **kw):
    from skl2onnx import to_onnx
    x = normal(32, 5); net = kind(hidden_layer_sizes=(6, 4), max_iter=20, random_state=0, **kw).fit(x, y(x)); x = x[:ROWS]
    m = to_onnx(net, x[:MB], options={id(net): {"zipmap": False}} if output else None, target_opset=17)
    out = net.predict_proba(x) if output else net.predict(x).reshape(ROWS, -1)
    write(d, m, {"X": x}, out, [*net.coefs_, *net.intercepts_], "mse", splits, output=output, bind=bound(m), held=("intercepts2",))

def skl_classifier(d):
    from sklearn.neural_network import MLPClassifier
    skl(d, MLPClassifier, lambda x: (x[:, 0] > 0).astype(int) + (x[:, 1] > 1), "MatMul1,MatMul2", 1, activation="tanh")

def skl_regressor(d):
    from sklearn.neural_network import MLPRegressor
    skl(d, MLPRegressor, lambda x: x @ normal(5), "MatMul1,MatMul2", 0, activation="relu")

CASES = {"ort-attention": ort_attention, "keras-cnn": keras_cnn, "keras-transformer": keras_transformer, "keras-lstm": keras_lstm, "keras-gru": keras_gru, "tf-module": tf_module, "jax-mlp": jax_mlp, "jax-blocks": jax_blocks, "jax-cnn": jax_cnn, "jax-rnn": jax_rnn, "skl-classifier": skl_classifier, "skl-regressor": skl_regressor}
if __name__ == "__main__":
    for n in sys.argv[2:] or CASES: rng = np.random.default_rng(1); CASES[n](os.path.join(sys.argv[1], n))

"""Networks of one's own in ONNX and C, which are written from what they record."""

import ctypes
import subprocess

import numpy as np
import own_networks
import pytest
from own_networks import IN_DIM, rows

from mlpengine import Mlp
from mlpengine.backends.compiled.selected_entries import EXACT
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.core.errors import NumericalError, UsageError
from mlpengine.export import export
from mlpengine.nn import Network, Residual
from mlpengine.tape import cat

TABLES = {
    "of tables": Residual(IN_DIM, 2, width=5, blocks=2, dropout=0.2, seed=1),
    "of some features": Residual(
        *(IN_DIM, 2),
        width=8,
        blocks=1,
        activation="silu",
        residual_dropout=0.1,
        reads=((0, 2), (4, IN_DIM)),
    ),
    "wider than its output": Residual(IN_DIM, 1, width=5, activation="softmax", dtype="float64"),
    "dense layers": Mlp([IN_DIM, 9, 9, 1], activation=["softmax", "tanh"], dropout=0.1),
}


class Pieces(Network):
    """A network of what has no layers: pieces, axes, products and reductions."""

    def __init__(self):
        super().__init__(IN_DIM, {"weight": (4, 3, 3), "scale": 3, "out.weight": (2, 14)}, seed=2)

    def record(self, tape, x):
        p = tape.parameter
        left, right = x.chunk(2, axis=-1)
        rows = x.reshape((-1, 2, 3)).transpose((0, 2, 1))
        several = (rows.reshape((-1, 1, 3, 2)).transpose((0, 1, 3, 2)) @ p("weight")).max(axis=1)
        flat = several.mean(axis=1) - several.min(axis=1) + several.sum(axis=1)
        parts = [left.softmax() * p("scale"), right.detach(), flat, x[:, 1:4]]
        parts += [x.logsumexp(axis=1)[:, None], x.var(axis=1, ddof=1, keepdims=True) ** 0]
        out = [cat(parts, axis=1).linear(p("out.weight")).abs(), x.log(), 1 / (x - x)]
        return cat([*out, x.relu() / x.sum(axis=1, keepdims=True)], axis=1)  # a sum may be near 0


class Normalized(Network):
    """A dense layer with batch norm, whose averages are buffers."""

    def __init__(self):
        shapes = {"weight": (4, IN_DIM), "scale": 4, "bias": 4}
        super().__init__(IN_DIM, shapes, buffers={"norm.mean": 4, "norm.variance": np.ones(4)})

    def record(self, tape, x):
        p = tape.parameter
        return tape.batch_norm(x.linear(p("weight")), p("scale"), p("bias"), running="norm").relu()


def ours():
    return {name: make() for name, make in own_networks.NETWORKS.items()} | TABLES


@pytest.mark.parametrize("name", [*own_networks.NETWORKS, *TABLES, "pieces", "normalized"])
def test_onnx_computes_what_a_network_does(name, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    network = (ours() | {"pieces": Pieces(), "normalized": Normalized()})[name]
    shaken(network)
    exported = export(network, tmp_path / "net.onnx")  # run and compared on random rows
    assert exported.difference < 1e-5
    assert exported.inputs == {"input": "float32"}
    if name == "pieces":
        wrong = {"relu": "Tanh", "softmax": "Softmax"}
        monkeypatch.setattr("mlpengine.export._onnx_network.STANDARD", wrong)
        with pytest.raises(NumericalError):
            export(network, tmp_path / "net.onnx")


class Elementwise(Network):
    """Gates with numbers, vectors and masks of one's own, reductions, moves and products."""

    def __init__(self, **options):
        shapes = {"weight": (4, IN_DIM), "scale": 1, "shift": 4, "matrix": (4, 4), "out": (2, 42)}
        super().__init__(IN_DIM, shapes, seed=1, **options)

    def record(self, tape, x):
        p = tape.parameter
        g = x.linear(p("weight")).sigmoid()
        mask = np.array([[0.0, -2.0], [1.0, 0.5]], self.dtype)
        parts = [1 - g, g * (1 - g), 1 / (1 + g), g * p("scale") + p("shift"), g.maximum(0.4)]
        parts += [
            (g.reshape(-1, 2, 2) + mask).reshape(-1, 4),
            g * np.arange(4, dtype=self.dtype),
            1 - x,
        ]
        parts += [(g.reshape(-1, 4, 1) * g.reshape(-1, 1, 4)).sum(axis=2), (g @ p("matrix")).silu()]
        return cat(parts, axis=1).linear(p("out")) + p("matrix").mean()


class Tokens(Network):
    """Means of embeddings."""

    def __init__(self):
        shapes = {"words": (4, 3), "out": (2, 3), "bias": 2}
        super().__init__(("int64", (2, 5)), shapes, seed=1)

    def record(self, tape, tokens):
        p = tape.parameter
        h = p("words").embedding(tokens).mean(axis=(1, 2)).tanh()
        return h.linear(p("out"), p("bias"))


class Indexed(Network):
    """Numbers and integers together: embeddings, slices, gathers and selections on each axis."""

    def __init__(self, **options):
        inputs = {"x": IN_DIM, "i": ("int64", (2, 2)), "kind": ("int64", 1)}
        super().__init__(inputs, {"rows": (4, 3), "out": (2, 27)}, seed=1, **options)

    def record(self, tape, x, i, kind):
        p, ends = tape.parameter, tape.constant(np.array([[[-1, 0, 1]]]))
        parts = [p("rows").embedding(i[:, 1]).reshape(-1, 6), i.reshape(-1, 4).cast(self.dtype)]
        parts += [p("rows").index_select(kind[:, 0]), x.gather(i[:, 0], axis=1)]
        parts.append(x.reshape(-1, 2, 3).gather(ends, axis=2).reshape(-1, 6))
        parts.append(x.reshape(-1, 6, 1).gather(i, axis=1).reshape(-1, 4))
        parts.append(x.index_select(tape.constant(np.array([3, -6])), axis=1))
        return cat(parts, axis=1).linear(p("out"))


C_NETWORKS = {
    "normalized": Normalized(),
    "elementwise": Elementwise(dtype="float64"),
    "tokens": Tokens(),
    "indexed": Indexed(),
    "indexed in float64": Indexed(dtype="float64"),
}


def test_one_row_of_element_wise_ops_is_compiled():
    network = shaken(Elementwise())
    x, _ = rows(1)
    np.testing.assert_allclose(network.compile()(x), network.predict(x), rtol=1e-5)


def inputs_of(network, count):
    """Return random inputs of a network, and their rows as one array of numbers."""
    rng = np.random.default_rng(0)
    x = {
        name: rng.integers(-4, 4, (count, *shape))
        if network.in_dtypes[name].kind == "i"
        else rng.standard_normal((count, *shape)).astype(network.dtype)
        for name, shape in network.in_shapes.items()
    }
    flat = np.hstack([values.reshape(count, -1) for values in x.values()])
    return x.get("", x), flat.astype(network.dtype)


def compiled(network, tmp_path):
    """Return the C function of a network."""
    export(network, tmp_path / "net.c", name="net")
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    library = str(tmp_path / "net.so")
    source = [str(tmp_path / "net.c"), "-shared", "-fPIC", "-o", library, "-lm"]
    subprocess.run([*compiler_command(), *flags, "-O1", *source], check=True)
    pointer = np.ctypeslib.ndpointer(network.dtype)
    predict = ctypes.CDLL(library).net_predict
    predict.argtypes = [pointer, pointer]
    return predict


@pytest.mark.parametrize("name", ["tokens", "indexed", "indexed in float64"])
def test_onnx_reads_several_inputs_and_integers(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    network = shaken(C_NETWORKS[name])
    exported = export(network, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    x, _ = inputs_of(network, 20)
    feed = x if isinstance(x, dict) else {"input": x}
    dtypes = {n: "int64" if v.dtype == np.int64 else "float32" for n, v in feed.items()}
    assert exported.inputs == dtypes
    (found,) = session.run(None, {n: v.astype(dtypes[n]) for n, v in feed.items()})
    np.testing.assert_allclose(found, network.predict(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*own_networks.NETWORKS, *TABLES, *C_NETWORKS])
def test_c_computes_what_a_network_does(name, tmp_path):
    network = shaken((ours() | C_NETWORKS)[name])
    predict = compiled(network, tmp_path)
    x, flat = inputs_of(network, 20)
    got = np.full((20, network.outputs + 1), 7.0, network.dtype)  # and a number beyond the output
    for row, out in zip(flat, got, strict=True):
        predict(row, out)
    tolerance = 1e-12 if network.dtype == np.float64 else 2e-5
    np.testing.assert_allclose(got[:, :-1], network.predict(x), rtol=tolerance, atol=tolerance)
    assert (got[:, -1] == 7).all()


def test_c_selects_nan_by_an_index_that_no_table_has(tmp_path, monkeypatch):
    network, out = Tokens(), np.zeros(2, np.float32)
    predict = compiled(network, tmp_path)
    for index in (4, -5, 0.5, 1e30, -1e30, np.inf, np.nan, -4):
        predict(np.array([0, 1, 2, 3, 0, 0, 0, 0, 0, index], np.float32), out)
        assert np.isnan(out).all() == (index != -4)
    monkeypatch.setitem(EXACT, 4, 3)  # as with 2**24 + 1 entries
    with pytest.raises(UsageError, match="4 entries, too many for float32"):
        export(network, tmp_path / "net.c")


def test_what_has_no_rule_is_refused_by_its_name(tmp_path):
    for suffix in ("c", "js"):
        with pytest.raises(UsageError, match=r"JavaScript.*batch_matmul"):
            export(Pieces(), tmp_path / f"net.{suffix}")

    class Chosen(Network):
        def record(self, tape, x):
            return x.linear(tape.parameter("w")).where(x, 0.0)

    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    with pytest.raises(UsageError, match="where"):
        export(network := Chosen(IN_DIM, {"w": (1, IN_DIM)}), tmp_path / "net.onnx")
    network.params.flat[1] = np.nan
    with pytest.raises(UsageError, match=r"w must be finite \(nan at \[0, 1\]\)"):
        export(network, tmp_path / "net.onnx")


def test_a_network_of_several_outputs_is_refused(tmp_path):
    class Several(Network):
        def record(self, tape, x):
            y = x.linear(tape.parameter("w"))
            return {"a": y, "b": y.relu()}

    for format in ("c", "onnx"):
        with pytest.raises(UsageError, match="a network must have one output"):
            export(Several(IN_DIM, {"w": (2, IN_DIM)}), tmp_path / f"net.{format}")


def shaken(network):
    """Return the network with all its parameters changed, those that start at 0 or 1 too."""
    flat = network.params.flat
    flat += 0.1 * np.random.default_rng(5).standard_normal(flat.shape).astype(flat.dtype)
    return network

"""The forward pass alone, compiled at run time and exported as C."""

import ctypes
import gc
import subprocess
import weakref

import numpy as np
import pytest
from uncompiled import uncompiled

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.core.errors import CompileError, UsageError
from mlpengine.export.network_c import c_file, network_code
from mlpengine.ops import Softmax


@pytest.mark.parametrize(
    ("sizes", "batch", "dtype"),
    [
        ([4, 32, 32, 2], 1, "float32"),
        ([7, 5, 3], 6, "float64"),
    ],
)
def test_a_compiled_network_predicts_the_same(sizes, batch, dtype):
    mlp = Mlp(sizes, activation="tanh", dropout=0.5, seed=1, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((batch, sizes[0])).astype(dtype)
    compiled = mlp.compile(batch)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(compiled(x), mlp.predict(x), rtol=tolerance, atol=tolerance)
    mlp.params.flat *= 0.5  # it follows the network
    np.testing.assert_allclose(compiled(x), mlp.predict(x), rtol=tolerance, atol=tolerance)
    assert compiled(x.astype("f4")) is compiled.output


STEPS = [
    # sizes, batch, threads, dtype, more
    ([7, 33, 5], 30, 1, "float64", {"activation": "tanh", "dropout": 0.3}),
    ([9, 40, 3], 8, 1, "float32", {"activation": "mish", "reads": ((1, 4), (6, 9))}),
    ([300, 300, 3], 64, 2, "float32", {"dropout": [0.6]}),  # threads divide columns
    ([4, 64, 64, 2], 3000, 2, "float64", {"dropout": 0.2}),  # rows in chunks
]


@pytest.mark.parametrize(("sizes", "batch", "threads", "dtype", "more"), STEPS)
def test_a_step_computes_outputs_as_the_network_does(sizes, batch, threads, dtype, more):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch + 5, sizes[0])).astype(dtype)
    y = rng.standard_normal((batch + 5, sizes[-1])).astype(dtype)
    order = rng.integers(0, len(x), 3 * batch)
    ends = []
    for evaluates in (True, False):
        mlp = Mlp(sizes, seed=1, dtype=dtype, **more)
        options = {"backend": "compiled", "threads": threads}
        step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), batch, **options)
        for _ in range(2):
            step.run_many(x, y, order)
            if evaluates:
                outputs = np.full((len(x), sizes[-1]), np.nan, dtype)
                step.bound(batch).forward.forward(x, outputs)
        ends.append(mlp.params.flat)
        if evaluates:
            expected = mlp.predict(x)
            tolerance = 2e-6 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(outputs, expected, rtol=tolerance, atol=tolerance)
            parts = np.full_like(outputs, np.nan)
            for start in range(0, len(x), 4):
                rows = slice(start, start + 4)
                step.bound(batch).forward.forward(x[rows], parts[rows])
            np.testing.assert_array_equal(parts, outputs)
    np.testing.assert_array_equal(*ends)  # the next steps do not depend on it


def test_machine_code_gives_a_row_the_same_bits_wherever_it_stands():
    """BLAS does not: it rounds by the place of a row."""
    mlp, rng = Mlp([257, 257, 33, 10], seed=0, dtype="float64"), np.random.default_rng(0)
    step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), 64, backend="compiled")
    x = rng.standard_normal((150, 257))
    outputs = [np.empty((len(part), 10)) for part in (x, x, x[3:80])]
    for part, out in zip((x, x[::-1].copy(), x[3:80]), outputs, strict=True):
        step.bound(64).forward.forward(part, out)
    whole, turned, some = outputs
    np.testing.assert_array_equal(turned[::-1], whole)
    np.testing.assert_array_equal(some, whole[3:80])


def test_a_layer_without_a_rule_cannot_be_compiled():
    with pytest.raises(CompileError, match="softmax"):
        Mlp([3, 4, 2], activation=Softmax(0)).compile()


def exported(networks, folder, **options):
    source = folder / "net.c"
    source.write_text(c_file(network_code(networks, name="net", **options)))
    library = folder / "net.so"
    names = ("all", "extra", "conversion", "double-promotion", "shadow", "error")
    strict = ["-std=c99", "-pedantic", *(f"-W{n}" for n in names), "-O2", "-shared", "-fPIC"]
    command = [*compiler_command(), *strict, str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    predict = ctypes.CDLL(str(library)).net
    predict.argtypes, predict.restype = [ctypes.c_void_p] * 2, None
    return predict


def predictions(predict, x, columns):
    """Return what an exported function computes, row by row."""
    out = np.zeros((len(x), columns), x.dtype)
    for row, result in zip(x, out, strict=True):
        predict(row.ctypes.data, result.ctypes.data)
    return out


@pytest.mark.parametrize(("in_dim", "dtype"), [(63, "f4"), (75, "f8")])
def test_exported_c_adds_the_products_of_a_long_sum_in_four_parts(in_dim, dtype, tmp_path):
    mlp = Mlp([in_dim, 1], dtype=dtype)
    rows = np.random.default_rng(2).standard_normal((20, in_dim)).astype(dtype)
    out = predictions(exported(mlp, tmp_path), rows, 1)[:, 0]
    for x, value in zip(rows, out, strict=True):
        products = mlp.weights[0][0] * x
        end = in_dim - in_dim % 8 if in_dim >= 64 else 0
        sums = np.zeros(4, dtype)
        for eight in products[:end].reshape(-1, 2, 4):
            sums += eight[0] + eight[1]
        for product in products[end:]:
            sums[0] += product
        assert value == (sums[0] + sums[2]) + (sums[1] + sums[3])


def test_softmax_over_the_rows_has_no_c_of_one_row():
    with pytest.raises(UsageError, match="softmax along axis 0"):
        c_file(network_code(Mlp([2, 3], output_activation=Softmax(0))))


@pytest.mark.parametrize("name", ["dense", "network_of", "y"])
def test_the_name_may_be_one_of_the_file(name, tmp_path):
    for networks in (Mlp([2, 3, 1]), [Mlp([2, 3, 1])] * 2):
        (tmp_path / "net.c").write_text(c_file(network_code(networks, name=name)))
        command = [*compiler_command(), "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "net.c"]
        subprocess.run(command, cwd=tmp_path, check=True)


def test_weights_that_are_not_finite_are_not_exported():
    mlp = Mlp([2, 1])
    mlp.params.flat[0] = np.nan
    with pytest.raises(UsageError, match="must be finite"):
        c_file(network_code(mlp))


def test_the_bare_call_keeps_its_memory():
    mlp = Mlp([4, 9, 2], activation="tanh", seed=0)
    compiled = mlp.compile(batch_size=3)
    run, rows, output = compiled.run, compiled.input, compiled.output
    kept = weakref.ref(compiled)
    del mlp, compiled
    gc.collect()
    assert kept() is None
    rows[...] = 1.0
    before = output.copy()
    assert run() == 0
    assert not np.array_equal(output, before)


@pytest.mark.parametrize(
    ("sizes", "batch", "chunked"), [([4, 64, 4], 10_000, True), ([1024, 1024], 512, False)]
)
def test_only_small_weights_are_met_chunk_by_chunk(sizes, batch, chunked):
    whole = f"#define CHUNK_ROWS INT64_C({batch})\n"
    with uncompiled():
        assert (whole not in Mlp(sizes, seed=0).compile(batch).source) == chunked

"""The C of a model: it takes what a row of the table holds and gives what `predict` gives."""

import ctypes
import subprocess
from datetime import datetime

import numpy as np
import pytest
from plain import plain

import mlpengine
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export import export
from mlpengine.export._model_c import why_double
from mlpengine.models.model import Model

G = np.random.default_rng(4)
ROWS = 80
X = G.normal(size=ROWS)
COLORS = ("red", "green", "deep blue")
COLUMNS = {
    "size (mm)": (50 + 10 * X).tolist(),
    "gap": [None if i % 7 == 0 else float(i) for i in range(ROWS)],
    "color": [COLORS[i % 3] if i % 11 else None for i in range(ROWS)],
    "is_new": [bool(i % 2) for i in range(ROWS)],
}
PRICE = (1000 + 50 * X + 20 * (np.arange(ROWS) % 3)).tolist()
KIND = np.where(X + 0.5 * (np.arange(ROWS) % 2) > 0, "yes", "no").tolist()
FEW = {"model": {"hidden": [6]}, "training": {"epochs": 3, "batch_size": 16}}
DAYS = [datetime(2023, 1 + i % 12, 1 + i % 28) for i in range(ROWS)]

MODELS = {
    "numbers": ({"y": PRICE}, {}),
    "classes": ({"y": KIND}, {}),
    "two classes by one output": ({"y": KIND}, {"loss": "bce_with_logits"}),
    "dates later than those of training": (
        {"y": PRICE, "day": DAYS},
        {"data": {"split": {"time": "day", "test": 0.2}}},
    ),
    "bins beyond a float": (
        {"y": PRICE, "far": (1e39 * X).tolist()},
        {"data": {"encoding": "piecewise"}},
    ),
    "bounds that are reached": (
        {"y": PRICE},
        {"data": {"bound_predictions": True}, "optimizer": {"name": "adam", "lr": 3.0}},
    ),
    "outputs that cross": (
        {"y": PRICE},
        {"loss": {"name": "quantile", "levels": [0.2, 0.4, 0.5, 0.6, 0.8]}},
    ),
    "several networks": ({"y": KIND}, {"training": {"epochs": 2, "batch_size": 16, "seeds": 2}}),
}


@pytest.fixture(scope="module")
def compiler():
    return compiler_command()


@pytest.mark.parametrize("name", MODELS)
def test_c_predicts_rows_of_the_table(name, compiler, tmp_path):
    targets, settings = MODELS[name]
    table = COLUMNS | targets
    target = [n for n in targets if n not in ("day", "far")]
    model, _ = mlpengine.fit(table, target, **plain(**(FEW | settings)))
    exported = export(model, tmp_path / "model.c")
    assert list(exported.inputs) == model.columns
    library = tmp_path / "model.so"  # with the self-test; names have their own test without it
    warnings = ("all", "extra", "conversion", "double-promotion", "shadow", "error")
    strict = ["-std=c99", "-pedantic", *(f"-W{name}" for name in warnings), "-O1"]
    build = [*compiler, *strict, str(tmp_path / "model.c"), "-lm", "-DMLP_SELF_TEST"]
    subprocess.run([*build, "-shared", "-fPIC", "-o", str(library)], check=True)
    assert ctypes.CDLL(str(library)).main() == 0
    real = np.float64 if exported.inputs[model.columns[0]] == "double" else np.float32
    pointer = np.ctypeslib.ndpointer(real)
    predict = ctypes.CDLL(str(library)).predict
    predict.argtypes = [pointer, pointer]
    rows = [{n: table[n][i] for n in model.columns} for i in range(0, ROWS, 5)]
    rows.append(rows[0] | {"color": "never seen", "gap": None})
    got = []
    for row in rows:
        out = np.empty(len(exported.outputs), real)
        assert predict(np.array(coded(row, model), real), out) == 1
        got.append(out)
    expected = model.predict_proba(rows) if model.classes else None
    if expected is None:
        expected = np.stack([*model.predict_columns(rows).values()], axis=1)
    if "cross" in name:
        assert (np.diff(expected) >= 0).all()
        assert (np.diff(model.outputs(rows)) < 0).any()
    if "bound" in name:
        low, high = model.preprocessor.target.bounds[:, 0]
        assert {low, high} & set(expected[:, 0])
    scale = np.abs(expected).max() if not model.classes else 1.0
    np.testing.assert_allclose(np.stack(got), expected, atol=3e-5 * scale)


TWO = """\
#include "price.h"
#include "kind.h"
#include "plain.h"
#include <stdio.h>

int main(void)
{
  const float x[4] = {%s}, z[2] = {0.5f, -1};
  float out[1], chances[2], y[1];
  if (!price_predict(x, out) || !kind_predict(x, chances)) return 1;
  plain_predict(z, y);
  printf("%%.9g %%.9g %%d %%d %%.9g", (double)out[0], (double)chances[KIND_CLASS_YES],
         PRICE_X_COLOR, KIND_X_COLOR, (double)y[0]);
  return 0;
}
"""


def test_models_with_names_are_linked_into_one_program(compiler, tmp_path):
    few = plain(**FEW)
    price, _ = mlpengine.fit(COLUMNS | {"y": PRICE}, "y", **few)
    kind, _ = mlpengine.fit(COLUMNS | {"y": KIND}, "y", **few)
    network = mlpengine.Mlp([2, 3, 1], seed=1)
    models = {"price": price, "kind": kind, "plain": network}
    sources = [tmp_path / f"{name}.c" for name in models]
    for (name, model), source in zip(models.items(), sources, strict=True):
        export(model, source, name=name)
    row = {n: COLUMNS[n][4] for n in price.columns}
    cells = ", ".join(f"{float(cell)!r}f" for cell in coded(row, price))
    (tmp_path / "main.c").write_text(TWO % cells)
    program = tmp_path / "main"
    objects = []
    for source in sources:
        objects.append(source.with_suffix(".o"))
        build = [*compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", str(source)]
        subprocess.run([*build, "-o", str(objects[-1])], check=True)
    main = [*compiler, "-std=c99", str(tmp_path / "main.c")]
    doubles = tmp_path / "doubles.c"  # C11 checks the type of arrays
    doubles.write_text((TWO % cells).replace("const float", "const double"))
    for source, fits in ((main[-1], True), (str(doubles), False)):
        build = [*compiler, "-std=c11", "-fsyntax-only", source]
        assert (subprocess.run(build, capture_output=True, check=False).returncode == 0) == fits
    subprocess.run([*main, *map(str, objects), "-lm", "-o", str(program)], check=True)
    told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    y, yes, *places, output = map(float, told.split())
    assert places == [price.columns.index("color")] * 2
    assert y == pytest.approx(price.predict(row)[0], rel=3e-5)
    assert yes == pytest.approx(kind.predict_proba(row)[0, kind.classes.index("yes")], abs=3e-5)
    assert output == pytest.approx(network.predict(np.array([[0.5, -1]], "f4"))[0, 0], rel=1e-5)


def test_names_are_c_identifiers_and_of_c_alone(tmp_path):
    network = mlpengine.Mlp([2, 1])
    for name in ("", "two words", "größe", "1st"):
        with pytest.raises(mlpengine.UsageError, match="name must be a C identifier"):
            export(network, tmp_path / "net.c", name=name)
    with pytest.raises(mlpengine.UsageError, match="name is for the format c"):
        export(network, tmp_path / "net.safetensors", name="net")
    assert [*tmp_path.iterdir()] == []


def coded(row, model):
    """Return a row as the C function takes it."""
    levels = {c.column: c.levels for c in model.preprocessor.categories}
    cells = []
    for name, cell in row.items():
        if cell is None:
            cells.append(np.nan)
        elif name in levels:
            cells.append(levels[name].index(cell) if cell in levels[name] else -1.0)
        elif isinstance(cell, datetime):
            cells.append((cell - datetime(1970, 1, 1)).total_seconds())
        else:
            cells.append(float(cell))
    return cells


@pytest.mark.parametrize(
    ("values", "dtype", "reason"),
    [
        (X, "float32", ""),
        (X, "float64", "float64"),
        (300.0 + X, "float32", ""),
        (1e6 + X, "float32", "far"),  # a float is right to 0.03
        (1e6 * X.round(1), "float32", ""),
        (1e60 * X, "float32", "beyond"),
    ],
)
def test_numbers_are_double_where_a_float_loses_them(values, dtype, reason):
    table = Table({"far": Column(values), "y": Column(X)}, "rows")
    model = Model(mlpengine.Mlp([1, 1], dtype=dtype), Preprocessor("y").fit(table), "mse")
    assert reason in why_double(model)
    assert bool(why_double(model)) == bool(reason)


def test_numbers_are_double_where_a_float_loses_places_in_narrow_bins():
    column = 30.0 + np.where(np.arange(len(X)) % 20 == 0, X, 1e-3 * X)
    table = Table({"far": Column(column), "y": Column(X)}, "rows")
    for encoding, reason in (("none", False), ("piecewise", True)):
        inputs = Preprocessor("y", encoding=encoding).fit(table)
        model = Model(mlpengine.Mlp([inputs.n_features, 1]), inputs, "mse")
        assert ("far" in why_double(model)) == reason

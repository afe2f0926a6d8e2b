"""Training as C for devices: compiled without a warning, and run against Python's steps."""

import re
import subprocess
from math import nan

import numpy as np
import pytest

from mlpengine import Adam, Mlp, Sgd, ops
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.backends.scalar.definitions import FreshNames, comment_text, identifier
from mlpengine.backends.scalar.update_code import accurate
from mlpengine.core.errors import UsageError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export import export
from mlpengine.export.c_train import export_training
from mlpengine.formula import constant, evaluate, power, variable
from mlpengine.models.model import Model
from mlpengine.models.task import task_for
from mlpengine.optim import AdamW, Group, Lbfgs, Lion, RmsProp

WARNINGS = ("all", "extra", "conversion", "double-promotion", "shadow", "error")
STRICT = ("-std=c99", "-pedantic", *(f"-W{name}" for name in WARNINGS), "-O1")


def compiled(folder, *files, flags=()):
    """Compile files and return the program's path."""
    command = [*compiler_command(), *STRICT, *flags, *files, "-o", "program", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "program"


def run(program):
    done = subprocess.run([program], capture_output=True, text=True)
    return done.returncode, done.stdout


def passes(folder, model, *, flags=(), **options):
    """Export, compile and run the self-test; return the written files."""
    written = export_training(model, folder / "net.c", **options)
    program = compiled(folder, "net.c", "net_test.c", flags=flags)
    code, out = run(program)
    assert (code, out[:23]) == (0, "net: 100 steps agree (t"), out
    return written


# ---------------------------------------------------------------- networks
def adam(mlp):
    return Adam(mlp, lr=0.01, weight_decay=0.1)


def momentum(mlp):
    return Sgd(mlp, lr=0.01, momentum=0.9, nesterov=True)


NETWORKS = {
    "sgd": ([2, 16, 1], "tanh", ops.MeanSquaredError(), Sgd, {}),
    "adam, clipped, frozen below": (
        [4, 8, 8, 2],
        "relu",
        ops.Huber(0.5),
        adam,
        {"clip_norm": 0.5, "freeze": [0]},
    ),
    "momentum, frozen above": (
        [3, 6, 5, 3],
        "gelu",
        ops.SoftmaxCrossEntropy(label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5)),
        momentum,
        {"freeze": [1, 2]},
    ),
    "slope of a frozen layer": ([3, 5, 2], "gelu", ops.MeanSquaredError(), Sgd, {"freeze": [0]}),
    "one layer, decayed biases": (
        [3, 2],
        (),
        ops.LogCosh(),
        lambda mlp: AdamW(mlp, decay_biases=True),
        {},
    ),
    "adamw in double": ([2, 5, 4], "selu", ops.GaussianNll(), AdamW, {"real": "double"}),
    "rmsprop in double, layer between frozen": (
        [2, 4, 4, 1],
        ["softplus", "x * sin(x) + abs(x) ** 1.5"],
        ops.Poisson(),
        lambda mlp: RmsProp(mlp, momentum=0.5),
        {"real": "double", "freeze": [1]},
    ),
    "wide, diverging": ([100, 1], (), ops.MeanSquaredError(), lambda m: Sgd(m, lr=1.0), {}),
    "lion": ([2, 4, 2], "sigmoid", ops.Quantile((0.1, 0.9)), lambda m: Lion(m, lr=1e-3), {}),
}


@pytest.mark.parametrize(
    ("sizes", "activation", "loss", "optimizer", "options"), NETWORKS.values(), ids=NETWORKS
)
def test_a_device_trains_as_python_does(sizes, activation, loss, optimizer, options, tmp_path):
    dtype = "float64" if options.get("real") == "double" else "float32"
    mlp = Mlp(sizes, activation=activation, seed=1, dtype=dtype)
    passes(tmp_path, mlp, optimizer=optimizer, loss=loss, **options)


def test_a_compiler_may_choose_double(tmp_path):
    mlp = Mlp([3, 6, 2], activation="tanh", seed=1)
    options = {"optimizer": adam, "loss": ops.MeanSquaredError(), "clip_norm": 1.0}
    passes(tmp_path, mlp, flags=["-DNET_REAL=double"], **options)  # two steps to 1e-12


def test_an_activation_after_the_last_layer_is_trained_through(tmp_path):
    mlp = Mlp([2, 4, 2], activation="silu", output_activation="tanh", seed=1)
    passes(tmp_path, mlp, loss=ops.MeanSquaredError())


MUTATIONS = [
    ("old_first * R(0.9)", "old_first * R(0.901)", "moment first of step 2"),
    ("splat(-0.00100050033", "splat(-0.00105050033", "step 2"),
    ("vmin(R(0.5) / (norm", "vmin(R(0.5003) / (norm", "moment first of step 2"),
    ("6), 1));", "6), 2));", "the norm of the gradient of step 2"),
    ("real factor = dy_of[i]", "real factor = dy_of[0]", "step 2"),
    ("state->lr = R(0.01)", "state->lr = R(0.0101)", "step 2"),
    ("dense_3(x, state->params + 0", "dense_3(x, state->params + 1", "the prediction of step 2"),
    ("sum ^= bytes[i]", "sum ^= bytes[i] & 0xfe", "kept the sum"),
    ("!is_finite(value) || !is_finite(norm)", "0", "changed the state"),
    (" || !is_finite(state->lr)", "", "changed the state"),
]
"""Places of a generated file, what stands there instead, and what the self-test says of it."""


@pytest.fixture(scope="module")
def trained_by_adam(tmp_path_factory):
    """Return the folder of a file and its self-test."""
    folder = tmp_path_factory.mktemp("mutated")
    mlp = Mlp([3, 6, 2], activation="gelu", seed=1)
    export_training(mlp, folder / "net.c", loss=ops.Huber(0.5), optimizer=adam, clip_norm=0.5)
    command = [*compiler_command(), "-std=c99", "-c", "net_test.c", "-o", "net_test.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder, (folder / "net.c").read_text()


@pytest.mark.parametrize(("before", "after", "message"), MUTATIONS)
def test_the_self_test_names_what_is_wrong(trained_by_adam, before, after, message):
    folder, text = trained_by_adam
    assert before in text
    (folder / "net.c").write_text(text.replace(before, after))
    code, out = run(compiled(folder, "net.c", "net_test.o", flags=["-Wno-error"]))
    assert code == 1
    assert message in out


def test_files_are_the_same_each_time_and_need_no_allocator(tmp_path):
    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        mlp = Mlp([2, 6, 1], seed=1, dropout=0.5)
        export_training(mlp, folder / "net.c", loss=ops.MeanSquaredError())
        texts.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert texts[0] == texts[1]
    assert set(texts[0]) == {"net.c", "net.h", "net_test.c"}
    source = texts[0]["net.c"].decode() + texts[0]["net.h"].decode()
    included = {line for line in source.splitlines() if line.startswith("#include")}
    headers = ("<math.h>", "<stddef.h>", "<stdint.h>", "<string.h>", '"net.h"')
    assert included == {f"#include {name}" for name in headers}


def test_frozen_layers_are_constants_and_those_of_the_network_by_default(tmp_path):
    mlp = Mlp([4, 8, 8, 1], seed=1)
    loss = ops.MeanSquaredError()
    whole = export_training(mlp, tmp_path / "net.c", loss=loss)
    mlp.freeze([0, 1])
    frozen = export_training(mlp, tmp_path / "net.c", loss=loss)
    assert whole.state - frozen.state == 4 * (mlp.weights[0].size + 8 + mlp.weights[1].size + 8)
    assert "frozen_1[72]" in (tmp_path / "net.c").read_text()
    assert "back_dense" not in (tmp_path / "net.c").read_text()


# ---------------------------------------------------------------- preprocessing
N = 120


def table(*names):
    rng = np.random.default_rng(0)
    gaps = 40 + 2 * rng.normal(size=N)
    gaps[::7] = nan
    levels = ("a */ b", "c??/", 'd\n#error "e"')
    dates = 1.7e9 + rng.integers(0, 10**7, (2, N)) * 1.0
    columns = {
        "far off": Column(1e5 + 3 * rng.normal(size=N)),
        "gaps": Column(gaps),
        "text": Column(rng.integers(-1, 3, N).astype(np.int32), "text", levels),
        "flag": Column(rng.integers(0, 2, N).astype(float), "boolean"),
        "k": Column(rng.normal(size=N)),
        "y": Column(100 + 7 * rng.normal(size=N)),
        "z": Column(-3 + 0.1 * rng.normal(size=N)),
        "kind": Column(rng.integers(0, 3, N).astype(np.int32), "text", ("u", "v", "w")),
        "l1": Column(rng.integers(0, 2, N).astype(float)),
        "l2": Column(rng.integers(0, 2, N).astype(float)),
        "from": Column(dates[0], "date"),
        "to": Column(dates[1], "date"),
    }
    return Table({name: columns[name] for name in names}, "rows")


MIXED = ("far off", "gaps", "text", "flag", "k")
TABLES = {
    "several targets, bins, indicators": (
        (*MIXED, "y", "z"),
        {"target": ["y", "z"], "missing": "indicator", "encoding": "piecewise", "bins": 3},
        "huber",
        {},
    ),
    "classes": ((*MIXED, "kind"), {"target": "kind", "standardize": "robust"}, None, {}),
    "two classes": (
        (*MIXED, "l1"),
        {"target": "l1", "task": "classification", "clip": "none"},
        "bce_with_logits",
        {},
    ),
    "labels": (("k", "text", "l1", "l2"), {"target": ["l1", "l2"], "task": "multilabel"}, None, {}),
    "computed columns": (
        ("far off", "gaps", "k", "flag", "y"),
        {
            "target": "y",
            "features": {"a": "`far off` * k", "b": "log(gaps) + a", "c": "k > 0"},
            "where": "k > -5",
        },
        "mae",
        {},
    ),
    "dates in double": (
        ("k", "from", "to", "y"),
        {"target": "y", "missing": "error"},
        None,
        {"real": "double"},
    ),
    "logarithms": (("k", "flag", "y"), {"target": "y", "transform_target": "log"}, None, {}),
    "categories alone": (("text", "y"), {"target": "y"}, None, {}),
}
DEFAULT_LOSS = {
    "classification": "softmax_cross_entropy",
    "multilabel": "bce_with_logits",
    "regression": "mse",
}


def model_of(names, options, loss=None, activation="silu", **loss_options):
    preprocessor = Preprocessor(**options).fit(table(*names))
    for category in preprocessor.categories:
        category.value = 0.25  # as of levels that say little of the target
    loss = loss or DEFAULT_LOSS[preprocessor.task]
    outputs = task_for(preprocessor.target, ops.REGISTRY[loss](**loss_options)).outputs
    mlp = Mlp([preprocessor.n_features, 5, outputs], activation=activation, seed=1)
    return Model(mlp, preprocessor, loss, loss_options)


@pytest.mark.parametrize(("names", "fit", "loss", "options"), TABLES.values(), ids=TABLES)
def test_preprocessing_and_predictions_are_those_of_python(names, fit, loss, options, tmp_path):
    passes(tmp_path, model_of(names, fit, loss), optimizer=momentum, **options)


def functions_of(path):
    """Return the functions of a file by name."""
    heads = r"^(?:static )?\w+ (\w+)\([^;]*?\)\n\{\n.*?^\}$"
    return {m[1]: m[0] for m in re.finditer(heads, path.read_text(), re.DOTALL | re.MULTILINE)}


def test_predicting_alone_takes_the_functions_of_the_file_that_trains(tmp_path):
    model = model_of((*MIXED, "kind"), {"target": "kind"}, activation="tanh")
    export(model, tmp_path / "alone.c")
    export_training(model, tmp_path / "trains.c")
    alone, trains = (functions_of(tmp_path / name) for name in ("alone.c", "trains.c"))
    assert alone.keys() - trains.keys() == {"network", "predict", "main"}
    shared = {"magnitude", "dot", "dense", "dense_2", "softmax", "one_hot", "features"}
    assert alone.keys() & trains.keys() == shared | {"predictions"}
    assert all(alone[name] == trains[name] for name in shared)


def test_a_row_that_cannot_be_used_is_refused_with_fast_math_too(tmp_path):
    export(model_of(("k", "y"), {"target": "y"}), tmp_path / "net.c")
    (tmp_path / "main.c").write_text(
        "#include <math.h>\n#include <stdio.h>\nint predict(const float *x, float *out);\n"
        'int main(void)\n{\n  float x, out;\n  while (scanf("%f", &x) == 1)\n'
        '    printf("%d ", predict(&x, &out));\n  return 0;\n}\n'
    )
    program = compiled(
        tmp_path,
        "main.c",
        "net.c",
        flags=["-ffast-math", "-Wno-unknown-warning-option", "-Wno-nan-infinity-disabled"],
    )
    done = subprocess.run([program], input="0.5 inf", capture_output=True, text=True)
    assert done.stdout == "1 0 "


@pytest.mark.parametrize(
    ("loss", "fit", "names"),
    [
        ("quantile", {}, ["OUT_Y_0_1 0", "OUT_Y_0_5 1", "OUT_Y_0_9 2", "Y_Y 0 /* y */"]),
        ("gaussian_nll", {}, ["OUT_Y 0", "OUT_Y_STD 1"]),
        ("gamma", {"exposure": "far off"}, ["OUT_Y_PER_FAR_OFF 0", "Y_Y_PER_FAR_OFF 0 /* y / far"]),
        ("survival", {"event": "l1"}, ["OUT_Y 0", "OUT_Y_0_1 1", "Y_Y 0 /* y: ", "Y_Y_HIGH 1"]),
    ],
)
def test_everything_that_a_loss_reads_and_predicts_has_a_name(loss, fit, names, tmp_path):
    fit = {"target": "y", "standardize_target": "mean" if loss == "gamma" else True} | fit
    options = {"levels": (0.1, 0.5, 0.9)} if loss == "quantile" else {}
    passes(tmp_path, model_of(("k", "y", "far off", "l1"), fit, loss, **options))
    header = (tmp_path / "net.h").read_text()
    assert [name for name in names if f"#define NET_{name}" not in header] == []


def test_the_header_names_columns_codes_and_classes(tmp_path):
    export_training(model_of((*MIXED, "kind"), {"target": "kind"}), tmp_path / "net.c")
    header = (tmp_path / "net.h").read_text()
    for line in (
        "#define NET_X_FAR_OFF 0 /* far off: a number */",
        "#define NET_X_TEXT 2 /* text: the code of a category */",
        "#define NET_X_FLAG 3 /* flag: 0 or 1 */",
        "#define NET_CODE_TEXT_A_B 0 /* a * / b */",
        "#define NET_CLASS_W 2 /* w */",
        "#define NET_TARGETS 1 ",
        "#define NET_OUTPUTS 3 ",
    ):
        assert line in header


@pytest.mark.parametrize("t", [1, 2, 100, 20_000])
def test_numbers_of_a_step_are_accurate_in_float32(t):
    steps = variable("t")
    plain = 1 - power(constant(0.999), steps)
    value = evaluate(accurate(plain, {}), {"t": np.float32([t])})
    assert value[0] == pytest.approx(1 - 0.999**t, rel=3e-7)
    kept = {variable("beta"): constant(0.999)}
    assert accurate(1 - power(variable("beta"), steps), kept) is accurate(plain, {})


# ---------------------------------------------------------------- text
@pytest.mark.parametrize(
    ("text", "name"),
    [("a b", "A_B"), ("1st", "N1ST"), ("é", "X"), ("", "X"), ("_x_", "X"), ("p*/q", "P_Q")],
)
def test_identifiers(text, name):
    assert identifier(text, upper=True) == name


def test_names_differ():
    names = FreshNames()
    assert [names.add(n) for n in ("a", "a", "a_2", "a")] == ["a", "a_2", "a_2_2", "a_3"]


@pytest.mark.parametrize("text", ["*/", "/*", "a\\", "??/", "\n#error", "é\x1b[0m", "**//??(("])
def test_comments_cannot_be_left(text):
    shown = comment_text(text)
    assert shown.isascii()
    assert shown.isprintable()
    assert not any(part in shown for part in ("*/", "/*", "??", "a\\"))


def test_comments_tell_other_letters_apart():
    assert comment_text("\u6771 \xe9 \U0001f600 \\") == "\\u6771 \\xe9 \\U0001f600 /"


# ---------------------------------------------------------------- refusals and the command
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": None}, "an Mlp needs a loss"),
        ({"clip_norm": -1.0}, "clip_norm must be finite and above zero"),
        ({"freeze": [0, 1]}, "a layer must be left to train"),
        ({"freeze": [2]}, "a layer must be from 0 to 1"),
        ({"name": "two words.c"}, "must be a C identifier"),
        ({"activation": "softmax"}, "softmax"),
        ({"parts": {"reads": ((0, 1),)}}, "must read all features"),
        ({"optimizer": lambda mlp: Sgd(mlp, groups={"biases": Group(2)})}, "without groups"),
        ({"name": "net.txt"}, r"the name must end in \.c"),
        ({"optimizer": "sgd"}, "optimizer must be a class such as Sgd"),
        ({"loss": "mse"}, "loss must be a loss"),
        ({"loss": ops.SoftmaxCrossEntropy(ignore_index=0)}, "softmax_cross_entropy"),
        ({"optimizer": Lbfgs}, "Lbfgs"),
        ({"optimizer": Sgd(Mlp([3, 4, 2]))}, "must be a class or a function"),
    ],
)
def test_what_has_no_c_is_refused(tmp_path, options, message):
    options = {"loss": ops.MeanSquaredError(), "activation": "relu", "name": "net.c"} | options
    parts = options.pop("parts", {})
    mlp = Mlp([3, 4, 2], activation=options.pop("activation"), **parts)
    with pytest.raises(UsageError, match=message):
        export_training(mlp, tmp_path / options.pop("name"), **options)
    assert [*tmp_path.iterdir()] == []


def test_dates_and_huge_numbers_need_double(tmp_path, caplog):
    with pytest.raises(UsageError, match="a column of dates needs real double"):
        export_training(model_of(("k", "from", "y"), {"target": "y"}), tmp_path / "net.c")
    huge = Table({"x": Column(np.arange(9.0) * 1e60), "y": Column(np.arange(9.0))}, "rows")
    preprocessor = Preprocessor("y").fit(huge)
    with pytest.raises(UsageError, match="must fit a float"):
        export_training(Model(Mlp([1, 2, 1]), preprocessor, "mse"), tmp_path / "net.c")
    far = Table({"x": Column(np.arange(9.0)), "y": Column(np.arange(9.0) + 1e7)}, "rows")
    model = Model(Mlp([1, 2, 1]), Preprocessor("y").fit(far), "mse")
    export_training(model, tmp_path / "net.c")
    assert "a float rounds the predictions" in caplog.text
    export(model, tmp_path / "far.c", name="far")
    assert "#define FAR_REAL double" in (tmp_path / "far.h").read_text()


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("real", ["float", "double"])
def test_the_compiler_agrees_with_the_sizes_that_are_printed(real, tmp_path, caplog):
    model = model_of((*MIXED, "kind"), {"target": "kind"})
    written = export_training(model, tmp_path / "net.c", optimizer=adam, real=real)
    assert ("a float rounds the values of far off" in caplog.text) == (real == "float")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(void)\n{\n'
        '  printf("%lu %lu %lu", (unsigned long)sizeof(net_state), '
        "(unsigned long)NET_STATE_BYTES, (unsigned long)NET_SCRATCH_BYTES);\n  return 0;\n}\n"
    )
    code, out = run(compiled(tmp_path, "main.c", "net.c"))
    assert code == 0
    assert [int(n) for n in out.split()] == [written.state, written.state, written.scratch]

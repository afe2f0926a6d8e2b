"""8-bit weights: integers against Python's own, printed errors, an AVR and Cortex-M processors."""

import re
import subprocess

import numpy as np
import pytest
from boards import MACHINES, avr_object, needs_arm, needs_avr, on_arm, on_avr, size_of

from mlpengine import Mlp, ops
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.backends.scalar.text import Functions
from mlpengine.core.errors import UsageError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export import export
from mlpengine.export._int8_c import integer_network
from mlpengine.export.network_c import c_file
from mlpengine.models.model import Model
from mlpengine.models.task import task_for

WARNINGS = ("all", "extra", "conversion", "double-promotion", "shadow", "error")
STRICT = ("-std=c99", "-pedantic", *(f"-W{name}" for name in WARNINGS), "-O1")
SANITIZED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")

ROWS = 300


def table(columns=2, target="number"):
    rng = np.random.default_rng(0)
    x = rng.normal(20, 3, (columns, ROWS))
    kind = (x[0] > 20).astype(np.int32) + (x[1] > 21)
    targets = {
        "number": {"y": Column(50 + 4 * np.sin(x[0]) + x[1])},
        "class": {"kind": Column(kind, "text", ("low", "some", "high"))},
    }
    return Table({**{f"x{i}": Column(v) for i, v in enumerate(x)}, **targets[target]}, "rows")


def model_of(hidden, rows, loss="mse", **options):
    preprocessor = Preprocessor(rows.names[-1]).fit(rows)
    outputs = task_for(preprocessor.target, ops.REGISTRY[loss]()).outputs
    mlp = Mlp([preprocessor.n_features, *hidden, outputs], seed=1, **options)
    for bias in mlp.biases:
        bias[...] = np.random.default_rng(2).normal(0, 0.3, len(bias))
    return Model(mlp, preprocessor, loss)


def arrays_of(text):
    """Return the constant arrays of integers in a file."""
    matches = re.finditer(r"const IN_FLASH int\d+_t net_(\w+)\[\d+\] = \{([^}]*)\}", text)
    return {m[1]: [int(n) for n in m[2].split(",") if n.strip()] for m in matches}


def own_outputs(text, features):
    """Return what the file's comments say that it computes, in Python's integers."""
    arrays, results = arrays_of(text), []
    factor, limit = re.search(r"rounded\(input\[i\] \* R\((\S+)\), (\d+)\)", text).groups()
    scale = np.float32(re.search(r"output\[i\] = .* \* R\((\S+)\);", text)[1])
    calls = re.findall(r"^  (dense|relu|activate)\((.*)\);", text, re.MULTILINE)
    for row in features:
        x = []
        for product in row * np.float32(factor):
            nearest = int(np.floor(np.abs(product) + np.float32(0.5)))
            x.append(int(np.sign(product)) * min(nearest, int(limit)))
        for function, arguments in calls:
            numbers = [int(n) for n in re.findall(r"\b\d+\b", arguments)]
            if function == "dense":
                weight, unit, largest, in_dim, out_dim = numbers
                z = []
                for i in range(out_dim):
                    start, at = weight + i * in_dim, unit + 4 * i
                    zero, multiplier, shift, bias = arrays["units"][at : at + 4]
                    w = [n - zero for n in arrays["weights"][start : start + in_dim]]
                    total = sum(a * b for a, b in zip(w, x, strict=True))
                    assert -(2**31) <= total < 2**31
                    value = ((total * multiplier // 2**16) + 2 ** (shift - 1)) // 2**shift + bias
                    z.append(max(-largest, min(largest, value)))
                x = z
            elif function == "relu":
                x = [max(n, 0) for n in x]
            else:
                places = arrays[re.search(r"net_(table_\d+)", arguments)[1]]
                left = [places[(n + 32768) // 256] for n in x]
                right = [places[(n + 32768) // 256 + 1] for n in x]
                x = [
                    a + ((b - a) * (n % 256) + 128) // 256
                    for a, b, n in zip(left, right, x, strict=True)
                ]
        results.append(np.float32(x) * scale)
    return np.array(results)


def compiled_outputs(folder, text, features, out_dim):
    """Return what the file computes, compiled without a warning and checked as it runs."""
    main = (
        f"#include <stdio.h>\nint main(void)\n{{\n  float x[{features.shape[1]}], y[{out_dim}];\n"
        f'  for (size_t i = 0; scanf("%f", x + i) == 1;) {{\n'
        f"    if (++i < {features.shape[1]}) continue;\n    i = 0;\n    net(x, y);\n"
        f'    for (int k = 0; k < {out_dim}; k++) printf("%.9g ", (double)y[k]);\n  }}\n}}\n'
    )
    (folder / "net.c").write_text(text + main)
    command = [*compiler_command(), *STRICT, *SANITIZED, "net.c", "-o", "net", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    given = " ".join(repr(float(v)) for v in features.ravel())
    ran = subprocess.run([folder / "net"], input=given, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    return np.array(ran.stdout.split(), np.float32).reshape(-1, out_dim)


NETWORKS = {
    "tanh": (2, [16], {"activation": "tanh"}),
    "relu, two layers, scaled weights": (
        5,
        [12, 7],
        {"activation": "relu", "parametrization": "neural_tangent"},
    ),
    "two tables": (3, [4, 5], {"activation": ["gelu", "x * sin(x)"]}),
    "one layer, activated": (3, [], {"activation": (), "output_activation": "softplus"}),
    "sums that would overflow": (2, [600, 3], {"activation": "relu"}),
}


@pytest.mark.parametrize(("columns", "hidden", "options"), NETWORKS.values(), ids=NETWORKS)
def test_integers_are_those_of_python(columns, hidden, options, tmp_path):
    rows = table(columns)
    model = model_of(hidden, rows, **options)
    if len(hidden) > 1 and hidden[0] == 600:
        model.mlp.weights[0][...] = 1  # sums of 600 products of one sign
        model.mlp.weights[1][0] = 1
        model.mlp.weights[1][0, 0] = -0.01
        model.mlp.biases[0][...] = 3
    features = model.features(rows)
    network = integer_network(model, features)
    spread = model.forward(features).std()
    assert np.abs(network.outputs(features) - model.forward(features)).mean() < 0.02 * spread
    some = features[:20]
    beyond = np.concatenate([some, 3 * some, 1e9 * some[:5], 0 * some[:1]])
    text = c_file(network.code("net", Functions(), "float"))
    expected = own_outputs(text, beyond)
    np.testing.assert_array_equal(network.outputs(beyond), expected)
    np.testing.assert_array_equal(compiled_outputs(tmp_path, text, beyond, 1), expected)


def test_units_without_weights_or_with_large_biases_are_right():
    rows = table()
    model = model_of([4], rows, activation="relu")
    model.mlp.weights[0][0] = 0
    model.mlp.weights[0][1] *= 1e-9
    model.mlp.biases[0][:2] = 40, 7
    features = model.features(rows)
    apart = integer_network(model, features).outputs(features) - model.forward(features)
    assert np.abs(apart).max() < 0.05


# ---------------------------------------------------------------- the export
@pytest.mark.parametrize(
    ("target", "loss"), [("number", "mse"), ("class", "softmax_cross_entropy")]
)
def test_the_error_is_that_of_the_file(target, loss, tmp_path):
    rows = table(3, target)
    model = model_of([8], rows, loss, activation="tanh")
    exported = export(model, tmp_path / "pump.c", name="pump", calibration=rows)
    assert exported.paths == (tmp_path / "pump.c", tmp_path / "pump.h")
    count = len(exported.outputs)
    main = (
        f'#include <stdio.h>\n#include "pump.h"\nint main(void)\n{{\n  float x[3], y[{count}];\n'
        '  while (scanf("%f %f %f", x, x + 1, x + 2) == 3) {\n    pump_predict(x, y);\n'
        f'    for (int k = 0; k < {count}; k++) printf("%.9g ", (double)y[k]);\n  }}\n}}\n'
    )
    (tmp_path / "main.c").write_text(main)
    command = [*compiler_command(), *STRICT, "main.c", "pump.c", "-o", "main", "-lm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    cells = np.stack([rows[name].values for name in model.columns], axis=1)
    given = " ".join(repr(float(v)) for v in cells.ravel())
    ran = subprocess.run([tmp_path / "main"], input=given, capture_output=True, text=True)
    theirs = np.array(ran.stdout.split(), float).reshape(-1, count)
    ours = model.predict(rows)[:, None] if target == "number" else model.predict_proba(rows)
    apart, report = np.abs(theirs - ours), exported.int8
    name = "y" if target == "number" else "probabilities"
    assert report.rows == ROWS
    assert report.mean[name] == pytest.approx(apart.mean(), rel=0.02)
    assert report.largest[name] == pytest.approx(apart.max(), rel=0.02)
    if target == "class":
        same = (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean()
        assert report.same_labels == pytest.approx(same, abs=1.1 / ROWS)
    else:
        assert report.same_labels is None


def test_the_self_test_of_the_file_passes(tmp_path):
    rows = table()
    export(model_of([8], rows, activation="silu"), tmp_path / "net.c", calibration=rows)
    command = [*compiler_command(), "-DMLP_SELF_TEST", "net.c", "-o", "net", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (
        subprocess.run([tmp_path / "net"], capture_output=True, text=True).stdout[-6:] == "right\n"
    )


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda m: m.mlp, {}, "need a model with its preprocessing"),
        (lambda m: m, {"format": "js"}, "need a model with its preprocessing as C"),
        (lambda m: m, {"learned_activation": True}, "without front or learned activation"),
        (lambda m: m, {"activation": "softmax"}, "element-wise activations .got softmax"),
    ],
)
def test_what_has_no_integers_is_refused(change, options, message, tmp_path):
    rows = table()
    form = options.pop("format", "c")
    model = change(model_of([4], rows, **options))
    with pytest.raises(UsageError, match=message):
        export(model, tmp_path / f"net.{form}", calibration=rows)
    assert [*tmp_path.iterdir()] == []


# ---------------------------------------------------------------- on the machines
SHOWN = """\
#include <stdio.h>
#include "pump.h"
static const float rows[] = {{{cells}}};
int main(void)
{{
  float y;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i += 2)
    if (pump_predict(rows + i, &y)) printf("%.5f\\n", (double)y);
{more}  return 0;
}}
"""

MEASURED = """\
  TCNT1 = 0;
  pump_predict(rows, &y);
  const uint16_t eighths = TCNT1;
  printf("%lu\\n", 8ul * eighths);
  uint8_t *const top = (uint8_t *)SP, *p = &__heap_start;
  for (uint8_t *at = p; at < top; at++) *at = 0xa5;
  pump_predict(rows, &y);
  while (*p == 0xa5) p++;
  printf("%u\\n", (unsigned)(top - p));
"""

AVR_NAMES = (
    "#include <avr/io.h>\n#include <stddef.h>\n#include <stdint.h>\nextern uint8_t __heap_start;\n"
)


@pytest.fixture(scope="module")
def pump():
    """Return a model 2-16-1 and rows."""
    rows = table()
    return model_of([16], rows, activation="tanh"), rows


def written(pump, folder, more="", names="#include <stddef.h>\n"):
    """Export the model with 8-bit weights beside a program of 20 rows; return both predictions."""
    model, rows = pump
    exported = export(model, folder / "pump.c", name="pump", calibration=rows)
    some = rows.rows(np.arange(20))
    cells = np.stack([some[name].values for name in model.columns], axis=1).astype(np.float32)
    shown = ", ".join(f"{v!r}f" for v in cells.ravel().tolist())
    (folder / "main.c").write_text(names + SHOWN.format(cells=shown, more=more))
    features = model.features(some)
    outputs = integer_network(model, model.features(rows)).outputs(features)
    return exported.int8, model.task.columns(outputs)["y"]


@needs_avr
def test_an_avr_predicts_with_what_was_said(pump, tmp_path):
    report, expected = written(pump, tmp_path, MEASURED, AVR_NAMES)
    _, ram = avr_object(tmp_path, "pump.c")
    assert ram == 0  # weights, tables and preprocessing are in flash
    avr_object(tmp_path, "main.c", "-Wno-conversion")
    *numbers, cycles, stack = map(float, on_avr(tmp_path, "pump.o", "main.o"))
    scale = 1.25 * np.abs(expected - 50).max() / 32767
    np.testing.assert_allclose(numbers, expected, atol=max(scale, 1e-3))
    assert 0 < cycles < 8 * 65536
    assert report.stack <= stack <= report.stack + 96
    (tmp_path / "bare.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "least.c").write_text(
        "int pump_predict(const float *x, float *out);\nstatic volatile float x[2];\n"
        "int main(void) { return pump_predict((float *)x, (float *)x); }\n"
    )
    sizes = []
    for files in (("bare.c",), ("least.c", "pump.c")):
        words = ["avr-gcc", "-mmcu=atmega328p", "-Os", "-ffunction-sections", "-Wl,--gc-sections"]
        subprocess.run([*words, *files, "-o", "least.elf", "-lm"], cwd=tmp_path, check=True)
        sizes.append(size_of(tmp_path, "least.elf")[0])
    assert report.flash == pytest.approx(sizes[1] - sizes[0], rel=0.06)


@needs_arm
@pytest.mark.parametrize("machine", MACHINES)
def test_a_cortex_m_predicts_the_same(machine, pump, tmp_path):
    _, expected = written(pump, tmp_path)
    code, out = on_arm(tmp_path, machine, "pump.c", "main.c")
    assert code == 0
    np.testing.assert_allclose([*map(float, out.split())], expected, atol=1e-3)

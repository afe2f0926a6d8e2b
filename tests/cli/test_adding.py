"""What is added in one place, by a module of somebody else, is known everywhere."""

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import mlpengine as package
from mlpengine.config import json_schema, load_config
from mlpengine.core.fields import Fraction, Limits, NonNegative, Positive
from mlpengine.data.tables import FORMATS
from mlpengine.diagnostics.rules import RULES
from mlpengine.estimators import MlpRegressor
from mlpengine.ops import REGISTRY, EntryLoss
from mlpengine.optim import Optimizer, Schedule
from mlpengine.settings.families import LOSS, OPTIMIZER, SCHEDULE
from mlpengine.settings.run import VERDICTS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from reference_pages import config as reference

ROWS = [(i % 7, i % 5, (i % 7) - 2 * (i % 5)) for i in range(80)]
CONFIG = (
    "data: {source: rows.csv, target: y, task: regression}\n"
    "model: {hidden: [4]}\ntraining: {epochs: 4}\nreport: false\n"
)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a function that writes and imports a module; what it registers is forgotten."""
    families = (one.registry for one in (LOSS, OPTIMIZER, SCHEDULE))
    before = [(known, dict(known)) for known in (REGISTRY, FORMATS, VERDICTS, *families)]
    rules = [*RULES]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rows.csv").write_text(
        "\n".join(["a,b,y", *(",".join(map(str, row)) for row in ROWS)])
    )
    (tmp_path / "c.yaml").write_text(CONFIG)

    def write(text):
        (tmp_path / "elsewhere.py").write_text(dedent(text))
        return import_module("elsewhere")

    yield write
    sys.modules.pop("elsewhere", None)
    for known, names in before:
        known.clear()
        known.update(names)
    RULES[:] = rules
    json_schema()


def trained_twice(mlpengine, *settings):
    """Train without and with an interruption; return the model after comparing the two."""
    arguments = ["train", "c.yaml", "-q", *(f"--set={one}" for one in settings), "--epochs"]
    whole = mlpengine(*arguments, 4, "--out", "whole")
    assert whole.code == 0, whole.err
    assert mlpengine(*arguments, 2, "--out", "part").code == 0
    assert mlpengine("train", "--resume", "part", "--epochs", 4, "-q").code == 0
    whole, part = package.load("whole"), package.load("part")
    np.testing.assert_array_equal(part.mlp.params.flat, whole.mlp.params.flat)
    return whole


Rate = Annotated[NonNegative, "Learning rate."]
Push = Annotated[Fraction, "Share of the last step kept."]


def heavy_ball() -> type:
    class HeavyBall(Optimizer, name="heavy_ball"):
        """Gradient descent with a heavy ball."""

        def __init__(
            self, model: Any, *, lr: Rate = 0.02, push: Push = 0.25, **shared: Any
        ) -> None:
            super().__init__(model, lr=lr, hyper={"push": push}, signed={"ball": push}, **shared)

        def numbers(self, lr: Any, t: Any, push: Any) -> dict[str, Any]:
            return {"rate": lr}

        def update(self, p: Any, g: Any, ball: Any, push: Any, rate: Any) -> dict[str, Any]:
            ball = ball * push + g
            return {"ball": ball, "p": p - ball * rate}

    return HeavyBall


def halved() -> type:
    @dataclass(frozen=True)
    class Halved(Schedule, name="halved"):
        """Halved once, after so many epochs."""

        after: Annotated[Positive, "Epochs at the whole rate."] = 1.0

        def _factor(self, step: int) -> float:
            return 0.5 if step >= self.after * self.steps_per_epoch else 1.0

    return Halved


def power_loss() -> type:
    @dataclass(frozen=True)
    class Power(EntryLoss, name="power"):
        """A power of the absolute error."""

        exponent: Annotated[float, Limits(above=1, at_most=4), "Power of the error."] = 1.5

        def formula(self, y: Any, t: Any) -> Any:
            return abs(y - t) ** self.exponent

    return Power


ADDED = {
    "an optimizer": (heavy_ball, "optimizer", "push", 0.75, 1.0),
    "a schedule": (halved, "schedule", "after", 0.5, 0.0),
    "a loss": (power_loss, "loss", "exponent", 3.0, 5.0),
}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("what", ADDED)
def test_an_option(what, mlpengine):
    make, key, option, value, wrong = ADDED[what]
    name = make().name
    given = {"name": name, option: value}

    # configs, their messages, schema and reference
    refused = mlpengine("check", "c.yaml", "--set", f"{key}={json.dumps(given | {option: wrong})}")
    assert f"{key}.{option}: must be" in refused.err
    schema = Draft202012Validator(json_schema())
    whole = {"data": {"source": "rows.csv"}, key: given}
    assert not [*schema.iter_errors(whole)]
    assert [*schema.iter_errors({**whole, key: given | {"opt": 1}})]
    assert f"| `{option}` |" in reference()

    trained_twice(mlpengine, f"{key}={json.dumps(given)}")
    x = np.array(ROWS, float)
    shared = {"hidden": 4, "epochs": 3, "early_stopping": False, "random_state": 0}
    chosen = {"settings": {key: name}} if key == "schedule" else {key: name}
    own, usual = (MlpRegressor(**shared, **more).fit(x[:, :2], x[:, 2]) for more in (chosen, {}))
    assert (own.predict(x[:, :2]) != usual.predict(x[:, :2])).any()


def test_an_activation(elsewhere, mlpengine):
    elsewhere("""
        from mlpengine.ops import Activation


        class Squash(Activation, name="squash"):
            \"\"\"Twice the rational sigmoid.\"\"\"

            initializer = "glorot_uniform"
            range = (-2.0, 2.0)

            def formula(self, x):
                return 2 * x / (1 + abs(x))
    """)
    chosen = "model.activation=squash"
    assert "squash" in json.dumps(
        json_schema()["$defs"]["NetworkSettings"]["properties"]["activation"]
    )
    assert '`"squash"`' in reference()
    wrong = mlpengine("check", "c.yaml", "--set", "model.activation=squish")
    assert "did you mean 'squash'" in wrong.err

    # training by numpy, compiled, and after an interruption; predictions; other formats
    model = trained_twice(mlpengine, chosen)
    x = np.array(ROWS, float)
    assert model.mlp.layers[0].activation.name == "squash"
    compiled = mlpengine(
        *["train", "c.yaml", "-q", "--set", chosen, "--set", "training.backend=compiled"],
        *["--out", "compiled"],
    )
    assert compiled.code == 0, compiled.err
    flat = package.load("compiled").mlp.params.flat
    np.testing.assert_allclose(flat, model.mlp.params.flat, rtol=1e-4, atol=1e-5)
    for kind in ("onnx", "c"):
        assert mlpengine("export", "whole", "-o", f"net.{kind}").code == 0
    h = x[:3, :2].astype(np.float32) @ model.mlp.weights[0].T + model.mlp.biases[0]
    h = 2 * h / (1 + abs(h))
    y = h @ model.mlp.weights[1].T + model.mlp.biases[1]
    np.testing.assert_allclose(model.mlp.predict(x[:3, :2]), y, rtol=1e-5, atol=1e-6)

    # diagnostics, which know from its range where it saturates: at 32.3, for 0.97 of 2
    sampled = Path("whole/diagnostics.csv").read_text()
    assert ",0,saturated_share,0.0\n" in sampled


def test_a_file_format(elsewhere, mlpengine):
    elsewhere("""
        import json

        import numpy as np

        from mlpengine.core.errors import DataError
        from mlpengine.data.tables import FORMATS, Format, Table


        def read(path, options):
            with open(path) as file:
                rows = [json.loads(line) for line in file]
            if not rows:
                raise DataError(f"{path}: holds no rows")
            values = np.array([[*row.values()] for row in rows], float)
            return Table.from_arrays(values, names=[*rows[0]], source=path)


        FORMATS[".jsonl"] = Format(read)
    """)
    for name, rows in (("rows.jsonl", ROWS), ("NEW.JSONL", ROWS[:9])):
        lines = [json.dumps(dict(zip("aby", row, strict=True))) for row in rows]
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    Path("none.jsonl").touch()
    Path("new.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b, _ in ROWS[:9]))

    # configs: what init proposes, messages, schema and reference
    proposed = mlpengine("init", "rows.jsonl", "--target", "y", "-o", "own.yaml")
    assert proposed.code == 0, proposed.err
    assert mlpengine("check", "own.yaml").code == 0
    for arguments, text in (
        (["check", "c.yaml", "--set=data.source=none.jsonl"], "none.jsonl: holds no rows"),
        (["train", "rows.jsonl"], "this is a table, not a config"),
        (
            ["check", "c.yaml", "--set=data.source=rows.jsonl", "--set=data.stream=true"],
            "rows.jsonl: only CSV, Parquet and Feather can be streamed",
        ),
    ):
        assert text in mlpengine(*arguments).err
    source = json_schema()["$defs"]["DataSection"]["properties"]["source"]
    assert ".jsonl" in source["description"]
    assert source["description"] in reference()

    # the bits of a CSV: training, after an interruption too, predictions, evaluation, fit
    model = trained_twice(mlpengine, "data.source=rows.jsonl")
    assert mlpengine("train", "c.yaml", "-q", "--out", "csv").code == 0
    assert model.mlp.params.flat.tobytes() == package.load("csv").mlp.params.flat.tobytes()
    predicted = []
    for name in ("NEW.JSONL", "new.csv"):
        told = mlpengine("predict", "whole", name)
        assert told.code == 0, told.err
        predicted.append([line.split(",")[1] for line in told.out.split()])
    assert predicted[0] == predicted[1]
    assert len(predicted[0]) == 10
    assert mlpengine("evaluate", "whole", "NEW.JSONL").code == 0


def test_a_verdict_with_a_fix(elsewhere, mlpengine):
    elsewhere("""
        from mlpengine.diagnostics import Verdict, add_rule
        from mlpengine.settings import Fix, NetworkSettings


        def narrow(diagnostics):
            width = diagnostics.mlp.layers[0].out_dim
            if width >= 8:
                return None
            fix = [Fix(NetworkSettings, "hidden", (8,))]
            evidence = f"It has {width} units; 8 or more are usual."
            return Verdict("narrow", 0, "Layer is narrow", evidence, width, 8, "Add units.", fix)


        def odd(diagnostics):
            return Verdict("odd", None, "Odd", "Something is odd.", 1, 0, "Look.", no_fix="unknown")


        add_rule(narrow)
        add_rule(narrow)
        add_rule(odd, causes={"narrow"})
    """)
    text = "Layer is narrow (layer 0). It has 4 units; 8 or more are usual. Add units. [narrow]"

    # configs: schema, reference, messages
    assert '"narrow"' in json.dumps(json_schema()["$defs"]["DiagnosticsSettings"])
    assert '`"narrow"`' in reference()
    wrong = mlpengine("check", "c.yaml", "--set=diagnostics.silence=narow")
    assert "did you mean 'narrow'" in wrong.err

    # a run, after an interruption too, its page, and a second run with the fix
    trained_twice(mlpengine)
    for run in ("whole", "part"):
        names = [v["name"] for v in json.loads(Path(run, "result.json").read_text())["verdicts"]]
        assert names.count("narrow") == 1
        assert "odd" not in names
    assert mlpengine("report", "whole").code == 0
    page = Path("whole/report.html").read_text()
    assert "Settings that fix it: <code>--set &#x27;model.hidden=[8]&#x27;</code>" in page
    told = mlpengine("diagnose", "whole", "--fix", "after.yaml")
    assert f"{text}\n      fix: --set 'model.hidden=[8]'" in told.out
    assert load_config(Path("after.yaml")).config.model.hidden == (8,)
    told = mlpengine("train", "after.yaml", "--json", "-q")
    names = {verdict["name"] for verdict in json.loads(told.out)["verdicts"]}
    assert ("narrow" in names, "odd" in names) == (False, True)
    silent = ["--set=diagnostics.silence=[narrow, odd]", "--json", "-q", "--out", "silent"]
    told = mlpengine("train", "c.yaml", *silent)
    assert not {"narrow", "odd"} & {v["name"] for v in json.loads(told.out)["verdicts"]}


POSTPONED = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Annotated
from mlpengine.core.fields import Positive
from mlpengine.ops import EntryLoss

@dataclass(frozen=True)
class Scaled(EntryLoss, name="scaled"):
    tasks = ("regression",)
    delta: Annotated[Positive, "Factor."] = 1.0
    plain: Annotated[float, "Nothing."] = 1.0
    count: int = 1
    label: str = "a"

    def formula(self, output, target):
        return self.delta * (output - target) ** 2
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta", True),
        ("delta", -1.0),
        ("plain", True),
        ("plain", "2"),
        ("count", True),
        ("count", 1.5),
        ("label", 3),
    ],
)
def test_options_of_a_loss_have_the_types_of_their_annotations(elsewhere, name, value):
    scaled = elsewhere(POSTPONED).Scaled
    assert scaled(delta=2, plain=np.float32(3)) == scaled(delta=2.0, plain=3.0)
    with pytest.raises(package.UsageError, match=f"{name} must be"):
        scaled(**{name: value})
    table = {"a": [float(a) for a, _, _ in ROWS], "y": [float(y) for _, _, y in ROWS]}
    with pytest.raises(package.ConfigError, match=rf"loss\.{name}: must be"):
        package.fit(table, "y", loss={"name": "scaled", name: value})

"""Libraries for Arduino and PlatformIO: rules of both tools, and sketches that run."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from mlpengine import Mlp
from mlpengine.core.errors import UsageError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export import export
from mlpengine.export.c_train import export_training
from mlpengine.models.model import Model

TOOLS = ("arduino", "platformio")


@pytest.fixture(scope="module")
def model():
    """Return a model 2-16-1 with the preprocessing of two columns near zero."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (2, 100))
    table = Table(
        {"light": Column(x[0]), "soil": Column(x[1]), "water": Column(x[0] - x[1])}, "rows"
    )
    preprocessor = Preprocessor("water").fit(table)
    return Model(Mlp([2, 16, 1], activation="tanh", seed=1), preprocessor, "mse")


# Of arduino-lint's schema of library.properties ("specification") and platformio-core's schemas of
# library.json: letters of names, lengths, categories, the places of headers and sketches.
PROPERTIES = {
    "name": "Green_house",
    "version": "1.0.0",
    "author": "mlpengine",
    "maintainer": "mlpengine",
    "category": "Data Processing",
    "url": "https://example.com/Green_house",
    "architectures": "*",
    "includes": "Green_house.h",
}
MANIFEST = {
    "name": "green-house",
    "version": "1.0.0",
    "headers": "Green_house.h",
    "frameworks": "*",
    "platforms": "*",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_libraries_follow_the_rules_of_their_tool(tool, model, tmp_path):
    for kind, write in (("online", export_training), ("predict", export)):
        folder = tmp_path / kind / "Green_house"
        options = {} if kind == "online" else {"format": "c"}
        write(model, folder, package=tool, **options)
        files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
        manifest = "library.properties" if tool == "arduino" else "library.json"
        name = f"Green_house_{kind}"
        sketch = f"examples/{name}/{name}.ino"
        expected = {manifest, "src/Green_house.c", "src/Green_house.h", sketch}
        assert {*files} == expected | ({"extras/Green_house_test.c"} if kind == "online" else set())
        text = files[manifest].read_text()
        if tool == "arduino":
            given = dict(line.split("=", 1) for line in text.splitlines())
            assert ("trains" in given.pop("sentence")) == (kind == "online")
            assert "2-16-1" in given.pop("paragraph")
            assert given == PROPERTIES
        else:
            given = json.loads(text)
            assert "2-16-1" in given.pop("description")
            assert given.pop("keywords")[3:] == ["training"] * (kind == "online")
            base = {"name": name, "base": f"examples/{name}", "files": [f"{name}.ino"]}
            assert given.pop("examples") == [base]
            assert given == MANIFEST


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pump.c", "a library is a folder"),
        ("arduino_pump", "not begin with arduino"),
        ("p" * 51, "at most 50 characters"),
        ("Math", "the name of a header of C"),
        ("my-pump", "must be a C identifier, such as my_pump"),
    ],
)
def test_folders_that_cannot_be_libraries_are_refused(name, message, model, tmp_path):
    for write, options in ((export_training, {}), (export, {"format": "c"})):
        with pytest.raises(UsageError, match=message):
            write(model, tmp_path / name, package="arduino", **options)
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "library.json").write_text('{"name": "other"}')
    with pytest.raises(UsageError, match=r"library\.json: is of another library"):
        export(model, tmp_path, "c", package="arduino")


def test_what_has_no_library_is_refused(model, tmp_path):
    with pytest.raises(UsageError, match="package is for the format c"):
        export(model, tmp_path / "pump", "js", package="arduino")
    with pytest.raises(UsageError, match="needs a model with its preprocessing"):
        export(model.mlp, tmp_path / "pump", "c", package="arduino")


# ---------------------------------------------------------------- sketches
ARDUINO = """\
#include <stdio.h>
#define A0 0
#define A5 5
static struct {
  void begin(long) {}
  void println(double number, int) { printf("%.6f\\n", number); }
} Serial;
static unsigned reads;
static int analogRead(int pin) { return pin == A5 ? 700 : (int)(reads++ * 37 % 1024); }
__attribute__((unused)) static int digitalRead(int) { return 1; }
static void delay(int) {}
void setup();
void loop();
"""
"""The part of Arduino's core that the sketch calls."""

LOOP = """\
int main()
{
  setup();
  for (int i = 0; i < 20; i++) loop();
  return 0;
}
"""


def printed_by_sketch(folder):
    """Compile the sketch of a library beside a core that prints; return the numbers."""
    (sketch,) = folder.rglob("*.ino")
    (folder / "sketch.cpp").write_text(ARDUINO + sketch.read_text() + LOOP)
    for command in (
        ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "src/pump.c", "-Isrc"],
        ["g++", "-Wall", "-Wextra", "-Werror", "-Isrc", "sketch.cpp", "pump.o", "-o", "sketch"],
    ):
        subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run([folder / "sketch"], check=True, capture_output=True, text=True)
    return [*map(float, done.stdout.split())]


def rows_of_sketch(count):
    """Return the rows that the sketch reads."""
    cells = (np.arange(2 * count) * 37 % 1024 / 1023).reshape(-1, 2)
    return Table({"light": Column(cells[:, 0]), "soil": Column(cells[:, 1])}, "rows")


needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@needs_gcc
def test_the_sketch_trains(model, tmp_path):
    folder = tmp_path / "pump"
    written = export_training(model, folder, package="arduino")
    numbers = printed_by_sketch(folder)
    predictions, losses = numbers[::2], numbers[1::2]
    assert predictions[0] == pytest.approx(float(model.predict(rows_of_sketch(1))[0]), abs=1e-4)
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 4
    assert written.state == 4 * (65 + 2) + 8


@needs_gcc
def test_the_sketch_predicts(model, tmp_path):
    folder = tmp_path / "pump"
    export(model, folder, "c", package="platformio")
    np.testing.assert_allclose(
        printed_by_sketch(folder), model.predict(rows_of_sketch(20)), atol=1e-4
    )

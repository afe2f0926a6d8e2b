"""Libraries for Arduino and PlatformIO: rules of both tools, and sketches that run."""

import json
import re
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


def files_of(folder):
    """Return the files of a folder by their paths in it."""
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}


# ---------------------------------------------------------------- the rules of the tools
# arduino-lint, etc/schemas/arduino-library-properties-definitions-schema.json ("specification").
PROPERTIES = {
    "name": r"(?![aA][rR][dD][uU][iI][nN][oO])[a-zA-Z][a-zA-Z0-9 _.\-]{0,62}",
    "version": r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)",
    "author": r".+",
    "maintainer": r"(?![aA][rR][dD][uU][iI][nN][oO]).+",
    "sentence": r".+",
    "paragraph": r".*",
    "category": r"Display|Communication|Signal Input/Output|Sensors|Device Control|Timing|"
    r"Data Storage|Data Processing|Other",
    "url": r"https?://\S+",
    "architectures": r".+",
    "includes": r".+",
}

# platformio-core, platformio/assets/schema/library.json and platformio/package/manifest/schema.py,
# the stricter of both: pattern and the largest number of characters.
MANIFEST = {
    "name": (r"[a-z\d]+(-[a-z\d]+)*", 50),
    "version": (r"\d+\.\d+\.\d+", 20),
    "description": (r".+", 255),
    "keywords": (r"[a-z\d]+(-[a-z\d]+)*", 50),
    "headers": (r"\w+\.h", 255),
    "frameworks": (r"[a-z\d\-_]+|\*", 50),
    "platforms": (r"[a-z\d\-_]+|\*", 50),
}
EXAMPLE_NAME = r"[a-zA-Z\d\-_/]{1,100}"


def problems(folder):
    """Return what breaks the rules of the tools in a library's folder."""
    files, wrong = files_of(folder), []
    if "library.properties" in files:
        lines = files["library.properties"].read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines)
        wrong += [name for name in PROPERTIES if name not in given]
        wrong += [n for n, v in given.items() if not re.fullmatch(PROPERTIES.get(n, "(?!)"), v)]
        headers = given.get("includes", "").split(",")
    else:
        given = json.loads(files["library.json"].read_text())
        wrong += [name for name in MANIFEST if name not in given]
        for name, (pattern, length) in MANIFEST.items():
            values = given.get(name, [])
            for value in values if isinstance(values, list) else [values]:
                if len(value) > length or not re.fullmatch(pattern, value):
                    wrong.append(name)
        for example in given["examples"]:
            paths = [f"{example['base']}/{file}" for file in example["files"]]
            if not re.fullmatch(EXAMPLE_NAME, example["name"]) or not {*paths} <= {*files}:
                wrong.append("examples")
        headers = [given["headers"]]
    wrong += [header for header in headers if f"src/{header}" not in files]
    sketches = [path for name, path in files.items() if name.endswith(".ino")]
    wrong += [p.name for p in sketches if p.parent.name != p.stem or len(p.stem) > 63]
    return wrong + ([] if sketches else ["no sketch"])


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ["pump", "Green_house_2"])
def test_libraries_follow_the_rules_of_their_tool(tool, name, model, tmp_path):
    for kind, write in (("trains", export_training), ("predicts", export)):
        folder = tmp_path / kind / name
        options = {} if kind == "trains" else {"format": "c"}
        write(model, folder, package=tool, **options)
        assert problems(folder) == []
        manifest = "library.properties" if tool == "arduino" else "library.json"
        sketch = f"{name}_{'online' if kind == 'trains' else 'predict'}"
        expected = {manifest, f"src/{name}.c", f"src/{name}.h"}
        expected |= {f"examples/{sketch}/{sketch}.ino"}
        expected |= {f"extras/{name}_test.c"} if kind == "trains" else set()
        assert {*files_of(folder)} == expected


@pytest.mark.parametrize(
    ("tool", "before", "after", "wrong"),
    [
        ("arduino", "url=https:", "address=https:", ["url", "address"]),
        ("arduino", "includes=pump.h", "includes=pomp.h", ["pomp.h"]),
        ("platformio", '"pump_online.ino"', '"online.ino"', ["examples"]),
    ],
)
def test_the_rules_notice_what_is_wrong(tool, before, after, wrong, model, tmp_path):
    export_training(model, tmp_path / "pump", package=tool)
    path = tmp_path / "pump" / ("library.properties" if tool == "arduino" else "library.json")
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    assert problems(tmp_path / "pump") == wrong


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

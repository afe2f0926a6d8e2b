"""C files as an Arduino or PlatformIO library: the manifest and an example sketch.

Sources: Arduino library specification 1.5, revision 2.2; ``library.json`` of PlatformIO 6.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mlpengine.backends.scalar.definitions import comment_text
from mlpengine.core.errors import UsageError
from mlpengine.core.files import make_directory, write_atomically
from mlpengine.export._exported import Exported
from mlpengine.export.network_c import title_of
from mlpengine.models.model import Model
from mlpengine.nn import Network

Package = Literal["arduino", "platformio"]
"""The tool that installs a library."""

MAX_NAME = 50
"""Maximum characters of a library's name: the limit of the stricter of the two tools."""

MAX_DESCRIPTION = 255

OTHER_HEADERS = (
    *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits"),
    *("locale", "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio"),
    *("stdlib", "string", "tgmath", "time", "wchar", "wctype"),
)
"""Standard headers of C.  A library with the name of a header would hide this header."""

PROPERTIES = """\
name={name}
version=1.0.0
author=mlpengine
maintainer=mlpengine
sentence={sentence}
paragraph={about}
category=Data Processing
url=https://example.com/{name}
architectures=*
includes={name}.h
"""

READ_ROW = """\
#include <{name}.h>

{memory}
/* Replace this: write the values of the columns, in the order of the macros in {name}.h. */
static void read_row({real} *to)
{{
  for (int i = 0; i < {inputs}; i++) to[i] = analogRead(A0 + i % 5) / 1023.0f;
}}

"""

PREDICTING_SKETCH = (
    "/* A sensor loop: read a row and print its prediction. */\n"
    + READ_ROW
    + """\
void setup()
{{
  Serial.begin(115200);
}}

void loop()
{{
  read_row(x);
  if ({name}_predict(x, out)) {{
    for (int i = 0; i < {outputs}; i++) Serial.println(out[i], 4);
  }}
  delay(100);
}}
"""
)

TRAINING_SKETCH = (
    "/* A sensor loop that learns: predict a row, read its true target, train on both. */\n"
    + READ_ROW
    + """\
/* Replace this, too: the target of the row{truth}. */
static void read_target({real} *to)
{{
  for (int i = 0; i < {upper}_TARGETS; i++) to[i] = {read};
}}

void setup()
{{
  Serial.begin(115200);
  {name}_init(&state); /* or load a saved state with the same {name}_check_sum */
}}

void loop()
{{
  read_row(x);
  if ({name}_predict(&state, x, out)) {{
    for (int i = 0; i < {upper}_OUTPUTS; i++) Serial.println(out[i], 4);
  }}
  read_target(y);
  Serial.println({name}_train(&state, x, y), 6); /* the loss before the step */
  delay(100);
}}
"""
)

TRAINING_MEMORY = """\
static {name}_state state;
static {real} x[{upper}_INPUTS], y[{upper}_TARGETS], out[{upper}_OUTPUTS];
"""


def write_folder(folder: Path, files: Mapping[str, bytes | str]) -> tuple[Path, ...]:
    """Write files at paths below a folder; return the paths."""
    paths = tuple(folder / name for name in files)
    for path, content in zip(paths, files.values(), strict=True):
        if path.parent != folder:
            make_directory(path.parent)
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    return paths


def checked_folder(path: Path) -> None:
    """Raise UsageError unless `path` can be the folder of a library."""
    if path.suffix or path.is_file():
        raise UsageError(f"{path}: a library is a folder; give --out a folder name without suffix")
    for name in ("library.properties", "library.json"):
        if (path / name).is_file() and b"mlpengine" not in (path / name).read_bytes():
            raise UsageError(f"{path / name}: is of another library; name another folder by --out")


def predicting_library(
    package: Package, name: str, model: Model | Network, source: bytes, exported: Exported
) -> dict[str, bytes | str]:
    """Return the files of a library that only predicts, by paths in its folder.

    Raises: UsageError for a network without preprocessing.
    """
    if not isinstance(model, Model):
        raise UsageError(f"export: a library needs a model with its preprocessing (got {model})")
    inputs, outputs = len(exported.inputs), len(exported.outputs)
    real = next(iter(exported.outputs.values()))
    memory = f"static {real} x[{inputs}], out[{outputs}];\n"
    sketch = PREDICTING_SKETCH.format(
        name=name, real=real, memory=memory, inputs=inputs, outputs=outputs
    )
    return {
        f"src/{name}.c": source,
        **{f"src/{name}{suffix}": content for suffix, content in exported.beside.items()},
        **library_files(package, name, title_of(model.networks), sketch),
    }


def training_sketch(name: str, *, classes: bool) -> str:
    """Return a sketch for a file that trains; with `classes`, targets are class indices."""
    names = {"name": name, "upper": name.upper(), "real": f"{name.upper()}_REAL"}
    return TRAINING_SKETCH.format(
        **names,
        memory=TRAINING_MEMORY.format(**names),
        inputs=f"{name.upper()}_INPUTS",
        truth=", as the index of a class" if classes else "",
        read="digitalRead(2)" if classes else "analogRead(A5) / 1023.0f",
    )


def library_files(
    package: Package, name: str, title: str, sketch: str, *, trains: bool = False
) -> dict[str, str]:
    """Return manifest and sketch of a library, by their paths in its folder."""
    if name.lower() in OTHER_HEADERS:
        raise UsageError(
            f"export: a library must not have the name of a header of C (got {name!r}); rename "
            "the folder"
        )
    if len(name) > MAX_NAME or name.lower().startswith("arduino"):
        raise UsageError(
            f"export: the name of a library must have at most {MAX_NAME} characters and not begin "
            f"with arduino (got {name!r}); rename the folder"
        )
    example = f"{name}_{'online' if trains else 'predict'}"
    sentence = f"A network that predicts{', and trains on the device' * trains}."
    about = f"{comment_text(title)}; written by mlpengine."
    files = {f"examples/{example}/{example}.ino": sketch}
    if package == "arduino":
        properties = PROPERTIES.format(name=name, sentence=sentence, about=about)
        return {**files, "library.properties": properties}
    manifest = {
        "name": re.sub("_+", "-", name).strip("-").lower(),
        "version": "1.0.0",
        "description": f"{sentence} {about}"[:MAX_DESCRIPTION],
        "keywords": ["mlpengine", "neural-network", "prediction", *["training"] * trains],
        "headers": f"{name}.h",
        "frameworks": "*",
        "platforms": "*",
        "examples": [{"name": example, "base": f"examples/{example}", "files": [f"{example}.ino"]}],
    }
    return {**files, "library.json": json.dumps(manifest, indent=2) + "\n"}

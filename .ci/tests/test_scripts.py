"""The scripts of `.ci` and of the workflows fail on bad samples."""

import importlib.util
import os
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from ruamel.yaml import YAML

from mlpengine.core.fields import Limits
from mlpengine.settings import TrainingSettings

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prose, project = load(".ci/prose.py"), load(".ci/project.py")


def tree(folder, files):
    """Write files of a small project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


GOOD = '"""Return the sum."""\n' + "x = 1\n" * 99


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, 0),
        ({"mlpengine/a.py": GOOD + "# the rows, and those\n# of the table\n"}, 1),
        ({"mlpengine/a.py": GOOD + "# rows, which are read\n"}, 1),
        ({"cli/a.py": '"""What it does."""\n'}, 1),
        ({"mlpengine/a.py": 'def f():\n    """Of a row."""\n'}, 1),
        ({"mlpengine/a.py": GOOD * 30 + 'm = "a row, whose number"\n'}, 1),
        ({"docs/a.md": "The rows, of which one.\n```\nthat of\n```\n"}, 1),
    ],
    ids=["good", "those of", "which", "What", "Of", "a message", "docs"],
)
def test_phrases_above_the_limits_are_found(files, found, tmp_path):
    assert len(prose.problems(tree(tmp_path, {"mlpengine/a.py": GOOD, **files}))) == found


def test_links_and_files_that_do_not_exist_are_found(tmp_path):
    text = "# A title\n[1](docs/b.md#two-words) ![2](no.png) [3](#a-title) [4\n](docs/b.md#gone) "
    text += "[5](https://x.org/c) `[6](no)`\n```\n[7](no)\n```\ntests/test_no.py\n"
    tree(tmp_path, {"README.md": text, "docs/b.md": "## Two words\n```\n# gone\n```\n"})
    assert project.links(tmp_path) == [
        "README.md: no.png leads nowhere",
        "README.md: docs/b.md#gone leads nowhere",
        "README.md: there is no tests/test_no.py",
    ]


def test_project_files_that_disagree_are_found(tmp_path):
    step = "class Step: pass\nclass _Row: pass\n"
    files = {
        "mlpengine/__init__.py": '__version__ = "1.2.0"\n',
        "mlpengine/a/x.py": step,
        "mlpengine/b/__init__.py": step,
        "tests/a/test_x.py": "",
        "tests/b/test_x.py": "",
        "pyproject.toml": '[tool.setuptools]\npackages = ["mlpengine", "mlpengine.b"]\n',
        "CHANGELOG.md": "## 1.2.0 (unreleased)\n",
        "CITATION.cff": "title: x\nversion: 1.1.0\n",
    }
    tree(tmp_path, files)
    assert len(project.packages(tmp_path)) == 3
    assert [text.split(":")[0] for text in project.classes(tmp_path)] == ["Step"]
    assert project.version(tmp_path) == ["CITATION.cff: must have the version 1.2.0 (got 1.1.0)"]


@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("estimator", "hidden_layer_sizes"),
        ("config key", "training.max_iter"),
        ("here", "Mlp([4, 3], units=3)"),
        ("here", "Adam(mlp, 1, 2)"),
        ("here", "mlp.fit(x)"),
        ("here", "Dense(4)"),
    ],
)
def test_names_that_do_not_exist_are_found(title, code):
    assert not project.is_ours(title, code)


TUNED = (
    "LIMIT = 3\n_LOW, HIGH = -0.5, 1 << 10\nNAME, lower = 'three', 4\nA = tuned(3, 'rows', '')\n"
)
TUNED += "class Window:\n    DECAY: float = 0.9\n"


def test_tuned_numbers_are_found_outside_and_in_their_table(tmp_path):
    assert project.tuned_numbers(TUNED) == {"LIMIT", "_LOW", "HIGH", "DECAY"}
    tree(
        tmp_path,
        {
            f"{room}/thresholds.py": "A = tuned(3, 'rows', 'x', 'no.py')\n"
            for room in project.TUNED_ROOMS
        },
    )
    tree(tmp_path, {"mlpengine/diagnostics/a.py": "LIMIT = 3\n"})
    assert (
        len(project.thresholds(tmp_path)) == 1 + 2
    )  # a number elsewhere; scripts that are not there


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x):\n    return x._hidden", 1),
        ("class A:\n    def f(self, other):\n        self._n = other._n", 0),
        ("class A:\n    _n = 1\ndef f(a):\n    return a._n + self._m + a.__name__", 0),
        ("def f(x):\n    x._n = 1\n    return x._n", 2),
    ],
)
def test_private_reads_are_found(text, found):
    assert len(project.private_reads(text)) == found


def test_second_defaults_and_options_without_a_meaning_are_found():
    class Step:
        def __init__(self, epochs: int = 7, batch_size: int = 32) -> None: ...

    @dataclass(frozen=True)
    class Silent:
        told: Annotated[int, "A number of rows."] = 1
        untold: int = 1
        wrong: Annotated[int, Limits(above=0), "Another number."] = 0

    options = load(".ci/options.py")
    found = [*options.differing(Step, (TrainingSettings,)), *options.unclear(Silent)]
    assert [text.split()[:2] for text in found] == [
        ["Step:", "epochs"],
        ["Silent.untold:", "has"],
        ["Silent.wrong:", "does"],
    ]


def test_modules_that_ask_for_the_system_or_make_locks_are_found(tmp_path):
    text = "if sys.platform == 'win32':\n    lock = threading.RLock()\nos.fork()\n"
    tree(tmp_path, {f"mlpengine/{name}.py": text for name in ("a", "system", "fork_locks")})
    found = project.system(tmp_path)
    assert len(found) == 3 + 2
    assert found[0].startswith("mlpengine/a.py: sys.platform belongs into system.py")


def test_archives_that_differ_from_the_repository_are_named(tmp_path):
    sdist, wheel = tmp_path / "p-1.tar.gz", tmp_path / "p-1.whl"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", "p.egg-info/SOURCES.txt", "README.md", "cli/a.py", "notes.txt"):
            archive.addfile(tarfile.TarInfo(f"p-1/{name}"))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mlpengine_cli/a.py", "")
        archive.writestr("p-1.dist-info/METADATA", "[1](docs/a.md) ![2](https://x.org/b.png)")
    problems = load(".ci/contents.py").problems
    assert problems({"README.md", "cli/a.py", "mlpengine/b.css"}, sdist, wheel) == [
        "p-1.tar.gz: lacks mlpengine/b.css",
        "p-1.tar.gz: has notes.txt",
        "p-1.whl: lacks mlpengine/b.css",
        "p-1.whl: docs/a.md leads nowhere outside the repository",
    ]


def workflow(name):
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)


RELEASED = {
    "mlpengine/__init__.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "## 1.2.0 (2026-12-01)\n",
    "setup.py": 'REPOSITORY = "https://hub.example/us/it"\n',
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", RELEASED["setup.py"]),
        ("setup.py", 'REPOSITORY = "https://repository.invalid/mlpengine"\n'),
        ("mlpengine/__init__.py", '__version__ = "1.2.0.dev1"\n'),
        ("CHANGELOG.md", "## 1.2.0 (unreleased)\n"),
        ("CHANGELOG.md", "## 1.200 (2026-12-01)\n"),
    ],
)
def test_a_release_is_refused_unless_tag_version_date_and_address_agree(name, text, tmp_path):
    steps = workflow("release.yml")["jobs"]["build"]["steps"]
    (check,) = [step["run"] for step in steps if step.get("if") == "github.ref_type == 'tag'"]
    (tmp_path / "mlpengine").mkdir()
    for path, released in RELEASED.items():
        (tmp_path / path).write_text(text if path == name else released, encoding="utf-8")
    run = {"GITHUB_SERVER_URL": "https://hub.example", "GITHUB_REPOSITORY": "us/it"}
    run |= {"GITHUB_REF_NAME": "v1.2.0", "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-e", "-c", check], cwd=tmp_path, env=run, capture_output=True)
    assert (done.returncode == 0) is (text == RELEASED[name])

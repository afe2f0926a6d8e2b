"""The project's own files agree with each other: packages, README commands, public names."""

import doctest
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import mlpengine
from mlpengine.core.errors import install_line

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_installed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "mlpengine").rglob("__init__.py")
    }
    listed = set(SETTINGS["tool"]["setuptools"]["packages"])
    assert listed == found | {"mlpengine_cli"}
    folders = {path.parent for path in (ROOT / "mlpengine").rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_no_two_test_files_share_a_name():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []  # pytest imports by name


def test_public_names_are_sorted_and_exist():
    assert mlpengine.__all__ == sorted(mlpengine.__all__)
    assert all(hasattr(mlpengine, name) for name in mlpengine.__all__)
    assert all(getattr(mlpengine, name).__doc__ for name in mlpengine.__all__)


def test_the_version_is_written_once_and_is_the_newest_of_the_changelog():
    attribute = SETTINGS["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "mlpengine.__version__"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([0-9.]+)", changelog, re.MULTILINE)[0] == mlpengine.__version__


def workflow(name):
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)


def test_what_the_package_claims_to_run_on_is_what_ci_runs_on():
    matrix = workflow("ci.yml")["jobs"]["check"]["strategy"]["matrix"]
    systems = {"ubuntu": "POSIX :: Linux", "macos": "MacOS", "windows": "Microsoft :: Windows"}
    run = {f"Programming Language :: Python :: {version}" for version in matrix["python"]}
    run |= {f"Operating System :: {systems[name.split('-')[0]]}" for name in matrix["system"]}
    claimed = re.compile(r"Operating System :: .*|Programming Language :: Python :: 3\.\d+")
    assert {c for c in SETTINGS["project"]["classifiers"] if claimed.fullmatch(c)} == run


def test_the_authors_are_those_of_the_citation():
    citation = YAML(typ="safe", pure=True).load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert SETTINGS["project"]["authors"] == citation["authors"]


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_package_has_no_relative_links():
    page = load("setup.py").absolute((ROOT / "README.md").read_text(encoding="utf-8"), "1.2.3")
    links = re.findall(r"\]\(([^)]*)\)", page)
    home = re.compile(r"https://[^/]+/.*/(raw/v1\.2\.3/docs/pictures/\S+\.png|blob/v1\.2\.3/\S+)")
    assert len(links) > 10
    assert [link for link in links if not home.fullmatch(link)] == []
    kept = "[1](https://x.org/a) [2](#b) [3](mailto:c) x[4] (d)"
    assert load("setup.py").absolute(kept, "1.2.3") == kept


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


def test_only_the_publication_of_a_release_may_write():
    files = sorted((ROOT / ".github" / "workflows").iterdir())
    jobs = [job for file in files for job in workflow(file.name)["jobs"].items()]
    assert [workflow(file.name)["permissions"] for file in files] == [{"contents": "read"}] * 2
    assert [name for name, job in jobs if "permissions" in job] == ["publish"]
    publish = dict(jobs)["publish"]
    assert (publish["if"], publish["needs"]) == ("github.ref_type == 'tag'", ["build"])
    assert [step for step in publish["steps"] if "run" in step] == []


@pytest.fixture
def numpy_steps():
    """Examples take the backend that a user gets, unlike other tests (see conftest.py)."""


@pytest.mark.parametrize("text", ["README.md", "mlpengine/__init__.py"])
def test_examples_run(text):
    module = text.endswith(".py")
    result = (
        doctest.testmod(mlpengine)
        if module
        else doctest.testfile(str(ROOT / text), module_relative=False, optionflags=doctest.ELLIPSIS)
    )
    assert result.attempted > (5 if module else 3)
    assert result.failed == 0


def test_the_documentation_names_every_extra_and_what_it_brings():
    readme = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    extras = SETTINGS["project"]["optional-dependencies"].keys() - {"test", "dev"}
    named = set(re.findall(r"^\| `(\w+)` \| \S", readme, re.MULTILINE))
    assert named == extras
    assert "source .venv/bin/activate" in readme


INSTALLS_BY_NAME = re.compile(r"pip3?\s+install\s+[^`\n&]*\bmlpengine\b")


@pytest.mark.parametrize(
    ("text", "by_name"),
    [
        ("`pip install 'mlpengine[onnx]'`", True),
        ("pip install\n'mlpengine[sweep]'", True),
        ("python -m pip install -U mlpengine", True),
        ("pip install '.[docs]'", False),
        ("pip install . && mlpengine train", False),
        ("`pip install pandas`, then `mlpengine train`", False),
    ],
)
def test_lines_that_install_by_name_are_found(text, by_name):
    assert bool(INSTALLS_BY_NAME.search(text)) is by_name


def test_what_installs_an_extra_is_said_in_one_place():
    """Messages take it from `install_line`, pages lead to that of the extras."""
    folders = ("mlpengine", "cli", "docs", "examples", "benchmarks", "configs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files += [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    texts = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in (".c", ".h", ".md", ".py", ".toml", ".yaml")
    }
    assert len(texts) > 300
    saying = {name for name, text in texts.items() if INSTALLS_BY_NAME.search(text)}
    assert saying == {"mlpengine/core/errors.py", "docs/install.md"}
    assert install_line("onnx") in texts["docs/install.md"]


def test_benchmarks_of_speed_start_in_a_clean_environment():
    texts = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "benchmarks").glob("*.py")}
    medians = re.compile(r"median\([^)]")
    timed = {n for n, text in texts.items() if medians.search(text) and "__main__" in text}
    assert timed
    assert {name for name in timed if "restart_clean()" not in texts[name]} == set()


def test_prose_and_scripts_name_real_files():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / ".ci").glob("[a-z]*")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"(?:configs|benchmarks|tests)/[\w./]+\.(?:yaml|py|csv)", text))
    speed = (ROOT / "docs" / "background" / "speed.md").read_text(encoding="utf-8")
    named |= {
        f"benchmarks/{name}" for name in re.findall(r"^\| `(\w+\.py)` \|", speed, re.MULTILINE)
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_is_short():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) < 120


def test_the_readme_quotes_the_table_of_speed():
    """Each row of the short table is in the whole one, whose columns have other places."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    speed = (ROOT / "docs" / "background" / "speed.md").read_text(encoding="utf-8")
    whole = {row[0].replace(", batch", ","): row[1:] for row in rows_of(speed)}
    short = [row for row in rows_of(readme) if row[0] in whole]
    assert len(short) >= 3
    for name, *figures in short:
        assert set(figures) <= set(whole[name])


def rows_of(text):
    """Return the cells of every row of the tables of a page."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_package_imports_what_is_used_when_it_is_used():
    code = "import sys, mlpengine; print(*(m for m in sys.modules if m.startswith('mlpengine')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {"mlpengine", "mlpengine.core", "mlpengine.core.lazy", "mlpengine.core.errors"}
    assert set(found.stdout.split()) == rooms
    assert all(hasattr(mlpengine, name) for name in mlpengine.__all__)
    assert set(mlpengine.__all__) <= set(dir(mlpengine))
    assert mlpengine.optim.Sgd is mlpengine.Sgd
    with pytest.raises(AttributeError, match="'mlpengine' has no attribute 'nothing'"):
        _ = mlpengine.nothing


START = """
import json, sys
import click
from mlpengine_cli.main import group
group.get_command(click.Context(group), "train")
from mlpengine.config.schema import Config
import mlpengine.settings as settings
names = {name.partition(".")[0] for name in sys.modules} | set(sys.modules)
kinds = [Config, *(getattr(settings, name) for name in settings.__all__)]
built = [str(kind) for kind in kinds if getattr(kind, "__pydantic_complete__", False)]
print(json.dumps([sorted(names & set(json.loads(sys.argv[1]))), built]))
"""


def test_a_command_starts_with_what_it_needs():
    """No optional package, and no validators before a config."""
    unused = ["google", "mlpengine.report", "numexpr", "pandas", "scipy", "sklearn",
              "tensorboard", "torch"]  # fmt: skip
    command = [sys.executable, "-c", START, json.dumps(unused)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]


RUN = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(args[0]) if event == "subprocess.Popen" else 0)
from mlpengine_cli.main import run
code = run(sys.argv[2:])
unused = sorted(set(json.loads(sys.argv[1])) & set(sys.modules))
made = [vars(one)["__dataclass_params__"] for name in sys.modules if name.startswith("mlpengine")
        for one in vars(sys.modules[name]).values() if isinstance(one, type)
        and one.__module__ == name and "__dataclass_params__" in vars(one)]
methods = sum(p.init + p.repr + p.eq * (1 + p.frozen) + 2 * p.frozen for p in made)
ours = sum(name.startswith("mlpengine") for name in sys.modules)
from pydantic import BaseModel
made_of = "mlpengine.settings.families"
sections = [one.__name__ for one in BaseModel.__subclasses__() if one.__module__ == made_of]
print(json.dumps([code, unused, started, sorted(sections), methods, ours]))
"""
GENERATED_METHODS = 700
"""The most methods that dataclasses of a run may generate: each takes 0.1 ms of the start."""
MODULES = 310
"""The most modules of ours that a run may load: each takes 0.3 ms of the start."""


def test_a_run_loads_what_it_needs_and_starts_no_process(tmp_path):
    """`platform.platform` would start one; records that nothing compares are named tuples.

    Of losses, optimizers, schedules and clipping rules only those of the config have models.
    """
    unused = ["asyncio", "mlpengine.config.fixed_config",
              "mlpengine.estimators", "mlpengine.export", "mlpengine_cli.compare",
              "multiprocessing", "numexpr", "optuna", "pandas", "pyarrow", "scipy",
              "sklearn", "torch", "xml"]  # fmt: skip
    command = ["train", str(ROOT / "configs" / "digits.yaml"), "--epochs", "6", "--quiet"]
    command += ["--out", str(tmp_path / "run"), "--set", "training.backend=numpy"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(unused), *command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *outcome, methods, modules = json.loads(done.stdout.splitlines()[-1])
    assert outcome == [0, [], [], ["AdamW", "CosineSchedule"]]
    assert 100 < methods <= GENERATED_METHODS
    assert 100 < modules <= MODULES


OLD_SCRIPT = """
from pathlib import Path
import numpy
WORKLOADS = (type("Workload", (), {"name": "tiny"}),)
def by_hand(work): return lambda: numpy.zeros(9)
def engine(work, backend): return lambda: Path(__file__).parents[1].joinpath("ran").touch()
"""


def test_another_version_is_timed_by_its_own_script(tmp_path):
    """It may lack the modules that today's scripts share."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "step.py").write_text(OLD_SCRIPT, encoding="utf-8")
    worker = load("benchmarks/against.py").Worker(tmp_path, "step")
    assert worker.rows == ["tiny, by hand", "tiny, numpy", "tiny, compiled"]
    assert min(worker.seconds("tiny, numpy", 0)) > 0
    worker.process.communicate()
    assert (tmp_path / "ran").exists()


OLD_RUNS = """
import subprocess, sys
from dataclasses import dataclass
BASE = "mlpengine"
@dataclass
class Run: title: str; epochs: int
RUNS = (Run("digits", 80),)
class Contestants:
    def __init__(self, *job): self.job = job
    def seconds(self, name):
        run, directory, rows = self.job
        command = [sys.executable, "-m", "mlpengine_cli.main", str(run.epochs), str(rows), name]
        subprocess.run(command, cwd=directory, check=True)
"""

OLD_COMMAND = """
import sys, time
while time.process_time() < 0.05: pass
with open({!r}, "a") as file: print(*sys.argv[1:], file=file)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="links to folders need a privilege there")
def test_another_version_runs_its_own_command(tmp_path):
    """The processor time of a row is that of its processes, too."""
    for name in ("benchmarks", "cli"):
        (tmp_path / name).mkdir()
    (tmp_path / "benchmarks" / "runs.py").write_text(OLD_RUNS, encoding="utf-8")
    command = OLD_COMMAND.format(str(tmp_path / "ran"))
    (tmp_path / "cli" / "__init__.py").touch()
    (tmp_path / "cli" / "main.py").write_text(command, encoding="utf-8")
    worker = load("benchmarks/against.py").Worker(tmp_path, "runs", rows=5, epochs=None)
    assert worker.rows == ["digits"]
    assert worker.seconds("digits", 0)[0] > 0.05
    worker.process.communicate()
    assert set((tmp_path / "ran").read_text().splitlines()) == {"80 5 mlpengine"}


@pytest.mark.parametrize(
    ("seconds", "runs", "windows"), [(1e-3, 50, 32), (0.1, 1, 32), (0.6, 1, 8)]
)
def test_a_row_is_slower_where_median_and_minimum_are(seconds, runs, windows):
    """A run longer than a window is one, and a long one has fewer windows."""

    class Clock:
        def __init__(self, *ratios):
            self.times, self.counts = cycle([seconds * r for r in ratios]), []

        def seconds(self, row, count):
            self.counts += [count] if count else []
            return (next(self.times) if count else seconds), 1.0

    time_row = load("benchmarks/against.py").time_row
    for new, slower in (((1.04, 1.05), True), ((1, 1.5), False), ((1.5, 1.02, 1.02), False)):
        workers = Clock(1), Clock(*new)
        _, is_slower = time_row("row", workers, 0.05, 32)
        assert is_slower == slower
        assert all(w.counts == [runs] * windows for w in workers)


def test_another_version_is_timed_at_the_asked_sizes_and_dtypes():
    options = ["--only", "relu of 0 axes", "--elements", "8", "16", "--dtype", "float64"]
    command = [sys.executable, "benchmarks/ops.py", "--smoke", *options, "--against", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [f"relu of 0 axes float64 {n} {way}" for n in (8, 16) for way in ("forward", "backward")]
    timed = [line[:60].rstrip() for line in done.stdout.splitlines() if line.startswith("relu")]
    assert list(dict.fromkeys(timed)) == rows


TESTS_THAT_DRAW = """
import numpy as np
import pytest

G = np.random.default_rng(5)

@pytest.fixture(scope="module")
def drawn():
    return G.random()

@pytest.mark.parametrize("number", range(2))
def test_draws(number, drawn):
    assert G.random() == np.random.default_rng(5).random()
    jumped = np.random.default_rng(5).bit_generator.jumped()
    assert drawn == np.random.Generator(jumped).random()
"""


def test_each_test_draws_the_same_numbers(tmp_path):
    """In any order: a process may leave a module and come back to it."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS_THAT_DRAW, encoding="utf-8")
    cases = [f"{file}::test_draws[{n}]" for n in (0, 1) for file in ("test_one.py", "test_two.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "4 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([], "qemu-aarch64-static is missing"),
        (["aarch64-linux-gnu-gcc", "debootstrap", "dpkg-deb", "fakeroot", "qemu-aarch64-static"],
         "Python for aarch64 cannot be put together in "),
    ],
    ids=["a program", "the network"],
)  # fmt: skip
def test_a_script_that_lacks_what_it_needs_says_that_nothing_was_checked(
    programs, message, tmp_path
):
    for name in ("bash", "cat", "dirname", "mkdir", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o700)
    folder = {"FOLDER": str(tmp_path / "build"), "PYTHON": sys.executable}
    done = subprocess.run(
        [".ci/aarch64", "short"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), **folder},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith(message)
    assert done.stdout.endswith(": NOTHING WAS CHECKED\n")

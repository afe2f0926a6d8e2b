"""What holds for every command: lazy loading, help, exit codes, errors without tracebacks."""

import ast
import errno
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import mlpengine as package
import mlpengine_cli
from mlpengine.core import errors
from mlpengine_cli import main

ROOT = Path(__file__).parents[2]
ALLOWED = {"click", "mlpengine", "mlpengine_cli"}
"""What help may import beyond the standard library."""


def test_help_imports_only_click():
    script = (
        "import sys; from mlpengine_cli.main import run; code = run(['--help']);"
        "print(sorted(sys.modules)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = set(eval(done.stdout.splitlines()[-1]))
    installed = {root for name in names if not _standard(root := name.split(".")[0])}
    assert installed <= ALLOWED
    light = {"mlpengine", "mlpengine.core.errors"}
    light |= {
        f"mlpengine.core{name}" for name in ("", ".lazy", ".redaction", ".system", ".wording")
    }
    assert {name for name in names if name.split(".")[0] == "mlpengine"} <= light


def _standard(name):
    known = sys.stdlib_module_names | {"__main__", "sitecustomize", "usercustomize"}
    return name in known or name.startswith(("_", "a1_coverage"))


def test_every_command_is_listed_and_has_help(mlpengine):
    listed = mlpengine("--help")
    assert listed.code == 0
    for name, text in main.COMMANDS.items():
        assert name in listed.out
        assert text.split()[0] in listed.out
        found = mlpengine(name, "--help")
        assert found.code == 0
        assert "Example" in found.out
        assert "Usage: mlpengine " + name in found.out
        assert re.findall(r"--[\w-]+ (?:TEXT|INTEGER|FLOAT)\b.*", found.out) == []


def test_version(mlpengine):
    assert mlpengine("--version").out.startswith("mlpengine 0.")


def test_without_a_command_help_is_shown(mlpengine):
    found = mlpengine()
    assert found.code == 2
    assert found.err.startswith("Usage: ")


WRONG = {
    "misspelled command": (["trian"], "no such command 'trian' - did you mean 'train'?"),
    "a schema": (
        ["init", "penguins", "-o", "mlpengine.schema.json"],
        "mlpengine.schema.json: the schema has this name; write -o penguins.yaml",
    ),
    "misspelled option": (["train", "c.yaml", "--ste", "a=1"], "'--ste' - did you mean '--set'?"),
    "help of a command": (["help", "train"], "'help' - write mlpengine train --help"),
    "a target by place": (["init", "a.csv", "y"], "(y)\nUsage: mlpengine init"),
    "missing argument": (["train"], "give a CONFIG, --resume RUN or --warm-start RUN"),
    "an option like a setting of training": (
        ["predict", "run", "x.csv", "--momentum", "3"],
        "no such option '--momentum'\nUsage: ",
    ),
    "a setting as an option": (["train", "--learning-rate=1"], "write --set optimizer.lr=1"),
    "a path as an option": (["train", "--model.hidden", "[3]"], "write --set model.hidden=[3]"),
    "a setting by place": (["train", "c.yaml", "seed=1"], "(seed=1); write --set KEY=VALUE"),
    "a table from stdin": (["init", "-"], "; standard input cannot be read here"),
    "a section as an option": (["train", "--threshold", "1"], "--set training.threshold.KEY=VALUE"),
    "an option of no near name": (["export", "RUN", "--onnx"], "no such option '--onnx'\nUsage"),
    "stdout as a file": (["predict", "RUN", "-", "-o", "/dev/stdout"], "; for stdout write -o -"),
    "wrong setting": (["train", "c.yaml", "--set", "a"], "write it as section.key=value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_ends_with_2_and_one_message(case, mlpengine):
    args, message = WRONG[case]
    found = mlpengine(*args)
    assert found.code == 2
    assert message in found.err
    assert found.err.startswith("error: ")
    assert "Traceback" not in found.err
    assert found.out == ""


def test_every_error_is_importable_from_the_top():
    names = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MlpEngineError)
    }
    assert len(names) > 10
    assert names <= {*package.__all__} & {*dir(package)}


def raising(error):
    def callback():
        raise error

    return click.Command("fail", callback=callback)


FAILURES = {
    "disk full": (OSError(errno.ENOSPC, "No space left on device", "f.csv"), 1, "f.csv: No space"),
    "no permission": (PermissionError(errno.EACCES, "Permission denied", "d"), 1, "d: Permission"),
    "memory": (MemoryError(), 1, "not enough memory"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted"),
    "SIGTERM": (SystemExit(143), 143, ""),
    "closed pipe": (BrokenPipeError(), 141, ""),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failure(case, mlpengine, monkeypatch):
    error, code, message = FAILURES[case]
    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: raising(error))
    found = mlpengine("train")
    assert found.code == code
    assert message in found.err
    assert len(found.err.strip().splitlines()) <= 1


def test_an_unexpected_error_keeps_its_traceback(mlpengine, monkeypatch):
    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: raising(ZeroDivisionError("x")))
    with pytest.raises(ZeroDivisionError):
        mlpengine("train")


def test_debug_shows_the_traceback_of_an_expected_error(mlpengine):
    with pytest.raises(Exception, match="cannot read the config"):
        mlpengine("train", "none.yaml", "--debug")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_any_command(number, code, mlpengine):
    mlpengine("--version")
    with pytest.raises(SystemExit) as ending:
        signal.raise_signal(number)
    assert ending.value.code == code


def test_a_hangup_that_is_ignored_stays_so(mlpengine):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mlpengine("--version")
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("given", ["", "26"])
def test_threads_of_openblas_that_wait_sleep_unless_another_time_is_given(given, monkeypatch):
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    script = (
        "import atexit, os, sys\nfrom mlpengine_cli.main import main\n"
        "assert 'numpy' not in sys.modules  # which reads the variable\n"
        "atexit.register(lambda: print(os.environ['OPENBLAS_THREAD_TIMEOUT']))\n"
        "sys.argv[1:] = ['--version']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split()[-1] == (given or "24")


def test_a_closed_pipe_is_no_error_message(tmp_path):
    script = "import sys; from mlpengine_cli.main import main; main(['schema'])"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert b"Traceback" not in error
    assert b"Exception" not in error
    assert process.returncode == 141


@pytest.fixture
def interruptible():
    """Jobs that a shell runs in the background ignore SIGINT, and so do their tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_the_first_imports_prints_no_traceback(monkeypatch, capfd):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert scripts["scripts"] == {"mlpengine": "mlpengine_cli:start"}
    tree = ast.parse(Path(mlpengine_cli.__file__).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node) for node in imports} == {"import os", "import sys"}

    class Interrupted:
        def find_spec(self, name, *_):
            if name == "mlpengine_cli.main":
                signal.raise_signal(signal.SIGINT)

    monkeypatch.delattr(mlpengine_cli, "main")
    monkeypatch.delitem(sys.modules, "mlpengine_cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ending:
        mlpengine_cli.start()
    assert (ending.value.code, capfd.readouterr().err) == (130, "interrupted\n")


def test_a_working_directory_that_is_gone_is_named(mlpengine, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = mlpengine("init", "diabetes")
    assert ran.code == 2
    assert ran.err.startswith("error: the working directory must exist (No such file")

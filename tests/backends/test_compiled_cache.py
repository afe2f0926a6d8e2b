"""The cache of compiled programs: whose it is, what is damaged, who is at it at once."""

import errno
import functools
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from compiled_table import CASES

from mlpengine.backends.compiled import cache
from mlpengine.backends.compiled import target as targets
from mlpengine.backends.compiled.cache import chosen_target
from mlpengine.backends.compiled.target import find_target
from mlpengine.core import system
from mlpengine.core.errors import CompileError
from mlpengine.step.blas_threads import blas_name

SOURCE = "long answer(void) { return 42; }\n"


asked_once = functools.cache(find_target)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache; all tests ask each compiler once, which takes as long as to compile."""
    monkeypatch.setattr(cache, "find_target", asked_once)
    monkeypatch.setenv("MLPENGINE_CACHE", str(tmp_path / "programs"))
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "_targets", {})
    return tmp_path / "programs"


def answer(source=SOURCE):
    return cache.load_library(source, chosen_target()).answer()


def kept(folder, suffix=".so"):
    return [p for p in folder.iterdir() if p.suffix == suffix]


def assert_one_program(folder):
    assert sorted(p.suffix for p in folder.iterdir()) == [".json", ".sha256", ".so"]


def test_a_program_is_compiled_once(folder, monkeypatch):
    assert answer() == 42
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert_one_program(folder)  # and nothing of its build
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "_build", None)  # compiling again would fail
    assert answer() == 42


WRONG_FIELDS = (
    *({"vector_bytes": n} for n in (33, 16.0)),
    {"registers": None},
    {"command": ["other"]},
    {"command": "cc"},
    {"level": "avx3"},
    {"version": 3},
    {"more": 1},
)


@pytest.mark.parametrize("damage", [None, "", "[]", *WRONG_FIELDS], ids=str)
def test_a_compiler_is_asked_once_and_again_if_the_answer_is_damaged(folder, monkeypatch, damage):
    target = chosen_target()
    (path,) = folder.iterdir()
    if damage is not None:
        fields = json.loads(path.read_text())
        text = damage if isinstance(damage, str) else json.dumps({**fields, **damage})
        path.write_text(text)
    cache._targets.clear()
    asked = []
    monkeypatch.setattr(cache, "find_target", lambda *args: asked.append(args) or target)
    assert chosen_target() == target
    assert len(asked) == (damage is not None)


def is_sound(folder):
    """Return whether the only note has the digest of the only library."""
    (note,), (library,) = kept(folder, ".sha256"), kept(folder)
    return note.read_text() == cache.digest_of(library.stem, library.read_bytes())


def write(path, content):
    """Write a file of the cache anew: one that is loaded is left as it is."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o700)


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
@pytest.mark.parametrize(
    "damage",
    [flipped, lambda _: b"", None, lambda _: b"\0\xff\n" * 1000],
    ids=["flip", "empty", "missing", "bytes"],
)
def test_a_damaged_file_is_built_again(folder, damage, suffix):
    source = f"/* {suffix} */ {SOURCE}"
    assert answer(source) == 42
    (path,) = kept(folder, suffix)
    content = path.read_bytes()
    path.unlink() if damage is None else write(path, damage(content))
    cache._loaded.clear()
    assert answer(source) == 42
    assert path.read_bytes() == content
    assert is_sound(folder)


@pytest.mark.parametrize("what", ["folder", ".so", ".sha256"])
def test_nothing_is_run_that_others_could_have_written(folder, what):
    assert answer() == 42
    cache._loaded.clear()
    (folder if what == "folder" else kept(folder, what)[0]).chmod(0o722)
    with pytest.raises(CompileError, match="must not be writable by others"):
        answer()


def test_nothing_is_run_through_a_link(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CompileError, match="not a link"):
        answer()


def test_nothing_is_run_from_a_folder_of_another_user(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(CompileError, match="must belong to this user"):
        answer()


def test_a_full_disk_is_a_compile_error(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_keep", full)
    with pytest.raises(CompileError, match="No space left"):
        answer()
    assert [p.suffix for p in folder.iterdir()] == [".json"]


def test_a_library_that_cannot_serve_is_built_again(folder, tmp_path):
    """Not a library, and without the function: each has a good digest."""
    chosen_target()
    text = tmp_path / "empty.c"
    text.write_text("int nothing;\n")
    subprocess.run(["cc", "-shared", "-fPIC", text, "-o", tmp_path / "empty.so"], check=True)
    empty = (tmp_path / "empty.so").read_bytes()
    for number, content in enumerate([b"no library", empty]):
        source = f"/* {number} */ {SOURCE}"
        before = {*kept(folder, ".sha256")}
        answer(source)
        (path,) = {*kept(folder, ".sha256")} - before
        built = path.read_bytes()
        write(path.with_suffix(".so"), content)
        write(path, cache.digest_of(path.stem, content).encode())
        cache._loaded.clear()
        library = cache.load_library(source, chosen_target(), functions=("answer",))
        assert library.answer() == 42
        assert path.read_bytes() == built


def test_a_library_that_cannot_be_replaced_is_loaded(folder, monkeypatch):
    """On Windows, where a process that built it at the same time has loaded it."""
    real = system.replace

    def replace(source, target):
        if target.exists():
            raise PermissionError(errno.EACCES, "in use")
        real(source, target)

    monkeypatch.setattr(system, "replace", replace)
    assert answer() == 42
    kept(folder, ".sha256")[0].unlink()
    cache._loaded.clear()
    assert answer() == 42
    assert is_sound(folder)


@pytest.mark.parametrize(
    ("compiler", "message"),
    [
        ("/no/such/compiler", r"\$CC must"),
        ('cc "x', r"\$CC must"),
        ("false", "false --version"),
        ("true", "true .*answer"),
    ],
)
def test_numpy_runs_where_the_compiler_does_not(folder, monkeypatch, caplog, compiler, message):
    monkeypatch.setenv("CC", compiler)
    check_numpy_runs(caplog, f"compiler: {message}")


def check_numpy_runs(caplog, message):
    step = CASES[0].step("compiled")
    assert step.backend == "numpy"
    (line,) = caplog.messages
    assert re.match(rf"backend: NumPy runs instead of compiled code \({message}", line), line
    assert "\n" not in line
    x, y, _ = CASES[0].data(32)
    assert np.isfinite(step(x, y))


def a_file(tmp_path):
    (tmp_path / "file").write_text("")
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("MLPENGINE_CACHE", a_file),
        ("XDG_CACHE_HOME", lambda at: a_file(at) / "below"),
        ("MLPENGINE_CACHE", lambda _: "/proc/none"),
    ],
    ids=["file", "below a file", "no such file system"],
)
def test_numpy_runs_where_the_cache_cannot_be_used(
    folder, monkeypatch, caplog, tmp_path, name, place
):
    monkeypatch.delenv("MLPENGINE_CACHE")
    monkeypatch.setenv(name, str(place(tmp_path)))
    check_numpy_runs(caplog, "cache: ")


def test_numpy_runs_where_the_cache_is_not_utf8(folder, monkeypatch, tmp_path):
    """threadpoolctl fails in a process that has loaded a library from such a path."""
    monkeypatch.setenv("MLPENGINE_CACHE", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(CompileError, match=r"UTF-8 \(.*/\\xff\)"):
        answer()
    assert blas_name()  # reads the paths of all libraries of this process


def test_a_relative_cache_is_one_of_the_working_directory(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLPENGINE_CACHE", "relative")
    assert answer() == 42
    assert kept(tmp_path / "relative")


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o775, True), (0o1777, False)])
def test_parents_that_others_can_write_to_are_refused(folder, tmp_path, monkeypatch, mode, refused):
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent").chmod(mode)
    (tmp_path / "link").symlink_to("parent/real")
    for path in ("parent/programs", "link/programs"):
        (tmp_path / "parent/real").mkdir(exist_ok=True)
        monkeypatch.setenv("MLPENGINE_CACHE", str(tmp_path / path))
        if refused:
            with pytest.raises(CompileError, match="must not lie where others can replace it"):
                answer()
        else:
            assert answer() == 42


def test_what_a_killed_compiler_run_left_is_removed(folder):
    chosen_target()
    old, new = folder / ".build-old", folder / ".build-new"
    for path in (old, new):
        path.mkdir()
        (path / "program.c").write_text(SOURCE)
    (folder / ".target-old").write_text("{")
    long_ago = time.time() - 2 * cache.STALE_SECONDS
    for path in (old, folder / ".target-old"):
        os.utime(path, (long_ago, long_ago))
    answer("/* stale */" + SOURCE)
    assert {p.name for p in folder.iterdir() if p.name.startswith(".")} == {".build-new"}


def test_a_compiler_that_hangs_is_ended_with_its_children(folder, tmp_path, monkeypatch):
    compiler = tmp_path / "hanging"
    compiler.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\nwait\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(targets, "SECONDS", 0.5)
    with pytest.raises(CompileError, match=r"hanging.*timed out"):
        chosen_target()
    assert_ends((tmp_path / "child").read_text().strip())


def assert_ends(process):
    """Assert that a process of this number ends."""
    state = Path(f"/proc/{process}/stat")
    end = time.monotonic() + 60  # a killed process ends when it next gets a core
    while state.exists() and state.read_text().split()[2] not in "ZX" and time.monotonic() < end:
        time.sleep(0.01)
    assert not state.exists() or state.read_text().split()[2] in "ZX"  # dead, waiting for init


def test_two_units_give_the_bits_of_one(folder, monkeypatch):
    """They are compiled at the same time, each with some of the products."""
    case = next(c for c in CASES if c.fused)
    run, commands = cache.run_compilers, []

    def counted(these, folder):
        commands.append(these)
        return run(these, folder)

    monkeypatch.setattr(cache, "run_compilers", counted)
    two = case.step("compiled")
    assert [len(at_once) for at_once in commands] == [2, 1]
    monkeypatch.setattr(cache, "UNITS", "another text")
    monkeypatch.setattr(cache, "_loaded", {})
    for path in kept(folder):
        path.unlink()
    one = case.step("compiled")
    assert [len(at_once) for at_once in commands] == [2, 1, 1]
    assert two.emit_c() == one.emit_c()
    x, y, weights = case.data(case.batch)
    for _ in range(5):
        assert two(x, y, weights) == one(x, y, weights)
    assert two.mlp.params.flat.tobytes() == one.mlp.params.flat.tobytes()


def test_compilers_of_two_units_end_together(tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "SECONDS", 0.5)
    waiting = [["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/{k}; wait"] for k in range(2)]
    with pytest.raises(subprocess.TimeoutExpired):
        targets.run_compilers(waiting, tmp_path)
    for k in range(2):
        assert_ends((tmp_path / str(k)).read_text().strip())


def test_an_error_in_either_unit_is_told(folder):
    for unit in range(2):
        text = f"{SOURCE}{cache.UNITS}\n#endif\n#if UNIT == {unit}\n#error of unit {unit}\n#endif\n"
        with pytest.raises(CompileError, match=f"error.*of unit {unit}") as caught:
            answer(f"#define IN_UNIT(n) (UNIT == (n))\n{text}")
        assert "\n" not in str(caught.value)
    assert kept(folder) == []


def test_a_directory_of_one_process_goes_with_it(tmp_path):
    (tmp_path / "file").write_text("")
    code = f"""
import os
from mlpengine.backends.compiled.cache import cache_directory
folder = cache_directory()
assert folder.is_dir() and str(folder).startswith({str(tmp_path)!r}), folder
assert folder.stat().st_mode & 0o777 == 0o700
child = os.fork()
if not child:
    raise SystemExit
os.waitpid(child, 0)
assert folder.is_dir()
"""
    env = {k: v for k, v in os.environ.items() if k not in ("MLPENGINE_CACHE", "XDG_CACHE_HOME")}
    env |= {"HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_processes_at_once_share_one_program(folder):
    code = (
        "from mlpengine.backends.compiled.cache import load_library\n"
        "from mlpengine.backends.compiled.cache import chosen_target\n"
        f"assert load_library({SOURCE!r}, chosen_target()).answer() == 42\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait() for process in running] == [0] * 3
    assert_one_program(folder)

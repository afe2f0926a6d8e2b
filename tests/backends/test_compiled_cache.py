"""The cache of compiled programs: whose it is, what is damaged, who is at it at once."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from compiled_table import CASES

from mlpengine import CompileError
from mlpengine.backends.compiled import cache
from mlpengine.backends.compiled.executor import native_target
from mlpengine.backends.compiled.target import compiler_command, find_target

SOURCE = "long answer(void) { return 42; }\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLPENGINE_CACHE", str(tmp_path / "programs"))
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "_targets", {})
    return tmp_path / "programs"


def answer(source=SOURCE):
    return cache.load(source, native_target()).answer()


def kept(folder):
    return [p for p in folder.iterdir() if p.suffix == ".so"]


def test_a_program_is_compiled_once(folder, monkeypatch):
    assert answer() == 42
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(p.suffix for p in folder.iterdir()) == [".json", ".so"]  # nothing of the build
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "_build", None)  # compiling again would fail
    assert answer() == 42


@pytest.mark.parametrize("kept_text", [None, "", "[]", "{", '{"command": ["cc"]}'])
def test_a_compiler_is_asked_once_and_again_if_the_answer_is_lost(folder, monkeypatch, kept_text):
    target = native_target()
    (path,) = folder.iterdir()
    if kept_text is not None:
        path.write_text(kept_text)
    cache._targets.clear()
    if kept_text is None:
        monkeypatch.setattr(cache, "find_target", None)  # asking again would fail
    assert native_target() == target


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_built_again(folder, damage):
    source = f"/* {damage} */ {SOURCE}"
    assert answer(source) == 42
    (path,) = kept(folder)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    path.unlink()  # the loaded file is left as it is
    path.write_bytes({"flip": content, "cut": content[:-100], "empty": b""}[damage])
    path.chmod(0o700)
    assert not cache.is_sound(path)
    cache._loaded.clear()
    assert answer(source) == 42
    assert cache.is_sound(path)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_nothing_is_run_that_others_could_have_written(folder, what):
    assert answer() == 42
    cache._loaded.clear()
    (folder if what == "folder" else kept(folder)[0]).chmod(0o722)
    with pytest.raises(CompileError, match="must not be writable by others"):
        answer()


def test_nothing_is_run_through_a_link(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CompileError, match="must not be a link"):
        answer()


def test_nothing_is_run_from_a_folder_of_another_user(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(CompileError, match="must belong to this user"):
        answer()


def test_without_a_home_programs_last_as_long_as_the_process(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("MLPENGINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert stat.S_IMODE(cache.cache_directory().stat().st_mode) == 0o700


def test_source_that_does_not_compile_is_one_line(folder):
    with pytest.raises(CompileError, match=r"must accept the program \(.*error") as caught:
        answer("nonsense")
    assert "\n" not in str(caught.value)
    assert not kept(folder)


def test_a_full_disk_is_a_compile_error(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_sign", full)
    with pytest.raises(CompileError, match="No space left"):
        answer()
    assert [p.suffix for p in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_numpy_runs_where_the_compiler_does_not(folder, monkeypatch, caplog, compiler):
    monkeypatch.setenv("CC", compiler)
    step = CASES[0].step("compiled")
    assert step.executor == "numpy"
    (line,) = caplog.messages
    assert line.startswith("backend: NumPy runs instead of compiled code (compiler:")
    x, y, _ = CASES[0].data(32)
    assert np.isfinite(step(x, y))


def test_a_compiler_that_does_not_answer_is_an_error():
    with pytest.raises(CompileError, match="must run"):
        find_target(("false",))
    assert compiler_command() is not None


def test_eight_processes_at_once_share_one_program(folder):
    code = (
        "from mlpengine.backends.compiled.cache import load\n"
        "from mlpengine.backends.compiled import native_target\n"
        f"assert load({SOURCE!r}, native_target()).answer() == 42\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(8)]
    assert [process.wait() for process in running] == [0] * 8
    assert sorted(p.suffix for p in folder.iterdir()) == [".json", ".so"]

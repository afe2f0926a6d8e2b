"""The C of steps and of readers on other systems: zig compiles it for each, which needs none."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
from compiled_table import BY_NAME

from mlpengine.backends.compiled import emitter, executor
from mlpengine.backends.compiled.cache import available_targets
from mlpengine.backends.compiled.source import make_source
from mlpengine.backends.compiled.target import TARGET_LEVELS, find_target

SYSTEMS = {
    "x86_64-linux-gnu": b"\x7fELF",
    "aarch64-linux-gnu": b"\x7fELF",
    "x86_64-macos": b"\xcf\xfa\xed\xfe",
    "aarch64-macos": b"\xcf\xfa\xed\xfe",
    "x86_64-windows-gnu": b"\x64\x86",
    "aarch64-windows-gnu": b"\x64\xaa",
}
"""The names of systems for zig, and the first bytes of their object files."""

WARNINGS = ("-Wall", "-Wextra", "-Wno-psabi", "-Werror")

OF_ZIG = (
    *WARNINGS,
    "-Wshorten-64-to-32",  # Windows has a long of 32 bits
    "-Wframe-larger-than=65536",  # a thread of macOS has a stack of 512 KiB
    "-O0",
    "-fno-sanitize=undefined",  # which zig adds to -O0
)


@cache
def targets(system):
    """Return the targets of a system for each level of its architecture."""
    lowest = find_target((sys.executable, "-m", "ziglang", "cc", "-target", system), "baseline")
    return [
        replace(
            lowest,
            cpu=" ".join(sorted(each.macros)),
            level=name,
            flag=each.flags[-1],
            vector_bytes=each.vector_bytes,
            registers=each.registers,
        )
        for name, each in TARGET_LEVELS[system.partition("-")[0]].items()
    ]


class Recorded(Exception):  # noqa: N818
    """The arguments of a call."""


@cache
def arguments(name):
    """Return the arguments of `make_source` for the step of a case; nothing is compiled."""
    case = BY_NAME[name]

    def record(*args, **options):
        raise Recorded(args, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "make_source", record)
        with pytest.raises(Recorded) as caught:
            case.step("compiled").bound(case.batch)
    return caught.value.args


def program(name, threads, target):
    """Return the C text of a case's step, even if it is too small for so many threads."""
    args, options = arguments(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emitter, "STEP_TERMS_PER_THREAD", 1)
        return make_source(*args, **{**options, "target": target, "threads": threads}).text


def update_alone(name, target):
    """Return the C text of a case's update alone, as shards and split steps have it."""
    _, options = arguments(name)
    alone = {"target": target, "threads": 1, "batch": 1, "gathered": ()}
    return make_source((), **{**options, **alone}).text


def test_a_compiler_is_asked_without_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert targets.__wrapped__("aarch64-macos")
    assert [*tmp_path.iterdir()] == []


CHOSEN = (
    *(("some features", 2), ("smoothed", 1), ("layers alike", 2), ("clipped", 1)),
    *(("chunks", 2), ("short", 1), ("log_softmax", 2), ("float64", 1)),
    *(("blocked", 2), ("bce", 1), ("softmax inside", 2), ("high tiles", 1)),
)
"""Cases, and their threads, with programs that use all headers; two are compiled on each system."""


@pytest.fixture(scope="module", autouse=True)
def _zig_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
            patch.setenv(name, str(tmp_path_factory.getbasetemp() / "zig"))
        yield


def complaints(target, text, folder, *flags):
    """Return what the compiler says about a program, and the first bytes of its object file."""
    source, built = folder / "program.c", folder / "program.o"
    source.write_text(text, encoding="utf-8")
    built.unlink(missing_ok=True)
    command = [*target.command, *target.flags, *flags, "-c", str(source), "-o", str(built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return done.stderr, built.read_bytes()[:4] if built.exists() else b""


@pytest.mark.parametrize("system", SYSTEMS)
def test_steps_compile_without_warnings(system, tmp_path):
    """The level of the processor differs from system to system."""
    levels, place = targets(system), [*SYSTEMS].index(system)
    target = levels[place % len(levels)]
    for name, threads in CHOSEN[2 * place : 2 * place + 2]:
        text = program(name, threads, target)
        for unit in [("-DUNIT=0",), ("-DUNIT=1",)] if threads > 1 else [()]:
            said, start = complaints(target, text, tmp_path, *OF_ZIG, *unit)
            assert said == "", (name, target.level, unit)
            assert start.startswith(SYSTEMS[system])


@pytest.mark.parametrize("target", available_targets(), ids=lambda target: target.level)
def test_the_compiler_of_this_machine_optimizes_without_warnings(target, tmp_path):
    """GCC warns of what it finds by tracing values, too."""
    assert complaints(target, program("dropout", 1, target), tmp_path, *WARNINGS)[0] == ""


def test_updates_alone_compile_without_warnings(tmp_path):
    target = targets("x86_64-linux-gnu")[0]
    text = update_alone("clipped", target)
    assert complaints(target, text, tmp_path, *OF_ZIG)[0] == ""

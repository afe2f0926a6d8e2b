"""The C of steps and of readers on other systems: zig compiles it for each, which needs none."""

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product

import pytest
from compiled_table import BY_NAME, CASES

import mlpengine.backends.compiled
import mlpengine.data.tables
from mlpengine.backends.compiled import available_targets, emitter, executor
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
"""What zig calls them, and the bytes with which their object files begin."""

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


def words(text):
    """Return what a program uses beside the headers, without the names that it numbers itself."""
    folder = files(mlpengine.backends.compiled)
    headers = [file.read_text() for file in folder.iterdir() if file.name.endswith(".h")]
    for header in headers:
        text = text.replace(header, "")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    known = names_in("".join(headers))
    return {word for word in names_in(code) if word in known or not re.search(r"\d", word)}


def names_in(text):
    return {*re.findall(r"\b[A-Za-z_]\w*", text)}


def test_a_compiler_is_asked_without_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert targets.__wrapped__("aarch64-macos")
    assert [*tmp_path.iterdir()] == []


@cache
def chosen():
    """Return cases, and their threads, whose programs use all words of the programs of all cases.

    A program is compiled for one level on each system, so that of all levels counts.
    """
    known = [target for system in ("x86_64-macos", "aarch64-macos") for target in targets(system)]
    candidates = {
        (case.name, threads): set().union(*(words(program(case.name, threads, t)) for t in known))
        for case, threads in product(CASES, (1, 2))
    }
    left, picked = set().union(*candidates.values()), []
    while left:
        best = max(candidates, key=lambda each: len(candidates[each] & left))
        picked.append(best)
        left -= candidates[best]
    return picked


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
def test_all_kinds_of_steps_compile_without_warnings(system, tmp_path):
    """Each step is compiled for every kind of system and for both processors.

    That is for three of the six, and for several levels of the processor that has them.
    """
    levels, (kind, processor) = targets(system), divmod([*SYSTEMS].index(system), 2)
    pools = 0
    for number, (name, threads) in enumerate(chosen()):
        if threads == 1 and (number + kind + processor) % 2:
            continue
        target = levels[(number // 2 + kind) % len(levels)]
        text = program(name, threads, target)
        units = [(), ("-DUNIT=0",), ("-DUNIT=1",)] if threads > 1 else [()]
        pools += threads > 1
        for unit in units:
            said, start = complaints(target, text, tmp_path, *OF_ZIG, *unit)
            assert said == "", (name, target.level, unit)
            assert start.startswith(SYSTEMS[system])
    assert pools


@pytest.mark.parametrize("target", available_targets(), ids=lambda target: target.level)
def test_the_compiler_of_this_machine_optimizes_without_warnings(target, tmp_path):
    """GCC warns of what it finds by tracing values, too."""
    assert complaints(target, program("dropout", 1, target), tmp_path, *WARNINGS)[0] == ""


@pytest.mark.parametrize("system", [system for system in SYSTEMS if "linux" in system])
@pytest.mark.parametrize("name", ["recipe of doubles", "clipped"])
def test_updates_alone_compile_without_warnings(system, name, tmp_path):
    target = targets(system)[0]
    assert complaints(target, update_alone(name, target), tmp_path, *OF_ZIG)[0] == ""


@pytest.mark.parametrize(
    ("system", "change", "message"),
    [
        (
            "aarch64-macos",
            lambda text: text.replace("vselect", "select") + "\n#include <sys/select.h>\n",
            "conflicting types for 'select'",
        ),
        ("x86_64-windows-gnu", lambda text: f"{text}\nsigset_t all;", "type name 'sigset_t'"),
        (
            "x86_64-windows-gnu",
            lambda text: f"{text}\nlong low(int64_t n) {{ return n; }}",
            "loses integer precision",
        ),
        ("x86_64-linux-gnu", lambda text: f"{text}\nstatic int unused;", "unused variable"),
        (
            "aarch64-linux-gnu",
            lambda text: f"{text}\nvoid f(char *);\nvoid g(void) {{ char a[1 << 17]; f(a); }}",
            "stack frame size",
        ),
    ],
)
def test_what_does_not_compile_everywhere_is_noticed(system, change, message, tmp_path):
    target = targets(system)[-1]
    said, start = complaints(target, change(program("blocked", 2, target)), tmp_path, *OF_ZIG)
    assert message in said
    assert start == b""

"""Levels of a processor: which vectors a program uses, and the bits of its threads."""

import pytest
from compiled_table import CASES
from uncompiled import uncompiled

from mlpengine.backends.compiled.cache import available_targets, chosen_target
from mlpengine.backends.compiled.target import TARGET_LEVELS, compiler_command, find_target
from mlpengine.core.errors import UsageError

TARGETS = {target.level: target for target in available_targets()}


@pytest.mark.parametrize("level", TARGETS)
def test_a_level_decides_vectors_and_flags(level, monkeypatch):
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    target = chosen_target()
    known = [levels[level] for levels in TARGET_LEVELS.values() if level in levels]
    assert any(
        (target.vector_bytes, target.registers) == each[:2] and target.flag in each.flags
        for each in known
    )
    assert target.flag in target.flags
    with uncompiled():
        assert f"#define BYTES {target.vector_bytes}\n" in CASES[0].step("compiled").emit_c()


def test_programs_of_different_levels_are_kept_apart():
    assert len({target.identity for target in TARGETS.values()}) == len(TARGETS)


def test_native_is_the_highest_level(monkeypatch):
    monkeypatch.delenv("MLPENGINE_TARGET", raising=False)
    assert chosen_target().level == next(iter(TARGETS))


def test_a_compiler_that_refuses_native_is_asked_for_the_lowest_level(tmp_path):
    """As a cross compiler does."""
    compiler = tmp_path / "cross"
    compiler.write_text(f"""#!/bin/sh
case "$*" in *=native*) echo "unknown value" >&2; exit 1 ;; esac
exec {" ".join(compiler_command())} "$@"
""")
    compiler.chmod(0o755)
    target = find_target((str(compiler),))
    assert (target.level, target.vector_bytes) == ("baseline", 16)
    assert (
        target.flag
        in TARGET_LEVELS["x86_64"]["baseline"].flags + TARGET_LEVELS["aarch64"]["baseline"].flags
    )
    with pytest.raises(UsageError, match=r"avx2.*baseline"):
        find_target((str(compiler),), "avx2")

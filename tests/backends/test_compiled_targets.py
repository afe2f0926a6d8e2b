"""Levels of a processor: which vectors a program uses, and the bits of its threads."""

import sys
from itertools import cycle
from pathlib import Path

import pytest
from compiled_table import CASES
from uncompiled import uncompiled

from mlpengine import Mlp
from mlpengine.backends.compiled import available_targets, chosen_target
from mlpengine.backends.compiled.target import TARGET_LEVELS, compiler_command, find_target
from mlpengine.core.errors import UsageError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
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
    with pytest.raises(UsageError, match=r"must have avx2 \(it has baseline\)"):
        find_target((str(compiler),), "avx2")


@pytest.fixture
def bits(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "bits", raising=False)
    import bits

    return bits


@pytest.mark.parametrize(("number", "level"), [*zip(range(3), cycle(TARGETS))])
def test_threads_change_no_bit_whatever_the_compiler_is_tuned_for(bits, level, number, monkeypatch):
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    compiler, digests = " ".join(compiler_command()), set()
    tunings = ("haswell", "znver3") if "avx2" in TARGETS else ("generic",)
    for tuned in tunings[: 1 if bits.CASES[number].dropout else None]:  # nothing to tune in there
        monkeypatch.setenv("CC", f"{compiler} -mtune={tuned}")
        wrong, compared, digest = bits.differences(bits.CASES[number], [2], every=2)
        assert (wrong, compared) == ([0], -(-bits.CASES[number].batch // 2))
        digests.add(digest)
    assert len(digests) == 1


def test_random_networks_of_the_gauntlet_can_be_made(bits):
    """Before, their names of activations held one that the package does not know."""
    for case in bits.draw(40):
        Mlp(case.sizes, activation=case.activation, dropout=case.dropout, dtype=case.dtype)


def test_threads_that_change_bits_are_noticed(bits):
    class Changed(bits.Case):
        def step(self, threads):
            step = super().step(threads)
            step.optimizer.lr *= 1 + 1e-6 * (threads > 1)
            return step

    assert bits.differences(Changed((20, 24, 2), 16), [2])[0] > [0]

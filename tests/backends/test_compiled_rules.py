"""Rules of compiled programs: what they read, what has none, and how they are compiled."""

import pytest

from mlpengine import Program, Tape
from mlpengine.backends.compiled import UnsupportedError, available_targets
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.rules import find_rule
from mlpengine.ops import REGISTRY


def test_a_rule_reads_what_its_outputs_depend_on():
    rule = find_rule(REGISTRY["silu"](), "forward")
    assert (rule.reads, rule.writes) == (("x",), ("y", "kept0"))
    assert find_rule(REGISTRY["silu"](), "backward").reads == ("dy", "y", "kept0")
    assert find_rule(REGISTRY["mul"](), "backward").limited_to(["db"]).reads == ("dy", "a")


def test_an_op_without_a_row_is_unsupported():
    tape = Tape()
    x = tape.input((3, 4), name="x")
    program = Program(tape, tape.apply(REGISTRY["transpose"](), x), backend="numpy")
    with pytest.raises(UnsupportedError, match="transpose"):
        lower(program.instructions[:1], 8, {})


def test_compiling_never_turns_on_fast_math_and_fuses_nothing_by_itself():
    for target in available_targets():
        assert not [f for f in target.flags if "fast-math" in f or "Ofast" in f]
        assert [f for f in target.flags if "fp-contract" in f] == ["-ffp-contract=off"]

"""`mlpengine.common.dataclass` beside the standard library's, on classes of every kind in use."""

import dataclasses
from typing import ClassVar

import pytest

from mlpengine.common.dataclass import dataclass

OPTIONS = [
    {"eq": eq, "repr": shown, "frozen": frozen, "slots": slots}
    for eq in (True, False)
    for shown in (True, False)
    for frozen in (True, False)
    for slots in (True, False)
]


def plain(make):
    class Pair:
        first: int
        second: object = dataclasses.field(default=2, compare=False)
        third: str = dataclasses.field(default="c", repr=False)
        shared: ClassVar[int] = 1

    return make(Pair)


def empty(make):
    class Empty:
        pass

    return make(Empty)


def with_own_methods(make):
    class Own:
        first: int

        def __eq__(self, other):
            return isinstance(other, type(self)) and abs(self.first - other.first) < 2

        def __repr__(self):
            return "own"

    return make(Own)


def with_own_hash(make):
    class Hashed:
        first: int

        def __hash__(self):
            return 7

    return make(Hashed)


def derived(make):
    return make(
        type("Derived", (plain(make),), {"__annotations__": {"fourth": float}, "fourth": 4})
    )


def outcome(call):
    """Return what a call returns, or the type of its error."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [plain, empty, with_own_methods, with_own_hash, derived])
def test_behaves_as_the_standard_dataclass(kind, options):
    ours, standard = (kind(make(**options)) for make in (dataclass, dataclasses.dataclass))
    required = [()] if kind is empty else [(1,), (2,), (3,)]
    for x in required:
        assert outcome(lambda x=x: repr(ours(*x)).split(" object at")[0]) == outcome(
            lambda x=x: repr(standard(*x)).split(" object at")[0]
        )
        for call in (
            lambda cls, x=x: cls(*x).__hash__ is None,
            lambda cls, x=x: hash(cls(*x)) == hash(cls(*x)),
            lambda cls, x=x: setattr(cls(*x), "first", 5),
            lambda cls, x=x: [cls(*x) == cls(*y) for y in required],
            lambda cls, x=x: cls(*x) == x,
            lambda cls, x=x: dataclasses.asdict(cls(*x)),
        ):
            assert outcome(lambda call=call: call(ours)) == outcome(
                lambda call=call: call(standard)
            )
    if kind is plain and options["eq"]:
        assert ours(1, 2) == ours(1, 3)
        assert ours(1, third="c") != ours(1, third="d")


def test_a_standard_dataclass_derives_from_one():
    @dataclass(frozen=True)
    class Base:
        first: int

    @dataclasses.dataclass(frozen=True)
    class Outside(Base):
        second: int = 2

    assert Outside(1) == Outside(1)
    assert Outside(1) != Outside(1, 3)
    assert Outside(1) != Base(1)
    assert len({Outside(1), Outside(1), Base(1)}) == 2
    assert dataclasses.replace(Outside(1), second=5) == Outside(1, 5)

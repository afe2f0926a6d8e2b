"""`frozen` makes what ``dataclass(frozen=True)`` makes, which is the reference here."""

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import pytest

from mlpengine.frozen import frozen


class Bodies:
    """The same classes twice: made by `frozen`, and by the standard library."""

    def __init__(self, make: Any) -> None:
        @make
        class Empty:
            """No fields."""

        @make
        class One:
            """One field."""

            x: float

        @make
        class Many:
            """Every kind of field."""

            x: int
            y: list[int] = field(default_factory=list)
            z: str = "a"
            hidden: int = field(default=3, repr=False, compare=False)
            made: dict[str, int] = field(default_factory=dict, init=False)
            of_class: ClassVar[int] = 7
            last: float = field(default=0.5, kw_only=True)

            def __post_init__(self) -> None:
                self.made["x"] = self.x

        @make
        class Own:
            """Methods of its own."""

            x: int = 0

            def __eq__(self, other: object) -> bool:
                return True

            def __hash__(self) -> int:
                return 5

            def __repr__(self) -> str:
                return "own"

        @make
        class Nested:
            """A field that holds another object."""

            inner: Any
            self_made: list[Any] = field(default_factory=list)

        class Plain(Many):
            """A class derived without a decorator."""

        @dataclass(frozen=True)
        class Derived(Many):
            more: int = 9

        self.classes = {k: v for k, v in locals().items() if isinstance(v, type)}


OURS, THEIRS = (Bodies(make).classes for make in (frozen, dataclass(frozen=True)))
CALLS = [
    ("Empty", (), {}),
    ("One", (1.5,), {}),
    ("One", (float("nan"),), {}),
    ("Many", (1,), {}),
    ("Many", (1, [2], "b", 4), {"last": 2.0}),
    ("Many", (), {"x": 2, "z": "c"}),
    ("Own", (), {}),
    ("Nested", (3,), {}),
    ("Plain", (1, [5]), {}),
    ("Derived", (1, [5]), {"more": 2}),
]
WRONG = [("Many", (), {}), ("One", (1, 2), {}), ("One", (), {"y": 1}), ("Many", (1,), {"made": {}})]


@pytest.mark.parametrize(("name", "args", "options"), CALLS)
def test_objects_are_those_of_a_dataclass(name, args, options):
    one, other = (classes[name](*args, **options) for classes in (OURS, THEIRS))
    again = OURS[name](*args, **options)
    assert repr(one) == repr(other).replace("THEIRS", "OURS")
    assert (one == again) == (other == THEIRS[name](*args, **options))
    assert (one == other) == (name == "Own")
    assert one.__eq__(3) == other.__eq__(3)
    assert vars(one).keys() == vars(other).keys()
    assert [f.name for f in fields(one)] == [f.name for f in fields(other)]
    assert repr(asdict(one)) == repr(asdict(other))
    assert repr(deepcopy(one)) == repr(one)
    assert one.__match_args__ == other.__match_args__


@pytest.mark.parametrize("name", sorted(OURS))
def test_classes_are_those_of_a_dataclass(name):
    one, other = OURS[name], THEIRS[name]
    assert str(signature(one)) == str(signature(other))
    assert one.__doc__ == other.__doc__
    assert vars(one).keys() - vars(other).keys() <= {
        "_compared",
        "__slotnames__",
    }  # which copying sets
    assert one.__dataclass_params__.frozen


@pytest.mark.parametrize("name", ["One", "Many", "Plain", "Derived"])
@pytest.mark.parametrize("attribute", ["x", "new"])
def test_objects_cannot_change(name, attribute):
    errors = []
    for classes in (OURS, THEIRS):
        value, texts = classes[name](1), []
        for change in (partial(setattr, value, attribute, 1), partial(delattr, value, attribute)):
            try:
                change()
            except FrozenInstanceError as error:
                texts.append(str(error))
        errors.append((texts, hasattr(value, "x")))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(("name", "args", "options"), WRONG)
def test_wrong_arguments_are_refused(name, args, options):
    for classes in (OURS, THEIRS):
        with pytest.raises(TypeError, match="argument"):
            classes[name](*args, **options)


def test_hash_and_equality_use_the_compared_fields():
    @frozen
    class Pair:
        x: tuple[int, ...]
        y: int = field(default=0, compare=False)

    assert Pair((1,), 2) == Pair((1,), 3) != Pair((2,), 2)
    assert len({Pair((1,), 2), Pair((1,), 3), Pair((2,), 2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS["Many"](1))
    assert replace(Pair((1,), 2), x=()).y == 2


def test_without_equality_objects_are_themselves():
    @frozen(eq=False, repr=False)
    class Node:
        x: int = 0

    one, other = Node(), Node()
    assert one != other
    assert {one, other} == {other, one}
    assert repr(one).startswith("<")


def test_a_repr_of_an_object_that_holds_itself_ends():
    value = OURS["Nested"](None)
    value.self_made.append(value)
    assert repr(value).endswith("self_made=[...])")


@frozen
class AtModuleLevel:
    x: int
    y: str = "a"


def test_objects_can_be_pickled():
    assert pickle.loads(pickle.dumps(AtModuleLevel(3))) == AtModuleLevel(3)


def test_a_class_derived_from_a_dataclass_is_refused():
    with pytest.raises(TypeError, match="cannot inherit"):
        frozen(type("Closed", (AtModuleLevel,), {"__annotations__": {"z": int}}))

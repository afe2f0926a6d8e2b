"""Classes made by our `dataclass` behave as those of the standard library."""

import copy
import dataclasses
from dataclasses import FrozenInstanceError, field

import pytest

from mlpengine import records


def classes(dataclass):
    """Return classes of every form that mlpengine uses, made by this decorator."""

    @dataclass
    class Plain:
        a: int
        b: list = field(default_factory=list)

    @dataclass(frozen=True)
    class Frozen:
        a: int
        b: float = 2.0

        def __post_init__(self):
            object.__setattr__(self, "c", self.a * self.b)

    @dataclass(frozen=True)
    class One:
        a: int

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True)
    class Slots:
        a: int
        b: tuple = ()

    @dataclass(frozen=True, eq=False)
    class ByIdentity:
        a: int

    @dataclass(eq=False)
    class Open:
        a: int
        b: list = field(default_factory=list, init=False)

    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    @dataclass(frozen=True)
    class Hidden:
        a: int
        b: int = field(default=1, compare=False, repr=False)

    @dataclass(frozen=True, repr=False)
    class OwnMethods:
        a: int

        def __eq__(self, other):
            return isinstance(other, OwnMethods) and self.a % 2 == other.a % 2

        def __repr__(self):
            return "own"

    @dataclass(frozen=True)
    class OwnHash:
        a: int

        def __hash__(self):
            return 7

    @dataclass(frozen=True)
    class Base:
        a: int
        k: int = field(default=3, kw_only=True)

    @dataclass(frozen=True)
    class Derived(Base):
        b: int = 4

    class Child(Frozen):
        def __init__(self, a):
            super().__init__(a)
            self.extra = "a subclass may have more attributes"

    names = {name: kind for name, kind in locals().items() if isinstance(kind, type)}
    for name, kind in names.items():
        kind.__qualname__, kind.__module__ = name, __name__
    return names


STANDARD, OURS = classes(dataclasses.dataclass), classes(records.dataclass)


def outcome(act):
    """Return what a call returns, or the kind of its error and the text."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def assign(instance, name):
    setattr(instance, name, 9)
    return getattr(instance, name)


def delete(instance, name):
    delattr(instance, name)
    return hasattr(instance, name)


def behavior(kind):
    """Return everything that a user of the class can observe."""
    count = 0 if kind.__name__ == "Empty" else 1
    one, same, other = (kind(*values[:count]) for values in ([1], [1], [2]))
    seen = {
        "repr": repr(one),
        "equal": [one == same, one == other, one == "else", one != same],
        "hash": outcome(lambda: hash(one) == hash(same)),
        "as a tuple": outcome(lambda: hash(one) == hash(dataclasses.astuple(one))),
        "own hash": outcome(lambda: hash(one) == 7),
        "ordered": outcome(lambda: one < other),
        "fields": [
            (f.name, f.init, f.compare, f.repr, f.kw_only) for f in dataclasses.fields(kind)
        ],
        "dict": dataclasses.asdict(one),
        "match": kind.__match_args__,
        "frozen": kind.__dataclass_params__.frozen,
        "copied": repr(copy.deepcopy(one)),
        "missing": outcome(lambda: kind(1, 2, 3, 4)),
        "doc": kind.__doc__,
    }
    if count:
        seen["replaced"] = outcome(lambda: repr(dataclasses.replace(one, a=5)))
    for name in ("a", "new"):
        seen[f"assign {name}"] = outcome(lambda name=name: assign(kind(*[1][:count]), name))
        seen[f"delete {name}"] = outcome(lambda name=name: delete(kind(*[1][:count]), name))
    return seen


@pytest.mark.parametrize("name", STANDARD)
def test_behaves_as_the_standard_one(name):
    seen, expected = behavior(OURS[name]), behavior(STANDARD[name])
    if name == "Empty":  # there is nothing to name
        seen.pop("doc"), expected.pop("doc")
    assert seen == expected


def test_frozen_field_is_assigned_once():
    instance = OURS["Frozen"](1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        instance.a = 1
    assert instance.c == 2.0


def test_standard_class_may_inherit_from_ours_and_ours_from_it():
    for first, second in (
        (records.dataclass, dataclasses.dataclass),
        (dataclasses.dataclass, records.dataclass),
    ):
        base = first(frozen=True)(type("Base", (), {"__annotations__": {"a": int}}))
        derived = second(frozen=True)(type("Derived", (base,), {"__annotations__": {"b": int}}))
        assert repr(derived(1, 2)) == "Derived(a=1, b=2)"
        assert derived(1, 2) == derived(1, 2) != derived(1, 3)
        with pytest.raises(FrozenInstanceError):
            derived(1, 2).a = 3


def test_frozen_class_defines_no_assignment():
    body = {"__setattr__": lambda self, name, value: None}
    with pytest.raises(TypeError, match="cannot define __setattr__"):
        records.dataclass(frozen=True)(type("Own", (), body))


def test_compiles_less_text(monkeypatch):
    execute, lengths = exec, []

    def counting(text, *names):
        lengths[-1] += len(text)
        execute(text, *names)

    monkeypatch.setattr("builtins.exec", counting)
    for dataclass in (records.dataclass, dataclasses.dataclass):
        lengths.append(0)
        classes(dataclass)
    assert 0 < lengths[0] < 0.7 * lengths[1]

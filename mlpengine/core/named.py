"""Named arrays with the same number of rows: several inputs, outputs or targets."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence
from types import EllipsisType
from typing import Any

from mlpengine.core.buffers import unmasked, write_into
from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Spec
from mlpengine.core.wording import plural, quoted


class NamedRows:
    """Arrays by name; the first axis of each is the rows, and all have the same number of rows.

    As in a data frame, a name selects one array.  Any other index selects rows of all arrays, and
    `len` is the number of rows.

    >>> rows = NamedRows({"left": np.zeros((4, 2)), "right": np.ones((4, 3))})
    >>> len(rows), rows["right"].shape, rows[1:3]["left"].shape
    (4, (4, 3), (2, 2))
    >>> {name: array.shape for name, array in rows.items()}
    {'left': (4, 2), 'right': (4, 3)}
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = {name: unmasked(array, name) for name, array in arrays.items()}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.arrays[key]
        return NamedRows({name: array[key] for name, array in self.arrays.items()})

    def __setitem__(self, key: slice | EllipsisType, values: "NamedRows") -> None:
        for name, array in self.arrays.items():
            array[key] = values[name]

    def __len__(self) -> int:
        return min((len(array) for array in self.arrays.values()), default=0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self.arrays.keys()

    def items(self) -> ItemsView[str, Any]:
        """Return the names with their arrays."""
        return self.arrays.items()

    def write(self, values: Any, where: str) -> None:
        """Copy arrays with the same names and shapes into these arrays (see `write_into`)."""
        need_names(values, self.arrays, where)
        for name, array in self.arrays.items():
            place = f"{where}[{name!r}]"
            write_into(array, unmasked(values[name], place), place)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {Spec.of(array)}" for name, array in self.arrays.items())
        return f"NamedRows({listed})"


def need_names(values: Any, names: Mapping[str, Any], where: str, *, more: bool = False) -> None:
    """Raise ShapeError unless `values` has exactly these names; `more` allows further names."""
    if not isinstance(values, Mapping | NamedRows):
        wanted = ", ".join(f"{name!r}: ..." for name in names)
        raise ShapeError(f"{where} must be arrays by name, {{{wanted}}} (got {quoted(values)})")
    if {*names} - {*values.keys()} or (not more and {*values.keys()} - {*names}):
        wanted, given = (", ".join(each) or "none" for each in (names, values.keys()))
        raise ShapeError(f"{where} must have the names {wanted} (got {given})")


def need_array(value: Any, where: str) -> None:
    """Raise ShapeError if `value` holds named arrays."""
    if isinstance(value, Mapping | NamedRows):
        names = ", ".join(value) or "none"
        raise ShapeError(f"{where} must be one array (got arrays by name: {names})")


def one_or_named(values: Mapping[str, Any]) -> Any:
    """Return the only array of ``{"": array}``, or any other mapping as `NamedRows`."""
    return values[""] if "" in values else NamedRows(values)


def as_rows(value: Any) -> Any:
    """Return a mapping as `NamedRows`, and any other value as one array."""
    if isinstance(value, NamedRows):
        return value
    return NamedRows(value) if isinstance(value, Mapping) else unmasked(value, "rows")


def arrays_by_name(value: Any) -> dict[str, Any]:
    """Return the arrays by name; a single array has the name ""."""
    return value.arrays if isinstance(value, NamedRows) else {"": value}


def arrays_in(*values: Any) -> list[Any]:
    """Return one list of all arrays in `values`; a value is an array, `NamedRows` or None."""
    return [array for value in values for array in arrays_by_name(value).values()]


def matched(values: Sequence[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pair the arrays of `values` and `others` by position, and arrays of `NamedRows` by name."""
    pairs: list[tuple[Any, Any]] = []
    for value, other in zip(values, others, strict=True):
        arrays = arrays_by_name(value)
        pairs += [(arrays[name], array) for name, array in arrays_by_name(other).items()]
    return pairs


def row_specs(value: Any, rows: int) -> Any:
    """Return the spec of `value` with another number of rows; named arrays give a dict."""
    if isinstance(value, NamedRows | Mapping):
        return {name: row_specs(value[name], rows) for name in value}
    return Spec((rows, *value.shape[1:]), value.dtype)


def check_rows(value: Any, rows: int, where: str) -> None:
    """Raise ShapeError unless every array has `rows` rows."""
    for name, array in arrays_by_name(value).items():
        if array is not None and array.shape[:1] != (rows,):
            place = f"{where}[{name!r}]" if name else where
            raise ShapeError(f"{place} needs {plural(rows, 'row')} (shape {array.shape})")

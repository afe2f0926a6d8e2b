"""Many networks of one architecture, with all parameters in one array."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from mlpengine.core.buffers import zeros
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import COUNT
from mlpengine.core.placement import ALIGNMENT
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.core.wording import quoted
from mlpengine.nn.network import Network
from mlpengine.nn.recording import check_arrays

N = TypeVar("N", bound=Network)


class Population(Sequence[N]):
    """A sequence of networks like `mlp`, with all parameters in one array.

    Member k has the same bits as a network with the options of `mlp` and the seed ``seeds[k]``,
    such as ``Mlp(..., seed=seeds[k])``.  The parameter values of `mlp` are not used.  Parameters of
    member k are views of row k of `params`: a write to either changes both.
    ``copy.copy`` shares the parameters; a deep or pickled copy has its own parameters.

    Args:
        count: number of members.
        seeds: seed of each member, for initial weights and dropout; by default 0, 1, 2, ...

    Raises: UsageError for no members, a wrong number of seeds, a seed that is not a whole number
        from 0, or a class without seed.
    """

    def __init__(self, mlp: N, count: int, *, seeds: Sequence[int] | None = None) -> None:
        if not isinstance(mlp, Network):
            raise UsageError(f"population: mlp must be a network (got {quoted(mlp)})")
        count = COUNT.check("population: count", count)
        seeds = range(count) if seeds is None else seeds
        if len(seeds) != count:
            raise UsageError(f"population: seeds must be {count} numbers (got {len(seeds)})")
        if not all(isinstance(s, int | np.integer) and s >= 0 for s in seeds):
            raise UsageError(f"population: seeds must be whole numbers from 0 (got {seeds!r})")
        self._members = tuple(mlp.like(seed=int(seed)) for seed in seeds)
        self._members[0].need_one("population")
        self._place()

    def _place(self) -> None:
        """Move all parameters into a new array; its rows are padded to whole cache lines."""
        line = ALIGNMENT // self[0].dtype.itemsize
        length = -(-len(self[0].params) // line) * line
        self._block = zeros(Spec((len(self), length), self[0].dtype))
        for k, member in enumerate(self):
            member.params.move_to(self._block, k)

    @property
    def params(self) -> Array:
        """All parameters, a view (count, parameters); row k holds the parameters of member k."""
        return self._block[:, : len(self[0].params)]

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, k: int) -> N: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[N, ...]: ...
    def __getitem__(self, k: int | slice) -> N | tuple[N, ...]:
        return self._members[k]

    def __iter__(self) -> Iterator[N]:
        return iter(self._members)

    def predict(self, x: ArrayLike) -> Array:
        """Return the outputs (count, rows, out_dim) for `x` (rows, in_dim), without dropout.

        Raises: ShapeError or DtypeError.
        """
        return np.stack([member.predict(x) for member in self])

    def mean(self, x: ArrayLike) -> Array:
        """Return the mean (rows, out_dim) of the members' outputs for `x` (rows, in_dim).

        If the outputs are logits, so is the mean.  Raises: ShapeError or DtypeError.
        """
        return np.asarray(self.predict(x).mean(axis=0))

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by name, each (count, ...)."""
        names = self[0].params.views
        return {name: np.stack([m.params.views[name] for m in self]) for name in names}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copy all parameters from a `state_dict`, or none if an error is raised.

        Raises: CheckpointError with every missing, unknown or misshapen name.
        """
        arrays = {name: np.asarray(value) for name, value in state.items()}
        specs = self[0].params.specs.items()
        check_arrays({n: Spec((len(self), *s.shape), s.dtype) for n, s in specs}, arrays)
        for name, rows in arrays.items():
            for member, row in zip(self, rows, strict=True):
                member.params.views[name][...] = row

    def __getstate__(self) -> dict[str, Any]:
        return {"members": self._members, "block": self._block}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._members, self._block = state["members"], state["block"]
        if not self._block.flags.writeable:  # joblib maps files read-only
            self._place()

    def __repr__(self) -> str:
        return f"Population({len(self)} of {self[0]!r})"

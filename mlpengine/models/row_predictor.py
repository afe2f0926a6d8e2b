"""Outputs of a model for a single row, in buffers that are allocated once."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.core.buffers import quiet_runner
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.drift import far_remarks, unknown_remarks
from mlpengine.data.features.one_row import RowEncoder
from mlpengine.data.tables.frames import is_scalar
from mlpengine.nn import Network
from mlpengine.nn.one_row import OneRow

_log = logging.getLogger("mlpengine")


class RowPredictor:
    """Computes the output of a model for one row of a table; each thread needs its own object.

    Networks of one population have the same architecture.  `combined` turns the outputs
    (networks, 1, out_dim) of all networks into one output.
    """

    def __init__(
        self,
        populations: Sequence[Sequence[Network]],
        preprocessor: Preprocessor,
        combined: Callable[[Array], Array],
    ) -> None:
        self._runs, self._combined = [OneRow(networks) for networks in populations], combined
        self._inputs = [run.input for run in self._runs]
        self._outputs = [run.outputs for run in self._runs]
        self._quietly = quiet_runner()
        self._features = self._inputs[0]
        if preprocessor.options.dtype != self._features.dtype:
            self._features = np.empty(self._features.shape, preprocessor.options.dtype)
        self._preprocessor = preprocessor
        self._reported: set[str] = set()
        self._encoder = None
        if RowEncoder.suits(preprocessor):
            self._encoder = RowEncoder(preprocessor, self._features)

    def __call__(self, data: Any) -> Array | None:
        """Return `output_of`, and log the `warnings` of the row, once per column."""
        output = self.output_of(data)
        if output is not None:
            for line in self.warnings(self._reported):
                _log.warning("warning: %s; later rows like this are not reported", line)
        return output

    def output_of(self, data: Any) -> Array | None:
        """Return the output (1, out_dim) for a table of one row that `RowEncoder` reads, else None.

        The output is valid until the next call.
        """
        if self._encoder is None:
            return None
        row = _the_row(data)
        if row is None or not self._quietly(self._encode, self._encoder, row):
            return None
        for features in self._inputs:
            if features is not self._features:
                features[...] = self._features
        for run in self._runs:
            run()
        return self._combined(np.concatenate(self._outputs))

    def warnings(self, but: set[str] | None = None) -> list[str]:
        """Return a line for each value of the last row that is far outside training, or unknown.

        Columns in `but` are left out; the columns of the returned lines are added to `but`.
        """
        encoder, but = self._encoder, set() if but is None else but
        if encoder is None or not (encoder.unknown or encoder.far):
            return []
        texts = {name: Counter([text]) for name, text in encoder.unknown.items() if name not in but}
        far = {name: (1, f"{cell:g}") for name, cell in encoder.far.items() if name not in but}
        but |= texts.keys() | far.keys()
        return unknown_remarks(self._preprocessor, texts) + far_remarks(self._preprocessor, far)

    @staticmethod
    def _encode(encoder: RowEncoder, row: Any) -> bool:
        return encoder.encode_array(row) if isinstance(row, np.ndarray) else encoder.encode(row)


def _the_row(data: Any) -> Any:
    """Return the only row of a table as a mapping or a vector; None for other tables."""
    if isinstance(data, np.ndarray):
        return data[0] if data.ndim == 2 and len(data) == 1 else None
    if isinstance(data, Mapping):
        return data if is_scalar(next(iter(data.values()), ())) else None
    if isinstance(data, list):
        return data[0] if len(data) == 1 and isinstance(data[0], Mapping) else None
    if hasattr(data, "iloc"):  # pandas, where the attribute `row` may be a column
        if not hasattr(data, "columns") or len(data) != 1:
            return None
        return dict(zip(data.columns.tolist(), data.to_numpy()[0].tolist(), strict=True))
    if hasattr(data, "row") and hasattr(data, "columns") and len(data) == 1:  # polars
        return data.row(0, named=True)
    return None

"""The options of a preprocessor."""

from dataclasses import dataclass
from typing import Literal

from mlpengine.core.fields import check_fields
from mlpengine.data.tables.dialect import DEFAULT, CsvDialect
from mlpengine.settings.features import FeatureSettings


@dataclass(frozen=True)
class Options(FeatureSettings):
    """Those of `FeatureSettings`, and what follows from the network, the file and the split.

    Args:
        dtype: Of features, targets and weights.
        reading: How the tables of the model are read (`Preprocessor.read_arguments`).
        periods: Columns of which no more than the periods of dates are features, those that
            training saw whole, so that rows may be later than those of training.
    """

    dtype: Literal["float32", "float64"] = "float32"
    reading: CsvDialect = DEFAULT
    periods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "Preprocessor")

"""The options of a preprocessor."""

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from mlpengine.data.tables.dialect import DEFAULT, CsvDialect
from mlpengine.settings.base import STRICT, Texts
from mlpengine.settings.features import FeatureSettings


@dataclass(frozen=True, config=STRICT)
class Options(FeatureSettings):
    """`FeatureSettings`, and options that follow from the network, the file and the split."""

    dtype: Literal["float32", "float64"] = Field(
        default="float32", description="Dtype of features, targets and weights."
    )
    exposure_power: float = Field(
        default=1.0,
        description="Power of the exposure in the weights of rows (`EntryLoss.scaling`).",
    )
    reading: CsvDialect = Field(
        default=DEFAULT,
        description="How the tables of the model are read (`Preprocessor.read_arguments`).",
    )
    time: str | None = Field(default=None, description="Time column that orders rows, for lags.")
    periods: Texts = Field(
        default=(),
        description="Date columns that give only periodic features, such as the weekday, if the "
        "training rows span a whole period. New rows may then be later than the training rows.",
    )

"""The schema of a config: the settings of a run, and settings that exist only in config files."""

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

import mlpengine.diagnostics  # noqa: F401 - its rules name the verdicts that can be silenced
from mlpengine.config.sweep import SweepSection
from mlpengine.core.fields import Count, Limits, Positive
from mlpengine.data.tables import DATASETS, FORMATS
from mlpengine.data.tables.dialect import TextOptions
from mlpengine.optim import Adam, ConstantSchedule, settings_class
from mlpengine.settings import (
    DiagnosticsSettings,
    FeatureSettings,
    NetworkSettings,
    RunSettings,
    SplitSettings,
    TrainingSettings,
)
from mlpengine.settings.base import STRICT, Flag, defaults, rule, switch
from mlpengine.settings.families import LossOption, OptimizerOption, ScheduleOption
from mlpengine.settings.run import Seed
from mlpengine.settings.split import VALIDATION
from mlpengine.settings.training import TrainingOptions


@dataclass(frozen=True, config=STRICT)
class StreamSection:
    """How a table larger than memory is prepared as files and read from them."""

    directory: str = Field(
        default="runs/prepared", description="Directory of the prepared files; later runs use them."
    )
    window: Annotated[int, Limits(at_least=1, at_most=100_000, whole=True)] = Field(
        default=64, description="Number of blocks of 1 MB that are shuffled together."
    )


def _sources() -> str:
    """Return the description of table files, with all registered formats."""
    return f"{', '.join(DATASETS)}, or a file ({' '.join(('.csv', '.tsv', *FORMATS))})."


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DataSection(TextOptions, FeatureSettings):
    """The file of the rows, how it is read and divided, and how columns become features."""

    source: str = Field(
        description=_sources(),
        json_schema_extra=lambda entry: entry.update(description=_sources()),
    )
    validation_source: str | None = Field(
        default=None, description="A separate file for validation."
    )
    test_source: str | None = Field(default=None, description="A separate file for the test.")
    transfer_set: str | None = Field(
        default=None,
        description="A teacher's predictions to learn, in a file that mlpengine distill writes.",
    )
    split: SplitSettings = Field(
        default_factory=defaults(SplitSettings), description="How the rows are divided."
    )
    stream: Annotated[StreamSection | None, switch(StreamSection)] = Field(
        default=None,
        description="Read tables larger than memory (CSV, Parquet): false, true, or its settings.",
    )


@dataclass(frozen=True, config=STRICT)
class CheckpointSection:
    """When the state of a run is saved; it is always saved when a run ends or is interrupted."""

    every_seconds: Positive | None = Field(
        default=10.0,
        description="Seconds between checkpoints, more if writing is slow; the first after 1 s.",
    )
    every_epochs: Count | None = Field(default=None, description="Also after this many epochs.")
    every_steps: Count | None = Field(default=None, description="Also after this many steps.")


@dataclass(frozen=True, config=STRICT)
class TrainingSection(TrainingOptions):
    """Length and details of training, and when its state is saved."""

    checkpoint: Annotated[CheckpointSection | None, switch(CheckpointSection)] = Field(
        default_factory=defaults(CheckpointSection),
        description="When to save the state for --resume; false: never.",
    )


def _page_or_not(value: Any) -> Any:
    return {"html": value} if isinstance(value, bool) else value


@dataclass(frozen=True, config=STRICT)
class ReportSection:
    """Additional files of a run."""

    html: Flag = Field(default=True, description="report.html: the run on one page.")
    tensorboard: Flag = Field(
        default=False, description="tensorboard/: event files (extra tensorboard)."
    )
    mlflow: Flag = Field(
        default=False,
        description="Log settings, metrics and model to MLflow at MLFLOW_TRACKING_URI (extra "
        "mlflow).",
    )


TOP_SECTIONS = ("loss", "optimizer", "schedule")
"""Options of training with a config section of their own."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Config:
    """A training run from data to model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = Field(
        default=None,
        description="Name of the run's directory; by default the name of the config file.",
    )
    seed: Seed = 0
    data: DataSection = Field(description="Where the rows come from.")
    model: NetworkSettings = Field(
        default_factory=defaults(NetworkSettings), description="The network."
    )
    loss: LossOption = None
    optimizer: OptimizerOption = Field(default_factory=defaults(settings_class(Adam)))
    schedule: ScheduleOption = Field(default_factory=defaults(ConstantSchedule))
    training: TrainingSection = Field(
        default_factory=defaults(TrainingSection), description="Length and details of training."
    )
    diagnostics: Annotated[DiagnosticsSettings | None, switch(DiagnosticsSettings)] = Field(
        default_factory=defaults(DiagnosticsSettings), description="false, true, or its settings."
    )
    report: Annotated[
        ReportSection, BeforeValidator(_page_or_not, json_schema_input_type=ReportSection | bool)
    ] = Field(
        default_factory=defaults(ReportSection),
        description="Additional files. true: report.html; false: none; or its settings.",
    )
    sweep: SweepSection | None = Field(
        default=None, description="Values to try, for mlpengine sweep; training ignores it."
    )

    @property
    def validation_share(self) -> float:
        """Share of the rows of `data.source` that are for validation."""
        given: float | None = self.data.split.validation
        if given is not None:
            return given
        elsewhere = self.training.folds or self.data.validation_source
        return 0.0 if elsewhere else VALIDATION

    @property
    def settings(self) -> RunSettings:
        """The settings of the run itself."""
        training = {one.name: getattr(self.training, one.name) for one in fields(TrainingOptions)}
        training |= {name: getattr(self, name) for name in TOP_SECTIONS}
        return RunSettings(
            features=self.data,
            network=self.model,
            training=TrainingSettings(**training),
            diagnostics=self.diagnostics,
            seed=self.seed,
        )

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for broken, text, *at in self._rules():
            if broken:
                raise rule(text, *at)
        return self

    def _rules(self) -> Iterator[tuple[Any, str, *tuple[str, ...]]]:
        """Yield for each rule between sections whether it is broken, its message, its key path."""
        training, data = self.training, self.data
        taken = self.validation_share + data.split.test
        text = f"validation and test must leave rows to train on (they take {taken:g})"
        yield taken >= 1, text, "data", "split"

        text = "leave this out: with training.folds, each network validates on its own fold"
        yield training.folds and data.split.validation, text, "data", "split", "validation"
        yield training.folds and data.validation_source, text, "data", "validation_source"

        text = "streamed features take no folds: give data.split.validation"
        yield data.stream and training.folds, text, "training", "folds"
        text = "streamed features need training.dtype: float32"
        yield data.stream and training.dtype != "float32", text, "data", "stream"

        text = "piecewise needs data.encoding: piecewise; or leave it out"
        lacks_bins = "piecewise" in training.fold_members and data.encoding != "piecewise"
        yield lacks_bins, text, "training", "members"

        for key in ("group", "time"):
            text = "must be another column than the target, weights, exposures and events"
            taken_by = *data.target, data.weight, data.exposure, data.event
            name = getattr(data.split, key)
            yield name and name in taken_by, text, "data", "split", key

        for key in ("lags", "rolling"):
            text = "needs data.split.time (the column that orders the rows), and no data.stream"
            usable = data.split.time and not data.stream
            yield getattr(data, key) and not usable, text, "data", key

        any_rows = self.validation_share or data.validation_source or training.folds
        for name, key, wanted in (
            ("early stopping", "early_stopping", training.early_stopping is not None),
            ("a temperature", "calibration", training.calibration != "none"),
        ):
            text = f"{name} needs validation rows (data.split.validation is 0)"
            yield wanted and not any_rows, text, "training", key


@cache
def reader() -> TypeAdapter[Config]:
    """Return the validator of a config's plain values, built at the first call."""
    return TypeAdapter(Config)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema that editors use to complete and check configs."""
    return reader().json_schema()

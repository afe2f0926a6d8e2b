"""The shape of a config: settings of a run, and what only files have."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from annotated_types import Ge, Lt
from pydantic import Field, model_validator

import mlpengine.diagnostics  # noqa: F401 - whose rules name the verdicts that can be silenced
from mlpengine.config.options import (
    OFF_OR_DEFAULTS,
    Section,
    Short,
    annotation_of,
    option_field,
    rule,
    section_field,
    section_of,
    written_options,
)
from mlpengine.config.sweep import SweepSection
from mlpengine.core.fields import Count, Positive, options_of
from mlpengine.data.tables import DATASETS, FORMATS
from mlpengine.data.tables.dialect import CsvDialect
from mlpengine.settings import (
    DiagnosticsSettings,
    FeatureSettings,
    NetworkSettings,
    RunSettings,
    SplitSettings,
    TrainingSettings,
)
from mlpengine.settings.recipes import Preset
from mlpengine.settings.split import VALIDATION

PAGE_OR_NOT = Short(
    lambda value: {"html": value} if isinstance(value, bool) else value, {"type": "boolean"}
)


class StreamSection(Section):
    """How features that stay in files are prepared and read."""

    directory: str = Field(
        default="runs/prepared", description="Directory of the prepared files, for later runs, too."
    )
    window: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=64, description="Blocks of 1 MB whose rows are shuffled together."
    )


if TYPE_CHECKING:
    SplitSection: TypeAlias = Any
else:
    SplitSection = section_of(SplitSettings)


def _sources() -> str:
    """Return what a table may be read from, of the formats that are known now."""
    return f"{', '.join(DATASETS)}, or a file ({' '.join(('.csv', '.tsv', *FORMATS))})."


class _Source(Section):
    """The file of the rows."""

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
        description="What a teacher predicts for the training rows and rows made of them, which "
        "train in their place: a file of mlpengine distill.",
    )


if TYPE_CHECKING:
    _Dialect: TypeAlias = _Source
else:
    _Dialect = section_of(CsvDialect, _Source)


class _Table(_Dialect):
    """The file of the rows, how it is read and divided."""

    split: SplitSection = section_field(SplitSection, "Shares of rows.")
    stream: Annotated[StreamSection | None, OFF_OR_DEFAULTS] = Field(
        default=None,
        description="true: for tables larger than memory (CSV, Parquet, .npy); or its settings.",
    )


class _Preset(Section):
    """A recipe."""

    preset: Preset | None = Field(
        default=None, description="A recipe for what the config leaves out: plain or realmlp."
    )


class CheckpointSection(Section):
    """When the state of a run is saved; it always is when a run ends or is interrupted."""

    every_seconds: Positive | None = Field(
        default=10.0, description="Seconds between two checkpoints, later if writing is slow."
    )
    every_epochs: Count | None = Field(default=None, description="Also after this many epochs.")
    every_steps: Count | None = Field(default=None, description="Also after this many steps.")


class _Checkpoints(Section):
    """The state of a run in a file."""

    checkpoint: Annotated[CheckpointSection | None, OFF_OR_DEFAULTS] = section_field(
        CheckpointSection, "When to save, for --resume; false: never."
    )


TOP_SECTIONS = ("loss", "optimizer", "schedule")
"""Options of training that are sections of their own."""

TRAINING, RUN = options_of(TrainingSettings), options_of(RunSettings)

if TYPE_CHECKING:  # which are made from the classes that declare their options
    DataSection: TypeAlias = Any
    ModelSection: TypeAlias = Any
    TrainingSection: TypeAlias = Any
    DiagnosticsSection: TypeAlias = Any
    LossSection: TypeAlias = Any
    OptimizerSection: TypeAlias = Any
    ScheduleSection: TypeAlias = Any
else:
    DataSection = section_of(FeatureSettings, _Table, "DataSection")
    ModelSection = section_of(NetworkSettings, _Preset, "ModelSection")
    TrainingSection = section_of(TrainingSettings, _Checkpoints, without=TOP_SECTIONS)
    DiagnosticsSection = section_of(DiagnosticsSettings)
    LossSection, OptimizerSection, ScheduleSection = (
        annotation_of(TRAINING[name].type) for name in TOP_SECTIONS
    )


class ReportSection(Section):
    """Additional files of a run."""

    html: bool = Field(default=True, description="report.html: the run on one page.")
    tensorboard: bool = Field(
        default=False, description="tensorboard/: event files, by the extra tensorboard."
    )


class Config(Section):
    """A training run from data to model."""

    base: str | None = Field(
        None,
        description="A config beside this one, whose settings hold where this one has none.",
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = Field(
        None, description="Name of the run's directory; by default that of the config file."
    )
    seed: Annotated[int, Ge(0), Lt(2**63)] = option_field(RUN["seed"])
    data: DataSection = Field(description="Where the rows come from.")
    model: ModelSection = section_field(ModelSection, "The network.")
    loss: LossSection = option_field(TRAINING["loss"])
    optimizer: OptimizerSection = option_field(TRAINING["optimizer"])
    schedule: ScheduleSection = option_field(TRAINING["schedule"])
    training: TrainingSection = section_field(TrainingSection, "Length and details of training.")
    diagnostics: Annotated[DiagnosticsSection | None, OFF_OR_DEFAULTS] = section_field(
        DiagnosticsSection, "false, true, or its settings."
    )
    report: Annotated[ReportSection, PAGE_OR_NOT] = section_field(
        ReportSection, "A page and event files; true or false: the page alone, or nothing."
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
        """What the config says of the run itself."""
        own = {name: getattr(self, name).settings for name in TOP_SECTIONS}
        return RunSettings(
            features=self.data.settings,
            network=self.model.settings,
            training=replace(self.training.settings, **own),
            split=replace(self.data.split.settings, validation=self.validation_share),
            diagnostics=self.diagnostics and self.diagnostics.settings,
            seed=self.seed,
        )

    @model_validator(mode="after")
    def _keep_rules(self) -> "Config":
        for broken, text, *at in self._rules():
            if broken:
                raise rule(text, *at)
        return self

    def _rules(self) -> Iterator[tuple[Any, str, *tuple[str, ...]]]:
        """Rules between sections: whether each is broken, what is wrong then, and at which keys."""
        training, data = self.training, self.data
        taken = self.validation_share + data.split.test
        text = f"validation and test must leave rows to train on (they take {taken:g})"
        yield taken >= 1, text, "data", "split"

        text = "leave this out: with training.folds each network has its fold to validate"
        yield training.folds and data.split.validation, text, "data", "split", "validation"
        yield training.folds and data.validation_source, text, "data", "validation_source"

        kinds = training.settings.fold_kinds
        for kind, setting, given in (
            ("piecewise", "data.encoding: piecewise", data.encoding == "piecewise"),
            ("periodic", "model.front.embedding", self.model.front.embedding != "none"),
        ):
            text = f"{kind} needs {setting}; or leave it out"
            yield kind in kinds and not given, text, "training", "kinds"

        own_rows = self.validation_share and not data.validation_source
        text = "needs validation rows of the same table (data.split.validation)"
        yield training.refit and not own_rows, text, "training", "refit"

        any_rows = self.validation_share or data.validation_source or training.folds
        for name, key, wanted in (
            ("early stopping", "early_stopping", training.early_stopping is not None),
            ("a temperature", "calibration", training.calibration != "none"),
        ):
            text = f"{name} needs validation rows (data.split.validation is 0)"
            yield wanted and not any_rows, text, "training", key


def sections_of(run: RunSettings) -> dict[str, Any]:
    """Return the sections of a config for a run, without what has its default."""
    training = written_options(run.training)
    sections = {
        "data": written_options(run.features),
        "model": written_options(run.network),
        **{name: training.pop(name) for name in TOP_SECTIONS if name in training},
        "training": training,
    }
    return {name: options for name, options in sections.items() if options}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema that editors use to complete and check configs."""
    schema = Config.model_json_schema()
    schema["required"].remove("data")  # which the base of a config may have
    return schema | {"anyOf": [{"required": ["data"]}, {"required": ["base"]}]}

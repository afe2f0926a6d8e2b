"""The shape of a config: every section and option, with its default and its limits."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from mlpengine.config.options import (
    ONE_OR_MORE,
    AdamOptimizer,
    AutoLoss,
    ConstantSchedule,
    Count,
    Fraction,
    Loss,
    NonNegative,
    Optimizer,
    Positive,
    Schedule,
    Section,
    Short,
    read_formula,
    rule,
    section,
)
from mlpengine.config.sweep import SweepSection
from mlpengine.data.bins import BINS
from mlpengine.diagnostics.verdict import NAMES as VERDICTS
from mlpengine.nn import ACTIVATIONS, INITIALIZERS
from mlpengine.nn.layers import is_formula
from mlpengine.ops import FormulaActivation
from mlpengine.train.recipes import Kind, Preset, in_order, trained

DEFAULT_VALIDATION = 0.15
"""Share of rows for validation, unless given or replaced by folds or a file."""

MAX_MEMBERS = 1_000
"""Largest number of networks that are trained together."""


def known(value: str, names: Sequence[str]) -> str:
    """Return a text that is one of `names`, or raise what pydantic reports."""
    if value not in names:
        listed = " or ".join(repr(name) for name in names)
        raise PydanticCustomError("literal_error", "one of {expected}", {"expected": listed})
    return value


def _activation(text: str) -> str:
    """Check that a text is the name of an activation, or a formula of x."""
    if text not in ACTIVATIONS and is_formula(text):
        return read_formula(text, FormulaActivation)
    return known(text, ACTIVATIONS)


ActivationText = Annotated[
    str,
    AfterValidator(_activation),
    WithJsonSchema({"anyOf": [{"enum": list(ACTIVATIONS)}, {"type": "string"}]}),
]
InitializerName = Annotated[
    str,
    AfterValidator(lambda text: known(text, INITIALIZERS)),
    WithJsonSchema({"enum": list(INITIALIZERS)}),
]
VerdictName = Annotated[
    str,
    AfterValidator(lambda text: known(text, VERDICTS)),
    WithJsonSchema({"enum": list(VERDICTS)}),
]

SWITCH = Short(
    lambda value: (
        {True: "standard", False: "none"}.get(value, value) if isinstance(value, bool) else value
    ),
    {"type": "boolean"},
)
NAME_OR_NAMES = Short(
    lambda value: [value] if isinstance(value, str) else value, {"type": "string"}
)
NUMBER_OR_NUMBERS = Short(
    lambda value: [value] if type(value) is int else value, {"type": "integer"}
)
OFF_OR_DEFAULTS = Short(
    lambda value: ({} if value else None) if isinstance(value, bool) else value, {"type": "boolean"}
)

ALL_OR_NOTHING = Short(
    lambda value: (
        dict.fromkeys(("html", "plots", "tensorboard"), value) if isinstance(value, bool) else value
    ),
    {"type": "boolean"},
)


class SplitSection(Section):
    """How rows are divided; those in no other part are training rows."""

    validation: Fraction | None = Field(
        default=None,
        description="Share of rows that choose the best epoch; by default 0.15, with folds none.",
    )
    test: Fraction = Field(default=0.15, description="Share of rows held out for the final score.")
    stratify: bool = Field(default=True, description="Keep each class's share (classification).")
    group: str | None = Field(default=None, description="Column whose equal values stay together.")
    time: str | None = Field(
        default=None,
        description=(
            "Column to order by: the newest rows are the test. No feature; of dates the hour, "
            "weekday and season are."
        ),
    )

    @model_validator(mode="after")
    def _group_or_time(self) -> "SplitSection":
        if self.group and self.time:
            raise rule("give group or time, not both", "time")
        return self


class StreamSection(Section):
    """How features that stay in files are prepared and read."""

    directory: str = Field(
        default="runs/prepared", description="Directory of the prepared files, for later runs, too."
    )
    window: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=64, description="Blocks of 1 MB whose rows are shuffled together."
    )


class DataSection(Section):
    """Where the rows come from and how they become numbers."""

    source: str = Field(
        description="digits, diabetes, penguins, or a file (.csv .tsv .npy .npz .parquet)."
    )
    validation_source: str | None = Field(
        default=None, description="A separate file for validation."
    )
    test_source: str | None = Field(default=None, description="A separate file for the test.")
    delimiter: Literal[",", ";", "\t", "|"] | None = Field(
        default=None, description="Delimiter of CSV; by default inferred from the file."
    )
    decimal: Literal[".", ","] | None = Field(
        default=None, description="Decimal mark; by default 1.5 and 1,5 are both read."
    )
    thousands: Literal[",", ".", " ", "'"] | None = Field(
        default=None, description="Mark between groups of three digits, if there is one."
    )
    text_encoding: str = Field(
        default="utf-8", description="Encoding of the file, such as cp1252 or utf-16."
    )
    na_values: Annotated[list[str], NAME_OR_NAMES] = Field(
        default=[], description="Spellings of a missing cell besides NA, N/A, NaN, null, None, ?."
    )
    date_format: str | dict[str, str] | None = Field(
        default=None,
        description=(
            "Format of dates unlike 2024-12-31 and 31.12.2024, such as mm/dd/yyyy, dd-month-yy, or "
            "mm/dd/yyyy HH:MM AM; or column: format, where they differ."
        ),
    )
    target: Annotated[list[str], NAME_OR_NAMES] | None = Field(
        default=None, description="Column to predict, or several; shipped data sets have a default."
    )
    task: Literal["auto", "classification", "regression", "multilabel"] = Field(
        default="auto", description="What to predict; auto: inferred from the target."
    )
    drop: Annotated[list[str], NAME_OR_NAMES] = Field(
        default=[], description="Columns to leave out."
    )
    categorical: Annotated[list[str], NAME_OR_NAMES] = Field(
        default=[], description="Columns of numbers that are names, not quantities."
    )
    features: dict[str, str] = Field(
        default={}, max_length=1000, description="Further columns, name: formula of the others."
    )
    where: str | None = Field(
        default=None, description="Rows to use: a formula, such as price > 0 and carat < 3."
    )
    weight: str | None = Field(default=None, description="Column of sample weights.")
    class_weights: Literal["none", "balanced"] = Field(
        default="none", description="balanced: rare classes count more in the loss."
    )
    split: SplitSection = section(SplitSection, "Shares of rows.")
    standardize: Annotated[Literal["standard", "minmax", "robust", "none"], SWITCH] = Field(
        default="standard", description="Scaling of features, fitted on the training rows."
    )
    clip: Literal["smooth", "none"] = Field(
        default="smooth",
        description="smooth: x / sqrt(1 + (x/3)^2) after standard and robust scaling; or none.",
    )
    encoding: Literal["piecewise", "none"] = Field(
        default="none",
        description="piecewise: numbers and dates also get features by quantile bins; or none.",
    )
    bins: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=BINS, description="Quantile bins of a column, with encoding: piecewise."
    )
    standardize_target: bool = Field(
        default=True,
        description="Train on standardized targets (poisson, gamma: divided by their mean).",
    )
    bound_predictions: bool = Field(
        default=False,
        description="Whether predictions of numbers stay in the range of the training targets.",
    )
    missing: Literal["mean", "median", "indicator", "error"] | float = Field(
        default="mean", description="What stands in for a missing number."
    )
    min_count: Count = Field(default=3, description="Rows a text must occur in to get a feature.")
    max_levels: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=250,
        description="The most frequent texts of a column get a feature each; the others share one.",
    )
    stream: Annotated[StreamSection | None, OFF_OR_DEFAULTS] = Field(
        default=None,
        description="true: for tables larger than memory (CSV, Parquet, .npy); or its settings.",
    )


class EmbeddingSection(Section):
    """Learned functions of each number among the features."""

    kind: Literal["pbld", "periodic"] = Field(
        default="pbld", description="pbld: mixtures of cosines; periodic: the cosines themselves."
    )
    frequencies: Count = Field(default=16, description="Cosines of each number.")
    outputs: Annotated[int, Field(ge=2)] = Field(
        default=4, description="Outputs for each number, itself included (pbld)."
    )
    sigma: Positive = Field(
        default=0.1, description="Standard deviation of initial frequencies, in periods per unit."
    )


class FrontSection(Section):
    """What the network computes from the features before its first layer."""

    embedding: Annotated[
        EmbeddingSection | None,
        Short(
            lambda value: {"kind": value} if isinstance(value, str) else value,
            {"enum": ["pbld", "periodic"]},
        ),
        OFF_OR_DEFAULTS,
    ] = Field(default=None, description="false, true, pbld, periodic, or its settings.")
    scaling: bool = Field(
        default=False, description="Whether each of its outputs has a learned factor."
    )


class ModelSection(Section):
    """The network between the features and the target."""

    preset: Preset | None = Field(
        default=None, description="A recipe for what the config leaves out: plain or realmlp."
    )
    hidden: Annotated[list[Count], NUMBER_OR_NUMBERS] = Field(
        default=[64, 64], max_length=1000, description="Sizes of hidden layers; 16 means [16]."
    )
    activation: Annotated[list[ActivationText], NAME_OR_NAMES] = Field(
        default=["relu"],
        min_length=1,
        description="After every hidden layer, or one for each; a name, or a formula of x.",
    )
    learned_activation: bool = Field(
        default=False, description="x + alpha (f(x) - x) for f, one learned alpha for each unit."
    )
    front: FrontSection = section(FrontSection, "Embedding of numbers, and a scaling layer.")
    parametrization: Literal["standard", "neural_tangent"] = Field(
        default="standard",
        description="neural_tangent: products are divided by the root of a layer's inputs.",
    )
    dropout: Annotated[list[Fraction], ONE_OR_MORE] = Field(
        default=[0.0],
        min_length=1,
        description="Share of hidden units dropped while training, in steps of 1/256, or a list "
        "with one for each layer.",
    )
    dropout_schedule: Literal["constant", "flat_cosine", "cosine", "linear"] = Field(
        default="constant", description="Dropout over the epochs: constant, or falling to zero."
    )
    initializer: InitializerName | None = Field(
        default=None, description="How weights start; by default what suits the activation."
    )

    @model_validator(mode="after")
    def _one_for_each_layer(self) -> "ModelSection":
        for key in ("activation", "dropout"):
            given, layers = len(getattr(self, key)), len(self.hidden)
            if given not in (1, layers):
                counts = f"{given} for {layers}"
                raise rule(f"give one {key}, or one for each layer ({counts})", key)
        return self


class EarlyStoppingSection(Section):
    """When to end before the last epoch."""

    monitor: str = Field(
        default="loss",
        description="The validation metric to watch: any that training.metrics may name.",
    )
    patience: Count = Field(
        default=20, description="Epochs without a better value before stopping."
    )
    min_delta: NonNegative = Field(default=0.0, description="Smallest improvement that counts.")


class ClipSection(Section):
    """How gradients that are too large are scaled; one of three rules."""

    norm: Positive | None = Field(default=None, description="Largest global norm.")
    percentile: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None, description="Largest norm, as a percentile of recent norms (AutoClip)."
    )
    history: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000, description="Norms that percentile remembers."
    )
    agc: Positive | None = Field(
        default=None,
        description="Largest norm of a unit's gradient, as a share of the norm of its weights.",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> "ClipSection":
        given = [key for key in ("norm", "percentile", "agc") if getattr(self, key) is not None]
        if len(given) != 1:
            raise rule(f"give one of norm, percentile, agc (got {', '.join(given) or 'none'})")
        return self


class CheckpointSection(Section):
    """When the state of a run is saved; it always is when a run ends or is interrupted."""

    every_seconds: Positive | None = Field(
        default=10.0, description="Seconds between two checkpoints, later if writing is slow."
    )
    every_epochs: Count | None = Field(default=None, description="Also after this many epochs.")
    every_steps: Count | None = Field(default=None, description="Also after this many steps.")


Several = Annotated[int, Field(ge=2, le=MAX_MEMBERS)]


class TrainingSection(Section):
    """Options of the training loop."""

    folds: Several | None = Field(
        default=None,
        description="Number of networks, each trained without one fold of the rows; the other "
        "folds choose its best epoch; the prediction is their mean.",
    )
    seeds: Several | None = Field(
        default=None,
        description="Number of networks that differ only in their seeds; the prediction is their "
        "mean.",
    )
    members: list[Kind] | None = Field(
        default=None,
        min_length=2,
        description="Kinds of networks, one of each kind per fold (ignored without folds). plain "
        "reads numbers, piecewise also their quantile bins, periodic also their cosines; linear "
        "is a linear model. The mean weights the kinds by what is best out of fold.",
    )
    calibration: Literal["none", "temperature"] = Field(
        default="none",
        description="temperature: divide logits by a number that is fitted out of fold or, without "
        "folds, on validation rows.",
    )
    refit: bool = Field(
        default=False,
        description="true: train once more on training and validation rows, up to the best epoch.",
    )
    epochs: Count = Field(default=100, description="Passes over the training rows, at most.")
    batch_size: Count = Field(default=32, description="Rows per step.")
    drop_last: bool = Field(
        default=False, description="Whether an epoch leaves out rows that do not fill a batch."
    )
    metrics: Annotated[list[str], NAME_OR_NAMES] = Field(
        default=[],
        description="Further metrics after every epoch: any that evaluate shows, or, of numbers, "
        "pinball_LEVEL such as pinball_0.9.",
    )
    freeze: list[int] = Field(
        default=[], description="Layers that are not trained: 0 is the first, -1 the last."
    )
    shards: Count = Field(
        default=1,
        description="Parts of a batch whose gradients are added: a power of two, and a multiple of "
        "the ranks under mpiexec.",
    )
    reduce: Literal["tree", "fast"] = Field(
        default="tree",
        description="How ranks add gradients; tree: the same bits for any number of ranks.",
    )
    clip_norm: Positive | None = Field(default=None, description="Largest global gradient norm.")
    clip: ClipSection | None = Field(
        default=None, description="Another rule for large gradients, in place of clip_norm."
    )
    on_nonfinite: Literal["stop", "skip"] = Field(
        default="stop", description="What to do at a step whose loss or gradient is not finite."
    )
    nonfinite_limit: Count = Field(default=10, description="Steps that may be skipped in a run.")
    early_stopping: Annotated[EarlyStoppingSection | None, OFF_OR_DEFAULTS] = Field(
        default=None, description="false, true, or its settings."
    )
    checkpoint: Annotated[CheckpointSection | None, OFF_OR_DEFAULTS] = section(
        CheckpointSection, "When to save, for --resume; false: never."
    )
    threads: Literal["auto"] | Count = Field(
        default="auto",
        description="Threads of BLAS or compiled steps; auto: 1 for BLAS, else all cores that pay.",
    )
    backend: Literal["auto", "numpy", "numexpr", "compiled"] = Field(
        default="auto",
        description="Executor; auto: compiled in runs of much arithmetic.",
    )
    rematerialization: Literal["keep", "balanced"] = Field(
        default="keep",
        description="Keep activations for backward, or compute cheap ones again (balanced).",
    )
    dtype: Literal["float32", "float64"] = Field(
        default="float32", description="Type of all numbers."
    )

    @model_validator(mode="after")
    def _one_clip(self) -> "TrainingSection":
        if self.clip and self.clip_norm is not None:
            raise rule("give clip or clip_norm, not both", "clip")
        if self.folds and self.seeds:
            raise rule("give folds or seeds, not both", "seeds")
        if self.members and len(set(self.members)) < len(self.members):
            raise rule("each kind must be given once", "members")
        return self


class DiagnosticsSection(Section):
    """Measurements of gradients, updates and units during training."""

    every: Literal["auto"] | Count = Field(
        default="auto", description="Steps between two samples; auto: as many as cost under 2 %."
    )
    silence: Annotated[list[VerdictName], NAME_OR_NAMES] = Field(
        default=[], description="Names of verdicts to leave out."
    )


Extra = Literal["auto", True, False]


class ReportSection(Section):
    """Additional files of a run."""

    html: bool = Field(default=True, description="report.html: the run on one page.")
    plots: Extra = Field(
        default="auto",
        description="Pictures in plots/; auto: of a sweep, or a run without report.html, if "
        "matplotlib is installed.",
    )
    tensorboard: Extra = Field(
        default="auto", description="Event files; auto: if tensorboard is installed."
    )

    @property
    def run_plots(self) -> Literal["auto"] | bool:
        """Whether to draw pictures of a run, which takes as long as training a small network."""
        return False if self.plots == "auto" and self.html else self.plots


class Config(Section):
    """A training run from data to model."""

    base: str | None = Field(
        None,
        description="A config beside this one, whose settings hold where this one has none.",
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = Field(
        None, description="Name of the run's directory; by default that of the config file."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0,
        description="Seed of the split, the initial weights, the order of rows and dropout.",
    )
    data: DataSection = Field(description="Where the rows come from.")
    model: ModelSection = section(ModelSection, "The network.")
    loss: Loss = section(AutoLoss, "What training minimizes.")
    optimizer: Optimizer = section(AdamOptimizer, "How weights change.")
    schedule: Schedule = section(ConstantSchedule, "How lr changes.")
    training: TrainingSection = section(TrainingSection, "Length and details of training.")
    diagnostics: Annotated[DiagnosticsSection | None, OFF_OR_DEFAULTS] = section(
        DiagnosticsSection, "false, true, or its settings."
    )
    report: Annotated[ReportSection, ALL_OR_NOTHING] = section(
        ReportSection, "A page, pictures and event files; false: none."
    )

    sweep: SweepSection | None = Field(
        default=None, description="Values to try, for mlpengine sweep; training ignores it."
    )

    @property
    def validation_share(self) -> float:
        """Share of the rows of `data.source` that are for validation."""
        given = self.data.split.validation
        if given is not None:
            return given
        elsewhere = self.training.folds or self.data.validation_source
        return 0.0 if elsewhere else DEFAULT_VALIDATION

    @model_validator(mode="after")
    def _leave_rows_to_train(self) -> "Config":
        taken = self.validation_share + self.data.split.test
        if taken >= 1:
            text = f"validation and test must leave rows to train on (they take {taken:g})"
            raise rule(text, "data", "split")
        return self

    @model_validator(mode="after")
    def _folds_validate(self) -> "Config":
        data = self.data
        for key, given in (
            (("split", "validation"), data.split.validation),
            (("validation_source",), data.validation_source),
        ):
            if self.training.folds and given:
                text = "leave this out: with training.folds each network has its fold to validate"
                raise rule(text, "data", *key)
        return self

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of networks in each fold, linear last; none where all networks are alike."""
        members = self.training.members or []
        return in_order(members) if self.training.folds else []

    @property
    def trained_kinds(self) -> list[Kind]:
        """The kinds that are trained by steps."""
        return trained(self.kinds)

    @model_validator(mode="after")
    def _kinds_differ(self) -> "Config":
        kinds = self.kinds
        needed = {
            "piecewise": ("data.encoding: piecewise", self.data.encoding == "piecewise"),
            "periodic": ("model.front.embedding", self.model.front.embedding is not None),
        }
        for kind, (setting, given) in needed.items():
            if kind in kinds and not given:
                raise rule(f"{kind} needs {setting}; or leave it out", "training", "members")
        return self

    @model_validator(mode="after")
    def _refit_needs_one_network(self) -> "Config":
        training, data = self.training, self.data
        if training.refit and (training.folds or training.seeds):
            text = "needs one network (with folds, all rows train already)"
            raise rule(text, "training", "refit")
        if training.refit and training.calibration != "none":
            raise rule("no rows are left for a temperature: leave one out", "training", "refit")
        if training.refit and (not self.validation_share or data.validation_source):
            text = "needs validation rows of the same table (data.split.validation)"
            raise rule(text, "training", "refit")
        return self

    @model_validator(mode="after")
    def _validated_parts_need_rows(self) -> "Config":
        training = self.training
        split = self.validation_share or self.data.validation_source or training.folds
        for name, key, wanted in (
            ("early stopping", "early_stopping", training.early_stopping is not None),
            ("a temperature", "calibration", training.calibration != "none"),
        ):
            if wanted and not split:
                text = f"{name} needs validation rows (data.split.validation is 0)"
                raise rule(text, "training", key)
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema that editors use to complete and check configs."""
    schema = Config.model_json_schema()
    schema["required"].remove("data")  # which the base of a config may have
    return schema | {"anyOf": [{"required": ["data"]}, {"required": ["base"]}]}

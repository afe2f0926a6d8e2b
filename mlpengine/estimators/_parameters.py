"""The parameters of estimators: the option that each is, which has its limits and its meaning."""

from collections.abc import Callable, Mapping
from inspect import Parameter as Argument
from inspect import signature
from textwrap import fill
from typing import Any, NamedTuple

from mlpengine.optim import Optimizer
from mlpengine.settings import (
    EarlyStopping,
    FeatureSettings,
    NetworkSettings,
    RunSettings,
    SplitSettings,
    TrainingSettings,
)
from mlpengine.settings.base import fitting, options_of


class Parameter(NamedTuple):
    """An option of the class `of`, and what estimators do with it.

    `name` is that of the option, if it is another.  A parameter that is not `checked` has values of
    its own, such as a name for a loss.
    """

    of: type
    note: str = ""
    name: str = ""
    checked: bool = True


PARAMETERS = {
    "hidden": Parameter(NetworkSettings),
    "activation": Parameter(NetworkSettings),
    "dropout": Parameter(NetworkSettings),
    "loss": Parameter(
        TrainingSettings,
        "The name of a loss, a formula of output y and target t, or a `Loss` with options, such as "
        '``Quantile((0.1, 0.5, 0.9))``; "auto" is that of the recipe.',
        checked=False,
    ),
    "optimizer": Parameter(
        TrainingSettings,
        "Its name; another than the recipe's has its own settings, but for those that are given.",
        checked=False,
    ),
    "lr": Parameter(Optimizer),
    "schedule": Parameter(
        TrainingSettings,
        "Its name, for that schedule with its default settings and over all `epochs`, or a "
        "function from the number of steps to a factor.",
        checked=False,
    ),
    "weight_decay": Parameter(Optimizer),
    "clip_norm": Parameter(TrainingSettings, "Infinity does not clip.", checked=False),
    "batch_size": Parameter(TrainingSettings),
    "epochs": Parameter(TrainingSettings),
    "early_stopping": Parameter(
        TrainingSettings,
        "Whether training ends when the loss of rows that do not train stops falling; the weights "
        "of the best epoch are kept. Without `folds` these rows are held out. False trains one "
        "network on all rows.",
        checked=False,
    ),
    "validation_fraction": Parameter(
        SplitSettings, "Of each class in a classifier. None is that of `init`.", name="validation"
    ),
    "folds": Parameter(
        TrainingSettings,
        "None is eight where `early_stopping` and `warm_start` are not set, of 80 to 100,000 rows; "
        "fewer of fewer rows, one network of fewer than 20 and of more than 100,000.",
    ),
    "kinds": Parameter(
        TrainingSettings,
        '"periodic" needs the preset "realmlp". `shares_` are those of the kinds in the mean. '
        "None is what ``mlpengine init`` proposes of several folds: all but "
        '"periodic" for 100 to 4,000 rows, without "piecewise" for fewer, and without "plain" for '
        'more. "plain" takes a third of the time.',
        checked=False,
    ),
    "patience": Parameter(EarlyStopping),
    "min_delta": Parameter(EarlyStopping),
    "standardize": Parameter(
        FeatureSettings,
        "True or False, for features and the targets of a regressor; predictions are in the "
        "targets' own units either way. Scaled features are clipped smoothly to between -3 and 3, "
        "as those of configs are.",
        checked=False,
    ),
    "backend": Parameter(TrainingSettings),
    "threads": Parameter(TrainingSettings, "One by default: scikit-learn runs fits side by side."),
    "dtype": Parameter(
        TrainingSettings,
        "None is float32, as in configs; predictions are float64 either way.",
        checked=False,
    ),
    "random_state": Parameter(
        RunSettings,
        "A number is the `seed` of a config, which gives the same bits.",
        name="seed",
        checked=False,
    ),
}
"""The parameters that are options of a run; None is that of the recipe."""

WITHOUT = {
    "calibration": "that of the recipe; scikit-learn has CalibratedClassifierCV",
    "seeds": "a mean of networks is that of `folds`",
    "refit": "with `folds`, or without `early_stopping`, all rows train",
    "metrics": "scikit-learn has scorers",
    "rematerialization": "verdicts read every activation",
}
"""Options of training that estimators do not have, and why."""

NETWORK = ("network", "blocks", "width", "expansion", "residual_dropout")
"""The options of networks that are parameters as they are."""

FEATURE_OPTIONS = ("transform_target",)
"""The options of features that are parameters as they are."""

FURTHER = {
    **{name: Parameter(NetworkSettings) for name in NETWORK},
    **{name: Parameter(FeatureSettings) for name in FEATURE_OPTIONS},
    **{
        name: Parameter(TrainingSettings)
        for name in options_of(TrainingSettings)
        if name not in WITHOUT.keys() | PARAMETERS.keys()
    },
}
"""The options of network, features and training that are parameters as they are."""

PARAMETERS |= FURTHER

ESTIMATOR_PARAMETERS = {
    "class_weight": "Of a classifier, weights by label, which multiply those of the rows, or "
    '"balanced" for n_rows / (n_classes * rows of the class).',
    "importances": "Whether `fit` computes `feature_importances_`, by permutation of features in "
    "rows that did not train; it needs `folds` or `early_stopping`.",
    "warm_start": "Whether `fit` continues from the weights, the optimizer, the scaling and the "
    "classes of the last fit.",
    "verbose": "Whether to print a line for each epoch.",
    "preset": '"plain" or "realmlp", a recipe of configs (`model.preset`); of "realmlp" all '
    "features are embedded as numbers, and the temperature needs rows that do not train.",
    "comm": "A communicator of mpi4py, whose ranks all fit on the same rows with the same "
    "`random_state`; they share the networks of `folds`, or of one network each batch, which needs "
    "as many `shards`.",
}
"""The parameters that only estimators have, and what they mean."""


def with_parameters(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor have `FURTHER` parameters, and write what all mean into its docstring."""
    *own, _ = signature(init).parameters.values()
    further = [Argument(name, Argument.KEYWORD_ONLY, default=None) for name in FURTHER]
    init.__signature__ = signature(init).replace(parameters=[*own, *further])  # type: ignore[attr-defined]
    lines = [(init.__doc__ or "").rstrip(), "", "        Args:"]
    for name in list(signature(init).parameters)[1:]:
        text = ESTIMATOR_PARAMETERS.get(name, "")
        if name in PARAMETERS:
            of, note, option, _ = PARAMETERS[name]
            text = " ".join(filter(None, [options_of(of)[option or name].description, note]))
        text = f"{name}: {text}"
        lines.append(fill(text, 100, initial_indent=" " * 12, subsequent_indent=" " * 16))
    init.__doc__ = "\n".join(lines)
    return init


def check_parameters(where: str, values: Mapping[str, Any]) -> None:
    """Check the parameters that are given by the limits of their options.

    Raises: UsageError naming the parameter.
    """
    for name, (of, _, option, checked) in PARAMETERS.items():
        if checked and values[name] is not None:
            fitting(f"{where}: {name}", options_of(of)[option or name].type, values[name])

"""The methods of ``benchmarks/quality.py``, each with its own defaults and one thread.

A method is a function from a problem's training and test rows to predictions: numbers, or
probabilities with a column for each class.  Those whose library is missing are left out.

``python benchmarks/quality_methods.py METHOD TARGET classes|numbers SEED FOLDER`` fits a method in
a process of its own, from the tables in FOLDER to the predictions there.
"""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from against import path_of_commands
from quality_tables import Problem
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

Method = Callable[[Problem, pd.DataFrame, pd.DataFrame, int], np.ndarray]

Run = Callable[[list[str]], None]
"""Runs a command of mlpengine, given as its words."""


def in_this_process(words: list[str]) -> None:
    """Run a command of mlpengine in this process."""
    from mlpengine_cli.main import run

    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = run(words)
    if code:
        raise RuntimeError(f"{' '.join(words)}: {output.getvalue().strip()}")


def in_new_process(words: list[str]) -> None:
    """Run a command of mlpengine in a process of its own."""
    _start("-m", "mlpengine_cli.main", *words)


def _start(*words: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=os.environ | environment
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def mlpengine(
    problem: Problem,
    train: pd.DataFrame,
    test: pd.DataFrame,
    seed: int,
    *,
    run: Run = in_this_process,
    preset: str | None = None,
    settings: Sequence[str] = ("report=false",),
) -> np.ndarray:
    """Return the answers of the commands ``init``, ``train`` and ``predict``.

    `settings` are arguments of ``--set``.
    """
    fixed = (f"seed={seed}", "training.threads=1", "data.split.test=0")
    options = [word for setting in (*fixed, *settings) for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        names = ("train.csv", "test.csv", "config.yaml", "run", "predictions.csv")
        rows, new, config, trained, predictions = (str(Path(folder, name)) for name in names)
        train, together = problem.with_together(train)
        train.to_csv(rows, index=False)
        test.drop(columns=problem.target).to_csv(new, index=False)
        kind = ["--preset", preset] if preset else []
        run(["init", rows, "--target", problem.target, "-o", config, *kind, *together])
        run(["train", config, "-q", "--out", trained, *options])
        run(["predict", trained, new, "-o", predictions])
        answers = pd.read_csv(predictions)
    if not problem.is_classification:
        return answers[problem.target].to_numpy()
    return answers[[f"probability_{label}" for label in problem.classes]].to_numpy()


def _encoded(problem: Problem, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features with texts as categories, and targets as numbers."""
    x = frame.drop(columns=problem.target)
    texts = x.select_dtypes(exclude="number").columns
    x[texts] = x[texts].astype("object").fillna("missing").astype("str")
    y = frame[problem.target].to_numpy()
    return x, np.searchsorted(problem.classes, y) if problem.is_classification else y.astype(float)


def _answers(problem: Problem, model: object, x: object) -> np.ndarray:
    if not problem.is_classification:
        return np.asarray(model.predict(x)).ravel()  # type: ignore[attr-defined]
    chances = np.full((len(x), len(problem.classes)), 1e-12)  # type: ignore[arg-type]
    chances[:, model.classes_.astype(int)] = model.predict_proba(x)  # type: ignore[attr-defined]
    return chances


def _with_numbers(
    make: Callable[[bool, int], object], problem: Problem, train: pd.DataFrame,
    test: pd.DataFrame, seed: int,
) -> np.ndarray:  # fmt: skip
    """Fit a model that takes scaled numbers: gaps filled by the median, texts one-hot."""
    (x, y), (new, _) = _encoded(problem, train), _encoded(problem, test)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", min_frequency=3, sparse_output=False)
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("texts", texts, make_column_selector(dtype_exclude="number")),
        ]
    )
    model = make(problem.is_classification, seed)
    if not problem.is_classification:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    return _answers(problem, make_pipeline(columns, model).fit(x, y), new)


def _with_categories(
    make: Callable[..., object],
    problem: Problem,
    train: pd.DataFrame,
    test: pd.DataFrame,
    seed: int,
) -> np.ndarray:
    """Fit a model that takes categories and gaps by itself."""
    (x, y), (new, _) = _encoded(problem, train), _encoded(problem, test)
    texts = list(x.select_dtypes(exclude="number").columns)
    for name in texts:
        kind = pd.CategoricalDtype(sorted(x[name].unique()))
        x[name], new[name] = x[name].astype(kind), new[name].astype(kind)
    return _answers(problem, make(problem.is_classification, seed, texts).fit(x, y), new)


def _linear(classes: bool, _seed: int) -> object:
    return LogisticRegression(max_iter=2000) if classes else RidgeCV(np.logspace(-3, 3, 13))


def _sklearn_mlp(classes: bool, seed: int) -> object:
    return (MLPClassifier if classes else MLPRegressor)(max_iter=400, random_state=seed)


def _histogram(classes: bool, seed: int, _texts: list[str]) -> object:
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return kind(random_state=seed)


def _lightgbm(classes: bool, seed: int, _texts: list[str]) -> object:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if classes else LGBMRegressor
    return kind(random_state=seed, n_jobs=1, verbose=-1)


def _xgboost(classes: bool, seed: int, _texts: list[str]) -> object:
    from xgboost import XGBClassifier, XGBRegressor

    kind = XGBClassifier if classes else XGBRegressor
    return kind(random_state=seed, n_jobs=1, enable_categorical=True)


def _catboost(problem: Problem, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
    from catboost import CatBoostClassifier, CatBoostRegressor

    (x, y), (new, _) = _encoded(problem, train), _encoded(problem, test)
    kind = CatBoostClassifier if problem.is_classification else CatBoostRegressor
    texts = list(x.select_dtypes(exclude="number").columns)
    model = kind(
        random_seed=seed, thread_count=1, verbose=False, cat_features=texts,
        allow_writing_files=False,
    )  # fmt: skip
    return _answers(problem, model.fit(x, y), new)


def fit_pytabkit(
    name: str,
    problem: Problem,
    train: pd.DataFrame,
    test: pd.DataFrame,
    seed: int,
    **options: object,
) -> np.ndarray:
    """Fit a method of pytabkit; `options` are its own."""
    import pytabkit

    (x, y), (new, _) = _encoded(problem, train), _encoded(problem, test)
    texts = list(x.select_dtypes(exclude="number").columns)
    numbers = [column for column in x if column not in texts]
    fill = x[numbers].median()
    x, new = x.fillna(fill), new.fillna(fill)
    kind = getattr(pytabkit, f"{name}_{'Classifier' if problem.is_classification else 'Regressor'}")
    model = kind(device="cpu", random_state=seed, n_threads=1, verbosity=0, **options)
    return _answers(problem, model.fit(x, y, cat_col_names=texts), new)


ONE_NETWORK = ("training.folds=null", "data.split.validation=0.2", "data.split.test=0")
"""Settings that train one network, as the published recipe does, in place of folds."""


def methods() -> dict[str, Method]:
    """Return the methods that have their libraries, by name; our methods are the first."""
    table: dict[str, tuple[str, Method]] = {
        "mlpengine": ("mlpengine", mlpengine),
        "mlpengine, realmlp": ("mlpengine", partial(mlpengine, preset="realmlp")),
        "mlpengine, one network": (
            "mlpengine",
            partial(mlpengine, settings=(*ONE_NETWORK, "report=false")),
        ),
        "mlpengine, one realmlp": (
            "mlpengine",
            partial(mlpengine, preset="realmlp", settings=(*ONE_NETWORK, "report=false")),
        ),
        "linear": ("sklearn", partial(_with_numbers, _linear)),
        "scikit-learn MLP": ("sklearn", partial(_with_numbers, _sklearn_mlp)),
        "HistGradientBoosting": ("sklearn", partial(_with_categories, _histogram)),
        "LightGBM": ("lightgbm", partial(_with_categories, _lightgbm)),
        "XGBoost": ("xgboost", partial(_with_categories, _xgboost)),
        "CatBoost": ("catboost", _catboost),
        "RealMLP": ("pytabkit", partial(fit_pytabkit, "RealMLP_TD")),
        "TabM": ("pytabkit", partial(fit_pytabkit, "TabM_D")),
    }
    return {name: method for name, (module, method) in table.items() if find_spec(module)}


def of_trees(before: Path) -> dict[str, Method]:
    """Return mlpengine as it was in another tree, and as it is here, in new processes."""

    def run(words: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = path_of_commands(before.resolve(), folder)
            _start("-m", "mlpengine_cli.main", *words, PYTHONPATH=path)

    return {
        "before": partial(mlpengine, run=run, settings=()),
        "mlpengine": partial(mlpengine, run=in_new_process),
    }


def of_processes() -> dict[str, Method]:
    """Return the methods in new processes: ours in one for each command, the others in one."""
    return {
        name: partial(method, run=in_new_process)
        if name.startswith("mlpengine")
        else partial(_in_new_process, name)
        for name, method in methods().items()
    }


def _in_new_process(
    name: str, problem: Problem, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    """Fit a method in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        train.to_csv(Path(folder, "train.csv"), index=False)
        test.to_csv(Path(folder, "test.csv"), index=False)
        kind = "classes" if problem.is_classification else "numbers"
        _start(__file__, name, problem.target, kind, str(seed), folder)
        return np.loadtxt(Path(folder, "predictions.csv"), delimiter=",")


def main() -> None:
    """Fit the method of the command line."""
    name, target, kind, seed, folder = sys.argv[1:]
    train, test = (
        pd.read_csv(Path(folder, f"{part}.csv"), float_precision="round_trip")
        for part in ("train", "test")
    )
    problem = Problem("", train, target, kind == "classes")
    answers = methods()[name](problem, train, test, int(seed))
    np.savetxt(Path(folder, "predictions.csv"), answers, delimiter=",")


NARROWER = 16
"""The root of the recipe's layers of 256, by which the standard parametrization divides lr."""

Costs = tuple[float | None, float | None]

ABLATION: dict[str, tuple[tuple[str, ...], Costs]] = {
    "robust scale and clip": (("data.standardize=standard", "data.clip=none"), (2.1, 8.7)),
    "embedding of numbers": (("model.input_layer.embedding=false",), (2.3, 20.6)),
    "scaling layer": (("model.input_layer.scaling=false",), (1.4, 1.0)),
    "neural-tangent form": (("model.parametrization=standard", "lr"), (0.3, 0.4)),
    "initial weights from rows": (("model.initializer=null",), (0.9, 1.2)),
    "learned activation": (("model.learned_activation=false",), (0.5, 4.8)),
    "betas of 0.9 and 0.95": (("optimizer.betas=[0.9, 0.999]",), (2.0, 22.8)),
    "schedule coslog": (("schedule=constant",), (1.8, 13.4)),
    "dropout": (("model.dropout=0.0",), (0.8, 0.8)),
    "weight decay": (("optimizer.weight_decay=0.0",), (0.8, 0.9)),
    "label smoothing": (("loss=auto",), (1.8, None)),
    "bounded predictions": (("data.bound_predictions=false",), (None, None)),
}
"""The replacement of each ingredient, and the published cost of leaving it out, in percent of the
error, for classes and for numbers (Holzmueller et al. 2024, arXiv 2407.04491)."""


def _without(
    name: str | None,
    problem: Problem,
    train: pd.DataFrame,
    test: pd.DataFrame,
    seed: int,
) -> np.ndarray:
    """Fit one network of the recipe without an ingredient, in this process; predict."""
    from mlpengine.config import load_config, parse_override
    from mlpengine.config.build import load_data, trainer_of
    from mlpengine.config.proposal import propose
    from mlpengine.data.features import profile
    from mlpengine.data.tables import read_table
    from mlpengine.step.blas_threads import pinned

    rate = (0.04 if problem.is_classification else 0.2) / NARROWER
    settings = ABLATION[name][0] if name else ()
    given = [f"optimizer.lr={rate}" if one == "lr" else one for one in settings]
    given += [*ONE_NETWORK, f"seed={seed}", "training.threads=1"]
    with tempfile.TemporaryDirectory() as folder:
        rows, config = Path(folder) / "train.csv", Path(folder) / "config.yaml"
        train.to_csv(rows, index=False)
        table = profile(read_table(rows), [problem.target])
        text = propose(table, [problem.target], source=str(rows), schema="none", preset="realmlp")
        config.write_text(text, encoding="utf-8")
        data = load_data(load_config(config, [parse_override(one) for one in given]))
        with pinned(1):
            fitted = trainer_of(data).fit()
        new = Path(folder) / "test.csv"
        test.drop(columns=problem.target).to_csv(new, index=False)
        model = fitted.model(data.tables.preprocessor)
        if not problem.is_classification:
            return model.predict(new)
        chances = dict(zip(map(str, model.classes), model.predict_proba(new).T, strict=True))
    return np.stack([chances[str(label)] for label in problem.classes], axis=1)


def ablation() -> dict[str, Method]:
    """Return the recipe with one network, and without each ingredient, by name."""
    return {
        "realmlp": partial(_without, None),
        **{f"no {name}": partial(_without, name) for name in ABLATION},
    }


if __name__ == "__main__":
    main()

"""The methods of ``benchmarks/arena.py``, each with its default settings and one thread.

A method is a function from training and test rows to predictions: numbers, or probabilities with a
column for each class.  Methods of libraries that are not installed are left out.
"""

import io
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from quality_tables import Problem
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

Method = Callable[[Problem, pd.DataFrame, pd.DataFrame, int], np.ndarray]


def command(words: list[str]) -> None:
    """Run a command of mlpengine in this process."""
    from mlpengine_cli.main import run

    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = run(words)
    if code:
        raise RuntimeError(f"{' '.join(words)}: {output.getvalue().strip()}")


def mlpengine(
    problem: Problem,
    train: pd.DataFrame,
    test: pd.DataFrame,
    seed: int,
    *,
    settings: Sequence[str] = ("report=false",),
) -> np.ndarray:
    """Return the predictions of the commands ``init``, ``train`` and ``predict``.

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
        command(["init", rows, "--target", problem.target, "-o", config, *together])
        command(["train", config, "-q", "--out", trained, *options])
        command(["predict", trained, new, "-o", predictions])
        answers = pd.read_csv(predictions)
    if not problem.is_classification:
        return answers[problem.target].to_numpy()
    return answers[[f"probability_{label}" for label in problem.classes]].to_numpy()


def fit_default(problem: Problem, train: pd.DataFrame, seed: int = 0, *, distill: bool = False):
    """Return the default model, trained on all rows; with `distill`, a student of this model."""
    import mlpengine as package

    train, together = problem.with_together(train)
    split = {"test": 0.0, **({together[0].strip("-"): together[1]} if together else {})}
    options = {"training": {"threads": 1}, "data": {"split": split}, "seed": seed}
    model, _ = package.fit(train, problem.target, **options)
    if distill:
        model, _ = package.distill(train, problem.target, predict=model, **options)
    return model


def student(problem: Problem, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
    """Return the predictions of a student of the default ensemble."""
    model = fit_default(problem, train, seed, distill=True)
    new = test.drop(columns=problem.target)
    if not problem.is_classification:
        return model.predict(new)
    chances = dict(zip(map(str, model.classes), model.predict_proba(new).T, strict=True))
    return np.stack([chances[str(label)] for label in problem.classes], axis=1)


def _encoded(problem: Problem, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features with categorical texts, and targets as numbers."""
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
    """Fit a model that needs scaled numbers: fill missing values by the median, one-hot texts."""
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
    """Fit a model that accepts categories and missing values."""
    (x, y), (new, _) = _encoded(problem, train), _encoded(problem, test)
    texts = list(x.select_dtypes(exclude="number").columns)
    for name in texts:
        kind = pd.CategoricalDtype(sorted(x[name].unique()))
        x[name], new[name] = x[name].astype(kind), new[name].astype(kind)
    return _answers(problem, make(problem.is_classification, seed, texts).fit(x, y), new)


def _linear(classes: bool, _seed: int) -> object:
    return LogisticRegression(max_iter=2000) if classes else RidgeCV(np.logspace(-3, 3, 13))


def _lightgbm(classes: bool, seed: int, _texts: list[str]) -> object:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMClassifier if classes else LGBMRegressor
    return kind(random_state=seed, n_jobs=1, verbose=-1)


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
    """Fit a method of pytabkit with its `options`."""
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
"""Settings that train one network without folds."""


def methods() -> dict[str, Method]:
    """Return the methods of installed libraries by name; methods of mlpengine are first."""
    table: dict[str, tuple[str, Method]] = {
        "mlpengine": ("mlpengine", mlpengine),
        "mlpengine, one network": (
            "mlpengine",
            partial(mlpengine, settings=(*ONE_NETWORK, "report=false")),
        ),
        "mlpengine, student": ("mlpengine", student),
        "linear": ("sklearn", partial(_with_numbers, _linear)),
        "LightGBM": ("lightgbm", partial(_with_categories, _lightgbm)),
        "CatBoost": ("catboost", _catboost),
        "RealMLP": ("pytabkit", partial(fit_pytabkit, "RealMLP_TD")),
    }
    return {name: method for name, (module, method) in table.items() if find_spec(module)}

"""The scikit-learn estimators: scikit-learn's own checks, and what people do with estimators."""

import copy
import importlib.util
import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest
import yaml

from mlpengine import Mlp
from mlpengine.core.errors import DataError, MissingExtraError, NumericalError, UsageError
from mlpengine.ops import Quantile

sklearn = pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.datasets import load_diabetes, load_iris, make_regression  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from mlpengine.config.proposal import propose  # noqa: E402
from mlpengine.core.errors import install_line  # noqa: E402
from mlpengine.data.features import profile  # noqa: E402
from mlpengine.data.tables import read_table  # noqa: E402
from mlpengine.estimators import MlpClassifier, MlpRegressor  # noqa: E402
from mlpengine.estimators._sparse import exact_scale  # noqa: E402
from mlpengine.optim import OPTIMIZERS  # noqa: E402
from mlpengine.settings import recipes  # noqa: E402
from mlpengine.settings.fix import by_key  # noqa: E402
from mlpengine.settings.recipes import PRESETS, recipe  # noqa: E402

ESTIMATORS = [MlpClassifier, MlpRegressor]

UNCLIPPED = {"training.clip_norm": None}

ALONE = {"early_stopping": False}
"""One network, which all rows train."""


def checked(estimator):
    """Return the names of scikit-learn's checks by status: passed, failed or skipped."""
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    found = {status: [] for status in ("passed", "failed", "skipped")}
    for result in results:
        found[result["status"]].append(f"{result['check_name']}: {result['exception']}")
    return found


def test_the_scale_of_features_is_that_of_scikit_learn_and_goes_on():
    features = np.random.default_rng(0).normal(3.0, 5.0, (200, 4))
    features[:, 2] = 7.0
    ours, theirs = exact_scale(features[:150]), StandardScaler().fit(features[:150])
    for _ in range(2):
        for name in ("mean_", "var_", "scale_", "n_samples_seen_"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
        for scaler in (ours, theirs):
            scaler.partial_fit(features[150:])


@pytest.mark.no_cover
@pytest.mark.filterwarnings("default")  # the checks provoke warnings on purpose
@pytest.mark.parametrize(("estimator", "least"), [(MlpClassifier, 66), (MlpRegressor, 60)])
def test_scikit_learn_finds_nothing_wrong(estimator, least):
    found = checked(estimator(epochs=20))
    assert found["failed"] == []
    assert len(found["passed"]) >= least
    no_function = "check_classifiers_multilabel_output_format_decision_function"
    allowed = {"check_array_api_input", no_function}  # it has probabilities instead
    assert {name.split(":")[0] for name in found["skipped"]} <= allowed


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_whole_weights_are_repetitions_at_the_defaults(estimator, kind):
    check = getattr(estimator_checks, f"check_sample_weight_equivalence_on_{kind}_data")
    check(estimator.__name__, estimator())


@pytest.mark.filterwarnings("default")
def test_scikit_learn_would_find_something():
    class Broken(ClassifierMixin, BaseEstimator):
        def fit(self, x, y):
            return self

        def predict(self, x):
            return np.zeros(len(x))

    assert len(checked(Broken())["failed"]) > 5


@pytest.fixture(scope="module")
def numbers():
    return make_regression(300, 6, n_targets=2, noise=1.0, random_state=0)


def test_text_labels(iris):
    x, y = iris
    model = MlpClassifier(hidden=(16,), random_state=0, **ALONE).fit(x, y)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.score(x, y) > 0.95
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(x)).all()
    assert (model.n_iter_, len(model.loss_curve_), model.best_epoch_) == (200, 200, 200)
    assert model.loss_curve_[-1] < 0.2 * model.loss_curve_[0]


def test_several_targets_and_one(numbers):
    x, y = numbers
    y = 1000 + y
    model = MlpRegressor(hidden=(32,), lr=2e-2, epochs=80, folds=3, random_state=0)
    both = clone(model).fit(x, y)
    assert both.predict(x).shape == y.shape
    assert both.score(x, y) > 0.98
    one = model.fit(x, y[:, 0])
    assert one.predict(x).shape == (len(y),)
    assert one.score(x, y[:, 0]) > 0.98


@pytest.mark.parametrize(
    ("given", "asked", "got"),
    [
        ("f8", None, "f4"),
        ("f4", None, "f4"),
        ("i8", None, "f4"),
        ("f8", "float32", "f4"),
        ("f4", "float64", "f8"),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_dtypes(estimator, given, asked, got):
    x = np.random.default_rng(0).integers(0, 9, (30, 3)).astype(given)
    settings = {"training.dtype": asked} if asked else None
    model = estimator(settings=settings, epochs=2).fit(x, x[:, 0] > 4)
    assert model.mlp_.dtype == got
    assert isinstance(model.mlp_, Mlp)
    assert np.isfinite(model.predict(x)).all()


@pytest.mark.no_cover
def test_a_pipeline_in_a_grid_search_in_a_cross_validation(iris):
    x, y = iris
    classifier = MlpClassifier(epochs=60, lr=1e-2, folds=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), classifier)
    grid = {"mlpclassifier__hidden": [(4,), (16, 8)]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="roc_auc_ovr")
    assert cross_val_score(search, x, y, cv=2).min() > 0.97


def test_the_regressor_beats_the_mean_on_real_data():
    x, y = load_diabetes(return_X_y=True)
    model = MlpRegressor(hidden=(16,), epochs=60, weight_decay=0.1, folds=3, random_state=0)
    assert cross_val_score(model, x, y, cv=3).min() > 0.35


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_seeds_give_equal_models(estimator):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((80, 4)), rng.integers(0, 3, 80)
    model = estimator(epochs=5, dropout=0.2, early_stopping=True, random_state=7).fit(x, y)
    again, other = clone(model).fit(x, y), clone(model).set_params(random_state=8).fit(x, y)
    assert (again.mlp_.params.flat == model.mlp_.params.flat).all()
    assert (other.mlp_.params.flat != model.mlp_.params.flat).any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_predicts_and_goes_on_learning_alike(estimator, copied):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((80, 4)), rng.integers(0, 3, 80)
    model = estimator(epochs=3, dropout=0.3, random_state=0).fit(x, y)
    twin = copied(model)
    assert (twin.predict(x) == model.predict(x)).all()
    for part in (slice(0, 30), slice(30, 70)):
        model.partial_fit(x[part], y[part])
        twin.partial_fit(x[part], y[part])
    assert (twin.mlp_.params.flat == model.mlp_.params.flat).all()
    assert twin.n_iter_ == model.n_iter_ == 5


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_count_as_repetitions(estimator):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.integers(0, 3, 20)
    counts = rng.integers(0, 4, 20)
    model = estimator(hidden=(8,), epochs=40, batch_size=100, random_state=0, **ALONE)
    weighted = clone(model).fit(x, y, sample_weight=counts)
    repeated = clone(model).fit(x.repeat(counts, axis=0), y.repeat(counts))
    np.testing.assert_allclose(
        weighted.mlp_.params.flat, repeated.mlp_.params.flat, rtol=1e-6, atol=1e-9
    )
    plain = clone(model).fit(x, y)
    assert np.abs(plain.mlp_.params.flat - weighted.mlp_.params.flat).max() > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_early_stopping_keeps_the_best_epoch(estimator):
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((100, 10)), rng.integers(0, 2, 100)  # nothing to learn
    settings = {"training.early_stopping.patience": 4}
    model = estimator(lr=1e-2, early_stopping=True, settings=settings, random_state=0).fit(x, y)
    curve = model.validation_loss_curve_
    assert model.n_iter_ < 200
    assert len(curve) == len(model.loss_curve_) == model.n_iter_
    assert model.best_epoch_ == 1 + int(np.argmin(curve))
    assert model.n_iter_ == model.best_epoch_ + 4


def test_partial_fit_goes_on_after_the_schedule_of_a_fit_has_ended(numbers):
    x, y = numbers
    for options in ({"folds": 2}, ALONE, {"preset": "realmlp", "hidden": 8, **ALONE}):
        model = MlpRegressor(epochs=2, random_state=0, **options).fit(x[:40], y[:40])
        before = model.mlp_.params.flat.copy()
        model.partial_fit(x, y)
        assert np.abs(model.mlp_.params.flat - before).max() > 1e-3


def test_partial_fit_learns_a_stream(numbers):
    x, y = numbers
    model = MlpRegressor(hidden=(32,), lr=1e-2, random_state=0)
    for _ in range(30):
        for start in range(0, len(x), 20):
            model.partial_fit(x[start : start + 20], y[start : start + 20])
    assert model.n_iter_ == len(model.loss_curve_) == 450
    assert model.score(x, y) > 0.97
    before = model.mlp_.params.flat.copy()
    model.partial_fit(x[:5], y[:5], sample_weight=np.ones(5))
    assert (model.mlp_.params.flat != before).any()


def test_partial_fit_of_classes_one_batch_at_a_time(iris):
    x, y = iris
    model = MlpClassifier(hidden=(16,), lr=1e-2, random_state=0)
    order = np.random.default_rng(0).permutation(len(x))
    model.partial_fit(x[:1], y[:1], classes=np.unique(y))
    for _ in range(20):
        for rows in np.split(order, 10):
            model.partial_fit(x[rows], y[rows])
    assert model.score(x, y) > 0.93


BAD_CALLS = {
    "no classes": (lambda x, y: MlpClassifier().partial_fit(x, y), DataError, "needs classes"),
    "unknown label": (
        lambda x, y: MlpClassifier().partial_fit(x, y, classes=["setosa", "virginica"]),
        DataError,
        "'versicolor' is not one of the classes",
    ),
    "other classes": (
        lambda x, y: MlpClassifier().partial_fit(x, y, np.unique(y)).partial_fit(x, y, ["a"]),
        DataError,
        "must be those of the first call",
    ),
    "negative weights": (
        lambda x, y: MlpClassifier().fit(x, y, sample_weight=-np.ones(len(x))),
        DataError,
        "none of them negative",
    ),
    "a learning rate that blows up": (
        lambda x, y: MlpRegressor(optimizer="sgd", lr=1e30, settings=UNCLIPPED).fit(x, x),
        NumericalError,
        "must be finite",
    ),
    "text as numbers": (lambda x, y: MlpRegressor().fit(x, y), ValueError, "y must be numbers"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_errors_name_what_is_wrong(iris, name):
    call, error, message = BAD_CALLS[name]
    with pytest.raises(error, match=message), np.errstate(all="ignore"):
        call(*iris)


def test_tables_of_pandas_are_refused_by_the_name_of_a_column():
    frame = pd.DataFrame({"area": [50.5, 60.0, 70.0] * 9, "town": ["Ulm", "Bonn", "Jena"] * 9})
    with pytest.raises(ValueError, match=r"column .town. has .Ulm."):
        MlpRegressor(epochs=2).fit(frame, frame["area"])
    frame["area"] = frame["area"].where(frame["area"] < 70)
    with pytest.raises(ValueError, match="NaN"):
        MlpRegressor(epochs=2).fit(frame[["area"]], np.arange(27))


def test_all_optimizers_learn(iris):
    x, y = iris
    rates = {"adam": 1e-2, "adamw": 1e-2, "lion": 3e-3, "nadam": 1e-2, "rmsprop": 3e-3, "sgd": 0.1}
    assert rates.keys() == OPTIMIZERS.keys()
    scores = {
        name: MlpClassifier(optimizer=name, lr=lr, epochs=60, random_state=0, **ALONE)
        .fit(x, y)
        .score(x, y)
        for name, lr in rates.items()
    }
    assert min(scores.values()) > 0.93, scores


def test_without_standardizing_the_network_reads_the_features_as_they_are(iris):
    x, y = iris
    settings = {"data.standardize": "none"}
    model = MlpClassifier(lr=1e-2, epochs=30, random_state=0, settings=settings, **ALONE).fit(x, y)
    output = model.mlp_.predict(x)
    assert (model.classes_[output.argmax(axis=1)] == model.predict(x)).all()


def test_the_network_can_be_saved_on_its_own(iris, tmp_path):
    x, y = iris
    model = MlpClassifier(epochs=2).fit(x, y)
    model.mlp_.save(tmp_path / "iris.safetensors")
    again = Mlp.load(tmp_path / "iris.safetensors")
    assert (again.params.flat == model.mlp_.params.flat).all()


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [n for n in sys.modules if n.startswith("mlpengine.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=re.escape(install_line("sklearn"))):
        import mlpengine.estimators  # noqa: F401


def test_without_callbacks_in_scikit_learn_estimators_work_as_before(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    source = importlib.util.find_spec("mlpengine.estimators._callbacks")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    assert module.with_callbacks(checked) is checked
    assert not hasattr(module.CallbackSupportMixin, "set_callbacks")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_standardized_features_are_clipped_smoothly(dtype):
    x = np.random.default_rng(0).normal(5.0, 2.0, (200, 3)).astype(dtype)
    y = x @ np.array([1.0, -2.0, 0.5])
    model = MlpRegressor(hidden=(8,), epochs=5, random_state=0, **ALONE).fit(x, y)
    rows = np.concatenate([x[:5], [[1e6, 5.0, 5.0], [5.0, -3e4, 9.0]]]).astype(dtype)
    scaled = (rows - x.mean(0, np.float64)) / x.std(0, dtype=np.float64)
    features = scaled / np.sqrt(1 + (scaled / 3) ** 2)
    expected = model.mlp_.predict(features.astype(dtype))[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-5)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    mean = np.exp(3 + x[:, 0] / 2)
    return x, rng.poisson(mean) + 0.0, mean


LOSSES = {
    "poisson": ("poisson", ["y"]),
    "log_cosh": ("log_cosh", ["y"]),
    "formula": ("abs(y - t) ** 1.5", ["y"]),
    "quantiles": (Quantile((0.1, 0.5, 0.9)), ["y_0.1", "y_0.5", "y_0.9"]),
    "gaussian_nll": ("gaussian_nll", ["y", "y_std"]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_regressor_takes_any_loss(name, counts):
    (loss, columns), (x, y, mean) = LOSSES[name], counts
    model = MlpRegressor(hidden=(16,), loss=loss, lr=1e-2, epochs=40, random_state=0)
    model = pickle.loads(pickle.dumps(clone(model).fit(x, y)))
    assert np.sqrt(np.mean((model.predict(x) - mean) ** 2)) < 0.4 * mean.std()
    predicted = model.predict_columns(x)
    assert list(predicted) == columns
    if name == "quantiles":
        below = [(y <= values).mean() for values in predicted.values()]
        assert below == pytest.approx([0.1, 0.5, 0.9], abs=0.06)
        assert (model.predict(x) == predicted["y_0.5"]).all()
    if name == "gaussian_nll":
        assert np.corrcoef(predicted["y_std"], np.sqrt(mean))[0, 1] > 0.2


def test_a_regressor_of_counts_predicts_as_in_its_own_units(counts):
    x, y, _ = counts
    models = [
        MlpRegressor(hidden=(8,), loss="poisson", epochs=3, random_state=0).fit(x, y * scale)
        for scale in (1, 1000)
    ]
    np.testing.assert_allclose(models[1].predict(x), 1000 * models[0].predict(x), rtol=1e-6)


@pytest.mark.parametrize("loss", ["binary_focal", "bce_with_logits", "softplus(y) - t * y"])
def test_a_classifier_of_two_classes_takes_losses_of_one_output(loss, iris):
    x, y = iris
    keep = y != "setosa"
    model = MlpClassifier(hidden=(8,), loss=loss, lr=1e-2, epochs=60, random_state=0)
    model.fit(x[keep], y[keep])
    assert model.mlp_.sizes[-1] == 1
    assert model.score(x[keep], y[keep]) > 0.9
    assert (model.classes_[model.predict_proba(x).argmax(axis=1)] == model.predict(x)).all()


WRONG_LOSSES = {
    "another task": (MlpRegressor(loss="softmax_cross_entropy"), UsageError, "must be auto, mse"),
    "unknown": (MlpRegressor(loss="focal"), UsageError, r"\(got 'focal'\)"),
    "a number": (MlpRegressor(loss=3), UsageError, r"\(got 3\)"),
    "classes": (MlpClassifier(loss="mse"), UsageError, "must be auto, softmax_cross_entropy"),
    "three classes": (MlpClassifier(loss="binary_focal"), UsageError, "two classes .y has 3"),
    "domain": (MlpRegressor(loss="gamma"), DataError, r"row 0 of y: gamma: .* more than 0 \(0\)"),
}


@pytest.mark.parametrize("name", WRONG_LOSSES)
def test_losses_that_do_not_fit_are_refused(name):
    estimator, error, message = WRONG_LOSSES[name]
    x = np.arange(30.0)[:, None]
    with pytest.raises(error, match=message):
        estimator.fit(x, np.arange(30) % 3)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_the_settings_that_are_not_given(preset, iris):
    x, y = iris
    model = MlpClassifier(hidden=(24,), preset=preset, random_state=0, **ALONE)
    model.fit(x, y)
    run = recipe(preset, "classification", len(x))
    assert [*model.mlp_.sizes] == [4, 24, 3]
    assert model.n_iter_ == run.training.epochs
    assert (model.mlp_.input_layer is not None) == (preset == "realmlp")
    assert model.score(x, y) > 0.95
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict_proba(x), model.predict_proba(x)
    )
    assert clone(model).preset == preset


def test_a_preset_learns_row_by_row_too(iris):
    x, y = iris
    model = MlpClassifier(preset="realmlp", random_state=0)
    model.partial_fit(x, y, classes=np.unique(y)).partial_fit(x, y)
    assert model.mlp_.learned_activation
    assert np.isfinite(model.predict_proba(x)).all()


@pytest.mark.parametrize("standardize", ["standard", "none"])
def test_predictions_of_realmlp_stay_in_the_range_of_targets(standardize):
    x = np.linspace(-1.0, 1.0, 40)[:, None]
    y = np.column_stack([3 + x[:, 0], -5 * x[:, 0]])
    settings = {"data.standardize": standardize}
    options = {"hidden": 8, "epochs": 20, "settings": settings, "random_state": 0, **ALONE}
    model = MlpRegressor(preset="realmlp", **options).fit(x, y)
    far = model.predict(x * 1e4)
    assert (far >= y.min(axis=0)).all()
    assert (far <= y.max(axis=0)).all()
    wide = model.partial_fit([[0.0]], [[100.0, -100.0]]).predict(x * 1e4)
    assert (wide >= [2.0, -100.0]).all()
    assert (wide <= [100.0, 5.0]).all()


def test_an_unknown_preset_is_refused(iris):
    with pytest.raises(UsageError, match="preset: must be one of plain, realmlp"):
        MlpClassifier(preset="best").fit(*iris)


NEUTRAL = {
    "optimizer": "adam",
    "settings": {"schedule": "constant", "training.clip_norm": None},
}
"""The defaults of configs without a preset."""

FOLDED = {"hidden": (8,), "epochs": 6, "folds": 4, "batch_size": 16, "random_state": 3, **NEUTRAL}


def test_partial_fit_begins_with_one_network(iris):
    x, y = iris
    with pytest.raises(UsageError, match="partial_fit: begins with one network"):
        MlpClassifier(**FOLDED).partial_fit(x, y, classes=np.unique(y))


def test_what_needs_folds_is_refused_without():
    x = np.random.default_rng(0).standard_normal((300, 4))
    y = x[:, 1]
    with pytest.raises(UsageError, match="predict_interval: fit with folds first"):
        MlpRegressor((2,), epochs=1, **ALONE).fit(x, y).predict_interval(x)
    with pytest.raises(UsageError, match="predict_set: fit with folds first"):
        MlpClassifier((2,), epochs=1, **ALONE).fit(x, y > 0).predict_set(x)
    with pytest.raises(UsageError, match="folds: a fit with folds begins anew"):
        MlpRegressor((2,), epochs=1, folds=3, warm_start=True).fit(x, y)


@pytest.mark.parametrize("folds", [None, 3])
def test_a_fit_has_verdicts_with_fixes(folds):
    x, y = load_iris(return_X_y=True)
    slow = MlpClassifier(16, lr=1e-7, epochs=6, folds=folds, random_state=0)
    (verdict,) = slow.fit(x, y).verdicts_
    assert (verdict.name, [fix.key for fix in verdict.fix]) == ("lr_low", ["optimizer.lr"])
    assert MlpClassifier(16, lr=5e-3, epochs=60, random_state=0).fit(x, y).verdicts_ == []


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_a_fit_names_a_feature_that_tells_the_target(kind, folds):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    y = 5 + 2 * x[:, 0] + rng.standard_normal(300)
    leaking = np.column_stack([x, y + 0.05 * rng.standard_normal(300)])
    target = y > 5 if kind == "classes" else y
    estimator = MlpClassifier if kind == "classes" else MlpRegressor
    options = {"epochs": 30, "lr": 1e-2, "folds": folds, "random_state": 0}
    (verdict,) = estimator(8, **options).fit(leaking, target).verdicts_
    assert (verdict.name, by_key(verdict.fix)) == ("leak", {"data.drop": ["x3"]})
    assert "Column 'x3': alone it" in str(verdict)
    assert "Leave it out of X" in verdict.advice
    assert estimator(8, **options).fit(x, target).verdicts_ == []


@pytest.mark.parametrize(("rows", "count"), [(19, 1), (40, 4), (150, 8)])
def test_the_defaults_are_what_init_proposes(rows, count, iris, tmp_path, monkeypatch):
    """The recipe, and folds where there are rows for them."""
    monkeypatch.setattr(recipes, "FOLDS", 8)
    x, y = iris
    some = np.random.default_rng(0).permutation(len(y))[:rows]
    lines = [",".join([*map(repr, row.tolist()), label]) for row, label in zip(x, y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,y", *(lines[i] for i in some)]))
    facts = profile(read_table(tmp_path / "rows.csv"), ["y"])
    config = yaml.safe_load(propose(facts, ["y"], source="rows.csv", schema="s.json"))
    model = MlpClassifier(random_state=0).fit(x[some], y[some])
    assert count == config["training"].get("folds", 1)
    by_steps = [kind for kind in config["training"].get("members", ["plain"]) if kind != "linear"]
    assert len(getattr(model, "best_epochs_", [0])) == count * len(by_steps)
    chosen = model._settings(rows, 0, ends_early=True)
    assert [*chosen.network.hidden] == config["model"]["hidden"]
    training, expected = chosen.training, config["training"]
    assert training.optimizer.lr == config["optimizer"]["lr"]
    assert (training.epochs, training.batch_size) == (expected["epochs"], expected["batch_size"])
    assert training.early_stopping.patience == expected["early_stopping"]["patience"]
    kinds, edges = MlpClassifier()._member_types(x[some], folded=count > 1)
    assert kinds == config["training"].get("members", [])
    assert bool(edges) == ("piecewise" in kinds) == ("encoding" in config["data"])


def test_logarithms_of_targets_are_learned_and_refused_in_words():
    x = np.linspace(0, 3, 60)[:, None]
    y = np.exp(x[:, 0])
    log = {"settings": {"data.transform_target": "log"}}
    model = MlpRegressor(epochs=40, random_state=0, **log).fit(x, y)
    assert model.predict(x * 9).max() <= y.max() * (1 + 1e-6)  # no prediction is beyond the range
    twin = pickle.loads(pickle.dumps(model)).partial_fit(x, y)
    assert twin.score(x, y) > 0.9
    with pytest.raises(DataError, match=r"row 2 of y: .* must be positive \(-1\); set"):
        model.fit(x, np.where(np.arange(60) == 2, -1, y))
    with pytest.raises(UsageError, match="gaussian_nll is not for logarithms"):
        MlpRegressor(loss="gaussian_nll", **log).fit(x, y)
    with pytest.raises(UsageError, match=r"log is for numbers \(got classes\)"):
        MlpClassifier(**log).fit(x, y > 2)
    with pytest.raises(UsageError, match="must be none"):
        MlpRegressor(**log).partial_fit(x, y)


@pytest.mark.parametrize(
    ("division", "text"),
    [
        ({"groups": [1, 2]}, r"groups: needs one entry per row \(40; shape \(2,\)\)"),
        ({"times": ["May"] * 40}, r"times: must be numbers or dates .*pandas.to_datetime"),
        ({"times": pd.date_range("2026", periods=40, tz="UTC")}, r"utc=True\)\.to_numpy"),
        ({"groups": range(40), "times": range(40)}, "fit: takes groups or times, not both"),
        ({"times": pd.to_datetime([None] * 40)}, r"fit: a time is missing \(row 1\)"),
        ({"times": [np.nan, *range(39)]}, r"fit: a time is missing \(row 1\)"),
        ({"groups": [*range(39), np.nan]}, r"fit: a group is missing \(row 40\)"),
        ({"groups": ["a", None, *"bc" * 19]}, r"fit: a group is missing \(row 2\)"),
        ({"groups": pd.Series([*"ab" * 19, pd.NA, "c"])}, r"fit: a group is missing \(row 39\)"),
        ({"groups": pd.to_datetime([None] * 40)}, r"fit: a group is missing \(row 1\)"),
        ({"groups": [*"ab"] * 20, "folds": 3}, "folds: 3 need at least as many groups"),
    ],
)
def test_groups_and_times_that_cannot_divide_rows_are_refused(division, text):
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = MlpRegressor(epochs=1, folds=division.pop("folds", 2))
    with pytest.raises(DataError, match=text):
        model.fit(x, x[:, 0], **division)


def test_dates_order_rows_as_their_numbers_do():
    x = np.random.default_rng(0).normal(size=(40, 2))
    days = np.random.default_rng(1).permutation(40)
    dates = pd.Timestamp("2026-01-01") + pd.to_timedelta(days, unit="D")
    one, other = (
        MlpRegressor(epochs=1, random_state=0).fit(x, x[:, 0], times=times)
        for times in (days, dates)
    )
    np.testing.assert_array_equal(one.predict(x), other.predict(x))

"""The scikit-learn estimators: scikit-learn's own checks, and what people do with estimators."""

import copy
import pickle
import re
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import mlpengine
from mlpengine.core.errors import (
    DataError,
    MissingExtraError,
    NumericalError,
    UsageError,
)
from mlpengine.ops import Quantile

sklearn = pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.datasets import make_regression  # noqa: E402
from sklearn.utils.estimator_checks import (  # noqa: E402
    check_estimator,
    check_methods_sample_order_invariance,
)

from mlpengine.core.errors import install_line  # noqa: E402
from mlpengine.estimators import MlpClassifier, MlpRegressor  # noqa: E402
from mlpengine.estimators._estimator import warn_once  # noqa: E402
from mlpengine.settings.fix import keywords  # noqa: E402

ESTIMATORS = [MlpClassifier, MlpRegressor]

ALONE = {"early_stopping": False}
"""One network, which all rows train."""

ORDER = {"check_methods_sample_order_invariance": "BLAS rounds a row by its position"}


def checked(estimator, known=None):
    """Return the names of scikit-learn's checks by status."""
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=known)
    found = {status: [] for status in ("passed", "failed", "skipped", "xfail")}
    for result in results:
        found[result["status"]].append(f"{result['check_name']}: {result['exception']}")
    return found


@pytest.mark.no_cover
@pytest.mark.filterwarnings("default")  # the checks provoke warnings on purpose
@pytest.mark.parametrize(
    ("estimator", "least", "options"), [(MlpClassifier, 65, ALONE), (MlpRegressor, 59, {})]
)
def test_scikit_learn_finds_nothing_wrong(estimator, least, options):
    """Of one network, and of the several of the defaults: these take five times as long."""
    found = checked(estimator(epochs=8, **options), ORDER)
    assert found["failed"] == []
    assert len(found["passed"] + found["xfail"]) >= least
    no_function = "check_classifiers_multilabel_output_format_decision_function"
    allowed = {"check_array_api_input", no_function}  # it has probabilities instead
    assert {name.split(":")[0] for name in found["skipped"]} <= allowed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [MlpClassifier, MlpRegressor])
def test_predictions_in_float64_do_not_depend_on_the_order_of_rows(estimator):
    exact = estimator(epochs=8, settings={"training.dtype": "float64"}, **ALONE)
    check_methods_sample_order_invariance(estimator.__name__, exact)


@pytest.mark.filterwarnings("default")
def test_scikit_learn_would_find_something():
    class Broken(ClassifierMixin, BaseEstimator):
        def fit(self, x, y):
            return self

        def predict(self, x):
            return np.zeros(len(x))

    assert len(checked(Broken())["failed"]) > 5


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_count_as_repetitions_and_matter(estimator):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.integers(0, 3, 20)
    counts = rng.integers(0, 4, 20)
    model = estimator(hidden=(8,), epochs=40, batch_size=100, random_state=0, **ALONE)
    weighted = clone(model).fit(x, y, sample_weight=counts * 1e300)
    repeated = clone(model).fit(x.repeat(counts, axis=0), y.repeat(counts))
    plain = clone(model).fit(x, y)
    params, same, other = (one.mlp_.params.flat for one in (weighted, repeated, plain))
    np.testing.assert_allclose(params, same, rtol=1e-6, atol=1e-9)
    assert np.abs(other - params).max() > 1e-3


@pytest.fixture(scope="module")
def numbers():
    return make_regression(300, 6, n_targets=2, noise=1.0, random_state=0)


def test_text_labels(iris):
    x, y = iris
    model = MlpClassifier(hidden=(16,), random_state=0, **ALONE).fit(x, y)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(x)).all()
    assert (model.n_iter_, len(model.loss_curve_), model.best_epoch_) == (100, 100, 100)
    assert model.score(x, y) > 0.95
    codes = (y == "setosa").astype(object)  # scikit-learn's score refuses such labels
    assert model.fit(x, codes).score(x, codes) > 0.95


@pytest.mark.parametrize(("given", "asked", "got"), [("f8", None, "f4"), ("i8", "float64", "f8")])
def test_dtypes_and_sparse_matrices(given, asked, got):
    x = np.random.default_rng(0).integers(0, 9, (30, 3)).astype(given)
    settings = {"training.dtype": asked} if asked else None
    dense = MlpRegressor(settings=settings, epochs=2, random_state=0).fit(x, x[:, 0])
    model = clone(dense).fit(scipy.sparse.csr_matrix(x), x[:, 0])
    assert model.mlp_.dtype == got
    np.testing.assert_allclose(model.mlp_.params.flat, dense.mlp_.params.flat, atol=1e-7)
    np.testing.assert_allclose(model.predict(scipy.sparse.csc_matrix(x)), model.predict(x))
    model.partial_fit(scipy.sparse.coo_array(x), x[:, 0])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_seeds_give_equal_models_and_copies_go_on_alike(estimator):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((80, 4)), rng.integers(0, 3, 80)
    model = estimator(epochs=3, dropout=0.3, random_state=7).fit(x, y)
    other = clone(model).set_params(random_state=8).fit(x, y)
    twins = [clone(model).fit(x, y), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for twin in twins:
        np.testing.assert_array_equal(twin.predict(x), model.predict(x))
    assert (other.predict(x) != model.predict(x)).any()
    for part in (slice(0, 30), slice(30, 70)):
        for one in (model, *twins):
            one.partial_fit(x[part], y[part])
    for twin in twins:
        assert (twin.mlp_.params.flat == model.mlp_.params.flat).all()
        assert twin.n_iter_ == model.n_iter_ == 5


def test_a_warm_start_goes_on_and_a_cold_one_does_not(numbers, caplog):
    x, y = numbers[0], numbers[1][:, 0]
    options = {"early_stopping": True, "warm_start": True}
    warm = MlpRegressor(hidden=(8,), epochs=5, random_state=0, **options).fit(x, y)
    scale, score = warm._preprocessor.numbers, warm.score(x, y)
    assert warm.fit(x, y).score(x, y) > score
    assert warm._preprocessor.numbers is scale
    assert not caplog.records
    warm.fit(x[:-9], y[:-9])  # other validation rows
    assert "may have trained the networks of the warm start" in caplog.text
    cold = MlpRegressor(hidden=(8,), epochs=5, random_state=0, **ALONE).fit(x, y)
    np.testing.assert_array_equal(cold.fit(x, y).predict(x), clone(cold).fit(x, y).predict(x))
    before = warm.predict(x)
    np.testing.assert_allclose(warm.set_params(lr=1e-9).fit(x, y).predict(x), before, rtol=1e-3)
    for name, wrong in (("hidden", (9,)), ("members", "plain")):
        with pytest.raises(UsageError, match=f"{name}: must be as in the first fit"):
            clone(warm).fit(x, y).set_params(**{name: wrong}).fit(x, y)
    with pytest.raises(UsageError, match="folds: must be None with warm_start"):
        warm.set_params(hidden=(8,), folds=3).fit(x, y)


# partial_fit


@pytest.mark.parametrize("options", [{"folds": 2}, ALONE])
def test_partial_fit_goes_on_after_the_schedule_of_a_fit_has_ended(options, numbers):
    x, y = numbers
    model = MlpRegressor(epochs=2, random_state=0, **options).fit(x[:40], y[:40])
    before = [mlp.params.flat.copy() for mlp in model.mlps_]
    linear = [mlp.is_linear for mlp in model.mlps_]
    model.partial_fit(x, y)
    pairs = zip(before, model.mlps_, strict=True)
    assert all(np.abs(mlp.params.flat - old).max() > 1e-4 for old, mlp in pairs)
    assert [mlp.is_linear for mlp in model.mlps_] == linear


def test_partial_fit_learns_a_stream_whose_scale_follows_all_rows(numbers):
    x, y = np.hstack([5 + 2 * numbers[0], 9 + numbers[0][:, :1]]), numbers[1]
    x[:20, 6] = np.nan  # a column without a known number at first
    model = MlpRegressor(hidden=(32,), lr=1e-2, random_state=0)
    for _ in range(12):
        for start in range(0, len(x), 20):
            model.partial_fit(x[start : start + 20], y[start : start + 20])
    assert model.n_iter_ == len(model.loss_curve_) == 180
    assert model.score(x, y) > 0.97
    np.testing.assert_allclose(model._preprocessor.numbers.center, np.nanmean(x, 0))
    np.testing.assert_allclose(1 / model._preprocessor.numbers.factor, np.nanstd(x, 0))
    np.testing.assert_allclose(model._preprocessor.target.scale, y.std(0))


def test_partial_fit_of_classes_one_batch_at_a_time(iris):
    x, y = iris
    model = MlpClassifier(hidden=(16,), lr=1e-2, random_state=0)
    order = np.random.default_rng(0).permutation(len(x))
    model.partial_fit(x[:1], y[:1], classes=np.unique(y))
    for _ in range(12):
        for rows in np.split(order, 10):
            model.partial_fit(x[rows], y[rows])
    assert model.score(x, y) > 0.93


# tables with gaps, texts and categories


def mixed(rows=160):
    rng = np.random.default_rng(3)
    town, kind = rng.choice(["Ulm", "Bonn", "Jena"], rows), rng.choice(["a", "b"], rows)
    area = rng.normal(50, 9, rows).round(2)
    y = area + 9 * (town == "Ulm") - 7 * (kind == "a") + rng.normal(0, 1, rows)
    area[::9] = np.nan
    return pd.DataFrame({"area": area, "town": town, "kind": pd.Categorical(kind)}), y


@pytest.mark.parametrize("of", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_data_frames_are_learned_as_by_fit(estimator, of, caplog):
    frame, y = mixed()
    classes = estimator is MlpClassifier
    labels = np.where(y > y.mean(), "high", "low") if classes else y
    table = of(frame)
    model = estimator(epochs=4, random_state=0).fit(table, labels)
    whole, _ = mlpengine.fit(
        frame.assign(y=labels),
        "y",
        data={"split": {"test": 0.0}, "task": "classification" if classes else "regression"},
        training={"epochs": 4},
    )
    np.testing.assert_array_equal(model.predict(table), whole.predict(frame))
    np.testing.assert_array_equal(model.model_.predict(table), model.predict(table))
    rows = frame.assign(y=labels)
    assert estimator(epochs=1, folds=2).fit(table, rows["y"].rename("z")).model_.target == ["z"]
    ranked = [part.explain(rows).as_dict() for part in (model.model_, whole)]
    assert ranked[0]["importances"] == ranked[1]["importances"]
    assert "<svg" in model.history_._repr_html_()
    caplog.clear()
    warn_once.cache_clear()
    new = frame.assign(town="Rom")[:3]
    for _ in range(2):  # warned of once
        predicted = model.predict(of(new))
    np.testing.assert_array_equal(predicted, whole.predict(new))
    ours, theirs = (text.split(": ", 2)[2] for text in caplog.messages)
    assert ours == theirs
    assert "'Rom'" in ours
    again = pickle.loads(pickle.dumps(model)).partial_fit(table, labels)
    assert len(again.predict(table)) == len(y)
    assert model.feature_names_in_.tolist() == ["area", "town", "kind"]


def test_gaps_of_matrices_are_gaps():
    frame, y = mixed()
    x = frame[["area"]].to_numpy()
    model = MlpRegressor(epochs=2, random_state=0).fit(x, y)
    assert model.mlp_.sizes[0] == 14  # the number, 12 bins, and whether it is missing
    with pytest.raises(DataError, match=r"row 3, column 'x0'.*inf"):
        model.predict(np.where(np.arange(len(x)) == 2, np.inf, x[:, 0])[:, None])


# groups and times


@pytest.mark.parametrize(
    ("division", "text"),
    [
        ({"groups": [1, 2]}, r"groups: needs one entry per row \(40; got 2\)"),
        ({"times": ["May", "June"] * 20}, "column 'time'.* order"),
        ({"groups": range(40), "times": range(40)}, "takes groups or times, not both"),
        ({"times": [np.nan, *range(39)]}, "row 1, column 'time'.* fill it in"),
        ({"groups": pd.Series([*"ab" * 19, pd.NA, "c"])}, "row 39, column 'group'.* fill it in"),
        ({"groups": [*"ab"] * 20, "folds": 3}, "training.folds: .*groups"),
    ],
)
def test_groups_and_times_that_cannot_divide_rows_are_refused(division, text):
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = MlpRegressor(epochs=1, folds=division.pop("folds", 2))
    with pytest.raises((DataError, UsageError), match=text):
        model.fit(x, x[:, 0], **division)
    assert not hasattr(model, "n_features_in_")


def test_dates_order_rows_as_their_numbers_do():
    x = np.random.default_rng(0).normal(size=(40, 2))
    days = np.random.default_rng(1).permutation(40)
    dates = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(days, unit="D")
    one, other = (
        MlpRegressor(epochs=1, random_state=0).fit(x, x[:, 0], times=times)
        for times in (days, dates)
    )
    np.testing.assert_array_equal(one.predict(x), other.predict(x))
    assert one.n_features_in_ == 2


# losses, settings, errors


LOSSES = {
    "poisson": ("poisson", ["y"]),
    "negative_binomial": ("negative_binomial", ["y"]),
    "formula": ("abs(y - t) ** 1.5", ["y"]),
    "quantiles": (Quantile((0.1, 0.5, 0.9)), ["y_0.1", "y_0.5", "y_0.9"]),
    "gaussian_nll": ("gaussian_nll", ["y", "y_std"]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_regressor_takes_any_loss(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    mean = np.exp(3 + x[:, 0] / 2)
    y = rng.poisson(mean) + 0.0
    loss, columns = LOSSES[name]
    model = MlpRegressor((16,), loss=loss, lr=1e-2, epochs=30, members="plain", random_state=0)
    model = pickle.loads(pickle.dumps(clone(model).fit(x, y)))
    assert np.sqrt(np.mean((model.predict(x) - mean) ** 2)) < 0.5 * mean.std()
    assert list(model.predict_columns(x)) == columns


@pytest.mark.parametrize("loss", ["binary_focal", "softplus(y) - t * y"])
def test_a_classifier_of_two_classes_takes_losses_of_one_output(loss, iris):
    x, y = (part[iris[1] != "setosa"] for part in iris)
    model = MlpClassifier(hidden=(8,), loss=loss, lr=1e-2, epochs=40, random_state=0).fit(x, y)
    assert model.mlp_.sizes[-1] == 1
    assert model.score(x, y) > 0.9
    assert (model.classes_[model.predict_proba(x).argmax(axis=1)] == model.predict(x)).all()


@pytest.mark.parametrize("folds", [None, 3])
def test_a_fit_has_verdicts_with_fixes(folds, iris):
    slow = MlpClassifier(16, lr=1e-7, epochs=6, folds=folds, random_state=0)
    (verdict,) = known = slow.fit(*iris).verdicts_
    assert (verdict.name, [fix.key for fix in verdict.fix]) == ("lr_low", ["optimizer.lr"])
    assert known.fix_text({"optimizer.lr": 0.1, "training.clip_norm": 1.0}) == (
        "set_params(lr=0.1, settings={'training.clip_norm': 1.0})"
    )


UNCLIPPED = {"training.clip_norm": None}

BAD_CALLS = {
    "no classes": (lambda x, y: MlpClassifier().partial_fit(x, y), DataError, "needs classes"),
    "negative weights": (
        lambda x, y: MlpClassifier().fit(x, y, sample_weight=1 - (np.arange(len(x)) == 7) * 2),
        DataError,
        r"row 8: .* zero \(-1\)",
    ),
    "a class without weight": (
        lambda x, y: MlpClassifier(class_weight={"setosa": 0}).fit(x, y),
        DataError,
        "'setosa' has none",
    ),
    "a learning rate that blows up": (
        lambda x, y: MlpRegressor(optimizer="sgd", lr=1e30, settings=UNCLIPPED).fit(x, x),
        NumericalError,
        "must be finite",
    ),
    "a name": (lambda x, y: MlpClassifier().fit(x, "kind"), DataError, "one value per row"),
    "text as numbers": (lambda x, y: MlpRegressor().fit(x, y), ValueError, "setosa"),
    "folds for partial_fit": (
        lambda x, y: MlpClassifier(folds=2).partial_fit(x, y, classes=np.unique(y)),
        UsageError,
        "folds and members must be None",
    ),
    "sets": (lambda x, y: MlpClassifier(2, **ALONE).fit(x, y).predict_set(x), UsageError, "folds"),
    "other classes of a warm start": (
        lambda x, y: MlpClassifier(2, epochs=1, warm_start=True).fit(x, y).fit(x, y == "setosa"),
        DataError,
        "must have the classes of the first fit",
    ),
    "not a loss": (lambda x, y: MlpRegressor(loss=3).fit(x, x), UsageError, r"loss: .*got 3\)"),
    "targets of a loss": (
        lambda x, y: MlpRegressor(loss="gamma").fit(x, x[:, 0] - 5),
        DataError,
        "row 2, column 'y'",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_errors_name_what_is_wrong(iris, name):
    call, error, message = BAD_CALLS[name]
    with pytest.raises(error, match=message), np.errstate(all="ignore"):
        call(*iris)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [n for n in sys.modules if n.startswith("mlpengine.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=re.escape(install_line("sklearn"))):
        import mlpengine.estimators  # noqa: F401


def test_a_fix_replaces_a_key_in_settings():
    given = {"settings": {"optimizer.lr": 10.0, "training.clip_norm": 1.0}}
    fix = keywords({"optimizer.lr": 0.1}, {"optimizer.lr": "lr"}, given)
    assert fix == {"lr": 0.1, "settings": {"training.clip_norm": 1.0}}

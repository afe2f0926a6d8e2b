"""Options of the estimators: class weights, schedules, backends, warm starts, labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import mlpengine
import mlpengine.estimators._rows as estimators
from mlpengine.core.errors import UsageError
from mlpengine.estimators import MlpClassifier, MlpRegressor

G = np.random.default_rng(0)
X = G.normal(size=(90, 4))
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.7, "rare", "usual")
SETTINGS = {"schedule": "constant", "training.clip_norm": None}
NEUTRAL = {"optimizer": "adam", "early_stopping": False, "settings": SETTINGS}
"""The defaults of the keys of configs, in place of those of a recipe."""

FEW = {"hidden": (6,), "epochs": 3, "random_state": 5, **NEUTRAL}


def with_settings(**options):
    """Return `FEW` with further settings; a double underscore stands for a dot."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    return FEW | {"settings": SETTINGS | given}


def test_class_weights_are_weights_of_rows():
    counts = {label: (label == Y).sum() for label in ("rare", "usual")}
    each = {label: len(Y) / (2 * count) for label, count in counts.items()}
    rows = np.array([each[label] for label in Y])
    plain = MlpClassifier(**FEW)
    expected = clone(plain).fit(X, Y, sample_weight=rows).predict_proba(X)
    for given in ("balanced", each):
        own = MlpClassifier(class_weight=given, **FEW).fit(X, Y)
        np.testing.assert_allclose(own.predict_proba(X), expected, rtol=1e-12)
    assert np.abs(clone(plain).fit(X, Y).predict_proba(X) - expected).max() > 1e-3


def test_predict_proba_of_one_row_makes_few_calls(monkeypatch):
    """The checks of scikit-learn and of its scaler would take three times as long as the row."""
    model = MlpClassifier(**FEW).fit(X, Y)
    named = MlpClassifier(**FEW).fit(pd.DataFrame(X, columns=list("abcd")), Y)
    expected = model.predict_proba(X)[:1]
    monkeypatch.setattr(StandardScaler, "transform", lambda *_: pytest.fail("checked again"))
    with monkeypatch.context() as patch:
        patch.setattr(estimators, "validate_data", lambda *_, **__: pytest.fail("checked again"))
        np.testing.assert_allclose(model.predict_proba(X[:1]), expected, rtol=1e-6)
    for wrong in (X[:1, :3], X[:0], X[0], X[:1] * 1j):
        with pytest.raises(ValueError, match=r"3 features|0 sample|1D array|Complex"):
            model.predict_proba(wrong)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        named.predict_proba(X[:1])
    np.testing.assert_allclose(model.predict_proba(X[:1].tolist()), expected, rtol=1e-6)


WRONG = {
    "a key": (with_settings(training__clip=1), "training.clip"),
    "a section": (with_settings(train__clip=1), "'training'"),
    "of tables": (with_settings(data__drop=["a"]), "data.drop"),
    "a parameter": (with_settings(training__folds=3), "training.folds"),
    "a nested parameter": ({"settings": {"training": {"folds": 3}}}, "training.folds: is not for"),
    "a key below a name": (with_settings(network__width=3), "network: unknown key"),
    "loss": ({"loss": "mae"}, "softmax_cross_entropy"),
    "activation": ({"activation": "rulu"}, "'identity'"),
    "an order": ({"loss": "ordinal"}, "numbers, in their order"),
    "class_weight": ({"class_weight": "even"}, "balanced"),
    "a label": ({"class_weight": {"blue": 2}}, "'blue'"),
    "a negative weight": ({"class_weight": {"rare": -1}}, "'rare'"),
    "only zeros": ({"class_weight": {"rare": 0, "usual": 0}}, "weight"),
    "a member type": ({"members": "tree"}, "'plain'"),
    "units of linear members": ({"members": ["linear"]}, "hidden: must be None"),
    "a frame": (with_settings(model__hidden=pd.DataFrame(X)), "hidden: must be"),
    "no epochs": ({"epochs": 0}, "epochs: must be at least 1"),
    "half a fold": ({"folds": 2.5}, "folds"),
    "all held out": ({"validation_fraction": 1, "early_stopping": True}, "data.split.validation"),
    "early_stopping": ({"early_stopping": "no"}, "True, False or None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_list_the_choices(name):
    options, text = WRONG[name]
    model = MlpClassifier(**(FEW | options))
    with pytest.raises((UsageError, mlpengine.DtypeError)) as error:
        model.fit(X, Y)
    assert text in str(error.value)
    assert not hasattr(model, "classes_")


LATER = {
    "one class": (lambda m: m.fit(X, ["rare"] * 90), "'rare'"),
    "other columns": (lambda m: m.set_params(hidden=0).fit(X[:, :2], Y), "hidden"),
    "several labels": (lambda m: m.set_params(epochs=0).fit(X, X > 0), "epochs"),
    "a huge number": (lambda m: m.fit(X * 1e200, Y), "row 1, column 'x0'"),
    "a huge row": (lambda m: m.partial_fit(X[:4] * 1e200, Y[:4]), "1e+100"),
    "a new label": (lambda m: m.partial_fit(X, ["new"] * 90), "'new'"),
}


@pytest.mark.parametrize("name", LATER)
def test_after_an_error_an_estimator_is_as_before(name):
    call, text = LATER[name]
    model = MlpClassifier(folds=2, **(FEW | {"early_stopping": True})).fit(X, Y)
    before, expected = {**vars(model)}, model.predict_proba(X)
    with pytest.raises(mlpengine.UsageError) as error:
        call(model)
    assert text in str(error.value)
    model.set_params(**{key: before[key] for key in model.get_params()})
    assert vars(model).keys() == before.keys()
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    assert (model.partial_fit(X, Y).predict_proba(X) != expected).any()


def test_what_a_fit_does_not_compute_does_not_stay_from_the_one_before():
    model = MlpRegressor(folds=2, **(FEW | {"early_stopping": None}))
    model.fit(X, X[:, 0]).set_params(folds=None, early_stopping=False)
    model.fit(X[:, :2], X[:, 0])
    assert not hasattr(model, "best_epochs_")
    with pytest.raises(UsageError, match="fit with folds first"):
        model.predict_interval(X[:, :2])


def test_parameters_that_change_after_a_fit_do_not_change_its_predictions():
    model = MlpRegressor(**FEW).fit(X, 100 + X[:, 0])
    expected = model.predict(X)
    np.testing.assert_array_equal(
        model.set_params(settings={"data.standardize": "none"}).predict(X), expected
    )
    with pytest.raises(mlpengine.UsageError, match="standardize"):
        model.partial_fit(X, 100 + X[:, 0])


TARGETS = {"number": X[:, 0] > 0, "two": X[:, :2] > 0}


@pytest.mark.parametrize("kind", [MlpClassifier, MlpRegressor])
@pytest.mark.parametrize("first", TARGETS)
def test_a_fit_that_goes_on_needs_targets_of_the_same_form(kind, first):
    """A regressor of two numbers learned one of them twice."""
    (other,) = TARGETS.keys() - {first}
    model = kind(warm_start=True, **FEW).fit(X, TARGETS[first] * 1)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(
            mlpengine.UsageError, match=r"columns of the first fit|one label|stay 1-D"
        ):
            learn(X, TARGETS[other] * 1)


@pytest.mark.parametrize("classes", [["rare"], [0.0, 1.0, np.nan], [0, 1]])
def test_classes_are_two_labels_or_more(classes):
    with pytest.raises(mlpengine.DataError, match="classes"):
        MlpClassifier(**FEW).partial_fit(X, Y.astype(object), classes)


@pytest.mark.parametrize("size", [1e308, 5e-324])
def test_weights_of_any_size_are_relative(size):
    model = MlpRegressor(**(FEW | {"early_stopping": True}))
    expected = clone(model).fit(X, X[:, 0], np.ones(90)).predict(X)
    np.testing.assert_allclose(model.fit(X, X[:, 0], np.full(90, size)).predict(X), expected)
    np.testing.assert_array_equal(model.predict(X), clone(model).fit(X, X[:, 0], size).predict(X))

"""Estimators within scikit-learn's own tools, on frames with gaps, texts and categories."""

import joblib
import numpy as np
import polars as pl
import pytest
from test_estimators import mixed

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from mlpengine.estimators import MlpClassifier, MlpRegressor

SMALL = {"hidden": 4, "epochs": 3, "members": "plain", "folds": 2, "lr": 0.05, "random_state": 0}


@pytest.fixture(scope="module")
def frame():
    x, y = mixed()
    return x, y, np.where(y > np.quantile(y, 0.7), "high", "low")


@pytest.mark.parametrize("scorer", [TunedThresholdClassifierCV, CalibratedClassifierCV])
def test_thresholds_and_calibration(scorer, frame):
    x, _, labels = frame
    options = {"scoring": "balanced_accuracy"} if scorer is TunedThresholdClassifierCV else {}
    model = scorer(MlpClassifier(**{**SMALL, "epochs": 20}), cv=2, **options).fit(x, labels)
    assert balanced_accuracy_score(labels, model.predict(x)) > 0.6
    assert model.predict_proba(x).shape == (len(x), 2)


def test_a_search_over_a_pipeline_that_keeps_frames(frame):
    x, y, _ = frame
    doubled = FunctionTransformer(lambda rows: rows.assign(twice=2 * rows.area))
    pipeline = make_pipeline(doubled, MlpRegressor(**SMALL))
    grid = {"mlpregressor__hidden": [2, 4], "mlpregressor__settings": [{"optimizer.lr": 0.02}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    best = search.best_estimator_[-1]
    assert best.feature_names_in_.tolist() == [*x.columns, "twice"]
    assert (best.predict(doubled.transform(x)) == search.predict(x)).all()


def test_two_fits_at_once_give_the_scores_of_one_after_the_other(frame):
    x, y, _ = frame
    with joblib.parallel_config(backend="threading"):  # processes take seconds to start
        one, two = (cross_val_score(MlpRegressor(**SMALL), x, y, cv=2, n_jobs=n) for n in (1, 2))
    assert one.tolist() == two.tolist()


def test_sample_weights_are_routed(frame):
    x, y, _ = frame
    weights = np.linspace(0, 2, len(y))
    with config_context(enable_metadata_routing=True):
        model = MlpRegressor(**SMALL).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        rows = np.arange(len(y))
        parts = [(rows[::2], rows[1::2])]
        found = cross_validate(model, x, y, cv=parts, params={"sample_weight": weights})
    own = MlpRegressor(**SMALL).fit(x.iloc[::2], y[::2], sample_weight=weights[::2])
    expected = own.score(x.iloc[1::2], y[1::2], sample_weight=weights[1::2])
    assert found["test_score"].tolist() == [expected]
    assert expected != MlpRegressor(**SMALL).fit(x.iloc[::2], y[::2]).score(
        x.iloc[1::2], y[1::2], sample_weight=weights[1::2]
    )


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_transformers_may_give_frames(kind, frame):
    x, y, _ = frame
    columns = make_column_transformer(
        (StandardScaler(), ["area"]), remainder="passthrough", verbose_feature_names_out=False
    )
    pipeline = make_pipeline(columns, MlpRegressor(**SMALL)).set_output(transform=kind)
    given = x if kind == "pandas" else pl.from_pandas(x)
    predicted = pipeline.fit(given, y).predict(given)
    assert pipeline[-1].feature_names_in_.tolist() == ["area", "town", "kind"]
    own = MlpRegressor(**SMALL).fit(columns.transform(given), y)
    assert (predicted == own.predict(columns.transform(given))).all()

"""scikit-learn's callbacks on the estimators, where scikit-learn has them (1.9 and later)."""

import numpy as np
import pytest

from mlpengine.core.errors import NumericalError

callback = pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

from sklearn.datasets import load_diabetes, make_regression  # noqa: E402

from mlpengine.estimators import MlpClassifier, MlpRegressor  # noqa: E402

ESTIMATORS = [MlpClassifier, MlpRegressor]


class Recorder:
    """A callback of scikit-learn that notes its calls and ends fitting after an epoch."""

    def __init__(self, stop_after=None):
        self.calls, self.scores, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(f"begin {context.task_name} {context.task_id}")

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.calls.append(f"end {context.task_name} {context.task_id}")
        if fitted_estimator is not None:
            weights = metadata["sample_weight"] if metadata else None
            self.scores.append((fitted_estimator, fitted_estimator.score(X, y, weights)))
        return context.task_name == "epoch" and context.task_id + 1 == self.stop_after

    def teardown(self, estimator, context):
        self.calls.append("teardown")


def rows_of(estimator, iris):
    return iris if estimator is MlpClassifier else load_diabetes(return_X_y=True)


@pytest.mark.parametrize(("estimator", "weighted"), [(MlpClassifier, True), (MlpRegressor, False)])
def test_callbacks_of_scikit_learn_are_called_for_each_epoch(estimator, weighted, iris):
    x, y = rows_of(estimator, iris)
    recorder, weights = Recorder(), np.linspace(0.0, 2.0, len(x)) if weighted else None
    options = {
        "hidden": (8,),
        "epochs": 3,
        "random_state": 0,
        "early_stopping": False,
        "settings": {"schedule": "constant"},
    }
    model = estimator(**options).set_callbacks(recorder).fit(x, y, weights)
    epochs = [f"{hook} epoch {i}" for i in range(3) for hook in ("begin", "end")]
    assert recorder.calls == ["setup", "begin fit 0", *epochs, "end fit 0", "teardown"]
    assert recorder.scores[-1][1] == pytest.approx(model.score(x, y, weights), rel=1e-12)
    for epochs, (fitted, score) in enumerate(recorder.scores, start=1):
        shorter = estimator(**{**options, "epochs": epochs}).fit(x, y, weights)
        assert np.array_equal(shorter.predict(x), fitted.predict(x))
        assert shorter.score(x, y, weights) == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_callback_of_scikit_learn_may_stop_the_fit(estimator, iris):
    recorder = Recorder(stop_after=2)
    model = estimator(epochs=9, random_state=0).set_callbacks(recorder)
    assert model.fit(*rows_of(estimator, iris)).n_iter_ == 2
    assert recorder.calls[-2:] == ["end fit 0", "teardown"]
    assert "begin epoch 2" not in recorder.calls


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # in the scores of a callback
def test_a_failing_fit_is_torn_down():
    recorder = Recorder()
    settings = {"training.clip_norm": None}
    model = MlpRegressor(optimizer="sgd", lr=1e30, settings=settings, random_state=0)
    model.set_callbacks(recorder)
    with pytest.raises(NumericalError):
        model.fit(*make_regression(50, 4, random_state=0))
    assert recorder.calls[-1] == "teardown"

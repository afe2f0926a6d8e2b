"""Classifier and regressor for scikit-learn; needs the extra ``sklearn``.

>>> from sklearn.datasets import load_iris
>>> x, y = load_iris(return_X_y=True)
>>> model = MlpClassifier(hidden=(16,), random_state=0).fit(x, y)
>>> bool(model.score(x, y) > 0.95)
True
"""

from mlpengine.core.errors import importing

with importing("mlpengine.estimators", "sklearn"):
    import sklearn  # noqa: F401

from mlpengine.estimators._classifier import MlpClassifier
from mlpengine.estimators._regressor import MlpRegressor

__all__ = ["MlpClassifier", "MlpRegressor"]

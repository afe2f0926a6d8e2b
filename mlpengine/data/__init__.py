"""Tables, features and rows of numbers: everything between a file and a network's input."""

from mlpengine.core.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {}, ("features", "tables"))

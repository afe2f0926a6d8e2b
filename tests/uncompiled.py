"""Programs whose C is made and not compiled: for tests of the text, at no compiler's price."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import MagicMock

import pytest

from mlpengine.backends.compiled import executor


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let steps and networks be compiled to nothing; none of them can run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "load_library", lambda *_, **__: MagicMock())
        yield

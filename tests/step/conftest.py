"""Steps on either backend."""

import pytest


@pytest.fixture(params=["numpy", "compiled"])
def backend(request):
    return request.param

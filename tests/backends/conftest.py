"""Compiled programs of the tests are kept for the session, away from the user's own."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def program_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    folder.chmod(0o700)
    before = os.environ.get("MLPENGINE_CACHE")
    os.environ["MLPENGINE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["MLPENGINE_CACHE"]
    else:
        os.environ["MLPENGINE_CACHE"] = before

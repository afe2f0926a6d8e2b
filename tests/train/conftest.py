"""Compiled programs of these tests are kept for the session, away from the user's own."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _program_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLPENGINE_CACHE", str(folder))
        yield

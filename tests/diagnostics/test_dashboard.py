"""The dashboard is a picture with six panels, in both themes, for any run that has a sample."""

import re
import sys
from io import BytesIO

import numpy as np
import pytest

from mlpengine import Mlp
from mlpengine.diagnostics import Diagnostics
from mlpengine.diagnostics.dashboard import save_dashboard
from mlpengine.errors import MissingExtraError, install_line

image = pytest.importorskip("matplotlib.image", reason="the extra plots is not installed")


def made_up(samples, activation="relu", layers=3):
    """Return diagnostics with random samples, some quantities unknown."""
    rng = np.random.default_rng(0)
    seen = Diagnostics(Mlp([4] * (layers + 1), activation=activation), baseline=1.0)
    seen.batch_size = 8
    for step in range(1, samples + 1):
        seen.values[:] = np.exp(rng.standard_normal(len(seen.columns))).tolist()
        for layer in range(layers):
            seen.values[seen.columns.index("dead_share", layer)] = np.nan
        seen.sampled = step
        seen.series.append(step * 50, seen.values)
    seen.close_epoch(1.0)
    return seen


@pytest.mark.parametrize(
    ("samples", "layers", "dark"), [(1, 1, False), (40, 3, True), (600, 40, False)]
)
def test_it_draws(tmp_path, samples, layers, dark):
    path = tmp_path / "dashboard.png"
    save_dashboard(made_up(samples, layers=layers), path, dark=dark, title="a $run_of_{x}$")
    picture = image.imread(BytesIO(path.read_bytes()))
    assert picture.shape[:2] == (1200, 2250)
    assert (picture[0, 0, :3].mean() < 0.2) == dark
    assert len(np.unique(picture[::7, ::7, :3].reshape(-1, 3), axis=0)) > 20


def test_numbers_that_are_missing_do_not_stop_it(tmp_path):
    seen = made_up(5)
    seen.series._values[:] = np.nan
    save_dashboard(seen, tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 10_000


def test_without_matplotlib_the_install_line_is_shown(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_line("plots"))):
        save_dashboard(made_up(3), tmp_path / "no.png")

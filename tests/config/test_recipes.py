"""The recipes that `init` writes out: every setting of them reaches the training."""

from dataclasses import replace

import pytest

from mlpengine.config import load_config
from mlpengine.config.proposal import propose
from mlpengine.config.reader import Document, parse_yaml
from mlpengine.core.errors import DataError
from mlpengine.data.features import profile
from mlpengine.data.tables import read_table
from mlpengine.settings.recipes import recipe


def load(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path)


def table(folder, rows=4500):
    path = folder / "rows.csv"
    lines = (f"{i % 97},{i % 13 / 7},{(i % 97) * 2.5 + i % 5}" for i in range(rows))
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    return read_table(path)


def proposal(rows):
    return propose(profile(rows, ["y"]), ["y"], source="rows.csv", schema="s.json")


def test_init_writes_the_recipe(tmp_path):
    rows = table(tmp_path)
    written = load(tmp_path, proposal(rows)).config.settings
    run = recipe("regression", rows.n_rows)
    assert written.network == run.network
    for name in ("optimizer", "schedule", "epochs", "batch_size", "clip_norm", "early_stopping"):
        assert getattr(written.training, name) == getattr(run.training, name)
    assert written.features.standardize == run.features.standardize


def test_a_proposal_that_cannot_be_read_is_refused(tmp_path):
    """Before, `init` wrote configs that `check` refused."""
    facts = profile(table(tmp_path, 900), ["y"])

    def text(count):
        drop = {f"{'long ' * 8}{k}": "each text is in one row alone" for k in range(count)}
        whole = replace(facts, drop=drop)
        return propose(whole, ["y"], source="rows.csv", schema="s.json")

    assert len(text(1_000)) > 64_000
    assert len(parse_yaml(text(1_000), "c", Document("c"))["data"]["drop"]) == 1_000
    with pytest.raises(DataError, match="30,000 columns"):
        text(30_000)


def test_comments_of_a_proposal_can_be_followed(tmp_path):
    lines = proposal(table(tmp_path, 900)).splitlines()
    (k,) = (k for k, line in enumerate(lines) if "remove the next two lines" in line)
    one = load(tmp_path, "\n".join(lines[: k + 1] + lines[k + 3 :]))
    assert (one.config.training.folds, one.config.training.members) == (None, ())


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (60, "plain, linear, smooth"),
        (900, "plain, piecewise, linear, smooth"),
        (4500, "piecewise, linear, smooth"),
    ],
)
def test_tables_of_any_size_with_folds_have_a_linear_model(rows, kinds, tmp_path):
    assert f"members: [{kinds}]" in proposal(table(tmp_path, rows))

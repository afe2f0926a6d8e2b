"""Configs that begin with another one."""

import pytest

from mlpengine.config import load_config
from mlpengine.config.load import Override
from mlpengine.core.errors import ConfigError

BASE = """\
data: {source: rows.csv, target: y, drop: [a, b]}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.2}
training: {epochs: 7, batch_size: 16}
"""


def load(tmp_path, text, base=BASE, *overrides):
    (tmp_path / "common").mkdir(exist_ok=True)
    (tmp_path / "common" / "rows.csv").write_text("a,b,y\n1,2,3\n")
    (tmp_path / "common" / "base.yaml").write_text(base)
    (tmp_path / "c.yaml").write_text(text)
    return load_config(tmp_path / "c.yaml", overrides)


def test_settings_of_the_base_hold_where_the_config_has_none(tmp_path):
    file = load(tmp_path, "base: common/base.yaml\ndata: {drop: [a]}\ntraining: {epochs: 9}\n")
    config = file.config
    assert (config.data.target, config.data.drop) == (["y"], ["a"])
    assert (config.training.epochs, config.training.batch_size) == (9, 16)
    assert (config.optimizer.name, config.optimizer.lr) == ("adamw", 0.01)
    assert file.find(config.data.source) == (tmp_path / "common" / "rows.csv").resolve()
    assert file.overridden == {"data.drop": (["a", "b"], ["a"]), "training.epochs": (7, 9)}
    again = tmp_path / "again.yaml"
    again.write_text(file.resolved())
    assert load_config(again).resolved() == file.resolved()


def test_another_name_is_another_option_and_an_override_wins(tmp_path):
    override = Override("--set training.epochs", ("training", "epochs"), "3")
    file = load(tmp_path, "base: common/base.yaml\noptimizer: sgd\n", BASE, override)
    assert (file.config.optimizer.name, file.config.training.epochs) == ("sgd", 3)


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        ("base: none.yaml\n", BASE, "none.yaml: cannot read the config"),
        ("base: common/base.yaml\n", "base: c.yaml\n", "base.yaml:1: base: the base of a config"),
        ("base: common/base.yaml\n", BASE + "modle: 3\n", "base.yaml:4: modle: unknown key"),
        ("base: [a]\n", BASE, "c.yaml:1: base: must be text"),
    ],
)
def test_what_is_wrong_with_a_base_is_named_where_it_stands(tmp_path, text, base, message):
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load(tmp_path, text, base)

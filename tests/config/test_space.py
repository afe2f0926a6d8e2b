"""Every mistake in the section `sweep`, and what is said about it."""

import pytest

from mlpengine.config import load_config, parse_override
from mlpengine.config.space import load_sweep, overrides
from mlpengine.core.errors import ConfigError

BASE = "data: {source: penguins}\n"
LR = "optimizer.lr: {log: [1e-4, 1e-1]}"


def space(entries, others=""):
    return f"{BASE}sweep:\n  space: {{{entries}}}\n{others}"


MISTAKES = {
    "no section": (BASE, "sweep: this section is required"),
    "no space": (BASE + "sweep: {trials: 3}", "sweep.space: this key is required (Key paths"),
    "empty space": (space(""), "sweep.space: must have a key, such as optimizer.lr: {log"),
    "misspelled option": (space(LR, "  trails: 3"), "trails: unknown key - did you mean 'trials"),
    "unknown key": (space("optimizer.lrr: {log: [1, 2]}"), "lrr: unknown key - did you mean 'lr'?"),
    "unknown kind": (space("optimizer.lr: {lgo: [1, 2]}"), "unknown key - did you mean 'log'?"),
    "no kind": (space("optimizer.lr: 3"), "must be a mapping of keys (got 3)"),
    "one bound": (space("optimizer.lr: {log: [1]}"), "log: must be a list of at least 2"),
    "log of zero": (space("optimizer.lr: {log: [0, 1]}"), "low must be greater than 0 (got 0)"),
    "low end": (space("optimizer.lr: {range: [-1, 1]}"), "must be at least 0.0 (got -1.0)"),
    "fraction": (space("training.batch_size: {range: [8, 16]}"), "a whole number (got 8.0)"),
    "choice of a list": (space("model.hidden: {choice: [x]}"), "hidden: must be a whole number"),
    "grid": (space(LR, "  sampler: grid"), "optimizer.lr: a grid takes choice or int"),
    "seed": (space("seed: {int: [0, 9]}"), "space.seed: is the same in all trials"),
    "loss": (space("loss: {choice: [mse, mae]}"), "loss: changes what the loss measures"),
    "no validation": (space(LR) + "data.split.validation=0", "sweep.metric: "),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistake(text, message, tmp_path):
    text, _, setting = text.partition("data.split.validation=")
    path = tmp_path / "s.yaml"
    path.write_text(text)
    settings = [parse_override(f"data.split.validation={setting}")] if setting else []
    with pytest.raises(ConfigError) as caught:
        load_sweep(path, settings)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_all_mistakes_are_listed_with_their_lines(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        f"{BASE}sweep:\n  space:\n    seed: {{int: [1, 2]}}\n    optimizer.lrr: {{choice: [1]}}\n"
        "    model.hidden: {choice: [[0], x]}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_sweep(path)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path}: 4 problems"
    assert [line.split(":")[1] for line in lines] == ["4", "5", "6", "6"]


def test_an_override_of_a_section_keeps_overrides_of_its_keys_in_any_order(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(space(f"{LR}, optimizer: {{choice: [sgd, adam]}}"))
    file = load_config(path, overrides({"optimizer.lr": 0.02, "optimizer": "sgd"}))
    assert (file.config.optimizer.name, file.config.optimizer.lr) == ("sgd", 0.02)
    assert "sweep" not in file.resolved()
    path.write_text("data: {source: digits}")
    texts = ["optimizer.lr=0.02", "model.blocks=1", "model.network=residual", "optimizer=sgd"]
    one, other = (load_config(path, map(parse_override, each)) for each in (texts, texts[::-1]))
    assert one.resolved() == other.resolved()
    assert (one.config.optimizer.lr, one.config.model.blocks) == (0.02, 1)


def test_every_combination_of_a_grid_once(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        space(
            "training.epochs: {int: [2, 4]}, model.hidden: {choice: [[8], []]}", "  sampler: grid"
        )
    )
    sweep = load_sweep(path)[1]
    grid = [tuple(map(str, values.values())) for values in sweep.grid]
    assert sorted(grid) == [(e, h) for e in "234" for h in ("[8]", "[]")]
    assert sweep.count == 6


def test_a_wrong_setting_is_not_blamed_on_the_file(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(f"{BASE}optimizer:\n  lr: 0.1\n")
    with pytest.raises(ConfigError, match=r"^--set optimizer.lr: must be at least 0"):
        load_config(path, [parse_override("optimizer.lr=-1")])

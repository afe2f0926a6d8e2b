"""The settings that verdicts ask for: combined, written into a config, carried out."""

import json

import pytest

from mlpengine.config import load_config
from mlpengine.config.fixed_config import corrections, fixed_config
from mlpengine.config.sections import plain
from mlpengine.core.errors import ConfigError, UsageError
from mlpengine.diagnostics import Verdict, combined_fix
from mlpengine.diagnostics.verdict import Verdicts, two_digits, without
from mlpengine.optim import Adam, Optimizer
from mlpengine.settings import FeatureSettings, Fix, NetworkSettings, TrainingSettings


def verdict(name, *fix, **given):
    reason = {} if fix else {"no_fix": "the data must be checked"}
    return Verdict(name, None, "Odd", "7 of 8.", 7.0, 1.0, "Look.", fix, **reason, **given)


DROPOUT = verdict("dropout_high", Fix(NetworkSettings, "dropout", 0.2))
RATE = verdict("lr_high", Fix(Optimizer, "lr", 1e-3))
SLOWER = verdict("spikes", Fix(Optimizer, "lr", 3e-4), Fix(TrainingSettings, "clip_norm", 1.0))
LEAKS = [verdict("leak", Fix(FeatureSettings, "drop", ("id", name))) for name in ("price", "fee")]
LABELS = verdict("labels")


def test_of_two_values_the_first_counts_and_dropped_columns_add_up():
    settings = combined_fix([LABELS, RATE, SLOWER, *LEAKS])
    values = {key: value for key, (value, _) in settings.items()}
    assert values == {
        "optimizer.lr": 1e-3,
        "training.clip_norm": 1.0,
        "data.drop": ["id", "price", "fee"],
    }
    given = {"optimizer": "sgd", "seed": 1, "data": {"drop": "x"}}
    listed = Verdicts([LABELS, RATE, SLOWER, *LEAKS], in_loop=True, settings=given)
    assert listed.fix["optimizer"] == {"name": "sgd", "lr": 1e-3}
    assert (listed.fix["seed"], listed.fix["data"]["drop"]) == (1, ["x", "id", "price", "fee"])
    assert listed.fix_text({"data.drop": ["a"], "optimizer.lr": 1}) == "optimizer(..., lr=1)"
    assert [settings[key][1] for key in ("optimizer.lr", "training.clip_norm")] == [RATE, SLOWER]
    for name in ("standardize", "standardize_target"):
        raw = verdict("target_scale", Fix(FeatureSettings, name, True))
        assert [*combined_fix([raw, RATE])] == [f"data.{name}"]


def test_one_has_two_digits():
    values = (1.0, 0.35, 430.0, 1 / (1 - 0.99))
    assert [two_digits(value) for value in values] == ["1.0", "0.35", "430", "100"]


def test_silenced_verdicts_are_left_out():
    assert without([LABELS, RATE], ["lr_high"]) == [LABELS]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "data: {source: penguins}\n"
        "model: {hidden: 16, dropout: 0.9}\n"
        "optimizer: {name: sgd, lr: 0.5}\n"
        "training: {epochs: 3, clip_norm: 2.0, early_stopping: true}\n"
    )
    return path


def flat(file):
    return json.loads(json.dumps(plain(file.config)))


def test_a_fixed_config_is_the_config_with_these_settings_alone(config, tmp_path):
    text = fixed_config(config, [DROPOUT, RATE, LABELS])
    path = tmp_path / "better.yaml"
    path.write_text(text)
    wanted, better = flat(load_config(config)), flat(load_config(path))
    wanted["model"]["dropout"] = [0.2]
    wanted["optimizer"]["lr"] = 1e-3
    wanted["name"], wanted["data"]["split"]["validation"] = "c", 0.15
    assert better == wanted
    lines = text.splitlines()
    assert lines[0] == f"# {LABELS} (no setting: the data must be checked)"
    place = lines.index("  dropout: [0.2]")
    assert lines[place - 1] == f"  # {DROPOUT} (was [0.9])"
    assert len(lines) < 40, "settings that equal their defaults are written"


def test_a_fix_that_equals_the_default_is_written(config):
    assert "lr: 0.01" in fixed_config(config, [verdict("lr_high", Fix(Optimizer, "lr", 0.01))])


def test_a_fix_that_no_option_takes_is_refused(config):
    with pytest.raises(UsageError, match="NetworkSettings: dropuot: there is no such option"):
        Fix(NetworkSettings, "dropuot", 0.2)
    with pytest.raises(ConfigError, match=r"model\.dropout: must be less than 1"):
        fixed_config(config, [verdict("dropout_high", Fix(NetworkSettings, "dropout", 1.5))])


def test_a_setting_that_the_config_does_not_take_is_refused(config):
    momentum = verdict("momentum_high", Fix(Adam, "betas", (0.9, 0.999)))
    with pytest.raises(ConfigError, match=r"optimizer\.betas: unknown key"):
        fixed_config(config, [momentum])


def test_smooth_members_leave_a_config_that_gets_classes(config):
    codes = verdict("class_codes", Fix(FeatureSettings, "task", "classification"))
    members = "training: {folds: 2, members: [plain, smooth]}"
    config.write_text(config.read_text().replace("training: {epochs: 3,", f"{members[:-1]},"))
    file = load_config(config)
    wanted = {"data.task": "classification", "training.members": []}
    assert corrections([codes], file) == wanted
    assert "task: classification" in fixed_config(config, [codes])

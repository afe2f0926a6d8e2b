"""Every mistake in a config, and what is said about it."""

import pytest

from mlpengine.config import load_config, parse_override
from mlpengine.core.errors import ConfigError, UsageError

SOUND = "data: {source: digits}\n"


def load(tmp_path, content, *settings):
    path = tmp_path / "c.yaml"
    path.write_text(content)
    return load_config(path, [parse_override(text) for text in settings])


def complaint(tmp_path, content, *settings):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, content, *settings)
    assert caught.value.exit_code == 2
    return str(caught.value)


MISTAKES = {
    "base: other.yaml": "base: unknown key (valid here: ",
    "modle: {}": ":2: modle: unknown key - did you mean 'model'?",
    "model: {hidden: [100000000]}": "hidden[0]: must be at most 1000000 (got 100000000)",
    "model: {foo: 1}": "model.foo: unknown key (valid here: network",
    "optimizer: {name: sgd, betas: [0, 0]}": "betas: unknown key (valid here: name",
    "optimizer: {learning_rate: 1}": "learning_rate: unknown key - did you mean 'optimizer.lr'",
    "optimizer: adm": "(got 'adm') - did you mean 'adam'",
    "model: {hidden: [3, 3], activation: [relu, rlu]}": "activation[1]: must be one of",
    "seed: 1.5": "seed: must be a whole number (got 1.5)",
    "training.early_stopping.patience: 3": "write training: {early_stopping: {patience: ...}}",
    "schedule: null": "schedule: must be one of 'constant', ",
    "model: {}\n? [a]\n: 1": ":3: a key must be one word",
    "data: {source: digits, target: 2020}": "(got 2020); write it in quotes",
    "data: {source: digits, classes: [null]}": '(got nothing); write "null"',
    "data: {source: digits, classes: [?]}": "(got a mapping); put - and ? in quotes",
    "data:\n  source: digits\n  classes:\n  - -": "(got [None]); put - and ? in quotes",
    "data: {source: digits, classes: [true]}": "(got true); write it in quotes",
    "data:\n  source:digits": ":1: data: must be a mapping of keys (got 'source:digits')",
    "data: {source: digits, target:y}": "data.target:y: a space is needed",
    "model: [1]": "model: must be a mapping of keys (got [1])",
    "loss: {name: huber, delta: 0}": "loss.delta: must be greater than 0.0 (got 0)",
    "optimizer: {lr: .inf}": "lr: must be a finite number (got inf)",
    "data:\n  source: digits\n  split: {validation: 0.5, test: 0.5}": ":3: data.split: validation",
    "model: {hidden: [3], activation: [relu, relu]}": "model.activation: give one activation",
    "model: {hidden: 64, 32}": "model.32: a list needs brackets: write hidden: [64, 32]",
    "loss: {name: huber, delta: 1,5}": "loss.5: a decimal comma ends the value: write delta: 1.5",
    "loss: formula": "loss.formula: this key is required",
    "loss: {quantile: {levels: [0.5]}}": "loss.name: this key is required",
    "data: {source: digits, features: [a, b]}": "(got ['a', 'b']); write features: {",
    "data: {source: digits, features: {a: maximum(b, 0)}}": "formula without quotes: put it in",
    "data: {source: digits, features: {ab: null}}": "leave it out, or give a formula",
    "training:\n- epochs: 2": "(got [{'epochs': 2}]); leave out",
    "model: [64, 64]": "(got [64, 64]); write model: {hidden: [64, 64]}",
    "data: {source: digits, split: {test: 20}}": "it is a share: write 0.2",
    "model: {dropout: '0.1'}": "must be a number (got '0.1'); write 0.1, without quotes",
    "training: {folds: None}": "(got 'None'); write null",
    "data: {target: y}": ".feather .arrow))",
    "training: {epochs: 1e2}": "epochs: must be a whole number (got 100.0); write 100",
    "optimizer: adam lr=0.1": "write {name: adam, KEY: VALUE}",
    "training: {patience: 5}": "did you mean 'training.early_stopping.patience'",
    "data: {source: digits, split: [0.7, 0.2, 0.1]}": "(got [0.7, 0.2, 0.1]); write split: {",
    "sweep: {space: {optimizer.lr: [1e-4, 0.1]}}": "write optimizer.lr: {choice: [A, B]}",
    "data: {source: digits, split: {group: a, time: b}}": "data.split.time: give group",
    "data: {source: digits, missing: [1]}": "'error' or a number (got [1])",
    "name: a/b": "name: must be letters, digits, dots and dashes only",
    "optimizer: {betas: [0]}": "betas: must be a list of at least 2 (got",
    "optimizer: {lr: " + "9" * 400 + "}": "optimizer.lr: must be",
    "data: {source: digits, split: {validation: 0}}\ntraining:\n  early_stopping: true": (
        ":3: training.early_stopping: early stopping needs"
    ),
}
"""Lines below the data of a config, or a config with its data, and a part of the error."""


@pytest.mark.parametrize("lines", MISTAKES)
def test_mistake(lines, tmp_path):
    found = complaint(tmp_path, lines if lines.startswith("data") else SOUND + lines)
    assert MISTAKES[lines] in found
    assert len(found.splitlines()) == 1
    assert found.startswith(str(tmp_path / "c.yaml") + ":")


def test_a_config_needs_data(tmp_path):
    assert "data: this key is required" in complaint(tmp_path, "seed: 1")


def test_bounds_of_a_space_need_brackets(tmp_path):
    found = complaint(tmp_path, SOUND + "sweep: {space: {optimizer.lr: {log: 1, 5}}}")
    assert "sweep.space.optimizer.lr.5: a list needs brackets: write log: [1, 5]" in found
    assert "sweep.space.optimizer.lr.log: must be a list (got 1)" in found


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path):
    content = "seed: x\ndata:\n  source: digits\n  targt: a\ntraining: {epochs: 0, lr: 1}\n"
    lines = complaint(tmp_path, content).splitlines()
    assert lines[0].endswith("4 problems")
    assert [line.split(":")[1] for line in lines[1:]] == ["1", "4", "5", "5"]


SETTINGS = {
    "optimizer.lr=1e-2": lambda c: (c.optimizer.name, c.optimizer.lr) == ("sgd", 0.01),
    "model.hidden=[3, 4]": lambda c: c.model.hidden == (3, 4),
    "data.split={test: 0.5}": lambda c: c.data.split.test == 0.5,
    "data.target=no": lambda c: c.data.target == ("no",),
    "schedule.name=cosine": lambda c: c.schedule.name == "cosine",
    "training.early_stopping.patience=7": lambda c: c.training.early_stopping.patience == 7,
    "data.na_values=-": lambda c: c.data.na_values == ("-",),
    "data.source=a=b.csv": lambda c: c.data.source == "a=b.csv",
    "sweep.space.optimizer.lr.log=[1, 2]": lambda c: c.sweep.space["optimizer.lr"].log == [1, 2],
    "  seed =  4": lambda c: c.seed == 4,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting(setting, tmp_path):
    content = SOUND + "training: {early_stopping: false}\noptimizer: sgd\nseed: 1\n"
    assert SETTINGS[setting](load(tmp_path, content, "seed=2", setting).config)


WRONG_SETTINGS = {
    "value": ("optimizer.lr=fast", "--set optimizer.lr: must be a number"),
    "key": ("model.hiden=[3]", "--set model.hiden: unknown key - did you mean"),
    "new section": ("modle.x=3", "--set modle.x: modle: unknown key - did you mean 'model'?"),
    "element": ("model.hidden.0=3", "hidden is a list: set it whole, as hidden=[...]"),
    "YAML": ("model.hidden=[", "--set model.hidden: not valid YAML: [ needs"),
    "empty": ("data.source=", "--set data.source: must be text"),
    "twice": ("data.drop=[a, a]", "--set data.drop: target,"),
    "percent": ("data.where=%d/%m", "begins with % must be in quotes"),
    "tab": (r"data.delimiter=\t", r'write "\t", in double quotes'),
    "another section": (
        "schedule.every=3",
        "'diagnostics.every'? (valid here: name, warmup_epochs)",
    ),
    "alias": ("model.hidden=*x", "--set model.hidden: aliases are not allowed"),
    "a value with sections": ("seed.a=3", "seed: must be a whole number (got a mapping)"),
}


@pytest.mark.parametrize("case", WRONG_SETTINGS)
def test_wrong_setting(case, tmp_path):
    setting, message = WRONG_SETTINGS[case]
    content = SOUND + "seed: 3\nmodel: {hidden: [4]}\n"
    assert message in complaint(tmp_path, content, setting)


@pytest.mark.parametrize("text", ["seed", "=3", "a..b=3", ".a=1", ""])
def test_a_setting_needs_a_key_and_a_value(text):
    with pytest.raises(UsageError, match=r"write it as section\.key=value"):
        parse_override(text)


SHORT_FORMS = {
    "optimizer: sgd": lambda c: c.optimizer.name == "sgd" and c.optimizer.lr == 0.01,
    "optimizer: {lr: 1}": lambda c: c.optimizer.name == "adam",
    "model: {activation: tanh}": lambda c: c.model.activation == ("tanh",),
    "training: {early_stopping: true}": lambda c: c.training.early_stopping.patience == 20,
    "training: {early_stopping: false}": lambda c: c.training.early_stopping is None,
    "optimizer: {groups: {biases: {lr: 0.1, weight_decay: 0}}}": (
        lambda c: c.optimizer.groups["biases"].weight_decay == 0
    ),
}


@pytest.mark.parametrize("content", SHORT_FORMS)
def test_short_form(content, tmp_path):
    assert SHORT_FORMS[content](load(tmp_path, SOUND + content).config)


def test_the_resolved_config_says_the_same_from_anywhere(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    content = "data: {source: rows.csv, target: b}\noptimizer: {lr: 1e-8}\nloss: huber\n"
    first = load(tmp_path, content, "model.activation=tanh")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    second = load(elsewhere, first.resolved())
    assert second.config.data.source == str(tmp_path / "rows.csv")
    assert (second.name, second.resolved()) == ("c", first.resolved())
    assert second.config.optimizer == first.config.optimizer


def test_a_data_file_is_looked_for_beside_the_config_first(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    file = load(tmp_path, SOUND)
    for folder in (here, tmp_path):
        (folder / "rows.csv").write_text("")
        assert file.find("rows.csv") == folder / "rows.csv"
    assert file.find("none.csv") is None


def test_no_value_is_converted_silently(tmp_path):
    """Of an option, a section, a named option, and a list."""
    for content in (
        *("training: {epochs: '3'}", "training: {clip_norm: true}", "training: {freeze: [1.5]}"),
        *("seed: true", "name: 5", "diagnostics: 3", "optimizer: {lr: '1e-3'}"),
        *("sweep: {space: {seed: {int: [true, 2]}}}", "training: {drop_last: 'no'}"),
    ):
        assert "must be" in complaint(tmp_path, SOUND + content)

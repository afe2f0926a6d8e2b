import pytest

from mlpengine.config import load_config, parse_override
from mlpengine.config.renamed import RENAMED
from mlpengine.config.schema import Config
from mlpengine.errors import ConfigError


def written(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text("data: {source: digits}\n" + text)
    return path


def test_an_old_key_is_accepted_with_a_warning(tmp_path, caplog):
    path = written(tmp_path, "training:\n  epochs: 3\n  checkpointing: balanced\n")
    file = load_config(path)
    assert file.config.training.rematerialization == "balanced"
    assert f"{path}:4: training.checkpointing is called training.rematerialization" in caplog.text
    caplog.clear()
    path.write_text(file.resolved())
    assert load_config(path).config.training.rematerialization == "balanced"
    assert caplog.text == ""


def test_an_old_key_of_an_override(tmp_path, caplog):
    override = parse_override("training.checkpointing=balanced")
    file = load_config(written(tmp_path, ""), [override])
    assert file.config.training.rematerialization == "balanced"
    assert "--set training.checkpointing: training.checkpointing is called" in caplog.text


def test_a_wrong_value_of_an_old_key_is_reported_at_its_line(tmp_path):
    path = written(tmp_path, "training:\n  checkpointing: often\n")
    with pytest.raises(ConfigError, match=r"c.yaml:3: training.rematerialization: must be one of"):
        load_config(path)


def test_both_names_are_one_too_many(tmp_path):
    text = "training:\n  checkpointing: keep\n  rematerialization: keep\n"
    with pytest.raises(ConfigError, match=r"c.yaml:3: training.checkpointing: is called"):
        load_config(written(tmp_path, text))


@pytest.mark.parametrize("path", RENAMED)
def test_new_names_exist_and_old_ones_do_not(path):
    fields = Config.model_fields
    for key in path[:-1]:
        fields = fields[key].annotation.model_fields
    assert RENAMED[path] in fields
    assert path[-1] not in fields

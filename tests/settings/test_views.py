"""Recipes are settings, and limits hold for classes and configs alike."""

from typing import Annotated, Any, get_args, get_origin

import pytest

from mlpengine.config import load_config
from mlpengine.config.schema import reader
from mlpengine.config.sections import sections_of
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits
from mlpengine.settings.base import options_of
from mlpengine.settings.families import LOSS, OPTIMIZER, SCHEDULE, model_of
from mlpengine.settings.recipes import recipe


def least(kind: Any) -> float | None:
    """Return the lower limit of a number, from its annotation."""
    if get_origin(kind) is Annotated:
        for limit in get_args(kind)[1:]:
            if isinstance(limit, Limits):
                return limit.above if limit.at_least is None else limit.at_least
    return next((low for one in get_args(kind) if (low := least(one)) is not None), None)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_recipes_are_settings_that_a_config_gives_back(task, tmp_path):
    for rows in (10, 2_000, 50_000, 1_000_000):
        run = recipe(task, rows)
        sections = sections_of(run)
        sections["data"] = {"source": "digits", "task": task, **sections.get("data", {})}
        given = reader().validate_python(sections).settings
        assert given.network == run.network
        assert given.training == run.training
        assert given.features.standardize == run.features.standardize


def test_values_beyond_limits_are_refused_by_class_and_config_alike(tmp_path):
    path = tmp_path / "c.yaml"
    refused = 0
    for family in (LOSS, OPTIMIZER, SCHEDULE):
        for name, kind in family.registry.items():
            of = family.of(kind)
            for option in options_of(of).values():
                low = least(option.type)
                if low is None or isinstance(option.default, tuple):
                    continue
                with pytest.raises(UsageError, match=option.name):
                    of(**{option.name: low - 1})
                if not option.given:
                    with pytest.raises(ValueError, match="greater than"):
                        model_of(of, name).model_validate({"name": name, option.key: low - 1})
                refused += 1
    assert refused > 30
    path.write_text("data: {source: digits}\ntraining: {epochs: 0}\n")
    with pytest.raises(UsageError, match=r"training\.epochs: must be at least 1"):
        load_config(path)

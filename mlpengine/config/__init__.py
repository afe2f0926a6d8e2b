"""Configs: from YAML to checked objects, or to an error that lists every problem."""

from mlpengine.config.load import ConfigFile, Override, load_config, parse_override
from mlpengine.config.schema import Config, json_schema

__all__ = ["Config", "ConfigFile", "Override", "json_schema", "load_config", "parse_override"]

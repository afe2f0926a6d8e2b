"""Configs: YAML in, checked objects out, or every problem at once."""

from mlpengine.config.load import ConfigFile, Override, load_config, parse_override
from mlpengine.config.schema import Config, json_schema

__all__ = ["Config", "ConfigFile", "Override", "json_schema", "load_config", "parse_override"]

"""Reading a YAML file of parameters: a mapping in which every key stands once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pfrnn.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"


class _TwiceError(Exception):
    """A key stands twice in one mapping."""


class _Loader(yaml.SafeLoader):
    """Safe YAML; the standard loader lets the second of two equal keys win, silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                first = lines[key.value]
                raise _TwiceError(
                    f"line {line}: the key {key.value!r} stands there and in line {first}; keep one"
                )
            lines[key.value] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(path: Path, cure: str = "name one that is there") -> dict[str, Any]:
    """Read a file; an empty one is an empty mapping.

    Args:
        path: the file.
        cure: what to do where it is missing, for the end of the message.

    Raises:
        ConfigError: it is missing, not YAML, not a mapping, or a key stands twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; {cure}") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: a folder; expected a YAML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error}); expected a YAML file") from error
    try:
        # The loader is a SafeLoader: it makes plain data only.
        values = yaml.load(text, _Loader)
    except _TwiceError as error:
        raise ConfigError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping at the top, got {type(values).__name__}")
    return values

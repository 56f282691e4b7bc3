"""Files of settings: TOML whose tables are the fields of frozen dataclasses.

What can be set is what is written in the dataclasses; a key that is not there is refused with the nearest names, and a
value of another type by `sureshot.data.typed_values`.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from sureshot.data.checks import near

Section = TypeVar("Section")
Settings = TypeVar("Settings")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file; a ValueError in one line for what is none."""
    place = Path(path)
    try:
        return tomllib.loads(place.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{place} is not a TOML file: it is no text") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{place} is not a TOML file: {error}") from None


def from_file(
    path: str | os.PathLike[str], make: Callable[[dict[str, Any]], Settings], settings: Sequence[str] = ()
) -> Settings:
    """What is made of the tables of a TOML file, with some keys replaced; errors name the file."""
    tables = read_toml(path)
    for setting in settings:
        _replace(tables, setting)
    try:
        return make(tables)
    except ValueError as error:
        raise ValueError(f"{Path(path)}: {error}") from None


def _replace(tables: dict[str, Any], setting: str) -> None:
    """Put ``section.key=value`` into the nested tables."""
    path, separator, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not separator or (len(keys) < 2 and keys != ["preset"]) or not all(keys):
        raise ValueError(f"--set {setting}: expected SECTION.KEY=VALUE, for instance --set training.episodes=1000")
    table = tables
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {setting}: {key} is not a section of keys")
    table[keys[-1]] = toml_value(text)


def toml_value(text: str) -> Any:
    """A value as TOML has it, or plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def section(name: str, kind: type[Section], table: Mapping[str, Any]) -> Section:
    """A dataclass from its table, which is called `name` in messages."""
    from sureshot.data.typed_values import typed_value

    hints = get_type_hints(kind)
    known = dataclasses.fields(kind)  # type: ignore[arg-type]
    for key in table:
        if key not in hints:
            raise ValueError(f"unknown key {name}.{key}{near(key, hints)}; keys of [{name}]: {', '.join(hints)}")
    for f in known:
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in table:
            raise ValueError(f"the key {name}.{f.name} is missing")
    return kind(**{key: typed_value(f"{name}.{key}", hints[key], value) for key, value in table.items()})

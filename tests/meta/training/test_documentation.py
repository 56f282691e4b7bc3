"""The settings that the guide shows are the settings that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sureshot.meta.training import TrainingConfig

GUIDE = Path(__file__).parents[3] / "docs" / "meta-training.md"


@pytest.fixture(scope="module")
def shown() -> str:
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return max(blocks, key=len)


def test_the_values_shown_are_the_defaults(shown: str) -> None:
    config = TrainingConfig.from_dict(tomllib.loads(shown))
    given = config.as_dict()
    bare = {section: {"name": given[section]["name"]} for section in ("data", "learner")}
    defaults = TrainingConfig.from_dict(bare).as_dict()
    for section in ("data", "backbone"):
        given[section].pop("options")
        defaults[section].pop("options")
    assert given == defaults


def test_every_setting_is_shown(shown: str) -> None:
    defaults = TrainingConfig.from_dict({"data": {"name": "a"}, "learner": {"name": "b"}}).as_dict()
    for section, keys in defaults.items():
        part = shown.split(f"[{section}]", 1)[1].split("\n[", 1)[0]
        for key in keys:
            assert re.search(rf"^(# )?{key} = ", part, re.MULTILINE), f"{section}.{key} is not in the guide"

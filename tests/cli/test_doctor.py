"""``sureshot doctor`` knows what the package needs and what is optional."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sureshot.cli.doctor import _OPTIONAL, _REQUIRED

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def packages(requirements: Sequence[str]) -> set[str]:
    """Names of requirements such as "torch>=2.5"."""
    found = [re.match(r"[\w-]+", requirement) for requirement in requirements]
    return {match[0] for match in found if match is not None}


def test_what_is_required_is_what_the_project_depends_on() -> None:
    assert set(_REQUIRED) == packages(PROJECT["dependencies"])


@pytest.mark.parametrize("name", list(_OPTIONAL))
def test_the_command_for_an_optional_package_installs_it(name: str) -> None:
    extra = re.search(r"python -m pip install 'sureshot\[(\w+)\]'$", _OPTIONAL[name])
    assert extra is not None
    assert name in packages(PROJECT["optional-dependencies"][extra[1]])
    assert name in packages(PROJECT["optional-dependencies"]["test"])


def test_the_list_names_every_optional_package(run: Callable[..., Any]) -> None:
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.stderr
    listed = json.loads(result.stdout)["extras"]
    assert {name: extra["needed_for"] for name, extra in listed.items()} == _OPTIONAL
    text = run("doctor").stdout
    assert all(name in text for name in _OPTIONAL)

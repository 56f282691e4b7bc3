"""The command line, reports and the demonstration see of estimators what a user of the library sees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sureshot

OF_NAMED_TUPLES = ("_replace", "_asdict", "_fields")
FOLDER = Path(sureshot.__file__).parent
FILES = [str(path.relative_to(FOLDER)) for name in ("cli", "report", "demo") for path in (FOLDER / name).rglob("*.py")]


@pytest.mark.parametrize("file", FILES)
def test_no_file_touches_what_an_estimator_keeps_for_itself(file: str) -> None:
    tree = ast.parse((FOLDER / file).read_text(encoding="utf-8"))
    touched = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not of_itself(node)]
    asked = [
        node.args[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
        if isinstance(node.args[1], ast.Constant)
    ]
    private = [name for name in (*touched, *asked) if str(name).startswith("_") and not str(name).endswith("__")]
    assert not set(private) - set(OF_NAMED_TUPLES)


def of_itself(node: ast.Attribute) -> bool:
    """Whether it is an attribute of the object or class whose method looks at it."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")

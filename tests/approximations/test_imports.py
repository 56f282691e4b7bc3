"""Approximations know kernels and Gaussian problems, and nothing of labels."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sureshot

BELOW = {"approximations", "gaussian", "kernels", "computing", "members", "warned"}
SOURCES = sorted((Path(sureshot.__file__).parent / "approximations").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_imports_point_down(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sureshot"):
            assert (node.module or "").split(".")[1] in BELOW, node.module

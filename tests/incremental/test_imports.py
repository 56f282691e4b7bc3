"""`incremental` knows trees, what is below them, and data; no estimators and no learners of tasks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sureshot

FOLDER = Path(sureshot.__file__).parent / "incremental"
BELOW = ("gaussian", "kernels", "likelihoods", "inference", "tree", "metrics", "data", "incremental", "members")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.py")), ids=lambda path: path.name)
def test_imports_point_down(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sureshot"):
            assert (node.module or "").split(".")[1] in BELOW, node.module

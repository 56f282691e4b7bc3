"""`incremental` knows trees, what is below them, and data; networks only where it trains them; nothing above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sureshot

FOLDER = Path(sureshot.__file__).parent / "incremental"
BELOW = {
    "computing",
    "gaussian",
    "approximations",
    "kernels",
    "likelihoods",
    "inference",
    "tree",
    "metrics",
    "data",
    "incremental",
}
BELOW |= {"members", "progress", "ranges"}
NETWORKS = {"deep", "networks", "persistence"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.py")), ids=lambda path: path.name)
def test_imports_point_down(path: Path) -> None:
    below = BELOW | NETWORKS if path.parent.name == "trained" else BELOW
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sureshot"):
            assert (node.module or "").split(".")[1] in below, node.module
            assert path.parent.name == "trained" or "trained" not in (node.module or ""), node.module

"""Networks know neither tasks nor data."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ALLOWED = (
    "sureshot.networks",
    "sureshot.persistence",
    *("sureshot.members", "sureshot.plugins", "sureshot.progress", "sureshot.lazy", "sureshot.ranges"),
)
SOURCES = sorted((Path(__file__).parents[2] / "src" / "sureshot" / "networks").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_above_networks_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        for name in names:
            if name.split(".")[0] == "sureshot":
                assert name.startswith(ALLOWED), name

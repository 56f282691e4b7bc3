"""Tests on real data, which is not part of the project, are marked ``real_data`` and skipped where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("no deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path(os.environ.get("SURESHOT_DATA", "") or "/nowhere").is_dir():
        return
    for item in items:
        if item.get_closest_marker("real_data"):
            item.add_marker(pytest.mark.skip(reason="SURESHOT_DATA does not name a folder of data"))

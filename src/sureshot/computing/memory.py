"""How much memory may be used, asked before it is taken."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?(e[0-9]+)?)\s*((?P<prefix>[kmgt])(?P<binary>i)?)?b?", re.IGNORECASE)
_CONTAINER = Path("/sys/fs/cgroup")
_GROUPS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
_FILES = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)


def memory_budget(limit: Any) -> float:
    """Bytes that may be used: as stated, such as 2e9, "2GB" or "1.5 GiB", or on "auto" four fifths of what is free."""
    if isinstance(limit, str) and limit == "auto":
        return 0.8 * free_memory()
    number = _bytes(limit) if isinstance(limit, str) else limit
    if not isinstance(number, int | float | np.integer | np.floating) or isinstance(number, bool) or not number > 0:
        raise ValueError(
            f"memory_limit must be 'auto', a positive number of bytes, or a size such as '2GB'; got {limit!r}."
        )
    return float(number)


def free_memory() -> float:
    """Bytes that this process can have without anything being swapped out, within the bounds of its container.

    What the system holds of files only to have them at hand counts as free.
    """
    free = float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE)
    if found:
        free = float(found[1]) * 1024
    for limit, used in _GROUPS:
        bounds = [_text(_CONTAINER / name).strip() for name in (limit, used)]
        if all(bound.isdigit() for bound in bounds):
            files = _FILES.search(_text((_CONTAINER / used).with_name("memory.stat")))
            free = min(free, max(0.0, float(bounds[0]) - float(bounds[1]) + float(files[1] if files else 0)))
    return free


def in_bytes(number: float) -> str:
    """A number of bytes for people, such as "3.2 GB"."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= 0.95 * size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"


def _bytes(text: str) -> float | None:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    power = " kmgt".index((found["prefix"] or " ").lower())
    return float(found["number"]) * (1024 if found["binary"] else 1000) ** power


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""

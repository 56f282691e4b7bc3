"""On what a result was computed: the first thing to ask when two results differ."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

PACKAGES = (
    "sureshot",
    "torch",
    "gpytorch",
    "linear_operator",
    "scikit-learn",
    "numpy",
    "scipy",
    "pandas",
    "matplotlib",
)


def environment() -> dict[str, str | int]:
    """Versions, device and threads, by name, ready for JSON.

    The device is the accelerator that torch would use; threads are torch's within an operation, processors those that
    this process may run on.
    """
    found: dict[str, str | int] = {name: _version(name) for name in PACKAGES}
    found["python"] = platform.python_version()
    found["platform"] = platform.platform()
    found["device"] = _device()
    found["threads"] = torch.get_num_threads()
    found["processors"] = _processors()
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _device() -> str:
    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells which processors are ours
        return os.cpu_count() or 1

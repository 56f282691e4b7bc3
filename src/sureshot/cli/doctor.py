"""``sureshot doctor``: what is installed, what it runs on, and what is missing or does not work."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import typer

from sureshot.cli import console

_REQUIRED = (
    *("torch", "gpytorch", "scikit-learn", "scipy", "numpy", "pandas", "safetensors"),
    *("typer", "rich", "matplotlib", "jinja2", "pillow", "threadpoolctl", "joblib"),
)
_OPTIONAL = {
    "faiss-cpu": "the nearest of many rows: python -m pip install 'sureshot[large]'",
    "pyarrow": "reading Parquet files: python -m pip install 'sureshot[parquet]'",
    "tensorboard": "training.tensorboard = true: python -m pip install 'sureshot[tensorboard]'",
}


def doctor(as_json: console.JsonOption = False) -> None:
    """Versions, device, threads, missing extras; exit status 1 if a needed package is missing."""
    with console.guarded(as_json):
        checks = examine()
        console.tell(checks, _print, as_json)
        if checks["missing"]:
            raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """All that `doctor` reports, as plain values."""
    versions = {name: installed_version(name) for name in ("sureshot", *_REQUIRED)}
    missing = [name for name in _REQUIRED if versions[name] is None]
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "packages": versions,
        "missing": missing,
        "extras": {
            name: {"version": installed_version(name), "needed_for": purpose} for name, purpose in _OPTIONAL.items()
        },
        "plugins": [] if missing else _plugins(),
        "device": {} if "torch" in missing else _device(),
        "threads": _threads("torch" not in missing),
        "memory_gb": _memory(),
        "data": _data(),
    }


def installed_version(name: str) -> str | None:
    """The version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _device() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"default": "cpu", "cuda": torch.cuda.is_available()}
    if found["cuda"]:
        found["default"] = "cuda"
        found["cuda_version"] = torch.version.cuda
        found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found["mps"] = torch.backends.mps.is_available()
    return found


def _plugins() -> list[dict[str, str | None]]:
    """Backbones, learners and data sets of other packages, each with what is wrong with it."""
    from sureshot.data.few_shot import DATASETS
    from sureshot.meta.learners.registry import LEARNERS
    from sureshot.meta.processes import PROCESSES
    from sureshot.networks.backbones import BACKBONES

    return [offer for registry in (BACKBONES, LEARNERS, PROCESSES, DATASETS) for offer in registry.offers()]


def _threads(with_torch: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    if with_torch:
        import torch

        found["torch"] = torch.get_num_threads()
    return found


def _memory() -> float | None:
    """Memory of the machine, 10^9 bytes."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _data() -> dict[str, Any]:
    from sureshot.data.root import ENVIRONMENT_VARIABLE, DataError, data_root

    try:
        root = data_root()
    except DataError as error:
        return {"root": None, "variable": ENVIRONMENT_VARIABLE, "remark": str(error)}
    return {"root": str(root), "variable": ENVIRONMENT_VARIABLE, "files": len(list(root.iterdir()))}


def _print(checks: dict[str, Any]) -> None:
    rows: list[tuple[str, str]] = [("Python", f"{checks['python']} on {checks['platform']}")]
    rows += [(name, found or "MISSING") for name, found in checks["packages"].items()]
    for name, extra in checks["extras"].items():
        rows.append((name, extra["version"] or f"not installed (optional, {extra['needed_for']})"))
    for plugin in checks["plugins"]:
        found = plugin["problem"] or f"{plugin['package']} ({plugin['place']})"
        rows.append((f"{plugin['kind']} {plugin['name']}", found))
    device = checks["device"]
    if device:
        rows.append(("device", ", ".join([device["default"], *device.get("devices", [])])))
    threads = checks["threads"]
    rows.append(("threads", f"{threads.get('torch', '?')} of torch on {threads['cores']} cores"))
    if checks["memory_gb"] is not None:
        rows.append(("memory", f"{checks['memory_gb']} GB"))
    data = checks["data"]
    rows.append(("data folder", data.get("root") or data.get("remark", "unknown")))
    console.print_table(("", "found"), rows)
    if checks["missing"]:
        sys.stderr.write(f"error: missing packages: {', '.join(checks['missing'])}\n")

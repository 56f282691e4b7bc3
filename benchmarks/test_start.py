"""Time of commands in processes of their own, beside ``import torch`` in the same run; ratios are in ``extra_info``.

Run with ``python -m pytest benchmarks/test_start.py``. Processor time of the processes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sureshot.demo.digits import run_demo
from sureshot.progress import ENOUGH_TO_TELL

SURESHOT = (sys.executable, "-m", "sureshot")
COMMANDS = {
    "help": ("--help",),
    "refused": ("fit", "iris.docx", "-t", "species", "-o", "m.safetensors"),
    "predict": ("predict", "iris.safetensors", "iris.csv", "--quiet"),
    "fit": ("fit", "iris.csv", "-t", "species", "-o", "m.safetensors", "--kernel", "rbf", "--objective", "none", "-q"),
}


def of_children() -> float:
    """Processor time of the processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sklearn.datasets import load_iris

    folder = tmp_path_factory.mktemp("start")
    frame = load_iris(as_frame=True).frame.rename(columns={"target": "species"})
    frame.to_csv(folder / "iris.csv", index=False)
    (folder / "iris.docx").write_bytes(b"PK")
    fit = ("fit", "iris.csv", "-t", "species", "-o", "iris.safetensors", "-q")
    subprocess.run([*SURESHOT, *fit], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.benchmark(timer=of_children)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_beside_the_import_of_torch(benchmark: Any, name: str, folder: Path) -> None:
    def ended(*command: str) -> Callable[[], Any]:
        return lambda: subprocess.run(command, cwd=folder, capture_output=True)

    benchmark.pedantic(ended(*SURESHOT, *COMMANDS[name]), rounds=3, warmup_rounds=1)
    torch, seconds = ended(sys.executable, "-c", "import torch"), []
    for _ in range(3):
        started = of_children()
        torch()
        seconds.append(of_children() - started)
    benchmark.extra_info["peer"] = "import torch"
    if benchmark.stats is not None:
        benchmark.extra_info["times its time"] = benchmark.stats.stats.min / min(seconds)


def test_the_first_estimate_of_the_demo(benchmark: Any, tmp_path: Path) -> None:
    """What is left by the first estimate that is told, over what was left then."""
    told: list[tuple[float, float]] = []
    started = time.process_time()
    benchmark.pedantic(
        run_demo, (tmp_path, lambda what, fraction: told.append((time.process_time() - started, fraction))), rounds=1
    )
    took = time.process_time() - started
    seconds, fraction = next(one for one in told if one[1] >= ENOUGH_TO_TELL and one[0] >= took / 10)
    benchmark.extra_info["estimated over actual"] = seconds / fraction / took

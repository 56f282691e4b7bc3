"""The package of docs/template installs, passes its own test, and is there for every command; without it is told so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sureshot

TEMPLATE = Path(__file__).parents[1] / "docs" / "template"
SOURCE = Path(sureshot.__file__).parents[1]
RUN = """
[data]
name = "spots"
[backbone]
name = "fourier"
[learner]
name = "medians"
[episodes]
way = 3
queries = 4
[training]
episodes = 4
[validation]
every = 4
tasks = 4
queries = 4
"""


def environment(*places: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}


def command(*arguments: object, places: tuple[Path, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(line, cwd=folder, env=environment(*places), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_template_is_a_package_of_parts(tmp_path: Path) -> None:
    shutil.copytree(
        TEMPLATE, tmp_path / "template", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    )
    site = tmp_path / "site"
    pip = (*("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"), "--target", site)
    built = command(*pip, tmp_path / "template", places=(), folder=tmp_path)
    assert built.returncode == 0, built.stderr
    both = (site, SOURCE)

    tested = command("pytest", "-q", tmp_path / "template" / "tests", places=both, folder=tmp_path / "template")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "5 passed" in tested.stdout

    (tmp_path / "own.toml").write_text(RUN)
    trained = command("sureshot", "meta-train", "own.toml", "-o", "run", "--json", places=both, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    told = json.loads(command("sureshot", "doctor", "--json", places=both, folder=tmp_path).stdout)["plugins"]
    assert {(plugin["name"], plugin["package"], plugin["problem"]) for plugin in told} == {
        (name, "sureshot-own-parts 0.1.0", None) for name in ("fourier", "medians", "neighbours", "ramps", "spots")
    }

    without = command("sureshot", "meta-evaluate", "run", "--tasks", "2", places=(SOURCE,), folder=tmp_path)
    assert without.returncode == 1
    missing = "it is of sureshot-own-parts 0.1.0, which is not installed here: python -m pip install "
    assert missing + "sureshot-own-parts==0.1.0" in without.stderr
    assert "Traceback" not in without.stderr

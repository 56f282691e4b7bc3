"""The built wheel: it installs, imports, and brings its data files and no experiments."""

import ast
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_installs_and_imports(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("sureshot-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "sureshot/py.typed" in names
    assert "sureshot/report/report.html" in names
    assert not any(name.startswith(("tests", "experiments")) for name in names)
    # An empty environment that sees this one's dependencies; the wheel itself comes first on its path.
    venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment" / "bin" / "python"
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True)
    here = next(path for path in sys.path if path.endswith("site-packages"))
    script = (
        f"import sys; sys.path[:0] = [{str(target)!r}]; sys.path.append({here!r}); import sureshot; "
        "assert sureshot.__file__.startswith(sys.path[0]); assert sureshot.__version__; "
        "import sureshot.cli, sureshot.demo.digits; "
        "m = sureshot.GPClassifier('rbf').fit([[0.], [1.], [2.], [3.]], [0, 0, 1, 1]); print(m.predict([[3.]]))"
    )
    found = subprocess.run([str(python), "-c", script], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.strip() == "[1]"


def test_the_source_distribution_holds_what_its_readers_need(tmp_path: Path) -> None:
    script = f"import setuptools.build_meta as b; print(b.build_sdist({str(tmp_path)!r}))"
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".git", ".venv", "*.egg-info", "__pycache__", "cells", "build", "campaigns")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    subprocess.run([sys.executable, "-c", script], check=True, cwd=checkout, capture_output=True)
    (archive,) = tmp_path.glob("sureshot-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for name in (
        "constraints.txt",
        "CHANGELOG.md",
        "docs/few-shot.md",
        "tests/test_package.py",
        "experiments/tables.py",
    ):
        assert name in names
    assert not any("__pycache__" in name for name in names)


def test_nothing_in_the_wheel_imports_an_experiment() -> None:
    for path in (ROOT / "src" / "sureshot").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "experiments" in text else ():
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "experiments" for name in imported), path

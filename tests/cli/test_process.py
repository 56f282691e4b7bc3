"""The real entry point in a process of its own: speed of the help, pipes, interrupts, exact models."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.main import get_command

from sureshot.cli import app, main

SLOW = ("torch", "gpytorch", "sklearn", "sklearn.cluster", "pandas", "scipy", "matplotlib", "sureshot.meta.learners")
SURESHOT = [sys.executable, "-m", "sureshot"]


def test_the_help_does_not_import_what_is_slow() -> None:
    code = (
        "import sys, sureshot.cli\n"
        "print([name for name in ('torch', 'gpytorch', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


OF_TEXT = ("--separator xx", "--encoding nonsense", "--decimal x", "--report iris.csv/x")
REFUSED = {
    "demo": ("-o iris.csv", "-o iris.csv/x"),
    "fit": (
        *("iris.docx -t species -o m", "isir.csv -t species -o m", "empty.csv -t species -o m"),
        *("iris.csv -o m.csv", "iris.csv -o folder", "iris.csv -o nowhere/m", "iris.csv -o -"),
        *(
            f"iris.csv -t species -o m {wrong}"
            for wrong in (
                *(*OF_TEXT, "--kind species", "--kind species=nothing", "--seed -1"),
                *("--kernel nosuch", "--likelihood nosuch", "--inference nosuch", "--objective nosuch"),
                *("--standardize nosuch", "--strategy nosuch", "--kernel precomputed"),
                *("--checkpoint nosuch", "--checkpoint folder", "--checkpoint iris.safetensors"),
            )
        ),
    ),
    "predict": (
        *("isir.safetensors iris.csv", "iris.csv iris.safetensors", "folder iris.csv", "no-model iris.csv"),
        *("iris.safetensors isir.csv", "iris.safetensors iris.docx", "iris.safetensors empty.csv"),
        *(
            f"iris.safetensors iris.csv {wrong}"
            for wrong in (
                *(*OF_TEXT[:-1], "--join --json", "--resume", "--reject 5", "--set 2", "--unknown x", "--top 0"),
                *("--why 0", "--why -1", "--why 2.5", "--why few"),
                *("-o p.xlsx", "-o folder", "-o nowhere/p.csv", "-o iris.csv"),
            )
        ),
    ),
    "evaluate": (
        *("isir.safetensors iris.csv -t species", "iris.safetensors iris.docx -t species"),
        *(f"iris.safetensors iris.csv -t species {wrong}" for wrong in OF_TEXT),
    ),
    "suggest": (
        *("no-model iris.csv", "iris.safetensors isir.csv", "iris.safetensors iris.csv --join --json"),
        *(f"iris.safetensors iris.csv {wrong}" for wrong in (*OF_TEXT[:-1], "-n 0", "-o p.xlsx", "-o folder")),
    ),
    "update": (
        *("isir.safetensors iris.csv -t species -o m", "iris.safetensors isir.csv -t species -o m"),
        *("iris.safetensors", "iris.safetensors iris.csv -t species", "iris.safetensors --forget-rows 1"),
        *("iris.safetensors iris.csv -t species -o m.csv", "iris.safetensors iris.csv -t species -o m --in-place"),
        *(f"iris.safetensors iris.csv -t species -o m {wrong}" for wrong in OF_TEXT[:-1]),
    ),
    "search": (
        *("iris.docx -t species", "isir.csv -t species", "iris.csv -t species -o m.csv"),
        *(
            f"iris.csv -t species {wrong}"
            for wrong in (
                *(*OF_TEXT, "--grammar nosuch", "--schedule nosuch", "--schedule 1,x", "--particles 0"),
                *("--test isir.csv", "--test iris.csv", "--hold-out .7", "--batches a --batch-size 3"),
            )
        ),
    ),
    "sessions": ("none.toml", "iris.docx", "folder", "broken.toml", "other.toml -o iris.csv"),
    "meta-train": ("none.toml", "folder", "broken.toml", "other.toml", "other.toml --set x", "other.toml -o iris.csv"),
    **dict.fromkeys(
        ("meta-evaluate", "meta-compare"),
        (
            *("nosuch", "folder", "iris.csv", "iris.safetensors", "nosuch --report iris.csv/x"),
            *("nosuch --split nosuch", "nosuch --corrupted nosuch", "nosuch --on nosuch", "nosuch --option x"),
            *("nosuch --way 1", "nosuch --shots 0", "nosuch --queries 0", "nosuch --tasks 0", "nosuch --seed -1"),
        ),
    ),
    "doctor": ("nosuch",),
}
"""What each command refuses by what it is given."""


def test_what_can_be_refused_is_refused_before_anything_slow_is_imported(files: Path, tmp_path: Path) -> None:
    for name in ("iris.csv", "iris.safetensors"):
        shutil.copy(files / name, tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in (
        *(("iris.docx", "PK"), ("no-model", "not a model"), ("empty.csv", "")),
        *(("broken.toml", "a = ["), ("other.toml", "[nosuch]\na = 1\n")),
    ):
        (tmp_path / name).write_text(text)
    code = (
        "import sys\nfrom typer.main import get_command\n"
        "from sureshot.cli import app\nfrom sureshot.cli.console import run_app\ncommands = get_command(app)\n"
        "for line in sys.stdin:\n    sys.argv[1:] = line.split()\n"
        "    try:\n        run_app(commands, 'sureshot')\n    except SystemExit as end:\n        ended = end.code\n"
        f"    slow = [name for name in {SLOW} if name in sys.modules]\n"
        "    if slow or ended not in (1, 2):\n        sys.exit(f'{line} ended with {ended}, imported {slow}')\n"
    )
    lines = [f"{command} {wrong}\n" for command, every in REFUSED.items() for wrong in every]
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, input="".join(lines), capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr.splitlines()[-2:]
    assert found.stderr.count("error: ") == len(lines)
    assert set(REFUSED) == set(get_command(app).commands)


def test_another_process_predicts_the_same_imports_only_what_it_needs_and_minds_no_reader_that_goes_away(
    files: Path, run: Callable[..., Any], iris: pd.DataFrame, tmp_path: Path
) -> None:
    pd.concat([iris] * 20).to_csv(tmp_path / "long.csv", index=False)  # more than a pipe holds
    here = run("predict", files / "iris.safetensors", files / "iris.csv", "--proba", "--json")
    code = (
        "import sys\nfrom sureshot.cli import main\n"
        "sys.argv[1:] = 'predict iris.safetensors iris.csv --proba --json -q'.split()\n"
        "try:\n    main()\nexcept SystemExit:\n"
        f"    sys.stderr.write(' '.join(name for name in {SLOW} if name in sys.modules))\n"
        f"sys.argv[1:] = ['predict', 'iris.safetensors', {str(tmp_path / 'long.csv')!r}, '--proba', '-q']\nmain()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(len(here.stdout)) == here.stdout
        assert process.stdout.readline().startswith("row,prediction")
        process.stdout.close()
        imported = process.stderr.read().split()
    assert process.returncode == 141
    assert "torch" in imported
    assert set(imported) <= set(SLOW) - {"matplotlib", "sureshot.meta.learners", "sklearn.cluster"}  # no other word


def test_an_error_has_no_traceback(files: Path) -> None:
    command = [*SURESHOT, "predict", "isir.safetensors", "iris.csv"]
    result = subprocess.run(command, cwd=files, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: isir.safetensors does not exist")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_an_interrupt_ends_cleanly_and_leaves_nothing(iris: pd.DataFrame, tmp_path: Path) -> None:
    iris.assign(meta_note="x").to_csv(tmp_path / "d.csv", index=False)
    start = (  # a shell that starts pytest in the background lets its children ignore interrupts
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom sureshot.cli import main; main()"
    )
    command = [sys.executable, "-c", start, "fit", "d.csv", "-t", "species", "-o", "m"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "meta_note" in process.stderr.readline()  # the table is read; imports and the fit are to come
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.endswith("interrupted\n")
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "iris.safetensors", "iris.csv", "--set", "abc"], "Invalid value for '--set'"),
        (["predict", "iris.safetensors"], "Missing argument 'DATA'. `sureshot predict --help`"),
        (["predct"], "did you mean 'predict'?"),
        (["predict", "iris.safetensors", "iris.csv", "--top", "0", "--json"], "--top"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sureshot", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert message.lower() in said.err.lower()
    assert said.err.count("\n") == 1
    if "--json" in arguments:
        assert message in json.loads(said.out)["error"]
    else:
        assert said.out == ""

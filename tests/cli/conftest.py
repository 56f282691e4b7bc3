"""A small real table, a model fitted on it by the command line, and a way to run commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from typer import testing
from typer.main import get_command

from sureshot.cli import app

Run = Callable[..., Any]

QUICK = ("--kernel", "rbf", "--likelihood", "softmax", "--objective", "none")
"""Settings that are learnt in a moment; what is tested is the command line."""


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """``run("fit", path, ...)``: the result, whose exception can only be the orderly exit.

    As wide as a file is, whatever the width of the terminal that the tests run in.
    """
    runner = testing.CliRunner(env={"COLUMNS": None})

    def run_command(*arguments: object) -> Any:
        result = runner.invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    with pytest.MonkeyPatch.context() as patch:  # or all commands are made anew for every one that is run
        patch.setattr(testing, "_get_command", cache(get_command), raising=False)
        yield run_command


@pytest.fixture(scope="session")
def iris() -> pd.DataFrame:
    """Half of the irises, in random order, with their species by name."""
    bunch = load_iris(as_frame=True)
    frame = bunch.frame.drop(columns="target")
    frame.columns = pd.Index([name.replace(" (cm)", "").replace(" ", "_") for name in frame.columns])
    frame["species"] = bunch.target_names[bunch.target]
    order = np.random.default_rng(0).permutation(len(frame))
    return frame.iloc[order[:75]].reset_index(drop=True)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, iris: pd.DataFrame, run: Run) -> Path:
    """A folder with ``iris.csv``, ``iris.npz``, ``two.csv`` (two of the species) and models of the last and first."""
    folder = tmp_path_factory.mktemp("cli")
    iris.to_csv(folder / "iris.csv", index=False)
    iris[iris["species"] != "virginica"].to_csv(folder / "two.csv", index=False)
    iris[iris["species"] == "virginica"].to_csv(folder / "third.csv", index=False)
    X = iris.drop(columns="species").to_numpy()
    np.savez(folder / "iris.npz", X=X, y=iris["species"].to_numpy(dtype=str))
    for name in ("iris", "two"):
        result = run("fit", folder / f"{name}.csv", "--target", "species", "-o", folder / f"{name}.safetensors", *QUICK)
        assert result.exit_code == 0, result.stderr
    return folder

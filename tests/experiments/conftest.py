"""A way to run the command of the experiments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.command import app


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """``run("iris", ...)``: the result, whose exception can only be the orderly exit."""
    runner = CliRunner()

    def run_command(*arguments: object) -> Any:
        result = runner.invoke(app, [str(argument) for argument in arguments], prog_name="python -m experiments")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_command

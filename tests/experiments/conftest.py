"""A way to run the command of the experiments, and records of few-shot cells made by hand."""

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


def _estimate(mean: float, error: float) -> dict[str, float]:
    return {"mean": mean, "standard_error": error}


@pytest.fixture(scope="session")
def make_record() -> Callable[..., dict[str, Any]]:
    """A record with chosen numbers: accuracy, calibration of 100 queries in four bins, detection, robustness."""

    def make(
        learner: str,
        accuracy: float,
        *,
        shots: int = 5,
        preset: str = "paper",
        kernel: str = "cosine",
        seed: int = 0,
        error: float = 0.003,
        nll: float = 0.5,
        ece: float = 0.05,
        tempered_ece: float = 0.01,
        least_errors: tuple[float, float] | None = None,
        own_auroc: float | None = 0.8,
        corrupted: tuple[float, float] | None = (0.4, 0.6),
        evaluation: str | None = None,
    ) -> dict[str, Any]:
        def calibration(value: float) -> dict[str, Any]:
            return {
                "temperature": 1.5,
                "nll": _estimate(nll, 0.01),
                "brier": _estimate(0.3, 0.01),
                "ece": _estimate(value, 0.002),
                "mce": _estimate(2 * value, 0.01),
                "bins": {
                    "edges": [0.0, 0.25, 0.5, 0.75, 1.0],
                    "count": [0, 20, 30, 50],
                    "confidence": [None, 0.4, 0.6, 0.9],
                    "accuracy": [None, 0.4, 0.6, 0.9 - value],
                },
            }

        scores = {"negative_max_logit": {"per_episode": _estimate(0.7, 0.01)}}
        if own_auroc is not None:
            scores["outlier_score"] = {"per_episode": _estimate(own_auroc, 0.01)}
        robustness = corrupted and {
            "clean_accuracy": _estimate(accuracy, error),
            "scores": [
                {
                    "kind": kind,
                    "severity": severity,
                    "accuracy": _estimate(value + (0.1 if severity == 1 else 0.0), error),
                    "brier": _estimate(0.6, 0.01),
                    "ece": 0.1,
                }
                for kind, value in zip(("gaussian_noise", "defocus_blur"), corrupted, strict=True)
                for severity in (1, 5)
            ],
        }
        variants = {"none": calibration(ece), "temperature": calibration(tempered_ece)}
        if least_errors is not None:
            variants["least_ece"], variants["least_mce"] = calibration(least_errors[0]), calibration(least_errors[1])
        return {
            "key": f"{learner}-{shots}-{seed}",
            "labels": {
                "learner": learner,
                "preset": preset,
                "kernel": kernel,
                "shots": shots,
                "seed": seed,
                "budget": "standard",
                "precision": "float32",
            },
            "settings": {},
            "training": {"episodes": 10_000, "best_episodes": 6000, "seconds_of_last_run": 1800.0},
            "evaluations": {
                evaluation or f"5-way {shots}-shot": {
                    "accuracy": _estimate(accuracy, error) | {"batch_deviation": 0.004},
                    "calibration": variants,
                    "out_of_episode": {"primary": "negative_max_logit", "scores": scores},
                    "robustness": robustness,
                    "time": {"batched": 0.002},
                }
            },
            "evaluation_seconds": 1800.0,
        }

    return make

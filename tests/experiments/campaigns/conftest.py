"""Cells that train in a moment on random embeddings, and records made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from experiments.campaigns.few_shot import Examination, FewShotCell
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training import TrainingConfig

MakeCell = Callable[..., FewShotCell]
MakeRecord = Callable[..., dict[str, Any]]


def _embeddings(n_classes: int, seed: int, n_rows: int = 8) -> LabelledSet:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(n_classes, 1, 6, generator=generator)
    x = (means + 0.7 * torch.randn(n_classes, n_rows, 6, generator=generator)).flatten(0, 1)
    return LabelledSet(
        x, torch.arange(n_classes).repeat_interleave(n_rows), tuple(f"class {k}" for k in range(n_classes))
    )


@pytest.fixture(scope="session")
def data() -> FewShotData:
    return FewShotData(_embeddings(10, 0), _embeddings(6, 1), _embeddings(6, 2), "tiny", "random embeddings")


@pytest.fixture(scope="session")
def make_cell() -> MakeCell:
    def make(key: str = "cell", n_tasks: int = 10, learner: str = "protonet", **training: Any) -> FewShotCell:
        config = TrainingConfig.from_dict(
            {
                "data": {"name": "tiny"},
                "episodes": {"way": 3, "shots": 1, "queries": 3},
                "backbone": {"name": "linear"},
                "learner": {"name": learner, "preset": "paper"},
                "training": {"episodes": 8, "checkpoint_every": 2, **training},
                "validation": {"every": 4, "tasks": 5, "queries": 3},
            }
        )
        labels: dict[str, str | int] = {
            "learner": learner,
            "preset": "paper",
            "kernel": "cosine",
            "shots": 1,
            "seed": 0,
            "budget": "standard",
            "precision": "float32",
        }
        examination = Examination("3-way 1-shot", EpisodeProtocol(3, 1, 3), n_tasks, out_of_episode=5, robustness=0)
        return FewShotCell(key, labels, config, (examination,))

    return make


def _estimate(mean: float, error: float) -> dict[str, float]:
    return {"mean": mean, "standard_error": error}


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
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

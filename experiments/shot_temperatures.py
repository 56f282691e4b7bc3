"""How a temperature depends on the number of shots; as in `experiments.validation_classes` nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from experiments.validation_classes import N_TEST, task_predictions, untrained_learner
from sureshot.data.class_splits import shuffled
from sureshot.data.own_classes import all_intents
from sureshot.meta.evaluation.calibration import at_temperature, temperature_of
from sureshot.meta.learners import GaussianProcessLearner
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training.config import ValidationConfig
from sureshot.meta.training.validation import Validator
from sureshot.metrics import expected_calibration_error, negative_log_likelihood

QUERIES = 15


@dataclass(frozen=True)
class ShotTemperaturesConfig:
    """Settings."""

    fitted_at: tuple[int, ...] = (1, 5)  # shots that the learner is for
    shots: tuple[int, ...] = (1, 2, 5, 10, 20)  # of the test tasks
    way: int = 5
    tasks: int = 200  # for each test
    n_validation: int = 30  # classes, of the 75 that are no test classes
    seeds: tuple[int, ...] = tuple(range(10))  # each is a split of the 150 intents


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `ShotTemperaturesConfig` for the options."""
    settings = configure(ShotTemperaturesConfig, options)
    if not settings.way <= settings.n_validation < N_TEST:
        raise ValueError(
            f"n_validation must be from the way ({settings.way}) to {N_TEST - 1}, got {settings.n_validation}"
        )
    intents, _ = all_intents(data_root)
    records = []
    for number, seed in enumerate(settings.seeds):
        progress(f"split {seed}", number / len(settings.seeds))
        order = shuffled(intents.n_classes, seed).tolist()
        test = intents.select_classes(order[-N_TEST:])
        validation = intents.select_classes(order[: settings.n_validation])
        base = intents.select_classes(order[settings.n_validation : -N_TEST])
        for fitted_at in settings.fitted_at:
            learner = untrained_learner(intents)
            config = ValidationConfig(tasks=settings.tasks, queries=QUERIES, seed=seed)
            Validator(validation, base, EpisodeProtocol(settings.way, fitted_at, QUERIES), config)(learner)
            for shots in settings.shots:
                protocol = EpisodeProtocol(settings.way, shots, QUERIES)
                probabilities, y = task_predictions(learner, test, protocol, settings.tasks, seed)
                growth = _temperature(learner, settings.way, shots) / _temperature(learner, settings.way, fitted_at)
                records.append({"fitted at": fitted_at, "shots": shots, **_scores(probabilities, y, growth)})
    frame = pd.DataFrame(records)
    return Outcome(
        title="How a temperature depends on the number of shots",
        introduction=(
            f"CLINC150, {settings.way} ways: {settings.n_validation} validation and {N_TEST} test intents, by seed. "
            "The temperature is fitted for a number of shots on validation tasks, and the learner is used at others on "
            f"{settings.tasks} test tasks: with the power of the shots that is fitted as well, and with one "
            "temperature for all shots. The learner is `ove_mean_field_pl` on the embeddings as they are, before any "
            "training."
        ),
        tables=(
            Table(
                "shots",
                "Means over the splits. Temperature over that at the shots for which it was fitted: as fitted, and as "
                "would be best for the test tasks; calibration error (ECE, 15 bins) and negative log likelihood with "
                "the fitted power of the shots and with one temperature for all shots.",
                frame.groupby(["fitted at", "shots"]).mean().reset_index(),
                digits=4,
            ),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(_finding(frame),),
        differences=("No paper has this experiment.",),
    )


def _temperature(learner: GaussianProcessLearner, way: int, shots: int) -> float:
    return float(learner.temperature(torch.tensor([float(way)]), torch.full((1, way), float(shots))))


def _scores(probabilities: NDArray[np.float64], y: NDArray[np.int64], growth: float) -> dict[str, float]:
    """Of probabilities that are tempered by `growth` too, and of what they were without it."""
    constant = at_temperature(probabilities[None], 1 / growth)[0]
    return {
        "temperature": growth,
        "best": growth * temperature_of(probabilities, y),
        "ece": expected_calibration_error(probabilities, y),
        "ece, one for all": expected_calibration_error(constant, y),
        "nll": negative_log_likelihood(probabilities, y),
        "nll, one for all": negative_log_likelihood(constant, y),
    }


def _finding(frame: pd.DataFrame) -> str:
    others = frame[frame["fitted at"] != frame["shots"]]
    return (
        f"At other shots than those that it was fitted for the mean calibration error is {others['ece'].mean():.4f} "
        f"with a power of the shots and {others['ece, one for all'].mean():.4f} with one temperature for all."
    )


EXPERIMENT = Experiment("shot-temperatures", "how a temperature depends on the number of shots", True, run)

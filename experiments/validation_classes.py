"""How many validation classes does a temperature need, and how does it depend on the number of shots?

Nothing but chance separates validation and test classes here, and the learner is as it is before training. What remains
is which classes happen to be there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from sureshot.data.class_splits import shuffled
from sureshot.data.labelled import LabelledSet
from sureshot.data.own_classes import all_intents
from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.evaluation.calibration import at_temperature, temperature_of
from sureshot.meta.evaluation.passes import Exam, embed_set
from sureshot.meta.learners import EmbeddingLearner, GaussianProcessLearner, make_learner
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training.config import ValidationConfig
from sureshot.meta.training.validation import Validator
from sureshot.metrics import expected_calibration_error, negative_log_likelihood
from sureshot.networks.backbones import make_backbone
from sureshot.networks.seeds import generator_for

N_TEST, QUERIES = 75, 15


@dataclass(frozen=True)
class ValidationClassesConfig:
    """Settings."""

    classes: tuple[int, ...] = (10, 15, 30, 75)  # numbers of validation classes, each at least `way` and at most 75
    way: int = 10  # of the tasks, on both sides
    shots: int = 1
    tasks: int = 200  # for each fit and each test
    seeds: tuple[int, ...] = tuple(range(100))  # each is a split of the 150 intents
    # of the other shots than those that a temperature was fitted for
    fitted_at: tuple[int, ...] = (1, 5)
    used_at: tuple[int, ...] = (1, 2, 5, 10, 20)
    few_ways: int = 5
    n_validation: int = 30  # classes, of the 75 that are no test classes
    shot_seeds: tuple[int, ...] = tuple(range(10))


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `ValidationClassesConfig` for the options."""
    settings = configure(ValidationClassesConfig, options)
    if not settings.way <= min(settings.classes) <= max(settings.classes) <= N_TEST:
        raise ValueError(f"classes must be from the way ({settings.way}) to {N_TEST}, got {list(settings.classes)}")
    if not settings.few_ways <= settings.n_validation < N_TEST:
        raise ValueError(
            f"n_validation must be from few_ways ({settings.few_ways}) to {N_TEST - 1}, got {settings.n_validation}"
        )
    intents, _ = all_intents(data_root)
    frame = of_other_classes(intents, settings, progress)
    shots = at_other_shots(intents, settings, progress)
    return Outcome(
        title="How far a temperature from some classes goes",
        introduction=(
            f"CLINC150: {N_TEST} of the intents are test classes, by seed, and so many of the others validation "
            f"classes. A temperature is fitted on {settings.tasks} tasks of the validation classes and used on "
            f"{settings.tasks} tasks of the test classes. The learner is `ove_mean_field_pl` on the embeddings as they "
            "are, before any training, so that chance alone tells validation and test classes apart. First "
            f"{settings.way} ways and {settings.shots} shot(s) on both sides; then {settings.few_ways} ways, "
            f"{settings.n_validation} validation intents and other numbers of shots than the temperature was fitted "
            "for: with the power of the shots that is fitted as well, and with one temperature for all shots."
        ),
        tables=(
            Table(
                "splits",
                "Logarithm of the best temperature of the test classes over that of the validation classes: mean with "
                "its standard error, and standard deviation between splits; confidence less accuracy on the test "
                "classes: mean and standard deviation; their ECE (15 bins) with the fitted temperature and with their "
                "own best one.",
                _summary(frame),
                digits=4,
            ),
            Table(
                "shots",
                "Means over the splits. Temperature over that at the shots for which it was fitted: as fitted, and as "
                "would be best for the test tasks; calibration error (ECE, 15 bins) and negative log likelihood with "
                "the fitted power of the shots and with one temperature for all shots.",
                shots.groupby(["fitted at", "shots"]).mean().reset_index(),
                digits=4,
            ),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(_of_classes(frame), _of_shots(shots)),
        differences=("No paper has this experiment.",),
    )


def of_other_classes(intents: LabelledSet, settings: ValidationClassesConfig, progress: Progress) -> pd.DataFrame:
    """A row for each split and number of validation classes."""
    learner = untrained_learner(intents)
    protocol = EpisodeProtocol(settings.way, settings.shots, 5)
    records = []
    for number, seed in enumerate(settings.seeds):
        progress(f"split {seed}", 0.5 * number / len(settings.seeds))
        order = shuffled(intents.n_classes, seed).tolist()
        test = intents.select_classes(order[-N_TEST:])
        probabilities, y = task_predictions(learner, test, protocol, settings.tasks, seed)
        best = temperature_of(probabilities, y)
        for n_classes in settings.classes:
            pool = intents.select_classes(order[:n_classes])
            fitted = temperature_of(*task_predictions(learner, pool, protocol, settings.tasks, seed))
            records.append({"validation classes": n_classes, **_fitted(probabilities, y, fitted, best)})
    return pd.DataFrame(records)


def at_other_shots(intents: LabelledSet, settings: ValidationClassesConfig, progress: Progress) -> pd.DataFrame:
    """A row for each split, number of shots that the temperature was fitted for, and number that it is used at."""
    way, records = settings.few_ways, []
    for number, seed in enumerate(settings.shot_seeds):
        progress(f"split {seed}, numbers of shots", 0.5 + 0.5 * number / len(settings.shot_seeds))
        order = shuffled(intents.n_classes, seed).tolist()
        test = intents.select_classes(order[-N_TEST:])
        validation = intents.select_classes(order[: settings.n_validation])
        base = intents.select_classes(order[settings.n_validation : -N_TEST])
        for fitted_at in settings.fitted_at:
            learner = untrained_learner(intents)
            config = ValidationConfig(tasks=settings.tasks, queries=QUERIES, seed=seed)
            Validator(validation, base, EpisodeProtocol(way, fitted_at, QUERIES), config)(learner)
            for shots in settings.used_at:
                protocol = EpisodeProtocol(way, shots, QUERIES)
                probabilities, y = task_predictions(learner, test, protocol, settings.tasks, seed)
                growth = _temperature(learner, way, shots) / _temperature(learner, way, fitted_at)
                records.append({"fitted at": fitted_at, "shots": shots, **_with_power(probabilities, y, growth)})
    return pd.DataFrame(records)


def untrained_learner(embeddings: LabelledSet) -> GaussianProcessLearner:
    """The learner that is recommended for embeddings, as it is before training: they pass its backbone unchanged."""
    backbone = make_backbone("linear", tuple(embeddings.x.shape[1:]))
    learner = make_learner("ove_mean_field_pl", backbone, kernel="cosine")
    assert isinstance(learner, GaussianProcessLearner)
    return learner


def task_predictions(
    learner: EmbeddingLearner, pool: LabelledSet, protocol: EpisodeProtocol, tasks: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Class probabilities (n, way) and true classes (n,) of the queries of tasks from a pool of classes."""
    exam = Exam.draw(EpisodeSampler(pool, protocol), tasks, seed)
    return exam.answers(learner, embed_set(learner, pool.x), generator_for(seed, "adaptation"))


def _fitted(probabilities: NDArray[np.float64], y: NDArray[np.int64], fitted: float, best: float) -> dict[str, float]:
    tempered = at_temperature(probabilities[None], fitted)[0]
    return {
        "log ratio": math.log(best / fitted),
        "confidence - accuracy": float((tempered.max(1) - (tempered.argmax(1) == y)).mean()),
        "ece": expected_calibration_error(tempered, y),
        "best ece": expected_calibration_error(at_temperature(probabilities[None], best)[0], y),
    }


def _summary(frame: pd.DataFrame) -> pd.DataFrame:
    by_number = frame.groupby("validation classes")
    ratio, gap = by_number["log ratio"], by_number["confidence - accuracy"]
    return pd.DataFrame(
        {
            "log ratio": ratio.mean(),
            "se": ratio.sem(),
            "sd": ratio.std(),
            "confidence - accuracy": gap.mean(),
            "sd of it": gap.std(),
            "ece": by_number["ece"].mean(),
            "ece at their own": by_number["best ece"].mean(),
        }
    ).reset_index()


def _of_classes(frame: pd.DataFrame) -> str:
    spread = frame.groupby("validation classes")["log ratio"].std()
    few, many = int(spread.index[0]), int(spread.index[-1])
    return (
        f"Between splits the logarithm of the ratio has a standard deviation of {spread.iloc[0]:.3f} with {few} "
        f"validation classes and of {spread.iloc[-1]:.3f} with {many}: the temperature of some classes is an estimate "
        "for others, however many tasks it is fitted on."
    )


def _temperature(learner: GaussianProcessLearner, way: int, shots: int) -> float:
    return float(learner.temperature(torch.tensor([float(way)]), torch.full((1, way), float(shots))))


def _with_power(probabilities: NDArray[np.float64], y: NDArray[np.int64], growth: float) -> dict[str, float]:
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


def _of_shots(frame: pd.DataFrame) -> str:
    others = frame[frame["fitted at"] != frame["shots"]]
    return (
        f"At other shots than those that it was fitted for the mean calibration error is {others['ece'].mean():.4f} "
        f"with a power of the shots and {others['ece, one for all'].mean():.4f} with one temperature for all."
    )


EXPERIMENT = Experiment(
    "validation-classes", "how far a temperature from some classes, and some number of shots, is off", True, run
)

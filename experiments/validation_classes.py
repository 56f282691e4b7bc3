"""How many validation classes does a temperature need?

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
from sureshot.metrics import expected_calibration_error
from sureshot.networks.backbones import make_backbone
from sureshot.networks.seeds import generator_for

N_TEST = 75


@dataclass(frozen=True)
class ValidationClassesConfig:
    """Settings."""

    classes: tuple[int, ...] = (10, 15, 30, 75)  # numbers of validation classes, each at least `way` and at most 75
    way: int = 10  # of the tasks, on both sides
    shots: int = 1
    tasks: int = 200  # for each fit and each test
    seeds: tuple[int, ...] = tuple(range(100))  # each is a split of the 150 intents


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `ValidationClassesConfig` for the options."""
    settings = configure(ValidationClassesConfig, options)
    if not settings.way <= min(settings.classes) <= max(settings.classes) <= N_TEST:
        raise ValueError(f"classes must be from the way ({settings.way}) to {N_TEST}, got {list(settings.classes)}")
    intents, _ = all_intents(data_root)
    learner = untrained_learner(intents)
    protocol = EpisodeProtocol(settings.way, settings.shots, 5)
    records = []
    for number, seed in enumerate(settings.seeds):
        progress(f"split {seed}", number / len(settings.seeds))
        order = shuffled(intents.n_classes, seed).tolist()
        probabilities, y = task_predictions(
            learner, intents.select_classes(order[-N_TEST:]), protocol, settings.tasks, seed
        )
        best = temperature_of(probabilities, y)
        for n_classes in settings.classes:
            pool = intents.select_classes(order[:n_classes])
            fitted = temperature_of(*task_predictions(learner, pool, protocol, settings.tasks, seed))
            records.append({"validation classes": n_classes, **_scores(probabilities, y, fitted, best)})
    frame = pd.DataFrame(records)
    return Outcome(
        title="How many validation classes a temperature needs",
        introduction=(
            f"CLINC150, {settings.way} ways, {settings.shots} shot(s): {N_TEST} of the intents are test classes, by "
            f"seed, and so many of the others validation classes. One temperature is fitted on {settings.tasks} tasks "
            f"of the validation classes and used on {settings.tasks} tasks of the test classes. The learner is "
            "`ove_mean_field_pl` on the embeddings as they are, before any training, so that chance alone tells "
            "validation and test classes apart."
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
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(_finding(frame),),
        differences=("No paper has this experiment.",),
    )


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


def _scores(probabilities: NDArray[np.float64], y: NDArray[np.int64], fitted: float, best: float) -> dict[str, float]:
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


def _finding(frame: pd.DataFrame) -> str:
    spread = frame.groupby("validation classes")["log ratio"].std()
    few, many = int(spread.index[0]), int(spread.index[-1])
    return (
        f"Between splits the logarithm of the ratio has a standard deviation of {spread.iloc[0]:.3f} with {few} "
        f"validation classes and of {spread.iloc[-1]:.3f} with {many}: the temperature of some classes is an estimate "
        "for others, however many tasks it is fitted on."
    )


EXPERIMENT = Experiment("validation-classes", "how many validation classes a temperature needs", True, run)

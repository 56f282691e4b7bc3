"""Scores on validation classes, by which a checkpoint is chosen, and what a learner fits to them before it is scored.

The tasks are drawn once and are the same at every validation.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.evaluation.calibration import at_temperature, temperature_of
from sureshot.meta.evaluation.passes import Exam, task_inputs
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training.config import ValidationConfig
from sureshot.meta.training.normalisation import fit_normalisation
from sureshot.networks.seeds import generator_for

if TYPE_CHECKING:
    from sureshot.data.labelled import LabelledSet

logger = logging.getLogger(__name__)

_MOST_GROWTH = 0.5
"""Of a temperature with the number of classes (about 0.1 is usual, and it may fall) or of shots (about 0.3, and it may
not); tasks without an error say anything."""

_SUPPORTS_FOR_TEMPERATURE = 1500
"""Supports of single classes, over all tasks of a size, at least: they differ more than queries do. With 600 (20 tasks
of 30 classes, one shot) the growth of one learner came out as 0.00 where 0.07 is right."""


@dataclass(frozen=True)
class ValidationScores:
    """Means over the queries of all tasks."""

    accuracy: float  # fraction right
    nll: float  # negative log probability of the true class, in nats


class Validator:
    """Scores learners on the same tasks.

    Way and shots are those of the training (the largest of a range). If there are fewer classes than the way, tasks
    have all of them; the log says so.
    """

    def __init__(
        self,
        data: LabelledSet,  # validation classes
        base: LabelledSet,  # those that are trained on
        training: EpisodeProtocol,
        config: ValidationConfig,
    ) -> None:
        self._data, self._base, self._config = data, base, config
        if data.n_classes < 2:
            raise ValueError(
                f"validation classes: there is only one class ({data.class_names[0]!r}), and two are needed: add "
                "classes, or train without validation (validation.every = 0)"
            )
        self._way, self._shots = min(training.ways[1], data.n_classes), training.shot_range[1]
        if self._way < training.ways[1]:
            logger.info("validation is on %d-way tasks: there are no more validation classes", self._way)
        self._exam = self._draw(self._way, self._shots, config.tasks, "validation tasks")

    def __call__(self, learner: ClassLearner) -> ValidationScores:
        """Scores of a learner; it is left in the mode in which it came.

        What the learner fits on validation classes (`EmbeddingLearner.fits_normalisation`,
        `ClassLearner.fits_temperature`) it gets here, and is scored with it.
        """
        if isinstance(learner, EmbeddingLearner) and learner.fits_normalisation:
            fit_normalisation(learner, self._base, self._data, generator_for(self._config.seed, "validation inputs"))
        inputs = task_inputs(learner, self._data.x)
        noise = generator_for(self._config.seed, "validation noise", device=learner.device)
        if learner.fits_temperature:
            learner.set_temperature(1.0)
        probabilities, y = _finite_answers(self._exam, learner, inputs, noise)
        if learner.fits_temperature:
            temperature = self._fit_temperature(learner, inputs, noise, (probabilities, y))
            probabilities = at_temperature(probabilities[None], temperature)[0]
        of_truth = np.take_along_axis(probabilities, y[:, None], -1)
        surprise = -np.log(np.maximum(of_truth, np.finfo(np.float32).tiny))
        return ValidationScores(float((probabilities.argmax(-1) == y).mean()), float(surprise.mean()))

    def _fit_temperature(
        self,
        learner: ClassLearner,
        inputs: Tensor,
        noise: torch.Generator,
        scored: tuple[NDArray[np.float64], NDArray[np.int64]],  # the answers to `_exam`
    ) -> float:
        """Set the temperature of a learner that has none yet, and its growth; returns that for tasks of the scores."""

        def fitted(exam: Exam) -> float:
            return temperature_of(*(scored if exam is self._exam else _finite_answers(exam, learner, inputs, noise)))

        usual, other_way, other_shots = self._temperature_exams
        temperature, growth, shot_growth = fitted(usual), 0.0, 0.0
        if other_way is not None:
            ways = other_way.sampler.protocol.ways[1] / self._way
            growth = _growth(fitted(other_way) / temperature, ways, -_MOST_GROWTH)
        if other_shots is not None:
            shots = other_shots.sampler.protocol.shot_range[1] / self._shots
            shot_growth = _growth(fitted(other_shots) / temperature, shots, 0.0)
        learner.set_temperature(temperature, self._way, growth, self._shots, shot_growth)
        return temperature

    @cached_property
    def _temperature_exams(self) -> tuple[Exam, Exam | None, Exam | None]:
        """Tasks of the size of the scores, of another number of classes, and of another number of shots.

        Each with about as many queries in all; None where there are too few classes or rows.
        """
        way, shots = self._way, self._shots
        tasks = max(self._config.tasks, -(-_SUPPORTS_FOR_TEMPERATURE // way))
        enough = tasks == self._config.tasks
        usual = self._exam if enough else self._draw(way, shots, tasks, "validation tasks")
        other_way = _other_way(way, self._data.n_classes)
        rows = int(self._data.class_sizes.min())
        other_shots = _other_shots(shots, rows - self._config.queries)
        of_other_way = of_other_shots = None
        if other_way is not None:
            of_other_way = self._draw(other_way, shots, max(1, tasks * way // other_way), "other tasks")
        if other_shots is not None:
            of_other_shots = self._draw(way, other_shots, tasks, "tasks of other shots")
        return usual, of_other_way, of_other_shots

    def _draw(self, way: int, shots: int, tasks: int, purpose: str) -> Exam:
        protocol = EpisodeProtocol(way, shots, self._config.queries)
        try:
            sampler = EpisodeSampler(self._data, protocol)
        except ValueError as error:
            raise ValueError(f"validation classes: {error}") from None
        return Exam.draw(sampler, tasks, self._config.seed, purpose)


def _finite_answers(
    exam: Exam, learner: ClassLearner, inputs: Tensor, noise: torch.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """`Exam.answers`; a ValueError if they are not finite."""
    probabilities, y = exam.answers(learner, inputs, noise)
    broken = ~np.isfinite(probabilities).all(-1)
    if broken.any():
        raise ValueError(f"the probabilities of {broken.sum()} of {len(probabilities)} queries are not finite")
    return probabilities, y


def _growth(temperatures: float, sizes: float, least: float) -> float:
    """The power of a ratio of sizes that the ratio of temperatures is, within bounds."""
    return min(max(math.log(temperatures) / math.log(sizes), least), _MOST_GROWTH)


def _other_way(way: int, n_classes: int) -> int | None:
    """A number of classes well away from `way`, to see how a temperature depends on it; None if there is none."""
    most, fewest = min(4 * way, n_classes), way // 3
    if most >= 2 * way:
        return most
    return fewest if fewest >= 2 else None


def _other_shots(shots: int, most: int) -> int | None:
    """A number of shots away from `shots`, likewise: from one to five, up to `most`, and from others to one."""
    if shots > 1:
        return 1
    most = min(5, most)
    return most if most > 1 else None

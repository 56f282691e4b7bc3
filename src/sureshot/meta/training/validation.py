"""Scores on validation classes, by which a checkpoint is chosen.

In evaluation mode batch normalisation uses running statistics, so the embedding of an image does not depend on the
task it appears in: all validation images pass the backbone once, and hundreds of tasks are then looked up in the
embeddings. The tasks are drawn once and are the same at every validation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.evaluation.calibration import temper, temperature_of
from sureshot.meta.evaluation.passes import adapt, default_batch_size, device_of, draw_tasks, embed_set
from sureshot.meta.learners.base import Learner
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.seeds import generator_for
from sureshot.meta.training.config import SelectBy, ValidationConfig

if TYPE_CHECKING:
    from sureshot.data.labelled import LabelledSet


@dataclass(frozen=True)
class ValidationScores:
    """Means over the queries of all tasks.

    Attributes
    ----------
    accuracy : float
        Fraction right.
    nll : float
        Negative log probability of the true class, in nats.
    """

    accuracy: float
    nll: float

    def better_than(self, other: ValidationScores | None, by: SelectBy) -> bool:
        """Whether this is strictly better; anything is better than nothing."""
        if other is None:
            return True
        return self.accuracy > other.accuracy if by == "accuracy" else self.nll < other.nll


class Validator:
    """Scores learners on the same tasks.

    Parameters
    ----------
    data : LabelledSet
        Validation classes.
    training : EpisodeProtocol
        Way and shots are taken from it (the largest of a range; the way as far as there are classes).
    config : ValidationConfig

    Raises
    ------
    ValueError
        If the set is too small for such tasks.
    """

    def __init__(self, data: LabelledSet, training: EpisodeProtocol, config: ValidationConfig) -> None:
        way = min(training.ways[1], data.n_classes)
        protocol = EpisodeProtocol(way, training.shot_range[1], config.queries)
        try:
            self._sampler = EpisodeSampler(data, protocol)
        except ValueError as error:
            raise ValueError(f"validation classes: {error}") from None
        self._rows = draw_tasks(self._sampler, config.tasks, generator_for(config.seed, "validation tasks"))
        self._batch_size = default_batch_size(protocol)
        self._seed = config.seed

    def __call__(self, learner: Learner) -> ValidationScores:
        """Scores of a learner; it is left in the mode in which it came.

        A learner that fits a temperature (`Learner.fits_temperature`) gets it here, and is scored with it.

        Raises
        ------
        ValueError
            If an embedding is not finite.
        """
        if learner.fits_temperature:
            learner.set_temperature(1.0)
        embeddings = embed_set(learner, self._sampler.data.x)
        noise = generator_for(self._seed, "validation noise", device=device_of(learner))
        batches = adapt(learner, self._sampler, self._rows, embeddings, batch_size=self._batch_size, generator=noise)
        found = [(batch.probabilities.reshape(-1, batch.probabilities.shape[-1]), batch.query_y) for batch in batches]
        probabilities = np.concatenate([part for part, _ in found])
        y = np.concatenate([labels.ravel() for _, labels in found])
        if learner.fits_temperature:
            temperature = temperature_of(probabilities, y)
            learner.set_temperature(temperature)
            probabilities = temper(probabilities[None], temperature)[0]
        of_truth = np.take_along_axis(probabilities, y[:, None], -1)
        surprise = -np.log(np.maximum(of_truth, np.finfo(np.float32).tiny))
        return ValidationScores(float((probabilities.argmax(-1) == y).mean()), float(surprise.mean()))

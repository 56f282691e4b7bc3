"""Does a learner know that a query is of none of the support's classes?

Half of each episode's queries come from classes that the support set lacks. An outlier score should put them above
the others; the area under the ROC curve says how often it does. The one-vs-each paper (Snell and Zemel 2021, section
5.4) computes the area within each episode and averages over 1000 episodes: that is primary here. Pooling the scores
of all episodes before ranking asks more, that one threshold serve all tasks, and is given beside it.

Scores, all of latents or probabilities that a learner gives anyway:

negative_max_logit
    Minus the largest score (of a Gaussian process: the largest posterior mean of the latents). The paper's.
negative_max_standardised_logit
    Minus the largest posterior mean divided by its standard deviation; for learners that have variances.
negative_max_probability
    Minus the largest class probability: the usual baseline, blind to a query that is unlike every class alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sureshot.meta.evaluation.estimate import Estimate, Result, mean_over_tasks
from sureshot.metrics import auroc_unknown

OWN_SCORE = "outlier_score"
PRIMARY_SCORE = "negative_max_logit"


@dataclass(frozen=True)
class Detection(Result):
    """How well one score sets out-of-episode queries apart."""

    per_episode: Estimate  # area under the ROC curve within an episode, averaged over episodes; primary
    pooled: float  # the area when the scores of all episodes are ranked together
    areas: NDArray[np.float64] = field(repr=False)  # (T,), the area within each episode, for paired differences
    inside: NDArray[np.float64] = field(repr=False)  # (n,), scores of queries of all episodes, for plots
    outside: NDArray[np.float64] = field(repr=False)  # (m,)


@dataclass(frozen=True)
class OutOfEpisode(Result):
    """Out-of-episode detection by several scores."""

    scores: Mapping[str, Detection]  # by the score's name
    n_tasks: int
    primary: str = PRIMARY_SCORE  # the score to quote: the negative maximum logit, as in the paper

    @property
    def auroc(self) -> Estimate:
        """Area of the primary score, averaged over episodes."""
        return self.scores[self.primary].per_episode

    @property
    def own_auroc(self) -> Estimate | None:
        """Area of the learner's own outlier score, averaged over episodes."""
        return self.scores[OWN_SCORE].per_episode if OWN_SCORE in self.scores else None

    @property
    def areas(self) -> NDArray[np.float64]:
        """Area of the primary score within each episode, (T,)."""
        return self.scores[self.primary].areas


def outlier_scores(
    mean: NDArray[np.float64],  # (T, Q, C)
    variance: NDArray[np.float64],  # (T, Q, C)
    probabilities: NDArray[np.float64],  # (T, Q, C)
    present: NDArray[np.bool_] | None = None,  # (T, C), False for classes that a task lacks
    own: NDArray[np.float64] | None = None,  # (T, Q), what the learner itself offers as a score
) -> dict[str, NDArray[np.float64]]:
    """Outlier scores (T, Q) by name; larger is less like any class."""
    lacking = np.zeros(mean.shape, dtype=bool) if present is None else np.broadcast_to(~present[:, None], mean.shape)
    scores = {PRIMARY_SCORE: -np.where(lacking, -np.inf, mean).max(axis=-1)}
    if (variance > 0)[~lacking].all():
        standardised = mean / np.sqrt(np.where(variance > 0, variance, 1.0))
        scores["negative_max_standardised_logit"] = -np.where(lacking, -np.inf, standardised).max(axis=-1)
    scores["negative_max_probability"] = -probabilities.max(axis=-1)
    if own is not None:
        scores[OWN_SCORE] = own
    return scores


def detect(
    scores: NDArray[np.float64],  # (T, Q)
    outside: NDArray[np.bool_],  # (T, Q), True for queries of no class of the episode
    mask: NDArray[np.bool_] | None = None,  # (T, Q), False for padded queries
) -> Detection:
    """Areas under the ROC curve."""
    real = np.ones(outside.shape, dtype=bool) if mask is None else mask
    within = _areas(scores, outside & real, ~outside & real)
    known, unknown = scores[~outside & real], scores[outside & real]
    return Detection(mean_over_tasks(within), auroc_unknown(known, unknown), within, known, unknown)


def _areas(scores: NDArray[np.float64], outside: NDArray[np.bool_], inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The area within each task, (T,), from ranks within the task (ties share their mean rank)."""
    # Padding is ranked above everything else, so that it leaves the ranks of real queries alone.
    ranks = rankdata(np.where(outside | inside, scores, np.inf), axis=1)
    n_out, n_in = outside.sum(axis=1), inside.sum(axis=1)
    return ((ranks * outside).sum(axis=1) - n_out * (n_out + 1) / 2) / (n_out * n_in)

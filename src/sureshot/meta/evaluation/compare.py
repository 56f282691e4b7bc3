"""Several learners on the same tasks: one table, and differences that are paired task by task.

Most of the spread of few-shot accuracy is between tasks: some are easy for everyone. On the same tasks it cancels,
and the standard error of a difference is often a third of what two separate intervals suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pandas as pd

from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeProtocol
from sureshot.meta.evaluation.estimate import Estimate, Result, mean_over_tasks
from sureshot.meta.evaluation.evaluate import Evaluation, evaluate
from sureshot.meta.evaluation.out_of_episode import OWN_SCORE
from sureshot.meta.learners.base import ClassLearner
from sureshot.progress import Progress, within

L = TypeVar("L")
E = TypeVar("E")


@dataclass(frozen=True)
class Difference(Result):
    """A learner less the reference, on the same tasks."""

    accuracy: Estimate  # above 0: the learner is right more often
    nll: Estimate  # mean over tasks, of variant "none"; below 0: the learner's probabilities are better
    auroc: Estimate | None  # of out-of-episode detection by the primary score, within episodes
    own_auroc: Estimate | None = None  # the same by the learners' own scores


@dataclass(frozen=True)
class Comparison(Result):
    """Evaluations of several learners under one protocol, with the same tasks."""

    evaluations: Mapping[str, Evaluation]  # by the learner's name
    reference: str  # the learner that differences are taken from

    also = ("differences",)

    @property
    def differences(self) -> dict[str, Difference]:
        """`Difference` from the reference by name, for all other learners."""
        base = self.evaluations[self.reference]
        return {name: _difference(other, base) for name, other in self.evaluations.items() if name != self.reference}

    def table(self) -> pd.DataFrame:
        """One row for each learner.

        Columns: accuracy and its error; ``batch_deviation``; NLL, Brier, ECE, MCE and their errors as they are and,
        ending in ``_temperature``, after temperature scaling; ``auroc`` and ``own_auroc`` (out-of-episode, within
        episodes, by the largest logit and by the learner's own score); ``accuracy_difference``, ``nll_difference``,
        ``auroc_difference``, ``own_auroc_difference`` from the reference with their errors; ``milliseconds`` and
        ``milliseconds_batched`` for each task. What was not measured is missing (NaN).
        """
        differences = self.differences
        rows = {name: _row(found, differences.get(name)) for name, found in self.evaluations.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("learner")


def compare(
    learners: Mapping[str, ClassLearner],  # learner by name
    data: LabelledSet,
    protocol: EpisodeProtocol,
    *,
    reference: str | None = None,  # the learner to take differences from; the first by default
    progress: Progress | None = None,  # as that of `evaluate`; what is said begins with the learner's name
    **options: Any,  # of `evaluate`, the same for all
) -> Comparison:
    """Evaluate several learners on the same tasks."""
    one = partial(evaluate, data=data, protocol=protocol, **options)
    return Comparison(*evaluate_each(learners, reference, progress, one))


def evaluate_each(
    learners: Mapping[str, L],
    reference: str | None,
    progress: Progress | None,
    evaluated: Callable[..., E],  # of a learner, and with its progress
) -> tuple[Mapping[str, E], str]:
    """The evaluation of each learner by its name, and the reference's name; errors name the learner."""
    if not learners:
        raise ValueError("learners: expected at least one")
    chosen = next(iter(learners)) if reference is None else reference
    if chosen not in learners:
        raise ValueError(f"reference: expected one of {', '.join(learners)}, got {chosen!r}")
    found = {}
    for name, learner in learners.items():
        try:
            found[name] = evaluated(learner, progress=progress and within(progress, name, 0.0, 1.0))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return MappingProxyType(found), chosen


def _difference(other: Evaluation, base: Evaluation) -> Difference:
    scores, reference = other.per_task["none"], base.per_task["none"]
    auroc = own = None
    if (ours := other.out_of_episode) is not None and (theirs := base.out_of_episode) is not None:
        auroc = mean_over_tasks(ours.areas - theirs.areas)
        if OWN_SCORE in ours.scores and OWN_SCORE in theirs.scores:
            own = mean_over_tasks(ours.scores[OWN_SCORE].areas - theirs.scores[OWN_SCORE].areas)
    accuracy, nll = (mean_over_tasks(getattr(scores, name) - getattr(reference, name)) for name in ("accuracy", "nll"))
    return Difference(accuracy, nll, auroc, own)


def _row(found: Evaluation, difference: Difference | None) -> dict[str, float | None]:
    row: dict[str, float | None] = {}

    def enter(name: str, estimate: Estimate | None) -> None:
        row[name] = None if estimate is None else estimate.mean
        row[f"{name}_error"] = None if estimate is None else estimate.standard_error

    enter("accuracy", found.accuracy)
    row["batch_deviation"] = found.accuracy.batch_deviation
    for variant, suffix in (("none", ""), ("temperature", "_temperature")):
        calibration = found.calibration.get(variant)
        for score in ("nll", "brier", "ece", "mce"):
            enter(f"{score}{suffix}", None if calibration is None else getattr(calibration, score))
    row["temperature"] = None if found.temperature is None else found.temperature.value
    enter("auroc", None if found.out_of_episode is None else found.out_of_episode.auroc)
    enter("own_auroc", None if found.out_of_episode is None else found.out_of_episode.own_auroc)
    for name in ("accuracy", "nll", "auroc", "own_auroc"):
        enter(f"{name}_difference", None if difference is None else getattr(difference, name))
    row["milliseconds"] = None if found.time is None else 1000 * found.time.single
    row["milliseconds_batched"] = None if found.time is None else 1000 * found.time.batched
    return row

"""How good are the answers of a learner of numbers, by size of the context, where training was and beyond?

The tasks come from the seed, so two methods that are evaluated with the same arguments meet the same ones, and tasks
of a size are those of the largest size with fewer rows of context. Densities are of single rows (means of marginal
densities), as a mixture's density of many rows at once is of another kind; with several targets a row's is that of all
of them, and the other scores are means over them. Standard errors are over tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from sureshot.meta.evaluation.compare import evaluate_each
from sureshot.meta.evaluation.estimate import Estimate, Result, mean_over_queries
from sureshot.meta.functions.source import FunctionSource, with_context
from sureshot.meta.learners.functions import AdaptsToFunctions
from sureshot.meta.protocols import FunctionProtocol
from sureshot.meta.tasks import Tasks
from sureshot.metrics.numbers import mixture_ranked_probability_score
from sureshot.networks.seeds import generator_for
from sureshot.progress import Progress

SIZES = (1, 2, 5, 10, 20, 50, 100)
COVERAGES = (0.5, 0.9, 0.95)


@dataclass(frozen=True)
class SizeScores(Result):
    """At one size of the context."""

    region: str  # "inside" the range of the training's inputs, or "beyond"
    context: int
    log_density: Estimate  # nats a row
    rmse: Estimate
    crps: Estimate  # in units of the targets
    coverage: Mapping[str, Estimate]  # of central intervals, by their nominal share
    sums: NDArray[np.float64] = field(repr=False)  # (T,), of log densities, for paired differences
    counts: NDArray[np.float64] = field(repr=False)  # (T,), of their rows


@dataclass(frozen=True)
class FunctionEvaluation(Result):
    """What a method reached."""

    n_tasks: int
    targets: int
    seed: int
    scores: tuple[SizeScores, ...]

    def at(self, region: str, context: int) -> SizeScores:
        """Those of a region and a size."""
        return next(one for one in self.scores if (one.region, one.context) == (region, context))

    @property
    def by_region(self) -> dict[str, list[SizeScores]]:
        """Scores of all sizes, by region."""
        regions = dict.fromkeys(one.region for one in self.scores)
        return {region: [one for one in self.scores if one.region == region] for region in regions}

    def ahead_of(self, other: FunctionEvaluation) -> tuple[Ahead, ...]:
        """Log densities less those of another method, paired by task; both must have had the same tasks."""
        return tuple(
            Ahead(one.region, one.context, mean_over_queries(one.sums - its.sums, one.counts))
            for one, its in zip(self.scores, other.scores, strict=True)
        )


@dataclass(frozen=True)
class Ahead(Result):
    """By how much a method is ahead of another at one size of the context; above 0: its answers are better."""

    region: str
    context: int
    log_density: Estimate  # nats a row


@dataclass(frozen=True)
class FunctionComparison(Result):
    """Evaluations of several learners of numbers on the same tasks."""

    evaluations: Mapping[str, FunctionEvaluation]  # by the learner's name
    reference: str  # the learner that differences are taken from

    also = ("differences",)

    @property
    def differences(self) -> dict[str, tuple[Ahead, ...]]:
        """From the reference, by name, for all other learners."""
        base = self.evaluations[self.reference]
        return {name: one.ahead_of(base) for name, one in self.evaluations.items() if name != self.reference}


def compare_functions(
    methods: Mapping[str, AdaptsToFunctions],  # by name
    source: FunctionSource,
    *,
    reference: str | None = None,  # the method to take differences from; the first by default
    progress: Progress | None = None,  # as that of `evaluate_functions`; what is said begins with the method's name
    **options: Any,  # of `evaluate_functions`, the same for all
) -> FunctionComparison:
    """Evaluate several methods on the same tasks."""
    one = partial(evaluate_functions, source=source, **options)
    return FunctionComparison(*evaluate_each(methods, reference, progress, one))


def evaluate_functions(
    method: AdaptsToFunctions,  # a learner, or what is not learnt
    source: FunctionSource,
    *,
    sizes: Sequence[int] = SIZES,  # of contexts; 0 is the prior
    targets: int = 50,  # of each task
    n_tasks: int = 500,
    seed: int = 0,
    batch_size: int = 50,  # tasks adapted at a time
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> FunctionEvaluation:
    """Evaluate a method, beyond the training's inputs too where the source reaches there."""
    if not sizes or min(sizes) < 0 or n_tasks < 1 or batch_size < 1:
        raise ValueError(f"sizes must be from 0 and tasks at least 1, got {list(sizes)}, {n_tasks} and {batch_size}")
    regions = ("inside", "beyond")[: 1 + (source.inputs is not None)]
    protocol = FunctionProtocol(max(sizes), targets)
    found: list[SizeScores] = []
    for region in regions:
        generator = generator_for(seed, f"functions {region}")
        exam = source.sample(n_tasks, protocol, generator, beyond=region == "beyond")
        assert exam.support_mask is not None
        most = int(exam.support_mask.sum(1).max())  # no task has more: larger sizes would repeat its scores
        for size in [size for size in sizes if not any(most <= other < size for other in sizes)]:
            if progress is not None:
                progress(f"{size} rows of context, {region}", len(found) / (len(regions) * len(sizes)))
            asked = with_context(exam, size).to(device)
            starts = range(0, n_tasks, batch_size)
            parts = [_sums(method, asked.select(slice(start, start + batch_size))) for start in starts]
            joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            found.append(_summarised(region, size, joined))
    return FunctionEvaluation(n_tasks, targets, seed, tuple(found))


def _sums(method: AdaptsToFunctions, tasks: Tasks) -> dict[str, NDArray[np.float64]]:
    """Sums of every score over the targets of each task, (T,), and their counts."""
    moments = method.adapt(tasks).moments(tasks.query_x).double()
    density = moments.log_density(tasks.query_y.double()).cpu().numpy()
    parts = (moments.mean, moments.deviation, moments.weight, tasks.query_y.double())
    mean, deviation, weight, y = (part.cpu().numpy() for part in parts)
    share = (weight * ndtr((y - mean) / deviation)).sum(0)  # a central interval holds what is near a half
    scores = {
        "log_density": density,
        "square": (((weight * mean).sum(0) - y) ** 2).mean(-1),
        "crps": mixture_ranked_probability_score(mean, deviation, y, weight).mean(-1),
        **{str(level): (np.abs(share - 0.5) <= level / 2).mean(-1) for level in COVERAGES},
    }
    mask = tasks.query.real.double().cpu().numpy()
    return {name: (value * mask).sum(1) for name, value in scores.items()} | {"count": mask.sum(1)}


def _summarised(region: str, size: int, sums: Mapping[str, NDArray[np.float64]]) -> SizeScores:
    counts = sums["count"]
    found = {name: mean_over_queries(values, counts) for name, values in sums.items()}
    square = found["square"]
    rmse = square.mean**0.5
    error = square.standard_error / (2 * rmse or 1.0)  # zeros have no error
    return SizeScores(
        region=region,
        context=size,
        log_density=found["log_density"],
        rmse=Estimate(rmse, error),
        crps=found["crps"],
        coverage={str(level): found[str(level)] for level in COVERAGES},
        sums=sums["log_density"],
        counts=counts,
    )

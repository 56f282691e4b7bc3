"""Accuracy and calibration when images are corrupted at test time.

As in the one-vs-each paper (Snell and Zemel 2021, section 5.3 and tables 7-9) *both* support and query images are
corrupted: the whole task was photographed badly. With ``corrupted="query"`` the support stays clean, which asks
another question (labels were collected with care, use is in the wild). The tasks are the first ones of the clean
evaluation, so that the loss of accuracy is a paired difference. Every image is corrupted once for each kind and
severity, with noise from a stream of the evaluation's seed: it is the same for every learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor

from sureshot.data.corruptions import corrupt
from sureshot.meta.evaluation.calibration import pooled_curve
from sureshot.meta.evaluation.estimate import Estimate, Result, mean_over_queries, mean_over_tasks
from sureshot.meta.evaluation.passes import Exam, task_inputs
from sureshot.meta.evaluation.scores import TaskScores, join, score_tasks
from sureshot.meta.learners.base import ClassLearner
from sureshot.networks.seeds import generator_for
from sureshot.progress import Progress

Corrupted = Literal["both", "query"]


@dataclass(frozen=True)
class CorruptedScores(Result):
    """Scores of tasks whose images are corrupted."""

    kind: str  # such as "gaussian_noise"
    severity: int  # 1 to 5
    accuracy: Estimate
    accuracy_change: Estimate  # accuracy less that of the same tasks clean
    brier: Estimate
    nll: Estimate
    ece: float


@dataclass(frozen=True)
class Robustness(Result):
    """Scores for every kind and severity."""

    n_tasks: int
    corrupted: Corrupted  # support and query images, or query images only
    clean_accuracy: Estimate  # of the same tasks without corruption
    scores: tuple[CorruptedScores, ...]


def measure_robustness(
    learner: ClassLearner,
    exam: Exam,  # on images
    inputs: Tensor,  # (N, ...), of the clean images; what `task_inputs` gives
    clean: TaskScores,  # of the same tasks, clean
    *,
    corruptions: Sequence[str],
    severities: Sequence[int],
    corrupted: Corrupted,
    seed: int,
    progress: Progress,
) -> Robustness:
    """Score tasks under every kind and severity of corruption."""
    found = []
    settings = [(kind, severity) for kind in corruptions for severity in severities]
    for done, (kind, severity) in enumerate(settings):
        progress(f"{kind.replace('_', ' ')}, severity {severity}", done / len(settings))
        of_images = generator_for(seed, f"noise: {kind}", severity)
        change = partial(corrupt, kind=kind, severity=severity, generator=of_images)
        noisy = task_inputs(learner, exam.sampler.data.x, change)
        noise = generator_for(seed, "adaptation", device=learner.device)
        batches = exam.adapt(learner, noisy if corrupted == "both" else inputs, noise, query_inputs=noisy)
        scores = join(score_tasks(batch.probabilities, batch.query_y, batch.query_mask) for batch in batches)
        found.append(
            CorruptedScores(
                kind,
                severity,
                accuracy=mean_over_tasks(scores.accuracy),
                accuracy_change=mean_over_tasks(scores.accuracy - clean.accuracy),
                brier=mean_over_queries(scores.squared_error, scores.count),
                nll=mean_over_queries(scores.log_loss, scores.count),
                ece=pooled_curve(scores).expected_error,
            )
        )
    return Robustness(len(exam.rows), corrupted, mean_over_tasks(clean.accuracy), tuple(found))

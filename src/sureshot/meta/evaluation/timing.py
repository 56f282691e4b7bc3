"""How long a task takes: adapting to a support set and predicting its queries, given their embeddings.

A backbone whose embeddings can be computed ahead is left out, since it is the same for all such learners. Times are
medians over repetitions after a warm-up, for one task by itself (a person waits for it) and for each task of a batch (a
service adapts many at once). They depend on the machine and on the number of threads, which is recorded, and are no
part of what a seed determines.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from sureshot.meta.evaluation.estimate import Result
from sureshot.meta.evaluation.passes import Exam, condition, in_parts
from sureshot.meta.learners.base import ClassLearner, evaluating
from sureshot.meta.tasks import Tasks

_WARM_UPS = 2
_REPETITIONS = 20
_SECONDS = 3.0  # after which a slow learner is repeated a few times at most, once if a single time is longer
_FEWEST = 3


@dataclass(frozen=True)
class AdaptationTime(Result):
    """Medians in seconds for each task."""

    single: float  # one task at a time
    batched: float  # a batch's time divided by its tasks
    batch_size: int
    queries: int  # of each task
    threads: int  # of torch
    device: str


def measure_adaptation(learner: ClassLearner, exam: Exam, inputs: Tensor) -> AdaptationTime:
    """Time the learner on the first tasks."""
    batch = exam.sampler.gather(exam.first(exam.batch_size).rows, inputs).to(learner.device)
    single = _median_seconds(learner, batch.select(slice(1)))
    return AdaptationTime(
        single=single,
        batched=single if len(batch) == 1 else _median_seconds(learner, batch) / len(batch),
        batch_size=len(batch),
        queries=int(batch.query_y.shape[1]),
        threads=torch.get_num_threads(),
        device=learner.device.type,
    )


def _median_seconds(learner: ClassLearner, tasks: Tasks) -> float:
    seconds: list[float] = []
    generator = torch.Generator(device=tasks.support_y.device).manual_seed(0)
    with evaluating(learner):
        while len(seconds) < _WARM_UPS + _FEWEST or (
            len(seconds) < _WARM_UPS + _REPETITIONS and sum(seconds) < _SECONDS
        ):
            start = time.perf_counter()
            in_parts(condition(learner, tasks, generator), tasks, "probabilities")  # ends on the CPU: nothing pending
            seconds.append(time.perf_counter() - start)
            if len(seconds) > 1 and seconds[-1] > _SECONDS:
                return seconds[-1]  # no noise that repetitions would tell from so long a time
    return median(seconds[_WARM_UPS:])

"""Evaluate one learner: accuracy, calibration, out-of-episode detection, robustness, time.

All draws come from the seed, by purpose, so two learners evaluated with the same arguments meet the same tasks (see
`sureshot.meta.evaluation.compare`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sureshot.data.checks import near
from sureshot.data.corruptions import CORRUPTIONS, SEVERITIES
from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation.accuracy import Accuracy, summarise_accuracy
from sureshot.meta.evaluation.calibration import (
    LEAST_ERRORS,
    Calibration,
    at_temperature,
    summarise_calibration,
    temperature_of,
    temperature_of_least_error,
)
from sureshot.meta.evaluation.estimate import Result
from sureshot.meta.evaluation.out_of_episode import OutOfEpisode, detect, outlier_scores
from sureshot.meta.evaluation.passes import Adapted, Exam, task_inputs
from sureshot.meta.evaluation.robustness import Corrupted, Robustness, measure_robustness
from sureshot.meta.evaluation.scores import TaskScores, join, score_tasks
from sureshot.meta.evaluation.timing import AdaptationTime, measure_adaptation
from sureshot.meta.learners.base import ClassLearner
from sureshot.networks.seeds import generator_for
from sureshot.progress import Progress
from sureshot.ranges import check_counts

logger = logging.getLogger(__name__)

VALIDATION_TASKS = 1000

_VALUES_FOR_TEMPERATURE = 10_000_000  # probabilities held at once while the temperature is fitted


@dataclass(frozen=True)
class FittedTemperature(Result):
    """A temperature and the tasks of validation classes that it was fitted on."""

    value: float
    protocol: EpisodeProtocol  # that of the evaluation, but for a lower way if there are fewer validation classes
    n_tasks: int


@dataclass(frozen=True)
class Evaluation(Result):
    """What one learner reached under one protocol."""

    protocol: EpisodeProtocol
    n_tasks: int
    seed: int
    batch_size: int
    accuracy: Accuracy
    # By variant: "none", "temperature" if validation classes were given, and those of `least_errors`.
    calibration: Mapping[str, Calibration]
    temperature: FittedTemperature | None
    out_of_episode: OutOfEpisode | None
    robustness: Robustness | None
    time: AdaptationTime | None
    per_task: Mapping[str, TaskScores] = field(repr=False)  # by variant, for paired differences


def evaluate(
    learner: ClassLearner,  # left in the mode (training or evaluation) it was in; evaluated in evaluation mode
    data: LabelledSet,  # test classes
    protocol: EpisodeProtocol,  # the papers test with 15 queries of each class
    *,
    n_tasks: int = 3000,  # for accuracy and calibration; as many as in the papers
    n_batches: int = 5,  # of episodes, for the papers' standard deviation; 5 of 600
    seed: int = 0,  # of the tasks and of everything else that is drawn
    batch_size: int | None = None,  # tasks adapted at a time; chosen from the protocol so that memory stays bounded
    validation: LabelledSet | None = None,  # with these classes, and only with them, there is the variant "temperature"
    validation_tasks: int = VALIDATION_TASKS,  # tasks of validation classes that the temperature is fitted on
    # Also the variants "least_ece" and "least_mce", as some papers report: temperatures that minimise a calibration
    # error of those tasks. Needs `validation`.
    least_errors: bool = False,
    # Tasks for out-of-episode detection, 0 for none. Left out, with a note in the log, if there are fewer classes than
    # twice the way.
    out_of_episode: int = 1000,
    robustness: int = 1000,  # tasks under each corruption, 0 for none; at most `n_tasks`; for images only
    corruptions: Sequence[str] = CORRUPTIONS,  # kinds of `sureshot.data.corruptions.corrupt`
    severities: Sequence[int] = SEVERITIES,  # 1 to 5
    corrupted: Corrupted = "both",  # which images are corrupted: both support and query, as in the paper, or "query"
    timing: bool = True,  # measure adaptation times (which no seed determines)
    progress: Progress | None = None,  # called as the work proceeds
) -> Evaluation:
    """Evaluate a learner on tasks of a labelled set's classes.

    Raises
    ------
    ValueError
        If the data are too small for the protocol (naming the class), their inputs are of another shape than the
        learner's backbone takes, a prediction is not a probability, or a number is out of range.
    """
    check_counts(1, n_tasks=n_tasks, n_batches=n_batches, batch_size=batch_size, validation_tasks=validation_tasks)
    check_counts(0, out_of_episode=out_of_episode, robustness=robustness)
    if n_batches > n_tasks:
        raise ValueError(f"n_batches must be at most the {n_tasks} tasks, got {n_batches}")
    _check_corruptions(corruptions, severities, corrupted)
    if least_errors and validation is None:
        raise ValueError("least_errors needs validation classes: pass validation, or leave it out")
    tell = progress or (lambda what, fraction: None)
    sampler = EpisodeSampler(data, protocol)
    tell("embedding", 0.0)
    inputs = task_inputs(learner, data.x)
    fitted = None
    temperatures = {"none": 1.0}
    if validation is not None:
        tell("temperature on validation classes", 0.0)
        answers, used, n_answered = _validation_answers(
            learner, validation, protocol, validation_tasks, seed, batch_size
        )
        fitted = FittedTemperature(temperature_of(*answers), used, n_answered)
        temperatures["temperature"] = fitted.value
        if least_errors:
            temperatures |= {name: temperature_of_least_error(*answers, error) for name, error in LEAST_ERRORS.items()}
    exam = Exam.draw(sampler, n_tasks, seed, batch_size=batch_size)
    adapted = exam.adapt(learner, inputs, generator_for(seed, "adaptation", device=learner.device))
    per_task = _score_variants(_reported(adapted, n_tasks, tell), temperatures)
    plain = per_task["none"]
    n_robust = min(robustness, n_tasks)
    if n_robust and data.x.dim() != 4:
        logger.info("robustness is left out: inputs of shape %s are no images", tuple(data.x.shape[1:]))
        n_robust = 0
    return Evaluation(
        protocol=protocol,
        n_tasks=n_tasks,
        seed=seed,
        batch_size=exam.batch_size,
        accuracy=summarise_accuracy(plain.accuracy, n_batches),
        calibration=MappingProxyType(
            {name: summarise_calibration(scores, name, temperatures[name], seed) for name, scores in per_task.items()}
        ),
        temperature=fitted,
        out_of_episode=_out_of_episode(learner, sampler, inputs, out_of_episode, batch_size, seed, tell),
        robustness=measure_robustness(
            learner,
            exam.first(n_robust),
            inputs,
            plain.select(slice(n_robust)),
            corruptions=corruptions,
            severities=severities,
            corrupted=corrupted,
            seed=seed,
            progress=tell,
        )
        if n_robust and corruptions and severities
        else None,
        time=measure_adaptation(learner, exam, inputs) if timing else None,
        per_task=MappingProxyType(per_task),
    )


def _validation_answers(
    learner: ClassLearner,
    validation: LabelledSet,
    protocol: EpisodeProtocol,
    n_tasks: int,
    seed: int,
    batch_size: int | None,
) -> tuple[tuple[NDArray[np.float64], NDArray[np.int64]], EpisodeProtocol, int]:
    """`Exam.answers` of the learner to tasks of validation classes, the protocol of these and their number."""
    low, high = (min(way, validation.n_classes) for way in protocol.ways)
    used = replace(protocol, way=low if low == high else (low, high))
    if used != protocol:
        logger.info("the temperature is fitted on %d-way tasks: there are no more validation classes", high)
    try:
        sampler = EpisodeSampler(validation, used)
    except ValueError as error:
        raise ValueError(f"validation classes, for the temperature: {error}") from error
    wanted = min(n_tasks, max(1, _VALUES_FOR_TEMPERATURE // (high**2 * used.query_range[1])))
    exam = Exam.draw(sampler, wanted, seed, "validation tasks", batch_size=batch_size)
    noise = generator_for(seed, "validation adaptation", device=learner.device)
    return exam.answers(learner, task_inputs(learner, validation.x), noise), used, wanted


def _score_variants(adapted: Iterator[Adapted], temperatures: Mapping[str, float]) -> dict[str, TaskScores]:
    """Scores of each variant; "none" is what the learner says, to the bit."""
    parts: dict[str, list[TaskScores]] = {name: [] for name in temperatures}
    for batch in adapted:
        for name, temperature in temperatures.items():
            predicted = batch.probabilities
            tempered = predicted if name == "none" else at_temperature(predicted, temperature, batch.class_mask)
            parts[name].append(score_tasks(tempered, batch.query_y, batch.query_mask))
    return {name: join(scores) for name, scores in parts.items()}


def _out_of_episode(
    learner: ClassLearner,
    sampler: EpisodeSampler,
    inputs: Tensor,
    n_tasks: int,
    batch_size: int | None,
    seed: int,
    tell: Progress,
) -> OutOfEpisode | None:
    if n_tasks == 0:
        return None
    needed = 2 * sampler.protocol.ways[1]
    if needed > sampler.n_classes:
        logger.info(
            "out-of-episode detection is left out: it needs %d classes, there are %d", needed, sampler.n_classes
        )
        return None
    exam = Exam.draw(sampler, n_tasks, seed, "out-of-episode tasks", batch_size=batch_size, out_of_episode=True)
    noise = generator_for(seed, "out-of-episode adaptation", device=learner.device)
    adapted = exam.adapt(learner, inputs, noise, with_latents=True)
    found: dict[str, list[np.ndarray]] = {}
    for batch in _reported(adapted, n_tasks, tell, "out-of-episode detection"):
        assert batch.mean is not None
        assert batch.variance is not None
        scores = outlier_scores(batch.mean, batch.variance, batch.probabilities, batch.class_mask, batch.outlier)
        for name, values in scores.items():
            found.setdefault(name, []).append(values)
    outside, real = (exam.rows.query_y < 0).numpy(), exam.rows.query.real.numpy()
    complete = {name: np.concatenate(values) for name, values in found.items()}
    judged = {name: detect(values, outside, real) for name, values in complete.items() if len(values) == n_tasks}
    return OutOfEpisode(MappingProxyType(judged), n_tasks)


def _reported(
    adapted: Iterator[Adapted], n_tasks: int, tell: Progress, what: str = "adapting to tasks"
) -> Iterator[Adapted]:
    done = 0
    for batch in adapted:
        tell(what, done / n_tasks)
        done += len(batch.tasks)
        yield batch


def _check_corruptions(corruptions: Sequence[str], severities: Sequence[int], corrupted: str) -> None:
    for kind in corruptions:
        if kind not in CORRUPTIONS:
            raise ValueError(
                f"corruptions: expected some of {', '.join(CORRUPTIONS)}, got {kind!r}{near(kind, CORRUPTIONS)}"
            )
    for severity in severities:
        if severity not in SEVERITIES:
            raise ValueError(f"severities: expected whole numbers from 1 to 5, got {severity!r}")
    if corrupted not in get_args(Corrupted):
        raise ValueError(f"corrupted: expected 'both' or 'query', got {corrupted!r}")

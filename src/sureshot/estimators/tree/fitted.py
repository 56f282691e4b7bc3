"""What `TreeGPClassifier` has learnt: the rows that are kept, and a strategy's model of them.

The kept rows are means of raw rows, with weights that say of how many. The strategy sees them scaled like all
inputs; with the numbers of the sessions and what the first session taught they make the model, so they are all that a
model file holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.layout import aligned
from sureshot.computing.memory import memory_budget
from sureshot.computing.threads import one_thread, threads_for
from sureshot.estimators.classes.class_fitted import ClassFitted, ClassPredictor, NoInfluence
from sureshot.estimators.classes.uncertainty import entropies
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.outliers import with_common_scale
from sureshot.estimators.rows.labelled_rows import LabelledRows, merge_rows
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs, scaling_for_sessions, wider_limits
from sureshot.incremental.gaussian_classes import GaussianClasses
from sureshot.incremental.method import Memory
from sureshot.incremental.simulated_sessions import FEWEST_CLASSES, FEWEST_UNSEEN
from sureshot.incremental.strategy import ClassRows, SessionModel, Strategy
from sureshot.tree.class_tree import ClassTree

MOST_COUNTED = 2.0**53
"""Rows that weights may stand for in all: up to here every whole number is one in floating point."""

_NO_ROWS = (
    "TreeGPClassifier keeps means of rows, not the rows, so none can be left out to calibrate decisions by: use "
    "GPClassifier or FewShotClassifier, or compare outlier_score and predict_proba with those of rows held out."
)


@dataclass(frozen=True)
class TreePredictor(ClassPredictor):
    """A strategy's model, of inputs that are scaled."""

    scaling: Scaling
    model: SessionModel
    device: torch.device

    @property
    def queries_at_once(self) -> int:
        return 2 * AT_ONCE // self.model.entries_per_query

    def inputs(self, kept: np.ndarray) -> Tensor:
        return kernel_inputs(kept, self.scaling, self.device)

    def moments(self, queries: Tensor) -> tuple[Tensor]:
        """Log probabilities (Q, C)."""
        return (self.model.log_probabilities(queries),)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        return torch.softmax(moments[0] / temperature, -1)

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.class_latents(queries)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        return self.model.outlier_scores(queries)

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        mean, variance = self.model.latents(queries)
        return entropies(
            mean[None], variance[None], lambda drawn: torch.softmax(self.model.class_logits(drawn) / temperature, 1)
        )


@dataclass(frozen=True)
class TreeFitted(ClassFitted):
    """``rows`` are those that are kept."""

    predictor: TreePredictor
    strategy: Strategy
    sessions: np.ndarray  # (C,) int64, in which each class came: 0 for those that had rows in the first one
    seed: int

    @property
    def model(self) -> SessionModel:
        """The strategy's."""
        return self.predictor.model

    @property
    def scaling(self) -> Scaling:
        """Of inputs."""
        return self.predictor.scaling

    @property
    def tree(self) -> ClassTree:
        """The tree of the classes, numbered as users see them, in sorted order."""
        return self.model.tree.relabelled(np.argsort(self.places).tolist())

    @property
    def memory(self) -> Memory:
        """Numbers kept: a weight and a row for each kept row; covariances or a temperature, and the scaling."""
        width = self.rows.x.shape[1]
        columns = (self.scaling.mean, self.scaling.scale, self.scaling.limits, self.scaling.deviations)
        shared = sum(part.numel() for part in self.model.shared.values())
        shared += sum(part.size for part in columns if part is not None)
        return Memory(shared, len(self.rows.y) * (width + 1), len(self.classes))

    @property
    def frequencies(self) -> np.ndarray:
        """All classes count alike, however many of their rows are kept."""
        return np.ones(len(self.classes))

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        """Refused."""
        raise NoInfluence(
            "TreeGPClassifier keeps means of rows and no rows, so it does not know which of them drove an answer; "
            "GPClassifier and FewShotClassifier do."
        )

    @property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Refused, as a row cannot be taken off a mean."""
        raise ValueError(_NO_ROWS)

    def scalings(self, x: np.ndarray) -> tuple[Scaling, ...]:
        """By all rows of the first session, of which those that are kept are means."""
        scaling = self.scaling.of_distances
        return (scaling,) if scaling.deviations is None else with_common_scale(scaling, scaling.deviations)

    @property
    def has_directions(self) -> bool:
        """Of the first session's rows, as means of them are shorter."""
        return self.scaling.deviations is None

    def leading(self, queries: Tensor, k: int, beam: int | None) -> tuple[Tensor, Tensor]:
        """Probabilities and numbers of the k most probable classes, each (Q, k); by a search where it is faster.

        Under another class prior all classes are looked at: a beam follows those that are likely without it.
        """
        if self.class_prior is not None:
            p = self.answers(self.predictor.moments(queries), self.temperature)
            p, order = p.sort(dim=1, descending=True, stable=True)
            return p[:, :k], order[:, :k]
        beam = self.model.usual_beam if beam is None else beam
        few = len(self.classes) <= self.model.classes_for_a_branch * beam
        found = self.model.leading(queries, k, None if few else beam, self.temperature)
        return found.log_probabilities.exp(), found.classes


def first_session(training: TrainingSet, strategy: Strategy, seed: int, device: torch.device) -> TreeFitted:
    """Learn from the rows of the first session, which say how inputs are scaled."""
    _check_unseen(training, strategy)
    scaling = scaling_for_sessions(training.rows.x, training.rows.weight)
    training = _limited(training, scaling)
    sessions = np.ones(len(training.classes), dtype=np.int64)
    sessions[training.rows.y] = 0
    _check_counts(training.rows)
    _check_memory(training.rows)
    with one_thread():
        inputs = _inputs(training.rows, sessions, scaling, device)
        if training.unseen is not None:
            inputs = replace(inputs, unseen=aligned(training.unseen, device))
        groups = strategy.groups(inputs, None)
        rows = _condensed(training.rows, groups)
        kept = _inputs(rows, sessions, scaling, device)
    with threads_for(len(rows.y)):
        taught, counts_as = strategy.first_session(inputs, kept, seed)
        shared = {name: aligned(part) for name, part in taught.shared.items()}  # laid out as in a model file
        if training.unseen is not None:
            rows = _of_whole_rows(_condensed(replace(training.rows, weight=counts_as.cpu().numpy()), groups))
            kept = _inputs(rows, sessions, scaling, device)
        model = strategy.later_session(shared, kept, seed, taught)
    return _fitted(training, rows, scaling, strategy, sessions, model, seed, device)


def later_session(training: TrainingSet, known: TreeFitted) -> TreeFitted:
    """Learn from kept rows and new ones, or from fewer kept rows; what the first session taught stays."""
    scaling = known.scaling
    if scaling.limits is not None and not known.strategy.keeps_first_answers:
        rows = training.rows
        scaling = replace(scaling, limits=wider_limits(scaling.limits, rows.x, rows.y, rows.weight))
    training = _limited(training, scaling)
    _check_counts(training.rows)
    number = {label: k for k, label in enumerate(known.classes.tolist())}
    new = int(known.sessions.max()) + 1
    labels = training.classes.tolist()
    sessions = np.array([known.sessions[number[label]] if label in number else new for label in labels], dtype=np.int64)
    with one_thread():
        inputs = _inputs(training.rows, sessions, scaling, known.predictor.device)
        rows = _condensed(training.rows, known.strategy.groups(inputs, known.model))
        kept = _inputs(rows, sessions, scaling, known.predictor.device)
    with threads_for(len(rows.y)):
        model = known.strategy.later_session(known.model.shared, kept, known.seed, known.model)
    return _fitted(training, rows, scaling, known.strategy, sessions, model, known.seed, known.predictor.device)


def _limited(training: TrainingSet, scaling: Scaling) -> TrainingSet:
    """Rows clipped to what the first session had lets expect: one extreme cell would move the mean of a class.

    A class of one row keeps it as it is: the next one shows whether it is extreme, or the class lies there.
    """
    if scaling.limits is None:
        return training
    rows = training.rows
    is_one = np.bincount(rows.y, rows.weight, len(training.classes))[rows.y] < 2
    x = np.where(is_one[:, None], rows.x, rows.x.clip(*scaling.limits))
    return replace(training, given=replace(rows, x=x))


def restored(
    training: TrainingSet,
    scaling: Scaling,
    strategy: Strategy,
    sessions: np.ndarray,
    shared: Mapping[str, Tensor],
    seed: int,
    device: torch.device,
) -> TreeFitted:
    """What a model file holds, whose rows are kept ones."""
    with threads_for(len(training.rows.y)):  # as when it was learnt: the bits are the same
        kept = _inputs(training.rows, sessions, scaling, device)
        model = strategy.later_session({name: aligned(part, device) for name, part in shared.items()}, kept, seed, None)
    return _fitted(training, training.rows, scaling, strategy, sessions, model, seed, device)


def _fitted(
    training: TrainingSet,
    rows: LabelledRows,
    scaling: Scaling,
    strategy: Strategy,
    sessions: np.ndarray,
    model: SessionModel,
    seed: int,
    device: torch.device,
) -> TreeFitted:
    return TreeFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=rows,
        temperature=1.0,
        calibrated=False,
        log_evidence=model.log_evidence,
        predictor=TreePredictor(scaling, model, device),
        strategy=strategy,
        sessions=sessions,
        seed=seed,
    )


def _inputs(rows: LabelledRows, sessions: np.ndarray, scaling: Scaling, device: torch.device) -> ClassRows:
    x = kernel_inputs(rows.x, scaling, device)
    return ClassRows(x, *(aligned(part, device) for part in (rows.y, rows.weight, sessions)))


def _condensed(rows: LabelledRows, groups: Tensor) -> LabelledRows:
    """Every group of rows replaced by its mean; a row that is its whole group stays as it is, to the last bit."""
    numbers = np.unique(groups.cpu().numpy(), return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    starts, sizes = np.flatnonzero(np.diff(numbers, prepend=-1)), np.bincount(numbers)
    weight = np.add.reduceat(rows.weight[order], starts)
    share = np.where(sizes[numbers] == 1, 1.0, rows.weight[order] / weight[numbers])
    x = np.add.reduceat(share[:, None] * rows.x[order], starts, axis=0)  # shares first: sums stay within range
    return merge_rows(x, rows.y[order][starts], weight)


def _of_whole_rows(rows: LabelledRows) -> LabelledRows:
    """Weights rounded, one at least: as of rows that later ones may join."""
    return replace(rows, weight=np.maximum(1.0, np.round(rows.weight)))


def _check_unseen(training: TrainingSet, strategy: Strategy) -> None:
    """Refuse a mask that there is no use for, or that marks too few rows."""
    if training.unseen is None:
        return
    if not isinstance(strategy, GaussianClasses):
        raise ValueError(
            "unseen is for strategy='recommended': trees learn nothing that classes have in common. Leave it out, or "
            "fit on the rows that it marks."
        )
    n_able = int((np.bincount(training.rows.y[training.unseen]) >= FEWEST_UNSEEN).sum())
    if n_able < FEWEST_CLASSES:
        raise ValueError(
            f"unseen must mark {FEWEST_UNSEEN} distinct rows or more of at least {FEWEST_CLASSES} classes, but it does "
            f"of {n_able}: keep more rows aside when the network is trained, or leave unseen out."
        )


def _check_counts(rows: LabelledRows) -> None:
    """Refuse weights that are not whole numbers, or so large that one row more would be none."""
    wrong = rows.weight[rows.weight != np.round(rows.weight)]
    if len(wrong):
        raise ValueError(
            "sample_weight must hold whole numbers for TreeGPClassifier, of how many rows each stands for, but a row "
            f"(with all that are equal to it) has {wrong[0]:g}: leave it out, or round it."
        )
    total = float((rows.weight / MOST_COUNTED).sum())  # in parts, so that it is finite
    if total > 1:
        raise ValueError(
            f"sample_weight is too large: rows stand for {total:.3g} times as many as can be counted, which are "
            f"{MOST_COUNTED:.3g}. Use smaller weights."
        )


def _check_memory(rows: LabelledRows) -> None:
    """Refuse weights so large that the rows they stand for do not fit in memory."""
    needed, available = 40.0 * rows.weight.sum() * rows.x.shape[1], memory_budget("auto")
    if needed > available:
        raise MemoryError(
            f"learning from {rows.weight.sum():g} rows would take about {needed / 1e9:.1f} GB, and "
            f"{available / 1e9:.1f} GB may be used: use smaller weights, or fewer rows of each class."
        )

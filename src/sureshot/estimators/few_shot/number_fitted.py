"""What `FewShotRegressor` has learnt: the learner of a checkpoint, and the rows that it is given as context."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.computing.threads import threads_for
from sureshot.data.checks import listed
from sureshot.data.mixed_columns import ColumnEncoder
from sureshot.data.remembered import Remembered
from sureshot.estimators.few_shot.predictors import whole_weights
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.number_fitted import NumberFitted, NumberPredictor, Pulling, spread
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.encoder import Encoder
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.readers import TableReader
from sureshot.estimators.rows.validation import Columns
from sureshot.meta.learners.functions import FunctionPosterior, Moments, RegressionLearner

FEWEST_JUDGES, CONDITIONED = 20, 3e9
"""Rows that are left out where each takes a context of its own: so many, or what the cubes of sizes sum to."""


@dataclass(frozen=True)
class FunctionInputs(Encoder):
    """Rows as a learner of numbers takes them: as they are, or as numbers of the table that it was trained on."""

    learner: RegressionLearner  # in evaluation mode and double precision
    inputs: np.ndarray  # (2, D), means and deviations
    targets: np.ndarray  # (2, P)
    names: tuple[str, ...] | None = None  # of the columns of that table, where they are known
    encoder: ColumnEncoder | None = None  # of these columns, where not all are numbers without gaps

    @classmethod
    def of(
        cls,
        learner: RegressionLearner,
        units: Any,
        encoder: ColumnEncoder | None = None,
        reading: Remembered | None = None,
    ) -> FunctionInputs:
        """With units as a file has them; ValueError for others than the learner's columns have."""
        widths = {"inputs": learner.input_width, "targets": learner.target_width}
        if units is None:
            units = {part: [np.zeros(width), np.ones(width)] for part, width in widths.items()}
        try:
            found = {part: np.array(units[part], dtype=np.float64) for part in widths}
        except (KeyError, TypeError, ValueError):
            found = dict.fromkeys(widths, np.zeros(0))
        for part, scale in found.items():
            if scale.shape != (2, widths[part]) or not np.isfinite(scale).all() or not (scale[1] > 0).all():
                raise ValueError(f"malformed units of {part}, which must be finite means and positive deviations")
        names = units.get("columns")  # of functions that are no table none
        known = tuple(names) if isinstance(names, list | tuple) else ()
        inputs, columns = (known, known) if encoder is None else (encoder.names, tuple(encoder.kinds))
        fit = len(inputs) == learner.input_width and known == columns and {*map(type, known)} == {str}
        if not (fit or (names is None and encoder is None)):
            raise ValueError("malformed units of columns, which must be a name for each input")
        return cls(learner, **found, names=known or None, encoder=encoder, reading=reading)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.learner.input_width,)

    @property
    def device(self) -> torch.device:
        return self.learner.device

    @property
    def exact(self) -> bool:
        return True

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        if self.names is None:
            return super().check(name, X, columns)
        known = Columns(len(self.names), np.array(self.names, dtype=object))
        if self.encoder is not None:
            if not isinstance(X, pd.DataFrame):
                raise ValueError(
                    f"X must be a DataFrame with the columns {listed(self.names)}, as not all of them were numbers in "
                    f"the table that the learner was trained on; got {type(X).__name__}."
                )
            X = self.encoder.with_ignored(X)
        ordered = _in_order(X, self.names)
        if self.encoder is not None:
            return TableReader(self.encoder).check(name, ordered, known)[0], known
        # An array has no names, but its columns are these: files that are asked about have them.
        return super().check(name, ordered, replace(known, names=None) if ordered is X else known)[0], known

    def embed(self, rows: Tensor) -> Tensor:
        mean, deviation = rows.new_tensor(self.inputs)
        return (rows - mean) / deviation


def _in_order(X: Any, names: tuple[str, ...]) -> Any:
    """A DataFrame with its columns in the order of these names, all of which it must have; anything else as it is."""
    came = list(getattr(X, "columns", ()))
    if not any(isinstance(name, str) for name in came):
        return X
    if len(came) != len(names) or set(came) != set(names):
        raise ValueError(
            f"X must have the columns that the learner was trained on, {listed(names)}; it has {listed(came)}. Rename "
            f"them, or pass X[{list(names)}]; an array is taken in this order."
        )
    return X[list(names)]


@dataclass(frozen=True)
class ConditionedProcess(NumberPredictor):
    """A learner given a context: rows, each as often as its weight says."""

    learner: RegressionLearner
    posterior: FunctionPosterior
    x: Tensor  # (1, N', D)
    y: Tensor  # (1, N', P)
    shares: np.ndarray  # (M,), of the normals that an answer is a mixture of

    @classmethod
    def of(cls, learner: RegressionLearner, rows: LabelledRows, device: torch.device) -> ConditionedProcess:
        """Given labelled rows; ValueError for weights that are no whole numbers."""
        repeats = whole_weights(torch.from_numpy(rows.weight), type(learner).__name__, "GPRegressor")
        needed = 8.0 * learner.numbers_of_pairs * float(repeats.sum()) ** 2
        if needed > memory_budget("auto"):
            raise MemoryError(
                f"a context of {repeats.sum():,} rows (a row of weight 2 is two) takes about {in_bytes(needed)}, more "
                "than is free: few-shot learners are for a few rows; use GPRegressor, or fewer rows."
            )
        x, y = (torch.from_numpy(part).repeat_interleave(repeats, 0)[None].to(device) for part in (rows.x, rows.y))
        with torch.no_grad(), threads_for(len(x[0])):
            posterior = learner.condition(x, y)
            weight = posterior.moments(x.new_zeros(1, 1, x.shape[-1])).weight.flatten().cpu().numpy()
        return cls(learner, posterior, x, y, weight)

    @property
    def weight(self) -> np.ndarray:
        return self.shares

    @property
    def queries_at_once(self) -> int:
        return max(1, AT_ONCE // (len(self.weight) * max(self.x.shape[1], 100)))

    def inputs(self, kept: np.ndarray) -> Tensor:
        return torch.tensor(kept, device=self.x.device)

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means (Q, M, P), variances (Q, M) twice, as what is noise is not known, and deviations (Q, M, P)."""
        found = self.posterior.moments(queries[None])
        mean, deviation = (part[:, 0].transpose(0, 1) for part in (found.mean, found.deviation))
        variance = deviation.square().mean(-1)
        return mean, variance, variance, deviation

    def without(self, gone: Tensor, queries: Tensor) -> Iterator[Moments]:
        """Given the context but for some of its rows (E, N') bool, at queries (E, Q, D); some sets at a time."""
        size = max(1, AT_ONCE // (len(self.weight) * (self.x.shape[1] + queries.shape[1]) * 100))
        for some, asked in zip(gone.split(size), queries.split(size), strict=True):
            shape = (len(some), -1, -1)
            yield self.learner.condition(self.x.expand(shape), self.y.expand(shape), ~some).moments(asked)


@dataclass(frozen=True)
class FewShotNumbersFitted(NumberFitted):
    """A checkpoint's learner and its context."""

    reader: FunctionInputs
    predictor: ConditionedProcess

    @property
    def learner(self) -> RegressionLearner:
        """The checkpoint's, in double precision."""
        return self.reader.learner

    def prediction(self, mean: np.ndarray, variance: np.ndarray, latent: np.ndarray, widths: np.ndarray) -> Prediction:
        means, deviations = (np.moveaxis(part, 1, 0) for part in (mean, widths))
        return Prediction(NormalMixture(self.predictor.weight, means, self.wider * deviations), self.target)

    def pulling(self) -> Pulling:
        def pulls(queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
            counts = torch.from_numpy(self.rows.weight)
            gone = torch.zeros(len(place), self.predictor.x.shape[1], dtype=torch.bool)
            for row, at, part in zip(gone, place.tolist(), share.tolist(), strict=True):
                first = int(counts[:at].sum())
                row[first : first + max(1, round(part * float(counts[at])))] = True
            asked = queries.expand(len(place), -1, -1)
            given = self.predictor.posterior.predict(queries[None])[0]
            less = [found.overall()[0] for found in self.predictor.without(gone.to(queries.device), asked)]
            return (given - torch.cat(less)).transpose(0, 1)

        return pulls

    def covariance_within(self, queries: Tensor) -> np.ndarray:
        raise ValueError(
            "return_cov: a few-shot learner says nothing of two rows together; ask for return_std, or use GPRegressor."
        )

    @cached_property
    def left_out(self) -> tuple[np.ndarray, Prediction]:
        """Each row without it and its copies."""
        rows, predictor, counts = self.rows, self.predictor, self.rows.weight.astype(np.int64)
        owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        with torch.no_grad(), threads_for(len(owner)):
            closed = predictor.posterior.left_out() if 1 in counts else None
            own = np.flatnonzero((counts > 1) | (closed is None))  # rows that each take a context of their own
            own = own[spread(len(own), max(FEWEST_JUDGES, int(CONDITIONED / len(owner) ** 3)))]
            asked = predictor.inputs(rows.x[own])[:, None]
            gone = (owner == torch.from_numpy(own)[:, None]).to(predictor.x.device)
            parts = [(one.weight, one.mean, one.deviation) for one in predictor.without(gone, asked)]
        place = own
        if closed is not None:
            alone = np.flatnonzero(counts == 1)
            at = torch.from_numpy((counts.cumsum() - counts)[alone]).to(predictor.x.device)
            place = np.concatenate([alone, own])
            parts = [(closed.weight[:, at], closed.mean[:, at], closed.deviation[:, at]), *parts]
        order = np.argsort(place)
        place = place[order]
        weight, mean, deviation = (
            torch.cat(part, 1)[:, :, 0].cpu().numpy()[:, order] for part in zip(*parts, strict=True)
        )
        mixture = NormalMixture(weight[..., 0], mean, self.wider * deviation)
        return rows.y[place], Prediction(mixture, self.target)

    @cached_property
    def score(self) -> float:
        """The mean log density of left-out rows, in nats."""
        y, found = self.left_out
        return float(found.log_density(y).sum(1).mean()) if len(y) > 1 else math.nan


def condition_numbers(training: TrainingSet, reader: FunctionInputs) -> FewShotNumbersFitted:
    """Give the reader's learner all labelled rows, their numbers standardised as those that it was trained on."""
    rows = training.rows
    (mean, deviation), ones = reader.targets, np.ones(rows.y.shape[1])
    target = TargetScale("none", mean, deviation, ones, 0 * ones, ones)
    return FewShotNumbersFitted(
        columns=training.columns,
        reader=reader,
        rows=rows,
        log_evidence=math.nan,
        predictor=ConditionedProcess.of(reader.learner, replace(rows, y=target(rows.y)), reader.device),
        target=target,
        one_target=training.one_target,
    )

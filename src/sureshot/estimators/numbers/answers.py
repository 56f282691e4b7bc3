"""Predictions of a fitted regressor: means, deviations, quantiles, intervals, densities, draws.

Every answer is made of the frozen `NumberFitted` that the regressor holds, asked for once, in blocks of rows that bound
memory. How it is learnt is `sureshot.estimators.numbers.regressor_base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from torch import Tensor

from sureshot.computing.surroundings import undisturbed
from sureshot.data.checks import check_share
from sureshot.estimators.arguments import RandomState, Rows, check_choice, check_count, checked_random_state
from sureshot.estimators.base import IncrementalEstimator
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.numbers.influence import NumberInfluence, influence_on
from sureshot.estimators.numbers.number_fitted import NumberFitted
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.targets import check_numbers
from sureshot.warned import warn


@dataclass(frozen=True)
class Intervals:
    """Of n numbers; (n, P) where there are several targets."""

    lower: np.ndarray  # (n,)
    upper: np.ndarray  # (n,)

    def contain(self, y: Any) -> np.ndarray:
        """Whether numbers (n,) are inside."""
        found: np.ndarray = (self.lower <= y) & (y <= self.upper)
        return found


@dataclass(frozen=True)
class Forecast:
    """All that is said of n rows, which are asked about once; the arrays are those of the methods of these names."""

    fitted: NumberFitted
    found: Prediction

    @property
    def mean(self) -> np.ndarray:
        """(n,), or (n, P) for P targets."""
        return _as_given(self.fitted, self.found.mean)

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations, shaped as the mean."""
        return _as_given(self.fitted, self.found.deviation)

    def quantile(self, q: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """What shares of all rows like each are less than."""
        shares = [check_share("q", one) for one in np.ravel(np.asarray(q, dtype=object))]
        if not shares:
            raise ValueError("q must be a share between 0 and 1, or some of them; got none.")
        found = np.stack([_as_given(self.fitted, self.found.quantile(one)) for one in shares], axis=-1)
        return found[..., 0] if np.ndim(q) == 0 else found

    def interval(self, coverage: float) -> Intervals:
        """Conformal ones."""
        fitted, within = self.fitted, self.fitted.deviations_within(check_share("coverage", coverage))
        if not np.isfinite(within).all():
            warn(
                f"{fitted.usual_errors.shape[1]} left-out rows cannot vouch for a coverage of {coverage:g}: intervals "
                "are the model's own quantiles, and no narrower than for a coverage that they can vouch for. Take a "
                "smaller coverage, or more rows."
            )
            low, high = self.found.quantile((1 - coverage) / 2), self.found.quantile((1 + coverage) / 2)
            errors = fitted.errors_to_expect
            if errors.shape[1]:
                narrow = self.found.interval(errors[:, -1])
                low, high = np.minimum(low, narrow[0]), np.maximum(high, narrow[1])
            ends = low, high
        else:
            ends = self.found.interval(within)
        return Intervals(*(_as_given(fitted, end) for end in ends))

    def errors(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far off numbers (n, P) are, in deviations, and from which coverage on intervals contain them."""
        error = self.found.errors(y)
        usual = zip(self.fitted.errors_to_expect, error.T, strict=True)
        found = [np.searchsorted(known, one) / (len(known) + 1) for known, one in usual]
        return np.sign(y - self.found.mean) * error, np.stack(found, axis=1)

    def log_density(self, y: Any) -> np.ndarray:
        """(n,), in nats, per unit of y; of several targets the sum."""
        numbers = check_numbers(y, self.found.scaled.means.shape[1], len(self.fitted.target.mean))
        density: np.ndarray = self.found.log_density(numbers).sum(axis=1)
        return density


@undisturbed
class NumberAnswers(RegressorMixin, IncrementalEstimator):
    """The methods that predict numbers."""

    leave_one_out_score_ = FittedAttribute("score")
    members_ = FittedAttribute("summary")
    left_out_ = FittedAttribute("left_out")
    n_rows_ = FittedAttribute("n_rows")
    usual_ = FittedAttribute("usual")

    def predict(
        self, X: Rows, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of each row's number.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        return_std : bool, default=False
            Return standard deviations, too: of a number, noise included.
        return_cov : bool, default=False
            Return covariances in their place; their diagonal is the deviations' squares. On a bent scale of the target
            correlations are those on the scale.

        Returns
        -------
        ndarray (n,), or (n, P) for P targets, or a tuple of two
            In units of y; covariances (n, n), or (n, n, P).

        Raises
        ------
        ValueError
            If both are asked for, or covariances of members that see nearest rows only.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov: ask for one of them; deviations are the diagonal's roots.")
        if return_cov:
            fitted = self._current()
            kept = self._kept(fitted, X)
            with torch.no_grad():
                covariance = fitted.covariance(fitted.predictor.inputs(kept))
            mean = fitted.prediction(*self._in_blocks(fitted, kept, _moments)).mean
            return _as_given(fitted, mean), covariance[..., 0] if fitted.one_target else covariance
        found = self.forecast(X)
        return (found.mean, found.deviation) if return_std else found.mean

    def forecast(self, X: Rows) -> Forecast:
        """Predict everything about each row's number at once, as by the methods below.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.

        Returns
        -------
        Forecast
            With ``mean``, ``deviation``, ``quantile(q)``, ``interval(coverage)`` and ``log_density(y)``.
        """
        fitted = self._answering(X)
        return Forecast(fitted, self._prediction(fitted, X))

    def _answering(self, X: Any) -> NumberFitted:
        """What answers about rows are made of; `NotFittedError` where nothing is known before rows are learnt."""
        found: NumberFitted = self._current()
        return found

    def predict_quantile(self, X: Rows, q: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """Predict the numbers that shares of all rows like each are less than.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        q : float or array (K,)
            Shares, between 0 and 1.

        Returns
        -------
        ndarray (n,), or (n, P) for P targets; with an array of shares one more dimension (..., K)
            Of the mixture of the members' normals, exact to rounding.
        """
        return self.forecast(X).quantile(q)

    def predict_interval(self, X: Rows, coverage: float = 0.9) -> Intervals:
        """Predict intervals that contain the true number with a stated probability.

        Conformal prediction: the mean, and as many standard deviations to both sides as left-out rows need. Coverage is
        guaranteed for rows that are exchangeable with the labelled ones, over all rows together, in the limit of a fit
        that is stable. Widths follow the model's own doubt.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        coverage : float, default=0.9
            The share of rows whose interval contains the number. ``coverage / (1 - coverage)`` labelled rows are needed
            at least; with fewer the model's own quantiles are taken, with a warning, as wide at least as for less.

        Returns
        -------
        Intervals
            ``lower`` and ``upper``, each (n,), or (n, P) for P targets.
        """
        return self.forecast(X).interval(coverage)

    def log_density(self, X: Rows, y: Any) -> np.ndarray:
        """Return the log density of numbers.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        y : array (n,) or (n, P)
            Their numbers.

        Returns
        -------
        ndarray (n,)
            In nats, per unit of y; of several targets the sum.
        """
        return self.forecast(X).log_density(y)

    def sample_y(self, X: Rows, n_samples: int = 1, random_state: RandomState | None = 0) -> np.ndarray:
        """Draw numbers that rows may have, each row independent of the others.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        n_samples : int, default=1
            How many for each row.
        random_state : int, RandomState or None, default=0
            A seed, a generator that moves on, or that of NumPy.

        Returns
        -------
        ndarray (n, n_samples), or (n, P, n_samples) for P targets
            In units of y, noise included.
        """
        fitted, n_samples = self._answering(X), check_count("n_samples", n_samples)
        rng = np.random.default_rng(checked_random_state(random_state).randint(2**31 - 1))
        drawn = self._prediction(fitted, X).sample(n_samples, rng)
        return drawn[:, 0] if fitted.one_target else drawn

    def influence(self, X: Rows, n: int = 5, target: int = 0) -> NumberInfluence:
        """Find the labelled rows behind each prediction.

        The pull of a labelled row is how much the answer falls if the row is left out and all settings stay, in closed
        form.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows of the kind that `fit` took.
        n : int, default=5
            How many labelled rows for each answer.
        target : int, default=0
            Which of several targets.

        Returns
        -------
        NumberInfluence
            ``drivers`` (n, k), by ids, with their pulls in units of y, and ``together``, all labelled rows by the sizes
            of their pulls.
        """
        fitted, n = self._current(), check_count("n", n)
        check_choice("target", target, tuple(range(len(fitted.target.mean))))
        return influence_on(fitted, self._kept(fitted, X), n, target)

    def _own_outlier_scores(self, fitted: NumberFitted, kept: np.ndarray) -> np.ndarray:
        (found,) = self._in_blocks(fitted, kept, _unknown)
        return found

    _doubts = _own_outlier_scores

    def _prediction(self, fitted: NumberFitted, X: Any) -> Prediction:
        return fitted.prediction(*self._predict_in_blocks(fitted, X, _moments))


def _moments(fitted: NumberFitted, queries: Tensor) -> tuple[Tensor, ...]:
    return fitted.predictor.moments(queries)


def _unknown(fitted: NumberFitted, queries: Tensor) -> tuple[Tensor]:
    return (fitted.unknown(fitted.predictor.moments(queries)[2]),)


def _as_given(fitted: NumberFitted, numbers: np.ndarray) -> np.ndarray:
    """Numbers (n, P) in the shape that y had."""
    return numbers[:, 0] if fitted.one_target else numbers

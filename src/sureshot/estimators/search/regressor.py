"""`KernelSearchRegressor`: numbers under a posterior over kernels of unknown structure, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import RandomState, Rows, check_jobs
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.numbers.regressor_base import IncrementalRegressor
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.search.learning import check_whole, compared, mention_more, settled_settings
from sureshot.estimators.search.number_fitted import SearchNumbersFitted
from sureshot.estimators.search.number_format import SEARCH_NUMBERS_FORMAT
from sureshot.estimators.search.number_learning import after_numbers, fewer_numbers, first_numbers
from sureshot.estimators.search.results import Callback
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.search.size import check_size
from sureshot.structure.grammar import Grammar
from sureshot.structure.parts import AdditiveForm
from sureshot.warned import warn

_OF_CLASSES: dict[str, Any] = {"representation": "collapsed", "n_inducing": None, "predictive": "integral"}
"""Settings of the classifier that numbers have no use for."""


@undisturbed
class KernelSearchRegressor(IncrementalRegressor):
    """Gaussian-process regression by a posterior over kernel structures.

    For series and small tables of which nothing is known but the numbers: whether there is a trend, a period, a slow
    change, and in what combination. Sequential Monte Carlo follows the posterior over sums and products of simple
    kernels; answers are mixtures over its particles, and `decompose` shows the parts that add up to a series.

    Parameters
    ----------
    n_particles : int, default=32
        How many kernels. Time and memory are in proportion.
    grammar : {"series", "default", "paper"} or Grammar, default="series"
        Prior of structures and of their parameters. "series" has LINEAR, SQUARED-EXPONENTIAL, GAMMA-EXPONENTIAL and
        PERIODIC, for numbers that are standardised; the others are those of `KernelSearchClassifier`.
    n_rejuvenation : int or "auto", default="auto"
        Sweeps of moves after each batch; "auto" is 6 up to 128 rows, then 2.
    schedule : {"logarithmic", "linear", "once"} or list of int, default="logarithmic"
        Sizes of batches: doubling from 16, 16 each, all rows at once, or as listed. A single column's rows come in its
        order, those of several at random.
    structure : str, optional
        A fixed structure, such as ``"LINEAR + PERIODIC"``, of which only parameters are learnt.
    window : int, optional
        How many of the latest rows to keep; None keeps all.
    standardize : bool, default=True
        Standardise the columns, by the rows of the first call. Numbers always are.
    random_state : int, RandomState or None, default=None
        Seeds everything random. None is a fixed seed, too: equal calls give equal models.
    n_jobs : int, optional
        Threads among which particles are divided; the result is the same.
    callback : callable, optional
        Called with a `SearchStep` after each batch. If it raises, the call to `fit` or `partial_fit` changes nothing.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name, as of `KernelSearchClassifier`.
    verbose : bool, default=False
        Report progress and the remaining time on standard error, every ten seconds.

    Attributes
    ----------
    kernel_posterior_ : list of (float, str)
        Posterior mass of each structure, heaviest first.
    particles_ : list of WeightedKernel
        Weight, structure, kernel and nugget of each particle, heaviest first; of standardised columns and numbers.
    ess_history_ : list of float
        Effective sample size after each batch, before resampling.
    steps_ : tuple of SearchStep
        What each batch did.
    log_evidence_, log_evidence_error_ : float
        Estimated log evidence of all standardised numbers in nats, and its standard error.
    leave_one_out_score_ : float
        Mean log density of rows, each left out with its copies, in nats, in units of y.
    kernel_columns_ : list of str
        Columns by the numbers in structures.
    columns_, encoder_, reading_, row_ids_, n_features_in_, feature_names_in_
        As of `KernelSearchClassifier`.

    Notes
    -----
    Noise is normal, so that nothing but kernels is sampled: every weight is exact. Rows in several calls give the
    posterior of one call, up to Monte Carlo error. Sample weights are whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(40.0)[:, None]
    >>> model = KernelSearchRegressor(n_particles=8, random_state=0).fit(x, x[:, 0] + 4 * np.sin(x[:, 0]))
    >>> [part.formula for part in model.decompose(x)[0].parts][-1]
    'CONSTANT'
    """

    def __init__(
        self,
        n_particles: int = 32,
        *,
        grammar: str | Grammar = "series",
        n_rejuvenation: int | str = "auto",
        schedule: str | Sequence[int] = "logarithmic",
        structure: str | None = None,
        window: int | None = None,
        standardize: bool = True,
        random_state: RandomState | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
        columns: str | Mapping[str, str] = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_particles = n_particles
        self.grammar = grammar
        self.n_rejuvenation = n_rejuvenation
        self.schedule = schedule
        self.structure = structure
        self.window = window
        self.standardize = standardize
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback
        self.columns = columns
        self.verbose = verbose

    kernel_posterior_ = FittedAttribute("kernel_posterior")
    particles_ = FittedAttribute("particles")
    ess_history_ = FittedAttribute("ess_history")
    steps_ = FittedAttribute("steps")
    log_evidence_error_ = FittedAttribute("log_evidence_error")
    kernel_columns_ = FittedAttribute("kernel_columns")

    _formats = (SEARCH_NUMBERS_FORMAT,)

    def decompose(self, X: Rows) -> list[AdditiveForm]:
        """Split the function into parts that add up, one for each product of leaves.

        Products are distributed over sums; the offset of LINEAR and the mean of PERIODIC are taken out, so that LINEAR
        x PERIODIC is a line, a period, and a period that grows. Kernels that are sums of the same products belong
        together. Parts vary around zero over the rows that were learnt from; CONSTANT is the level.

        Parameters
        ----------
        X : array or DataFrame (n, D)
            Rows.

        Returns
        -------
        list of AdditiveForm
            The most probable first: ``weight``, ``formula``, and ``parts``, each with ``formula``, ``mean`` (n,) and
            ``deviation`` (n,). Means of parts add up to that of the form, and these by weights to `predict`.
        """
        fitted: SearchNumbersFitted = self._current()
        return fitted.decompose(self._kept(fitted, X))

    def _reader(self) -> Reader:
        return TableReader.of(self.columns)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any) -> TrainingSet:
        training = super()._first_rows(X, y, sample_weight, row_id)
        if (n_targets := training.rows.y.shape[1]) > 1:
            raise ValueError(
                f"y has {n_targets} numbers a row, and a search takes one: search for each target, or use GPRegressor."
            )
        if not training.one_target:
            warn("A column-vector y was passed when a 1d array was expected: use y.ravel().", DataConversionWarning)
        return replace(training, one_target=True)

    def _checked_ids(self, row_id: Any, n_rows: int, known: SearchNumbersFitted | None) -> np.ndarray | None:
        if row_id is not None and (self.window if known is None else known.settings.window) is not None:
            raise ValueError("row_id and window exclude each other: rows that have left could not be replaced.")
        return super()._checked_ids(row_id, n_rows, known)

    def _learn(self, training: TrainingSet, known: SearchNumbersFitted | None, seed: int) -> SearchNumbersFitted:
        """Later batches have the seed and the settings of the first."""
        check_whole(training, "KernelSearchRegressor")
        given, jobs = SearchSettings.checked({**self._arguments, **_OF_CLASSES}), check_jobs(self.n_jobs)
        settings = settled_settings(given, None if known is None else known.settings)
        if known is None:
            check_size(settings, training.rows.weight.sum(), 2, of_numbers=True)
            return after_numbers(first_numbers(training, settings, seed), training.rows, self.callback, jobs)
        stays, kept, new = compared(known.rows, training)
        if len(new.y):
            check_size(settings, len(kept.y) + new.weight.sum(), 2, known=True, of_numbers=True)
            mention_more(training, new, known)
            n_old = len(known.rows.y)
            known = after_numbers(known, new, self.callback, jobs)
            stays = np.concatenate([stays, np.ones(len(known.rows.y) - n_old, dtype=bool)])
        return known if stays.all() else fewer_numbers(known, stays, jobs)

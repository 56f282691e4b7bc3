"""`KernelSearchClassifier`: a posterior over kernels whose structure is not known, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from torch import Tensor

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import Labels, RandomState, Rows, check_jobs
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import class_numbers
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.classes.targets import check_targets
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.rows.labelled_rows import joined_rows, part_of
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.row_ids import RowsAsTheyCame
from sureshot.estimators.search.fitted import SearchFitted
from sureshot.estimators.search.format import SEARCH_FORMAT
from sureshot.estimators.search.learning import (
    after,
    check_whole,
    compared,
    first_fitted,
    less,
    mention_more,
    numbered,
    settled_settings,
)
from sureshot.estimators.search.results import Callback, SearchStep
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.search.size import check_size
from sureshot.structure.grammar import Grammar


@undisturbed
class KernelSearchClassifier(IncrementalClassifier):
    """Gaussian-process classification by a posterior over kernel structures.

    For small tables and streams of numbers where nothing is known of the kernel. Structures are sums and products of
    simple kernels, with a prior by a grammar. Sequential Monte Carlo follows their posterior as rows come, and
    predictions are averaged over its particles.

    Parameters
    ----------
    n_particles : int, default=32
        How many kernels. Time and memory are in proportion.
    grammar : {"default", "paper"} or Grammar, default="default"
        Prior of structures and of their parameters.
    representation : {"collapsed", "whitened"}, default="collapsed"
        "collapsed" integrates the latents out given a Polya-Gamma variable for each row; "whitened" keeps them, and
        moves them by Hamiltonian Monte Carlo, as published.
    n_rejuvenation : int or "auto", default="auto"
        Sweeps of moves after each batch; "auto" is 6 up to 128 rows of two classes, then 2.
    schedule : {"logarithmic", "linear", "once"} or list of int, default="logarithmic"
        Sizes of batches: doubling from 16, 16 each, all rows at once, or as listed.
    structure : str, optional
        A fixed structure, such as ``"LINEAR + PERIODIC"``, of which only parameters are learnt.
    window : int, optional
        How many of the latest rows to keep; None keeps all. On long streams ``GPClassifier(time=...)`` predicts better,
        in a thousandth of the time.
    n_inducing : int, optional
        Inducing inputs (FITC), for more rows. None is exact, up to 2,000 comparisons of classes.
    standardize : bool, default=True
        Standardise the columns, by the rows up to the first call with two classes.
    predictive : {"auto", "integral", "stacked", "plug_in"}, default="auto"
        How latents become probabilities: averaged over their posterior; from a weighted sum of posterior means and
        those of regression on labels; or from posterior means at a temperature. "auto" compares the first two by
        leave-one-out predictions.
    random_state : int, RandomState or None, default=None
        Seeds everything random. None is a fixed seed, too: equal calls give equal models.
    n_jobs : int, optional
        Threads among which particles are divided; the result is the same.
    callback : callable, optional
        Called with a `SearchStep` after each batch. If it raises, the call to `fit` or `partial_fit` changes nothing.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name: "number", "category", "date", "text" or "ignore". "auto" finds out those
        that are not named.
    verbose : bool, default=False
        Report progress and the remaining time on standard error, every ten seconds.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels, in sorted order.
    class_count_ : ndarray (C,)
        The sum of the weights of each class's rows; 0 for a class that was only announced.
    X_train_, y_train_ : ndarray (N, D) and (N,)
        The rows that are kept, as numbers, and their labels.
    kernel_posterior_ : list of (float, str)
        Posterior mass of each structure, heaviest first.
    particles_ : list of WeightedKernel
        Weight, structure, kernel and nugget of each particle, heaviest first.
    ess_history_ : list of float
        Effective sample size after each batch, before resampling.
    steps_ : tuple of SearchStep
        What each batch did.
    log_evidence_, log_evidence_error_ : float
        Estimated log evidence of all labels in nats, and its standard error. In a window errors add up: compare kernels
        by the evidence of a `fit`.
    kernel_columns_ : list of str
        Columns by the numbers in structures: ``PERIODIC[1]`` looks at ``kernel_columns_[1]``.
    predictive_ : str
        The predictive rule.
    temperature_ : float
        Divides the latents; 1 unless the rule is "plug_in" or `calibrate` has set it.
    columns_ : dict
        Kinds of a DataFrame's columns by name, if not all are numbers without gaps.
    encoder_ : ColumnEncoder
        What makes numbers of such columns: ``encoder_(X)``, with ``encoder_.names``.
    reading_ : Remembered
        How `sureshot.data.read_table` read the file of X, for files like it.
    row_ids_ : ndarray (K,)
        Ids of the rows that have one, sorted.
    n_features_in_, feature_names_in_
        Number and names of the columns of X.

    Notes
    -----
    Rows in several calls give the posterior of one call, up to Monte Carlo error. The first prediction after an update
    chooses the predictive rule, and takes longer. Rows of a single class wait until there is another. More than two
    classes are compared one-vs-each, and the evidence is that of a composite likelihood. Sample weights are whole
    numbers.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(60, noise=0.2, random_state=0)
    >>> model = KernelSearchClassifier(n_particles=8, random_state=0).fit(X, y)
    >>> len(model.kernel_posterior_) >= 1 and bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        n_particles: int = 32,
        *,
        grammar: str | Grammar = "default",
        representation: str = "collapsed",
        n_rejuvenation: int | str = "auto",
        schedule: str | Sequence[int] = "logarithmic",
        structure: str | None = None,
        window: int | None = None,
        n_inducing: int | None = None,
        standardize: bool = True,
        predictive: str = "auto",
        random_state: RandomState | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
        columns: str | Mapping[str, str] = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_particles = n_particles
        self.grammar = grammar
        self.representation = representation
        self.n_rejuvenation = n_rejuvenation
        self.schedule = schedule
        self.structure = structure
        self.window = window
        self.n_inducing = n_inducing
        self.standardize = standardize
        self.predictive = predictive
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback
        self.columns = columns
        self.verbose = verbose

    X_train_ = FittedAttribute("rows.x")
    y_train_ = FittedAttribute("labels")
    kernel_posterior_ = FittedAttribute("kernel_posterior")
    particles_ = FittedAttribute("particles")
    ess_history_ = FittedAttribute("ess_history")
    steps_ = FittedAttribute("steps")
    log_evidence_error_ = FittedAttribute("log_evidence_error")
    kernel_columns_ = FittedAttribute("kernel_columns")
    predictive_ = FittedAttribute("settled.rule")

    _formats = (SEARCH_FORMAT,)

    def particle_proba(self, X: Rows) -> np.ndarray:
        """Predict class probabilities by each kernel alone.

        Parameters
        ----------
        X : array or DataFrame (n, D)
            Rows.

        Returns
        -------
        ndarray (M, n, C)
            In the order of ``particles_``. Their weighted average is `predict_proba` of the rule "integral" without a
            class prior.
        """

        def particles(fitted: Any, queries: Tensor) -> tuple[Tensor]:
            return (fitted.predictor.particle_probabilities(queries, fitted.temperature)[..., fitted.places],)

        (found,) = self._predict_in_blocks(self._current(), X, particles)
        return found.swapaxes(0, 1)

    def remove(self, rows: Any, y: Labels | None = None) -> Self:
        """Remove rows by their values, as if they had never been seen, up to Monte Carlo error.

        Parameters
        ----------
        rows : array or DataFrame (n, D)
            Each takes one copy away. A row with an id is removed by `forget`.
        y : array (n,), optional
            Labels that the rows must have.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a row is not among those that were learnt, or none would be left.
        """
        fitted: SearchFitted = self._current()
        checked, _ = fitted.reader.check(type(self).__name__, rows, fitted.columns)
        labels = None if y is None else class_numbers(fitted.classes, check_targets(y, len(checked)))
        came = RowsAsTheyCame.apart(fitted.distinct_rows, fitted.row_ids)
        unnamed = came.unnamed
        left = unnamed.weight.copy()
        for k, row in enumerate(fitted.reader.keep(checked, fitting=False)):
            same = (left > 0) & (unnamed.x == row).all(axis=1)
            if labels is not None:
                same &= unnamed.y == labels[k]
            if not same.any():
                why = "is not among those that were learnt (any more)"
                if (came.named.x == row).all(axis=1).any():
                    why = "has an id: forget(rows=...) takes it away"
                raise ValueError(f"row {k} {why}; nothing was removed.")
            left[np.flatnonzero(same)[0]] -= 1
        stays = part_of(replace(unnamed, weight=left), left > 0)
        remaining, row_ids = replace(came, unnamed=stays).merged()
        if not len(remaining.y):
            raise ValueError("cannot remove every row: at least one must stay.")
        training = TrainingSet(fitted.reader, fitted.columns, fitted.classes, remaining, None, row_ids=row_ids)
        return self._commit(training, fitted)

    def _reader(self) -> Reader:
        return TableReader.of(self.columns)

    def _checked_ids(self, row_id: Any, n_rows: int, known: ClassFitted | None) -> np.ndarray | None:
        window = known.settings.window if isinstance(known, SearchFitted) else self.window
        if row_id is not None and window is not None:
            raise ValueError(
                "row_id and window exclude each other: rows that have left the window could not be replaced. Leave one "
                "of them out."
            )
        return super()._checked_ids(row_id, n_rows, known)

    def _known_ids(self, rows: Any, known: ClassFitted) -> np.ndarray:
        if isinstance(known, SearchFitted) and known.settings.window is not None:
            raise ValueError("with a window rows have no ids, so none can be forgotten: forget classes.")
        return super()._known_ids(rows, known)

    def _learn(self, training: TrainingSet, known: SearchFitted | None, seed: int) -> SearchFitted:
        """Later batches have the seed and the settings of the first.

        The particles know the old rows: they take in what is new among the rows, and let go what is there no more.
        """
        check_whole(training, "KernelSearchClassifier")
        given = SearchSettings.checked(self._arguments)
        settings = settled_settings(given, None if known is None else known.settings)
        jobs, n_earlier = check_jobs(self.n_jobs), 0
        steps: tuple[SearchStep, ...] = ()
        if known is None:
            new = training.rows
        else:
            stays, kept, new = compared(numbered(known, training), training)
            if not known.waits:
                if len(new.y) or len(training.classes) > len(known.classes):
                    check_size(settings, len(kept.y) + new.weight.sum(), len(training.classes), known=True)
                    mention_more(training, new, known)
                    n_old = len(known.rows.y)
                    known = after(known, new, training.classes, self.callback, jobs)
                    stays = np.concatenate([stays, np.ones(len(known.rows.y) - n_old, dtype=bool)])
                known_still = np.isin(known.classes, training.classes)
                return known if stays.all() and known_still.all() else less(known, stays, known_still, jobs)
            seed, steps, n_earlier = known.seed, known.steps, len(kept.y)
            new = joined_rows(kept, new)
        check_size(settings, new.weight.sum(), len(training.classes))
        first = replace(first_fitted(replace(training, given=new), settings, seed), steps=steps)
        return after(first, new, training.classes, self.callback, jobs, n_earlier).settled

"""`KernelSearchClassifier`: a posterior over kernels whose structure is not known, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from torch import Tensor

from sureshot.estimators.base import FittedAttribute, IncrementalClassifier
from sureshot.estimators.class_labels import class_numbers, kept_classes
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.readers import Reader, TableReader
from sureshot.estimators.search_fitted import Callback, SearchFitted, first_fitted
from sureshot.estimators.search_format import SEARCH_FORMAT
from sureshot.estimators.search_settings import SearchSettings
from sureshot.estimators.settings import check_jobs
from sureshot.estimators.validation import LabelledRows, check_targets, joined_rows, merge_rows


class KernelSearchClassifier(IncrementalClassifier):
    """Gaussian-process classification by a weighted set of kernels that follows the data as they come.

    For small tables and streams of numbers when nothing is known of the kernel. Sums and products of simple kernels are
    drawn from a grammar; sequential Monte Carlo keeps those that predict well, and changes them. What is predicted is
    averaged over all of them.

    Parameters
    ----------
    n_particles : int, default=32
        How many kernels at a time. Time and memory are in proportion.
    grammar : {"default", "paper"} or Grammar, default="default"
        How probable structures are, and the priors of parameters (`sureshot.structure.Grammar`).
    representation : {"collapsed", "whitened"}, default="collapsed"
        What a particle holds beside its kernel: a Polya-Gamma variable for each datum, the latents integrated out; or,
        with Hamiltonian Monte Carlo, standard normal variables that make the latents, as published.
    n_rejuvenation : int or "auto", default="auto"
        Sweeps of moves after each batch. More follow the data better, in proportional time. "auto" is 6 up to 128 rows
        (of two classes), where they are cheap and structures that are lost are seldom found again, then 2.
    schedule : {"logarithmic", "linear", "once"} or list of int, default="logarithmic"
        In which batches rows that come together are taken in: doubling from 16, 16 each, all at once, or sizes as
        listed (what is left over is one more).
    structure : str or None, default=None
        A structure to keep, such as ``"LINEAR + PERIODIC"``, whose parameters only are learnt.
    window : int or None, default=None
        How many of the latest rows to keep; None keeps all, up to 2,000 comparisons of classes. Rows of one call have
        no order among themselves: of more than the window, some are drawn.
    n_inducing : int or None, default=None
        Through how many inducing inputs kernels are seen (FITC): time and memory are then in proportion to the rows,
        which may be more. They are all rows up to so many, then centres of k-means, chosen anew whenever as many rows
        have come as they were chosen from. None sees kernels whole. Goes with ``window``.
    standardize : bool, default=True
        Whether columns are standardised, by the rows up to the first call with two classes, for good.
    predictive : {"auto", "integral", "stacked", "plug_in"}, default="auto"
        How latents become probabilities: averaged over their uncertainty and the kernels; at a weighted sum of their
        posterior means and those of regression on labels by the same kernels; or at posterior means divided by a
        temperature. Weights, temperature, and with "auto" which of the first two, say the labels of rows left out best.
    random_state : int, RandomState or None, default=None
        None is a fixed seed too: equal calls give equal models.
    n_jobs : int or None, default=None
        Threads among which particles are divided; the result is the same.
    callback : callable or None, default=None
        Called with a `SearchStep` after each batch. If it raises, the call to `fit` or `partial_fit` changes nothing.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order after `fit`; `partial_fit` appends new ones.
    kernel_posterior_ : list of (mass, structure)
        Heaviest first; structures in a form in which equal ones look equal.
    particles_ : list of WeightedKernel
        Weight, structure, kernel and nugget of each particle, heaviest first.
    ess_history_ : list of float
        Effective sample sizes after each batch, before resampling; ``n_particles`` at best.
    steps_ : tuple of SearchStep
        What each batch did.
    log_evidence_ : float
        Estimate of the log probability of all labels in nats.
    predictive_ : str
        How latents become probabilities.
    temperature_ : float
        What latents are divided by: chosen by rows left out for "plug_in", else 1, or as `calibrate` says.
    n_features_in_, feature_names_in_
        Of the columns.

    Notes
    -----
    Rows that come in several calls give the same posterior as in one, up to Monte-Carlo error. A sample weight is a
    whole number, of how many rows it stands for. While all rows are of one class they wait: there is nothing to tell
    apart, and a row is the likelier of another announced class the less it is like them. With more than two classes
    labels are compared one-vs-each; the evidence is then that of a composite likelihood.

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
        grammar: Any = "default",
        representation: str = "collapsed",
        n_rejuvenation: int | str = "auto",
        schedule: Any = "logarithmic",
        structure: str | None = None,
        window: int | None = None,
        n_inducing: int | None = None,
        standardize: bool = True,
        predictive: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
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

    kernel_posterior_ = FittedAttribute("kernel_posterior")
    particles_ = FittedAttribute("particles")
    ess_history_ = FittedAttribute("ess_history")
    steps_ = FittedAttribute("steps")
    predictive_ = FittedAttribute("rule")

    _format = SEARCH_FORMAT

    def particle_proba(self, X: Any) -> np.ndarray:
        """Class probabilities under each kernel alone (M, n, C), in the order of ``particles_``.

        With ``predictive="integral"`` their average by weight is `predict_proba`.
        """

        def particles(fitted: Any, queries: Tensor) -> tuple[Tensor]:
            return (fitted.particle_probabilities(queries),)

        (found,) = self._predict_in_blocks(self._current(), X, particles)
        return found.swapaxes(0, 1)

    def forget(self, classes: Any) -> Self:
        """Remove classes with all their rows; the others are as if these had never been seen, but for sampling error.

        At least one class with rows must stay.
        """
        fitted: SearchFitted = self._current()
        stays = kept_classes(fitted.classes, classes)
        rows = stays[fitted.rows.y]
        if not rows.any():
            raise ValueError("cannot forget every class that has rows: at least one must stay.")
        self._fitted = fitted.less(rows, stays, check_jobs(self.n_jobs))
        return self

    def remove(self, rows: Any, y: Any = None) -> Self:
        """Take away rows that were learnt, one copy for each row given, with the labels y if they are given too.

        What is left is as if these had never been seen, but for sampling error. A row that was not learnt is an error.
        """
        fitted: SearchFitted = self._current()
        checked, _ = fitted.reader.check(type(self).__name__, rows, fitted.columns)
        labels = None if y is None else class_numbers(fitted.classes, check_targets(y, len(checked)))
        stays = np.ones(len(fitted.rows.y), dtype=bool)
        for k, row in enumerate(fitted.reader.keep(checked, fitting=False)):
            same = stays & (fitted.rows.x == row).all(axis=1)
            if labels is not None:
                same &= fitted.rows.y == labels[k]
            if not same.any():
                raise ValueError(f"row {k} is not among those that were learnt (any more): nothing was removed.")
            stays[np.flatnonzero(same)[0]] = False
        if not stays.any():
            raise ValueError("cannot remove every row: at least one must stay.")
        self._fitted = fitted.less(stays, None, check_jobs(self.n_jobs))
        return self

    def _reader(self) -> Reader:
        return TableReader()

    def _with_rows(self, old: LabelledRows, new: LabelledRows) -> LabelledRows:
        """The new ones only: the particles know the old ones."""
        return merge_rows(new.x, new.y, new.weight)

    def _learn(self, training: TrainingSet, known: SearchFitted | None, seed: int) -> SearchFitted:
        """Later batches have the seed and the settings of the first."""
        settings = SearchSettings.checked(vars(self)) if known is None else known.settings
        if known is None or known.waits:
            rows = training.rows if known is None else joined_rows(known.rows, training.rows)
            training, steps = replace(training, rows=rows), () if known is None else known.steps
            known = replace(first_fitted(training, settings, seed if known is None else known.seed), steps=steps)
        return known.after(training.rows, training.classes, self.callback, check_jobs(self.n_jobs))

"""`KernelSearchClassifier`: a posterior over kernels whose structure is not known, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from torch import Tensor

from sureshot.computing.surroundings import undisturbed
from sureshot.data.checks import listed
from sureshot.estimators.arguments import Labels, RandomState, Rows, check_jobs
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.class_labels import class_numbers
from sureshot.estimators.classes.targets import check_targets
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.rows.labelled_rows import joined_rows, part_of
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.row_ids import RowsAsTheyCame
from sureshot.estimators.search.fitted import Callback, SearchFitted, SearchStep
from sureshot.estimators.search.format import SEARCH_FORMAT
from sureshot.estimators.search.learning import after, check_whole, compared, first_fitted, less, mention_more
from sureshot.estimators.search.settings import SearchSettings
from sureshot.estimators.search.size import check_size
from sureshot.structure.grammar import Grammar
from sureshot.warned import warn


@undisturbed
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
        How probable structures are, and the priors of parameters (`sureshot.structure.grammar.Grammar`).
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
        Whether columns are standardised, by the rows up to the first call with two classes, for good: a search that is
        back at rows of one class, after `remove`, `forget` or in a window, begins anew with the next.
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
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name, as of `GPClassifier`.
    verbose : bool, default=False
        Whether long fits say on standard error, every ten seconds, how far they are and how long they may still take.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order, whenever each came.
    class_count_, columns_, encoder_, reading_
        Those of `GPClassifier`.
    X_train_ : ndarray (N, D)
        The rows that are kept, as numbers; in a window the latest.
    y_train_ : ndarray (N,)
        Their labels.
    kernel_posterior_ : list of (mass, structure)
        Heaviest first; structures in a form in which equal ones look equal.
    particles_ : list of WeightedKernel
        Weight, structure, kernel and nugget of each particle, heaviest first.
    ess_history_ : list of float
        Effective sample sizes after each batch, before resampling; ``n_particles`` at best.
    steps_ : tuple of SearchStep
        What each batch did.
    log_evidence_ : float
        Estimate of the log probability of all labels in nats; 0 where only one class is known. In a window rows come
        and go, each with an error, and errors add up: an evidence to compare kernels by is that of a `fit`.
    log_evidence_error_ : float
        Its standard error in nats, as far as the weights of the particles tell.
    kernel_columns_ : list of str
        Names of the columns that structures number: ``PERIODIC[1]`` looks at ``kernel_columns_[1]``. Columns that do
        not vary have no number, and a category of a DataFrame has one for each of its levels.
    predictive_ : str
        How latents become probabilities.
    temperature_ : float
        What latents are divided by: chosen by rows left out for "plug_in", else 1, or as `calibrate` says.
    n_features_in_, feature_names_in_
        Of the columns.

    Notes
    -----
    Rows that come in several calls give the same posterior as in one, up to Monte-Carlo error. What `partial_fit`,
    `remove` and `forget` have changed makes the first prediction after them choose anew how latents become
    probabilities, which takes longer than a row takes to learn. A sample weight is a whole number, of how many rows it
    stands for. While all rows are of one class they wait: there is nothing to tell apart, and a row is the likelier of
    another announced class the less it is like them. With more than two classes labels are compared one-vs-each; the
    evidence is then that of a composite likelihood.

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
    log_evidence_ = FittedAttribute("log_evidence")

    _formats = (SEARCH_FORMAT,)

    def particle_proba(self, X: Rows) -> np.ndarray:
        """Class probabilities under each kernel alone (M, n, C), in the order of ``particles_``.

        With ``predictive="integral"`` their average by weight is `predict_proba`, as it is without a class prior: here
        classes are taken to come as often as in the labelled rows.
        """

        def particles(fitted: Any, queries: Tensor) -> tuple[Tensor]:
            return (fitted.predictor.particle_probabilities(queries, fitted.temperature)[..., fitted.places],)

        (found,) = self._predict_in_blocks(self._current(), X, particles)
        return found.swapaxes(0, 1)

    def remove(self, rows: Any, y: Labels | None = None) -> Self:
        """Take away rows that were learnt, one copy for each row given, with the labels y if they are given too.

        What is left is as if these had never been seen, but for sampling error. A row that was not learnt is an error,
        and one that has an id: `forget` takes these.
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
        check_whole(training.rows.weight if training.came is None else training.came.weight)
        given = SearchSettings.checked(self._arguments)
        settings = given if known is None else known.settings
        if changed := [name for name, value in vars(given).items() if value != getattr(settings, name)]:
            warn(
                f"{listed(changed)} changed since the first batch, which settled it: that holds from the next fit on",
            )
        jobs, n_earlier = check_jobs(self.n_jobs), 0
        steps: tuple[SearchStep, ...] = ()
        if known is None:
            new = training.rows
        else:
            stays, kept, new = compared(known, training)
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

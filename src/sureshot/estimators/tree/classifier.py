"""`TreeGPClassifier`: classes that arrive over time with a handful of examples, as a scikit-learn estimator.

`fit` learns from the classes of a first session how classes differ and how rows of a class spread. Every
`partial_fit` is a session: nothing is trained again, nothing of the classes known is forgotten, and no row is kept.
`GPClassifier` and `FewShotClassifier`, in contrast, keep all rows and condition on all of them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import Labels, RandomState, Rows, Weights, check_count
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.classes.answers import TopClasses
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.settings import device_for
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.tree.fitted import TreeFitted, first_session, later_session
from sureshot.estimators.tree.format import TREE_FORMAT
from sureshot.estimators.tree.settings import strategy_of

_KEEPS_MEANS = (
    "TreeGPClassifier keeps means of rows, of which a few may be rows themselves, and knows none of them by name, so "
    "none can be replaced or removed. Forget the class and teach "
    "it anew (forget(classes=...), partial_fit), or use GPClassifier or FewShotClassifier, which keep rows."
)


@undisturbed
class TreeGPClassifier(IncrementalClassifier):
    """Classification with classes that arrive over time, a few examples each, in memory that does not grow with rows.

    Parameters
    ----------
    strategy : {"recommended", "shared_root", "session", "rebuild"}, default="recommended"
        "recommended" keeps of each class the mean of its rows and their number, and of the first session's classes what
        they say about any class: how its rows spread, and how its mean differs from others'. The other three are trees
        of binary Gaussian processes as published: the first session's tree with one sub-tree for all later classes
        ("shared_root"), with a sub-tree for every session ("session"), or one tree built anew every time ("rebuild").
    n_representatives : int, default=5
        Rows that the strategies of trees keep of each class, centres of k-means.
    kernel : {"auto", "unit_rbf", "unit_matern32", "cosine"}, default="auto"
        Of the strategies of trees, on rows scaled to unit length; "auto" is "unit_rbf".
    inference : {"auto", "mean_field", "gibbs", "natural_gradient"}, default="auto"
        Of the strategies of trees; "auto" is mean field for the tree of the first session and Gibbs sampling for all
        else, and for "rebuild" Gibbs sampling.
    random_state : int, RandomState or None, default=None
        None is a fixed seed too: equal calls give equal models.
    device : str, default="auto"
        A torch device for `fit`; "auto" takes CUDA where it is there and there are 2000 rows or more. Sessions and
        predictions stay where the model is.
    base_scale, novel_scale : float, default=4.0 and 8.0
        Output scales of the tree of the first session, and of all else.
    n_chains, n_sweeps : int, default=30 and 10
        Of Gibbs sampling.
    construction : {"two_means", "balanced_random", "label_order"}, default="two_means"
        Of the trees: similar classes together, as published; or without a look at the classes, to compare with.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name, as of `GPClassifier`; learnt from the first session.
    verbose : bool, default=False
        Whether long fits say on standard error, every ten seconds, how far they are and how long they may still take.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order, whenever each came.
    class_count_ : ndarray (C,)
        For how many rows those stand that are kept of each class.
    columns_, encoder_, reading_
        Those of `GPClassifier`.
    memory_ : Memory
        How many numbers are kept for later sessions, for each class and for all together.
    tree_ : ClassTree
        The tree of the classes, numbered in the order of ``classes_``.
    temperature_ : float
        What log probabilities are divided by; 1 until `calibrate` sets it. (What the first session taught about how
        sure to be is inside the model.)
    log_evidence_ : float
        Of the kept rows' classes in nats, a lower bound; NaN where a sampler has been at work, and for "recommended".
    n_features_in_, feature_names_in_
        Of the columns.

    Notes
    -----
    Memory is bounded, so `partial_fit` is not `fit` on all rows. With "recommended" it gives exactly what all rows so
    far, in any order, give with what the first session taught, unless cells are so far out that they are taken for
    wild; with the strategies of trees a class's representatives are chosen anew among the old ones and its new rows. A
    first session should have many classes, ten at least, with several rows each: they are what everything said about
    later ones comes from.

    Rows of unit length, of four columns or more, in the first session are used as they are, else columns are
    standardised by the first session.
    A sample weight is a whole number, of how many rows it stands for.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TreeGPClassifier().fit(X[y < 8], y[y < 8])
    >>> later = X[y >= 8][:10], y[y >= 8][:10]
    >>> model.partial_fit(*later).classes_
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> print(model.memory_)
    5,260 numbers: 650 for 10 classes (65 each), 4,610 for all of them
    >>> model.predict_topk(X[:2], 2).labels[:, 0]
    array([0, 1])
    """

    def __init__(
        self,
        strategy: str = "recommended",
        n_representatives: int = 5,
        kernel: str = "auto",
        inference: str = "auto",
        random_state: RandomState | None = None,
        device: str = "auto",
        base_scale: float = 4.0,
        novel_scale: float = 8.0,
        n_chains: int = 30,
        n_sweeps: int = 10,
        construction: str = "two_means",
        columns: str | Mapping[str, str] = "auto",
        verbose: bool = False,
    ) -> None:
        self.strategy = strategy
        self.n_representatives = n_representatives
        self.kernel = kernel
        self.inference = inference
        self.random_state = random_state
        self.device = device
        self.base_scale = base_scale
        self.novel_scale = novel_scale
        self.n_chains = n_chains
        self.n_sweeps = n_sweeps
        self.construction = construction
        self.columns = columns
        self.verbose = verbose

    memory_ = FittedAttribute("memory")
    tree_ = FittedAttribute("tree")

    _formats = (TREE_FORMAT,)

    def fit(
        self,
        X: Rows,
        y: Labels,
        sample_weight: Weights | None = None,
        unseen: Labels | None = None,
        *,
        row_id: Labels | None = None,
    ) -> TreeGPClassifier:
        """Learn the first session from labelled rows: X (n, D) with labels y (n,), at least two distinct.

        Where rows are features of a network, `unseen` (n,) says by True or False of each whether the network was *not*
        trained on it. Rows that it has learnt lie nearer to their class's mean than new ones will, so without being
        told the model takes classes for narrower than they are, and is too sure. With `unseen`, what classes have in
        common is measured by such rows, and rows of a class that were learnt count together as few, as many as these
        say. Ten classes must have two of them or more; others may have none. For strategy="recommended" only. None, or
        True for all: no row was learnt. Later sessions bring new rows; they need no mask.

        A sample weight says of how many rows a row stands; 0 equals leaving it out. `row_id` must be None: no row is
        kept that could be replaced.
        """
        return self._commit(self._first_rows(X, y, sample_weight, row_id, unseen), None)

    def partial_fit(
        self,
        X: Rows,
        y: Labels,
        classes: Labels | None = None,
        sample_weight: Weights | None = None,
        *,
        row_id: Labels | None = None,
    ) -> TreeGPClassifier:
        """A session: add labelled rows, of old or new classes.

        A first call is a `fit` that may have one class only. `classes` are further ones to make room for; a class
        without rows predicts from its prior. ``classes_`` is sorted after every call. `row_id`
        must be None, as in `fit`.
        """
        return self._extend(X, y, classes, sample_weight, row_id)

    def _checked_ids(self, row_id: Any, n_rows: int, known: ClassFitted | None) -> None:
        if row_id is not None:
            raise ValueError(f"row_id: {_KEEPS_MEANS}")

    def _known_ids(self, rows: Any, known: ClassFitted) -> np.ndarray:
        raise ValueError(f"cannot forget rows: {_KEEPS_MEANS}")

    def predict_topk(self, X: Rows, k: int = 5, beam: int | None = None) -> TopClasses:
        """The k most probable classes of each row, or all if there are fewer.

        With very many classes not all of them are looked at, but those on a beam: groups of similar classes
        ("recommended"), or branches of ``tree_``, that suit a row best. `beam` says how many are followed, None is 128
        groups and 64 branches. A group takes about as long as 48 classes do where all are looked at, a branch as 16
        (docs/results/beam-search.md): with so many classes for each, or fewer, all are looked at, which is exact and
        the faster way. So a beam is taken from 6,145 and 1,025 classes on, unless a narrower one is asked for.

        Along a beam the probabilities of "recommended" are normalised over the classes that were reached, the others'
        over these and the branches that were left.
        """
        if beam is not None:
            beam = check_count("beam", beam)
        fitted: TreeFitted = self._current()
        k = min(check_count("k", k), len(fitted.classes))

        def leading(fitted: Any, queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found: tuple[torch.Tensor, ...] = fitted.leading(queries, k, beam)
            return found

        probabilities, numbers = self._predict_in_blocks(fitted, X, leading)
        return TopClasses(fitted.classes[numbers], probabilities)

    def _reader(self) -> Reader:
        return TableReader.of(self.columns)

    def _learn(self, training: TrainingSet, known: TreeFitted | None, seed: int) -> TreeFitted:
        """Later sessions have the seed and the strategy of the first; arguments that say no strategy are refused."""
        strategy = strategy_of(self._arguments)
        if known is None:
            return first_session(training, strategy, seed, device_for(self.device, len(training.rows.y)))
        return later_session(training, known)

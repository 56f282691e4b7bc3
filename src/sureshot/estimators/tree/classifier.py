"""`TreeGPClassifier`: classes that arrive over time with a handful of examples, as a scikit-learn estimator.

`fit` learns from the classes of a first session how classes differ and how rows of a class spread. Every
`partial_fit` is a session: nothing is trained again, nothing of the classes known is forgotten, and no row is kept.
`GPClassifier` and `FewShotClassifier`, in contrast, keep all rows and condition on all of them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import Labels, RandomState, Rows, Weights, check_count
from sureshot.estimators.classes.answers import TopClasses
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.devices import device_for
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
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
    """Classification with classes that arrive over time, in memory that does not grow with the rows.

    The first session teaches what classes have in common; later ones bring new classes by a few rows each. It should
    have ten classes at least, with several rows each. Where rows may be kept and what classes look like drifts,
    ``GPClassifier(time=...)`` follows.

    Parameters
    ----------
    strategy : {"recommended", "shared_root", "session", "rebuild"}, default="recommended"
        "recommended" keeps of each class the mean and number of its rows, and from the first session how rows and means
        of classes spread. The others are published trees of binary Gaussian processes: one sub-tree for all later
        classes, one for every session, or the tree built anew each time.
    n_representatives : int, default=5
        Rows (k-means centres) that trees keep of each class.
    kernel : {"auto", "unit_rbf", "unit_matern32", "cosine"}, default="auto"
        Of trees, on rows scaled to unit length; "auto" is "unit_rbf".
    inference : {"auto", "mean_field", "gibbs", "natural_gradient"}, default="auto"
        Of trees. "auto" is mean field for the first session's tree and Gibbs sampling for all else.
    random_state : int, RandomState or None, default=None
        Seeds everything random. None is a fixed seed, too: equal calls give equal models.
    device : str, default="auto"
        A torch device for `fit`. "auto" takes CUDA, if there is one, from 2000 rows on. Sessions and predictions stay
        there.
    base_scale, novel_scale : float, default=4.0 and 8.0
        Output scales of the first session's tree, and of later ones.
    n_chains, n_sweeps : int, default=30 and 10
        Of Gibbs sampling.
    construction : {"two_means", "balanced_random", "label_order"}, default="two_means"
        How trees are built: by the similarity of classes, or, to compare with, at random or by label.
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
    memory_ : Memory
        How many numbers are kept, for each class and in all.
    tree_ : ClassTree
        The tree of the classes, numbered in the order of ``classes_``.
    temperature_ : float
        Divides log probabilities; 1 until `calibrate` sets it.
    log_evidence_ : float
        A lower bound for the kept rows' labels, in nats; NaN for samplers and "recommended".
    columns_ : dict
        Kinds of a DataFrame's columns by name, if not all are numbers without gaps.
    encoder_ : ColumnEncoder
        What makes numbers of such columns: ``encoder_(X)``, with ``encoder_.names``.
    reading_ : Remembered
        How `sureshot.data.read_table` read the file of X, for files like it.
    n_features_in_, feature_names_in_
        Number and names of the columns of X.

    Notes
    -----
    With "recommended", sessions in any order give exactly the model of all rows so far under the first session's
    spread. Trees choose a class's representatives anew from the old ones and its new rows. Columns are standardised by
    the first session, unless its rows have unit length. Sample weights are whole numbers.

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
        *,
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
    ) -> Self:
        """Learn the first session.

        Parameters
        ----------
        X : array or DataFrame (n, D)
            Rows.
        y : array (n,)
            Labels, at least two distinct.
        sample_weight : array of int (n,), optional
            How many rows each row stands for; 0 equals leaving it out.
        unseen : array of bool (n,), optional
            For features of a network: whether it was *not* trained on the row. Rows it was trained on lie too near to
            their class's mean, and make the model too sure; with this mask the spread of classes is measured by the
            other rows, of which ten classes must have two. None, and True for all, say that it was trained on none.
            "recommended" only.
        row_id : None
            No rows are kept that could be replaced.

        Returns
        -------
        self
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
    ) -> Self:
        """Learn a further session: rows of known or new classes.

        Parameters
        ----------
        X : array or DataFrame (n, D)
            Rows.
        y : array (n,)
            Labels.
        classes : array, optional
            Further classes to make room for; one without rows predicts from its prior.
        sample_weight : array of int (n,), optional
            As in `fit`.
        row_id : None
            No rows are kept that could be replaced.

        Returns
        -------
        self
            With ``classes_`` sorted anew.
        """
        return self._extend(X, y, classes, sample_weight, row_id)

    def _checked_ids(self, row_id: Any, n_rows: int, known: ClassFitted | None) -> None:
        if row_id is not None:
            raise ValueError(f"row_id: {_KEEPS_MEANS}")

    def _known_ids(self, rows: Any, known: ClassFitted) -> np.ndarray:
        raise ValueError(f"cannot forget rows: {_KEEPS_MEANS}")

    def predict_topk(self, X: Rows, k: int = 5, beam: int | None = None) -> TopClasses:
        """Predict the most probable classes of each row, by a beam where there are very many.

        Parameters
        ----------
        X : array or DataFrame (n, D)
            Rows.
        k : int, default=5
            How many; all classes if there are fewer.
        beam : int, optional
            How many groups of similar classes ("recommended", 128 by default) or branches of ``tree_`` (64) are
            followed. All classes are compared where that is as fast: up to 6,144 and 1,024 of them by default.

        Returns
        -------
        TopClasses
            ``labels`` and ``probabilities``, each (n, k), the most probable first. Along a beam, probabilities are
            relative to the classes that were reached, for trees also to the branches that were left.
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

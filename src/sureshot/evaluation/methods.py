"""Methods of class-incremental learning by name: baselines, those that train a network, estimators with `partial_fit`.

Those of `sureshot.incremental.baselines` and `sureshot.incremental.trained` are here by their names; estimators get
theirs from the functions below, whose keyword arguments are the options. An estimator that is to be offered is one
function and one entry.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import clone

from sureshot.data.checks import near
from sureshot.data.typed_values import check_call_options
from sureshot.incremental.baselines import BASELINES, make_baseline
from sureshot.incremental.herding import herded_rows
from sureshot.incremental.method import Memory, SessionMethod
from sureshot.incremental.trained import TRAINED, make_trained
from sureshot.persistence import load_artifact

OutlierScore = Callable[[Any, Any], np.ndarray]
"""Of a fitted estimator and rows."""


class EstimatorMethod(SessionMethod):
    """Any estimator with ``fit``, ``partial_fit``, ``predict_proba`` and ``classes_``."""

    def __init__(
        self,
        estimator: Any,  # as its constructor left it; a copy is taught
        outlier_score: OutlierScore | None = None,
        memory: Callable[[Any], Memory | None] = lambda estimator: None,  # of a fitted estimator
        takes_unseen: bool = False,  # whether its ``fit`` has an argument of this name
        rows_per_class: int | None = None,  # of a session that it is shown, those that herding chooses; None: all
    ) -> None:
        if rows_per_class is not None and rows_per_class < 1:
            raise ValueError(f"rows_per_class must be at least 1, got {rows_per_class}")
        self.estimator, self._takes_unseen, self._rows_per_class = estimator, takes_unseen, rows_per_class
        self._outlier_score, self._memory = outlier_score, memory
        self._fitted: Any = None

    @property
    def classes_(self) -> np.ndarray:  # type: ignore[override]
        """Labels of the columns."""
        return np.asarray(self._known().classes_)

    def fit(self, X: Any, y: Any, unseen: Any = None) -> Self:
        """Teach a copy of the estimator."""
        told = {"unseen": unseen} if self._takes_unseen else {}
        estimator = clone(self.estimator)
        X, y = self._shown(X, y)
        one_class = len(np.unique(np.asarray(y))) == 1  # which estimators take as the first of several calls
        self._fitted = estimator.partial_fit(X, y) if one_class else estimator.fit(X, y, **told)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Teach it more; whether a call that fails changes nothing is the estimator's promise."""
        if self._fitted is None:
            return self.fit(X, y)
        self._fitted.partial_fit(*self._shown(X, y))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, C)."""
        found: np.ndarray = self._known().predict_proba(X)
        return found

    def outlier_score(self, X: Any) -> np.ndarray | None:
        """Outlier scores (n,), if the estimator has any."""
        return None if self._outlier_score is None else self._outlier_score(self._known(), X)

    def memory(self) -> Memory | None:
        """What the estimator keeps, if it says."""
        return self._memory(self._known())

    def _shown(self, X: Any, y: Any) -> tuple[Any, Any]:
        return (X, y) if self._rows_per_class is None else _herded(X, y, self._rows_per_class)

    def _known(self) -> Any:
        if self._fitted is None:
            name = type(self.estimator).__name__
            raise ValueError(f"{name} has learnt nothing yet: call fit() with the base session first.")
        return self._fitted


def _herded(X: Any, y: Any, rows_per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """So many rows of each class, and their labels."""
    rows, labels = np.asarray(X), np.asarray(y)
    codes = np.unique(labels, return_inverse=True)[1]
    room = torch.full((int(codes.max(initial=0)) + 1,), rows_per_class)
    chosen = herded_rows(torch.from_numpy(rows.astype(np.float64)), torch.from_numpy(codes), room).numpy()
    return rows[chosen], labels[chosen]


def make_method(
    name: str,
    seed: int = 0,  # of methods that draw; baselines draw nothing
    **options: Any,
) -> SessionMethod:
    """A method by one of `METHOD_NAMES`, with its options; `ValueError` for what it does not take."""
    if name in BASELINES:
        return make_baseline(name, **options)
    if name in TRAINED:
        return make_trained(name, seed, **options)
    if not isinstance(name, str) or name not in _ESTIMATORS:
        raise ValueError(f"no method called {name!r}{near(str(name), METHOD_NAMES)}; names: {', '.join(METHOD_NAMES)}")
    check_call_options(name, _ESTIMATORS[name], options, given_otherwise=("seed",))
    return _ESTIMATORS[name](seed=seed, **options)


def gp(
    *,
    seed: int = 0,
    kernel: str = "auto",
    likelihood: str = "auto",
    inference: str = "auto",
    objective: str | None = "auto",
    rows_per_class: int | None = None,  # shown to it; all by default, minutes for ten thousand
) -> SessionMethod:
    """`GPClassifier`, which keeps all rows and conditions on them anew in each session, with the kernel kept."""
    from sureshot.estimators.gp.classifier import GPClassifier
    from sureshot.estimators.gp.options import check_objective, models_for
    from sureshot.estimators.gp.settings import Settings

    estimator = GPClassifier(kernel, likelihood, inference=inference, objective=objective, random_state=seed)
    settings = Settings.checked(estimator.get_params(deep=False), seed, n_rows=0)
    if settings.precomputed:
        raise ValueError("a precomputed kernel does not go with sessions, whose rows are features: name another kernel")
    # What goes together whatever the number of classes; which likelihoods are for two classes only, data decide.
    check_objective(objective, models_for(likelihood, inference, n_classes=2)[0].inference)
    return EstimatorMethod(estimator, GPClassifier.outlier_score, model_file_numbers, rows_per_class=rows_per_class)


def tree(
    *,
    seed: int = 0,
    strategy: Literal["recommended", "shared_root", "session", "rebuild"] = "recommended",
    n_representatives: int = 5,  # this and all below of the strategies of trees
    kernel: str = "auto",
    inference: str = "auto",
    n_chains: int = 30,
    n_sweeps: int = 10,
    construction: str = "two_means",
    unseen: bool = True,  # whether "recommended" is told which rows the network was not trained on, where that is known
) -> SessionMethod:
    """`TreeGPClassifier` by one of its strategies."""
    from sureshot.estimators.tree.classifier import TreeGPClassifier
    from sureshot.estimators.tree.settings import strategy_of

    estimator = TreeGPClassifier(
        strategy,
        n_representatives=n_representatives,
        kernel=kernel,
        inference=inference,
        random_state=seed,
        n_chains=n_chains,
        n_sweeps=n_sweeps,
        construction=construction,
    )
    strategy_of(estimator.get_params(deep=False))  # refuses what does not go, before there are rows
    told = unseen and strategy == "recommended"
    return EstimatorMethod(estimator, TreeGPClassifier.outlier_score, _stated_memory, told)


def _stated_memory(estimator: Any) -> Memory:
    found: Memory = estimator.memory_
    return found


def model_file_numbers(estimator: Any) -> Memory:
    """Numbers in the model file of an estimator of ours, none of them apart as shared."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        estimator.save(path)
        arrays = load_artifact(path).arrays
    return Memory(0, sum(array.size for array in arrays.values()), len(estimator.classes_))


_ESTIMATORS: dict[str, Callable[..., SessionMethod]] = {"gp": gp, "tree": tree}

METHOD_NAMES = (*BASELINES, *_ESTIMATORS, *TRAINED)
"""Names of `make_method`."""

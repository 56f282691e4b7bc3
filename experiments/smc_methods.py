"""The methods that structure discovery is compared with: those of its paper, and others.

The paper's two Gaussian processes with a structure that is given are run by our sampler and predict by averaging over
their latents, as in the paper. Probabilities of the SVM, and offline of passive-aggressive learning and stochastic
gradients, are Platt's sigmoids fitted on five folds of the training rows; online, passive-aggressive learning has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

from experiments.batch_learners import BatchLearner, Incremental, Refitted, Scaled
from experiments.peers import random_forest, svm_with_probabilities
from sureshot.demo.peers import sklearn_gp
from sureshot.estimators import GPClassifier, KernelSearchClassifier

OURS = "kernel search"
GAUSSIAN_PROCESSES = ("LINEAR GP", "SQUARED-EXPONENTIAL GP", "RBF GP", "GPClassifier")


@dataclass(frozen=True)
class Context:
    """The values that an estimator may depend on."""

    width: int  # columns
    seed: int
    particles: int  # of ours


@dataclass(frozen=True)
class Method:
    """How its estimator is made, and how it learns batches."""

    make: Callable[[Context], Any]
    online: Literal["incremental", "retuned", "scaled", "refitted"]
    calibrated: bool = False  # offline, by Platt's sigmoid

    def offline(self, context: Context) -> Any:
        """The estimator of a whole training set."""
        model = self.make(context)
        return CalibratedClassifierCV(model, method="sigmoid", cv=5, ensemble=False) if self.calibrated else model

    def learner(self, context: Context, classes: np.ndarray, window: int | None = None) -> BatchLearner:
        """The batch learner; refitted ones see only the rows of the window."""
        if self.online == "refitted":
            return Refitted(lambda: self.make(context), classes, window)
        model = self.make(context)
        if self.online == "scaled":
            return Scaled(model, classes)
        return Incremental(model, classes, **({"retune": True} if self.online == "retuned" else {}))


def search(context: Context, structure: str | None = None, window: int | None = None) -> KernelSearchClassifier:
    """Ours, as it comes but for the number of particles."""
    return KernelSearchClassifier(context.particles, structure=structure, window=window, random_state=context.seed)


def given(context: Context, structure: str) -> KernelSearchClassifier:
    """The paper's process with a structure that is given."""
    return search(context, structure).set_params(predictive="integral")


def passive_aggressive(seed: int) -> SGDClassifier:
    """PA-I (Crammer et al. 2006), which is a schedule of stochastic gradients on the hinge loss."""
    return SGDClassifier(loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, random_state=seed)


METHODS: dict[str, Method] = {
    OURS: Method(search, "incremental"),
    "LINEAR GP": Method(lambda c: given(c, "LINEAR"), "incremental"),
    "SQUARED-EXPONENTIAL GP": Method(lambda c: given(c, "SQUARED-EXPONENTIAL"), "incremental"),
    "naive Bayes": Method(lambda c: GaussianNB(), "scaled"),
    "passive-aggressive": Method(lambda c: passive_aggressive(c.seed), "scaled", calibrated=True),
    "SGD": Method(lambda c: SGDClassifier(loss="log_loss", random_state=c.seed), "scaled", calibrated=True),
    "random forest": Method(lambda c: random_forest(), "refitted"),
    "SVM": Method(lambda c: svm_with_probabilities(), "refitted"),
    "RBF GP": Method(lambda c: sklearn_gp(c.width), "refitted"),
    "GPClassifier": Method(lambda c: GPClassifier(), "retuned"),
}
"""By name; the first seven are the paper's."""

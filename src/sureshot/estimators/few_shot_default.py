"""What `FewShotClassifier` does without a checkpoint: a stated model on the inputs as they are, its temperature tuned.

A one-vs-each Gaussian process by mean field, with an intercept as strong as the kernel:

=============================  =====================  ==================  ============
rows                           kernel                 length-scale        output scale
=============================  =====================  ==================  ============
all of unit length             cosine                                     64
others                         RBF, columns           sqrt(columns)       32
                               standardised, or with
                               one common scale
=============================  =====================  ==================  ============

Columns keep their relative sizes where they look as if they had one unit, like pixels: many of them, of sizes within a
factor of 100, no few of which make up all distances. With a row or two of each class, no label is left to ask.

One-vs-each is a lower bound of the softmax, and the softmax of the latents' means is what predicts: the confidence of
the one-vs-each rules grows with the number of classes, that of the softmax much less. The output scales are a
compromise over tasks of 3 to 30 classes with 1 and 5 examples (docs/few-shot-classifier.md). Where classes have several
rows, the latents are divided by the temperature that predicts left-out labels best, as `GPClassifier`'s are; with a
single example of each class nothing can be left out, and confidence may be off in either direction, which `calibrate`
or a checkpoint mends.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.few_shot_predictors import GaussianPredictor
from sureshot.estimators.preprocessing import Scaling, fit_scaling, share_a_unit
from sureshot.estimators.support import Support
from sureshot.estimators.temperature import plug_in_temperatures
from sureshot.gaussian.posterior import SitePosterior, WithPriorClasses, leave_one_out
from sureshot.kernels import is_unit_norm
from sureshot.likelihoods import OneVsEach, get_likelihood
from sureshot.likelihoods.softmax import Softmax
from sureshot.meta.learners import GaussianProcessLearner, TaskKernel
from sureshot.meta.learners.mean_field import MeanField
from sureshot.networks.backbones import make_backbone

COSINE_TEMPERATURE = (0.75, 0.22)
"""Factor and power of the number of classes, for one-shot tasks (docs/results/few-shot-defaults.md).

Between what suits intents, (0.36, 0.33), and what suits intents and groups of them, (1.03, 0.16): how hard a task is
cannot be seen, and to be too sure of a hard one costs more than to be too modest about an easy one.
"""

RBF_TEMPERATURE = (7.2, -0.49)
"""Factor and power of the number of columns, likewise; a temperature below 1 is not trusted to be right elsewhere."""

_LEAST_SHARE = 0.5
"""Of the columns that must count in distances by a common scale, each by its variance."""


@dataclass(frozen=True)
class DefaultModel:
    """The settings of the learner that stands in for a checkpoint."""

    kernel: str  # a preset of `sureshot.kernels`, at its natural length-scale
    n_features: int  # columns that the kernel sees
    outputscale: float
    constant: float = 1.0  # variance of the intercept relative to the kernel's
    n_steps: int = 10  # of mean field

    def build(self) -> GaussianProcessLearner:
        """The learner, in evaluation mode and double precision."""
        kernel = TaskKernel(
            self.kernel,
            self.n_features,
            outputscale=self.outputscale,
            learn_outputscale=False,
            constant=self.constant,
        )
        inference = MeanField(OneVsEach(), self.n_steps)
        learner = GaussianProcessLearner(
            make_backbone("identity", (self.n_features,)),
            kernel,
            inference,
            inference,
            rule="plug_in",
            predictive_likelihood=get_likelihood("softmax"),
        )
        return learner.double().eval().requires_grad_(False)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; the arguments that make it again."""
        return asdict(self)


def default_model(x: np.ndarray, weight: np.ndarray) -> tuple[DefaultModel, Scaling]:
    """The model for rows (N, D) with weights (N,), and the map from columns to the kernel's inputs."""
    scaling = fit_scaling(x, weight, "auto")
    width = len(scaling.kept)
    if is_unit_norm(torch.from_numpy(x)):
        return DefaultModel("cosine", width, 64.0), scaling
    if share_a_unit(torch.from_numpy(scaling.scale)):
        relative = (scaling.scale / scaling.scale.max()) ** 2
        if relative.sum() ** 2 / (relative**2).sum() >= _LEAST_SHARE * width:  # the effective number of columns
            common = scaling.scale.max() * np.sqrt(relative.mean())
            scaling = replace(scaling, scale=np.full(width, common))
    return DefaultModel("rbf", width, 32.0), scaling


def usual_temperature(model: DefaultModel, n_classes: int) -> float:
    """The temperature that suits tasks of so many classes with one row each; what `left_out_temperature` starts from.

    The more columns a table has, the farther apart its classes lie; among many intents some are alike.
    """
    if model.kernel == "cosine":
        return COSINE_TEMPERATURE[0] * n_classes ** COSINE_TEMPERATURE[1]
    return max(1.0, RBF_TEMPERATURE[0] * model.n_features ** RBF_TEMPERATURE[1])


def left_out_temperature(
    model: DefaultModel,
    conditioned: GaussianPredictor,
    share: Tensor,  # (N,), of its weight that is left out of a row of the support
) -> float:
    """What the latents are divided by so that left-out labels are predicted best, near `usual_temperature`."""
    posterior = conditioned.posterior
    if isinstance(posterior, WithPriorClasses):
        posterior = posterior.inner
    weight, y = conditioned.membership[0].max(0)
    n_classes = len(conditioned.membership[0])
    usual = usual_temperature(model, n_classes)
    if n_classes < 2:
        return usual
    assert isinstance(posterior, SitePosterior)
    sites = (share * part for part in posterior.sites)
    mean, _ = leave_one_out(posterior.mean, posterior.variance, *sites)  # (1, 1, P, N)
    support = Support(conditioned.support[0], y, weight, n_classes, share)
    return float(plug_in_temperatures(Softmax(), mean[0], support, usual)[0])


def with_directions(model: DefaultModel, x: np.ndarray, usual: np.ndarray | None) -> np.ndarray:
    """Rows (n, D), where angles count those of zeros as the `usual` row (D,); refused if there is none.

    Columns of text are zeros where there is no text, and such a row is what the average row is.
    """
    zero = np.flatnonzero(~x.any(axis=1))
    if model.kernel != "cosine" or not len(zero):
        return x
    if usual is None:
        raise ValueError(
            f"X has {len(zero)} rows of zeros, the first of them row {zero[0]}: they have no direction, and the model "
            "compares directions, because it learnt from rows of unit length. Drop those rows."
        )
    found = x.copy()
    found[zero] = usual
    return found

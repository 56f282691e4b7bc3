"""What `FewShotClassifier` does without a checkpoint: a stated model on the inputs as they are, nothing tuned.

A one-vs-each Gaussian process by mean field, with an intercept as strong as the kernel:

=============================  =====================  ==================  ============
rows                           kernel                 length-scale        output scale
=============================  =====================  ==================  ============
all of unit length             cosine                                     64
others                         RBF, columns           sqrt(columns)       32
                               standardised
=============================  =====================  ==================  ============

One-vs-each is a lower bound of the softmax, and the softmax of the latents' means is what predicts: the confidence of
the one-vs-each rules grows with the number of classes, that of the softmax much less. The output scales are a
compromise over tasks of 3 to 30 classes with 1 and 5 examples (docs/few-shot-classifier.md); with a single example of
each class they leave confidence up to 12 points off in either direction, which `calibrate` or a checkpoint mends.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from sureshot.estimators.preprocessing import Scaling, fit_scaling
from sureshot.kernels import is_unit_norm
from sureshot.likelihoods import OneVsEach, get_likelihood
from sureshot.meta.learners import GaussianProcessLearner, TaskKernel
from sureshot.meta.learners.mean_field import MeanField
from sureshot.networks.backbones import make_backbone


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
    return DefaultModel("rbf", width, 32.0), scaling


def check_directions(model: DefaultModel, x: np.ndarray) -> None:
    """Refuse rows of length zero where the kernel is that of angles."""
    if model.kernel != "cosine":
        return
    zero = np.flatnonzero(~x.any(axis=1))
    if len(zero):
        raise ValueError(
            f"X has {len(zero)} rows of zeros, the first of them row {zero[0]}: they have no direction, and the model "
            "compares directions, because it learnt from rows of unit length. Drop those rows."
        )

"""Label regression for a batch of tasks: deep kernel transfer.

Every class is a Gaussian-process regression on targets +1 (its rows) and -1 (the others), all with the same noise.
Evidence and posterior are exact and in closed form: one Cholesky factor for a task whose classes share a kernel, one
for each class otherwise.

The model does not say what the probability of a class is. The code released with deep kernel transfer takes the
class with the largest sigmoid of its latent mean; for calibration figures such scores have to be normalised, and the
normalised sigmoids are the logistic-softmax at the latent means: ``LogisticSoftmax().plug_in``. The model's own
answer is `GaussianLabels`: how probable the targets of each class are, against those of the others. With little
noise it is far more confident, and unlike the sigmoids it can reach every probability.

References: Patacchiola et al. 2020; Rifkin & Klautau 2004; Snell & Zemel 2021, appendix H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sureshot.gaussian.algebra import weighted_factor
from sureshot.gaussian.gram import GramPrior
from sureshot.likelihoods.auxiliary import one_hot
from sureshot.likelihoods.gaussian import GaussianLabels
from sureshot.meta.learners.absent_classes import present_classes
from sureshot.meta.learners.task_inference import QueryPosterior, TaskInference


@dataclass(frozen=True)
class RegressionPosterior(QueryPosterior):
    """The exact Gaussian posterior; see `QueryPosterior`."""

    prior_mean: Tensor  # scalar or (T or 1, C, 1)
    alpha: Tensor  # (T, C, N), K^-1 (m - a)
    half: Tensor  # (T, 1 or C, N, N), L_B^-1 W^1/2

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances, each (1, T, C, Q)."""
        if cross.shape[1] == 1:
            moved = self.alpha @ cross.squeeze(1)
        else:
            moved = (self.alpha.unsqueeze(-2) @ cross).squeeze(-2)
        variance = (prior_variance - (self.half @ cross).square().sum(-2)).clamp_min(0)
        mean = self.prior_mean + moved
        return mean.unsqueeze(0), variance.expand(mean.shape).unsqueeze(0)


@dataclass(frozen=True)
class LabelRegression(TaskInference):
    """Gaussian likelihood on -1/+1 targets.

    Parameters
    ----------
    noise : float or Tensor (), default=0.1
        Noise variance, positive; a tensor may carry a gradient. 0.1 is what was published.

    Raises
    ------
    ValueError
        When the noise is not positive.
    """

    noise: float | Tensor = 0.1
    likelihood: GaussianLabels = field(init=False)

    n_chains = 1
    takes_real_weights = True
    compares_classes = False  # a row says that its class has the target +1

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", GaussianLabels(self.noise))

    def evidence(
        self,
        prior: GramPrior,
        y: Tensor,
        n_classes: int,
        weight: Tensor | None,
        generator: torch.Generator,
        class_mask: Tensor | None = None,
    ) -> Tensor:
        """Exact log evidence of the targets, summed over the classes, (T,); see `TaskInference.evidence`.

        Parameters
        ----------
        class_mask : Tensor (T, C) bool, optional
            False for an absent class, which contributes nothing; by default those marked by the prior mean.
        """
        root, residual, present = self._residual(prior, y, n_classes, weight, class_mask)
        factor = weighted_factor(prior.gram, root)
        # The classes that share a factor are its right-hand sides.
        shared = factor.shape[1] == 1
        columns = residual.mT.unsqueeze(1) if shared else residual.unsqueeze(-1)
        solved = torch.linalg.solve_triangular(factor, root.unsqueeze(-1) * columns, upper=False)
        fit = solved.square().sum(-2).flatten(1)  # (T, C)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # (T, 1 or C)
        rows = y.shape[-1] if weight is None else weight.sum(-1, keepdim=True)
        noise = torch.as_tensor(self.noise, dtype=fit.dtype, device=fit.device)
        values = -0.5 * (fit + log_det + rows * (2 * math.pi * noise).log())
        return (values * present).sum(-1)

    def posterior(
        self,
        prior: GramPrior,
        y: Tensor,
        n_classes: int,
        weight: Tensor | None,
        generator: torch.Generator,
        class_mask: Tensor | None = None,
    ) -> RegressionPosterior:
        """The exact posterior; see `TaskInference.posterior`. An absent class stays at its prior mean."""
        root, residual, _ = self._residual(prior, y, n_classes, weight, class_mask)
        factor = weighted_factor(prior.gram, root)
        eye = torch.eye(y.shape[-1], dtype=factor.dtype, device=factor.device)
        half = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False) * root.unsqueeze(-2)
        if half.shape[1] == 1:
            inner = half.squeeze(1)
            alpha = (residual @ inner.mT) @ inner
        else:
            alpha = (half.mT @ (half @ residual.unsqueeze(-1))).squeeze(-1)
        return RegressionPosterior(prior.mean, alpha, half)

    def condition_alone(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor, generator: torch.Generator
    ) -> tuple[RegressionPosterior, float]:
        """Posterior and log evidence, both exact; see `TaskInference.condition_alone`."""
        posterior = self.posterior(prior, y, n_classes, weight, generator)
        return posterior, float(self.evidence(prior, y, n_classes, weight, generator))

    def numbers_at_once(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """A factor for each kernel matrix; see `TaskInference.numbers_at_once`."""
        return n_kernels * n_rows**2

    def _residual(
        self, prior: GramPrior, y: Tensor, n_classes: int, weight: Tensor | None, class_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``W^1/2`` (T, 1, N), targets minus prior mean (T, C, N), and who is present, (T, C) of zeros and ones."""
        dtype = prior.gram.dtype
        counts = torch.ones_like(y, dtype=dtype) if weight is None else weight
        root = (counts / self.noise).sqrt().unsqueeze(1)
        shape = (len(y), n_classes, y.shape[-1])
        mask = present_classes(prior.mean).expand(*shape[:2], 1) if class_mask is None else class_mask.unsqueeze(-1)
        residual = (2 * one_hot(y, n_classes, dtype) - 1 - prior.mean).masked_fill(~mask, 0)
        return root, residual.expand(shape), mask.squeeze(-1).to(dtype)

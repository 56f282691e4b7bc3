"""A posterior over weights that keeps no factor it can recompute.

With features ``Phi`` (N, R) and diagonal sites of precision ``W_c`` the posterior of class c's weights is Gaussian
with precision ``A_c = I + Phi' W_c Phi``. Keeping one R x R factor for each class costs ``C R^2`` numbers, far more
than the data; so `WeightPosterior` keeps features, site precisions and mean weights, and factorises a class only
when its variance is asked for. Classes are visited in a Python loop on purpose: on a CPU one Cholesky of a large
block is faster than a batched one, and memory stays at one block. Rows whose site is too weak to move the
posterior (probability of that class near 0 or 1) are left out of that class's block, which makes problems with
many classes an order of magnitude cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# A row is skipped for a class when precision * prior variance is below this: it would change the class's
# posterior variance at that row by less than one part in ten thousand.
NEGLIGIBLE_INFORMATION = 1e-4


@dataclass(frozen=True)
class WeightPosterior:
    """Gaussian posterior of the weights of every class (and chain).

    Attributes
    ----------
    features : Tensor (N, R)
    precision : Tensor (S, C or 1, N)
        Site precisions; S chains (1 for deterministic inference). Size 1 for classes that share them.
    weights : Tensor (S, C, R)
        Mean weights.
    prior_mean : Tensor (C,)
    factors : Tensor (S, C, R, R), optional
        Cholesky factors of the weights' posterior precision where they cannot be recomputed from sites
        (stochastic natural gradients).
    """

    features: Tensor
    precision: Tensor
    weights: Tensor
    prior_mean: Tensor
    factors: Tensor | None = None

    def latent_mean(self, features: Tensor) -> Tensor:
        """Posterior means at query features (Q, R), shape (S, C, Q)."""
        return self.prior_mean[:, None] + self.weights @ features.mT

    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """Posterior variances at query features (Q, R).

        Parameters
        ----------
        residual : Tensor (Q,)
            Prior variance outside the features' span.
        classes : Tensor (Q,), optional
            One class for each query: only its variance is computed, giving (S, Q); else all, (S, C, Q).
        """
        n_chains, n_classes = self.weights.shape[:2]
        shape = (n_chains, n_classes, len(features)) if classes is None else (n_chains, len(features))
        result = features.new_empty(shape)
        for chain in range(n_chains):
            if self.precision.shape[1] == 1 and self.factors is None:
                result[chain] = self._variance(chain, 0, features)
                continue
            for c in range(n_classes):
                rows = slice(None) if classes is None else (classes == c).nonzero().squeeze(-1)
                if classes is not None and len(features[rows]) == 0:
                    continue
                target = (chain, c) if classes is None else (chain, rows)
                result[target] = self._variance(chain, c, features[rows])
        return result + residual

    def log_det(self, chain: int = 0) -> Tensor:
        """``sum_c log|A_c|``, a scalar."""
        blocks = self.precision.shape[1] if self.factors is None else self.weights.shape[1]
        copies = self.weights.shape[1] // blocks
        total = self.features.new_zeros(())
        for c in range(blocks):
            total = total + 2 * self._factor(chain, c).diagonal().log().sum()
        return copies * total

    def leave_one_out(self, shift: Tensor, only_informative: bool = False) -> tuple[Tensor, Tensor]:
        """Cavity means and variances at the training rows for deterministic inference, each (C, N).

        Parameters
        ----------
        shift : Tensor (C, N)
            The sites' shifts.
        only_informative : bool
            Skip the posterior variance of rows whose site carries no information on a class and use their prior
            variance there: the means move by less than `NEGLIGIBLE_INFORMATION`, and with many classes most of the
            work is saved. For rules that read the means alone.
        """
        features, precision = self.features, self.precision[0]
        mean = self.latent_mean(features)[0]
        prior_variance = features.square().sum(-1)
        if only_informative and precision.shape[0] == len(mean):
            variance = prior_variance.expand_as(mean).clone()
            for c in range(len(mean)):
                rows = precision[c] * prior_variance > NEGLIGIBLE_INFORMATION
                variance[c, rows] = self._variance(0, c, features[rows])
        else:
            variance = self.latent_variance(features, features.new_zeros(len(features)))[0]
        kept = (1 - precision * variance).clamp_min(1e-12)
        return (mean - shift * variance) / kept, variance / kept

    def _variance(self, chain: int, c: int, features: Tensor) -> Tensor:
        factor = self._factor(chain, c)
        return torch.linalg.solve_triangular(factor, features.mT, upper=False).square().sum(0)

    def _factor(self, chain: int, c: int) -> Tensor:
        if self.factors is not None:
            return self.factors[chain, c]
        return weight_precision_factor(self.features, self.precision[chain, c])


def weight_precision_factor(features: Tensor, precision: Tensor) -> Tensor:
    """Lower Cholesky factor of ``I + Phi' diag(precision) Phi`` for one class, (R, R)."""
    prior_variance = features.square().sum(-1)
    active = precision * prior_variance > NEGLIGIBLE_INFORMATION
    scaled = features[active] * precision[active].sqrt()[:, None]
    gram = scaled.mT @ scaled
    gram.diagonal().add_(1)
    return torch.linalg.cholesky(gram)

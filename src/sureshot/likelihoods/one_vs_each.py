"""One-vs-each likelihood: a label must beat every other class, one at a time.

``L(f | y) = prod over c != y of sigma(f_y - f_c)``, a lower bound of the softmax. It is a *composite*
likelihood: its sum over the classes is at most one and grows with the scale of the latents, so its evidence
favours large output scales when kernels are compared; predictions are normalised explicitly. Only
differences of latents count, so adding one function to all of them changes nothing.

Given ``omega_c ~ PG(s, f_y - f_c)`` for every class but the label, a datum is a Gaussian factor whose
precision over the classes is a star graph, ``diag(omega) + (sum omega) e_y e_y' - e_y omega' - omega
e_y'``: not independent over the classes, so `OneVsEach` has no `sample_sites`; Gibbs works on the
differences (`sureshot.inference.one_vs_each`). Mean field factorised over the classes does give independent sites.

References: Titsias 2016 (the bound); Snell & Zemel 2021 (Polya-Gamma form, eq. 42 for the prediction).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.auxiliary import log_two_cosh_half, one_hot, per_class, total
from sureshot.likelihoods.base import PredictiveRule
from sureshot.likelihoods.polya_gamma import half_tanh_ratio
from sureshot.likelihoods.quadrature import (
    MAX_NUMBERS,
    N_POINTS,
    expected_log_sigmoid,
    is_full_covariance,
    log_gaussian_expectation,
)
from sureshot.likelihoods.sites import AuxiliariesAtOptimum, ClassSites

_LOG_TWO = math.log(2)
_FEW_CLASSES = 20  # up to here matrix products over all pairs are cheaper than a logarithm for each order of a pair

Normalisation = Literal["expected_likelihood", "pooled_likelihood", "expected_softmax"]


class OneVsEach(AuxiliariesAtOptimum, ClassSites):
    """``L(f | y) = prod over c != y of sigma(f_y - f_c)``.

    `integral` makes probabilities of a likelihood that does not sum to one, by ``normalisation``. "expected_likelihood"
    is ``E[L_y] / sum E[L_c]`` for each Gaussian: eq. 42 of Snell & Zemel, which conditions on the Polya-Gamma variables
    of one chain; the ratios of several chains are averaged. "pooled_likelihood" takes the expectations over all chains
    together and makes one ratio of them. "expected_softmax" is ``E[L_y / sum L_c]``. ``n_points`` are those of the
    fixed quasi-Monte-Carlo set behind it.
    """

    name = "one_vs_each"
    translation_invariant = True

    def __init__(self, normalisation: Normalisation = "expected_likelihood", n_points: int = N_POINTS) -> None:
        if normalisation not in get_args(Normalisation):
            known = ", ".join(map(repr, get_args(Normalisation)))
            raise ValueError(f"normalisation must be one of {known}, but it is {normalisation!r}")
        self.normalisation: Normalisation = normalisation
        self.n_points = n_points

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``sum over c' != c of log sigma(f_c - f_c')``, (..., C, N); not normalised over c."""
        if f.shape[-2] <= _FEW_CLASSES:
            return _sum_over_unordered_pairs(f)

        def block(rows: Tensor) -> Tensor:  # (..., some classes, N)
            pairs = logsigmoid(rows.unsqueeze(-2) - f.unsqueeze(-3)).sum(-2)
            return pairs + _LOG_TWO  # a class paired with itself contributes log(1/2)

        size = max(1, MAX_NUMBERS // max(1, f.numel()))
        return torch.cat([block(rows) for rows in f.split(size, dim=-2)], dim=-2)

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[L]`` by the fixed point set, normalised as `normalisation` says, (..., C, Q).

        Time ``O(n_points C^2)`` for each query, about 0.2 s at 150 classes; `expected_log` and `plug_in` take
        ``O(C^2)``. The error grows with the number of factors (1e-2 at 50 classes): raise `n_points` there.
        """
        return torch.softmax(self._log_integral(mean, covariance), dim=-2)

    def predict_mixture(self, mean: Tensor, covariance: Tensor, rule: PredictiveRule) -> Tensor:
        """ "pooled_likelihood" normalises the integral once, over all parts."""
        if rule != "integral" or self.normalisation != "pooled_likelihood":
            return super().predict_mixture(mean, covariance, rule)
        return torch.softmax(self._log_integral(mean, covariance).logsumexp(0), dim=-2)

    def _log_integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Logarithms of what `integral` normalises, (..., C, Q)."""
        normalise = self.normalisation == "expected_softmax"

        def log_function(f: Tensor) -> Tensor:
            values = self.class_log_likelihood(f)
            return torch.log_softmax(values, dim=-2) if normalise else values

        pairs = mean.shape[-2] ** 2
        return log_gaussian_expectation(log_function, mean, covariance, self.n_points, pairs)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of ``sum over c' of E[log sigma(f_c - f_c')]``, by 1-d quadrature, (..., C, Q)."""
        full = is_full_covariance(mean, covariance)
        variance = covariance.diagonal(dim1=-2, dim2=-1).mT if full else covariance

        def block(rows: Tensor, row_variance: Tensor, cross: Tensor | None) -> Tensor:
            centre = rows.unsqueeze(-2) - mean.unsqueeze(-3)
            spread = row_variance.unsqueeze(-2) + variance.unsqueeze(-3)
            if cross is not None:
                spread = (spread - 2 * cross).clamp_min(0)
            return expected_log_sigmoid(centre, spread).sum(-2)

        size = max(1, MAX_NUMBERS // max(1, mean.numel()))
        rows = mean.split(size, dim=-2)
        row_variances = variance.split(size, dim=-2)
        crosses = covariance.movedim(-3, -1).split(size, dim=-3) if full else [None] * len(rows)
        values = [block(*parts) for parts in zip(rows, row_variances, crosses, strict=True)]
        # A class paired with itself adds one value that depends on its own variance; take it out.
        own = torch.zeros_like(variance) if full else 2 * variance
        return torch.softmax(torch.cat(values, dim=-2) - expected_log_sigmoid(torch.zeros_like(mean), own), dim=-2)

    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """Sites of the mean field that factorises over the classes as well; see the module's notes.

        ``c^2 = (m_y - m_c)^2 + V_y + V_c``, ``omega_c = s tanh(c/2) / (2 c)``. For the other classes
        precision omega_c and shift ``-s/2 + omega_c m_y``; for the label ``sum omega_c`` and ``s (C-1)/2 +
        sum omega_c m_c``.
        """
        own = one_hot(y, mean.shape[-2], mean.dtype)
        scale = per_class(weight)
        label_mean = (own * mean).sum(-2, keepdim=True)
        label_variance = (own * variance).sum(-2, keepdim=True)
        omega = (1 - own) * scale * half_tanh_ratio((label_mean - mean) ** 2 + label_variance + variance)
        precision = omega + own * omega.sum(-2, keepdim=True)
        coupled = (1 - own) * omega * label_mean + own * (omega * mean).sum(-2, keepdim=True)
        return Sites(precision, coupled + self.shift(y, mean.shape[-2], weight, mean.dtype))

    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """``sum over pairs of s ((m_y - m_c)/2 - log(2 cosh(c/2)))`` with independent classes, (...)."""
        own = one_hot(y, mean.shape[-2], mean.dtype)
        difference = (own * mean).sum(-2, keepdim=True) - mean
        spread = (own * variance).sum(-2, keepdim=True) + variance
        terms = (1 - own) * (0.5 * difference - log_two_cosh_half(difference**2 + spread))
        return total(terms.sum(-2), weight)

    @staticmethod
    def shift(y: Tensor, n_classes: int, weight: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """Linear coefficients b, (..., C, N): ``s (C - 1)/2`` at the label, ``-s/2`` elsewhere."""
        return (0.5 * n_classes * one_hot(y, n_classes, dtype) - 0.5) * per_class(weight)


def _sum_over_unordered_pairs(f: Tensor) -> Tensor:
    """`OneVsEach.class_log_likelihood` with one logarithm for both orders: ``log sigma(-x) = log sigma(x) - x``."""
    n_classes = f.shape[-2]
    first, second = torch.triu_indices(n_classes, n_classes, 1, device=f.device)
    identity = torch.eye(n_classes, dtype=f.dtype, device=f.device)
    first, second = identity[first], identity[second]  # (pairs, C)
    size = max(1, MAX_NUMBERS // max(1, f[..., 0, :].numel()))

    def block(ahead: Tensor, behind: Tensor) -> Tensor:
        difference = (ahead - behind) @ f  # (..., some pairs, N)
        return (ahead + behind).mT @ logsigmoid(difference) - behind.mT @ difference

    blocks = [block(*pairs) for pairs in zip(first.split(size), second.split(size), strict=True)]
    return torch.stack(blocks).sum(0) if len(blocks) > 1 else blocks[0]

"""Logistic-softmax likelihood with temperature, in two augmentations.

``p(k | f) = sigma(f_k / tau) / sum over c of sigma(f_c / tau)``. Unlike the softmax it is not invariant
to a shift of all the latents, and the prior mean matters (-5 is close to a softmax). (tau, K, a) and
(1, K/tau^2, a/tau) are one model.

The logistic factor of the label takes one Polya-Gamma variable. The denominator is opened by counts ``m_c``:

``1 / sum sigma(g_c) = 1/C sum over m of (m_1 + ... + m_C)! prod of (sigma(-g_c) / C)^m_c / m_c!``

with g = f / tau: a negative multinomial distribution, and every ``sigma(-g_c)^m_c`` takes ``PG(m_c, g_c)``.
The papers reach the same model through one more variable, a gamma-distributed rate lambda that makes the
counts independent Poisson variables. Mean field then pays for treating lambda as independent of the counts:

* ``"negative_multinomial"`` (default) keeps the counts together: nothing to iterate, a much tighter bound.
* ``"poisson_gamma"`` is the papers'. `poisson_gamma_step` is one of their updates; `expected_sites` iterates
  the rate to its fixed point, where the bound is tightest.

Given the latents both draw the same sites, since lambda is redrawn with the counts.

References: Galy-Fajou et al. 2020; Ke et al. 2023 (CDKT: temperature, eq. 4.4a-f, bound eq. 12 with alpha_n/C
inside the sum over the classes of 12f, E[f^2] under the present q(f) in 12a and the tilting in 12g).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.auxiliary import (
    log_two_cosh_half,
    one_hot,
    per_class,
    positive,
    require_counts,
    total,
)
from sureshot.likelihoods.polya_gamma import half_tanh_ratio, sample_polya_gamma
from sureshot.likelihoods.quadrature import (
    N_POINTS,
    expected_log_sigmoid,
    gaussian_expectation,
    marginal_variance,
)
from sureshot.likelihoods.sites import Carried, ClassSites, ConjugateLikelihood

Augmentation = Literal["negative_multinomial", "poisson_gamma"]

_NEWTON_STEPS = 12
_LARGEST_COUNT = 1e6


class PoissonGammaState(NamedTuple):
    """Mean-field parameters of the Poisson-Gamma augmentation, for one copy of each datum."""

    tilting: Tensor  # (..., C, N), f~ of eq. 4.4a
    counts: Tensor  # (..., C, N), gamma of eq. 4.4b, the expected counts
    shape_parameter: Tensor  # (..., N), alpha of eq. 4.4c, shape of the rate's gamma distribution


class LogisticSoftmax(ConjugateLikelihood, ClassSites):
    """``p(k | f) = sigma(f_k / temperature) / sum over c of sigma(f_c / temperature)``.

    A ValueError refuses a temperature that is not positive, an unknown augmentation, and options of another one.
    """

    name = "logistic_softmax"

    def __init__(
        self,
        temperature: float | Tensor = 1.0,  # divides the latents; it only sets the scale a learnt kernel starts from
        augmentation: Augmentation = "negative_multinomial",  # of the mean field; the default has the tighter bound
        n_points: int = N_POINTS,  # of the fixed quasi-Monte-Carlo set behind `integral`
        # Steps of "poisson_gamma" with f~ a constant of the gradient, as in the code released with the paper.
        detach_tilting: bool = False,
        # Of "poisson_gamma": alpha_n / C once for each datum where eq. 12f has it for each class, as in that code. It
        # can exceed the evidence and is kept for comparison only.
        released_bound: bool = False,
    ) -> None:
        if augmentation not in ("negative_multinomial", "poisson_gamma"):
            raise ValueError(
                f"augmentation must be 'negative_multinomial' or 'poisson_gamma', but it is {augmentation!r}"
            )
        if (detach_tilting or released_bound) and augmentation != "poisson_gamma":
            raise ValueError(
                "detach_tilting and released_bound belong to the augmentation 'poisson_gamma', but it is "
                f"{augmentation!r}: leave them out"
            )
        self.temperature = positive("temperature", temperature)
        self.detach_tilting, self.released_bound = detach_tilting, released_bound
        self.augmentation: Augmentation = augmentation
        self.n_points = n_points

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log sigma(f_c / tau) - logsumexp over the classes``, (..., C, N)."""
        return torch.log_softmax(self.class_logits(f), dim=-2)

    def class_logits(self, f: Tensor) -> Tensor:
        """``log sigma(f_c / tau)``, (..., C, N)."""
        return logsigmoid(f / self.temperature)

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[p(k | f)]`` by the fixed point set, (..., C, Q)."""
        return gaussian_expectation(self.plug_in, mean, covariance, self.n_points)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of ``E[log sigma(f_c / tau)]`` (the normaliser is common), by quadrature, (..., C, Q)."""
        variance = marginal_variance(mean, covariance)
        tau = self.temperature
        return torch.softmax(expected_log_sigmoid(mean / tau, variance / tau**2), dim=-2)

    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """Draw the counts jointly, then the Polya-Gamma variables; see `ConjugateLikelihood.sample_sites`.

        The negative multinomial counts are Poisson with a common gamma rate, so that classes are drawn in
        parallel. Expected counts are limited to 1e6, reached only where every latent is below -13
        temperatures.

        Raises
        ------
        ValueError
            When a weight is not a whole number, or a latent in units of the temperature is not finite.
        """
        require_counts(weight)
        g = f / self.temperature
        # Before the counts are drawn: torch's error for a Poisson rate that is no number says nothing of the latents.
        if not bool(torch.isfinite(g).all()):
            raise ValueError(
                f"f / temperature must be finite, but {int((~torch.isfinite(g)).sum())} of its {g.numel()} values are "
                "NaN or infinite: check the kernel's scale and the prior mean that the latents f were drawn with"
            )
        scale = per_class(weight) * torch.ones_like(f[..., :1, :])
        stop = torch.sigmoid(g).mean(-2, keepdim=True)  # probability that the counting ends
        rate = torch._standard_gamma(scale, generator=generator) / stop.clamp_min(1 / _LARGEST_COUNT)
        count = torch.poisson(rate * torch.sigmoid(-g) / f.shape[-2], generator=generator)
        own = one_hot(y, f.shape[-2], f.dtype) * scale
        omega = sample_polya_gamma(count + own, g, generator)
        return Sites(omega / self.temperature**2, (own - count) / (2 * self.temperature))

    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """``w = omega / tau^2``, ``b = s (y - gamma) / (2 tau)`` with expected counts gamma.

        ``omega = s (gamma + y) tanh(f~/2) / (2 f~)``, ``f~^2 = E[(f / tau)^2]``. See the module's notes for
        gamma.
        """
        squared, log_counts, log_stop = self._count_terms(mean, variance)
        if self.augmentation == "negative_multinomial":
            log_gamma = log_counts - log_stop
        else:
            log_gamma = log_counts + torch.digamma(_rate_shape(log_stop)).to(mean.dtype)
        largest = math.log(torch.finfo(mean.dtype).max) / 2  # keeps products of sites finite
        gamma = log_gamma.clamp_max(largest).exp()
        return self._sites(gamma, squared, y, weight)

    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The data's terms of the bound at the optimal counts (and rate), (...).

        ``sum of s (m_y / (2 tau) - log(2 cosh(f~_y / 2)) - log C - log(1 - P))`` for the negative
        multinomial.
        """
        squared, _, log_stop = self._count_terms(mean, variance)
        own = one_hot(y, mean.shape[-2], mean.dtype)
        label = (own * (mean / (2 * self.temperature) - log_two_cosh_half(squared))).sum(-2)
        if self.augmentation == "negative_multinomial":
            opened = -log_stop.squeeze(-2)
        else:
            shape = _rate_shape(log_stop).squeeze(-2)
            opened = (shape - 1 + torch.lgamma(shape) + (1 - shape) * torch.digamma(shape)).to(mean.dtype)
        return total(label + opened - math.log(mean.shape[-2]), weight)

    def step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried = None
    ) -> tuple[Sites, Carried]:
        """`poisson_gamma_step` in that augmentation, carrying its state; see `MeanFieldLikelihood.step`."""
        if self.augmentation == "negative_multinomial":
            return self.expected_sites(mean, variance, y, weight), None
        if carried is None:
            shape = torch.full_like(mean[..., 0, :], 1 + mean.shape[-2] / 2)
        else:
            shape = PoissonGammaState(*carried).shape_parameter
        return self.poisson_gamma_step(mean, variance, y, shape, weight)

    def bound_after_step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried
    ) -> Tensor:
        if carried is None:
            return self.local_bound(mean, variance, y, weight)
        return self.poisson_gamma_bound(mean, variance, y, PoissonGammaState(*carried), weight)

    def poisson_gamma_step(
        self,
        mean: Tensor,  # (..., C, N), this and the next
        variance: Tensor,
        y: Tensor,  # (..., N)
        shape: Tensor,  # (..., N), the rate's shape parameter alpha from the step before; ``1 + C/2`` at the start
        weight: Tensor | None = None,  # (..., N), copies of each datum; 1 by default
    ) -> tuple[Sites, PoissonGammaState]:
        """One update of the papers' mean field: tilting, counts, rate, Polya-Gamma (CDKT eq. 4.4a, b, c, f).

        Pass ``state.shape_parameter`` to the next step; `poisson_gamma_bound` bounds at this state.
        """
        squared, log_counts, _ = self._count_terms(mean, variance)
        if self.detach_tilting:
            squared = squared.detach()
            log_counts = -mean / (2 * self.temperature) - log_two_cosh_half(squared) - math.log(mean.shape[-2])
        gamma = (log_counts + torch.digamma(shape).unsqueeze(-2)).exp()
        state = PoissonGammaState(squared.sqrt(), gamma, 1 + gamma.sum(-2))
        return self._sites(gamma, squared, y, weight), state

    def poisson_gamma_bound(
        self,
        mean: Tensor,
        variance: Tensor,
        y: Tensor,
        state: PoissonGammaState,
        weight: Tensor | None = None,
    ) -> Tensor:
        """The data's terms of the bound at *any* state, (...): CDKT eq. 12a and 12e-g as corrected above.

        With ``released_bound`` it is no bound: see there.
        """
        tilting, gamma, shape = state
        tau, n_classes = self.temperature, mean.shape[-2]
        own = one_hot(y, n_classes, mean.dtype)
        total_count = gamma + own
        omega = total_count * half_tanh_ratio(tilting**2)
        log_rate = torch.digamma(shape)
        second_moment = (mean**2 + variance) / tau**2
        fit = -total_count * math.log(2) + (own - gamma) * mean / (2 * tau) - 0.5 * omega * second_moment
        rate = -shape + math.log(n_classes) - torch.lgamma(shape) - (1 - shape) * log_rate
        log_gamma = torch.xlogy(gamma, gamma)
        expected_log_rate = (log_rate - math.log(n_classes)).unsqueeze(-2)
        counts = log_gamma - gamma - gamma * expected_log_rate + (shape / n_classes).unsqueeze(-2)
        if self.released_bound:
            counts = counts - ((1 - 1 / n_classes) * shape / n_classes).unsqueeze(-2)
        log_cosh = log_two_cosh_half(tilting**2) - math.log(2)
        polya = -0.5 * tilting**2 * omega + total_count * log_cosh
        return total((fit - counts - polya).sum(-2) - rate, weight)

    def _sites(self, gamma: Tensor, squared: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        tau = self.temperature
        own = one_hot(y, gamma.shape[-2], gamma.dtype)
        scale = per_class(weight)
        omega = scale * (gamma + own) * half_tanh_ratio(squared)
        return Sites(omega / tau**2, scale * (own - gamma) / (2 * tau))

    def _count_terms(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``f~^2`` and ``log p_c``, each (..., C, N), and ``log(1 - sum p_c)`` (..., 1, N).

        ``p_c = exp(-g/2) / (2 C cosh(f~/2))`` with g = m / tau. Where all the latents are very negative,
        sum p_c rounds to one; the logarithm of the small complement is computed from ``f~ + g = V / (f~ -
        g)``.
        """
        g = mean / self.temperature
        v = variance / self.temperature**2
        squared = g**2 + v
        n_classes = mean.shape[-2]
        tiny = torch.finfo(mean.dtype).tiny
        root = squared.clamp_min(tiny).sqrt()
        excess = torch.where(g < 0, v / (root - g).clamp_min(tiny), root + g)  # f~ + g
        # -log(C p_c) = (f~ + g)/2 + softplus(-f~), which stays relatively exact when it is tiny.
        deficit = 0.5 * excess + softplus(-root)
        log_deficit = torch.logaddexp(
            (0.5 * excess).clamp_min(tiny).log(),
            torch.where(root > 30, -root, softplus(-root.clamp_max(30)).log()),
        )
        large = deficit > 1e-4
        log_complement = torch.where(
            large,
            torch.log(-torch.expm1(-torch.where(large, deficit, torch.ones_like(deficit)))),
            log_deficit - 0.5 * deficit,
        )
        log_stop = log_complement.logsumexp(-2, keepdim=True) - math.log(n_classes)
        return squared, -deficit - math.log(n_classes), log_stop


def _rate_shape(log_stop: Tensor) -> Tensor:
    """The fixed point of ``alpha = 1 + P exp(digamma(alpha))`` with ``P = 1 - exp(log_stop)``, float64.

    The right-hand side is convex with slope below one, so Newton's method from ``alpha = 1`` climbs to the
    only root; the last step carries the gradient (the implicit function theorem).
    """
    stop = log_stop.double().clamp_min(-30).exp()
    proceed = 1 - stop

    def newton(shape: Tensor, stop: Tensor, proceed: Tensor) -> Tensor:
        power = torch.digamma(shape).exp()
        residual = 1 + proceed * power - shape
        with torch.no_grad():
            slope = proceed * power * torch.polygamma(1, shape) - 1
        return shape - residual / slope

    with torch.no_grad():
        shape = torch.ones_like(stop)
        for _ in range(_NEWTON_STEPS):
            shape = newton(shape, stop, proceed)
    return newton(shape, stop, proceed)

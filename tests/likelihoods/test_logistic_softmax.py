"""Logistic-softmax: theorems 3.1 to 3.3 of CDKT, its two augmentations, and the mistakes they invite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods import LogisticSoftmax, Softmax
from sureshot.likelihoods.logistic_softmax import PoissonGammaState, _rate_shape

D = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=D).unsqueeze(-1)


def probabilities(likelihood: LogisticSoftmax | Softmax, f: Tensor) -> Tensor:
    return likelihood.class_log_likelihood(f).exp()


# Theorem 3.1


def test_small_temperatures_are_one_hot_when_all_latents_are_negative() -> None:
    p = probabilities(LogisticSoftmax(1e-3), column(-0.3, -0.1, -2.0))
    torch.testing.assert_close(p, column(0.0, 1.0, 0.0), atol=1e-12, rtol=0)


def test_small_temperatures_share_among_the_positive_latents() -> None:
    p = probabilities(LogisticSoftmax(1e-3), column(0.3, -0.1, 2.0, 0.05))
    torch.testing.assert_close(p, column(1 / 3, 0.0, 1 / 3, 1 / 3), atol=1e-12, rtol=0)


# Theorem 3.2


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_a_far_negative_shift_is_softmax(tau: float) -> None:
    f = normal(4, 50)
    softmax = probabilities(Softmax(tau), f)
    torch.testing.assert_close(probabilities(LogisticSoftmax(tau), f - 50 * tau), softmax, atol=1e-12, rtol=0)
    errors = [float((probabilities(LogisticSoftmax(tau), f - s * tau) - softmax).abs().max()) for s in (0, 2, 5, 10)]
    assert errors == sorted(errors, reverse=True)


def test_a_shift_of_minus_five_is_close_to_softmax_near_zero() -> None:
    f = 0.5 * normal(4, 200)
    error = (probabilities(LogisticSoftmax(), f - 5) - probabilities(Softmax(), f)).abs().max()
    assert float(error) < 0.01
    unshifted = (probabilities(LogisticSoftmax(), f) - probabilities(Softmax(), f)).abs().max()
    assert float(unshifted) > 0.1


def test_softmax_is_invariant_to_shifts_and_logistic_softmax_is_not() -> None:
    f = normal(4, 20)
    torch.testing.assert_close(probabilities(Softmax(), f + 3), probabilities(Softmax(), f))
    assert float((probabilities(LogisticSoftmax(), f + 3) - probabilities(LogisticSoftmax(), f)).abs().max()) > 0.1


# Theorem 3.3


def label_distribution(likelihood: LogisticSoftmax | Softmax, a: float, noise: Tensor) -> Tensor:
    """``p(y_1, y_2)`` of two correlated inputs, (C, C), by draws common to all calls."""
    gram = torch.tensor([[1.5, 0.9], [0.9, 1.5]], dtype=D)
    p = probabilities(likelihood, a + noise @ torch.linalg.cholesky(gram).mT)  # (S, C, 2)
    return torch.einsum("sc,sd->cd", p[..., 0], p[..., 1]) / len(noise)


def test_label_distributions_of_softmax_are_among_those_of_logistic_softmax() -> None:
    noise = normal(20_000, 3, 2)
    softmax = label_distribution(Softmax(), 0.0, noise)
    torch.testing.assert_close(label_distribution(Softmax(), 4.0, noise), softmax, atol=1e-12, rtol=0)
    torch.testing.assert_close(label_distribution(LogisticSoftmax(), -25.0, noise), softmax, atol=1e-8, rtol=0)
    for a in (0.0, 3.0):  # another prior mean is another distribution, less dependent between the inputs
        other = label_distribution(LogisticSoftmax(), a, noise)
        assert float(other.diagonal().sum()) < float(softmax.diagonal().sum()) - 0.03


# Temperature and prior


@pytest.mark.parametrize("augmentation", ["negative_multinomial", "poisson_gamma"])
def test_temperature_rescales_the_prior(augmentation: str) -> None:
    """(tau, K, a) and (1, K/tau^2, a/tau) are the same model: same bound, same latents up to the scale."""
    x, y, tau = normal(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]), 0.4
    gram, a = torch.exp(-(torch.cdist(x, x) ** 2)), torch.tensor(-0.6, dtype=D)
    bound, posterior = fit(LogisticSoftmax(tau, augmentation), gram, a, y)  # type: ignore[arg-type]
    plain, rescaled = fit(LogisticSoftmax(1.0, augmentation), gram / tau**2, a / tau, y)  # type: ignore[arg-type]
    torch.testing.assert_close(bound, plain)
    torch.testing.assert_close(posterior.mean / tau, rescaled.mean)
    torch.testing.assert_close(posterior.variance / tau**2, rescaled.variance)
    f = normal(3, 6)
    torch.testing.assert_close(
        LogisticSoftmax(tau).integral(f, f**2), LogisticSoftmax().integral(f / tau, (f / tau) ** 2)
    )
    sites = LogisticSoftmax(tau).sample_sites(f, y, None, torch.Generator().manual_seed(1))
    unit = LogisticSoftmax().sample_sites(f / tau, y, None, torch.Generator().manual_seed(1))
    torch.testing.assert_close(sites.precision * tau**2, unit.precision)
    torch.testing.assert_close(sites.shift * tau, unit.shift)


def fit(
    likelihood: LogisticSoftmax, gram: Tensor, a: Tensor, y: Tensor, steps: int = 80
) -> tuple[Tensor, GramPosterior]:
    prior = GramPrior(gram.unsqueeze(0), a)
    zeros = torch.zeros(3, len(y), dtype=D)
    posterior = prior.condition(Sites(zeros, zeros))
    for _ in range(steps):
        posterior = prior.condition(likelihood.expected_sites(posterior.mean, posterior.variance, y, None))
    return likelihood.local_bound(posterior.mean, posterior.variance, y, None) - posterior.kl(), posterior


# The two augmentations


def test_negative_multinomial_has_the_tighter_bound() -> None:
    x, y = normal(30, 2), torch.arange(30) % 3
    gram, a = 2 * torch.exp(-(torch.cdist(x, x) ** 2)), torch.tensor(0.0, dtype=D)
    tight, _ = fit(LogisticSoftmax(), gram, a, y)
    loose, _ = fit(LogisticSoftmax(augmentation="poisson_gamma"), gram, a, y)
    assert float(tight) > float(loose) + 1


def test_rate_shape_is_the_fixed_point() -> None:
    log_stop = torch.tensor([-1e-9, -0.1, -1.0, -4.0, -12.0, -20.0], dtype=D)
    shape = _rate_shape(log_stop)
    torch.testing.assert_close(1 + (1 - log_stop.exp()) * shape.digamma().exp(), shape, rtol=1e-9, atol=0)
    assert torch.autograd.gradcheck(_rate_shape, (log_stop[1:4].clone().requires_grad_(),))


def test_papers_steps_converge_to_the_expected_sites_with_a_valid_bound_at_every_step() -> None:
    likelihood = LogisticSoftmax(0.7, "poisson_gamma")
    mean, variance, y = normal(3, 5), normal(3, 5, seed=1) ** 2, torch.tensor([0, 1, 2, 0, 1])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0], dtype=D)
    best = likelihood.local_bound(mean, variance, y, weight)
    shape, previous = torch.full((5,), 1 + 3 / 2, dtype=D), -math.inf
    for _ in range(400):
        sites, state = likelihood.poisson_gamma_step(mean, variance, y, shape, weight)
        shape = state.shape_parameter
        bound = float(likelihood.poisson_gamma_bound(mean, variance, y, state, weight))
        assert previous - 1e-10 <= bound <= float(best) + 1e-10
        previous = bound
    assert previous == pytest.approx(float(best), abs=1e-8)
    expected = likelihood.expected_sites(mean, variance, y, weight)
    torch.testing.assert_close(sites.precision, expected.precision, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(sites.shift, expected.shift, rtol=1e-7, atol=1e-9)


def test_bound_uses_the_present_second_moment_and_the_states_tilting() -> None:
    """A stale state gives a lower bound, never a higher one."""
    likelihood = LogisticSoftmax(0.7, "poisson_gamma")
    mean, variance, y = normal(3, 5), normal(3, 5, seed=1) ** 2, torch.tensor([0, 1, 2, 0, 1])
    shape = torch.full((5,), 2.5, dtype=D)
    for seed in range(5):
        other = mean + normal(3, 5, seed=seed + 2)
        _, stale = likelihood.poisson_gamma_step(other, 2 * variance, y, shape)
        bound = likelihood.poisson_gamma_bound(mean, variance, y, stale)
        assert float(bound) < float(likelihood.local_bound(mean, variance, y, None))


def test_the_bound_after_a_step_is_the_expectation_of_the_augmented_model() -> None:
    """``E[log p(y, m, rate, omega | f)] + entropies`` for the state of a step, at moments that have moved on.

    The rate has a flat prior: ``1 / sum sigma(g_c)`` is the integral of ``exp(-rate sum sigma(g_c))``, and every
    ``exp(-rate sigma(g))`` a sum over Poisson counts of mean ``rate sigma(-g)``, less ``exp(-rate)``.
    """
    tau, n_classes = 0.7, 3
    likelihood = LogisticSoftmax(tau, "poisson_gamma")
    mean, variance, y = normal(3, 5), normal(3, 5, seed=1) ** 2, torch.tensor([0, 1, 2, 0, 1])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 0.0], dtype=D)
    _, carried = likelihood.step(mean + 0.3, 2 * variance, y, weight)
    assert carried is not None
    tilting, counts, shape = carried
    own = torch.nn.functional.one_hot(y, n_classes).mT.to(D)
    g, second = mean / tau, (mean**2 + variance) / tau**2
    h = counts + own
    polya = h * torch.tanh(tilting / 2) / (2 * tilting)
    divergence = h * torch.log(torch.cosh(tilting / 2)) - h * tilting / 4 * torch.tanh(tilting / 2)
    sites = -h * math.log(2) + (own - counts) * g / 2 - polya * second / 2 - divergence
    rate = torch.distributions.Gamma(shape, torch.full_like(shape, n_classes))
    log_rate = torch.digamma(shape) - math.log(n_classes)
    poisson = counts * log_rate - (counts * counts.log() - counts)  # log m! and its expectation under q cancel
    expected = (weight * (sites.sum(0) + poisson.sum(0) - n_classes * rate.mean + rate.entropy())).sum()
    found = likelihood.bound_after_step(mean, variance, y, weight, carried)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_adding_the_rates_mean_once_can_exceed_the_evidence() -> None:
    """With alpha_n / C once for each datum, not once for each class, the printed (12f) is no bound.

    One datum and a narrow prior: the log evidence is log(1/C), which the wrong form exceeds.
    """
    likelihood = LogisticSoftmax(1.0, "poisson_gamma")
    n_classes = 5
    mean = torch.full((n_classes, 1), -2.0, dtype=D)
    variance, y = torch.full_like(mean, 1e-6), torch.tensor([0])
    shape = _rate_shape(torch.sigmoid(torch.tensor(-2.0, dtype=D)).log()).reshape(1)
    _, state = likelihood.poisson_gamma_step(mean, variance, y, shape)
    right = float(likelihood.poisson_gamma_bound(mean, variance, y, state))
    once = right + float(state.shape_parameter) * (1 - 1 / n_classes)
    evidence = math.log(1 / n_classes)
    assert right < evidence
    assert once > evidence + 1


def test_state_is_a_named_tuple_of_three() -> None:
    assert PoissonGammaState._fields == ("tilting", "counts", "shape_parameter")


# Edge cases


def test_expected_counts_far_below_zero_match_high_precision() -> None:
    """Where the probability of a count rounds to one in float64; reference by exact series, V / (4 |m|)."""
    mean, variance = torch.full((3, 1), -60.0, dtype=D), torch.full((3, 1), 0.5, dtype=D)
    sites = LogisticSoftmax().expected_sites(mean, variance, torch.tensor([0]), None)
    deficit = 0.5 * variance[0, 0] / (math.sqrt(3600.5) + 60)  # (f~ + m) / 2
    gamma = math.exp(-deficit) / -math.expm1(-deficit) / 3
    assert float(sites.shift[1, 0]) == pytest.approx(-gamma / 2, rel=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_latents_that_are_not_finite_are_named_before_anything_is_drawn(value: float) -> None:
    f = normal(3, 4)
    f[1, 2] = value
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    with pytest.raises(ValueError, match=r"f / temperature must be finite, but 1 of its 12 values"):
        LogisticSoftmax(0.5).sample_sites(f, torch.tensor([0, 1, 2, 0]), None, generator)
    assert torch.equal(generator.get_state(), before)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="temperature must be"):
        LogisticSoftmax(0.0)
    with pytest.raises(ValueError, match="temperature must be"):
        Softmax(float("nan"))
    with pytest.raises(ValueError, match="augmentation must be"):
        LogisticSoftmax(augmentation="poisson")  # type: ignore[arg-type]

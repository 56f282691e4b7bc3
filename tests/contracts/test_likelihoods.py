"""The contract of every likelihood: one battery, inherited by adding a line to `CASES`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from sureshot.likelihoods import (
    LIKELIHOODS,
    ConjugateLikelihood,
    GaussianLabels,
    Likelihood,
    Logistic,
    LogisticSoftmax,
    MeanFieldLikelihood,
    OneVsEach,
    Softmax,
)

RULES = ("integral", "expected_log", "plug_in")


@dataclass(frozen=True)
class Case:
    """A likelihood with its number of classes."""

    label: str
    likelihood: Likelihood
    n_classes: int
    normalised: bool = True  # whether the likelihood sums to one over the classes

    @property
    def n_latents(self) -> int:
        return self.likelihood.n_latents(self.n_classes)


CASES = [
    Case("logistic", Logistic(), 2),
    Case("one_vs_each", OneVsEach(), 3, normalised=False),
    Case("one_vs_each_softmax", OneVsEach("expected_softmax"), 3, normalised=False),
    Case("logistic_softmax", LogisticSoftmax(), 3),
    Case("logistic_softmax_tau", LogisticSoftmax(0.5), 3),
    Case("logistic_softmax_poisson", LogisticSoftmax(0.5, "poisson_gamma"), 3),
    Case("least_squares", GaussianLabels(1.0), 3, normalised=False),
    Case("softmax", Softmax(0.7), 3),
]
MEAN_FIELD = [case for case in CASES if isinstance(case.likelihood, MeanFieldLikelihood)]
CONJUGATE = [case for case in CASES if isinstance(case.likelihood, ConjugateLikelihood)]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.label for case in cases])


def mean_field(case: Case) -> MeanFieldLikelihood:
    assert isinstance(case.likelihood, MeanFieldLikelihood)
    return case.likelihood


def conjugate(case: Case) -> ConjugateLikelihood:
    assert isinstance(case.likelihood, ConjugateLikelihood)
    return case.likelihood


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def latents(case: Case, *shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    """Normal values (..., C, N) from leading sizes and N."""
    *batch, n = shape
    draw = torch.randn(*batch, case.n_latents, n, generator=seeded(seed), dtype=torch.float64)
    return scale * draw


def variances(case: Case, *shape: int, seed: int = 1) -> Tensor:
    return latents(case, *shape, seed=seed, scale=1.0).square() + 0.05


def labels(case: Case, *shape: int, seed: int = 2) -> Tensor:
    return torch.randint(case.n_classes, shape, generator=seeded(seed))


def test_every_likelihood_has_a_case() -> None:
    assert {case.likelihood.name for case in CASES} == set(LIKELIHOODS)


# Density


@each(CASES)
def test_log_plug_in_is_the_log_of_plug_in(case: Case) -> None:
    f = latents(case, 2, 5)
    torch.testing.assert_close(case.likelihood.log_plug_in(f), case.likelihood.plug_in(f).log())
    total = case.likelihood.class_log_likelihood(f).exp().sum(-2)
    assert torch.allclose(total, torch.ones_like(total)) == case.normalised


@each(CASES)
def test_log_likelihood_picks_the_label_and_takes_leading_dimensions(case: Case) -> None:
    f, y = latents(case, 2, 3, 4), labels(case, 2, 3, 4)
    values = case.likelihood.class_log_likelihood(f)
    assert values.shape == (2, 3, case.n_classes, 4)
    observed = case.likelihood.log_likelihood(f, y)
    assert observed.shape == (2, 3, 4)
    for index in [(0, 0, 0), (1, 2, 3), (0, 1, 2)]:
        label = int(y[index])
        assert observed[index] == values[index[0], index[1], label, index[2]]
    torch.testing.assert_close(case.likelihood.class_log_likelihood(f[1, 2]), values[1, 2])
    if case.normalised:
        torch.testing.assert_close(values.logsumexp(-2), torch.zeros_like(observed), atol=1e-12, rtol=0)


@each(CASES)
def test_log_likelihood_gradients_match_finite_differences(case: Case) -> None:
    f, y = latents(case, 4).requires_grad_(), labels(case, 4)
    assert torch.autograd.gradcheck(lambda f: case.likelihood.log_likelihood(f, y), (f,))


# Predictive rules


@each(CASES)
@pytest.mark.parametrize("rule", RULES)
def test_predictions_are_probabilities(case: Case, rule: str) -> None:
    mean, variance = latents(case, 2, 5), variances(case, 2, 5)
    p = case.likelihood.predict(mean, variance, rule)
    assert p.shape == (2, case.n_classes, 5)
    assert bool((p >= 0).all())
    torch.testing.assert_close(p.sum(-2), torch.ones(2, 5, dtype=torch.float64), atol=1e-12, rtol=0)


@each(CASES)
@pytest.mark.parametrize("rule", RULES)
def test_full_and_diagonal_covariances_agree(case: Case, rule: str) -> None:
    mean, variance = latents(case, 2, 5), variances(case, 2, 5)
    full = torch.diag_embed(variance.mT)
    torch.testing.assert_close(
        case.likelihood.predict(mean, full, rule),
        case.likelihood.predict(mean, variance, rule),
        atol=1e-8,
        rtol=0,
    )


@each(CASES)
def test_rules_agree_without_uncertainty(case: Case) -> None:
    mean = latents(case, 5)
    plug_in = case.likelihood.plug_in(mean)
    for rule in ("integral", "expected_log"):
        p = case.likelihood.predict(mean, torch.zeros_like(mean), rule)
        torch.testing.assert_close(p, plug_in, atol=1e-9, rtol=0)


@each(CASES)
def test_integral_matches_monte_carlo_with_correlated_latents(case: Case) -> None:
    """Against 50,000 plain draws (standard error below 3e-3); the fixed set itself is off by 4e-3."""
    mean = latents(case, 3)
    root = 0.7 * torch.randn(3, case.n_latents, case.n_latents, generator=seeded(5), dtype=torch.float64)
    covariance = root @ root.mT + 0.1 * torch.eye(case.n_latents, dtype=torch.float64)
    noise = torch.randn(50_000, 3, case.n_latents, generator=seeded(6), dtype=torch.float64)
    f = mean + torch.einsum("qcd,sqd->scq", torch.linalg.cholesky(covariance), noise)
    density = case.likelihood.class_log_likelihood(f).exp()
    if case.label == "one_vs_each_softmax":
        density = density / density.sum(-2, keepdim=True)
    expected = density.mean(0)
    expected = expected / expected.sum(-2, keepdim=True)
    torch.testing.assert_close(case.likelihood.integral(mean, covariance), expected, atol=1.2e-2, rtol=0)


@each(CASES)
def test_expected_log_matches_monte_carlo(case: Case) -> None:
    mean, variance = latents(case, 3), variances(case, 3)
    noise = torch.randn(50_000, *mean.shape, generator=seeded(7), dtype=torch.float64)
    logs = case.likelihood.class_log_likelihood(mean + variance.sqrt() * noise).mean(0)
    expected = torch.softmax(logs, dim=-2)
    torch.testing.assert_close(case.likelihood.expected_log(mean, variance), expected, atol=1e-2, rtol=0)


@each(CASES)
def test_expected_log_matches_cubature_with_correlated_latents(case: Case) -> None:
    """Against a product rule of 60 nodes for each latent; the library is off by 6e-7 for each of two rivals."""
    mean = latents(case, 3, scale=1.0)
    root = torch.randn(3, case.n_latents, case.n_latents, generator=seeded(5), dtype=torch.float64)
    covariance = 0.7 * root @ root.mT + 0.1 * torch.eye(case.n_latents, dtype=torch.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    points, shares = (
        torch.cartesian_prod(*[torch.from_numpy(part)] * case.n_latents).view(-1, case.n_latents)
        for part in (nodes, weights / weights.sum())
    )
    weight = shares.prod(-1)  # (P,)
    f = mean + torch.einsum("qcd,pd->pcq", torch.linalg.cholesky(covariance), points)
    logs = torch.einsum("p,pcq->cq", weight, case.likelihood.class_log_likelihood(f))
    expected = torch.softmax(logs, dim=-2)
    torch.testing.assert_close(case.likelihood.expected_log(mean, covariance), expected, atol=1.2e-6, rtol=0)


@each(CASES)
@pytest.mark.parametrize("rule", RULES)
def test_predictions_do_not_depend_on_the_batch(case: Case, rule: str) -> None:
    mean, variance = latents(case, 6), variances(case, 6)
    together = case.likelihood.predict(mean, variance, rule)
    alone = torch.cat(
        [case.likelihood.predict(mean[:, i : i + 1], variance[:, i : i + 1], rule) for i in range(6)], dim=-1
    )
    torch.testing.assert_close(together, alone, atol=1e-14, rtol=0)


@each(CASES)
@pytest.mark.parametrize("rule", RULES)
def test_predictions_are_differentiable_and_match_finite_differences(case: Case, rule: str) -> None:
    mean, variance = latents(case, 2).requires_grad_(), (variances(case, 2) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: case.likelihood.predict(m, v, rule) + 0 * v.sum(), (mean, variance))


@each(CASES)
@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_never_nan_at_extreme_latents(case: Case, size: float, dtype: torch.dtype) -> None:
    signs = torch.tensor([[1, -1, 1, -1], [1, -1, -1, 1], [1, -1, 1, 1]], dtype=dtype)[: case.n_latents]
    f, y = size * signs, torch.tensor([0, 1, 0, 1])
    one = torch.ones_like(f)
    assert bool(case.likelihood.class_log_likelihood(f).isfinite().all())
    for variance in (0 * one, one, 1e4 * one):
        for rule in RULES:
            p = case.likelihood.predict(f, variance, rule)
            assert bool(p.isfinite().all())
            torch.testing.assert_close(p.sum(-2), torch.ones(4, dtype=dtype), atol=1e-5, rtol=0)
        if isinstance(case.likelihood, MeanFieldLikelihood):
            sites = case.likelihood.expected_sites(f, variance, y, None)
            assert bool(sites.precision.isfinite().all())
            assert bool((sites.precision >= 0).all())
            assert bool(sites.shift.isfinite().all())
            assert bool(case.likelihood.local_bound(f, variance, y, None).isfinite())


@each(CONJUGATE)
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_sampled_sites_are_finite_at_extreme_latents(case: Case, size: float) -> None:
    f = size * torch.tensor([[1.0, -1.0], [1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)[: case.n_latents]
    sites = conjugate(case).sample_sites(f, torch.tensor([0, 1]), None, seeded(0))
    assert bool((sites.precision.isfinite() & sites.shift.isfinite() & (sites.precision >= 0)).all())


@each(CASES)
def test_class_permutation_equivariance(case: Case) -> None:
    f, y = latents(case, 4), labels(case, 4)
    order = torch.arange(case.n_classes).roll(1)  # new class c was class order[c]
    flip = case.n_latents == 1
    permuted = -f if flip else f[order]
    values = case.likelihood.class_log_likelihood(f)
    torch.testing.assert_close(case.likelihood.class_log_likelihood(permuted), values[order])
    variance = variances(case, 4)
    permuted_variance = variance if flip else variance[order]
    for rule, tolerance in (("integral", 5e-3), ("expected_log", 1e-6), ("plug_in", 1e-12)):
        p = case.likelihood.predict(f, variance, rule)
        q = case.likelihood.predict(permuted, permuted_variance, rule)
        torch.testing.assert_close(q, p[order], atol=tolerance, rtol=0)
    if isinstance(case.likelihood, MeanFieldLikelihood):
        new_y = order.argsort()[y]
        sites = case.likelihood.expected_sites(f, variance, y, None)
        moved = case.likelihood.expected_sites(permuted, permuted_variance, new_y, None)
        torch.testing.assert_close(moved.precision, sites.precision if flip else sites.precision[order])
        torch.testing.assert_close(moved.shift, -sites.shift if flip else sites.shift[order])
        torch.testing.assert_close(
            case.likelihood.local_bound(permuted, permuted_variance, new_y, None),
            case.likelihood.local_bound(f, variance, y, None),
        )


@each(CASES)
def test_float32_agrees_with_float64(case: Case) -> None:
    mean, variance, y = latents(case, 5), variances(case, 5), labels(case, 5)
    single = (mean.float(), variance.float())
    for rule in RULES:
        p = case.likelihood.predict(*single, rule)
        assert p.dtype == torch.float32
        torch.testing.assert_close(p.double(), case.likelihood.predict(mean, variance, rule), atol=2e-5, rtol=0)
    if isinstance(case.likelihood, MeanFieldLikelihood):
        sites = case.likelihood.expected_sites(*single, y, None)
        exact = case.likelihood.expected_sites(mean, variance, y, None)
        bound = case.likelihood.local_bound(*single, y, None)
        assert {sites.precision.dtype, sites.shift.dtype, bound.dtype} == {torch.float32}
        torch.testing.assert_close(sites.precision.double(), exact.precision, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(sites.shift.double(), exact.shift, atol=1e-5, rtol=1e-4)


# Mean field


@each(MEAN_FIELD)
def test_expected_sites_are_the_derivatives_of_the_local_bound(case: Case) -> None:
    """``d/dm = b - w m`` and ``d/dv = -w/2``: what sites at the optimum are; central differences."""
    likelihood = mean_field(case)
    mean, variance = latents(case, 4), variances(case, 4)
    y, weight = labels(case, 4), torch.tensor([1.0, 0.5, 0.0, 2.0], dtype=torch.float64)
    sites = likelihood.expected_sites(mean, variance, y, weight)
    step = 1e-5
    basis = step * torch.eye(mean.numel(), dtype=torch.float64).reshape(-1, *mean.shape)

    def slope(move_mean: Tensor, move_variance: Tensor) -> Tensor:
        up = likelihood.local_bound(mean + move_mean, variance + move_variance, y, weight)
        down = likelihood.local_bound(mean - move_mean, variance - move_variance, y, weight)
        return ((up - down) / (2 * step)).reshape(mean.shape)

    zero = torch.zeros_like(basis)
    torch.testing.assert_close(slope(basis, zero), sites.shift - sites.precision * mean, atol=1e-8, rtol=1e-7)
    torch.testing.assert_close(slope(zero, basis), -0.5 * sites.precision, atol=1e-8, rtol=1e-7)


@each(MEAN_FIELD)
def test_steps_end_at_the_expected_sites(case: Case) -> None:
    """With moments held fixed; on the way the bound is below the best one."""
    likelihood = mean_field(case)
    mean, variance, y = latents(case, 4), variances(case, 4), labels(case, 4)
    weight = torch.tensor([1.0, 0.5, 0.0, 2.0], dtype=torch.float64)
    best = likelihood.local_bound(mean, variance, y, weight)
    sites, carried = likelihood.step(mean, variance, y, weight)
    for _ in range(400):
        assert bool(likelihood.bound_after_step(mean, variance, y, weight, carried) <= best + 1e-10)
        sites, carried = likelihood.step(mean, variance, y, weight, carried)
    expected = likelihood.expected_sites(mean, variance, y, weight)
    torch.testing.assert_close(sites.precision, expected.precision, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(sites.shift, expected.shift, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(likelihood.bound_after_step(mean, variance, y, weight, carried), best)


@each(MEAN_FIELD)
def test_the_bound_after_a_step_is_that_of_what_the_step_carried(case: Case) -> None:
    """At moments that have moved on: below the best one where something is carried, else the best one."""
    likelihood = mean_field(case)
    mean, variance, y = latents(case, 4), variances(case, 4), labels(case, 4)
    weight = torch.tensor([1.0, 0.5, 0.0, 2.0], dtype=torch.float64)
    _, carried = likelihood.step(mean + 1, 2 * variance, y, weight)
    bound = likelihood.bound_after_step(mean, variance, y, weight, carried)
    best = likelihood.local_bound(mean, variance, y, weight)
    if carried is None:
        torch.testing.assert_close(bound, best, rtol=1e-12, atol=0)
    else:
        assert float(bound) < float(best) - 0.01


@each(MEAN_FIELD)
def test_mean_field_is_differentiable(case: Case) -> None:
    likelihood, y = mean_field(case), labels(case, 3)
    mean, variance = latents(case, 3).requires_grad_(), variances(case, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: likelihood.local_bound(m, v, y, None), (mean, variance))
    assert torch.autograd.gradcheck(
        lambda m, v: torch.stack(list(likelihood.expected_sites(m, v, y, None))) + 0 * v, (mean, variance)
    )


@each(MEAN_FIELD)
def test_local_bound_is_below_the_expected_log_likelihood(case: Case) -> None:
    """Against 20,000 draws per datum; six standard errors of room. Equality only for the Gaussian."""
    likelihood = mean_field(case)
    for seed, shift in ((0, 0.0), (1, -3.0), (2, 3.0)):
        mean, variance = latents(case, 6, seed=seed) + shift, variances(case, 6, seed=seed + 10)
        y = labels(case, 6, seed=seed)
        noise = torch.randn(20_000, *mean.shape, generator=seeded(8), dtype=torch.float64)
        values = likelihood.log_likelihood(mean + variance.sqrt() * noise, y)  # (S, N)
        bounds = likelihood.local_bound(mean.T.unsqueeze(-1), variance.T.unsqueeze(-1), y.unsqueeze(-1), None)
        error = 6 * values.std(0) / math.sqrt(values.shape[0])
        assert bool((bounds <= values.mean(0) + error).all())


@each(MEAN_FIELD)
def test_weight_two_is_a_repeated_datum(case: Case) -> None:
    likelihood = mean_field(case)
    mean, variance, y = latents(case, 3), variances(case, 3), labels(case, 3)
    weight = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    once = likelihood.expected_sites(mean, variance, y, None)
    weighted = likelihood.expected_sites(mean, variance, y, weight)
    torch.testing.assert_close(weighted.precision, once.precision * weight)
    torch.testing.assert_close(weighted.shift, once.shift * weight)
    rows = torch.tensor([0, 0, 1])
    torch.testing.assert_close(
        likelihood.local_bound(mean, variance, y, weight),
        likelihood.local_bound(mean[:, rows], variance[:, rows], y[rows], None),
    )


# Gibbs


@each(CONJUGATE)
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_sampled_sites_reproduce_the_likelihood(case: Case, weight: float) -> None:
    """``log p(y | f') - log p(y | f) = log E[site(f') / site(f) | aux ~ p(aux | f, y)]`` for any f'.

    The augmented joint at f' over that at f is the ratio of sites, and its mean under the conditional at f is
    the ratio of likelihoods. 40,000 draws; gated on the weights' effective sample size.
    """
    likelihood, n = conjugate(case), 40_000
    y, s = labels(case, 3), torch.full((3,), weight, dtype=torch.float64)
    f = latents(case, 3, seed=11, scale=0.8)
    other = f + latents(case, 3, seed=12, scale=0.25)
    sites = likelihood.sample_sites(f.expand(n, *f.shape), y.expand(n, 3), s.expand(n, 3), seeded(13))
    ratio = (sites.shift * (other - f) - 0.5 * sites.precision * (other**2 - f**2)).sum(-2)  # (n, 3)
    weights = ratio.exp()
    effective = weights.sum(0) ** 2 / weights.square().sum(0)
    assert bool((effective > n / 4).all())
    expected = weight * (likelihood.log_likelihood(other, y) - likelihood.log_likelihood(f, y))
    error = weights.std(0) / weights.mean(0) / math.sqrt(n)
    assert bool(((weights.mean(0).log() - expected).abs() < 5 * error + 1e-10).all())


@each([case for case in CONJUGATE if case.likelihood.name != "least_squares"])
def test_sampling_sites_refuses_fractional_weights_with_advice(case: Case) -> None:
    with pytest.raises(ValueError, match=r"mean_field"):
        conjugate(case).sample_sites(
            latents(case, 2), labels(case, 2), torch.tensor([1.0, 0.5], dtype=torch.float64), seeded(0)
        )


@each(CONJUGATE)
def test_sampling_is_reproducible_and_takes_chains(case: Case) -> None:
    f, y = latents(case, 4, 5, scale=1.0), labels(case, 5)
    draws = [conjugate(case).sample_sites(f, y, None, seeded(3)) for _ in range(2)]
    assert draws[0].precision.shape == f.shape == draws[0].shift.shape
    assert torch.equal(draws[0].precision, draws[1].precision)
    assert torch.equal(draws[0].shift, draws[1].shift)
    none = conjugate(case).sample_sites(f, y, torch.zeros(5, dtype=torch.float64), seeded(3))
    assert not bool(none.precision.any())
    assert not bool(none.shift.any())

"""One-vs-each: pairs, star precision, invariance under shifts, normalisation, and its composite nature."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from experiments.pairwise import latents_to_pairs, pairs_to_classes, pairwise_differences
from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods import Logistic, OneVsEach, Softmax, quadrature
from tests.likelihoods.star import draw_omega, star_precision

D = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


F, Y = normal(2, 4, 5), torch.tensor([[0, 1, 2, 3, 0], [3, 3, 1, 2, 0]])


def test_log_likelihood_is_logistic_in_the_pairs() -> None:
    pairs = latents_to_pairs(F, Y).unflatten(-1, (5, 3))
    expected = torch.nn.functional.logsigmoid(pairs).sum(-1)
    torch.testing.assert_close(OneVsEach().log_likelihood(F, Y), expected)


@pytest.mark.parametrize("n_classes", [2, 5, 20, 21, 40])  # up to 20 every pair is evaluated once, beyond twice
@pytest.mark.parametrize("numbers", [100, quadrature.MAX_NUMBERS])
def test_few_and_many_classes_agree_with_the_definition(
    n_classes: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sureshot.likelihoods.one_vs_each.MAX_NUMBERS", numbers)  # block by block, or at once
    f = (10 * normal(3, n_classes, 4)).requires_grad_()
    value = OneVsEach().class_log_likelihood(f)
    pairs = torch.nn.functional.logsigmoid(f.unsqueeze(-2) - f.unsqueeze(-3))
    expected = (pairs * (1 - torch.eye(n_classes, dtype=D)).unsqueeze(-1)).sum(-2)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    cotangent = normal(3, n_classes, 4, seed=1)
    gradients = [torch.autograd.grad(y, f, cotangent, retain_graph=True)[0] for y in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_two_classes_are_the_logistic_likelihood() -> None:
    f = normal(2, 6)
    difference = (f[1] - f[0]).unsqueeze(0)
    torch.testing.assert_close(OneVsEach().class_log_likelihood(f), Logistic().class_log_likelihood(difference))


def test_likelihood_is_a_lower_bound_of_softmax() -> None:
    assert bool((OneVsEach().log_likelihood(F, Y) <= Softmax().log_likelihood(F, Y)).all())


def test_star_precision_is_that_of_the_pairs_and_ignores_the_common_mode() -> None:
    weight = torch.tensor([1.0, 2.0, 1.0, 0.0, 3.0], dtype=D).expand(2, 5)
    omega = draw_omega(F, Y, weight, torch.Generator().manual_seed(0))
    assert not bool(omega.gather(-2, Y.unsqueeze(-2)).any())
    assert not bool(omega[..., 3].any())
    star = star_precision(omega, Y)
    coefficients = pairwise_differences(Y, 4, D)
    pair_omega = -latents_to_pairs(omega, Y).unflatten(-1, (5, 3))  # omega_y = 0
    expected = torch.einsum("bnpc,bnp,bnpd->bncd", coefficients, pair_omega, coefficients)
    torch.testing.assert_close(star, expected)
    torch.testing.assert_close(star.sum(-1), torch.zeros(2, 5, 4, dtype=D), atol=1e-14, rtol=0)
    shift = OneVsEach.shift(Y, 4, weight)
    torch.testing.assert_close(shift.sum(-2), torch.zeros(2, 5, dtype=D), atol=1e-14, rtol=0)
    torch.testing.assert_close(shift, pairs_to_classes(0.5 * weight.repeat_interleave(3, -1), Y, 4))


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_sampled_star_sites_reproduce_the_likelihood(weight: float) -> None:
    """As in the contract: E[site(f') / site(f)] over omega given f is the ratio of likelihoods."""
    n, f, y = 40_000, 0.8 * normal(3, 2), torch.tensor([2, 0])
    other = f + 0.3 * normal(3, 2, seed=4)
    s = torch.full((2,), weight, dtype=D)
    likelihood = OneVsEach()
    omega = draw_omega(f.expand(n, 3, 2), y, s, torch.Generator().manual_seed(5))
    star, shift = star_precision(omega, y.expand(n, 2)), likelihood.shift(y, 3, s)
    quadratic = torch.einsum("nc,sncd,nd->sn", other.mT, star, other.mT) - torch.einsum(
        "nc,sncd,nd->sn", f.mT, star, f.mT
    )
    weights = ((shift * (other - f)).sum(-2) - 0.5 * quadratic).exp()
    assert bool((weights.sum(0) ** 2 / weights.square().sum(0) > n / 4).all())
    expected = weight * (likelihood.log_likelihood(other, y) - likelihood.log_likelihood(f, y))
    error = weights.std(0) / weights.mean(0) / math.sqrt(n)
    assert bool(((weights.mean(0).log() - expected).abs() < 5 * error).all())


def fit(a: Tensor, gram: Tensor, y: Tensor) -> tuple[Tensor, GramPosterior]:
    likelihood, prior = OneVsEach(), GramPrior(gram.unsqueeze(0), a)
    zeros = torch.zeros(3, len(y), dtype=D)
    posterior = prior.condition(Sites(zeros, zeros))
    for _ in range(500):
        posterior = prior.condition(likelihood.expected_sites(posterior.mean, posterior.variance, y, None))
    return likelihood.local_bound(posterior.mean, posterior.variance, y, None) - posterior.kl(), posterior


def test_shifting_all_latents_changes_nothing() -> None:
    likelihood = OneVsEach()
    torch.testing.assert_close(likelihood.log_likelihood(F + 7, Y), likelihood.log_likelihood(F, Y))
    x, y = normal(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    gram, a = 3 * torch.exp(-(torch.cdist(x, x) ** 2)), torch.tensor([[0.3], [-0.5], [0.1]], dtype=D)
    bound, posterior = fit(a, gram, y)
    moved_bound, moved = fit(a + 2, gram, y)
    torch.testing.assert_close(moved_bound, bound)
    torch.testing.assert_close(moved.mean, posterior.mean + 2)
    torch.testing.assert_close(moved.variance, posterior.variance)
    for rule in ("integral", "expected_log", "plug_in"):
        torch.testing.assert_close(
            likelihood.predict(moved.mean, moved.variance, rule),
            likelihood.predict(posterior.mean, posterior.variance, rule),
        )
    # With one kernel shared by the classes the common mode keeps its prior.
    query = torch.exp(-(torch.cdist(x, normal(4, 2, seed=9)) ** 2)) * 3
    mean, _ = posterior.query(query, torch.full((1, 4), 3.0, dtype=D))
    torch.testing.assert_close(mean.sum(-2), a.sum().expand(4), atol=1e-6, rtol=0)


def test_total_over_labels_grows_with_the_scale() -> None:
    """The warning in the module: the composite "evidence" prefers large scales without any data."""
    f = normal(20_000, 4, 1)
    densities = [OneVsEach().class_log_likelihood(scale * f).exp() for scale in (0.1, 1, 10, 100)]
    totals = [float(density.sum(-2).mean()) for density in densities]
    assert totals == sorted(totals)
    assert totals[0] < 0.6
    assert 0.9 < totals[-1] <= 1


def test_integral_is_the_ratio_of_expectations_and_the_other_is_offered() -> None:
    mean, variance = normal(3, 4), 4 * torch.ones(3, 4, dtype=D)
    noise = normal(100_000, 3, 4, seed=3)
    density = OneVsEach().class_log_likelihood(mean + variance.sqrt() * noise).exp()
    ratio = density.mean(0) / density.mean(0).sum(-2, keepdim=True)
    softmax = (density / density.sum(-2, keepdim=True)).mean(0)
    assert float((ratio - softmax).abs().max()) > 6e-3
    many = 4096
    torch.testing.assert_close(OneVsEach(n_points=many).integral(mean, variance), ratio, atol=3e-3, rtol=0)
    torch.testing.assert_close(OneVsEach("expected_softmax", many).integral(mean, variance), softmax, atol=3e-3, rtol=0)
    with pytest.raises(ValueError, match="normalisation must be"):
        OneVsEach("softmax")  # type: ignore[arg-type]


def test_expected_log_takes_the_variance_not_the_deviation() -> None:
    """Passing a variance where a deviation belongs (as once released) gives visibly other probabilities."""
    mean, variance = normal(3, 4), torch.tensor([0.2, 4.0, 9.0], dtype=D).unsqueeze(-1).expand(3, 4)
    noise = normal(100_000, 3, 4, seed=3)
    logs = OneVsEach().class_log_likelihood(mean + variance.sqrt() * noise).mean(0)
    right, wrong = (OneVsEach().expected_log(mean, v) for v in (variance, variance**2))
    torch.testing.assert_close(right, torch.softmax(logs, -2), atol=2e-2, rtol=0)
    assert float((wrong - right).abs().max()) > 0.03


def test_blocks_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    root = normal(2, 5, 4, 4, seed=2)
    covariance, likelihood = root @ root.mT, OneVsEach()

    def results() -> list[Tensor]:
        return [
            likelihood.class_log_likelihood(F),
            likelihood.expected_log(F, F**2),
            likelihood.expected_log(F, covariance),
            likelihood.integral(F, covariance),
        ]

    whole = results()
    monkeypatch.setattr(quadrature, "MAX_NUMBERS", 50)
    monkeypatch.setattr("sureshot.likelihoods.one_vs_each.MAX_NUMBERS", 50)
    for a, b in zip(whole, results(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-13, rtol=0)


def test_a_mixture_by_ratios_and_by_one_ratio() -> None:
    """Two certain chains of three classes by hand: the mean of the ratios, or the ratio of the means."""
    mean = torch.tensor([[[2.0], [0.0], [-1.0]], [[0.5], [1.0], [4.0]]], dtype=torch.float64)  # (S, C, Q)
    variance = torch.zeros_like(mean)
    values = OneVsEach().class_log_likelihood(mean).exp()  # exact, for variances of zero
    ratios = (values / values.sum(1, keepdim=True)).mean(0)
    pooled = values.mean(0) / values.mean(0).sum(0)
    assert float((ratios - pooled).abs().max()) > 0.005
    torch.testing.assert_close(OneVsEach().predict_mixture(mean, variance, "integral"), ratios)
    torch.testing.assert_close(OneVsEach("pooled_likelihood").predict_mixture(mean, variance, "integral"), pooled)
    plug_in = OneVsEach().plug_in(mean).mean(0)
    torch.testing.assert_close(OneVsEach("pooled_likelihood").predict_mixture(mean, variance, "plug_in"), plug_in)

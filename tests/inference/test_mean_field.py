"""Mean field against brute-force evidence, quadrature, finite differences and the models' symmetries."""

import itertools
import math

import numpy as np
import pytest
import torch

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.mean_field import (
    fit_mean_field,
    initial_posterior,
    mean_field_step,
)
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.gaussian import GaussianLabels
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ZERO = torch.tensor(0.0, dtype=torch.float64)
LIKELIHOODS = [
    pytest.param(Logistic(), 2, id="logistic"),
    pytest.param(OneVsEach(), 3, id="one_vs_each"),
    pytest.param(LogisticSoftmax(), 3, id="logistic_softmax"),
    pytest.param(LogisticSoftmax(temperature=0.5), 3, id="logistic_softmax_cold"),
    pytest.param(GaussianLabels(noise=0.3), 3, id="least_squares"),
]


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(n, scale, seed=0):
    x = normal(n, 2, seed=seed)
    return scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2)


def labels(n, classes, seed=0):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def brute_force_log_evidence(likelihood, gram, mean, y, n_latents, nodes):
    """Log of the prior expectation of the likelihood, by a full Gauss-Hermite grid over all C N latents."""
    n = y.numel()
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    points, log_weights = torch.tensor(points), torch.tensor(np.log(weights / weights.sum()))
    indices = torch.cartesian_prod(*[torch.arange(nodes)] * (n * n_latents)).reshape(-1, n_latents, n)
    factor = torch.linalg.cholesky(gram + 1e-12 * torch.eye(n, dtype=gram.dtype))
    f = mean + points[indices] @ factor.T
    log_weight = log_weights[indices].sum((-2, -1))
    return torch.logsumexp(log_weight + likelihood.log_likelihood(f, y.expand(f.shape[0], n)).sum(-1), 0)


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_bound_is_monotone_and_below_the_evidence(likelihood, classes, scale):
    n = 3 if classes == 2 else 2
    gram, y = rbf(n, scale, seed=1), labels(n, classes, seed=2)
    mean = 0.5 * normal(likelihood.n_latents(classes), 1, seed=3)
    fit = fit_mean_field(
        GramPrior(gram.unsqueeze(0), mean), likelihood, y, n_classes=classes, max_steps=3000, tolerance=1e-9
    )
    assert bool(fit.converged)
    assert bool((fit.bound_trace.diff() >= -1e-11).all())
    nodes = 30 if classes == 2 else 9
    exact = brute_force_log_evidence(likelihood, gram, mean, y, likelihood.n_latents(classes), nodes)
    if isinstance(likelihood, GaussianLabels):
        log_evidence = gaussian_log_evidence(likelihood, gram, mean, y)
        torch.testing.assert_close(fit.bound, log_evidence, **CLOSE)  # conjugate: the bound is the evidence
    else:
        assert float(fit.bound) < float(exact)


def gaussian_log_evidence(likelihood, gram, mean, y):
    targets = 2 * torch.nn.functional.one_hot(y, 3).T.double() - 1
    noisy = gram + likelihood.noise * torch.eye(y.numel(), dtype=gram.dtype)
    normal_density = torch.distributions.MultivariateNormal(mean.expand(3, y.numel()), noisy)
    return normal_density.log_prob(targets).sum()


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_bound_rises_monotonically_on_larger_data(likelihood, classes):
    x = normal(4, 30, 3, seed=4)
    gram = 20 * torch.exp(-0.5 * torch.cdist(x, x) ** 2).unsqueeze(-3)
    y = labels(120, classes, seed=5).reshape(4, 30)
    weight = 2 * torch.rand(4, 30, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    fit = fit_mean_field(GramPrior(gram, ZERO + 0.2), likelihood, y, weight, classes, max_steps=60)
    assert fit.bound_trace.shape[1:] == (4,)
    assert bool((fit.bound_trace.diff(dim=0) >= -1e-9).all())
    torch.testing.assert_close(fit.bound, fit.bound_trace[-1], **CLOSE)


@pytest.mark.parametrize("likelihood", [OneVsEach(), LogisticSoftmax(), Logistic()])
def test_mixed_steps_reach_more_than_as_many_plain_ones(likelihood):
    classes = 2 if isinstance(likelihood, Logistic) else 3
    gram, y = rbf(20, 300.0, seed=31), labels(20, classes, seed=32)
    prior = GramPrior(gram.unsqueeze(0), ZERO)
    fit = fit_mean_field(prior, likelihood, y, n_classes=classes, tolerance=1e-6)
    assert bool(fit.converged)
    posterior = initial_posterior(prior, likelihood, y, classes)
    for _ in range(len(fit.bound_trace)):
        posterior, info = mean_field_step(posterior, prior, likelihood, y)
    assert float(fit.bound) > float(info.bound) + 1e-4


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_the_end_is_stationary(likelihood, classes):
    """Another step moves nothing, and no small change of the sites raises the bound."""
    gram, y = rbf(8, 4.0, seed=7), labels(8, classes, seed=8)
    prior = GramPrior(gram.unsqueeze(0), ZERO + 0.3)
    fit = fit_mean_field(prior, likelihood, y, n_classes=classes, max_steps=5000, tolerance=1e-12)
    again, info = mean_field_step(fit.posterior, prior, likelihood, y)
    torch.testing.assert_close(again.mean, fit.posterior.mean, rtol=1e-8, atol=1e-8)
    assert float(info.change) < 1e-8
    sites = [part.clone().requires_grad_() for part in fit.sites]
    bound = evidence_bound(prior.condition(type(fit.sites)(*sites)), likelihood, y)
    for gradient in torch.autograd.grad(bound, sites):
        assert float(gradient.abs().max()) < 1e-7


def test_start_is_the_prior():
    prior = GramPrior(rbf(5, 2.0).unsqueeze(0), ZERO + 0.7)
    start = initial_posterior(prior, OneVsEach(), labels(5, 3), 3)
    torch.testing.assert_close(start.mean, torch.full((3, 5), 0.7, dtype=torch.float64), rtol=0, atol=0)
    torch.testing.assert_close(start.variance, torch.full((3, 5), 2.0, dtype=torch.float64), **CLOSE)


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_low_rank_equals_full_rank(likelihood, classes):
    features, y = normal(1, 15, 4, seed=9), labels(15, classes, seed=10)
    by_features = fit_mean_field(FeaturePrior(features, ZERO), likelihood, y, n_classes=classes, tolerance=1e-10)
    by_gram = fit_mean_field(GramPrior(features @ features.mT, ZERO), likelihood, y, n_classes=classes, tolerance=1e-10)
    torch.testing.assert_close(by_features.posterior.mean, by_gram.posterior.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(by_features.bound, by_gram.bound, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_a_task_does_not_depend_on_its_companions(likelihood, classes):
    """An easy and a hard task together equal their solitary fits, though they stop at different steps."""
    gram = torch.stack([rbf(9, 0.1, seed=11), rbf(9, 100.0, seed=12)]).unsqueeze(-3)
    y = labels(18, classes, seed=13).reshape(2, 9)
    together = fit_mean_field(GramPrior(gram, ZERO), likelihood, y, n_classes=classes)
    for task in range(2):
        alone = fit_mean_field(GramPrior(gram[task], ZERO), likelihood, y[task], n_classes=classes)
        torch.testing.assert_close(together.posterior.mean[task], alone.posterior.mean, **CLOSE)
        torch.testing.assert_close(together.bound[task], alone.bound, **CLOSE)


def test_weights_are_repetitions_and_zero_is_absence():
    gram = rbf(4, 3.0, seed=14)
    y = torch.tensor([0, 2, 1, 0])
    weight = torch.tensor([1.0, 2.0, 0.0, 1.0], dtype=torch.float64)
    rows = torch.tensor([0, 1, 1, 3])
    for likelihood in (OneVsEach(), LogisticSoftmax(), GaussianLabels()):
        weighted = fit_mean_field(
            GramPrior(gram.unsqueeze(0), ZERO), likelihood, y, weight, 3, max_steps=2000, tolerance=1e-11
        )
        repeated = GramPrior(gram[rows][:, rows].unsqueeze(0), ZERO)
        explicit = fit_mean_field(repeated, likelihood, y[rows], None, 3, max_steps=2000, tolerance=1e-11)
        torch.testing.assert_close(weighted.posterior.mean[:, rows], explicit.posterior.mean, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(weighted.bound, explicit.bound, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_autograd_gives_the_gradient_of_the_converged_bound(likelihood, classes):
    gram, y = rbf(5, 3.0, seed=15), labels(5, classes, seed=16)
    mean = 0.4 * normal(likelihood.n_latents(classes), 1, seed=17)
    direction = normal(5, 5, seed=18)
    direction = direction @ direction.T  # keeps K positive semi-definite on the plus side, symmetric anyway
    push = normal(likelihood.n_latents(classes), 1, seed=19)

    def converged(step_gram, step_mean):
        prior = GramPrior((gram + step_gram * direction).unsqueeze(0), mean + step_mean * push)
        return fit_mean_field(prior, likelihood, y, n_classes=classes, max_steps=20000, tolerance=1e-12)

    h = 1e-4
    with torch.no_grad():
        by_gram = (converged(h, 0).bound - converged(-h, 0).bound) / (2 * h)
        by_mean = (converged(0, h).bound - converged(0, -h).bound) / (2 * h)
    steps = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(2)]
    gradients = torch.autograd.grad(converged(*steps).bound.sum(), steps)
    torch.testing.assert_close(torch.stack(gradients), torch.stack([by_gram, by_mean]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_is_a_scale_of_the_prior(temperature):
    """(tau, K, a) and (1, K / tau^2, a / tau) are one model."""
    gram, y, mean = rbf(7, 3.0, seed=22), labels(7, 3, seed=23), normal(3, 1, seed=24)
    cold = fit_mean_field(GramPrior(gram.unsqueeze(0), mean), LogisticSoftmax(temperature=temperature), y)
    scaled = GramPrior(gram.unsqueeze(0) / temperature**2, mean / temperature)
    plain = fit_mean_field(scaled, LogisticSoftmax(), y, max_steps=cold.bound_trace.shape[0], tolerance=0)
    torch.testing.assert_close(cold.posterior.mean, temperature * plain.posterior.mean, **CLOSE)
    torch.testing.assert_close(cold.posterior.variance, temperature**2 * plain.posterior.variance, **CLOSE)
    torch.testing.assert_close(cold.bound, plain.bound, **CLOSE)


def test_common_shift_of_the_prior_means():
    """A shift of every a_c shifts the means, leaves variance and bound; the sum over classes stays a's."""
    gram, y, a = rbf(8, 5.0, seed=29), torch.arange(6) % 3, 0.5 * normal(3, seed=30)
    cross, variance = gram[None, :6, 6:], gram.diagonal()[None, 6:]

    def fit(means):
        prior = GramPrior(gram[:6, :6].unsqueeze(0), means.unsqueeze(-1))
        result = fit_mean_field(prior, OneVsEach(), y, None, 3, max_steps=20000, tolerance=1e-12)
        return result.bound, *result.posterior.query(cross, variance)

    bound, mean, spread = fit(a)
    shifted_bound, shifted_mean, shifted_spread = fit(a + 1.7)
    torch.testing.assert_close(shifted_bound, bound, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(shifted_mean, mean + 1.7, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(shifted_spread, spread, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(mean.sum(-2), a.sum().expand(2), rtol=1e-7, atol=1e-7)


# Quality of the approximation


@pytest.mark.parametrize(("scale", "tolerance"), [(0.25, 0.002), (1.0, 0.02), (4.0, 0.15)])
def test_binary_moments_against_quadrature(scale, tolerance):
    """Up to three data: the means are nearly right, the standard deviations a little small."""
    for n, y in itertools.product([1, 2, 3], [torch.tensor([1, 0, 1]), torch.tensor([1, 1, 1])]):
        gram = rbf(n, scale, seed=33)
        points, weights = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(40))
        indices = torch.cartesian_prod(*[torch.arange(40)] * n).reshape(-1, n)
        f = points[indices] @ torch.linalg.cholesky(gram).T
        mass = weights[indices].prod(-1) * torch.sigmoid((2 * y[:n] - 1) * f).prod(-1)
        mass = mass / mass.sum()
        mean = (mass.unsqueeze(-1) * f).sum(0)
        deviation = ((mass.unsqueeze(-1) * f**2).sum(0) - mean**2).sqrt()
        fit = fit_mean_field(GramPrior(gram.unsqueeze(0), ZERO), Logistic(), y[:n])
        assert float((fit.posterior.mean[0] - mean).abs().max()) < tolerance
        assert bool((fit.posterior.variance[0].sqrt() <= deviation + 1e-6).all())
        assert float((fit.posterior.variance[0].sqrt() - deviation).abs().max()) < 2 * tolerance


def test_the_bound_learns_the_output_scale_in_the_wrong_direction():
    """Nine separable data on a line: from scale 16 to 256 the evidence rises and the bound falls.

    The kernel is linear with rank two, so that the evidence is a two-dimensional integral.
    """
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    y = (x > 0.1).long()
    features = torch.stack([torch.ones_like(x), x], -1)
    grid = torch.linspace(-9, 9, 1201, dtype=torch.float64)
    u = torch.cartesian_prod(grid, grid)
    log_prior = -0.5 * u.square().sum(-1)
    exact, bound = [], []
    for scale in (1.0, 16.0, 256.0):
        root = math.sqrt(scale)
        log_likelihood = torch.nn.functional.logsigmoid(root * (2 * y - 1) * (u @ features.T)).sum(-1)
        exact.append(float(torch.logsumexp(log_prior + log_likelihood, 0) - torch.logsumexp(log_prior, 0)))
        prior = FeaturePrior(root * features.unsqueeze(0), ZERO)
        bound.append(float(fit_mean_field(prior, Logistic(), y, max_steps=2000, tolerance=1e-7).bound))
    assert exact[0] < exact[1] < exact[2]
    assert bound[1] > bound[2]
    assert exact[2] - bound[2] > 4 * (exact[0] - bound[0])
    assert all(b < e for b, e in zip(bound, exact, strict=True))


@pytest.mark.parametrize(("likelihood", "classes"), LIKELIHOODS)
def test_float32_with_rank_deficient_kernels_is_finite_and_close(likelihood, classes):
    x, y = normal(60, 3, seed=34), labels(60, classes, seed=35)
    gram = (x @ x.T).unsqueeze(0)
    double = fit_mean_field(GramPrior(gram, ZERO), likelihood, y, n_classes=classes, tolerance=1e-5)
    single = fit_mean_field(GramPrior(gram.float(), ZERO.float()), likelihood, y, n_classes=classes, tolerance=1e-5)
    assert bool(torch.isfinite(single.bound))
    torch.testing.assert_close(single.bound.double(), double.bound, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(single.posterior.mean.double(), double.posterior.mean, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": torch.tensor([0.0, 1.0, 1.0])}, "y must be a non-empty int64 tensor"),
        ({"y": torch.tensor([0, 1, 3]), "n_classes": 3}, "holds 0 to 3"),
        ({"y": torch.tensor([-1, 1, 0])}, "holds -1 to 1"),
        ({"weight": torch.tensor([1.0, -1.0, 1.0])}, "not negative"),
        ({"weight": torch.ones(2)}, "each of the 3 labels"),
    ],
)
def test_bad_labels_and_weights_are_refused_with_advice(change, message):
    arguments = {"prior": GramPrior(rbf(3, 1.0).unsqueeze(0), ZERO), "likelihood": OneVsEach()}
    with pytest.raises(ValueError, match=message):
        fit_mean_field(**(arguments | {"y": torch.tensor([0, 1, 2])} | change))

"""The contract of every inference scheme: by every kind of prior, one table or a batch of tasks, against brute force.

`PRIORS` are the representations: add a prior by adding a line. A scheme is a test by `every_prior` that says what dense
algebra in function space finds in its place: `test_least_squares` is the shortest. It stands in `CHECKED` by the
name that estimators know it by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sureshot.gaussian import FeaturePrior, GramPrior, Prior, SitePosterior, Sites
from sureshot.gaussian.posterior import leave_one_out
from sureshot.inference import INFERENCE_NAMES
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.least_squares import regression_log_evidence, regression_sites
from sureshot.inference.mean_field import fit_mean_field
from sureshot.inference.natural_gradient import fit_natural_gradient
from sureshot.likelihoods import GaussianLabels, GaussianNoise, Logistic, LogisticSoftmax, OneVsEach
from sureshot.likelihoods.gaussian import signed_labels
from sureshot.likelihoods.sites import ConjugateLikelihood, MeanFieldLikelihood

F64 = torch.float64
T, N, R = 2, 5, 3
CLOSE = {"rtol": 1e-7, "atol": 1e-7}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=seeded(seed))


@dataclass(frozen=True)
class Problem:
    """A prior over the rows of T tasks and the kernel matrices that it stands for, (T, C, N, N)."""

    prior: Prior
    kernels: Tensor

    def task(self, t: int) -> Prior:
        """The prior of one task, without the leading dimension."""
        prior = self.prior
        mean = prior.mean if prior.mean.dim() < 3 else prior.mean[t if len(prior.mean) > 1 else 0]
        if isinstance(prior, GramPrior):
            return GramPrior(prior.gram[t], mean)
        assert isinstance(prior, FeaturePrior)
        return FeaturePrior(prior.features[t], mean, None if prior.residual is None else prior.residual[t])


def mean_of(n_latents: int) -> Tensor:
    return torch.linspace(-0.5, 0.4, n_latents, dtype=F64).view(1, n_latents, 1)


def by_kernel_matrix(own: bool, n_latents: int) -> Problem:
    phi = normal(T, n_latents if own else 1, N, R + 2, seed=1)
    gram = phi @ phi.mT + 0.3 * torch.eye(N, dtype=F64)
    return Problem(GramPrior(gram, mean_of(n_latents)), gram.expand(T, n_latents, N, N))


def by_features(own: bool, residual: bool, n_latents: int) -> Problem:
    phi = normal(T, n_latents if own else 1, N, R, seed=2)
    spread = 0.1 + torch.rand(T, 1, N, dtype=F64, generator=seeded(3)) if residual else None
    gram = phi @ phi.mT + (0 if spread is None else torch.diag_embed(spread))
    return Problem(FeaturePrior(phi, mean_of(n_latents), spread), gram.expand(T, n_latents, N, N))


PRIORS: dict[str, Callable[[int], Problem]] = {
    "kernel matrix": lambda c: by_kernel_matrix(False, c),
    "kernel matrices of classes": lambda c: by_kernel_matrix(True, c),
    "features": lambda c: by_features(False, False, c),
    "features of classes": lambda c: by_features(True, False, c),
    "features with residual": lambda c: by_features(False, True, c),
    "features of classes with residual": lambda c: by_features(True, True, c),
}
every_prior = pytest.mark.parametrize("prior", PRIORS)

LIKELIHOODS: dict[str, MeanFieldLikelihood] = {
    "logistic": Logistic(),
    "one_vs_each": OneVsEach(),
    "logistic_softmax": LogisticSoftmax(0.7),
    "least_squares": GaussianLabels(0.5),
}
every_likelihood = pytest.mark.parametrize("name", LIKELIHOODS)


def labels(n_classes: int) -> Tensor:
    return torch.arange(T * N).view(T, N) % n_classes


WEIGHT = torch.tensor([[1.0, 2.0, 1.0, 0.0, 1.0], [2.0, 1.0, 1.0, 3.0, 1.0]], dtype=F64)


def classes_of(name: str) -> int:
    return 2 if name == "logistic" else 3


def problem_of(prior: str, name: str) -> tuple[Problem, Tensor, int]:
    n_classes = classes_of(name)
    return PRIORS[prior](LIKELIHOODS[name].n_latents(n_classes)), labels(n_classes), n_classes


def dense_posterior(kernels: Tensor, mean: Tensor, sites: Sites) -> tuple[Tensor, Tensor]:
    """Mean (C, N) and covariance (C, N, N) in function space."""
    w, b = (part.expand(kernels.shape[:-1]) for part in sites)
    gain = kernels @ torch.linalg.inv(torch.eye(N, dtype=F64) + w.unsqueeze(-1) * kernels)
    found = mean + (gain @ (b - w * mean).unsqueeze(-1)).squeeze(-1)
    return found, gain


def dense_kl(kernels: Tensor, mean: Tensor, found: Tensor, covariance: Tensor, sites: Sites) -> Tensor:
    w, b = (part.expand(kernels.shape[:-1]) for part in sites)
    trace = N - (w * covariance.diagonal(dim1=-2, dim2=-1)).sum(-1)
    log_det = torch.logdet(torch.eye(N, dtype=F64) + w.unsqueeze(-1) * kernels)
    return 0.5 * (trace - N + log_det + ((b - w * found) * (found - mean)).sum(-1)).sum(-1)


def dense_mean_field(problem: Problem, t: int, name: str, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinate ascent in function space: mean, variance, bound."""
    likelihood, kernels = LIKELIHOODS[name], problem.kernels[t]
    mean = problem.prior.mean[0]
    found, covariance = mean.expand(kernels.shape[:-1]), kernels
    for _ in range(3000):
        sites = likelihood.expected_sites(found, covariance.diagonal(dim1=-2, dim2=-1), y, weight)
        before = found
        found, covariance = dense_posterior(kernels, mean, sites)
        if float((found - before).abs().max()) < 1e-12:
            break
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    bound = likelihood.local_bound(found, variance, y, weight) - dense_kl(kernels, mean, found, covariance, sites)
    return found, variance, bound


@every_prior
@every_likelihood
def test_mean_field(prior: str, name: str) -> None:
    problem, y, n_classes = problem_of(prior, name)
    found = fit_mean_field(problem.prior, LIKELIHOODS[name], y, WEIGHT, n_classes, 3000, 1e-12)
    for t in range(T):
        mean, variance, bound = dense_mean_field(problem, t, name, y[t], WEIGHT[t])
        torch.testing.assert_close(found.posterior.mean[t], mean, **CLOSE)
        torch.testing.assert_close(found.posterior.variance[t], variance, **CLOSE)
        torch.testing.assert_close(found.bound[t], bound, **CLOSE)


@every_prior
@every_likelihood
def test_tasks_do_not_know_of_each_other(prior: str, name: str) -> None:
    problem, y, n_classes = problem_of(prior, name)
    together = fit_mean_field(problem.prior, LIKELIHOODS[name], y, WEIGHT, n_classes)
    for t in range(T):
        alone = fit_mean_field(problem.task(t), LIKELIHOODS[name], y[t], WEIGHT[t], n_classes)
        torch.testing.assert_close(together.posterior.mean[t], alone.posterior.mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(together.bound[t], alone.bound, rtol=1e-10, atol=1e-10)


@every_prior
def test_least_squares(prior: str) -> None:
    problem, y, _ = problem_of(prior, "least_squares")
    targets, noise = signed_labels(y, 3, F64), 0.5
    posterior = problem.prior.condition(regression_sites(targets, WEIGHT, noise))
    evidence = regression_log_evidence(problem.prior, targets, WEIGHT, noise).sum(-1)
    for t in range(T):
        rows = torch.arange(N).repeat_interleave(WEIGHT[t].long())  # a row of weight 2 is two rows
        total = torch.zeros((), dtype=F64)
        for c in range(3):
            target = torch.where(y[t] == c, 1.0, -1.0).to(F64)
            kernel, a = problem.kernels[t, c], problem.prior.mean[0, c, 0]
            noisy = kernel[rows][:, rows] + noise * torch.eye(len(rows), dtype=F64)
            density = torch.distributions.MultivariateNormal(a.expand(len(rows)), noisy)
            total += density.log_prob(target[rows])
            mean = a + kernel[:, rows] @ torch.linalg.solve(noisy, target[rows] - a)
            torch.testing.assert_close(posterior.mean[t, c], mean, **CLOSE)
            spread = kernel - kernel[:, rows] @ torch.linalg.solve(noisy, kernel[rows])
            torch.testing.assert_close(posterior.variance[t, c], spread.diagonal(), **CLOSE)
        torch.testing.assert_close(evidence[t], total, **CLOSE)


@pytest.mark.parametrize("prior", ["features", "features of classes"])
@every_likelihood
def test_natural_gradients_of_all_rows_are_mean_field(prior: str, name: str) -> None:
    problem, y, n_classes = problem_of(prior, name)
    held = problem.prior
    assert isinstance(held, FeaturePrior)
    found = fit_natural_gradient(
        held.features,
        LIKELIHOODS[name],
        y,
        WEIGHT,
        prior_mean=held.mean,
        n_classes=n_classes,
        n_epochs=200,
        schedule=lambda step: 1.0,
    )
    moments = found.query(held.features, held.variance)
    for t in range(T):
        mean, variance, bound = dense_mean_field(problem, t, name, y[t], WEIGHT[t])
        torch.testing.assert_close(moments.mean[t], mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(moments.spread[t], variance, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.bound[t], bound, rtol=1e-6, atol=1e-6)


def exact_moments(kernel: Tensor, mean: Tensor, likelihood: ConjugateLikelihood, y: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior mean and variance of one latent function at two rows, on a grid of prior draws in whitened space."""
    line = torch.linspace(-7, 7, 281, dtype=F64)
    white = torch.stack(torch.meshgrid(line, line, indexing="ij")).flatten(1)  # (2, points)
    f = mean + torch.linalg.cholesky(kernel) @ white
    logs = likelihood.log_likelihood(f.mT.unsqueeze(-2), y.expand(f.shape[1], 2)).sum(-1) - 0.5 * white.square().sum(0)
    p = torch.softmax(logs, 0)
    centre = f @ p
    return centre, (f - centre.unsqueeze(-1)).square() @ p


@every_prior
def test_gibbs_sampling(prior: str) -> None:
    """Independent chains have the moments of the posterior itself, to 4.5 standard errors."""
    problem = PRIORS[prior](1)
    y = torch.tensor([1, 0, 1, 0, 1])
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=F64)  # two rows are observed: a grid can follow
    chains = 4000
    found = run_gibbs(
        problem.prior, Logistic(), y.expand(T, N), chains, 30, weight.expand(T, N), seeded(5), n_classes=2
    )
    conditional = problem.prior.condition(found.sites)
    for t in range(T):
        mean, variance = exact_moments(problem.kernels[t, 0, :2, :2], problem.prior.mean[0, 0], Logistic(), y[:2])
        centre = conditional.mean[:, t, 0, :2]
        error = (centre.var(0) / chains).sqrt()
        assert bool(((centre.mean(0) - mean).abs() < 4.5 * error).all())
        second = conditional.variance[:, t, 0, :2] + (centre - mean).square()
        assert bool(((second.mean(0) - variance).abs() < 4.5 * (second.var(0) / chains).sqrt()).all())


@every_prior
def test_leave_one_out(prior: str) -> None:
    """Exact where the sites do not depend on the other rows: least squares."""
    problem, y, _ = problem_of(prior, "least_squares")
    likelihood = LIKELIHOODS["least_squares"]
    ones = torch.ones(T, N, dtype=F64)
    posterior = problem.prior.condition(regression_sites(signed_labels(y, 3, F64), ones, 0.5))
    assert isinstance(posterior, SitePosterior)
    p = likelihood.integral(*leave_one_out(posterior.mean, posterior.variance, *posterior.sites))
    total = p.gather(-2, y.unsqueeze(-2)).squeeze(-2).log().sum(-1)
    expected = torch.zeros(T, dtype=F64)
    for t in range(T):
        for n in range(N):
            kept = ones[t].clone()
            kept[n] = 0
            without = problem.task(t).condition(regression_sites(signed_labels(y[t], 3, F64), kept, 0.5))
            p = likelihood.integral(without.mean[:, n : n + 1], without.variance[:, n : n + 1])
            expected[t] += p[y[t, n], 0].log()
    torch.testing.assert_close(total, expected, **CLOSE)


@every_prior
def test_evidence_of_drawn_sites_has_their_gradient(prior: str) -> None:
    problem, _, _ = problem_of(prior, "logistic")
    mean = problem.prior.mean.clone().requires_grad_()
    held = problem.prior
    if isinstance(held, GramPrior):
        moved: Prior = GramPrior(held.gram, mean)
    else:
        assert isinstance(held, FeaturePrior)
        moved = FeaturePrior(held.features, mean, held.residual)
    sites = Sites(torch.rand(3, T, 1, N, dtype=F64, generator=seeded(6)), normal(3, T, 1, N, seed=7))
    (found,) = torch.autograd.grad(moved.condition(sites).log_evidence().mean(0).sum(), mean)
    w, b = sites
    gain = torch.linalg.inv(torch.eye(N, dtype=F64) + w.unsqueeze(-1) * problem.kernels)
    alpha = (gain @ (b - w * problem.prior.mean).unsqueeze(-1)).squeeze(-1)  # K^-1 (m - a)
    torch.testing.assert_close(found.flatten()[0], alpha.sum() / 3, **CLOSE)


@every_prior
def test_real_targets(prior: str) -> None:
    """Regression by the scheme of labels: mean field is exact, and its bound is the density of the targets."""
    problem = PRIORS[prior](1)
    y, likelihood = normal(T, N, seed=9), GaussianNoise(0.3)
    found = fit_mean_field(problem.prior, likelihood, y, WEIGHT)
    for t in range(T):
        rows = torch.arange(N).repeat_interleave(WEIGHT[t].long())
        kernel, a = problem.kernels[t, 0], problem.prior.mean[0, 0, 0]
        noisy = kernel[rows][:, rows] + 0.3 * torch.eye(len(rows), dtype=F64)
        density = torch.distributions.MultivariateNormal(a.expand(len(rows)), noisy)
        torch.testing.assert_close(found.bound[t], density.log_prob(y[t, rows]), **CLOSE)
        mean = a + kernel[:, rows] @ torch.linalg.solve(noisy, y[t, rows] - a)
        torch.testing.assert_close(found.posterior.mean[t, 0], mean, **CLOSE)


def test_real_targets_must_be_real() -> None:
    problem = PRIORS["kernel matrix"](1)
    for y in (labels(2), torch.full((T, N), torch.nan, dtype=F64)):
        with pytest.raises(ValueError, match="finite real targets"):
            fit_mean_field(problem.prior, GaussianNoise(0.3), y)
    with pytest.raises(ValueError, match="encode labels"):
        fit_mean_field(problem.prior, Logistic(), normal(T, N, seed=9))


CHECKED = {
    "mean_field": test_mean_field,
    "gibbs": test_gibbs_sampling,
    "natural_gradient": test_natural_gradients_of_all_rows_are_mean_field,
}


def test_every_scheme_is_checked() -> None:
    """But for Laplace's approximation, which is written for features: `tests/inference/test_laplace.py`."""
    assert set(INFERENCE_NAMES) == {"laplace", *CHECKED}

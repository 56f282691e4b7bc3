"""Logistic-softmax by Gibbs sampling for batches of tasks: importance sampling as the oracle, padding, absent classes.

Statistical checks run copies of a small problem as independent tasks, so that the spread over the copies gives the
standard error of their mean; tolerances are four of these (fixed seeds), plus that of the oracle.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.meta.learners.absent_classes import ABSENT_MEAN
from sureshot.meta.learners.logistic_softmax_gibbs import LogisticSoftmaxGibbs
from sureshot.meta.learners.task_inference import TaskProblem

COPIES = 25
Y = torch.tensor([0, 0, 1, 2])
MEAN = torch.tensor([0.3, -0.8, -0.5], dtype=torch.float64).reshape(1, 3, 1)
STARTS = ["prior", "mean_field"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kernel(rows: int = 6, scale: float = 4.0) -> Tensor:
    """Kernel matrix of four support rows and two queries, (6, 6)."""
    z = torch.randn(rows, 2, generator=generator(3), dtype=torch.float64)
    return scale * torch.exp(-0.5 * torch.cdist(z, z).square())


def within(estimates: Tensor, exact: Tensor, exact_error: Tensor | float = 0.0) -> None:
    """The mean over the copies (leading) is within four standard errors of the oracle."""
    error = (estimates.var(0) / len(estimates) + exact_error**2).sqrt()
    deviations = (estimates.mean(0) - exact).abs() / error
    assert float(deviations.max()) < 4, (estimates.mean(0), exact, error)


@pytest.fixture(scope="module")
def oracle() -> dict[str, Tensor]:
    """Posterior moments and gradients of the log evidence, by importance sampling from the prior."""
    n_draws = 300_000
    factor = torch.linalg.cholesky(kernel() + 1e-10 * torch.eye(6, dtype=torch.float64))
    noise = torch.randn(n_draws, 3, 6, generator=generator(1), dtype=torch.float64)
    log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    mean = MEAN.clone().requires_grad_()
    f = mean + (0.5 * log_scale).exp() * noise @ factor.mT
    likelihood = LogisticSoftmax()
    logs = likelihood.log_likelihood(f[..., :4], Y).sum(-1)
    d_scale, d_mean = torch.autograd.grad(logs.logsumexp(0), [log_scale, mean])
    weights = torch.softmax(logs.detach(), 0)
    effective = 1 / weights.square().sum()
    assert float(effective) > 15_000
    queries = f[..., 4:].detach()
    probabilities = torch.softmax(likelihood.class_log_likelihood(queries), -2)

    def average(values: Tensor) -> Tensor:
        return (weights[:, None, None] * values).sum(0)

    centre = average(queries)
    spread = average(queries.square()) - centre**2
    return {
        "mean": centre,
        "mean_error": (spread / effective).sqrt(),
        "probability": average(probabilities),
        "d_scale": d_scale,
        "d_mean": d_mean.flatten(),
        "effective": effective,
    }


@pytest.mark.parametrize("start", STARTS)
def test_posterior_is_that_of_importance_sampling(start: str, oracle: dict[str, Tensor]) -> None:
    """Latent means and class probabilities at two queries; the classes differ in prior mean and in data."""
    full = kernel()
    rule = LogisticSoftmaxGibbs(n_chains=40, n_sweeps_posterior=20, start=start)
    prior = GramPrior(full[:4, :4].expand(COPIES, 1, 4, 4), MEAN)
    posterior = rule.posterior(TaskProblem(prior, Y.expand(COPIES, 4), 3), generator(7))[0]
    mean, variance = posterior.query(full[:4, 4:].expand(COPIES, 1, 4, 2), full.diagonal()[4:].expand(COPIES, 1, 2))
    assert mean.shape == variance.shape == (40, COPIES, 3, 2)
    within(mean.mean(0), oracle["mean"], oracle["mean_error"])
    probability = rule.likelihood.integral(mean, variance).mean(0)
    within(probability, oracle["probability"], 0.5 / oracle["effective"].sqrt())


@pytest.mark.parametrize("start", STARTS)
def test_gradient_is_that_of_the_log_evidence(start: str, oracle: dict[str, Tensor]) -> None:
    """Fisher's identity after enough sweeps, in the output scale and in the prior mean of each class."""
    log_scale = torch.zeros(COPIES, 1, 1, 1, dtype=torch.float64, requires_grad=True)
    mean = MEAN.repeat(COPIES, 1, 1).requires_grad_()
    rule = LogisticSoftmaxGibbs(n_chains=40, n_sweeps_evidence=20, start=start)
    prior = GramPrior(log_scale.exp() * kernel()[:4, :4], mean)
    evidence = rule.evidence(TaskProblem(prior, Y.expand(COPIES, 4), 3), generator(8))[0]
    d_scale, d_mean = torch.autograd.grad(evidence.sum(), [log_scale, mean])
    within(d_scale.flatten(), oracle["d_scale"], 1 / oracle["effective"].sqrt())
    within(d_mean.squeeze(-1), oracle["d_mean"], 1 / oracle["effective"].sqrt())


@pytest.mark.parametrize("classes", [1, 3], ids=["shared", "own kernels"])
def test_evidence_is_the_mean_over_the_drawn_sites(classes: int) -> None:
    """The same value and gradients as through the posterior's graph, for the same draws."""
    root = torch.randn(2, classes, 4, 4, generator=generator(2), dtype=torch.float64).requires_grad_()
    mean = MEAN.clone().requires_grad_()
    y = Y.expand(2, 4)
    rule = LogisticSoftmaxGibbs(n_chains=5)
    prior = GramPrior(root @ root.mT, mean)
    value = rule.evidence(TaskProblem(prior, y, 3), generator(4))[0]
    assert value.shape == (2,)
    sites = rule.sample_sites(TaskProblem(prior, y, 3), generator(4), 1)
    expected = GramPrior(root @ root.mT, mean).condition(sites).log_evidence().mean(0)
    torch.testing.assert_close(value, expected)
    ours = torch.autograd.grad(value[0] - 2 * value[1], [root, mean])
    theirs = torch.autograd.grad(expected[0] - 2 * expected[1], [root, mean])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("start", STARTS)
def test_padded_rows_have_no_sites(start: str) -> None:
    """So they carry neither evidence nor gradient, and the posterior does not see them."""
    gram = kernel().expand(2, 1, 6, 6).clone().requires_grad_()
    y = torch.tensor([[0, 0, 1, 2, 1, 2], [0, 0, 1, 2, 0, 0]])
    weight = torch.tensor([[1.0] * 6, [1.0] * 4 + [0.0] * 2], dtype=torch.float64)
    rule = LogisticSoftmaxGibbs(n_chains=3, n_sweeps_evidence=4, n_sweeps_posterior=4, start=start)
    prior = GramPrior(gram, MEAN)
    sites = rule.sample_sites(TaskProblem(prior, y, 3, weight), generator(), 4)
    assert not sites.precision[:, 1, :, 4:].any()
    assert not sites.shift[:, 1, :, 4:].any()
    (gradient,) = torch.autograd.grad(rule.evidence(TaskProblem(prior, y, 3, weight), generator())[0].sum(), gram)
    assert not gradient[1, :, 4:].any()
    assert not gradient[1, :, :, 4:].any()
    posterior = rule.posterior(TaskProblem(prior, y, 3, weight), generator())[0]
    assert not posterior.alpha[:, 1, :, 4:].any()
    assert not posterior.whitened(torch.eye(6, dtype=gram.dtype))[:, 1, :, :, 4:].any()


def test_padded_task_has_the_gradient_of_the_small_one(oracle: dict[str, Tensor]) -> None:
    """Two rows of padding with labels and kernel values of their own leave the evidence's gradient as it is."""
    log_scale = torch.zeros(COPIES, 1, 1, 1, dtype=torch.float64, requires_grad=True)
    rule = LogisticSoftmaxGibbs(n_chains=40, n_sweeps_evidence=20, start="mean_field")
    y = torch.tensor([0, 0, 1, 2, 1, 1]).expand(COPIES, 6)
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64).expand(COPIES, 6)
    evidence = rule.evidence(TaskProblem(GramPrior(log_scale.exp() * kernel(), MEAN), y, 3, weight), generator(9))[0]
    (d_scale,) = torch.autograd.grad(evidence.sum(), log_scale)
    within(d_scale.flatten(), oracle["d_scale"], 1 / oracle["effective"].sqrt())


@pytest.mark.parametrize("start", STARTS)
def test_absent_classes_drop_out(start: str, oracle: dict[str, Tensor]) -> None:
    """Three classes padded to five, in float32: finite everywhere, the three-class gradient and posterior."""
    dtype = torch.float32
    full = kernel().to(dtype)
    log_scale = torch.zeros(COPIES, 1, 1, 1, dtype=dtype, requires_grad=True)
    mean = torch.cat([MEAN, MEAN.new_full((1, 2, 1), ABSENT_MEAN)], 1).to(dtype).repeat(COPIES, 1, 1).requires_grad_()
    prior = GramPrior(log_scale.exp() * full[:4, :4], mean)
    y = Y.expand(COPIES, 4)
    rule = LogisticSoftmaxGibbs(n_chains=40, n_sweeps_evidence=20, n_sweeps_posterior=20, start=start)
    evidence = rule.evidence(TaskProblem(prior, y, 5), generator(10))[0]
    assert torch.isfinite(evidence).all()
    d_scale, d_mean = torch.autograd.grad(evidence.sum(), [log_scale, mean])
    within(d_scale.flatten().double(), oracle["d_scale"], 1 / oracle["effective"].sqrt())
    within(d_mean.double()[:, :3, 0], oracle["d_mean"], 1 / oracle["effective"].sqrt())
    assert not d_mean[:, 3:].any()

    with torch.no_grad():
        posterior = rule.posterior(TaskProblem(prior, y, 5), generator(11))[0]
        cross, diagonal = full[:4, 4:].expand(COPIES, 1, 4, 2), full.diagonal()[4:].expand(COPIES, 1, 2)
        mean_, variance = posterior.query(cross, diagonal)
        probability = rule.likelihood.integral(mean_, variance).mean(0)
    assert torch.isfinite(mean_).all()
    assert torch.isfinite(variance).all()
    within(mean_.mean(0)[:, :3].double(), oracle["mean"], oracle["mean_error"])
    within(probability[:, :3].double(), oracle["probability"], 0.5 / oracle["effective"].sqrt())
    assert float(probability[:, 3:].max()) < 1e-6


def test_permuting_the_classes_permutes_the_posterior(oracle: dict[str, Tensor]) -> None:
    permutation = torch.tensor([2, 0, 1])
    full = kernel()
    mean = torch.empty_like(MEAN)
    mean[:, permutation] = MEAN
    prior = GramPrior(full[:4, :4].expand(COPIES, 1, 4, 4), mean)
    rule = LogisticSoftmaxGibbs(n_chains=40, n_sweeps_posterior=20)
    posterior = rule.posterior(TaskProblem(prior, permutation[Y].expand(COPIES, 4), 3), generator(12))[0]
    moments = posterior.query(full[:4, 4:].expand(COPIES, 1, 4, 2), full.diagonal()[4:].expand(COPIES, 1, 2))
    within(moments[0].mean(0)[:, permutation], oracle["mean"], oracle["mean_error"])


def test_posterior_is_differentiable_in_the_prior() -> None:
    """At the sites of one seed, which are constants: gradients to kernel, cross kernel, diagonal and mean."""
    full = kernel().expand(2, 1, 6, 6).clone().requires_grad_()
    mean = MEAN.clone().requires_grad_()
    rule = LogisticSoftmaxGibbs(n_chains=3, n_sweeps_posterior=2)
    posterior = rule.posterior(TaskProblem(GramPrior(full[..., :4, :4], mean), Y.expand(2, 4), 3), generator())[0]
    latent, variance = posterior.query(full[..., :4, 4:], full.diagonal(dim1=-2, dim2=-1)[..., 4:])
    gradients = torch.autograd.grad(latent.square().sum() + variance.sum(), [full, mean])
    for gradient in gradients:
        assert torch.isfinite(gradient).all()
    assert gradients[0][..., :4, :4].abs().min() > 0
    assert gradients[0][..., :4, 4:].abs().min() > 0
    assert gradients[1].abs().min() > 0


def test_one_seed_gives_one_result_in_each_dtype() -> None:
    rule = LogisticSoftmaxGibbs(n_chains=3, n_sweeps_posterior=3)
    for dtype in (torch.float32, torch.float64):
        prior = GramPrior(kernel()[:4, :4].expand(2, 1, 4, 4).to(dtype), MEAN.to(dtype))
        first, second = (rule.posterior(TaskProblem(prior, Y.expand(2, 4), 3), generator(1))[0] for _ in range(2))
        assert first.mean.dtype == dtype
        assert torch.equal(first.mean, second.mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_chains": 0}, "n_chains must be at least 1"),
        ({"n_sweeps_evidence": 0}, "n_sweeps_evidence must be at least 1"),
        ({"n_sweeps_posterior": -1}, "n_sweeps_posterior must be at least 1"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"start": "posterior"}, "start must be one of 'prior', 'mean_field'"),
    ],
)
def test_bad_settings(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogisticSoftmaxGibbs(**options)

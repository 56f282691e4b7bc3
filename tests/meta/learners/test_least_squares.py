"""Deep kernel transfer against dense Gaussians, scikit-learn and its own likelihood; padding, masks, permutations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.meta.learners.absent_classes import ABSENT_MEAN
from sureshot.meta.learners.least_squares import TaskLeastSquares
from sureshot.meta.learners.task_inference import TaskProblem

T, C, N, Q = 2, 3, 6, 4
Y = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 2, 0, 1, 1, 1]])
RULE = TaskLeastSquares(0.3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(classes: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Rows of support and query, (T, classes, N + Q, 3)."""
    return torch.randn(T, classes, N + Q, 3, generator=generator(seed), dtype=dtype)


def blocks(phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gram matrix of the support, cross kernel, diagonal at the queries."""
    full = phi @ phi.mT
    return full[..., :N, :N], full[..., :N, N:], full.diagonal(dim1=-2, dim2=-1)[..., N:]


MEANS = {
    "scalar": torch.tensor(0.2, dtype=torch.float64),
    "of class": torch.tensor([0.1, -0.4, 0.5], dtype=torch.float64).reshape(1, C, 1),
    "of task and class": torch.arange(6, dtype=torch.float64).reshape(T, C, 1) / 10,
}


@pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS)
@pytest.mark.parametrize("classes", [1, C], ids=["shared", "own kernels"])
def test_evidence_is_that_of_dense_gaussians(classes: int, mean: Tensor) -> None:
    gram, _, _ = blocks(features(classes))
    evidence = RULE.evidence(TaskProblem(GramPrior(gram, mean), Y, C), generator())[0]
    for task in range(T):
        expected = 0.0
        for c in range(C):
            target = np.where(Y[task].numpy() == c, 1.0, -1.0)
            covariance = gram[task, c if classes > 1 else 0].numpy() + 0.3 * np.eye(N)
            centre = float(mean.expand(T, C, 1)[task, c])
            expected += multivariate_normal(np.full(N, centre), covariance).logpdf(target)
        assert float(evidence[task]) == pytest.approx(expected, abs=1e-9)


def test_evidence_is_the_tight_bound_of_its_likelihood() -> None:
    """For a Gaussian likelihood the evidence bound at the posterior is the evidence."""
    gram, _, _ = blocks(features(1))
    prior = GramPrior(gram, MEANS["of class"])
    zeros = torch.zeros(T, C, N, dtype=torch.float64)
    posterior = prior.condition(RULE.likelihood.expected_sites(zeros, zeros, Y, None))
    bound = evidence_bound(posterior, RULE.likelihood, Y)
    torch.testing.assert_close(RULE.evidence(TaskProblem(prior, Y, C), generator())[0], bound)


def test_posterior_is_that_of_scikit_learn() -> None:
    x = torch.randn(N + Q, 2, generator=generator(5), dtype=torch.float64).numpy()
    kernel = ConstantKernel(1.7) * RBF(0.8)
    full = torch.from_numpy(kernel(x)).expand(T, 1, N + Q, N + Q)
    gram, cross = full[..., :N, :N], full[..., :N, N:]
    prior = GramPrior(gram, torch.zeros((), dtype=torch.float64))
    posterior = RULE.posterior(TaskProblem(prior, Y, C), generator())[0]
    mean, variance = posterior.query(cross, torch.full((T, 1, Q), 1.7, dtype=torch.float64))
    assert mean.shape == variance.shape == (1, T, C, Q)
    for task in range(T):
        for c in range(C):
            target = np.where(Y[task].numpy() == c, 1.0, -1.0)
            model = GaussianProcessRegressor(kernel, alpha=0.3, optimizer=None).fit(x[:N], target)
            centre, deviation = model.predict(x[N:], return_std=True)
            np.testing.assert_allclose(mean[0, task, c], centre, atol=1e-9)
            np.testing.assert_allclose(variance[0, task, c], deviation**2, atol=1e-9)


def test_own_kernels_that_are_equal_give_what_a_shared_one_gives() -> None:
    gram, cross, diagonal = blocks(features(1))
    mean = MEANS["of task and class"]
    shared = RULE.posterior(TaskProblem(GramPrior(gram, mean), Y, C), generator())[0].query(cross, diagonal)
    prior = GramPrior(gram.expand(T, C, N, N), mean)
    own = RULE.posterior(TaskProblem(prior, Y, C), generator())[0].query(
        cross.expand(T, C, N, Q), diagonal.expand(T, C, Q)
    )
    for one, other in zip(shared, own, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("classes", [1, C], ids=["shared", "own kernels"])
def test_gradients_by_finite_differences(classes: int) -> None:
    """In the kernel, the prior mean and the noise, for the evidence and for predictions."""

    def outputs(phi: Tensor, mean: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        gram, cross, diagonal = blocks(phi)
        prior, rule = GramPrior(gram, mean), TaskLeastSquares(noise)
        moments = rule.posterior(TaskProblem(prior, Y, C), generator())[0].query(cross, diagonal)
        return rule.evidence(TaskProblem(prior, Y, C), generator())[0], *moments

    leaves = [features(classes), MEANS["of class"].clone(), torch.tensor(0.2, dtype=torch.float64)]
    assert torch.autograd.gradcheck(outputs, [leaf.requires_grad_() for leaf in leaves])


@pytest.mark.parametrize("classes", [1, C], ids=["shared", "own kernels"])
def test_padding_changes_nothing(classes: int) -> None:
    """Task 0 has six rows, task 1 four; the labels and kernel values of the other two do not matter."""
    gram, cross, diagonal = blocks(features(classes))
    gram.requires_grad_()
    mean = MEANS["of class"]
    weight = torch.ones(T, N, dtype=torch.float64)
    weight[1, 4:] = 0
    evidence = RULE.evidence(TaskProblem(GramPrior(gram, mean), Y, C, weight), generator())[0]
    (gradient,) = torch.autograd.grad(evidence.sum(), gram)
    assert not gradient[1, :, 4:].any()
    moments = RULE.posterior(TaskProblem(GramPrior(gram, mean), Y, C, weight), generator())[0].query(cross, diagonal)

    small = GramPrior(gram[1:, :, :4, :4], mean)
    torch.testing.assert_close(evidence[1:], RULE.evidence(TaskProblem(small, Y[1:, :4], C), generator())[0])
    alone = RULE.posterior(TaskProblem(small, Y[1:, :4], C), generator())[0].query(cross[1:, :, :4], diagonal[1:])
    for padded, single in zip(moments, alone, strict=True):
        torch.testing.assert_close(padded[:, 1:], single)


def test_absent_classes_contribute_nothing() -> None:
    """A task of two classes among tasks of three."""
    gram, cross, diagonal = blocks(features(1))
    y = Y.clamp_max(1)
    mask = torch.tensor([[True, True, False]]).expand(T, C)
    mean = torch.zeros(T, C, 1, dtype=torch.float64)
    prior = GramPrior(gram, mean.masked_fill(~mask.unsqueeze(-1), ABSENT_MEAN))
    evidence = RULE.evidence(TaskProblem(prior, y, C), generator())[0]
    two = GramPrior(gram, mean[:, :2])
    torch.testing.assert_close(evidence, RULE.evidence(TaskProblem(two, y, 2), generator())[0])
    moments = RULE.posterior(TaskProblem(prior, y, C), generator())[0].query(cross, diagonal)
    expected = RULE.posterior(TaskProblem(two, y, 2), generator())[0].query(cross, diagonal)
    for padded, small in zip(moments, expected, strict=True):
        assert torch.isfinite(padded).all()
        torch.testing.assert_close(padded[:, :, :2], small)


def test_permuting_the_classes_permutes_the_latents() -> None:
    gram, cross, diagonal = blocks(features(1))
    prior = GramPrior(gram, torch.tensor(-0.3, dtype=torch.float64))
    permutation = torch.tensor([2, 0, 1])
    evidence = RULE.evidence(TaskProblem(prior, Y, C), generator())[0]
    torch.testing.assert_close(evidence, RULE.evidence(TaskProblem(prior, permutation[Y], C), generator())[0])
    mean, variance = RULE.posterior(TaskProblem(prior, Y, C), generator())[0].query(cross, diagonal)
    moved, spread = RULE.posterior(TaskProblem(prior, permutation[Y], C), generator())[0].query(cross, diagonal)
    torch.testing.assert_close(moved[:, :, permutation], mean)
    torch.testing.assert_close(spread[:, :, permutation], variance)


def test_float32_is_close_to_float64() -> None:
    results = []
    for dtype in (torch.float64, torch.float32):
        gram, cross, diagonal = blocks(features(1).to(dtype))
        prior = GramPrior(gram, MEANS["of class"].to(dtype))
        evidence = RULE.evidence(TaskProblem(prior, Y, C), generator())[0]
        results.append([evidence, *RULE.posterior(TaskProblem(prior, Y, C), generator())[0].query(cross, diagonal)])
    for exact, rounded in zip(*results, strict=True):
        assert rounded.dtype == torch.float32
        torch.testing.assert_close(rounded.double(), exact, rtol=1e-4, atol=1e-5)


def test_released_probabilities_are_normalised_sigmoids() -> None:
    mean = torch.tensor([[1.2], [-0.9], [-0.3]])
    sigmoids = torch.sigmoid(mean)
    torch.testing.assert_close(LogisticSoftmax().plug_in(mean), sigmoids / sigmoids.sum())


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan")])
def test_noise_must_be_positive(noise: float) -> None:
    with pytest.raises(ValueError, match="noise must be a positive number"):
        TaskLeastSquares(noise)

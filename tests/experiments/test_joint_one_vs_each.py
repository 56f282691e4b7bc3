"""The joint posterior of one-vs-each against dense algebra, the factorised one and a binary model."""

import torch

from experiments.joint_one_vs_each import fit_joint_one_vs_each
from experiments.pairwise import pairwise_differences
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.one_vs_each import OneVsEach

F64 = torch.float64


def rbf(n: int, scale: float, seed: int) -> torch.Tensor:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2)


def test_the_posterior_is_that_of_dense_matrices() -> None:
    """An explicit precision over all C (N + Q) latents, at data and queries."""
    gram, y = rbf(6, 3.0, seed=25), torch.arange(4) % 3
    n, classes, total = 4, 3, 6
    fit = fit_joint_one_vs_each(gram[:n, :n], y, classes, tolerance=1e-12, max_steps=2000)
    coefficients = torch.zeros(n, classes - 1, classes, total, dtype=F64)
    differences = pairwise_differences(y, classes, F64)
    for datum in range(n):
        coefficients[datum, :, :, datum] = differences[datum]
    A = coefficients.flatten(2).flatten(0, 1)  # psi = A f, f of all classes and points
    prior = torch.kron(torch.eye(classes, dtype=F64), gram)
    psi_mean, psi_variance = torch.zeros(len(A), dtype=F64), (A @ prior @ A.T).diagonal()
    for _ in range(2000):
        c = (psi_mean**2 + psi_variance).sqrt()
        omega = torch.tanh(c / 2) / (2 * c)
        covariance = torch.linalg.inv(torch.linalg.inv(prior) + A.T @ torch.diag(omega) @ A)
        posterior_mean = covariance @ (0.5 * A.sum(0))
        psi_mean, psi_variance = A @ posterior_mean, (A @ covariance @ A.T).diagonal()
    expected = posterior_mean.reshape(classes, total)
    torch.testing.assert_close(fit.mean, expected[:, :n], rtol=1e-8, atol=1e-8)
    mean, latent_covariance = fit.query(gram[None, :n, n:], gram.diagonal()[None, n:])
    torch.testing.assert_close(mean, expected[:, n:], rtol=1e-8, atol=1e-8)
    blocks = covariance.reshape(classes, total, classes, total)
    for query in range(2):
        torch.testing.assert_close(latent_covariance[query], blocks[:, n + query, :, n + query], rtol=1e-8, atol=1e-8)


def test_the_bound_is_above_the_factorised_one() -> None:
    gram, y = rbf(5, 3.0, seed=26), torch.tensor([0, 2, 1, 1, 0])
    factorised = fit_mean_field(GramPrior(gram.unsqueeze(0), gram.new_zeros(())), OneVsEach(), y)
    assert float(factorised.bound) < float(fit_joint_one_vs_each(gram, y, 3).bound)


def test_two_classes_are_logistic_on_the_difference() -> None:
    gram, y = rbf(6, 2.0, seed=27), torch.tensor([0, 1, 1, 0, 1, 0])
    joint = fit_joint_one_vs_each(gram, y, 2, tolerance=1e-11)
    binary = fit_mean_field(GramPrior(2 * gram.unsqueeze(0), gram.new_zeros(())), Logistic(), y, tolerance=1e-11)
    torch.testing.assert_close(joint.bound, binary.bound, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(joint.mean[1] - joint.mean[0], binary.posterior.mean[0], rtol=1e-7, atol=1e-7)
    _, covariance = joint.query(gram[None], gram.diagonal()[None])
    contrast = torch.tensor([-1.0, 1.0], dtype=F64)
    torch.testing.assert_close(contrast @ covariance @ contrast, binary.posterior.variance[0], rtol=1e-7, atol=1e-7)

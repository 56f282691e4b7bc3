"""Latents integrated out, against dense algebra and integrals on grids."""

from __future__ import annotations

import math

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.structure.collapsed import Collapsed, nearest_root
from sureshot.structure.whitened import Whitened
from tests.structure.oracles import F64, positive_definite, seeded

S = torch.tensor([[3.0, 1.5, -0.8], [1.5, 2.0, -1.0], [-0.8, -1.0, 4.0]], dtype=F64)


def grown(covariance: Tensor, sizes: list[int], seed: int = 0) -> tuple[Collapsed, Tensor]:
    """Data of these covariances (M, P, P) appended in batches, and their log weights (M, P)."""
    latent, weights, n, generator = Collapsed.empty(len(covariance)), [], 0, seeded(seed)
    for size in sizes:
        cross, corner = covariance[:, :n, n : n + size], covariance[:, n : n + size, n : n + size]
        latent, log_weights = latent.extended(cross, corner, generator)
        weights.append(log_weights)
        n += size
    return latent, torch.cat(weights, -1)


def by_quadrature(covariance: Tensor) -> tuple[float, Tensor, Tensor]:
    """Log evidence of three contrasts, and mean and second moments of psi given the labels."""
    nodes, weights = (torch.from_numpy(part) for part in hermegauss(60))
    points = torch.cartesian_prod(nodes, nodes, nodes) @ torch.linalg.cholesky(covariance).mT
    mass = torch.cartesian_prod(weights, weights, weights).prod(-1) * logsigmoid(points).sum(-1).exp()
    evidence, mass = mass.sum() / (2 * math.pi) ** 1.5, mass / mass.sum()
    return float(evidence.log()), mass @ points, (points * mass.unsqueeze(-1)).mT @ points


@pytest.mark.parametrize("sizes", [[40], [1] * 40, [1, 25, 3, 11]])
def test_appended_data_have_the_factor_of_all_data(sizes: list[int]) -> None:
    covariance = positive_definite(3, 40)
    latent, _ = grown(covariance, sizes)
    fresh = Collapsed.of(latent.omega, covariance)
    for own, other in zip(latent.parts.values(), fresh.parts.values(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(latent.log_likelihood, fresh.log_likelihood)


def test_after_three_hundred_data_it_is_still_that_of_all() -> None:
    x = torch.rand(300, 1, generator=seeded(0), dtype=F64)
    gram = 20 * (-0.5 * torch.cdist(x, x).square() / 0.04).exp() + 1 + 1e-4 * torch.eye(300, dtype=F64)
    latent, _ = grown(gram.unsqueeze(0), [1] * 30 + [90] * 3)
    fresh = Collapsed.of(latent.omega, gram.unsqueeze(0))
    for own, other in zip(latent.parts.values(), fresh.parts.values(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-8)


def test_batches_change_neither_draws_nor_weights() -> None:
    covariance = positive_definite(2, 12)
    (one, weights), (other, again) = grown(covariance, [12]), grown(covariance, [1, 4, 7])
    torch.testing.assert_close(again, weights)
    for first, second in zip(one.parts.values(), other.parts.values(), strict=True):
        torch.testing.assert_close(first, second)
    part = grown(covariance[:, :5, :5], [5])[0]
    for first, second in zip(one.first(5).parts.values(), part.parts.values(), strict=True):
        torch.testing.assert_close(first, second)


def test_weights_are_those_of_predictions() -> None:
    covariance = positive_definite(2, 6)
    latent, weights = grown(covariance, [6])
    for j in range(6):
        mean, own = latent.first(j).predicted(covariance[:, :j, j : j + 1])
        variance = covariance[:, j, j] - own.squeeze(-1).square().sum(-1)
        torch.testing.assert_close(weights[:, j], log_expected_sigmoid(mean.squeeze(-1), variance))


def test_predictions_against_dense_algebra() -> None:
    both = positive_definite(2, 9)
    omega = 0.05 + torch.rand(2, 6, generator=seeded(1), dtype=F64)
    latent = Collapsed.of(omega, both[:, :6, :6])
    cross = both[:, :6, 6:]
    seen = torch.linalg.inv(both[:, :6, :6] + torch.diag_embed(1 / omega))
    mean, own = latent.predicted(cross)
    torch.testing.assert_close(mean, (cross.mT @ seen @ (0.5 / omega).unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(own.mT @ own, cross.mT @ seen @ cross)
    nothing = Collapsed.empty(2).predicted(both[:, :0, 6:])
    assert torch.equal(nothing[0], torch.zeros(2, 3, dtype=F64))


def test_likelihoods_against_integrals_on_a_grid() -> None:
    omega = torch.tensor([0.2, 0.07], dtype=F64)
    covariances = torch.stack([S[:2, :2], S[1:, 1:], 5 * S[:2, :2]])
    axis = torch.linspace(-40, 40, 1601, dtype=F64)
    psi = torch.cartesian_prod(axis, axis)
    sites = (psi / 2 - omega * psi.square() / 2).sum(-1)
    integrals = []
    for covariance in covariances:
        root = torch.linalg.cholesky(covariance)
        solved = torch.linalg.solve_triangular(root, psi.mT, upper=False)
        log_prior = -0.5 * solved.square().sum(0) - root.diagonal().log().sum() - math.log(2 * math.pi)
        integrals.append((sites + log_prior).logsumexp(0) + 2 * math.log(0.05))
    exact = torch.stack(integrals)
    found = Collapsed.of(omega.expand(3, 2), covariances).log_likelihood
    torch.testing.assert_close(found - found[0], exact - exact[0], rtol=1e-8, atol=1e-8)


def test_products_of_weights_are_unbiased() -> None:
    m = 20_000
    _, weights = grown(S.expand(m, 3, 3), [1, 2])
    evidence, _, _ = by_quadrature(S)
    ratios = (weights.sum(-1) - evidence).exp()
    assert abs(float(ratios.mean()) - 1) < 4 * float(ratios.std()) / m**0.5


def test_a_sweep_leaves_the_posterior() -> None:
    """From exact draws; the means given omega are draws, too, whose errors follow from their spread."""
    generator, m = seeded(3), 60_000
    psi = torch.randn(m, 3, generator=generator, dtype=F64) @ torch.linalg.cholesky(S).mT
    psi = psi[torch.rand(m, generator=generator, dtype=F64).log() < logsigmoid(psi).sum(-1)]
    covariance = S.expand(len(psi), 3, 3)
    latent = Collapsed.of(sample_polya_gamma(1, psi, generator), covariance)
    start = latent.omega
    for _ in range(3):
        latent = latent.refreshed(covariance, generator)
    assert len(psi) > 5000
    assert float(torch.corrcoef(torch.stack([start[:, 0], latent.omega[:, 0]]))[0, 1]) < 0.5, "it must move"
    _, first, second = by_quadrature(S)
    mean, own = latent.predicted(covariance)
    squares = (mean.unsqueeze(-1) * mean.unsqueeze(-2) + covariance - own.mT @ own).flatten(1)
    for values, exact in ((mean, first), (squares, second.flatten())):
        scores = (values.mean(0) - exact) / (values.std(0) / len(psi) ** 0.5)
        assert float(scores.abs().max()) < 4
    fresh = Collapsed.of(latent.omega, covariance)
    torch.testing.assert_close(latent.factor, fresh.factor)


def test_data_that_are_drawn_on_the_way_are_of_the_posterior() -> None:
    """Weighted by the product of the weights."""
    m = 20_000
    covariance = S.expand(m, 3, 3)
    latent, log_weights = grown(covariance, [3])
    weights = torch.softmax(log_weights.sum(-1), 0)
    assert 1 / float(weights.square().sum()) > 5000
    _, first, _ = by_quadrature(S)
    mean, _ = latent.predicted(covariance)
    error = ((weights.square().unsqueeze(-1) * (mean - first).square()).sum(0)).sqrt()
    assert float(((weights @ mean - first) / error).abs().max()) < 4


def test_huge_amplitudes_of_equal_rows_stop_nothing() -> None:
    """Rounding makes such a covariance indefinite by more than the identity that is added."""
    x = torch.randn(6, 1, generator=seeded(0), dtype=F64).repeat(2, 1)
    gram = (1 + x @ x.mT) * (-0.5 * torch.cdist(x, x).square()).exp()
    signs = (-1.0) ** torch.arange(12, dtype=F64)
    scale = torch.tensor([1.0, 1e14, 1e18, 1e24], dtype=F64)[:, None, None]
    covariance = scale * signs.unsqueeze(-1) * gram * signs + 1e-6 * torch.eye(12, dtype=F64)
    latent, weights = grown(covariance, [7, 5])
    assert bool(weights.isfinite().all())
    for part in latent.parts.values():
        assert bool(part.isfinite().all())
    fresh = Collapsed.of(latent.omega, covariance)
    assert float(fresh.log_likelihood[0]) == pytest.approx(float(latent.log_likelihood[0]))
    assert -math.inf in fresh.log_likelihood.tolist()
    for _ in range(3):
        latent = latent.refreshed(covariance, seeded(1))
        assert bool(latent.log_likelihood.isfinite().all())
        assert bool(latent.omega.isfinite().all())


def test_the_root_of_what_rounding_has_made_indefinite_is_that_of_the_nearest() -> None:
    """By eigenvalues that are known; whitened latents have a triangle of it, with a positive diagonal."""
    vectors = torch.linalg.qr(torch.randn(4, 4, generator=seeded(0), dtype=F64))[0]
    values = torch.tensor([[3.0, 0.5, 1e-3, -1e-9], [2.0, 1.0, 0.5, 0.1]], dtype=F64)
    covariance = (vectors * values.unsqueeze(-2)) @ vectors.mT
    root = nearest_root(covariance)
    torch.testing.assert_close(root @ root.mT, covariance, rtol=0, atol=1e-8)
    latent, _ = Whitened.empty(2).extended(covariance[:, :0], covariance, seeded(0))
    torch.testing.assert_close(latent.factor @ latent.factor.mT, covariance, rtol=0, atol=1e-8)
    assert torch.equal(latent.factor, latent.factor.tril())
    assert bool((latent.factor.diagonal(dim1=-2, dim2=-1) > 0).all())


def test_likelihoods_keep_their_digits_with_huge_amplitudes() -> None:
    """``|u|^2`` is what data are off from their prediction, not a difference of huge numbers; here in closed form."""
    x, omega, scale = torch.linspace(0.5, 1.5, 8, dtype=F64), 0.2, 1e12
    line = scale * x.unsqueeze(-1) * x
    found = float(Collapsed.of(torch.full((1, 8), omega, dtype=F64), line.unsqueeze(0)).log_likelihood)
    stretched = 1 + omega * scale * float(x @ x)
    off = 0.25 / omega * (8 - float(x.sum()) ** 2 * omega * scale / stretched)
    assert found == pytest.approx(-0.5 * off - 0.5 * math.log(stretched), rel=1e-5)


def test_what_is_not_finite_has_weight_zero_and_harms_nobody() -> None:
    covariance = positive_definite(3, 4)
    covariance[1, 2, :] = covariance[1, :, 2] = math.inf
    latent, weights = grown(covariance, [4])
    assert weights[1].tolist()[2] == -math.inf
    assert bool(weights[:, :2].isfinite().all())
    assert bool(weights[[0, 2]].isfinite().all())
    fresh = Collapsed.of(latent.omega, covariance)
    assert fresh.log_likelihood[1] == -math.inf
    torch.testing.assert_close(latent.factor[[0, 2]], fresh.factor[[0, 2]])
    stays = latent.refreshed(covariance, seeded(0))
    assert torch.equal(stays.omega[1], latent.omega[1])
    assert not torch.equal(stays.omega[0], latent.omega[0])


def test_particles_are_chosen_and_replaced() -> None:
    latent, _ = grown(positive_definite(3, 4), [4])
    other = latent.chosen(torch.tensor([2, 0]))
    changed = latent.chosen([0, 1, 2])
    changed.put([0, 1], other, [0, 1])
    for before, after in zip(latent.parts.values(), changed.parts.values(), strict=True):
        assert torch.equal(after, before[[2, 0, 2]])

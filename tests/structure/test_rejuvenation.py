"""Rejuvenation leaves the posterior as it is: kernels, latents and labels stay a draw of their joint distribution.

Kernels are drawn from the prior, latents given kernels, labels given latents: independent draws, one for each particle.
Particles with the same labels then make sweeps together, labels are drawn anew given the latents, and so on (Geweke
2004). What is true of the first draws must be true of the last.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare, kstest
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.kernels.shared_rows import SharedRows
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.moves import MOVES
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation import Data, Rejuvenation, slice_sampled
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded
from tests.structure.words import all_structures

PRIOR = KernelPrior(Grammar({"LINEAR": 1.0, "MATERN": 1.0, "CONSTANT": 1.0}, max_depth=3, scale=1, mean_variance=1), 1)
X = torch.tensor([[-1.0], [0.2], [0.9]], dtype=F64)
LABELS = torch.cartesian_prod(*[torch.arange(2)] * 3)
FLIPPED = torch.zeros(3, dtype=torch.int64)


def roots(particles: Particles) -> Tensor:
    """Of the prior covariances of latents on the rows (M, N, N)."""
    own = particles.nuggets(PRIOR)[:, None, None] * torch.eye(3, dtype=F64)
    return torch.linalg.cholesky(particles.grams(PRIOR, SharedRows(X)) + own)


def joint(n: int, generator: torch.Generator) -> tuple[Particles, Tensor]:
    """Kernels and latents; labels are drawn from the latents when they are needed."""
    particles = Particles.drawn(PRIOR, n, generator)
    return particles, times_vector(roots(particles), torch.randn(n, 3, generator=generator, dtype=F64))


def after_a_round(
    particles: Particles, f: Tensor, how: Rejuvenation, generator: torch.Generator
) -> tuple[Particles, Tensor]:
    """Labels given latents, a sweep given the labels, latents given what the sweep leaves."""
    y = (torch.rand(f.shape, generator=generator, dtype=F64) < torch.sigmoid(f)).long()
    f = f.clone()
    for labels in LABELS:
        places = (y == labels).all(-1).nonzero().flatten()
        if not len(places):
            continue
        own = particles.chosen(places.tolist())
        signs = (2 * labels - 1).to(F64)
        data = Data.of(PRIOR, X, Contrasts.of_labels(labels, 2))
        latent = Collapsed.of(sample_polya_gamma(1, f[places], generator), data.covariance(own))
        own, latent, _ = how.sweep(data, own, latent, generator)
        covariance = data.covariance(own)
        spread = torch.linalg.inv(torch.linalg.inv(covariance) + torch.diag_embed(latent.omega))
        noise = torch.randn(len(places), 3, generator=generator, dtype=F64)
        root = torch.linalg.cholesky((spread + spread.mT) / 2)
        psi = spread.sum(-1) / 2 + (root @ noise.unsqueeze(-1)).squeeze(-1)
        f[places] = psi * signs
        particles = particles.replaced(places.tolist(), own)
    return particles, f


WAYS = {
    "all": Rejuvenation(),
    "perturbed": Rejuvenation({"perturb_leaf": 3}, 0),
    "slices": Rejuvenation({}, 3),
    "structures": Rejuvenation(dict.fromkeys(MOVES, 1), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_the_joint_distribution_is_kept(name: str) -> None:
    n, generator = 1000, seeded(0)
    start, f = joint(n, generator)
    particles = start
    for _ in range(2):
        particles, f = after_a_round(particles, f, WAYS[name], generator)
    changed = sum(not torch.equal(a, b) for a, b in zip(start.z, particles.z, strict=True))
    assert changed > 0.5 * n
    possible = all_structures(("LINEAR", "MATERN", "CONSTANT"), 3, 3)
    shares = torch.tensor([math.exp(PRIOR.log_probability(one)) for one in possible], dtype=F64)
    common = (n * shares > 8).nonzero().flatten()
    counts = Counter(particles.structures)
    found = [counts[possible[i]] for i in common]
    expected = torch.cat([shares[common], 1 - shares[common].sum(0, keepdim=True)]) * n
    assert len(common) >= 10
    assert chisquare([*found, n - sum(found)], expected).pvalue > 1e-3
    assert kstest(torch.stack([z[0] for z in particles.z]), "norm").pvalue > 1e-3
    assert kstest(torch.cat([z[1:] for z in particles.z]), "norm").pvalue > 1e-3
    # The latents have the distribution of their kernels: whitened, they are standard normal and independent.
    whitened = torch.linalg.solve_triangular(roots(particles), f.unsqueeze(-1), upper=False).squeeze(-1)
    assert kstest(whitened.flatten(), "norm").pvalue > 1e-3
    correlations = torch.corrcoef(whitened.mT)
    assert float((correlations - torch.eye(3, dtype=F64)).abs().max()) < 4 / n**0.5


def test_slices_give_the_posterior_of_one_number() -> None:
    """One constant's amplitude, whose posterior given the Polya-Gamma variables is on a grid."""
    prior, m = KernelPrior(Grammar({"CONSTANT": 1.0}, least_nugget=1e-3, scale=1, mean_variance=1), 1), 300
    particles = Particles.drawn(prior, m, seeded(0), Structure(("CONSTANT",)))
    data = Data.of(prior, X, Contrasts.of_labels(torch.ones(3, dtype=torch.int64), 2))
    omega = torch.full((m, 3), 0.05, dtype=F64)
    latent = Collapsed.of(omega, data.covariance(particles))
    generator, kept = seeded(1), []
    for _ in range(24):
        particles, latent = slice_sampled(data, particles, latent, generator)
        torch.testing.assert_close(
            latent.log_likelihood, Collapsed.of(omega, data.covariance(particles)).log_likelihood
        )
        kept.append(torch.stack(particles.z)[:, 1])
    axis = torch.linspace(-6, 6, 241, dtype=F64)
    points = torch.cartesian_prod(axis[::6], axis)  # of the nugget, coarsely, and of the amplitude
    grid = Particles(tuple([Structure(("CONSTANT",))] * len(points)), tuple(points))
    logs = Collapsed.of(omega[:1].expand(len(points), 3), data.covariance(grid)).log_likelihood
    mass = torch.softmax(logs - 0.5 * points.square().sum(-1), 0)
    mean = float(mass @ points[:, 1])
    spread = float(mass @ (points[:, 1] - mean).square())
    drawn = torch.cat(kept[8:])
    per_chain = torch.stack(kept[8:]).mean(0)
    assert abs(float(drawn.mean()) - mean) < 4 * float(per_chain.std()) / m**0.5
    squares = torch.stack(kept[8:]).sub(mean).square().mean(0)
    assert abs(float(squares.mean()) - spread) < 4 * float(squares.std()) / m**0.5
    assert abs(mean) > 0.1, "the likelihood must have a say"


def test_nothing_is_done_without_contrasts() -> None:
    particles, latent = Particles.drawn(PRIOR, 5, seeded(0)), Collapsed.empty(5)
    data = Data.of(PRIOR, X, Contrasts.of_labels(FLIPPED, 1))
    again, other, rates = Rejuvenation().sweep(data, particles, latent, seeded(0))
    assert again is particles
    assert other is latent
    assert rates == {}


def test_rates_are_shares() -> None:
    """A leaf has no operator to be swapped, which is always accepted; one that is drawn anew has other numbers."""
    particles = Particles.drawn(PRIOR, 20, seeded(0), Structure(("LINEAR",)))
    data = Data.of(PRIOR, X, Contrasts.of_labels(FLIPPED, 2))
    latent = Collapsed.of(torch.full((20, 3), 0.2, dtype=F64), data.covariance(particles))
    _, _, rates = Rejuvenation({"swap_operator": 3, "redraw_leaf": 0}, 1).sweep(data, particles, latent, seeded(0))
    assert rates == {"swap_operator": 1, "redraw_leaf": 0}
    for how, name in (
        (Rejuvenation({"redraw_leaf": 1}, 0), "redraw_leaf"),
        (Rejuvenation({"redraw_leaf": 0}, 0, laplace_moves=1), "laplace"),
    ):
        after, _, rates = how.sweep(data, particles, latent, seeded(2))
        moved = sum(not torch.equal(a, b) for a, b in zip(particles.z, after.z, strict=True))
        assert 0 < moved < 20
        assert rates[name] == pytest.approx(moved / 20)

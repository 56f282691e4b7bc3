import math
from dataclasses import replace

import pytest
import torch

from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.laplace_moves import Laplace
from sureshot.structure.leaves import LogNormal
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation import Rejuvenation, laplace_move, move
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcSettings, SmcState, smc_step

PRIOR = KernelPrior(
    Grammar(leaves={"LINEAR": 2.0, "MATERN": 1.0}, scale=1, mean_variance=1, amplitude=LogNormal(1.5), max_depth=2), 1
)
WIDE = replace(PRIOR, grammar=replace(PRIOR.grammar, amplitude=LogNormal(3.0)))  # posteriors far from Gaussian


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def line(n):
    return torch.linspace(-1.5, 1.5, n, dtype=torch.float64).unsqueeze(-1)


def posterior_draws(n_draws, n_rows, prior, generator):
    """Exact: kernels and latents of the prior, kept with the probability of their labels, which are all positive."""
    data = Data.of(prior, line(n_rows), Contrasts.of_labels(torch.arange(n_rows) % 2, 2))
    particles = Particles.drawn(prior, n_draws, generator)
    root = torch.linalg.cholesky(data.covariance(particles))
    psi = (root @ torch.randn(n_draws, n_rows, 1, generator=generator, dtype=torch.float64)).squeeze(-1)
    likely = torch.nn.functional.logsigmoid(psi).sum(-1)
    kept = (torch.rand(n_draws, generator=generator).log() < likely).nonzero().flatten().tolist()
    particles = particles.chosen(kept)
    omega = sample_polya_gamma(1, psi[kept], generator)
    return data, particles, Collapsed.of(omega, data.covariance(particles))


def statistics(particles, latent):
    sizes = [[len(k), float("MATERN" in k.symbols), float(z[0]), float(z[1])] for k, z in particles_of(particles)]
    return torch.cat([torch.tensor(sizes, dtype=torch.float64), latent.omega], -1)


def particles_of(particles):
    return zip(particles.structures, particles.z, strict=True)


@pytest.mark.parametrize("n_draws", [1, 4])
def test_the_posterior_is_kept(n_draws):
    data, particles, latent = posterior_draws(6000, 2, WIDE, generator := seeded(0))
    before = statistics(particles, latent)
    for name in 2 * ["replace_subtree", "detach_or_attach"]:
        particles, latent, count = laplace_move(name, data, particles, latent, generator, n_draws)
        assert count > 0.05 * len(particles) > 50
    after = statistics(particles, latent)
    error = ((before.var(0) + after.var(0)) / len(particles)).sqrt()
    assert bool(((before.mean(0) - after.mean(0)).abs() < 4 * error).all())
    torch.testing.assert_close(latent.factor, Collapsed.of(latent.omega, data.covariance(particles)).factor)


def test_more_is_accepted_than_given_omega():
    n = 24
    x, y = line(n), (line(n).squeeze(-1) > 0).long()
    state = SmcState.start(PRIOR, 100, 2, seeded(1))
    state, _ = smc_step(state, x, y, seeded(2), SmcSettings(n_sweeps=4))
    data = Data.of(PRIOR, x, state.contrasts)
    counts = {"omega": 0, "laplace": 0}
    generator, conditional, estimated = seeded(3), (state.particles, state.latent), (state.particles, state.latent)
    for _ in range(4):
        latent = conditional[1].refreshed(data.covariance(conditional[0]), generator)
        *conditional, count = move("replace_subtree", data, conditional[0], latent, generator)
        counts["omega"] += count
        *estimated, count = laplace_move("replace_subtree", data, *estimated, generator, 16)
        counts["laplace"] += count
    assert counts["laplace"] > 1.2 * counts["omega"], counts


def test_weights_and_draws_against_dense_matrices():
    data = Data.of(PRIOR, line(5), Contrasts.of_labels(torch.arange(5) % 2, 2))
    covariance = data.covariance(Particles.drawn(PRIOR, 3, seeded(0)))
    found = Laplace.of(covariance, torch.zeros(3, 5, dtype=torch.float64))
    again = Laplace.of(covariance, 30 * torch.ones(3, 5, dtype=torch.float64))
    torch.testing.assert_close(found.mode, again.mode)
    inverse = torch.linalg.inv(covariance)
    torch.testing.assert_close((inverse @ found.mode.unsqueeze(-1)).squeeze(-1), torch.sigmoid(-found.mode))
    precision = inverse + torch.diag_embed(found.weight)
    q = torch.distributions.MultivariateNormal(found.mode, precision_matrix=precision)
    p = torch.distributions.MultivariateNormal(torch.zeros_like(found.mode), covariance)
    psi = found.draw(50000, seeded(1))
    expected = p.log_prob(psi.mT.permute(2, 0, 1)) + torch.nn.functional.logsigmoid(psi).sum(-1).mT
    torch.testing.assert_close(found.log_weights(psi), (expected - q.log_prob(psi.mT.permute(2, 0, 1))).mT)
    spread = torch.stack([torch.cov(one.mT) for one in psi])
    torch.testing.assert_close(spread, torch.linalg.inv(precision), atol=0.05, rtol=0.05)
    plain = torch.linalg.cholesky(covariance) @ torch.randn(3, 5, 50000, generator=seeded(2), dtype=torch.float64)
    direct = torch.nn.functional.logsigmoid(plain).sum(1).logsumexp(-1)
    estimate = found.log_weights(psi).logsumexp(-1)
    torch.testing.assert_close(estimate - math.log(50000), direct - math.log(50000), atol=0.03, rtol=0)


def test_only_for_collapsed_latents():
    state = SmcState.start(PRIOR, 2, 2, seeded(0), representation="whitened")
    with pytest.raises(ValueError, match="laplace_moves need the collapsed"):
        smc_step(state, line(2), torch.tensor([0, 1]), seeded(0), SmcSettings(Rejuvenation(laplace_moves=1)))

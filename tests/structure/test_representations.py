"""Two representations of the latents, one posterior."""

import math
from dataclasses import replace

import pytest
import torch

from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.hamiltonian import adapted, hamiltonian, log_density_and_slope
from sureshot.structure.links import LOGISTIC, PROBIT
from sureshot.structure.particles import Particles
from sureshot.structure.prediction import probabilities
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcSettings, SmcState, extended, smc_step
from sureshot.structure.structure import Structure
from sureshot.structure.whitened import Whitened

PRIOR = KernelPrior(Grammar.preset("paper"), 2)


def rows(n: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64) > 0).long()


def run(representation, settings, seed, link="logistic", n_particles=24):
    x, y = rows(9)
    generator = torch.Generator().manual_seed(seed)
    state = SmcState.start(PRIOR, n_particles, 2, generator, representation=representation, link=link)
    for part in (slice(0, 4), slice(4, 9)):
        state, info = smc_step(state, x[part], y[part], generator, settings)
    return state, info


@pytest.mark.slow
def test_representations_agree():
    queries, _ = rows(5, seed=9)
    default, paper = SmcSettings(), SmcSettings(replace(Rejuvenation.preset("paper"), leaps=5))
    evidence, predicted = {}, {}
    for representation, settings in (("collapsed", default), ("whitened", default), ("whitened paper", paper)):
        found = [run(representation.split()[0], settings, seed)[0] for seed in range(5)]
        evidence[representation] = torch.tensor([state.log_evidence for state in found])
        predicted[representation] = torch.stack([probabilities(state, queries)[:, 1] for state in found])
    for other in ("whitened", "whitened paper"):
        for what, floor in ((evidence, 0.05), (predicted, 0.01)):
            first, second = what["collapsed"], what[other]
            error = ((first.var(0) + second.var(0)) / 5).sqrt().clamp_min(floor)
            assert bool(((first.mean(0) - second.mean(0)).abs() < 3.5 * error).all()), (other, first, second)


def test_slope_by_finite_differences():
    x, y = rows(6)
    generator = torch.Generator().manual_seed(0)
    structures = [
        Structure.parse(text) for text in ("LINEAR x SQUARED-EXPONENTIAL", "GAMMA-EXPONENTIAL + PERIODIC", "MATERN")
    ]
    prior = KernelPrior(Grammar(linear_offset=True, scale=1, mean_variance=3), 2)
    z = tuple(0.5 * torch.randn(1 + prior.size(k), generator=generator, dtype=torch.float64) for k in structures)
    particles = Particles(tuple(structures), z)
    data = Data.of(prior, x, Contrasts.of_labels(y, 2))
    latent = Whitened.empty(3)
    eta = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    points = torch.cat([particles.packed(), eta], -1)
    latent = Whitened(eta, data.covariance(particles), latent.step)
    density, slope = log_density_and_slope(data, particles, latent, points)
    whole = latent.given(range(3), data.covariance(particles)).log_likelihood - points.square().sum(-1) / 2
    torch.testing.assert_close(density, whole)
    for k in range(points.shape[-1]):
        away = torch.zeros_like(points)
        away[:, k] = 1e-6
        above, below = (log_density_and_slope(data, particles, latent, points + sign * away)[0] for sign in (1, -1))
        inside = torch.tensor([k < len(own) or k >= points.shape[-1] - 6 for own in z])
        torch.testing.assert_close(slope[inside, k], ((above - below) / 2e-6)[inside], atol=1e-5, rtol=1e-5)
        assert bool((slope[~inside, k] == 0).all())


@pytest.mark.parametrize("link", [LOGISTIC, PROBIT], ids=["logistic", "probit"])
def test_moves_keep_the_posterior(link):
    """Exact draws of kernels, latents and labels, moved given the labels, still have the prior's moments."""
    n = 4000
    x, _ = rows(3)
    generator = torch.Generator().manual_seed(4)
    k = Structure.parse("LINEAR")
    particles = Particles.drawn(PRIOR, n, generator, k)
    contrasts = Contrasts.of_labels(torch.ones(3, dtype=torch.int64), 2)
    data = Data.of(PRIOR, x, contrasts)
    eta = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    latent = Whitened(
        eta, torch.linalg.cholesky(data.covariance(particles)), torch.full((n,), 0.8, dtype=torch.float64), link=link
    )
    # The labels of these particles are one each; accept those that agree with all of them being positive.
    keep = torch.rand(n, generator=generator).log() < latent.log_likelihood
    kept = keep.nonzero().flatten().tolist()
    particles, latent = particles.chosen(kept), latent.chosen(kept)
    before = statistics(particles, latent)
    for _ in range(6):
        latent = latent.refreshed(data.covariance(particles), generator)
        particles, latent, probability = hamiltonian(data, particles, latent, generator, n_leaps=5)
    after = statistics(particles, latent)
    assert 0.3 < float(probability.mean()) < 0.95
    error = ((before.var(0) + after.var(0)) / len(kept)).sqrt()
    assert bool(((before.mean(0) - after.mean(0)).abs() < 4 * error).all())
    assert float((before - after).abs().mean()) > 0.3


def statistics(particles, latent):
    numbers = torch.cat([particles.packed(), latent.eta], -1)
    return torch.cat([numbers, numbers.square(), latent.log_likelihood.unsqueeze(-1)], -1)


def test_steps_are_adapted_by_how_far_acceptance_is_from_four_fifths():
    latent = replace(Whitened.empty(3), step=torch.tensor([0.1, 0.2, 0.3]))
    longer = adapted(latent, torch.tensor([1.0, 0.8, 0.3])).step
    torch.testing.assert_close(longer, torch.tensor([0.1 * math.exp(0.2), 0.2, 0.3 * math.exp(-0.5)]))


def test_steps_are_adapted_in_the_first_trajectories_only():
    x, y = rows(6)
    state = SmcState.start(PRIOR, 4, 2, torch.Generator().manual_seed(0), representation="whitened")
    state, _ = extended(state, x, y, 2, torch.Generator().manual_seed(1))

    def steps(trajectories, adapting):
        how = Rejuvenation({}, 0, 0, trajectories=trajectories, adapting=adapting)
        return how.sweep(state.data, state.particles, state.latent, torch.Generator().manual_seed(2))[1].step

    assert torch.equal(steps(2, 0), state.latent.step)
    assert torch.equal(steps(3, 1), steps(1, 1))
    assert not torch.equal(steps(1, 1), state.latent.step)


def test_batches_of_whitened_data_have_the_factor_of_all():
    state = SmcState.start(PRIOR, 5, 2, torch.Generator().manual_seed(0), representation="whitened")
    x, y = rows(9)
    for part in (slice(0, 4), slice(4, 9)):
        state, _ = extended(state, x[part], y[part], 2, torch.Generator().manual_seed(1))
    torch.testing.assert_close(state.latent.factor, torch.linalg.cholesky(state.data.covariance(state.particles)))


def test_probit_has_a_closed_prediction():
    mean, variance = torch.tensor([0.3, -2.0, 5.0]).double(), torch.tensor([0.5, 4.0, 30.0]).double()
    f = mean + variance.sqrt() * torch.linspace(-9, 9, 20001, dtype=torch.float64).unsqueeze(-1)
    density = torch.exp(-0.5 * ((f - mean) / variance.sqrt()).square()) / (2 * math.pi * variance).sqrt()
    direct = torch.trapezoid(PROBIT.log_probability(f).exp() * density, f, dim=0)
    torch.testing.assert_close(PROBIT.log_expected(mean, variance).exp(), direct)


def test_draws_of_the_paper_are_the_quadrature_on_average():
    state, _ = run("whitened", SmcSettings(), 0, link="probit", n_particles=16)
    x, _ = rows(4, seed=3)
    drawn = probabilities(state, x, n_draws=4000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn, probabilities(state, x), atol=0.01, rtol=0)


def test_what_is_not_offered():
    start = lambda **options: SmcState.start(PRIOR, 2, options.pop("classes", 2), torch.Generator(), **options)  # noqa: E731
    with pytest.raises(ValueError, match="whitened latents and two classes"):
        start(link="probit")
    with pytest.raises(ValueError, match="whitened latents and two classes"):
        start(link="probit", representation="whitened", classes=3)
    with pytest.raises(ValueError, match="representation must be one of collapsed, whitened"):
        start(representation="white")
    x, y = rows(3)
    with pytest.raises(ValueError, match="need the whitened representation"):
        smc_step(start(), x, y, torch.Generator(), SmcSettings(Rejuvenation.preset("paper")))
    with pytest.raises(ValueError, match="n_draws must be at least 1, of two classes"):
        probabilities(start(classes=3), x, n_draws=5)


def test_offsets_are_counted():
    k = Structure.parse("LINEAR + LINEAR[1]")
    prior = KernelPrior(
        Grammar(leaves={"LINEAR": 1.0}, p_one_column=0.5, linear_offset=True, scale=1, mean_variance=1), 3
    )
    assert prior.leaf_sizes(k) == [5, 3]
    z = torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0, 0.0, -100.0, 1.0], dtype=torch.float64)
    x = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 3.0]], dtype=torch.float64)
    expected = torch.tensor([[2.0, 2.0], [2.0, 2.0 + 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(prior.kernel(k, z)(x), expected)

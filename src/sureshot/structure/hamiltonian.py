"""Hamiltonian Monte Carlo on a kernel's parameters and whitened latents together, structures kept.

The target is ``N(z; 0, I) N(eta; 0, I) p(y | L(z) eta)``, the momentum standard normal. Every particle has a step size
of its own, which `adapted` moves towards an acceptance of 0.8 while it may (it is then a function of the past, and the
move leaves the target as it is only nearly), and which stays otherwise.

References: Neal 2011; Huang & Wang 2025, Algorithm 1, line 13.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.whitened import Whitened

_WANTED = 0.8
_GAIN = 1.0


def hamiltonian(
    data: Data,
    particles: Particles,
    latent: Whitened,
    generator: torch.Generator,
    n_leaps: int = 10,
) -> tuple[Particles, Whitened, Tensor]:
    """One trajectory for each particle, and the probabilities (M,) with which they were accepted."""
    z, eta = particles.packed(), latent.eta
    used = torch.stack([torch.arange(z.shape[-1]) < len(own) for own in particles.z])
    here = torch.cat([z, eta], -1)
    free = torch.cat([used, torch.ones_like(eta, dtype=torch.bool)], -1).to(torch.float64)
    noise = torch.rand(2, len(particles), generator=generator, dtype=torch.float64)
    step = (latent.step * (0.8 + 0.4 * noise[0])).unsqueeze(-1)
    momentum = free * torch.randn(here.shape, generator=generator, dtype=torch.float64)
    log_density, slope = log_density_and_slope(data, particles, latent, here)
    start = log_density - momentum.square().sum(-1) / 2
    there = here
    for _ in range(n_leaps):
        momentum = momentum + step / 2 * slope
        there = there + step * momentum
        log_density, slope = log_density_and_slope(data, particles, latent, there)
        momentum = momentum + step / 2 * slope
    log_ratio = log_density - momentum.square().sum(-1) / 2 - start
    probability = log_ratio.exp().clamp_max(1).nan_to_num(0)
    moved = torch.where((noise[1] < probability).unsqueeze(-1), there, here)
    particles = particles.unpacked(moved[:, : z.shape[-1]])
    factor = latent.given(range(len(particles)), data.covariance(particles)).factor
    return particles, replace(latent, eta=moved[:, z.shape[-1] :], factor=factor), probability


def adapted(latent: Whitened, probability: Tensor) -> Whitened:
    """With steps that are longer where trajectories are accepted, shorter where not."""
    return replace(latent, step=latent.step * (_GAIN * (probability - _WANTED)).exp())


def log_density_and_slope(
    data: Data,
    particles: Particles,
    latent: Whitened,
    points: Tensor,  # (M, Z + P), packed parameters and eta
) -> tuple[Tensor, Tensor]:
    """The logarithm of the target (M,), and its gradient (M, Z + P)."""
    width = points.shape[-1] - latent.eta.shape[-1]
    values, slopes = points.new_empty(len(points)), torch.zeros_like(points)
    for structure, places in particles.groups().items():
        size = 1 + data.prior.size(structure)
        with torch.enable_grad():
            z = points[places, :size].requires_grad_()
            eta = points[places, width:].requires_grad_()
            gram = data.prior.kernel(structure, z[:, 1:]).on(data.rows) + data.prior.grammar.mean_variance
            nugget = data.prior.nugget(z[:, 0])
            covariance = data.contrasts.covariance(data.contrasts, gram, nugget, data.agreement)
            factor, info = torch.linalg.cholesky_ex(covariance)
            psi = (factor @ eta.unsqueeze(-1)).squeeze(-1)
            found = latent.link.log_probability(psi).sum(-1) - (z.square().sum(-1) + eta.square().sum(-1)) / 2
            of_z, of_eta = torch.autograd.grad(found.sum(), (z, eta))
        values[places] = found.detach().masked_fill(info > 0, -torch.inf)
        slopes[places, :size] = of_z
        slopes[places, width:] = of_eta
    return values, slopes

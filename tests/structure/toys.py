"""Small problems, and what their posteriors are by importance sampling from the prior."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leaves import LogNormal
from sureshot.structure.particles import Particles
from sureshot.structure.smc import SmcSettings, SmcState, smc_step
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, covariances, draws_and_log_weights, seeded


class Toy(NamedTuple):
    prior: KernelPrior
    x: Tensor  # (N, D)
    y: Tensor  # (N,)
    n_classes: int


def _threshold() -> Toy:
    """One column; the labels change once, but for two of them. The first half is of a single class."""
    x = torch.linspace(-1.8, 1.8, 20, dtype=F64).unsqueeze(-1)
    y = (x.squeeze(-1) > 0).long()
    y[13], y[16] = 0, 0
    return Toy(KernelPrior(Grammar(max_depth=3, scale=1, mean_variance=1), 1), x, y, 2)


def _corners() -> Toy:
    """Two columns; the label is the sign of their product: no line tells the classes apart."""
    x = torch.randn(24, 2, generator=seeded(5), dtype=F64)
    return Toy(KernelPrior(Grammar(p_one_column=0.3, scale=1, mean_variance=1), 2), x, (x.prod(-1) > 0).long(), 2)


def _three_classes() -> Toy:
    """One column with three intervals; the third class comes last."""
    x = torch.tensor([-1.5, -0.9, 0.0, 0.3, 1.2, 1.7], dtype=F64).unsqueeze(-1)
    grammar = replace(Grammar.preset("paper"), amplitude=LogNormal(0.0, 0.5), max_depth=3)
    return Toy(KernelPrior(grammar, 1), x, torch.tensor([0, 0, 1, 1, 2, 2]), 3)


TOYS = {"threshold": _threshold(), "corners": _corners(), "three classes": _three_classes()}


class Reference(NamedTuple):
    """By importance sampling of kernels from the prior, and of latents given each; with standard errors."""

    log_evidence: tuple[float, float]
    leaf_alone: tuple[float, float]  # posterior probability that the structure is a leaf
    nugget: tuple[float, float]  # posterior mean of the nugget's number


def reference(
    toy: Toy,
    structure: Structure | None = None,  # of all kernels
    n_kernels: int = 3000,
    n_draws: int = 40,
) -> Reference:
    generator = seeded(0)
    particles = Particles.drawn(toy.prior, n_kernels, generator, structure)
    s = covariances(toy.prior, particles, toy.x, toy.y, toy.n_classes)
    _, log_weights = draws_and_log_weights(s, n_draws, generator)
    logs = log_weights.logsumexp(0) - math.log(n_draws)
    top = logs.max()
    values = (logs - top).exp()
    mean = values.mean()
    shares = values / values.sum()
    assert 1 / float(shares.square().sum()) > 150, "the reference itself must be worth something"

    def average(of: Tensor) -> tuple[float, float]:
        centre = float(shares @ of)
        return centre, float((shares.square() @ (of - centre).square()).sqrt())

    return Reference(
        (float(top + mean.log()), float(values.std() / mean) / n_kernels**0.5),
        average(leaves_alone(particles)),
        average(torch.stack([z[0] for z in particles.z])),
    )


def leaves_alone(particles: Particles) -> Tensor:
    """1 where the structure is a leaf, else 0."""
    return torch.tensor([len(one) == 1 for one in particles.structures], dtype=F64)


def run(
    toy: Toy,
    sizes: list[int],  # of the batches
    n_particles: int,
    seed: int,
    settings: SmcSettings | None = None,
    structure: Structure | None = None,
) -> SmcState:
    """Sequential Monte Carlo over a toy, whose classes are announced when they come."""
    generator, n = seeded(seed), 0
    state = SmcState.start(toy.prior, n_particles, 2, generator, structure)
    for size in sizes:
        x, y = toy.x[n : n + size], toy.y[n : n + size]
        known = max(state.n_classes, int(y.max()) + 1)
        state, _ = smc_step(state, x, y, generator, settings or SmcSettings(), known)
        n += size
    return state


def summary(state: SmcState) -> Tensor:
    """Log evidence and posterior expectations, as `Reference` has them."""
    weights = state.log_weights.exp()
    nuggets = torch.stack([z[0] for z in state.particles.z])
    evidence = torch.tensor(state.log_evidence, dtype=F64)
    return torch.stack([evidence, weights @ leaves_alone(state.particles), weights @ nuggets])


def scores(summaries: Tensor, exact: Reference) -> list[float]:
    """How many standard errors the means of independent runs (R, 3) are off; evidences are averaged, not their logs."""
    errors = [error for _, error in exact]
    ratios = (summaries[:, 0] - exact.log_evidence[0]).exp()
    values = torch.cat([ratios.unsqueeze(-1), summaries[:, 1:]], -1)
    expected = torch.tensor([1.0, exact.leaf_alone[0], exact.nugget[0]], dtype=F64)
    variance = values.var(0) / len(values) + torch.tensor(errors, dtype=F64).square()
    return ((values.mean(0) - expected) / variance.sqrt()).tolist()


def probability_of_one(
    covariance: Tensor,  # (N + Q, N + Q), of the latent of two classes' logistic model on rows and queries
    y: Tensor,  # (N,)
    n_draws: int,
    generator: torch.Generator,
) -> Tensor:
    """That queries are of class 1 (Q,), for a fixed kernel."""
    n = len(y)
    signs = (2 * y - 1).to(F64)
    seen, cross = covariance[:n, :n], covariance[:n, n:]
    psi, log_weights = draws_and_log_weights((signs.unsqueeze(-1) * seen * signs).unsqueeze(0), n_draws, generator)
    f = psi.squeeze(1) * signs  # (S, N)
    solved = torch.linalg.solve(seen, cross)
    variance = covariance.diagonal()[n:] - (cross * solved).sum(0)
    p = log_expected_sigmoid(f @ solved, variance.expand(n_draws, -1)).exp()
    return torch.softmax(log_weights.squeeze(-1), 0) @ p

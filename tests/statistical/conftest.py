"""Oracles for the samplers: a plain elliptical slice sampler and a comparison gated on ESS."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sureshot.inference.diagnostics import effective_sample_size, split_r_hat


def elliptical_slice(
    log_likelihood: Callable[[Tensor], Tensor],
    root: Tensor,
    mean: Tensor,
    n_chains: int,
    n_sweeps: int,
    generator: torch.Generator,
) -> Tensor:
    """Draws (sweeps, chains, ..., N) of ``N(mean, root root')`` times the likelihood; Murray et al. 2010.

    `log_likelihood` maps latents (chains, ..., N) to (chains); `mean` has the shape (..., N) of the latents.
    """

    def prior_draw() -> Tensor:
        noise = torch.randn(n_chains, *mean.shape, generator=generator, dtype=mean.dtype)
        return noise @ root.mT

    def uniform() -> Tensor:
        return torch.rand(n_chains, generator=generator, dtype=mean.dtype)

    def spread(values: Tensor) -> Tensor:
        return values.view(-1, *[1] * mean.dim())

    state = prior_draw()
    level = log_likelihood(state + mean)
    kept = []
    for _ in range(n_sweeps):
        ellipse = prior_draw()
        threshold = level + uniform().log()
        angle = 2 * math.pi * uniform()
        low, high = angle - 2 * math.pi, angle.clone()
        done = torch.zeros(n_chains, dtype=torch.bool)
        while not bool(done.all()):
            proposal = state * spread(angle.cos()) + ellipse * spread(angle.sin())
            value = log_likelihood(proposal + mean)
            accepted = ~done & (value > threshold)
            state = torch.where(spread(accepted), proposal, state)
            level = torch.where(accepted, value, level)
            # A chain that is done keeps its state: later proposals are compared but never taken.
            ellipse = torch.where(spread(accepted), torch.zeros_like(ellipse), ellipse)
            done |= accepted
            low, high = torch.where(angle < 0, angle, low), torch.where(angle < 0, high, angle)
            angle = torch.where(done, angle, low + (high - low) * uniform())
        kept.append(state + mean)
    return torch.stack(kept)


def standard_scores(draws: Tensor, other: Tensor | None = None, exact: Tensor | None = None) -> Tensor:
    """Differences of means in Monte-Carlo standard errors, after a gate on ESS and R-hat.

    `draws` and `other` are (sweeps, chains, ...); compare with another sampler or with exact values.
    """
    variance = torch.zeros(draws.shape[2:], dtype=draws.dtype)
    means = []
    for sample in (draws, other):
        if sample is None:
            continue
        size = effective_sample_size(sample)
        assert float(size.min()) > 1000, f"only {float(size.min()):.0f} effective draws: the test would be blind"
        # Sticky chains of a few hundred sweeps show 1.05 without fault; chains that disagree show far more.
        assert float(split_r_hat(sample).max()) < 1.1
        variance = variance + sample.flatten(0, 1).var(0) / size
        means.append(sample.mean((0, 1)))
    reference = means[1] if exact is None else exact
    return (means[0] - reference) / variance.sqrt()


@pytest.fixture(scope="session")
def slice_sampler() -> Callable[..., Tensor]:
    return elliptical_slice


@pytest.fixture(scope="session")
def scores() -> Callable[..., Tensor]:
    return standard_scores

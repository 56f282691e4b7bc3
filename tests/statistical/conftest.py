"""Oracles for the samplers: an elliptical slice sampler, a comparison gated on ESS, exact joint draws.

Simulation-based calibration and Geweke's test need latents and labels from the joint distribution

``p(f, y)  proportional to  N(f; a, K)  times the product over the data of  L(f_n | y_n)^s_n``

with integer weights ``s_n``. No likelihood has to sum to one over the labels for that. Draw f from the prior and give
every datum the label y with probability ``L(f_n | y)^s_n``; what these leave to one is the probability of *no* label,
and a draw with such a datum is rejected as a whole. What is accepted has exactly the joint above, in which the labels
given the latents are independent, each proportional to ``L(f_n | .)^s_n``. One-vs-each sums to at most one, as do all
powers of likelihoods that do. A datum of weight 0 gets every label with equal probability. (The joint of Gaussian
labels, a density, is in closed form.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.prior import Prior
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.structure import Factorisation
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.gaussian import GaussianLabels
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.sites import ConjugateLikelihood
from tests.oracles.diagnostics import effective_sample_size, split_r_hat

F64 = torch.float64


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


def prior_gram(variance: float) -> Tensor:
    """Three data, two of them near each other."""
    x = torch.tensor([0.0, 0.7, 2.0], dtype=F64).unsqueeze(-1)
    return variance * torch.exp(-0.5 * torch.cdist(x, x) ** 2)


@dataclass(frozen=True)
class Classifier:
    """A model without its data, and its sampler; batches of T data sets are the leading dimension."""

    likelihood: Likelihood
    prior: Prior
    n_classes: int
    weight: Tensor | None  # (N)
    factorisation: Factorisation = "auto"  # of one-vs-each

    @property
    def n_latents(self) -> int:
        return self.likelihood.n_latents(self.n_classes)

    @property
    def counts(self) -> Tensor:
        return torch.ones(3, dtype=F64) if self.weight is None else self.weight

    def log_label_probabilities(self, f: Tensor) -> Tensor:
        """Logs of the probabilities with which a datum is given each label, (T, classes, N).

        They sum to at most one, but for the densities of Gaussian labels.
        """
        unobserved = self.counts == 0
        return self.counts * self.likelihood.class_log_likelihood(f) - math.log(self.n_classes) * unobserved

    def joint(self, n_draws: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent latents (T, C, N) and labels (T, N) from the joint distribution."""
        if isinstance(self.likelihood, GaussianLabels):
            return self._joint_of_gaussian_labels(self.likelihood.noise, n_draws, generator)
        sampler = self.prior.sampler()
        kept: list[tuple[Tensor, Tensor]] = []
        while sum(len(y) for _, y in kept) < n_draws:
            f = sampler.sample(torch.Size((2 * n_draws, self.n_latents)), generator)
            bounds = self.log_label_probabilities(f).exp().cumsum(-2)
            uniform = torch.rand(len(f), 1, 3, generator=generator, dtype=F64)
            y = (uniform > bounds).sum(-2)  # n_classes where no label came up
            accepted = (y < self.n_classes).all(-1)
            kept.append((f[accepted], y[accepted]))
        return torch.cat([f for f, _ in kept])[:n_draws], torch.cat([y for _, y in kept])[:n_draws]

    def _joint_of_gaussian_labels(
        self, noise: Tensor | float, n_draws: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Labels by the closed form of every labelling's evidence, latents from the Gaussian given the labels."""
        root = self.prior.features[0] if isinstance(self.prior, FeaturePrior) else torch.linalg.cholesky(self._gram())
        classes, precision = torch.arange(self.n_classes), self.counts / noise
        labellings = torch.cartesian_prod(classes, classes, classes)  # (L, N)
        targets = 2 * (labellings.unsqueeze(-2) == classes.unsqueeze(-1)).to(F64) - 1  # (L, C, N)
        residual = targets - self.prior.mean
        whitened = torch.eye(root.shape[-1], dtype=F64) + root.mT @ (precision.unsqueeze(-1) * root)
        inverse = torch.linalg.inv(whitened)
        weights = (residual * precision) @ root @ inverse  # (L, C, R)
        log_evidence = 0.5 * ((weights @ whitened) * weights).sum((-2, -1))
        log_evidence = log_evidence - 0.5 * (precision * residual**2).sum((-2, -1))
        drawn = torch.multinomial(torch.softmax(log_evidence, 0), n_draws, replacement=True, generator=generator)
        normal = torch.randn(n_draws, *weights.shape[1:], generator=generator, dtype=F64)
        noisy = weights[drawn] + normal @ torch.linalg.cholesky(inverse).mT
        return self.prior.mean + noisy @ root.mT, labellings[drawn]

    def labels(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Labels (T, N) given latents, in the joint distribution: proportional to the powers of the likelihood."""
        logs = self.log_label_probabilities(f)
        gumbel = -torch.empty_like(logs).exponential_(generator=generator).log()
        return (logs + gumbel).argmax(-2)

    def run(self, f: Tensor, y: Tensor, n_chains: int, n_sweeps: int, generator: torch.Generator) -> Tensor:
        """Latents (sweeps, chains, T, C, N) of chains that start at `f` (T, C, N), after the start.

        For one-vs-each only their differences mean anything: the latent of each datum's own class is zero.
        """
        start = (f, torch.zeros_like(f))
        if isinstance(self.likelihood, ConjugateLikelihood):
            trace = run_gibbs(
                self.prior,
                self.likelihood,
                y,
                n_chains,
                n_sweeps + 1,
                self.weight,
                generator,
                keep="all",
                n_classes=self.n_classes,
                start=start,
            ).latents
        else:
            data = (self._gram(), self.prior.mean.squeeze(-1), y, self.n_classes)
            drawn = run_one_vs_each_gibbs(
                *data, n_chains, n_sweeps + 1, self.weight, generator, "all", start, self.factorisation
            ).differences
            trace = None if drawn is None else -drawn
        assert trace is not None
        return trace[1:]

    def _gram(self) -> Tensor:
        assert isinstance(self.prior, GramPrior)
        return self.prior.gram[0]


def make_classifier(name: str, variance: float, weight: list[float] | None = None) -> Classifier:
    """The model of that name, as "logistic, features": features are of rank 2, below the 3 data."""
    kind, _, variant = name.partition(", ")
    likelihoods: dict[str, Likelihood] = {
        "logistic": Logistic(),
        "logistic-softmax": LogisticSoftmax(),
        "logistic-softmax at temperature 0.5": LogisticSoftmax(0.5),
        "logistic-softmax by Poisson-gamma": LogisticSoftmax(augmentation="poisson_gamma"),
        "Gaussian labels": GaussianLabels(2.0),
        "one-vs-each": OneVsEach(),
    }
    likelihood, n_classes = likelihoods[kind], 2 if kind == "logistic" else 3
    # As large against every deviation: a prior mean that a sampler forgets must not drown in a wide prior.
    mean = (variance / 5) ** 0.5 * torch.tensor([1.2, -0.8, 0.3], dtype=F64)
    mean = mean[: likelihood.n_latents(n_classes)].unsqueeze(-1)
    gram = prior_gram(variance).unsqueeze(0)
    features = variant == "features"
    prior = FeaturePrior(torch.linalg.cholesky(gram)[..., :2], mean) if features else GramPrior(gram, mean)
    counts = None if weight is None else torch.tensor(weight, dtype=F64)
    factorisation: Factorisation = "dense" if variant == "dense" else "star" if variant == "star" else "auto"
    return Classifier(likelihood, prior, n_classes, counts, factorisation)


@pytest.fixture(scope="session")
def classifier() -> Callable[..., Classifier]:
    return make_classifier


@pytest.fixture(scope="session")
def slice_sampler() -> Callable[..., Tensor]:
    return elliptical_slice


@pytest.fixture(scope="session")
def scores() -> Callable[..., Tensor]:
    return standard_scores

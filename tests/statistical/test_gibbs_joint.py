"""Geweke's joint-distribution test: a right sampler of latents, fed with its own data, keeps the joint distribution.

Alternating new labels given the latents with one Gibbs sweep of latents given the labels leaves the joint distribution
of labels and latents unchanged. Many short chains that start from the exact joint must still have it at the end, which
needs no convergence argument at all, however slowly the sampler mixes (kernel variances of 25 and 100).

What the chains are held against is the prior where the likelihood sums to one over the labels and every datum counts
once: then the latents keep it. With weights, for one-vs-each and for Gaussian labels the joint ``N(f) prod L^s`` has
another marginal: there starts and reference are independent exact draws by rejection (see `conftest`), and the labels
given the latents are proportional to ``L^s``.

Reference: Geweke 2004, Getting it right: joint distribution tests of posterior simulators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs

F64 = torch.float64
N_CHAINS = 5_000
N_ROUNDS = 8
# Largest of about a hundred standard scores; P(|z| > 4.2) = 2.7e-5 each, and the seeds are fixed.
LIMIT = 4.2

MakeClassifier = Callable[..., Any]


def after_rounds(model: Any, seed: int) -> tuple[Tensor, Tensor]:
    """Latents (chains, C, N) and labels (chains, N) after rounds of new labels and one sweep, from an exact start."""
    generator = torch.Generator().manual_seed(seed)
    f, y = model.joint(N_CHAINS, generator)
    for _ in range(N_ROUNDS):
        y = model.labels(f, generator)
        f = model.run(f, y, 1, 1, generator)[0, 0]
    return f, y


def joint_moments(model: Any, f: Tensor, y: Tensor) -> Tensor:
    """First moments of latents and of labels, and the products of latents with both, (draws, moments)."""
    if model.likelihood.name == "one_vs_each":  # its latents matter up to what is common to the classes
        f = (f[..., 1:, :] - f[..., :1, :])[..., model.counts > 0]
    latents = f.flatten(1)
    labels = (y.unsqueeze(-1) == torch.arange(1, model.n_classes)).flatten(1).to(F64)
    row, column = torch.triu_indices(latents.shape[-1], latents.shape[-1])
    crossed = (latents.unsqueeze(-1) * labels.unsqueeze(-2)).flatten(1)
    return torch.cat([latents, labels, latents[:, row] * latents[:, column], crossed], -1)


def two_sample_scores(first: Tensor, second: Tensor) -> Tensor:
    """Differences of the means of independent draws (draws, moments), in standard errors."""
    variance = first.var(0) / len(first) + second.var(0) / len(second)
    return (first.mean(0) - second.mean(0)) / variance.sqrt()


def joint_scores(model: Any) -> Tensor:
    reference = model.joint(N_CHAINS, torch.Generator().manual_seed(100))
    return two_sample_scores(joint_moments(model, *after_rounds(model, 0)), joint_moments(model, *reference))


def prior_scores(model: Any, f: Tensor) -> Tensor:
    """Standard scores of the means and of the second moments of whitened latents, whose prior is N(0, I)."""
    prior = model.prior
    root = torch.linalg.cholesky(prior.gram) if isinstance(prior, GramPrior) else prior.features
    white = ((f - prior.mean) @ torch.linalg.pinv(root[0]).mT).flatten(1)
    means = white.mean(0) * N_CHAINS**0.5
    product = white.unsqueeze(-1) * white.unsqueeze(-2) - torch.eye(white.shape[-1], dtype=F64)
    seconds = product.mean(0) / product.std(0) * N_CHAINS**0.5
    return torch.cat([means, seconds.flatten()])


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("logistic", 5.0),
        ("logistic", 100.0),
        ("logistic, features", 5.0),
        ("logistic-softmax", 5.0),
        ("logistic-softmax", 100.0),
        ("logistic-softmax, features", 5.0),
        ("logistic-softmax at temperature 0.5", 5.0),
        ("logistic-softmax at temperature 0.5, features", 100.0),
        ("logistic-softmax by Poisson-gamma", 5.0),
    ],
)
def test_the_prior_is_kept(name: str, variance: float, classifier: MakeClassifier) -> None:
    """With a likelihood that sums to one, in which every datum counts once."""
    model = classifier(name, variance)
    f, _ = after_rounds(model, 0)
    assert float(prior_scores(model, f).abs().max()) < LIMIT


MODELS = [
    "logistic",
    "logistic, features",
    "logistic-softmax",
    "logistic-softmax, features",
    "logistic-softmax at temperature 0.5",
    "Gaussian labels",
    "Gaussian labels, features",
    "one-vs-each, dense",
    "one-vs-each, star",
]


@pytest.mark.parametrize(("variance", "weight"), [(5.0, [1.0, 3, 2]), (25.0, [2.0, 0, 3])], ids=["5", "25"])
@pytest.mark.parametrize("name", MODELS)
def test_the_joint_distribution_is_kept_with_weights(
    name: str, variance: float, weight: list[float], classifier: MakeClassifier
) -> None:
    assert float(joint_scores(classifier(name, variance, weight)).abs().max()) < LIMIT


@pytest.mark.parametrize("variance", [5.0, 100.0])
@pytest.mark.parametrize("name", ["Gaussian labels", "one-vs-each, dense", "one-vs-each, star"])
def test_the_joint_distribution_is_kept(name: str, variance: float, classifier: MakeClassifier) -> None:
    assert float(joint_scores(classifier(name, variance)).abs().max()) < LIMIT


def predicted_scores(model: Any) -> Tensor:
    """Latents (C) of each datum, drawn from what chains predict there, against exact draws; all moments to the second.

    Unlike the differences that one-vs-each draws in a sweep, these have the mode that is common to the classes, and
    those of a datum of weight 0 are as good as those of any other query.
    """
    generator = torch.Generator().manual_seed(1)
    f, y = model.joint(N_CHAINS, generator)
    gram, prior_mean = model.prior.gram[0], model.prior.mean.squeeze(-1)
    start = (f, torch.zeros_like(f))
    result = run_one_vs_each_gibbs(gram, prior_mean, y, 3, 1, 3, model.weight, generator, start=start)
    mean, covariance = result.predict_latents(gram, gram.diagonal())  # (1, T, C, Q), (1, T, Q, C, C)
    noise = torch.randn(*mean.mT.shape[1:], 1, generator=generator, dtype=F64)
    drawn = mean[0] + (torch.linalg.cholesky(covariance[0]) @ noise).squeeze(-1).mT

    def moments(f: Tensor) -> Tensor:
        row, column = torch.triu_indices(3, 3)
        return torch.cat([f, f[:, row] * f[:, column]], 1).flatten(1)

    reference, _ = model.joint(N_CHAINS, torch.Generator().manual_seed(101))
    return two_sample_scores(moments(drawn), moments(reference))


@pytest.mark.parametrize("weight", [None, [2.0, 0, 3]], ids=["plain", "weighted"])
def test_predicted_one_vs_each_latents_have_the_joint_distribution(
    weight: list[float] | None, classifier: MakeClassifier
) -> None:
    assert float(predicted_scores(classifier("one-vs-each", 25.0, weight)).abs().max()) < LIMIT

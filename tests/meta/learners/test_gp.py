"""The Gaussian-process learner's own arithmetic: distances, mixtures of chains, losses for each row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.meta.learners.base import seeded
from sureshot.meta.learners.gp import GaussianProcessLearner, GaussianProcessTaskPosterior, distance_to_classes
from sureshot.meta.learners.registry import make_learner
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones import make_backbone

D = 4
CPU = torch.device("cpu")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(CPU, seed), dtype=torch.float64)


def learner(name: str, **options: object) -> GaussianProcessLearner:
    found = make_learner(name, make_backbone("identity", (D,)), **options).double().eval()
    assert isinstance(found, GaussianProcessLearner)
    return found


@pytest.mark.parametrize(("name", "scale"), [("linear", 2.5), ("cosine", 0.7)])
def test_distances_are_those_of_the_kernels_features(name: str, scale: float) -> None:
    """To the nearest weighted mean of a class's features, squared; a class without rows is never the nearest."""
    kernel = TaskKernel(name, D, outputscale=scale).double()
    support, query = normal(2, 6, D), normal(2, 5, D, seed=1)
    membership = torch.zeros(2, 3, 6, dtype=torch.float64)
    membership[0, 0, :4], membership[0, 1, 4:] = torch.tensor([1.0, 2.0, 0.5, 0.0]), 1.0
    membership[1, 2, ::2], membership[1, 1, 1::2] = 1.0, 3.0

    def features(z: Tensor) -> Tensor:
        z = z / D**0.5 if name == "linear" else z / z.norm(dim=-1, keepdim=True)
        return scale**0.5 * z

    expected = torch.full((2, 5), torch.inf, dtype=torch.float64)
    for task in range(2):
        for share in membership[task]:
            if share.sum() > 0:
                centre = (share[:, None] * features(support[task])).sum(0) / share.sum()
                expected[task] = torch.minimum(expected[task], (features(query[task]) - centre).square().sum(-1))
    found = distance_to_classes(kernel, support, membership, query)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)  # scales are kept in float32


@pytest.mark.parametrize("name", ["ove_gibbs_pl", "logistic_softmax_gibbs_pl"])
def test_latents_have_the_moments_of_the_mixture_of_chains(name: str) -> None:
    """``E[f]`` and ``E[f^2] - E[f]^2`` over chains that differ."""
    found = learner(name, n_chains=3, n_sweeps_prediction=2)
    x, y = normal(2, 6, D), torch.arange(3).repeat(2, 2)
    posterior = found.condition_embedded(TaskRows(x, y, 3), seeded(CPU))
    assert isinstance(posterior, GaussianProcessTaskPosterior)
    query = normal(2, 5, D, seed=1)
    mean, covariance = posterior.latent.query(found.kernel.cross(x, query), found.kernel.variance(query))
    variance = covariance.diagonal(dim1=-2, dim2=-1).mT if covariance.dim() > mean.dim() else covariance
    assert bool((mean.var(0) > 1e-4).all())
    first, second = mean.mean(0), (mean.square() + variance).mean(0)
    latents = posterior.latents(query)
    torch.testing.assert_close(latents.mean, first.mT, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(latents.variance, (second - first.square()).mT, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["ove_gibbs_pl", "logistic_softmax_gibbs_pl"])
@pytest.mark.parametrize("rule", ["integral", "plug_in"])
def test_probabilities_are_averaged_over_chains(name: str, rule: str) -> None:
    """Those of each chain's Gaussian by itself."""
    found = learner(name, n_chains=3, n_sweeps_prediction=2, rule=rule)
    x, y, query = normal(2, 6, D), torch.arange(3).repeat(2, 2), normal(2, 5, D, seed=1)
    posterior = found.condition_embedded(TaskRows(x, y, 3), seeded(CPU))
    assert isinstance(posterior, GaussianProcessTaskPosterior)
    mean, covariance = posterior.latent.query(found.kernel.cross(x, query), found.kernel.variance(query))
    chains = [found.predictive_likelihood.predict(mean[s], covariance[s], rule) for s in range(3)]
    expected = (chains[0] + chains[1] + chains[2]) / 3
    torch.testing.assert_close(posterior.predict(query), expected.mT, rtol=1e-10, atol=1e-12)


class MeansOnly(Posterior):
    """Refuses to be asked for what the plug-in rule does not read."""

    def __init__(self, inner: Posterior) -> None:
        self.inner = inner

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        raise AssertionError("covariances were asked for")

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.inner.query_mean(cross)


@pytest.mark.parametrize("name", ["dkt", "ove_mean_field_pl", "ove_gibbs_pl", "logistic_softmax_gibbs_pl"])
@pytest.mark.parametrize("learning", [False, True])
def test_the_plug_in_rule_asks_for_means_alone(name: str, learning: bool) -> None:
    """Probabilities, and gradients in kernel, support and query, are those by all moments."""
    options = {} if name in ("dkt", "ove_mean_field_pl") else {"n_chains": 3, "n_sweeps_prediction": 2}
    found = learner(name, rule="plug_in", **options)
    x, y, query = normal(2, 6, D), torch.arange(3).repeat(2, 2), normal(2, 5, D, seed=1)
    leaves = [x.requires_grad_(learning), query.requires_grad_(learning)]
    leaves += [parameter for parameter in found.kernel.parameters() if learning and parameter.requires_grad]
    posterior = found._condition(TaskRows(x, y, 3), seeded(CPU), training=learning)
    mean, covariance = posterior.latent.query(*posterior.prior.queries(query))
    by_all = found.predictive_likelihood.predict_mixture(mean, covariance, "plug_in").mT
    by_means = replace(posterior, rule="plug_in", latent=MeansOnly(posterior.latent)).predict(query)
    torch.testing.assert_close(by_means, by_all, rtol=1e-10, atol=1e-12)
    if learning:
        weight = normal(*by_all.shape, seed=2)
        gradients = [torch.autograd.grad((p * weight).sum(), leaves, retain_graph=True) for p in (by_means, by_all)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
            assert bool((one != 0).any())


@pytest.mark.parametrize("padded", [False, True])
def test_a_marginal_loss_is_in_nats_for_each_row_of_support_and_query(padded: bool) -> None:
    """Least squares, whose evidence is that of dense Gaussians."""
    found = learner("dkt", kernel="linear", noise=0.3, outputscale=2.0, prior_mean=0.25)
    x, y = normal(1, 9, D), torch.tensor([[0, 1, 2, 2, 1, 0, 0, 1, 2]])
    mask = torch.tensor([[True, True, False, True]]) if padded else None
    tasks = Tasks(x[:, :4], y[:, :4], x[:, 4:], y[:, 4:], 3, support_mask=mask)
    kept = torch.arange(9) != 2 if padded else torch.arange(9) >= 0
    rows, labels = x[0, kept], y[0, kept]
    covariance = 2.0 * rows @ rows.mT / D + 0.3 * torch.eye(len(rows))
    expected = 0.0
    for c in range(3):
        target = torch.where(labels == c, 1.0, -1.0)
        expected += multivariate_normal([0.25] * len(rows), covariance.numpy()).logpdf(target.numpy())
    assert float(found(tasks).detach()) == pytest.approx(-expected / len(rows), rel=1e-6)  # scales are kept in float32

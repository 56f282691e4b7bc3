"""The sampler for diagonal sites against dense algebra; tests/statistical has its long-run behaviour."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites
from sureshot.inference.gibbs import (
    GibbsState,
    draw_latents,
    gibbs_step,
    predictive_moments,
    run_gibbs,
)
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.polya_gamma import half_tanh_ratio, polya_gamma_variance

F64 = torch.float64


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=F64)


def squared_exponential(x: Tensor, z: Tensor, variance: float = 4.0) -> Tensor:
    return variance * torch.exp(-0.5 * torch.cdist(x, z) ** 2)


def priors(rank: int = 3) -> dict[str, GramPrior | FeaturePrior]:
    features = inputs(2, 1, 8, rank)
    mean = inputs(2, 3, 1, seed=3)
    return {"gram": GramPrior(features @ features.mT, mean), "features": FeaturePrior(features, mean)}


@pytest.mark.parametrize("kind", ["gram", "features"])
def test_latent_draws_have_the_conditional_moments(kind: str) -> None:
    prior = priors()[kind]
    n_draws = 20_000
    precision = torch.rand(2, 3, 8, generator=seeded(1), dtype=F64) * 2
    precision[..., 0] = 0
    sites = Sites(precision, inputs(2, 3, 8, seed=2))
    posterior = prior.condition(sites)
    many = Sites(*(part.expand(n_draws, 2, 3, 8) for part in sites))
    drawn = draw_latents(prior, many, seeded(4))
    z = (drawn.mean(0) - posterior.mean) / (posterior.variance / n_draws).sqrt()
    assert float(z.abs().max()) < 4.5
    ratio = drawn.var(0) / posterior.variance
    assert float((ratio - 1).abs().max()) < 4.5 * (2 / n_draws) ** 0.5
    # Correlations too: a projection on fixed directions has the variance of the dense posterior.
    direction = inputs(8, seed=5)
    gram = prior.gram if isinstance(prior, GramPrior) else prior.features @ prior.features.mT
    eye = torch.eye(8, dtype=F64)
    dense = gram - gram @ torch.linalg.solve(eye + precision.unsqueeze(-1) * gram, precision.unsqueeze(-1) * gram)
    expected = (direction @ dense * direction).sum(-1)
    ratio = (drawn @ direction).var(0) / expected
    assert float((ratio - 1).abs().max()) < 4.5 * (2 / n_draws) ** 0.5


def test_blocks_of_chains_change_nothing_but_the_order_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = priors()["gram"]
    y = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1], [2, 2, 2, 1, 1, 1, 0, 0]])
    result = run_gibbs(prior, LogisticSoftmax(), y, 6, 3, generator=seeded(0))
    cross = inputs(2, 1, 8, 5, seed=9)
    diagonal = torch.full((2, 1, 5), 20.0, dtype=F64)
    whole = predictive_moments(result, prior, cross, diagonal)
    monkeypatch.setattr("sureshot.inference.gibbs.OF_DRAWS", 1)
    torch.testing.assert_close(predictive_moments(result, prior, cross, diagonal), whole)
    single = draw_latents(prior, result.sites, seeded(1))
    assert single.shape == (6, 2, 3, 8)
    assert bool(torch.isfinite(single).all())


@pytest.mark.parametrize("kind", ["gram", "features"])
@pytest.mark.parametrize(
    "likelihood", [LogisticSoftmax(), LogisticSoftmax(0.5, augmentation="poisson_gamma")], ids=["nm", "pg"]
)
def test_run_gibbs_shapes_and_repeatability(kind: str, likelihood: LogisticSoftmax) -> None:
    prior = priors()[kind]
    y = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1], [2, 2, 2, 1, 1, 1, 0, 0]])
    result = run_gibbs(prior, likelihood, y, 4, 6, generator=seeded(0), keep="all")
    assert result.latents is not None
    assert result.latents.shape == (6, 4, 2, 3, 8)
    again = run_gibbs(prior, likelihood, y, 4, 6, generator=seeded(0))
    torch.testing.assert_close(again.sites.precision, result.sites.precision, rtol=0, atol=0)
    assert again.latents is None
    if kind == "gram":
        cross, diagonal = inputs(2, 1, 8, 5, seed=9), torch.full((2, 1, 5), 20.0, dtype=F64)
    else:
        cross = inputs(2, 1, 5, 3, seed=9)
        diagonal = cross.square().sum(-1)
    mean, variance = predictive_moments(result, prior, cross, diagonal)
    assert mean.shape == variance.shape == (4, 2, 3, 5)


def test_step_is_pure_and_a_start_is_used() -> None:
    prior = GramPrior(squared_exponential(inputs(5, 2), inputs(5, 2)).unsqueeze(0), torch.tensor(0.3, dtype=F64))
    y = torch.tensor([0, 1, 1, 0, 1])
    state = GibbsState(Sites(torch.full((3, 1, 5), 0.2, dtype=F64), torch.full((3, 1, 5), 0.5, dtype=F64)))
    after, info = gibbs_step(state, prior, Logistic(), y, None, seeded(0))
    again, _ = gibbs_step(state, prior, Logistic(), y, None, seeded(0), prior.sampler())
    torch.testing.assert_close(after.sites.precision, again.sites.precision, rtol=0, atol=0)
    assert info.latents.shape == after.sites.precision.shape == (3, 1, 5)
    torch.testing.assert_close(after.sites.shift, (y.to(F64) - 0.5).expand(3, 1, 5))
    centre = inputs(1, 5, seed=8)
    started = run_gibbs(
        prior,
        Logistic(),
        y,
        3,
        1,
        generator=seeded(0),
        keep="all",
        start=(centre, torch.zeros(1, 5, dtype=F64)),
    )
    assert started.latents is not None
    torch.testing.assert_close(started.latents[0], centre.expand(3, 1, 5))


def test_a_start_has_the_variances_asked_for() -> None:
    prior = GramPrior(squared_exponential(inputs(3, 2), inputs(3, 2)).unsqueeze(0), torch.tensor(0.3, dtype=F64))
    n_chains, mean, variance = 20_000, inputs(1, 3, seed=8), torch.tensor([[0.04, 1.0, 9.0]], dtype=F64)
    started = run_gibbs(
        prior,
        Logistic(),
        torch.tensor([0, 1, 1]),
        n_chains,
        1,
        generator=seeded(0),
        keep="all",
        start=(mean, variance),
    )
    assert started.latents is not None
    drawn = started.latents[0]
    assert float(((drawn.mean(0) - mean) / (variance / n_chains).sqrt()).abs().max()) < 4.5
    assert float((drawn.var(0) / variance - 1).abs().max()) < 4.5 * (2 / n_chains) ** 0.5


@pytest.mark.parametrize("kind", ["gram", "features"])
def test_weights_count_in_every_sweep(kind: str) -> None:
    """A logistic site of weight s has the shift s (y - 1/2), and its precision is a draw from PG(s, f)."""
    features = inputs(1, 5, 3)
    mean = torch.tensor(0.3, dtype=F64)
    prior = GramPrior(features @ features.mT, mean) if kind == "gram" else FeaturePrior(features, mean)
    y, weight = torch.tensor([0, 1, 1, 0, 1]), torch.tensor([1, 3, 0, 2, 7], dtype=F64)
    n_chains = 4000
    for n_sweeps in (1, 2, 3):
        result = run_gibbs(prior, Logistic(), y, n_chains, n_sweeps, weight, seeded(0), keep="all")
        assert result.latents is not None
        expected = weight * (y.to(F64) - 0.5)
        torch.testing.assert_close(result.sites.shift, expected.expand(n_chains, 1, 5), rtol=0, atol=0)
        counted, precision = weight > 0, result.sites.precision
        assert not bool(precision[..., ~counted].any())
        f = result.latents[-1][..., counted]
        centred = precision[..., counted] - weight[counted] * half_tanh_ratio(f.square())
        standardised = centred / (weight[counted] * polya_gamma_variance(f)).sqrt()
        assert float(standardised.mean(0).abs().max()) < 4.5 / n_chains**0.5


def test_bad_input() -> None:
    prior = GramPrior(torch.eye(3, dtype=F64).unsqueeze(0), torch.tensor(0.0, dtype=F64))
    y = torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="mean_field"):
        run_gibbs(prior, Logistic(), y, weight=torch.tensor([1.0, 0.5, 1.0]))
    with pytest.raises(ValueError, match="n_chains and n_sweeps"):
        run_gibbs(prior, Logistic(), y, n_chains=0)
    with pytest.raises(TypeError, match="run_one_vs_each_gibbs"):
        run_gibbs(prior, OneVsEach(), y)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": torch.tensor([0, 2, -1])}, "y must hold labels from 0 to n_classes - 1 = 1, but holds -1 to 2"),
        ({"y": torch.tensor([0.0, 1.0, 1.0])}, "its dtype is torch.float32"),
        ({"y": torch.tensor([0, 1])}, "one target for each of the 3 rows, got 2"),
        ({"weight": torch.tensor([3.0])}, "for each of the 3 labels"),
        ({"keep": "every"}, "keep must be 'last' or 'all', got 'every'"),
    ],
)
def test_what_is_not_labels_of_the_rows_is_named(changed: dict[str, Any], message: str) -> None:
    prior = GramPrior(torch.eye(3, dtype=torch.float64)[None], torch.tensor(0.0, dtype=torch.float64))
    arguments = {"y": torch.tensor([0, 1, 1]), "n_classes": 2} | changed
    with pytest.raises(ValueError, match=message):
        run_gibbs(prior, Logistic(), n_chains=2, n_sweeps=2, **arguments)

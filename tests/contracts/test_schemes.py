"""The contract of every inference scheme with every likelihood that it takes, against dense matrices.

`PAIRS` follows from what schemes take, so a new one is here as soon as it has a name; what its posterior is, `expected`
says by `oracles.dense`, which knows nothing of the library. What chains draw is compared in
`tests/estimators/gp/test_oracle.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.gaussian.posterior import LatentMoments
from sureshot.gaussian.recomputed import SiteWeightPosterior, WeightPosterior
from sureshot.inference import SCHEMES, schemes_for
from sureshot.inference.schemes import Conditioned, Effort, Gibbs, Problem, Request, Scheme
from sureshot.likelihoods import LIKELIHOODS, get_likelihood
from tests.oracles import dense

PAIRS = [(likelihood, name) for likelihood in LIKELIHOODS for name in schemes_for(likelihood)]
every_pair = pytest.mark.parametrize(("likelihood", "name"), PAIRS)
with_sites = pytest.mark.parametrize(
    ("likelihood", "name"), [(likelihood, name) for likelihood, name in PAIRS if SCHEMES[name].has_sites]
)

N, R, Q = 12, 5, 4
PRIOR_MEAN, TAU, NOISE = -0.7, 0.6, 0.4
RNG = np.random.default_rng(0)
FEATURES, QUERIES = RNG.standard_normal((N, R)), RNG.standard_normal((Q, R))
WEIGHT = RNG.integers(1, 4, N).astype(float)
OPTIONS = {"softmax": {"temperature": TAU}, "logistic_softmax": {"temperature": TAU}, "least_squares": {"noise": NOISE}}
CLOSE = 2e-4  # fixed points are sought until a step is small; all else is rounding


def scheme_of(name: str) -> Scheme:
    return Gibbs(n_chains=3, n_sweeps=4) if name == Gibbs.name else SCHEMES[name]()


def problem_of(likelihood: str, missing: bool = False) -> Problem:
    """Three classes, or two; one may have no row."""
    n_classes = 2 if likelihood == "logistic" else 3
    labels = torch.arange(N) % n_classes
    if missing:
        labels, n_classes = torch.where(labels > 0, labels + 1, 0), n_classes + 1
    features, weight = torch.from_numpy(FEATURES), torch.from_numpy(WEIGHT)
    found = get_likelihood(likelihood, **OPTIONS.get(likelihood, {}))
    return Problem(features, found, labels, n_classes, weight, PRIOR_MEAN)


def conditioned(likelihood: str, name: str, missing: bool = False, **request: Any) -> Conditioned:
    request = {"generator": torch.Generator().manual_seed(1)} | request
    return scheme_of(name).condition(problem_of(likelihood, missing), Request(**request))


def queried(found: Conditioned) -> LatentMoments:
    """Means (S, L, Q), and variances of that shape or covariances."""
    queries = torch.from_numpy(QUERIES)[None]
    return found.posterior.query(queries, queries.square().sum(-1))


def expected(likelihood: str, name: str) -> tuple[dense.Latents, float]:
    """Latents at the queries, and the log evidence or its bound, of schemes without draws."""
    tau = OPTIONS.get(likelihood, {}).get("temperature", 1.0)
    y = problem_of(likelihood).y.numpy()
    problem = dense.Problem(FEATURES, y, WEIGHT, lambda a, b: a @ b.T, PRIOR_MEAN, tau, NOISE)
    if name == "exact":
        return dense.least_squares(problem, QUERIES)
    if name == "laplace":
        mode, sites = dense.softmax_mode(problem) if likelihood == "softmax" else dense.logistic_mode(problem)
        label = WEIGHT @ dense.class_logs(likelihood, mode.T, tau)[np.arange(N), y]
        mean = PRIOR_MEAN + (sites[1] - sites[0] * mode) @ FEATURES @ QUERIES.T
        latents = replace(dense.given_sites(problem, sites, QUERIES), mean=mean[None])
        return latents, dense.laplace_evidence(problem, mode, sites, label)
    # Natural gradients of all rows in one batch are so many steps of coordinate ascent.
    steps = {"steps": 20, "tolerance": 0.0} if name == "natural_gradient" else {}
    sites, bound = dense.mean_field(likelihood, problem, **steps)
    return dense.given_sites(problem, sites, QUERIES), bound


@every_pair
def test_posterior_and_evidence_are_those_of_dense_matrices(likelihood: str, name: str) -> None:
    found = conditioned(likelihood, name)
    mean, spread = queried(found)
    if SCHEMES[name].samples:
        assert np.isnan(found.log_evidence)
        assert len(mean) == 3
        if isinstance(found.posterior, SiteWeightPosterior):  # its variances given what was drawn
            for own, variance in zip(found.posterior.precision.flatten(0, 1), spread.flatten(0, 1), strict=True):
                inverse = np.linalg.inv(np.eye(R) + FEATURES.T @ (own.numpy()[:, None] * FEATURES))
                np.testing.assert_allclose(variance, np.einsum("qi,ij,qj->q", QUERIES, inverse, QUERIES), rtol=1e-9)
        return
    latents, evidence = expected(likelihood, name)
    np.testing.assert_allclose(mean, latents.mean, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(spread, latents.variance, rtol=0, atol=CLOSE)
    assert found.log_evidence == pytest.approx(evidence, abs=CLOSE)


@every_pair
def test_a_smaller_effort_finds_the_same_posterior(likelihood: str, name: str) -> None:
    full = queried(conditioned(likelihood, name))
    for effort in (Effort.MODE, Effort.MEANS):
        for one, other in zip(queried(conditioned(likelihood, name, effort=effort)), full, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@with_sites
def test_means_of_rows_left_out_take_no_full_effort(likelihood: str, name: str) -> None:
    full, means = (conditioned(likelihood, name, effort=effort) for effort in (Effort.FULL, Effort.MEANS))
    share = torch.ones(N, dtype=torch.float64)
    torch.testing.assert_close(means.leave_one_out(share)[0], full.leave_one_out(share)[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.tensor(means.log_evidence), torch.tensor(full.log_evidence), rtol=1e-3, atol=1e-3)


@every_pair
def test_sites_are_there_for_schemes_that_say_so(likelihood: str, name: str) -> None:
    found = conditioned(likelihood, name)
    assert (found.sites is not None) == (found.moments is not None) == SCHEMES[name].has_sites
    assert (found.dual is not None) == SCHEMES[name].seeks_mode


@with_sites
def test_sites_of_rows_pull_the_weights(likelihood: str, name: str) -> None:
    """At a mode or a fixed point the weights are what the rows' sites make of them."""
    problem, found = problem_of(likelihood), conditioned(likelihood, name).posterior
    assert isinstance(found, WeightPosterior)
    precision, pull = scheme_of(name).row_sites(found, problem)
    torch.testing.assert_close(pull @ problem.features, found.weights, rtol=0, atol=CLOSE)
    for own, c in zip(precision[0], range(pull.shape[1]), strict=False):
        noisy = torch.eye(R, dtype=torch.float64) + problem.features.mT @ (own[:, None] * problem.features)
        factor = found.factor(0, c)
        torch.testing.assert_close(factor @ factor.mT, noisy, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(("likelihood", "name"), [pair for pair in PAIRS if pair[0] != "logistic"])
def test_a_class_without_rows_changes_no_other(likelihood: str, name: str) -> None:
    mean, spread = queried(conditioned(likelihood, name))
    with_it, wider = queried(conditioned(likelihood, name, missing=True))
    torch.testing.assert_close(with_it[:, [0, 2, 3]], mean, rtol=1e-9, atol=1e-9)
    alone = wider[..., 1, 1] if spread.dim() == 4 else wider[:, 1]  # covariances of classes that draws couple
    if not SCHEMES[name].is_exact:  # to a regression every row says that it is not of the class
        torch.testing.assert_close(with_it[:, 1], torch.full_like(with_it[:, 1], PRIOR_MEAN))
        torch.testing.assert_close(alone, torch.from_numpy((QUERIES**2).sum(1)).expand_as(alone))


@pytest.mark.parametrize(("likelihood", "name"), [pair for pair in PAIRS if SCHEMES[pair[1]].seeks_mode])
def test_a_mode_is_found_from_anywhere(likelihood: str, name: str) -> None:
    found = conditioned(likelihood, name)
    assert found.dual is not None
    dual = 0.3 * torch.randn(found.dual.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for start in ({"dual": dual}, {"near": dual @ torch.from_numpy(FEATURES)}):
        again = conditioned(likelihood, name, **start)
        torch.testing.assert_close(queried(again)[0], queried(found)[0], rtol=0, atol=CLOSE)


def test_a_likelihood_has_the_schemes_that_take_it_and_those_with_sites_first() -> None:
    for likelihood, kind in LIKELIHOODS.items():
        names = schemes_for(likelihood)
        assert names
        assert all(SCHEMES[name].takes(kind) for name in names)
        has_sites = [SCHEMES[name].has_sites for name in names]
        assert has_sites == sorted(has_sites, reverse=True)
    assert schemes_for("none of them") == ()

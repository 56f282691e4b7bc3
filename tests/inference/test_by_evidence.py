"""Evidence of approximations, and what is learnt by it, against dense formulas in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.by_name import BY_NAME, FEATURE_MAPS
from sureshot.approximations.random_features import FeatureMap
from sureshot.approximations.vfe import FreeEnergy
from sureshot.inference.by_evidence import LEAST_NOISE, Regression, learnt_by_evidence, log_evidence_of, moved
from sureshot.inference.least_squares import regression_sites, weight_space_of
from sureshot.inference.natural_gradient import InducingBatch, InducingPrior, natural_gradient_step, prior_state
from sureshot.kernels import RBF, Expression, Matern
from sureshot.likelihoods.gaussian import GaussianNoise

RNG = np.random.default_rng(0)
N, D, P = 40, 3, 2
X = torch.from_numpy(RNG.normal(size=(N, D)))
WEIGHT = torch.from_numpy(RNG.integers(1, 4, size=N).astype(float))
TARGETS = torch.stack([X[:, 0].sin(), X[:, 1].square() - 1]) + 0.1 * torch.from_numpy(RNG.normal(size=(P, N)))
MEAN = torch.tensor([0.1, -0.2], dtype=torch.float64)
ROWS = Regression(X, TARGETS, MEAN, WEIGHT)
KERNEL: Expression = 1.7 * (RBF([1.3, 0.8, 2.0]) + 0.3)
POINTS = torch.from_numpy(RNG.normal(size=(7, D)))
NOISE = 0.07
SCALES = tuple(KERNEL.parameters)
COPIES = np.repeat(np.arange(N), WEIGHT.numpy().astype(int))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(name: str, kernel: Expression = KERNEL, points: Tensor = POINTS) -> Finite:
    kind = BY_NAME[name]
    if issubclass(kind, FeatureMap):
        return kind.drawn(kernel, D, 16, generator())
    return kind(kernel, points)  # type: ignore[call-arg]


def seen_through(points: Tensor, kernel: Expression = KERNEL) -> np.ndarray:
    cross = kernel(points, X).numpy()
    return cross.T @ np.linalg.solve(kernel(points).numpy(), cross)


def of_copies(covariance: np.ndarray, noise: float = NOISE) -> float:
    """Log density of all targets, every row as often as it weighs."""
    whole = covariance[np.ix_(COPIES, COPIES)] + noise * np.eye(len(COPIES))
    y = (TARGETS - MEAN[:, None]).numpy()[:, COPIES]
    return float(stats.multivariate_normal(np.zeros(len(COPIES)), whole).logpdf(y).sum())


@pytest.mark.parametrize("name", BY_NAME)
def test_evidence_is_that_of_the_dense_covariance(name: str) -> None:
    basis = made(name)
    if name in FEATURE_MAPS:
        phi = basis.features(X).numpy()
        expected = of_copies(phi @ phi.T)
    else:
        covariance, own = seen_through(POINTS), KERNEL.diagonal(X).numpy()
        left = own - np.diag(covariance)
        price = P * left[COPIES].sum() / (2 * NOISE) if name in ("vfe", "svgp") else 0
        expected = of_copies(covariance + (np.diag(left) if name == "fitc" else 0)) - price
    np.testing.assert_allclose(float(log_evidence_of(basis, ROWS, NOISE)), expected, rtol=1e-9)


def test_a_bound_is_below_the_evidence_and_meets_it_at_all_rows() -> None:
    exact = of_copies(KERNEL(X).numpy())
    gaps = []
    for seed in range(20):
        points = torch.randn(3 + seed, D, dtype=torch.float64, generator=generator(seed))
        gaps.append(exact - float(log_evidence_of(made("vfe", points=points), ROWS, NOISE)))
    assert min(gaps) > 0
    np.testing.assert_allclose(float(log_evidence_of(made("vfe", points=X), ROWS, NOISE)), exact, rtol=1e-7)
    fewer = [float(log_evidence_of(made("vfe", points=X[:m]), ROWS, NOISE)) for m in range(1, N, 3)]
    assert (np.diff(fewer) > -1e-6).all()


def test_the_evidence_of_fitc_is_no_bound() -> None:
    """Of noise that is larger than the model's, it is larger: no inducing input sees a row."""
    wild = 0.6 * torch.from_numpy(np.random.default_rng(1).normal(size=N))
    rows = Regression(X, wild[None], MEAN[:1] * 0, torch.ones_like(WEIGHT))
    far = POINTS[:1] + 8
    noise = 0.01
    covariance = KERNEL(X).numpy() + noise * np.eye(N)
    exact = float(stats.multivariate_normal.logpdf(wild.numpy(), np.zeros(N), covariance))
    assert float(log_evidence_of(made("fitc", points=far), rows, noise)) > exact + 5
    assert float(log_evidence_of(made("vfe", points=far), rows, noise)) < exact


@pytest.mark.parametrize("name", [name for name, kind in BY_NAME.items() if kind.learnt])
def test_gradients_are_finite_differences(name: str) -> None:
    basis = made(name)
    numbers = {key: KERNEL.parameters[key].log() for key in SCALES} | {"noise": torch.tensor(NOISE).double().log()}
    numbers |= {key: getattr(basis, key) for key in basis.learnt}
    numbers = {key: part.clone().requires_grad_() for key, part in numbers.items()}

    def evidence(*parts: Tensor) -> Tensor:
        at, noise = moved(basis, dict(zip(numbers, parts, strict=True)))
        return log_evidence_of(at, ROWS, noise)

    assert torch.autograd.gradcheck(evidence, tuple(numbers.values()), eps=1e-6, atol=1e-4, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", [name for name, kind in BY_NAME.items() if kind.learnt])
def test_what_is_learnt_is_more_probable(name: str) -> None:
    basis = made(name)
    found, noise = learnt_by_evidence(basis, NOISE, ROWS, SCALES, 15, generator())
    assert float(log_evidence_of(found, ROWS, noise)) > float(log_evidence_of(basis, ROWS, NOISE)) + 1
    assert not any(part.requires_grad for part in found.kernel.parameters.values())
    same = learnt_by_evidence(basis, NOISE, ROWS, SCALES, 15, generator())
    assert torch.equal(same[0].features(X), found.features(X))
    only, _ = learnt_by_evidence(basis, NOISE, ROWS, ["outputscale"], 3, generator())
    assert [name for name in SCALES if torch.equal(only.kernel.parameters[name], KERNEL.parameters[name])] == [
        *SCALES[1:]
    ]


def test_noise_has_a_least_value() -> None:
    smooth = Regression(X, X[:, 0][None].sin(), MEAN[:1] * 0, torch.ones_like(WEIGHT))
    _, noise = learnt_by_evidence(made("vfe", points=X), 1e-4, smooth, SCALES, 30, generator())
    assert LEAST_NOISE <= noise < 1e-4
    _, noise = learnt_by_evidence(made("vfe"), 1e-12, smooth, SCALES, 1, generator())
    assert noise >= LEAST_NOISE


def test_a_full_natural_gradient_step_is_the_optimum_of_vfe() -> None:
    """From any q: its moments are those of least squares, and its bound is VFE's."""
    basis = made("vfe")
    features, own = basis.queries(X)
    prior = InducingPrior.whitened(len(POINTS), torch.float64)
    state = prior_state(prior, torch.Size([P]))
    elsewhere = torch.randn(P, len(POINTS), dtype=torch.float64, generator=generator())
    state = state._replace(linear=state.linear + elsewhere)
    residual = (own - features.square().sum(-1))[None]
    batch = InducingBatch(features[None], residual, MEAN[:, None], TARGETS, WEIGHT)
    for _ in range(2):
        state, info = natural_gradient_step(state, prior, GaussianNoise(NOISE), batch)
    expected = weight_space_of(features, TARGETS, MEAN, WEIGHT, NOISE)
    np.testing.assert_allclose(state.mean(), expected.weights[0], atol=1e-9)
    np.testing.assert_allclose(
        torch.cholesky_inverse(state.factor())[0], torch.cholesky_inverse(expected.factor(0, 0)), atol=1e-9
    )
    np.testing.assert_allclose(float(info.bound), float(log_evidence_of(basis, ROWS, NOISE)), rtol=1e-9)


def test_batches_lead_to_where_all_rows_do() -> None:
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.uniform(-2, 2, size=(1100, 2)))
    y = (2 * x[:, 0]).sin() + 0.5 * x[:, 1] + 0.3 * torch.from_numpy(rng.normal(size=1100))
    rows = Regression(x, y[None], y.new_zeros(1), torch.ones(1100, dtype=torch.float64))
    start, noise = FreeEnergy(Matern(2.5, 1.0) * 1.0, x[:12]), 1.0
    scales = tuple(start.kernel.parameters)
    whole, by_whole = learnt_by_evidence(start, noise, rows, scales, 60, generator())
    basis, by_batches = learnt_by_evidence(made("svgp", start.kernel, x[:12]), noise, rows, scales, 400, generator())
    best, found = (float(log_evidence_of(one, rows, s)) for one, s in ((whole, by_whole), (basis, by_batches)))
    assert best - found < 20 < best - float(log_evidence_of(start, rows, noise))
    np.testing.assert_allclose(by_batches, by_whole, rtol=0.05)


def test_variances_far_away_are_the_prior_s_but_for_sor() -> None:
    far = X[:1] + 50 * torch.ones(1, D, dtype=torch.float64)
    kernel = 1.7 * RBF([1.3, 0.8, 2.0])
    for name in ("sor", "fitc", "vfe", "svgp"):
        basis = made(name, kernel)
        posterior = basis.prior(X[None], MEAN[:, None]).condition(regression_sites(TARGETS, WEIGHT, NOISE))
        variance = float(posterior.query(*basis.queries(far[None])).spread[0, 0])
        np.testing.assert_allclose(variance, 0 if name == "sor" else 1.7, atol=1e-8)

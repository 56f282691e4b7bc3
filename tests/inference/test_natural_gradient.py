"""Stochastic natural gradients: equal to coordinate ascent on a full batch, convergent on small ones."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from sureshot.approximations.exact import Roots
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.mean_field import fit_mean_field, initial_posterior, mean_field_step
from sureshot.inference.natural_gradient import (
    InducingBatch,
    InducingPrior,
    decaying_steps,
    fit_natural_gradient,
    full_steps,
    natural_gradient_step,
    prior_state,
)
from sureshot.inference.objectives import evidence_bound
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
N, R = 12, 4


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(n, classes, seed):
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def full_batch(features, offset, y, weight=None):
    return InducingBatch(features, features.new_zeros(1, features.shape[-2]), offset, y, weight)


def batch_moments(state, batch):
    """Means and variances of the latents of a batch under q(u), with explicit covariances."""
    k, mean, covariance = batch.projection, state.mean(), torch.cholesky_inverse(state.factor())
    return batch.offset + (k @ mean.unsqueeze(-1)).squeeze(-1), batch.residual + ((k @ covariance) * k).sum(-1)


def whitened_kl(state):
    """KL(q(u) || N(0, I)) summed over the latent functions, by torch's formula."""
    posterior = MultivariateNormal(state.mean(), torch.cholesky_inverse(state.factor()))
    prior = MultivariateNormal(torch.zeros_like(state.mean()), torch.eye(state.mean().shape[-1], dtype=torch.float64))
    return kl_divergence(posterior, prior).sum(-1)


def bound_at(state, prior, likelihood, batch, scale=1.0):
    """The evidence bound at a state, which a step reports."""
    return natural_gradient_step(state, prior, likelihood, batch, scale)[1].bound


def inducing_problem():
    """RBF data with four inducing inputs of their own, a prior mean and a residual variance."""
    x, z = normal(N, 2, seed=1), normal(R, 2, seed=2)
    Kzz = 1.5 * torch.exp(-0.5 * torch.cdist(z, z) ** 2)
    Kxz = 1.5 * torch.exp(-0.5 * torch.cdist(x, z) ** 2)
    k = torch.linalg.solve(Kzz, Kxz.T).T
    residual = 1.5 - (k * Kxz).sum(-1)
    return Kxz, Kzz, k, residual, torch.tensor(0.4, dtype=torch.float64), labels(N, 2, seed=3)


@pytest.mark.parametrize(("likelihood", "classes"), [(Logistic(), 2), (OneVsEach(), 3), (LogisticSoftmax(), 3)])
def test_full_batch_with_step_one_is_coordinate_ascent(likelihood, classes):
    features = normal(1, N, R, seed=4)
    weight = normal(N, seed=5).abs()
    y = labels(N, classes, seed=6)
    mean = torch.tensor(-0.3, dtype=torch.float64)
    feature_prior = FeaturePrior(features, mean)
    posterior = initial_posterior(feature_prior, likelihood, y, classes)
    prior = InducingPrior.whitened(R, torch.float64)
    state = prior_state(prior, torch.Size([likelihood.n_latents(classes)]))
    batch = full_batch(features, mean, y, weight)
    for _ in range(6):
        posterior, _ = mean_field_step(posterior, feature_prior, likelihood, y, weight)
        state, _ = natural_gradient_step(state, prior, likelihood, batch)
        latent_mean, latent_variance = batch_moments(state, batch)
        torch.testing.assert_close(latent_mean, posterior.mean, **CLOSE)
        torch.testing.assert_close(latent_variance, posterior.variance, **CLOSE)
        torch.testing.assert_close(whitened_kl(state), posterior.kl(), **CLOSE)
        bound = bound_at(state, prior, likelihood, batch)
        torch.testing.assert_close(bound, evidence_bound(posterior, likelihood, y, weight), **CLOSE)


def inducing_values(Kzz, a):
    """The published parametrisation: ``N(a 1, Kzz)``."""
    mean, precision = a.expand(1, R), torch.linalg.inv(Kzz)
    return InducingPrior(precision, mean @ precision, mean, torch.logdet(precision))


def test_inducing_values_equal_the_published_update():
    """Binary node, prior mean a, residual Q: eta, H and bound written out with explicit inverses."""
    _, Kzz, k, residual, a, y = inducing_problem()
    rows, rho = torch.arange(0, N, 3), 0.3
    scale = N / rows.numel()
    prior = inducing_values(Kzz, a)
    full = InducingBatch(k, residual.unsqueeze(0), a - (k @ a.expand(R)), y)
    state, _ = natural_gradient_step(prior_state(prior, torch.Size([1])), prior, Logistic(), full)
    batch = InducingBatch(k[rows], residual[rows].unsqueeze(0), full.offset[rows], y[rows])
    updated, info = natural_gradient_step(state, prior, Logistic(), batch, scale, rho)

    inverse = torch.linalg.inv(Kzz)
    covariance = torch.linalg.inv(-2 * state.quadratic[0])
    mean = covariance @ state.linear[0]
    kB = k[rows]
    mu = a + kB @ (mean - a)
    second = residual[rows] + (kB @ covariance * kB).sum(-1) + mu**2
    c = second.sqrt()
    rate = torch.tanh(c / 2) / (2 * c)
    eta = state.linear[0] + rho * (
        scale * kB.T @ (y[rows] - 0.5 - rate * (a - kB @ a.expand(R))) + inverse @ a.expand(R) - state.linear[0]
    )
    H = state.quadratic[0] + rho * (-0.5 * (inverse + scale * kB.T @ torch.diag(rate) @ kB) - state.quadratic[0])
    torch.testing.assert_close(updated.linear[0], eta, **CLOSE)
    torch.testing.assert_close(updated.quadratic[0], H, **CLOSE)

    difference = mean - a
    kl = 0.5 * (
        (inverse @ covariance).trace() - R + difference @ inverse @ difference
        + torch.logdet(Kzz) - torch.logdet(covariance)
    )  # fmt: skip
    local = (y[rows] - 0.5) * mu - 0.5 * rate * (second - c**2) - math.log(2) - torch.log(torch.cosh(c / 2))
    torch.testing.assert_close(info.bound, scale * local.sum() - kl, **CLOSE)
    # Any other auxiliary variables c give a lower value: the bound of a step is the tightest of its family.
    for other in (0.5 * c, 2 * c, c + 1):
        worse = torch.tanh(other / 2) / (2 * other)
        loose = (y[rows] - 0.5) * mu - 0.5 * worse * (second - other**2)
        loose = loose - math.log(2) - torch.log(torch.cosh(other / 2))
        assert float(scale * loose.sum() - kl) < float(info.bound)


def test_whitened_and_inducing_values_are_the_same_approximation():
    Kxz, Kzz, k, residual, a, y = inducing_problem()
    direct, white = inducing_values(Kzz, a), InducingPrior.whitened(R, torch.float64)
    features = Kxz @ Roots.of(Kzz).inverse
    batches = [
        InducingBatch(k, residual.unsqueeze(0), a - (k @ a.expand(R)), y),
        InducingBatch(features, residual.unsqueeze(0), a, y),
    ]
    states = [prior_state(prior, torch.Size([1])) for prior in (direct, white)]
    for _ in range(4):
        results = [
            natural_gradient_step(state, prior, Logistic(), batch, step_size=0.7)
            for state, prior, batch in zip(states, (direct, white), batches, strict=True)
        ]
        states = [state for state, _ in results]
        torch.testing.assert_close(results[0][1].bound, results[1][1].bound, **CLOSE)
        for ours, theirs in zip(
            batch_moments(states[0], batches[0]), batch_moments(states[1], batches[1]), strict=True
        ):
            torch.testing.assert_close(ours, theirs, **CLOSE)


def test_inducing_inputs_at_the_data_give_the_exact_fixed_point():
    x = normal(N, 2, seed=7)
    y = labels(N, 2, seed=8)
    gram = torch.exp(-0.5 * torch.cdist(x, x) ** 2) * 2
    mean = torch.tensor(0.2, dtype=torch.float64)
    exact = fit_mean_field(GramPrior(gram.unsqueeze(0), mean), Logistic(), y, tolerance=1e-10)
    fit = fit_natural_gradient(gram @ Roots.of(gram).inverse, Logistic(), y, prior_mean=mean, n_epochs=60)
    torch.testing.assert_close(fit.bound, exact.bound, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(
        fit.query(gram @ Roots.of(gram).inverse, gram.diagonal())[0], exact.posterior.mean, rtol=1e-6, atol=1e-6
    )


def test_bound_rises_and_stays_below_the_exact_one():
    """Full batches: monotone; an inducing approximation cannot beat the bound with all inducing inputs."""
    Kxz, Kzz, _, residual, a, y = inducing_problem()
    fit = fit_natural_gradient(
        Kxz @ Roots.of(Kzz).inverse, Logistic(), y, prior_mean=a, residual=residual.unsqueeze(0), n_epochs=15
    )
    assert bool((fit.bound_trace.diff() >= -1e-10).all())
    x = normal(N, 2, seed=1)
    gram = 1.5 * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    exact = fit_mean_field(GramPrior(gram.unsqueeze(0), a), Logistic(), y, tolerance=1e-9)
    assert float(fit.bound) < float(exact.bound)


@pytest.mark.parametrize("wrong_factor", [0.5, -1.0])
def test_wrong_scalings_and_signs_break_the_identity(wrong_factor):
    """N/(2|B|) instead of N/|B|, and a flipped likelihood term, do not reach coordinate ascent."""
    features, y = normal(1, N, R, seed=9), labels(N, 2, seed=10)
    mean = torch.tensor(0.0, dtype=torch.float64)
    prior = InducingPrior.whitened(R, torch.float64)
    feature_prior = FeaturePrior(features, mean)
    start = initial_posterior(feature_prior, Logistic(), y, 2)
    expected, _ = mean_field_step(start, feature_prior, Logistic(), y)
    batch = full_batch(features, mean, y)
    for factor, agrees in [(1.0, True), (wrong_factor, False)]:
        state, _ = natural_gradient_step(prior_state(prior, torch.Size([1])), prior, Logistic(), batch)
        wrong_linear = factor * features.mT @ (y.double() - 0.5).unsqueeze(-1)
        wrong_mean = torch.cholesky_solve(wrong_linear, state.factor())
        close = torch.allclose((features @ wrong_mean).squeeze(-1), expected.mean, **CLOSE)
        assert close is agrees


def test_flipped_signs_in_the_bound_exceed_the_evidence():
    """With two signs of the KL flipped an "ELBO" exceeds log Z; ours does not."""
    feature = torch.tensor([[[1.0]]], dtype=torch.float64) * 3
    y, mean = torch.tensor([1]), torch.tensor(0.0, dtype=torch.float64)
    log_evidence = math.log(0.5)  # by symmetry of the prior
    fit = fit_natural_gradient(feature, Logistic(), y, prior_mean=mean, n_epochs=50)
    local = fit.bound + whitened_kl(fit.state)
    assert float(fit.bound) < log_evidence
    covariance = torch.cholesky_inverse(fit.factor).squeeze()
    flipped = 0.5 * (covariance - 1 - fit.mean.square().sum() + covariance.log())
    assert float(local - flipped) > log_evidence


@pytest.mark.parametrize("likelihood", [OneVsEach(), LogisticSoftmax()])
def test_small_batches_converge_to_the_fixed_point(likelihood):
    """Five times the epochs halve the gap to the exact bound at least, to below a thousandth of it.

    One-vs-each is the slow one: its classes settle their common differences over many steps.
    """
    n, classes = 300, 3
    y = labels(n, classes, seed=11)
    centres = normal(classes, 5, seed=12)
    features = 0.5 * (centres[y] + normal(n, 5, seed=13)).unsqueeze(0)
    exact = fit_mean_field(
        FeaturePrior(features, features.new_zeros(())), likelihood, y, max_steps=1000, tolerance=1e-7
    )
    gaps = []
    for n_epochs in (8, 40):
        generator = torch.Generator().manual_seed(1)
        fit = fit_natural_gradient(features, likelihood, y, batch_size=50, n_epochs=n_epochs, generator=generator)
        assert fit.bound_trace.shape == (n_epochs * 6,)
        gaps.append(float(exact.bound - fit.bound))
    assert 0 < gaps[1] < 0.5 * gaps[0]
    assert gaps[1] < 1e-3 * abs(float(exact.bound))


def test_batch_bound_is_unbiased():
    """Over a partition into equal batches the scaled bounds average to the full bound."""
    features, y = normal(1, N, R, seed=14), labels(N, 3, seed=15)
    zero = torch.tensor(0.0, dtype=torch.float64)
    prior = InducingPrior.whitened(R, torch.float64)
    full = full_batch(features, zero, y)
    state, _ = natural_gradient_step(prior_state(prior, torch.Size([3])), prior, OneVsEach(), full)
    parts = [
        bound_at(state, prior, OneVsEach(), full_batch(features[:, rows], zero, y[rows]), 3.0)
        for rows in torch.arange(N).chunk(3)
    ]
    whole = bound_at(state, prior, OneVsEach(), full)
    torch.testing.assert_close(torch.stack(parts).mean(), whole, **CLOSE)


def test_tasks_in_a_batch_equal_tasks_alone():
    features, y = normal(3, 1, N, R, seed=16), torch.stack([labels(N, 3, seed=s) for s in range(3)])
    fit = fit_natural_gradient(features, OneVsEach(), y, batch_size=5, n_epochs=3, n_classes=3)
    assert fit.mean.shape == (3, 3, R)
    assert fit.bound.shape == (3,)
    alone = fit_natural_gradient(features[1], OneVsEach(), y[1], batch_size=5, n_epochs=3, n_classes=3)
    torch.testing.assert_close(fit.mean[1], alone.mean, **CLOSE)
    torch.testing.assert_close(fit.factor[1], alone.factor, **CLOSE)
    torch.testing.assert_close(fit.bound[1], alone.bound, **CLOSE)


@pytest.mark.parametrize(("likelihood", "classes"), [(Logistic(), 2), (OneVsEach(), 3), (LogisticSoftmax(), 3)])
def test_weights_are_copies_of_rows(likelihood, classes):
    features, y, weight = normal(1, N, R, seed=24), labels(N, classes, seed=25), labels(N, 4, seed=26)
    options = {"prior_mean": 0.3, "n_classes": classes, "n_epochs": 8}
    weighted = fit_natural_gradient(features, likelihood, y, weight.double(), **options)
    rows = torch.arange(N).repeat_interleave(weight)
    copied = fit_natural_gradient(features[:, rows], likelihood, y[rows], **options)
    torch.testing.assert_close(weighted.mean, copied.mean, **CLOSE)
    torch.testing.assert_close(weighted.factor, copied.factor, **CLOSE)
    torch.testing.assert_close(weighted.bound_trace, copied.bound_trace, **CLOSE)
    torch.testing.assert_close(weighted.bound, copied.bound, **CLOSE)


def test_the_final_bound_is_that_of_all_weighted_data():
    """After steps on small batches: the bound at the state that they end in."""
    features, y, weight = normal(1, N, R, seed=27), labels(N, 3, seed=28), normal(N, seed=29).abs()
    fit = fit_natural_gradient(features, OneVsEach(), y, weight, batch_size=5, n_epochs=2, n_classes=3)
    zero, prior = torch.tensor(0.0, dtype=torch.float64), InducingPrior.whitened(R, torch.float64)
    expected = bound_at(fit.state, prior, OneVsEach(), full_batch(features, zero, y, weight))
    torch.testing.assert_close(fit.bound, expected, **CLOSE)


def test_a_seed_fixes_everything():
    features, y = normal(1, N, R, seed=17), labels(N, 2, seed=18)

    def fit(seed):
        generator = torch.Generator().manual_seed(seed)
        return fit_natural_gradient(features, Logistic(), y, batch_size=4, n_epochs=2, generator=generator).mean

    state = torch.random.get_rng_state()
    assert torch.equal(fit(1), fit(1))
    assert not torch.equal(fit(1), fit(2))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_step_sizes():
    steps = decaying_steps(delay=10, exponent=0.7)
    assert steps(0) == 1
    assert steps(10) == pytest.approx(2**-0.7)
    assert full_steps(7) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size and n_epochs must be at least 1"),
        ({"n_epochs": 0}, "batch_size and n_epochs must be at least 1"),
        ({"y": torch.tensor([0, 1])}, "one row for each of the 2 labels"),
        ({"n_classes": 1}, "labels from 0 to n_classes - 1"),
        ({"weight": -torch.ones(N)}, "weight must hold one finite number that is not negative"),
    ],
)
def test_bad_input_is_refused_with_advice(change, message):
    arguments = {"features": normal(1, N, R, seed=22), "likelihood": Logistic(), "y": labels(N, 2, seed=23)}
    with pytest.raises(ValueError, match=message):
        fit_natural_gradient(**(arguments | change))

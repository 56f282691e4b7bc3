"""The shared Gaussian algebra against dense brute force in float64."""

import math
import warnings

import pytest
import torch
from torch.distributions import MultivariateNormal

from sureshot.gaussian.algebra import factor_plus_identity, symmetric_root, times_vector, trace_of_inverse
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior, matheron_sample
from sureshot.gaussian.gram_blocks import condition_by_blocks
from sureshot.gaussian.posterior import leave_one_out
from sureshot.gaussian.sites import Sites

N, C, Q, RANK = 6, 3, 4, 3
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def normal(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def problem():
    """Two tasks, three classes, each with its own kernel and mean; one datum of every class is unobserved."""
    points = normal(2, C, N + Q, 2, seed=1)
    full = torch.exp(-0.5 * torch.cdist(points, points) ** 2) * 1.7
    precision = normal(2, C, N, seed=2).exp()
    precision[..., 2] = 0
    shift = normal(2, C, N, seed=3)
    shift[..., 2] = 0
    mean = normal(2, C, 1, seed=4)
    return full, mean, Sites(precision, shift)


def dense(gram, mean, sites):
    """Posterior mean and covariance by explicit inverses of prior and posterior precision."""
    covariance = torch.linalg.inv(torch.linalg.inv(gram) + torch.diag_embed(sites.precision))
    a = mean.expand(*gram.shape[:-1])
    linear = sites.shift + (torch.linalg.inv(gram) @ a.unsqueeze(-1)).squeeze(-1)
    return (covariance @ linear.unsqueeze(-1)).squeeze(-1), covariance


def dense_log_evidence(gram, mean, sites):
    """Log of the Gaussian integral of N(f; a, K) exp(b f - w f^2/2) by completing the square with K^-1."""
    inverse = torch.linalg.inv(gram)
    a = mean.expand(*gram.shape[:-1]).unsqueeze(-1)
    posterior_precision = inverse + torch.diag_embed(sites.precision)
    linear = sites.shift.unsqueeze(-1) + inverse @ a
    value = 0.5 * (linear.mT @ torch.linalg.solve(posterior_precision, linear) - a.mT @ inverse @ a)
    value = value.squeeze((-2, -1)) - 0.5 * (torch.logdet(posterior_precision) + torch.logdet(gram))
    return value.sum(-1)


def test_posterior_moments(problem):
    full, mean, sites = problem
    gram = full[..., :N, :N]
    posterior = GramPrior(gram, mean).condition(sites)
    expected_mean, expected_covariance = dense(gram, mean, sites)
    torch.testing.assert_close(posterior.mean, expected_mean, **CLOSE)
    torch.testing.assert_close(posterior.variance, expected_covariance.diagonal(dim1=-2, dim2=-1), **CLOSE)
    half_gram = posterior.whitened(gram)
    torch.testing.assert_close(gram - half_gram.mT @ half_gram, expected_covariance, **CLOSE)
    alpha = torch.linalg.solve(gram, (expected_mean - mean).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(posterior.alpha, alpha, **CLOSE)


def test_scalars_of_the_posterior(problem):
    full, mean, sites = problem
    gram = full[..., :N, :N]
    posterior = GramPrior(gram, mean).condition(sites)
    expected_mean, covariance = dense(gram, mean, sites)
    torch.testing.assert_close(posterior.log_det, torch.logdet(gram) - torch.logdet(covariance), **CLOSE)
    trace = torch.linalg.solve(gram, covariance).diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(posterior.trace(), trace, **CLOSE)
    difference = (expected_mean - mean).unsqueeze(-1)
    quadratic = (difference.mT @ torch.linalg.solve(gram, difference)).squeeze((-2, -1))
    torch.testing.assert_close(posterior.quadratic, quadratic, **CLOSE)


def test_kl_divergence(problem):
    full, mean, sites = problem
    gram = full[..., :N, :N]
    q_mean, q_covariance = dense(gram, mean, sites)
    symmetric = 0.5 * (q_covariance + q_covariance.mT)
    expected = torch.distributions.kl_divergence(
        MultivariateNormal(q_mean, symmetric), MultivariateNormal(mean.expand_as(q_mean), gram)
    ).sum(-1)
    torch.testing.assert_close(GramPrior(gram, mean).condition(sites).kl(), expected, **CLOSE)


def joint_query(full, mean, sites):
    """Query moments by conditioning the joint Gaussian over data and queries."""
    padded = Sites(*(torch.nn.functional.pad(part, (0, Q)) for part in sites))
    all_means, all_covariances = dense(full, mean, padded)
    return all_means[..., N:], all_covariances.diagonal(dim1=-2, dim2=-1)[..., N:]


def test_query_with_a_prior_mean(problem):
    full, mean, sites = problem
    posterior = GramPrior(full[..., :N, :N], mean).condition(sites)
    prior_variance = full.diagonal(dim1=-2, dim2=-1)[..., N:]
    query_mean, query_variance = posterior.query(full[..., :N, N:], prior_variance)
    expected_mean, expected_variance = joint_query(full, mean, sites)
    torch.testing.assert_close(query_mean, expected_mean, **CLOSE)
    torch.testing.assert_close(query_variance, expected_variance, **CLOSE)


def test_query_mean_without_the_prior_mean_is_wrong(problem):
    """The published form k*' alpha (without a) agrees only when the prior mean is zero."""
    full, mean, sites = problem
    for a, agrees in [(mean, False), (torch.zeros_like(mean), True)]:
        posterior = GramPrior(full[..., :N, :N], a).condition(sites)
        published = (full[..., :N, N:].mT @ posterior.alpha.unsqueeze(-1)).squeeze(-1)
        expected, _ = joint_query(full, a, sites)
        assert bool(torch.allclose(published, expected, **CLOSE)) is agrees


def test_log_evidence(problem):
    full, mean, sites = problem
    gram = full[..., :N, :N]
    value = GramPrior(gram, mean).condition(sites).log_evidence()
    torch.testing.assert_close(value, dense_log_evidence(gram, mean, sites), **CLOSE)


def test_log_evidence_by_quadrature():
    """One latent value: the integral done numerically, with nothing shared with the algebra."""
    k, a, w, b = 1.3, 0.4, 0.7, -0.9
    f = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    log_density = -0.5 * (f - a) ** 2 / k - 0.5 * math.log(2 * math.pi * k) + b * f - 0.5 * w * f**2
    expected = torch.logsumexp(log_density, 0) + math.log(60 / 200_000)

    def tensor(value):
        return torch.tensor([[value]], dtype=torch.float64)

    posterior = GramPrior(tensor(k).unsqueeze(0), tensor(a)).condition(Sites(tensor(w), tensor(b)))
    torch.testing.assert_close(posterior.log_evidence(), expected, **CLOSE)


def test_gradients_of_the_log_evidence(problem):
    """dK = (alpha alpha' - G)/2, da = alpha, db = m, dw = -(m^2 + diag Sigma)/2."""
    full, mean, sites = problem
    gram = full[..., :N, :N].clone().requires_grad_()
    a = mean.expand(2, C, N).clone().requires_grad_()
    w, b = (part.clone().requires_grad_() for part in sites)
    dK, da, dw, db = torch.autograd.grad(dense_gradient_target(gram, a, Sites(w, b)), [gram, a, w, b])
    posterior = GramPrior(gram, a).condition(Sites(w, b))
    alpha, half = posterior.alpha, posterior.whitened(torch.eye(N, dtype=gram.dtype))
    outer = alpha.unsqueeze(-1) * alpha.unsqueeze(-2) - half.mT @ half
    torch.testing.assert_close(0.5 * outer, 0.5 * (dK + dK.mT), **CLOSE)
    torch.testing.assert_close(alpha, da, **CLOSE)
    torch.testing.assert_close(posterior.mean, db, **CLOSE)
    torch.testing.assert_close(-0.5 * (posterior.mean**2 + posterior.variance), dw, **CLOSE)


def dense_gradient_target(gram, a, sites):
    """Sum over the tasks of the dense evidence, for a prior mean that varies with the datum."""
    inverse = torch.linalg.inv(gram)
    precision = inverse + torch.diag_embed(sites.precision)
    linear = sites.shift.unsqueeze(-1) + inverse @ a.unsqueeze(-1)
    value = linear.mT @ torch.linalg.solve(precision, linear) - a.unsqueeze(-2) @ inverse @ a.unsqueeze(-1)
    return 0.5 * (value.sum() - torch.logdet(precision).sum() - torch.logdet(gram).sum())


def test_autograd_through_the_posterior(problem):
    """Autograd of the library's evidence agrees with autograd of the dense one, in K and in the mean."""
    full, mean, sites = problem
    gram, a = full[..., :N, :N].clone().requires_grad_(), mean.clone().requires_grad_()
    # Scaling and reusing one symmetric matrix: a gradient of K means something only for symmetric changes.
    ours = torch.autograd.grad(GramPrior(gram, a).condition(sites).log_evidence().sum(), [gram, a])
    brute = torch.autograd.grad(dense_log_evidence(gram, a, sites).sum(), [gram, a])
    torch.testing.assert_close(ours[0] + ours[0].mT, brute[0] + brute[0].mT, **CLOSE)
    torch.testing.assert_close(ours[1], brute[1], **CLOSE)


@pytest.mark.parametrize("left_out", range(N))
def test_leave_one_out_is_refitting_without_the_site(problem, left_out):
    full, mean, sites = problem
    gram = full[..., :N, :N]
    posterior = GramPrior(gram, mean).condition(sites)
    means, variances = leave_one_out(posterior.mean, posterior.variance, *posterior.sites)
    w, b = sites.precision.clone(), sites.shift.clone()
    w[..., left_out] = 0
    b[..., left_out] = 0
    expected_mean, expected_covariance = dense(gram, mean, Sites(w, b))
    torch.testing.assert_close(means[..., left_out], expected_mean[..., left_out], **CLOSE)
    torch.testing.assert_close(variances[..., left_out], expected_covariance[..., left_out, left_out], **CLOSE)


def test_unobserved_data_change_nothing(problem):
    full, mean, sites = problem
    kept = [0, 1, 3, 4, 5]
    whole = GramPrior(full[..., :N, :N], mean).condition(sites)
    gram = full[..., :N, :N][..., kept, :][..., kept]
    part = GramPrior(gram, mean).condition(Sites(sites.precision[..., kept], sites.shift[..., kept]))
    torch.testing.assert_close(whole.mean[..., kept], part.mean, **CLOSE)
    torch.testing.assert_close(whole.log_evidence(), part.log_evidence(), **CLOSE)
    torch.testing.assert_close(whole.kl(), part.kl(), **CLOSE)


def test_no_observation_at_all_is_the_prior(problem):
    full, mean, _ = problem
    zeros = torch.zeros(2, C, N, dtype=torch.float64)
    posterior = GramPrior(full[..., :N, :N], mean).condition(Sites(zeros, zeros))
    torch.testing.assert_close(posterior.mean, mean.expand(2, C, N), rtol=0, atol=0)
    torch.testing.assert_close(posterior.kl(), torch.zeros(2, dtype=torch.float64), **CLOSE)
    torch.testing.assert_close(posterior.log_evidence(), torch.zeros(2, dtype=torch.float64), **CLOSE)


@pytest.mark.parametrize("shared", [True, False])
def test_feature_prior_equals_gram_prior(problem, shared):
    _, mean, sites = problem
    features = normal(2, 1 if shared else C, N + Q, RANK, seed=5)
    gram = features @ features.mT
    data, queries = features[..., :N, :], features[..., N:, :]
    by_gram = GramPrior(gram[..., :N, :N], mean).condition(sites)
    by_features = FeaturePrior(data, mean).condition(sites)
    for name in ("mean", "variance", "log_det", "quadratic"):
        torch.testing.assert_close(getattr(by_features, name), getattr(by_gram, name), **CLOSE)
    torch.testing.assert_close(by_features.trace(), by_gram.trace(), **CLOSE)
    torch.testing.assert_close(by_features.kl(), by_gram.kl(), **CLOSE)
    torch.testing.assert_close(by_features.log_evidence(), by_gram.log_evidence(), **CLOSE)
    prior_variance = gram.diagonal(dim1=-2, dim2=-1)[..., N:]
    ours = by_features.query(queries, prior_variance)
    expected = by_gram.query(gram[..., :N, N:], prior_variance)
    torch.testing.assert_close(ours[0], expected[0], **CLOSE)
    torch.testing.assert_close(ours[1], expected[1], **CLOSE)


def test_feature_query_keeps_the_variance_outside_the_features():
    features = normal(1, N, RANK, seed=6)
    zeros = torch.zeros(1, N, dtype=torch.float64)
    posterior = FeaturePrior(features, torch.zeros((), dtype=torch.float64)).condition(Sites(zeros, zeros))
    prior_variance = features.square().sum(-1) + 0.3
    _, variance = posterior.query(features, prior_variance)
    torch.testing.assert_close(variance, prior_variance, **CLOSE)


def test_matheron_draws_have_the_posterior_moments():
    """Four standard errors on means and on every covariance, with 40000 independent draws."""
    draws, size = 40_000, 4
    points = normal(size, 2, seed=7)
    gram = torch.exp(-0.5 * torch.cdist(points, points) ** 2) * 2
    sites = Sites(normal(1, size, seed=8).exp(), normal(1, size, seed=9))
    prior = GramPrior(gram.unsqueeze(0), torch.tensor([[0.7]], dtype=torch.float64))
    generator = torch.Generator().manual_seed(10)
    prior_draws = prior.sample(torch.Size([draws, 1]), generator)
    batched = Sites(sites.precision.expand(draws, 1, size), sites.shift.expand(draws, 1, size))
    sample = matheron_sample(prior, batched, prior_draws, generator).squeeze(-2)
    mean, covariance = dense(gram.unsqueeze(0), prior.mean, sites)
    mean, covariance = mean[0], covariance[0]
    standard_error = (covariance.diagonal() / draws).sqrt()
    assert bool(((sample.mean(0) - mean).abs() < 4 * standard_error).all())
    error = ((covariance.diagonal().outer(covariance.diagonal()) + covariance**2) / draws).sqrt()
    assert bool(((torch.cov(sample.T) - covariance).abs() < 4 * error).all())
    assert bool(((torch.cov(prior_draws.squeeze(-2).T) - covariance).abs() > 4 * error).any())


def test_prior_draws_are_reproducible_and_leave_the_global_generator_alone():
    features = normal(1, N, RANK, seed=11)
    prior = FeaturePrior(features, torch.zeros((), dtype=torch.float64))
    state = torch.random.get_rng_state()
    first, second = (prior.sample(torch.Size([5, 1]), torch.Generator().manual_seed(3)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert bool((torch.random.get_rng_state() == state).all())


@pytest.mark.parametrize("n_data", [30, 200])
def test_float32_rank_deficient_kernels_need_no_jitter(n_data):
    """A linear kernel with far more data than dimensions and a duplicate: finite, close to float64."""
    x = normal(n_data, 4, seed=12)
    x[1] = x[0]
    gram = (x @ x.mT).unsqueeze(0)
    sites = Sites(torch.full((2, n_data), 0.25, dtype=torch.float64), normal(2, n_data, seed=13).sign() / 2)
    mean = torch.tensor(0.3, dtype=torch.float64)
    exact = GramPrior(gram, mean).condition(sites)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        single = GramPrior(gram.float(), mean.float()).condition(Sites(*(part.float() for part in sites)))
        objective = single.log_evidence() - single.kl()
    assert bool(torch.isfinite(objective))
    torch.testing.assert_close(single.mean.double(), exact.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(single.variance.double(), exact.variance, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(single.log_evidence().double(), exact.log_evidence(), rtol=1e-3, atol=1e-3)


def test_an_indefinite_kernel_is_refused_with_advice():
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        symmetric_root(indefinite)


@pytest.mark.parametrize("features", [False, True])
def test_gradient_of_the_divergence_where_a_precision_is_zero(features):
    """In function space a site that observes nothing is a constant; the slopes of the others match differences."""
    x = normal(N, N, seed=5)
    prior = FeaturePrior(x, torch.zeros(1)) if features else GramPrior(x @ x.T, torch.zeros(1))
    w = torch.tensor([[1.0, 2.0, 0.0, 0.5, 0.1, 3.0]], dtype=torch.float64, requires_grad=True)

    def divergence(precision):
        return prior.condition(Sites(precision, torch.zeros_like(precision))).kl()

    (slope,) = torch.autograd.grad(divergence(w), w)
    assert features or abs(slope[0, 2]) < 1e-12
    for i in (0, 1, 3, 4, 5):
        step = torch.zeros_like(w)
        step[0, i] = 1e-6
        difference = (divergence(w + step) - divergence(w - step)) / 2e-6
        torch.testing.assert_close(slope[0, i], difference.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("features", [False, True])
def test_the_divergence_in_single_precision_survives_large_precisions(features):
    """Within four standard errors of rounding; ``N - tr(W Sigma)`` for the trace is three times as far off.

    Cholesky's factor is that of a matrix M with entries off by about ``sqrt(N) u sqrt(M_ii M_jj)``, for a unit
    roundoff u and errors that average out (Higham & Mary 2019); entries come in pairs, so their variance counts twice.
    """
    n, w = 25, 10.0
    points = normal(n, 2, seed=6)
    gram = 1e4 * torch.exp(-0.5 * torch.cdist(points, points) ** 2)
    eye = torch.eye(n, dtype=gram.dtype)
    root = torch.linalg.cholesky(gram + 1e-6 * eye)
    b = normal(1, n, seed=7)

    def divergence(dtype):
        zero = torch.zeros(1, dtype=dtype)
        prior = FeaturePrior(root.to(dtype), zero) if features else GramPrior(gram.to(dtype), zero)
        return prior.condition(Sites(torch.full((1, n), w, dtype=dtype), b.to(dtype))).kl().double()

    def divergence_by(factored):  # I + W^1/2 K W^1/2, or I + Phi' W Phi
        inverse = torch.linalg.inv(factored)
        if features:
            weights = inverse @ root.mT @ b[0]
            quadratic = weights @ weights
        else:
            alpha = inverse @ b[0]  # (I + W K)^-1 b, as all precisions are w
            quadratic = alpha @ ((factored - eye) / w) @ alpha
        return 0.5 * (inverse.trace() - n + torch.logdet(factored) + quadratic)

    factored = eye + w * (root.mT @ root if features else gram)
    exact = divergence(torch.float64)
    torch.testing.assert_close(divergence_by(factored), exact, rtol=1e-7, atol=0)
    (slope,) = torch.autograd.grad(divergence_by(factored.requires_grad_()), factored)
    size = factored.detach().diagonal().sqrt()
    unit = torch.finfo(torch.float32).eps / 2
    standard_error = float((2 * n) ** 0.5 * unit * (slope * size * size.unsqueeze(-1)).norm())
    torch.testing.assert_close(divergence(torch.float32), exact, rtol=0, atol=4 * standard_error)


def test_a_matrix_that_many_vectors_share():
    matrix, vectors = normal(2, 1, 4, N, seed=8), normal(5, 2, 3, N, seed=9)
    expected = (matrix @ vectors.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(times_vector(matrix, vectors), expected)


def test_the_factor_of_the_identity_and_something():
    x = normal(2, N, RANK, seed=10)
    factor = factor_plus_identity(x @ x.mT)
    torch.testing.assert_close(factor @ factor.mT, torch.eye(N, dtype=x.dtype) + x @ x.mT)
    torch.testing.assert_close(
        trace_of_inverse(factor), torch.linalg.inv(factor @ factor.mT).diagonal(dim1=-2, dim2=-1).sum(-1)
    )


@pytest.mark.parametrize("n", [4, 2100])  # more than a block of classes
def test_blocks_of_classes_that_share_their_precisions(n):
    prior = GramPrior(torch.eye(n, dtype=torch.float64)[None], torch.zeros(3, 1, dtype=torch.float64))
    sites = Sites(torch.ones(1, n, dtype=torch.float64), normal(3, n, seed=1))
    expected, found = prior.condition(sites), condition_by_blocks(prior, sites)
    torch.testing.assert_close(found.mean, expected.mean, **CLOSE)
    torch.testing.assert_close(found.log_evidence(), expected.log_evidence(), **CLOSE)


def test_a_matrix_of_zeros_is_sampled():
    prior = GramPrior(torch.zeros(1, 3, 3, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
    drawn = prior.sample(torch.Size([5]), torch.Generator().manual_seed(0))
    assert bool((drawn == 2).all())

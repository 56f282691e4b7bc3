"""Gaussian-process classifiers by dense matrices: what `GPClassifier` and `FewShotClassifier` must compute.

Everything is written down in function space with explicit kernel matrices, numpy and textbook formulas, and nothing is
taken from the library. A Gaussian site ``exp(b f - w f^2 / 2)`` is what the regression textbooks call an observation
``b / w`` with noise variance ``1 / w``, so every posterior here is that of a regression:

``C = K + W^-1``,  ``mean = a + k' C^-1 (b / w - a)``,  ``covariance = k** - k' C^-1 k``.

References: Rasmussen & Williams 2006, equations 2.23 to 2.30, 3.12 to 3.32, 3.44; Polson, Scott & Windle 2013.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax

Array = np.ndarray
Kernel = Callable[[Array, Array], Array]
Sites = tuple[Array, Array]  # precisions and shifts, each (C, N)


def rbf(lengthscale: float, outputscale: float, constant: float = 0.0) -> Kernel:
    """``s (exp(-|x - x'|^2 / (2 l^2)) + c)``."""

    def kernel(a: Array, b: Array) -> Array:
        squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
        return outputscale * (np.exp(-squared / (2 * lengthscale**2)) + constant)

    return kernel


def polynomial(power: int) -> Kernel:
    """``(<x, x'> / D + 1)^p``; power 1 is the preset "linear" with its intercept."""
    return lambda a, b: (a @ b.T / a.shape[1] + 1) ** power


def cosine(outputscale: float, constant: float, center: Array | float = 0.0) -> Kernel:
    """``s (<x, x'> / (|x| |x'|) + c)``."""

    def unit(x: Array) -> Array:
        return (x - center) / np.linalg.norm(x - center, axis=1, keepdims=True)

    return lambda a, b: outputscale * (unit(a) @ unit(b).T + constant)


def nystrom(kernel: Kernel, inducing: Array) -> Kernel:
    """``k(a, Z) k(Z, Z)^-1 k(Z, b)``: what inducing inputs leave of a kernel."""
    return lambda a, b: kernel(a, inducing) @ np.linalg.solve(kernel(inducing, inducing), kernel(inducing, b))


@dataclass(frozen=True, eq=False)
class Problem:
    """Labelled rows under a prior; one is itself only, so that what is long in coming is computed once.

    Attributes
    ----------
    x, y, weight : ndarray (N, D), (N,), (N,)
    kernel : callable
        Between the labelled rows, and between them and queries.
    prior_mean : float
    tau : float
        Temperature of the likelihood.
    noise : float
        Variance of least squares.
    prior_variance : callable, optional
        Of queries, where it is not the kernel's own diagonal (inducing inputs).
    classes : int, optional
        C, where the last class may have no row.
    """

    x: Array
    y: Array
    weight: Array
    kernel: Kernel
    prior_mean: float = 0.0
    tau: float = 1.0
    noise: float = 1.0
    prior_variance: Callable[[Array], Array] | None = None
    classes: int | None = None

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1 if self.classes is None else self.classes

    @property
    def gram(self) -> Array:
        return self.kernel(self.x, self.x)

    @property
    def one_hot(self) -> Array:
        """(C, N)."""
        return (self.y == np.arange(self.n_classes)[:, None]).astype(float)

    def diagonal(self, queries: Array) -> Array:
        if self.prior_variance is not None:
            return self.prior_variance(queries)
        return self.kernel(queries, queries).diagonal()


@dataclass(frozen=True)
class Latents:
    """A mixture of Gaussians over the C latents at Q queries, one for each of S chains.

    Attributes
    ----------
    mean : ndarray (S, C, Q)
    covariance : ndarray (S, Q, C, C)
    """

    mean: Array
    covariance: Array

    @property
    def variance(self) -> Array:
        """(S, C, Q)."""
        return np.moveaxis(self.covariance.diagonal(axis1=-2, axis2=-1), -1, 1)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of the mixture, each (Q, C): within the chains plus between them."""
        mean = self.mean.mean(0)
        return mean.T, (self.variance.mean(0) + ((self.mean - mean) ** 2).mean(0)).T

    def tempered(self, temperature: float) -> Latents:
        """The latents divided by a temperature."""
        return Latents(self.mean / temperature, self.covariance / temperature**2)

    def joined(self, at: int, mean: float, variance: Array) -> Latents:
        """With one more class in column `at`, independent of the others, with this mean and variances (Q,)."""
        whole = np.insert(np.insert(self.covariance, at, 0.0, axis=-1), at, 0.0, axis=-2)
        whole[..., at, at] = variance
        return Latents(np.insert(self.mean, at, mean, axis=1), whole)


def chains(parts: list[Latents]) -> Latents:
    """One mixture of several."""
    return Latents(np.concatenate([p.mean for p in parts]), np.concatenate([p.covariance for p in parts]))


# Gaussian posteriors.


def regress(gram: Array, cross: Array, prior: Array, a: float, precision: Array, shift: Array) -> tuple[Array, Array]:
    """Mean (Q,) and covariance (Q, Q) of one latent; a row of precision zero is not observed."""
    seen = precision > 0
    noisy = gram[np.ix_(seen, seen)] + np.diag(1 / precision[seen])
    solved = np.linalg.solve(noisy, cross[seen])
    return a + solved.T @ (shift[seen] / precision[seen] - a), prior - cross[seen].T @ solved


def given_sites(problem: Problem, sites: Sites, queries: Array) -> Latents:
    """Classes independent given their sites."""
    cross, diagonal = problem.kernel(problem.x, queries), np.diag(problem.diagonal(queries))
    parts = [regress(problem.gram, cross, diagonal, problem.prior_mean, w, b) for w, b in zip(*sites, strict=True)]
    mean = np.stack([m for m, _ in parts])
    variance = np.stack([v.diagonal() for _, v in parts], axis=-1)  # (Q, C)
    return Latents(mean[None], variance[None, :, :, None] * np.eye(len(parts)))


def training_moments(problem: Problem, sites: Sites) -> tuple[Array, Array]:
    """Means and variances at the labelled rows, each (C, N)."""
    gram = problem.gram
    parts = [regress(gram, gram, gram, problem.prior_mean, w, b) for w, b in zip(*sites, strict=True)]
    return np.stack([m for m, _ in parts]), np.stack([v.diagonal() for _, v in parts])


def leave_one_out(problem: Problem, sites: Sites, share: Array | float = 1.0) -> Latents:
    """The latents of every labelled row when a share of its own site is taken away, by conditioning again."""
    parts = []
    for n in range(len(problem.y)):
        others = [np.where(np.arange(len(problem.y)) == n, (1 - share) * part, part) for part in sites]
        parts.append(given_sites(problem, (others[0], others[1]), problem.x[n : n + 1]))
    return Latents(np.concatenate([p.mean for p in parts], -1), np.concatenate([p.covariance for p in parts], 1))


def given_pairs(problem: Problem, omega: Array, queries: Array) -> Latents:
    """One-vs-each given Polya-Gamma variables (C, N) of the pairs of a row and a rival class.

    The differences ``A f = f_y - f_c`` are observed as ``s / (2 omega)`` with noise variance ``1 / omega``.
    """
    n_classes, n = problem.n_classes, len(problem.y)
    rows = [(i, c) for i in range(n) for c in range(n_classes) if c != problem.y[i]]
    differences = np.zeros((len(rows), n_classes * n))
    for row, (i, c) in enumerate(rows):
        differences[row, problem.y[i] * n + i], differences[row, c * n + i] = 1, -1
    noise = np.array([1 / omega[c, i] for i, c in rows])
    target = np.array([problem.weight[i] / 2 for i, _ in rows]) * noise
    prior = np.kron(np.eye(n_classes), problem.gram)
    noisy = differences @ prior @ differences.T + np.diag(noise)
    cross = problem.kernel(problem.x, queries)
    mean, covariance = [], []
    for q, variance in enumerate(problem.diagonal(queries)):
        seen = differences @ np.kron(np.eye(n_classes), cross[:, q : q + 1])  # (pairs, C)
        solved = np.linalg.solve(noisy, seen)
        mean.append(problem.prior_mean + solved.T @ target)  # differences of a common prior mean are zero
        covariance.append(variance * np.eye(n_classes) - seen.T @ solved)
    return Latents(np.stack(mean, -1)[None], np.stack(covariance)[None])


# Laplace's method.


def logistic_mode(problem: Problem) -> tuple[Array, Sites]:
    """The mode (1, N) of a latent under the logistic likelihood, and the sites (1, N) that stand for it."""
    gram, a = problem.gram, problem.prior_mean
    f = np.full(len(problem.y), a)
    for _ in range(100):
        p = expit(f)
        w = problem.weight * p * (1 - p)
        shift = w * f + problem.weight * (problem.y - p)
        f = regress(gram, gram, gram, a, w, shift)[0]
    return f[None], (w[None], shift[None])


@cache
def softmax_mode(problem: Problem) -> tuple[Array, Sites]:
    """The mode (C, N) under the softmax with its full curvature, and sites of the curvature's diagonal over classes."""
    n_classes, n, tau, s = problem.n_classes, len(problem.y), problem.tau, problem.weight
    prior = np.kron(np.eye(n_classes), problem.gram)
    f = np.zeros(n_classes * n)  # less the prior mean, which all classes share
    for _ in range(60):
        p = softmax(f.reshape(n_classes, n) / tau, axis=0)
        gradient = (s * (problem.one_hot - p) / tau).ravel()
        pi = np.vstack([np.diag(row) for row in p])
        curvature = (np.diag(p.ravel()) - pi @ pi.T) * np.tile(s, n_classes) / tau**2
        newton = prior @ np.linalg.solve(np.eye(len(f)) + curvature @ prior, curvature @ f + gradient)
        f = f + 0.7 * (newton - f)
    p = softmax(f.reshape(n_classes, n) / tau, axis=0)
    mode, w = problem.prior_mean + f.reshape(n_classes, n), s * p * (1 - p) / tau**2
    return mode, (w, w * mode + s * (problem.one_hot - p) / tau)


def laplace_evidence(problem: Problem, mode: Array, sites: Sites, log_likelihood: float) -> float:
    """``log p(y | f) + log p(f)`` at the mode (C, N) with the normaliser of its Gaussian; classes independent.

    At a mode ``K^-1 (f - a)`` is the gradient of the log likelihood, which for the sites is ``b - w f``.
    """
    value = log_likelihood
    for f, w, b in zip(mode, *sites, strict=True):
        root = np.sqrt(w)
        log_det = np.linalg.slogdet(np.eye(len(w)) + root[:, None] * problem.gram * root)[1]
        value -= 0.5 * (f - problem.prior_mean) @ (b - w * f) + 0.5 * log_det
    return float(value)


# Mean field.


def polya_gamma_mean(squared: Array) -> Array:
    """``tanh(c / 2) / (2 c)`` of ``c^2``."""
    c = np.sqrt(squared)
    return np.tanh(c / 2) / (2 * c)


def log_two_cosh_half(squared: Array) -> Array:
    half = np.sqrt(squared) / 2
    return np.logaddexp(half, -half)


def expected_sites(likelihood: str, problem: Problem, mean: Array, variance: Array) -> Sites:
    """Sites (C, N) at the optimal auxiliary variables for these moments (C, N)."""
    s, own, tau = problem.weight, problem.one_hot, problem.tau
    if likelihood == "logistic":
        return s * polya_gamma_mean(mean**2 + variance), np.broadcast_to(s * (problem.y - 0.5), mean.shape)
    if likelihood == "logistic_softmax":
        counts = expected_counts(problem, mean, variance)
        omega = s * (counts + own) * polya_gamma_mean((mean**2 + variance) / tau**2)
        return omega / tau**2, s * (own - counts) / (2 * tau)
    precision, shift = np.zeros_like(mean), np.zeros_like(mean)
    for n, y in enumerate(problem.y):
        for c in range(problem.n_classes):
            if c == y:
                continue
            omega = s[n] * polya_gamma_mean((mean[y, n] - mean[c, n]) ** 2 + variance[y, n] + variance[c, n])
            precision[[y, c], n] += omega
            shift[y, n] += s[n] / 2 + omega * mean[c, n]
            shift[c, n] += -s[n] / 2 + omega * mean[y, n]
    return precision, shift


def expected_counts(problem: Problem, mean: Array, variance: Array) -> Array:
    """Of the negative multinomial that opens the logistic-softmax's denominator, (C, N)."""
    p = count_probabilities(problem, mean, variance)
    return p / (1 - p.sum(0))


def count_probabilities(problem: Problem, mean: Array, variance: Array) -> Array:
    tilting = log_two_cosh_half((mean**2 + variance) / problem.tau**2)
    return np.exp(-mean / (2 * problem.tau) - tilting) / problem.n_classes


@cache
def mean_field(likelihood: str, problem: Problem, steps: int = 20_000, tolerance: float = 1e-9) -> tuple[Sites, float]:
    """Coordinate ascent from the prior until no mean moves by the tolerance, and the bound of where it ends."""
    n_latents = 1 if likelihood == "logistic" else problem.n_classes
    mean = np.full((n_latents, len(problem.y)), problem.prior_mean)
    variance = np.broadcast_to(problem.gram.diagonal(), mean.shape)
    for _ in range(steps):
        sites = expected_sites(likelihood, problem, mean, variance)
        old = mean
        mean, variance = training_moments(problem, sites)
        if (np.abs(mean - old) / (1 + np.abs(old))).max() <= tolerance:
            break
    return sites, local_bound(likelihood, problem, mean, variance) - divergence(problem, sites)


def divergence(problem: Problem, sites: Sites) -> float:
    """``KL(N(m, V) || N(a, K))`` of the posterior under sites, summed over the classes.

    With ``V = K - K C^-1 K``: ``tr K^-1 V = N - tr C^-1 K``, ``|K| / |V| = |I + K W|`` and
    ``K^-1 (m - a) = C^-1 (b / w - a)``.
    """
    gram, value = problem.gram, 0.0
    for w, b in zip(*sites, strict=True):
        noisy = gram + np.diag(1 / w)
        dual = np.linalg.solve(noisy, b / w - problem.prior_mean)
        explained = np.trace(np.linalg.solve(noisy, gram))
        value += 0.5 * (dual @ gram @ dual - explained + np.linalg.slogdet(np.eye(len(w)) + gram * w)[1])
    return float(value)


def local_bound(likelihood: str, problem: Problem, mean: Array, variance: Array) -> float:
    s, tau, rows = problem.weight, problem.tau, np.arange(len(problem.y))
    if likelihood == "logistic":
        return float(s @ ((problem.y - 0.5) * mean[0] - log_two_cosh_half(mean[0] ** 2 + variance[0])))
    if likelihood == "logistic_softmax":
        label_mean, label_variance = mean[problem.y, rows], variance[problem.y, rows]
        stop = 1 - count_probabilities(problem, mean, variance).sum(0)
        tilting = log_two_cosh_half((label_mean**2 + label_variance) / tau**2)
        return float(s @ (label_mean / (2 * tau) - tilting - np.log(problem.n_classes) - np.log(stop)))
    value = 0.0
    for n, y in enumerate(problem.y):
        for c in set(range(problem.n_classes)) - {int(y)}:
            difference, spread = mean[y, n] - mean[c, n], variance[y, n] + variance[c, n]
            value += s[n] * (difference / 2 - log_two_cosh_half(difference**2 + spread))
    return float(value)


# Least squares.


def least_squares(problem: Problem, queries: Array, a: Array | None = None) -> tuple[Latents, float]:
    """Regression on -1/+1 of every class with prior means (C,), by default the targets' weighted means; its evidence.

    A row of weight s is s rows: a factor ``N(t; f, noise)^s``, which is ``N(t; f, noise / s)`` times what f does not
    change, and a part of the evidence.
    """
    targets = 2 * problem.one_hot - 1
    means = targets @ problem.weight / problem.weight.sum() if a is None else a
    noisy = problem.gram + np.diag(problem.noise / problem.weight)
    cross = problem.kernel(problem.x, queries)
    solved = np.linalg.solve(noisy, cross)
    mean = means[:, None] + (targets - means[:, None]) @ solved
    variance = problem.diagonal(queries) - (cross * solved).sum(0)
    n_classes, n = targets.shape
    one_row = np.log(2 * np.pi * problem.noise)
    many_rows = 0.5 * (one_row - np.log(problem.weight) - problem.weight * one_row).sum()
    evidence = n_classes * many_rows
    for t, m in zip(targets, means, strict=True):
        fit = (t - m) @ np.linalg.solve(noisy, t - m)
        evidence -= 0.5 * (fit + np.linalg.slogdet(noisy)[1] + n * np.log(2 * np.pi))
    return Latents(mean[None], (variance[:, None, None] * np.eye(n_classes))[None]), float(evidence)


def without(problem: Problem, row: int, weight: float) -> Problem:
    """The problem less some of the weight of a row, with as many classes as before."""
    left = problem.weight - weight * (np.arange(len(problem.y)) == row)
    kept = left > 0
    return replace(problem, x=problem.x[kept], y=problem.y[kept], weight=left[kept], classes=problem.n_classes)


# From latents to probabilities.


def class_logs(likelihood: str, f: Array, tau: float) -> Array:
    """``log L(f | y = c)`` for every class, of latents (..., C)."""
    if likelihood == "logistic":
        return np.concatenate([log_expit(-f), log_expit(f)], -1)
    if likelihood == "one_vs_each":
        pairs = log_expit(f[..., :, None] - f[..., None, :])
        return pairs.sum(-1) - np.log(0.5)  # a class against itself
    logits = log_expit(f / tau) if likelihood == "logistic_softmax" else f / tau
    return logits - logsumexp(logits, axis=-1, keepdims=True)


@cache
def grid(dimension: int) -> tuple[Array, Array]:
    """Gauss-Hermite points (P, dimension) and weights (P,) of standard normal variables."""
    nodes, weights = np.polynomial.hermite_e.hermegauss({1: 80, 2: 60, 3: 24, 4: 15}[dimension])
    points = np.array(list(itertools.product(nodes, repeat=dimension)))
    masses = np.array(list(itertools.product(weights / weights.sum(), repeat=dimension))).prod(-1)
    kept = masses > 1e-12
    return points[kept], masses[kept] / masses[kept].sum()


def over_posterior(latents: Latents, function: Callable[[Array], Array]) -> Array:
    """``E[function(f)]`` for each chain and query, (S, Q, ...), of a function of latents (P, C)."""
    points, masses = grid(latents.mean.shape[1])
    found = []
    for mean, covariance in zip(latents.mean, latents.covariance, strict=True):
        roots = np.linalg.cholesky(covariance + 1e-14 * np.eye(covariance.shape[-1]))
        found.append([masses @ function(m + points @ root.T) for m, root in zip(mean.T, roots, strict=True)])
    return np.array(found)


def probabilities(likelihood: str, rule: str, latents: Latents, tau: float) -> Array:
    """(Q, C) by a predictive rule, averaged over the chains."""

    def logs(f: Array) -> Array:
        return class_logs(likelihood, f, tau)

    if rule == "plug_in":
        return softmax(logs(np.swapaxes(latents.mean, 1, 2)), -1).mean(0)
    if rule == "expected_log":
        return softmax(over_posterior(latents, logs), -1).mean(0)
    expected = over_posterior(latents, lambda f: np.exp(logs(f)))
    return (expected / expected.sum(-1, keepdims=True)).mean(0)


def entropy(p: Array) -> Array:
    return -(p * np.log(np.maximum(p, 1e-300))).sum(-1)


def uncertainty(
    likelihood: str, latents: Latents, tau: float, temper: Callable[[Array], Array] = np.asarray
) -> tuple[Array, Array]:
    """Entropy of the mean probabilities, and mean entropy, over the whole mixture; each (Q,).

    `temper` changes the probabilities (..., C) at given latents.
    """

    def p(f: Array) -> Array:
        return temper(softmax(class_logs(likelihood, f, tau), -1))

    total = entropy(over_posterior(latents, p).mean(0))
    aleatoric = over_posterior(latents, lambda f: entropy(p(f))[:, None]).mean(0)[:, 0]
    return total, aleatoric


# The true posterior, by sampling.


def elliptical_slice_samples(
    log_likelihood: Callable[[Array], Array], gram: Array, mean: float, n_latents: int, n_chains: int, n_steps: int
) -> Array:
    """Posterior draws (chains, C, N), one from each of many chains (Murray, Adams & MacKay 2010).

    `log_likelihood` maps latents (chains, C, N) to (chains,).
    """
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(gram)
    shape = (n_chains, n_latents, len(gram))
    f = rng.standard_normal(shape) @ root.T
    value = log_likelihood(mean + f)
    for _ in range(n_steps):
        other = rng.standard_normal(shape) @ root.T
        height = value + np.log(rng.random(n_chains))
        angle = rng.random(n_chains) * 2 * np.pi
        low, high = angle - 2 * np.pi, angle.copy()
        waiting = np.arange(n_chains)
        moved, reached = f.copy(), value.copy()
        while len(waiting):
            at = angle[waiting, None, None]
            moved[waiting] = f[waiting] * np.cos(at) + other[waiting] * np.sin(at)
            reached[waiting] = log_likelihood(mean + moved[waiting])
            waiting = waiting[reached[waiting] <= height[waiting]]
            below = angle[waiting] < 0
            low[waiting] = np.where(below, angle[waiting], low[waiting])
            high[waiting] = np.where(below, high[waiting], angle[waiting])
            angle[waiting] = low[waiting] + rng.random(len(waiting)) * (high - low)[waiting]
        f, value = moved, reached
    return mean + f

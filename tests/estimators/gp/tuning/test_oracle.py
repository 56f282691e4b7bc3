"""What tuning maximises, against dense matrices: leave-one-out by brute force, priors, noise and output scales.

Least squares is fitted again without each row; other inferences keep the sites of the other rows and condition on
them again, which is what their leave-one-out approximation means.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from sureshot import GPClassifier
from sureshot.estimators.gp import options
from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.tuning import family_search
from sureshot.estimators.gp.tuning.family_search import Search
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.rows.support import Support
from sureshot.likelihoods import get_likelihood
from tests.oracles import dense
from tests.oracles.dense import Array, Latents, Problem

WIDTH = 2
NATURAL = np.sqrt(WIDTH)  # length-scale of the RBF preset
RBF_TEMPERATURE = 0.45  # of the plug-in rule where labels cannot tell, documented in options
SPREAD = 0.6  # of its logarithm
OF_PARABOLA = 4e-3  # a sixteenth squared, the step of the parabola at whose vertex a temperature is


def rows(n_classes: int, n: int = 11) -> tuple[Array, Array, Array]:
    """Overlapping classes with weights; the last class has a single row, which cannot be left out.

    The first two rows, which are of two classes, are where one row is: a copy of them is left out, not all.
    """
    rng = np.random.default_rng(11)
    y = np.append(np.resize(np.arange(n_classes - 1 if n_classes > 2 else 2), n - 1), n_classes - 1)
    x = rng.standard_normal((n, WIDTH)) + 1.3 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1)
    weight = rng.uniform(0.4, 2.6, n)
    x[1], weight[:2] = x[0], (2.5, 1.5)
    return x, y, weight


def left_out(problem: Problem) -> Array:
    """The weight that is left out of each row."""
    return np.append(np.minimum(problem.weight[:2], 1.0), problem.weight[2:])


def problem_of(n_classes: int, lengthscale: float, outputscale: float, prior_mean: float = 0.0) -> Problem:
    """Under the preset "rbf" at a length-scale relative to the natural one."""
    x, y, weight = rows(n_classes)
    return Problem(x, y, weight, dense.rbf(lengthscale * NATURAL, outputscale, 1.0), prior_mean)


def evidence(problem: Problem) -> Array:
    """As how many observations rows count: copies that are left out together count once."""
    return np.append(problem.weight[:2], np.minimum(problem.weight[2:], 1.0))


def able(problem: Problem) -> Array:
    """What the rows count whose class keeps a row without them."""
    return evidence(problem) * (np.bincount(problem.y)[problem.y] > 1)


def usable(problem: Problem) -> Array:
    """The same times the share of the classes that they are of."""
    counts = np.bincount(problem.y)
    return able(problem) * (counts > 1).sum() / (counts > 0).sum()


def scores(problem: Problem, log_p: Array) -> Array:
    """Log probabilities (N,) of the labels from those of all classes (N, C), as if one more row had any label."""
    share = 1 / (1 + able(problem).sum())
    return (1 - share) * log_p[np.arange(len(problem.y)), problem.y] + share * log_p.mean(1)


def plug_in_scores(problem: Problem, likelihood: str, latents: Array, tau: float, temperature: float) -> Array:
    """Scores (N,) of the likelihood at the latents (N, C) divided by a temperature."""
    logs = dense.class_logs(likelihood, latents / temperature, tau)
    return scores(problem, logs - logsumexp(logs, axis=1, keepdims=True))


def best_temperature(problem: Problem, likelihood: str, latents: Array, tau: float) -> float:
    """The temperature that predicts left-out labels best under its log-normal prior."""

    def loss(log_temperature: float) -> float:
        prior = -0.5 * ((log_temperature - np.log(RBF_TEMPERATURE)) / SPREAD) ** 2
        fit = usable(problem) @ plug_in_scores(problem, likelihood, latents, tau, np.exp(log_temperature))
        return -float(fit + prior)

    grid = np.linspace(-6, 4, 201)
    best = grid[np.argmin([loss(value) for value in grid])]
    return float(np.exp(minimize_scalar(loss, bounds=(best - 0.1, best + 0.1), method="bounded").x))


def brute_force_regression(problem: Problem) -> Array:
    """Means (N, C) at each row of the regression on the others; the targets' means stay those of all rows."""
    means = (2 * problem.one_hot - 1) @ problem.weight / problem.weight.sum()
    refits = [
        dense.least_squares(dense.without(problem, n, weight), problem.x[n : n + 1], means)[0]
        for n, weight in enumerate(left_out(problem))
    ]
    return np.array([latents.mean[0, :, 0] for latents in refits])


def evidence_of_scale(problem: Problem, scale: float, ratio: float) -> float:
    """Log evidence of the targets with kernel and noise multiplied by a scale."""
    unit = problem.kernel
    scaled = replace(problem, kernel=lambda a, b: scale * unit(a, b), noise=ratio * scale)
    return dense.least_squares(scaled, problem.x)[1]


def search(n_classes: int, rule: str, by_evidence: bool = False, weighted: bool = True) -> Search:
    x, y, weight = (torch.from_numpy(part) for part in rows(n_classes))
    ones = torch.ones_like(weight)
    problem = problem_of(n_classes, 1.0, 1.0)
    share, counts = torch.from_numpy(left_out(problem)) / weight, torch.from_numpy(evidence(problem))
    support = Support(x, y, *(weight, n_classes, share, counts) if weighted else (ones, n_classes, ones, ones))
    return Search(support, 0, options.named_family("rbf", support), LabelLogLoss(rule, by_evidence))  # type: ignore[arg-type]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("lengthscale", [0.5, 1.0, 4.0])
def test_least_squares_leaves_out_by_refitting(n_classes: int, lengthscale: float) -> None:
    """The best of all noise levels: the sum over left-out rows plus the length-scale's log prior, its temperature."""
    unit = problem_of(n_classes, lengthscale, 1.0)
    candidate = search(n_classes, "plug_in")._regress(LEAST_SQUARES, lengthscale)
    left_out = {ratio: brute_force_regression(replace(unit, noise=ratio)) for ratio in family_search.NOISE_RATIOS}

    def value(ratio: float, temperature: float) -> float:
        pointwise = plug_in_scores(unit, "softmax", left_out[ratio], 1.0, temperature)
        return float(usable(unit) @ pointwise) - 0.5 * np.log(lengthscale) ** 2

    best = {ratio: best_temperature(unit, "softmax", latents, 1.0) for ratio, latents in left_out.items()}
    ratio = max(best, key=lambda ratio: value(ratio, best[ratio]))
    assert candidate.model.noise / candidate.output_scale == pytest.approx(ratio, rel=1e-12)
    assert candidate.temperature == pytest.approx(best[ratio], rel=OF_PARABOLA)
    assert candidate.objective == pytest.approx(value(ratio, candidate.temperature), abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_least_squares_takes_the_scale_of_the_largest_evidence(n_classes: int) -> None:
    """For rows of weight one: whether a weight is so many rows or so much less noise is another matter."""
    candidate = search(n_classes, "plug_in", weighted=False)._regress(LEAST_SQUARES, 1.0)
    unit = problem_of(n_classes, 1.0, 1.0)
    unit = replace(unit, weight=np.ones_like(unit.weight))
    ratio = candidate.model.noise / candidate.output_scale
    best = minimize_scalar(
        lambda log_scale: -evidence_of_scale(unit, np.exp(log_scale), ratio),
        bounds=(-12, 12),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert candidate.output_scale == pytest.approx(np.exp(best.x), rel=1e-5)


# Laplace's modes are sought less exactly while settings are compared, and rows of little information left out.
CLOSE = {("laplace", "softmax"): 5e-3, ("laplace", "logistic"): 1e-4} | {
    ("mean_field", name): 1e-4 for name in ("logistic", "one_vs_each", "logistic_softmax")
}
CANDIDATES = [  # likelihood, inference, classes, prior mean, temperature of the likelihood, rule
    ("logistic", "laplace", 2, -0.7, 1.0, "integral"),
    ("logistic", "laplace", 2, -0.7, 1.0, "plug_in"),
    ("logistic", "mean_field", 2, -0.7, 1.0, "expected_log"),
    ("softmax", "laplace", 4, 0.0, 0.6, "plug_in"),
    ("softmax", "laplace", 4, 0.0, 0.6, "integral"),
    ("one_vs_each", "mean_field", 4, -0.7, 1.0, "integral"),
    ("one_vs_each", "mean_field", 4, -0.7, 1.0, "plug_in"),
    ("logistic_softmax", "mean_field", 4, -0.7, 0.6, "integral"),
    ("logistic_softmax", "mean_field", 4, -0.7, 0.6, "expected_log"),
]


@pytest.mark.parametrize("by_evidence", [False, True])
@pytest.mark.parametrize("scales", [(1.0, 10.0), (2.0, 1.0)])
@pytest.mark.parametrize(("likelihood", "inference", "n_classes", "prior_mean", "tau", "rule"), CANDIDATES)
def test_the_objective_of_a_candidate(
    likelihood: str,
    inference: str,
    n_classes: int,
    prior_mean: float,
    tau: float,
    rule: str,
    scales: tuple[float, float],
    by_evidence: bool,
) -> None:
    """The evidence; or the left-out rows' scores, by means and variances as the rule asks, plus scales' log priors."""
    lengthscale, outputscale = scales
    problem = replace(problem_of(n_classes, lengthscale, outputscale, prior_mean), tau=tau)
    if inference == "mean_field":
        sites, evidence = dense.mean_field(likelihood, problem)
    else:
        mode, sites = dense.softmax_mode(problem) if likelihood == "softmax" else dense.logistic_mode(problem)
        label = dense.class_logs(likelihood, mode.T, tau)[np.arange(len(problem.y)), problem.y]
        evidence = dense.laplace_evidence(problem, mode, sites, problem.weight @ label)
    latents = dense.leave_one_out(problem, sites, left_out(problem) / problem.weight)
    log_prior = -0.5 * np.log(lengthscale) ** 2 - 0.5 * np.log(outputscale / 10) ** 2
    model = Model(likelihood, inference, likelihood_temperature=tau, prior_mean=prior_mean)
    candidate, _ = search(n_classes, rule, by_evidence)._score(model, lengthscale, outputscale, [None])
    if rule == "plug_in":
        means = latents.mean[0].T
        temperature = best_temperature(problem, likelihood, means, tau)
        assert candidate.temperature == pytest.approx(temperature, rel=OF_PARABOLA)
        pointwise = plug_in_scores(problem, likelihood, means, tau, candidate.temperature)
    else:
        assert candidate.temperature == 1
        pointwise = scores(problem, np.log(predicted(likelihood, rule, latents, tau)))
    np.testing.assert_allclose(candidate.pointwise.numpy(), pointwise, rtol=0, atol=CLOSE[inference, likelihood])
    expected = evidence if by_evidence else float(usable(problem) @ pointwise) + log_prior
    assert candidate.objective == pytest.approx(expected, abs=10 * CLOSE[inference, likelihood])


def predicted(likelihood: str, rule: str, latents: Latents, tau: float) -> Array:
    """By the library's rule, which `test_oracle` compares with numerical integration."""
    options = {"temperature": tau} if likelihood in ("softmax", "logistic_softmax") else {}
    rules = get_likelihood(likelihood, **options)
    found = rules.predict(torch.from_numpy(latents.mean), torch.from_numpy(latents.covariance), rule)  # type: ignore[arg-type]
    return found.mean(0).mT.numpy()


def test_the_classifier_holds_the_scales_that_tuning_found() -> None:
    """Fitting tunes and then conditions: length-scale, output scale and noise reach the posterior as scored."""
    x, y, weight = rows(4)
    model = GPClassifier(kernel="rbf", likelihood="least_squares", standardize=False).fit(x, y, sample_weight=weight)
    candidates = search(4, "plug_in").least_squares(LEAST_SQUARES)
    best = max(candidates, key=lambda candidate: candidate.objective)
    found = model.kernel_.parameters
    assert found["base_kernel.kernels.0.lengthscale"].item() == pytest.approx(best.lengthscale * NATURAL)
    assert found["outputscale"].item() == pytest.approx(best.output_scale)
    problem = replace(problem_of(4, best.lengthscale, best.output_scale), noise=best.model.noise)
    queries = np.random.default_rng(0).standard_normal((5, WIDTH))
    mean, variance = dense.least_squares(problem, queries)[0].moments()
    found = model.predict_latent(queries)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.variance, variance, rtol=0, atol=1e-8)
    left_out = brute_force_regression(problem)
    temperature = best_temperature(problem, "softmax", left_out, 1.0)
    assert model.temperature_ == pytest.approx(temperature, rel=OF_PARABOLA)
    pointwise = plug_in_scores(problem, "softmax", left_out, 1.0, model.temperature_)
    expected = usable(problem) @ pointwise / usable(problem).sum()
    assert model.leave_one_out_score_ == pytest.approx(expected, abs=1e-6)
    share = usable(problem) / usable(problem).sum()
    logs = left_out / model.temperature_
    of_label = (logs - logsumexp(logs, axis=1, keepdims=True))[np.arange(len(problem.y)), problem.y]
    assert model.leave_one_out_nll_ == pytest.approx(-share @ of_label, rel=1e-9)
    right = left_out.argmax(1) == problem.y
    assert model.leave_one_out_accuracy_ == pytest.approx(share @ right, rel=1e-12)
    recalls = [np.average(right[of], weights=share[of]) for c in range(3) if share[of := problem.y == c].any()]
    assert model.leave_one_out_balanced_accuracy_ == pytest.approx(np.mean(recalls), rel=1e-12)
    scaled = mean / model.temperature_
    p = np.exp(scaled - logsumexp(scaled, axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(queries), p, rtol=0, atol=1e-8)

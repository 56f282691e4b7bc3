"""`GPClassifier` against dense matrices: every likelihood, inference and predictive rule, on weighted rows.

A *cell* is one likelihood, inference and rule. Its expected latents come from `oracles.dense`, which knows nothing of
the library. Chains of Gibbs sampling are compared in two steps: given their last Polya-Gamma variables, as the model
file holds them, predictions are those of a mixture of Gaussians; and over many chains that mixture is the posterior
that an elliptical slice sampler finds.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from sureshot import GPClassifier
from sureshot.inference import schemes_for
from sureshot.likelihoods import LIKELIHOODS, get_likelihood
from tests.oracles import dense
from tests.oracles.dense import Array, Latents, Problem

INFERENCES = {
    "logistic": ("laplace", "mean_field", "gibbs", "natural_gradient"),
    "softmax": ("laplace",),
    "one_vs_each": ("mean_field", "gibbs", "natural_gradient"),
    "logistic_softmax": ("mean_field", "gibbs", "natural_gradient"),
    "least_squares": ("exact",),
}
RULES = ("integral", "expected_log", "plug_in")
POSTERIORS = [(likelihood, inference) for likelihood, schemes in INFERENCES.items() for inference in schemes]
CELLS = [(*posterior, rule) for posterior in POSTERIORS for rule in RULES]
MULTICLASS = [posterior for posterior in POSTERIORS if posterior[0] != "logistic"]

PRIOR_MEAN = -1.3
TAU = 0.6  # of the likelihoods that have a temperature
LENGTHSCALE, OUTPUTSCALE = 1.1, 3.0
N_CHAINS, N_SWEEPS = 3, 6
NATURAL_GRADIENT_STEPS = 20
INTEGRATED = 0.02  # nats; the error of the estimator's fixed set of 128 points
ANNOUNCED = 1  # the class without rows, between those that have some


def tolerance(likelihood: str, inference: str) -> float:
    """Rounding, but for modes and fixed points, which are sought until a gradient or a step is small.

    The softmax's gradient stops at 3e-5 in each of 30 coordinates, the logistic's whitened step at 1e-5, mean field
    when no mean moves by 1e-5, which along a direction that no probability depends on may be before the end.
    """
    if inference not in ("laplace", "mean_field"):
        return 1e-8
    return 2e-5 if (likelihood, inference) == ("logistic", "laplace") else 2e-4


def draw(rng: np.random.Generator, labels: Array) -> Array:
    """Rows (n, 2) of overlapping classes."""
    centres = {0: (0.0, 0.0), 2: (1.2, 0.3), 3: (0.0, 1.4)}
    return rng.standard_normal((len(labels), 2)) + np.array([centres[label] for label in labels.tolist()])


def rows_of(likelihood: str, inference: str) -> tuple[Array, Array, Array]:
    """Ten rows of classes 0, 2 and 3 (0 and 2 for the logistic), with weights that suit the inference."""
    rng = np.random.default_rng(3)
    labels = np.resize([0, 2] if likelihood == "logistic" else [0, 2, 3], 10)
    x = draw(rng, labels)
    real, whole = rng.uniform(0.4, 2.6, len(labels)), rng.integers(1, 4, len(labels)).astype(float)
    return x, labels, whole if inference == "gibbs" else real


def held_out(likelihood: str) -> tuple[Array, Array]:
    """Rows to set a temperature by."""
    labels = np.resize([0, 2] if likelihood == "logistic" else [0, 2, 3], 24)
    return draw(np.random.default_rng(5), labels), labels


QUERIES = np.random.default_rng(4).standard_normal((6, 2)) * 1.5


def kernel(lengthscale: float = LENGTHSCALE) -> gpytorch.kernels.Kernel:
    found = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    found.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    found.outputscale = torch.tensor(OUTPUTSCALE, dtype=torch.float64)
    return found


def classifier(likelihood: str, inference: str, rule: str = "plug_in", **options: Any) -> GPClassifier:
    """With everything fixed that could be chosen from the labels."""
    settings: dict[str, Any] = {
        "kernel": kernel(),
        "likelihood": likelihood,
        "inference": "auto" if inference == "exact" else inference,
        "predictive": rule,
        "objective": None,
        "standardize": False,
        "likelihood_temperature": TAU,
        "prior_mean": PRIOR_MEAN,
        "n_chains": N_CHAINS,
        "n_sweeps": N_SWEEPS,
    }
    return GPClassifier(**(settings | options))


@lru_cache
def fitted(likelihood: str, inference: str, rule: str = "plug_in", announced: bool = False) -> GPClassifier:
    """On `rows_of`, some of which arrive later."""
    x, y, weight = rows_of(likelihood, inference)
    model = classifier(likelihood, inference, rule)
    model.partial_fit(x[:6], y[:6], classes=[0, 1, 2, 3] if announced else None, sample_weight=weight[:6])
    return model.partial_fit(x[6:], y[6:], sample_weight=weight[6:])


@lru_cache
def problem_of(likelihood: str, inference: str) -> Problem:
    """`rows_of` under the prior of `classifier`, in the words of `oracles.dense`."""
    x, labels, weight = rows_of(likelihood, inference)
    y = np.searchsorted(np.unique(labels), labels)
    tau = TAU if likelihood in ("softmax", "logistic_softmax") else 1.0
    return Problem(x, y, weight, dense.rbf(LENGTHSCALE, OUTPUTSCALE), PRIOR_MEAN, tau)


def deterministic(likelihood: str, inference: str, problem: Problem, queries: Array) -> tuple[Latents, float]:
    """Latents at queries, and the log evidence or its bound."""
    if likelihood == "least_squares":
        return dense.least_squares(problem, queries)
    if inference == "laplace":
        mode, sites = dense.softmax_mode(problem) if likelihood == "softmax" else dense.logistic_mode(problem)
        logs = dense.class_logs(likelihood, mode.T, problem.tau)
        label = problem.weight @ logs[np.arange(len(problem.y)), problem.y]
        return at_mode(problem, mode, sites, queries), dense.laplace_evidence(problem, mode, sites, label)
    if inference == "natural_gradient":  # all rows in one batch: so many steps of coordinate ascent
        sites, bound = dense.mean_field(likelihood, problem, NATURAL_GRADIENT_STEPS, tolerance=0.0)
    else:
        sites, bound = dense.mean_field(likelihood, problem)
    return dense.given_sites(problem, sites, queries), bound


def at_mode(problem: Problem, mode: Array, sites: dense.Sites, queries: Array) -> Latents:
    """Means by the gradient at the mode; the sites that keep the curvature's diagonal give the variances."""
    gradient = sites[1] - sites[0] * mode
    mean = problem.prior_mean + gradient @ problem.kernel(problem.x, queries)
    return Latents(mean[None], dense.given_sites(problem, sites, queries).covariance)


def written(path: Path) -> dict[str, Array]:
    """The arrays of a model file with one member, under the names that they have in it."""
    return {name.removeprefix("members.0."): array for name, array in load_file(path).items()}


def sampled(model: GPClassifier, likelihood: str, problem: Problem, queries: Array, folder: Path) -> Latents:
    """The chains' Gaussians given the states that a model file holds."""
    model.save(folder / "model.safetensors")
    arrays = written(folder / "model.safetensors")
    rows = arrays["rows.x"]
    order = [int(np.flatnonzero((problem.x == row).all(1))[0]) for row in rows]
    assert sorted(order) == list(range(len(problem.y)))
    problem = replace(problem, x=rows, y=problem.y[order], weight=problem.weight[order])
    np.testing.assert_array_equal(arrays.get("rows.weight", np.ones(len(rows))), problem.weight)
    if likelihood == "one_vs_each":
        states = arrays["arrays.omega"][0]  # for each rival class the rows of the other classes, in their order
        parts = []
        for state in states:
            omega = np.zeros((problem.n_classes, len(problem.y)))
            for c in range(problem.n_classes):
                against = np.flatnonzero(problem.y != c)
                omega[c, against] = state[c, : len(against)]
            parts.append(dense.given_pairs(problem, omega, queries))
        return dense.chains(parts)
    precision = arrays["arrays.precision"]
    if likelihood == "logistic":
        shifts = [problem.weight * (problem.y - 0.5)[None]] * len(precision)
    else:
        (member,) = model._fitted.members
        moved = (
            member.process.means(member.process.values(torch.from_numpy(rows))) - member.process.prior_mean[:, None]
        ).numpy()  # (S, C, N)
        moved = moved[:, [0, 2, 3] if moved.shape[1] == 4 else [0, 1, 2]]
        shifts = list(count_shifts(problem, precision, moved))
    return dense.chains([dense.given_sites(problem, state, queries) for state in zip(precision, shifts, strict=True)])


def count_shifts(problem: Problem, precision: Array, moved: Array) -> Array:
    """Shifts ``(s y - counts) / (2 tau)`` of logistic-softmax chains, from their means: whole counts or an error."""
    shift = moved @ np.linalg.inv(problem.gram) + precision * (problem.prior_mean + moved)
    own = problem.weight * problem.one_hot
    counts = own - 2 * problem.tau * shift
    np.testing.assert_allclose(counts, counts.round(), atol=1e-6)
    assert (counts.round() >= 0).all()
    assert counts.round().max() > 0
    np.testing.assert_array_equal(precision > 0, (counts + own).round() > 0)
    return (own - counts.round()) / (2 * problem.tau)


def expected_latents(
    model: GPClassifier, likelihood: str, inference: str, announced: bool, folder: Path, queries: Array = QUERIES
) -> Latents:
    """Of all of the model's classes."""
    problem = problem_of(likelihood, inference)
    if inference == "gibbs":
        found = sampled(model, likelihood, problem, queries, folder)
    else:
        found, _ = deterministic(likelihood, inference, problem, queries)
    if not announced:
        return found
    if likelihood == "least_squares":  # every row says -1 of a class that has none: targets, not labels, are the data
        return found.joined(ANNOUNCED, -1.0, found.covariance[0, :, 0, 0])
    return found.joined(ANNOUNCED, PRIOR_MEAN, problem.diagonal(queries))


def both(mean: Array, variance: Array) -> tuple[Array, Array]:
    """The logistic's one latent f (Q, 1) as two, -f/2 and f/2."""
    return np.hstack([-mean / 2, mean / 2]), np.hstack([variance / 4, variance / 4])


def library_probabilities(likelihood: str, rule: str, latents: Latents, tau: float) -> Array:
    """By the library's predictive rule, which `test_probabilities` compares with Gauss-Hermite grids."""
    name = "softmax" if likelihood == "least_squares" else likelihood
    with_temperature = name in ("softmax", "logistic_softmax")
    rules = get_likelihood(name, temperature=tau) if with_temperature else get_likelihood(name)
    found = rules.predict(torch.from_numpy(latents.mean), torch.from_numpy(latents.covariance), rule)
    return found.mean(0).mT.numpy()


def with_announced(posteriors: list[Any]) -> list[Any]:
    """Every posterior as it is and, where a third class makes sense, with an announced class."""
    return [(*p, False) for p in posteriors] + [(*p, True) for p in posteriors if p[0] != "logistic"]


def test_every_likelihood_and_scheme_is_a_cell() -> None:
    assert {name: schemes_for(name) for name in LIKELIHOODS} == INFERENCES


@pytest.mark.parametrize(("likelihood", "inference", "rule", "announced"), with_announced(CELLS))
def test_probabilities(likelihood: str, inference: str, rule: str, announced: bool, tmp_path: Path) -> None:
    model = fitted(likelihood, inference, rule, announced)
    latents = expected_latents(model, likelihood, inference, announced, tmp_path)
    tau = problem_of(likelihood, inference).tau
    expected = library_probabilities(likelihood, rule, latents, tau)
    np.testing.assert_allclose(model.predict_proba(QUERIES), expected, rtol=0, atol=tolerance(likelihood, inference))
    numerical = dense.probabilities(likelihood, rule, latents, tau)
    np.testing.assert_allclose(expected, numerical, atol=5e-3 if rule == "integral" else 1e-4)


@pytest.mark.parametrize(("likelihood", "inference", "rule", "announced"), with_announced(CELLS))
def test_calibration(likelihood: str, inference: str, rule: str, announced: bool, tmp_path: Path) -> None:
    """The temperature that suits held-out labels, near 1 beforehand, divides the means, its square the covariances."""
    model = copy.deepcopy(fitted(likelihood, inference, rule, announced))
    x, labels = held_out(likelihood)
    latents = expected_latents(model, likelihood, inference, announced, tmp_path, x)
    columns = np.searchsorted(model.classes_, labels)

    def at(temperature: float) -> Array:
        tau = problem_of(likelihood, inference).tau
        return library_probabilities(likelihood, rule, latents.tempered(temperature), tau)

    def loss(temperature: float) -> float:
        beforehand = 0.5 * (np.log(temperature) / 0.6) ** 2  # log temperatures have a standard deviation of 0.6
        return -float(np.log(at(temperature)[np.arange(len(columns)), columns]).sum()) + beforehand

    found = model.calibrate(x, labels).temperature_
    assert 1e-3 < abs(np.log(found)) < 5
    assert loss(found) < min(loss(found * 1.02), loss(found / 1.02))
    np.testing.assert_allclose(model.predict_proba(x), at(found), rtol=0, atol=5 * tolerance(likelihood, inference))


@pytest.mark.parametrize(("likelihood", "inference", "announced"), with_announced(POSTERIORS))
def test_latents(likelihood: str, inference: str, announced: bool, tmp_path: Path) -> None:
    model = fitted(likelihood, inference, announced=announced)
    mean, variance = expected_latents(model, likelihood, inference, announced, tmp_path).moments()
    if likelihood == "logistic":
        mean, variance = both(mean, variance)
    found = model.predict_latent(QUERIES)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=tolerance(likelihood, inference))
    np.testing.assert_allclose(found.variance, variance, rtol=0, atol=tolerance(likelihood, inference))


@pytest.mark.parametrize(("likelihood", "inference", "announced"), with_announced(POSTERIORS))
def test_outlier_scores(likelihood: str, inference: str, announced: bool, tmp_path: Path) -> None:
    """What the model says: minus the mean of the most likely class in deviations.

    Likelihoods of differences count from the prior mean.
    """
    model = fitted(likelihood, inference, announced=announced)
    mean, variance = expected_latents(model, likelihood, inference, announced, tmp_path).moments()
    if likelihood == "logistic":
        mean, variance = both(mean, variance)
    if likelihood in ("softmax", "one_vs_each"):
        mean = mean - PRIOR_MEAN
    top = mean.argmax(1)[:, None]
    expected = -np.take_along_axis(mean / np.sqrt(variance), top, 1)[:, 0]
    found = model._fitted.predictor.outlier_scores(torch.from_numpy(QUERIES))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(likelihood, inference))


@pytest.mark.parametrize(("likelihood", "inference", "announced"), with_announced(POSTERIORS))
def test_uncertainty(likelihood: str, inference: str, announced: bool, tmp_path: Path) -> None:
    """Over the whole posterior, at the temperature, whatever the rule; a fixed set of points integrates it."""
    model = copy.deepcopy(fitted(likelihood, inference, announced=announced))
    latents = expected_latents(model, likelihood, inference, announced, tmp_path)
    for temperature in (1.0, 1.7):
        model._fitted = replace(model._fitted, temperature=temperature)
        tau = problem_of(likelihood, inference).tau
        total, aleatoric = dense.uncertainty(likelihood, latents.tempered(model.temperature_), tau)
        found = model.uncertainty(QUERIES)
        np.testing.assert_allclose(found.total, total, rtol=0, atol=INTEGRATED)
        np.testing.assert_allclose(found.aleatoric, aleatoric, rtol=0, atol=INTEGRATED)
        np.testing.assert_allclose(found.epistemic, found.total - found.aleatoric, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("likelihood", "inference"), POSTERIORS)
def test_log_evidence(likelihood: str, inference: str) -> None:
    x, y, weight = rows_of(likelihood, inference)
    model = classifier(likelihood, inference, "plug_in").fit(x, y, weight)
    if inference == "gibbs":
        assert np.isnan(model.log_evidence_)
        return
    _, expected = deterministic(likelihood, inference, problem_of(likelihood, inference), QUERIES)
    assert model.log_evidence_ == pytest.approx(expected, abs=tolerance(likelihood, inference))


@pytest.mark.parametrize(("likelihood", "inference"), MULTICLASS)
def test_an_announced_class_leaves_the_others_as_they_are(likelihood: str, inference: str) -> None:
    found = fitted(likelihood, inference, announced=True).predict_latent(QUERIES)
    without = fitted(likelihood, inference).predict_latent(QUERIES)
    for name in ("mean", "variance"):
        others = np.delete(getattr(found, name), ANNOUNCED, axis=1)
        np.testing.assert_allclose(others, getattr(without, name), rtol=0, atol=1e-10)


@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize(("likelihood", "inference"), [p for p in POSTERIORS if p[0] in ("softmax", "one_vs_each")])
def test_differences_of_latents_do_not_know_the_prior_mean(likelihood: str, inference: str, announced: bool) -> None:
    """Probabilities, outlier scores and evidence are the same for every prior mean; the latents move by it."""
    x, y, weight = rows_of(likelihood, inference)
    classes = [0, 1, 2, 3] if announced else None
    found, reference = (
        classifier(likelihood, inference, "integral", prior_mean=mean).partial_fit(x, y, classes, weight)
        for mean in (7.0, 0.0)
    )
    close = 2e-3 if inference == "mean_field" else 1e-7  # mean field stops when means move little for their size
    np.testing.assert_allclose(found.predict_proba(QUERIES), reference.predict_proba(QUERIES), rtol=0, atol=close)
    scores = (model._fitted.predictor.outlier_scores(torch.from_numpy(QUERIES)) for model in (found, reference))
    np.testing.assert_allclose(*scores, rtol=0, atol=close)
    assert found.log_evidence_ == pytest.approx(reference.log_evidence_, abs=close, nan_ok=inference == "gibbs")
    moved = reference.predict_latent(QUERIES).mean + 7.0
    np.testing.assert_allclose(found.predict_latent(QUERIES).mean, moved, rtol=0, atol=close)


@pytest.mark.parametrize(
    ("likelihood", "inference"), [p for p in POSTERIORS if p[0] != "least_squares" and p[1] == "laplace"]
)
def test_rows_of_a_single_class_are_of_this_rather_than_of_one_without_rows(likelihood: str, inference: str) -> None:
    x, _, weight = rows_of(likelihood, inference)
    for classes in ([0, 2], [0, 2, 3]):
        if likelihood == "logistic" and len(classes) > 2:
            continue
        model = classifier(likelihood, inference, "integral").partial_fit(x, np.full(len(x), 2), classes, weight)
        p, by_prior = model.predict_proba(x), model.predict_proba([[1e3, 1e3]])
        assert (p[:, 1] > by_prior[0, 1] + 0.05).all()
        np.testing.assert_allclose(p[:, 2:], p[:, :1] if len(classes) > 2 else p[:, 2:], rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("likelihood", "inference"), [p for p in POSTERIORS if p[0] != "least_squares" and p[1] != "laplace"]
)
def test_rows_of_a_single_class_compare_nothing(likelihood: str, inference: str) -> None:
    """All latents keep their prior; the classes are equally probable, unless two share one latent."""
    x, _, weight = rows_of(likelihood, inference)
    classes = [0, 2] if likelihood == "logistic" else [0, 2, 3]
    model = classifier(likelihood, inference, "integral").partial_fit(x, np.full(len(x), 2), classes, weight)
    latent = model.predict_latent(QUERIES)
    if likelihood == "logistic":
        np.testing.assert_allclose(latent.mean, np.tile([-PRIOR_MEAN / 2, PRIOR_MEAN / 2], (len(QUERIES), 1)))
        np.testing.assert_allclose(latent.variance, OUTPUTSCALE / 4)
        prior = Latents(np.full((1, 1, 1), PRIOR_MEAN), np.full((1, 1, 1, 1), OUTPUTSCALE))
        expected = np.tile(dense.probabilities(likelihood, "integral", prior, 1.0), (len(QUERIES), 1))
    else:
        np.testing.assert_allclose(latent.mean, PRIOR_MEAN)
        np.testing.assert_allclose(latent.variance, OUTPUTSCALE)
        expected = np.full((len(QUERIES), 3), 1 / 3)
    np.testing.assert_allclose(model.predict_proba(QUERIES), expected, atol=5e-3)
    assert model.log_evidence_ == 0


# Of logistic-softmax chains the file does not say the counts, which do not follow from a singular kernel matrix.
@pytest.mark.parametrize(("likelihood", "inference"), [p for p in POSTERIORS if p != ("logistic_softmax", "gibbs")])
def test_few_inducing_inputs_keep_the_variance_they_do_not_explain(
    likelihood: str, inference: str, tmp_path: Path
) -> None:
    """One inducing input for each class, its mean row: the rows see Nystrom's kernel, queries the whole variance."""
    problem = problem_of(likelihood, inference)
    kernel_of_all = dense.rbf(2.5, OUTPUTSCALE)
    inducing = problem.one_hot @ problem.x / problem.one_hot.sum(1, keepdims=True)
    problem = replace(
        problem,
        kernel=dense.nystrom(kernel_of_all, inducing),
        prior_variance=lambda queries: kernel_of_all(queries, queries).diagonal(),
    )
    x, y, weight = rows_of(likelihood, inference)
    model = classifier(likelihood, inference, kernel=kernel(2.5), approximation="inducing", n_inducing=len(inducing))
    model.fit(x, y, sample_weight=weight)
    if inference == "gibbs":
        found = sampled(model, likelihood, problem, QUERIES, tmp_path)
    else:
        found, evidence = deterministic(likelihood, inference, problem, QUERIES)
        if inference != "natural_gradient":
            assert model.log_evidence_ == pytest.approx(evidence, abs=tolerance(likelihood, inference))
    mean, variance = found.moments()
    if likelihood == "logistic":
        mean, variance = both(mean, variance)
    latent = model.predict_latent(QUERIES)
    np.testing.assert_allclose(latent.mean, mean, rtol=0, atol=tolerance(likelihood, inference))
    np.testing.assert_allclose(latent.variance, variance, rtol=0, atol=tolerance(likelihood, inference))


FEATURES = {  # the kernel of each name, and columns such that it has fewer or more features than there are rows
    "linear": (dense.polynomial(1), 2),
    "polynomial2": (dense.polynomial(2), 4),
    "rbf": (dense.rbf(np.sqrt(3), 1.0, 1.0), 3),
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(
    ("likelihood", "inference"), [("logistic", "laplace"), ("one_vs_each", "mean_field"), ("least_squares", "exact")]
)
def test_kernels_by_name_on_scaled_columns(likelihood: str, inference: str, name: str, standardize: bool) -> None:
    """Explicit features, rotated onto the rows' span where there are more of them than rows, give the kernel itself."""
    kernel_of_name, width = FEATURES[name]
    problem = problem_of(likelihood, inference)
    x, y, weight = rows_of(likelihood, inference)

    def wider(rows: Array) -> Array:
        return np.hstack([rows, 3 + np.sin(2 * rows[:, ::-1])])[:, :width]

    x, queries = wider(x), wider(QUERIES)
    model = classifier(likelihood, inference, kernel=name, standardize=standardize).fit(x, y, sample_weight=weight)
    center, scale = 0.0, 1.0
    if standardize:
        center = weight @ x / weight.sum()
        scale = np.sqrt(weight @ (x - center) ** 2 / weight.sum())
    problem = replace(problem, x=(x - center) / scale, kernel=kernel_of_name)
    latents, evidence = deterministic(likelihood, inference, problem, (queries - center) / scale)
    mean, variance = both(*latents.moments()) if likelihood == "logistic" else latents.moments()
    found = model.predict_latent(queries)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=5 * tolerance(likelihood, inference))
    np.testing.assert_allclose(found.variance, variance, rtol=0, atol=5 * tolerance(likelihood, inference))
    assert model.log_evidence_ == pytest.approx(evidence, abs=5 * tolerance(likelihood, inference))


def test_a_precomputed_kernel_is_the_kernel() -> None:
    problem = problem_of("one_vs_each", "mean_field")
    _, y, weight = rows_of("one_vs_each", "mean_field")
    model = classifier("one_vs_each", "mean_field", kernel="precomputed").fit(problem.gram, y, sample_weight=weight)
    mean, variance = deterministic("one_vs_each", "mean_field", problem, QUERIES)[0].moments()
    found = model.predict_latent(problem.kernel(QUERIES, problem.x))
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=tolerance("one_vs_each", "mean_field"))
    np.testing.assert_allclose(found.variance, variance, rtol=0, atol=tolerance("one_vs_each", "mean_field"))


@pytest.mark.parametrize("class_weight", [{0: 2.2, 2: 0.5, 3: 1.3}, "balanced"])
def test_class_weights_multiply_those_of_the_rows(class_weight: Any) -> None:
    problem = problem_of("least_squares", "exact")
    x, y, weight = rows_of("least_squares", "exact")
    sizes = np.bincount(problem.y, weight)  # a row of weight 2 is two rows
    factors = (
        weight.sum() / (len(sizes) * sizes) if class_weight == "balanced" else np.array(list(class_weight.values()))
    )
    model = classifier("least_squares", "exact", class_weight=class_weight).fit(x, y, sample_weight=weight)
    latents, _ = dense.least_squares(replace(problem, weight=weight * factors[problem.y]), QUERIES)
    np.testing.assert_allclose(model.predict_latent(QUERIES).mean, latents.moments()[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("likelihood", ["logistic", "one_vs_each", "logistic_softmax"])
def test_the_bound_of_batches_is_that_of_all_rows(likelihood: str, tmp_path: Path) -> None:
    """More rows than one batch holds: whatever Gaussian the steps end with, the evidence is bounded by all rows."""
    rng = np.random.default_rng(0)
    labels = rng.choice([0, 2] if likelihood == "logistic" else [0, 2, 3], 1100)
    weight = rng.uniform(0.4, 2.6, len(labels))
    model = classifier(likelihood, "natural_gradient", kernel="linear")
    model.fit(draw(rng, labels), labels, sample_weight=weight)
    model.save(tmp_path / "model.safetensors")
    arrays = written(tmp_path / "model.safetensors")
    (member,) = model._fitted.members
    features = member.process.posterior.features.numpy()
    problem = Problem(
        arrays["rows.x"],
        arrays["rows.y"],
        arrays["rows.weight"],
        dense.polynomial(1),
        PRIOR_MEAN,
        TAU if likelihood == "logistic_softmax" else 1.0,
    )
    np.testing.assert_allclose(features @ features.T, problem.gram, rtol=0, atol=1e-10)
    weights = member.process.posterior.weights.numpy()[0]  # (C, R)
    covariances = np.linalg.inv(arrays["arrays.factors"][0] @ np.swapaxes(arrays["arrays.factors"][0], 1, 2))
    mean = PRIOR_MEAN + weights @ features.T
    variance = np.stack([((features @ v) * features).sum(1) for v in covariances])
    expected = dense.local_bound(likelihood, problem, mean, variance)
    for m, v in zip(weights, covariances, strict=True):
        expected -= 0.5 * (np.trace(v) + m @ m - len(m) - np.linalg.slogdet(v)[1])
    assert model.log_evidence_ == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("likelihood", ["logistic", "one_vs_each", "logistic_softmax"])
def test_many_chains_are_the_posterior(likelihood: str, tmp_path: Path) -> None:
    """Chains are independent, so their moments at queries have plain standard errors; so have the oracle's draws."""
    problem = problem_of(likelihood, "gibbs")
    x, y, weight = rows_of(likelihood, "gibbs")
    model = classifier(likelihood, "gibbs", n_chains=150, n_sweeps=40).fit(x, y, sample_weight=weight)
    chains = sampled(model, likelihood, problem, QUERIES, tmp_path)

    def log_likelihood(f: Array) -> Array:
        logs = dense.class_logs(likelihood, np.swapaxes(f, 1, 2), problem.tau)
        return logs[:, np.arange(len(problem.y)), problem.y] @ problem.weight

    n_latents = chains.mean.shape[1]
    f = dense.elliptical_slice_samples(log_likelihood, problem.gram, PRIOR_MEAN, n_latents, 400, 100)
    # At the queries, draws of the latents at the rows are Gaussians like the chains'.
    cross = problem.kernel(problem.x, QUERIES)
    solved = np.linalg.solve(problem.gram, cross)
    oracle_mean = PRIOR_MEAN + (f - PRIOR_MEAN) @ solved
    oracle_square = oracle_mean**2 + problem.diagonal(QUERIES) - (cross * solved).sum(0)
    for found, oracle in ((chains.mean, oracle_mean), (chains.variance + chains.mean**2, oracle_square)):
        error = np.sqrt(found.var(0) / len(found) + oracle.var(0) / len(oracle))
        assert error.max() < 0.5
        assert (np.abs(found.mean(0) - oracle.mean(0)) / error).max() < 4

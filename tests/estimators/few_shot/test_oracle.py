"""`FewShotClassifier` against dense matrices, with a checkpoint of each kind of Gaussian process.

A *case* says a learner in the words of `make_learner` and the same model in those of `oracles.dense`. Checkpoints hold
single precision, so parameters of kernels are those of the case to seven digits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from sureshot import FewShotClassifier
from sureshot.likelihoods import get_likelihood
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from tests.oracles import dense
from tests.oracles.dense import Array, Kernel, Latents, Problem

SINGLE = 2e-5  # what single precision of the kernel's parameters changes at most
INTEGRATED = 0.02  # nats; the error of the estimator's fixed set of 128 points
ANNOUNCED = 1
CENTRE = np.array([0.25, -0.5])


@dataclass(frozen=True)
class Case:
    """A learner, and the model that it stands for.

    Attributes
    ----------
    kernel : callable
        On what the kernel sees: rows less `CENTRE`.
    likelihood, rule, predictive : str
        Of the inference and of the predictions.
    steps : int
        Of mean field; 0 for others.
    pairs_per_row : float, optional
        What the pairs of a row count together.
    temperature : tuple of float
        ``T = a C^b S^c`` for C classes and S shots.
    learner, options
        For `make_learner`.
    """

    kernel: Kernel
    likelihood: str
    rule: str
    predictive: str
    learner: str
    prior_mean: float = 0.0
    tau: float = 1.0
    noise: float = 1.0
    steps: int = 0
    pairs_per_row: float | None = None
    temperature: tuple[float, float, float] = (1.0, 0.0, 0.0)
    kernel_name: str = "rbf"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> bool:
        return "gibbs" in self.learner


CASES = {
    "one-vs-each by mean field, all pairs": Case(
        dense.cosine(8.0, 1.0),
        "one_vs_each",
        "plug_in",
        "softmax",
        steps=10,
        learner="ove_mean_field_ml",
        kernel_name="cosine",
        options={"outputscale": 8.0, "constant": 1.0, "n_steps_prediction": 10, "pairs_per_row": None},
    ),
    "one-vs-each by mean field": Case(
        lambda a, b: 6.0 * (a @ b.T / 2 + 0.5),
        "one_vs_each",
        "plug_in",
        "softmax",
        steps=12,
        pairs_per_row=5.0,
        temperature=(0.7, 0.4, -0.3),
        learner="ove_mean_field_pl",
        kernel_name="linear",
        options={"outputscale": 6.0, "constant": 0.5, "n_steps_prediction": 12, "pairs_per_row": 5.0},
    ),
    "logistic-softmax by mean field": Case(
        dense.rbf(1.25, 5.0),
        "logistic_softmax",
        "integral",
        "logistic_softmax",
        prior_mean=-1.5,
        tau=0.625,
        steps=9,
        temperature=(1.5, 0.0, 0.0),
        learner="cdkt_pl",
        options={
            "outputscale": 5.0,
            "lengthscale": 1.25,
            "n_steps_prediction": 9,
            "temperature": 0.625,
            "prior_mean": -1.0,
            "prediction_prior_mean": -1.5,
        },
    ),
    "one-vs-each by Gibbs": Case(
        dense.rbf(1.25, 5.0),
        "one_vs_each",
        "integral",
        "one_vs_each",
        temperature=(1.2, 0.2, 0.1),
        learner="ove_gibbs_pl",
        options={"outputscale": 5.0, "lengthscale": 1.25, "n_chains": 3, "n_sweeps_prediction": 8},
    ),
    "logistic-softmax by Gibbs": Case(
        dense.rbf(1.25, 5.0),
        "logistic_softmax",
        "expected_log",
        "logistic_softmax",
        prior_mean=-1.5,
        tau=0.625,
        learner="logistic_softmax_gibbs_pl",
        options={
            "outputscale": 5.0,
            "lengthscale": 1.25,
            "n_chains": 3,
            "n_sweeps_prediction": 8,
            "temperature": 0.625,
            "prior_mean": -1.5,
            "rule": "expected_log",
        },
    ),
    "least squares": Case(
        dense.rbf(1.25, 2.0),
        "least_squares",
        "plug_in",
        "logistic_softmax",
        prior_mean=-0.5,
        noise=0.25,
        learner="dkt",
        options={"outputscale": 2.0, "lengthscale": 1.25, "noise": 0.25, "prior_mean": -0.5},
    ),
}
DETERMINISTIC = [name for name, case in CASES.items() if not case.samples]
CASES_AND_PRESENCE = [(name, announced) for announced in (False, True) for name in CASES]
over_cases: Callable[..., Any] = pytest.mark.parametrize(("name", "announced"), CASES_AND_PRESENCE)


def rows_of(case: Case) -> tuple[Array, Array, Array, Array]:
    """Ten rows of the classes 0, 2 and 3 with weights, and queries; coordinates with few digits are exact in single."""
    rng = np.random.default_rng(3)
    labels = np.resize([0, 2, 3], 10)
    centres = {0: (0.0, 0.0), 2: (1.2, 0.3), 3: (0.0, 1.4)}
    x = rng.standard_normal((10, 2)) + np.array([centres[label] for label in labels.tolist()])
    queries = 1.5 * rng.standard_normal((5, 2))
    real, whole = rng.uniform(0.4, 2.6, 10), rng.integers(1, 4, 10).astype(float)
    x, queries = (np.round(rows * 64) / 64 for rows in (x, queries))
    return x, labels, whole if case.samples else real, queries


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], FewShotClassifier]:
    """Every case as it is and with an announced class; some rows arrive later."""
    folder = tmp_path_factory.mktemp("checkpoints")
    found = {}
    for name, case in CASES.items():
        path = folder / f"{case.learner}.safetensors"
        learner = make_learner(case.learner, make_backbone("identity", (2,)), kernel=case.kernel_name, **case.options)
        learner.set_centre(torch.from_numpy(CENTRE))
        scale, growth, shot_growth = case.temperature
        learner.set_temperature(scale * 3**growth * 2**shot_growth, 3, growth, 2, shot_growth)
        save_checkpoint(path, learner, {}, {"episodes": 0}, {})
        x, labels, weight, _ = rows_of(case)
        for announced in (False, True):
            model = FewShotClassifier(path, random_state=4)
            classes = [0, 1, 2, 3] if announced else None
            model.partial_fit(x[:6], labels[:6], classes, weight[:6]).partial_fit(x[6:], labels[6:], None, weight[6:])
            found[name, announced] = model
    return found


def problem_of(case: Case) -> tuple[Problem, Array]:
    """What the kernel sees of the rows, in their order, and of the queries."""
    x, labels, weight, queries = rows_of(case)
    x, queries = x - CENTRE, queries - CENTRE
    y = np.searchsorted(np.unique(labels), labels)
    return Problem(x, y, weight, case.kernel, case.prior_mean, case.tau, case.noise), queries


def expected_latents(case: Case, model: FewShotClassifier, announced: bool) -> tuple[Latents, float]:
    """Of all classes, and the log evidence or its bound."""
    problem, queries = problem_of(case)
    evidence = np.nan
    if case.samples:
        latents = sampled(case, model, problem, queries)
    elif case.likelihood == "least_squares":
        means = np.full(problem.n_classes, case.prior_mean)
        latents, evidence = dense.least_squares(problem, queries, means)
    else:
        share = 1.0 if case.pairs_per_row is None else case.pairs_per_row / (problem.n_classes - 1)
        shared = replace(problem, weight=share * problem.weight)
        sites, _ = dense.mean_field(case.likelihood, shared, case.steps, tolerance=0.0)
        latents = dense.given_sites(problem, sites, queries)
        # Rivals that count less change the posterior, not what it bounds.
        moments = dense.training_moments(problem, sites)
        evidence = dense.local_bound(case.likelihood, problem, *moments) - dense.divergence(problem, sites)
    if announced:
        latents = latents.joined(ANNOUNCED, case.prior_mean, problem.diagonal(queries))
    return latents, evidence


def sampled(case: Case, model: FewShotClassifier, problem: Problem, queries: Array) -> Latents:
    """The mixture of the chains' Gaussians, given the variables that they ended with."""
    kept = model._fitted.rows.x
    order = [int(np.abs(problem.x - row).sum(1).argmin()) for row in kept]
    assert sorted(order) == list(range(len(problem.y)))
    problem = replace(problem, x=problem.x[order], y=problem.y[order], weight=problem.weight[order])
    posterior: Any = model._fitted.predictor.posterior
    posterior = getattr(posterior, "inner", posterior)
    if case.likelihood == "one_vs_each":
        states = posterior.result.omega.numpy().reshape(-1, problem.n_classes, len(problem.y))
        return dense.chains([dense.given_pairs(problem, omega, queries) for omega in states])
    precision, shift = (part.squeeze(1).numpy() for part in posterior.sites)
    counts = problem.weight * problem.one_hot - 2 * case.tau * shift
    np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
    return dense.chains([dense.given_sites(problem, sites, queries) for sites in zip(precision, shift, strict=True)])


def tempered(case: Case, p: Array) -> Array:
    """The learner's own temperature of probabilities (..., C), by the numbers of classes and of rows of each."""
    problem, _ = problem_of(case)
    scale, growth, shot_growth = case.temperature
    shots = np.exp(np.log(problem.one_hot @ problem.weight).mean())
    logs = np.log(p) / (scale * p.shape[-1] ** growth * np.clip(shots, 1, 20) ** shot_growth)
    powers = np.exp(logs - logs.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@over_cases
def test_latents(name: str, announced: bool, models: dict[tuple[str, bool], FewShotClassifier]) -> None:
    model = models[name, announced]
    mean, variance = expected_latents(CASES[name], model, announced)[0].moments()
    found = model.predict_latent(rows_of(CASES[name])[3])
    np.testing.assert_allclose(found.mean, mean, rtol=SINGLE, atol=SINGLE)
    np.testing.assert_allclose(found.variance, variance, rtol=SINGLE, atol=SINGLE)


@over_cases
def test_probabilities(name: str, announced: bool, models: dict[tuple[str, bool], FewShotClassifier]) -> None:
    """By the rule at the latents divided by `temperature_`, then at the learner's own temperature."""
    case, model = CASES[name], copy.copy(models[name, announced])
    latents, _ = expected_latents(case, model, announced)
    options = {} if case.predictive == "one_vs_each" else {"temperature": case.tau}
    rules = get_likelihood(case.predictive, **options)
    queries = rows_of(case)[3]
    for temperature in (1.0, 1.6):
        model._fitted = replace(model._fitted, temperature=temperature)
        at = latents.tempered(model.temperature_)
        by_library = rules.predict(torch.from_numpy(at.mean), torch.from_numpy(at.covariance), case.rule)
        expected = by_library.mean(0).mT.numpy()
        numerical = dense.probabilities(case.predictive, case.rule, at, case.tau)
        np.testing.assert_allclose(expected, numerical, atol=5e-3 if case.rule == "integral" else 1e-4)
        np.testing.assert_allclose(model.predict_proba(queries), tempered(case, expected), rtol=0, atol=SINGLE)


@over_cases
def test_uncertainty(name: str, announced: bool, models: dict[tuple[str, bool], FewShotClassifier]) -> None:
    """Of the mean, over the posterior, of the probabilities at the latents, tempered as predictions are."""
    case, model = CASES[name], copy.copy(models[name, announced])
    latents, _ = expected_latents(case, model, announced)
    for temperature in (1.0, 1.6):
        model._fitted = replace(model._fitted, temperature=temperature)
        at = latents.tempered(model.temperature_)
        total, aleatoric = dense.uncertainty(case.predictive, at, case.tau, lambda p: tempered(case, p))
        found = model.uncertainty(rows_of(case)[3])
        np.testing.assert_allclose(found.total, total, rtol=0, atol=INTEGRATED)
        np.testing.assert_allclose(found.aleatoric, aleatoric, rtol=0, atol=INTEGRATED)


@over_cases
def test_outlier_scores(name: str, announced: bool, models: dict[tuple[str, bool], FewShotClassifier]) -> None:
    """What the model says: the squared distance to the nearest mean, in feature space, of classes that have rows."""
    problem, queries = problem_of(CASES[name])
    shares = problem.one_hot * problem.weight
    shares = shares / shares.sum(1, keepdims=True)
    to_class = shares @ problem.kernel(problem.x, queries)
    within = (shares @ problem.gram * shares).sum(1)
    expected = (problem.diagonal(queries) - 2 * to_class + within[:, None]).min(0)
    expected = expected / problem.diagonal(problem.x).mean()
    model = models[name, announced]
    inputs = model._fitted.predictor.inputs(model._kept(model._fitted, rows_of(CASES[name])[3]))
    found = model._fitted.predictor.outlier_scores(inputs)
    np.testing.assert_allclose(found, expected, rtol=SINGLE, atol=SINGLE)


@over_cases
def test_log_evidence(name: str, announced: bool, models: dict[tuple[str, bool], FewShotClassifier]) -> None:
    """Of the labels of the classes that have rows."""
    found = models[name, announced].log_evidence_
    if CASES[name].samples:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(expected_latents(CASES[name], models[name, announced], announced)[1], rel=SINGLE)

"""`GPClassifier`: what it promises beyond scikit-learn's own checks."""

import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpytorch
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sureshot import GPClassifier, kernels

COMBINATIONS = [
    ("auto", "auto"),
    ("softmax", "laplace"),
    ("least_squares", "auto"),
    ("one_vs_each", "mean_field"),
    ("one_vs_each", "gibbs"),
    ("one_vs_each", "natural_gradient"),
    ("logistic_softmax", "mean_field"),
    ("logistic_softmax", "gibbs"),
    ("logistic_softmax", "natural_gradient"),
]
BINARY = [("logistic", scheme) for scheme in ("laplace", "mean_field", "gibbs", "natural_gradient")]


def iris(step: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    train = np.arange(len(y)) % step == 0
    return X[train], y[train], X[~train], y[~train]


def fixed(**options: object) -> GPClassifier:
    settings = {"kernel": "rbf", "objective": None, "standardize": False, "n_sweeps": 5, "n_chains": 4, **options}
    return GPClassifier(**settings)


@pytest.mark.parametrize(("likelihood", "inference"), COMBINATIONS)
def test_every_likelihood_and_inference_learns_iris(likelihood: str, inference: str) -> None:
    X, y, X_test, y_test = iris()
    model = GPClassifier(kernel="rbf", likelihood=likelihood, inference=inference).fit(X, y)
    probabilities = model.predict_proba(X_test)
    assert log_loss(y_test, probabilities) < 0.55
    assert model.score(X_test, y_test) > 0.8
    assert model.inference_ == ("exact" if model.likelihood_ == "least_squares" else model.inference_)
    latent = model.predict_latent(X_test[:4])
    assert latent.mean.shape == latent.variance.shape == (4, 3)
    assert (latent.variance >= 0).all()


@pytest.mark.parametrize(("likelihood", "inference"), BINARY)
def test_every_inference_of_the_logistic_likelihood(likelihood: str, inference: str) -> None:
    X, y, X_test, y_test = iris()
    names = np.array(["other", "virginica"])
    model = GPClassifier(kernel="rbf", likelihood=likelihood, inference=inference).fit(X, names[(y == 2).astype(int)])
    assert log_loss((y_test == 2).astype(int), model.predict_proba(X_test)[:, 1]) < 0.6
    latent = model.predict_latent(X_test)
    np.testing.assert_allclose(latent.mean[:, 0], -latent.mean[:, 1])


@pytest.mark.parametrize(("likelihood", "inference"), [*COMBINATIONS[1:4], ("logistic_softmax", "mean_field")])
def test_partial_fit_is_fit_on_all_rows_with_the_kernel_kept(likelihood: str, inference: str) -> None:
    X, y, X_test, _ = iris()
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    whole = fixed(likelihood=likelihood, inference=inference).fit(X, y)
    parts = fixed(likelihood=likelihood, inference=inference)
    for start in range(0, len(y), 7):
        parts.partial_fit(X[start : start + 7], y[start : start + 7], classes=[0, 1, 2])
    np.testing.assert_allclose(parts.predict_latent(X_test).mean, whole.predict_latent(X_test).mean, atol=1e-8)
    np.testing.assert_allclose(parts.predict_latent(X_test).variance, whole.predict_latent(X_test).variance, atol=1e-8)
    np.testing.assert_allclose(parts.predict_proba(X_test), whole.predict_proba(X_test), atol=1e-8)


def test_partial_fit_after_tuning_keeps_kernel_and_refreshes_the_temperature() -> None:
    X, y, X_test, y_test = iris(10)
    order = np.random.default_rng(0).permutation(len(y_test))
    X_test, y_test = X_test[order], y_test[order]
    model = GPClassifier().fit(X, y)
    before = model.kernel_
    model.partial_fit(X_test[:60], y_test[:60])
    assert model.kernel_ == before
    assert str(model.kernel_) == str(before)
    assert model.score(X_test, y_test) > 0.9
    model.partial_fit(X_test[:5], y_test[:5], retune=True)
    assert model.score(X_test, y_test) > 0.9


def test_new_classes_take_their_sorted_places() -> None:
    X, y, X_test, _ = iris()
    names = np.array(["m", "z", "a"])
    model = fixed(likelihood="softmax").fit(X[y < 2], names[y[y < 2]])
    assert model.classes_.tolist() == ["m", "z"]
    model.partial_fit(X[y == 2], names[y[y == 2]])
    assert model.classes_.tolist() == ["a", "m", "z"]
    whole = fixed(likelihood="softmax").fit(X, names[y])
    np.testing.assert_allclose(model.predict_proba(X_test), whole.predict_proba(X_test), atol=1e-5)


def test_a_third_class_changes_likelihood_and_rule() -> None:
    X, y, X_test, y_test = iris(3)
    model = GPClassifier(ensemble=False).fit(X[y < 2], y[y < 2])
    assert model.likelihood_ == "logistic"
    model.partial_fit(X[y == 2], y[y == 2])
    assert (model.likelihood_, model.predictive_) == ("softmax", "plug_in")
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.3
    model.forget([0])
    assert model.likelihood_ == "logistic"
    assert model.score(X_test[y_test > 0], y_test[y_test > 0]) > 0.85


@pytest.mark.parametrize(
    ("likelihood", "inference"),
    [
        ("softmax", "laplace"),
        ("one_vs_each", "mean_field"),
        ("one_vs_each", "gibbs"),
        ("one_vs_each", "natural_gradient"),
    ],
)
def test_an_announced_class_predicts_from_its_prior(likelihood: str, inference: str) -> None:
    X, y, X_test, _ = iris()
    model = fixed(likelihood=likelihood, inference=inference)
    model.partial_fit(X, y, classes=[0, 1, 2, 9])
    latent = model.predict_latent(X_test)
    np.testing.assert_allclose(latent.mean[:, 3], 0)
    np.testing.assert_allclose(latent.variance[:, 3], 2.0)  # output scale 1 x (1 + constant 1)
    probabilities = model.predict_proba(X_test)
    assert probabilities.shape == (len(X_test), 4)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities[:, 3] > 0).all()


def test_forgetting_a_class_is_never_having_seen_it() -> None:
    X, y, X_test, _ = iris()
    model = fixed(likelihood="softmax").fit(X, y).forget([1])
    without = fixed(likelihood="softmax").fit(X[y != 1], y[y != 1])
    np.testing.assert_array_equal(model.classes_, [0, 2])
    np.testing.assert_allclose(model.predict_proba(X_test), without.predict_proba(X_test), atol=1e-6)
    with pytest.raises(ValueError, match="does not know"):
        model.forget(["never seen"])
    with pytest.raises(ValueError, match="at least one must stay"):
        model.forget([0, 2])


@pytest.mark.parametrize("likelihood", ["auto", "least_squares", "one_vs_each", "logistic_softmax"])
def test_weights_are_copies_of_rows(likelihood: str) -> None:
    X, y, X_test, _ = iris()
    weight = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = GPClassifier(kernel="rbf", likelihood=likelihood).fit(X, y, sample_weight=weight)
    copied = GPClassifier(kernel="rbf", likelihood=likelihood).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(X_test), copied.predict_proba(X_test), atol=1e-10)


def test_class_weights_shift_probability_towards_a_class() -> None:
    X, y, X_test, _ = iris()
    plain = fixed(likelihood="softmax").fit(X, y).predict_proba(X_test)[:, 1].mean()
    heavy = fixed(likelihood="softmax", class_weight={0: 1, 1: 5, 2: 1}).fit(X, y).predict_proba(X_test)[:, 1].mean()
    assert heavy > plain
    GPClassifier(class_weight="balanced").fit(X, y)


def test_calibrate_lowers_the_held_out_loss_and_lasts_until_fit() -> None:
    X, y, X_test, y_test = iris()
    model = fixed(likelihood="softmax", predictive="plug_in").fit(X, y)
    before = log_loss(y_test[::2], model.predict_proba(X_test[::2]))
    model.calibrate(X_test[::2], y_test[::2])
    temperature = model.temperature_
    assert log_loss(y_test[::2], model.predict_proba(X_test[::2])) < before
    model.partial_fit(X_test[1::2][:5], y_test[1::2][:5])
    assert model.temperature_ == temperature
    model.fit(X, y)
    assert model.temperature_ == 1.0
    with pytest.raises(ValueError, match="labels the model does not know"):
        model.calibrate(X_test, np.where(y_test == 0, 77, y_test))


def test_predictions_do_not_depend_on_the_batch() -> None:
    X, y, X_test, _ = iris()
    for kernel, likelihood in (("auto", "auto"), ("rbf", "one_vs_each")):
        model = GPClassifier(kernel, likelihood=likelihood, predictive="integral").fit(X, y)
        whole = model.predict_proba(X_test)
        single = np.concatenate([model.predict_proba(row[None]) for row in X_test[:10]])
        np.testing.assert_allclose(single, whole[:10], rtol=1e-9)
        np.testing.assert_array_equal(model.predict_proba(X_test), whole)
        np.testing.assert_allclose(model.outlier_score(X_test)[:10], model.outlier_score(X_test[:10]), rtol=1e-9)


def test_one_seed_fixes_everything_and_the_global_generator_is_left_alone() -> None:
    X, y, X_test, _ = iris()
    state = torch.get_rng_state()
    first, second, other = (
        GPClassifier(kernel="rbf", likelihood="one_vs_each", inference="gibbs", random_state=seed)
        .fit(X, y)
        .predict_proba(X_test)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    X, y, _, _ = iris()
    GPClassifier().fit(X, y)
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_saved_models_predict_the_same_bits_in_a_new_process(tmp_path: Path) -> None:
    X, y, X_test, _ = iris()
    models: dict[str, GPClassifier] = {}
    for likelihood, inference in [*COMBINATIONS, *BINARY]:
        labels = np.array(["no", "yes"])[(y == 2).astype(int)] if likelihood == "logistic" else y
        fixed_kernel = {} if likelihood == "auto" else {"kernel": "rbf", "objective": None}
        model = GPClassifier(likelihood=likelihood, inference=inference, n_sweeps=5, **fixed_kernel).fit(X, labels)
        if likelihood != "logistic":
            model.partial_fit(X[:2], labels[:2], classes=[0, 1, 2, 5])
        model.save(tmp_path / f"{likelihood}-{inference}.safetensors")
        models[f"{likelihood}-{inference}"] = model
    np.save(tmp_path / "x.npy", X_test)
    script = (
        "import sys, numpy as np; from pathlib import Path; from sureshot import GPClassifier\n"
        "x = np.load('x.npy')\n"
        "for path in Path('.').glob('*.safetensors'):\n"
        "    m = GPClassifier.load(path)\n"
        "    np.savez(path.stem, p=m.predict_proba(x), o=m.outlier_score(x), c=m.classes_)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    for name, model in models.items():
        with np.load(tmp_path / f"{name}.npz") as found:
            np.testing.assert_array_equal(found["p"], model.predict_proba(X_test), err_msg=name)
            np.testing.assert_array_equal(found["o"], model.outlier_score(X_test), err_msg=name)
            np.testing.assert_array_equal(found["c"], model.classes_, err_msg=name)
        loaded = GPClassifier.load(tmp_path / f"{name}.safetensors")
        loaded.partial_fit(X_test[:3], model.predict(X_test[:3]))
        assert np.isfinite(loaded.predict_proba(X_test)).all(), name


def test_pickle_joblib_threads_pipeline_and_grid_search(tmp_path: Path) -> None:
    X, y, X_test, _ = iris()
    model = GPClassifier().fit(X, y)
    expected = model.predict_proba(X_test)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X_test), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X_test), expected)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(model.predict_proba, [X_test] * 8):
            np.testing.assert_array_equal(found, expected)
    pipeline = make_pipeline(StandardScaler(), GPClassifier("rbf")).fit(X, y)
    assert pipeline.score(X, y) > 0.9
    assert pipeline[-1].outlier_score(pipeline[:-1].transform(X_test)).shape == (len(X_test),)
    search = GridSearchCV(GPClassifier(), {"kernel": ["rbf", "linear"]}, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_["kernel"] in ("rbf", "linear")


def test_tables_tensors_and_text_labels() -> None:
    X, y, X_test, _ = iris()
    names = load_iris().target_names[y]
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = GPClassifier("rbf").fit(frame, pd.Series(names))
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert set(model.predict(pd.DataFrame(X_test, columns=["a", "b", "c", "d"]))) <= set(names)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c", "d"]])
    from_tensor = GPClassifier("rbf").fit(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(from_tensor.predict(torch.from_numpy(X_test)), from_tensor.predict(X_test))


def test_precomputed_kernel_equals_the_named_one() -> None:
    X, y, X_test, _ = iris()

    def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1) / 4) + 1

    named = fixed(likelihood="softmax").fit(X, y)
    given = fixed(kernel="precomputed", likelihood="softmax").fit(gram(X, X), y)
    np.testing.assert_allclose(given.predict_proba(gram(X_test, X)), named.predict_proba(X_test), atol=1e-4)
    tuned = GPClassifier(kernel="precomputed").fit(gram(X, X), y)
    assert tuned.score(gram(X_test, X), iris()[3]) > 0.85
    with pytest.raises(ValueError, match="square matrix"):
        fixed(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match="precomputed"):
        given.partial_fit(gram(X, X), y)


def test_a_gpytorch_kernel_is_used_as_it_is_and_not_changed() -> None:
    X, y, X_test, y_test = iris()
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=4) + gpytorch.kernels.LinearKernel()
    before = {name: value.clone() for name, value in kernel.named_parameters()}
    model = GPClassifier(kernel=kernel, standardize=True).fit(X, y)
    assert model.score(X_test, y_test) > 0.85
    for name, value in kernel.named_parameters():
        torch.testing.assert_close(value, before[name])


@pytest.mark.parametrize("approximation", ["exact", "inducing"])
def test_inducing_inputs_come_close_to_the_exact_posterior(approximation: str) -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order] / 16, y[order]
    model = GPClassifier(kernel="rbf", approximation=approximation, n_inducing=200, standardize=False)
    model.fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.93
    assert log_loss(y[400:], model.predict_proba(X[400:])) < 0.25


def test_low_rank_needs_features() -> None:
    X, y, _, _ = iris()
    GPClassifier(kernel="linear", approximation="low_rank").fit(X, y)
    with pytest.raises(ValueError, match="low_rank"):
        GPClassifier(kernel="rbf", approximation="low_rank").fit(X, y)


def test_outliers_score_higher_and_uncertainty_adds_up() -> None:
    digits = load_digits()
    X, y = digits.data / 16, digits.target
    known = y < 7
    rows = np.flatnonzero(known)[:140]
    X = X[:, X[rows].std(axis=0) > 0]
    model = GPClassifier().fit(X[rows], y[rows])
    rest = np.setdiff1d(np.arange(len(y)), rows)
    scores = model.outlier_score(X[rest])
    unknown = y[rest] >= 7
    assert np.median(scores[unknown]) > np.quantile(scores[~unknown], 0.75)
    parts = model.uncertainty(X[rest][:50])
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-9)
    assert (parts.epistemic >= 0).all()
    assert parts.total.max() <= np.log(7) + 1e-9


def test_one_example_per_class_uses_the_documented_default() -> None:
    X, y, X_test, y_test = iris()
    first = [int(np.flatnonzero(y == c)[0]) for c in range(3)]
    model = GPClassifier(ensemble=False).fit(X[first], y[first])
    assert np.isnan(model.leave_one_out_score_)
    assert model.temperature_ == pytest.approx(0.45 * (4 / 37) ** -0.4)
    assert model.score(X_test, y_test) > 0.5


def test_the_plug_in_rule_predicts() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 20)) + 2 * np.eye(20)[np.arange(6) % 2]
    y = np.arange(6) % 2
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert GPClassifier().fit(unit, y).predictive_ == "plug_in"
    assert GPClassifier("cosine").fit(X, y).predictive_ == "plug_in"
    assert GPClassifier("rbf").fit(X, y).predictive_ == "plug_in"
    assert GPClassifier("rbf", predictive="integral").fit(X, y).predictive_ == "integral"
    third = GPClassifier().fit(unit, y).partial_fit(-unit[:2], [2, 2])
    assert third.forget(classes=[2]).predictive_ == "plug_in"


def test_memory_is_asked_before_it_is_taken() -> None:
    X, y, _, _ = iris()
    with pytest.raises(MemoryError, match="would take about"):
        GPClassifier(memory_limit=1000).fit(X, y)


def test_constant_columns_are_ignored_with_one_warning() -> None:
    X, y, X_test, _ = iris()
    padded, padded_test = (np.column_stack([part, np.full(len(part), 7.0)]) for part in (X, X_test))
    with pytest.warns(UserWarning, match="ignored 1 constant column"):
        model = GPClassifier("rbf").fit(padded, y)
    np.testing.assert_allclose(model.predict_proba(padded_test), GPClassifier("rbf").fit(X, y).predict_proba(X_test))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GPClassifier().fit(np.zeros((4, 2)), [0, 1, 0, 1]).predict_proba(np.ones((1, 2)))


def test_memory_is_asked_for_all_features_of_the_kernel() -> None:
    X, y, _, _ = iris()
    with pytest.raises(MemoryError, match=rf"{len(X)} rows, 3 classes and 15 features"):  # of degree 2 in 4 columns
        fixed(kernel="polynomial2", memory_limit=1000).fit(X, y)


def test_memory_after_fitting_is_rows_features_and_one_vector_for_each_class() -> None:
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_classes = 600, 30, 60
    y = np.arange(n_rows) % n_classes
    X = rng.normal(size=(n_classes, n_columns))[y] + 0.3 * rng.normal(size=(n_rows, n_columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model = GPClassifier().fit(X, y)
    size = len(pickle.dumps(model))
    rank = n_columns + 1
    numbers = n_rows * (n_columns + rank + 2) + n_classes * rank
    assert size < 8 * 1.5 * numbers + 100_000


def test_sampled_covariances_count_in_the_uncertainty() -> None:
    """Of one-vs-each only differences are known: the common mode of the latents is no uncertainty of the label."""
    X, y, X_test, _ = iris()
    model = fixed(likelihood="one_vs_each", inference="gibbs", n_chains=20, n_sweeps=30).fit(X, y)
    epistemic = model.uncertainty(X_test).epistemic
    process = model._fitted.heaviest.process
    mean, covariance = process.moments(process.values(model._fitted.predictor.inputs(X_test)))
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(400, *mean.mT.shape, generator=generator, dtype=torch.float64)
    drawn = mean.mT + (torch.linalg.cholesky(covariance) @ noise.unsqueeze(-1)).squeeze(-1)  # (400, S, Q, C)
    p = model._fitted.heaviest.plan.model.predictive_likelihood.plug_in(drawn.mT).flatten(0, 1).mT  # (draws, Q, C)
    expected = torch.special.entr(p.mean(0)).sum(-1) - torch.special.entr(p).sum(-1).mean(0)
    np.testing.assert_allclose(epistemic, expected.numpy(), atol=0.01)


def test_the_evidence_of_natural_gradients_is_the_bound_on_all_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 2))
    y = (X[:, 0] + rng.normal(size=2500) > 0).astype(int)
    found = []
    for seed in range(3):
        model = GPClassifier("rbf", objective=None, inference="natural_gradient", n_inducing=10, random_state=seed)
        found.append(model.fit(X, y).log_evidence_)
    assert np.ptp(found) < 0.005 * abs(np.mean(found))
    reference = GPClassifier("rbf", objective=None, inference="mean_field", approximation="inducing", n_inducing=10)
    assert np.mean(found) == pytest.approx(reference.fit(X, y).log_evidence_, rel=0.005)


@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_each"])
def test_a_shift_of_all_latents_changes_nothing(likelihood: str) -> None:
    X, y, X_test, _ = iris()
    models = [
        fixed(likelihood=likelihood, prior_mean=mean).partial_fit(X, y, classes=[0, 1, 2, 7]) for mean in (0.0, -3.0)
    ]
    for name in ("predict_proba", "outlier_score"):
        first, second = (getattr(model, name)(X_test) for model in models)
        np.testing.assert_allclose(second, first, atol=0.01)  # mean field stops when steps are below 1e-4 (1 + |mean|)
    shifted = models[1].predict_latent(X_test).mean - models[0].predict_latent(X_test).mean
    np.testing.assert_allclose(shifted, -3, atol=5e-3)


def test_an_announced_class_leaves_the_others_their_covariance() -> None:
    X, y, X_test, _ = iris()
    options = {"likelihood": "one_vs_each", "inference": "gibbs", "predictive": "expected_log"}
    plain = fixed(**options).fit(X, y)
    announced = fixed(**options).partial_fit(X, y, classes=[0, 1, 2, 9])
    before, fitted = plain._fitted.heaviest, announced._fitted.heaviest
    rows = announced._fitted.predictor.inputs(X_test)
    _, inner = before.process.moments(before.process.values(rows))
    mean, outer = fitted.process.moments(fitted.process.values(rows))
    torch.testing.assert_close(outer[..., :3, :3], inner)
    expected = fitted.plan.model.predictive_likelihood.predict_mixture(mean, outer, "expected_log")
    np.testing.assert_allclose(announced.predict_proba(X_test), expected.mT.numpy(), atol=1e-10)


@pytest.mark.parametrize("likelihood", ["auto", "least_squares", "one_vs_each"])
@pytest.mark.parametrize(
    "kernel",
    [kernels.RBF(1.5), kernels.Linear(), kernels.RBF(1.0) + kernels.Linear(), gpytorch.kernels.RBFKernel()],
    ids=["rbf", "linear", "sum", "gpytorch"],
)
def test_a_kernel_without_a_scale_is_used_as_it_is(kernel: Any, likelihood: str, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9) % 3
    model = GPClassifier(kernel=kernel, objective=None, likelihood=likelihood).fit(X, y)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(GPClassifier.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))
    assert np.isfinite(model.outlier_score(X)).all()
    assert float(str(model.kernel_).partition(" x ")[0]) == 1


def noisy_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thirty rows that say little of noise, then some with many wrong labels."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(600, 3))
    y = (X[:, 0] + 0.3 * X[:, 1] ** 2 + 0.1 * generator.normal(size=600) > 0).astype(int)
    y[30:430] = np.where(generator.random(400) < 0.35, 1 - y[30:430], y[30:430])
    return X, y, generator.normal(size=(50, 3))


@pytest.mark.parametrize("settings", [{}, {"n_inducing": 40, "approximation": "inducing"}])
def test_an_update_does_not_depend_on_what_was_done_before_it(settings: dict[str, Any], tmp_path: Path) -> None:
    """One row more, a pickle, a file."""
    X, y, queries = noisy_rows()

    def begun() -> GPClassifier:
        return (
            GPClassifier("rbf", likelihood="least_squares", **settings)
            .fit(X[:30], y[:30])
            .partial_fit(X[30:430], y[30:430])
        )

    plain, pickled, saved, one_more = begun(), pickle.loads(pickle.dumps(begun())), begun(), begun()
    saved.save(tmp_path / "m")
    others = [pickled, GPClassifier.load(tmp_path / "m"), one_more.partial_fit(X[430:431], y[430:431])]
    expected = plain.partial_fit(X[430:], y[430:]).predict_proba(queries)
    for other, start in zip(others, (430, 430, 431), strict=True):
        found = other.partial_fit(X[start:], y[start:]).predict_proba(queries)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_noise_is_that_of_the_rows_whatever_classes_came_and_went() -> None:
    X, y, _ = noisy_rows()
    settings = {"likelihood": "least_squares", "n_inducing": 40, "approximation": "inducing"}
    begun, other = (GPClassifier("rbf", **settings).fit(X[:30], y[:30]) for _ in range(2))
    begun.partial_fit(X[30:430], y[30:430]).partial_fit(X[430:432] + 3, [7, 7]).forget(7)
    other.partial_fit(X[30:430], y[30:430], classes=[9]).forget(9)
    found, expected = (model._fitted.heaviest.plan for model in (begun, other))
    assert found.as_chosen == expected.as_chosen is not None
    assert found.model.noise == pytest.approx(expected.model.noise, rel=1e-9)


def test_the_kernel_that_is_shown_is_the_one_that_predicts(tmp_path: Path) -> None:
    X, y, _ = noisy_rows()
    model = GPClassifier("rbf", likelihood="least_squares").fit(X[:30], y[:30]).partial_fit(X[30:430], y[30:430])
    model.save(tmp_path / "m")
    loaded = GPClassifier.load(tmp_path / "m")
    assert str(model.kernel_) == str(loaded.kernel_) == str(model._fitted.heaviest.kernel)
    assert str(model.members_[0].kernel) == str(model.kernel_)


def test_a_calibrated_average_that_shrinks_to_one_keeps_its_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(160, 3))
    y = (X[:, 0] + 0.5 * generator.normal(size=160) > 0).astype(int)
    model = GPClassifier().fit(X, y)
    assert len(model.members_) > 1
    held_out = generator.normal(size=(300, 3))
    labels = (held_out[:, 0] + 0.5 * generator.normal(size=300) > 0).astype(int)
    model.calibrate(held_out, labels)
    assert not hasattr(model, "leave_one_out_nll_")
    own, together = model._fitted.heaviest.plan.temperature, model.temperature_
    for name, value in (("EXACT_LIMIT", 150), ("MOST_OF_MANY", 1)):
        monkeypatch.setattr(f"sureshot.estimators.gp.tuning.stacking.{name}", value)
    model.partial_fit(X[:1] + 0.1, y[:1])
    assert len(model.members_) == 1
    assert model.temperature_ == pytest.approx(own * together)


def test_other_weights_of_classes_choose_the_temperature_anew() -> None:
    X, y, _, _ = iris(1)
    model = fixed(objective="auto", likelihood="softmax", class_weight={0: 1, 1: 1, 2: 1}).fit(X, y)
    known = model.temperature_
    assert model.partial_fit(X[:1], y[:1]).temperature_ == known
    assert model.set_params(class_weight={0: 1, 1: 20, 2: 1}).partial_fit(X[1:2], y[1:2]).temperature_ != known

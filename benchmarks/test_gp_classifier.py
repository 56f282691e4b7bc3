"""Fitting time beside a named peer in the same run; the ratio is in ``extra_info``.

Run with ``python -m pytest benchmarks/test_gp_classifier.py``.
"""

import time
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from sureshot.demo.comparison import Split, measure
from sureshot.demo.peers import TemperatureScaledLogisticRegression, sklearn_gp
from sureshot.estimators.gp.classifier import GPClassifier


def digits_split() -> Split:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = digits.data / 16
    return Split(x[order[:500]], digits.target[order[:500]], x[order[500:]], digits.target[order[500:]])


def test_digits_beside_scikit_learn(benchmark: Any) -> None:
    """500 rows, 10 classes, an RBF kernel whose parameters both methods learn."""
    split = digits_split()
    theirs, _ = measure(lambda: sklearn_gp(64), split)
    ours, _ = measure(lambda: GPClassifier(kernel="rbf", standardize=False), split)
    benchmark.pedantic(
        lambda: GPClassifier(kernel="rbf", standardize=False).fit(split.x_train, split.y_train), rounds=3, iterations=1
    )
    benchmark.extra_info["peer"] = "sklearn GaussianProcessClassifier"
    benchmark.extra_info["times faster"] = theirs["fit seconds"] / benchmark.stats.stats.min
    benchmark.extra_info["share of its ECE"] = ours["ece"] / theirs["ece"]


@pytest.mark.filterwarnings("ignore:ignored .* constant columns")
@pytest.mark.parametrize("n_rows", [200, 1000])
def test_defaults_beside_scaled_logistic_regression(benchmark: Any, n_rows: int) -> None:
    """Digits with everything on "auto": four kernels, columns as they are and standardised."""
    digits = load_digits()
    chosen = np.random.default_rng(0).permutation(len(digits.target))[:n_rows]
    beside_scaled_logistic_regression(benchmark, digits.data[chosen] / 16, digits.target[chosen])


@pytest.mark.parametrize(("n_classes", "shots"), [(50, 5), (150, 5), (150, 10)])
def test_many_classes_beside_scaled_logistic_regression(benchmark: Any, n_classes: int, shots: int) -> None:
    """Five or ten unit-length rows of 384 columns for each class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), shots)
    x = rng.normal(size=(n_classes, 384))[y] + 1.2 * rng.normal(size=(len(y), 384))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    beside_scaled_logistic_regression(benchmark, x, y)


@pytest.mark.parametrize(("n_rows", "n_columns", "n_classes"), [(846, 18, 4), (1000, 20, 2)])
def test_tables_beside_a_tuned_support_vector_machine(
    benchmark: Any, one_thread: None, n_rows: int, n_columns: int, n_classes: int
) -> None:
    """Averages of tables of a common size; processor seconds of both."""
    x, y = make_classification(
        n_rows, n_columns, n_informative=10, n_redundant=2, n_classes=n_classes, class_sep=0.8, random_state=0
    )
    grid = {"estimator__C": [0.1, 1, 10, 100], "estimator__gamma": ["scale", 0.01, 0.1]}
    machine = CalibratedClassifierCV(SVC(random_state=0), method="sigmoid", cv=3, ensemble=False)
    tuned = GridSearchCV(machine, grid, scoring="neg_log_loss", cv=StratifiedKFold(3, shuffle=True, random_state=0))
    started = time.process_time()
    tuned.fit(x, y)
    theirs = time.process_time() - started
    seconds = []

    def fit() -> None:
        started = time.process_time()
        GPClassifier().fit(x, y)
        seconds.append(time.process_time() - started)

    benchmark.pedantic(fit, rounds=3, iterations=1)
    benchmark.extra_info["peer"] = "RBF SVM, penalty and width by cross-validation, probabilities by a sigmoid"
    benchmark.extra_info["times its seconds"] = min(seconds) / theirs
    benchmark.extra_info["processor seconds"] = min(seconds)


def beside_scaled_logistic_regression(benchmark: Any, x: np.ndarray, y: np.ndarray) -> None:
    """The shortest fit of three, over the seconds of the peer."""
    started = time.perf_counter()
    TemperatureScaledLogisticRegression().fit(x, y)
    seconds = time.perf_counter() - started
    benchmark.pedantic(lambda: GPClassifier().fit(x, y), rounds=3, iterations=1)
    benchmark.extra_info["peer"] = "logistic regression with temperature by cross-validation"
    benchmark.extra_info["times its seconds"] = benchmark.stats.stats.min / seconds


def test_memory_of_a_fitted_model(benchmark: Any) -> None:
    """Bytes after fitting over the stated ``8 (N D + N R + C R)``; the lower bound is 1."""
    rng = np.random.default_rng(0)
    n_rows, n_columns, n_classes = 3000, 64, 100
    y = np.arange(n_rows) % n_classes
    x = rng.normal(size=(n_classes, n_columns))[y] + rng.normal(size=(n_rows, n_columns))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    model = benchmark.pedantic(lambda: GPClassifier().fit(x, y), rounds=1, iterations=1)
    posterior = model._fitted.heaviest.process.posterior
    held = sum(t.numel() * t.element_size() for t in vars(posterior).values() if hasattr(t, "numel"))
    rows = model._fitted.rows
    held += rows.x.nbytes + rows.y.nbytes + rows.weight.nbytes
    rank = posterior.features.shape[1]
    stated = 8 * (n_rows * n_columns + n_rows * rank + n_classes * rank)
    benchmark.extra_info["bytes over stated"] = held / stated

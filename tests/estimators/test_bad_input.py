"""What is wrong with the input is said in terms of the input; whatever passes gives proper probabilities."""

import logging
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from gpytorch.kernels import LCMKernel, RBFKernel, ScaleKernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sureshot import FewShotClassifier, GPClassifier, GPRegressor
from sureshot.computing.memory import in_bytes
from sureshot.kernels import RBF, RationalQuadratic

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
Y = np.array([0, 1, 0, 1])


def with_value(value: float) -> np.ndarray:
    changed = X.copy()
    changed[2, 1] = value
    return changed


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (with_value(np.nan), Y, ValueError, r"contains NaN in 1 rows, columns \[1\].*SimpleImputer"),
        (with_value(np.inf), Y, ValueError, r"contains infinity in 1 rows, columns \[1\]"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [1j, 2.0]}), [0, 1], ValueError, "[Cc]omplex"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [[1], [2]]}), [0, 1], ValueError, "'b' holds list in row 0"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [b"x", b"y"]}), [0, 1], ValueError, "'b' holds bytes.*decode"),
        ([[0.0, "1"], [1.0, "red"]], [0, 1], ValueError, "'red' in row 1, column 1 is text.*OneHot"),
        (np.array([["0", "?"], ["1", "2"]]), [0, 1], ValueError, r"'\?' in row 0, column 1 is text"),
        (X, [0, 0, 0, 0], ValueError, "at least two classes.*y has only one class, 0.*partial_fit takes one"),
        (X, [0, 1], ValueError, "X has 4, y has 2"),
        (X, None, ValueError, "y is None"),
        (X, [0.1, 0.2, 0.3, 0.4], ValueError, "continuous"),
        (X, [0.0, 1.0, np.nan, 0.0], ValueError, "NaN"),
        (X, ["a", None, "b", "a"], ValueError, "missing labels"),
        (X, ["a", np.nan, "b", "a"], ValueError, "missing labels"),
        (X, np.array(["a", 1, "b", "a"], dtype=object), TypeError, "mixes label types"),
        (X, pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-01", "2026-01-02"]), TypeError, "dates or times"),
        (X, [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 2)], TypeError, "dates or times"),
        (X, np.array([1, 2, 1, 2], dtype="timedelta64[D]"), TypeError, r"y.astype\(str\)"),
        (scipy.sparse.csr_matrix(X), Y, TypeError, "[Ss]parse"),
        (X[:, 0], Y, ValueError, "2D array"),
        (np.empty((0, 2)), [], ValueError, "0 sample"),
        (np.empty((4, 0)), Y, ValueError, "0 feature"),
    ],
)
def test_bad_data_is_named(x: Any, y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GPClassifier().fit(x, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "gaussian"}, "kernel must be one of"),
        ({"kernel": 3}, "kernel must be a name or a gpytorch"),
        ({"likelihood": "probit"}, "likelihood must be one of"),
        ({"inference": "hmc"}, "inference must be one of"),
        ({"likelihood": "softmax", "inference": "gibbs"}, "does not work with likelihood='softmax'"),
        ({"likelihood": "least_squares", "inference": "gibbs"}, "exact posterior"),
        ({"objective": "loo"}, "objective must be one of"),
        ({"approximation": "sparse"}, "approximation must be one of"),
        ({"predictive": "map"}, "predictive must be one of"),
        ({"standardize": "yes"}, "standardize must be"),
        ({"n_chains": 0, "inference": "gibbs"}, "n_chains must be a positive integer"),
        ({"n_sweeps": 1.5, "inference": "gibbs"}, "n_sweeps must be a positive integer"),
        ({"inference": "gibbs", "objective": "evidence"}, "objective='evidence' does not work with inference='gibbs'"),
        ({"prior_mean": "learn"}, "prior_mean must be a finite number"),
        ({"prior_mean": float("nan")}, "prior_mean must be a finite number"),
        ({"likelihood_temperature": 0}, "likelihood_temperature must be a number from 1e-6 to 1e6"),
        ({"n_inducing": 0, "approximation": "inducing", "kernel": "rbf"}, "n_inducing must be a positive integer"),
        ({"memory_limit": -1}, "memory_limit must be"),
        ({"device": "abacus"}, "device must be"),
        ({"kernel": RBFKernel}, r"not the class RBFKernel: try RBFKernel\("),
        ({"objective": np.arange(3)}, "objective must be one of"),
        ({"n_chains": True}, "n_chains must be a positive integer; got True"),
        ({"n_jobs": "two"}, "n_jobs must be .*got 'two'"),
        ({"n_jobs": 0}, "n_jobs must be .*got 0"),
        ({"class_weight": "even"}, "class_weight must be None, 'auto', 'balanced' or a dict.*got 'even'"),
        ({"class_weight": {"a": 2}}, r"class_weight has weights for \['a'\], which y does not have.*\[0, 1\]"),
        ({"class_weight": {0: "much"}}, "class_weight must hold numbers; got {0: 'much'}"),
        ({"random_state": -1}, "random_state must be .*got -1"),
        ({"random_state": "a"}, "random_state must be .*got 'a'"),
        ({"random_state": np.random.default_rng(0)}, r"random_state must be .*generator.integers"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPClassifier(**options).fit(X, Y)


@pytest.mark.parametrize("estimator", [GPClassifier, GPRegressor])
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        (RationalQuadratic(alpha=torch.tensor([0.78])), r"\(1,\)"),
        (2.0 * RBF([[1.0, 2.0]] * 3) + 1.0, r"\(3,\)"),
        (ScaleKernel(RBFKernel(batch_shape=torch.Size([2]))), r"\(2,\)"),
        (LCMKernel([RBFKernel(batch_shape=torch.Size([2]))], num_tasks=2), r"\(2,\)"),
    ],
    ids=str,
)
def test_kernels_of_many_are_named(estimator: Any, kernel: Any, shape: str) -> None:
    with pytest.raises(ValueError, match=f"parameters have batch dimensions {shape}: give numbers"):
        estimator(kernel).fit(X, Y)


def test_a_length_scale_for_each_column_is_one_kernel() -> None:
    GPRegressor(2.0 * RBF([1.0, 2.0]) + RationalQuadratic(alpha=torch.tensor(0.78))).fit(X, Y)


@pytest.mark.parametrize("estimator", [GPClassifier, FewShotClassifier])
@pytest.mark.parametrize("device", ["abacus", "meta", "cuda:99", 3])
def test_devices_that_are_not_here_are_named(estimator: Any, device: Any) -> None:
    with pytest.raises(ValueError, match=f"device must be 'auto' or .*'cpu'.*got '?{device}'?"):
        estimator(device=device).fit(X, Y)


def test_numpys_false_is_false() -> None:
    model = GPClassifier(standardize=np.False_, kernel="rbf", objective=None).fit(X, Y)  # type: ignore[arg-type]
    assert model._fitted.heaviest.plan.scaling.scale.tolist() == [1, 1]


def test_memory_is_refused_in_units_that_say_something() -> None:
    with pytest.raises(MemoryError, match=r"about \d\.\d kB, and 1 bytes may be used"):
        GPClassifier(memory_limit=1).fit(X, Y)
    assert [in_bytes(number) for number in (12, 2.5e6, 0.96e9, 3e12)] == ["12 bytes", "2.5 MB", "1.0 GB", "3000.0 GB"]


def test_logistic_is_for_two_classes() -> None:
    with pytest.raises(ValueError, match="is for two classes, and there are 3"):
        GPClassifier(likelihood="logistic").fit(X, [0, 1, 2, 0])


def test_bad_weights_and_queries_are_named() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        GPClassifier().fit(X, Y, sample_weight=[1, -1, 1, 1])
    with pytest.raises(ValueError, match="at least one non-zero"):
        GPClassifier().fit(X, Y, sample_weight=[0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"[Ii]nteger|whole"):
        GPClassifier(inference="gibbs").fit(X, Y, sample_weight=[0.5, 1, 1, 1])
    with pytest.raises(ValueError, match=r"sample_weight must be None or a number for each row.*\['a', "):
        GPClassifier().fit(X, Y, sample_weight=["a", "b", "a", "b"])
    with pytest.raises(ValueError, match=r"sample_weight is 0 in all rows but those of one class, 1.*partial_fit"):
        GPClassifier().fit(X, Y, sample_weight=[0, 1, 0, 1])
    model = GPClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        model.outlier_score(with_value(np.nan))
    with pytest.raises(TypeError, match=r"labels changed type.*as 0, and 'a' came. Name the classes of y as the model"):
        model.partial_fit(X, ["a", "b", "a", "b"])
    with pytest.raises(TypeError, match=r"labels changed type.*as 0, and False came"):
        model.partial_fit(X, [True, False, True, False])
    with pytest.raises(ValueError, match=r"does not know: 'c'. It knows 0, 1"):
        model.forget(["c"])
    for name in (None, 3):
        with pytest.raises(ValueError, match=f"path must name a model file.*got {name}"):
            GPClassifier.load(name)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"path must name a model file.*got {name}"):
            model.save(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["score", "calibrate"])
def test_labels_of_another_type_are_told_from_unknown_ones(method: str) -> None:
    model = GPClassifier(kernel="rbf").fit(X, Y)
    with pytest.raises(TypeError, match=r"labels changed type, from number to text: .* such as 0, and 'a' came"):
        getattr(model, method)(X, ["a", "b", "a", "b"])
    with pytest.raises(TypeError, match="from number to truth value"):
        getattr(model, method)(X, [True, False, True, False])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
def test_tensors_of_every_precision(dtype: torch.dtype) -> None:
    x = torch.from_numpy(X).to(dtype)
    found = GPClassifier(kernel="rbf").fit(x, torch.tensor(Y)).predict_proba(x)
    np.testing.assert_array_equal(found, GPClassifier(kernel="rbf").fit(x.double(), Y).predict_proba(x.double()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_missing_gpu_is_told_apart_from_a_torch_without_cuda() -> None:
    why = "built without CUDA" if torch.version.cuda is None else "sees no NVIDIA GPU"
    with pytest.raises(ValueError, match=f"got 'cuda', and .*{why}"):
        GPClassifier(device="cuda").fit(X, Y)


def test_a_model_file_is_not_called_like_a_table(tmp_path: Path) -> None:
    data = tmp_path / "labelled.csv"
    data.write_text("a,b\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"\.csv is the ending of other files.*try labelled\.safetensors"):
        GPClassifier(kernel="rbf").fit(X, Y).save(data)
    assert data.read_text(encoding="utf-8") == "a,b\n"


def test_dates_in_an_array_are_no_numbers() -> None:
    """They were counts of days or of nanoseconds, and a missing one the least of all integers."""
    days = (np.datetime64("2024-01-01") + np.arange(20)).reshape(-1, 1)
    for dates in (days, days.astype("M8[ns]"), days - days[0]):
        with pytest.raises(TypeError, match="X holds dates or times: pass a DataFrame"):
            GPClassifier().fit(dates, np.arange(20) // 10)


def test_what_is_masked_is_missing() -> None:
    x, y = np.arange(20.0).reshape(-1, 1), np.arange(20) // 10
    some = np.arange(20) % 7 == 0
    with pytest.raises(ValueError, match="NaN in 3 rows"):
        GPClassifier().fit(np.ma.array(x, mask=some[:, None]), y)
    with pytest.raises(ValueError, match="missing labels"):
        GPClassifier().fit(x, np.ma.array(y, mask=some))
    with pytest.raises(ValueError, match="NaN"):
        GPClassifier().fit(x, y, sample_weight=np.ma.array(np.ones(20), mask=some))
    plain = GPClassifier(kernel="rbf").fit(np.ma.array(x, mask=False), np.ma.array(y, mask=False))
    np.testing.assert_array_equal(plain.predict(x), GPClassifier(kernel="rbf").fit(x, y).predict(x))


def test_blank_pixels_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    pixels = np.c_[np.random.default_rng(0).normal(size=(12, 9)), np.zeros(12)]
    with caplog.at_level(logging.INFO, logger="sureshot"):
        GPClassifier(kernel="rbf").fit(pixels, np.arange(12) % 2)
    assert "ignored 1 constant columns of 10" in caplog.text


@pytest.mark.parametrize("estimator", [GPClassifier, FewShotClassifier])
def test_a_table_without_differences_is_said_to_be_one(estimator: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = estimator().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 0])
    assert "no column varies" in caplog.text
    assert model.predict([[1.0, 1.0]]) == [0]


def test_a_number_and_a_tensor_are_weights_too() -> None:
    expected = GPClassifier(kernel="rbf").fit(X, Y, sample_weight=[2, 2, 2, 2]).predict_proba(X)
    for weight in (2, np.float64(2), np.array(2), torch.full((4,), 2.0)):
        found = GPClassifier(kernel="rbf").fit(X, Y, sample_weight=weight).predict_proba(X)
        np.testing.assert_array_equal(found, expected)


GRAM = np.exp(-((X[:, None] - X) ** 2).sum(-1))
LOPSIDED = GRAM + np.eye(4, k=2) * np.array([0, 0, 0.5, 0])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (-GRAM, r"diagonal is not negative; got -1 in row 0.*exp"),
        (0 * GRAM, r"values other than zero; got zeros only"),
        (LOPSIDED, r"symmetric matrix X; got X\[0, 2\] = 0.5\d+ and X\[2, 0\] = 0.00\d+.*\(X \+ X.T\) / 2"),
        (((X[:, None] - X) ** 2).sum(-1) ** 0.5, r"smallest eigenvalue is -\d\.\d+.*exp"),
        (GRAM - 0.95 * np.eye(4), r"semi-definite matrix X; its smallest eigenvalue is -0\.\d+.*eigh"),
        (np.where(np.eye(4) > 0, np.nan, GRAM), "contains NaN"),
    ],
)
def test_matrices_that_no_kernel_gives_are_named(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPClassifier(kernel="precomputed").fit(matrix, Y)


def test_kernel_matrices_may_be_rounded_and_of_low_rank() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 3))
    centred = (wide - wide[0]) @ (wide - wide[0]).T
    centred[0, 0] = -1e-17
    for gram in (wide @ wide.T, (wide @ wide.T).astype(np.float32), 1e-8 * wide @ wide.T, np.ones((40, 40)), centred):
        GPClassifier(kernel="precomputed").fit(gram, np.arange(40) % 2)
    queries = GPClassifier(kernel="precomputed").fit(GRAM, Y).predict(-GRAM[:1])  # what is asked need not be definite
    assert queries.shape == (1,)


LABELS = st.sampled_from(["int", "negative", "str", "bool", "float"])


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    x=hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64]),
        st.tuples(st.integers(2, 12), st.integers(1, 4)),
        elements=st.integers(-3, 3),
    ),
    kind=LABELS,
    n_classes=st.integers(2, 6),
    likelihood=st.sampled_from(["auto", "softmax", "least_squares", "one_vs_each", "logistic_softmax"]),
)
def test_whatever_fits_gives_probabilities(x: np.ndarray, kind: str, n_classes: int, likelihood: str) -> None:
    codes = np.arange(len(x)) % n_classes
    names: dict[str, np.ndarray] = {
        "int": np.arange(6) * 10,
        "negative": -np.arange(6),
        "str": np.array(["a", "b b", "", "é", "0", "z"]),
        "bool": np.arange(6) % 2 == 1,
        "float": np.arange(6.0),
    }
    y = names[kind][codes]
    model = GPClassifier("auto" if likelihood == "auto" else "rbf", likelihood, standardize=False)
    model.fit(x, y)
    probabilities = model.predict_proba(x)
    assert probabilities.shape == (len(x), len(np.unique(y)))
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert np.isfinite(model.outlier_score(x)).all()
    far = model.predict_proba(np.full((1, x.shape[1]), 1e6))
    assert np.isfinite(far).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_extreme_scales_of_columns(scale: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    x = (rng.normal(size=(30, 2)) + 3 * y[:, None]) * [scale, 1.0]
    model = GPClassifier().fit(x, y)
    assert model.score(x, y) > 0.9


def test_one_class_leaves_no_doubt() -> None:
    for likelihood in ("auto", "logistic", "softmax"):
        model = GPClassifier("rbf", likelihood, objective=None).partial_fit(X, ["a"] * len(X))
        assert not np.any(model.uncertainty(X).total)
        assert not np.any(model.uncertainty(X).epistemic)


def test_weights_beside_which_others_lose_their_digits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1e[+]15 at most; the largest is 1e[+]16"):
        GPClassifier().fit(X, Y, sample_weight=np.r_[1e16, np.ones(len(X) - 1)])
    for weights in (np.r_[1e15, np.ones(len(X) - 1)], np.full(len(X), 1e15)):
        p = GPClassifier("rbf", "one_vs_each").fit(X, Y, sample_weight=weights).predict_proba(X)
        assert np.isfinite(p).all()


def test_truth_values_name_no_classes_that_are_numbers() -> None:
    model = GPClassifier("rbf", objective=None).fit(X, np.arange(len(X)) % 3)
    with pytest.raises(TypeError, match="classes are no truth values"):
        model.forget(classes=[True])


def test_ids_may_be_a_set() -> None:
    model = GPClassifier("rbf", objective=None).fit(X, np.arange(len(X)) % 2, row_id=range(len(X)))
    assert len(model.forget(rows={1, 2}).row_ids_) == len(X) - 2


class Colour(Enum):
    """What is no label."""

    RED = 1


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        (Decimal(1), "Decimal"),
        (Colour.RED, "Colour"),
        (pd.Period("2024-01"), "Period"),
        (2**70, "int"),
        (time(1), "time"),
    ],
    ids=str,
)
def test_labels_that_are_none_are_named(label: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"\({kind}\), but labels are text, truth values or numbers"):
        GPClassifier("rbf", objective=None).fit(X, [label, label, 1, 1] if kind == "int" else [label] * 4)


def test_text_of_numpys_own_kind_is_text() -> None:
    labels = np.array(["a", "b", "a", "b"], dtype=np.dtypes.StringDType())
    assert GPClassifier("rbf", objective=None).fit(X, labels).classes_.tolist() == ["a", "b"]


def test_frames_without_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="X has no columns to learn from"):
        GPClassifier().fit(pd.DataFrame(index=range(4)), Y)
    with pytest.raises(ValueError, match=r"columns \[a\] hold complex numbers; make two columns"):
        GPClassifier().fit(pd.DataFrame({"a": X[:, 0] + 1j, "b": X[:, 1]}), Y)

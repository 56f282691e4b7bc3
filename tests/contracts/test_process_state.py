"""What an estimator computes does not depend on what else its process has set, and it leaves that as it was.

All that torch, NumPy, pandas and scikit-learn have as defaults and modes is altered at once for every estimator, and
one by one for a few, so that none hides another. Processes that were forked or spawned are at the end.
"""

from __future__ import annotations

import ast
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch

import sureshot
from sureshot import GPClassifier
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from tests.contracts.test_estimators import CASES, QUERY, TRAIN, checkpoints, unfitted

__all__ = ["checkpoints"]

SOURCE = Path(sureshot.__file__).parent


@contextmanager
def altered(get: Callable[[], Any], put: Callable[[Any], object], value: Any) -> Iterator[None]:
    """Another value for a time; it must be there still at the end."""
    before = get()
    put(value)
    try:
        yield
        assert get() == value
    finally:
        put(before)


@contextmanager
def altered_errors() -> Iterator[None]:
    with np.errstate(all="raise"):
        yield
        assert set(np.geterr().values()) == {"raise"}


@contextmanager
def altered_scikit_learn() -> Iterator[None]:
    with sklearn.config_context(
        assume_finite=True, transform_output="pandas", enable_metadata_routing=True, working_memory=1
    ):
        before = sklearn.get_config()
        yield
        assert sklearn.get_config() == before


@contextmanager
def altered_pandas() -> Iterator[None]:
    """Text as objects where it is a type of its own, and the reverse; as a deprecated option, where it is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = not pd.get_option("future.infer_string")
        context = pd.option_context("future.infer_string", other, "mode.string_storage", "python")
        context.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert pd.get_option("future.infer_string") == other
            context.__exit__(None, None, None)


@contextmanager
def altered_modes() -> Iterator[None]:
    """No gradients, and products of float32 in bfloat16."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        yield
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")


@contextmanager
def altered_device() -> Iterator[None]:
    """Tensors without values, unless a device is stated."""
    with torch.device("meta"):
        yield
        assert torch.get_default_device().type == "meta"


@contextmanager
def altered_generators() -> Iterator[None]:
    """Other numbers from the generators of the process, which nobody may draw from."""

    def state() -> tuple[Any, ...]:
        _, key, place, *_ = np.random.get_state()  # noqa: NPY002 - the global one is what this is about
        return torch.get_rng_state().tolist(), np.asarray(key).tolist(), place, random.getstate()

    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.manual_seed(17)
    np.random.seed(17)  # noqa: NPY002
    random.seed(17)
    before = state()
    try:
        yield
        assert state() == before
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "default dtype": lambda: altered(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "short default dtype": lambda: altered(torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16),
    "default device": altered_device,
    "modes": altered_modes,
    "deterministic algorithms": lambda: altered(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "generators": altered_generators,
    "errors of arithmetic": altered_errors,
    "printing": lambda: np.printoptions(precision=1, threshold=3, legacy="1.13"),
    "scikit-learn": altered_scikit_learn,
    "pandas": altered_pandas,
}

EVERYTHING = [name for name in STATES if name not in ("short default dtype", "anomalies")]
"""At once: one default dtype, and without the search for anomalies, in which long chains of gradients take minutes."""


def history(model: IncrementalClassifier, X: Any, y: np.ndarray, folder: Path) -> dict[str, np.ndarray]:
    """What is said after learning, learning more, and calibration, and by a copy from a file."""
    rows = X.iloc if isinstance(X, pd.DataFrame) else X
    asked = rows[QUERY]
    model.fit(rows[TRAIN], y[TRAIN])
    found = {"fitted": model.predict_proba(asked), "outliers": model.outlier_score(asked)}
    model.calibrate(asked, y[QUERY]).partial_fit(asked, y[QUERY] + 1)
    found |= {"updated": model.predict_proba(asked), "evidence": np.asarray(getattr(model, "log_evidence_", 0.0))}
    model.save(folder / "model.safetensors")
    return found | {"loaded": type(model).load(folder / "model.safetensors").predict_proba(asked)}


EXPECTED: dict[str, dict[str, np.ndarray]] = {}  # by case: what is said where nothing is altered


def assert_undisturbed(
    case: str, make: Callable[[], tuple[Any, Any, np.ndarray]], names: list[str], folder: Path
) -> None:
    if case not in EXPECTED:
        EXPECTED[case] = history(*make(), folder)
    expected = EXPECTED[case]
    model, rows, labels = make()
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(STATES[name]())
        found = history(model, rows, labels, folder)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == values.dtype


PARTS_OF_OTHERS = (  # of "defaults", "relevance, an average for two classes" and "few-shot, unit rows"
    "defaults, two classes",
    "ensemble",
    "ensemble, two classes",
    "relevance",
    "few-shot, table",
    "cosine",
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "kernel search" in name else [])
        for name in CASES
        if name not in PARTS_OF_OTHERS
    ],
)
def test_nothing_depends_on_what_the_process_has_set(case: str, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    assert_undisturbed(case, lambda: unfitted(case, checkpoints), EVERYTHING, tmp_path)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "case",
    ["kernel rbf", "few-shot, ove_gibbs_pl", "few-shot, matchingnet", "sessions", "kernel search, one structure"],
)
def test_nor_on_one_thing(case: str, state: str, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    assert_undisturbed(case, lambda: unfitted(case, checkpoints), [state], tmp_path)


def test_nor_do_tables_of_columns_of_all_kinds(tmp_path: Path) -> None:
    X, y = CASES["defaults"].rows, CASES["defaults"].labels
    frame = pd.DataFrame({"long": X[:, 2], "wide": np.round(X[:, 3])})
    frame["colour"] = np.where(X[:, 0] > 5.8, "red", "blue")
    frame["seen"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(len(X)), "D")
    frame.loc[::9, "long"] = np.nan
    assert_undisturbed(
        "columns of all kinds", lambda: (GPClassifier(kernel="rbf", ensemble=False), frame, y), EVERYTHING, tmp_path
    )


def test_cells_that_are_no_numbers_are_refused_even_if_scikit_learn_is_told_to_assume_that_there_are_none() -> None:
    X, y = CASES["defaults"].rows.copy(), CASES["defaults"].labels
    X[3, 1] = np.inf
    with sklearn.config_context(assume_finite=True), pytest.raises(ValueError, match="infinity"):
        GPClassifier(kernel="rbf").fit(X, y)


FLOATING = {"rand", "randn", "zeros", "ones", "empty", "eye", "linspace", "logspace", "normal"}
AS_GPYTORCH = {"kernels/gpytorch_kernels.py"}  # modules like those of GPyTorch; who gives them values gives the dtype


def test_whoever_makes_floating_numbers_says_of_which_dtype() -> None:
    silent = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and (node.func.value.id, node.func.attr) in {("torch", name) for name in FLOATING}
                and not {"dtype", None} & {keyword.arg for keyword in node.keywords}
                and path.relative_to(SOURCE).as_posix() not in AS_GPYTORCH
            ):
                silent.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert silent == []


OTHER_PROCESS = """
import multiprocessing, os, pickle, sys
import numpy as np, torch
torch.set_num_threads(2)
torch.ones(1 << 20).sum()  # the threads of the parent are at work
with open(sys.argv[1], "rb") as file:
    models, X, y = pickle.load(file)

def answered(model):
    first = model.predict_proba(X)
    second = type(model)(**model.get_params(deep=False)).fit(X, y).predict_proba(X)
    return first, second, torch.get_num_threads()

if __name__ == "__main__":
    expected = [answered(model) for model in models]
    for how in ("fork", "spawn"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            found = pool.map_async(answered, models).get(timeout=240)
        for (first, second, threads), (first_there, second_there, threads_there) in zip(expected, found, strict=True):
            np.testing.assert_allclose(first_there, first, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(second_there, second, rtol=1e-9, atol=1e-12)
            assert threads_there == threads == 2
        print(how)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_other_processes_say_and_learn_the_same(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    names = ["kernel rbf", "few-shot, ove_mean_field_pl", "sessions", "kernel search, one structure", "inducing"]
    fitted = [unfitted(name, checkpoints) for name in names]
    X, y = fitted[0][1][TRAIN], fitted[0][2][TRAIN]
    models = [model.fit(X, y) for model, _, _ in fitted]
    (tmp_path / "models").write_bytes(pickle.dumps((models, X, y)))
    (tmp_path / "other.py").write_text(OTHER_PROCESS)
    command = [sys.executable, str(tmp_path / "other.py"), str(tmp_path / "models")]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "random"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.split() == ["fork", "spawn"], done.stderr

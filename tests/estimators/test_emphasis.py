"""Directions along which embeddings vary count more: the map by hand, lengths, files, and when it is learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot import GPClassifier
from sureshot.data.clinc150 import load_clinc150
from sureshot.estimators import emphasis as module
from sureshot.estimators.emphasis import Emphasis
from sureshot.kernels.gpytorch_kernels import CosineKernel, UnitSphereKernel
from sureshot.metrics import negative_log_likelihood
from sureshot.persistence import ArtifactError, load_artifact, save_artifact


def unit_rows(seed: int, n: int = 40, width: int = 12) -> np.ndarray:
    """Of three classes, which the first four columns tell apart."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((3, width))
    centres[:, :4] = np.random.default_rng(9).normal(size=(3, 4))
    x = centres[np.arange(n) % 3] + 0.35 * rng.normal(size=(n, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "width"), [(40, 12), (8, 12)])
def test_the_map_is_the_fourth_root_of_a_shifted_covariance(n: int, width: int) -> None:
    x, weight = unit_rows(0, n, width), np.arange(n) % 3 + 1.0
    found = Emphasis.of(x, weight, 3)
    assert found is not None
    covariance = np.cov(x.T, aweights=weight, bias=True)
    level = 0.2 * weight.sum() / 3 * np.trace(covariance) / width
    values, vectors = np.linalg.eigh(covariance + level * np.eye(width))
    expected = x @ (vectors * values**0.25) @ vectors.T
    expected *= (np.linalg.norm(x, axis=1) / np.linalg.norm(expected, axis=1))[:, None]
    np.testing.assert_allclose(found(x), expected, atol=3e-3)  # directions next to no gain are left as they are


def test_weights_count_rows() -> None:
    x = unit_rows(1)
    weight = np.arange(len(x)) % 2 + 1.0
    weighted, repeated = (
        Emphasis.of(x, weight, 3),
        Emphasis.of(np.repeat(x, weight.astype(int), 0), np.ones(int(weight.sum())), 3),
    )
    assert weighted is not None
    assert repeated is not None
    np.testing.assert_allclose(weighted(x), repeated(x), atol=1e-6)


@given(st.integers(0, 1000), st.floats(1e-290, 1e6))
def test_rows_keep_their_lengths(seed: int, size: float) -> None:
    x = unit_rows(3)
    found = Emphasis.of(x, np.ones(len(x)), 3)
    assert found is not None
    queries = size * np.random.default_rng(seed).normal(size=(5, x.shape[1]))
    queries[0] = 0
    before, after = (np.linalg.norm(rows / size, axis=1) for rows in (queries, found(queries)))  # squares are numbers
    np.testing.assert_allclose(after, before, rtol=1e-9)
    assert before[0] == 0


def test_rows_that_are_all_one_have_no_directions() -> None:
    assert Emphasis.of(np.tile([[0.6, 0.8]], (5, 1)), np.ones(5), 2) is None


def test_many_columns_are_learnt_from_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 8)
    found = Emphasis.of(unit_rows(4), np.ones(40), 3)
    assert found is not None
    assert found.basis.shape[1] <= 8


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("n_intents", "shots", "at_most"), [(3, 15, 0.8), (15, 5, 0.95), (150, 2, 0.98), (20, 50, 1.02)]
)
def test_intents_are_told_apart_better(n_intents: int, shots: int, at_most: float) -> None:
    """By less the more rows there are; mean log loss of validation queries as a part of what it is without."""
    clinc, losses = load_clinc150(), np.zeros(2)
    for seed in range(4 if n_intents < 150 else 1):
        generator = np.random.default_rng(seed)
        chosen = np.sort(generator.permutation(150)[:n_intents])
        rows = np.concatenate(
            [generator.choice(np.flatnonzero(clinc.y_train == c), shots, replace=False) for c in chosen]
        )
        asked = np.isin(clinc.y_val, chosen)
        for place, kernel in enumerate(("auto", "cosine")):  # by name a kernel sees rows as they are
            model = GPClassifier(kernel=kernel).fit(clinc.x_train[rows], clinc.y_train[rows])
            losses[place] += negative_log_likelihood(
                model.predict_proba(clinc.x_val[asked]), np.searchsorted(chosen, clinc.y_val[asked])
            )
    assert losses[0] < at_most * losses[1]


@pytest.mark.parametrize(
    ("shots", "options"),
    [(1, {}), (12, {}), (16, {"standardize": False}), (16, {"kernel": "cosine"}), (16, {"objective": None})],
)
def test_when_rows_stay_as_they_are(shots: int, options: dict[str, object]) -> None:
    model = GPClassifier(**options).fit(unit_rows(0, 3 * shots), np.arange(3 * shots) % 3)  # type: ignore[arg-type]
    assert all(member.plan.scaling.emphasis is None for member in model._fitted.members)


def test_it_stays_with_the_model(tmp_path: Path) -> None:
    x, y, queries = unit_rows(0), np.arange(40) % 3, unit_rows(1)
    model = GPClassifier().fit(x, y)
    model.save(tmp_path / "model.safetensors")
    loaded = GPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(queries), model.predict_proba(queries))
    np.testing.assert_array_equal(loaded.outlier_score(queries), model.outlier_score(queries))
    model.save(tmp_path / "compact.safetensors", compact=True)
    compact = GPClassifier.load(tmp_path / "compact.safetensors")
    np.testing.assert_allclose(compact.predict_proba(queries), model.predict_proba(queries), atol=1e-10)


def emphasis_of(model: GPClassifier) -> Emphasis:
    found = model._fitted.members[0].plan.scaling.emphasis
    assert found is not None
    return found


def test_it_follows_the_rows() -> None:
    """As everything that all rows choose, it stays until one in a hundred has changed."""
    x, y = unit_rows(0, 210), np.arange(210) % 3
    model = GPClassifier(class_prior="uniform").fit(x[:200], y[:200])
    before = emphasis_of(model)
    assert emphasis_of(model.partial_fit(x[200:202], y[200:202])) is before
    expected = Emphasis.of(x, np.ones(210), 3)
    assert expected is not None
    found = emphasis_of(model.partial_fit(x[202:], y[202:]))
    np.testing.assert_allclose(found(x), expected(x), atol=1e-10)


def test_classes_that_come_later_are_told_apart_as_well() -> None:
    """Two classes first, in a plane of their own; with their directions alone the others would be next to alike."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 4)
    x = np.eye(24)[y] + 0.15 * rng.normal(size=(32, 24))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    parts = GPClassifier().fit(x[:8], y[:8]).partial_fit(x[8:], y[8:])
    whole = GPClassifier().fit(x, y)
    queries = np.eye(24)[:8]
    assert (parts.predict(queries) == np.arange(8)).all()
    losses = [negative_log_likelihood(model.predict_proba(x), y) for model in (parts, whole)]
    assert losses[0] < 2 * losses[1] + 0.02


@pytest.mark.parametrize("kernel", ["auto", "cosine"])
def test_the_centre_follows_rows_that_had_no_direction_at_first(kernel: str) -> None:
    """Two classes of one row each first: about their mean ten intents were told apart in .85 of queries, not in .91."""
    x, y = unit_rows(0, 24), np.arange(24) % 3
    whole = GPClassifier(kernel).fit(x[:3], y[:3])
    parts = GPClassifier(kernel).fit(x[:2], y[:2]).partial_fit(x[2:3], y[2:3])
    np.testing.assert_allclose(parts.predict_proba(x), whole.predict_proba(x), atol=1e-6)
    parts.partial_fit(x[3:], y[3:])
    kernel_used = parts._fitted.members[0].plan.kernel
    (centre,) = [part.center for part in kernel_used.modules() if isinstance(part, UnitSphereKernel | CosineKernel)]
    np.testing.assert_allclose(centre, x.mean(0), atol=1e-12)


def test_directions_begin_to_count_when_there_are_rows_to_tell() -> None:
    x, y = unit_rows(0, 60), np.arange(60) % 3
    model = GPClassifier(class_prior="uniform").fit(x[:3], y[:3])
    assert model._fitted.members[0].plan.scaling.emphasis is None
    expected = Emphasis.of(x, np.ones(60), 3)
    assert expected is not None
    np.testing.assert_allclose(emphasis_of(model.partial_fit(x[3:], y[3:]))(x), expected(x), atol=1e-10)
    own = GPClassifier("cosine").fit(x[:3], y[:3]).partial_fit(x[3:], y[3:])
    assert own._fitted.members[0].plan.scaling.emphasis is None


def test_a_malformed_file_is_refused(tmp_path: Path) -> None:
    GPClassifier().fit(unit_rows(0), np.arange(40) % 3).save(tmp_path / "model.safetensors")
    artifact = load_artifact(tmp_path / "model.safetensors")
    arrays = {name: -part if name.endswith("scaling.gain") else part for name, part in artifact.arrays.items()}
    save_artifact(tmp_path / "model.safetensors", artifact.kind, artifact.header, arrays)
    with pytest.raises(ArtifactError, match="directions of embeddings are malformed"):
        GPClassifier.load(tmp_path / "model.safetensors")


def test_rows_that_all_become_one() -> None:
    """What is left after forgetting is in its own centre, where it has no direction."""
    x, y = unit_rows(0, 30), np.arange(30) % 3
    x[y == 0] = x[0]
    model = GPClassifier().fit(x, y).forget([1, 2])
    assert np.isfinite(model.predict_proba(x)).all()

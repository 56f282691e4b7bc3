"""When embeddings are seen through a spectral scaling: by left-out rows, each asked of a map that has not seen it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.preprocessing import normalize

from sureshot import GPClassifier
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.gp.tuning.spectral import (
    average_of,
    clear_spectral_scaling,
    is_clear_gain,
    spectral_scaling_of,
)
from sureshot.estimators.rows.spectral_scaling import SpectralScaling
from sureshot.estimators.rows.support import Support
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

OBJECTIVE = LabelLogLoss("plug_in")


def rows(n: int, varies: float, noise: float = 0.3, width: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """Of twenty classes by four columns, beside two in which all rows vary so much, and columns of noise."""
    generator = np.random.default_rng(0)
    y = np.arange(n) % 20
    x = noise * generator.normal(size=(n, width))
    x[:, :4] += np.random.default_rng(7).normal(size=(20, 4))[y]
    x[:, 4:6] += varies * generator.normal(size=(n, 2))
    return normalize(x), y


def support_of(x: np.ndarray, y: np.ndarray) -> Support:
    ones = torch.ones(len(y), dtype=torch.float64)
    return Support(torch.from_numpy(x), torch.from_numpy(y), ones, int(y.max()) + 1, ones, ones)


def spectral_of(model: GPClassifier) -> SpectralScaling | None:
    found = [member.plan.scaling.spectral for member in model._fitted.members]
    assert all(one is found[0] for one in found)
    return found[0]


def test_it_is_used_where_what_varies_tells_classes_apart() -> None:
    x, y = rows(100, 0.0)
    found = clear_spectral_scaling(support_of(x, y), OBJECTIVE)
    assert found is not None
    np.testing.assert_allclose(found(x), SpectralScaling.of(x, np.ones(100), 5.0)(x), atol=1e-12)
    assert clear_spectral_scaling(support_of(*rows(100, 4.0)), OBJECTIVE) is None
    assert clear_spectral_scaling(support_of(x[:20], y[:20]), OBJECTIVE) is None  # no row can be left out


def test_a_row_is_asked_of_a_map_without_it() -> None:
    """Four rows of a class in 200 columns: its own noise counts more in a map that has seen it (2.3 errors)."""
    assert clear_spectral_scaling(support_of(*rows(80, 0.0, 0.7, 200)), OBJECTIVE) is not None


def test_a_part_of_the_rows_learns_a_map_for_as_many_rows_of_a_class() -> None:
    x, y = rows(100, 0.0)
    seen = torch.arange(100) < 60
    expected = SpectralScaling.of(x[:60], np.ones(60), 5.0)
    np.testing.assert_allclose(spectral_scaling_of(support_of(x, y), seen)(x), expected(x), atol=1e-12)


def test_a_gain_is_clear_by_three_standard_errors() -> None:
    gains = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gains, usable = gains - gains.mean(), torch.ones(400, dtype=torch.float64)
    error = float(gains.std()) / math.sqrt(400)
    assert is_clear_gain(gains + 3.03 * error, usable)
    assert not is_clear_gain(gains + 2.97 * error, usable)
    usable[:200] = 0
    assert not is_clear_gain(torch.cat([torch.ones(200), -gains[200:].abs()]), usable)


def test_an_even_average() -> None:
    said = average_of([torch.tensor([0.2, 0.9]).log(), torch.tensor([0.4, 0.1]).log()])
    torch.testing.assert_close(said.exp(), torch.tensor([0.3, 0.5]))


def test_a_model_keeps_it(tmp_path: Path) -> None:
    """In updates and from a file."""
    x, y = rows(140, 0.0)
    model = GPClassifier().fit(x[:100], y[:100])
    found = spectral_of(model)
    assert found is not None
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(x[100:]), model.predict_proba(x[100:]), atol=1e-12)
    for one in (model, loaded):
        one.partial_fit(x[100:120], y[100:120])
    kept = spectral_of(model)
    assert kept is found
    np.testing.assert_allclose(loaded.predict_proba(x[120:]), model.predict_proba(x[120:]), atol=1e-9)
    artifact = load_artifact(tmp_path / "model")
    arrays = {name: -part if name.endswith("spectral.gain") else part for name, part in artifact.arrays.items()}
    save_artifact(tmp_path / "bad", artifact.kind, artifact.header, arrays)
    with pytest.raises(ArtifactError, match="malformed directions of embeddings"):
        GPClassifier.load(tmp_path / "bad")


@pytest.mark.parametrize("arguments", [{"kernel": "cosine"}, {"ensemble": False}, {"objective": "evidence"}])
def test_where_rows_stay_as_they_are(arguments: dict[str, object]) -> None:
    assert spectral_of(GPClassifier(**arguments).fit(*rows(100, 0.0))) is None  # type: ignore[arg-type]

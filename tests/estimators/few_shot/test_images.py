"""`FewShotClassifier` on images, with learners that change their network and learners that compare feature maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sureshot import FewShotClassifier
from sureshot.meta.learners import make_learner
from sureshot.meta.training import load_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone

SIDE = 16
NAMES = ("maml", "abml", "relationnet")


def images(way: int = 3, each: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (n, side, side), a pattern for each class under noise, and labels."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(way), each)
    patterns = np.random.default_rng(99).random((way, SIDE, SIDE))
    return ((patterns[y] + rng.random((len(y), SIDE, SIDE))) * 127).astype(np.uint8), y


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, found = tmp_path_factory.mktemp("checkpoints"), {}
    options = {"maml": {"inner_rate": 0.05}, "abml": {"draws": 2, "inner_steps": 2}}
    for name in NAMES:
        backbone = make_backbone("conv4", (1, SIDE, SIDE), n_filters=4, n_poolings=2)
        found[name] = folder / f"{name}.safetensors"
        save_checkpoint(found[name], make_learner(name, backbone, **options.get(name, {})), {}, {"episodes": 0}, {})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_fit_update_save_and_load(name: str, paths: dict[str, Path], tmp_path: Path) -> None:
    X, y = images()
    queries, _ = images(seed=1)
    model = FewShotClassifier(paths[name]).fit(X[y < 2], y[y < 2])
    assert model.predict_proba(queries).shape == (len(queries), 2)
    model.partial_fit(X[y == 2], y[y == 2])
    p = model.predict_proba(queries)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.isfinite(model.outlier_score(queries)).all()
    np.testing.assert_allclose(np.concatenate([model.predict_proba(row[None]) for row in queries]), p, rtol=1e-9)
    model.save(tmp_path / "model.safetensors")
    loaded = FewShotClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict_proba(queries), p, rtol=1e-12)
    with pytest.raises(ValueError, match="images of 1 channel 16x16"):
        model.predict_proba(queries[:, :8, :8])
    np.testing.assert_array_equal(model.predict_proba(queries), p)


@pytest.mark.parametrize("name", ["maml", "abml"])
def test_rows_keep_all_digits(name: str, paths: dict[str, Path]) -> None:
    X, y = images()
    real = X / 255 * (1 + 1e-12)
    model = FewShotClassifier(paths[name]).fit(real.clip(0, 1), y)
    np.testing.assert_array_equal(np.sort(model._fitted.rows.x, axis=0), np.sort(real.reshape(len(y), -1), axis=0))


def test_maml_is_its_learner_in_double_precision(paths: dict[str, Path]) -> None:
    X, y = images()
    model = FewShotClassifier(paths["maml"]).fit(X, y)
    learner = load_learner(paths["maml"]).double()
    support = torch.from_numpy(model._fitted.rows.x).view(1, -1, 1, SIDE, SIDE)
    labels = torch.from_numpy(model._fitted.rows.y)[None]
    queries = torch.from_numpy(images(seed=1)[0] / 255).view(1, -1, 1, SIDE, SIDE)
    expected = learner.condition(support, labels, 3).predict(queries)[0]
    np.testing.assert_allclose(model.predict_proba(images(seed=1)[0]), expected.numpy(), rtol=1e-10)


def test_answers_that_depend_on_their_company_are_refused(tmp_path: Path) -> None:
    backbone = make_backbone("conv4", (1, SIDE, SIDE), n_filters=4)
    path = tmp_path / "published.safetensors"
    save_checkpoint(path, make_learner("maml", backbone, preset="paper"), {}, {"episodes": 0}, {})
    with pytest.raises(ValueError, match=r"depends on the rows that are asked with it .*query_statistics = 'support'"):
        FewShotClassifier(path).fit(*images())


def test_another_number_of_classes_is_refused_by_a_learner_of_five(tmp_path: Path) -> None:
    backbone = make_backbone("conv4", (1, SIDE, SIDE), n_filters=4)
    path = tmp_path / "five.safetensors"
    save_checkpoint(path, make_learner("maml", backbone, way=5), {}, {"episodes": 0}, {})
    with pytest.raises(ValueError, match="'maml' has a last layer for 5 classes, but the task has 3"):
        FewShotClassifier(path).fit(*images())

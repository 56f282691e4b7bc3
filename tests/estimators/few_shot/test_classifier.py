"""`FewShotClassifier`: without a checkpoint, and with those of every learner."""

import math
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sureshot import FewShotClassifier, GPClassifier, TreeGPClassifier
from sureshot.data import load_clinc150
from sureshot.data.labelled import FewShotData, LabelledSet
from sureshot.estimators.classes import calibration
from sureshot.meta.learners import LEARNER_NAMES, EmbeddingLearner, TaskKernel, make_learner
from sureshot.meta.learners.registry import learns_base_classes
from sureshot.meta.tasks import TaskRows
from sureshot.meta.training import TrainingConfig, load_learner, train
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import LinearProjection, as_inputs, make_backbone
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

NAMES = tuple(name for name in LEARNER_NAMES if name != "relationnet")  # it takes images: see test_images
GAUSSIAN = tuple(name for name in NAMES if name.startswith(("ove", "logistic", "cdkt", "dkt")))
SAMPLERS = tuple(name for name in GAUSSIAN if "gibbs" in name)
REAL_WEIGHTS = tuple(name for name in GAUSSIAN if name not in SAMPLERS)
DRAWING = ("abml", "bayesian_maml")
UNTRAINED_STEPS: dict[str, dict[str, Any]] = {  # short ones, as pixels go to 16
    "maml": {"inner_rate": 1e-4},
    "abml": {"inner_rate": 1e-4, "initial_deviation": 1e-4, "inner_weight": 0.0},
    "bayesian_maml": {"inner_rate": 3e-3, "initial_deviation": 1e-3},
}
WITH_EVIDENCE = REAL_WEIGHTS
NO_CHECKPOINT = "no checkpoint"

DIGITS, DIGIT_LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS + np.random.default_rng(0).random(DIGITS.shape) / 10  # no constant columns


def support(way: int = 4, shots: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the digits from 5 on, which no checkpoint has seen, shuffled; and others to predict."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(np.flatnonzero(5 + k == DIGIT_LABELS))[: shots + 10] for k in range(way)]
    train_rows = rng.permutation(np.concatenate([rows[:shots] for rows in chosen]))
    test_rows = np.concatenate([rows[shots:] for rows in chosen])
    return DIGITS[train_rows], DIGIT_LABELS[train_rows], DIGITS[test_rows], DIGIT_LABELS[test_rows]


def options_of(name: str) -> dict[str, Any]:
    if learns_base_classes(name):
        return {"n_base_classes": 5}
    if name in UNTRAINED_STEPS:
        return UNTRAINED_STEPS[name]
    return {"n_chains": 4, "n_sweeps_prediction": 30} if name in SAMPLERS else {}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | None]:
    """A checkpoint of every learner, on the 64 pixels of the digits as an embedding."""
    folder = tmp_path_factory.mktemp("checkpoints")
    paths: dict[str, Path | None] = {NO_CHECKPOINT: None}
    for name in NAMES:
        backbone = make_backbone("linear", (64,), rank=4)
        path = folder / f"{name}.safetensors"
        progress = {"episodes": 0}
        save_checkpoint(path, make_learner(name, backbone, **options_of(name)), {}, progress, {})
        paths[name] = path
    return paths


Fitted = Callable[[str], FewShotClassifier]


@pytest.fixture(scope="module")
def fitted(checkpoints: dict[str, Path | None]) -> Fitted:
    """With the checkpoint of a learner, on `support()`; no test changes them."""
    return cache(lambda name: FewShotClassifier(checkpoints[name]).fit(*support()[:2]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short real run on the digits 0 to 4."""

    def part(digits: list[int]) -> LabelledSet:
        rows = np.isin(DIGIT_LABELS, digits)
        y = torch.from_numpy(np.searchsorted(digits, DIGIT_LABELS[rows]))
        return LabelledSet(torch.from_numpy(DIGITS[rows] / 16).float(), y, tuple(map(str, digits)))

    data = FewShotData(part([0, 1, 2]), part([3, 4]), part([5, 6, 7, 8, 9]), "digits", "pixels as embeddings")
    config = TrainingConfig.from_dict(
        {
            "data": {"name": "digits"},
            "episodes": {"way": 2, "shots": 1, "queries": 5},
            "backbone": {"name": "linear", "options": {"n_features": 8}},
            "learner": {"name": "ove_mean_field_pl"},
            "training": {"episodes": 20, "episodes_per_step": 2, "learning_rate": 0.01},
            "validation": {"every": 10, "tasks": 10, "queries": 5},
        }
    )
    folder = tmp_path_factory.mktemp("run")
    train(config, folder, data=data)
    return folder


@pytest.mark.parametrize("name", [NO_CHECKPOINT, *NAMES])
def test_it_answers_with_every_learner(name: str, checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, y_test = support()
    model = FewShotClassifier(checkpoints[name], random_state=1)
    model.fit(X, y)
    p = model.predict_proba(X_test)
    assert p.shape == (len(X_test), 4)
    np.testing.assert_allclose(p.sum(1), 1)
    assert model.score(X_test, y_test) > 0.7
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X_test)), p, atol=1e-300)
    np.testing.assert_array_equal(model.predict(X_test), model.classes_[p.argmax(1)])
    latent = model.predict_latent(X_test)
    assert latent.mean.shape == latent.variance.shape == p.shape
    unsure = model.uncertainty(X_test)
    np.testing.assert_allclose(unsure.total, unsure.aleatoric + unsure.epistemic)
    assert ((unsure.total >= 0) & (unsure.total <= np.log(4) + 1e-9)).all()
    outlying = model.outlier_score(X_test)
    if name in GAUSSIAN or name == NO_CHECKPOINT:
        assert np.median(model.outlier_score(X)) < np.median(outlying) < np.median(model.outlier_score(-X_test))
        assert (latent.variance > 0).all()
        assert (unsure.epistemic > 0).any()
    else:
        assert (latent.variance > 0).all() if name in DRAWING else (latent.variance == 0).all()
        assert (unsure.epistemic == 0).all()
    assert np.isfinite(model.log_evidence_) == (name in WITH_EVIDENCE or name == NO_CHECKPOINT)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_the_learner_says(name: str, checkpoints: dict[str, Path | None], fitted: Fitted) -> None:
    """The posterior of the estimator is that of `ClassLearner.condition` on the same rows in the same order."""
    X_test, model = support()[2], fitted(name)
    learner = load_learner(str(checkpoints[name])).double()
    rows = model._fitted.rows
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        task = TaskRows(torch.from_numpy(rows.x)[None], torch.from_numpy(rows.y)[None], 4)
        queries = torch.from_numpy(X_test)[None]
        if isinstance(learner, EmbeddingLearner):
            posterior, queries = learner.condition_embedded(task, generator), learner.embed(queries)
        else:
            posterior = learner.condition_inputs(task, generator)
        expected, latents = posterior.predict(queries)[0], posterior.latents(queries)
    np.testing.assert_allclose(model.predict_proba(X_test), expected.numpy(), atol=1e-5)
    found = model.predict_latent(X_test)
    np.testing.assert_allclose(found.mean, latents.mean[0].numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.variance, latents.variance[0].numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("each", [1, 2, 10])
@pytest.mark.parametrize("unit", [False, True], ids=["table", "embeddings"])
def test_without_a_checkpoint_it_is_gp_classifier(each: int, unit: bool) -> None:
    X, y = load_iris(return_X_y=True)
    if unit:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows = np.concatenate([np.flatnonzero(y == label)[:each] for label in range(3)])
    model, same = FewShotClassifier().fit(X[rows[1:]], y[rows[1:]]), GPClassifier().fit(X[rows], y[rows])
    model.partial_fit(X[rows[:1]], y[rows[:1]])  # settings are chosen anew, whatever the order of the classes
    order = np.argsort(model.classes_)
    np.testing.assert_allclose(model.predict_proba(X)[:, order], same.predict_proba(X), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.outlier_score(X), same.outlier_score(X), rtol=1e-6)
    assert len(model.members_) == len(same.members_)
    with pytest.raises(AttributeError, match="no learner_: what it has learnt has none"):
        _ = model.learner_
    assert model.input_shape_ == (4,)


def test_rows_without_text_say_next_to_nothing() -> None:
    X = pd.DataFrame({"note": ["red apple", "green apple", "red cherry", "blue sky", "grey sky", "blue sea"]})
    y = np.repeat(["fruit", "far"], 3)
    model = FewShotClassifier(columns={"note": "text"}).fit(X, y)
    asked = pd.DataFrame({"note": ["", "red apple", None, "NA"]})
    p = model.predict_proba(asked)
    np.testing.assert_allclose(p[[0, 2, 3]], 0.5, atol=0.1)
    assert p[1].max() > 0.75
    np.testing.assert_allclose(p[1:2], model.predict_proba(asked[1:2]), rtol=1e-12)
    assert np.isfinite(model.outlier_score(asked)).all()
    assert np.isfinite(model.novelty_p_value(asked)).all()
    assert model.partial_fit(asked[:1], ["fruit"]).predict_proba(asked).shape == (4, 2)


@pytest.mark.parametrize("name", [NO_CHECKPOINT, *NAMES])
def test_partial_fit_is_fit_on_all_rows(name: str, checkpoints: dict[str, Path | None], fitted: Fitted) -> None:
    X, y, X_test, _ = support()
    whole = fitted(name)
    parts = FewShotClassifier(checkpoints[name])
    for start in range(0, len(y), 5):
        parts.partial_fit(X[start : start + 5], y[start : start + 5], classes=[5, 6, 7, 8])
    np.testing.assert_array_equal(parts.predict_proba(X_test), whole.predict_proba(X_test))
    np.testing.assert_array_equal(parts.predict_latent(X_test).variance, whole.predict_latent(X_test).variance)


@pytest.mark.parametrize("name", [NO_CHECKPOINT, *NAMES])
def test_weights_are_copies_of_rows(name: str, checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    weight = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = FewShotClassifier(checkpoints[name]).fit(X, y, sample_weight=weight)
    copied = FewShotClassifier(checkpoints[name]).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_array_equal(weighted.predict_proba(X_test), copied.predict_proba(X_test))


@pytest.mark.parametrize("name", NAMES)
def test_real_weights_where_the_learner_can_use_them(
    name: str, checkpoints: dict[str, Path | None], fitted: Fitted
) -> None:
    X, y, X_test, _ = support()
    weight = np.where(y == 5, 2.5, 0.5)
    model = FewShotClassifier(checkpoints[name])
    if name in REAL_WEIGHTS:
        plain = fitted(name).predict_proba(X_test)[:, 0].mean()
        assert model.fit(X, y, sample_weight=weight).predict_proba(X_test)[:, 0].mean() > plain
    else:
        with pytest.raises(ValueError, match="must be whole numbers"):
            model.fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("name", [NO_CHECKPOINT, *NAMES])
def test_classes_come_and_go(name: str, checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    names = np.array(["m", "z", "a", "k"])[y - 5]
    model = FewShotClassifier(checkpoints[name])
    model.partial_fit(X[y < 7], names[y < 7])
    assert model.classes_.tolist() == ["m", "z"]
    model.partial_fit(X[y >= 7], names[y >= 7])
    assert model.classes_.tolist() == ["a", "k", "m", "z"]
    if name not in ("feature_transfer", "baseline_plus_plus", "matchingnet", *SAMPLERS, *DRAWING):
        whole = FewShotClassifier(checkpoints[name]).fit(X, names)
        found, expected = model.predict_latent(X_test), whole.predict_latent(X_test)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-7)
        np.testing.assert_allclose(found.variance, expected.variance, atol=1e-7)
    model.forget(["a", "k"])
    two = FewShotClassifier(checkpoints[name]).fit(X[y < 7], names[y < 7])
    assert model.classes_.tolist() == ["m", "z"]
    np.testing.assert_array_equal(model.predict_proba(X_test), two.predict_proba(X_test))
    with pytest.raises(ValueError, match="does not know"):
        model.forget(["q"])
    with pytest.raises(ValueError, match="at least one must stay"):
        model.forget(["m", "z"])


@pytest.mark.parametrize("name", NAMES)
def test_an_announced_class_predicts_from_its_prior(
    name: str, checkpoints: dict[str, Path | None], fitted: Fitted
) -> None:
    X, y, X_test, _ = support()
    model = FewShotClassifier(checkpoints[name])
    model.partial_fit(X, y, classes=[0, 5, 6, 7, 8])
    without = fitted(name)
    p, latent = model.predict_proba(X_test), model.predict_latent(X_test)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(latent.mean[:, 1:], without.predict_latent(X_test).mean)
    if name in GAUSSIAN:
        learner = model.learner_
        np.testing.assert_allclose(latent.mean[:, 0], (learner.prior_mean + learner.prediction_shift).item())
        np.testing.assert_allclose(latent.variance[:, 0], learner.kernel.outputscale.item())
        assert (p[:, 0] > 0).all()
    else:
        assert (p[:, 0] == 0).all()
    model.forget([5, 6, 7]).partial_fit(X[:0:-1][:2], y[:0:-1][:2])
    with pytest.raises(ValueError, match="every class that has rows"):
        FewShotClassifier(checkpoints[name]).partial_fit(X[y == 5], y[y == 5], classes=[5, 6]).forget([5])


@pytest.mark.parametrize("name", [NO_CHECKPOINT, "ove_gibbs_pl", "dkt", "protonet"])
def test_one_class_alone(name: str, checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    with pytest.raises(ValueError, match="needs at least two classes"):
        FewShotClassifier(checkpoints[name]).fit(X[y == 5], y[y == 5])
    model = FewShotClassifier(checkpoints[name]).partial_fit(X[y == 5], y[y == 5])
    np.testing.assert_array_equal(model.predict_proba(X_test), 1)
    assert np.isfinite(model.outlier_score(X_test)).all()
    assert (model.uncertainty(X_test).total == 0).all()


@pytest.mark.parametrize("name", [NO_CHECKPOINT, *NAMES])
def test_predictions_do_not_depend_on_the_batch(name: str, fitted: Fitted) -> None:
    X_test, model = support()[2][::4], fitted(name)
    whole = model.predict_proba(X_test)
    np.testing.assert_allclose(np.concatenate([model.predict_proba(row[None]) for row in X_test]), whole, rtol=1e-9)
    np.testing.assert_array_equal(model.predict_proba(X_test), whole)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(model.predict_proba, [X_test] * 8):
            np.testing.assert_array_equal(found, whole)


SAVED = [NO_CHECKPOINT, "ove_gibbs_pl", "cdkt_pl", "dkt", "protonet", "feature_transfer", "matchingnet"]
LOAD_AND_PREDICT = """
import sys
from pathlib import Path
import numpy as np
from sureshot import FewShotClassifier, GPClassifier, TreeGPClassifier
folder = Path(sys.argv[1])
x = np.load(folder / "x.npy")
for path in folder.glob("*.safetensors"):
    model = FewShotClassifier.load(path)
    np.savez(path.with_suffix(".npz"), p=model.predict_proba(x), o=model.outlier_score(x), c=model.classes_)
"""


@pytest.mark.slow
def test_saved_models_predict_the_same_bits_in_a_new_process(
    checkpoints: dict[str, Path | None], tmp_path: Path
) -> None:
    X, y, X_test, y_test = support()
    digits = np.array(["five", "six", "seven", "eight"])
    models = {}
    np.save(tmp_path / "x.npy", X_test)
    for name in SAVED:
        checkpoint = checkpoints[name]
        if checkpoint is not None:  # one that is gone when the model is loaded
            checkpoint = Path(shutil.copy(checkpoint, tmp_path / "gone"))
        model = FewShotClassifier(checkpoint, random_state=np.random.RandomState(4)).fit(X, digits[y - 5])
        model.calibrate(X_test, digits[y_test - 5])
        model.partial_fit(X[:2], digits[y[:2] - 5], classes=["none yet"])
        model.save(tmp_path / f"{name}.safetensors")
        models[name] = model
    (tmp_path / "gone").unlink()
    subprocess.run([sys.executable, "-c", LOAD_AND_PREDICT, str(tmp_path)], check=True)
    for name, model in models.items():
        with np.load(tmp_path / f"{name}.npz") as found:
            np.testing.assert_array_equal(found["p"], model.predict_proba(X_test))
            np.testing.assert_array_equal(found["o"], model.outlier_score(X_test))
            np.testing.assert_array_equal(found["c"], model.classes_)
        loaded = FewShotClassifier.load(tmp_path / f"{name}.safetensors")
        assert loaded.temperature_ == model.temperature_
        np.testing.assert_equal(loaded.log_evidence_, model.log_evidence_)
        for each in (loaded, model):
            each.partial_fit(X_test[:3], digits[y_test[:3] - 5])
        np.testing.assert_array_equal(loaded.predict_proba(X_test), model.predict_proba(X_test))


@pytest.mark.parametrize("name", [NO_CHECKPOINT, "ove_gibbs_pl", "cdkt_pl", "dkt", "protonet", "matchingnet"])
def test_pickle_and_joblib(name: str, fitted: Fitted, tmp_path: Path) -> None:
    X_test, model = support()[2], fitted(name)
    expected = model.predict_proba(X_test)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X_test), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X_test), expected)


def test_calibrate_lowers_the_held_out_loss_and_lasts_until_fit() -> None:
    X, y = (part[::2] for part in load_iris(return_X_y=True))
    model = FewShotClassifier().fit(X[::5], y[::5])
    before, chosen = log_loss(y, model.predict_proba(X)), model.temperature_
    assert model.calibrate(X, y) is model
    temperature = model.temperature_
    assert log_loss(y, model.predict_proba(X)) < before
    model.partial_fit(X[2::5], y[2::5])
    assert model.temperature_ == temperature
    assert model.fit(X[::5], y[::5]).temperature_ == chosen
    with pytest.raises(ValueError, match="labels the model does not know: 77"):
        model.calibrate(X, np.where(y == 0, 77, y))


@pytest.mark.parametrize("name", ["ove_gibbs_pl", "dkt"])
def test_calibrate_asks_for_the_moments_of_each_block_once(
    name: str, checkpoints: dict[str, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, X_test, y_test = support()
    model = FewShotClassifier(checkpoints[name]).fit(X, y)
    asked: list[int] = []
    cross = TaskKernel.cross

    def counted(kernel: TaskKernel, z: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        asked.append(query.shape[1])
        return cross(kernel, z, query)

    with monkeypatch.context() as patch:
        patch.setattr(TaskKernel, "cross", counted)
        patch.setattr("sureshot.estimators.base.LARGEST_BLOCK", 15)
        found = model.calibrate(X_test, y_test).temperature_
        assert asked == [15, 15, 10]
        patch.setattr(calibration, "MAX_CACHED_MOMENTS", 0)  # then each temperature asks anew
        assert model.calibrate(X_test, y_test).temperature_ == found
        assert len(asked) > 3 + 3 * 5
        patch.setattr(calibration, "MAX_CACHED_MOMENTS", 1)
        asked.clear()
        assert model.calibrate(X_test, y_test).temperature_ == found
        assert asked.count(15) == asked.count(10) + 1  # the first block is kept, the others are not

    def objective(temperature: float) -> float:
        model._fitted = replace(model._fitted, temperature=temperature)
        beforehand = 0.5 * (np.log(temperature) / calibration.TEMPERATURE_SPREAD) ** 2
        return len(y_test) * log_loss(y_test, model.predict_proba(X_test)) + beforehand

    assert objective(found) < min(objective(found / 1.1), objective(found * 1.1))


def test_a_few_rows_that_are_named_right_do_not_make_all_others_certain() -> None:
    X, y = load_digits(return_X_y=True)
    known, used = y < 6, X[:120].std(0) > 0.5
    X, y = X[known][:, used], y[known]
    for model in (GPClassifier(), FewShotClassifier(), TreeGPClassifier()):
        model.fit(X[:80], y[:80])
        before = log_loss(y[300:600], model.predict_proba(X[300:600]))
        model.calibrate(X[200:204], y[200:204])
        assert log_loss(y[300:600], model.predict_proba(X[300:600])) < before + 0.05
        found = model.temperature_
        assert model.calibrate(X[200:204], y[200:204]).temperature_ == pytest.approx(found), "again is the same"


@pytest.mark.parametrize("n_classes", [3, 8, 20])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_log_evidence_is_a_lower_bound_whatever_pairs_count_for(n_classes: int, weight: float, tmp_path: Path) -> None:
    """One row of each class, all unrelated: the evidence is a product over rows, each an integral over two latents."""
    learner = make_learner("ove_mean_field_ml", make_backbone("identity", (n_classes,)), outputscale=1.0)
    save_checkpoint(tmp_path / "learner.safetensors", learner, {}, {"episodes": 0}, {})
    rows = np.eye(n_classes)
    model = FewShotClassifier(tmp_path / "learner.safetensors")
    model.fit(rows, np.arange(n_classes), sample_weight=np.full(n_classes, weight))
    assert model.learner_.prediction_inference.pairs_per_row == 4
    gram = model.learner_.kernel.gram(torch.from_numpy(rows)[None])[0, 0]
    torch.testing.assert_close(gram, torch.eye(n_classes, dtype=torch.float64), atol=1e-6, rtol=0)

    # The classes that a label is compared with are independent given its latent.
    latent = torch.linspace(-8, 8, 1001, dtype=torch.float64)
    density = torch.softmax(-0.5 * latent.square(), 0)
    beats_one = torch.sigmoid(latent[:, None] - latent).pow(weight) @ density
    exact = n_classes * (beats_one.pow(n_classes - 1) @ density).log().item()

    draws = torch.randn(200_000, n_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    likelihood = torch.sigmoid(draws[:, :1] - draws[:, 1:]).pow(weight).prod(1)
    drawn = n_classes * likelihood.mean().log().item()
    error = n_classes * (likelihood.std() / likelihood.mean()).item() / math.sqrt(len(draws))
    assert abs(drawn - exact) < 5 * error < 5
    assert model.log_evidence_ < min(exact, drawn - 5 * error)


def test_a_pipeline_a_frame_and_string_labels() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = FewShotClassifier().fit(X[::10], names[::10])
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert set(model.predict(X)) == set(names)
    pipeline = make_pipeline(StandardScaler(), FewShotClassifier()).fit(X[::10], names[::10])
    np.testing.assert_allclose(pipeline.predict_proba(X), model.predict_proba(X), atol=1e-3)


def test_one_seed_fixes_samplers_and_the_global_generator_is_left_alone(checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    path = checkpoints["ove_gibbs_pl"]
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first = FewShotClassifier(path, random_state=3).fit(X, y).predict_proba(X_test)
    second = FewShotClassifier(path, random_state=3).fit(X, y).predict_proba(X_test)
    other = FewShotClassifier(path, random_state=4).fit(X, y).predict_proba(X_test)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_the_folder_of_a_run_is_a_checkpoint(trained: Path) -> None:
    X, y, X_test, y_test = support(way=5, shots=2)
    model = FewShotClassifier(trained).fit(X / 16, y)
    assert model.score(X_test / 16, y_test) > 0.4
    assert isinstance(model.learner_.backbone, LinearProjection)
    best = FewShotClassifier(trained / "best.safetensors").fit(X / 16, y)
    np.testing.assert_array_equal(model.predict_proba(X_test), best.predict_proba(X_test))


@pytest.fixture(scope="module")
def image_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "conv4.safetensors"
    backbone = make_backbone("conv4", (1, 16, 16), n_filters=4, seed=1)
    save_checkpoint(path, make_learner("ove_mean_field_pl", backbone), {}, {"episodes": 0}, {})
    return path


def images(n_classes: int = 3, n_rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    patterns = rng.random((n_classes, 1, 16, 16))
    x = (127 * (patterns[:, None] + rng.random((n_classes, n_rows, 1, 16, 16)))).astype(np.uint8)
    return x.reshape(-1, 1, 16, 16), np.repeat(np.arange(n_classes), n_rows)


def test_images_in_every_form(image_checkpoint: Path) -> None:
    x, y = images()
    model = FewShotClassifier(image_checkpoint).fit(x[::2], y[::2])
    assert model.n_features_in_ == 256
    expected = model.predict_proba(x)
    forms = [x[:, 0], x.reshape(len(x), 256), torch.from_numpy(x), x / 255, (x / 255)[:, 0], np.moveaxis(x, 1, 3)]
    forms.append(pd.DataFrame(x.reshape(len(x), 256)))
    for form in forms:
        np.testing.assert_allclose(model.predict_proba(form), expected, atol=1e-6)
    learner = load_learner(image_checkpoint)
    posterior = learner.condition(as_inputs(torch.from_numpy(x[::2]))[None], torch.from_numpy(y[::2])[None])
    own = posterior.predict(as_inputs(torch.from_numpy(x))[None])[0]
    np.testing.assert_allclose(expected, own.numpy(), atol=2e-4)


def test_bytes_of_zero_and_one_are_next_to_black(image_checkpoint: Path) -> None:
    x, y = images()
    model = FewShotClassifier(image_checkpoint).fit(x, y)
    with pytest.warns(UserWarning, match="none has a value above 1, so all are next to black: use X.astype"):
        model.predict((x > 127).astype(np.uint8))
    assert len(model.predict((x > 127).astype(float))) == len(x)
    assert len(model.predict(255 * (x > 127).astype(np.uint8))) == len(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.reshape(-1, 256)[:, :-1], r"takes images of 1 channel 16x16.*\(n, 256\).*rows of 255 features"),
        (lambda x: np.repeat(x, 3, axis=1), r"takes images of 1 channel 16x16.*\(18, 3, 16, 16\)"),
        (lambda x: x[:, :, :8], r"takes images of 1 channel 16x16.*\(18, 1, 8, 16\)"),
        (lambda x: x.astype(float), r"must be uint8 \(0 to 255\) or lie in \[0, 1\].*float64.*divide bytes by 255"),
        (lambda x: np.where(x == x[3], np.nan, x / 255), r"NaN or infinity in \d+ images, the first of them row"),
        (lambda x: x / 255 - 1, r"must be uint8"),
    ],
)
def test_wrong_images_are_named(image_checkpoint: Path, change: Any, message: str) -> None:
    x, y = images()
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(image_checkpoint).fit(change(x), y)
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(image_checkpoint).fit(x, y).predict(change(x))


def test_wrong_inputs_are_named(checkpoints: dict[str, Path | None], tmp_path: Path) -> None:
    X, y, X_test, _ = support()
    path = checkpoints["protonet"]
    with pytest.raises(ValueError, match=r"takes vectors of length 64.*\(n, 64\), but rows of 5 features came"):
        FewShotClassifier(path).fit(X[:, :5], y)
    with pytest.raises(ValueError, match="contains NaN in 1 rows"):
        FewShotClassifier(path).fit(np.where(X[2] == X, np.nan, X)[2:3], y[2:3])
    with pytest.raises(TypeError, match="checkpoint must be a path or None; got int"):
        FewShotClassifier(3).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="there is no file"):
        FewShotClassifier(tmp_path / "none.safetensors").fit(X, y)
    with pytest.raises(ValueError, match="device must be"):
        FewShotClassifier(path, device="abacus").fit(X, y)
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        FewShotClassifier(path).fit(X, y, sample_weight=-np.ones(len(y)))
    model = FewShotClassifier(path).fit(X, y)
    with pytest.raises(TypeError, match="labels changed type"):
        model.partial_fit(X, y.astype(str))
    assert model.classes_.tolist() == [5, 6, 7, 8]
    frame = pd.DataFrame(X_test)
    frame["extra"] = "text"
    with pytest.raises(ValueError, match="takes vectors of length 64"):
        model.predict(frame)


def test_a_kernel_for_each_class_needs_that_many_classes(tmp_path: Path) -> None:
    path = tmp_path / "dkt.safetensors"
    learner = make_learner("dkt", make_backbone("identity", (64,)), preset="paper")
    save_checkpoint(path, learner, {}, {"episodes": 0}, {})
    X, y, X_test, y_test = support(way=5)
    assert FewShotClassifier(path).fit(X, y).score(X_test, y_test) > 0.7
    with pytest.raises(ValueError, match="each of 5 classes, but there are 4 classes"):
        FewShotClassifier(path).fit(X[y < 9], y[y < 9])


def test_a_support_that_does_not_fit_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    save_checkpoint(path, make_learner("dkt", make_backbone("identity", (2,))), {}, {"episodes": 0}, {})
    X = np.random.default_rng(0).normal(size=(200_000, 2))
    with pytest.raises(MemoryError, match=r"200000 distinct rows of 2 classes would take about .* use GPClassifier"):
        FewShotClassifier(path).fit(X, X[:, 0] > 0)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("temperature", -1.0, "the temperature must be positive"),
        ("seed", -1, "malformed seed"),
        ("learner", 3, "learner must be dict"),
        ("classes", {"labels": {"dtype": "<i8", "values": [0]}}, "do not fit the classes"),
    ],
)
def test_malformed_model_files_are_refused(
    entry: str, value: Any, message: str, checkpoints: dict[str, Path | None], tmp_path: Path
) -> None:
    X, y, *_ = support()
    path = tmp_path / "model.safetensors"
    FewShotClassifier(checkpoints["dkt"]).fit(X, y).save(path)
    artifact = load_artifact(path)
    save_artifact(path, artifact.kind, artifact.header | {entry: value}, artifact.arrays)
    with pytest.raises(ArtifactError, match=message):
        FewShotClassifier.load(path)


@pytest.mark.real_data
def test_one_shot_intents_without_a_checkpoint() -> None:
    data = load_clinc150(dtype=np.float64)
    rng = np.random.default_rng(0)
    right, log_probability = [], []
    for _ in range(20):
        intents = rng.choice(150, 5, replace=False)
        rows = np.concatenate([rng.permutation(np.flatnonzero(data.y_train == k))[:11] for k in intents]).reshape(5, 11)
        x, y = data.x_train[rows], data.y_train[rows]
        p = (model := FewShotClassifier().fit(x[:, 0], y[:, 0])).predict_proba(x[:, 1:].reshape(50, -1))
        column = np.searchsorted(model.classes_, y[:, 1:].ravel())
        right.append((p.argmax(1) == column).mean())
        log_probability.append(np.log(p[np.arange(50), column]).mean())
    assert np.mean(right) > 0.92
    assert -np.mean(log_probability) < 0.3


def test_a_fit_that_fails_leaves_the_model_of_before(checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    model = FewShotClassifier()
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(X[y == 5], y[y == 5])
    with pytest.raises(NotFittedError):
        model.predict(X_test)
    before = model.fit(X, y).predict_proba(X_test)
    with pytest.raises(ValueError, match="at least two classes"):
        model.set_params(checkpoint=checkpoints["protonet"]).fit(X[y == 5], y[y == 5])
    np.testing.assert_array_equal(model.predict_proba(X_test), before)
    with pytest.raises(ValueError, match="must be whole numbers"):
        model.fit(X, y).partial_fit(X_test[:1], [9], sample_weight=[0.5])


def test_a_calibration_goes_with_the_scale_of_what_is_chosen_anew() -> None:
    """By the ratio to the usual temperature, which is 1 for an average, as it comes on top of its members' own."""
    X, y = load_digits(return_X_y=True)
    rest = np.random.default_rng(0).permutation(np.arange(20, len(y)))
    X, y = X[np.r_[:20, rest]] / np.linalg.norm(X[np.r_[:20, rest]], axis=1, keepdims=True), y[np.r_[:20, rest]]
    model = FewShotClassifier().fit(X[:20], y[:20])
    assert len(model.members_) == 2
    ratio = model.calibrate(X[20:120], y[20:120]).temperature_
    model.partial_fit(X[120:520], y[120:520])
    alone = FewShotClassifier().fit(np.r_[X[:20], X[120:520]], np.r_[y[:20], y[120:520]])
    assert len(alone.members_) == 1
    assert model.temperature_ == pytest.approx(ratio * alone.temperature_)
    assert log_loss(y[600:], model.predict_proba(X[600:])) < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: np.where(x == x[0], np.nan, x), "make_pipeline.*, or drop those rows"),
        (lambda x: pd.DataFrame(x).mask(x == x[0]), "make_pipeline.*, or drop those rows"),
        (
            lambda x: pd.DataFrame(x).astype(object).mask(x == x[0], "text"),
            r"non-numeric columns \[0.*encode the columns",
        ),
    ],
)
def test_with_a_checkpoint_advice_is_for_numbers(
    checkpoints: dict[str, Path | None], change: Any, message: str
) -> None:
    X, y, *_ = support()
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        FewShotClassifier(checkpoints["dkt"]).fit(change(X), y)
    assert "columns=" not in str(caught.value)
    assert "may have gaps" not in str(caught.value)


def test_objects_that_are_numbers_are_numbers(checkpoints: dict[str, Path | None]) -> None:
    X, y, X_test, _ = support()
    model = FewShotClassifier(checkpoints["dkt"])
    found = model.fit(pd.DataFrame(X).astype(object), y).predict_proba(pd.DataFrame(X_test).astype(object))
    np.testing.assert_array_equal(found, model.fit(pd.DataFrame(X), y).predict_proba(pd.DataFrame(X_test)))

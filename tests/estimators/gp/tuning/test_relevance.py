"""Length-scales of columns: their gradient, what is learnt from which rows, and what becomes of it in a classifier."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from sureshot import GPClassifier
from sureshot.estimators.gp.model import LEAST_SQUARES, Model
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.family_search import Search
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.gp.tuning.relevance import (
    FOLDS,
    MAX_COLUMNS,
    Relevance,
    _climbed,
    can_be_learnt,
    learn_relevance,
    left_out_density,
    weighted_by,
)
from sureshot.estimators.gp.tuning.stacking import MOST_MEMBERS
from sureshot.estimators.rows.folds import row_folds
from sureshot.estimators.rows.support import FEW_ROWS, Support
from sureshot.kernels import preset_kernel
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

PLANTED, NOISE = 2, 10
WITH = {"kernel": "rbf", "relevance": True}


def planted(n: int = 160, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Columns of which the first two say all."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, PLANTED + NOISE))
    angle = np.arctan2(x[:, 1], x[:, 0]) + np.pi
    return x, (angle / (2 * np.pi) * n_classes * 2).astype(int) % n_classes


def support_of(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Support:
    ones = np.ones(len(y)) if weight is None else weight
    return Support(
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(ones),
        int(y.max()) + 1,
        torch.ones(len(y), dtype=torch.float64),
        torch.from_numpy(ones),
    )


@pytest.fixture(scope="module")
def model() -> GPClassifier:
    return GPClassifier(**WITH).fit(*planted())


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern12", "linear"])
def test_the_gradient_is_that_of_finite_differences(kernel: str) -> None:
    rng = np.random.default_rng(1)
    y = np.append(np.arange(24) % 3, 3)  # the last one cannot be left out
    support = support_of(rng.normal(size=(25, 4)), y, rng.random(25) + 0.5)
    gram = weighted_by(preset_kernel(kernel, 4))(support.x)
    point = torch.from_numpy(0.5 * rng.normal(size=5)).requires_grad_()
    (gradient,) = torch.autograd.grad(left_out_density(support, gram, point), point)
    for k in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[k] = 1e-5
        values = [float(left_out_density(support, gram, point.detach() + sign * step)) for sign in (1, -1)]
        assert float(gradient[k]) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-6)


def test_the_density_is_that_of_refitted_regressions() -> None:
    """By scikit-learn's regression on the others, at the best output scale; of the rows whose class has another.

    One of three classes has not, so they count by two thirds.
    """
    x, y = planted(13)
    y[-1] = 2
    ratio, weights = 0.4, np.linspace(0.2, 1.5, x.shape[1])
    point = torch.from_numpy(np.log(np.append(weights, ratio)))
    support = support_of(x, y)
    gram = weighted_by(preset_kernel("rbf", x.shape[1]))(support.x)
    found = float(left_out_density(support, gram, point))
    targets = 2.0 * (y[:, None] == np.arange(3)) - 1
    centred = targets - targets.mean(0)
    residual, variance = np.empty((12, 3)), np.empty(12)
    for n in range(12):
        others = np.arange(13) != n
        kernel = RBF(math.sqrt(x.shape[1]), "fixed") + ConstantKernel(1.0, "fixed")
        regression = GaussianProcessRegressor(kernel, alpha=ratio, optimizer=None)
        regression.fit((x * weights)[others], centred[others])
        mean, deviation = regression.predict((x * weights)[n : n + 1], return_std=True)
        residual[n], variance[n] = centred[n] - mean[0], deviation[0, 0] ** 2 + ratio
    squared = (residual**2).mean(1)
    variance = variance * (squared / variance).mean()
    assert found == pytest.approx(float(-1 / 3 * (np.log(2 * np.pi * variance) + squared / variance).sum()))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_planted_columns_are_found(n_classes: int) -> None:
    x, y = planted(200, n_classes=n_classes)
    learnt = learn_relevance(support_of(x, y), weighted_by(preset_kernel("matern32", x.shape[1])), 0.1)
    for weights in (learnt.weights, *learnt.left_out):
        assert float(weights.square().mean()) == pytest.approx(1)
        assert weights[:PLANTED].min() > 3 * weights[PLANTED:].max()


def test_a_climb_overshoots_nowhere_and_comes_near_the_optimum() -> None:
    x, y = planted(200)
    support, asked = support_of(x, y), []
    of_weights = weighted_by(preset_kernel("matern32", x.shape[1]))(support.x)

    def gram(log_weights: torch.Tensor) -> torch.Tensor:
        asked.append(log_weights.detach().clone())
        return of_weights(log_weights)

    start = np.append(np.zeros(x.shape[1]), math.log(0.1))
    reached = _climbed(support, gram, start, 0.6)
    assert np.abs(np.diff(torch.stack(asked).numpy(), axis=0)).max() < 3

    def loss(point: np.ndarray) -> float:
        density = left_out_density(support, of_weights, torch.from_numpy(point))
        return float(0.5 * (point[:-1] / 0.6) @ (point[:-1] / 0.6) - density)

    optimum = minimize(loss, reached, method="L-BFGS-B").fun
    assert loss(reached) - optimum < 0.1 * (loss(start) - optimum)


def test_a_folds_weights_have_not_seen_its_rows() -> None:
    x, y = planted(120)
    kernel = preset_kernel("rbf", x.shape[1])
    before = learn_relevance(support_of(x, y), weighted_by(kernel), 0.1)
    x[int((before.folds == 1).nonzero()[0])] += 0.01
    after = learn_relevance(support_of(x, y), weighted_by(kernel), 0.1)
    assert [bool((before.left_out[fold] == after.left_out[fold]).all()) for fold in range(FOLDS)] == [
        False,
        True,
        False,
    ]
    assert not bool((before.weights == after.weights).all())


@pytest.mark.parametrize("rule", ["integral", "plug_in"])
def test_rows_are_scored_by_the_weights_that_have_not_seen_them(rule: Any) -> None:
    x, y = planted(40)
    support = support_of(x, y)
    left_out = torch.rand(3, x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    folds = row_folds(support.y, 3)
    plain = named_family("rbf", support)
    family = replace(plain, relevance=Relevance(torch.ones(x.shape[1]), 1.0, left_out, folds))
    logistic, regression = Model("logistic", "laplace"), LEAST_SQUARES
    found, _ = Search(support, 0, family, LabelLogLoss("integral"))._score(logistic, 0.5, 3.0, [None] * 3)
    mixed = Search(support, 0, family, LabelLogLoss(rule))._regress(regression, 0.5, "integral")
    for fold, weights in enumerate(left_out):
        alone = Search(support, 0, replace(plain, column_weights=weights), LabelLogLoss("integral"))
        expected, _ = alone._score(logistic, 0.5, 3.0, [None])
        torch.testing.assert_close(found.pointwise[folds == fold], expected.pointwise[folds == fold])
    assert torch.isfinite(mixed.pointwise).all()


def test_where_relevance_is_not_tried() -> None:
    x, y = planted(100)
    assert can_be_learnt(support_of(x, y))
    assert not can_be_learnt(support_of(x[: FEW_ROWS - 1], y[: FEW_ROWS - 1]))
    assert not can_be_learnt(support_of(x[:, :1], y))
    assert not can_be_learnt(support_of(np.tile(x, (1, MAX_COLUMNS // 12 + 1)), y))
    assert not can_be_learnt(support_of(x / np.linalg.norm(x, axis=1, keepdims=True), y))


def test_noise_columns_stop_to_count(model: GPClassifier) -> None:
    x, y = planted(1000, seed=1)
    assert model.feature_relevance_.shape == (PLANTED + NOISE,)
    assert model.feature_relevance_[:PLANTED].min() > 3 * model.feature_relevance_[PLANTED:].max()
    assert np.square(model.feature_relevance_).mean() == pytest.approx(1)
    equal = GPClassifier("rbf").fit(*planted())
    losses = [-np.log(m.predict_proba(x)[np.arange(1000), y]).mean() for m in (equal, model)]
    assert losses[1] < losses[0] - 0.1
    assert -model.leave_one_out_score_ == pytest.approx(losses[1], abs=0.06)


def test_columns_in_another_order(model: GPClassifier) -> None:
    """The same up to rounding; a classifier deals its rows to folds in an order that depends on the columns."""
    x, y = planted()
    order = np.random.default_rng(3).permutation(x.shape[1])
    gram_of = weighted_by(preset_kernel("matern32", x.shape[1]))
    one, another = (learn_relevance(support_of(z, y), gram_of, 0.1) for z in (x, np.ascontiguousarray(x[:, order])))
    torch.testing.assert_close(another.weights, one.weights[order], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(another.left_out, one.left_out[:, order], rtol=1e-4, atol=1e-6)
    other = GPClassifier(**WITH).fit(x[:, order], y)
    np.testing.assert_allclose(other.feature_relevance_, model.feature_relevance_[order], rtol=0.1, atol=0.02)


def test_weights_are_copies() -> None:
    x, y = planted(90)
    copies = np.random.default_rng(0).integers(1, 3, 90)
    weighted = GPClassifier(**WITH).fit(x, y, copies)
    repeated = GPClassifier(**WITH).fit(np.repeat(x, copies, 0), np.repeat(y, copies))
    np.testing.assert_array_equal(weighted.predict_proba(x), repeated.predict_proba(x))
    np.testing.assert_array_equal(weighted.feature_relevance_, repeated.feature_relevance_)


@pytest.mark.parametrize("ensemble", [False, True])
def test_nothing_changes_where_it_does_not_pay(ensemble: bool) -> None:
    x, y = load_iris(return_X_y=True)
    x, y = x[::2], y[::2]
    plain, tried = (GPClassifier(ensemble=ensemble, relevance=r).fit(x, y) for r in (False, True))
    np.testing.assert_array_equal(tried.predict_proba(x), plain.predict_proba(x))
    np.testing.assert_allclose(tried.feature_relevance_, 1)


def test_constant_columns_have_none() -> None:
    x, y = planted()
    x[:, 4] = 7.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = GPClassifier(**WITH).fit(x, y).feature_relevance_
        equal = GPClassifier("rbf").fit(x, y).feature_relevance_
    assert found[4] == 0
    assert (np.delete(found, 4) > 0).all()
    np.testing.assert_array_equal(equal, np.arange(12) != 4)


def test_columns_of_one_unit_and_of_heavy_tails() -> None:
    """An average has common scales, ranks, and relevance on one of them."""
    x, y = planted(150)
    model = GPClassifier(ensemble=True, relevance=True).fit(np.exp(1.5 * x), y)
    scalings = [member.plan.scaling for member in model._fitted.members]
    assert any(scaling.relevance is not None and scaling.ranks is not None for scaling in scalings)
    assert model.feature_relevance_[:PLANTED].min() > model.feature_relevance_[PLANTED:].max()
    common = GPClassifier(relevance=True).fit(x * np.linspace(0.5, 3, x.shape[1]), y)
    assert common.feature_relevance_[:PLANTED].min() > 2 * common.feature_relevance_[PLANTED:].max()


def test_an_update_keeps_the_weights(model: GPClassifier, tmp_path: Path) -> None:
    x = planted()[0]
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(loaded.feature_relevance_, model.feature_relevance_)
    more = planted(40, seed=5)
    loaded.partial_fit(*more).partial_fit(more[0][:3] + 9, [7, 7, 7])
    np.testing.assert_array_equal(loaded.feature_relevance_, model.feature_relevance_)
    assert loaded.predict(more[0][:1] + 9) == [7]
    loaded.forget([7])
    np.testing.assert_array_equal(loaded.feature_relevance_, model.feature_relevance_)
    loaded.partial_fit(*planted(20, seed=6), retune=True)
    assert not np.array_equal(loaded.feature_relevance_, model.feature_relevance_)
    assert loaded.feature_relevance_[:PLANTED].min() > 3 * loaded.feature_relevance_[PLANTED:].max()


@pytest.mark.parametrize("bad", [-np.ones(PLANTED + NOISE), np.ones(3)])
def test_relevance_that_fits_no_columns(bad: np.ndarray, model: GPClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    found = load_artifact(tmp_path / "model")
    arrays = {**found.arrays, "members.0.plan.scaling.relevance": bad}
    save_artifact(tmp_path / "bad", found.kind, found.header, arrays)
    with pytest.raises(ArtifactError, match=r"malformed scaling|relevance"):
        GPClassifier.load(tmp_path / "bad")


def test_kernels_that_have_nothing_to_learn() -> None:
    x, y = planted(80)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for arguments, rows in (
        ({"kernel": "precomputed"}, x @ x.T),
        ({"kernel": "polynomial2"}, x),
        ({"kernel": preset_kernel("rbf", x.shape[1])}, x),
        ({"objective": None}, x),
        ({"kernel": "rbf", "objective": "evidence"}, x),
        ({"kernel": "rbf"}, unit),
    ):
        found = GPClassifier(**arguments, relevance=True).fit(rows, y)
        np.testing.assert_array_equal(found.feature_relevance_, np.ones(rows.shape[1]))


def test_what_is_no_switch_is_refused() -> None:
    with pytest.raises(ValueError, match="relevance must be one of True, False, 'auto'; got 'always'"):
        GPClassifier(relevance="always").fit(*planted(20))


def test_what_is_forgotten_leaves_no_trace_in_the_temperature() -> None:
    rng = np.random.default_rng(4)
    y, more = np.tile([0, 1, 2], 30), np.tile([0, 1, 2], 4)
    x, others = rng.normal(size=(90, 12)), rng.normal(size=(12, 12))
    x[:, 0] += 1.5 * y
    others[:, 0] += 1.5 * more
    plain = GPClassifier().fit(x, y, row_id=np.arange(90))
    assert any(member.plan.scaling.relevance is not None for member in plain._fitted.members)
    back = GPClassifier().fit(x, y, row_id=np.arange(90)).partial_fit(others, more, row_id=np.arange(100, 112))
    back = pickle.loads(pickle.dumps(back)).forget(rows=np.arange(100, 112))
    np.testing.assert_allclose(back.predict_proba(others), plain.predict_proba(others), atol=1e-6)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_rows_of_one_class_and_few_others(others: int) -> None:
    X = np.random.default_rng(0).normal(size=(120, 4))
    y = np.r_[np.ones(others), np.zeros(120 - others)]
    model = GPClassifier().partial_fit(X, y, classes=[0, 1])
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.slow
def test_many_rows_do_not_weigh_weights_learnt_from_them() -> None:
    """No more members are fitted than are kept, and their weights are those of the subset."""
    x, y = planted(2000)
    found = GPClassifier().fit(x, y)
    assert any(member.plan.scaling.relevance is not None for member in found._fitted.members)
    assert len(found.members_) <= MOST_MEMBERS
    assert sum(member.weight for member in found.members_) == pytest.approx(1)

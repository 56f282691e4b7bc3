"""Interactions of columns at length-scales of their own: matrix and gradient, what they are told by, and their part."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot import GPClassifier
from sureshot.estimators.gp.conditioning import Model
from sureshot.estimators.gp.tuning.level_interactions import (
    MAX_ROWS,
    ORDER,
    InteractionGram,
    interacting_settings,
    may_interact,
)
from sureshot.estimators.gp.tuning.relevance import left_out_density
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import TUNING_ROWS, Support
from sureshot.kernels import Interactions, Matern, evaluate

N_ROWS = 480


def columns(rng: np.random.Generator, n: int = 40) -> torch.Tensor:
    """Two columns of numbers, one of three values, and three of two values, one of which is constant."""
    levels = rng.integers(2, size=(n, 2)) * [1.5, 3.0]
    numbers = np.column_stack([rng.normal(size=(n, 2)), rng.integers(3, size=n), levels, np.ones(n)])
    return torch.from_numpy(numbers)


def support_of(x: torch.Tensor, y: np.ndarray) -> Support:
    ones = torch.ones(len(y), dtype=torch.float64)
    return Support(x, torch.from_numpy(y), ones, int(y.max()) + 1, ones, ones)


def parties(n: int = N_ROWS, seed: int = 0, n_parties: int = 100) -> tuple[pd.DataFrame, np.ndarray]:
    """Travellers of which those who paid the same share a fate, more often than not, beside text that says nothing."""
    rng = np.random.default_rng(seed)
    of_party = np.random.default_rng(1).integers(2, size=n_parties)
    party = rng.integers(n_parties, size=n)
    y = np.where(rng.random(n) < 0.9, of_party[party], 1 - of_party[party])
    frame = {"fare": 10.0 + 0.37 * party, "age": rng.normal(40, 12, n)}
    return pd.DataFrame(frame | {name: rng.choice(list("ABCDE"), n) for name in ("port", "deck")}), y


def interacts(model: GPClassifier) -> bool:
    return any("Interactions(Matern(0.5" in str(member.kernel) for member in model.members_)


def test_the_matrix_is_that_of_the_kernel() -> None:
    rng = np.random.default_rng(0)
    x = columns(rng)
    log_weights = torch.from_numpy(rng.normal(size=x.shape[1]))
    kernel = Interactions(Matern(0.5, torch.ones(1, dtype=torch.float64)), torch.tensor(ORDER, dtype=torch.float64))
    expected = evaluate(kernel, x * log_weights.exp())
    torch.testing.assert_close(InteractionGram(x)(log_weights), expected, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    x = columns(rng)
    support, gram = support_of(x, np.arange(len(x)) % 3), InteractionGram(x)
    point = torch.from_numpy(0.5 * rng.normal(size=x.shape[1] + 1)).requires_grad_()
    (gradient,) = torch.autograd.grad(left_out_density(support, gram, point), point)
    for k in range(len(point)):
        step = torch.zeros_like(point)
        step[k] = 1e-5
        values = [float(left_out_density(support, gram, point.detach() + sign * step)) for sign in (1, -1)]
        assert float(gradient[k]) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", ["numbers", "levels"])
def test_columns_of_one_kind_only(kind: str) -> None:
    x = columns(np.random.default_rng(2))[:, : 3 if kind == "numbers" else 6]
    x = x if kind == "numbers" else x[:, 3:]
    log_weights = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(InteractionGram(x)(log_weights).sum(), log_weights)
    assert gradient.isfinite().all()


def test_labels_that_are_noise_are_not_learnt_by_heart() -> None:
    """Weights that have seen a row would make its label look likely: a score of -.667."""
    rng = np.random.default_rng(4)
    support = support_of(torch.from_numpy(rng.normal(size=(80, 60))), rng.integers(2, size=80))
    for setting in interacting_settings(support, None, Model("gaussian", "exact"), -math.inf):
        assert setting.score < np.log(0.5) + 0.005
        assert setting.left_out is not None
        torch.testing.assert_close(setting.left_out.sum(0), torch.ones(80, dtype=torch.float64))


def test_one_setting_for_columns_and_one_for_ranks() -> None:
    frame, y = parties()
    x = frame[["fare", "age"]].to_numpy()
    x = (x - x.mean(0)) / x.std(0)
    support, ranks = support_of(torch.from_numpy(x), y), Ranks.of(x, np.ones(len(x)))
    ranked, plain = found = interacting_settings(support, ranks, Model("gaussian", "exact"), -0.6)
    assert not interacting_settings(support, ranks, Model("gaussian", "exact"), max(one.score for one in found) + 0.01)
    assert plain.ranks is None
    assert ranked.ranks is ranks
    for setting in (plain, ranked):
        assert setting.relevance is not None
        assert float(setting.relevance.square().mean()) == pytest.approx(1)
        assert setting.relevance[0] > 5 * setting.relevance[1]


def test_rows_and_columns_for_which_it_pays() -> None:
    def paying(n: int, width: int = 5) -> bool:
        rng = np.random.default_rng(0)
        return may_interact(support_of(torch.from_numpy(rng.normal(size=(n, width))), np.arange(n) % 2))

    assert paying(N_ROWS)
    assert paying(MAX_ROWS)
    assert not paying(TUNING_ROWS)
    assert not paying(MAX_ROWS + 1)
    assert not paying(MAX_ROWS, 40)


@pytest.mark.slow
def test_a_table_with_text_is_told_by_values_that_are_nearly_equal(tmp_path: Path) -> None:
    frame, y = parties()
    new, truth = parties(seed=5)
    model, without = GPClassifier().fit(frame, y), GPClassifier(relevance=False).fit(frame, y)
    assert interacts(model)
    assert not interacts(without)
    losses = [-np.log(one.predict_proba(new)[np.arange(len(truth)), truth]).mean() for one in (model, without)]
    assert losses[0] < losses[1] - 0.2
    assert model.feature_relevance_[0] == model.feature_relevance_.max()
    # What it says of left-out rows is what it says of new ones.
    assert -model.leave_one_out_score_ == pytest.approx(losses[0], abs=0.06)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    for one in (model, loaded):
        one.partial_fit(new[:3], truth[:3])
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert interacts(loaded)


def test_numbers_are_not_asked() -> None:
    frame, y = parties()
    assert not interacts(GPClassifier().fit(frame[["fare", "age"]].to_numpy(), y))


@pytest.mark.slow
def test_copies_that_disagree_are_left_out_one_at_a_time() -> None:
    """Where many of a party look alike its own copies say what becomes of one, and new ones will have some as well."""

    def few_values(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
        frame, y = parties(n, seed, 60)
        rng = np.random.default_rng(seed + 10)
        return frame[["fare"]].assign(port=rng.choice(list("CQS"), n), deck=rng.choice(list("ABC"), n)), y

    (frame, y), (new, truth) = few_values(900, 1), few_values(1000, 21)
    model = GPClassifier().fit(frame, y)
    assert interacts(model)
    assert model._fitted.rows.copies_disagree
    of_new = np.log(model.predict_proba(new)[np.arange(len(truth)), truth]).mean()
    assert model.leave_one_out_score_ == pytest.approx(of_new, abs=0.05)  # .13 away by groups of copies

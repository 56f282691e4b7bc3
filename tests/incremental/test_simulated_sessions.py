"""What is learnt by pretending that classes are new, on classes that are."""

from __future__ import annotations

import math
import os
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.nn.functional import cross_entropy

from sureshot.incremental import simulated_sessions
from sureshot.incremental.gaussian_classes import GaussianClassesModel
from sureshot.incremental.simulated_sessions import learn_by_sessions, learn_with_unseen, worth_of
from sureshot.incremental.strategy import ClassRows
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.incremental.two_covariances import ClassSums, TwoCovariances


def drawn(n_classes: int, n_rows: int, seed: int, width: int = 30, directions: int = 4) -> tuple[Tensor, Tensor]:
    """Classes that differ in a few directions; tails are heavy, so that moments are not the best there is."""
    fixed = torch.Generator().manual_seed(99)
    mixing = torch.randn(width, width, dtype=torch.float64, generator=fixed) / width**0.5
    generator = torch.Generator().manual_seed(seed)
    means = torch.zeros(n_classes, width, dtype=torch.float64)
    means[:, :directions] = 3 * torch.randn(n_classes, directions, dtype=torch.float64, generator=generator)
    y = torch.arange(n_classes).repeat_interleave(n_rows)
    noise = torch.randn(len(y), width, dtype=torch.float64, generator=generator)
    scale = torch.rand(len(y), 1, dtype=torch.float64, generator=generator).clamp_min(0.1) ** -0.5
    return (means[y] + scale * noise) @ mixing, y


def loss_on_new_classes(found: TwoCovariances, seed: int) -> tuple[float, float]:
    """Mean log loss and accuracy on classes that took no part, of five rows each."""
    x, y = drawn(20, 25, seed)
    place = torch.arange(len(y)) % 25
    classes = ClassSums.of_rows(x[place < 5], y[place < 5], 20)
    scores, truth = found.scores(found.densities(classes), x[place >= 5]), y[place >= 5]
    return float(cross_entropy(scores, truth)), float((scores.argmax(-1) == truth).double().mean())


def test_places_are_a_random_order_of_every_classs_rows() -> None:
    y = torch.tensor([0, 2, 0, 1, 2, 2, 0, 0])
    found = [simulated_sessions._places(y, torch.Generator().manual_seed(seed)) for seed in range(300)]
    for place in found:
        for label in range(3):
            assert place[y == label].sort().values.tolist() == list(range(int((y == label).sum())))
    first = torch.stack(found)[:, y == 0].argmin(-1)  # which of the four rows of class 0 is at place 0
    counts = torch.bincount(first, minlength=4)
    assert bool(((counts - 75).abs() < 4 * (300 * 0.25 * 0.75) ** 0.5).all())


def test_what_is_learnt_names_rows_of_new_classes_better() -> None:
    x, y = drawn(40, 20, 0)
    learnt = learn_by_sessions(x, y, torch.Generator().manual_seed(0))
    estimated = TwoCovariances.estimated(x, y)
    x_new, y_new = drawn(20, 25, 5)
    classes = ClassSums.of_rows(x_new[::5], y_new[::5], 20)
    scores = estimated.scores(estimated.densities(classes), x_new)
    best = estimated.tempered(
        loss_and_temperature(scores, y_new, x.shape[1] ** 0.5)[1]
    )  # at a temperature that new classes chose
    for seed in (3, 4):
        (loss, accuracy), (loss_before, accuracy_before) = (
            loss_on_new_classes(found, seed) for found in (learnt, best)
        )
        assert loss < loss_before - 0.02
        assert accuracy > accuracy_before


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5])
@pytest.mark.parametrize("n_classes", [1, 2, 9, 11])
def test_few_classes_and_few_rows(n_classes: int, n_rows: int) -> None:
    x, y = drawn(n_classes, n_rows, 0)
    found = learn_by_sessions(x, y, torch.Generator().manual_seed(0))
    assert all(bool(torch.isfinite(getattr(found, part.name)).all()) for part in fields(found))
    assert float(found.temperature) > 0
    if n_classes == 1 or n_rows == 1:
        assert float(found.temperature) == pytest.approx(30**0.5)


@pytest.mark.parametrize("n_classes", [5, 20])
def test_long_tails_are_noticed(n_classes: int) -> None:
    """Gaussian rows have none, which twenty classes can tell and five can not; rows with scales of their own have."""
    generator = torch.Generator().manual_seed(5)
    means = torch.randn(n_classes + 20, 30, dtype=torch.float64, generator=generator)
    y = torch.arange(len(means)).repeat_interleave(12)
    noise = torch.randn(len(y), 30, dtype=torch.float64, generator=generator)
    scales = torch.randn(len(y), 1, dtype=torch.float64, generator=generator).exp()
    known = y < n_classes
    plain, x = (means[y] + factor * noise for factor in (1.0, scales))
    found = learn_by_sessions(plain[known], y[known], torch.Generator().manual_seed(0))
    assert (float(found.tail) > 0) == (n_classes < 10)
    tailed = learn_by_sessions(x[known], y[known], torch.Generator().manual_seed(0))
    assert float(tailed.tail) > 0
    few = ~known & (torch.arange(len(y)) % 12 < 3)
    classes, asked = ClassSums.of_rows(x[few], y[few] - n_classes, 20), ~known & ~few
    losses = [
        float(cross_entropy(one.scores(one.densities(classes), x[asked]), y[asked] - n_classes))
        for one in (tailed, replace(tailed, tail=torch.zeros_like(tailed.tail)))
    ]
    assert losses[0] < losses[1] - 0.1


def test_classes_of_one_row_among_others() -> None:
    x, y = drawn(14, 24, 0)
    kept = (y < 11) | (torch.arange(len(y)) % 24 == 0)
    found = learn_by_sessions(x[kept], y[kept], torch.Generator().manual_seed(0))
    assert bool(torch.isfinite(found.basis).all())


@pytest.mark.parametrize(("several", "single", "teach"), [(3, 3, False), (3, 4, True), (1, 1, True)])
def test_single_rows_teach_only_where_most_classes_have_no_more(several: int, single: int, teach: bool) -> None:
    x, y = drawn(several + single, 24, 0)
    kept = (y < several) | (torch.arange(len(y)) % 24 == 0)
    found, without = (
        learn_by_sessions(x[some], y[some], torch.Generator().manual_seed(0)) for some in (kept, kept & (y < several))
    )
    assert torch.equal(found.basis, without.basis) != teach


def test_left_out_rows_say_how_sure_to_be() -> None:
    """Five classes: the temperature is near the one that new rows of them ask for."""
    x, y = drawn(5, 40, 1)
    train = torch.arange(len(y)) % 40 < 12
    found = TwoCovariances.estimated(x[train], y[train])
    temperature = float(TwoCovariances.estimated_and_tempered(x[train], y[train]).temperature)
    scores = found.scores(found.densities(ClassSums.of_rows(x[train], y[train], 5)), x[~train])
    best = loss_and_temperature(scores, y[~train], x.shape[1] ** 0.5)[0]
    assert float(cross_entropy(scores / temperature, y[~train])) < best + 0.05


def test_temperature_against_a_grid_with_what_is_usual() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 5 * torch.randn(20, 4, dtype=torch.float64, generator=generator)
    y = torch.distributions.Categorical(logits=scores / 2).sample()

    def objective(temperature: float) -> float:
        logs = torch.log_softmax(scores / temperature, -1)
        return float(-logs.gather(-1, y[:, None]).sum()) + math.log(temperature / 3) ** 2 / 8

    loss, found = loss_and_temperature(scores, y, 3.0)
    assert loss == pytest.approx(float(cross_entropy(scores / found, y)))
    assert all(objective(found) <= objective(found * factor) for factor in (0.9, 0.999, 1.001, 1.1))
    assert loss_and_temperature(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), 7.0)[1] == pytest.approx(7)
    for margin in (1.0, 1e3, 1e9):  # all are right, by whatever margin: near what is usual, and not certain
        assert 0.03 < loss_and_temperature(margin * scores, scores.argmax(-1), 3.0)[1] < 90


def test_a_temperature_has_all_its_digits() -> None:
    """Rounding, which is another on another processor, moves it by rounding: values alone say half of the digits."""
    generator = torch.Generator().manual_seed(0)
    scores = 5 * torch.randn(60, 4, dtype=torch.float64, generator=generator)
    y = torch.distributions.Categorical(logits=scores / 2).sample()
    own, s = scores.gather(-1, y[:, None])[:, 0].numpy(), scores.numpy()

    def slope(log_temperature: float) -> float:
        weight = np.exp((s - s.max(1, keepdims=True)) / math.exp(log_temperature))
        expected = (weight * s).sum(1) / weight.sum(1)
        return float((own - expected).mean()) / math.exp(log_temperature) + (log_temperature - math.log(3)) / 240

    exact = math.exp(brentq(slope, -2, 3, xtol=1e-14, rtol=1e-14))
    for _ in range(20):
        rounded = scores * (1 + 2e-15 * torch.randn(scores.shape, dtype=torch.float64, generator=generator))
        assert loss_and_temperature(rounded, y, 3.0)[1] == pytest.approx(exact, rel=1e-12)


def test_classes_that_arrive_after_two_are_not_misjudged() -> None:
    """Two classes first: the temperature is one that unknown classes can live with."""
    losses = []
    for seed in range(3):
        x, y = drawn(6, 40, seed)
        train = torch.arange(len(y)) % 40 < 25
        first = train & (y < 2)
        found = learn_by_sessions(x[first], y[first], torch.Generator().manual_seed(0))
        few = train & ((y < 2) | (torch.arange(len(y)) % 40 < 5))
        scores = found.scores(found.densities(ClassSums.of_rows(x[few], y[few], 6)), x[~train])
        losses.append(float(cross_entropy(scores, y[~train])))
    assert max(losses) < math.log(6)


def test_equal_rows_leave_a_model_that_can_be_taught() -> None:
    x, y = drawn(4, 30, 0)
    for first in (torch.zeros(1, x.shape[1], dtype=x.dtype), torch.ones(6, x.shape[1], dtype=x.dtype)):
        labels = torch.arange(len(first)) // 3
        found = learn_by_sessions(first, labels, torch.Generator().manual_seed(0))
        assert bool((found.basis.abs() < 1e3).all())
        scores = found.scores(found.densities(ClassSums.of_rows(x[::2], y[::2], 4)), x[1::2])
        assert float(cross_entropy(scores, y[1::2])) < math.log(4)


def learnt_and_unseen(generator: torch.Generator, offset: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows and classes, which rows are unseen, and means: a class's learnt rows have a mean and a spread of their own.

    Forty classes of 36 learnt and four unseen rows, if there is an offset; else all are alike.
    """
    y, width = torch.arange(40).repeat_interleave(40), 20
    unseen = torch.arange(len(y)) % 40 >= 36
    means = torch.randn(60, width, dtype=torch.float64, generator=generator)
    moved = means[:40] + offset * torch.randn(40, width, dtype=torch.float64, generator=generator)
    noise = torch.randn(len(y), width, dtype=torch.float64, generator=generator)
    size = 0.4 if offset else 1.0
    x = torch.where(unseen[:, None], means[y] + noise, moved[y] + size * noise)
    return x, y, unseen, means


def test_rows_that_a_network_has_learnt_count_for_what_unseen_ones_say() -> None:
    """Known classes by learnt rows, new ones by five: told which rows are which, it is about as sure as it is right."""
    generator = torch.Generator().manual_seed(0)
    x, y, unseen, means = learnt_and_unseen(generator, 0.7)
    queries = torch.arange(60).repeat_interleave(30)
    asked, few = (
        means[labels] + torch.randn(len(labels), 20, dtype=torch.float64, generator=generator)
        for labels in (queries, torch.arange(40, 60).repeat_interleave(5))
    )
    labels = torch.cat([y, torch.arange(40, 60).repeat_interleave(5)])
    sessions = (torch.arange(60) >= 40).long()
    told, worth = learn_with_unseen(x, y, unseen, torch.Generator().manual_seed(0))
    untold = learn_by_sessions(x, y, torch.Generator().manual_seed(0))
    assert worth < 36
    losses, too_sure = [], []
    for found, most in ((told, worth), (untold, math.inf)):
        weight = torch.where(unseen, 1.0, worth_of(torch.tensor(36.0), most) / 36).double()
        weight = torch.cat([weight, torch.ones(len(few)).double()])
        kept = ClassRows(torch.cat([x, few]), labels, weight, sessions)
        p = GaussianClassesModel.of(found, kept, of_network=found is told).log_probabilities(asked).exp()
        losses.append(float(-p.gather(-1, queries[:, None]).log().mean()))
        too_sure.append(float((p.amax(-1) - (p.argmax(-1) == queries).double()).mean()))
    assert losses[0] < losses[1] - 0.1
    assert abs(too_sure[0]) < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_features_of_a_network_have_long_tails_if_these_say_anything(seed: int) -> None:
    """Rows whose scales hardly differ: elsewhere the gain is too small to count."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(40).repeat_interleave(40)
    means = 0.8 * torch.randn(40, 20, dtype=torch.float64, generator=generator)
    scales = (0.135 * torch.randn(len(y), 1, dtype=torch.float64, generator=generator)).exp()
    x = means[y] + scales * torch.randn(len(y), 20, dtype=torch.float64, generator=generator)
    told, _ = learn_with_unseen(x, y, torch.arange(len(y)) % 40 >= 16, torch.Generator().manual_seed(0))
    assert float(told.tail) > 0
    assert float(learn_by_sessions(x, y, torch.Generator().manual_seed(0)).tail) == 0


def test_what_features_of_a_network_teach_hardly_depends_on_the_draw() -> None:
    """Rows with scales of their own, and learnt ones near means of their own."""
    generator = torch.Generator().manual_seed(0)
    x, y, unseen, _ = learnt_and_unseen(generator, 0.7)
    means = ClassSums.of_rows(x, y, 40).sums[y] / 40
    scales = (0.5 * torch.randn(len(y), 1, dtype=torch.float64, generator=generator)).exp()
    x = means + scales * (x - means)
    learnt = [learn_with_unseen(x, y, unseen, torch.Generator().manual_seed(seed)) for seed in range(4)]
    temperatures = torch.stack([found.temperature for found, _ in learnt])
    assert float(temperatures.max() / temperatures.min()) < 1.2
    assert all(float(found.tail) > 0 for found, _ in learnt)
    assert len({worth for _, worth in learnt}) == 1


def test_rows_of_which_a_network_has_learnt_none_are_like_any_others() -> None:
    """To the bit, by equal generators."""
    x, y = drawn(12, 20, 0)
    told, worth = learn_with_unseen(x, y, torch.ones(len(y), dtype=torch.bool), torch.Generator().manual_seed(1))
    plain, other = (learn_by_sessions(x, y, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    for part in fields(TwoCovariances):
        assert torch.equal(getattr(told, part.name), getattr(plain, part.name))
        assert getattr(plain, part.name).dtype == torch.float64
    assert not torch.equal(plain.basis, other.basis)
    assert worth == math.inf


def test_learnt_rows_like_unseen_ones_are_worth_more() -> None:
    worths = []
    for offset in (0.0, 0.7, 1.5):
        x, y, unseen, _ = learnt_and_unseen(torch.Generator().manual_seed(0), offset)
        worths.append(learn_with_unseen(x, y, unseen, torch.Generator().manual_seed(0))[1])
    assert worths[0] > worths[1] >= worths[2]


def test_what_learnt_rows_are_worth() -> None:
    counts = torch.tensor([0.0, 1.0, 10.0, 1e9])
    torch.testing.assert_close(worth_of(counts, 10.0), torch.tensor([0.0, 10 / 11, 5.0, 10.0]))
    assert torch.equal(worth_of(counts, math.inf), counts)


def test_places_of_learnt_rows_come_last() -> None:
    y = torch.tensor([0, 1, 0, 1, 0, 1, 1])
    last = torch.tensor([True, False, False, False, True, True, False])
    for seed in range(20):
        place = simulated_sessions._places(y, torch.Generator().manual_seed(seed), last)
        assert sorted(place[y == 1].tolist()) == [0, 1, 2, 3]
        assert place[2] == 0
        assert place[5] == 3


@pytest.mark.real_data
def test_intents_of_sentences() -> None:
    """Forty base intents, then twenty of five sentences each: above nearest class means, and about as sure as right."""
    with np.load(Path(os.environ["SURESHOT_DATA"]) / "clinc150_minilm.npz") as file:
        embedding, label, split = file["embedding"], file["label"], file["split"]
    x, y = torch.tensor(embedding, dtype=torch.float64), torch.tensor(label, dtype=torch.int64)
    x = x / x.norm(dim=-1, keepdim=True)

    def some(which: int, classes: range, n: int) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        own = [(torch.tensor(split == which) & (y == c)).nonzero().flatten() for c in classes]
        return torch.cat([rows[torch.randperm(len(rows), generator=generator)[:n]] for rows in own])

    base, novel, test = some(0, range(40), 40), some(0, range(40, 60), 5), some(2, range(60), 20)
    found = learn_by_sessions(x[base], y[base], torch.Generator().manual_seed(0))
    known = torch.cat([base, novel])
    classes = ClassSums.of_rows(x[known], y[known], 60)
    p = torch.softmax(found.scores(found.densities(classes), x[test]), -1)
    right = (p.argmax(-1) == y[test]).double()
    means = classes.sums / classes.sums.norm(dim=-1, keepdim=True)
    nearest = ((x[test] @ means.mT).argmax(-1) == y[test]).double()
    assert float(right.mean()) > float(nearest.mean()) + 0.01
    assert abs(float(p.amax(-1).mean() - right.mean())) < 0.05

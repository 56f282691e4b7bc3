"""Choosing settings: temperatures, subsets and what comes of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from sureshot import GPClassifier
from sureshot.estimators.classes.temperature import TEMPERATURE_SPREAD, plug_in_temperatures, smoothed_score
from sureshot.estimators.gp.options import families_for
from sureshot.estimators.rows.support import MAX_TUNING_CLASSES, Support, tuning_part
from sureshot.likelihoods import Softmax


def support(n: int, n_classes: int, seed: int = 0) -> Support:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % n_classes
    ones = torch.ones(n).double()
    return Support(torch.randn(n, 2, generator=generator).double(), y, ones, n_classes, ones, ones)


def test_the_temperature_of_scaled_logits_is_recovered() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, 4000, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(logits, 0).mT, 1, generator=generator).squeeze(1)
    ones = torch.ones(4000).double()
    rows = Support(torch.zeros(4000, 1).double(), y, ones, 3, ones, ones)
    (temperature,), _ = plug_in_temperatures(Softmax(), 5 * logits[None], rows, 0.5)
    assert temperature == pytest.approx(5, rel=0.1)


def test_several_latents_are_tuned_as_if_alone() -> None:
    rows = support(40, 4)
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(3, 4, 40, generator=generator, dtype=torch.float64)
    together, pointwise = plug_in_temperatures(Softmax(), latents, rows, 0.5)
    for k in range(3):
        (alone,), (score,) = plug_in_temperatures(Softmax(), latents[k : k + 1], rows, 0.5)
        assert float(together[k]) == pytest.approx(alone)
        torch.testing.assert_close(pointwise[k], score)


def test_the_temperature_is_the_best_near_its_prior() -> None:
    """Of latents far too large or too small, as a search for one value by one value finds it."""
    rows = support(60, 3)
    generator = torch.Generator().manual_seed(2)
    own = torch.nn.functional.one_hot(rows.y, 3).mT
    latents = (2 * torch.randn(3, 60, generator=generator) + own) * torch.logspace(-1, 1, 6).reshape(-1, 1, 1)
    temperatures, _ = plug_in_temperatures(Softmax(), latents.double(), rows, 0.5)
    for latent, temperature in zip(latents.double(), temperatures, strict=True):

        def loss(log_temperature: float, latent: torch.Tensor = latent) -> float:
            scores = smoothed_score(torch.log_softmax(latent / math.exp(log_temperature), 0), rows)
            return 0.5 * ((log_temperature - math.log(0.5)) / TEMPERATURE_SPREAD) ** 2 - float(scores.sum())

        best = minimize_scalar(loss, bounds=(-5, 4), method="bounded", options={"xatol": 1e-9}).x
        assert math.log(float(temperature)) == pytest.approx(best, abs=2e-3)


def test_the_normaliser_alone_depends_on_the_temperature() -> None:
    """The scores of a softmax, of latents far apart as well, are those of any likelihood's log probabilities."""
    rows = support(12, 3)
    latents = 100 * torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    temperatures, pointwise = plug_in_temperatures(Softmax(temperature=0.7), latents, rows, 0.5)
    log_probability = Softmax(temperature=0.7).log_plug_in(latents / temperatures[:, None, None])
    torch.testing.assert_close(pointwise, smoothed_score(log_probability, rows), rtol=1e-12, atol=1e-12)


def test_without_left_out_rows_the_default_temperature_stands() -> None:
    rows = support(5, 5)
    assert not bool(rows.usable.any())
    latents = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(plug_in_temperatures(Softmax(), latents[None], rows, 0.27)[0]) == pytest.approx(0.27)


def test_a_perfect_record_does_not_ask_for_certainty() -> None:
    rows = support(30, 3)
    latents = torch.nn.functional.one_hot(rows.y, 3).double().mT
    (temperature,), _ = plug_in_temperatures(Softmax(), latents[None], rows, 0.5)
    confidence = torch.softmax(latents / temperature, 0).max(0).values
    assert 0.9 < float(confidence.min()) < 0.999


def test_one_mistake_among_all_rows_is_what_smoothing_adds() -> None:
    rows = support(9, 3)
    log_p = torch.log(torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64))[:, None].expand(3, 9)
    expected = 0.9 * log_p[rows.y, torch.arange(9)] + 0.1 * log_p.mean(0)
    torch.testing.assert_close(smoothed_score(log_p, rows), expected)


def test_subsets_are_stratified_and_bounded() -> None:
    rng = np.random.default_rng(0)
    cases = ((1000, 4, 400), (1600, 4, 700), (9000, 4, 800), (1000, 10, 200), (3000, 10, 400), (1000, 25, 125))
    for n, n_classes, most in cases:
        subset = tuning_part(support(n, n_classes), rng)
        assert most - n_classes < len(subset.y) <= most
        assert torch.bincount(subset.y).float().std() <= 1
    many = tuning_part(support(800, 160), rng)
    assert many.n_classes == MAX_TUNING_CLASSES
    assert set(many.y.tolist()) == set(range(MAX_TUNING_CLASSES))
    wide = support(1000, 4)
    assert len(tuning_part(replace(wide, x=wide.x.repeat(1, 30)), rng).y) == 500
    small = support(40, 4)
    assert tuning_part(small, rng) is small


def test_the_tuned_score_is_an_honest_estimate_of_the_test_score() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(900) % 3
    x = rng.normal(size=(900, 2)) + 1.2 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    model = GPClassifier().fit(x[:150], y[:150])
    test = float(np.log(model.predict_proba(x[150:])[np.arange(750), y[150:]]).mean())
    assert model.leave_one_out_score_ == pytest.approx(test, abs=0.12)


def test_columns_of_one_unit_may_keep_their_relative_sizes() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = 0.05 * rng.normal(size=(120, 20))
    x[:, 0] = rng.normal(size=120) + 4 * y  # the one loud column tells the classes apart; the others are faint noise
    model = GPClassifier(kernel="rbf").fit(x[:40], y[:40])
    standardised = GPClassifier(kernel="rbf", standardize=True).fit(x[:40], y[:40])
    assert model.score(x[40:], y[40:]) >= standardised.score(x[40:], y[40:])
    assert not math.isclose(
        float(model._fitted.heaviest.plan.scaling.scale[0] / model._fitted.heaviest.plan.scaling.scale[1]),
        float(x[:40, 0].std() / x[:40, 1].std()),
    )


def test_columns_that_came_standardised_have_no_other_sizes_to_keep() -> None:
    """Of a table that its owner has standardised, rounding or a choice of its rows makes no second of each family."""
    rows = replace(support(60, 2), x=torch.randn(60, 10).double())
    once = families_for("auto", rows, None, None, several=True)
    for spread, copies in ((1e-16, 1), (0.05, 1), (0.5, 2)):
        scale = 1 + spread * torch.linspace(-1, 1, 10).double()
        found = families_for("auto", rows, None, scale, several=True)
        assert len([family for family in found if family.name == "rbf"]) == copies
        assert (len(found) == len(once)) == (copies == 1)


@pytest.mark.parametrize("kernel", ["rbf", "polynomial2"])
def test_mean_field_over_classes_is_judged_by_refits(kernel: str) -> None:
    """Its sites have seen the labels: of labels that are noise it was sure, at scale 3162, with a log loss of 19."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 3)), np.repeat(np.arange(12), 5)
    model = GPClassifier(kernel, "one_vs_each").fit(x, y)
    new, labels = generator.normal(size=(200, 3)), generator.integers(0, 12, 200)
    loss = -np.log(model.predict_proba(new)[np.arange(200), labels]).mean()
    assert loss < np.log(12) + 0.3
    assert -model.leave_one_out_score_ == pytest.approx(loss, abs=0.4)


def test_labels_of_many_classes_that_are_noise_are_not_predicted() -> None:
    """By its sites a softmax has seen what it is to predict: it said 2.6 nats of left-out rows, 3.4 of new ones."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(80, 3)), np.repeat(np.arange(20), 4)
    model = GPClassifier().fit(x, y)
    new, labels = generator.normal(size=(400, 3)), generator.integers(0, 20, 400)
    loss = -np.log(model.predict_proba(new)[np.arange(400), labels]).mean()
    assert loss < np.log(20) + 0.05
    assert -model.leave_one_out_score_ == pytest.approx(loss, abs=0.1)

"""The share of labels that are drawn at random: found by left-out rows, part of all that is said of probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import differential_evolution
from sklearn.datasets import load_digits

from sureshot import GPClassifier
from sureshot.estimators.classes.temperature import (
    RIGHT_LABELS,
    TEMPERATURE_SPREAD,
    fit_average,
    log_probability,
    smoothed_score,
    with_noise,
)
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.family_search import Search
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import fit_scaling
from sureshot.estimators.rows.support import Support

X, Y = (part[np.random.default_rng(1).permutation(1797)] for part in load_digits(return_X_y=True))
WRONG = 0.2


def spoilt(y: np.ndarray, wrong: float, seed: int) -> np.ndarray:
    """Labels, some of them another class's."""
    generator = np.random.default_rng(seed)
    chosen = generator.random(len(y)) < wrong
    return np.where(chosen, (y + generator.integers(1, 10, len(y))) % 10, y)


@pytest.fixture(scope="module")
def noisy() -> GPClassifier:
    return GPClassifier().fit(X[:300], spoilt(Y[:300], WRONG, 0))


def drawn(n: int, noise: float, temperature: float) -> tuple[torch.Tensor, Support]:
    """Probabilities (3, n) that are as certain as a temperature makes them, and labels of which some are random."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3, n, generator=generator, dtype=torch.float64)
    true = with_noise(torch.softmax(logits / temperature, 0), noise)
    y = torch.multinomial(true.mT, 1, generator=generator).squeeze(1)
    ones = torch.ones(n, dtype=torch.float64)
    return torch.softmax(logits, 0), Support(torch.zeros(n, 1).double(), y, ones, 3, ones, ones)


@pytest.mark.parametrize(("noise", "temperature"), [(0.3, 0.5), (0.1, 1.0), (0.05, 1.6)])
def test_noise_and_temperature_are_recovered(noise: float, temperature: float) -> None:
    found = fit_average(*drawn(20_000, noise, temperature))
    assert found[0] == pytest.approx(temperature, rel=0.1)
    assert found[1] == pytest.approx(noise, abs=0.02)


def test_no_noise_is_found_where_there_is_none() -> None:
    temperature, noise, _ = fit_average(*drawn(20_000, 0.0, 0.7))
    assert noise < 0.005
    assert temperature == pytest.approx(0.7, rel=0.05)


@pytest.mark.parametrize(("n", "noise"), [(40, 0.3), (300, 0.15), (300, 0.0)])
def test_the_posterior_s_mode(n: int, noise: float) -> None:
    """Against a search of all places."""
    p, support = drawn(n, noise, 0.6)
    share, logits = 1 / (1 + n), np.log(p.numpy())

    def loss(point: np.ndarray) -> float:
        tempered = np.exp(logits / np.exp(point[0]))
        mixed = (1 - point[1]) * tempered / tempered.sum(0) + point[1] / 3
        own = np.log(mixed[support.y.numpy(), np.arange(n)])
        scores = (1 - share) * own + share * np.log(mixed).mean(0)
        prior = -0.5 * (point[0] / TEMPERATURE_SPREAD) ** 2 + RIGHT_LABELS * np.log1p(-point[1])
        return -float(scores.sum() + prior)

    best = differential_evolution(loss, [(-3, 3), (0, 0.9)], seed=0, tol=1e-10)
    temperature, found, pointwise = fit_average(p, support)
    assert loss(np.array([np.log(temperature), found])) < best.fun + 0.05
    prior = -0.5 * (np.log(temperature) / TEMPERATURE_SPREAD) ** 2 + RIGHT_LABELS * np.log1p(-found)
    assert -float(pointwise.sum() + prior) == pytest.approx(loss(np.array([np.log(temperature), found])), abs=1e-8)


@pytest.mark.slow
def test_wrong_labels_are_counted(noisy: GPClassifier) -> None:
    """Wrong ones are nine tenths of random ones."""
    assert noisy.label_noise_ == pytest.approx(WRONG / 0.9, abs=0.05)
    clean = GPClassifier().fit(X[:300], Y[:300])
    assert clean.label_noise_ < 0.02


def test_noise_leaves_rows_sure(noisy: GPClassifier) -> None:
    """True labels are as probable as wrong ones allow, and given ones are predicted as well as they can be."""
    test = slice(400, 1400)
    p = noisy.predict_proba(X[test])
    nll = -np.log(p[np.arange(1000), Y[test]]).mean()
    given = -np.log(p[np.arange(1000), spoilt(Y[test], WRONG, 1)]).mean()
    best = -(1 - WRONG) * np.log(1 - WRONG) - WRONG * np.log(WRONG / 9)
    assert nll < -np.log(1 - WRONG) + 0.2
    assert given < best + 0.15
    assert p.min() >= noisy.label_noise_ / 10
    assert -given == pytest.approx(-noisy.leave_one_out_nll_, abs=0.15)


def test_uncertainty_knows_of_noise(noisy: GPClassifier) -> None:
    found = noisy.uncertainty(X[400:450])
    least = with_noise(torch.eye(10, dtype=torch.float64)[:, :1], noisy.label_noise_).numpy()
    assert (found.total >= -(least * np.log(least)).sum() - 1e-9).all()
    assert (found.epistemic >= -1e-9).all()


def test_held_out_rows_say_how_sure_to_be(noisy: GPClassifier, tmp_path: Path) -> None:
    """They have no wrong labels, so nothing keeps probabilities from 1."""
    noisy.save(tmp_path / "model")
    model = GPClassifier.load(tmp_path / "model")
    assert model.label_noise_ == noisy.label_noise_
    np.testing.assert_array_equal(model.predict_proba(X[400:450]), noisy.predict_proba(X[400:450]))
    model.calibrate(X[400:600], Y[400:600])
    assert model.label_noise_ == 0
    p = model.predict_proba(X[600:1400])
    assert -np.log(p[np.arange(800), Y[600:1400]]).mean() < 0.25
    model.save(tmp_path / "again")
    again = GPClassifier.load(tmp_path / "again")
    assert again.label_noise_ == 0
    assert again.partial_fit(X[400:405], Y[400:405]).label_noise_ == 0


def test_wrong_labels_are_counted_again_when_settings_are_chosen_anew(noisy: GPClassifier, tmp_path: Path) -> None:
    noisy.save(tmp_path / "model")
    model = GPClassifier.load(tmp_path / "model").partial_fit(X[300:301], Y[300:301])
    assert model.label_noise_ == noisy.label_noise_
    model.partial_fit(X[301:700], Y[301:700], retune=True)
    assert model.label_noise_ < noisy.label_noise_ - 0.05
    p = model.predict_proba(X[800:810])
    assert p.min() >= model.label_noise_ / 10 - 1e-12


def test_one_setting_has_a_temperature_only() -> None:
    assert GPClassifier(ensemble=False).fit(X[:100], spoilt(Y[:100], WRONG, 0)).label_noise_ == 0


UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)  # rows that only their direction tells apart, as embeddings


def test_embeddings_are_averaged_where_labels_look_wrong() -> None:
    """With them one setting bends after wrong labels."""
    model = GPClassifier().fit(UNIT[:300], spoilt(Y[:300], WRONG, 0))
    assert "least_squares" in {member.likelihood for member in model.members_}
    assert model.label_noise_ == pytest.approx(WRONG / 0.9, abs=0.05)
    assert model.score(UNIT[400:1200], Y[400:1200]) > 0.93
    one = GPClassifier(ensemble=False).fit(UNIT[:300], spoilt(Y[:300], WRONG, 0))
    scores = [-np.log(m.predict_proba(UNIT[400:1200])[np.arange(800), Y[400:1200]]).mean() for m in (model, one)]
    assert scores[0] < scores[1] - 0.1


@pytest.mark.parametrize(("rows", "likelihoods"), [(50, ["softmax", "softmax"]), (300, ["least_squares"])])
def test_embeddings_whose_labels_look_right_have_two_kernels_or_the_one_that_is_clearly_ahead(
    rows: int, likelihoods: list[str]
) -> None:
    model = GPClassifier().fit(UNIT[:rows], Y[:rows])
    assert [member.likelihood for member in model.members_] == likelihoods
    assert model.label_noise_ < 0.02


def test_regressed_is_what_the_candidate_was_scored_by() -> None:
    labels = spoilt(Y[:80], WRONG, 0)
    rows = LabelledRows(UNIT[:80], labels, np.ones(80), np.ones(80))
    support = Support.of(rows, 10, fit_scaling(rows.x, rows.weight, "auto"), torch.device("cpu"))
    search = Search(support, 0, named_family("unit_rbf", support), LabelLogLoss("plug_in"))
    p = search.regressed().softmax(0)
    torch.testing.assert_close(p.sum(0), torch.ones(80, dtype=torch.float64))
    torch.testing.assert_close(smoothed_score(log_probability(p), support), search.best_regression().pointwise)


def test_left_out_rows_are_told_as_new_ones(noisy: GPClassifier) -> None:
    """With the noise, by which sets of labels are calibrated."""
    fitted = noisy._fitted
    with torch.no_grad():
        p = fitted.probabilities_left_out()
        without = replace(fitted, predictor=replace(fitted.predictor, label_noise=0.0)).probabilities_left_out()
    torch.testing.assert_close(p, with_noise(without.mT, fitted.predictor.label_noise).mT)


def test_calibrate_after_an_update_drops_it_for_good(noisy: GPClassifier, tmp_path: Path) -> None:
    """What an update put off comes before, not behind."""
    noisy.save(tmp_path / "model")
    model = GPClassifier.load(tmp_path / "model").partial_fit(X[300:305], Y[300:305]).calibrate(X[400:500], Y[400:500])
    assert model.label_noise_ == 0
    temperature = model.temperature_
    model.predict_proba(X[:2])
    assert (model.temperature_, model.label_noise_) == (temperature, 0)

"""Averages over seeds and their errors, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.campaigns.scores import averaged, robustness_frame, score_frame


def test_a_record_as_a_row(make_record: Any) -> None:
    [row] = score_frame([make_record("dkt", 0.71, ece=0.06)]).to_dict("records")
    assert row["evaluation"] == "5-way 5-shot"
    assert (row["accuracy"], row["accuracy se"], row["batch sd"]) == (0.71, 0.003, 0.004)
    assert (row["ece"], row["mce"], row["T ece"], row["T"]) == (0.06, 0.12, 0.01, 1.5)
    assert (row["out AUROC"], row["own AUROC"]) == (0.7, 0.8)
    assert row["corrupted"] == pytest.approx(0.5)  # of 0.4 and 0.6 at severity 5; severity 1 does not count
    assert row["corrupted se"] == pytest.approx(0.003)
    assert (row["ms/task"], row["trained"], row["best at"], row["minutes"]) == (2.0, 10_000, 6000, 30.0)


def test_what_was_not_measured_is_missing(make_record: Any) -> None:
    record = make_record("dkt", 0.7, own_auroc=None, corrupted=None)
    scores = record["evaluations"]["5-way 5-shot"]
    scores["time"] = None
    del scores["calibration"]["temperature"]
    [row] = score_frame([record]).to_dict("records")
    for column in ("own AUROC", "corrupted", "ms/task", "T", "T nll"):
        assert np.isnan(row[column])
    assert row["out AUROC"] == 0.7
    scores["out_of_episode"] = None
    assert np.isnan(score_frame([record])["out AUROC"].item())
    assert robustness_frame([record]).empty


def test_one_seed_has_the_errors_of_its_tasks(make_record: Any) -> None:
    [row] = averaged(score_frame([make_record("dkt", 0.7, error=0.01)])).to_dict("records")
    assert row["seeds"] == 1
    assert row["+-"] == pytest.approx(0.0196)


def test_several_seeds_have_errors_between_them(make_record: Any) -> None:
    records = [make_record("dkt", accuracy, seed=seed) for seed, accuracy in enumerate((0.70, 0.72, 0.77))]
    [row] = averaged(score_frame([*records, make_record("protonet", 0.6)])).to_dict("records")[:1]
    assert row["seeds"] == 3
    assert row["accuracy"] == pytest.approx(0.73)
    error = 0.0208166599947  # sqrt((0.03^2 + 0.01^2 + 0.04^2) / 2 / 3)
    assert row["accuracy se"] == pytest.approx(error)
    assert row["+-"] == pytest.approx(4.30265272991 * error)  # Student's t, 2 degrees of freedom


def test_learners_with_and_without_several_seeds_keep_their_own_errors(make_record: Any) -> None:
    records = [make_record("dkt", 0.7), make_record("dkt", 0.7, seed=1), make_record("protonet", 0.6, error=0.01)]
    half = averaged(score_frame(records)).set_index("learner")["+-"]
    assert half["dkt"] == 0.0
    assert half["protonet"] == pytest.approx(0.0196)


def test_robustness_over_severities_and_seeds(make_record: Any) -> None:
    records = [make_record("dkt", 0.7), make_record("dkt", 0.8, seed=1, corrupted=(0.5, 0.6))]
    frame = robustness_frame(records).set_index(["kind", "severity"])
    assert len(frame) == 6
    assert frame.loc[("gaussian_noise", 0), "accuracy"] == pytest.approx(0.75)
    assert frame.loc[("gaussian_noise", 1), "accuracy"] == pytest.approx(0.55)
    assert frame.loc[("gaussian_noise", 5), "accuracy"] == pytest.approx(0.45)
    assert frame.loc[("defocus_blur", 5), "accuracy"] == pytest.approx(0.6)


def test_robustness_of_several_seeds_has_errors_between_them(make_record: Any) -> None:
    records = [make_record("dkt", 0.7, seed=seed, corrupted=(value, value)) for seed, value in enumerate((0.5, 0.7))]
    worst = robustness_frame(records).query("severity == 5 and kind == 'defocus_blur'")
    assert worst["accuracy"].item() == pytest.approx(0.6)
    assert worst["accuracy se"].item() == pytest.approx(0.1)
    assert worst["+-"].item() == pytest.approx(12.706 * 0.1, rel=1e-3)  # Student's, one degree of freedom
    alone = robustness_frame(records[:1]).query("severity == 5 and kind == 'defocus_blur'")
    assert alone["+-"].item() == pytest.approx(1.96 * 0.003)

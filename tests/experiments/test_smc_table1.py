"""The campaign on three small tables: its splits and batches, tables and verdicts by hand, a few cells to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from experiments.batch_learners import LEAST_PROBABILITY, Incremental, Refitted, Scaled, scores
from experiments.campaigns.methods import MethodCell, described, paired
from experiments.smc_methods import METHODS, OURS, Context, passive_aggressive
from experiments.smc_table1 import SmcTable1Config, batches, campaign_cells, molecules, online, run
from experiments.smc_table1_report import outcome_of, run_frame, verdicts_of
from sureshot.estimators import KernelSearchClassifier
from sureshot.structure.grammar import Grammar


def quietly(what: str, fraction: float) -> None:
    pass


def clouds(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, apart in the first of three columns."""
    generator = np.random.default_rng(seed)
    y = np.array(["a", "b"])[np.arange(n) % 2]
    return generator.normal(size=(n, 3)) + 4.0 * (y == "b")[:, None] * [1, 0, 0], y


def offline(method: str, fold: int, accuracy: float, nll: float, bins: Any = None) -> dict[str, Any]:
    found = {"accuracy": accuracy, "nll": nll, "brier": 0.2, "ece": 0.5, "seconds": 1.0}
    labels = {"data": "ionosphere", "method": method, "protocol": "offline", "repeat": 0, "fold": fold}
    return {"key": f"{method}{fold}", "labels": labels, "scores": found, "bins": bins or [[0, 2], [0, 1.8], [0, 1]]}


def online_record(method: str, seed: int, first: int, accuracy: float, nll: float | None) -> dict[str, Any]:
    def batch(seen: int, accuracy: float) -> dict[str, Any]:
        known = None if nll is None else 0.1
        return {"seen": seen, "accuracy": accuracy, "nll": nll, "brier": known, "ece": known, "seconds": 1.0}

    labels = {"data": "musk1", "method": method, "protocol": "online", "seed": seed, "first": first}
    parts = [batch(5, accuracy - 0.1), batch(20, accuracy + 0.1)]
    return {"key": f"{method}{seed}{first}", "labels": labels, "batches": parts}


def test_batches_are_one_class_then_four_mixed() -> None:
    y = np.array([0, 1] * 60)
    rows = np.arange(100)
    alone, *mixed = batches(rows, y, 1, seed=3)
    assert len(alone) == 10
    assert set(y[alone]) == {1}
    assert [len(batch) for batch in mixed] == [23, 23, 22, 22]
    assert all(set(y[batch]) == {0, 1} for batch in mixed)
    assert sorted(np.concatenate([alone, *mixed])) == list(rows)
    assert not np.array_equal(alone, batches(rows, y, 1, seed=4)[0])


def test_one_class_is_answered_by_the_rule_of_succession() -> None:
    x, y = clouds(40, 0)
    learner = Refitted(GaussianNB, np.array(["a", "b"]))
    learner.partial_fit(x[y == "b"][:8], y[y == "b"][:8])
    np.testing.assert_allclose(learner.predict_proba(x), np.tile([0.1, 0.9], (40, 1)))
    learner.partial_fit(x, y)
    assert scores(learner.predict_proba(x), y, learner.classes_)["accuracy"] > 0.7


def test_a_window_forgets() -> None:
    x, y = clouds(60, 0)
    learner = Refitted(GaussianNB, np.array(["a", "b"]), window=10)
    for begin in range(0, 60, 20):
        learner.partial_fit(x[begin : begin + 20], y[begin : begin + 20])
    np.testing.assert_array_equal(learner.x, x[-10:])


def test_decisions_are_no_probabilities() -> None:
    x, y = clouds(40, 0)
    learner = Scaled(passive_aggressive(0), np.array(["a", "b"]))
    found = online(learner, x, y, seed=0, first=0)["batches"]
    assert [batch["seen"] for batch in found] == [3, 9, 15, 21, 26]
    assert found[-1]["accuracy"] > 0.7
    assert found[-1]["nll"] is None


def test_probabilities_are_clipped() -> None:
    found = scores(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([0, 1]), np.array([0, 1]))
    assert found["nll"] == pytest.approx(-np.log(LEAST_PROBABILITY) / 2, rel=1e-4)


def test_kernel_search_learns_batches() -> None:
    x, y = clouds(40, 0)
    model = KernelSearchClassifier(4, random_state=0)
    found = online(Incremental(model, np.array(["a", "b"])), x, y, seed=0, first=1)
    assert found["batches"][-1]["accuracy"] > 0.7
    assert found["kernels"]


def test_a_changed_estimator_makes_a_result_stale() -> None:
    made = [
        MethodCell("wine", "one, two", {"protocol": "offline", "fold": 3}, described(KernelSearchClassifier(grammar=g)))
        for g in ("default", Grammar(p_sum=0.3))
    ]
    assert made[0].key == made[1].key == "wine-one-two-offline-fold3"
    assert made[0].stale({"settings": made[0].settings()}) is None
    assert made[0].stale({"settings": made[1].settings()}) == "it was made with other settings"


def test_every_method_is_made_and_told_apart() -> None:
    context = Context(3, 0, 2)
    made = [str(described(method.offline(context))) for method in METHODS.values()]
    assert len(set(made)) == len(METHODS)
    cells = campaign_cells(SmcTable1Config(repeats=(0,), folds=(0,), seeds=(0,)))
    assert len(cells) == len({cell.key for cell in cells}) == len(METHODS) * (3 + 1 + 3 * 2)
    with pytest.raises(ValueError, match=r"no method 'SVMs' \(did you mean 'SVM'\?\)"):
        campaign_cells(SmcTable1Config(methods=("SVMs",)))


def test_differences_and_verdicts_by_hand() -> None:
    records = [offline(OURS, fold, 0.9, 0.20 + 0.02 * fold) for fold in range(2)]
    records += [offline("random forest", fold, 0.9 + 0.02 * fold, 0.22) for fold in range(2)]
    runs = run_frame(records)
    assert paired(runs, "nll", OURS, "random forest") == pytest.approx((-0.01, 0.01, 2))
    assert paired(runs, "nll", OURS, "SVM")[2] == 0
    ahead, accurate, bar, aim, paper = verdicts_of(runs)
    assert (ahead.measured, ahead.holds) == ("0.210; random forest 0.220", True)
    assert accurate.measured == "less random forest: -1.0 ± 1.0 points, 2 folds"
    assert accurate.holds
    assert [bar.holds, aim.holds, paper.holds] == [True, False, False]
    worse = verdicts_of(run_frame([*records[:2], offline("SVM", 0, 1.0, 0.1), offline("SVM", 1, 1.0, 0.1)]))
    assert not worse[0].holds


def test_online_runs_are_means_over_batches_and_first_classes() -> None:
    records = [online_record(OURS, 0, 0, 0.8, 0.4), online_record(OURS, 0, 1, 0.6, 0.6)]
    records += [online_record("passive-aggressive", 0, first, 0.65, None) for first in (0, 1)]
    records += [online_record("SVM", 0, first, 0.75, 0.45) for first in (0, 1)]
    runs = run_frame(records).set_index("method")
    assert runs.loc[OURS, ["accuracy", "nll", "seconds", "last accuracy"]].tolist() == pytest.approx([0.7, 0.5, 2, 0.8])
    first, second = verdicts_of(runs.reset_index())
    assert first.measured == "0.700; SVM 0.750"
    assert second.measured == "0.500; SVM 0.450"
    assert not first.holds
    outcome = outcome_of([*records, *[offline(OURS, fold, 0.9, 0.2) for fold in range(2)]], [], SmcTable1Config())
    tables = {table.name: table.frame for table in outcome.tables}
    assert tables["offline"]["ece"].tolist() == pytest.approx([0.4])  # four rows, two right, of confidence 0.9
    assert tables["differences"]["runs"].tolist() == [1, 1]
    assert [picture.name for picture in outcome.pictures] == ["online"]


@pytest.mark.real_data
@pytest.mark.slow
def test_a_few_cells_to_the_end(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "datasets": ("heart_cleveland",),
        "methods": (OURS, "naive Bayes", "SVM"),
        "repeats": (0,),
        "folds": (0,),
        "seeds": (0,),
        "particles": 2,
        "results": str(tmp_path / "cells"),
        "checkpoints": str(tmp_path / "locks"),
    }
    outcome = run(data_root=None, progress=quietly, **options)
    assert outcome.findings[0] == "9 of 9 cells have a result."
    assert [table.name for table in outcome.tables] == ["offline", "online", "differences", "curves", "paper"]
    assert outcome.tables[0].frame["accuracy"].between(0.6, 1).all()
    again = run(data_root=None, progress=quietly, train=False, **options)
    assert again.tables[1].frame.equals(outcome.tables[1].frame)
    with pytest.raises(ValueError, match="no cell of this campaign has a result"):
        run(data_root=None, progress=quietly, train=False, **{**options, "datasets": ("ionosphere",)})


@pytest.mark.real_data
def test_molecules_of_musk() -> None:
    assert len(np.unique(molecules(None))) == 92

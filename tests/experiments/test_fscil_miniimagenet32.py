"""A campaign on tiny images to the end, the rehearsal, whose rows are whose, and verdicts by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import fscil_miniimagenet32, photograph_sessions
from experiments.campaigns.archive import all_kept
from experiments.campaigns.cells import FAILED
from experiments.campaigns.sessions import NetworkSessions, SessionCell, study_of
from experiments.fscil_miniimagenet32 import METHODS, candidate_frame, other_seeds, run, verdicts_of
from experiments.photograph_sessions import (
    BUDGETS,
    TRAINING,
    branch_cell,
    candidate_cells,
    chosen_candidate,
    method_cell,
    rehearsal_stage,
    stage_cell,
)
from experiments.rehearsal import rehearsal
from experiments.train_test import TrainTestData, load_train_test
from sureshot.data import LabelledSet
from sureshot.deep import ClassifierSettings, held_out_rows
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.sessions import Session, Sessions
from tests.experiments.test_fscil_clinc150 import quietly, record

STAGE = ClassifierSettings(epochs=2, batch_size=8, learning_rate=0.1, milestones=(), crop=1, flip=True)
TINY = photograph_sessions.Budget(
    "tiny", "tiny-base", 1, {"name": "conv4", "n_filters": 3}, STAGE, 1, 0.01, (), 0.2, (2, 1), 2
)
SHORT = {"epochs": 1}
CHOSEN = ("nearest class mean", "empirical Bayes, rows kept aside", "iCaRL", "SDC, MAS", "PODNet")


def images(n: int, seed: int, n_classes: int = 7) -> LabelledSet:
    """Rows with a mean brightness and a bright column for each class, in turn."""
    y = torch.arange(n_classes).repeat(n)
    x = torch.randint(60, (len(y), 1, 16, 16), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    for image, label in zip(x, y.tolist(), strict=True):
        image[0, :, 2 * label : 2 * label + 2] += 150
    return LabelledSet(x, y, tuple("abcdefg"[:n_classes]))


def tiny_base(name: str, root: Path | None = None) -> TrainTestData:
    assert name == "tiny-base"
    parts = [part.select_classes([0, 2, 3, 4, 6]) for part in (images(10, 0), images(3, 1))]
    return TrainTestData(*parts, name, "tiny")


def tiny_sessions(name: str, root: Path | None = None) -> Sessions:
    assert name == "tiny"
    train = images(10, 0)
    base = tuple(row for row, label in enumerate(train.y.tolist()) if label in (0, 2, 3, 4, 6))
    later = [Session((c,), tuple((train.y == c).nonzero().flatten()[:5].tolist())) for c in (5, 1)]
    return Sessions(train, images(3, 1), (Session((0, 2, 3, 4, 6), base), *later), name, "tiny")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setitem(BUDGETS, "trial", TINY)
    monkeypatch.setattr(fscil_miniimagenet32, "load_train_test", tiny_base)
    monkeypatch.setattr(fscil_miniimagenet32, "load_sessions", tiny_sessions)
    for name, (method, kind, options, candidates) in TRAINING.items():
        few = [{**one, "later": {**one["later"], **SHORT}} for one in candidates[:2]]
        more = {"balanced": SHORT} if method == "podnet" else {"importance_rows": 3} if method == "sdc" else {}
        monkeypatch.setitem(TRAINING, name, (method, kind, {**options, **more}, tuple(few)))
    folders = {name: str(tmp_path / name) for name in ("results", "checkpoints")}
    return {"budget": "trial", "methods": CHOSEN, **folders}


def test_a_campaign_to_the_end(tiny: dict[str, Any], tmp_path: Path) -> None:
    told: list[float] = []
    outcome = run(data_root=None, progress=lambda what, fraction: told.append(fraction), **tiny)
    assert told == sorted(told)
    tables = {table.name: table for table in outcome.tables}
    assert set(tables["last-session"].frame["method"]) == set(CHOSEN)
    assert tables["networks"].frame["network"].tolist() == ["softmax stage", "softmax", "triplet", "cosine_proxies"]
    chosen = tables["rehearsal"].frame
    assert chosen["method"].tolist() == ["iCaRL"] * 2 + ["SDC, MAS"] * 2 + ["PODNet"] * 2
    assert chosen.groupby("method")["chosen"].apply(lambda column: (column == "yes").sum()).tolist() == [1, 1, 1]
    assert tables["published"].published
    assert [picture.name for picture in outcome.pictures] == ["curves", "matrices"]
    assert not any("Without a result" in line for line in outcome.findings)
    records = all_kept(tmp_path / "results" / "fscil-miniimagenet32")
    again = run(data_root=None, progress=quietly, train=False, **tiny)
    assert all_kept(tmp_path / "results" / "fscil-miniimagenet32") == records
    assert [table.name for table in again.tables] == [table.name for table in outcome.tables]


def test_what_is_missing_is_named(tiny: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no cell of this campaign has a result yet"):
        run(data_root=None, progress=quietly, train=False, **tiny)
    outcome = run(data_root=None, progress=quietly, **{**tiny, "methods": ("decoupled cosine",)})
    assert [table.name for table in outcome.tables][-2:] == ["networks", "published"]
    outcome = run(data_root=None, progress=quietly, train=False, **tiny)
    assert outcome.findings == (f"Without a result yet: {', '.join(CHOSEN)}.",)


def test_a_rehearsal_asks_about_nothing_that_was_shown() -> None:
    base = tiny_base("tiny-base")
    learnt, sessions = rehearsal(base, 0.2, 1, 2)
    assert [len(session.classes) for session in sessions.sessions] == [3, 1, 1]
    first, *later = sessions.sessions
    names = [base.train.class_names[c] for c in first.classes]
    assert list(learnt.train.class_names) == names
    # The network and the base session have the same rows in the same order; two of ten of each class are kept aside.
    shown = sessions.arriving(0)
    np.testing.assert_array_equal(shown.x, learnt.train.x.numpy())
    np.testing.assert_array_equal(np.unique(shown.y, return_inverse=True)[1], learnt.train.y.numpy())
    assert learnt.test.class_sizes.tolist() == [2, 2, 2]
    everything = [row.tobytes() for row in base.train.x.numpy()]
    assert len(set(everything)) == len(everything)
    taught = {row.tobytes() for k in range(3) for row in sessions.arriving(k).x}
    asked = {row.tobytes() for row in sessions.asked(2).x}
    assert not taught & asked
    assert taught <= set(everything)
    assert asked <= set(everything)
    of_class = np.bincount(sessions.asked(2).y)
    assert sorted(of_class.tolist()) == [2, 2, 2, 5, 5]
    assert all(len(session.rows) == 5 for session in later)


def test_rows_kept_aside_are_those_of_the_networks_training(tmp_path: Path) -> None:
    stage = replace(stage_cell("trial", 3), validation=0.2)
    base = tiny_base("tiny-base").train
    kept = held_out_rows(base.y, 0.2, stage.training.seed)
    sessions = tiny_sessions("tiny")
    cell = SessionCell("tiny", 3, "m", "nearest_class_mean", network=stage, aside_only=True)
    shown = NetworkSessions(lambda name: sessions, "cpu")
    shown._encoded = (("tiny", tmp_path), sessions)
    np.testing.assert_array_equal(shown(cell, tmp_path).arriving(0).x, base.x[kept].numpy())
    everything = shown(replace(cell, aside_only=False), tmp_path)
    first = everything.arriving(0)
    assert len(first.x) == 50
    assert first.unseen is not None
    np.testing.assert_array_equal(first.x[first.unseen], shown(cell, tmp_path).arriving(0).x)
    assert all(everything.arriving(k).unseen.all() for k in range(1, len(everything)))


@pytest.mark.real_data
def test_real_base_sessions_are_what_networks_learn() -> None:
    base, first = load_train_test("miniimagenet32-base").train, load_sessions("miniimagenet32").arriving(0)
    assert torch.equal(base.y, torch.from_numpy(np.unique(first.y, return_inverse=True)[1]))
    assert torch.equal(base.x, torch.from_numpy(first.x))


def test_keys_and_settings_of_cells() -> None:
    stage = stage_cell()
    assert stage.key == "stage-seed0"
    assert (stage.training.epochs, stage.training.learning_rate, stage.training.precision) == (40, 0.1, "bfloat16")
    branch = branch_cell("triplet", stage)
    assert (branch.key, branch.stage, branch.training.epochs) == ("triplet-seed0", stage, 20)
    assert (branch.training.learning_rate, branch.training.milestones) == (0.01, (14,))
    assert branch_cell("cosine_proxies", stage).training.own_learning_rate == 0.1
    assert branch_cell("class_tree", stage).options == {"per_class": 5}
    first = rehearsal_stage("small")
    assert (first.key, first.data, first.training.milestones) == (
        "rehearsal-stage",
        "miniimagenet32-base-6-sessions-rehearsal",
        (9,),
    )
    assert branch_cell("triplet", first).key == "rehearsal-triplet"
    own = [name for name, budget in BUDGETS.items() if not budget.rehearsal_of]
    keys = [cell.key for method in TRAINING for budget in own for cell in candidate_cells(method, budget)]
    keys += [cell.key for budget in BUDGETS for name in METHODS if (cell := method_cell(name, budget, 0))]
    keys += [branch_cell(kind, stage_cell(budget)).key for budget in BUDGETS for kind in photograph_sessions.BRANCHES]
    assert len(set(keys)) == len(keys)
    assert candidate_cells("PODNet", "float32") == candidate_cells("PODNet", "small")
    assert rehearsal_stage("float32") == rehearsal_stage("small")
    assert stage_cell("float32").training == replace(stage_cell("small").training, precision="float32")
    cell = method_cell("nearest class mean", "small", 0)
    assert cell is not None
    assert cell.settings()["network"]["stage"]["training"]["epochs"] == 40
    assert cell.stale({"settings": {**cell.settings(), "aside_only": True}}) == "it was made with other settings"


def test_the_papers_epochs() -> None:
    for budget, epochs, falls in (("full", 40, (20,)), ("cub", 20, (20, 40))):
        stage = stage_cell(budget)
        branch = branch_cell("class_tree", stage)
        assert stage.training.epochs + branch.training.epochs == 100
        assert [stage.training.epochs + epoch for epoch in branch.training.milestones][-1] == 60
        assert branch.training.milestones == falls
        assert stage.training.epochs == epochs


def candidate(number: int, harmonic: float | None) -> dict[str, Any]:
    labels = {"method": f"SDC, LwF, {number}"}
    last = {"harmonic_mean": harmonic, "base_accuracy": 0.5, "novel_accuracy": 0.4}
    options = {"gamma": 10.0**number, "later": {"learning_rate": 0.01}}
    return {"labels": labels, "evaluation": {"sessions": [last]}, "settings": {"options": options}}


def test_the_best_candidate_is_chosen_whichever_failed() -> None:
    records = [candidate(0, 0.2), {**candidate(1, 0.9), FAILED: "diverged"}, candidate(2, 0.4), candidate(3, 0.4)]
    assert chosen_candidate(records) == 2
    assert chosen_candidate([]) is None
    assert method_cell("SDC, LwF", "small", 0) is None
    cell = method_cell("SDC, LwF", "small", 0, records)
    assert cell is not None
    assert cell.options["gamma"] == TRAINING["SDC, LwF"][3][2]["gamma"]
    assert cell.options["later"]["precision"] == "bfloat16"
    frame = candidate_frame({"SDC, LwF": records})
    assert frame["gamma"].tolist() == ["1", "100", "1000"]
    assert frame["chosen"].tolist() == ["", "yes", ""]


def test_verdicts_are_of_the_last_session() -> None:
    values = {
        "tree, recommended": (0.5, 0.05, 0.3),
        "tree, recommended, rows kept aside": (0.9, 0.01, 0.9),
        "nearest class mean": (0.4, 0.04, 0.2),
        "GP-Tree, shared root": (0.35, 0.2, 0.2),
        "GP-Tree, session": (0.36, 0.2, 0.2),
        "iCaRL": (0.2, 0.3, 0.2),
        "PODNet": (0.3, 0.3, 0.2),
        "fine-tuning": (0.02, 0.001, 0.0),  # unsure of everything, and right about it
    }
    study = study_of([record(name, 0, a, ece=e, harmonic_mean=h) for name, (a, e, h) in values.items()], "")
    found = verdicts_of(study)
    assert [verdict.holds for verdict in found] == [True, True, False, True, False]
    assert found[0].measured == "tree, recommended 0.500, nearest class mean 0.400"
    assert found[2].measured == "tree, recommended 0.050, nearest class mean 0.040"
    assert found[3].measured == "GP-Tree, shared root 0.350, fine-tuning 0.020, iCaRL 0.200, PODNet 0.300"
    assert verdicts_of(study_of([], "")) == ()


def test_other_seeds_are_a_table_of_their_own() -> None:
    records = [record("ours", seed, 0.5 + seed / 10) for seed in (0, 1)] + [record("theirs", 0, 0.4)]
    (table,) = other_seeds(study_of(records, "tiny"), (0, 1))
    (row,) = table.frame.to_dict("records")
    assert (row["method"], row["accuracy"]) == ("ours", pytest.approx(0.55))
    assert row["accuracy s.e."] == pytest.approx(0.05)
    assert other_seeds(study_of(records[1:], "tiny"), (0, 1)) == []

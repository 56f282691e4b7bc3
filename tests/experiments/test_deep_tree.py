"""The grid of the deep classifiers' campaign, its scores by hand, and a campaign of tiny images to the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from experiments import deep_tree
from experiments.campaigns.archive import all_kept
from experiments.campaigns.deep import scores
from experiments.deep_tree import METHODS, Budget, DeepTreeConfig, branch_cell, run, score_frame, stage_cell, verdicts
from experiments.train_test import TrainTestData
from sureshot.data import LabelledSet

TINY = Budget({"name": "conv4", "n_filters": 4}, 2, 2, (1,), batch_size=16, inducing=2, grid=8)


def tiny_data(name: str, root: Path | None = None) -> TrainTestData:
    """Three classes of a bright square in another corner."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3).repeat(20)
    x = torch.randint(80, (60, 1, 16, 16), generator=generator, dtype=torch.uint8)
    for image, label in zip(x, y, strict=True):
        image[0, 8 * (label // 2) :, 8 * (label % 2) :][:8, :8] += 120
    whole = LabelledSet(x, y, ("a", "b", "c"))
    return TrainTestData(whole.select_rows(torch.arange(45)), whole.select_rows(torch.arange(45, 60)), name, "tiny")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setitem(deep_tree.BUDGETS, "trial", TINY)
    monkeypatch.setitem(deep_tree.BUDGETS, "other", TINY)
    monkeypatch.setattr(deep_tree, "load_train_test", tiny_data)
    folders = {name: str(tmp_path / name) for name in ("results", "checkpoints")}
    return {"budget": "trial", "datasets": ("cifar10-subset",), **folders}


def test_a_campaign_to_the_end(tiny: dict[str, Any], tmp_path: Path) -> None:
    told: list[float] = []
    outcome = run(data_root=None, progress=lambda what, fraction: told.append(fraction), **tiny)
    frame = outcome.tables[0].frame
    assert frame["method"].tolist() == ["softmax stage", *METHODS]
    assert frame["accuracy"].between(0, 1).all()
    assert (frame["epochs"] == 2).all()
    assert outcome.findings == ("5 of 5 cells have a result.",)
    assert len(outcome.verdicts) == 1
    assert told == sorted(told)
    records = all_kept(tmp_path / "results" / "deep-tree")
    assert list(records) == sorted(f"cifar10-subset-{name}-seed0-trial" for name in ("stage", *METHODS))
    again = run(data_root=None, progress=lambda what, fraction: None, train=False, **tiny)
    assert all_kept(tmp_path / "results" / "deep-tree") == records
    pd.testing.assert_frame_equal(again.tables[0].frame, frame)
    other = {**tiny, "budget": "other", "beside": ("trial",), "train": False}
    beside = run(data_root=None, progress=lambda what, fraction: None, **other)
    pd.testing.assert_frame_equal(beside.tables[0].frame, frame)
    assert beside.findings[0] == "0 of 5 cells have a result."
    first, *_ = records.values()
    assert first["settings"]["stage"]["method"] == "softmax stage"


def test_grids_of_several_sizes(tiny: dict[str, Any]) -> None:
    options = {**tiny, "methods": ("grid_interpolation",), "data_root": None, "progress": lambda what, fraction: None}
    assert [table.name for table in run(**options).tables] == ["scores"]
    outcome = run(**options, grids=(12, 16))
    scored, grids = (table.frame for table in outcome.tables)
    assert scored["method"].tolist() == ["softmax stage", "grid_interpolation"]
    assert grids["points"].tolist() == [8, 12, 16]
    assert grids["accuracy"].iloc[0] == scored["accuracy"].iloc[1]
    assert outcome.findings == ("2 of 2 cells have a result.",)


def test_other_settings_train_anew(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**tiny, "methods": ("softmax",)}
    run(data_root=None, progress=lambda what, fraction: None, **options)
    monkeypatch.setitem(deep_tree.BUDGETS, "trial", replace(TINY, batch_size=8))
    with pytest.raises(ValueError, match="no cell of this campaign has a result"):
        run(data_root=None, progress=lambda what, fraction: None, train=False, **options)
    outcome = run(data_root=None, progress=lambda what, fraction: None, **options)
    assert outcome.findings == ("2 of 2 cells have a result.",)


def test_the_papers_settings() -> None:
    settings = DeepTreeConfig(budget="full")
    stage = stage_cell("cifar100", 3, settings)
    assert (stage.training.epochs, stage.training.milestones, stage.training.batch_size) == (80, (), 256)
    tree = branch_cell(stage, "class_tree", settings)
    assert stage.training.epochs + tree.training.epochs == 200
    assert [stage.training.epochs + epoch for epoch in tree.training.milestones] == [100, 150]
    assert (tree.training.optimiser, tree.training.learning_rate, tree.training.momentum) == ("sgd", 0.01, 0.9)
    assert tree.options == {"per_class": 40}
    assert tree.backbone == {"name": "resnet18", "stem": "cifar", "n_features": 1024}
    assert branch_cell(stage, "robust_max", settings).options == {"per_class": 40, "full_covariance": False}
    finer = branch_cell(stage, "grid_interpolation", settings, 128)
    assert (finer.key, finer.options) == ("cifar100-grid_interpolation-seed3-full-grid128", {"grid_size": 128})


def test_scores_by_hand() -> None:
    found = scores(np.log([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 1]))
    assert found["accuracy"] == 0.5
    assert found["nll"] == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
    assert found["ece"] == pytest.approx((0.2 + 0.6) / 2)
    assert found["accuracy_se"] == pytest.approx((0.25 / 2) ** 0.5)


def record(method: str, accuracy: float, seed: int = 0, dataset: str = "cifar100") -> dict[str, Any]:
    values = {"accuracy": accuracy, "accuracy_se": 0.01, "nll": 1.0, "ece": 0.1}
    training = {"epochs": 2, "best_epoch": 1, "seconds_per_epoch": None}
    labels = {"dataset": dataset, "method": method, "seed": seed, "budget": "full"}
    return {"labels": labels, "scores": values, "scores_at_temperature": values, "training": training}


def test_seeds_and_verdicts() -> None:
    records = [record("class_tree", 0.7), record("class_tree", 0.74, 1), record("robust_max", 0.3)]
    frame = score_frame(records)
    tree, robust = frame.to_dict("records")
    assert (tree["seeds"], robust["seeds"]) == (2, 1)
    assert tree["accuracy"] == pytest.approx(0.72)
    assert tree["se"] == pytest.approx(0.02)
    assert robust["se"] == 0.01
    assert [verdict.holds for verdict in verdicts(records)] == [True, True]
    assert [v.holds for v in verdicts([record("class_tree", 0.5), record("robust_max", 0.6)])] == [False] * 2
    assert verdicts([record("softmax", 0.5)]) == ()
    both = [record("class_tree", 0.7, seed) for seed in (0, 1)]
    both += [record("robust_max", 0.6 + seed / 50, seed) for seed in (0, 1)]
    assert verdicts(both)[0].measured.endswith("class_tree less robust_max by seeds +0.090 ± 0.010")

"""Few labels of many classes: models by hand and on well separated rows, scales by validation rows, verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from experiments.class_counts import (
    RECIPES,
    CountCell,
    Problem,
    Recipe,
    all_scores,
    chains_for,
    chosen_scales,
    count_picture,
    count_tables,
    count_verdicts,
    predictions,
    run_counts,
)
from sureshot.data.clinc150 import load_clinc150

CELL = CountCell("tree, 4 chains", 1, (3, 5), 2, (1.0, 9.0))


def quietly(what: str, fraction: float) -> None:
    pass


def apart(n_classes: int = 3, shots: int = 4) -> Problem:
    """Classes along axes of their own."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n_classes).repeat_interleave(shots)
    x, query = (
        torch.nn.functional.normalize(
            torch.eye(n_classes, 6, dtype=torch.float64)[y]
            + 0.2 * torch.randn(len(y), 6, dtype=torch.float64, generator=generator)
        )
        for _ in range(2)
    )
    return Problem(x, y, query, y, 4, n_classes)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_tells_distant_classes_apart(name: str) -> None:
    problem = apart()
    found = dict(predictions(RECIPES[name], problem, 9.0, 0))
    assert set(found) == ({"plug_in", "integral"} if name.startswith("tree") else {"plug_in"})
    for p in found.values():
        torch.testing.assert_close(p.sum(-1), torch.ones(len(problem.asked), dtype=torch.float64))
        assert float((p.argmax(-1) == problem.asked).double().mean()) > 0.9


def test_a_seed_fixes_the_chains_and_the_supplement_their_number() -> None:
    problem = apart()
    one, same, other = (dict(predictions(Recipe("tree"), problem, 4.0, seed))["plug_in"] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert [chains_for(n) for n in (4, 20, 30, 40, 60)] == [20, 20, 10, 1, 1]


def test_a_cell_is_stale_with_other_settings() -> None:
    assert CELL.key == "counts-tree-4-chains-seed1"
    assert CELL.stale({"settings": CELL.settings()}) is None
    fewer = CountCell("tree, 4 chains", 1, (3,), 2, (1.0, 9.0))
    assert fewer.stale({"settings": CELL.settings()}) == "it was made with other settings"


def record(method: str, seed: int, accuracies: dict[int, float]) -> dict[str, Any]:
    """Scale 9 is the better one on validation rows, scale 1 on test rows."""
    scores = [
        {"classes": n, "scale": scale, "rule": "plug_in", "validation_accuracy": chosen, "accuracy": accuracy + more}
        | {"nll": 0.5, "ece": 0.1, "brier": 0.2}
        for n, accuracy in accuracies.items()
        for scale, chosen, more in ((1.0, 0.5, 0.05), (9.0, 0.6, 0.0), (18.0, 0.6, 0.1))
    ]
    return {"labels": {"method": method, "seed": seed}, "scores": scores}


def test_scales_are_chosen_by_validation_rows_and_differences_are_paired() -> None:
    records = [record("tree", seed, {4: 0.9, 60: 0.8 + 0.1 * seed}) for seed in (0, 1)]
    records += [record("one-vs-each", seed, {4: 0.9, 60: 0.6 + 0.1 * seed}) for seed in (0, 1)]
    records += [record("tree, mean field", seed, {4: 0.8, 60: 0.8 + 0.12 * seed}) for seed in (0, 1)]
    scores = all_scores(records)
    frame = chosen_scales(scores)
    assert set(frame["scale"]) == {9.0}
    verdicts = {verdict.claim: verdict for verdict in count_verdicts(frame)}
    ahead = verdicts["with many classes the tree is ahead of one-vs-each"]
    assert ahead.measured == "tree less one-vs-each, 60 classes: 20.0 ± 0.0 points"
    assert ahead.holds
    behind = verdicts["Gibbs sampling is ahead of variational inference"]
    assert behind.measured == "tree less tree, mean field, 60 classes: -1.0 ± 1.0 points"
    assert not behind.holds
    growing = verdicts["the gap between Gibbs sampling and variational inference grows with the number of classes"]
    assert growing.measured == "10.0 points with 4 classes, -1.0 with 60"
    assert not growing.holds
    first, *_ = count_tables(scores, frame, 2)
    pd.testing.assert_series_equal(first.frame["60"], pd.Series([0.85, 0.65, 0.86]), check_names=False)
    assert len(count_picture(frame).axes) == 3


@pytest.mark.real_data
def test_intents_of_clinc150(tmp_path: Path) -> None:
    few, more = (Problem.drawn(load_clinc150(), n, 2, 1) for n in (3, 5))
    assert (len(few.x), few.n_validation, len(few.query)) == (6, 60, 150)
    assert torch.equal(few.x, more.x[:6])
    torch.testing.assert_close(few.query.norm(dim=-1), torch.ones(150, dtype=torch.float64))
    rows = run_counts(None, CELL, tmp_path, quietly)["scores"]
    assert [(row["classes"], row["scale"]) for row in rows[::2]] == [(3, 1.0), (3, 9.0), (5, 1.0), (5, 9.0)]
    assert all(row["accuracy"] > 0.8 for row in rows if row["scale"] == 9)

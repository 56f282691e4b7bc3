"""The campaigns of learners of numbers: cells, resuming, pages, on few tasks and steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import functions, image_completion
from experiments.campaigns.cells import FAILED
from experiments.campaigns.functions import EXACT, FunctionCell, run_function_cell
from experiments.functions import CNP, DKT, FAMILIES, LEARNERS, ONE_SCALE, REAL, FunctionsConfig, campaign_cells


def quiet(what: str, fraction: float) -> None:
    assert 0 <= fraction <= 1


def folders(tmp_path: Path) -> dict[str, Any]:
    return {"results": str(tmp_path / "results"), "checkpoints": str(tmp_path / "checkpoints")}


def test_every_learner_meets_every_family() -> None:
    cells = campaign_cells(FunctionsConfig())
    assert len({cell.key for cell in cells}) == len(cells)
    trained = [cell for cell in cells if cell.training is not None]
    apart = len(REAL)  # which have means in place of convcnp and several kernels
    assert len(trained) == 3 * (len(FAMILIES) * (len(LEARNERS) - 1) - apart)
    exact = [cell for cell in cells if cell.training is None]
    assert len(exact) == len(FAMILIES) - len(REAL) - 1  # there is none of sinusoids either


def test_the_page_of_functions(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "learners": (EXACT, CNP, DKT),
        "families": (ONE_SCALE, "sinusoids"),
        "seeds": (0,),
        "steps": 0.002,
        "tasks": 6,
        **folders(tmp_path),
    }
    found = functions.run(data_root=None, progress=quiet, **options)
    names = [table.name for table in found.tables]
    assert "rbf-one-length-scale-log-density-inside" in names
    assert "sinusoids-log-density-beyond" in names
    assert "sinusoids-below-exact-inside" not in names
    first = next(table for table in found.tables if table.name.endswith("below-exact-inside")).frame
    assert list(first["learner"]) == [EXACT, CNP, DKT]
    np.testing.assert_allclose(first.loc[0, ["1", "100"]].astype(float), 0.0, atol=1e-12)
    assert [picture.name for picture in found.pictures] == ["bands-rbf-one-length-scale", "bands-sinusoids"]
    assert len(found.verdicts) == 1
    again = functions.run(data_root=None, progress=quiet, **options)
    assert again.findings == found.findings


def test_a_cell_whose_folder_has_another_training(tmp_path: Path) -> None:
    cells = campaign_cells(FunctionsConfig(learners=(CNP,), families=("rbf",), seeds=(0,), steps=0.001, tasks=3))
    first = run_function_cell(None, cells[0], tmp_path, quiet)
    other = campaign_cells(FunctionsConfig(learners=(CNP,), families=("rbf",), seeds=(0,), steps=0.0015, tasks=3))
    second = run_function_cell(None, other[0], tmp_path, quiet)
    assert FAILED not in second
    assert first["evaluation"]["scores"] != second["evaluation"]["scores"]
    assert {"below_exact", "shown", "training", "evaluation"} < set(second)


def test_what_a_picture_needs_may_be_there_for_nothing(tmp_path: Path) -> None:
    """Seeds that were run apart are the results of a run of all of them."""
    cells = campaign_cells(FunctionsConfig(learners=(CNP,), families=("rbf",), seeds=(1, 0), steps=0.001, tasks=3))
    assert [cell.shown for cell in cells] == [True, False]
    for shown, other in (cells, cells[::-1]):
        record = {"settings": shown.settings(), "shown": []}
        assert shown.stale(record) is None
        assert other.stale(record) == "it was made with other settings"
        record["settings"] = other.settings()
        assert other.stale(record) is None
        del record["shown"]
        assert (other.stale(record) is None) == (not other.shown)
        assert other.stale({**record, FAILED: "it diverged"}) is None


@pytest.mark.real_data
def test_the_page_of_images(tmp_path: Path) -> None:
    root = Path(os.environ["SURESHOT_DATA"])
    found = image_completion.run(
        data_root=root,
        progress=quiet,
        learners=("cnp", "convcnp"),
        sets=("omniglot",),
        seeds=(0,),
        steps=0.001,
        tasks=2,
        **folders(tmp_path),
    )
    assert [table.name for table in found.tables][:1] == ["omniglot-log-density"]
    assert [picture.name for picture in found.pictures] == ["completed-omniglot"]


def test_names_that_are_none() -> None:
    with pytest.raises(ValueError, match="there is no family 'rbg'"):
        functions.run(data_root=None, progress=quiet, families=("rbg",))
    with pytest.raises(ValueError, match="there is no learner 'dkt'"):
        image_completion.run(data_root=None, progress=quiet, learners=("dkt",))


def test_cells_say_what_they_are() -> None:
    cell = campaign_cells(FunctionsConfig())[0]
    assert isinstance(cell, FunctionCell)
    assert cell.settings()["training"] is None
    assert cell.labels == {"functions": ONE_SCALE, "learner": EXACT, "seed": 0}

"""The page of a campaign, with its tables and figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.campaigns.cells import FAILED
from experiments.campaigns.images import CAMPAIGNS, CUB, OMNIGLOT_CHOICE, ImageCampaign, ImageCampaignConfig
from experiments.campaigns.pictures import pooled_curve
from experiments.experiment import Outcome
from experiments.tables import write_result


def never(name: str, options: dict[str, Any]) -> Any:
    raise AssertionError(f"{name} {options} is not needed")


def silent(what: str, fraction: float) -> None:
    del what, fraction


@pytest.fixture
def results(tmp_path: Path, make_record: Any) -> Path:
    """Results of four cells, one of which failed, in the folder of the campaign on birds."""
    chosen = {"protonet": 0.70, "ove_gibbs_pl": 0.74, "ove_mean_field_pl": 0.75, "dkt": None}
    folder = tmp_path / "cells" / CUB.name
    folder.mkdir(parents=True)
    for cell in CUB.cells(ImageCampaignConfig(shots=(5,), learners=tuple(chosen))):
        accuracy = chosen[str(cell.labels["learner"])]
        record = make_record("", accuracy or 0.0, nll=1.0 - (accuracy or 0.0))
        record |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings()}
        if accuracy is None:
            record = {key: record[key] for key in ("key", "labels", "settings")} | {FAILED: "diverged at step 7"}
        (folder / f"{cell.key}.json").write_text(json.dumps(record))
    return tmp_path / "cells"


def collect(campaign: ImageCampaign, results: Path, **options: Any) -> Outcome:
    return campaign.run(load=never, progress=silent, train=False, results=str(results), **options)


def test_a_page_of_what_is_there(results: Path, tmp_path: Path) -> None:
    outcome = collect(CUB, results)
    complete, failed, missing = outcome.findings
    assert complete == "3 of 46 cells have a result; they took 3.0 hours (the last run of each)."
    assert "`dkt-paper-cosine-5shot-seed0-standard-bfloat16`: diverged at step 7" in failed
    assert missing.startswith("Not run: 42 cells, 1 of `")
    table = next(table for table in outcome.tables if table.name == "scores-5-way-5-shot")
    assert list(table.frame["learner"]) == ["ove_mean_field_pl", "ove_gibbs_pl", "protonet"]  # by NLL
    assert list(table.frame["kernel"]) == ["cosine", "cosine", ""]
    assert set(table.frame["budget"]) == {"standard"}
    assert set(table.frame["trained"]) == {10_000}
    assert {verdict.holds for verdict in outcome.verdicts} <= {True, False}
    written = write_result(outcome, name="cub", output=tmp_path / "out", command="c", wall_seconds=1.0)
    page = (tmp_path / "out" / "cub.md").read_text()
    assert "## Published" in page
    assert "79.07" in page.split("## Published")[1]
    assert "79.07" not in page.split("## Published")[0]
    names = {path.name for path in written.figures}
    assert names == {
        f"cub-{name}.png" for name in ("accuracy", "ece", "reliability-5-way-5-shot", "robustness-5-way-5-shot")
    }
    assert all(path.stat().st_size > 2000 for path in written.figures)
    record = json.loads(gzip.decompress((tmp_path / "out" / "cub.json.gz").read_bytes()))
    assert len(record["tables"]["robustness"]["rows"]) == 3 * 6


def test_few_missing_cells_are_named(results: Path) -> None:
    outcome = collect(CUB, results, learners=("protonet", "dkt", "matchingnet"), shots=(5,))
    assert outcome.findings[-1] == "Not run: `matchingnet-paper-cosine-5shot-seed0-standard-bfloat16`."


def test_results_of_another_meaning_of_a_preset_are_left_out_by_name(results: Path, make_record: Any) -> None:
    cell, *_ = CUB.cells(ImageCampaignConfig(shots=(5,), learners=("cdkt_ml",)))
    record = make_record("cdkt_ml", 0.6) | {"key": cell.key, "labels": cell.labels, "settings": cell.settings()}
    record["preset_values"] = cell.preset_values() | {"warm_start": False}
    (results / CUB.name / f"{cell.key}.json").write_text(json.dumps(record))
    outcome = collect(CUB, results, learners=("protonet", "cdkt_ml", "matchingnet"), shots=(5,))
    rest = "5shot-seed0-standard-bfloat16"
    assert outcome.findings[1:] == (
        f"Left out, as its preset had another warm_start: `{cell.key}`.",
        f"Not run: `matchingnet-paper-cosine-{rest}`, `cdkt_ml-paper-temperature-1-cosine-{rest}`, "
        f"`cdkt_ml-recommended-cosine-{rest}`.",
    )
    assert "cdkt_ml" not in set(outcome.tables[0].frame["learner"])


def test_one_learner_under_several_settings(results: Path, make_record: Any) -> None:
    """Every row in the tables, with calibration errors by both procedures; in figures the papers' settings only."""
    numbers = {"paper": 0.6, "paper, temperature 1": 0.5, "recommended": 0.7}
    for cell in CUB.cells(ImageCampaignConfig(shots=(5,), learners=("cdkt_ml",))):
        record = make_record("cdkt_ml", numbers[str(cell.labels["preset"])], least_errors=(0.02, 0.03))
        record |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings(), **cell.notes()}
        (results / CUB.name / f"{cell.key}.json").write_text(json.dumps(record))
    outcome = collect(CUB, results, learners=("protonet", "cdkt_ml"), shots=(5,))
    tables = {table.name: table.frame for table in outcome.tables}
    rows = tables["scores-5-way-5-shot"]
    mine = rows[rows["learner"] == "cdkt_ml"]
    assert dict(zip(mine["preset"], mine["accuracy"], strict=True)) == numbers
    errors = tables["calibration-5-way-5-shot"]
    assert set(errors["learner"]) == {"cdkt_ml"}
    assert set(errors["P ece"]) == {0.02}
    assert set(errors["P mce"]) == {0.06}
    assert set(errors["T mce"]) == {0.02}
    [panel] = next(picture for picture in outcome.pictures if picture.name == "accuracy").figure.axes
    assert len(panel.containers) == 2  # error bars: one for each learner
    assert [verdict.holds for verdict in outcome.verdicts if "temperature below 1" in verdict.claim] == [True]


def test_results_in_any_precision_are_shown_and_the_first_decides(results: Path) -> None:
    folder = results / CUB.name
    for cell in CUB.cells(ImageCampaignConfig(shots=(5,), learners=("protonet", "ove_gibbs_pl")), "float32"):
        twin = json.loads((folder / f"{cell.key}-bfloat16.json").read_text())
        twin |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings()}
        twin["evaluations"]["5-way 5-shot"]["accuracy"]["mean"] = 0.9
        (folder / f"{cell.key}.json").write_text(json.dumps(twin))
    (folder / "ove_gibbs_pl-paper-cosine-5shot-seed0-standard-bfloat16.json").unlink()
    outcome = collect(CUB, results, shots=(5,))
    table = next(table for table in outcome.tables if table.name == "scores-5-way-5-shot").frame
    shown = set(zip(table["learner"], table["precision"], table["accuracy"], strict=True))
    assert ("protonet", "bfloat16", 0.70) in shown
    assert ("protonet", "float32", 0.90) in shown
    assert [row for row in shown if row[0] == "ove_gibbs_pl"] == [("ove_gibbs_pl", "float32", 0.90)]
    assert "ove_gibbs_pl" not in outcome.findings[-1]  # what is missing


def test_seeds_in_different_precisions_make_one_figure(results: Path) -> None:
    folder = results / CUB.name
    settings = ImageCampaignConfig(shots=(5,), learners=("protonet",), seeds=(1,))
    [cell] = CUB.cells(settings, "float32")
    record = json.loads((folder / "protonet-paper-cosine-5shot-seed0-standard-bfloat16.json").read_text())
    record |= {"key": cell.key, "labels": cell.labels, "settings": cell.settings()}
    (folder / f"{cell.key}.json").write_text(json.dumps(record))
    outcome = collect(CUB, results, shots=(5,), seeds=(0, 1))
    assert "robustness-5-way-5-shot" in [picture.name for picture in outcome.pictures]


def test_the_chosen_cells_only(results: Path) -> None:
    outcome = collect(CUB, results, learners=("protonet",), shots=(5,))
    assert outcome.findings == ("1 of 1 cells have a result; they took 1.0 hours (the last run of each).",)


def test_without_robustness_or_detection(results: Path) -> None:
    for path in (results / CUB.name).glob("*.json"):
        record = json.loads(path.read_text())
        for scores in record.get("evaluations", {}).values():
            scores["robustness"] = scores["out_of_episode"] = None
        path.write_text(json.dumps(record))
    outcome = collect(CUB, results)
    assert [picture.name for picture in outcome.pictures] == ["accuracy", "ece", "reliability-5-way-5-shot"]
    table = next(table for table in outcome.tables if table.name == "scores-5-way-5-shot")
    assert not {"out AUROC", "own AUROC", "corrupted"} & set(table.frame.columns)


def test_no_result_is_no_page(results: Path) -> None:
    with pytest.raises(ValueError, match="no cell of this campaign has a result"):
        collect(OMNIGLOT_CHOICE, results)
    with pytest.raises(ValueError, match="no cell of this campaign has a result"):
        collect(CUB, results, learners=("dkt",))  # failed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "ful"}, "did you mean 'full'"),
        ({"learners": ("dtk",)}, "no learner 'dtk'"),
        ({"kernels": ("rbv",)}, "no kernel 'rbv'"),
        ({"shots": (2,)}, "shots must be one of 1, 5"),
        ({"precisions": ()}, "precisions must not be empty"),
        ({"precisions": ("float32", "float32")}, "precisions must differ"),
        ({"precisions": ("float16",)}, "learner.precision must be one of"),
        ({"kernel": "rbf"}, "unknown option 'kernel'"),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str, results: Path) -> None:
    with pytest.raises(ValueError, match=message):
        collect(CUB, results, **options)


@pytest.mark.parametrize("name", sorted(CAMPAIGNS))
def test_every_campaign_says_what_it_is(name: str) -> None:
    campaign = CAMPAIGNS[name]
    assert campaign.name == name
    assert "\n" not in campaign.summary
    for text in (campaign.title, campaign.introduction, *campaign.differences):
        assert text
        assert "  " not in text
    assert len(set(campaign.differences)) == len(campaign.differences)


def test_bins_of_several_seeds_are_pooled_by_their_counts() -> None:
    first = {"edges": [0, 0.5, 1], "count": [0, 10], "confidence": [None, 0.8], "accuracy": [None, 0.6]}
    second = {"edges": [0, 0.5, 1], "count": [4, 30], "confidence": [0.4, 0.9], "accuracy": [0.5, 0.8]}
    curve = pooled_curve([first, second])
    np.testing.assert_array_equal(curve.count, [4, 40])
    np.testing.assert_allclose(curve.confidence, [0.4, 0.875])
    np.testing.assert_allclose(curve.accuracy, [0.5, 0.75])
    assert curve.expected_error == pytest.approx((4 * 0.1 + 40 * 0.125) / 44)
    empty = pooled_curve([first])
    assert np.isnan(empty.accuracy[0])

"""Variants in sessions: tables and verdicts of made-up scores, and a small run on the real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.campaigns.archive import all_kept
from experiments.campaigns.sessions import study_of
from experiments.fscil_clinc150_studies import (
    PUBLISHED,
    STUDIES,
    VARIANTS,
    StudiesConfig,
    count_cells,
    outcome_of,
    run,
    session_cells,
    session_verdicts,
)
from sureshot.evaluation.methods import make_method
from tests.experiments.test_class_counts import quietly
from tests.experiments.test_fscil_clinc150 import record


def records(accuracies: dict[str, tuple[float, ...]], **scores: float) -> list[dict[str, Any]]:
    return [record(name, seed, a, **scores) for name, row in accuracies.items() for seed, a in enumerate(row)]


def test_every_variant_is_a_method_in_a_study() -> None:
    for name, options in VARIANTS.values():
        make_method(name, **options)
    studied = {name for _, names in STUDIES.values() for name in names}
    assert studied == set(VARIANTS) - {"nearest class mean"}
    assert len({cell.key for cell in session_cells(StudiesConfig())}) == 3 * len(VARIANTS)


def test_verdicts_are_of_paired_differences() -> None:
    found = records({PUBLISHED: (0.80, 0.82), "1 representative": (0.70, 0.71), "rebuilt tree": (0.85, 0.88)})
    found += records({"linear": (0.75, 0.75)}, novel_accuracy=0.3)
    verdicts = {verdict.claim: verdict for verdict in session_verdicts(study_of(found, ""))}
    fewer = verdicts["fewer representatives are slightly worse"]
    assert fewer.measured == "1 representative less 5: first session 0.0 ± 0.0 points, last -10.5 ± 0.5 points"
    assert not fewer.holds
    assert verdicts["fewer representatives cost more in later sessions"].holds
    assert not verdicts["one tree of all later classes is better than a tree that is built anew"].holds
    lead = verdicts["the RBF kernel's lead over the linear kernel is on new classes above all"]
    assert lead.measured == "shared root less linear: novel 20.0 ± 0.0 points, base 0.0 ± 0.0 points"
    assert lead.holds
    assert verdicts["forgetting is minor"].measured == "shared root 10.0 points"
    assert not verdicts["forgetting is minor"].holds
    assert "beyond four chains the difference is marginal" not in verdicts


def test_a_page_of_what_is_there() -> None:
    settings = StudiesConfig(variants=(PUBLISHED, "linear"), recipes=("tree",), seeds=(0,), count_seeds=(0,))
    arriving, counting = session_cells(settings), count_cells(settings)
    there = {**record(PUBLISHED, 0, 0.8), "key": arriving[0].key}
    outcome = outcome_of([], [there], counting, arriving, settings)
    assert outcome.findings[-1] == "Without a result yet: counts-tree-seed0, clinc150-linear-seed0."
    names = [table.name for table in outcome.tables if table.on_page and not table.published]
    assert names == [*STUDIES, "sessions-accuracy", "sessions-forgetting"]
    assert [picture.name for picture in outcome.pictures] == ["accuracy", "forgetting"]
    row = outcome.tables[0].frame.iloc[0]
    assert (row["variant"], row["first accuracy"], row["accuracy"]) == (PUBLISHED, 0.9, 0.8)


def test_nothing_to_collect_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no cell of this campaign has a result yet"):
        run(data_root=None, progress=quietly, train=False, results=str(tmp_path))
    with pytest.raises(ValueError, match=r"no variant 'linea' \(did you mean 'linear'\?\)"):
        run(data_root=None, progress=quietly, variants=("linea",))
    with pytest.raises(ValueError, match="no recipe 'trees'"):
        run(data_root=None, progress=quietly, recipes=("trees",))


@pytest.mark.real_data
def test_few_classes_and_class_means_on_clinc150(tmp_path: Path) -> None:
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    few: dict[str, Any] = {"recipes": ("tree", "one-vs-each"), "counts": (4,), "scales": (4.0,), "count_seeds": (0,)}
    outcome = run(data_root=None, progress=quietly, variants=("nearest class mean",), seeds=(0,), **few, **folders)
    accuracy = next(table.frame for table in outcome.tables if table.name == "classes-accuracy")
    assert accuracy["method"].tolist() == ["tree", "one-vs-each"]
    assert accuracy["4"].min() > 0.9
    assert len(all_kept(tmp_path / "cells" / "fscil-clinc150-studies")) == 3

"""Does kernel search find the structure that generated the labels?

Logits are a fixed function of one column, chosen for a structure.

Structures are equivalent that have one canonical form (`sureshot.structure.canonical`) once two things are left out
that labels do not show: a constant that is added, and how smooth a bump is. A second search of each cell keeps the
planted structure: evidence well above that of the free search is the sampler's fault, not that of the data.

Further cells keep a rival that holds the planted structure as a limit. LINEAR has an offset and PERIODIC a mean, so
that ``(a + b x x') (c + k)`` with a large beside b, and c beside k, is a sum of the two for all that labels say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.smc_methods import OURS, Context, search
from sureshot.estimators.search.settings import SearchSettings
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.structure import SUM, Structure, joined

NAME = "smc-recovery"
_WANTED = 0.8  # of the seeds
_CONSTANT = Structure(("CONSTANT",))


_BUMPS = np.array([-1.2, -0.1, 0.6])
_ONE_SMOOTHNESS = ("MATERN", "GAMMA-EXPONENTIAL")

PLANTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LINEAR": lambda x: 3 * x,
    "PERIODIC": lambda x: 3 * np.sin(4 * np.pi * x),
    "LINEAR + PERIODIC": lambda x: 3 * x + 3 * np.sin(4 * np.pi * x),
    "SQUARED-EXPONENTIAL": lambda x: 6 * np.exp(-8 * (x[:, None] - _BUMPS) ** 2).sum(-1) - 3,
}
"""Logits of one standardised column, by their structures.

Logits are as large as the default grammar has them: three. The range holds seven periods. Where a line is as steep as a
sine is high, some labels show both and the outer ones the line alone; a weaker line could be a slow change of the sine,
which other structures say in as few parameters.
"""

RIVALS = {"LINEAR + PERIODIC": "LINEAR x PERIODIC", "SQUARED-EXPONENTIAL": "LINEAR x SQUARED-EXPONENTIAL"}
"""Of planted structures, one that holds them as a limit."""


@dataclass(frozen=True)
class SmcRecoveryConfig(CampaignConfig):
    """Settings."""

    structures: tuple[str, ...] = tuple(PLANTED)  # of `PLANTED`
    seeds: tuple[int, ...] = tuple(range(10))  # of rows, labels and the search
    rows: int = 400
    particles: int = 32


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(SmcRecoveryConfig, options)
    cells = campaign_cells(settings)
    run_one = partial(run_cell, settings)
    return outcome_of(settings.records(NAME, cells, run_one, progress), cells, settings)


def campaign_cells(settings: SmcRecoveryConfig) -> list[MethodCell]:
    """Seed by seed, the rivals last."""
    check_names("planted structure", settings.structures, PLANTED)
    tried: list[tuple[str, str | None]] = [(name, None) for name in settings.structures]
    rivals = [(name, RIVALS[name]) for name in settings.structures if name in RIVALS]
    return [
        MethodCell(
            name,
            rival or OURS,
            {"protocol": "planted", "seed": seed},
            described(search(Context(1, 0, settings.particles), rival)),
            {"rows": settings.rows},
        )
        for some in (tried, rivals)
        for seed in settings.seeds
        for name, rival in some
    ]


def run_cell(settings: SmcRecoveryConfig, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Run a cell; the result for its record."""
    seed = int(cell.protocol["seed"])
    x, y = planted(PLANTED[cell.data], settings.rows, seed)
    if cell.method != OURS:
        return {"kept": _of_structure(cell.method, settings, seed, x, y)}
    free = search(Context(1, seed, settings.particles)).fit(x, y)
    return {
        "posterior": [[mass, structure] for mass, structure in free.kernel_posterior_],
        "evidence": free.log_evidence_,
        "planted": _of_structure(cell.data, settings, seed, x, y),
    }


def _of_structure(name: str, settings: SmcRecoveryConfig, seed: int, x: np.ndarray, y: np.ndarray) -> float:
    """The part of the evidence that a structure accounts for: its own, times its prior probability."""
    kept = search(Context(1, seed, settings.particles), name).fit(x, y)
    prior = KernelPrior(SearchSettings.checked(kept.get_params()).grammar, 1)
    return kept.log_evidence_ + prior.log_probability(Structure.parse(name))


def planted(logits: Callable[[np.ndarray], np.ndarray], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one column, evenly drawn with a standard deviation of 1, and labels."""
    generator = np.random.default_rng(seed)
    x = 3**0.5 * (2 * generator.random((n, 1)) - 1)
    y = generator.random(n) < 1 / (1 + np.exp(-logits(x[:, 0])))
    return x, y.astype(np.int64)


def representative(structure: Structure) -> Structure:
    """The same for all structures that are equivalent."""
    smooth = tuple("SQUARED-EXPONENTIAL" if one in _ONE_SMOOTHNESS else one for one in structure.symbols)
    form = canonical(Structure(smooth))
    if form.symbols[0] != SUM:
        return form
    return canonical(joined(SUM, [part for part in form.operands() if part != _CONSTANT]))


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: SmcRecoveryConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has a result."""
    frame = mass_frame(records)
    if frame.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    groups = frame.groupby("planted", sort=False)
    found = groups["mass"].apply(lambda mass: int((mass > 0.5).sum()))
    summary = pd.DataFrame(
        {
            "seeds": groups.size(),
            "found": found,
            "found by leaves": groups["leaves"].apply(lambda mass: int((mass > 0.5).sum())),
            "mass": groups["mass"].mean(),
            "of its leaves": groups["leaves"].mean(),
            "missed": groups["missed"].mean(),
        }
    )
    return Outcome(
        title="Recovery of planted structures",
        introduction=(
            f"{settings.rows} rows of one evenly distributed column; logits are a fixed function of it. A structure is "
            "found if more than half of the posterior mass is on it or an equivalent: the same canonical form, but for "
            "a constant that is added and for how smooth bumps are."
        ),
        tables=(
            Table(
                "recovery",
                "In how many seeds more than half of the mass is on the structure and its equivalents, and on all "
                "structures with the same kinds of leaves; the mean of these masses; nats by which the evidence that "
                "the planted structure alone accounts for exceeds that of the search: well above zero, it came to it "
                "late or not at all.",
                summary.reset_index(),
            ),
            *_against_rivals(records),
            Table("seeds", "Each seed, with the heaviest structure.", frame),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=tuple(
            Verdict(
                f"more than half of the mass is on {name} or an equivalent in 8 of 10 seeds",
                "this project's target",
                f"{row['found']:.0f} of {row['seeds']:.0f} seeds",
                bool(row["found"] >= _WANTED * row["seeds"]),
            )
            for name, row in summary.iterrows()
        ),
        differences=("The paper plants no structures.",),
    )


def mass_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each seed of each planted structure."""
    rows = []
    for record in records:
        if FAILED in record or record["labels"]["method"] != OURS:
            continue
        name = str(record["labels"]["data"])
        wanted = representative(Structure.parse(name))
        mass = leaves = 0.0
        for share, text in record["posterior"]:
            form = representative(Structure.parse(text))
            mass += share * (form == wanted)
            leaves += share * (_leaves(form) == _leaves(wanted))
        heaviest = record["posterior"][0]
        rows.append(
            {"planted": name, "seed": record["labels"]["seed"], "mass": mass, "leaves": leaves}
            | {"missed": max(0.0, record["planted"] - record["evidence"])}
            | {"heaviest": heaviest[1], "its mass": heaviest[0]}
        )
    return pd.DataFrame(rows)


def _against_rivals(records: Sequence[Record]) -> list[Table]:
    """What labels say of a planted structure against one that holds it as a limit; empty if none was kept."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for record in records:
        if FAILED not in record:
            labels = record["labels"]
            value = record["planted"] if labels["method"] == OURS else record["kept"]
            found.setdefault((labels["data"], labels["method"]), {})[labels["seed"]] = value
    rows: list[dict[str, Any]] = []
    for name, rival in RIVALS.items():
        own, other = found.get((name, OURS), {}), found.get((name, rival), {})
        gains = np.array([own[seed] - other[seed] for seed in own if seed in other])
        if len(gains) > 1:
            error = gains.std(ddof=1) / len(gains) ** 0.5
            rows.append({"planted": name, "rival": rival, "seeds": len(gains), "nats": gains.mean(), "se": error})
    note = (
        "Nats by which the evidence that the planted structure accounts for exceeds that of a rival which holds it as "
        "a limit, with the standard error over seeds: what the labels themselves say, without the search."
    )
    return [Table("rivals", note, pd.DataFrame(rows))] if rows else []


def _leaves(structure: Structure) -> set[str]:
    return {structure.symbols[i] for i in structure.leaves}


EXPERIMENT = Experiment(NAME, "posterior mass on the structure that made the labels", False, run)

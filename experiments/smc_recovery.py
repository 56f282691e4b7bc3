"""Is a structure found that made the labels? Latents are drawn from a known kernel, labels from their sigmoid.

A campaign of one cell for each planted structure and seed. What counts as found is a posterior mass above one half on
the planted structure or an equivalent. Structures are equivalent that have one canonical form
(`sureshot.structure.canonical`) once a constant that is added is left out: the mean of the latents is in every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments.campaigns.cells import FAILED, run_cells
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.smc_methods import OURS, Context, search
from sureshot.kernels import RBF, Expression, Linear, Periodic
from sureshot.structure.canonical import canonical
from sureshot.structure.structure import SUM, Structure, joined

NAME = "smc-recovery"
_WANTED = 0.8  # of the seeds
_CONSTANT = Structure(("CONSTANT",))


def _numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


PLANTED: dict[str, Expression] = {
    "LINEAR": Linear(_numbers(6.0)),
    "PERIODIC": _numbers(9.0)[0] * Periodic(_numbers(1.0), _numbers(0.7)),
    "LINEAR + PERIODIC": Linear(_numbers(6.0)) + _numbers(9.0)[0] * Periodic(_numbers(1.0), _numbers(0.7)),
    "SQUARED-EXPONENTIAL": _numbers(9.0)[0] * RBF(_numbers(0.7)),
}
"""Kernels of one standardised column, by their structures."""


@dataclass(frozen=True)
class SmcRecoveryConfig:
    """Settings.

    Attributes
    ----------
    structures : tuple of str
        Of `PLANTED`.
    seeds : tuple of int
        Of rows, latents, labels and the search.
    rows, particles : int
    results, checkpoints : str
        Folders of the cells' results and locks; the campaign has one of its name in each.
    train : bool
        False makes the page from the results that are there, running nothing.
    """

    structures: tuple[str, ...] = tuple(PLANTED)
    seeds: tuple[int, ...] = tuple(range(10))
    rows: int = 400
    particles: int = 32
    results: str = "docs/results/cells"
    checkpoints: str = "campaigns"
    train: bool = True


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(SmcRecoveryConfig, options)
    cells = campaign_cells(settings)
    results, checkpoints = Path(settings.results) / NAME, Path(settings.checkpoints) / NAME
    run_one = partial(run_cell, settings)
    return outcome_of(run_cells(cells, results, checkpoints, run_one, progress, settings.train), cells, settings)


def campaign_cells(settings: SmcRecoveryConfig) -> list[MethodCell]:
    """Seed by seed."""
    check_names("planted structure", settings.structures, tuple(PLANTED))
    estimator = described(search(Context(1, 0, settings.particles)))
    return [
        MethodCell(name, OURS, {"protocol": "planted", "seed": seed}, estimator, {"rows": settings.rows})
        for seed in settings.seeds
        for name in settings.structures
    ]


def run_cell(settings: SmcRecoveryConfig, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """What the record says of a cell."""
    seed = int(cell.protocol["seed"])
    x, y = planted(PLANTED[cell.data], settings.rows, seed)
    model = search(Context(1, seed, settings.particles)).fit(x, y)
    return {"posterior": [[mass, structure] for mass, structure in model.kernel_posterior_]}


def planted(kernel: Expression, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one column, evenly drawn with a standard deviation of 1, and labels."""
    generator = torch.Generator().manual_seed(seed)
    x = 3**0.5 * (2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1)
    jitter = 1e-8 * torch.eye(n, dtype=torch.float64)
    normal = torch.randn(n, generator=generator, dtype=torch.float64)
    latents = torch.linalg.cholesky(kernel(x, x) + jitter) @ normal
    y = torch.rand(n, generator=generator, dtype=torch.float64) < latents.sigmoid()
    return x.numpy(), y.numpy().astype(np.int64)


def representative(structure: Structure) -> Structure:
    """The same for all structures that are equivalent."""
    form = canonical(structure)
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
            "mass": groups["mass"].mean(),
            "of its leaves": groups["leaves"].mean(),
        }
    )
    return Outcome(
        title="Recovery of planted structures",
        introduction=(
            f"{settings.rows} rows of one evenly distributed column; latents drawn from a kernel, labels with "
            "probability the sigmoid of the latent. A structure is found if more than half of the posterior mass is on "
            "it or an equivalent: the same canonical form, but for a constant that is added."
        ),
        tables=(
            Table(
                "recovery",
                "In how many seeds the structure was found; mean posterior mass of it and its equivalents, and of all "
                "structures with the same kinds of leaves.",
                summary.reset_index(),
            ),
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
        if FAILED in record:
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
            | {"heaviest": heaviest[1], "its mass": heaviest[0]}
        )
    return pd.DataFrame(rows)


def _leaves(structure: Structure) -> set[str]:
    return {structure.symbols[i] for i in structure.leaves}


EXPERIMENT = Experiment(NAME, "posterior mass on the structure that made the labels", False, run)

"""Functions learnt from a few of their values: neural processes beside deep kernel transfer and the exact process.

Draws of Gaussian processes of several families, whose true kernel is known for every task, and sinusoids. A campaign
whose cells take a few minutes of one core: a learner, a family, a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.campaigns.cells import FAILED, CampaignConfig, Cell, computed_on, unfinished
from experiments.campaigns.functions import (
    EXACT,
    FunctionCell,
    by_learner,
    mean_score,
    run_function_cell,
    score_table,
    shown_of,
    steps_of,
)
from experiments.campaigns.methods import check_names, slug
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from sureshot.meta.evaluation.functions import SIZES
from sureshot.meta.evaluation.shown import IN_BANDS
from sureshot.meta.training.config import FunctionTrainingConfig
from sureshot.report.function_plots import draw_bands

NAME = "functions"
TASKS_PER_STEP = 16
ONE_SCALE = "rbf, one length-scale"
DAYS, DIAMONDS, AIRFOILS = "days of rented bicycles", "kinds of diamonds", "airfoils in wind"

_AIRFOIL = ["angle_of_attack", "chord_length", "free_stream_velocity", "displacement_thickness"]


def groups(name: str, group: str | Sequence[str], inputs: Sequence[str]) -> dict[str, Any]:
    """Rows of a large table that belong together."""
    options = {"path": f"large/{name}.csv.gz", "group": group, "target": "target", "inputs": inputs}
    return {"name": "groups", "options": options}


FAMILIES: dict[str, dict[str, Any]] = {
    ONE_SCALE: {"name": "functions", "options": {"family": "rbf", "lengthscale": [0.25, 0.25]}},
    **{
        family: {"name": "functions", "options": {"family": family}}
        for family in ("rbf", "matern", "periodic", "weakly_periodic", "mixture")
    },
    "sinusoids": {"name": "sinusoids", "options": {}},
    DAYS: groups("bike_hour", "dteday", ["hr", "workingday", "temp", "weathersit"]),
    DIAMONDS: groups("diamonds", ["cut", "color", "clarity"], ["carat", "depth", "table"]),
    AIRFOILS: groups("airfoil", _AIRFOIL, ["frequency", *_AIRFOIL]),
}

CNP, NP, ANP, CONVCNP = "cnp", "np", "anp", "convcnp"
DKT, SPECTRAL, SEVERAL = "dkt, rbf", "dkt, spectral mixture", "dkt, 32 spectral mixtures"
MEANS = "dkt, 8 kernels and means"
LEARNERS: dict[str, tuple[str, dict[str, Any], int]] = {
    CNP: ("cnp", {}, 12000),
    NP: ("np", {"objective": "likelihood"}, 6000),
    ANP: ("anp", {}, 4500),
    CONVCNP: ("convcnp", {"width": 32}, 4000),
    DKT: ("dkt_regression", {"lengthscale": 0.5}, 2500),
    SPECTRAL: ("dkt_regression", {"kernel": "spectral_mixture"}, 2000),
    SEVERAL: ("dkt_regression", {"kernel": "spectral_mixture", "kernels": 32, "hidden": []}, 500),
    MEANS: ("dkt_regression", {"kernel": "matern52", "kernels": 8, "mean": [64, 64], "hidden": []}, 1500),
}
"""By the name in tables: the learner, its options, and steps of `TASKS_PER_STEP` tasks that take about as long."""

REAL = (DAYS, DIAMONDS, AIRFOILS)
LEFT_OUT = {"sinusoids": (EXACT, MEANS), **dict.fromkeys(REAL, (EXACT, CONVCNP, SEVERAL))}
"""What families have no cells of, as there is no true process, no grid, or a mean; the others have none of `MEANS`."""

CLOSE = {DKT: 0.02, ANP: 0.15}  # nats
COMPARED = (5, 10, 20, 50)  # rows of context, of which learners are compared by the mean


@dataclass(frozen=True)
class FunctionsConfig(CampaignConfig):
    """Settings."""

    learners: tuple[str, ...] = (EXACT, *LEARNERS)
    families: tuple[str, ...] = tuple(FAMILIES)
    seeds: tuple[int, ...] = (0, 1, 2)  # of weights and training tasks; test tasks are always the same
    steps: float = 1.0  # a factor of the steps of `LEARNERS`
    tasks: int = 500  # to test on


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(FunctionsConfig, options)
    check_names("learner", settings.learners, (EXACT, *LEARNERS))
    check_names("family", settings.families, FAMILIES)
    cells = campaign_cells(settings)
    records = settings.records(NAME, cells, partial(run_function_cell, data_root), progress)
    return outcome_of(records, cells, settings)


def campaign_cells(settings: FunctionsConfig) -> list[FunctionCell]:
    """Seed by seed, so that an unfinished campaign compares all learners on some seeds."""
    found = []
    for seed in settings.seeds:
        for family in settings.families:
            for learner in settings.learners:
                data = FAMILIES[family]
                if learner in LEFT_OUT.get(family, (MEANS,)) or (learner == EXACT and seed != settings.seeds[0]):
                    continue
                found.append(
                    FunctionCell(
                        key=f"{slug(learner)}-{slug(family)}-seed{seed}",
                        labels={"functions": family, "learner": learner, "seed": seed},
                        data=data,
                        training=None if learner == EXACT else training_of(learner, data, seed, settings.steps),
                        sizes=SIZES,
                        n_tasks=settings.tasks,
                        targets=50,
                        shown=seed == settings.seeds[0] and family not in REAL,
                    )
                )
    return found


def training_of(learner: str, data: Mapping[str, Any], seed: int, steps: float) -> FunctionTrainingConfig:
    """The settings of one training: Adam at 1e-3 (3e-2 for kernels and noise), 1 to 50 rows of context."""
    name, options, length = LEARNERS[learner]
    training = steps_of(steps * length, TASKS_PER_STEP, seed, learning_rate=1e-3, learning_rate_kernel=3e-2)
    validations = 20 if data["name"] == "groups" else 5  # few functions are soon known by heart
    return FunctionTrainingConfig.from_dict(
        {
            "data": dict(data),
            "episodes": {"context": [1, 50], "targets": 50},
            "learner": {"name": name, "options": options},
            "training": training,
            "validation": {"every": training["episodes"] // validations + 1, "tasks": 200},
        }
    )


def outcome_of(records: Sequence[Mapping[str, Any]], cells: Sequence[Cell], settings: FunctionsConfig) -> Outcome:
    """The page of what is there."""
    return Outcome(
        title="Functions from a few of their values",
        introduction=(
            "Each task is a function, drawn anew: of a Gaussian process with a random length-scale (0.25 in the first "
            "family), period and decay on [-2, 2] with noise of deviation 0.05, or a sinusoid on [-5, 5]. Or it is "
            "real, and a fifth of all test: what is rented in the hours of a day, by hour, temperature, weather and "
            "whether it is a working day (730 days); prices of diamonds of one cut, color and clarity, by size and "
            "shape (271 kinds); how loud an airfoil is, by frequency, size, angle and speed (106 of them). Learners "
            "train on 1 to 50 rows of context, by log density (dkt by that of all rows of a task together), "
            f"{TASKS_PER_STEP} tasks a step; they are tested on {settings.tasks} other tasks that all of them share, "
            "of 50 targets (where there are fewer rows half of them, and the others are context). Beyond the range "
            "both context and targets lie in the range as wide above, where no learner has trained. Densities are "
            "means of the marginal log densities of single rows in nats, deviations have a floor of 0.01, and those of "
            "np are by 32 draws of its latent given the context."
        ),
        tables=tuple(_tables(records, settings)),
        config=settings,
        seeds=settings.seeds,
        findings=(*_findings(records, settings), *unfinished(records, cells), *computed_on(records)),
        pictures=tuple(_pictures(records, settings)),
        verdicts=tuple(_verdicts(records)),
        differences=(
            "Steps are those that a few minutes of one core allow, the last fifth at a tenth of the rate; the papers "
            "train for hours on a GPU.",
            "np is trained by the density of its answers (Foong et al. 2020), not by a bound.",
            f"{SEVERAL} and {MEANS} are in no paper: each task weighs the kernels by their evidence.",
            f"Of real functions a checkpoint is chosen among 20, of others among 5; what {MEANS} has was chosen on "
            "these three tables, by tests of the same kind after a third of the steps, others have their defaults.",
            "cnp, np and anp see inputs also as sines and cosines of 1 to 16 radians a unit.",
            "anp is the path without a latent, convcnp has residual blocks with dilations in place of a U-Net.",
            "What repeats takes convcnp longer than it has here: a view twice as wide, of all training inputs, was no "
            "better on weakly periodic functions after as much time.",
        ),
    )


def _tables(records: Sequence[Mapping[str, Any]], settings: FunctionsConfig) -> list[Table]:
    found = []
    for family in settings.families:
        columns = "Rows are learners, columns rows of context; means over seeds"
        for region in ("inside", "beyond"):
            for score, what, on_page in (
                ("log_density", "log density of a row", True),
                ("below_exact", "nats below the exact process, on the same tasks", region == "inside"),
                ("rmse", "root of the mean squared error", False),
                ("crps", "continuous ranked probability score", False),
                ("coverage 0.9", "share inside intervals of nominal 90 %", region == "inside"),
            ):
                name = f"{slug(family)}-{slug(score)}-{region}".replace("_", "-")
                caption = f"**{family}**, {region} the range: {what}. {columns}."
                table = score_table(records, family, region, score, name, caption, on_page)
                found += [] if table is None else [table]
    return found


def _findings(records: Sequence[Mapping[str, Any]], settings: FunctionsConfig) -> list[str]:
    lines = []
    for family in settings.families:
        parts = by_learner(records, family)
        scores = {name: mean_score(part, "inside", "log_density", COMPARED) for name, part in parts.items()}
        if scores:
            ordered = sorted(scores, key=lambda name: -scores[name])
            told = ", ".join(f"{name} {scores[name]:.3f}" for name in ordered)
            lines.append(f"{family}, mean over contexts of {', '.join(map(str, COMPARED))} rows: {told}.")
    seconds = [
        record["training"]["seconds_of_last_run"] for record in records if FAILED not in record and "training" in record
    ]
    if seconds:
        lines.append(f"A training took {min(seconds):.0f} to {max(seconds):.0f} seconds.")
    return lines


def _verdicts(records: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    found = []
    claims = (
        ("Attention beats the mean.", "Kim et al. 2019, section 4", ANP, CNP, "rbf", "inside"),
        ("Convolutions beat attention.", "Gordon et al. 2020, section 5", CONVCNP, ANP, "rbf", "inside"),
        ("They hold where nothing was trained.", "Gordon et al. 2020, section 5", CONVCNP, ANP, "rbf", "beyond"),
        ("They know what repeats.", "Gordon et al. 2020, section 5", CONVCNP, ANP, "weakly_periodic", "inside"),
    )
    for claim, source, better, worse, family, region in claims:
        parts = by_learner(records, family)
        if better in parts and worse in parts:
            one, other = (mean_score(parts[name], region, "log_density", COMPARED) for name in (better, worse))
            measured = f"{family}, {region}: {better} {one:.3f}, {worse} {other:.3f} nats a row"
            found.append(Verdict(claim, source, measured, one > other))
    for family in FAMILIES:
        parts, ours = by_learner(records, family), MEANS if family in REAL else SEVERAL
        scores = {
            name: mean_score(of, "inside", "log_density", COMPARED) for name, of in parts.items() if name != EXACT
        }
        if ours in scores and len(scores) > 1:
            best = max(scores.keys() - {ours}, key=lambda name: scores[name])
            measured = f"{scores[ours]:.3f} against {scores[best]:.3f} ({best}) nats a row"
            claim = f"{family}: {ours} ahead of every other learner."
            found.append(Verdict(claim, "this project's aim", measured, scores[ours] > scores[best]))
    parts = by_learner(records, ONE_SCALE)
    for name, most in CLOSE.items():
        if name in parts:
            gap = mean_score(parts[name], "inside", "below_exact", COMPARED)
            claim = f"With one kernel for all tasks {name} is near the exact process, to {most} nats."
            found.append(Verdict(claim, "this project's aim", f"{gap:.4f} nats below", gap < most))
    return found


def _pictures(records: Sequence[Mapping[str, Any]], settings: FunctionsConfig) -> list[Picture]:
    found = []
    for family in settings.families:
        if shown := shown_of(records, family):
            caption = (
                f"{family}: one function from {' and '.join(map(str, IN_BANDS))} rows of context (dots): means and "
                "bands of two deviations. The dotted line is where the training's inputs end."
            )
            found.append(Picture(f"bands-{slug(family)}", caption, draw_bands(shown)))
    return found


EXPERIMENT = Experiment(
    NAME, "neural processes, deep kernels and the exact process on drawn functions and real days", True, run
)

"""Images completed from some of their pixels: neural processes on characters and photographs of unseen classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.campaigns.cells import CampaignConfig, Cell, computed_on, unfinished
from experiments.campaigns.functions import FunctionCell, run_function_cell, score_table, shown_of, steps_of
from experiments.campaigns.methods import check_names
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, configure
from sureshot.meta.evaluation.shown import IN_IMAGES
from sureshot.meta.training.config import FunctionTrainingConfig
from sureshot.report.function_plots import draw_completed

NAME = "image-completion"
TASKS_PER_STEP = 8
FLOOR = 0.1  # of deviations, as released: below it a few black pixels outweigh all others, and little else is learnt

SETS: dict[str, dict[str, Any]] = {
    "omniglot": {"name": "images", "options": {"data": "omniglot-vinyals", "options": {"rotations": False}}},
    "miniimagenet32": {"name": "images", "options": {"data": "miniimagenet32"}},
}
_GRID = {"width": 24, "dilations": [1, 1, 2, 2], "floor": FLOOR}
CONVCNP = "convcnp"
LEARNERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "cnp": ("cnp", {"floor": FLOOR}, 5000),
    "np": ("np", {"objective": "likelihood", "floor": FLOOR}, 1500),
    "anp": ("anp", {"blocks": 1, "floor": FLOOR}, 1500),
    CONVCNP: ("convcnp", _GRID, 800),
}
"""As in `experiments.functions.LEARNERS`; a grid of the convolutions has a cell for each pixel."""

_CELLS = {"omniglot": 14.0, "miniimagenet32": 16.0}  # in a unit


@dataclass(frozen=True)
class ImageCompletionConfig(CampaignConfig):
    """Settings."""

    sets: tuple[str, ...] = tuple(SETS)
    learners: tuple[str, ...] = tuple(LEARNERS)
    seeds: tuple[int, ...] = (0, 1, 2)  # of weights and training tasks; test tasks are always the same
    steps: float = 1.0  # a factor of the steps of `LEARNERS`
    tasks: int = 200  # to test on


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(ImageCompletionConfig, options)
    check_names("learner", settings.learners, LEARNERS)
    check_names("set", settings.sets, SETS)
    cells = campaign_cells(settings)
    records = settings.records(NAME, cells, partial(run_function_cell, data_root), progress)
    return outcome_of(records, cells, settings)


def campaign_cells(settings: ImageCompletionConfig) -> list[FunctionCell]:
    """Seed by seed."""
    return [
        FunctionCell(
            key=f"{learner}-{images}-seed{seed}",
            labels={"functions": images, "learner": learner, "seed": seed},
            data=SETS[images],
            training=training_of(learner, images, seed, settings.steps),
            sizes=IN_IMAGES,
            n_tasks=settings.tasks,
            targets=100,
            shown=seed == settings.seeds[0],
        )
        for seed in settings.seeds
        for images in settings.sets
        for learner in settings.learners
    ]


def training_of(learner: str, images: str, seed: int, steps: float) -> FunctionTrainingConfig:
    """The settings of one training: Adam at 1e-3, 1 to 300 pixels of context, 100 of the others to predict."""
    name, options, length = LEARNERS[learner]
    training = steps_of(steps * length, TASKS_PER_STEP, seed)
    grid = {"points_per_unit": _CELLS[images]} if learner == CONVCNP else {}
    return FunctionTrainingConfig.from_dict(
        {
            "data": SETS[images],
            "episodes": {"context": [1, 300], "targets": 100},
            "learner": {"name": name, "options": options | grid},
            "training": training,
            "validation": {"every": training["episodes"] // 3 + 1, "tasks": 50},
        }
    )


def outcome_of(records: Sequence[Mapping[str, Any]], cells: Sequence[Cell], settings: ImageCompletionConfig) -> Outcome:
    """The page of what is there."""
    return Outcome(
        title="Images from some of their pixels",
        introduction=(
            "An image is a function from places in [-1, 1]^2 to intensities in [0, 1]: one of Omniglot's characters, "
            "three of mini-ImageNet's photographs at 32 pixels. Classes that test are others than those that train. "
            "Learners train on 1 to 300 random pixels of context and 100 others as targets, and are tested so on "
            f"{settings.tasks} images. Densities are of pixels by themselves, of all channels, with a floor of "
            f"{FLOOR} for deviations, which bounds a density by {-math.log(FLOOR) - 0.5 * math.log(2 * math.pi):.2f} "
            "nats a channel."
        ),
        tables=tuple(_tables(records, settings)),
        config=settings,
        seeds=settings.seeds,
        findings=(*unfinished(records, cells), *computed_on(records)),
        pictures=tuple(_pictures(records, settings)),
        differences=(
            "Steps are those that a few minutes of one core allow; the papers train for hours on a GPU.",
            "np is trained by the density of its answers (Foong et al. 2020), not by a bound.",
            "cnp, np and anp see places also as sines and cosines of 1 to 16 radians a unit.",
        ),
    )


def _tables(records: Sequence[Mapping[str, Any]], settings: ImageCompletionConfig) -> list[Table]:
    found = []
    for images in settings.sets:
        for score, what in (
            ("log_density", "log density of a pixel, nats"),
            ("rmse", "root of the mean squared error of intensities"),
            ("crps", "continuous ranked probability score"),
            ("coverage 0.9", "share inside intervals of nominal 90 %"),
        ):
            caption = f"**{images}**: {what}. Rows are learners, columns pixels of context; means over seeds."
            name = f"{images}-{score.replace(' ', '-').replace('_', '-').replace('.', '')}"
            table = score_table(records, images, "inside", score, name, caption)
            found += [] if table is None else [table]
    return found


def _pictures(records: Sequence[Mapping[str, Any]], settings: ImageCompletionConfig) -> list[Picture]:
    found = []
    for images in settings.sets:
        if shown := shown_of(records, images):
            sizes = ", ".join(map(str, IN_IMAGES))
            caption = f"{images}: an image of a new class, completed from {sizes} and all pixels; what was seen on top."
            found.append(Picture(f"completed-{images}", caption, draw_completed(shown)))
    return found


EXPERIMENT = Experiment(NAME, "neural processes complete characters and photographs of new classes", True, run)

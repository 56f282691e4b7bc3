"""Few-shot learners on sentence embeddings: meta-trained on 75 intents, tested on the 75 others.

All learners and all kernels at 5-way; at 75-way (all test intents at once) those whose inference is deterministic, with
the cosine kernel, trained on tasks of thirty intents. A campaign whose cells take seconds to minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.few_shot import Examination, FewShotCell, data_loader, run_few_shot
from experiments.campaigns.grids import (
    EMBEDDING_LEARNERS,
    KERNELS,
    SAMPLED,
    SAMPLED_TASKS,
    check_grid,
    embedding_cell,
)
from experiments.campaigns.methods import check_names
from experiments.campaigns.report import campaign_outcome
from experiments.experiment import Experiment, Outcome, Progress, configure
from sureshot.meta.learners import GP_LEARNER_NAMES
from sureshot.meta.protocols import EpisodeProtocol

NAME = "clinc150-transfer"
N_BASE = 75
N_VALIDATION = 30
LARGEST_TRAINING_WAY = 30
WAYS = (5, 75)


@dataclass(frozen=True)
class Clinc150TransferConfig(CampaignConfig):
    """Settings."""

    budget: str = "standard"
    learners: tuple[str, ...] = EMBEDDING_LEARNERS
    kernels: tuple[str, ...] = KERNELS
    ways: tuple[int, ...] = WAYS
    shots: tuple[int, ...] = (1, 5)
    seeds: tuple[int, ...] = (0, 1, 2)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(Clinc150TransferConfig, options)
    check_grid(settings.budget, settings.learners, settings.kernels)
    check_names("learner for embeddings", settings.learners, EMBEDDING_LEARNERS)
    if not set(settings.ways) <= set(WAYS):
        raise ValueError(f"ways must be of {list(WAYS)}, got {list(settings.ways)}")
    cells = campaign_cells(settings)
    run_cell = partial(run_few_shot, data_loader(data_root))
    records = settings.records(NAME, cells, run_cell, progress)
    return campaign_outcome(
        title="Few-shot learning on sentence embeddings: 75 intents teach, 75 others test",
        introduction=(
            f"CLINC150, embeddings of all-MiniLM-L6-v2, 150 queries of each intent. {N_BASE} base intents, "
            f"of which {N_VALIDATION} choose checkpoints and temperatures, and the other 75 for tests, by seed. Every "
            "learner has the same linear projection of the embeddings, which starts as the identity, and meets the "
            "same tasks. 5-way: 15 queries of each class; 75-way: 5 queries of each, learners trained on tasks of "
            f"{LARGEST_TRAINING_WAY} intents. Intervals are between seeds (of intents, training and tasks)."
        ),
        records=records,
        cells=cells,
        results=Path(settings.results) / NAME,
        settings=settings,
        seeds=settings.seeds,
        published=None,
        recommended="ove_mean_field_pl",
        differences=(
            "No paper has this experiment.",
            f"Gibbs learners are tested on fewer tasks ({SAMPLED_TASKS}), for time, and not at 75 ways: twenty chains "
            "of 75 classes take minutes for a task.",
            "Baseline++ and feature transfer train on single embeddings of all base intents, as published.",
            "Relation networks compare feature maps, which embeddings do not have: they are left out. Learners that "
            "adapt a network or its last layer by gradient steps have our settings and longer steps, as the "
            "embeddings have length one.",
        ),
    )


def campaign_cells(settings: Clinc150TransferConfig) -> list[FewShotCell]:
    """The grid: first every learner with its first kernel at every way, then the other kernels."""
    cells = []
    for place, kernel in enumerate(settings.kernels):
        for way in settings.ways:
            for shots in settings.shots:
                for learner in settings.learners:
                    sampled = learner in SAMPLED
                    if (place > 0 and (learner not in GP_LEARNER_NAMES or way > 5)) or (way > 5 and sampled):
                        continue
                    cells += [
                        embedding_cell(
                            "clinc150",
                            learner,
                            way=min(way, LARGEST_TRAINING_WAY),
                            examination=_examination(way, shots, sampled),
                            shots=shots,
                            seed=seed,
                            budget=settings.budget,
                            kernel=kernel,
                            data_options={"n_base": N_BASE, "n_val": N_VALIDATION, "seed": seed},
                        )
                        for seed in settings.seeds
                    ]
    return cells


def _examination(way: int, shots: int, sampled: bool) -> Examination:
    name = f"{way}-way {shots}-shot"
    if way > 5:
        return Examination(name, EpisodeProtocol(way, shots, 5), n_tasks=20, out_of_episode=0, robustness=0)
    protocol = EpisodeProtocol(way, shots, 15)
    if sampled:
        n = SAMPLED_TASKS
        return Examination(name, protocol, n, out_of_episode=n // 2, robustness=0, validation_tasks=n)
    return Examination(name, protocol, n_tasks=600, out_of_episode=300, robustness=0)


EXPERIMENT = Experiment(NAME, "seventeen few-shot learners, seven kernels, from 75 intents to 75 others", True, run)

"""Which part of CDKT's training matters: every switch on and off around the paper's preset, on validation classes.

Nothing is chosen by the results, and no test class is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.few_shot import FewShotCell, Load, data_loader, train_cell
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from sureshot.meta.evaluation import evaluate
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training import TrainingConfig, load_learner, read_log

NAME = "cdkt-switches"
DATA = {"miniimagenet32": "mini-ImageNet at 32 pixels", "omniglot-choice": "Omniglot to CHoiCe"}
SHOTS, TASKS = 5, 500

PAPER = {"warm_start": True, "covariance_first": True}
"""Algorithm 1 of the paper, where tasks start and the order of the updates: as in the preset "paper", written out."""

VARIANTS: dict[str, dict[str, Any]] = {
    "algorithm 1": {},
    "cold start": {"warm_start": False},
    "omega before Sigma": {"covariance_first": False},
    "first shapes drawn from 5 to 10": {"random_shapes": True},
    "f~ detached": {"detach_tilting": True},
    "released bound": {"released_bound": True},
    "all three of the released code": {"random_shapes": True, "detach_tilting": True, "released_bound": True},
    "inner loop detached": {"detach_inner": True},
    "steps until convergence": {"n_steps": 50, "tolerance": 1e-3},
    "negative-multinomial augmentation": {"augmentation": "negative_multinomial"},
    "temperature 1": {"temperature": 1.0},
    "prior mean -5 in training": {"prior_mean": -5.0},
    "prior mean -5 in training, cold start": {"prior_mean": -5.0, "warm_start": False},
    "prior mean -5 in training, cold start, negative-multinomial": {
        "prior_mean": -5.0,
        "warm_start": False,
        "augmentation": "negative_multinomial",
    },
    "the same at temperature 1": {
        "prior_mean": -5.0,
        "warm_start": False,
        "augmentation": "negative_multinomial",
        "temperature": 1.0,
    },
    "batch-normalised embeddings": {"batch_norm": True},
}
"""What every row of the table changes in `PAPER`."""

OTHERS = {
    "recommended": ("cdkt_ml", "recommended"),
    "deep kernel transfer": ("dkt", "paper"),
}
"""Learner and preset of the rows that are no change of it."""


@dataclass(frozen=True)
class SwitchesConfig(CampaignConfig):
    """Settings; `results` and `checkpoints` are folders, as in `ImageCampaignConfig`."""

    data: tuple[str, ...] = tuple(DATA)
    variants: tuple[str, ...] = (*VARIANTS, *OTHERS)
    episodes: int = 2000
    seeds: tuple[int, ...] = (0,)


def cell_of(data: str, variant: str, episodes: int, seed: int) -> FewShotCell:
    """One training, at the learning rates of the paper."""
    learner, preset = OTHERS.get(variant, ("cdkt_ml", "paper"))
    training = TrainingConfig.from_dict(
        {
            "data": {"name": data},
            "episodes": {"way": 5, "shots": SHOTS, "queries": 15 if data == "omniglot-choice" else 16},
            "backbone": {"name": "conv4"},
            "learner": {
                "name": learner,
                "preset": preset,
                "kernel": "cosine",
                "options": PAPER | VARIANTS[variant] if variant in VARIANTS else {},
            },
            "training": {
                "episodes": episodes,
                "learning_rate": 1e-3,
                "learning_rate_kernel": 1e-4,
                "seed": seed,
                "log_every": 100,
            },
            "validation": {"every": 500, "tasks": 200},
        }
    )
    name = "-".join("".join(c if c.isalnum() else " " for c in variant).split())
    return FewShotCell(
        key=f"{data}-{name}-seed{seed}-{episodes}",
        labels={"data": data, "variant": variant, "seed": seed},
        training=training,
        examinations=(),
    )


def run_cell(load: Load, cell: FewShotCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Train, and score what training ended with on validation tasks."""
    data = load(cell.training.data.name, cell.training.data.options)
    trained = train_cell(data, cell, folder, progress)
    found = evaluate(load_learner(trained.last), data.val, EpisodeProtocol(5, SHOTS, 15), n_tasks=TASKS, seed=1)
    losses = [record["loss"] for record in read_log(folder) if record["kind"] == "training"]
    return {
        "accuracy": found.accuracy.mean,
        "accuracy_error": found.accuracy.standard_error,
        "nll": found.calibration["none"].nll.mean,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "seconds": trained.seconds,
    }


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the table of those that are there."""
    settings = configure(SwitchesConfig, options)
    cells = [
        cell_of(data, variant, settings.episodes, seed)
        for data in settings.data
        for variant in settings.variants
        for seed in settings.seeds
    ]
    run_one = partial(run_cell, data_loader(data_root))
    records = settings.records(NAME, cells, run_one, progress)
    frame = pd.DataFrame([row_of(record) for record in records])
    if frame.empty:
        raise ValueError("no training has a result yet, so there is nothing to compare")
    missing = len(cells) - len(records)
    return Outcome(
        title="Which part of CDKT's training matters",
        introduction=(
            f"`cdkt_ml` 5-way {SHOTS}-shot with Conv4 and the cosine kernel after {settings.episodes} episodes, as its "
            "paper has it (Poisson-Gamma augmentation, temperature 0.2, two warm steps, prior mean 0 in training and "
            f"-5 in use) and with one thing changed at a time; scores on {TASKS} tasks of *validation* classes, of "
            "what the training ended with. Losses are nats for each row; log 5 is 1.609."
        ),
        tables=tuple(
            Table(
                f"cdkt-switches-{data}",
                f"{DATA[data]}.",
                frame[frame["data"] == data].drop(columns="data").reset_index(drop=True),
            )
            for data in settings.data
            if (frame["data"] == data).any()
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(f"{missing} of {len(cells)} trainings are missing.",) if missing else (),
        verdicts=tuple(_verdicts(frame)),
        differences=("2000 training episodes instead of 40,000; scores are of validation classes.",),
    )


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table; a training that broke down has no scores."""
    labels = record["labels"]
    row: dict[str, Any] = {"data": labels["data"], "variant": labels["variant"], "seed": labels["seed"]}
    if FAILED in record:
        return row | {"note": "diverged"}
    return row | {
        "accuracy": record["accuracy"],
        "se": record["accuracy_error"],
        "NLL": record["nll"],
        "first loss": record["first_loss"],
        "last loss": record["last_loss"],
        "minutes": record["seconds"] / 60,
    }


def _verdicts(frame: pd.DataFrame) -> list[Verdict]:
    """Of the paper's fifth contribution, and of what it rests on here."""
    found: list[Verdict] = []
    if "accuracy" not in frame:
        return found
    for data, part in frame.groupby("data", sort=False):
        accuracy = part.groupby("variant")["accuracy"].mean().dropna()
        if {"algorithm 1", "inner loop detached"} <= set(accuracy.index):
            attached, detached = accuracy["algorithm 1"], accuracy["inner loop detached"]
            found.append(
                Verdict(
                    claim=f"{DATA[str(data)]}: detaching the inner loop leads to a collapse",
                    source="Ke et al. 2023, section 5 and appendix VIII",
                    measured=f"accuracy {attached:.3f} attached, {detached:.3f} detached; chance is 0.200",
                    holds=bool(detached < attached - 0.05),
                )
            )
        if {"algorithm 1", "cold start"} <= set(accuracy.index):
            found.append(
                Verdict(
                    claim=f"{DATA[str(data)]}: two steps suffice from a warm start, and not from a cold one",
                    source="Ke et al. 2023, algorithm 1 and section 5.1",
                    measured=f"accuracy {accuracy['algorithm 1']:.3f} warm, {accuracy['cold start']:.3f} cold",
                    holds=bool(accuracy["algorithm 1"] > accuracy["cold start"] + 0.05),
                )
            )
    return found


EXPERIMENT = Experiment(NAME, "CDKT's training with every switch on and off (validation classes)", True, run)

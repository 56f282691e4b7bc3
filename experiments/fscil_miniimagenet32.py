"""Classes that arrive in sessions, photographs: inference on frozen features beside networks that go on learning.

mini-ImageNet by Tao et al.'s sessions, at 32 pixels. A campaign (see `experiments.campaigns`) whose cells depend on one
another: one softmax stage that all methods share; what continues it in the base session, one branch for each kind of
network; then every method through all sessions, with the branch that is its own.

    python -m experiments fscil-miniimagenet32 --data FOLDER --budget trial
    python -m experiments fscil-miniimagenet32 --data FOLDER
    python -m experiments fscil-miniimagenet32 --data FOLDER --budget cub --set device=cuda
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, run_cells
from experiments.campaigns.deep import STAGE, DeepCell, run_deep
from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from sureshot.data.train_test import load_train_test
from sureshot.deep import ClassifierSettings

NAME = "fscil-miniimagenet32"


@dataclass(frozen=True)
class Budget:
    """Which photographs, how large the network is, and how long it is trained."""

    data: str  # one of `sureshot.incremental.session_data.SESSION_NAMES`
    base: str  # its base classes, one of `sureshot.data.train_test.TRAIN_TEST_NAMES`
    backbone: Mapping[str, Any]
    stage: ClassifierSettings  # of the softmax stage
    branch: int  # epochs of each branch after it
    branch_rate: float  # learning rate of the branches
    milestones: tuple[int, ...]  # of a branch, in its epochs
    validation: float  # of the training rows of each base class, kept aside


_STAGE = ClassifierSettings(
    epochs=40,
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    milestones=(),
    crop=4,
    flip=True,
    precision="bfloat16",
)
"""The first 40 of the paper's 100 epochs, at its rate."""

_MINI = ("miniimagenet32", "miniimagenet32-base")

BUDGETS = {
    # The paper's: rates fall at epochs 40 and 60 of 100.
    "full": Budget(*_MINI, {"name": "resnet18", "n_features": 512}, _STAGE, 60, 0.01, (20,), 0.05),
    "small": Budget(
        *_MINI,
        {"name": "resnet18", "stem": "cifar", "width": 0.5, "n_features": 256},
        _STAGE,
        branch=20,
        branch_rate=0.01,
        milestones=(14,),
        validation=0.05,
    ),
    "trial": Budget(
        *_MINI,
        {"name": "conv4", "n_filters": 16},
        replace(_STAGE, epochs=2, precision="float32"),
        branch=2,
        branch_rate=0.01,
        milestones=(1,),
        validation=0.05,
    ),
    # The paper's, but for its network, which ImageNet had trained: two photographs of a class (of 30) are kept aside.
    "cub": Budget(
        "cub",
        "cub-base",
        {"name": "resnet18", "n_features": 512},
        replace(_STAGE, epochs=20, learning_rate=0.01, crop=8),
        branch=80,
        branch_rate=0.01,
        milestones=(20, 40),
        validation=0.067,
    ),
}

BRANCHES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "class_tree": {"per_class": 5},
    "cosine_proxies": {},
    "triplet": {},
}
"""Deep classifiers that continue the stage, with their options."""

_OWN_RATES = {"cosine_proxies": 0.1}
"""Of parameters that are no weights of the network, where they are not the network's: a scale has far to go."""


@dataclass(frozen=True)
class FscilMiniImageNet32Config:
    """Settings.

    Attributes
    ----------
    budget : {"small", "trial", "full", "cub"}
        ``full`` and ``cub`` are the paper's trainings; ``trial`` shows in minutes on a CPU that everything runs.
    branches : tuple of str
        Of `BRANCHES`.
    seeds : tuple of int
        A seed fixes rows kept aside, initial weights, order of rows and whatever methods draw; classes, shots and test
        photographs are those of the lists.
    device : str
    results, checkpoints : str
        Folders of the cells' results and checkpoints; the campaign has one of its name in each.
    train : bool
        False makes the tables from the results that are there, running nothing.
    """

    budget: str = "small"
    branches: tuple[str, ...] = tuple(BRANCHES)
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    results: str = "docs/results/cells"
    checkpoints: str = "campaigns"
    train: bool = True


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(FscilMiniImageNet32Config, options)
    for name, values, known in (("budget", (settings.budget,), BUDGETS), ("branches", settings.branches, BRANCHES)):
        if unknown := [value for value in values if value not in known]:
            raise ValueError(f"{name}: {unknown[0]!r} is unknown; choose of {', '.join(known)}")
    results, checkpoints = Path(settings.results) / NAME, Path(settings.checkpoints) / NAME
    load = lru_cache(maxsize=1)(partial(load_train_test, root=data_root))

    def run_some(cells: Sequence[DeepCell], begin: float, end: float) -> list[dict[str, Any]]:
        def tell(what: str, fraction: float) -> None:
            progress(what, begin + (end - begin) * fraction)

        run_cell = partial(run_deep, load, settings.device)
        return run_cells(cells, results, checkpoints, run_cell, tell, settings.train)

    stages = [stage_cell(settings.budget, seed) for seed in settings.seeds]
    records = run_some(stages, 0.0, 0.3)
    begun = {record["key"] for record in records if FAILED not in record}
    branches = [branch_cell(branch, settings.budget, seed) for seed in settings.seeds for branch in settings.branches]
    records += run_some([cell for cell in branches if cell.stage is not None and cell.stage.key in begun], 0.3, 0.7)
    return outcome_of(records, settings)


def outcome_of(records: Sequence[Mapping[str, Any]], settings: FscilMiniImageNet32Config) -> Outcome:
    """The page, of what is there; ValueError if nothing is."""
    scored = [record for record in records if FAILED not in record]
    if not scored:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    return Outcome(
        title="Classes in sessions on photographs: mini-ImageNet",
        introduction="",
        tables=(Table("networks", _NETWORKS, network_frame(scored), digits=3),),
        config=settings,
        seeds=settings.seeds,
        findings=(),
    )


def network_frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each network that the base session has trained."""
    return pd.DataFrame(
        [
            {
                "network": record["labels"]["method"],
                "seed": record["labels"]["seed"],
                "accuracy": record["scores"]["accuracy"],
                "nll (T)": record["scores_at_temperature"]["nll"],
                "ece (T)": record["scores_at_temperature"]["ece"],
                "epochs": record["training"]["epochs"],
                "best epoch": record["training"]["best_epoch"],
            }
            for record in records
        ]
    )


def stage_cell(budget: str = "small", seed: int = 0) -> DeepCell:
    """The softmax stage that all methods share."""
    chosen = BUDGETS[budget]
    labels: dict[str, str | int] = {"method": STAGE, "seed": seed, "dataset": chosen.data, "budget": budget}
    training = replace(chosen.stage, seed=seed)
    key = f"{_prefix(budget)}stage-seed{seed}"
    return DeepCell(key, labels, chosen.base, STAGE, {}, chosen.backbone, training, None, chosen.validation)


def branch_cell(method: str, budget: str = "small", seed: int = 0) -> DeepCell:
    """What continues the stage in the base session by one kind of network."""
    chosen, stage = BUDGETS[budget], stage_cell(budget, seed)
    training = replace(
        stage.training,
        epochs=chosen.branch,
        learning_rate=chosen.branch_rate,
        own_learning_rate=_OWN_RATES.get(method),
        milestones=chosen.milestones,
    )
    labels, key = stage.labels | {"method": method}, f"{_prefix(budget)}{method}-seed{seed}"
    options = BRANCHES[method]
    return DeepCell(key, labels, chosen.base, method, options, stage.backbone, training, stage, chosen.validation)


def _prefix(budget: str) -> str:
    return "" if budget == "small" else f"{budget}-"


_NETWORKS = (
    "Networks after the base session, each with its own way to predict: accuracy on test photographs of the base "
    "classes, negative log-likelihood and calibration error after one temperature fitted on rows kept aside; epochs "
    "of this stage, and the one chosen by accuracy on these rows."
)

EXPERIMENT = Experiment(NAME, "methods for classes that arrive in sessions, on photographs", True, run)

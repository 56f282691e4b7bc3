"""Many classes by one network: the class tree against softmax, robust max and feature grids, from one softmax stage.

The comparison of Achituve et al. (2021), section 5.2: a residual network is trained with softmax for some epochs, then
goes on as one of four classifiers. A campaign (see `experiments.campaigns`): for every data set and seed one cell for
the softmax stage, and one for each method that continues it.

    python -m experiments deep-tree --data FOLDER --set budget=trial
    python -m experiments deep-tree --data FOLDER --set 'datasets=["cifar10"]' --budget full --set device=cuda
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, CampaignConfig, computed_on
from experiments.campaigns.deep import STAGE, DeepCell, run_deep
from experiments.campaigns.methods import check_names
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.train_test import TRAIN_TEST_NAMES, load_train_test
from sureshot.deep import ClassifierSettings
from sureshot.networks.precision import Precision

NAME = "deep-tree"
GRIDS = "grid_interpolation"
METHODS = ("softmax", "class_tree", "robust_max", GRIDS)
VALIDATION = 0.1
MANY_CLASSES = {"cifar100", "omniglot-drawers"}
EPOCHS = {"omniglot-drawers": 5}
"""How many epochs are counted as one, where classes have few rows: 1300 drawings are a seventh of CIFAR's subset."""


@dataclass(frozen=True)
class Budget:
    """The size of the network, and the length of its training."""

    backbone: Mapping[str, Any]
    stage: int  # epochs of the softmax stage
    branch: int  # epochs of each method after it
    milestones: tuple[int, ...]  # of a branch, in its epochs
    batch_size: int = 256
    inducing: int = 40  # points of each class
    grid: int = 64
    precision: Precision = "float32"


BUDGETS = {
    # The paper's: 80 epochs of 200 with softmax; rates fall at epochs 100 and 150.
    "full": Budget({"name": "resnet18", "stem": "cifar", "n_features": 1024}, 80, 120, (20, 70)),
    "standard": Budget(
        {"name": "resnet18", "stem": "cifar", "width": 0.5, "n_features": 256},
        20,
        30,
        (15, 25),
        inducing=20,
        precision="bfloat16",
    ),
    "trial": Budget({"name": "conv4", "n_filters": 16}, 4, 4, (3,), batch_size=64, inducing=5),
}


@dataclass(frozen=True)
class Method:
    """How a method's branch is trained; initial learning rates, which milestones reduce."""

    optimiser: str
    learning_rate: float
    own_learning_rate: float | None
    options: Mapping[str, str] = field(default_factory=dict)  # by name, of which field of the budget


_TRAINING = {
    "softmax": Method("sgd", 0.01, None),
    "class_tree": Method("sgd", 0.01, None, {"per_class": "inducing"}),
    "robust_max": Method("adam", 1e-3, 1e-2, {"per_class": "inducing"}),
    "grid_interpolation": Method("adam", 1e-3, 1e-1, {"grid_size": "grid"}),
}


@dataclass(frozen=True)
class DeepTreeConfig(CampaignConfig):
    """Settings."""

    # ``full`` is the paper's; ``trial`` shows in minutes on a CPU that everything learns ("trial", "standard", "full")
    budget: str = "standard"
    datasets: tuple[str, ...] = ("cifar10-subset", "omniglot-drawers")  # of `experiments.train_test.TRAIN_TEST_NAMES`
    methods: tuple[str, ...] = METHODS
    # A seed fixes rows kept aside, initial weights, order of rows, tree and inducing points
    seeds: tuple[int, ...] = (0,)
    # further numbers of points of feature grids, compared in a table of their own with the budget's 64, where a data
    # set and seed has several of them; the paper searches 64, 128 and 256
    grids: tuple[int, ...] = ()
    device: str = "cpu"
    beside: tuple[str, ...] = ()  # further budgets, of whose cells the tables show those that are there


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the table of all that are there."""
    settings = configure(DeepTreeConfig, options)
    check_names("budget", (settings.budget, *settings.beside), BUDGETS)
    check_names("data set", settings.datasets, TRAIN_TEST_NAMES)
    check_names("method", settings.methods, METHODS)
    load = lru_cache(maxsize=1)(partial(load_train_test, root=data_root))
    run_cell = partial(run_deep, load, settings.device)

    def run_some(cells: Sequence[DeepCell], begin: float, end: float, train: bool = True) -> list[dict[str, Any]]:
        def tell(what: str, fraction: float) -> None:
            progress(what, begin + (end - begin) * fraction)

        return settings.records(NAME, cells, run_cell, tell, train)

    stages = stage_cells(settings)
    records = run_some(stages, 0.0, 0.2)
    begun = {record["key"] for record in records if FAILED not in record}
    branches = branch_cells(stages, settings)
    records += run_some([cell for cell in branches if _stage_of(cell) in begun], 0.2, 0.9)
    finer = [branch_cell(stage, GRIDS, settings, grid) for stage in stages for grid in settings.grids]
    of_grids = run_some([cell for cell in finer if _stage_of(cell) in begun], 0.9, 1.0)
    for budget in settings.beside:
        other = replace(settings, budget=budget)
        records += run_some([*stage_cells(other), *branch_cells(stage_cells(other), other)], 1.0, 1.0, train=False)
    return outcome(records, [*stages, *branches], settings, of_grids)


def _stage_of(cell: DeepCell) -> str:
    assert cell.stage is not None
    return cell.stage.key


def stage_cells(settings: DeepTreeConfig) -> list[DeepCell]:
    """The softmax stage of every data set and seed."""
    return [stage_cell(data, seed, settings) for data in settings.datasets for seed in settings.seeds]


def branch_cells(stages: Sequence[DeepCell], settings: DeepTreeConfig) -> list[DeepCell]:
    """What continues them, by each method."""
    return [branch_cell(stage, method, settings) for stage in stages for method in settings.methods]


def stage_cell(data: str, seed: int, settings: DeepTreeConfig) -> DeepCell:
    """The softmax stage of a data set and seed."""
    budget = BUDGETS[settings.budget]
    drawings = data.startswith("omniglot")
    training = ClassifierSettings(
        epochs=budget.stage * EPOCHS.get(data, 1),
        batch_size=budget.batch_size,
        precision=budget.precision,
        learning_rate=0.1,
        weight_decay=5e-4,
        milestones=(),
        crop=2 if drawings else 4,
        flip=not drawings,
        seed=seed,
    )
    labels: dict[str, str | int] = {"dataset": data, "method": STAGE, "seed": seed, "budget": settings.budget}
    key = f"{data}-stage-seed{seed}-{settings.budget}"
    return DeepCell(key, labels, data, STAGE, {}, budget.backbone, training, None, VALIDATION)


def branch_cell(stage: DeepCell, method: str, settings: DeepTreeConfig, grid: int | None = None) -> DeepCell:
    """What continues a stage by one method; `grid` points in place of the budget's, of feature grids."""
    budget, how, several = BUDGETS[settings.budget], _TRAINING[method], EPOCHS.get(stage.data, 1)
    training = replace(
        stage.training,
        epochs=budget.branch * several,
        optimiser=how.optimiser,  # type: ignore[arg-type]
        learning_rate=how.learning_rate,
        own_learning_rate=how.own_learning_rate,
        weight_decay=stage.training.weight_decay if how.optimiser == "sgd" else 0.0,
        milestones=tuple(epoch * several for epoch in budget.milestones),
    )
    options: dict[str, Any] = {name: getattr(budget, source) for name, source in how.options.items()}
    if method == "robust_max":
        options["full_covariance"] = stage.data not in MANY_CLASSES
    key = f"{stage.data}-{method}-seed{stage.labels['seed']}-{settings.budget}"
    if grid is not None:
        options["grid_size"] = grid
        key += f"-grid{grid}"
    labels = stage.labels | {"method": method}
    return DeepCell(key, labels, stage.data, method, options, stage.backbone, training, stage, VALIDATION)


def outcome(
    records: Sequence[dict[str, Any]],
    cells: Sequence[DeepCell],
    settings: DeepTreeConfig,
    of_grids: Sequence[dict[str, Any]] = (),  # records of further numbers of points
) -> Outcome:
    """The page of all results so far."""
    scored, of_sizes = ([record for record in part if FAILED not in record] for part in (records, of_grids))
    if not scored:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    frame = score_frame(scored)
    done = {record["key"] for record in records}
    at_budget = sum(record["labels"]["budget"] == settings.budget for record in scored)
    findings = [f"{at_budget} of {len(cells)} cells have a result.", *computed_on([*scored, *of_sizes])]
    findings += [f"`{record['key']}` failed: {record[FAILED]}" for record in (*records, *of_grids) if FAILED in record]
    if missing := [cell.key for cell in cells if cell.key not in done]:
        findings.append(f"Not run: {', '.join(f'`{key}`' for key in missing)}.")
    return Outcome(
        title="Many classes by one network",
        introduction=(
            "A network is trained with softmax for some epochs (the softmax stage), then goes on with one of four "
            f"classifiers for the same number of epochs. {VALIDATION:.0%} of the training rows of each class are kept "
            "aside: by their accuracy the epoch is chosen, and to them the temperature of the columns T is fitted. "
            "All methods of a data set and seed have the same rows, the same stage and the same order of batches."
        ),
        tables=(Table("scores", _CAPTION, frame, digits=4), *grid_tables([*scored, *of_sizes])),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(findings),
        verdicts=verdicts(scored),
        differences=_DIFFERENCES,
    )


def score_frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row for each data set, budget and method: means over seeds."""
    rows = [
        {
            **{name: record["labels"][name] for name in ("dataset", "budget", "method")},
            "accuracy": record["scores"]["accuracy"],
            "se": record["scores"]["accuracy_se"],
            "nll": record["scores"]["nll"],
            "ece": record["scores"]["ece"],
            "nll (T)": record["scores_at_temperature"]["nll"],
            "ece (T)": record["scores_at_temperature"]["ece"],
            "epochs": record["training"]["epochs"],
            "best epoch": record["training"]["best_epoch"],
            "s/epoch": record["training"]["seconds_per_epoch"],
        }
        for record in records
    ]
    frame = pd.DataFrame(rows).astype({"s/epoch": float})
    groups = frame.groupby(["dataset", "budget", "method"], sort=False)
    summary = groups.mean().reset_index()
    summary.insert(3, "seeds", groups.size().to_numpy())
    if (summary["seeds"] > 1).any():  # then the spread between seeds says more than that of test rows
        spread = (groups["accuracy"].std() / groups.size() ** 0.5).to_numpy()
        summary["se"] = summary["se"].where(summary["seeds"] == 1, spread)
    summary[["epochs", "best epoch"]] = summary[["epochs", "best epoch"]].round().astype(int)
    places = {name: place for place, name in enumerate(dict.fromkeys(frame["dataset"]))}
    return summary.sort_values("dataset", key=lambda column: column.map(places), kind="stable", ignore_index=True)


def grid_tables(records: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Feature grids by their points, of data sets, budgets and seeds that have several; nothing where none has."""
    rows = [
        {
            **{name: record["labels"][name] for name in ("dataset", "budget", "seed")},
            "points": record["settings"]["options"]["grid_size"],
            "validation": record["training"]["validation"]["accuracy"],
            **{name: record["scores"][name] for name in ("accuracy", "nll", "ece")},
            **{f"{name} (T)": record["scores_at_temperature"][name] for name in ("nll", "ece")},
        }
        for record in records
        if record["labels"]["method"] == GRIDS
    ]
    if not rows:
        return ()
    frame = pd.DataFrame(rows)
    one = ["dataset", "budget", "seed"]
    several = frame.groupby(one)["points"].transform("size") > 1
    frame = frame[several].sort_values([*one, "points"], ignore_index=True)
    return (Table("grids", _GRIDS_CAPTION, frame, digits=4),) if len(frame) else ()


def verdicts(records: Sequence[Mapping[str, Any]]) -> tuple[Verdict, ...]:
    """Claims of the paper, as far as both sides have results."""
    found, frame = [], score_frame(records)
    every = pd.DataFrame([{**record["labels"], "accuracy": record["scores"]["accuracy"]} for record in records])
    for (dataset, budget), part in frame.groupby(["dataset", "budget"], sort=False):
        by = part.set_index("method")["accuracy"]
        if "class_tree" not in by:
            continue
        others = [name for name in ("robust_max", "grid_interpolation") if name in by]
        if others:
            measured = ", ".join(f"{name} {by[name]:.3f}" for name in ("class_tree", *others))
            best = str(by[others].idxmax())
            own = every[(every["dataset"] == dataset) & (every["budget"] == budget)]
            by_seed = own.pivot(index="seed", columns="method", values="accuracy")
            apart = (by_seed["class_tree"] - by_seed[best]).dropna().to_numpy()
            if len(apart) > 1:
                error = apart.std(ddof=1) / len(apart) ** 0.5
                measured += f"; class_tree less {best} by seeds {apart.mean():+.3f} ± {error:.3f}"
            found.append(
                Verdict(
                    f"the class tree is the most accurate of the Gaussian processes ({dataset}, {budget})",
                    "Achituve et al. 2021, section 5.2",
                    measured,
                    bool(by["class_tree"] >= by[others].max()),
                )
            )
        if dataset in MANY_CLASSES and "robust_max" in by:
            found.append(
                Verdict(
                    f"robust max does not reach a reasonable accuracy, half the tree's say, with a hundred classes "
                    f"({dataset}, {budget})",
                    "Achituve et al. 2021, appendix C.2",
                    f"robust_max {by['robust_max']:.3f}, class_tree {by['class_tree']:.3f}",
                    bool(by["robust_max"] < 0.5 * by["class_tree"]),
                )
            )
    return tuple(found)


_CAPTION = (
    "Test accuracy with its standard error (of the test rows for one seed, between seeds for several), negative "
    "log-likelihood and calibration error of the probabilities as they are, then (T) after one temperature fitted on "
    "validation rows; epochs in this stage, the one chosen (means over seeds), and seconds for each beside whatever "
    "else ran there, none of a training that was resumed."
)
_GRIDS_CAPTION = (
    "Feature grids by the points of each: accuracy on validation rows, by which the paper chooses, then on test rows."
)
_DIFFERENCES = (
    "At the standard budget networks compute in bfloat16; kernels and Gaussians do not.",
    "The paper searches grids of learning rates, epochs of the softmax stage and sizes of feature grids; here each has "
    "one value unless the settings say otherwise, and sizes are compared by one seed.",
    "Weight decay 5e-4 for the methods trained by gradient descent, and crops and mirrored images, which the paper "
    "does not state.",
    "Robust max has independent inducing values where there are a hundred classes: matrices of all classes' inducing "
    "points, one for each class, would be billions of numbers.",
    "Features of SV-DKL are pressed into the bounds of its grids by a hyperbolic tangent, row by row.",
    "Natural gradients scale a batch by N / |B|; the paper's eq. 17 has half of it.",
)

EXPERIMENT = Experiment(NAME, "a class tree, robust max and feature grids as the last stage of a network", True, run)

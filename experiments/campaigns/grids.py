"""The cells of the few-shot campaigns.

Budgets are the published number of training episodes (``full``) or a quarter of it (``standard``), one episode for each
step of Adam; learning rates are the papers', of the kernel's parameters 1e-4 for deep kernel transfer and the
logistic-softmax by mean field, else 1e-3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.campaigns.few_shot import Examination, FewShotCell
from experiments.campaigns.methods import check_names
from sureshot.meta.learners import GP_LEARNER_NAMES, LEARNER_NAMES
from sureshot.meta.learners.presets import gaussian_process_settings
from sureshot.meta.learners.registry import learns_base_classes
from sureshot.meta.protocols import TRAINING_PRESETS, EpisodeProtocol
from sureshot.meta.training import TrainingConfig

_FRACTIONS = {"full": 1, "standard": 4}

BUDGETS: dict[str, dict[int, int]] = {
    name: {shots: TRAINING_PRESETS[f"one-vs-each-{shots}shot-released-code"].episodes // part for shots in (1, 5)}
    for name, part in _FRACTIONS.items()
}
"""Training episodes by budget and shots."""

LONG_BUDGETS: dict[str, int] = {
    name: TRAINING_PRESETS["logistic-softmax-1shot-long"].episodes // part for name, part in _FRACTIONS.items()
}
"""Training episodes where Ke et al. (2023) trained for 800 "epochs"."""

KERNELS = ("cosine", "linear", "rbf", "unit_rbf", "matern52", "polynomial1", "polynomial2")
"""Kernels that campaigns compare."""

SAMPLED_TASKS = 200
"""Tasks of secondary measurements for learners that take long for a task."""

MEAN_FIELD = ("cdkt_ml", "cdkt_pl")
"""Learners of Ke et al. (2023)."""

TEMPERATURE_ONE: Mapping[str, Any] = {"temperature": 1.0, "prediction_prior_mean": 0.0}
"""Their rows without a temperature, which have the prior mean 0 in use as well."""

BY_GRADIENT: Mapping[str, Mapping[str, Any]] = {
    "maml": {"inner_rate": 3.0},
    "abml": {"inner_rate": 6.0, "initial_deviation": 0.01, "inner_weight": 1e-6},
    "bayesian_maml": {"inner_rate": 100.0},
}
"""Learners that adapt to a task by gradient steps, and their options on embeddings of length one."""

_RATES_OF_MANY = {"maml": 18.0, "abml": 36.0, "bayesian_maml": 250.0}
"""Their rates in tasks of thirty classes: a step descends a mean over all rows, of which a class has a thirtieth."""

EMBEDDING_LEARNERS = tuple(name for name in LEARNER_NAMES if name != "relationnet")
"""Those that take vectors; relation networks compare feature maps."""

_BACKBONE_OPTIONS: Mapping[str, Mapping[str, Any]] = {"abml": {"n_filters": 32}, "relationnet": {"n_poolings": 2}}
"""Of Conv4, where the papers compare a learner on another than the usual one."""

_OF_CHARACTERS: Mapping[str, Mapping[str, Any]] = {"maml": {"inner_steps": 1, "inner_rate": 0.1}}
"""Options on Omniglot, as in the code of the papers' tables."""

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {"bayesian_maml": ("chaser", {"objective": "chaser"})}
"""Other forms of learners that have a row of their own in the papers' tables, and their names there."""

_SLOW_KERNELS = (*MEAN_FIELD, "dkt")  # kernel parameters at the rate of the logistic-softmax paper


def budget_episodes(budget: str, shots: int) -> int:
    """Training episodes."""
    check_names("budget", (budget,), BUDGETS)
    episodes = BUDGETS[budget]
    if shots not in episodes:
        raise ValueError(f"shots must be one of {', '.join(map(str, episodes))}, which have budgets; got {shots}")
    return episodes[shots]


def mean_field_exceptions(
    benchmark: str | None, learner: str, shots: int, tempered: bool = True
) -> tuple[bool, dict[str, Any]]:
    """What Ke et al. (2023) did differently for single cells of a benchmark; nothing for other learners than theirs.

    Whether it was trained for 800 "epochs": always by predictive likelihood, by marginal likelihood in transfer if
    tempered (temperature below 1). And options of the learner: temperature 0.5 instead of 0.2 at five shots by
    predictive likelihood, but for CUB.
    """
    if benchmark is None or learner not in MEAN_FIELD:
        return False, {}
    long = learner == "cdkt_pl" or (benchmark == "miniimagenet-cub" and tempered)
    smooth = learner == "cdkt_pl" and shots == 5 and benchmark != "cub"
    return long, {"temperature": 0.5} if smooth else {}


def preset_of(learner: str) -> str:
    """The papers' settings where there are any, else ours."""
    return "recommended" if learner.startswith("ove_mean_field") else "paper"


SAMPLED = tuple(
    name for name in GP_LEARNER_NAMES if gaussian_process_settings(name, preset_of(name)).inference == "gibbs"
)
"""Learners whose chains (20, of 50 sweeps) take a hundred times as long for a task as deterministic inference."""

_SLOW_ON_IMAGES = (*SAMPLED, "abml")


def check_grid(budget: str, learners: Iterable[str], kernels: Iterable[str]) -> None:
    """ValueError for an unknown name."""
    check_names("budget", (budget,), BUDGETS)
    check_names("learner", learners, LEARNER_NAMES)
    check_names("kernel", kernels, KERNELS)


def image_cell(
    data: str,
    learner: str,
    *,
    shots: int,
    seed: int,
    budget: str,
    kernel: str = "cosine",
    preset: str | None = None,
    transfer: bool = False,
    benchmark: str | None = None,
    queries: int = 16,
    precision: str = "float32",
    data_options: dict[str, Any] | None = None,
    change: tuple[str, Mapping[str, Any]] | None = None,
) -> FewShotCell:
    """A 5-way cell on images with Conv4, as in the papers.

    In transfer the logistic-softmax by mean field with predictive likelihood predicts with prior mean -5, as published.
    On a benchmark of Ke et al. their `mean_field_exceptions` hold (under the papers' presets), and calibration errors
    are reported by their procedure as well.
    """
    kernel = _kernel_of(learner, kernel)
    chosen = preset or preset_of(learner)
    called, changed = change or ("", {})
    exceptions = benchmark if chosen != "recommended" else None
    long, options = mean_field_exceptions(exceptions, learner, shots, changed.get("temperature", 0.2) < 1)
    if transfer and learner == "cdkt_pl" and chosen != "recommended":
        options["prediction_prior_mean"] = -5.0
    if data.startswith("omniglot"):
        options |= _OF_CHARACTERS.get(learner, {})
    options |= changed
    episodes = LONG_BUDGETS[budget] if long else budget_episodes(budget, shots)
    paper = "logistic-softmax" if learner in _SLOW_KERNELS else "one-vs-each"
    published = TRAINING_PRESETS[f"{paper}-{shots}shot-released-code"]
    training = TrainingConfig.from_dict(
        {
            "data": {"name": data, "options": data_options or {}},
            "episodes": {"way": 5, "shots": shots, "queries": queries},
            "backbone": {"name": "conv4", "options": dict(_BACKBONE_OPTIONS.get(learner, {}))},
            "learner": {
                "name": learner,
                "preset": chosen,
                "kernel": kernel,
                "precision": precision,
                "options": options,
            },
            "training": {
                "episodes": episodes,
                "learning_rate": published.learning_rate,
                "learning_rate_kernel": published.learning_rate_kernel,
                "seed": seed,
            },
            "validation": {"every": 1000, "tasks": 300},
        }
    )
    suffix = "" if precision == "float32" else f"-{precision}"
    secondary: dict[str, int] = {}
    if learner in _SLOW_ON_IMAGES:
        secondary = {"out_of_episode": SAMPLED_TASKS, "robustness": SAMPLED_TASKS}
    name = f"{chosen} {called}".strip().replace(" ", "-")
    examination = Examination(
        f"5-way {shots}-shot", EpisodeProtocol(5, shots, 15), least_errors=benchmark is not None, **secondary
    )
    return FewShotCell(
        key=f"{learner}-{name}-{kernel}-{shots}shot-seed{seed}-{budget}{suffix}",
        labels=_labels(training, shots, budget) | ({"preset": f"{chosen}, {called}"} if called else {}),
        training=training,
        examinations=(examination,),
    )


def embedding_cell(
    data: str,
    learner: str,
    *,
    way: int,
    examination: Examination,
    shots: int,
    seed: int,
    budget: str,
    kernel: str = "cosine",
    data_options: dict[str, Any] | None = None,
) -> FewShotCell:
    """A cell on embeddings with a linear projection; see `image_cell`.

    Few and large steps: a twentieth (at 5 ways) or a hundredth (at more) of the images' budget in tasks, eight (two)
    to a step, and the kernel's parameters thirty or more times faster, since a projection that starts as the identity
    has little to learn. Kernels without a counterpart in the papers' presets start from the same settings.
    """
    kernel = _kernel_of(learner, kernel)
    many = way > 5
    # The paper's deep kernel transfer has hyper-parameters for each of five classes, so it has no other ways.
    chosen = "recommended" if (many and learner == "dkt") or learner in BY_GRADIENT else preset_of(learner)
    per_step = 2 if many else 8
    options = dict(BY_GRADIENT.get(learner, {}))
    if learner == "matchingnet":  # full context reads the support once for every row of it: five steps are affordable
        options["attention_steps"] = 5
    if many and learner in BY_GRADIENT:
        options["inner_rate"] = _RATES_OF_MANY[learner]
    # What is not the backbone is then a layer of base classes or a recurrent network, which 3e-2 throws off course.
    has_layers = learner in ("matchingnet", *BY_GRADIENT) or learns_base_classes(learner, chosen)
    training = TrainingConfig.from_dict(
        {
            "data": {"name": data, "options": data_options or {}},
            "episodes": {"way": way, "shots": shots, "queries": 5 if many else 15},
            "backbone": {"name": "linear"},
            "learner": {
                "name": learner,
                "preset": chosen,
                "kernel": kernel,
                "options": options,
            },
            "training": {
                "episodes": budget_episodes(budget, 1) // (100 if many else 20),
                "episodes_per_step": per_step,
                "learning_rate": 3e-4,
                "learning_rate_kernel": 1e-3 if has_layers else 3e-2,
                "seed": seed,
                "checkpoint_every": 1_000_000,
            },
            "validation": {"every": 50 if many else 200, "tasks": 20 if many else 100},
        }
    )
    return FewShotCell(
        key=f"{learner}-{chosen}-{kernel}-{examination.protocol.ways[1]}way-{shots}shot-seed{seed}-{budget}",
        labels=_labels(training, shots, budget),
        training=training,
        examinations=(examination,),
    )


def _kernel_of(learner: str, kernel: str) -> str:
    """The kernel, for learners that have one; the others have the same cell for all kernels."""
    return kernel if learner in GP_LEARNER_NAMES else "cosine"


def _labels(training: TrainingConfig, shots: int, budget: str) -> dict[str, str | int]:
    learner = training.learner
    return {
        "learner": learner.name,
        "preset": learner.preset,
        "kernel": learner.kernel,
        "shots": shots,
        "seed": training.training.seed,
        "budget": budget,
        "precision": learner.precision,
    }

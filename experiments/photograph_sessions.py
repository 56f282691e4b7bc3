"""Cells of the comparison in sessions of photographs: budgets, networks, methods, and candidates of their settings.

Cells depend on one another. A softmax stage is shared by all; branches continue it in the base session, one for each
kind of network; every method goes through all sessions with the branch that is its own. Settings of later sessions are
candidates in a rehearsal (`experiments.rehearsal`), which has a stage and branches of its own, shorter ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.campaigns.cells import FAILED
from experiments.campaigns.deep import STAGE, DeepCell
from experiments.campaigns.sessions import SessionCell
from experiments.rehearsal import ENDING, rehearsal_name
from sureshot.deep import ClassifierSettings


@dataclass(frozen=True)
class Budget:
    """The data, the size of the network, and the length of its training."""

    data: str  # one of `sureshot.incremental.session_data.SESSION_NAMES`
    base: str  # its base classes, one of `experiments.train_test.TRAIN_TEST_NAMES`
    way: int  # classes of a later session
    backbone: Mapping[str, Any]
    stage: ClassifierSettings  # of the softmax stage
    branch: int  # epochs of each branch after it
    branch_rate: float  # learning rate of the branches
    milestones: tuple[int, ...]  # of a branch, in its epochs
    validation: float  # of the training rows of each base class, kept aside
    rehearsal: tuple[int, int]  # epochs of its stage, whose rate falls after three quarters, and of its branches
    rehearsed: int  # later sessions of the rehearsal
    rehearsal_of: str = ""  # the budget whose rehearsal is this one's too, if it has none of its own


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

_MINI = ("miniimagenet32", "miniimagenet32-base", 5)

_SMALL = Budget(
    *_MINI,
    {"name": "resnet18", "stem": "cifar", "width": 0.5, "n_features": 256},
    _STAGE,
    branch=20,
    branch_rate=0.01,
    milestones=(14,),
    validation=0.05,
    rehearsal=(12, 4),
    rehearsed=6,
)

# The paper's: rates fall at epochs 40 and 60 of 100.
_FULL = Budget(*_MINI, {"name": "resnet18", "n_features": 512}, _STAGE, 60, 0.01, (20,), 0.05, (40, 20), 6)

BUDGETS = {
    "full": _FULL,
    "miniimagenet": replace(_FULL, data="miniimagenet", base="miniimagenet-base", stage=replace(_STAGE, crop=8)),
    "small": _SMALL,
    # For processors that only imitate bfloat16, where it takes 16 times as long.
    "float32": replace(_SMALL, stage=replace(_STAGE, precision="float32"), rehearsal_of="small"),
    "trial": Budget(
        *_MINI,
        {"name": "conv4", "n_filters": 16},
        replace(_STAGE, epochs=2, precision="float32"),
        branch=2,
        branch_rate=0.01,
        milestones=(1,),
        validation=0.05,
        rehearsal=(2, 1),
        rehearsed=2,
    ),
    # The paper's, but for its network, which ImageNet had trained: two photographs of a class (of 30) are kept aside.
    "cub": Budget(
        "cub",
        "cub-base",
        10,
        {"name": "resnet18", "n_features": 512},
        replace(_STAGE, epochs=20, learning_rate=0.01, crop=8),
        branch=80,
        branch_rate=0.01,
        milestones=(20, 40),
        validation=0.067,
        rehearsal=(40, 20),
        rehearsed=5,
    ),
}

BRANCHES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "class_tree": {"per_class": 5},
    "cosine_proxies": {},
    "triplet": {},
}
"""Deep classifiers that continue the softmax stage, with their options."""

_OWN_RATES = {"cosine_proxies": 0.1}
"""Learning rates of parameters outside the network, where they differ from its own: a scale has far to go."""

ASIDE = ", rows kept aside"
"""Suffix of methods that get only those rows of the base classes that the network was not trained on."""

UNTOLD = ", told nothing"
"""Suffix of the recommended tree without the information on which rows the network was trained."""

FROZEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "nearest class mean": ("nearest_class_mean", {}, "softmax"),
    "decoupled cosine": ("nearest_class_mean", {"scale": 16.0}, "softmax"),
    "least squares": ("least_squares", {}, "softmax"),
    "streaming LDA": ("streaming_lda", {}, "softmax"),
    "empirical Bayes": ("empirical_bayes", {}, "softmax"),
    "gp, 5 rows a class": ("gp", {"rows_per_class": 5}, "softmax"),
    "tree, recommended": ("tree", {"strategy": "recommended", "unseen": True}, "softmax"),
    "tree, recommended" + UNTOLD: ("tree", {"strategy": "recommended", "unseen": False}, "softmax"),
    "tree, shared root": ("tree", {"strategy": "shared_root"}, "softmax"),
    "tree, session": ("tree", {"strategy": "session"}, "softmax"),
    "tree, rebuild": ("tree", {"strategy": "rebuild"}, "softmax"),
    **{
        name + ASIDE: (method, {}, "softmax")
        for name, method in (
            ("nearest class mean", "nearest_class_mean"),
            ("empirical Bayes", "empirical_bayes"),
            ("tree, recommended", "tree"),
        )
    },
    "GP-Tree, shared root": ("tree", {"strategy": "shared_root"}, "class_tree"),
    "GP-Tree, session": ("tree", {"strategy": "session"}, "class_tree"),
    "GP-Tree, rebuild": ("tree", {"strategy": "rebuild"}, "class_tree"),
}
"""Methods that only infer in later sessions: their names, options, and networks."""


def _later(epochs: int, rate: float, **options: Any) -> dict[str, Any]:
    return {"later": {"epochs": epochs, "learning_rate": rate, **options}}


def _adam(gamma: float, rate: float) -> dict[str, Any]:
    return {"gamma": gamma, **_later(30, rate, optimiser="adam")}


TRAINING: dict[str, tuple[str, str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "fine-tuning": ("fine_tuning", "softmax", {}, tuple(_later(20, rate) for rate in (0.01, 0.001, 1e-4))),
    "iCaRL": ("icarl", "softmax", {}, tuple(_later(20, rate) for rate in (0.03, 0.01, 0.003, 0.001))),
    "SDC, LwF": (
        "sdc",
        "triplet",
        {"penalty": "lwf"},
        tuple(_adam(gamma, rate) for gamma in (1.0, 100.0, 1e4) for rate in (1e-3, 1e-4)),
    ),
    "SDC, MAS": (
        "sdc",
        "triplet",
        {"penalty": "mas"},
        tuple(_adam(gamma, rate) for gamma in (1.0, 1e4, 1e6) for rate in (1e-3, 1e-4)),
    ),
    "PODNet": ("podnet", "cosine_proxies", {}, tuple(_later(20, rate) for rate in (0.03, 0.01, 0.003, 0.001))),
}
"""Methods that train their network in later sessions: names, networks, options, and candidates for further ones."""

METHODS = (*FROZEN, *TRAINING)


def network_of(method: str) -> str:
    """The one of `BRANCHES` that a method uses."""
    return FROZEN[method][2] if method in FROZEN else TRAINING[method][1]


def stage_cell(budget: str = "small", seed: int = 0) -> DeepCell:
    """The softmax stage that all methods share."""
    chosen = BUDGETS[budget]
    labels: dict[str, str | int] = {"method": STAGE, "seed": seed, "data": chosen.base, "budget": budget}
    training = replace(chosen.stage, seed=seed)
    key = f"{_prefix(budget)}stage-seed{seed}"
    return DeepCell(key, labels, chosen.base, STAGE, {}, chosen.backbone, training, None, chosen.validation)


def rehearsal_stage(budget: str) -> DeepCell:
    """The stage of the rehearsal: the rate falls within it, as there may be no branch after it."""
    budget = BUDGETS[budget].rehearsal_of or budget
    epochs, stage = BUDGETS[budget].rehearsal[0], stage_cell(budget)
    training = replace(stage.training, epochs=epochs, milestones=(round(0.75 * epochs),))
    data = rehearsal_name(stage.data, BUDGETS[budget].rehearsed)
    labels = stage.labels | {"data": data}
    return replace(stage, key=f"{_prefix(budget)}rehearsal-stage", labels=labels, data=data, training=training)


def branch_cell(method: str, stage: DeepCell) -> DeepCell:
    """The continuation of a stage by one kind of network, in the base session."""
    chosen = BUDGETS[str(stage.labels["budget"])]
    rehearsed = stage.data.endswith(ENDING)
    epochs = chosen.rehearsal[1] if rehearsed else chosen.branch
    training = replace(
        stage.training,
        epochs=epochs,
        learning_rate=chosen.branch_rate,
        own_learning_rate=_OWN_RATES.get(method),
        milestones=(round(0.75 * epochs),) if rehearsed else chosen.milestones,
    )
    return replace(
        stage,
        key=stage.key.replace("stage", method),
        labels=stage.labels | {"method": method},
        method=method,
        options=BRANCHES[method],
        training=training,
        stage=stage,
    )


def candidate_cells(method: str, budget: str) -> list[SessionCell]:
    """A method that trains its network, with each of its candidates, through the rehearsal."""
    budget = BUDGETS[budget].rehearsal_of or budget
    name, kind, options, candidates = TRAINING[method]
    stage = rehearsal_stage(budget)
    network = stage if kind == "softmax" else branch_cell(kind, stage)
    return [
        SessionCell(
            stage.data,
            0,
            f"{method}, {number}",
            name,
            _complete({**options, **one}, budget),
            {},
            network,
            False,
            _of(budget),
        )
        for number, one in enumerate(candidates)
    ]


def method_cell(
    method: str,
    budget: str,
    seed: int,
    rehearsed: Sequence[Mapping[str, Any]] = (),  # records of the method's candidates
) -> SessionCell | None:
    """A method through the sessions; None if it has candidates and none of them a result."""
    stage = stage_cell(budget, seed)
    if method in FROZEN:
        name, options, kind = FROZEN[method]
    else:
        name, kind, own, candidates = TRAINING[method]
        place = chosen_candidate(rehearsed)
        if place is None:
            return None
        options = _complete({**own, **candidates[place]}, budget)
    network, data = branch_cell(kind, stage), BUDGETS[budget].data
    return SessionCell(data, seed, method, name, options, {}, network, method.endswith(ASIDE), _of(budget))


def chosen_candidate(records: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of the candidate with the best harmonic mean of base and novel accuracy after the last session."""
    scored = {
        int(str(record["labels"]["method"]).rsplit(", ", 1)[1]): record["evaluation"]["sessions"][-1]["harmonic_mean"]
        for record in records
        if FAILED not in record
    }
    return max(sorted(scored), key=lambda number: scored[number], default=None)


def _complete(options: Mapping[str, Any], budget: str) -> dict[str, Any]:
    """With the augmentation and the precision of the stage, and the share of rows kept aside."""
    stage = BUDGETS[budget].stage
    common = {"batch_size": stage.batch_size, "crop": stage.crop, "flip": stage.flip, "precision": stage.precision}
    return {"aside": BUDGETS[budget].validation, **options, "later": {**common, **options["later"]}}


def _prefix(budget: str) -> str:
    return "" if budget == "small" else f"{budget}-"


def _of(budget: str) -> str:
    return "" if budget == "small" else budget

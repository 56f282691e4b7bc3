"""Classes that arrive in sessions, photographs: inference on frozen features beside networks that go on learning.

mini-ImageNet by Tao et al.'s sessions, at 32 pixels. A campaign (see `experiments.campaigns`) whose cells depend on one
another, see `experiments.photograph_sessions`: networks of the base session, a rehearsal among base classes in which
settings of later sessions are chosen, and every method through all sessions.

    python -m experiments fscil-miniimagenet32 --data FOLDER --set budget=trial
    python -m experiments fscil-miniimagenet32 --data FOLDER
    python -m experiments fscil-miniimagenet32 --data FOLDER --set budget=cub --set device=cuda
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, CampaignConfig, CellT, RunCell, computed_on, unfinished
from experiments.campaigns.deep import DeepCell, run_deep
from experiments.campaigns.methods import check_names
from experiments.campaigns.sessions import (
    NetworkSessions,
    best_and_surest,
    cost_of,
    run_network_sessions,
    study_of,
    wide,
)
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.photograph_sessions import (
    ASIDE,
    BUDGETS,
    METHODS,
    TRAINING,
    UNTOLD,
    branch_cell,
    candidate_cells,
    chosen_candidate,
    method_cell,
    network_of,
    rehearsal_stage,
    stage_cell,
)
from experiments.rehearsal import ENDING, rehearsal
from experiments.train_test import TrainTestData, load_train_test
from sureshot.evaluation.session_study import SessionStudy, averaged
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.sessions import Sessions
from sureshot.report.session_tables import matrices_picture, session_curves

NAME = "fscil-miniimagenet32"

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class FscilMiniImageNet32Config(CampaignConfig):
    """Settings."""

    # ``full`` and ``cub`` are the paper's trainings, ``miniimagenet`` that at 84 pixels; ``float32`` is the small one
    # for processors without arithmetic in bfloat16; ``trial`` shows in minutes on a CPU that everything runs ("small",
    # "float32", "trial", "full", "miniimagenet", "cub")
    budget: str = "small"
    # rows, of `experiments.photograph_sessions.METHODS`; networks are trained for these only
    methods: tuple[str, ...] = METHODS
    # the first makes the tables of all methods, the others a table of those that have been run with each. A seed fixes
    # rows kept aside, initial weights, order of rows and whatever methods draw; classes, shots and test photographs are
    # those of the lists.
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"


class PhotographData:
    """Data by name, rehearsals included; the data loaded last are cached."""

    def __init__(self, budget: str, root: Path | None) -> None:
        self._budget, self._root = BUDGETS[budget], root
        self.train_test = lru_cache(maxsize=1)(self._train_test)
        self.sessions = lru_cache(maxsize=1)(self._sessions)

    def _train_test(self, name: str) -> TrainTestData:
        return self._rehearsal()[0] if name.endswith(ENDING) else load_train_test(name, self._root)

    def _sessions(self, name: str) -> Sessions:
        return self._rehearsal()[1] if name.endswith(ENDING) else load_sessions(name, self._root)

    def _rehearsal(self) -> tuple[TrainTestData, Sessions]:
        base = load_train_test(self._budget.base, self._root)
        return rehearsal(base, self._budget.validation, self._budget.way, self._budget.rehearsed)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the tables of all that are there."""
    settings = configure(FscilMiniImageNet32Config, options)
    check_names("budget", (settings.budget,), BUDGETS)
    check_names("method", settings.methods, METHODS)
    data = PhotographData(settings.budget, data_root)
    train = partial(run_deep, data.train_test, settings.device)
    teach = partial(run_network_sessions, NetworkSessions(data.sessions, settings.device), settings.device)
    found: dict[str, dict[str, Any]] = {}  # records by key

    def run_some(cells: Sequence[CellT], run_cell: RunCell[CellT], begin: float, end: float) -> Records:
        """Those whose network, or the stage of it, has a result."""

        def tell(what: str, fraction: float) -> None:
            progress(what, begin + (end - begin) * fraction)

        ready = [cell for cell in cells if (first := _before(cell)) is None or FAILED not in found.get(first, _NONE)]
        records = settings.records(NAME, ready, run_cell, tell)
        found.update({record["key"]: record for record in records})
        return records

    inferring, training = ([one for one in settings.methods if (one in TRAINING) is kind] for kind in (False, True))
    stages = [stage_cell(settings.budget, seed) for seed in settings.seeds]
    networks = run_some(stages, train, 0.0, 0.2)
    kinds = dict.fromkeys(network_of(one) for one in settings.methods)
    branches = [branch_cell(kind, stage) for stage in stages for kind in kinds]
    networks += run_some(branches, train, 0.2, 0.4)
    cells = [method_cell(one, settings.budget, seed) for seed in settings.seeds for one in inferring]
    taught = run_some([cell for cell in cells if cell is not None], teach, 0.4, 0.5)
    if training:
        first = rehearsal_stage(settings.budget)
        run_some([first], train, 0.5, 0.55)
        others = dict.fromkeys(network_of(one) for one in training if network_of(one) != "softmax")
        run_some([branch_cell(kind, first) for kind in others], train, 0.55, 0.6)
    share = 0.2 / max(1, len(training))
    rehearsed = {
        one: run_some(candidate_cells(one, settings.budget), teach, 0.6 + share * place, 0.6 + share * (place + 1))
        for place, one in enumerate(training)
    }
    chosen = [method_cell(one, settings.budget, seed, rehearsed[one]) for seed in settings.seeds for one in training]
    taught += run_some([cell for cell in chosen if cell is not None], teach, 0.8, 1.0)
    return outcome_of(networks, rehearsed, taught, settings)


_NONE = {FAILED: "has no result"}


def _before(cell: Any) -> str | None:
    """The key of the cell that must come first."""
    first = cell.stage if isinstance(cell, DeepCell) else cell.network
    return None if first is None else str(first.key)


def outcome_of(
    networks: Sequence[Mapping[str, Any]],  # records
    rehearsed: Mapping[str, Sequence[Mapping[str, Any]]],  # records of candidates, by method
    taught: Sequence[Mapping[str, Any]],  # records of methods
    settings: FscilMiniImageNet32Config,
) -> Outcome:
    """The page of all results so far; ValueError if there are none."""
    budget = BUDGETS[settings.budget]
    first, *others = settings.seeds
    every = study_of(taught, budget.data)
    study = study_of([record for record in taught if record["labels"]["seed"] == first], budget.data)
    learnt = [record for record in networks if FAILED not in record]
    if not learnt:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    tables, pictures = [Table("networks", _NETWORKS, network_frame(learnt))], []
    candidates = candidate_frame(rehearsed)
    if len(candidates):
        tables.append(Table("rehearsal", _REHEARSAL, candidates))
    if study.evaluations:
        tables = [*session_tables(study), *(other_seeds(every, settings.seeds) if others else ()), *tables]
        for name, drawn in (("curves", session_curves(study)), ("matrices", matrices_picture(study))):
            pictures.append(Picture(name, drawn.explanation, drawn.figure))
    failed = [record for record in (*networks, *taught) if FAILED in record]
    waiting = [one for one in settings.methods if one not in study.evaluations]
    return Outcome(
        title="Classes in sessions on photographs: mini-ImageNet",
        introduction=_INTRODUCTION,
        tables=(*tables, _published()),
        pictures=tuple(pictures),
        config=settings,
        seeds=settings.seeds,
        findings=(
            *_findings(study),
            *unfinished(failed, []),
            *computed_on([*networks, *taught]),
            *([f"Without a result yet: {', '.join(waiting)}."] if waiting else []),
        ),
        verdicts=verdicts_of(study),
        differences=_DIFFERENCES,
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
                "device": record["environment"]["device"],
            }
            for record in records
        ]
    )


def candidate_frame(rehearsed: Mapping[str, Sequence[Mapping[str, Any]]]) -> pd.DataFrame:
    """A row for each candidate that has been rehearsed."""
    rows = []
    for method, records in rehearsed.items():
        place = chosen_candidate(records)
        for record in records:
            if FAILED in record:
                continue
            options, last = record["settings"]["options"], record["evaluation"]["sessions"][-1]
            rows.append(
                {
                    "method": method,
                    "rate": f"{options['later']['learning_rate']:g}",
                    "gamma": f"{options['gamma']:g}" if "gamma" in options else "",
                    "base": last["base_accuracy"],
                    "novel": last["novel_accuracy"],
                    "harmonic mean": last["harmonic_mean"],
                    "chosen": "yes" if record["labels"]["method"] == f"{method}, {place}" else "",
                }
            )
    return pd.DataFrame(rows)


def session_tables(study: SessionStudy) -> list[Table]:
    """After the last session; by session; what methods cost; everything."""
    frame = averaged(study.summary(), ["method"])
    by_session = averaged(study.by_session(), ["method", "session"])

    def part(*columns: str) -> pd.DataFrame:
        return frame[["method", *columns]].rename(columns=lambda name: name.replace("_", " "))

    known = ("accuracy", "average_accuracy", "performance_drop", "base_accuracy", "novel_accuracy", "harmonic_mean")
    return [
        Table("last-session", _LAST, part(*known, "forgetting")),
        Table("probabilities", "Probabilities after the last session, as they are.", part("nll", "ece", "brier")),
        Table(
            "sessions",
            "Accuracy after each session, 0 is the base session.",
            wide(by_session, "session", "accuracy"),
        ),
        Table("cost", _COST, cost_of(frame), digits=2),
        Table("by-session", "All scores after each session.", by_session, on_page=False),
        Table("by-seed", "All scores of each seed.", study.summary(), on_page=False),
    ]


def other_seeds(study: SessionStudy, seeds: Sequence[int]) -> list[Table]:
    """Methods that have every seed, after the last session."""
    frame = study.summary()
    whole = frame.groupby("method", sort=False)["seed"].transform(lambda column: set(column) >= set(seeds))
    if not whole.any():
        return []
    columns = [name for one in ("accuracy", "harmonic_mean", "ece", "nll") for name in (one, f"{one} s.e.")]
    means = averaged(frame[whole], ["method"])[["method", *columns]]
    return [Table("seeds", _SEEDS, means.rename(columns=lambda name: name.replace("_", " ")))]


def verdicts_of(study: SessionStudy) -> tuple[Verdict, ...]:
    """Who is first, as far as methods have results.

    In calibration among those that are often right, too: it takes no skill to be always unsure.
    """
    rows = {row["method"]: row for row in _last_scores(study)}
    found, ours, published = [], "tree, recommended", "GP-Tree, shared root"
    others = [name for name in rows if not name.startswith(ours)]
    if ours in rows and others:
        least = max(rows[name]["accuracy"] for name in others) / 2
        able = [name for name in others if rows[name]["accuracy"] >= least]
        for column, what, sign, rivals in (
            ("accuracy", "accuracy", 1, others),
            ("harmonic_mean", "harmonic mean", 1, others),
            ("ece", "calibration, of methods right half as often as the best or more", -1, able),
        ):
            best = max(rivals, key=lambda name: sign * rows[name][column])
            own, other = rows[ours][column], rows[best][column]
            claim = f"after the last session the recommended tree is first in {what}"
            measured = f"{ours} {own:.3f}, {best} {other:.3f}"
            found.append(Verdict(claim, "expected here", measured, bool(sign * own >= sign * other)))
    for claim, where, names in (
        (
            "GP-Tree is ahead of methods that train their network in sessions",
            "section 5.3",
            [name for name in TRAINING if name in rows],
        ),
        (
            "a tree over all novel classes with a shared root is the best of the three",
            "supplement D.2, on CUB",
            [name for name in ("GP-Tree, session", "GP-Tree, rebuild") if name in rows],
        ),
    ):
        if published in rows and names:
            measured = ", ".join(f"{name} {rows[name]['accuracy']:.3f}" for name in (published, *names))
            holds = rows[published]["accuracy"] >= max(rows[name]["accuracy"] for name in names)
            found.append(Verdict(claim, f"Achituve et al. 2021, {where}", measured, bool(holds)))
    return tuple(found)


def _last_scores(study: SessionStudy) -> list[dict[Any, Any]]:
    return averaged(study.summary(), ["method"]).to_dict("records") if study.evaluations else []


def _findings(study: SessionStudy) -> list[str]:
    rows = _last_scores(study)
    if not rows:
        return []
    lines = [best_and_surest(rows, "photographs", "classes")]
    by_name = {row["method"]: row for row in rows}
    for name in by_name:
        if name + ASIDE in by_name:
            shown, aside = by_name[name], by_name[name + ASIDE]
            lines.append(
                f"{name}, shown all rows of the base session: accuracy {shown['accuracy']:.3f}, ECE "
                f"{shown['ece']:.3f}; shown only those kept aside: {aside['accuracy']:.3f}, {aside['ece']:.3f}."
            )
        if name + UNTOLD in by_name:
            told, untold = by_name[name], by_name[name + UNTOLD]
            lines.append(
                f"{name}, told which rows the network has not learnt: accuracy {told['accuracy']:.3f}, harmonic mean "
                f"{told['harmonic_mean']:.3f}, ECE {told['ece']:.3f}; told nothing: {untold['accuracy']:.3f}, "
                f"{untold['harmonic_mean']:.3f}, {untold['ece']:.3f}."
            )
    return lines


def _published() -> Table:
    rows = {"iCaRL": 17.21, "TOPIC": 24.42, "CEC": 47.63, "FACT": 50.49, "SAVC": 57.11}
    frame = pd.DataFrame({"method": list(rows), "accuracy after the last session, %": list(rows.values())})
    caption = "mini-ImageNet by the same lists at 84 pixels, after each paper's own training."
    return Table("published", caption, frame, digits=2, published=True)


_INTRODUCTION = (
    "mini-ImageNet by Tao et al.'s lists: a base session of 60 classes, then eight of 5 classes with 5 photographs "
    "each; after every session all methods are asked about 100 test photographs of each class seen so far. One softmax "
    "stage is shared by all methods. Each kind of network continues it in the base session; methods that only infer "
    "share the softmax network, the published trees have one that is trained with the loss of a tree. Settings of "
    "methods that go on training are chosen in a rehearsal: a network that knows some of the base classes only, for "
    "which the others arrive in sessions, six at the small budget. No test photograph is seen before the scores."
)
_NETWORKS = (
    "Networks after the base session, each with its own way to predict: accuracy on test photographs of the base "
    "classes, negative log-likelihood and calibration error after one temperature fitted on rows kept aside; epochs "
    "of this stage, the one chosen by accuracy on these rows, and where it was trained."
)
_REHEARSAL = (
    "The rehearsal: accuracy on base and on novel classes after its last session, and which candidate the harmonic "
    "mean of the two chooses."
)
_LAST = "After the last session, among all 100 classes; average accuracy and drop are of all sessions."
_SEEDS = "Means over all seeds and their standard errors, of methods that have been run with each."
_COST = (
    "Numbers kept after the last session, for a class and shared by all (of methods that train their network the "
    "network too, which others need unchanged); seconds to learn all sessions, and to predict all test photographs "
    "after the last, for methods that infer on embeddings without the time of the network."
)
_DIFFERENCES = (
    "Photographs at 32 pixels, 200 of each base class to train on (published: 84 pixels, 500).",
    "The small budget trains a residual network of half the width with 256 features for 60 epochs (published: full "
    "width, 512 features, 100 epochs), in bfloat16; 40 of them are softmax's for every method.",
    "Published hyper-parameters of competitors are for sessions of hundreds of photographs of a class; here learning "
    "rates and weights of penalties are chosen in the rehearsal, epochs are fixed (20, SDC 30) and five photographs of "
    "a class are kept as exemplars.",
    "Trees are those of TreeGPClassifier on embeddings: the network's own tree and inducing points only train it.",
    f"Methods called '{ASIDE.removeprefix(', ')}' are shown a base session of the 5 % of photographs that the network "
    "has not learnt: embeddings of those it has learnt are nearer to their class means than any new ones.",
    f"'tree, recommended' is shown all photographs and told which of them were kept aside, as nothing else is; "
    f"'tree, recommended{UNTOLD}' is not told.",
    "Batch normalisation keeps its statistics after the base session.",
)

EXPERIMENT = Experiment(NAME, "methods for classes that arrive in sessions, on photographs", True, run)

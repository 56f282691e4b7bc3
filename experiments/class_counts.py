"""Few labels of 4 to 60 classes: a class tree beside one-vs-each and logistic-softmax, all by a few steps of Gibbs.

The part of `fscil-clinc150-studies` that repeats supplement C.1 and D.1 of GP-Tree. A cell is one method through all
numbers of classes and all scales, with one draw of classes and shots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments.campaigns.cells import Cell, json_values
from experiments.campaigns.sessions import gap_between, wide
from experiments.experiment import Progress, Table, Verdict
from experiments.figures import COLOURS, GREY, new_figure, tidy
from sureshot.data.class_splits import shuffled
from sureshot.data.clinc150 import Clinc150, load_clinc150
from sureshot.evaluation.session_study import averaged
from sureshot.gaussian import GramPrior, Queries
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs
from sureshot.kernels.expression import Expression
from sureshot.kernels.leaves import RBF, Linear
from sureshot.likelihoods import LogisticSoftmax, OneVsEach
from sureshot.metrics import summarise
from sureshot.tree import SharedGram, build_tree, class_prototypes, fit_tree_mean_field, run_tree_gibbs

Model = Literal["tree", "one_vs_each", "logistic_softmax"]
Rule = Literal["plug_in", "integral"]

F64 = torch.float64
SOURCE = "GP-Tree, supplement"
_DECISIVE = 2.0  # standard errors of a paired difference


@dataclass(frozen=True)
class Recipe:
    """A model and how its latents are found."""

    model: Model
    n_sweeps: int = 1  # 0 is mean field
    n_chains: int | None = None  # as many as `chains_for` says
    kernel: Literal["linear", "rbf"] = "linear"


RECIPES: dict[str, Recipe] = {
    "tree": Recipe("tree"),
    "one-vs-each": Recipe("one_vs_each"),
    "logistic-softmax": Recipe("logistic_softmax"),
    "tree, mean field": Recipe("tree", 0),
    "tree, 10 steps": Recipe("tree", 10),
    "one-vs-each, 10 steps": Recipe("one_vs_each", 10),
    "logistic-softmax, 10 steps": Recipe("logistic_softmax", 10),
    "tree, RBF": Recipe("tree", kernel="rbf"),
    "tree, 1 chain": Recipe("tree", n_chains=1),
    "tree, 4 chains": Recipe("tree", n_chains=4),
    "tree, 10 chains": Recipe("tree", n_chains=10),
    "tree, 20 chains": Recipe("tree", n_chains=20),
}
"""Rows of the tables."""


def chains_for(n_classes: int) -> int:
    """Supplement C.1: 20 chains up to 20 classes, 10 for 30, one beyond."""
    return 20 if n_classes <= 20 else 10 if n_classes <= 30 else 1


@dataclass(frozen=True)
class CountCell(Cell):
    """A recipe, and the numbers of classes and shots."""

    method: str
    seed: int
    counts: tuple[int, ...]
    shots: int
    scales: tuple[float, ...]

    @property
    def key(self) -> str:  # type: ignore[override]
        """Method and seed."""
        return f"counts-{self.method.replace(',', '').replace(' ', '-')}-seed{self.seed}"

    @property
    def labels(self) -> dict[str, str | int]:  # type: ignore[override]
        """Method and seed."""
        return {"method": self.method, "seed": self.seed}

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result."""
        return json_values({**asdict(self), "recipe": asdict(RECIPES[self.method])})


@dataclass(frozen=True)
class Problem:
    """Shots of some classes, and queries; rows of unit length."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,) int64, 0 to C - 1
    query: Tensor  # (Q, D), validation rows first
    asked: Tensor  # (Q,) int64, their classes
    n_validation: int
    n_classes: int

    @classmethod
    def drawn(cls, data: Clinc150, n_classes: int, shots: int, seed: int) -> Problem:
        """The first classes in an order that the seed decides: more classes are those of fewer, and others."""
        classes = shuffled(len(data.intent_names), seed)[:n_classes]
        own = [np.flatnonzero(data.y_train == label) for label in classes]
        chosen = [
            np.random.default_rng([seed, label]).permutation(rows)[:shots]
            for label, rows in zip(classes, own, strict=True)
        ]
        x, y = _rows(data.x_train, data.y_train, classes, np.concatenate(chosen))
        validation, test = (
            _rows(rows, labels, classes, np.flatnonzero(np.isin(labels, classes)))
            for rows, labels in ((data.x_val, data.y_val), (data.x_test, data.y_test))
        )
        query, asked = (torch.cat(both) for both in zip(validation, test, strict=True))
        return cls(x, y, query, asked, len(validation[0]), n_classes)


def _rows(x: np.ndarray, y: np.ndarray, classes: np.ndarray, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
    """Chosen rows at length 1, and the places of their labels among the classes."""
    number = {label: k for k, label in enumerate(classes.tolist())}
    rows = torch.from_numpy(x[chosen]).to(F64)
    places = torch.tensor([number[label] for label in y[chosen].tolist()])
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True), places


def run_counts(root: Path | None, cell: CountCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Run a cell; its scores by number of classes, output scale and predictive rule."""
    data, recipe = load_clinc150(root), RECIPES[cell.method]
    rows = []
    for place, n_classes in enumerate(cell.counts):
        progress(f"{n_classes} classes", place / len(cell.counts))
        problem = Problem.drawn(data, n_classes, cell.shots, cell.seed)
        for scale in cell.scales:
            for rule, p in predictions(recipe, problem, scale, cell.seed):
                rows.append({"classes": n_classes, "scale": scale, "rule": rule, **_scores(p, problem)})
    return {"scores": rows}


def _scores(p: Tensor, problem: Problem) -> dict[str, float]:
    """Of probabilities (Q, C)."""
    n, labels = problem.n_validation, problem.asked.numpy()
    chosen, shown = summarise(p[:n].numpy(), labels[:n]), summarise(p[n:].numpy(), labels[n:])
    return {
        "validation_accuracy": chosen.accuracy,
        "accuracy": shown.accuracy,
        "nll": shown.nll,
        "ece": shown.ece,
        "brier": shown.brier,
    }


def predictions(recipe: Recipe, problem: Problem, scale: float, seed: int) -> Iterator[tuple[Rule, Tensor]]:
    """Probabilities (Q, C) of the queries by every rule; of the tree alone integrals are affordable."""
    one = torch.ones((), dtype=F64)
    kernel: Expression = Linear(one) if recipe.kernel == "linear" else RBF(one)
    x, y, n_classes = problem.x, problem.y, problem.n_classes
    gram, cross, variance = kernel(x), kernel(x, problem.query), kernel.diagonal(problem.query)
    n_chains = chains_for(n_classes) if recipe.n_chains is None else recipe.n_chains
    sampling: dict[str, Any] = {
        "n_chains": n_chains,
        "n_sweeps": recipe.n_sweeps,
        "generator": torch.Generator().manual_seed(seed),
    }
    if recipe.model == "tree":
        shared = SharedGram(gram, lambda query: Queries(cross, variance))
        tree = build_tree(class_prototypes(x, y, n_classes))
        if recipe.n_sweeps:
            posterior = run_tree_gibbs(tree, shared, y, output_scale=scale, **sampling)
        else:
            posterior = fit_tree_mean_field(tree, shared, y, output_scale=scale).posterior
        for rule in get_args(Rule):
            yield rule, posterior.probabilities(problem.query, rule).mT
    elif recipe.model == "one_vs_each":
        found = run_one_vs_each_gibbs(scale * gram, 0.0, y, n_classes, **sampling)
        yield "plug_in", OneVsEach().plug_in(found.dual() @ (scale * cross)).mean(0).mT
    else:
        prior = GramPrior(scale * gram.unsqueeze(0), torch.zeros((), dtype=F64))
        result = run_gibbs(prior, LogisticSoftmax(), y, n_classes=n_classes, **sampling)
        means = prior.condition(result.sites).query_mean((scale * cross).unsqueeze(0))
        yield "plug_in", LogisticSoftmax().plug_in(means).mean(0).mT


def all_scores(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each method, seed, number of classes, output scale and rule."""
    return pd.DataFrame([{**record["labels"], **one} for record in records for one in record["scores"]])


def chosen_scales(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows at the scale of the best validation accuracy, the smallest of equally good ones."""
    best = scores.groupby(["method", "seed", "classes", "rule"], sort=False)["validation_accuracy"].idxmax()
    return scores.loc[best.sort_values()].reset_index(drop=True)


def count_tables(scores: pd.DataFrame, frame: pd.DataFrame, shots: int) -> tuple[Table, ...]:
    """At the chosen scales by number of classes, then by scale with the most classes; everything in a file."""
    means = averaged(frame.drop(columns=["validation_accuracy"]), ["method", "classes", "rule"])
    plugged, integral = (means[means["rule"] == rule] for rule in get_args(Rule))
    said = (
        f"{shots} shots of each class, {scores['seed'].nunique()} draws of classes and shots; the "
        "output scale of the best validation accuracy"
    )
    tables = [
        Table(
            f"classes-{column}",
            f"{name} at the means of the latents; columns are numbers of classes, {said}.",
            wide(plugged, "classes", column),
        )
        for column, name in (
            ("accuracy", "Accuracy"),
            ("nll", "Negative log-likelihood"),
            ("ece", "Expected calibration error"),
        )
    ]
    most = int(scores["classes"].max())
    every = averaged(scores.drop(columns=["rule"])[scores["rule"] == "plug_in"], ["method", "classes", "scale"])
    every = every[every["classes"] == most]
    return (
        *tables,
        Table(
            "classes-nll-integral",
            "Negative log-likelihood with the latents integrated out, of the trees alone: the other models' integrals "
            "take minutes among 60 classes.",
            wide(integral, "classes", "nll"),
        ),
        Table("classes-scales", "Output scales chosen; averages.", wide(plugged, "classes", "scale"), digits=1),
        *(
            Table(
                f"scales-{column}",
                f"{name} at the means of the latents with {most} classes; columns are output scales.",
                wide(every, "scale", column),
            )
            for column, name in (("accuracy", "Accuracy"), ("nll", "Negative log-likelihood"))
        ),
        Table("classes-by-seed", "All scores of each seed and output scale.", scores, on_page=False),
    )


def count_picture(frame: pd.DataFrame) -> Figure:
    """Accuracy against the number of classes: models; Gibbs and mean field; numbers of chains."""
    plugged = frame[frame["rule"] == "plug_in"]
    means = averaged(plugged.drop(columns=["rule", "validation_accuracy"]), ["method", "classes"])
    panels: dict[str, dict[str, tuple[str, str]]] = {
        "models": {
            f"{name}{steps}": (colour, style)
            for name, colour in (
                ("tree", "#222222"),
                ("one-vs-each", COLOURS["one-vs-each"]),
                ("logistic-softmax", COLOURS["logistic-softmax"]),
            )
            for steps, style in (("", "-"), (", 10 steps", "--"))
        },
        "inference of the tree": {
            "tree": ("#222222", "-"),
            "tree, 10 steps": ("#222222", "--"),
            "tree, mean field": ("#D55E00", "-"),
            "tree, RBF": ("#CC79A7", "-"),
        },
        "chains of the tree": {
            f"tree, {chains}": (colour, "-")
            for chains, colour in (
                ("1 chain", GREY),
                ("4 chains", "#E69F00"),
                ("10 chains", "#0072B2"),
                ("20 chains", "#222222"),
            )
        },
    }
    figure = new_figure(10.5, 3.6)
    for axes, (title, lines) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
        for name, (colour, style) in lines.items():
            own = means[means["method"] == name]
            x, y, error = (own[column].fillna(0).to_numpy() for column in ("classes", "accuracy", "accuracy s.e."))
            axes.errorbar(x, y, error, color=colour, linestyle=style, linewidth=1.4, label=name)
        tidy(axes, title, "classes", "accuracy" if title == "models" else "")
        axes.legend(fontsize=7, frameon=False)
    return figure


def count_verdicts(frame: pd.DataFrame) -> tuple[Verdict, ...]:
    """What supplement C.1 and D.1 say, and what the tree promises, as far as there are two seeds or more."""
    plugged = frame[frame["rule"] == "plug_in"]
    most, least = plugged["classes"].max(), plugged["classes"].min()
    expected = "expected here"
    claims = (
        ("with many classes the tree is ahead of one-vs-each", expected, "tree", "one-vs-each"),
        ("with many classes the tree is ahead of logistic-softmax", expected, "tree", "logistic-softmax"),
        ("the linear kernel is better than the RBF kernel here", f"{SOURCE} C.1", "tree", "tree, RBF"),
        ("Gibbs sampling is ahead of variational inference", f"{SOURCE} D.1", "tree", "tree, mean field"),
        ("more chains are better", f"{SOURCE} D.1", "tree, 20 chains", "tree, 1 chain"),
    )
    found = []
    last, first = (plugged[plugged["classes"] == n] for n in (most, least))
    for claim, source, method, other in claims:
        if gap := gap_between(last, "accuracy", method, other):
            said = f"{method} less {other}, {most} classes: {gap}"
            found.append(Verdict(claim, source, said, gap.mean > _DECISIVE * gap.error))
    few, many = (gap_between(part, "accuracy", "tree", "tree, mean field") for part in (first, last))
    if few and many:
        said = f"{100 * few.mean:.1f} points with {least} classes, {100 * many.mean:.1f} with {most}"
        claim = "the gap between Gibbs sampling and variational inference grows with the number of classes"
        found.append(Verdict(claim, f"{SOURCE} D.1", said, many.mean > few.mean))
    if rest := gap_between(last, "accuracy", "tree, 20 chains", "tree, 4 chains"):
        said = f"20 chains less 4, {most} classes: {rest}"
        found.append(Verdict("beyond four chains the difference is marginal", f"{SOURCE} D.1", said, rest.mean < 0.01))
    return tuple(found)

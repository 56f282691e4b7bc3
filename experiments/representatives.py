"""What a representative of a class stands for: one row, or all rows of its class.

GP-Tree keeps a few inducing inputs of each base class, and its supplement finds that fewer are slightly worse. In
`TreeGPClassifier` representatives are rows that count once, and with one of each class the published tree is lost (see
fscil-clinc150-studies). Two readings of the paper differ from that: the first session's tree learns from all rows by
inducing points at the representatives, and classes of later sessions keep all of their few rows. Both are switched on
and off here, with trees joined as published: one for the base classes, one for all later ones, a root between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from sureshot.data.checks import near
from sureshot.evaluation.sessions import evaluate_sessions
from sureshot.incremental.method import SessionMethod
from sureshot.incremental.representatives import representative_groups
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.tree_sessions import KernelAtRows
from sureshot.kernels.leaves import RBF
from sureshot.tree.build import build_tree, class_prototypes, directions_of
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.gibbs import run_tree_gibbs
from sureshot.tree.mean_field import fit_tree_mean_field
from sureshot.tree.natural_gradient import fit_tree_natural_gradient
from sureshot.tree.posterior import TreePosterior
from sureshot.tree.shared_kernel import SharedGram
from sureshot.tree.shared_rows import InducingFeatures


@dataclass(frozen=True)
class Reading:
    """What representatives are taken to be."""

    n_representatives: int = 1
    inducing: bool = False  # the base tree learns from all rows, by inducing points at the representatives
    all_later_rows: bool = False  # classes of later sessions keep their rows


READINGS: dict[str, Reading] = {
    "5 rows": Reading(5, all_later_rows=True),
    "1 row": Reading(),
    "1 row + later rows": Reading(all_later_rows=True),
    "1 inducing": Reading(inducing=True),
    "1 inducing + later rows": Reading(inducing=True, all_later_rows=True),
}
"""Rows of the table; a later class has five rows, so with five representatives it keeps them."""

_BASE_SCALE, _NOVEL_SCALE = 4.0, 8.0  # as in `TreeGPClassifier`
_CHAINS, _SWEEPS, _EPOCHS = 10, 10, 10


@dataclass(frozen=True)
class RepresentativesConfig:
    """Settings."""

    readings: tuple[str, ...] = tuple(READINGS)  # of `READINGS`
    seeds: tuple[int, ...] = (0, 1)  # of the order of the intents and the shots
    test_shots: int = 10  # test queries of each intent that are asked after each session

    def __post_init__(self) -> None:
        for name in self.readings:
            if name not in READINGS:
                raise ValueError(f"there is no reading {name!r}{near(name, READINGS)}; readings: {'; '.join(READINGS)}")


class JoinedTrees(SessionMethod):
    """A tree of the base classes and one of all later classes under a root, on rows of unit length."""

    def __init__(self, reading: Reading, seed: int) -> None:
        self.reading, self.seed = reading, seed

    def fit(self, X: Any, y: Any, unseen: Any = None) -> Self:
        """The base tree; the order of the classes is that of their labels."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        x, labels = directions_of(torch.as_tensor(X).double()), torch.from_numpy(codes)
        self._base = self._kept(x, labels, self.reading.n_representatives)
        self._later = x[:0], labels[:0]
        tree = build_tree(class_prototypes(x, labels, len(self.classes_)))
        if self.reading.inducing:
            features = InducingFeatures.of(_kernel(), self._base[0]).shared(x)
            steps = fit_tree_natural_gradient(tree, features, labels, output_scale=_BASE_SCALE, n_epochs=_EPOCHS)
            self._base_tree = steps.posterior
        else:
            found = fit_tree_mean_field(tree, _gram(self._base[0]), self._base[1], output_scale=_BASE_SCALE)
            self._base_tree = found.posterior
        self._posterior = self._base_tree
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """A session of new classes."""
        n_base = len(self._base_tree.tree.leaves)
        new, codes = np.unique(y, return_inverse=True)
        labels = torch.from_numpy(codes) + len(self.classes_) - n_base
        self.classes_ = np.concatenate([self.classes_, new])
        x = directions_of(torch.as_tensor(X).double())
        if not self.reading.all_later_rows:
            x, labels = self._kept(x, labels, self.reading.n_representatives)
        self._later = torch.cat([self._later[0], x]), torch.cat([self._later[1], labels])
        rows, labels = self._later
        tree = build_tree(class_prototypes(rows, labels, len(self.classes_) - n_base))
        both = torch.cat([self._base[0], rows])
        sides = torch.arange(len(both)) >= len(self._base[0])
        later, root = self._sampled(tree, rows, labels), self._sampled(ClassTree(((0, 1),)), both, sides.long())
        self._posterior = self._base_tree.joined(later, root)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Without a temperature."""
        found: np.ndarray = self._posterior.probabilities(directions_of(torch.as_tensor(X).double())).mT.numpy()
        return found

    def outlier_score(self, X: Any) -> None:
        """None."""

    def memory(self) -> None:
        """Not said."""

    def _sampled(self, tree: ClassTree, x: Tensor, y: Tensor) -> TreePosterior:
        return run_tree_gibbs(
            tree,
            _gram(x),
            y,
            output_scale=_NOVEL_SCALE,
            n_chains=_CHAINS,
            n_sweeps=_SWEEPS,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def _kept(self, x: Tensor, y: Tensor, n_representatives: int) -> tuple[Tensor, Tensor]:
        groups = representative_groups(x, y, torch.ones_like(x[:, 0]), n_representatives)
        label = torch.zeros(int(groups.max()) + 1, dtype=torch.int64).scatter(0, groups, y)
        return directions_of(class_prototypes(x, groups, len(label))), label


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """See `RepresentativesConfig` for the options."""
    settings = configure(RepresentativesConfig, options)
    records = []
    for number, seed in enumerate(settings.seeds):
        sessions = load_sessions("clinc150", data_root, seed=seed, test_shots=settings.test_shots)
        for place, name in enumerate(settings.readings):
            progress(f"{name}, seed {seed}", (number + place / len(settings.readings)) / len(settings.seeds))
            scores = evaluate_sessions(JoinedTrees(READINGS[name], seed), sessions, lambda what, fraction: None)
            records += [{"representatives": name, "seed": seed, **one.as_dict()} for one in scores.sessions]
    frame = pd.DataFrame(records)
    table = table_of(frame)
    return Outcome(
        title="What a representative of a class stands for",
        introduction=(
            "CLINC150 in sessions, as in fscil-clinc150-studies: 100 intents with 100 queries each, then ten sessions "
            f"of 5 intents with 5 queries each, {settings.test_shots} test queries of each intent. The published tree "
            "with one sub-tree for all later classes. Rows: the representatives of a base class are rows of the base "
            "tree, which count once (mean field). Inducing: all rows of the base classes teach the base tree, by "
            "inducing points at the representatives (natural gradients). A class of a later session keeps its "
            "representatives, or all of its rows; sub-tree and root learn from what is kept by Gibbs sampling."
        ),
        tables=(
            Table(
                "accuracy",
                "Accuracy after the first session and after the last, there also of base and of new intents; means "
                "over the seeds, and the standard error of the last.",
                table,
            ),
            Table("sessions", "All scores after each session.", frame, on_page=False),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(findings_of(table)),
        differences=(
            "The paper has birds and a trained network. No temperature divides log probabilities, so they are much "
            "less sure than they should be; accuracy is the same.",
        ),
    )


def table_of(frame: pd.DataFrame) -> pd.DataFrame:
    """After the first session and after the last."""
    rows = []
    for name, own in frame.groupby("representatives", sort=False):
        first, last = (own[own["session"] == session] for session in (0, own["session"].max()))
        rows.append(
            {
                "representatives": name,
                "seeds": len(last),
                "first": first["accuracy"].mean(),
                "last": last["accuracy"].mean(),
                "last se": last["accuracy"].std(ddof=1) / np.sqrt(len(last)),
                "base": last["base_accuracy"].mean(),
                "new": last["novel_accuracy"].mean(),
            }
        )
    return pd.DataFrame(rows)


def findings_of(table: pd.DataFrame) -> list[str]:
    """What the two readings are worth, beside five representatives."""
    of = {row["representatives"]: row for row in table.to_dict("records")}
    if not set(READINGS) <= set(of):
        return []

    def beside_five(name: str, when: str) -> str:
        gap = 100 * (of[name][when] - of["5 rows"][when])
        return f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}"

    base, both = (of[name]["new"] for name in ("1 inducing", "1 inducing + later rows"))
    return [
        f"Accuracy with one row of a class is {beside_five('1 row', 'first')} that with five in the first session, and "
        f"{beside_five('1 row', 'last')} in the last. With one inducing input, which stands for all rows of its class, "
        f"it is {beside_five('1 inducing', 'first')} that with five rows in the first.",
        f"In the last it is {beside_five('1 inducing', 'last')}, and {beside_five('1 inducing + later rows', 'last')} "
        f"if later classes keep all of their rows: of new intents {base:.1%} are named right, and {both:.1%} then.",
    ]


def _kernel() -> RBF:
    return RBF(torch.ones((), dtype=torch.float64))


def _gram(x: Tensor) -> SharedGram:
    return SharedGram(_kernel()(x), KernelAtRows(_kernel(), x))


EXPERIMENT = Experiment(
    "representatives", "a representative of a class as a row, or as an inducing input for all of them", True, run
)

"""What a strategy for classes that arrive over time is, and what it has learnt after any number of sessions.

A session brings rows of classes, new ones as a rule. Of all rows a strategy keeps few: the means of the groups that it
puts each class's rows into (`Strategy.groups`), weighted by how many rows they stand for. What the next session starts
from is these, the number of the session in which each class came, and what is `SessionModel.shared`; everything else is
a function of the three, so that a model file holds nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from sureshot.tree.class_tree import ClassTree


@dataclass(frozen=True)
class ClassRows:
    """Weighted rows of classes, some of which may have none."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,) int64
    weight: Tensor  # (N,), how many rows each stands for
    sessions: Tensor  # (C,) int64, in which each class came: 0 for the classes that had rows in the first one
    unseen: Tensor | None = None  # (N,) bool, rows that the network which made them was not trained on; None: all

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.sessions)


class Leading(NamedTuple):
    """The most probable classes of queries, first the most probable; both (Q, k)."""

    log_probabilities: Tensor
    classes: Tensor  # int64


def most_probable(log_probabilities: Tensor, k: int) -> Leading:
    """Of all classes (Q, C); of equally probable ones the first comes first."""
    least = log_probabilities.topk(k).values[:, -1:]
    several = int((log_probabilities >= least).sum(-1).max())  # k, or more where classes are as probable as the last
    classes = log_probabilities.topk(several).indices.sort(-1).values
    found = log_probabilities.gather(-1, classes).sort(stable=True, dim=-1, descending=True)
    return Leading(found.values[:, :k], classes.gather(-1, found.indices)[:, :k])


class SessionModel(ABC):
    """All classes so far, ready to be asked."""

    n_classes: int

    usual_beam: ClassVar[int]
    """Branches that a search follows unless it is told how many."""

    classes_for_a_branch: ClassVar[int]
    """How many classes are looked at, all together, in the time that a search takes for each branch that it follows."""

    @property
    @abstractmethod
    def shared(self) -> Mapping[str, Tensor]:
        """What the first session taught that is kept for all later ones."""

    @property
    @abstractmethod
    def tree(self) -> ClassTree:
        """The tree of the classes."""

    @property
    @abstractmethod
    def log_evidence(self) -> float:
        """Of the kept rows' classes, in nats; NaN where there is none."""

    @property
    @abstractmethod
    def entries_per_query(self) -> int:
        """Intermediate numbers that a query takes, so that callers can bound memory by asking in blocks."""

    @abstractmethod
    def log_probabilities(self, x: Tensor) -> Tensor:
        """Of the classes at queries (Q, D), (Q, C)."""

    @abstractmethod
    def class_latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of one latent for each class, each (Q, C)."""

    @abstractmethod
    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the independent latents that the classes' probabilities are made of, each (L, Q)."""

    @abstractmethod
    def class_logits(self, latents: Tensor) -> Tensor:
        """Log probabilities of the classes given latents (P, L, Q), up to a number for each query; (P, C, Q)."""

    @abstractmethod
    def outlier_scores(self, x: Tensor) -> Tensor:
        """How little queries are like any class that has rows, (Q,)."""

    @abstractmethod
    def leading(self, x: Tensor, k: int, beam: int | None, temperature: float = 1.0) -> Leading:
        """The k most probable classes, by a search that follows a beam of so many branches; None: by a look at all.

        Log probabilities are divided by the temperature and normalised again.
        """


class FirstSession(NamedTuple):
    """What the first session has taught."""

    model: SessionModel
    weight: Tensor  # (N,), how many rows each of its rows is to stand for: less than before if a network has learnt it


class Strategy(ABC):
    """How classes that arrive are remembered and predicted."""

    @property
    def keeps_first_answers(self) -> bool:
        """Whether what is said among the first session's classes, of a row that is one of them, stays as it was."""
        return False

    @abstractmethod
    def groups(self, rows: ClassRows, before: SessionModel | None) -> Tensor:
        """Which rows are replaced by their mean: numbers (N,); rows of one group have one class.

        A class whose rows need no replacing has a group for each of them. `before` is what is known of the sessions
        before, None in the first.
        """

    @abstractmethod
    def first_session(self, rows: ClassRows, kept: ClassRows, seed: int) -> FirstSession:
        """From all rows of the first session, and those of them that are kept."""

    @abstractmethod
    def later_session(
        self, shared: Mapping[str, Tensor], kept: ClassRows, seed: int, before: SessionModel | None
    ) -> SessionModel:
        """From what was shared before and the rows that are kept now.

        What is known `before` may be used again, where it is what would be found anew.
        """

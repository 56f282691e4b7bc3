"""Classes that arrive in sessions: which classes, and which of their rows, come when.

A base session brings many classes, usually with many rows; each later session brings a few classes with a few rows
(shots), and what came before is not shown again. After each session a classifier is asked about test rows of all
classes seen so far. `Sessions` is such a protocol over a labelled set with a training and a test part, as a value:
embeddings for methods on frozen features, images for those that train a network.

Which classes form a session is said by lists of names, or drawn by `session_classes`; which rows are shots by lists of
row numbers, or drawn by seed (`Sessions.drawn`). `sureshot.incremental.session_data` has the protocols by name.

Reference: Tao et al., "Few-shot class-incremental learning" (2020).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.data.checks import listed, near
from sureshot.data.class_splits import shuffled
from sureshot.data.labelled import LabelledSet
from sureshot.data.root import DataError

logger = logging.getLogger(__name__)

ClassName = str | int


@dataclass(frozen=True)
class Session:
    """What one session brings."""

    classes: tuple[int, ...]  # class numbers
    rows: tuple[int, ...]  # training rows, all of these classes


class Rows(NamedTuple):
    """Rows as arrays."""

    x: np.ndarray  # (n, ...), as in the labelled set
    y: np.ndarray  # (n,) int64, class numbers
    session: np.ndarray  # (n,) int64, the session of each row's class
    unseen: np.ndarray | None = None  # (n,) bool, see `Sessions.unseen`


@dataclass(frozen=True, eq=False)
class Sessions:
    """A protocol: the base session and those after it; checked when made."""

    train: LabelledSet
    test: LabelledSet  # of the same classes in the same order
    sessions: tuple[Session, ...]  # the base session first
    name: str
    description: str  # one line for tables and reports
    out_of_scope: Tensor | None = None  # (M, ...), test rows that belong to no class
    unseen: Tensor | None = None
    """Of features: which training rows their network was not trained on, (N,) bool. None: all, or nobody knows."""

    def __post_init__(self) -> None:
        self._check_sets()
        if self.unseen is not None and (self.unseen.dtype != torch.bool or self.unseen.shape != self.train.y.shape):
            raise DataError(
                f"{self.name}: unseen must be a mask of the {len(self.train)} training rows, got shape "
                f"{tuple(self.unseen.shape)} and type {self.unseen.dtype}"
            )
        if not self.sessions:
            raise DataError(f"{self.name}: no sessions; expected at least the base session")
        seen: dict[int, int] = {}
        for k, session in enumerate(self.sessions):
            self._check_classes(k, session, seen)
            self._check_rows(k, session)
            seen |= dict.fromkeys(session.classes, k)

    def _check_classes(self, k: int, session: Session, seen: Mapping[int, int]) -> None:
        n_classes = self.train.n_classes
        if not session.classes:
            raise DataError(f"session {k} has no classes")
        for c, times in Counter(session.classes).items():
            if not 0 <= c < n_classes:
                raise DataError(f"session {k} has class number {c}, expected 0 to {n_classes - 1}")
            if c in seen or times > 1:
                where = f"in sessions {seen[c]} and {k}" if c in seen else f"twice in session {k}"
                raise DataError(f"class {self.train.class_names[c]!r} is {where}: a class arrives once")

    def _check_rows(self, k: int, session: Session) -> None:
        names, y = self.train.class_names, self.train.y.tolist()
        times = Counter(session.rows)
        for row in session.rows:
            if not 0 <= row < len(y):
                raise DataError(f"session {k} has row number {row}, expected 0 to {len(y) - 1}")
            if times[row] > 1:
                raise DataError(f"session {k} has row {row} more than once")
            if y[row] not in session.classes:
                raise DataError(f"session {k} has row {row} of class {names[y[row]]!r}, which is not among its classes")
        without = set(session.classes) - {y[row] for row in session.rows}
        if without:
            raise DataError(f"session {k} has no row of its class {listed([names[c] for c in sorted(without)])}")

    def _check_sets(self) -> None:
        if self.train.class_names != self.test.class_names:
            differing = set(self.train.class_names) ^ set(self.test.class_names)
            raise DataError(
                f"{self.name}: training and test part must have the same classes in the same order; "
                f"{'only one has ' + listed(sorted(differing)) if differing else 'the order differs'}"
            )
        kinds = {"train": _kind(self.train.x), "test": _kind(self.test.x)}
        if self.out_of_scope is not None:
            kinds["out_of_scope"] = _kind(self.out_of_scope)
        if len(set(kinds.values())) > 1:
            raise DataError(
                f"{self.name}: parts differ in the shape or type of their inputs: "
                + ", ".join(f"{part} {shape} {dtype}" for part, (shape, dtype) in kinds.items())
                + "; give all of them the same columns"
            )

    @classmethod
    def drawn(
        cls,
        train: LabelledSet,
        test: LabelledSet,
        base: Sequence[ClassName],
        novel: Sequence[Sequence[ClassName]],
        shots: int,  # of each novel class
        *,
        base_shots: int | None = None,  # of each base class; all rows by default
        rows: Mapping[ClassName, Sequence[int]] | None = None,  # training rows of classes whose shots are not drawn
        seed: int = 0,
        name: str = "sessions",
        description: str = "",
        out_of_scope: Tensor | None = None,
    ) -> Sessions:
        """Sessions of classes by name (compared as text), with shots that the seed draws or that are listed.

        Examples
        --------
        >>> import numpy as np
        >>> from sureshot.data import LabelledSet
        >>> from sureshot.incremental.sessions import Sessions
        >>> x, y = np.random.default_rng(0).normal(size=(40, 3)), ["ant", "bee", "cat", "dog"] * 10
        >>> parts = LabelledSet.from_arrays(x, y), LabelledSet.from_arrays(x[:8], y[:8])
        >>> sessions = Sessions.drawn(*parts, base=["cat", "ant"], novel=[["dog"], ["bee"]], shots=2)
        >>> [len(session.rows) for session in sessions.sessions]
        [20, 2, 2]
        """
        number = {label: k for k, label in enumerate(train.class_names)}
        listed_rows = {str(label): tuple(chosen) for label, chosen in (rows or {}).items()}
        for label in listed_rows:
            _known(label, number, "the lists of rows name")
        y = train.y.numpy()
        made = []
        for k, labels in enumerate([base, *novel]):
            what = "the base session has" if k == 0 else f"session {k} has"
            wanted = base_shots if k == 0 else shots
            if isinstance(labels, str):
                raise DataError(f"{what} the classes {labels!r}, expected a list of names")
            if wanted is not None and wanted < 1:
                raise DataError(f"{'base_shots' if k == 0 else 'shots'}={wanted}, expected at least 1")
            classes = tuple(number[_known(str(label), number, what)] for label in labels)
            chosen: list[int] = []
            for c in classes:
                own = np.flatnonzero(y == c)
                label = train.class_names[c]
                if label in listed_rows:
                    chosen += listed_rows[label]
                    continue
                if wanted is not None and len(own) < wanted:
                    raise DataError(f"class {label!r} has {len(own)} training rows, but {wanted} shots are asked for")
                # Seeded by the class, so that its shots do not depend on when it comes.
                order = own if wanted is None else np.random.default_rng([seed, c]).permutation(own)[:wanted]
                chosen += order.tolist()
            made.append(Session(classes, tuple(chosen)))
        return cls(train, test, tuple(made), name, description, out_of_scope)

    def __len__(self) -> int:
        return len(self.sessions)

    def arriving(self, k: int) -> Rows:
        """The training rows of session k."""
        rows = torch.tensor(self.sessions[k].rows)
        return self._taken(self.train, rows)._replace(unseen=None if self.unseen is None else self.unseen[rows].numpy())

    def asked(self, k: int) -> Rows:
        """The test rows of all classes seen after session k."""
        return self._taken(self.test, (self._session_of()[self.test.y] <= k).nonzero().flatten())

    def embedded(
        self,
        encode: Callable[[Tensor], Tensor],  # inputs (N, ...) to (N, D)
    ) -> Sessions:
        """The same sessions of encoded inputs."""
        train, test = (LabelledSet(encode(part.x), part.y, part.class_names) for part in (self.train, self.test))
        outside = None if self.out_of_scope is None else encode(self.out_of_scope)
        return replace(self, train=train, test=test, out_of_scope=outside)

    def _session_of(self) -> Tensor:
        """The session of each class, (K,); beyond the last for a class that never arrives."""
        found = torch.full((self.train.n_classes,), len(self.sessions))
        for k, session in enumerate(self.sessions):
            found[list(session.classes)] = k
        return found

    def _taken(self, part: LabelledSet, rows: Tensor) -> Rows:
        y = part.y[rows]
        return Rows(part.x[rows].numpy(), y.numpy(), self._session_of()[y].numpy())


def session_classes(
    class_names: Sequence[str],
    n_base: int,
    way: int,  # classes of each later session
    n_sessions: int | None = None,  # after the base session; as many as there are classes for by default
    seed: int = 0,
) -> tuple[list[str], list[list[str]]]:
    """Base classes, and classes of each later session, in an order that the seed decides."""
    rest = len(class_names) - n_base
    for what, value in (("n_base", n_base), ("way", way)):
        if value < 1:
            raise DataError(f"{what}={value}, expected at least 1")
    if rest < 0:
        raise DataError(f"n_base={n_base} asks for more classes than there are: the data has {len(class_names)}")
    if n_sessions is None:
        n_sessions = rest // way
        if left := rest % way:
            logger.info("%d of %d classes are left out: fewer than way=%d make no session", left, len(class_names), way)
    if n_sessions < 0:
        raise DataError(f"n_sessions={n_sessions}, expected at least 0")
    if n_base + n_sessions * way > len(class_names):
        raise DataError(
            f"{n_base} base classes and {n_sessions} sessions of {way} ask for {n_base + n_sessions * way} classes, "
            f"the data has {len(class_names)}"
        )
    order = [class_names[k] for k in shuffled(len(class_names), seed).tolist()]
    starts = range(n_base, n_base + n_sessions * way, way)
    return order[:n_base], [order[start : start + way] for start in starts]


def _known(label: str, number: Mapping[str, int], what: str) -> str:
    if label not in number:
        names = list(number)
        raise DataError(
            f"{what} class {label!r}, which is not in the data{near(label, names)}; classes: {listed(names)}"
        )
    return label


def _kind(x: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(x.shape[1:]), x.dtype

"""What new classes will look like, learnt by pretending that some of the known ones are new.

`learn_by_sessions` improves `TwoCovariances` on the task they are for. In every step some of the classes keep a few
rows only, as if they had just arrived, the others keep most of theirs, and the model is to name rows of all classes
that it has not seen. What is learnt (coordinates, both variances, temperature) is shared by all classes, so it holds
for classes that are still to come. Classes and rows kept aside say when to stop, and how sure to be of classes that
took no part in the learning: no row of a class that is really new is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sureshot.data.labelled import places_within_classes
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.incremental.two_covariances import ClassSums, TwoCovariances

FEWEST_CLASSES, FEWEST_ROWS = 10, 4
"""With fewer classes of so many rows only the temperature is learnt by sessions."""

SHOTS = (1, 10)
"""Rows of a class that has just arrived, at least and at most."""

STEPS, SNAPSHOT_EVERY = 160, 20

_RATE = 1e-2  # of Adam; for the basis relative to the mean size of its entries
_NEW_CLASSES = (0.1, 0.5)  # share of the classes that are new in a step, at least and at most
_QUERIES, _QUERIES_OF_A_CLASS = 1200, 12  # rows to name in a step
_CLASSES_ASIDE, _ROWS_ASIDE, _SESSIONS_ASIDE = 0.2, 15, 4
_USUAL = 0.6  # temperature of tables and embeddings in units of sqrt(D): between 0.3 and 1.2
_LONG_TAILS = 0.5  # degrees of freedom for each coordinate, where classes and rows aside say that tails are long:
_CLEARLY = 0.985  # where they lower the Gaussian's loss to less than this share; embeddings have none
_CAUTIOUS_TAILS = 0.1  # and where there are too few classes to say so; on tables up to 1 does about as well
_ARRIVALS, _FOLDS = 10, 5  # where nothing is learnt by sessions: classes that arrive in turn, and one row in so many


@dataclass(frozen=True)
class _Session:
    """Classes as some of their rows show them, and other rows to name."""

    classes: ClassSums
    x: Tensor  # (Q, D)
    y: Tensor  # (Q,)


def learn_by_sessions(x: Tensor, y: Tensor, generator: torch.Generator) -> TwoCovariances:
    """Covariances from rows (N, D) of classes (N,), each of which has a row; the generator is one of the CPU.

    Learnt in single precision: seconds for 10,000 rows of 384 columns.
    """
    counts, usual = torch.bincount(y), x.shape[-1] ** 0.5
    if int((counts >= FEWEST_ROWS).sum()) < FEWEST_CLASSES:
        return _estimated(x, y, generator)
    single = x.float()
    new = _some(counts, _CLASSES_ASIDE, generator)
    asked = (counts // 4).clamp(max=_ROWS_ASIDE)
    place = _places(y, generator)
    sessions = [
        _session(single, y, torch.where(new[y], _places(y, generator), place), asked, _kept(new, generator))
        for _ in range(_SESSIONS_ASIDE)
    ]
    labels = torch.cat([session.y for session in sessions])
    learning = ~new[y] & (place >= asked[y])
    numbers = torch.unique(y[learning], return_inverse=True)[1]
    seed = int(torch.randint(2**31, (), generator=generator))

    def tried(found: TwoCovariances) -> tuple[float, float]:
        return loss_and_temperature(torch.cat([_scores(found, session) for session in sessions]), labels, usual)

    start = TwoCovariances.estimated(single[learning], numbers)
    longer = tried(start.with_freedom(_LONG_TAILS))[0] < _CLEARLY * tried(start)[0]
    freedom = _LONG_TAILS if longer else math.inf
    trials = [tried(found) for found in _learnt(single[learning], numbers, freedom, STEPS, seed)]
    best = min(range(len(trials)), key=lambda trial: trials[trial][0])
    *_, found = _learnt(single, y, freedom, best * SNAPSHOT_EVERY, seed)
    return found.to(x.dtype).tempered(trials[best][1])


def _estimated(x: Tensor, y: Tensor, generator: torch.Generator) -> TwoCovariances:
    """Covariances from moments, with the temperature that suits classes and rows which had no part in them.

    Each class in turn arrives with a few rows among the others, and a share of everybody's rows is asked for.
    """
    counts = torch.bincount(y)
    places = _places(y, generator)
    scores, labels = [], []
    for label in torch.argsort(counts, descending=True)[:_ARRIVALS].tolist():
        new = torch.arange(len(counts), device=y.device) == label
        asked = torch.minimum(torch.where(new, counts // 2, (counts / _FOLDS).ceil().long()), counts - 1)
        session = _session(x, y, places, asked, _kept(new, generator))
        learning = (y != label) & (places >= asked[y])
        if not len(session.y) or not bool(learning.any()):
            continue
        numbers = torch.unique(y[learning], return_inverse=True)[1]
        found = TwoCovariances.estimated(x[learning], numbers).with_freedom(_CAUTIOUS_TAILS)
        scores.append(_scores(found, session))
        labels.append(session.y)
    # The fewer rows say how rows spread, the less a density in D dimensions is worth.
    width, freedom = x.shape[-1], len(y) - len(counts)
    usual = _USUAL * width**0.5 * (1 + width / (1 + freedom)) ** 0.5
    found = TwoCovariances.estimated(x, y).with_freedom(_CAUTIOUS_TAILS)
    if not scores:  # one class, or a row for each
        return found.tempered(width**0.5)
    # However many rows arrive, a few classes say little of those to come: four count as one observation.
    return found.tempered(loss_and_temperature(torch.cat(scores), torch.cat(labels), usual, len(scores) / 4)[1])


def _learnt(x: Tensor, y: Tensor, freedom: float, steps: int, seed: int) -> Iterator[TwoCovariances]:
    """Covariances at the start and after every `SNAPSHOT_EVERY` steps."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.bincount(y)
    asked = (counts // 2).clamp(max=max(1, min(_QUERIES_OF_A_CLASS, _QUERIES // len(counts))))

    def pretended() -> _Session:
        share = torch.empty(()).uniform_(*_NEW_CLASSES, generator=generator)
        new = _some(counts, float(share), generator)
        return _session(x, y, _places(y, generator), asked, _kept(new, generator))

    start, first = TwoCovariances.estimated(x, y).with_freedom(freedom), pretended()
    start = start.tempered(loss_and_temperature(_scores(start, first), first.y, x.shape[-1] ** 0.5)[1])
    basis = start.basis.clone().requires_grad_()
    logs = [part.clamp_min(1e-6).log().requires_grad_() for part in (start.between, start.within, start.temperature)]
    optimizer = torch.optim.Adam(
        [{"params": [basis], "lr": _RATE * float(basis.detach().abs().mean())}, {"params": logs, "lr": _RATE}]
    )
    for step in range(steps + 1):
        if step % SNAPSHOT_EVERY == 0:
            between, within, temperature = (part.detach().exp() for part in logs)
            yield TwoCovariances(start.centre, basis.detach().clone(), between, within, temperature, start.tail)
        if step == steps:
            return
        session = pretended()
        with torch.enable_grad():
            between, within, temperature = (part.exp() for part in logs)
            found = TwoCovariances(start.centre, basis, between, within, temperature, start.tail)
            optimizer.zero_grad()
            cross_entropy(_scores(found, session), session.y).backward()
        optimizer.step()


def _session(x: Tensor, y: Tensor, place: Tensor, asked: Tensor, kept: Tensor) -> _Session:
    """Of each class the rows at the first places are asked for, and so many of the others are kept."""
    queries = place < asked[y]
    known = ~queries & (place < (asked + kept)[y])
    return _Session(ClassSums.of_rows(x[known], y[known], len(asked)), x[queries], y[queries])


def _scores(found: TwoCovariances, session: _Session) -> Tensor:
    return found.scores(found.densities(session.classes), session.x)


def _some(classes: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A mask of about this share of the classes, at least one of them."""
    return _rank(len(classes), generator, classes.device) < max(1, round(share * len(classes)))


def _kept(new: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of each class that are known: a few of new ones, all of the others."""
    least, most = SHOTS
    shots = torch.randint(least, most + 1, new.shape, generator=generator).to(new.device)
    return torch.where(new, shots, 2**31)


def _places(y: Tensor, generator: torch.Generator) -> Tensor:
    """Place of each row in a random order of its class's rows, from 0."""
    return places_within_classes(y, _rank(len(y), generator, y.device))


def _rank(n: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """The numbers below n in random order; the same ones on every device."""
    return torch.randperm(n, generator=generator).to(device)

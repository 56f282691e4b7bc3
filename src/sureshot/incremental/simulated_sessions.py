"""What new classes will look like, learnt by pretending that some of the known ones are new.

`learn_by_sessions` improves `TwoCovariances` on the task they are for. In every step some of the classes keep a few
rows only, as if they had just arrived, the others keep most of theirs, and the model is to name rows of all classes
that it has not seen. What is learnt (coordinates, both variances, temperature) is shared by all classes, so it holds
for classes that are still to come. Classes and rows kept aside say when to stop, and how sure to be of classes that
took no part in the learning: no row of a class that is really new is needed.

Rows may be features of a network that was trained on most of them (`learn_with_unseen`), which lie nearer to the means
of their classes than any new row will. Then rows it has *not* learnt are what is asked for, and what pretended new
classes arrive with; and they say what a class's learnt rows are worth together, however many there are.
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
from sureshot.incremental.two_covariances import LEAST_SHRINKAGE, ClassSums, TwoCovariances
from sureshot.kernels import is_unit_norm
from sureshot.progress import report

FEWEST_CLASSES, FEWEST_ASKED = 10, 60
"""Classes of which rows can be asked for, and such rows, without which only the temperature is learnt by sessions.

A quarter of a class's rows are asked for; fewer than sixty in all misjudge tails, temperature and when to stop."""

SEVERAL_ROWS = 3
"""Rows of a class from which on it says how rows of a class spread; a few classes of two say it worse than many of one.
"""

FEWEST_UNSEEN = 2
"""Rows of a class that a network has not learnt, at least, for them to be asked for: one more is to be known."""

SHOTS = (1, 10)
"""Rows of a class that has just arrived, at least and at most."""

STEPS, SNAPSHOT_EVERY = 160, 20

NETWORK_SHRINKAGE = 0.1
"""Share of the isotropic part in the covariance within classes, where a network has learnt them.

Directions in which its rows hardly vary still separate classes that it was not trained on; half of the mean variance,
the usual share, drowns them, and without any share they make a few rows sure of a wrong class.
"""

_RATE = 1e-2  # of Adam; for the basis relative to the mean size of its entries
_NEW_CLASSES = (0.1, 0.5)  # share of the classes that are new in a step, at least and at most
_QUERIES, _QUERIES_OF_A_CLASS = 1200, 12  # rows to name in a step
_CLASSES_ASIDE, _ROWS_ASIDE, _SESSIONS_ASIDE = 0.2, 15, 4
_USUAL = 0.6  # temperature of tables and embeddings in units of sqrt(D): between 0.3 and 1.2
_LONG_TAILS = 0.5  # degrees of freedom for each coordinate, where classes and rows aside say that tails are long:
_CLEARLY = 0.985  # where they lower the Gaussian's loss to less than this share; embeddings have none
_CAUTIOUS_TAILS = 0.1  # and where there are too few classes to say so; on tables up to 1 does about as well
_WORTHS = (3.0, 6.0, 12.0, 25.0, 50.0, 100.0, math.inf)  # of a class's learnt rows, see `worth_of`
_OF_COLUMNS = (0.2, 0.05)  # further shares of the isotropic part, of rows of any length, if left-out rows ask for them
_ARRIVALS, _FOLDS = 10, 5  # where nothing is learnt by sessions: classes that arrive in turn, and one row in so many
_PARTS, _ROUNDS = 5, 2  # of a network's classes, each of which is new in turn; how often, with other rows


@dataclass(frozen=True)
class _Session:
    """Classes as some of their rows show them, and other rows to name."""

    classes: ClassSums
    learnt: ClassSums  # of these classes too, by rows that a network has learnt
    x: Tensor  # (Q, D)
    y: Tensor  # (Q,)


def learn_by_sessions(x: Tensor, y: Tensor, generator: torch.Generator) -> TwoCovariances:
    """Covariances from rows (N, D) of classes (N,), each of which has a row; the generator is one of the CPU.

    Learnt in single precision: seconds for 10,000 rows of 384 columns.
    """
    teach = _teach(y)
    x, y = x[teach], torch.unique(y[teach], return_inverse=True)[1]
    asked = (torch.bincount(y) // 4).clamp(max=_ROWS_ASIDE)
    if int((asked > 0).sum()) < FEWEST_CLASSES or int(asked.sum()) < FEWEST_ASKED:
        return _estimated(x, y, generator)
    return _lessons(x, y, asked, generator)


def _teach(y: Tensor) -> Tensor:
    """Rows (N,) bool to learn from: not those of classes of one, where at least as many have `SEVERAL_ROWS`.

    A single row says little of its class, and is taken for its mean all the same; to leave it to the other classes to
    say what it is worth is what later sessions do.
    """
    counts = torch.bincount(y)
    several, single = int((counts >= SEVERAL_ROWS).sum()), int((counts == 1).sum())
    return counts[y] > 1 if several >= max(2, single) else torch.ones_like(y, dtype=torch.bool)


def learn_with_unseen(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,), each of C classes has a row
    unseen: Tensor,  # (N,) bool: rows that the network which made them was not trained on
    generator: torch.Generator,
) -> tuple[TwoCovariances, float]:
    """Covariances, and what learnt rows are worth (`worth_of`).

    `FEWEST_CLASSES` classes or more must have `FEWEST_UNSEEN` unseen rows or more. Covariances are moments of all rows:
    learning by sessions would teach what tells the network's own classes apart, which it knows already. Every class is
    new in turn, among a fifth of them, and unseen rows that took no part say how long tails are, the temperature, and
    what learnt rows are worth: all at once, as learnt rows of full worth hide the good of tails.
    """
    if bool(unseen.all()):
        return learn_by_sessions(x, y, generator), math.inf
    counts = torch.bincount(y[unseen], minlength=int(y.max()) + 1)
    asked, able, single = (counts // 2).clamp(max=_ROWS_ASIDE), (counts >= FEWEST_UNSEEN).nonzero().flatten(), x.float()
    lessons = []
    for _ in range(_ROUNDS):
        for part in able[_rank(len(able), generator, y.device)].chunk(_PARTS):
            new = torch.zeros_like(counts, dtype=torch.bool).index_fill(0, part, True)
            place = _places(y, generator, ~unseen)
            kept = torch.where(new, _kept(new, generator).minimum(counts - asked), 2**31)
            learning = ~new[y] & (place >= asked[y])
            numbers = torch.unique(y[learning], return_inverse=True)[1]
            start = TwoCovariances.estimated(single[learning], numbers, NETWORK_SHRINKAGE)
            lessons.append((start, _session(single, y, place, asked, kept, ~unseen)))
    labels, best = torch.cat([session.y for _, session in lessons]), (math.inf, 0.0, 0.0, 0.0)
    for freedom in (math.inf, _LONG_TAILS):
        for worth in _WORTHS:
            scores = torch.cat([_scores(start.with_freedom(freedom), session, worth) for start, session in lessons])
            best = min(best, (*loss_and_temperature(scores, labels, x.shape[-1] ** 0.5), freedom, worth))
    _, temperature, freedom, worth = best
    found = TwoCovariances.estimated(single, y, NETWORK_SHRINKAGE).with_freedom(freedom)
    return found.to(x.dtype).tempered(temperature), worth


def worth_of(counts: Tensor, worth: float) -> Tensor:
    """How many unseen rows a class's learnt rows stand for: nearly `counts` if few, never more than `worth`."""
    return counts / (1 + counts / worth)


def _lessons(
    x: Tensor,
    y: Tensor,
    asked: Tensor,  # (C,), rows to name
    generator: torch.Generator,
) -> TwoCovariances:
    """Covariances learnt by sessions, for as long as classes and rows aside get the better of it."""
    usual, single, none = x.shape[-1] ** 0.5, x.float(), torch.zeros_like(y, dtype=torch.bool)
    new = _some(asked, _CLASSES_ASIDE, generator)
    place = _places(y, generator)
    sessions = [
        _session(single, y, torch.where(new[y], _places(y, generator), place), asked, _kept(new, generator), none)
        for _ in range(_SESSIONS_ASIDE)
    ]
    labels = torch.cat([session.y for session in sessions])
    learning = ~new[y] & (place >= asked[y])
    numbers = torch.unique(y[learning], return_inverse=True)[1]
    seed = int(torch.randint(2**31, (), generator=generator))

    def tried(found: TwoCovariances) -> tuple[float, float]:
        return loss_and_temperature(torch.cat([_scores(found, session) for session in sessions]), labels, usual)

    starts = {share: TwoCovariances.estimated(single[learning], numbers, share) for share in _shares(x)}
    losses = {share: tried(start)[0] for share, start in starts.items()}
    shrinkage = min(losses, key=losses.__getitem__)
    longer = tried(starts[shrinkage].with_freedom(_LONG_TAILS))[0] < _CLEARLY * losses[shrinkage]
    freedom = _LONG_TAILS if longer else math.inf
    snapshots = _learnt(single[learning], numbers, freedom, STEPS, seed, shrinkage)
    _, temperature, best = min((*tried(one), number) for number, one in enumerate(snapshots))
    *_, found = _learnt(single, y, freedom, best * SNAPSHOT_EVERY, seed, shrinkage)
    return found.to(x.dtype).tempered(temperature)


def _estimated(x: Tensor, y: Tensor, generator: torch.Generator) -> TwoCovariances:
    """Covariances from moments, with the temperature that suits classes and rows which had no part in them.

    Each class in turn arrives with a few rows among the others, and a share of everybody's rows is asked for.
    """
    counts = torch.bincount(y)
    places = _places(y, generator)
    arrivals = []
    for label in torch.argsort(counts, descending=True)[:_ARRIVALS].tolist():
        new = torch.arange(len(counts), device=y.device) == label
        asked = torch.minimum(torch.where(new, counts // 2, (counts / _FOLDS).ceil().long()), counts - 1)
        session = _session(x, y, places, asked, _kept(new, generator), torch.zeros_like(y, dtype=torch.bool))
        learning = (y != label) & (places >= asked[y])
        if not len(session.y) or not bool(learning.any()):
            continue
        arrivals.append((x[learning], torch.unique(y[learning], return_inverse=True)[1], session))

    def moments(rows: Tensor, classes: Tensor, shrinkage: float) -> TwoCovariances:
        return TwoCovariances.estimated(rows, classes, shrinkage).with_freedom(_CAUTIOUS_TAILS)

    # The fewer rows say how rows spread, the less a density in D dimensions is worth.
    width, freedom = x.shape[-1], len(y) - len(counts)
    usual = _USUAL * width**0.5 * (1 + width / (1 + freedom)) ** 0.5
    if not arrivals:  # one class, or a row for each
        return moments(x, y, LEAST_SHRINKAGE).tempered(width**0.5)
    labels, best = torch.cat([session.y for *_, session in arrivals]), (math.inf, 0.0, 0.0)
    for shrinkage in _shares(x):
        scores = torch.cat([_scores(moments(rows, classes, shrinkage), session) for rows, classes, session in arrivals])
        # However many rows arrive, a few classes say little of those to come: four count as one observation.
        best = min(best, (*loss_and_temperature(scores, labels, usual, len(arrivals) / 4), shrinkage))
    _, temperature, shrinkage = best
    return moments(x, y, shrinkage).tempered(temperature)


def _learnt(x: Tensor, y: Tensor, freedom: float, steps: int, seed: int, shrinkage: float) -> Iterator[TwoCovariances]:
    """Covariances at the start and after every `SNAPSHOT_EVERY` steps."""
    generator = torch.Generator().manual_seed(seed)
    counts, none = torch.bincount(y), torch.zeros_like(y, dtype=torch.bool)
    asked = (counts // 2).clamp(max=max(1, min(_QUERIES_OF_A_CLASS, _QUERIES // len(counts))))

    def pretended() -> _Session:
        share = torch.empty((), dtype=torch.float32).uniform_(*_NEW_CLASSES, generator=generator)
        new = _some(counts, float(share), generator)
        return _session(x, y, _places(y, generator), asked, _kept(new, generator), none)

    start, first = TwoCovariances.estimated(x, y, shrinkage).with_freedom(freedom), pretended()
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
        report("learning how classes spread", (step + 1) / steps)


def _shares(x: Tensor) -> list[float]:
    """Of the isotropic part in the covariance within classes of rows (N, D), to be tried."""
    return [LEAST_SHRINKAGE] if is_unit_norm(x) else [LEAST_SHRINKAGE, *_OF_COLUMNS]


def _session(x: Tensor, y: Tensor, place: Tensor, asked: Tensor, kept: Tensor, learnt: Tensor) -> _Session:
    """Of each class the rows at the first places are asked for, and so many of the others are kept."""
    queries = place < asked[y]
    known = ~queries & (place < (asked + kept)[y])
    others, own = (ClassSums.of_rows(x[part], y[part], len(asked)) for part in (known & ~learnt, known & learnt))
    return _Session(others, own, x[queries], y[queries])


def _scores(found: TwoCovariances, session: _Session, worth: float = math.inf) -> Tensor:
    share = (1 / (1 + session.learnt.counts / worth)).unsqueeze(-1)
    learnt = ClassSums(share * session.learnt.sums, worth_of(session.learnt.counts, worth))
    return found.scores(found.densities(session.classes.plus(learnt)), session.x)


def _some(classes: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A mask of about this share of the classes, at least one of them."""
    return _rank(len(classes), generator, classes.device) < max(1, round(share * len(classes)))


def _kept(new: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of each class that are known: a few of new ones, all of the others."""
    least, most = SHOTS
    shots = torch.randint(least, most + 1, new.shape, generator=generator).to(new.device)
    return torch.where(new, shots, 2**31)


def _places(y: Tensor, generator: torch.Generator, last: Tensor | None = None) -> Tensor:
    """Place of each row in a random order of its class's rows, from 0; some (N,) come last."""
    order = _rank(len(y), generator, y.device)
    return places_within_classes(y, order if last is None else torch.cat([order[~last[order]], order[last[order]]]))


def _rank(n: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """The numbers below n in random order; the same ones on every device."""
    return torch.randperm(n, generator=generator).to(device)

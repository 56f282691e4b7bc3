"""Weights of an average of settings, from how well each of them predicts rows that were left out.

A group of candidates is one kernel family under one likelihood. Its scales were chosen by the very scores that are to
weigh it, which favours flexible groups; so they are chosen again for each fold of the rows from
the scores of the other folds (cross-fitting), and a row counts with the scores of the scales that were chosen without
it. That costs nothing: all candidates have been scored at all rows. Settings that nothing was chosen for (`untuned`)
are one more group where rows are few, which needs none of this.

The weights maximise the log score of the average (stacking of predictive distributions, Yao, Vehtari, Simpson & Gelman
2018, equation 6) and a Dirichlet prior of few pseudo-counts, which share the weight evenly where labels are few, half
of it among the untuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sureshot.estimators.rows.support import EXACT_LIMIT

if TYPE_CHECKING:
    from sureshot.estimators.gp.tuning.family_search import Candidate

PSEUDO_COUNTS = 3.0  # of all groups together, and as many of the untuned
MOST_MEMBERS = 5  # what one more adds to the score is less than what it costs a prediction
SOME_ROWS = 150  # up to which families stand beside them with nothing chosen, as what was chosen may be luck,
MOST_OF_SOME = 16  # and as many members at most are kept when rows come
FEWEST_TO_TUNE = 15  # rows that can be left out: fewer are all predicted right by some setting, by luck
MOST_OF_MANY = 2  # of rows beyond `EXACT_LIMIT`, as each keeps features of all, and local members stand beside them
_MAX_STEPS, _SHORTEST_STEP, _TOLERANCE = 100, 1e-6, 1e-12  # the last in nats, of what another step would gain


def cross_fitted(
    groups: Sequence[Sequence[Candidate]],
    usable: Tensor,  # (N,), weights of the rows that can be left out
    folds: Tensor,  # (N,), from 0
) -> Tensor:
    """Log scores (G, N) of every group at every row, its candidate chosen without the row's fold."""
    found = []
    for candidates in groups:
        pointwise = torch.stack([candidate.pointwise for candidate in candidates])  # (K, N)
        prior = pointwise.new_tensor([candidate.objective for candidate in candidates]) - pointwise @ usable
        scores = torch.empty_like(pointwise[0])
        for fold in range(int(folds.max()) + 1):
            inside = folds == fold
            best = int((pointwise[:, ~inside] @ usable[~inside] + prior).argmax())
            scores[inside] = pointwise[best, inside]
        found.append(scores)
    return torch.stack(found)


def most_members(n_rows: int) -> int:
    """How many members that see all rows an average may have that is fitted to so many."""
    return MOST_MEMBERS if n_rows <= EXACT_LIMIT else MOST_OF_MANY


def stacking_weights(
    scores: Tensor,  # (G, N), log predictive densities of left-out rows
    usable: Tensor,  # (N,)
    most: int,  # members, `most_members`
    pseudo_counts: float = PSEUDO_COUNTS,
    untuned: Tensor | None = None,  # (N,), log predictive densities of one more group, for which nothing was chosen
) -> Tensor:
    """Weights (G,) that sum to 1, zero for groups that are dropped; of the untuned one more, which comes last.

    All but the heaviest go, and those are weighed again without them. The untuned stay.
    """
    weights = _mixture_weights(scores, usable, pseudo_counts, untuned)[: len(scores)]
    kept = weights.argsort(descending=True, stable=True)[:most]
    again = _mixture_weights(scores[kept], usable, pseudo_counts, untuned)
    return torch.cat([torch.zeros_like(weights).index_copy(0, kept, again[: len(kept)]), again[len(kept) :]])


def _mixture_weights(scores: Tensor, usable: Tensor, pseudo_counts: float, untuned: Tensor | None) -> Tensor:
    """The maximum by Newton's method, of weights that need not sum to 1 but for a term that makes them.

    It is concave, and the prior keeps it inside. Expectation maximisation takes hundreds of steps where weights vanish.
    """
    prior = scores.new_full((len(scores),), pseudo_counts / max(1, len(scores)))
    if untuned is not None:
        scores, prior = torch.cat([scores, untuned[None]]), torch.cat([prior, prior.new_tensor([pseudo_counts])])
    density, total = (scores - scores.amax(0)).exp(), usable.sum() + prior.sum()

    def objective(weights: Tensor) -> float:
        return float((weights @ density).log() @ usable + weights.log() @ prior - total * weights.sum())

    weights = density.new_full((len(scores),), 1 / len(scores))
    reached = objective(weights)
    for _ in range(_MAX_STEPS):
        relative = density / (weights @ density)
        gradient = relative @ usable + prior / weights - total
        curvature = (relative * usable) @ relative.mT + torch.diag(prior / weights.square())
        step = torch.linalg.solve(curvature, gradient)
        if float(gradient @ step) < _TOLERANCE:
            break
        length = 0.9 / max(float((-step / weights).max()), 0.9)  # weights stay positive
        while (value := objective(weights + length * step)) < reached and length > _SHORTEST_STEP:
            length /= 2
        weights, reached = weights + length * step, value
    return weights / weights.sum()

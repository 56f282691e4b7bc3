"""Choosing kernel, scales, likelihood and temperature together, from the rows themselves.

Every candidate is scored by its objective (`Objective`), the log predictive probability of left-out targets as a rule,
plus a weak log prior that decides where rows cannot (one example per class). Two kinds of candidates compete:

* least squares: closed-form leave-one-out latents for a whole path of noise levels from one eigendecomposition for each
  length-scale, these tried uphill from the natural one;
* another likelihood by Laplace's method, for the kernel families that least squares ranks highest, uphill on a lattice
  of length-scale and output scale from the length-scale that least squares likes best.

With `relevance` the best family is also tried with a length-scale for each column. The best of each family and
likelihood are averaged, with weights by left-out rows (`stacking`); families that are not climbed take part by least
squares alone. Of few rows every family takes part at its natural scales, too (`Search.untuned`), and of very few
nothing else does: what ten rows prefer is luck. Embeddings have an average of two kernels (`of_directions`).

Where one candidate is to be chosen, another than the default (the first model) must win by more than two standard
errors of the paired difference. One is the usual rule (Breiman et al. 1984), but the winner here is the best of many.
Where only some classes are compared, least squares cannot win: classes hide each other from it.

Many rows are tuned on a stratified subset. All rows then find weights of an average and its temperature.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from joblib import delayed
from torch import Tensor

from sureshot.computing.workers import at_once
from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.tuning.family_search import DEFAULT_OUTPUT_SCALE, Candidate, Family, Search, scaled
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.gp.tuning.screening import (
    choose,
    linear_or_bent,
    screened,
    targets_look_random,
    with_relevance,
)
from sureshot.estimators.gp.tuning.stacking import (
    FEWEST_TO_TUNE,
    SOME_ROWS,
    cross_fitted,
    most_members,
    stacking_weights,
)
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import FEW_ROWS, Support, tuning_part
from sureshot.kernels import Scale
from sureshot.progress import report, stage, tracked

MAX_CLIMBS = 3  # families that are tried with Laplace's method where one setting is chosen
MAX_CLIMBS_OF_AVERAGE = 4
AVERAGED_ROWS = 1000  # embeddings up to which kernels that bend are averaged with the one that does not
SCREENED = 0.4  # of the time, roughly, that choosing takes has gone by when it is known which families to climb


@dataclass(frozen=True)
class Choice:
    """One complete choice."""

    kernel: Scale  # with its length-scale and output scale
    model: Model
    temperature: float  # latents are divided by it before the predictive rule is applied
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    column_weights: Tensor | None = None  # (D,), of the chosen family
    ranks: Ranks | None = None  # of the chosen family
    relevance: Tensor | None = None  # (D,), of the chosen family
    weight: float = 1.0  # its share of an average


def tune(
    support: Support,
    families: tuple[Family, ...],
    models: tuple[Model, ...],  # the default first; a least-squares model may follow
    objective: Objective,
    rng: np.random.Generator,  # chooses the subset of a large support
    n_jobs: int | None = None,  # families searched at once
    average: bool = False,
    relevance: bool = False,  # whether columns may have length-scales of their own
    embeddings: bool = False,  # whether the families compare these, the first linear in them
    directions: tuple[Family, ...] = (),  # of rows of a table, which then have half of an average
) -> tuple[Choice, ...]:
    """The best setting for a support, or several to be averaged, the heaviest first.

    An average needs more than one family.
    """
    part = tuning_part(support, rng)
    searches = [Search(part, k, family, objective) for k, family in enumerate(families)]
    tuning = _Tuning(support, part, models, objective, n_jobs)
    average = average and not objective.by_evidence and len(families) > 1
    if embeddings:
        weighted = tuning.of_embeddings(searches, average and part.n_able > 0)
    else:
        weighted, searches = tuning.of_table(searches, average, relevance and not objective.by_evidence, directions)
    return _choices(weighted, [search.family for search in searches], part.usable)


Weighted = list[tuple[float, Candidate]]
"""An average, the heaviest first."""


@dataclass(frozen=True)
class _Tuning:
    """What settings are compared by."""

    support: Support
    subset: Support  # the rows that tune, which may be all
    models: tuple[Model, ...]
    objective: Objective
    n_jobs: int | None

    def of_embeddings(self, searches: list[Search], average: bool) -> Weighted:
        """All kernels and least squares if targets look random, else two kernels, or one if another is clearly ahead.

        Of more than `AVERAGED_ROWS` one: a kernel that bends has as many features as there are rows.
        """
        with stage(0.0, SCREENED):
            climbing = searches[:1] if self.objective.by_evidence else linear_or_bent(searches)
            look_random = average and targets_look_random(searches, self.support, bent=len(climbing) > 1)
            of_two = average and not look_random and len(self.support.y) <= AVERAGED_ROWS
            if of_two and len(climbing) == 1:
                return of_directions(searches, self.models[0], self.subset)
        found = self._climbed(climbing)
        if look_random:
            return self._average(searches, climbing, found, [])
        chosen = self._single(max(found, key=lambda candidates: _best(candidates).objective))
        if of_two and not chosen.model.scheme.is_exact:
            return of_directions(searches, self.models[0], self.subset)
        return [(1.0, chosen)]

    def of_table(
        self, searches: list[Search], average: bool, relevance: bool, directions: tuple[Family, ...]
    ) -> tuple[Weighted, list[Search]]:
        """The families that least squares ranks highest, and with relevance one more; also all searches there are."""
        untuned = self._untuned(searches) if average and self.objective.noise is None else []
        if untuned and self.subset.n_able < FEWEST_TO_TUNE:
            return [(1 / len(untuned), candidate) for candidate in untuned], searches
        with stage(0.0, SCREENED):
            most = MAX_CLIMBS_OF_AVERAGE if average else MAX_CLIMBS
            climbing = screened(searches, most, self.n_jobs)
        if relevance:
            report("comparing columns", SCREENED)
            further = with_relevance(searches)
            climbing, searches = [*climbing, *further], [*searches, *further]
        found = self._climbed(climbing)
        if not average:
            return [(1.0, self._single(list(itertools.chain.from_iterable(found))))], searches
        weighted = self._average(searches, climbing, found, untuned)
        if directions:
            beside = [Search(self.subset, len(searches) + k, one, self.objective) for k, one in enumerate(directions)]
            searches = [*searches, *beside]
            both = [*weighted, *of_directions(beside, self.models[0], self.subset)]
            weighted = _heaviest_first((0.5 * weight, candidate) for weight, candidate in both)
        return weighted, searches

    def _untuned(self, searches: list[Search]) -> list[Candidate]:
        """All families at their natural scales, of few rows; of very few on ranks, too."""
        few = self.subset.n_able < FEW_ROWS
        if self.subset.n_able >= SOME_ROWS or (not few and self.objective.rule != "plug_in"):
            return []
        return [search.untuned(self.models[0]) for search in searches if few or search.family.ranks is None]

    def _climbed(self, searches: list[Search]) -> list[list[Candidate]]:
        """The candidates of each, at once but for those that begin where another has ended."""
        apart = [search for search in searches if search.base not in searches]
        with stage(SCREENED, 1.0):
            begun = at_once((delayed(search.candidates)(self.models) for search in apart), self.n_jobs)
            found = dict(zip(apart, tracked(begun, "comparing settings", len(apart)), strict=True))
            for search in searches:
                if search.base in found:
                    found[search] = search.candidates(self.models, found[search.base])
        return [found[search] for search in searches]

    def _average(
        self, searches: list[Search], climbing: list[Search], found: list[list[Candidate]], untuned: list[Candidate]
    ) -> Weighted:
        """Of what was climbed, what least squares finds of the other families, and the untuned."""
        candidates = list(itertools.chain.from_iterable(found))
        exact = [model for model in self.models if model.scheme.is_exact and self.objective.rule == "plug_in"]
        for model, search in itertools.product(exact, searches):
            candidates += [] if search in climbing else search.least_squares(model)
        return averaged(candidates, self.subset, most_members(len(self.support.y)), untuned)

    def _single(self, candidates: list[Candidate]) -> Candidate:
        """The best, if it is clearly better than the default, the first model."""
        default = _best([one for one in candidates if one.model.likelihood == self.models[0].likelihood])
        of_some = self.subset.n_present < self.support.n_present  # classes, which favours least squares
        return default if of_some or self.objective.by_evidence else choose(candidates, default, self.subset.usable)


def averaged(candidates: list[Candidate], support: Support, most: int, untuned: list[Candidate]) -> Weighted:
    """The best candidate of each family and likelihood with its weight, the heaviest first; none of weight zero.

    Those that are `untuned` have one weight together, which they share evenly.
    """
    groups = _groups(candidates)
    best = [_best(group) for group in groups.values()]
    scores = cross_fitted(list(groups.values()), support.usable, support.folds())
    if untuned:
        even = torch.stack([candidate.pointwise for candidate in untuned]).logsumexp(0) - math.log(len(untuned))
        *tuned, rest = stacking_weights(scores, support.usable, most, untuned=even)
        weights = torch.stack([*tuned, *[rest / len(untuned)] * len(untuned)])
    else:
        weights = stacking_weights(scores, support.usable, most)
    return _heaviest_first(zip(weights.tolist(), [*best, *untuned], strict=True))


def of_directions(searches: list[Search], model: Model, support: Support) -> Weighted:
    """A candidate by the first kernel of embeddings, which is linear in them, and one by the best other kernel.

    The first is climbed, and the other, whose diagonal is the same, takes its output scale. Least squares weighs them:
    its leave-one-out predictions are exact, while those by the sites of Laplace's method make a nonlinear kernel look
    the worse, the fewer the rows of a class. Where rows of a few classes would have to choose the other, there is none.
    """
    first = searches[0]
    climbed = _best(first.climb(model, first.best_lengthscale(), DEFAULT_OUTPUT_SCALE))
    if not support.can_select_kernels:
        return [(1.0, climbed)]
    bent = max(searches[1:], key=lambda search: search.best_regression().objective)
    found = [climbed, bent.at(model, bent.best_lengthscale(), climbed.output_scale)]
    regressed = [search.least_squares(search.objective.regression) for search in (first, bent)]
    scores = cross_fitted(regressed, support.usable, support.folds())
    weights = stacking_weights(scores, support.usable, most_members(len(support.y)))
    return _heaviest_first(zip(weights.tolist(), found, strict=True))


def _heaviest_first(weighted: Iterable[tuple[float, Candidate]]) -> Weighted:
    """Those that have a weight."""
    return sorted((pair for pair in weighted if pair[0] > 0), key=lambda pair: pair[0], reverse=True)


def _groups(candidates: list[Candidate]) -> dict[tuple[int, str], list[Candidate]]:
    """Candidates by family and likelihood."""
    groups: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.family, candidate.model.likelihood), []).append(candidate)
    return groups


def _best(candidates: list[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.objective)


def _choices(weighted: Weighted, families: Sequence[Family], usable: Tensor) -> tuple[Choice, ...]:
    total = float(usable.sum())
    return tuple(
        Choice(
            kernel=scaled(family.build(chosen.lengthscale), chosen.output_scale),
            model=chosen.model,
            temperature=chosen.temperature,
            score=float((usable * chosen.pointwise).sum()) / total if total else math.nan,
            column_weights=family.column_weights,
            ranks=family.ranks,
            relevance=None if family.relevance is None else family.relevance.weights,
            weight=weight,
        )
        for weight, chosen in weighted
        for family in [families[chosen.family]]
    )

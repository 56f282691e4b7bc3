"""Choosing kernel, scales, likelihood, predictive rule and temperature together, from the rows themselves.

Every candidate is scored by its objective (`Objective`), the log predictive probability of left-out targets as a rule,
plus a weak log prior that decides where rows cannot (one example per class). Two kinds of candidates compete:

* least squares: closed-form leave-one-out latents for a whole path of noise levels from one eigendecomposition for each
  length-scale, these tried uphill from the natural one;
* another likelihood by Laplace's method, for the kernel families that least squares ranks highest and that are not far
  behind, uphill on a lattice of length-scale and output scale from the length-scale that least squares likes best.

With `relevance` the best family is also tried with a length-scale for each column. The best of each family and
likelihood are averaged, with weights by left-out rows (`stacking`); families that are not climbed take part by least
squares alone. Of few rows every family takes part by every rule at its natural scales, too (`Search.untuned`), and of
very few nothing else does: what ten rows prefer is luck. Embeddings have an average of two kernels (`of_directions`).

Where one candidate is to be chosen, another than the default (the first model and rule) must win by more than two
standard errors of the paired difference. One is the usual rule (Breiman et al. 1984), but the winner here is the best
of many. Where only some classes are compared, least squares cannot win: classes hide each other from it.

Many rows are tuned on a stratified subset. All rows then find weights of an average and its temperature, and choose
among more members: what a few hundred rows prefer, thousands often do not.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.tuning.family_search import DEFAULT_OUTPUT_SCALE, Candidate, Family, Search, scaled
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.gp.tuning.screening import (
    choose,
    linear_or_bent,
    promising,
    screened,
    targets_look_random,
    with_relevance,
)
from sureshot.estimators.gp.tuning.stacking import (
    FEWEST_TO_TUNE,
    SMALLEST_WEIGHT,
    SOME_ROWS,
    cross_fitted,
    most_candidates,
    most_members,
    stacking_weights,
)
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import FEW_ROWS, MANY_ROWS, Support, tuning_parts
from sureshot.kernels import Scale
from sureshot.likelihoods.base import PredictiveRule
from sureshot.progress import report, stage, tracked

MAX_CLIMBS = 3  # families that are tried with Laplace's method where one setting is chosen
MAX_CLIMBS_OF_AVERAGE = 4
PARTS = 5  # of `MANY_ROWS` and more on which kernels are screened, the first of which chooses their scales
AVERAGED_ROWS = 1000  # embeddings up to which kernels that bend are averaged with the one that does not
SCREENED = 0.4  # of the time, roughly, that choosing takes has gone by when it is known which families to climb


@dataclass(frozen=True)
class Setting:
    """One complete choice."""

    kernel: Scale  # with its length-scale and output scale
    model: Model
    rule: PredictiveRule
    temperature: float  # latents are divided by it before the rule is applied
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
) -> tuple[Setting, ...]:
    """The best setting for a support, or several to be averaged, the heaviest first.

    An average needs more than one family. Of embeddings, all kernels and least squares are averaged where targets look
    random, else two kernels (`of_directions`), unless a kernel that bends is clearly ahead by least squares. Of more
    than `AVERAGED_ROWS` there is one setting: a kernel that bends has as many features as there are rows.
    """
    subset, *elsewhere = tuning_parts(support, rng, PARTS if len(support.y) >= MANY_ROWS else 1)
    usable = subset.usable
    average = average and not objective.by_evidence and len(families) > 1 and (subset.n_able > 0 or not embeddings)
    varied = average and bool(elsewhere)
    searches = [Search(subset, k, family, objective) for k, family in enumerate(families)]
    untuned: list[Candidate] = []
    if average and not embeddings and subset.n_able < SOME_ROWS:
        few = subset.n_able < FEW_ROWS
        untuned = [
            candidate
            for search in searches
            if few or search.family.ranks is None
            for candidate in search.untuned(models[0])
            if few or candidate.rule == "plug_in"
        ]
    if untuned and subset.n_able < FEWEST_TO_TUNE:
        return _settings([(1 / len(untuned), candidate) for candidate in untuned], families, usable)
    of_two = False
    with stage(0.0, SCREENED):
        if embeddings:
            climbing = searches[:1] if objective.by_evidence else linear_or_bent(searches)
            look_wrong = average and targets_look_random(searches, support, bent=len(climbing) > 1)
            of_two = average and not look_wrong and len(support.y) <= AVERAGED_ROWS
            if of_two and len(climbing) == 1:
                return _settings(of_directions(searches, models[0], subset), families, usable)
            average = look_wrong
        else:
            climbing = screened(searches, MAX_CLIMBS_OF_AVERAGE if average else MAX_CLIMBS, n_jobs, elsewhere, varied)
    if relevance and not objective.by_evidence:
        report("comparing columns", SCREENED)
        further = with_relevance(searches, elsewhere)
        climbing = [*climbing, *further]
        families += tuple(search.family for search in further)
    if not embeddings and not objective.by_evidence and not varied:
        climbing = promising(climbing)
    with stage(SCREENED, 1.0):
        of_searches = _climbed(climbing, models, n_jobs)
    if embeddings and not average:
        of_searches = [max(of_searches, key=lambda found: _best(found).objective)]
    candidates = list(itertools.chain.from_iterable(of_searches))
    if average:
        # All rows cannot weigh a family with relevance, which has been learnt from them; the subset's weights stay.
        final = subset is support or any(family.relevance is not None for family in families)
        if final or not varied:
            for model in (model for model in models if model.scheme.is_exact and "plug_in" in objective.rules):
                for search in (search for search in searches if search not in climbing):
                    candidates += search.least_squares(model)
        most = (most_members if final else most_candidates)(len(support.y))
        weighted = averaged(candidates, subset, most, untuned)
        if varied and not final:
            weighted = with_light_ones(weighted, candidates, usable, most)
    else:
        if subset.n_present < support.n_present:  # which favours least squares
            candidates = [one for one in candidates if one.model.likelihood == models[0].likelihood]
        best: dict[tuple[str, str], Candidate] = {}
        for candidate in candidates:
            key = (candidate.model.likelihood, candidate.rule)
            if key not in best or candidate.objective > best[key].objective:
                best[key] = candidate
        default = best[(models[0].likelihood, objective.rules[0])]
        chosen = default if objective.by_evidence else choose(list(best.values()), default, usable)
        weighted = [(1.0, chosen)]
        if of_two and not chosen.model.scheme.is_exact:
            weighted = of_directions(searches, models[0], subset)
    return _settings(weighted, families, usable)


def _climbed(searches: list[Search], models: tuple[Model, ...], n_jobs: int | None) -> list[list[Candidate]]:
    """The candidates of each, at once but for those that begin where another has ended."""
    at_once = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    apart = [search for search in searches if search.base not in searches]
    walked = tracked(at_once(delayed(search.candidates)(models) for search in apart), "comparing settings", len(apart))
    found = dict(zip(apart, walked, strict=True))
    for search in searches:
        if search.base in found:
            found[search] = search.candidates(models, found[search.base])
    return [found[search] for search in searches]


def averaged(
    candidates: list[Candidate], support: Support, most: int, untuned: list[Candidate]
) -> list[tuple[float, Candidate]]:
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
    weighted = [pair for pair in zip(weights.tolist(), [*best, *untuned], strict=True) if pair[0] > 0]
    return sorted(weighted, key=lambda pair: pair[0], reverse=True)


def of_directions(searches: list[Search], model: Model, support: Support) -> list[tuple[float, Candidate]]:
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
    found = [climbed, _best(bent.at(model, bent.best_lengthscale(), climbed.output_scale))]
    regressed = [search.least_squares(search.objective.regression) for search in (first, bent)]
    scores = cross_fitted(regressed, support.usable, support.folds())
    weights = stacking_weights(scores, support.usable, most_members(len(support.y)))
    weighted = [pair for pair in zip(weights.tolist(), found, strict=True) if pair[0] > 0]
    return sorted(weighted, key=lambda pair: pair[0], reverse=True)


def with_light_ones(
    weighted: list[tuple[float, Candidate]], candidates: list[Candidate], usable: Tensor, most: int
) -> list[tuple[float, Candidate]]:
    """With the best of families and likelihoods that have no weight, up to so many in all, for all rows to weigh."""
    known = _groups([candidate for _, candidate in weighted])
    rest = [_best(found) for group, found in _groups(candidates).items() if group not in known]
    rest.sort(key=lambda candidate: float(usable @ candidate.pointwise), reverse=True)
    more = rest[: max(0, most - len(weighted))]
    light = SMALLEST_WEIGHT * len(more)
    heavy = [((1 - light) * weight, candidate) for weight, candidate in weighted]
    return [*heavy, *((SMALLEST_WEIGHT, candidate) for candidate in more)]


def _groups(candidates: list[Candidate]) -> dict[tuple[int, str], list[Candidate]]:
    """Candidates by family and likelihood."""
    groups: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.family, candidate.model.likelihood), []).append(candidate)
    return groups


def _best(candidates: list[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.objective)


def _settings(
    weighted: list[tuple[float, Candidate]], families: tuple[Family, ...], usable: Tensor
) -> tuple[Setting, ...]:
    total = float(usable.sum())
    return tuple(
        Setting(
            kernel=scaled(family.build(chosen.lengthscale), chosen.output_scale),
            model=chosen.model,
            rule=chosen.rule,
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

"""Which kernel families are worth a search under the likelihood, and when one setting beats another.

Least squares is cheap and ranks kernels much as the likelihood does.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from joblib import delayed
from torch import Tensor

from sureshot.approximations.explicit import Explicit, finite_rank
from sureshot.computing.workers import at_once
from sureshot.estimators.gp.tuning.family_search import NOISE_RATIOS, Candidate, Search
from sureshot.estimators.gp.tuning.objective import LeftOutLatents
from sureshot.estimators.gp.tuning.relevance import can_be_learnt, learn_relevance, weighted_by
from sureshot.estimators.rows.support import Support, sampled_rows
from sureshot.inference.least_squares import leave_one_out_path_by_features
from sureshot.progress import tracked

MARGIN = 2.0  # standard errors by which a candidate must beat the default
MIN_COMPARISONS = 50  # left-out rows below which a standard error is not trusted and the default is kept
MOST_ASKED = 1000  # rows that are left out to see whether targets look random


def screened(
    searches: list[Search],
    most: int,
    n_jobs: int | None,
) -> list[Search]:
    """The families worth a climb: the best few by least squares, which is cheap and ranks kernels much alike.

    Where no row can be left out families cannot be compared, and the first is the documented default.
    """
    if len(searches) <= most or searches[0].objective.by_evidence:
        return searches
    if not searches[0].support.can_select_kernels:
        return searches[:1]
    found = at_once((delayed(search.regressions)() for search in searches), n_jobs)
    for search, regressions in zip(searches, tracked(found, "comparing kernels", len(searches)), strict=True):
        search.take(regressions)
    order = sorted(searches, key=lambda search: search.best_regression().objective, reverse=True)
    return sorted(order[:most], key=searches.index)


def linear_or_bent(searches: list[Search]) -> list[Search]:
    """The first family of embeddings, and the best other one if it is far ahead by least squares.

    A kernel that is linear in embeddings separates intents as well as any, and has explicit features, no more than
    columns. It cannot separate classes that are groups of intents.
    """
    first = searches[0]
    if len(searches) == 1 or not first.support.can_select_kernels:
        return [first]
    best = max(searches, key=lambda search: search.best_regression().objective)
    found = best.best_regression(), first.best_regression()
    return [first, best] if beats(*found, first.support.usable) else [first]


def targets_look_random(
    searches: list[Search],
    support: Support,
    bent: bool,  # whether a kernel that bends is far ahead, see `linear_or_bent`
) -> bool:
    """Whether some targets of embeddings have nothing to do with their rows, by least squares.

    A kernel that is linear in embeddings predicts rows of the whole support, by its features, unless it is left behind;
    one that bends those by which kernels are compared.
    """
    predicted = None if bent else _by_features(searches[0], support)
    if predicted is None:
        best, asked = max(searches, key=lambda search: search.best_regression().objective), searches[0].support
        predicted = best.regressed(), asked
    return searches[0].objective.targets_look_random(*predicted)


def _by_features(search: Search, support: Support) -> tuple[Tensor, Support] | None:
    """Latents (P, M) of left-out rows of a whole support, and these rows; None of a kernel without features."""
    kernel = search.family.build(search.best_lengthscale())
    rows, asked = sampled_rows(support, MOST_ASKED)
    if finite_rank(kernel, support.x.shape[1]) is None or not len(rows):
        return None
    with torch.no_grad():
        ratios = support.x.new_tensor(NOISE_RATIOS[::2])
        path = leave_one_out_path_by_features(
            Explicit(kernel).features(search.family.inputs(support.x)),
            *support.targets,
            support.weight,
            ratios,
            support.left_out,
            rows,
        )
    latents = LeftOutLatents(path.latent, path.variance.unsqueeze(1).expand_as(path.latent), ratios * path.scale)
    objective, usual = search.objective, search.family.default_temperature
    temperatures, pointwise = objective.score(objective.regression, "plug_in", latents, asked, usual)
    best = int((asked.usable * pointwise).sum(-1).argmax())
    return path.latent[best] / temperatures[best], asked


def with_relevance(searches: list[Search]) -> list[Search]:
    """A further search with a length-scale for each column, if it leaves all others behind in least squares.

    Which family the columns' length-scales are learnt by hardly matters: of those that may, the best.
    """
    free = [search for search in searches if search.family.per_column]
    if not free or not can_be_learnt(free[0].support):
        return []
    base = max(free, key=lambda search: search.best_regression().objective)
    family, support, equal = base.family, base.support, base.best_regression()
    learnt = learn_relevance(
        replace(support, x=family.inputs(support.x)),
        weighted_by(family.build(equal.lengthscale)),
        equal.model.noise / equal.output_scale,
    )
    search = Search(support, len(searches), replace(family, relevance=learnt), base.objective, base)
    best = max(searches, key=lambda other: other.best_regression().objective)
    gain = search.best_regression().pointwise - best.best_regression().pointwise
    return [search] if float(support.usable @ gain) > 0 else []


def choose(candidates: list[Candidate], default: Candidate, usable: Tensor) -> Candidate:
    """The best candidate if it beats the default, else the default."""
    best = max(candidates, key=lambda candidate: candidate.objective)
    return best if best is not default and beats(best, default, usable) else default


def beats(best: Candidate, default: Candidate, usable: Tensor, margin: float = MARGIN) -> bool:
    """Whether a candidate is ahead by more standard errors than a margin, and there are rows enough to say so."""
    difference = (usable * (best.pointwise - default.pointwise))[usable > 0]
    if len(difference) < MIN_COMPARISONS:
        return False
    error = float(difference.std()) * math.sqrt(len(difference))
    return best.objective - default.objective > margin * error

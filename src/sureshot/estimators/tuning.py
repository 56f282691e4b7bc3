"""Choosing kernel, scales, likelihood, predictive rule and temperature together, from the support itself.

Every candidate is scored by its leave-one-out log predictive probability of the labels it was given, plus a weak
log prior that decides where the labels cannot (one example per class). Two kinds of candidates compete:

* label regression: closed-form leave-one-out latents for a whole path of noise levels from one eigendecomposition
  for each length-scale, these tried uphill from the natural one; its probabilities are a softmax at a fitted
  temperature;
* the logistic or softmax likelihood by Laplace's method, for the kernel families that label regression ranks highest,
  walked uphill on a lattice of length-scale and output scale from the length-scale that it likes best.

With `relevance` the best family is tried with a length-scale for each column, too, if that pays. The best of each
family and likelihood are averaged, with weights by what they say of left-out labels (`stacking`), the families that are
not climbed by label regression alone.
Where one is to be chosen, a candidate other than the default (Laplace with the default rule) must win by more than two
standard errors of the paired difference in log probability; otherwise the more stable default is kept. (One standard
error is the usual rule, Breiman et al. 1984, but the winner here is the best of many.)

Large supports are tuned on a stratified subset; the temperature is then refitted on the full posterior.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from joblib import Parallel, delayed
from torch import Tensor

from sureshot.estimators.conditioning import Model, condition
from sureshot.estimators.ranks import Ranks
from sureshot.estimators.relevance import Relevance, can_be_learnt, is_gain, learn_relevance
from sureshot.estimators.stacking import cross_fitted, most_members, row_folds, stacking_weights
from sureshot.estimators.support import Support, tuning_subset
from sureshot.estimators.temperature import fit_rule, log_probability, plug_in_temperatures, smoothed_score
from sureshot.inference.label_regression import leave_one_out_path
from sureshot.kernels import Expression, evaluate
from sureshot.likelihoods.base import PredictiveRule
from sureshot.progress import report, stage, tracked

LENGTHSCALES = tuple(2.0**k for k in range(-3, 4))  # relative to the kernel's natural length-scale
OUTPUT_SCALES = tuple(10.0 ** (k / 2) for k in range(-2, 8))  # 0.1 ... 3162
NOISE_RATIOS = tuple(10.0 ** (k / 2) for k in range(-8, 4))  # noise variance / output scale

DEFAULT_LENGTHSCALE = 1.0
DEFAULT_OUTPUT_SCALE = 10.0
# Log-normal priors: standard deviations of the logarithms.
LENGTHSCALE_SPREAD = 1.0
OUTPUT_SCALE_SPREAD = 1.0

NEAREST_LENGTHSCALES = 3  # common ones that are tried where columns have their own
MAX_CLIMBS = 3  # families that are tried with Laplace's method where one setting is chosen
MAX_CLIMBS_OF_AVERAGE = 4
TUNING_RANK_TOLERANCE = 1e-7  # relative eigenvalue below which a direction does not change a choice
TUNING_TOLERANCE = 1e-3  # of the softmax mode while settings are compared
MARGIN = 2.0  # standard errors by which a candidate must beat the default
SCREENED = 0.4  # of the time, roughly, that choosing takes has gone by when it is known which families to climb
BENT_MARGIN = 3.5  # by which a kernel that bends must beat one that is linear in embeddings: it is one of many
MIN_COMPARISONS = 50  # left-out rows below which a standard error is not trusted and the default is kept


@dataclass(frozen=True)
class Setting:
    """One complete choice."""

    kernel: Kernel  # with its length-scale and output scale
    model: Model
    rule: PredictiveRule
    temperature: float  # latents are divided by it before the rule is applied
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    column_weights: Tensor | None = None  # (D,), of the chosen family
    ranks: Ranks | None = None  # of the chosen family
    relevance: Tensor | None = None  # (D,), of the chosen family
    weight: float = 1.0  # its share of an average


@dataclass(frozen=True)
class Candidate:
    """A scored point of the search: pointwise leave-one-out log probabilities and the objective."""

    family: int
    lengthscale: float
    output_scale: float
    model: Model
    rule: PredictiveRule
    temperature: float
    pointwise: Tensor  # (N,), zero where the row cannot be left out
    objective: float  # what the search maximises, in nats over all rows


@dataclass(frozen=True)
class Family:
    """A kernel family: builds the kernel at a relative length-scale, with unit output scale."""

    build: Callable[[float], Kernel]
    lengthscales: tuple[float, ...]  # the lattice; one value for kernels without a length-scale to learn
    default_temperature: float  # of the plug-in rule at the default scales, where the support cannot tell
    column_weights: Tensor | None = None  # (D,), multiply the columns before the kernel sees them
    ranks: Ranks | None = None  # takes the place of the columns before the kernel sees them
    per_column: bool = False  # whether columns may be tried with length-scales of their own
    relevance: Relevance | None = None  # which then weighs the columns after all that
    # As `build`, without GPyTorch's modules: making those takes longer than a small matrix. The search evaluates it.
    expression: Callable[[float], Expression] | None = None

    def inputs(self, x: Tensor) -> Tensor:
        """The columns as the kernel sees them, before relevance."""
        if self.ranks is not None:
            return torch.from_numpy(self.ranks(x.cpu().numpy())).to(x)
        return x if self.column_weights is None else x * self.column_weights

    def views(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the kernel sees when rows are left out: the columns, or of relevance those for each fold of the rows."""
        inputs = self.inputs(x)
        return (inputs,) if self.relevance is None else self.relevance.views(inputs)


def tune(
    support: Support,
    families: tuple[Family, ...],
    models: tuple[Model, ...],  # the default first; a label-regression model may follow
    rules: tuple[PredictiveRule, ...],  # the default first
    objective: str,  # "leave_one_out" or "evidence"
    rng: np.random.Generator,  # chooses the subset of a large support
    n_jobs: int | None = None,  # families searched at once
    average: bool = False,
    relevance: bool = False,  # whether columns may have length-scales of their own
    embeddings: bool = False,  # whether the families compare these, the first linear in them: then one is chosen
) -> tuple[Setting, ...]:
    """The best setting for a support, or several to be averaged, the heaviest first.

    An average needs rows that can be left out and more than one family. Embeddings are not averaged: label regression
    beside the softmax was measured to make their probabilities and outlier scores worse.
    """
    subset = tuning_subset(support, rng)
    usable = subset.usable
    average = average and objective != "evidence" and len(families) > 1 and bool((usable > 0).any())
    searches = [Search(subset, k, family, rules, objective) for k, family in enumerate(families)]
    with stage(0.0, SCREENED):
        if embeddings:
            climbing = searches[:1] if objective == "evidence" else linear_or_bent(searches)
        else:
            climbing = screened(searches, MAX_CLIMBS_OF_AVERAGE if average else MAX_CLIMBS, n_jobs)
    if relevance and objective != "evidence":
        report("comparing columns", SCREENED)
        further = with_relevance(searches)
        climbing = [*climbing, *further]
        families += tuple(search.family for search in further)
    at_once = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    found = at_once(delayed(search.candidates)(models) for search in climbing)
    with stage(SCREENED, 1.0):
        of_searches = list(tracked(found, "comparing settings", len(climbing)))
    if embeddings:
        of_searches = [preferred(of_searches, usable)]
    candidates = list(itertools.chain.from_iterable(of_searches))
    if average:
        for model in (model for model in models if model.likelihood == "gaussian" and "plug_in" in rules):
            for search in (search for search in searches if search not in climbing):
                candidates += search.label_regression(model)
        weighted = averaged(candidates, subset, most_members(len(support.y), int((usable > 0).sum())))
    else:
        best: dict[tuple[str, str], Candidate] = {}
        for candidate in candidates:
            key = (candidate.model.likelihood, candidate.rule)
            if key not in best or candidate.objective > best[key].objective:
                best[key] = candidate
        default = best[(models[0].likelihood, _first(rules, models[0]))]
        weighted = [(1.0, choose(list(best.values()), default, usable, objective))]
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


def averaged(candidates: list[Candidate], support: Support, most: int) -> list[tuple[float, Candidate]]:
    """The best candidate of each family and likelihood with its weight, the heaviest first; none of weight zero."""
    groups: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault((candidate.family, candidate.model.likelihood), []).append(candidate)
    scores = cross_fitted(list(groups.values()), support.usable, row_folds(support.y))
    weights = stacking_weights(scores, support.usable, most).tolist()
    best = [max(group, key=lambda candidate: candidate.objective) for group in groups.values()]
    weighted = [pair for pair in zip(weights, best, strict=True) if pair[0] > 0]
    return sorted(weighted, key=lambda pair: pair[0], reverse=True)


def screened(searches: list[Search], most: int, n_jobs: int | None) -> list[Search]:
    """The families worth a climb: the best few by label regression, which is cheap and ranks kernels much alike.

    Where no row can be left out nothing tells families apart, and the first is the documented default.
    """
    if len(searches) <= most or searches[0].objective == "evidence":
        return searches
    if not bool((searches[0].support.usable > 0).any()):
        return searches[:1]
    regressions = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(search.label_regression)(Model("gaussian", "exact")) for search in searches
    )
    best = [
        max(candidate.objective for candidate in candidates)
        for candidates in tracked(regressions, "comparing kernels", len(searches))
    ]
    kept = sorted(range(len(searches)), key=lambda k: best[k], reverse=True)[:most]
    return [searches[k] for k in sorted(kept)]


def linear_or_bent(searches: list[Search]) -> list[Search]:
    """The first family of embeddings, and the best other one if it is far ahead by label regression.

    A kernel that is linear in embeddings tells intents apart as well as any, and has explicit features, no more than
    columns. It cannot tell classes that are groups of intents. Measured on CLINC150: of intents the others were ahead
    by 2.7 standard errors at most, which came to nothing on new rows, of groups by 3.7 to 7.5.
    """
    first = searches[0]
    if len(searches) == 1 or not bool((first.support.usable > 0).any()):
        return [first]
    best = max(searches, key=lambda search: search.best_regression().objective)
    found = best.best_regression(), first.best_regression()
    return [first, best] if beats(*found, first.support.usable, BENT_MARGIN) else [first]


def preferred(found: list[list[Candidate]], usable: Tensor) -> list[Candidate]:
    """The candidates of the first family, or those of the other one if they are clearly better under the likelihood.

    Label regression may be ahead for no other reason than that a class between others is hidden from it.
    """
    best = [max(candidates, key=lambda candidate: candidate.objective) for candidates in found]
    return found[1] if len(found) > 1 and beats(best[1], best[0], usable) else found[0]


def with_relevance(searches: list[Search]) -> list[Search]:
    """A further search with a length-scale for each column, if it leaves all others behind in label regression.

    Which family the columns' length-scales are learnt by hardly matters: of those that may, the best.
    """
    free = [search for search in searches if search.family.per_column]
    if not free or not can_be_learnt(free[0].support):
        return []
    base = max(free, key=lambda search: search.best_regression().objective)
    family, support, equal = base.family, base.support, base.best_regression()
    assert family.expression is not None
    learnt = learn_relevance(
        replace(support, x=family.inputs(support.x)),
        family.expression(equal.lengthscale),
        equal.model.noise / equal.output_scale,
    )
    distances = {value: abs(math.log(value * learnt.level / equal.lengthscale)) for value in family.lengthscales}
    nearest = sorted(sorted(distances, key=distances.__getitem__)[:NEAREST_LENGTHSCALES])
    weighted = replace(family, relevance=learnt, lengthscales=tuple(nearest))
    search = Search(support, len(searches), weighted, base.rules, base.objective)
    best = max((other.best_regression() for other in searches), key=lambda candidate: candidate.objective)
    return [search] if is_gain(search.best_regression().pointwise - best.pointwise, support.usable) else []


def choose(candidates: list[Candidate], default: Candidate, usable: Tensor, objective: str) -> Candidate:
    """The best candidate if it beats the default, else the default."""
    best = max(candidates, key=lambda candidate: candidate.objective)
    if objective == "evidence" or best is default:
        return default
    return best if beats(best, default, usable) else default


def beats(best: Candidate, default: Candidate, usable: Tensor, margin: float = MARGIN) -> bool:
    """Whether a candidate is ahead by more standard errors than a margin, and there are rows enough to say so."""
    difference = (usable * (best.pointwise - default.pointwise))[usable > 0]
    if len(difference) < MIN_COMPARISONS:
        return False
    error = float(difference.std()) * math.sqrt(len(difference))
    return best.objective - default.objective > margin * error


class Search:
    """Scores one kernel family on one support, keeping each length-scale's decompositions and features.

    There is one of each for every view of the rows. A family has one view, but with relevance one for each fold, of
    which only the rows of this fold count.
    """

    def __init__(
        self, support: Support, index: int, family: Family, rules: tuple[PredictiveRule, ...], objective: str
    ) -> None:
        self.support = support
        self.index = index
        self.family = family
        self.rules = rules
        self.objective = objective
        self._decompositions: dict[float, list[tuple[Tensor, Tensor]]] = {}
        self._bases: dict[float, list[Tensor]] = {}
        self._regressions: list[Candidate] | None = None

    def candidates(self, models: tuple[Model, ...]) -> list[Candidate]:
        """Everything this family has to offer."""
        start = self.best_lengthscale()
        found: list[Candidate] = []
        for model in models:
            if model.likelihood != "gaussian":
                found += self.climb(model, start)
            elif "plug_in" in self.rules:
                found += self.label_regression(model)
            else:
                found += [self._regress(model, value, self.rules[0]) for value in self.family.lengthscales]
        return found

    def best_lengthscale(self) -> float:
        """Where label regression predicts best: the start of the climb."""
        if len(self.family.lengthscales) == 1 or not bool((self.support.usable > 0).any()):
            return self.family.lengthscales[_nearest(self.family.lengthscales, DEFAULT_LENGTHSCALE)]
        return self.best_regression().lengthscale

    def best_regression(self) -> Candidate:
        """Where label regression predicts best."""
        return max(self.label_regression(Model("gaussian", "exact")), key=lambda candidate: candidate.objective)

    def label_regression(self, model: Model) -> list[Candidate]:
        """The best noise level at each length-scale on the way uphill from the natural one, by the plug-in rule.

        The score has one peak as a rule: of 792 searches on tables nine would have ended higher, by 0.05 to 2.6 nats.
        """
        if self._regressions is None:
            lengths = self.family.lengthscales
            visited: dict[int, Candidate] = {}

            def objective(place: int) -> float:
                if place not in visited:
                    visited[place] = self._regress(model, lengths[place])
                return visited[place].objective

            place = _nearest(lengths, DEFAULT_LENGTHSCALE)
            while True:
                better = max((k for k in (place - 1, place, place + 1) if 0 <= k < len(lengths)), key=objective)
                if better == place:
                    break
                place = better
            self._regressions = list(visited.values())
        return self._regressions

    def climb(self, model: Model, start: float) -> list[Candidate]:
        """Walk uphill on the lattice of length-scale and output scale; every visited point, for every rule."""
        lengths, scales = self.family.lengthscales, OUTPUT_SCALES
        position = (
            _nearest(lengths, start),
            _nearest(scales, DEFAULT_OUTPUT_SCALE),
        )
        visited: dict[tuple[int, int], list[Candidate]] = {}
        support = self.support
        zeros = support.x.new_zeros(support.n_classes, len(support.y))  # the prior mean
        duals: list[Tensor | None] = [zeros] * (
            1 if self.family.relevance is None else len(self.family.relevance.left_out)
        )

        def objective(at: tuple[int, int]) -> float:
            nonlocal duals
            if at not in visited:
                visited[at], duals = self._score(model, lengths[at[0]], scales[at[1]], duals)
            return max(candidate.objective for candidate in visited[at])

        objective(position)
        if not bool((self.support.usable > 0).any()) and self.objective != "evidence":
            return visited[position]
        while True:
            better = max(_neighbours(position, len(lengths), len(scales)), key=objective, default=position)
            if objective(better) <= objective(position):
                return [candidate for candidates in visited.values() for candidate in candidates]
            position = better

    def _score(
        self, model: Model, lengthscale: float, output_scale: float, starts: list[Tensor | None]
    ) -> tuple[list[Candidate], list[Tensor | None]]:
        support = self.support
        fits = [
            condition(
                model,
                basis * math.sqrt(output_scale),
                support.y,
                support.n_classes,
                support.weight,
                start=start,
                only_means=self.rules == ("plug_in",),
                tolerance=TUNING_TOLERANCE,
            )
            for basis, start in zip(self._basis(lengthscale), starts, strict=True)
        ]
        moments = [fit.leave_one_out(support.left_out) for fit in fits]
        mean, variance = (self._by_rows(parts) for parts in zip(*moments, strict=True))
        log_prior = _log_normal(lengthscale, DEFAULT_LENGTHSCALE, LENGTHSCALE_SPREAD) + _log_normal(
            output_scale, DEFAULT_OUTPUT_SCALE, OUTPUT_SCALE_SPREAD
        )
        candidates = []
        for rule in self.rules:
            temperature, pointwise = fit_rule(
                model.predictive_likelihood(), mean, variance, support, rule, self.family.default_temperature
            )
            value = (
                fits[0].log_evidence
                if self.objective == "evidence"
                else float((support.usable * pointwise).sum()) + log_prior
            )
            candidates.append(
                Candidate(self.index, lengthscale, output_scale, model, rule, temperature, pointwise, value)
            )
        return candidates, [fit.dual for fit in fits]

    def _regress(self, model: Model, lengthscale: float, rule: PredictiveRule = "plug_in") -> Candidate:
        support = self.support
        ratios = support.x.new_tensor(NOISE_RATIOS)
        paths = [
            leave_one_out_path(*decomposition, support.y, support.n_classes, support.weight, ratios, support.left_out)
            for decomposition in self._decomposition(lengthscale)
        ]
        latent = self._by_rows([path.latent for path in paths])
        likelihood = model.predictive_likelihood()
        if rule == "plug_in":
            temperatures, pointwise = plug_in_temperatures(likelihood, latent, support, self.family.default_temperature)
        else:
            variance = self._by_rows([path.variance for path in paths])
            probabilities = likelihood.predict(latent, variance.unsqueeze(1).expand_as(latent), rule)
            temperatures = torch.ones_like(ratios)
            pointwise = smoothed_score(log_probability(probabilities), support)
        log_prior = _log_normal(lengthscale, DEFAULT_LENGTHSCALE, LENGTHSCALE_SPREAD)
        values = (support.usable * pointwise).sum(-1) + log_prior
        best = int(values.argmax())
        scale = max(sum(float(path.scale[best]) for path in paths) / len(paths), 1e-6)
        return Candidate(
            self.index,
            lengthscale,
            scale,
            replace(model, noise=NOISE_RATIOS[best] * scale),
            rule,
            float(temperatures[best]),
            pointwise[best],
            float(values[best]),
        )

    def _by_rows(self, parts: Sequence[Tensor]) -> Tensor:
        """What each view says of all rows (..., N), of every row by its own view."""
        relevance = self.family.relevance
        if relevance is None:
            return parts[0]
        return torch.stack(list(parts), -1).gather(-1, relevance.folds.expand_as(parts[0]).unsqueeze(-1)).squeeze(-1)

    def _decomposition(self, lengthscale: float) -> list[tuple[Tensor, Tensor]]:
        """Eigenvalues and vectors of the weighted kernel matrix at unit output scale."""
        if lengthscale not in self._decompositions:
            root = self.support.weight.sqrt()
            with torch.no_grad():
                kernel = (self.family.expression or self.family.build)(lengthscale)
                grams = [evaluate(kernel, view) for view in self.family.views(self.support.x)]
                self._decompositions[lengthscale] = [
                    tuple(torch.linalg.eigh(root[:, None] * gram * root)) for gram in grams
                ]
        return self._decompositions[lengthscale]

    def _basis(self, lengthscale: float) -> list[Tensor]:
        """Features of the support at unit output scale."""
        if lengthscale not in self._bases:
            self._bases[lengthscale] = [
                self._features(eigenvalues, basis) for eigenvalues, basis in self._decomposition(lengthscale)
            ]
        return self._bases[lengthscale]

    def _features(self, eigenvalues: Tensor, basis: Tensor) -> Tensor:
        kept = eigenvalues > TUNING_RANK_TOLERANCE * eigenvalues[-1]
        return basis[:, kept] * eigenvalues[kept].sqrt() / self.support.weight.sqrt()[:, None]


def scaled(kernel: Kernel, output_scale: float) -> Kernel:
    """The kernel times an output scale, without nesting scale kernels."""
    if isinstance(kernel, ScaleKernel):
        kernel.outputscale = kernel.outputscale.detach() * output_scale
        return kernel
    wrapped = ScaleKernel(kernel).double()
    wrapped.outputscale = torch.tensor(output_scale, dtype=torch.float64)  # a float would be rounded to float32
    return wrapped


def _nearest(values: Sequence[float], to: float) -> int:
    """The place of the value that differs by the smallest factor."""
    return min(range(len(values)), key=lambda place: abs(math.log(values[place] / to)))


def _neighbours(at: tuple[int, int], n_first: int, n_second: int) -> Iterator[tuple[int, int]]:
    for first, second in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        candidate = (at[0] + first, at[1] + second)
        if 0 <= candidate[0] < n_first and 0 <= candidate[1] < n_second:
            yield candidate


def _log_normal(value: float, centre: float, spread: float) -> float:
    return -0.5 * (math.log(value / centre) / spread) ** 2


def _first(rules: tuple[PredictiveRule, ...], model: Model) -> PredictiveRule:
    return "plug_in" if model.likelihood == "gaussian" and "plug_in" in rules else rules[0]

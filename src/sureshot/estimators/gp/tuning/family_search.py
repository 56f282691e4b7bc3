"""One kernel family's settings, scored by leave-one-out predictions.

Least squares has closed-form leave-one-out latents for a whole path of noise levels from one eigendecomposition for
each length-scale, these tried uphill from the natural one; its probabilities are a softmax at a fitted temperature.
Under another likelihood the search walks uphill on a lattice of length-scale and output scale, by Laplace's method or
mean field, from the length-scale that least squares likes best.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.estimators.gp.model import Model
from sureshot.estimators.gp.tuning.objective import LeftOutLatents, Objective
from sureshot.estimators.gp.tuning.relevance import Relevance
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import Support
from sureshot.inference.least_squares import LeaveOneOutPath, leave_one_out_path
from sureshot.inference.schemes import Effort, Request
from sureshot.kernels import Expression, Scale, evaluate
from sureshot.likelihoods.base import PredictiveRule

LENGTHSCALES = tuple(2.0**k for k in range(-8, 4))  # relative to the kernel's natural length-scale
OUTPUT_SCALES = tuple(10.0 ** (k / 2) for k in range(-2, 8))  # 0.1 ... 3162
NOISE_RATIOS = tuple(10.0 ** (k / 2) for k in range(-8, 4))  # noise variance / output scale
SCALES_OF_STATED_NOISE = tuple(10.0 ** (k / 4) for k in range(-8, 13))  # of outputs, of numbers of variance one

DEFAULT_LENGTHSCALE = 1.0
DEFAULT_OUTPUT_SCALE = 10.0
UNTUNED_OUTPUT_SCALE = OUTPUT_SCALES[5]  # 31.6; see `Search.untuned`
# Log-normal priors: standard deviations of the logarithms.
LENGTHSCALE_SPREAD = 1.0
OUTPUT_SCALE_SPREAD = 1.0

TUNING_RANK_TOLERANCE = 1e-7  # relative eigenvalue below which a direction does not change a choice
TUNING_TOLERANCE = 1e-3  # of the softmax mode while settings are compared

_STEPS = (0, 1), (0, -1), (-1, 0), (1, 0)  # on the lattice: the output scale starts farther from the best than lengths


@dataclass(frozen=True)
class Candidate:
    """A scored point of the search: pointwise leave-one-out log probabilities and the objective."""

    family: int
    lengthscale: float
    output_scale: float
    model: Model
    temperature: float
    pointwise: Tensor  # (N,), zero where the row cannot be left out
    objective: float  # what the search maximises, in nats over all rows


@dataclass(frozen=True)
class Family:
    """A kernel family: builds the kernel at a relative length-scale, with unit output scale."""

    build: Callable[[float], Expression]
    lengthscales: tuple[float, ...]  # the lattice; one value for kernels without a length-scale to learn
    default_temperature: float  # of the plug-in rule at the default scales, where the support cannot tell
    name: str = ""  # of the kernel, whatever the columns
    column_weights: Tensor | None = None  # (D,), multiply the columns before the kernel sees them
    ranks: Ranks | None = None  # takes the place of the columns before the kernel sees them
    per_column: bool = False  # whether columns may be tried with length-scales of their own
    relevance: Relevance | None = None  # which then weighs the columns after all that

    @property
    def natural_lengthscale(self) -> float:
        """The lattice's value that is nearest to the kernel's natural length-scale."""
        return self.lengthscales[nearest(self.lengthscales, DEFAULT_LENGTHSCALE)]

    def inputs(self, x: Tensor) -> Tensor:
        """The columns as the kernel sees them, before relevance."""
        if self.ranks is not None:
            return torch.from_numpy(self.ranks(x.cpu().numpy())).to(x)
        return x if self.column_weights is None else x * self.column_weights

    def views(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the kernel sees when rows are left out: the columns, or of relevance those for each fold of the rows."""
        inputs = self.inputs(x)
        return (inputs,) if self.relevance is None else self.relevance.views(inputs)


class Search:
    """Scores one kernel family on one support, keeping each length-scale's decompositions and features.

    There is one of each for every view of the rows. A family has one view, but with relevance one for each fold, of
    which only the rows of this fold count.
    """

    def __init__(
        self,
        support: Support,
        index: int,
        family: Family,
        objective: Objective,
        base: Search | None = None,  # of a family with relevance, that of the same family without
    ) -> None:
        self.support = support
        self.index = index
        self.family = family
        self.objective = objective
        self.base = base
        self._decompositions: dict[float, list[tuple[Tensor, Tensor]]] = {}
        self._bases: dict[float, list[Tensor]] = {}
        self._regressions: dict[int, Candidate] = {}  # by places of length-scales
        self._has_climbed = False

    def candidates(self, models: tuple[Model, ...], of_base: Sequence[Candidate] = ()) -> list[Candidate]:
        """Everything this family has to offer; with relevance beginning from what was found without it, if anything."""
        found: list[Candidate] = []
        for model in models:
            if not model.scheme.is_exact:
                found += self.climb(model, *self._start(model, of_base))
            elif self.objective.rule == "plug_in":
                found += self.least_squares(model)
            else:
                found += [self._regress(model, value, self.objective.rule) for value in self.family.lengthscales]
        return found

    def best_lengthscale(self) -> float:
        """Where least squares predicts best: the start of the climb."""
        if len(self.family.lengthscales) == 1 or not self.support.can_select_kernels:
            return self.family.natural_lengthscale
        return self.best_regression().lengthscale

    def _start(self, model: Model, of_base: Sequence[Candidate]) -> tuple[float, float]:
        """Length-scale and output scale from which to climb."""
        best = max((one for one in of_base if one.model == model), key=lambda one: one.objective, default=None)
        if best is None or self.family.relevance is None:
            return self.best_lengthscale(), DEFAULT_OUTPUT_SCALE
        return best.lengthscale / self.family.relevance.level, best.output_scale

    def best_regression(self) -> Candidate:
        """Where least squares predicts best."""
        return max(self.least_squares(self.objective.regression), key=lambda candidate: candidate.objective)

    def regressed(self) -> Tensor:
        """Latents (P, N) of left-out rows by the best regression, at its temperature."""
        best = self.best_regression()
        paths = self._paths(best.lengthscale, self.support.x.new_tensor([best.model.noise / best.output_scale]))
        return self._by_rows([path.latent for path in paths])[0] / best.temperature

    def regressed_like(self, other: Candidate) -> Tensor:
        """Log probabilities (N,) of left-out rows by least squares at the scales of another."""
        ratio = other.model.noise / other.output_scale
        return self._regress(other.model, other.lengthscale, ratios=(ratio,)).pointwise

    def least_squares(self, model: Model) -> list[Candidate]:
        """The best noise level at each length-scale on the way uphill from the natural one, by the plug-in rule.

        The score has one peak as a rule: of 792 searches on tables nine would have ended higher, by 0.05 to 2.6 nats.
        """
        if not self._has_climbed:
            lengths = self.family.lengthscales
            start = (nearest(lengths, DEFAULT_LENGTHSCALE),)
            uphill(start, (len(lengths),), ((1,), (-1,)), lambda at: self._regression(model, at[0]).objective)
            self._has_climbed = True
        return list(self._regressions.values())

    def regressions(self) -> dict[int, Candidate]:
        """What `least_squares` finds, by places of length-scales."""
        self.least_squares(self.objective.regression)
        return self._regressions

    def take(self, regressions: dict[int, Candidate]) -> None:
        """What another process has found in the same way."""
        self._regressions, self._has_climbed = regressions, True

    def natural_regression(self) -> Candidate:
        """Least squares at the natural length-scale, where the way uphill begins."""
        return self._regression(self.objective.regression, nearest(self.family.lengthscales, DEFAULT_LENGTHSCALE))

    def _regression(self, model: Model, place: int) -> Candidate:
        if place not in self._regressions:
            self._regressions[place] = self._regress(model, self.family.lengthscales[place])
        return self._regressions[place]

    def climb(self, model: Model, start: float, output_scale: float) -> list[Candidate]:
        """Walk uphill on the lattice from a length-scale and an output scale; every visited point."""
        lengths, scales = self.family.lengthscales, OUTPUT_SCALES
        if model.sites_see_labels and not self.objective.by_evidence:
            scales = tuple(scale for scale in scales if scale <= DEFAULT_OUTPUT_SCALE)  # larger ones only look better
        position = nearest(lengths, start), nearest(scales, output_scale)
        visited: dict[Place, Candidate] = {}
        duals = self._prior_duals()

        def objective(at: Place) -> float:
            nonlocal duals
            if at not in visited:
                visited[at], duals = self._score(model, lengths[at[0]], scales[at[1]], duals)
            return visited[at].objective

        can_choose = self.support.can_select_kernels or self.objective.by_evidence
        uphill(position, (len(lengths), len(scales)), _STEPS if can_choose else (), objective)
        return list(visited.values())

    def untuned(self, model: Model) -> Candidate:
        """At natural scales, of which leave-one-out predictions choose the temperature only."""
        return self.at(model, self.family.natural_lengthscale, UNTUNED_OUTPUT_SCALE)

    def at(self, model: Model, lengthscale: float, output_scale: float) -> Candidate:
        """At these scales."""
        return self._score(model, lengthscale, output_scale, self._prior_duals())[0]

    def _prior_duals(self) -> list[Tensor | None]:
        """Of the prior mean, for every view of the rows."""
        n_views = 1 if self.family.relevance is None else len(self.family.relevance.left_out)
        return [torch.zeros_like(self.support.targets[0])] * n_views

    def _score(
        self, model: Model, lengthscale: float, output_scale: float, starts: list[Tensor | None]
    ) -> tuple[Candidate, list[Tensor | None]]:
        support, rule = self.support, self.objective.rule
        effort = Effort.MEANS if rule == "plug_in" else Effort.FULL
        fits = [
            self.objective.condition(
                model, basis * math.sqrt(output_scale), support, Request(effort, TUNING_TOLERANCE, dual=start)
            )
            for basis, start in zip(self._basis(lengthscale), starts, strict=True)
        ]
        moments = [fit.leave_one_out(support.left_out) for fit in fits]
        mean, variance = (self._by_rows(parts) for parts in zip(*moments, strict=True))
        latents = LeftOutLatents(mean[None], variance[None], mean.new_tensor([model.noise]))
        log_prior = _log_normal(lengthscale, DEFAULT_LENGTHSCALE, LENGTHSCALE_SPREAD) + _log_normal(
            output_scale, DEFAULT_OUTPUT_SCALE, OUTPUT_SCALE_SPREAD
        )
        usual = self.family.default_temperature
        (temperature,), (pointwise,) = self.objective.score(model, rule, latents, support, usual)
        by_rows = float((support.usable * pointwise).sum()) + log_prior
        value = fits[0].log_evidence if self.objective.by_evidence else by_rows
        found = Candidate(self.index, lengthscale, output_scale, model, float(temperature), pointwise, value)
        return found, [fit.dual for fit in fits]

    def _regress(
        self,
        model: Model,
        lengthscale: float,
        rule: PredictiveRule = "plug_in",
        ratios: tuple[float, ...] = NOISE_RATIOS,  # of noise to output scale
    ) -> Candidate:
        support, stated = self.support, self.objective.noise
        if stated is not None:
            ratios = tuple(stated / scale for scale in SCALES_OF_STATED_NOISE)
        levels = support.x.new_tensor(ratios)
        paths = self._paths(lengthscale, levels)
        mean = self._by_rows([path.latent for path in paths])
        scales = torch.stack([path.scale for path in paths]).mean(0).clamp_min(1e-6)
        scales = scales if stated is None else stated / levels
        each = ((path.scale if stated is None else scales, path.variance) for path in paths)
        variance = self._by_rows([scale[:, None] * own for scale, own in each]).unsqueeze(1).expand_as(mean)
        latents = LeftOutLatents(mean, variance, levels * scales)
        temperatures, pointwise = self.objective.score(model, rule, latents, support, self.family.default_temperature)
        log_prior = _log_normal(lengthscale, DEFAULT_LENGTHSCALE, LENGTHSCALE_SPREAD)
        values = (support.usable * pointwise).sum(-1) + log_prior
        best = int(values.argmax())
        scale = float(scales[best])
        return Candidate(
            self.index,
            lengthscale,
            scale,
            replace(model, noise=ratios[best] * scale),
            float(temperatures[best]),
            pointwise[best],
            float(values[best]),
        )

    def _paths(self, lengthscale: float, ratios: Tensor) -> list[LeaveOneOutPath]:
        """Of least squares, for every view of the rows."""
        support = self.support
        return [
            leave_one_out_path(*decomposition, *support.targets, support.weight, ratios, support.left_out)
            for decomposition in self._decomposition(lengthscale)
        ]

    def _by_rows(self, parts: Sequence[Tensor]) -> Tensor:
        """For every row the values (..., N) of its own view."""
        relevance = self.family.relevance
        if relevance is None:
            return parts[0]
        return torch.stack(list(parts), -1).gather(-1, relevance.folds.expand_as(parts[0]).unsqueeze(-1)).squeeze(-1)

    def _decomposition(self, lengthscale: float) -> list[tuple[Tensor, Tensor]]:
        """Eigenvalues and vectors of the weighted kernel matrix at unit output scale."""
        if lengthscale not in self._decompositions:
            root = self.support.weight.sqrt()
            with torch.no_grad():
                kernel = self.family.build(lengthscale)
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


def scaled(kernel: Expression, output_scale: float) -> Scale:
    """The kernel times an output scale, without nesting scales."""
    if isinstance(kernel, Scale):
        return kernel.replace(outputscale=kernel.outputscale * output_scale)
    return Scale(torch.tensor(output_scale, dtype=torch.float64), kernel)


Place = tuple[int, ...]  # on a lattice


def uphill(start: Place, shape: Place, steps: Sequence[Place], objective: Callable[[Place], float]) -> None:
    """Walk on a lattice to where no step leads higher; `objective` keeps what it was asked.

    The first step uphill is taken, and on in the same direction: a quarter fewer points than the steepest.
    """
    reached, highest, steps = start, objective(start), list(steps)
    while True:
        for step in steps:
            place = tuple(map(operator.add, reached, step))
            if all(0 <= k < n for k, n in zip(place, shape, strict=True)) and objective(place) > highest:
                reached, highest = place, objective(place)
                steps.sort(key=lambda other: other != step)  # on in the same direction first
                break
        else:
            return


def nearest(values: Sequence[float], to: float) -> int:
    """The place of the value that differs by the smallest factor."""
    return min(range(len(values)), key=lambda place: abs(math.log(values[place] / to)))


def _log_normal(value: float, centre: float, spread: float) -> float:
    return -0.5 * (math.log(value / centre) / spread) ** 2

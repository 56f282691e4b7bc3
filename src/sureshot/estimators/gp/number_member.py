"""Members of a regression: what each says of the numbers of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.inducing import Inducing
from sureshot.computing.layout import aligned
from sureshot.estimators.gp.leaving import Centre, Independent, Leaving, OfSample
from sureshot.estimators.gp.local_process import LocalProcess
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.process import GaussianProcess
from sureshot.estimators.gp.tuning.log_density import scored_numbers
from sureshot.estimators.gp.weight_space import LazyWeightSpace
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.gaussian.posterior import leave_one_out
from sureshot.gaussian.recomputed import SiteWeightPosterior
from sureshot.inference.by_evidence import Regression, feature_prior, log_evidence_of
from sureshot.inference.least_squares import leave_one_out_by_factors, regression_sites, weight_space_of
from sureshot.kernels import evaluate
from sureshot.likelihoods.local_link import NumberLink


class NumberMoments(NamedTuple):
    """Of Q rows: latents on the scale on which numbers are learnt."""

    mean: Tensor  # (Q, P)
    variance: Tensor  # (Q,), of a latent, the same for all targets
    noise: Tensor  # (), variance of a number around its latent

    @property
    def total(self) -> Tensor:
        """Variances (Q,) of numbers."""
        return self.variance + self.noise


@dataclass(frozen=True)
class NumberMember(ABC):
    """The plan's temperature multiplies deviations."""

    plan: Plan

    def weighing(self, weight: float) -> Self:
        """With another share of the average."""
        return replace(self, plan=replace(self.plan, weight=weight))

    @abstractmethod
    def latents(self, queries: Tensor) -> NumberMoments:
        """Of rows (Q, D) as they are kept."""

    @abstractmethod
    def left_out(self, support: NumberSupport, rows: LabelledRows, place: Tensor) -> NumberMoments:
        """Of learnt rows at places (Q,), each without itself; the support is of the member's own scaling."""

    @abstractmethod
    def pulls(
        self, support: NumberSupport, rows: LabelledRows, queries: Tensor, place: Tensor, share: Tensor
    ) -> Tensor:
        """What means of rows (Q, D) fall by without each of the learnt rows at places (E,), (Q, E, P).

        Of each a share (E,) of its weight leaves; the support is of the rows that the member sees.
        """

    def covariance(self, queries: Tensor) -> Tensor:
        """Of latents of rows (Q, D), (Q, Q), as sure as left-out rows allow; ValueError where there is none."""
        raise ValueError(
            "return_cov needs members that see all rows: approximation='exact', 'inducing' or 'low_rank', as rows "
            "that are near one query and not the other say nothing of both."
        )

    def moments(self, queries: Tensor) -> NumberMoments:
        """As `latents`, as sure as left-out rows allow."""
        return self.tempered(self.latents(queries))

    def tempered(self, found: NumberMoments) -> NumberMoments:
        """As sure as left-out rows allow."""
        factor = self.plan.temperature**2
        return NumberMoments(found.mean, factor * found.variance, factor * found.noise)


@dataclass(frozen=True)
class GlobalNumberMember(NumberMember):
    """A Gaussian process given all rows."""

    process: GaussianProcess
    log_evidence: float  # in nats
    without: NumberMoments | None  # of all learnt rows without themselves, where they come with the fit

    @classmethod
    @torch.no_grad()
    def of(cls, plan: Plan, support: NumberSupport, basis: Finite) -> GlobalNumberMember:
        """By features of an approximation of the plan's kernel."""
        if sees_all(basis, support):
            return cls._exact(plan, support, basis)
        (numbers, mean), noise, weight = support.targets, plan.model.noise, support.weight
        prior = feature_prior(basis, support.x, mean)
        evidence = log_evidence_of(basis, Regression(support.x, numbers, mean, weight), noise, prior)
        if prior.residual is not None:  # is noise for the features
            weight = weight / (1 + weight * prior.residual[0] / noise)
        found = weight_space_of(prior.features[0], numbers, mean, weight, noise)
        coefficients = aligned(basis.coefficients(found.weights))
        return cls(plan, _process(plan, support, basis, coefficients, found.precision), float(evidence), None)

    @classmethod
    def _exact(cls, plan: Plan, support: NumberSupport, basis: Finite) -> GlobalNumberMember:
        """By one factor of the kernel matrix; features are made when it is first asked what rows do."""
        noise = support.x.new_tensor([plan.model.noise])
        of_rows = *support.targets, support.weight, noise, support.left_out
        (found,) = leave_one_out_by_factors(evaluate(plan.kernel, support.x), *of_rows)
        process = _process(plan, support, basis, aligned(found.dual[None]), (support.weight / noise)[None, None])
        without = NumberMoments(found.latent.mT, found.variance, noise[0])
        return cls(plan, process, found.log_evidence(support.weight, plan.model.noise, 1.0), without)

    @torch.no_grad()
    def latents(self, queries: Tensor) -> NumberMoments:
        values, noise = self.process.values(queries), self.process.prior_mean.new_tensor(self.plan.model.noise)
        if self.without is None:
            mean, variance = self.process.marginals(values)
            return NumberMoments(mean.mT, variance[0], noise)
        solved = torch.linalg.solve_triangular(self._factor, values.cross[0].mT, upper=False)
        variance = (values.variance[0] - solved.square().sum(0)).clamp_min(0)
        return NumberMoments(self.process.means(values)[0].mT, variance, noise)

    @cached_property
    def _factor(self) -> Tensor:
        """Of the kernel matrix of the rows and their noise, lower; made when variances are first asked for."""
        space, approximation = self.process.space, self.process.approximation
        assert isinstance(space, LazyWeightSpace)
        gram = evaluate(approximation.kernel, space.inputs)
        gram.diagonal().add_(1 / space.arrays["precision"][0, 0])
        return torch.linalg.cholesky(gram)

    @torch.no_grad()
    def left_out(self, support: NumberSupport, rows: LabelledRows, place: Tensor) -> NumberMoments:
        """Rows that it does not see are queries like others."""
        if self.plan.share == 1:
            return self._left_out(support, place)
        seen = torch.from_numpy(rows.lots < self.plan.share)
        own, among = seen[place], seen.cumsum(0) - 1
        found = self._left_out(support, among[place[own]])
        if bool(own.all()):
            return found
        asked = self.latents(torch.from_numpy(rows.x[place[~own].numpy()]))
        mean, variance = (part.new_empty(len(place), *part.shape[1:]) for part in found[:2])
        for which, moments in ((own, found), (~own, asked)):
            mean[which], variance[which] = moments.mean, moments.variance
        return NumberMoments(mean, variance, found.noise)

    def _left_out(self, support: NumberSupport, place: Tensor) -> NumberMoments:
        if self.without is not None:
            return NumberMoments(self.without.mean[place], self.without.variance[place], self.without.noise)
        basis, noise, (numbers, mean) = self.process.approximation, self.plan.model.noise, support.targets
        prior = feature_prior(basis, support.x, mean)
        weight = support.evidence * support.weight.clamp_max(1)
        sites = regression_sites(numbers, support.weight, noise)
        known = prior.condition(sites)
        found, variance = leave_one_out(known.mean, known.variance, *(support.left_out * part for part in sites))
        withheld = basis.withheld(support.x, prior.features[0])
        variance = variance[0] if withheld is None else variance[0] + withheld
        if self.plan.parts is not None and self.plan.parts.learnt:  # rows that chose it look nearer than new ones are
            (factor,), _ = scored_numbers(found[None], (variance + noise).expand(1, *found.shape), numbers, weight)
            found = numbers + (found - numbers) * self.plan.temperature / factor
        return NumberMoments(found.mT[place], variance[place], found.new_tensor(noise))

    def pulls(
        self, support: NumberSupport, rows: LabelledRows, queries: Tensor, place: Tensor, share: Tensor
    ) -> Tensor:
        posterior, values = self.process.posterior, self.process.values(queries)
        assert isinstance(posterior, SiteWeightPosterior)
        place, share = place.to(values.cross.device), share.to(values.cross.device)
        numbers, mean = support.targets
        of_sites = posterior.precision * (numbers - posterior.training_mean)
        without: Leaving = Independent(posterior, of_sites, Centre(numbers, mean, support.weight), None)
        if self.plan.share < 1:
            without = OfSample(without, aligned(rows.lots < self.plan.share, place.device))
        given = self.process.moments(values)
        left = without.moments(given, self.process.queries(values), place, share).mean
        return (given.mean.unsqueeze(-1) - left)[0].permute(1, 2, 0)

    def covariance(self, queries: Tensor) -> Tensor:
        return self.plan.temperature**2 * self.process.covariance(queries)


def seen_by(plan: Plan, rows: LabelledRows, target: TargetScale) -> NumberSupport:
    """What a member by this plan sees of rows."""
    return NumberSupport.scaled(sample_of(rows, plan.share), target, plan.scaling, plan.device)


def sees_all(basis: Finite, support: NumberSupport) -> bool:
    """Whether the inducing inputs are the rows, so that nothing is approximated."""
    return isinstance(basis, Inducing) and basis.inputs is support.x


def _process(
    plan: Plan, support: NumberSupport, basis: Finite, coefficients: Tensor, precision: Tensor
) -> GaussianProcess:
    mean = support.targets[1]
    space = LazyWeightSpace(basis, support.x, "site", {"prior_mean": mean, "precision": precision}, coefficients)
    return GaussianProcess(plan.scaling, basis, coefficients, mean, space)


@dataclass(frozen=True)
class LocalNumberMember(NumberMember):
    """Regressions on the rows nearest to each; latents of variance 1 are multiplied by the plan's gain."""

    process: LocalProcess
    mean: Tensor  # (P,), of all numbers

    @classmethod
    def of(cls, plan: Plan, support: NumberSupport, rows: LabelledRows) -> LocalNumberMember:
        """Of labelled rows."""
        mean = support.targets[1].cpu()
        return cls(plan, LocalProcess.of(plan, rows, NumberLink(support.residuals.cpu())), mean)

    def latents(self, queries: Tensor) -> NumberMoments:
        return self._scaled(*self.process.moments(queries))

    def left_out(self, support: NumberSupport, rows: LabelledRows, place: Tensor) -> NumberMoments:
        return self._scaled(*self.process.moments_without_themselves(rows, place.cpu()))

    def pulls(
        self, support: NumberSupport, rows: LabelledRows, queries: Tensor, place: Tensor, share: Tensor
    ) -> Tensor:
        found = []
        for (mean, _), query, entry, (changed, _) in self.process.without(queries, place, share):
            every = mean.new_zeros(len(mean), len(place), mean.shape[1])
            every[query, entry] = mean[query] - changed
            found.append(every)
        return torch.cat(found)

    def _scaled(self, mean: Tensor, variance: Tensor) -> NumberMoments:
        assert self.plan.local is not None
        gain = self.plan.local.gain
        return NumberMoments(mean + self.mean.to(mean), gain * variance, mean.new_tensor(gain * self.plan.model.noise))

"""One member of a fit: its features, its posterior, what it predicts of left-out rows, and its temperature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.explicit import Explicit, finite_rank
from sureshot.approximations.inducing import Inducing
from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.computing.layout import aligned
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.temperature import plug_in_temperatures
from sureshot.estimators.gp import options
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.noise import with_noise_of_features
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.posterior_arrays import pack_posterior
from sureshot.estimators.gp.process import GaussianProcess
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import TUNING_TOLERANCE
from sureshot.estimators.gp.warm_start import Start
from sureshot.estimators.gp.weight_space import LazyWeightSpace, weight_space
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.support import EXACT_LIMIT, Support
from sureshot.inference.schemes import Conditioned, Effort, Request

REFITTED_ROWS = 300
"""Rows of several classes up to which leave-one-out predictions are by refits: by their sites a softmax of many classes
of few rows seems to predict labels that are pure noise."""
DEFAULT_INDUCING = 500
_AT_ONCE = 2**14  # left-out rows whose probabilities are computed together

LeftOutMoments = tuple[Tensor, Tensor]
"""Latent means and variances (C, N) of rows without themselves."""


@dataclass(frozen=True)
class MemberFit:
    """How the members of one fit are made of their plans."""

    settings: Settings
    is_tuned: bool  # left-out rows choose temperatures and noise
    by_part: bool  # a part of the rows has chosen the plans
    of_two: bool  # two kernels of embeddings are averaged

    def member(self, plan: Plan, support: Support, start: Start | None) -> tuple[GlobalMember, Tensor | None]:
        """A member, and its probabilities (C, N) of the rows if they are left out, where it knows them.

        Relevance has seen these rows, so that its leave-one-out predictions would be too good: it has none.
        """
        check_memory(self.settings, plan, support)
        with threads_for(len(support.y)):
            if self._finds_noise(plan, support) and self._is_whole(plan, support) and support.n_able > 0:
                member, left_out = self._regressed(plan, support)
            else:
                member, left_out = self._conditioned(plan, support, start)
        if left_out is None or plan.scaling.relevance is not None:
            return member, None
        return member, _class_probabilities(member.plan, *left_out, support.n_classes)

    def _conditioned(
        self, plan: Plan, support: Support, start: Start | None
    ) -> tuple[GlobalMember, LeftOutMoments | None]:
        basis = basis_of(self.settings, plan, support)
        if self._finds_noise(plan, support):
            plan, basis = _with_noise(plan, support, basis)
        effort = Effort.MODE if self._needs_modes_alone(plan, support) else None
        found = condition_on(self.settings, plan, support, basis, start, effort)
        left_out = self._left_out(plan, support, basis, found)
        if plan.rule == "plug_in" and self.is_tuned and left_out is not None:
            plan = _with_temperature(self.settings, plan, support, *left_out)
        return member_of(self.settings, plan, basis, found), left_out

    @torch.no_grad()
    def _regressed(self, plan: Plan, support: Support) -> tuple[GlobalMember, LeftOutMoments | None]:
        """Least squares by a kernel that is exact for the rows, with noise that is to be found.

        One factor says all that is asked of it now. Features are made when it is first asked for more than means.
        """
        plan, scale, found = with_noise_of_features(plan, support, None)
        assert found is not None
        left_out = found.latent, torch.zeros_like(found.latent)
        plan = _with_temperature(self.settings, plan, support, *left_out)
        mean = aligned(support.targets[1])
        arrays = {"prior_mean": mean, "precision": (support.weight / plan.model.noise)[None, None]}
        coefficients = aligned(found.dual[None] / scale)
        features = Inducing(plan.kernel, support.x, plan.model.searches)
        space = LazyWeightSpace(features, support.x, "site", arrays, coefficients)
        evidence = found.log_evidence(support.weight, plan.model.noise, scale)
        scaling = None if self.settings.precomputed else plan.scaling
        process = GaussianProcess(scaling, features, coefficients, mean, space)
        return GlobalMember(plan, process, evidence, ()), left_out

    def _left_out(self, plan: Plan, support: Support, basis: Basis, found: Conditioned) -> LeftOutMoments | None:
        """By the sites, or by refits where sites have seen too much of their own rows or took longer."""
        if found.sites is None:
            return None
        by_refits = plan.model.sites_see_labels or self._needs_modes_alone(plan, support)
        if by_refits or self._is_refitted(plan, support):
            return _refitted(plan, basis.features, support, found.dual)
        return found.leave_one_out(support.left_out)

    def _is_whole(self, plan: Plan, support: Support) -> bool:
        """Whether a kernel is exact by as many features as rows."""
        return not has_finite_rank(plan, support) and not by_inducing_inputs(self.settings, plan, support)

    def _finds_noise(self, plan: Plan, support: Support) -> bool:
        """Whether least squares looks for its noise again, which features or more rows than chose it change."""
        exact_scores = plan.model.scheme.is_exact and plan.rule == "plug_in" and self.is_tuned
        return exact_scores and (self.by_part or by_inducing_inputs(self.settings, plan, support))

    def _needs_modes_alone(self, plan: Plan, support: Support) -> bool:
        """Refits find the modes of as many features as rows sooner than training variances of all classes are found."""
        lean = self.of_two and plan.rule == "plug_in" and plan.model.scheme.in_parts
        return lean and self._is_whole(plan, support)

    def _is_refitted(self, plan: Plan, support: Support) -> bool:
        few = not has_finite_rank(plan, support) and len(support.y) <= REFITTED_ROWS
        several = plan.model.searches and not plan.model.one_latent
        return few and several and plan.rule == "plug_in" and self.is_tuned


@dataclass(frozen=True)
class Basis:
    """What the weights of a member belong to."""

    approximation: Finite
    features: Tensor  # (N, R), of the labelled rows


@torch.no_grad()
def basis_of(settings: Settings, plan: Plan, support: Support) -> Basis:
    """With the features of the labelled rows."""
    found = basis_for(settings, plan, support)
    return Basis(found, found.features(support.x))


def basis_for(settings: Settings, plan: Plan, support: Support) -> Finite:
    """Explicit features of the kernel, or those by inducing inputs, which may be all rows, or what was asked for."""
    if plan.parts is None and by_inducing_inputs(settings, plan, support):
        return basis_through(plan, support, placed_inputs(support, settings.n_inducing or DEFAULT_INDUCING))
    return basis_through(plan, support, None)


def basis_through(plan: Plan, support: Support, inducing: Tensor | None) -> Finite:
    """By inducing inputs that are at hand; without any by explicit features, or by all rows."""
    if plan.parts is not None:
        return plan.parts.under(plan.kernel)
    if inducing is None and has_finite_rank(plan, support):
        return Explicit.of(plan.kernel, support.x)
    return Inducing(plan.kernel, support.x if inducing is None else inducing, plan.model.searches)


def condition_on(
    settings: Settings,
    plan: Plan,
    support: Support,
    basis: Basis,
    start: Start | None = None,
    effort: Effort | None = None,  # by default as the plan's rule needs to leave rows out
) -> Conditioned:
    """The posterior of the weights."""
    if effort is None:
        effort = Effort.MEANS if plan.rule == "plug_in" else Effort.FULL
    near = None if start is None else start.weights(basis.approximation)
    request = Request(effort, generator=settings.generator(), near=near)
    return plan.model.condition(basis.features, support.y, support.n_classes, support.weight, request)


def member_of(settings: Settings, plan: Plan, basis: Basis, found: Conditioned) -> GlobalMember:
    """A plan with its posterior, put together as a model file would give it back."""
    kind, weights, arrays = pack_posterior(found.posterior)
    coefficients = aligned(basis.approximation.coefficients(weights))
    space = weight_space(kind, arrays, basis.features, coefficients, basis.approximation)
    scaling = None if settings.precomputed else plan.scaling
    process = GaussianProcess(scaling, basis.approximation, coefficients, aligned(arrays["prior_mean"]), space)
    return GlobalMember(plan, process, found.log_evidence, found.trace)


def _with_noise(plan: Plan, support: Support, basis: Basis) -> tuple[Plan, Basis]:
    """With the noise that the features ask for, and the output scale that belongs to it."""
    plan, scale, _ = with_noise_of_features(plan, support, basis.features)
    if scale == 1:
        return plan, basis
    return plan, Basis(basis.approximation.scaled(plan.kernel, scale), basis.features * scale**0.5)


def _refitted(plan: Plan, features: Tensor, support: Support, dual: Tensor | None) -> tuple[Tensor, Tensor]:
    """Latent means and variances (C, N) of rows by posteriors without their fold; means alone for the plug-in rule."""
    only_means = plan.rule == "plug_in"

    def of_fold(stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
        start = None if dual is None else dual[:, stays]
        request = Request(Effort.MODE if only_means else Effort.FULL, TUNING_TOLERANCE, dual=start)
        known = plan.model.condition(features[stays], support.y[stays], support.n_classes, weight, request).posterior
        queries = features[fold].unsqueeze(0)
        mean = known.query_mean(queries)
        spread = torch.zeros_like(mean) if only_means else known.query_variance(queries, queries.square().sum(-1))
        return torch.cat([mean, spread]).permute(2, 0, 1)

    mean, variance = by_folds(support.y, support.weight, support.left_out, of_fold).unbind(1)
    return mean.mT, variance.mT


def _class_probabilities(plan: Plan, mean: Tensor, variance: Tensor, n_classes: int) -> Tensor:
    """Class probabilities (C, N) by latents of rows."""
    likelihood, t = plan.model.predictive_likelihood, plan.temperature
    pieces = zip((mean / t).split(_AT_ONCE, 1), (variance / t**2).split(_AT_ONCE, 1), strict=True)
    return torch.cat([likelihood.predict(*piece, plan.rule)[:n_classes] for piece in pieces], 1)


def _with_temperature(settings: Settings, plan: Plan, support: Support, mean: Tensor, variance: Tensor) -> Plan:
    """The plan with the temperature that predicts left-out labels best, by latents (C, N) of rows left out.

    Relevance has seen these labels, so its score is that of when it was learnt.
    """
    likelihood = plan.model.predictive_likelihood
    default = options.starting_temperature(settings.kernel, support)
    (found,), (pointwise,) = plug_in_temperatures(likelihood, mean[None], support, default)
    usable, score = support.usable, plan.score
    total = float(usable.sum())
    if total > 0 and plan.scaling.relevance is None:
        score = float((usable * pointwise).sum() / total)
    return replace(plan, temperature=float(found), score=score)


def by_inducing_inputs(settings: Settings, plan: Plan, support: Support) -> bool:
    """Whether a kernel is approximated by inducing inputs, or by what was asked for."""
    return options.use_inducing(settings.approximation, has_finite_rank(plan, support), len(support.y), EXACT_LIMIT)


def has_finite_rank(plan: Plan, support: Support) -> bool:
    """Whether a kernel has explicit features."""
    return finite_rank(plan.kernel, support.x.shape[1]) is not None


def placed_inputs(support: Support, most: int) -> Tensor:
    """Of each class that has rows, `most` in all; of all rows together where classes are more than that."""
    if most < support.n_present:
        return kmeans_inducing(support.x, torch.zeros_like(support.y), most)
    return kmeans_inducing(support.x, support.y, most // support.n_present)


def check_memory(settings: Settings, plan: Plan, support: Support) -> None:
    """Refuse before memory is taken, with the estimate and what to try."""
    (n_rows, width), n_classes = support.x.shape, support.n_classes
    rank = min(n_rows, finite_rank(plan.kernel, width) or n_rows)
    if by_inducing_inputs(settings, plan, support):
        rank = min(n_rows, settings.n_inducing or DEFAULT_INDUCING)
    needed, available = 8.0 * plan.model.scheme.entries(n_rows, rank, n_classes), memory_budget(settings.memory_limit)
    if needed > available:
        raise MemoryError(
            f"fitting {n_rows} rows, {n_classes} classes and {rank} features would take about "
            f"{in_bytes(needed)}, and {in_bytes(available)} may be used: try approximation='inducing' with a "
            "smaller n_inducing, inference='laplace' for labels, fewer rows, or raise memory_limit."
        )

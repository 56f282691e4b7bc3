"""From labelled rows to what `GPClassifier` has learnt: plans, and features, posteriors and temperatures for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.explicit import Explicit, finite_rank
from sureshot.approximations.inducing import Inducing
from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.computing.layout import aligned
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_prior import under_prior, usual_prior
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.classes.temperature import (
    fit_average,
    log_probability,
    plug_in_temperatures,
    tempered_average,
)
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp import options
from sureshot.estimators.gp.ensemble import Ensemble, averaged
from sureshot.estimators.gp.fitted import GPFitted, LeftOutScores, evidence_of
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.noise import with_noise_of_features
from sureshot.estimators.gp.plan import Plan, choose_plans
from sureshot.estimators.gp.posterior_arrays import pack_posterior
from sureshot.estimators.gp.process import GaussianProcess
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import TUNING_TOLERANCE
from sureshot.estimators.gp.tuning.stacking import most_members, stacking_weights
from sureshot.estimators.gp.warm_start import Start
from sureshot.estimators.gp.weight_space import LazyWeightSpace, weight_space
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.support import MANY_ROWS, Support, is_compared_whole
from sureshot.inference.schemes import Conditioned, Effort, Request
from sureshot.kernels import is_unit_norm
from sureshot.progress import stage, tracked

REFITTED_ROWS = 300
"""Rows of several classes up to which leave-one-out predictions are by refits: by their sites a softmax of many classes
of few rows seems to predict labels that are pure noise."""
EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly
DEFAULT_INDUCING = 1000
CHOSEN = 0.7  # of the time, roughly, that learning takes has gone by when settings are chosen
ROWS_OF_AN_INPUT = 10  # rows per inducing input up to which leave-one-out predictions are too good
JUDGED = 0.7  # of that for fitting, when many rows have judged what was chosen
_AT_ONCE = 2**14  # left-out rows whose probabilities are computed together


def fit(settings: Settings, training: TrainingSet) -> GPFitted:
    """Choose kernels, scales and models by labelled rows, and find the posteriors."""
    settings = for_reader(settings, training.reader)
    rows = weigh_classes(training.rows, settings.class_weight, training.classes, settings.inference)
    matrix = training.checked if settings.precomputed else None
    with stage(0.0, CHOSEN):
        plans = choose_plans(settings, rows, len(training.classes), matrix, training.column_names)
    with stage(CHOSEN, 1.0):
        fitted = fit_members(settings, plans, rows, training)
    chosen_by = len(fitted.rows.y), int(np.count_nonzero(fitted.frequencies))
    return fitted if settings.objective is None else replace(fitted, chosen_by=chosen_by)


def for_reader(settings: Settings, reader: Reader) -> Settings:
    """The settings for rows that come as coordinates, which are no columns: products are all that is known."""
    if not (isinstance(reader, TableReader) and reader.spanned is not None):
        return settings
    return replace(settings, standardize=False, kernel="cosine" if settings.kernel == "auto" else settings.kernel)


def fit_members(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],  # the heaviest first, each with the rows as its kernel sees them
    rows: LabelledRows,  # the training set's, the weights of their classes multiplied in
    training: TrainingSet,
    known: GPFitted | None = None,  # of other rows, with the same plans: where to look for modes
) -> GPFitted:
    """The posteriors for the plans, and the temperatures that suit them, but for one that `calibrate` has set."""
    n_classes, calibrated = len(training.classes), known is not None and known.calibrated
    tuned = settings.objective is not None and not calibrated
    judged = tuned and known is None and _score_too_well(settings, plans)
    if judged:
        plans = [(plan, support.judged_by_half()) for plan, support in plans]
    embeddings = is_unit_norm(torch.from_numpy(training.rows.x))
    by_part = not is_compared_whole(plans[0][1])
    of_two = embeddings and len(plans) > 1 and not any(plan.model.scheme.is_exact for plan, _ in plans)
    members: list[Member] = []
    left_out: list[Tensor | None] = []
    with stage(0.0, JUDGED if judged else 1.0):
        for place, (plan, support) in enumerate(tracked(plans, "fitting", len(plans))):
            start = None if known is None else Start(known.members[place], known.classes, training.classes)
            member, probabilities = _fit_member(settings, plan, support, tuned, start, by_part, of_two)
            members.append(member)
            left_out.append(probabilities)
    if known is None and by_part and support.can_select_kernels and not of_two:  # least squares has weighed those
        members, left_out = _weighed(members, left_out, support)
    if judged:
        with stage(JUDGED, 1.0):
            chosen = tracked(members, "fitting", len(members))
            members = [_with_all_rows(settings, member, rows, n_classes) for member in chosen]
    temperature, noise, score = members[0].plan.temperature, 0.0, members[0].plan.score
    if len(members) > 1:
        before = (1.0, 0.0) if known is None else (known.temperature, known.predictor.label_noise)
        temperature, noise, score = _of_average(members, left_out, support, before)
    frequencies = np.bincount(rows.y, rows.weight, minlength=n_classes)
    prior = usual_prior(settings.class_prior, training.classes, frequencies, embeddings)
    scores = None
    if known is not None and calibrated:
        temperature, noise = known.temperature, 0.0
    else:
        scores = _left_out_scores(members, left_out, temperature, noise, support, (frequencies, prior))
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=temperature,
        calibrated=calibrated,
        log_evidence=evidence_of(members),
        predictor=Ensemble(tuple(members), n_classes, noise),
        score=score,
        class_prior=prior,
        weight_of_class=frequencies,
        class_weight=settings.class_weight,
        left_out=scores,
    )


def _fit_member(
    settings: Settings,
    plan: Plan,
    support: Support,
    tuned: bool,
    start: Start | None,
    by_part: bool,  # whether a part of the rows has chosen the plan
    of_two: bool,  # whether it is one of two kernels of embeddings
) -> tuple[Member, Tensor | None]:
    """A member, and its probabilities (C, N) of the rows if they are left out, where it knows them.

    Relevance has seen these rows, so that its leave-one-out predictions would be too good: it has none.
    """
    explicit = finite_rank(plan.kernel, support.x.shape[1]) is not None
    inducing = by_inducing_inputs(settings, plan, support)
    check_memory(settings, plan, support)
    looks_for_noise = plan.model.scheme.is_exact and plan.rule == "plug_in" and tuned and (inducing or by_part)
    with threads_for(len(support.y)):
        if looks_for_noise and not inducing and not explicit and support.n_able > 0:
            return _regressed(settings, plan, support)
        basis = basis_of(settings, plan, support)
        if looks_for_noise:
            plan, basis = _with_noise(plan, support, basis)
        # As many features as rows: refits find their modes in less time than training variances of all classes take.
        lean = of_two and not explicit and not inducing and plan.rule == "plug_in"
        by_mode = lean and plan.model.scheme.in_parts
        found = condition_on(settings, plan, support, basis, start, Effort.MODE if by_mode else None)
        left_out = None
        if found.sites is not None:
            few = not explicit and not plan.model.one_latent and len(support.y) <= REFITTED_ROWS and tuned
            few_refitted = few and plan.model.searches and plan.rule == "plug_in"
            by_refits = plan.model.sites_see_labels or by_mode or few_refitted
            left_out = (
                _refitted(plan, basis.features, support, found.dual)
                if by_refits
                else found.leave_one_out(support.left_out)
            )
        if plan.rule == "plug_in" and tuned and left_out is not None:
            plan = _with_temperature(settings, plan, support, *left_out)
        member = member_of(settings, plan, basis, found)
    if left_out is None or plan.scaling.relevance is not None:
        return member, None
    return member, _class_probabilities(plan, *left_out, support.n_classes)


@dataclass(frozen=True)
class Basis:
    """What the weights of a member belong to."""

    approximation: Finite
    features: Tensor  # (N, R), of the labelled rows


@torch.no_grad()
def basis_of(settings: Settings, plan: Plan, support: Support) -> Basis:
    """Explicit features of the kernel, or those by inducing inputs, which may be all rows."""
    found: Finite
    if by_inducing_inputs(settings, plan, support):
        inputs = _inducing_inputs(support, settings.n_inducing or DEFAULT_INDUCING)
        found = Inducing(plan.kernel, inputs, plan.model.searches)
    elif finite_rank(plan.kernel, support.x.shape[1]) is not None:
        found = Explicit.of(plan.kernel, support.x)
    else:
        found = Inducing(plan.kernel, support.x, plan.model.searches)
    return Basis(found, found.features(support.x))


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


def member_of(settings: Settings, plan: Plan, basis: Basis, found: Conditioned) -> Member:
    """A plan with its posterior, put together as a model file would give it back."""
    kind, weights, arrays = pack_posterior(found.posterior)
    coefficients = aligned(basis.approximation.coefficients(weights))
    space = weight_space(kind, arrays, basis.features, coefficients, basis.approximation)
    scaling = None if settings.precomputed else plan.scaling
    process = GaussianProcess(scaling, basis.approximation, coefficients, aligned(arrays["prior_mean"]), space)
    return Member(plan, process, found.log_evidence, found.trace)


def _with_noise(plan: Plan, support: Support, basis: Basis) -> tuple[Plan, Basis]:
    """With the noise that the features ask for, and the output scale that belongs to it."""
    plan, scale, _ = with_noise_of_features(plan, support, basis.features)
    if scale == 1:
        return plan, basis
    return plan, Basis(basis.approximation.scaled(plan.kernel, scale), basis.features * scale**0.5)


@torch.no_grad()
def _regressed(settings: Settings, plan: Plan, support: Support) -> tuple[Member, Tensor | None]:
    """As `_fit_member` for least squares by a kernel that is exact for the rows, with noise that is to be found.

    One factor says all that is asked of it now. Features are made when it is first asked for more than means.
    """
    plan, scale, found = with_noise_of_features(plan, support, None)
    assert found is not None
    left_out = found.latent, torch.zeros_like(found.latent)
    plan = _with_temperature(settings, plan, support, *left_out)
    probabilities = (
        None if plan.scaling.relevance is not None else _class_probabilities(plan, *left_out, support.n_classes)
    )
    mean = aligned(support.targets[1])
    arrays = {"prior_mean": mean, "precision": (support.weight / plan.model.noise)[None, None]}
    coefficients = aligned(found.dual[None] / scale)
    features = Inducing(plan.kernel, support.x, plan.model.searches)
    space = LazyWeightSpace(features, support.x, "site", arrays, coefficients)
    evidence = found.log_evidence(support.weight, plan.model.noise, scale)
    scaling = None if settings.precomputed else plan.scaling
    return Member(plan, GaussianProcess(scaling, features, coefficients, mean, space), evidence, ()), probabilities


def _class_probabilities(plan: Plan, mean: Tensor, variance: Tensor, n_classes: int) -> Tensor:
    """Class probabilities (C, N) by latents of rows."""
    likelihood, t = plan.model.predictive_likelihood, plan.temperature
    pieces = zip((mean / t).split(_AT_ONCE, 1), (variance / t**2).split(_AT_ONCE, 1), strict=True)
    return torch.cat([likelihood.predict(*piece, plan.rule)[:n_classes] for piece in pieces], 1)


def _score_too_well(settings: Settings, plans: Sequence[tuple[Plan, Support]]) -> bool:
    """Whether left-out rows, many of them, lie by inducing inputs that were made of them; see `judged_by_half`."""
    known = all(plan.model.scheme.in_parts for plan, _ in plans)
    near = MANY_ROWS <= len(plans[0][1].y) <= ROWS_OF_AN_INPUT * (settings.n_inducing or DEFAULT_INDUCING)
    return known and near and any(by_inducing_inputs(settings, plan, support) for plan, support in plans)


def _with_all_rows(settings: Settings, member: Member, rows: LabelledRows, n_classes: int) -> Member:
    """What half of the rows have judged, with inducing inputs from all of them; the evidence is that of the former."""
    plan = member.plan
    support = Support.of(rows, n_classes, plan.scaling, plan.device)
    with threads_for(len(support.y)):
        basis = basis_of(settings, plan, support)
        found = condition_on(settings, plan, support, basis, effort=Effort.MODE)
        return replace(member_of(settings, plan, basis, found), log_evidence=member.log_evidence)


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


def _weighed(
    members: list[Member], left_out: list[Tensor | None], support: Support
) -> tuple[list[Member], list[Tensor | None]]:
    """Those that all rows choose, with the weights that these give them, the heaviest first.

    By probabilities of left-out rows (C, N) each, if all members know them. Their scales were chosen by a part of the
    rows, so they are not too good.
    """
    known = [part for part in left_out if part is not None]
    if len(members) == 1 or len(known) < len(members):
        return members, left_out
    scores = torch.stack([log_probability(part.gather(0, support.y[None])[0]) for part in known])
    weights = stacking_weights(scores, support.usable, most_members(len(support.y)))
    kept = [k for k in weights.argsort(descending=True, stable=True).tolist() if weights[k] > 0]
    weighed = [replace(members[k], plan=replace(members[k].plan, weight=float(weights[k]))) for k in kept]
    return weighed, [left_out[k] for k in kept]


def _of_average(
    members: Sequence[Member],
    left_out: Sequence[Tensor | None],
    support: Support,
    before: tuple[float, float],  # temperature and noise, where members do not know them
) -> tuple[float, float, float]:
    """Temperature, label noise and score of an average, by its probabilities of left-out rows if members know them."""
    known = [part for part in left_out if part is not None]
    if len(known) < len(members):
        return *before, sum(member.plan.weight * member.plan.score for member in members)
    p = averaged(members, known)
    temperature, noise, pointwise = fit_average(p, support)
    return temperature, noise, float(support.usable @ pointwise / support.usable.sum())


def _left_out_scores(
    members: Sequence[Member],
    left_out: Sequence[Tensor | None],
    temperature: float,
    noise: float,
    support: Support,
    of_classes: tuple[np.ndarray, np.ndarray | None],  # frequencies and prior, each (C,)
) -> LeftOutScores | None:
    """Of rows by the posterior of all others, where every member has them."""
    known = [part for part in left_out if part is not None]
    total = float(support.usable.sum())
    if len(known) < len(members) or not total > 0:
        return None
    p = known[0]
    if len(known) > 1:
        p = tempered_average(averaged(members, known), temperature, noise)
    p, share = p / p.sum(0), support.usable / total
    frequencies, prior = of_classes
    p = p if prior is None else under_prior(p.mT, frequencies, prior).mT
    right = (p.argmax(0) == support.y).to(share)
    of_class = [torch.bincount(support.y, part, minlength=support.n_classes) for part in (share * right, share)]
    recall = (of_class[0] / of_class[1])[of_class[1] > 0]
    of_label = log_probability(p.gather(0, support.y[None])[0])
    return LeftOutScores(float(share @ right), float(recall.mean()), -float(share @ of_label))


def _with_temperature(settings: Settings, plan: Plan, support: Support, mean: Tensor, variance: Tensor) -> Plan:
    """The plan with the temperature that predicts left-out labels best, by latents (C, N) of rows left out.

    Relevance has seen these labels, which makes for a smaller one: the temperature that was found without them is kept.
    """
    likelihood = plan.model.predictive_likelihood
    default = options.starting_temperature(settings.kernel, support)
    (found,), (pointwise,) = plug_in_temperatures(likelihood, mean[None], support, default)
    temperature, usable = float(found), support.usable
    total = float(usable.sum())
    score = float((usable * pointwise).sum() / total) if total > 0 else plan.score
    if plan.scaling.relevance is not None:
        return replace(plan, temperature=max(temperature, plan.least_temperature))
    return replace(plan, temperature=temperature, score=score)


def by_inducing_inputs(settings: Settings, plan: Plan, support: Support) -> bool:
    """Whether a kernel is approximated by inducing inputs."""
    n_rows, width = support.x.shape
    finite = finite_rank(plan.kernel, width) is not None
    return options.use_inducing(settings.approximation, finite, n_rows, EXACT_LIMIT)


def _inducing_inputs(support: Support, most: int) -> Tensor:
    """Of each class that has rows, `most` in all; of all rows together where classes are more than that."""
    if support.judges is not None:
        support = support.part(~support.judges)
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
            "smaller n_inducing, inference='laplace', fewer rows, or raise memory_limit."
        )

"""From rows and their numbers to what `GPRegressor` has learnt."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sureshot.approximations.base import Finite
from sureshot.computing.threads import threads_for
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.fitting import CHOSEN, MOST_OF_AN_INPUT, for_reader, has_local_members
from sureshot.estimators.gp.local_fitting import local_plans
from sureshot.estimators.gp.member_fitting import DEFAULT_INDUCING, basis_for, by_inducing_inputs
from sureshot.estimators.gp.model import LEAST_SQUARES
from sureshot.estimators.gp.number_fitted import (
    GPNumbersFitted,
    NumberEnsemble,
    judges,
    left_out_moments,
    stacked,
    trusting,
)
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember, sees_all
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.plan import Plan, choose_plans, columns_scaling
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import NOISE_RATIOS, nearest, scaled, uphill
from sureshot.estimators.gp.tuning.log_density import LogDensity, scored_numbers
from sureshot.estimators.gp.tuning.stacking import stacking_weights
from sureshot.estimators.gp.tuning.target_choice import scales_to_try
from sureshot.estimators.numbers.number_fitted import optimism
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.tails import DEGREES, MARGIN, degrees_of, trust
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import Support, is_compared_whole, sampled_rows
from sureshot.inference.least_squares import leave_one_out_by_factors, leave_one_out_path_by_features
from sureshot.kernels import evaluate
from sureshot.progress import stage, tracked

logger = logging.getLogger(__name__)

LEAST_WEIGHT = 0.03  # of a member: less says too little for the time that it takes of every prediction
FEWEST_FOR_TAILS = 30  # rows: of fewer nobody knows which are wild
ROUNDS = 3
MOST_LEFT_OUT = 2000  # rows by which noise is compared, all are learnt from


@dataclass(frozen=True)
class Wanted:
    """What `GPRegressor` was asked for beside its `Settings`."""

    transform: str  # "auto", or the scale of the target
    noise: str  # "auto", "gaussian" or "student_t"


def fit_numbers(settings: Settings, training: TrainingSet, wanted: Wanted) -> GPNumbersFitted:
    """Choose kernels, scales and noise by rows, and find the posteriors.

    Of two scales of the target, and of noise with and without tails, the one that makes left-out numbers more probable.
    """
    settings, rows = for_reader(settings, training.reader), training.rows
    scaling = columns_scaling(settings, rows, training.column_names, training.reader.clock)

    def support_of(some: LabelledRows, scale: TargetScale) -> NumberSupport:
        return NumberSupport.scaled(some, scale, scaling, settings.device)

    scales = scales_to_try(wanted.transform, rows, support_of, settings.seed)
    found = []
    for place, target in enumerate(scales):
        with stage(place / len(scales), (place + 1) / len(scales)):
            found += _by_noise(settings, training, scaling, target, wanted.noise)
    return safest(found) if len(found) > 1 else found[0]


def safest(found: Sequence[GPNumbersFitted]) -> GPNumbersFitted:
    """Of those whose left-out numbers are as probable as the best's, within errors, the best with the heaviest tails.

    What thin tails gain is a little of each row; what they risk is all of one that left-out rows did not show.
    """
    best = max(found, key=lambda fitted: fitted.score)

    def is_as_good(other: GPNumbersFitted) -> bool:
        lost = best.left_out_densities - other.left_out_densities
        return float(lost.mean()) <= MARGIN * float(lost.std()) / math.sqrt(len(lost))

    return min(filter(is_as_good, found), key=lambda fitted: (fitted.degrees, -fitted.score))


def _by_noise(
    settings: Settings, training: TrainingSet, scaling: Scaling, target: TargetScale, noise: str
) -> list[GPNumbersFitted]:
    """With normal noise, and with Student's if left-out errors have tails, or as asked for."""
    plans = _plans(settings, training, training.rows, scaling, target)
    normal = _fitted(settings, training, plans, target)
    if noise == "gaussian" or len(training.rows.y) < FEWEST_FOR_TAILS:
        return [normal]
    errors = _errors(normal.members, normal.rows, target)
    degrees, scale = degrees_of(errors.ravel())
    if math.isinf(degrees):
        if noise == "auto":
            return [normal]
        degrees = DEGREES[-1]
    first = trusting(training.rows, trust(errors / scale, degrees).mean(axis=1))
    robust = _fitted(settings, training, _plans(settings, training, first, scaling, target), target, degrees, first)
    return [robust] if noise == "student_t" else [normal, robust]


def _plans(
    settings: Settings, training: TrainingSet, rows: LabelledRows, scaling: Scaling, target: TargetScale
) -> list[Plan]:
    """Of all members, by rows with the weights that they are learnt with."""
    clock = training.reader.clock
    objective = LogDensity("plug_in", by_evidence=settings.objective == "evidence")

    def support_of(some: LabelledRows, columns: Scaling, device: torch.device) -> Support:
        return NumberSupport.scaled(some, target, columns, device)

    plans: list[Plan] = []
    with stage(0.0, CHOSEN):
        beside_local = clock is not None or has_local_members(settings, rows)
        if settings.approximation != NEAREST_NEIGHBOURS and clock is None:
            most = MOST_OF_AN_INPUT * (settings.n_inducing or DEFAULT_INDUCING)
            share = min(1.0, most / len(rows.y)) if beside_local else 1.0
            seen = sample_of(rows, share)
            chosen = choose_plans(settings, (LEAST_SQUARES,), objective, seen, support_of, None, scaling, beside_local)
            plans = [replace(plan, share=share) for plan, _ in chosen]
        if beside_local:
            plans += local_plans(settings, rows, support_of, objective, scaling, clock)
    return plans


def _fitted(
    settings: Settings,
    training: TrainingSet,
    plans: Sequence[Plan],
    target: TargetScale,
    degrees: float = math.inf,
    first: LabelledRows | None = None,  # with the weights that the plans were chosen by
) -> GPNumbersFitted:
    """The posteriors for new plans."""
    rows = training.rows if first is None else first
    with stage(CHOSEN, 1.0):
        members = [_member(settings, plan, rows, target, True) for plan in tracked(plans, "fitting", len(plans))]
        choose = any(plan.local is not None for plan in plans)
        members = _weighed(members, rows, target, choose)
        members, trusted = _settled(settings, members, training.rows, target, degrees)
        if trusted is not None:  # more surely than by the first guess
            members = _weighed(members, trusting(training.rows, trusted), target, choose)
            members, trusted = _settled(settings, members, training.rows, target, degrees)
    return _found(training, members, target, degrees, trusted, len(rows.y))


def update_numbers(
    settings: Settings, training: TrainingSet, known: GPNumbersFitted, wanted: Wanted
) -> GPNumbersFitted:
    """Learn from other rows than are `known`, whose settings stay, unless a number has no place on their scale."""
    rows = training.rows
    if not np.isfinite(known.target(rows.y)).all():
        logger.warning("a number is not positive, and logarithms were learnt: all settings were chosen anew")
        return fit_numbers(settings, training, wanted)
    members = [_member(settings, member.plan, rows, known.target, False) for member in known.members]
    members, trusted = _settled(settings, members, rows, known.target, known.degrees)
    return _found(training, members, known.target, known.degrees, trusted, known.chosen_by)


def _settled(
    settings: Settings,
    members: Sequence[NumberMember],
    rows: LabelledRows,
    target: TargetScale,
    degrees: float,
) -> tuple[list[NumberMember], np.ndarray | None]:
    """Members whose rows are trusted as far as their left-out numbers are near, from all alike in a few rounds.

    So what is learnt follows from plans and rows, in whatever order rows came.
    """
    if math.isinf(degrees):
        return list(members), None
    trusted = np.ones(len(rows.y))
    for _ in range(ROUNDS):
        weighted = trusting(rows, trusted)
        members = [_member(settings, member.plan, weighted, target, False) for member in members]
        trusted = trust(_errors(members, weighted, target), degrees).mean(axis=1)
    weighted = trusting(rows, trusted)
    return [_member(settings, member.plan, weighted, target, False) for member in members], trusted


def _errors(members: Sequence[NumberMember], rows: LabelledRows, target: TargetScale) -> np.ndarray:
    """How far off all left-out numbers are, (n, P), in deviations of the members' average."""
    moments = left_out_moments(members, rows, target, torch.arange(len(rows.y)))
    sure = [member.tempered(found) for member, found in zip(members, moments, strict=True)]
    mean, variance, _ = (part.cpu().numpy() for part in stacked(sure))
    weight = np.array([member.plan.weight for member in members])
    centre = np.einsum("m,nmp->np", weight, mean)
    spread = (variance @ weight)[:, None] + np.einsum("m,nmp->np", weight, (mean - centre[:, None]) ** 2)
    errors: np.ndarray = (target(rows.y) - centre) / np.sqrt(spread)
    return errors


def _found(
    training: TrainingSet,
    members: Sequence[NumberMember],
    target: TargetScale,
    degrees: float,
    trusted: np.ndarray | None,
    chosen_by: int,
) -> GPNumbersFitted:
    evidence = next((one.log_evidence for one in members if isinstance(one, GlobalNumberMember)), math.nan)
    return GPNumbersFitted(
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        log_evidence=evidence,
        predictor=NumberEnsemble(tuple(members)),
        target=target,
        one_target=training.one_target,
        chosen_by=chosen_by,
        degrees=degrees,
        trusted=trusted,
    )


def _member(settings: Settings, plan: Plan, rows: LabelledRows, target: TargetScale, is_new: bool) -> NumberMember:
    """By a plan, whose noise is found anew where it was chosen by fewer rows or more features, if it `is_new`."""
    seen = sample_of(rows, plan.share)
    support = NumberSupport.scaled(seen, target, plan.scaling, plan.device)
    if plan.local is not None:
        return LocalNumberMember.of(plan, support, rows)
    with threads_for(len(seen.y)), torch.no_grad():
        basis = basis_for(settings, plan, support)
        chose_less = by_inducing_inputs(settings, plan, support) or not is_compared_whole(support)
        if is_new and settings.objective is not None and chose_less:
            plan = _with_noise_of_rows(plan, support) if sees_all(basis, support) else _with_noise(plan, support, basis)
            basis = basis_for(settings, plan, support)
        return GlobalNumberMember.of(plan, support, basis)


def _with_noise(plan: Plan, support: NumberSupport, basis: Finite) -> Plan:
    """With the noise and output scale by which left-out rows are predicted best."""
    place, asked = sampled_rows(support, MOST_LEFT_OUT)
    assert isinstance(asked, NumberSupport)
    scale_now = float(plan.kernel.outputscale)
    ratios = support.x.new_tensor(NOISE_RATIOS)
    path = leave_one_out_path_by_features(
        basis.features(support.x) / scale_now**0.5, *support.targets, support.weight, ratios, support.left_out, place
    )
    variance = path.variance + (ratios * path.scale)[:, None]
    factors, pointwise = scored_numbers(path.latent, _of_targets(variance, asked), asked.targets[0], asked.usable)
    best = int((pointwise @ asked.usable).argmax())
    return _noisy(plan, NOISE_RATIOS[best], float(path.scale[best]), float(factors[best]))


def _with_noise_of_rows(plan: Plan, support: NumberSupport) -> Plan:
    """The same for a kernel that is exact for the rows, uphill from the noise that fewer rows liked best."""
    scale_now = float(plan.kernel.outputscale)
    gram = evaluate(plan.kernel, support.x) / scale_now
    found: dict[int, tuple[float, Plan]] = {}

    def gain(at: tuple[int, ...]) -> float:
        (place,) = at
        if place not in found:
            ratio = support.x.new_tensor([NOISE_RATIOS[place]])
            (this,) = leave_one_out_by_factors(gram, *support.targets, support.weight, ratio, support.left_out)
            variance = _of_targets(this.scale * (this.variance + ratio)[None], support)
            (factor,), (logs,) = scored_numbers(this.latent[None], variance, support.numbers, support.usable)
            found[place] = float(logs @ support.usable), _noisy(plan, NOISE_RATIOS[place], this.scale, float(factor))
        return found[place][0]

    start = nearest(NOISE_RATIOS, plan.model.noise / scale_now)
    uphill((start,), (len(NOISE_RATIOS),), ((1,), (-1,)), gain)
    return max(found.values(), key=lambda one: one[0])[1]


def _of_targets(variance: torch.Tensor, support: NumberSupport) -> torch.Tensor:
    """Variances (L, N) for each of the targets, (L, P, N)."""
    return variance.unsqueeze(1).expand(-1, len(support.numbers), -1)


def _noisy(plan: Plan, ratio: float, scale: float, factor: float) -> Plan:
    """With another output scale, a ratio of noise to it, and a factor of deviations."""
    scale = max(scale, 1e-9)
    kernel = scaled(plan.kernel, scale / float(plan.kernel.outputscale))
    return replace(plan, kernel=kernel, model=replace(plan.model, noise=ratio * scale), temperature=factor)


def _weighed(members: list[NumberMember], rows: LabelledRows, target: TargetScale, choose: bool) -> list[NumberMember]:
    """As sure, and if they are to `choose` with the weights, as left-out rows like best, the heaviest first.

    Other weights were chosen by rows that settings had not seen, and stay.
    """
    place = judges(rows)
    numbers = torch.from_numpy(target(rows.y[place.numpy()]).T.copy())
    usable = torch.from_numpy(rows.evidence)[place] if len(rows.y) > 1 else torch.zeros(len(place), dtype=torch.float64)
    logs, found = [], []
    for member, moments in zip(members, left_out_moments(members, rows, target, place), strict=True):
        variance = moments.total.cpu().expand(1, len(numbers), -1)
        (factor,), (pointwise,) = scored_numbers(moments.mean.cpu().mT[None], variance, numbers, usable)
        has_seen = member.plan.scaling.relevance is not None and member.plan.local is None
        temperature = member.plan.temperature if has_seen else optimism(len(rows.y)) * float(factor)
        found.append(replace(member, plan=replace(member.plan, temperature=temperature)))
        logs.append(pointwise)
    weight = torch.tensor([member.plan.weight for member in members], dtype=torch.float64)
    if choose and len(found) > 1 and float(usable.sum()) > 0:
        weight = stacking_weights(torch.stack(logs), usable, len(found))
    weight = torch.where(weight > min(LEAST_WEIGHT, float(weight.max()) / 2), weight, torch.zeros_like(weight))
    weight /= weight.sum()
    order = [k for k in weight.argsort(descending=True, stable=True).tolist() if weight[k] > 0]
    return [found[k].weighing(float(weight[k])) for k in order]

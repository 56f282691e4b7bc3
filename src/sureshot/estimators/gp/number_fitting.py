"""From rows and their numbers to what `GPRegressor` has learnt."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sureshot.approximations.by_name import BY_NAME
from sureshot.computing.threads import threads_for
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.by_name import learnt, with_parts
from sureshot.estimators.gp.fitting import CHOSEN, MOST_OF_AN_INPUT, for_reader, has_local_members
from sureshot.estimators.gp.local_fitting import local_plans
from sureshot.estimators.gp.member_fitting import DEFAULT_INDUCING, basis_for, by_inducing_inputs
from sureshot.estimators.gp.model import least_squares
from sureshot.estimators.gp.number_fitted import (
    GPNumbersFitted,
    NumberEnsemble,
    carried,
    errors_of,
    judges,
    left_out_moments,
    told_without,
    trusting,
)
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember, sees_all
from sureshot.estimators.gp.number_noise import noisy, with_noise, with_noise_of_rows
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.plan import Plan, SupportOf, choose_plans, columns_scaling
from sureshot.estimators.gp.row_noise import row_noise
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.solved_fitting import is_solved, solved_member, solved_plan
from sureshot.estimators.gp.solved_member import evidence_of
from sureshot.estimators.gp.tuning.given_kernel import learnt_kernel
from sureshot.estimators.gp.tuning.log_density import LogDensity, scored_numbers
from sureshot.estimators.gp.tuning.stacking import stacking_weights
from sureshot.estimators.gp.tuning.target_choice import scales_to_try
from sureshot.estimators.numbers.number_fitted import optimism
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.tails import DEGREES, MARGIN, degrees_of, scale_of, trust
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import Support, is_compared_whole
from sureshot.kernels.dense import own_kernel
from sureshot.progress import stage, tracked
from sureshot.warned import warn

logger = logging.getLogger(__name__)

LEAST_WEIGHT = 0.03  # of a member: less says too little for the time that it takes of every prediction
MOST_TRUSTED = 50_000  # rows, each of which is left out a few times; of more, noise has tails and no row counts less
FEWEST_FOR_TAILS = 30  # rows: of fewer nobody knows which are wild
UNKNOWN_NOISE = 0.1  # relative to the output scale, of one row
PARTS, MOST_PARTS, ENOUGH_APART = 10, 3, 300
"""Of the rows, how many are kept apart one after another, and how many rows say how much farther off new ones are."""


@dataclass(frozen=True)
class Wanted:
    """What `GPRegressor` was asked for beside its `Settings`."""

    transform: str  # "auto", or the scale of the target
    noise: str  # "auto", "gaussian" or "student_t"
    deviation: float | None = None  # of normal noise in units of the numbers, where it is stated
    learn_kernel: bool = False  # whether all numbers of a kernel that is given as an object are learnt


def fit_numbers(settings: Settings, training: TrainingSet, wanted: Wanted) -> GPNumbersFitted:
    """Choose kernels, scales and noise by rows, and find the posteriors.

    First the scale of the target, with normal noise, then tails, then whether noise depends on the row: each stays if
    it makes left-out numbers more probable.
    """
    settings, rows = for_reader(settings, training.reader), training.rows
    scaling = columns_scaling(settings, rows, training.column_names, training.reader.clock)

    def support_of(some: LabelledRows, scale: TargetScale) -> NumberSupport:
        return NumberSupport.scaled(some, scale, scaling, settings.device)

    if len(rows.y) == 1:
        warn("one row does not say how far numbers differ: deviations are guesses.")
    elif (rows.y == rows.y[0]).all(axis=0).any():
        warn("y does not vary: every prediction is close to its only value.")
    scales = scales_to_try(wanted.transform, rows, support_of, settings.seed)
    if wanted.deviation is not None:
        if len(scales[0].unit) > 1:
            raise ValueError("noise must be a name where y has several numbers a row: one number has one unit.")
        settings = replace(settings, noise=float(wanted.deviation / scales[0].unit[0]) ** 2)
    if wanted.learn_kernel:
        kernel = learnt_kernel(
            own_kernel(settings.kernel), support_of(rows, scales[0]), settings.objective == "evidence"
        )
        settings = replace(settings, kernel=kernel)
    found: list[GPNumbersFitted] = []
    parts = len(scales) + 1
    for place, target in enumerate(scales):
        with stage(place / parts, (place + 1) / parts):
            plans = _plans(settings, training, rows, scaling, target, found[0] if found else None)
            found.append(_fitted(settings, training, plans, target))
    fitted = found[0] if len(found) < 2 or _is_as_good(found[0], found[1]) else found[1]
    noise = "gaussian" if len(rows.y) < FEWEST_FOR_TAILS else wanted.noise
    with stage(1 - 1 / parts, 1.0):
        if noise != "gaussian":
            # Tails would take several solutions by products.
            told = noise == "auto" and is_solved(settings.approximation)
            robust = None if told else _with_tails(settings, training, scaling, fitted, noise == "student_t")
            if robust is not None:
                fitted = robust if noise == "student_t" else safest([fitted, robust])
        if settings.approximation in BY_NAME:
            fitted = _learnt(settings, training, fitted)
        degrees = fitted.degrees
        fitted = _with_row_noise(settings, scaling, fitted) if noise == "auto" else fitted
        return replace(fitted, farther=_farther(settings, fitted, degrees))


def _learnt(settings: Settings, training: TrainingSet, found: GPNumbersFitted) -> GPNumbersFitted:
    """With what evidence learns, once everything else is chosen."""
    (member,), rows, target = found.members, found.weighted, found.target
    support = NumberSupport.scaled(rows, target, member.plan.scaling, member.plan.device)
    plan = learnt(settings, member.plan, support)
    if plan is member.plan:
        return found
    members, trusted = (
        _weighed(settings, [_member(settings, plan, rows, target, False)], rows, target, False),
        found.trusted,
    )
    if trusted is not None:
        trusted = trust(_errors(members, rows, target), found.degrees).mean(axis=1)
        plans, rows = [member.plan for member in members], trusting(training.rows, trusted)
        members = [_member(settings, plan, rows, target, False) for plan in plans]
    return _found(training, members, target, found.degrees, trusted, found.chosen_by)


def _farther(settings: Settings, fitted: GPNumbersFitted, degrees: float) -> float:
    """How many times farther off numbers are that no other row's trust has seen than left-out ones, at least once.

    A row that is left out has told which of the others to trust: those that agree with it. So parts of the rows are
    kept apart, the others are trusted anew, settings stay. So it is with noise that depends on the row.
    """
    if fitted.trusted is None:
        return 1.0
    part = (1000 * fitted.rows.lots).astype(np.int64) % PARTS
    errors, noise = _errors(fitted.members, fitted.weighted, fitted.target), fitted.predictor.row_noise
    if noise is not None:
        errors /= noise.factors_without(fitted.rows, np.arange(len(errors)))
    left_out, kept_apart = [], []
    for k in range(min(MOST_PARTS, math.ceil(PARTS * ENOUGH_APART / len(part)))):
        apart = part == k
        if not 0 < apart.sum() < len(apart):
            continue
        rest, trusted = part_of(fitted.rows, ~apart), fitted.trusted[~apart]
        for is_last in (False, True):
            rows = trusting(rest, trusted)
            members = [_member(settings, member.plan, rows, fitted.target, False) for member in fitted.members]
            if not is_last:
                without = _errors(members, rows, fitted.target)
                trusted = trust(without, degrees).mean(axis=1)
        told = replace(fitted, rows=rest, predictor=NumberEnsemble(tuple(members)))
        if fitted.widths is not None:
            told = told.with_widths(fitted.widths, without**2)
        kept_apart.append(told.errors(part_of(fitted.rows, apart)))
        left_out.append(errors[apart])
    if not left_out:
        return 1.0
    now, then = (scale_of(np.concatenate(found).ravel(), degrees) for found in (kept_apart, left_out))
    return max(1.0, now / then)


def safest(found: Sequence[GPNumbersFitted]) -> GPNumbersFitted:
    """Of those whose left-out numbers are as probable as the best's, within errors, the best with the heaviest tails.

    What thin tails gain is a little of each row; what they risk is all of one that left-out rows did not show.
    """
    best = max(found, key=lambda fitted: fitted.score)
    as_good = [other for other in found if _is_as_good(other, best)]
    return min(as_good, key=lambda fitted: (fitted.degrees, -fitted.score))


def _is_as_good(fitted: GPNumbersFitted, other: GPNumbersFitted) -> bool:
    """Whether left-out numbers are as probable as by another fit, within errors."""
    lost = other.left_out_densities - fitted.left_out_densities
    return float(lost.mean()) <= MARGIN * float(lost.std()) / math.sqrt(len(lost))


def _with_tails(
    settings: Settings, training: TrainingSet, scaling: Scaling, normal: GPNumbersFitted, asked: bool
) -> GPNumbersFitted | None:
    """Student's noise, if left-out errors have tails or it is `asked` for; kernels and scales are chosen anew.

    Rows are trusted as far as their left-out numbers are near, unless they are too many to leave out each.
    """
    target = normal.target
    degrees, scale = degrees_of(normal.errors_without.ravel())
    if math.isinf(degrees):
        if not asked:
            return None
        degrees = DEGREES[-1]
    if len(normal.rows.y) > MOST_TRUSTED:
        return normal.with_degrees(degrees)
    errors = _errors(normal.members, normal.rows, target)
    trusted = trust(errors / scale, degrees).mean(axis=1)
    plans = _plans(settings, training, trusting(training.rows, trusted), scaling, target, normal)
    for is_new in (True, False):
        rows = trusting(training.rows, trusted)
        members = [_member(settings, plan, rows, target, is_new) for plan in plans]
        members = _weighed(settings, members, rows, target, any(plan.local is not None for plan in plans))
        plans = [member.plan for member in members]
        trusted = trust(_errors(members, rows, target), degrees).mean(axis=1)
    rows = trusting(training.rows, trusted)
    members = [_member(settings, plan, rows, target, False) for plan in plans]
    return _found(training, members, target, degrees, trusted, normal.chosen_by)


def _with_row_noise(settings: Settings, scaling: Scaling, fitted: GPNumbersFitted) -> GPNumbersFitted:
    """With deviations that depend on the row, where that is clearly more probable, and tails as they then are."""
    place = judges(fitted.rows)
    errors = np.full(fitted.rows.y.shape, np.nan)
    errors[place.numpy()] = fitted.errors_without
    widths = row_noise(settings, scaling, fitted.rows, errors)
    if widths is None:
        return fitted
    wide = fitted.with_widths(widths, errors**2)
    return safest([wide.with_degrees(degrees) for degrees in (*DEGREES, math.inf)])


def _plans(
    settings: Settings,
    training: TrainingSet,
    rows: LabelledRows,
    scaling: Scaling,
    target: TargetScale,
    before: GPNumbersFitted | None,
) -> list[Plan]:
    """Of all members, by rows with the weights that they are learnt with.

    None that sees all rows, if none had any weight `before`, on another scale or with other weights.
    """
    without = before is not None and all(isinstance(member, LocalNumberMember) for member in before.members)
    clock, objective, support_of = training.reader.clock, _objective(settings), _support_of(target)
    plans: list[Plan] = []
    with stage(0.0, CHOSEN):
        if is_solved(settings.approximation):
            return [solved_plan(settings, rows, support_of, objective, scaling)]
        beside_local = clock is not None or has_local_members(settings, rows)
        if settings.approximation != NEAREST_NEIGHBOURS and clock is None and not without:
            most = MOST_OF_AN_INPUT * (settings.n_inducing or DEFAULT_INDUCING)
            share = min(1.0, most / len(rows.y)) if beside_local else 1.0
            seen = sample_of(rows, share)
            models = (least_squares(settings.noise),)
            chosen = choose_plans(settings, models, objective, seen, support_of, None, scaling, beside_local)
            plans = [replace(plan, share=share) for plan, _ in chosen]
        if beside_local:
            plans += local_plans(settings, rows, support_of, objective, scaling, clock)
    return plans


def _objective(settings: Settings) -> LogDensity:
    return LogDensity("plug_in", by_evidence=settings.objective == "evidence", noise=settings.noise)


def _support_of(target: TargetScale) -> SupportOf:
    def support_of(some: LabelledRows, columns: Scaling, device: torch.device) -> Support:
        return NumberSupport.scaled(some, target, columns, device)

    return support_of


def _fitted(settings: Settings, training: TrainingSet, plans: Sequence[Plan], target: TargetScale) -> GPNumbersFitted:
    """The posteriors for new plans, with normal noise."""
    with stage(CHOSEN, 1.0):
        members = [
            _member(settings, plan, training.rows, target, True) for plan in tracked(plans, "fitting", len(plans))
        ]
        members = _weighed(settings, members, training.rows, target, any(plan.local is not None for plan in plans))
    return _found(training, members, target, math.inf, None, len(training.rows.y))


def update_numbers(
    settings: Settings, training: TrainingSet, known: GPNumbersFitted, wanted: Wanted
) -> GPNumbersFitted:
    """Learn from other rows than are `known`, whose settings stay, unless a number has no place on their scale.

    Rows that came are trusted as far as what was known of them before is near; rows that stay, as before.
    """
    rows, places = training.rows, training.places
    if not np.isfinite(known.target(rows.y)).all():
        logger.warning("a number is not positive, and logarithms were learnt: all settings were chosen anew")
        return fit_numbers(settings, training, wanted)
    trusted, squared = known.trusted, known.squared_errors
    if trusted is not None or squared is not None:
        stayed, at = carried(known.rows, rows, places)
        if squared is not None:
            old, squared = squared, np.full(rows.y.shape, np.nan)
            squared[at] = old[stayed]
        if trusted is not None:
            old, trusted = trusted, np.ones(len(rows.y))
            came = np.setdiff1d(np.arange(len(rows.y)), at)
            trusted[at] = old[stayed]
            if len(came):
                trusted[came] = trust(known.errors(part_of(rows, came)), known.degrees).mean(axis=1)
    weighted = trusting(rows, trusted)
    members = [_updated(settings, member, weighted, places, known.target) for member in known.members]
    found = _found(training, members, known.target, known.degrees, trusted, known.chosen_by)
    found = replace(found, farther=known.farther)
    return found if squared is None or known.widths is None else found.with_widths(known.widths, squared)


def _updated(
    settings: Settings, member: NumberMember, rows: LabelledRows, places: np.ndarray | None, target: TargetScale
) -> NumberMember:
    if isinstance(member, LocalNumberMember):
        support = NumberSupport.scaled(rows, target, member.plan.scaling, member.plan.device)
        return member.with_rows(support, rows, places)
    return _member(settings, member.plan, rows, target, False, member)


def _errors(members: Sequence[NumberMember], rows: LabelledRows, target: TargetScale) -> np.ndarray:
    """How far off all left-out numbers are, (N, P), in deviations of the members' average."""
    mean, variance, _ = told_without(members, rows, target, torch.arange(len(rows.y)))
    return errors_of(np.array([member.plan.weight for member in members]), mean, variance, target(rows.y))


def _found(
    training: TrainingSet,
    members: Sequence[NumberMember],
    target: TargetScale,
    degrees: float,
    trusted: np.ndarray | None,
    chosen_by: int,
) -> GPNumbersFitted:
    return GPNumbersFitted(
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        log_evidence=evidence_of(members),
        predictor=NumberEnsemble(tuple(members)),
        target=target,
        one_target=training.one_target,
        chosen_by=chosen_by,
        degrees=degrees,
        trusted=trusted,
    )


def _member(
    settings: Settings,
    plan: Plan,
    rows: LabelledRows,
    target: TargetScale,
    is_new: bool,
    known: NumberMember | None = None,  # by the same plan, of like rows
) -> NumberMember:
    """By a plan, whose noise is found anew where it was chosen by fewer rows or more features, if it `is_new`."""
    seen = sample_of(rows, plan.share)
    support = NumberSupport.scaled(seen, target, plan.scaling, plan.device)
    if plan.local is not None:
        return LocalNumberMember.of(plan, support, rows)
    if is_solved(settings.approximation):
        with threads_for(len(seen.y)):
            return solved_member(settings, plan, support, rows, known)
    with threads_for(len(seen.y)), torch.no_grad():
        if is_new and settings.approximation in BY_NAME:
            plan = with_parts(settings, plan, support)
        if is_new and support.n_able == 0:  # nothing says how far off numbers are
            plan = noisy(plan, settings.noise or UNKNOWN_NOISE, 1.0, 1.0)
        basis = basis_for(settings, plan, support)
        chose_less = by_inducing_inputs(settings, plan, support) or not is_compared_whole(support)
        if is_new and settings.objective is not None and settings.noise is None and chose_less:
            plan = with_noise_of_rows(plan, support) if sees_all(basis, support) else with_noise(plan, support, basis)
            basis = basis_for(settings, plan, support)
        return GlobalNumberMember.of(plan, support, basis)


def _weighed(
    settings: Settings, members: list[NumberMember], rows: LabelledRows, target: TargetScale, choose: bool
) -> list[NumberMember]:
    """As sure, and if they are to `choose` with the weights, as left-out rows like best, the heaviest first.

    Other weights were chosen by rows that settings had not seen, and stay. Without an objective deviations stay, too.
    """
    place = judges(rows)
    numbers = torch.from_numpy(target(rows.y[place.numpy()]).T.copy())
    usable = torch.from_numpy(rows.evidence)[place] if len(rows.y) > 1 else torch.zeros(len(place), dtype=torch.float64)
    logs, found = [], []
    for member, moments in zip(members, left_out_moments(members, rows, target, place), strict=True):
        variance = moments.total.cpu().expand(1, len(numbers), -1)
        (factor,), (pointwise,) = scored_numbers(moments.mean.cpu().mT[None], variance, numbers, usable)
        has_seen = member.plan.has_seen
        temperature = member.plan.temperature if has_seen else optimism(len(rows.y)) * float(factor)
        temperature = 1.0 if settings.objective is None or settings.noise is not None else temperature
        found.append(replace(member, plan=replace(member.plan, temperature=temperature)))
        logs.append(pointwise)
    weight = torch.tensor([member.plan.weight for member in members], dtype=torch.float64)
    if choose and len(found) > 1 and float(usable.sum()) > 0:
        weight = stacking_weights(torch.stack(logs), usable, len(found))
    weight = torch.where(weight > min(LEAST_WEIGHT, float(weight.max()) / 2), weight, torch.zeros_like(weight))
    weight /= weight.sum()
    order = [k for k in weight.argsort(descending=True, stable=True).tolist() if weight[k] > 0]
    return [found[k].weighing(float(weight[k])) for k in order]

"""From rows and their numbers to what `GPRegressor` has learnt."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
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
from sureshot.estimators.gp.number_fitted import GPNumbersFitted, left_out_moments, trusting
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember, seen_by, sees_all
from sureshot.estimators.gp.number_noise import noisy, with_noise, with_noise_of_rows
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.plan import Plan, choose_plans, columns_scaling
from sureshot.estimators.gp.row_noise import row_noise
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.solved_fitting import N_NEIGHBOURS, is_solved, solved_plan
from sureshot.estimators.gp.solved_member import SolvedNumberMember
from sureshot.estimators.gp.tuning.given_kernel import learnt_kernel
from sureshot.estimators.gp.tuning.log_density import LogDensity, scored_numbers
from sureshot.estimators.gp.tuning.stacking import stacking_weights
from sureshot.estimators.gp.tuning.target_choice import scales_to_try
from sureshot.estimators.numbers.number_fitted import judges, optimism
from sureshot.estimators.numbers.support import NumberSupport, supports
from sureshot.estimators.numbers.tails import DEGREES, degrees_of, is_ahead, scale_of, trust
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of, places_among, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import is_compared_whole
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
            nothing = GPNumbersFitted.of(training, (), target, chosen_by=len(rows.y))
            with stage(CHOSEN, 1.0):
                found.append(_weighed(settings, nothing, tracked(plans, "fitting", len(plans)), None, True))
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
            fitted = _learnt(settings, fitted)
        degrees = fitted.degrees
        fitted = _with_row_noise(settings, scaling, fitted) if noise == "auto" else fitted
        return replace(fitted, farther=_farther(settings, fitted, degrees))


def _learnt(settings: Settings, found: GPNumbersFitted) -> GPNumbersFitted:
    """With what evidence learns, once everything else is chosen."""
    (member,) = found.members
    plan = learnt(settings, member.plan, seen_by(member.plan, found.weighted, found.target))
    if plan is member.plan:
        return found
    found = _weighed(settings, found, [plan], found.trusted, False)
    return found if found.trusted is None else _trusted_anew(settings, found)


def _farther(settings: Settings, fitted: GPNumbersFitted, degrees: float) -> float:
    """How many times farther off numbers are that no other row's trust has seen than left-out ones, at least once.

    A row that is left out has told which of the others to trust: those that agree with it. So parts of the rows are
    kept apart, the others are trusted anew, settings stay. So it is with noise that depends on the row.
    """
    if fitted.trusted is None:
        return 1.0
    part = (1000 * fitted.rows.lots).astype(np.int64) % PARTS
    errors, noise = fitted.every_error, fitted.predictor.row_noise
    if noise is not None:
        errors = errors / noise.factors_without(fitted.rows, np.arange(len(errors)))
    left_out, kept_apart = [], []
    for k in range(min(MOST_PARTS, math.ceil(PARTS * ENOUGH_APART / len(part)))):
        apart = part == k
        if not 0 < apart.sum() < len(apart):
            continue
        rest = _remade(settings, fitted, part_of(fitted.rows, ~apart), fitted.trusted[~apart])
        rest = replace(rest, degrees=degrees)
        told = _trusted_anew(settings, rest)
        if fitted.widths is not None:
            told = told.with_widths(fitted.widths, rest.every_error**2)
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
    return not is_ahead(other.left_out_densities - fitted.left_out_densities)


def _with_tails(
    settings: Settings, training: TrainingSet, scaling: Scaling, normal: GPNumbersFitted, asked: bool
) -> GPNumbersFitted | None:
    """Student's noise, if left-out errors have tails or it is `asked` for; kernels and scales are chosen anew.

    Rows are trusted as far as their left-out numbers are near, unless they are too many to leave out each.
    """
    degrees, scale = degrees_of(normal.errors_without.ravel())
    if math.isinf(degrees):
        if not asked:
            return None
        degrees = DEGREES[-1]
    if len(normal.rows.y) > MOST_TRUSTED:
        return normal.with_degrees(degrees)
    trusted = trust(normal.every_error / scale, degrees).mean(axis=1)
    plans = _plans(settings, training, trusting(training.rows, trusted), scaling, normal.target, normal)
    found = _weighed(settings, replace(normal, degrees=degrees), plans, trusted, True)
    trusted = trust(found.every_error, degrees).mean(axis=1)
    found = _weighed(settings, found, [member.plan for member in found.members], trusted, False)
    return _trusted_anew(settings, found)


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
    clock, support_of = training.reader.clock, supports(target)
    objective = LogDensity("plug_in", by_evidence=settings.objective == "evidence", noise=settings.noise)
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


def update_numbers(
    settings: Settings, training: TrainingSet, known: GPNumbersFitted, wanted: Wanted
) -> GPNumbersFitted:
    """Learn from other rows than are `known`, whose settings stay, unless a number has no place on their scale.

    Rows that came are trusted as far as what was known of them before is near; rows that stay, as before.
    """
    rows = training.rows
    if not np.isfinite(known.target(rows.y)).all():
        logger.warning("a number is not positive, and logarithms were learnt: all settings were chosen anew")
        return fit_numbers(settings, training, wanted)
    trusted, squared = known.trusted, known.squared_errors
    if trusted is not None or squared is not None:
        at = places_among(*(np.column_stack([one.x, one.y]) for one in (rows, known.rows)))
        stayed = at >= 0
        at = at[stayed]
        if squared is not None:
            old, squared = squared, np.full(rows.y.shape, np.nan)
            squared[at] = old[stayed]
        if trusted is not None:
            old, trusted = trusted, np.ones(len(rows.y))
            came = np.setdiff1d(np.arange(len(rows.y)), at)
            trusted[at] = old[stayed]
            if len(came):
                trusted[came] = trust(known.errors(part_of(rows, came)), known.degrees).mean(axis=1)
    found = replace(_remade(settings, known, rows, trusted), reader=training.reader)
    return found if squared is None or known.widths is None else found.with_widths(known.widths, squared)


def _remade(
    settings: Settings, found: GPNumbersFitted, rows: LabelledRows, trusted: np.ndarray | None
) -> GPNumbersFitted:
    """By the same plans, of other rows or other shares of their weights."""
    weighted = trusting(rows, trusted)
    members = [_member(settings, member.plan, weighted, found.target, False, member) for member in found.members]
    return found.with_members(members, rows=rows, trusted=trusted)


def _trusted_anew(settings: Settings, found: GPNumbersFitted) -> GPNumbersFitted:
    """Each row as far as its number is near, left out."""
    return _remade(settings, found, found.rows, trust(found.every_error, found.degrees).mean(axis=1))


def _member(
    settings: Settings,
    plan: Plan,
    rows: LabelledRows,
    target: TargetScale,
    is_new: bool,
    known: NumberMember | None = None,  # by the same plan, of like rows
) -> NumberMember:
    """By a plan, whose noise is found anew where it was chosen by fewer rows or more features, if it `is_new`."""
    support = seen_by(plan, rows, target)
    if plan.local is not None:
        return LocalNumberMember.of(plan, support, rows)
    if is_solved(settings.approximation):
        with threads_for(len(support.y)):
            near = max(N_NEIGHBOURS, settings.n_neighbours)
            return SolvedNumberMember.found(plan, support, rows, settings.approximation, near, settings.seed, known)
    with threads_for(len(support.y)), torch.no_grad():
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
    settings: Settings, known: GPNumbersFitted, plans: Iterable[Plan], trusted: np.ndarray | None, is_new: bool
) -> GPNumbersFitted:
    """By plans, as sure as left-out rows like best, the heaviest first.

    So are the weights, if some members see nearest rows. Others were chosen by rows that settings had not seen, and
    stay. Without an objective deviations stay, too.
    """
    rows, target = trusting(known.rows, trusted), known.target
    members = [_member(settings, plan, rows, target, is_new) for plan in plans]
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
    some_local = any(member.plan.local is not None for member in members)
    if some_local and len(found) > 1 and float(usable.sum()) > 0:
        weight = stacking_weights(torch.stack(logs), usable, len(found))
    weight = torch.where(weight > min(LEAST_WEIGHT, float(weight.max()) / 2), weight, torch.zeros_like(weight))
    weight /= weight.sum()
    order = [k for k in weight.argsort(descending=True, stable=True).tolist() if weight[k] > 0]
    return known.with_members([found[k].weighing(float(weight[k])) for k in order], trusted=trusted)

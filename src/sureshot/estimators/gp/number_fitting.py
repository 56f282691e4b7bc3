"""From rows and their numbers to what `GPRegressor` has learnt."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

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
)
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.plan import Plan, choose_plans, columns_scaling
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import NOISE_RATIOS, scaled
from sureshot.estimators.gp.tuning.log_density import LogDensity, scored_numbers
from sureshot.estimators.gp.tuning.stacking import stacking_weights
from sureshot.estimators.gp.tuning.target_choice import scales_to_try
from sureshot.estimators.numbers.number_fitted import optimism
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import Support, is_compared_whole, sampled_rows
from sureshot.inference.least_squares import leave_one_out_path_by_features
from sureshot.progress import stage, tracked

logger = logging.getLogger(__name__)

LEAST_WEIGHT = 0.03  # of a member: less says too little for the time that it takes of every prediction
MOST_LEFT_OUT = 2000  # rows by which noise is compared, all are learnt from


def fit_numbers(settings: Settings, training: TrainingSet, transform: str) -> GPNumbersFitted:
    """Choose kernels, scales and noise by rows, and find the posteriors; of numbers on a scale, or "auto".

    Of two scales the one that makes left-out numbers more probable.
    """
    settings, rows = for_reader(settings, training.reader), training.rows
    scaling = columns_scaling(settings, rows, training.column_names, training.reader.clock)

    def support_of(some: LabelledRows, scale: TargetScale) -> NumberSupport:
        return NumberSupport.scaled(some, scale, scaling, settings.device)

    scales = scales_to_try(transform, rows, support_of, settings.seed)
    found = []
    for place, target in enumerate(scales):
        with stage(place / len(scales), (place + 1) / len(scales)):
            found.append(_fit(settings, training, scaling, target))
    return max(found, key=lambda fitted: fitted.score) if len(found) > 1 else found[0]


def _fit(settings: Settings, training: TrainingSet, scaling: Scaling, target: TargetScale) -> GPNumbersFitted:
    rows, clock = training.rows, training.reader.clock
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
    with stage(CHOSEN, 1.0):
        members = [_member(settings, plan, rows, target, True) for plan in tracked(plans, "fitting", len(plans))]
        members, score = _weighed(members, rows, target, chosen_weights=not beside_local)
    return _fitted(training, members, target, score, len(rows.y))


def update_numbers(
    settings: Settings, training: TrainingSet, known: GPNumbersFitted, transform: str
) -> GPNumbersFitted:
    """Learn from other rows than are `known`, whose settings stay, unless a number has no place on their scale."""
    rows = training.rows
    if not np.isfinite(known.target(rows.y)).all():
        logger.warning("a number is not positive, and logarithms were learnt: all settings were chosen anew")
        return fit_numbers(settings, training, transform)
    members = [_member(settings, member.plan, rows, known.target, False) for member in known.members]
    return _fitted(training, members, known.target, math.nan, known.chosen_by)


def _fitted(
    training: TrainingSet, members: Sequence[NumberMember], target: TargetScale, score: float, chosen_by: int
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
        score=score,
        chosen_by=chosen_by,
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
            plan = _with_noise(plan, support, basis.features(support.x))
            basis = basis_for(settings, plan, support)
        return GlobalNumberMember.of(plan, support, basis)


def _with_noise(plan: Plan, support: NumberSupport, features: torch.Tensor) -> Plan:
    """With the noise and output scale by which left-out rows are predicted best."""
    place, asked = sampled_rows(support, MOST_LEFT_OUT)
    assert isinstance(asked, NumberSupport)
    scale_now = float(plan.kernel.outputscale)
    ratios = support.x.new_tensor(NOISE_RATIOS)
    path = leave_one_out_path_by_features(
        features / scale_now**0.5, *support.targets, support.weight, ratios, support.left_out, place
    )
    scale = path.scale.clamp_min(1e-9)
    variance = (path.variance + (ratios * scale)[:, None]).unsqueeze(1).expand_as(path.latent)
    factors, pointwise = scored_numbers(path.latent, variance, asked.targets[0], asked.usable)
    best = int((pointwise @ asked.usable).argmax())
    kernel = scaled(plan.kernel, float(scale[best]) / scale_now)
    model = replace(plan.model, noise=float(ratios[best] * scale[best]))
    return replace(plan, kernel=kernel, model=model, temperature=float(factors[best]))


def _weighed(
    members: list[NumberMember], rows: LabelledRows, target: TargetScale, chosen_weights: bool
) -> tuple[list[NumberMember], float]:
    """As sure, and with the weights, as left-out rows choose, the heaviest first; and the score of these rows.

    Weights that were chosen by rows that settings had not seen stay.
    """
    place = judges(rows)
    numbers = torch.from_numpy(target(rows.y[place.numpy()]).T.copy())
    usable = torch.from_numpy(rows.evidence)[place] if len(rows.y) > 1 else torch.zeros(len(place), dtype=torch.float64)
    logs, found = [], []
    for member, moments in zip(members, left_out_moments(members, rows, target, place), strict=True):
        variance = moments.total.cpu().expand(1, len(numbers), -1)
        (factor,), (pointwise,) = scored_numbers(moments.mean.cpu().mT[None], variance, numbers, usable)
        has_seen = member.plan.scaling.relevance is not None and member.plan.local is None
        temperature = optimism(len(rows.y)) * (member.plan.temperature if has_seen else float(factor))
        found.append(replace(member, plan=replace(member.plan, temperature=temperature)))
        logs.append(pointwise)
    weight = torch.tensor([member.plan.weight for member in members], dtype=torch.float64)
    if not chosen_weights and len(found) > 1 and float(usable.sum()) > 0:
        weight = stacking_weights(torch.stack(logs), usable, len(found))
    weight = torch.where(weight > min(LEAST_WEIGHT, float(weight.max()) / 2), weight, torch.zeros_like(weight))
    weight /= weight.sum()
    order = [k for k in weight.argsort(descending=True, stable=True).tolist() if weight[k] > 0]
    average = torch.logsumexp(torch.stack([logs[k] + weight[k].log() for k in order]), 0)
    total, slope = float(usable.sum()), torch.from_numpy(target.log_slope(rows.y[place.numpy()]).sum(axis=1))
    score = float(usable @ (average + slope)) / total if total > 0 else math.nan
    return [found[k].weighing(float(weight[k])) for k in order], score

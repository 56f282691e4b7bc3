"""From labelled rows to what `GPClassifier` has learnt: plans, and features, posteriors and temperatures for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.by_name import FEATURE_MAPS
from sureshot.estimators.classes.class_prior import usual_prior
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp import options
from sureshot.estimators.gp.by_name import learnt, one_kernel, with_parts
from sureshot.estimators.gp.ensemble import Ensemble
from sureshot.estimators.gp.fitted import GPFitted, evidence_of
from sureshot.estimators.gp.following import Followed
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.judged import Judged
from sureshot.estimators.gp.local_fitting import local_plans
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.member_fitting import (
    DEFAULT_INDUCING,
    MemberFit,
)
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.plan import Plan, choose_plans, columns_scaling
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.objective import LabelLogLoss
from sureshot.estimators.gp.warm_start import Start
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.support import EXACT_LIMIT, Support, is_compared_whole
from sureshot.kernels import is_unit_norm
from sureshot.progress import stage, tracked

CHOSEN = 0.7  # of the time, roughly, that learning takes has gone by when settings are chosen
MOST_OF_AN_INPUT = 20  # rows per inducing input that global members see, where local ones see all


def fit(settings: Settings, training: TrainingSet) -> GPFitted:
    """Choose kernels, scales and models by labelled rows, and find the posteriors."""
    settings = for_reader(settings, training.reader)
    rows = weigh_classes(training.rows, settings.class_weight, training.classes, settings.inference)
    matrix = training.checked if settings.precomputed else None
    n_classes = len(training.classes)
    plans: list[tuple[Plan, Support]] = []
    local: list[LocalMember] = []
    clock = training.reader.clock
    scaling = columns_scaling(settings, rows, training.column_names, clock)

    def support_of(some: LabelledRows, columns: Scaling, device: torch.device) -> Support:
        return Support.of(some, n_classes, columns, device)

    with stage(0.0, CHOSEN):
        beside_local = clock is not None or has_local_members(settings, rows)
        if settings.approximation != NEAREST_NEIGHBOURS and clock is None:
            most = MOST_OF_AN_INPUT * _inducing_inputs(settings)
            share = min(1.0, most / len(rows.y)) if beside_local else 1.0
            models = options.models_for(settings.likelihood, settings.inference, n_classes, **settings.model_settings)
            objective = LabelLogLoss(settings.predictive, by_evidence=settings.objective == "evidence")
            seen = sample_of(rows, share)
            chosen = choose_plans(settings, models, objective, seen, support_of, matrix, scaling, beside_local)
            plans = [(replace(plan, share=share), support) for plan, support in chosen]
            if settings.approximation in FEATURE_MAPS:
                plans = [
                    (learnt(settings, with_parts(settings, plan, support), support), support) for plan, support in plans
                ]
        if beside_local:
            found = local_plans(settings, rows, support_of, LabelLogLoss("plug_in"), scaling, clock)
            local = [LocalMember.of(plan, rows, n_classes) for plan in found]
    with stage(CHOSEN, 1.0):
        fitted = fit_members(settings, plans, local, rows, training)
    chosen_by = len(fitted.rows.y), int(np.count_nonzero(fitted.frequencies))
    return fitted if settings.objective is None else replace(fitted, chosen_by=chosen_by)


def has_local_members(settings: Settings, rows: LabelledRows) -> bool:
    """Whether rows are more than global members can all see, or nearest rows are asked for."""
    if settings.approximation == NEAREST_NEIGHBOURS:
        return True
    many = len(rows.y) > EXACT_LIMIT and settings.averages and settings.approximation == "auto"
    many = many and settings.noise is None
    return many and settings.objective not in (None, "evidence") and not is_unit_norm(torch.from_numpy(rows.x))


def for_reader(settings: Settings, reader: Reader) -> Settings:
    """The settings for rows that come as coordinates, which are no columns: products are all that is known.

    An approximation by name has one kernel.
    """
    settings = one_kernel(settings)
    if not (isinstance(reader, TableReader) and reader.spanned is not None):
        return settings
    return replace(settings, standardize=False, kernel="cosine" if settings.kernel == "auto" else settings.kernel)


def fit_members(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],  # the heaviest first, each with the rows as its kernel sees them
    local: Sequence[LocalMember],  # that join them
    rows: LabelledRows,  # the training set's, the weights of their classes multiplied in
    training: TrainingSet,
    known: GPFitted | None = None,  # of other rows, with the same plans: where to look for modes
) -> GPFitted:
    """The posteriors for the plans, and the temperatures that suit them, but for one that `calibrate` has set."""
    n_classes, calibrated = len(training.classes), known is not None and known.calibrated
    embeddings = is_unit_norm(torch.from_numpy(training.rows.x))
    if plans:
        judged = _made(settings, plans, training, known, embeddings)
        judged = judged.joined_by(local, rows, ask=known is None) if local else judged
    else:
        support = Support.of(rows, n_classes, local[0].plan.scaling, local[0].plan.device)
        judged = Judged((), (), support, True).joined_by(local, rows, ask=known is None)
    judged = judged.weighed() if known is None else judged
    members = judged.members
    temperature, noise, score = members[0].plan.temperature, 0.0, members[0].plan.score
    if len(members) > 1:
        before = (1.0, 0.0) if known is None else (known.temperature, known.predictor.label_noise)
        temperature, noise, score = judged.of_average(before)
    frequencies = np.bincount(rows.y, rows.weight, minlength=n_classes)
    prior = usual_prior(settings.class_prior, training.classes, frequencies, embeddings)
    scores = None
    if known is not None and calibrated:
        temperature, noise = known.temperature, 0.0
    else:
        scores = judged.scores(temperature, noise, (frequencies, prior))
    return GPFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=temperature,
        calibrated=calibrated,
        log_evidence=evidence_of(members),
        predictor=Ensemble(members, n_classes, noise),
        score=score,
        class_prior=prior,
        weight_of_class=frequencies,
        class_weight=settings.class_weight,
        left_out=scores,
        followed=Followed(-score) if scores is None else Followed(scores.nll, scores.spread),
    )


def _made(
    settings: Settings,
    plans: Sequence[tuple[Plan, Support]],
    training: TrainingSet,
    known: GPFitted | None,
    embeddings: bool,
) -> Judged:
    """The members by the plans."""
    of_two = embeddings and len(plans) > 1 and not any(plan.model.scheme.is_exact for plan, _ in plans)
    by_part = not is_compared_whole(plans[0][1])
    tuned = settings.objective is not None and not (known is not None and known.calibrated)
    how = MemberFit(settings, tuned, by_part, of_two)
    found: list[tuple[GlobalMember, Tensor | None]] = []
    for place, (plan, support) in enumerate(tracked(plans, "fitting", len(plans))):
        start = None if known is None else Start(known.globals[place], known.classes, training.classes)
        found.append(how.member(plan, support, start))
    members, left_out = zip(*found, strict=True)
    # Of two kernels of embeddings, least squares has weighed all rows.
    to_be_weighed = by_part and support.can_select_kernels and not of_two
    return Judged(members, left_out, support, to_be_weighed)


def _inducing_inputs(settings: Settings) -> int:
    return settings.n_inducing or DEFAULT_INDUCING

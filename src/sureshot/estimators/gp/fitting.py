"""From labelled rows to what `GPClassifier` has learnt: plans, and features, posteriors and temperatures for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_prior import under_prior, usual_prior
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.classes.temperature import fit_average, log_probability, tempered_average
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.ensemble import Ensemble, averaged
from sureshot.estimators.gp.fitted import GPFitted, LeftOutScores, evidence_of
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.member_fitting import (
    DEFAULT_INDUCING,
    MemberFit,
    basis_of,
    by_inducing_inputs,
    condition_on,
    member_of,
)
from sureshot.estimators.gp.plan import Plan, choose_plans
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.stacking import most_members, stacking_weights
from sureshot.estimators.gp.warm_start import Start
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.support import MANY_ROWS, Support, is_compared_whole
from sureshot.inference.schemes import Effort
from sureshot.kernels import is_unit_norm
from sureshot.progress import stage, tracked

CHOSEN = 0.7  # of the time, roughly, that learning takes has gone by when settings are chosen
ROWS_OF_AN_INPUT = 10  # rows per inducing input up to which leave-one-out predictions are too good
JUDGED = 0.7  # of that for fitting, when many rows have judged what was chosen


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
    embeddings = is_unit_norm(torch.from_numpy(training.rows.x))
    of_two = embeddings and len(plans) > 1 and not any(plan.model.scheme.is_exact for plan, _ in plans)
    by_part = not is_compared_whole(plans[0][1])
    how = MemberFit(settings, settings.objective is not None and not calibrated, by_part, of_two)
    members, left_out, support = _made(how, plans, rows, training, known)
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


def _made(
    how: MemberFit,
    plans: Sequence[tuple[Plan, Support]],
    rows: LabelledRows,
    training: TrainingSet,
    known: GPFitted | None,
) -> tuple[list[Member], list[Tensor | None], Support]:
    """The members, their probabilities (C, N) of left-out rows where they know them, and these rows."""
    judged = how.is_tuned and known is None and _score_too_well(how.settings, plans)
    if judged:
        plans = [(plan, support.judged_by_half()) for plan, support in plans]
    members: list[Member] = []
    left_out: list[Tensor | None] = []
    with stage(0.0, JUDGED if judged else 1.0):
        for place, (plan, support) in enumerate(tracked(plans, "fitting", len(plans))):
            start = None if known is None else Start(known.members[place], known.classes, training.classes)
            member, probabilities = how.member(plan, support, start)
            members.append(member)
            left_out.append(probabilities)
    # Of two kernels of embeddings, least squares has weighed all rows.
    if known is None and how.by_part and support.can_select_kernels and not how.of_two:
        members, left_out = _weighed(members, left_out, support)
    if judged:
        with stage(JUDGED, 1.0):
            chosen = tracked(members, "fitting", len(members))
            members = [_with_all_rows(how.settings, member, rows, len(training.classes)) for member in chosen]
    return members, left_out, support


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

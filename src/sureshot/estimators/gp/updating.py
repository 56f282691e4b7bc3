"""What is learnt when rows come or go: the posterior of all of them, by settings that were chosen before.

As long as the same classes have rows everything that was chosen stays, until it is chosen anew or calibrated: kernel,
scaling, temperature, weights of an average, and inducing inputs with the features of known rows. Where a class comes,
or goes, or gets its first row, kernels and scaling stay, but what labels of that class must have a say in is found
anew: temperature, noise, and inducing inputs, without which no function would reach it. Members that see nearest rows
take it as it is: what their left-out rows had chosen stays, as to ask these takes as long as thousands of predictions.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import torch

from sureshot.approximations.inducing import Inducing
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.fitted import GPFitted, evidence_of
from sureshot.estimators.gp.fitting import fit, fit_members, for_reader
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.leaving import features_of
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.member_fitting import Basis, basis_of, check_memory, condition_on, member_of
from sureshot.estimators.gp.plan import Plan, keep_plan
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.warm_start import Start
from sureshot.estimators.gp.weight_space import LazyWeightSpace
from sureshot.estimators.rows.labelled_rows import LabelledRows, places_among, same_rows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs
from sureshot.estimators.rows.support import Support
from sureshot.inference.schemes import Effort
from sureshot.kernels import evaluate
from sureshot.warned import warn

logger = logging.getLogger(__name__)

FAR_OUTSIDE = 1e4
"""So a linear kernel's row is a hundred times as long as all others. From 1e6 on Newton's steps lose their digits."""


def update(settings: Settings, training: TrainingSet, known: GPFitted) -> GPFitted:
    """Learn from other labelled rows than are `known`, whose settings stay, unless a row lies far outside."""
    settings = replace(for_reader(settings, training.reader), device=(known.globals or known.members)[0].plan.device)
    came = training.rows if training.came is None else training.came
    if lies_far_outside(known, came):
        logger.warning("a row lies far outside all rows before: the kernel and its settings were chosen anew")
        return fit(settings, training)
    followed, retunes = known.followed, training.retune == "auto"
    if training.came is not None and (retunes or training.reader.clock is not None):
        followed = followed.after(known, came)
        if followed.is_worse and retunes:
            told = followed.in_words(known, training.rows)
            logger.info("%s: settings are chosen anew from %d rows", told, len(training.rows.y))
            return fit(settings, training)
        if followed.is_worse and not followed.told:
            warn(
                f"{followed.in_words(known, training.rows)}. retune=True chooses settings anew, retune='auto' whenever "
                "this happens (on the command line --retune, --retune-if-worse)"
            )
            followed = replace(followed, told=True)
    rows = weigh_classes(training.rows, settings.class_weight, training.classes, settings.inference)
    before, known = known, known.for_rows(len(training.rows.y))
    if _of_the_same_classes(known, training, settings):
        found = _with_rows(settings, training, rows, known)
    else:
        n_classes, places = len(training.classes), _places(training, rows, known)
        plans = [keep_plan(member.plan, settings, rows, n_classes, known.calibrated) for member in known.globals]
        local = [one.with_rows(rows, places, n_classes) for one in known.members if isinstance(one, LocalMember)]
        found = replace(fit_members(settings, plans, local, rows, training, known), chosen_by=known.chosen_by)
        found = replace(found, score=known.score) if local else found
    found = replace(found, followed=followed)
    if found.outgrown > before.outgrown:
        grown = "kernel and settings were chosen by %d rows of %d classes, and there are %d of %d now: "
        numbers = (*found.chosen_by, len(found.rows.y), np.count_nonzero(found.frequencies))
        if retunes:
            logger.info(grown + "they are chosen anew", *numbers)
            return fit(settings, training)
        logger.warning(grown + "retune=True (on the command line --retune) chooses them anew", *numbers)
    return found


def _of_the_same_classes(known: GPFitted, training: TrainingSet, settings: Settings) -> bool:
    """Whether the same classes have rows as before, with weights that follow the same rule."""
    if not np.array_equal(known.classes, training.classes) or known.class_weight != settings.class_weight:
        return False
    before, now = (np.bincount(rows.y, minlength=len(training.classes)) > 0 for rows in (known.rows, training.rows))
    return np.array_equal(before, now)


def _with_rows(settings: Settings, training: TrainingSet, rows: LabelledRows, known: GPFitted) -> GPFitted:
    """The posteriors of all rows, everything else as it is; scores of left-out rows are not known until a fit."""
    n_classes, places = len(training.classes), _places(training, rows, known)
    moved = _seen_by_globals(known, rows) if known.globals else None
    members: list[Member] = []
    seen: tuple[Scaling, Support] | None = None
    for member in known.members:
        plan = member.plan
        if isinstance(member, LocalMember):
            members.append(member.with_rows(rows, places, n_classes))
            continue
        if moved is None:
            members.append(member)
            continue
        assert isinstance(member, GlobalMember)
        now, place = moved
        if seen is None or plan.scaling is not seen[0]:
            seen = plan.scaling, Support.of(now, n_classes, plan.scaling, plan.device)
        support = seen[1]
        check_memory(settings, plan, support)
        with threads_for(len(support.y)), torch.no_grad():
            basis = _kept_basis(member, support, place) or basis_of(settings, plan, support)
            start = Start(member, known.classes, training.classes)
            found = condition_on(settings, plan, support, basis, start, Effort.MODE)
            members.append(member_of(settings, plan, basis, found))
    return replace(
        known,
        reader=training.reader,
        rows=training.rows,
        predictor=replace(known.predictor, members=tuple(members)),
        log_evidence=evidence_of(members),
        weight_of_class=np.bincount(rows.y, rows.weight, minlength=n_classes),
        left_out=None,
    )


def _places(training: TrainingSet, rows: LabelledRows, known: GPFitted) -> np.ndarray | None:
    """As those of the training set, where all of its rows are learnt from: classes of no weight are not."""
    whole = len(known.learnt.y) == len(known.rows.y) and len(rows.y) == len(training.rows.y)
    return training.places if whole else None


def _seen_by_globals(known: GPFitted, rows: LabelledRows) -> tuple[LabelledRows, torch.Tensor] | None:
    """Of these rows those that global members see, and where they are among those that are known, -1: a new one.

    None where a part of the rows is all that these members see, and it is as before.
    """
    share = known.globals[0].plan.share
    before, now = (sample_of(part, share) for part in (known.weighted, rows))
    if share < 1 and same_rows(before, now):
        return None
    return now, torch.from_numpy(places_among(before.x, now.x))


def _kept_basis(member: GlobalMember, support: Support, place: torch.Tensor) -> Basis | None:
    """By inducing inputs that stay, with the features of all rows, of which only new ones are made.

    `place` (N,) says where rows are among those that are known, -1: a new one. None where features are explicit, and
    where all rows are inducing inputs.
    """
    process = member.process
    found = process.approximation
    if not isinstance(found, Inducing):
        return None
    if isinstance(process.space, LazyWeightSpace) and len(process.space.inputs) == len(found.inputs):
        return None  # and none are made for that
    known = features_of(process.posterior)
    if len(found.inputs) == len(known):
        return None
    place = place.to(known.device)
    features, new = known[place.clamp_min(0)], place < 0
    if bool(new.any()):
        features[new] = found.features(support.x[new])
    return Basis(found, features)


@torch.no_grad()
def lies_far_outside(known: GPFitted, rows: LabelledRows) -> bool:
    """Whether one of the rows has `FAR_OUTSIDE` times the prior variance of all that are known.

    No settings suit it then. A cell a thousand times as large as all others, say, where the kernel is linear or
    polynomial: it would be all that such a kernel sees. Variances of stationary kernels are the same everywhere.
    """

    def largest(x: np.ndarray, plan: Plan) -> float:
        return float(evaluate(plan.kernel, kernel_inputs(x, plan.scaling, plan.device), diag=True).max())

    for member in known.globals:
        now = largest(rows.x, member.plan)
        if now <= FAR_OUTSIDE * largest(known.rows.x[:1], member.plan):
            continue  # as a rule one of the rows says so
        if now > FAR_OUTSIDE * largest(known.rows.x, member.plan) > 0:
            of_features = features_of(member.process.posterior).square().sum(-1).max()  # the rest comes on top
            if now > FAR_OUTSIDE * float(of_features):
                return True
    return False

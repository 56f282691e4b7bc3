"""What a few rows more or less leave as it is: inducing inputs with the features of known rows, and temperatures.

These are chosen by all rows, and with some thousand of them, or a hundred classes, choosing takes far longer than the
posterior of one row more. As long as no more than one row in a hundred has come or gone since, they stay; the posterior
is that of all rows all the same. A class that comes, or goes, or gets its first row has everything chosen anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.gp.features import FeatureMap, InducingRoots
from sureshot.estimators.gp.fitted import GPFitted
from sureshot.estimators.gp.leaving import features_of
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.weight_space import FromRows, training_features
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.rows.validation import LabelledRows, count_changes, places_among
from sureshot.kernels import evaluate

KEPT_SHARE = 0.01
"""Of the rows, that may have come or gone. One in a hundred moves a temperature by less than its own error."""

FAR_OUTSIDE = 1e4
"""So a linear kernel's row is a hundred times as long as all others. From 1e6 on Newton's steps lose their digits."""


@dataclass(frozen=True)
class Before:
    """A member as it is known of other rows."""

    member: Member
    known_classes: np.ndarray  # (K,), of its coefficients
    classes: np.ndarray  # (C,), of the rows that are there now
    place: Tensor | None  # (N,), of these rows among the member's, -1 where one is new; None: it keeps no inputs


def changes_kept(
    known: GPFitted,
    classes: np.ndarray,  # (C,)
    rows: LabelledRows,  # with the weights that they came with
    class_weight: Any,
) -> int:
    """How many rows have come or gone since inputs and temperatures were chosen; 0 where these do not stay."""
    if not np.array_equal(known.classes, classes) or known.class_weight != class_weight:
        return 0
    if not np.array_equal(np.unique(known.rows.y), np.unique(rows.y)):
        return 0
    changes = known.changes + count_changes(known.rows, rows)
    return changes if changes <= KEPT_SHARE * len(rows.y) else 0


@torch.no_grad()
def lies_far_outside(known: GPFitted, rows: LabelledRows) -> bool:
    """Whether a row has `FAR_OUTSIDE` times the prior variance of all that are known, so settings cannot suit it.

    A cell a thousand times as large as all others, say, where the kernel is linear or polynomial: it would be all that
    such a kernel sees. Variances of stationary kernels are the same everywhere.
    """
    new = rows.x[places_among(known.rows.x, rows.x) < 0]
    if not len(new):
        return False

    def largest(x: np.ndarray, plan: Plan) -> float:
        return float(evaluate(plan.kernel, kernel_inputs(x, plan.scaling, plan.device), diag=True).max())

    for member in known.members:
        now = largest(new, member.plan)
        if now > FAR_OUTSIDE * largest(known.rows.x, member.plan) > 0:
            told = float(features_of(member.posterior).square().sum(-1).max())  # what features leave out comes on top
            if now > FAR_OUTSIDE * told:
                return True
    return False


def befores(
    known: GPFitted,
    classes: np.ndarray,
    rows: LabelledRows,  # the weights of their classes multiplied in
    keeps: bool,  # whether inputs stay
) -> list[Before]:
    """The members that are known, with the places of rows among theirs."""
    place = None
    if keeps and any(member.feature_map.inducing is not None for member in known.members):
        place = torch.from_numpy(places_among(known.learnt.x, rows.x))
    return [Before(member, known.classes, classes, place) for member in known.members]


def known_features(
    before: Before,
    inputs: Tensor,  # (N, D), as the kernel sees them
) -> tuple[FeatureMap, InducingRoots | None, Tensor] | None:
    """By inducing inputs that stay: the map, its roots, and the features of all rows, of which only new ones are made.

    None where features are explicit, and where all rows are inducing inputs.
    """
    member, found = before.member, before.member.feature_map
    if before.place is None or found.inducing is None:
        return None
    if isinstance(member.space, FromRows) and len(member.space.inputs) == len(found.inducing):
        return None  # and none are made for that
    known, inverse = features_of(member.posterior), member.space.projection
    if len(found.inducing) == len(known) or inverse is None:
        return None
    roots = InducingRoots(inverse, evaluate(found.kernel, found.inducing).detach() @ inverse)
    place = before.place.to(known.device)
    features, new = known[place.clamp_min(0)], place < 0
    if bool(new.any()):
        features[new] = training_features(found, inputs[new], roots)
    return found, roots, features

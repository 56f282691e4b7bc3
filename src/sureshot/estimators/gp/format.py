"""What a model file of `GPClassifier` holds: rows, and of each member what cannot be computed again from them.

That is a plan, the coefficients of its means, and of its posterior what neither the rows' features nor their weights
give back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.exact import Roots
from sureshot.approximations.explicit import Explicit, finite_rank
from sureshot.approximations.inducing import Inducing
from sureshot.computing.layout import aligned
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.classes.stored_classes import StoredClasses
from sureshot.estimators.gp.ensemble import Ensemble
from sureshot.estimators.gp.fitted import GPFitted, LeftOutScores, evidence_of
from sureshot.estimators.gp.following import Followed
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.local_member import LocalMember
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.posterior_arrays import IN_ONE_BASIS, check_posterior, pack_posterior
from sureshot.estimators.gp.process import GaussianProcess
from sureshot.estimators.gp.weight_space import LazyWeightSpace
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.stored import Format, argument_from_json, argument_to_json
from sureshot.kernels.leaf import Leaf
from sureshot.likelihoods import OneVsEach
from sureshot.persistence import ArtifactError


@dataclass(frozen=True)
class StoredMember:
    """What a file keeps of a `GlobalMember`."""

    plan: Plan
    coefficients: Tensor  # (S, C, R or M)
    prior_mean: Tensor  # (C,)
    posterior: str  # its kind, see `posterior_arrays`
    arrays: dict[str, Tensor]  # what else it is made of
    inducing: Tensor | None  # (M, D), where they are not all rows
    projection: Tensor | None
    log_evidence: float
    trace: tuple[float, ...]


@dataclass(frozen=True)
class StoredLocal:
    """What a file keeps of a `LocalMember`: the rest are the rows."""

    plan: Plan

    def check_parts(self) -> None:
        """ValueError for the plan of another member."""
        if self.plan.local is None or not isinstance(self.plan.kernel.base_kernel, Leaf):
            raise ValueError("no plan of nearest rows")


@dataclass(frozen=True, kw_only=True)
class StoredGP(StoredClasses):
    """What a file keeps of a `GPFitted`."""

    members: tuple[StoredMember | StoredLocal, ...]
    score: float
    label_noise: float
    left_out: LeftOutScores | None
    chosen_by: tuple[int, int]
    followed: Followed
    class_weight: Any

    as_learnt = (*StoredClasses.as_learnt, "score", "left_out", "chosen_by", "followed")

    def check_parts(self) -> None:
        super().check_parts()
        if not self.members or abs(sum(member.plan.weight for member in self.members) - 1) > 1e-6:
            raise ValueError("the members' weights do not sum to one")
        if not 0 <= self.label_noise < 1 or min(self.chosen_by) < 0:
            raise ValueError("malformed label noise or numbers of rows")
        for member in self.members:
            member.plan.scaling.check_columns(self.rows.x.shape[1])


def _own(fitted: GPFitted) -> dict[str, Any]:
    if fitted.precomputed:
        raise ArtifactError(
            "a model with kernel='precomputed' cannot be saved: it would not know the kernel of new rows. "
            "Fit with the kernel itself, by name or as a gpytorch kernel."
        )
    return {
        "members": tuple(_stored(member, fitted) for member in fitted.members),
        "label_noise": fitted.predictor.label_noise,
        "class_weight": argument_to_json("class_weight", fitted.class_weight),
    }


def _stored(member: Member, fitted: GPFitted) -> StoredMember | StoredLocal:
    if not isinstance(member, GlobalMember):
        return StoredLocal(member.plan)
    process, plan = member.process, member.plan
    space = process.space
    if isinstance(space, LazyWeightSpace):
        kind, arrays = space.kind, dict(space.arrays)
    else:
        kind, _, arrays = pack_posterior(process.posterior)
    given_back = {"prior_mean"}
    if kind.startswith("softmax"):
        given_back.add("row_weight")
    if plan.model.scheme.is_exact:
        given_back.add("precision")
    found, inducing = process.approximation, None
    projection = found.basis if isinstance(found, Explicit) else None
    if isinstance(found, Inducing):
        inducing, projection = found.inputs, found.projection if kind.startswith(IN_ONE_BASIS) else None
        if torch.equal(inducing, kernel_inputs(sample_of(fitted.learnt, plan.share).x, plan.scaling, inducing.device)):
            inducing = None
    return StoredMember(
        plan,
        process.coefficients,
        process.prior_mean,
        kind,
        {name: part for name, part in arrays.items() if name not in given_back},
        inducing,
        projection,
        member.log_evidence,
        member.trace,
    )


def _fitted(stored: StoredGP) -> GPFitted:
    training, class_weight = stored.training, argument_from_json(stored.class_weight)
    weighted = weigh_classes(training.rows, class_weight, stored.classes, stored.arguments.get("inference", "auto"))
    members = tuple(_member(member, weighted, len(stored.classes)) for member in stored.members)
    return GPFitted(
        classes=stored.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=stored.temperature,
        calibrated=stored.calibrated,
        log_evidence=evidence_of(members),
        predictor=Ensemble(members, len(stored.classes), stored.label_noise),
        score=stored.score,
        weight_of_class=np.bincount(weighted.y, weighted.weight, minlength=len(stored.classes)),
        class_weight=class_weight,
    )


def _member(stored: StoredMember | StoredLocal, rows: LabelledRows, n_classes: int) -> Member:
    """With the rows of the file, the weights of their classes multiplied in."""
    if isinstance(stored, StoredLocal):
        return LocalMember.of(stored.plan, rows, n_classes)
    plan, coefficients, inducing = stored.plan, stored.coefficients, stored.inducing
    rows = sample_of(rows, plan.share)
    inputs = kernel_inputs(rows.x, plan.scaling, torch.device("cpu"))
    if plan.parts is None and inducing is None and finite_rank(plan.kernel, inputs.shape[1]) is None:
        inducing = inputs
    arrays = {**stored.arrays, "prior_mean": stored.prior_mean}
    if plan.model.scheme.is_exact:
        arrays["precision"] = (aligned(rows.weight) / plan.model.noise).expand(len(coefficients), 1, -1)
    if stored.posterior.startswith("softmax"):
        arrays["row_weight"] = aligned(rows.weight)
    check_posterior(stored.posterior, arrays, coefficients, len(rows.y), n_classes)
    found: Finite = Explicit(plan.kernel, stored.projection)
    if plan.parts is not None:
        found = plan.parts.under(plan.kernel)
    if inducing is not None:
        roots = None
        if stored.posterior.startswith(IN_ONE_BASIS):
            if stored.projection is None:
                raise ValueError("it has no projection")
            roots = Roots(stored.projection, plan.kernel(inducing) @ stored.projection)
        found = Inducing(plan.kernel, inducing, plan.model.searches, known=roots)
    space = LazyWeightSpace(found, inputs, stored.posterior, arrays, coefficients)
    process = GaussianProcess(plan.scaling, found, coefficients, stored.prior_mean, space)
    return GlobalMember(plan, process, stored.log_evidence, stored.trace)


def _means_of_one(fitted: GPFitted) -> tuple[Tensor, ...]:
    """Moments of a row as if variances were zero: variances may take all features of all rows, which is not yet due."""
    found: list[Tensor] = []
    for member in fitted.members:
        if not isinstance(member, GlobalMember):
            found += member.moments(fitted.predictor.inputs(fitted.rows.x[:1]))
            continue
        mean = member.process.means(member.process.values(torch.ones(1, fitted.rows.x.shape[1], dtype=torch.float64)))
        model = member.plan.model
        coupled = model.scheme.samples and isinstance(model.training_likelihood, OneVsEach)
        found += [
            mean,
            mean.new_zeros(len(mean), 1, mean.shape[1], mean.shape[1]) if coupled else torch.zeros_like(mean),
        ]
    return tuple(found)


GP_FORMAT = Format("gp_classifier", GPFitted, StoredGP, _own, _fitted, _means_of_one)

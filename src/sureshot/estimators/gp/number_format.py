"""What the model file of a `GPRegressor` holds: plans and rows, from which the posteriors follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.inducing import Inducing
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.backbone import NetworkEncoder, StoredNetwork
from sureshot.estimators.gp.member_fitting import basis_through
from sureshot.estimators.gp.number_fitted import GPNumbersFitted, trusting
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember, NumberMember, seen_by
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.row_noise import Widths
from sureshot.estimators.gp.solved_member import Solved, SolvedNumberMember
from sureshot.estimators.gp.weight_space import LazyWeightSpace
from sureshot.estimators.numbers.stored_regression import StoredRegression
from sureshot.estimators.stored import Format


@dataclass(frozen=True)
class StoredNumberMember:
    """A plan, and what does not follow from it and the rows."""

    plan: Plan
    inducing: Tensor | None  # (M, D), where they are not all rows
    solved: Solved | None  # where no kernel matrix was made

    def check_parts(self) -> None:
        """ValueError for the plan of another kind of member."""
        if self.plan.local is not None and self.inducing is not None:
            raise ValueError("a member of nearest rows has no inducing inputs")


@dataclass(frozen=True, kw_only=True)
class StoredNumbers(StoredRegression):
    """What a file keeps of a `GPNumbersFitted`."""

    chosen_by: int
    degrees: float  # of freedom
    farther: float
    trusted: np.ndarray | None  # (N,)
    squared_errors: np.ndarray | None  # (N, P)
    widths: Widths | None
    network: StoredNetwork | None  # that makes what is learnt from of rows
    members: tuple[StoredNumberMember, ...]

    as_learnt = (*StoredRegression.as_learnt, "chosen_by", "degrees", "farther", "trusted", "squared_errors")

    def check_parts(self) -> None:
        super().check_parts()
        if not self.members or abs(sum(member.plan.weight for member in self.members) - 1) > 1e-6:
            raise ValueError("the members' weights do not sum to one")
        if not self.farther > 0 or self.chosen_by < 0:
            raise ValueError("malformed calibration or number of rows that chose settings")
        trusted = self.trusted
        if trusted is not None and (trusted.shape != self.rows.weight.shape or not (trusted > 0).all()):
            raise ValueError("malformed shares of weights")
        squared, widths = self.squared_errors, self.widths
        if (squared is None) != (widths is None) or (squared is not None and squared.shape != self.rows.y.shape):
            raise ValueError("malformed noise of rows")
        if (self.network is None) == (self.reader is None):
            raise ValueError("rows are read by columns or by a network")
        if not self.degrees > 0:
            raise ValueError("malformed degrees of freedom")
        for member in self.members:
            member.plan.scaling.check_columns(self.rows.x.shape[1])
            if member.solved is not None and member.solved.dual.shape != self.rows.y.shape:
                raise ValueError("a solution of other rows")


def _own(fitted: GPNumbersFitted) -> dict[str, Any]:
    return {
        "widths": fitted.widths,
        "network": StoredNetwork.of(fitted.reader) if isinstance(fitted.reader, NetworkEncoder) else None,
        "members": tuple(_stored(member) for member in fitted.members),
    }


def _stored(member: NumberMember) -> StoredNumberMember:
    inducing = None
    named = member.plan.parts is not None
    if isinstance(member, GlobalNumberMember) and isinstance(member.process.approximation, Inducing) and not named:
        found, space = member.process.approximation.inputs, member.process.space
        inducing = None if isinstance(space, LazyWeightSpace) and torch.equal(found, space.inputs) else found
    return StoredNumberMember(member.plan, inducing, member.solved if isinstance(member, SolvedNumberMember) else None)


def _fitted(stored: StoredNumbers) -> GPNumbersFitted:
    rows, network = trusting(stored.rows, stored.trusted), stored.network
    if network is None:
        training = stored.training
    else:
        training = TrainingSet(network.encoder, stored.columns, np.empty(0), stored.rows, None)
    members: list[NumberMember] = []
    for part in stored.members:
        plan = part.plan
        support = seen_by(plan, rows, stored.target)
        if plan.local is not None:
            members.append(LocalNumberMember.of(plan, support, rows))
        elif part.solved is not None:
            members.append(SolvedNumberMember.of(plan, support, rows, part.solved))
        else:
            members.append(GlobalNumberMember.of(plan, support, basis_through(plan, support, part.inducing)))
    found = GPNumbersFitted.of(training, members, stored.target)
    if stored.widths is None or stored.squared_errors is None:
        return found
    return found.with_widths(stored.widths, stored.squared_errors)


GP_NUMBERS_FORMAT = Format("gp_regressor", GPNumbersFitted, StoredNumbers, _own, _fitted)

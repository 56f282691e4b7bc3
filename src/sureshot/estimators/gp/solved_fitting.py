"""The one member of a regression by products of kernel matrices: what it is made of, and its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from sureshot.estimators.gp.local_fitting import local_plans
from sureshot.estimators.gp.model import least_squares
from sureshot.estimators.gp.options import LOCAL_KERNELS
from sureshot.estimators.gp.plan import Plan, SupportOf, choose_plans
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.solved_member import PRODUCTS
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.gp.tuning.local_learning import local_kernel
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.estimators.rows.support import EXACT_LIMIT
from sureshot.kernels import Laplacian, natural_lengthscale
from sureshot.kernels.dense import own_kernel
from sureshot.kernels.leaf import Stationary

N_NEIGHBOURS = 256  # that variances are given, at least
LEAVES = Stationary | Laplacian  # that have length-scales, and nearest rows


def is_solved(approximation: Any) -> bool:
    """Whether a regression is by products of kernel matrices."""
    return isinstance(approximation, str) and approximation in PRODUCTS


def solved_plan(
    settings: Settings, rows: LabelledRows, support_of: SupportOf, objective: Objective, scaling: Scaling
) -> Plan:
    """By left-out rows, each given the rows near it: with a length-scale for each column of a kernel that is named.

    A part of many rows would not do: it has lost what is between its rows, and takes it for noise.
    """
    approximation, name = settings.approximation, settings.kernel
    if name == "auto":
        name = "matern32" if approximation == "iterative" else "rbf"
    if settings.objective == "evidence":
        raise ValueError(f"objective='evidence' does not go with approximation={approximation!r}: use 'leave_one_out'.")
    is_named = isinstance(name, str) and name in LOCAL_KERNELS
    if is_named:
        natural = torch.tensor([natural_lengthscale(name, len(scaling.kept))], dtype=torch.float64)
        kernel = scaled(local_kernel(name, natural), 1.0)
    elif isinstance(name, str) or not isinstance((kernel := scaled(own_kernel(name), 1.0)).base_kernel, LEAVES):
        raise ValueError(
            f"approximation={approximation!r} needs a kernel of distances, one of {', '.join(map(repr, LOCAL_KERNELS))}"
            f" or one leaf of sureshot.kernels with length-scales; got {name!r}."
        )
    PRODUCTS[approximation](kernel.to(settings.device), support_of(rows, scaling, settings.device).x)  # or refuse now
    if is_named and settings.objective is not None:
        settings = replace(settings, kernel=name, ensemble=False)
        (plan,) = local_plans(settings, rows, support_of, objective, scaling, None)
        assert plan.local is not None
        gain, model = plan.local.gain, replace(plan.model, noise=plan.local.gain * plan.model.noise)
        return replace(plan, kernel=scaled(plan.kernel, gain), model=model, local=None)
    settings, some = replace(settings, kernel=kernel), sample_of(rows, min(1.0, EXACT_LIMIT / len(rows.y)))
    return choose_plans(settings, (least_squares(settings.noise),), objective, some, support_of, None, scaling)[0][0]

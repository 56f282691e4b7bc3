"""The noise of least squares where features are fewer than rows, or rows more than it was chosen by.

A setting's noise is chosen where every row has features of its own. By fewer features many rows look alike, and what
separates them is noise, too.

Where rows have as many features as there are rows levels are tried upwards, each by a factor of its own, until one
tells them no better.

Only more noise than before is believed. Rows with inducing inputs nearby are predicted better than new ones, and
their leave-one-out scores ask for less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.estimators.classes.temperature import plug_in_temperatures
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.rows.support import Support, sampled_rows
from sureshot.inference.least_squares import (
    FactoredLeastSquares,
    leave_one_out_by_factors,
    leave_one_out_path_by_features,
)
from sureshot.kernels import evaluate

LEVELS = tuple(10.0 ** (k / 2) for k in range(9))  # times the noise of the plan
MOST_LEFT_OUT = 2000  # rows by which levels are compared, all are learnt from


class WithNoise(NamedTuple):
    """What its noise makes of a member."""

    plan: Plan
    scale: float  # what its output scale is multiplied by
    found: FactoredLeastSquares | None  # of a kernel that is exact for the rows, before the scale


def with_noise_of_features(
    plan: Plan,  # of least squares, by the plug-in rule
    support: Support,
    features: Tensor | None,  # (N, R), under the plan's kernel; by default the kernel itself
) -> WithNoise:
    """The plan with the level by which left-out rows are predicted best, and the output scale that suits it best.

    That is by the evidence; where the level is the plan's own, the scale is, too.
    """
    rows, asked = sampled_rows(support, MOST_LEFT_OUT)
    if not len(rows):
        return WithNoise(plan, 1.0, None)
    likelihood = plan.model.predictive_likelihood
    highest = -math.inf
    for this, latent, its_scale, its_factor in _left_out_by_level(plan, support, features, rows):
        _, pointwise = plug_in_temperatures(likelihood, latent[None], asked, plan.temperature)
        value = float(asked.usable @ pointwise[0])
        if not value <= highest:
            level, scale, found, highest = this, its_scale, its_factor, value
        elif its_factor is not None:
            break
    if level == LEVELS[0]:
        return WithNoise(plan, 1.0, found)
    scale = max(scale, 1e-6)
    kernel = scaled(plan.kernel, scale)
    model = replace(plan.model, noise=plan.model.noise * level * scale)
    as_chosen = plan.as_chosen or (float(plan.kernel.outputscale), plan.model.noise)
    return WithNoise(replace(plan, kernel=kernel, model=model, as_chosen=as_chosen), scale, found)


@torch.no_grad()
def _left_out_by_level(
    plan: Plan, support: Support, features: Tensor | None, rows: Tensor
) -> Iterator[tuple[float, Tensor, float, FactoredLeastSquares | None]]:
    """Each level with latent means (C, M) of the rows (M,), left out, and the output scale that suits.

    The kernel itself, or as many features as there are rows, takes a factor for each level, and levels that nobody asks
    for are not computed.
    """
    targets = *support.targets, support.weight
    noise = support.x.new_tensor([plan.model.noise * level for level in LEVELS])
    if features is None or len(features) == features.shape[1]:
        levels = leave_one_out_by_factors(evaluate(plan.kernel, support.x), *targets, noise, support.left_out)
        for level, found in zip(LEVELS, levels, strict=True):
            yield level, found.latent[:, rows], found.scale, found
        return
    path = leave_one_out_path_by_features(features, *targets, noise, support.left_out, rows)
    for level, latent, scale in zip(LEVELS, path.latent, path.scale.tolist(), strict=True):
        yield level, latent, scale, None

"""The noise of label regression where features are fewer than rows, or rows more than it was chosen by.

A setting's noise is chosen where every row has features of its own: rows that can be told apart well want next to none.
By fewer features many rows look alike, and what these cannot tell is noise, too: with the noise of the choice left-out
rows were predicted worse by up to 0.7 nats each (3000 rows of satimage, 1000 inducing inputs). Worst are as many rows
as features, which can be matched, but by large weights only: of 60 rows with 385 features next to no noise told others
best, and of the 300 they were chosen from it told half of what more noise did (two labels for each of 150 intents).

Where rows have as many features as there are rows levels are tried upwards, each by a factor of its own, until one
tells them no better.

Only more noise than before is believed. Rows with inducing inputs nearby are told apart better than new ones, and
their leave-one-out scores ask for less.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from sureshot.estimators.family_search import scaled
from sureshot.estimators.plan import Plan
from sureshot.estimators.support import Support, asked_rows
from sureshot.estimators.temperature import fit_rule
from sureshot.inference.label_regression import leave_one_out_by_factors, leave_one_out_path_by_features

LEVELS = tuple(10.0 ** (k / 2) for k in range(9))  # times the noise of the plan
MOST_LEFT_OUT = 2000  # rows by which levels are compared, all are learnt from


def with_noise_of_features(
    plan: Plan,  # of label regression, by the plug-in rule
    support: Support,
    features: Tensor,  # (N, R), under the plan's kernel
) -> tuple[Plan, float]:
    """The plan with the level by which left-out rows are predicted best, and what its output scale is multiplied by.

    The output scale is the one that suits the level best, by the evidence.
    """
    rows, left_out = asked_rows(support, MOST_LEFT_OUT)
    if not len(rows):
        return plan, 1.0
    likelihood = plan.model.predictive_likelihood()
    best, highest = (LEVELS[0], 1.0), -math.inf
    upwards = len(features) == features.shape[1]
    for level, latent, variance, scale in _left_out_by_level(plan, support, features, rows, by_factors=upwards):
        _, pointwise = fit_rule(likelihood, latent, variance, left_out, plan.rule, plan.temperature)
        value = float(left_out.usable @ pointwise)
        if value > highest:
            best, highest = (level, scale), value
        elif upwards:
            break
    level, scale = best
    if level == LEVELS[0]:
        return plan, 1.0
    scale = max(scale, 1e-6)
    kernel = scaled(copy.deepcopy(plan.kernel), scale)
    model = replace(plan.model, noise=plan.model.noise * level * scale)
    return replace(plan, kernel=kernel, model=model), scale


def _left_out_by_level(
    plan: Plan, support: Support, features: Tensor, rows: Tensor, *, by_factors: bool
) -> Iterator[tuple[float, Tensor, Tensor, float]]:
    """Each level with latents (C, M) and variances (M,) of the rows (M,), left out, and the output scale that suits.

    By factors, levels that nobody asks for are not computed.
    """
    labels = support.y, support.n_classes, support.weight
    noise = features.new_tensor([plan.model.noise * level for level in LEVELS])
    if by_factors:
        levels = leave_one_out_by_factors(features @ features.mT, *labels, noise, support.left_out)
        for level, found in zip(LEVELS, levels, strict=True):
            yield level, found.latent[0][:, rows], found.variance[0, rows], float(found.scale)
        return
    path = leave_one_out_path_by_features(features, *labels, noise, support.left_out, rows)
    yield from zip(LEVELS, path.latent, path.variance, path.scale.tolist(), strict=True)

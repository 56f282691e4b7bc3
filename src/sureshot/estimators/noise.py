"""The noise of label regression where features are fewer than rows, or rows more than it was chosen by.

A setting's noise is chosen where every row has features of its own: rows that can be told apart well want next to none.
By fewer features many rows look alike, and what these cannot tell is noise, too: with the noise of the choice left-out
rows were predicted worse by up to 0.7 nats each (3000 rows of satimage, 1000 inducing inputs). Worst are as many rows
as features, which can be matched, but by large weights only: of 60 rows with 385 features next to no noise told others
best, and of the 300 they were chosen from it told half of what more noise did (two labels for each of 150 intents).

Only more noise than before is believed. Rows with inducing inputs nearby are told apart better than new ones, and
their leave-one-out scores ask for less.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor

from sureshot.estimators.family_search import scaled
from sureshot.estimators.plan import Plan
from sureshot.estimators.support import Support, asked_rows
from sureshot.estimators.temperature import fit_rule
from sureshot.inference.label_regression import leave_one_out_path_by_features

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
    noise = features.new_tensor([plan.model.noise * level for level in LEVELS])
    path = leave_one_out_path_by_features(
        features, support.y, support.n_classes, support.weight, noise, support.left_out, rows
    )
    likelihood, values = plan.model.predictive_likelihood(), []
    for latent, variance in zip(path.latent, path.variance, strict=True):
        _, pointwise = fit_rule(likelihood, latent, variance, left_out, plan.rule, plan.temperature)
        values.append(float(left_out.usable @ pointwise))
    best = max(range(len(LEVELS)), key=values.__getitem__)
    if best == 0:
        return plan, 1.0
    scale = max(float(path.scale[best]), 1e-6)
    kernel = scaled(copy.deepcopy(plan.kernel), scale)
    model = replace(plan.model, noise=float(noise[best]) * scale)
    return replace(plan, kernel=kernel, model=model), scale

"""Approximations that are asked for by name: drawn or placed, then learnt by evidence where that is what they are for.

Evidence that learns hundreds of numbers overfits sooner or later, and left-out predictions of the rows that it has seen
do not say when. So it learns without a fifth of the rows first: these say after how many steps it has to stop, if it
may start at all, and how sure the member may be. Then all rows have their say.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.by_name import BY_NAME, FEATURE_MAPS, Parts
from sureshot.approximations.random_features import FeatureMap
from sureshot.computing.threads import threads_for
from sureshot.estimators.gp.member_fitting import DEFAULT_INDUCING, check_memory, placed_inputs
from sureshot.estimators.gp.options import LOCAL_KERNELS
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.family_search import scaled
from sureshot.estimators.gp.tuning.log_density import scored_numbers
from sureshot.estimators.gp.tuning.relevance import can_be_learnt
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.rows.support import Support
from sureshot.inference.by_evidence import Regression, feature_prior, learnt_by_evidence
from sureshot.inference.least_squares import regression_sites

logger = logging.getLogger(__name__)

FEWEST = 50  # rows: a fifth of fewer says nothing
STEPS, STEPS_OF_BATCHES = 10, 50
STOPS = (1, 2, 4)  # times as many steps, after each of which left-out rows are asked
LABEL_NOISE = 0.3  # variance that the evidence of labels of -1 and 1 begins with


def one_kernel(settings: Settings) -> Settings:
    """With a kernel that has a length-scale for each column in the place of "auto", where an approximation is named."""
    if settings.approximation not in BY_NAME or not (isinstance(settings.kernel, str) and settings.kernel == "auto"):
        return settings
    kernel = "rbf" if settings.approximation in FEATURE_MAPS else "matern32"
    return replace(settings, kernel=kernel, ensemble=False, relevance=settings.relevance is not False)


def with_parts(settings: Settings, plan: Plan, support: Support) -> Plan:
    """The plan with the approximation that is asked for, as it is before anything is learnt."""
    check_memory(settings, plan, support)
    kind, most = BY_NAME[settings.approximation], settings.n_inducing or DEFAULT_INDUCING
    if issubclass(kind, FeatureMap):
        basis: Finite = kind.drawn(plan.kernel, support.x.shape[1], most, settings.generator())
    else:
        basis = kind(plan.kernel, placed_inputs(support, most))  # type: ignore[call-arg]
    return replace(plan, parts=Parts.of(settings.approximation, basis))


def learnt(settings: Settings, plan: Plan, support: Support) -> Plan:
    """The plan with what evidence learns, if left-out rows do not prefer it as it is, and as sure as they allow."""
    assert plan.parts is not None
    exact = plan.model.scheme.is_exact  # or the output scale is that of another likelihood's latents
    start = plan.parts.under(plan.kernel if exact else scaled(plan.kernel, 1 / float(plan.kernel.outputscale)))
    noise, out = plan.model.noise if exact else LABEL_NOISE, support.folds() == 0
    if not start.learnt or settings.objective is None or len(support.y) < FEWEST or not support.varies:
        return plan
    kernel, rng = start.kernel, settings.generator()
    if settings.weighs_columns and settings.kernel in LOCAL_KERNELS and can_be_learnt(support):
        by_column = {name: part for name, part in kernel.parameters.items() if name.endswith("lengthscale")}
        kernel = kernel.replace(**{name: part.expand(support.x.shape[1]) for name, part in by_column.items()})
    # Of a kernel that was given as an object only the overall scale is learnt.
    scales = tuple(kernel.parameters) if isinstance(settings.kernel, str) else ("outputscale",)
    unit = STEPS_OF_BATCHES if start.in_batches else STEPS
    with threads_for(len(support.y)):
        path, seen, asked = [(replace(start, kernel=kernel), noise)], _regression(support.part(~out)), support.part(out)
        for steps in STOPS:
            path.append(learnt_by_evidence(*path[-1], seen, scales, steps * unit, rng))
        moments = [_left_out(*one, seen, asked.x) for one in path]
        numbers, usable = asked.targets[0], asked.usable * asked.weight.clamp_max(1)
        scores = [scored_numbers(*one, numbers, usable) for one in moments]
        before, *after = (pointwise[0, usable > 0] for _, pointwise in scores)
        best = max(range(1, len(path)), key=lambda k: float(after[k - 1].mean()))
        gain = after[best - 1] - before
        logger.info("what evidence has learnt changes log densities of left-out rows by %.4g", gain.mean())
        if not gain.mean() >= -gain.std() / len(gain) ** 0.5:  # one standard error
            return plan
        basis, noise = learnt_by_evidence(*path[0], _regression(support), scales, sum(STOPS[:best]) * unit, rng)
        # As sure as without these rows, whatever variances have become.
        now = _left_out(basis, noise, seen, asked.x)[1]
        temperature = float(scores[best][0]) * float(moments[best][1].mean() / now.mean()) ** 0.5
    parts, kernel = Parts.of(plan.parts.name, basis, learnt=True), scaled(basis.kernel, 1.0)
    if not exact:
        return replace(plan, parts=parts, kernel=kernel.replace(outputscale=plan.kernel.outputscale))
    plan = replace(plan, parts=parts, kernel=kernel, model=replace(plan.model, noise=noise))
    return replace(plan, temperature=temperature) if isinstance(support, NumberSupport) else plan


def _regression(support: Support) -> Regression:
    return Regression(support.x, *support.targets, support.weight)


def _left_out(basis: Finite, noise: float, seen: Regression, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means (1, P, M) and variances of numbers of rows (M, D), given others."""
    posterior = feature_prior(basis, seen.x, seen.mean).condition(regression_sites(seen.targets, seen.weight, noise))
    mean, variance = posterior.query(*(part[None] for part in basis.queries(x)))
    return mean[None], variance[None] + noise

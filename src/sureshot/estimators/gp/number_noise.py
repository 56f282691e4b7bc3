"""The noise of one member of a regression where fewer rows than there are, or other features, have chosen it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.tuning.family_search import NOISE_RATIOS, nearest, scaled, uphill
from sureshot.estimators.gp.tuning.log_density import scored_numbers
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.rows.support import sampled_rows
from sureshot.inference.least_squares import leave_one_out_by_factors, leave_one_out_path_by_features
from sureshot.kernels import evaluate

MOST_LEFT_OUT = 2000  # rows by which noise is compared, all are learnt from


def with_noise(plan: Plan, support: NumberSupport, basis: Finite) -> Plan:
    """With the noise and output scale by which left-out rows are predicted best."""
    place, asked = sampled_rows(support, MOST_LEFT_OUT)
    assert isinstance(asked, NumberSupport)
    scale_now = float(plan.kernel.outputscale)
    ratios = support.x.new_tensor(NOISE_RATIOS)
    path = leave_one_out_path_by_features(
        basis.features(support.x) / scale_now**0.5, *support.targets, support.weight, ratios, support.left_out, place
    )
    variance = path.scale[:, None] * (path.variance + ratios[:, None])
    factors, pointwise = scored_numbers(path.latent, _of_targets(variance, asked), asked.targets[0], asked.usable)
    best = int((pointwise @ asked.usable).argmax())
    return noisy(plan, NOISE_RATIOS[best], float(path.scale[best]), float(factors[best]))


def with_noise_of_rows(plan: Plan, support: NumberSupport) -> Plan:
    """The same for a kernel that is exact for the rows, uphill from the noise that fewer rows liked best."""
    scale_now = float(plan.kernel.outputscale)
    gram = evaluate(plan.kernel, support.x) / scale_now
    found: dict[int, tuple[float, Plan]] = {}

    def gain(at: tuple[int, ...]) -> float:
        (place,) = at
        if place not in found:
            ratio = support.x.new_tensor([NOISE_RATIOS[place]])
            (this,) = leave_one_out_by_factors(gram, *support.targets, support.weight, ratio, support.left_out)
            variance = _of_targets(this.scale * (this.variance + ratio)[None], support)
            (factor,), (logs,) = scored_numbers(this.latent[None], variance, support.numbers, support.usable)
            found[place] = float(logs @ support.usable), noisy(plan, NOISE_RATIOS[place], this.scale, float(factor))
        return found[place][0]

    start = nearest(NOISE_RATIOS, plan.model.noise / scale_now)
    uphill((start,), (len(NOISE_RATIOS),), ((1,), (-1,)), gain)
    return max(found.values(), key=lambda one: one[0])[1]


def _of_targets(variance: Tensor, support: NumberSupport) -> Tensor:
    """Variances (L, N) for each of the targets, (L, P, N)."""
    return variance.unsqueeze(1).expand(-1, len(support.numbers), -1)


def noisy(plan: Plan, ratio: float, scale: float, factor: float) -> Plan:
    """With another output scale, a ratio of noise to it, and a factor of deviations."""
    scale = max(scale, 1e-9)
    kernel = scaled(plan.kernel, scale / float(plan.kernel.outputscale))
    return replace(plan, kernel=kernel, model=replace(plan.model, noise=ratio * scale), temperature=factor)

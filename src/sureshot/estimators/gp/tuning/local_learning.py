"""Length-scales of columns, noise and link of a local Gaussian process, by how it predicts left-out rows.

A step takes a mini-batch of rows, each regressed on its nearest other rows, which is exact leave-one-out of the local
model, and follows the gradient of the objective's log density and of a log-normal prior (Adam, Kingma & Ba 2015). Who
is near changes as the metric moves: candidates are sought anew now and then, and among them the nearest at every step.
Time does not grow with the number of rows, but for that search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.approximations.nearest_neighbours import (
    CANDIDATES,
    OFF,
    NearestRows,
    local_problem,
    nearest_by,
    noise_without,
    rounded,
)
from sureshot.estimators.gp.tuning.objective import Objective
from sureshot.estimators.rows.clock import Past
from sureshot.estimators.rows.support import Support
from sureshot.gaussian.local_regression import local_regression
from sureshot.kernels import Expression, natural_lengthscale
from sureshot.kernels.presets import PRESETS
from sureshot.progress import tracked

STEPS, POOL = 120, 3000
BATCH, LEAST_BATCH, ENTRIES = 256, 16, 2**21  # rows of a step, fewer where neighbours would have more cells
FEWER = 2  # times as few neighbours as predict choose settings as good, in half the time
SEARCHED = (0, 8, 20, 40, 70)  # steps at which candidates are sought
RATE, DECAYS, _SMALLEST = 0.1, (0.9, 0.99), 1e-8
NOISE, NOISE_SPREAD = 0.1, 1.5  # median and spread of the log of the noise's prior
LENGTHSCALE_SPREAD = 1.0  # of the logs of length-scales, around those that suit standardised columns
MOST_COLUMNS = 300  # that have length-scales of their own
TIME_SPREAD = 3.0  # of the log of the time's: whether the world changes in an hour or never is not known before
LATEST = 2  # times as many rows as those of the pool, the last, that say how fast it does


@dataclass(frozen=True)
class Learnt:
    """What left-out rows have chosen."""

    lengthscale: Tensor  # (D,)
    noise: float
    link: tuple[float, ...]  # parameters of the objective's link


def local_kernel(name: str, lengthscale: Tensor) -> Expression:
    """The leaf of a preset, of variance 1."""
    preset = PRESETS[name]
    return preset.leaf(**{**preset.settings, "lengthscale": lengthscale})


def learn(
    name: str,  # of a stationary preset
    support: Support,
    objective: Objective,
    n_neighbours: int,
    seed: int,
    steps: int | None = None,
    past: Past | None = None,  # what each row is predicted from; None: all others
) -> Learnt:
    """For rows as the kernel sees them."""
    steps = STEPS if steps is None else steps
    generator = torch.Generator().manual_seed(seed)
    x, width = rounded(support.x), support.x.shape[1]
    link, weight = objective.local_link(support), support.weight.float()
    left_out = support.left_out.float()
    scale_of = torch.arange(width) if width <= MOST_COLUMNS else torch.zeros(width, dtype=torch.int64)
    if past is not None and width > MOST_COLUMNS:
        scale_of[past.column] = 1
    n_scales, natural = int(scale_of.max()) + 1, natural_lengthscale(name, width)
    start = torch.tensor([*[math.log(natural)] * n_scales, math.log(NOISE), *link.start], dtype=torch.float32)
    spread = torch.tensor([*[LENGTHSCALE_SPREAD] * n_scales, NOISE_SPREAD, *link.spread], dtype=torch.float32)
    if past is not None:
        start[scale_of[past.column]], spread[scale_of[past.column]] = 0.0, TIME_SPREAD
    sizes = (n_scales, 1, len(link.start))
    lots = torch.rand(len(x), generator=generator, dtype=torch.float32)
    pool = (support.usable > 0).nonzero().squeeze(-1)
    if past is not None:
        pool = pool[past.order[pool].argsort(descending=True)[: LATEST * POOL]]
    pool = pool[torch.randperm(len(pool), generator=generator)[:POOL]]
    asked = x[pool] if past is None else past.asked(x, pool)
    drawn, total = support.usable[pool], float(support.usable.sum())
    count = min(max(1, n_neighbours // FEWER) + 1, len(x))
    batch = max(LEAST_BATCH, min(BATCH, ENTRIES // (count * width)))
    point, first, second = start.clone().requires_grad_(), torch.zeros_like(start), torch.zeros_like(start)
    for step in tracked(range(steps if len(pool) else 0), "learning length-scales", steps):
        scales, noise, parameters = point.exp().split(sizes)
        lengthscale = scales[scale_of]
        if step in SEARCHED:
            units = lengthscale.detach()
            candidates = NearestRows.of(x / units, lots).nearest(rounded(asked / units), CANDIDATES * count)
        picked = torch.multinomial(drawn, batch, replacement=True, generator=generator)
        own, near = pool[picked], candidates[picked]
        beside = x[near] - asked[picked].unsqueeze(1)
        kernel = local_kernel(name, lengthscale)
        hidden = None if past is None else past.hides(own, near)
        with torch.no_grad():
            chosen = nearest_by(kernel, beside, count, hidden)
        place = near.gather(1, chosen)
        beside = beside.gather(1, chosen.unsqueeze(-1).expand(-1, -1, width))
        of_rows = noise_without(noise / weight[place], place == own[:, None], left_out[own, None])
        if hidden is not None:
            of_rows = torch.where(hidden.gather(1, chosen), OFF * of_rows, of_rows)
        found = local_regression(local_problem(kernel, beside, of_rows), link.targets(place).float())
        variance = (1 - found.explained).clamp_min(0)
        loss = -link.log_density(parameters, found.mean, variance, noise, own).mean()
        loss = loss + ((point - start) / spread).square().sum() / (2 * total)
        (gradient,) = torch.autograd.grad(loss, point)
        with torch.no_grad():  # torch's own Adam takes five seconds to import
            first = first.lerp(gradient, 1 - DECAYS[0])
            second = second.lerp(gradient.square(), 1 - DECAYS[1])
            size = (second / (1 - DECAYS[1] ** (step + 1))).sqrt() + _SMALLEST
            point -= RATE * math.sqrt(1 - step / steps) * first / (1 - DECAYS[0] ** (step + 1)) / size
    scales, noise, parameters = point.detach().double().exp().split(sizes)
    return Learnt(scales[scale_of], float(noise), tuple(parameters.tolist()))

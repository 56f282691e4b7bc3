"""What an approximation learns by the evidence of regression: scales of its kernel, noise, and numbers of its own.

`Finite.learnt` names the tensors that move: inducing inputs, frequencies, diagonals. Gradients are automatic. All rows
are seen in every step of L-BFGS; or a batch of them where the bound is that of a free Gaussian q of the features'
weights, a sum over rows, which natural gradients climb in q and Adam in the rest.

References: Hensman, Fusi & Lawrence 2013; Salimbeni, Eleftheriadis & Hensman 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sureshot.approximations.base import Finite
from sureshot.approximations.inducing import unexplained
from sureshot.gaussian.features import FeaturePrior
from sureshot.inference.least_squares import regression_log_evidence
from sureshot.inference.natural_gradient import (
    InducingBatch,
    InducingPrior,
    batch_bound,
    natural_gradient_step,
    prior_state,
)
from sureshot.likelihoods.gaussian import GaussianNoise
from sureshot.progress import report, tracked

LEAST_NOISE = 1e-8  # variance, of targets of about 1
NO_FACTOR = 1e100  # the loss where matrices have none
BATCH = 512  # rows at most
RATE, LEFT_OF_RATE = 0.05, 0.05  # of Adam, and the share of it that is left at the end


class Regression(NamedTuple):
    """Rows with their targets."""

    x: Tensor  # (N, D)
    targets: Tensor  # (P, N)
    mean: Tensor  # (P,), prior means
    weight: Tensor  # (N,)


def feature_prior(basis: Finite, x: Tensor, mean: Tensor) -> FeaturePrior:
    """Of P targets at rows (N, D), with prior means (P,)."""
    found = basis.prior(x, mean[:, None])
    return FeaturePrior(found.features[None], found.mean, None if found.residual is None else found.residual[None])


def log_evidence_of(
    basis: Finite,
    rows: Regression,
    noise: float | Tensor,
    prior: FeaturePrior | None = None,  # of the rows, where it is at hand
) -> Tensor:
    """That of all targets in nats, or the bound that the approximation has in its place; differentiable."""
    prior = feature_prior(basis, rows.x, rows.mean) if prior is None else prior
    evidence = regression_log_evidence(prior, rows.targets, rows.weight, noise).sum()
    withheld = basis.withheld(rows.x, prior.features[0])
    return evidence if withheld is None else evidence - len(rows.mean) * (rows.weight * withheld / noise).sum() / 2


def moved(basis: Finite, numbers: dict[str, Tensor]) -> tuple[Finite, Tensor]:
    """An approximation and its noise at other numbers: logarithms of scales and noise, and what is its own."""
    scales = {name: numbers[name].exp() for name in basis.kernel.parameters.keys() & numbers.keys()}
    own = {name: numbers[name] for name in basis.learnt}
    return replace(basis, kernel=basis.kernel.replace(**scales), **own), numbers["noise"].exp() + LEAST_NOISE


def learnt_by_evidence(
    basis: Finite,
    noise: float,
    rows: Regression,
    scales: Iterable[str],  # parameters of the kernel that are learnt
    steps: int,  # at most
    generator: torch.Generator,  # of batches
) -> tuple[Finite, float]:
    """Uphill on the evidence of the rows: the approximation, and its noise."""
    numbers = {name: basis.kernel.parameters[name].log() for name in scales}
    numbers["noise"] = rows.x.new_tensor(max(noise - LEAST_NOISE, LEAST_NOISE)).log()
    numbers |= {name: getattr(basis, name) for name in basis.learnt}
    numbers = {name: part.detach().clone().requires_grad_() for name, part in numbers.items()}
    if basis.in_batches:
        _by_batches(basis, numbers, rows, steps, generator)
    else:
        _by_all_rows(basis, numbers, rows, steps)
    found, variance = moved(basis, {name: part.detach() for name, part in numbers.items()})
    return found, float(variance)


def _by_all_rows(basis: Finite, numbers: dict[str, Tensor], rows: Regression, steps: int) -> None:
    taken = iter(range(1, steps + 1))

    def evidence() -> Tensor:
        at, noise = moved(basis, numbers)
        return log_evidence_of(at, rows, noise) / rows.targets.numel()

    def told(_: np.ndarray) -> None:
        report("learning by evidence", next(taken) / steps)

    climb(evidence, list(numbers.values()), steps, told)


def climb(
    height: Callable[[], Tensor], parts: list[Tensor], steps: int, told: Callable[[np.ndarray], None] | None = None
) -> float:
    """Move tensors uphill by L-BFGS, and say how high they came."""

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.from_numpy(point).to(parts[0]), parts)
        try:
            with torch.enable_grad():
                value = -height()
            gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, parts)])
        except torch.linalg.LinAlgError:
            return NO_FACTOR, np.zeros_like(point)
        return value.item(), gradient.cpu().numpy()

    start, how = parameters_to_vector(parts).detach().cpu().numpy(), {"maxiter": steps}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=how, callback=told)
    vector_to_parameters(torch.from_numpy(found.x).to(parts[0]), parts)
    return -float(found.fun)


def _by_batches(
    basis: Finite, numbers: dict[str, Tensor], rows: Regression, steps: int, generator: torch.Generator
) -> None:
    x, targets, mean, weight = rows
    optimiser = torch.optim.Adam(numbers.values(), RATE)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimiser, LEFT_OF_RATE ** (1 / steps))
    prior = InducingPrior.whitened(basis.features(x[:1]).shape[-1], x.dtype, x.device)
    state, places = prior_state(prior, mean.shape), list[Tensor]()
    for _ in tracked(range(steps), "learning by batches", steps):
        if not places:
            order = torch.randperm(len(x), generator=generator, device=x.device)
            places.extend(order.tensor_split(-(-len(x) // BATCH)))
        seen = places.pop()
        share = len(seen) / len(x)
        natural = share**0.5 * falling.get_last_lr()[0] / RATE  # q is to remember several batches, and more at the end
        with torch.enable_grad():
            at, noise = moved(basis, numbers)
            features, own = at.queries(x[seen])
            residual = unexplained(own, features)[None]
            batch = InducingBatch(features[None], residual, mean[:, None], targets[:, seen], weight[seen])
            problem = prior, GaussianNoise(noise), batch, 1 / share
            with torch.no_grad():
                state, _ = natural_gradient_step(state, *problem, natural)
            optimiser.zero_grad()
            (-batch_bound(state, *problem) / len(x)).backward()
        optimiser.step()
        falling.step()

"""Independent ways to the same numbers: latents of classes written out, dense algebra, importance sampling."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.structure.grammar import KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.structure import Structure

F64 = torch.float64


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def positive_definite(*shape: int, seed: int = 0) -> Tensor:
    """Matrices (..., N, N), their diagonals near 2."""
    *batch, n = shape
    root = torch.randn(*batch, n, n + 2, generator=seeded(seed), dtype=F64)
    return 2 * root @ root.mT / (n + 2) + 0.1 * torch.eye(n, dtype=F64)


def kernel_matrix(prior: KernelPrior, structure: Structure, z: Tensor, x: Tensor) -> Tensor:
    """Prior covariance (N, N) of a class's latent on rows, nugget and mean in it; z begins with the nugget's number."""
    gram = prior.kernel(structure, z[1:])(x)
    return gram + prior.grammar.mean_variance + prior.nugget(z[0]) * torch.eye(len(x), dtype=F64)


def differences(y: Tensor, n_classes: int) -> Tensor:
    """A (P, C N): contrasts as differences of the latents of classes, row by row, over the root of two."""
    rows = []
    for n, own in enumerate(y.tolist()):
        for other in range(n_classes):
            if other != own:
                row = torch.zeros(n_classes, len(y), dtype=F64)
                row[own, n], row[other, n] = 1, -1
                rows.append(row.flatten() / 2**0.5)
    return torch.stack(rows) if rows else torch.zeros(0, n_classes * len(y), dtype=F64)


def contrast_covariance(gram: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """``A (I x K) A'`` (..., P, P) from the covariance (..., N, N) of each class's latent."""
    a = differences(y, n_classes)
    latents = torch.stack(
        [torch.kron(torch.eye(n_classes, dtype=F64), one) for one in gram.reshape(-1, *gram.shape[-2:])]
    )
    return (a @ latents @ a.mT).reshape(*gram.shape[:-2], len(a), len(a))


def covariances(prior: KernelPrior, particles: Particles, x: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Prior covariance (M, P, P) of the contrasts under each particle."""
    pairs = zip(particles.structures, particles.z, strict=True)
    grams = torch.stack([kernel_matrix(prior, structure, z, x) for structure, z in pairs])
    return contrast_covariance(grams, y, n_classes)


def laplace(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Mode (M, P) of ``prod sigma(psi) N(psi; 0, S)`` by Newton's method, and the covariance of its Gaussian."""
    psi = torch.zeros(covariance.shape[:-1], dtype=F64)
    eye = torch.eye(covariance.shape[-1], dtype=F64)
    for _ in range(100):
        p = torch.sigmoid(psi)
        curvature = p * (1 - p)
        # psi = S (I + W S)^-1 (W psi + gradient)
        target = (curvature * psi + 1 - p).unsqueeze(-1)
        step = (covariance @ torch.linalg.solve(eye + curvature.unsqueeze(-1) * covariance, target)).squeeze(-1)
        change = (step - psi).clamp(-2, 2)
        psi = psi + change
        if float(change.abs().max()) < 1e-9:
            break
    p = torch.sigmoid(psi)
    curvature = p * (1 - p)
    spread = torch.linalg.solve(eye + covariance * curvature.unsqueeze(-2), covariance)
    return psi, (spread + spread.mT) / 2


def draws_and_log_weights(
    covariance: Tensor,  # (M, P, P)
    n_draws: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Draws (S, M, P) and importance weights (S, M) whose mean is ``int prod sigma(psi) N(psi; 0, S)``.

    A fifth of the draws are from the prior, so that no weight is above five.
    """
    mode, spread = laplace(covariance)
    prior_root, root = torch.linalg.cholesky(covariance), torch.linalg.cholesky(spread)
    noise = torch.randn(n_draws, *mode.shape, generator=generator, dtype=F64)
    near = mode + torch.einsum("mpq,smq->smp", root, noise)
    far = torch.einsum("mpq,smq->smp", prior_root, noise)
    from_prior = torch.rand(n_draws, len(mode), generator=generator, dtype=F64) < 0.2
    psi = torch.where(from_prior.unsqueeze(-1), far, near)
    log_prior = _log_normal(psi, prior_root)
    proposal = torch.logaddexp(math.log(0.8) + _log_normal(psi - mode, root), math.log(0.2) + log_prior)
    return psi, logsigmoid(psi).sum(-1) + log_prior - proposal


def log_evidences(covariance: Tensor, n_draws: int, generator: torch.Generator) -> Tensor:
    """Logarithms (M,) of unbiased estimates of the evidence of each covariance (M, P, P)."""
    _, log_weights = draws_and_log_weights(covariance, n_draws, generator)
    return log_weights.logsumexp(0) - math.log(n_draws)


def _log_normal(values: Tensor, root: Tensor) -> Tensor:
    solved = torch.linalg.solve_triangular(root, values.unsqueeze(-1), upper=False).squeeze(-1)
    log_volume = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * solved.square().sum(-1) - log_volume - 0.5 * values.shape[-1] * math.log(2 * math.pi)


def mean_and_error(log_values: Tensor) -> tuple[float, float]:
    """The logarithm of the mean of exponentials (S,), and its standard error."""
    values = (log_values - log_values.max()).exp()
    mean = float(values.mean())
    error = float(values.std()) / len(values) ** 0.5
    return float(log_values.max()) + math.log(mean), error / mean

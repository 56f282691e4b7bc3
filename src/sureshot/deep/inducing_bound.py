"""What batches say of a deep kernel: the bound by inducing inputs among the network's features.

Values at M inducing inputs have a Gaussian q of their own, so that the bound of the evidence is a sum over rows, and a
step costs as much for a million of them as for a thousand. Noise is normal: a natural-gradient step of length 1 on all
rows leaves q where the bound is largest, and then, where all rows are inducing inputs, it is the evidence. On a batch,
the step is as long as the root of its share, for q to remember several.

References: Hensman, Fusi & Lawrence 2013; Wilson, Hu, Salakhutdinov & Xing 2016b (SV-DKL).
"""

import torch
from torch import Tensor

from sureshot.approximations.exact import lifted
from sureshot.approximations.inducing import unexplained
from sureshot.inference.natural_gradient import (
    InducingBatch,
    InducingPrior,
    NaturalGradientState,
    batch_bound,
    natural_gradient_step,
    prior_state,
)
from sureshot.kernels import RBF, evaluate
from sureshot.likelihoods.gaussian import GaussianNoise


def bound_step(
    state: NaturalGradientState | None,  # of q; None: at the prior
    inputs: Tensor,  # (M, D), in units of the length-scale, as features
    features: Tensor,  # (B, D), of a batch of rows
    scale: Tensor,  # of the kernel's outputs
    noise: Tensor,  # variance
    y: Tensor,  # (P, B), of prior mean zero
    weight: Tensor,  # (B,)
    share: float = 1.0,  # of all rows that are in the batch
) -> tuple[NaturalGradientState, Tensor]:
    """A step of q, and then the bound of the log evidence of all rows, in nats; differentiable but for q."""
    gram, cross = (scale * evaluate(RBF(), inputs, rows) for rows in (inputs, features))
    projection = torch.linalg.solve_triangular(torch.linalg.cholesky(lifted(gram)), cross, upper=False).mT[None]
    residual = unexplained(scale, projection)
    prior = InducingPrior.whitened(len(inputs), y.dtype, y.device)
    problem = prior, GaussianNoise(noise), InducingBatch(projection, residual, y.new_zeros(()), y, weight), 1 / share
    with torch.no_grad():
        before = prior_state(prior, y.shape[:1]) if state is None else state
        state, _ = natural_gradient_step(before, *problem, share**0.5)
    return state, batch_bound(state, *problem)

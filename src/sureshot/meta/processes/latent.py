"""Latent neural process: a normal latent z for each function, of which the context says something.

With q(z | .) of a set of pairs, training follows one of two objectives. ``"likelihood"`` is the log of the mean density
of all queries of a task over draws of q(z | C), where C is its context: what use asks for. ``"bound"``, as published,
is ``E_q(z|T) log p(y_T | z, x_T) - KL(q(z|T) || q(z|C))``, where T are all rows; q(z | C) then is trained to be like
what more rows say, not to answer, and says too much of few rows. In use the answers are mixtures over draws of
q(z | C), the same draws for every task: estimates of densities from below, by less the more draws there are.

References: Garnelo et al. 2018, "Neural processes"; Foong et al. 2020, "Meta-learning stationary stochastic process
prediction with convolutional neural processes", section 4, on the objectives.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sureshot.meta.learners.functions import Context, Moments, RegressionLearner
from sureshot.meta.processes.layers import Waves, answering, check_sizes, mean_of_rows, mlp, normals
from sureshot.meta.tasks import Tasks

Objective = Literal["likelihood", "bound"]


class LatentNP(RegressionLearner):
    """See the module."""

    name = "np"

    def __init__(
        self,
        input_width: int,
        target_width: int,
        *,
        width: int = 128,
        layers: int = 3,
        waves: int = 5,  # sines and cosines beside each input; none as published
        latent: int = 64,  # width of z
        draws: int = 4,  # of z in training
        draws_prediction: int = 32,  # and in use
        objective: Objective = "likelihood",  # of training; "bound" as published
        floor: float = 0.01,  # of the deviation
        seed: int = 0,
    ) -> None:
        super().__init__(input_width, target_width)
        sizes = {"width": width, "layers": layers, "latent": latent}
        check_sizes(floor, draws=draws, draws_prediction=draws_prediction, **sizes)
        generator, hidden = torch.Generator().manual_seed(seed), [width] * layers
        self.floor, self.latent, self.draws, self.draws_prediction = floor, latent, draws, draws_prediction
        self.objective = objective
        self.waves = Waves(input_width, waves)
        self.encoder = mlp([self.waves.width + target_width, *hidden], generator)
        self.of_latent = mlp([width, width, 2 * latent], generator)
        self.decoder = answering([self.waves.width + latent, *hidden, 2 * target_width], generator)

    def encode(self, context: Context, generator: torch.Generator) -> Tensor:
        """Draws of z, (M, T, Z)."""
        return _drawn(self.latent_given(context), (self.draws_prediction, 1, self.latent), generator)

    def latent_given(self, context: Context) -> Normal:
        """q(z | context), (T, Z); the deviation is between 0.1 and 1, as released."""
        known = mean_of_rows(self.encoder(torch.cat([self.waves(context.x), context.y], -1)), context.mask)
        mean, raw = self.of_latent(known).chunk(2, -1)
        return Normal(mean, 0.1 + 0.9 * raw.sigmoid(), validate_args=False)

    def answer(self, encoded: Tensor, query: Tensor) -> Moments:
        latent = encoded.unsqueeze(2).expand(-1, -1, query.shape[1], -1)
        seen = self.waves(query).expand(len(latent), -1, -1, -1)
        inputs = torch.cat([seen, latent], -1)
        return normals(self.decoder(inputs), self.floor)

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Minus the objective of each task, (T,), for each row that it is the density of."""
        if self.objective == "bound":
            return -self.bound(tasks, generator) / Context.of(tasks.merged()).mask.sum(1).clamp_min(1)
        query, given = Context.of(tasks.query), self.latent_given(Context.of(tasks.support))
        joint = self._joint(_drawn(given, (self.draws, *given.mean.shape), generator), query)
        return (math.log(self.draws) - joint.logsumexp(0)) / query.mask.sum(1).clamp_min(1)

    def bound(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """The bound on the log density of all rows of each task given its context, (T,), by `draws` of z."""
        every = Context.of(tasks.merged())
        prior, proposal = self.latent_given(Context.of(tasks.support)), self.latent_given(every)
        joint = self._joint(_drawn(proposal, (self.draws, *proposal.mean.shape), generator), every)
        return joint.mean(0) - kl_divergence(proposal, prior).sum(-1)

    def _joint(self, z: Tensor, rows: Context) -> Tensor:
        """Log density (M, T) of all rows of each task given draws (M, T, Z)."""
        found = self.answer(z, rows.x)
        density = Normal(found.mean, found.deviation, validate_args=False).log_prob(rows.y).sum(-1)  # (M, T, N)
        return density.masked_fill(~rows.mask, 0.0).sum(-1)


def _drawn(given: Normal, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Of z, (M, T, Z), by noise of a shape (M, T or 1, Z)."""
    noise = torch.randn(shape, generator=generator, device=generator.device, dtype=given.mean.dtype)
    return given.mean + given.stddev * noise

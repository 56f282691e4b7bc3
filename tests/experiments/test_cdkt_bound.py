"""The objectives, along their directions, on embeddings that are known."""

from __future__ import annotations

import torch

from experiments.cdkt_bound import COLLAPSED, IDEAL, bound_values, cosines, derivatives, objective
from sureshot.likelihoods import LogisticSoftmax
from sureshot.meta.learners.mean_field import TaskMeanField

Y = torch.arange(5).repeat_interleave(3).expand(2, 15)


def embeddings(apart: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(2, 15, 8, dtype=torch.float64, generator=generator)
    return noise + apart * torch.nn.functional.one_hot(Y, 8).double()


def test_losses_of_embeddings_that_tell_classes_apart_are_lower() -> None:
    frame = bound_values({"some": cosines(embeddings(0.0)), "more": cosines(embeddings(4.0))}, Y).set_index(
        "embeddings"
    )
    assert list(frame.index) == [COLLAPSED, "some", "more", IDEAL]
    column = frame["Poisson-Gamma, mean 0"]
    assert column[IDEAL] < column[COLLAPSED]
    assert column["more"] < column["some"]
    assert bool((frame["negative, mean 0"] <= column + 1e-9).all())  # the tighter bound


def test_derivatives_are_those_of_small_steps() -> None:
    z = embeddings(1.0)
    frame = derivatives(z, Y, seed=0)
    rule = TaskMeanField(LogisticSoftmax(0.2, "poisson_gamma"), 2)
    row = frame[(frame["objective"] == "bound, two cold steps") & (frame["prior mean"] == 0)].iloc[0]
    centre = z.mean(1, keepdim=True) - z
    step = 1e-5
    ahead, behind = (objective(rule, cosines(z + sign * step * centre), Y, 0.0).mean() for sign in (1, -1))
    assert abs(float((ahead - behind) / (2 * step)) - row["together"]) < 1e-6

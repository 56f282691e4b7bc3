"""Fit a learner's normalisation to unlabelled inputs of a domain: batch statistics, then the centre of embeddings.

Statistics of batch normalisation that were gathered on the base classes are wrong in another domain (other pens, other
cameras), and so is the point from which a cosine is taken. Both need inputs of that domain only, no labels.

References: Li et al. 2017, Revisiting batch normalization for practical domain adaptation.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from sureshot.meta.episodes import as_inputs
from sureshot.meta.evaluation.passes import device_of, embed_set
from sureshot.meta.learners.base import Learner

_ROWS = 128  # for one estimate of the statistics, of which the mean is taken; about the rows of a training episode


def fit_normalisation(learner: Learner, x: Tensor, generator: torch.Generator) -> None:
    """Fit batch statistics and centre; the learner is left in the mode in which it came.

    Parameters
    ----------
    learner : Learner
        With ``fits_normalisation``.
    x : Tensor (N, ...)
        Inputs as a labelled set has them.
    generator : torch.Generator
        Shuffles the inputs, so that a batch has many classes.

    Raises
    ------
    ValueError
        If an embedding is not finite.
    """
    device = device_of(learner)
    parts = torch.randperm(len(x), generator=generator).tensor_split(max(1, len(x) // _ROWS))
    training = learner.training
    learner.train()
    update_bn((as_inputs(x[rows]).to(device).unsqueeze(0) for rows in parts), _Embedder(learner))
    learner.train(training)
    learner.set_centre(torch.zeros((), device=device))
    learner.set_centre(embed_set(learner, x).mean(0).to(device))


class _Embedder(torch.nn.Module):
    """The learner's embedding as a module of its own, which is what `update_bn` calls."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, x: Tensor) -> Tensor:
        return self.learner.embed(x)

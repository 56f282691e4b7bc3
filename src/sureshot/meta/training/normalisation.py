"""Fit a learner's normalisation to inputs of validation classes: batch statistics, then the centre of embeddings.

Statistics of batch normalisation that were gathered on the base classes are wrong in another domain (other pens, other
cameras), and so is the point from which a cosine is taken.

The mean embedding of a few classes says little about the next ones, though: with 30 classes of sentence embeddings
nearly all of it is chance. So the centre is that of the base classes, moved towards that of the validation classes as
far as their distance exceeds what chance makes of it, as in James and Stein's estimator.

References: Li et al. 2017, Revisiting batch normalization for practical domain adaptation; Efron & Morris 1973, Stein's
estimation rule and its competitors.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from sureshot.data.labelled import LabelledSet
from sureshot.meta.evaluation.passes import embed_set
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.networks.backbones import as_inputs

_ROWS = 128  # for one estimate of the statistics, of which the mean is taken; about the rows of a training episode
_BASE_ROWS = 1000  # for the centre


def fit_normalisation(
    learner: EmbeddingLearner,  # with ``fits_normalisation``
    base: LabelledSet,
    validation: LabelledSet,
    generator: torch.Generator,  # shuffles the inputs, so that a batch has many classes, and chooses base rows
) -> None:
    """Fit batch statistics and centre; the learner is left in the mode in which it came, and by an error as it was."""
    before, training = copy.deepcopy(learner.state_dict()), learner.training
    momenta = {module: module.momentum for module in learner.modules() if isinstance(module, _BatchNorm)}
    try:
        _fit_normalisation(learner, base, validation, generator)
    except BaseException:
        learner.load_state_dict(before)
        raise
    finally:
        learner.train(training)
        for module, momentum in momenta.items():
            module.momentum = momentum


def _fit_normalisation(
    learner: EmbeddingLearner, base: LabelledSet, validation: LabelledSet, generator: torch.Generator
) -> None:
    device = learner.device
    parts = torch.randperm(len(validation.x), generator=generator).tensor_split(max(1, len(validation.x) // _ROWS))
    training = learner.training
    learner.train()
    update_bn((as_inputs(validation.x[rows]).to(device).unsqueeze(0) for rows in parts), _Embedder(learner))
    learner.train(training)
    learner.set_centre(torch.zeros((), dtype=torch.float32, device=device))
    some = torch.randperm(len(base.x), generator=generator)[:_BASE_ROWS]
    start, start_error = _mean_over_classes(embed_set(learner, base.x[some]), base.y[some].cpu())
    there, there_error = _mean_over_classes(embed_set(learner, validation.x), validation.y.cpu())
    learner.set_centre(shrunk(start, there, start_error + there_error).to(device))


def shrunk(start: Tensor, there: Tensor, error: Tensor) -> Tensor:
    """The point on the line from `start` (D,) to `there` (D,) that a squared error () of their difference allows.

    An error that is not known allows nothing.
    """
    step = there - start
    return start + (1 - error / step.square().sum()).clamp_min(0).nan_to_num() * step


def _mean_over_classes(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (D,) of the class means of embeddings (N, D), and its expected squared error if classes are a sample.

    The error that one class has is not known (NaN).
    """
    _, places, counts = y.unique(return_inverse=True, return_counts=True)
    means = z.new_zeros(len(counts), z.shape[1]).index_add(0, places, z) / counts.unsqueeze(1)
    n_classes = len(means)
    centre = means.mean(0)
    return centre, (means - centre).square().sum() / ((n_classes - 1) * n_classes)


class _Embedder(torch.nn.Module):
    """The learner's embedding as a module of its own, which is what `update_bn` calls."""

    def __init__(self, learner: EmbeddingLearner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, x: Tensor) -> Tensor:
        return self.learner.embed(x)

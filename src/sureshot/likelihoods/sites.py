"""What gives sites: the Gaussian factors that stand for data, whatever is observed, labels or real numbers.

Given its auxiliary variables, each *conjugate* likelihood is a Gaussian factor in the latents
(`sureshot.gaussian.sites`). It says its sites given a sample of the latents (Gibbs), its expected sites given their
Gaussian marginals (mean field) and its local terms of the evidence bound; inference needs to know nothing else of it.
Predicting classes is another matter (`sureshot.likelihoods.base`), and a likelihood of labels does both: `ClassSites`.

Shapes: moments (..., C, N) with any leading batch dimensions (tasks, chains); targets ``y`` (..., N), labels 0..C-1 as
int64 or real numbers; ``weight`` (..., N), one for each datum, a datum of weight 2 counting as two equal ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.base import Likelihood

Carried = tuple[Tensor, ...] | None
"""Variational parameters that one step of mean field hands to the next: the likelihood's own affair."""


class MeanFieldLikelihood(ABC):
    """A likelihood whose auxiliary variables factorise into one Gaussian site for every latent value."""

    def n_latents(self, n_classes: int) -> int:
        """Latent functions needed for that many classes (one for each by default)."""
        return n_classes

    def check_targets(self, y: Tensor, weight: Tensor | None, n_classes: int | None) -> int:
        """The number of classes; `ValueError` for targets that this likelihood does not observe, or wrong weights."""
        check_weight(y, weight)
        return count_classes(y, n_classes)

    @abstractmethod
    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """Sites with the auxiliary variables at their optimal mean-field expectation, each (..., C, N)."""

    @abstractmethod
    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The data's terms of the evidence bound, (...): the bound is this minus ``KL(q(f) || p(f))``.

        The auxiliary variables are at their optimum for these moments, so its derivatives are the expected
        sites: ``d / d mean = shift - precision * mean`` and ``d / d variance = -precision / 2``.
        """

    @abstractmethod
    def step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried = None
    ) -> tuple[Sites, Carried]:
        """Sites of one step of mean field, and what the auxiliary variables carry over to the next one."""

    @abstractmethod
    def bound_after_step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried
    ) -> Tensor:
        """`local_bound` with the auxiliary variables where `step` left them, (...)."""


class AuxiliariesAtOptimum(MeanFieldLikelihood):
    """A likelihood whose auxiliary variables are at their optimum in every step, so that none carries anything."""

    @final
    def step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried = None
    ) -> tuple[Sites, Carried]:
        """`expected_sites`, and None."""
        return self.expected_sites(mean, variance, y, weight), None

    @final
    def bound_after_step(
        self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None, carried: Carried
    ) -> Tensor:
        """`local_bound`."""
        return self.local_bound(mean, variance, y, weight)


class ConjugateLikelihood(MeanFieldLikelihood):
    """A likelihood that is Gaussian, independently over the latents, given drawn auxiliary variables."""

    @abstractmethod
    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """Draw the auxiliary variables given latents ``f`` (..., C, N) and return the sites they imply."""


class ClassSites(MeanFieldLikelihood, Likelihood):
    """A likelihood of labels: it gives sites, and it predicts classes."""


def count_classes(y: Tensor, n_classes: int | None) -> int:
    """The number of classes of labels ``y``: ``max(y) + 1`` and at least 2 where it is not given."""
    if y.dtype.is_floating_point or y.dtype == torch.bool or y.numel() == 0:
        raise ValueError(
            f"y must be a non-empty int64 tensor of labels 0..n_classes-1, but its dtype is {y.dtype} and "
            f"its shape {tuple(y.shape)}; encode labels first, e.g. with sklearn.preprocessing.LabelEncoder"
        )
    classes = max(int(y.max()) + 1, 2) if n_classes is None else n_classes
    check_labels(y, classes)
    return classes


def check_labels(y: Tensor, n_classes: int, name: str = "y") -> None:
    """Refuse labels of none of so many classes (`ValueError`)."""
    if y.numel() and not 0 <= int(y.min()) <= int(y.max()) < n_classes:
        raise ValueError(
            f"{name} must hold labels from 0 to n_classes - 1 = {n_classes - 1}, but holds {int(y.min())} to "
            f"{int(y.max())}; raise n_classes or encode the labels again"
        )


def check_weight(y: Tensor, weight: Tensor | None) -> None:
    """Refuse weights that are negative, not finite, or not one for each datum (`ValueError`)."""
    if weight is None:
        return
    wrong = ~(weight.isfinite() & (weight >= 0))
    if weight.shape[-1:] != y.shape[-1:] or bool(wrong.any()):
        found = f", and one of them is {float(weight[wrong][0]):g}" if bool(wrong.any()) else ""
        raise ValueError(
            f"weight must hold one finite number that is not negative for each of the {y.shape[-1]} labels, but its "
            f"shape is {tuple(weight.shape)}{found}"
        )

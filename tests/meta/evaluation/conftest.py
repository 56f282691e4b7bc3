"""Small labelled sets whose classes overlap, and learners on them that take a moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sureshot.data.labelled import LabelledSet
from sureshot.meta.learners import ClassLearner, make_learner


class Scaling(nn.Module):
    """A backbone that multiplies vectors by a number: the larger it is, the surer nearest prototypes are."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def clusters(n_classes: int = 14, n_rows: int = 24, width: int = 6, spread: float = 1.0, seed: int = 0) -> LabelledSet:
    """Gaussian classes around Gaussian centres; class k starts at row ``k * n_rows``."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_classes, width, generator=generator)
    x = centres.repeat_interleave(n_rows, 0) + spread * torch.randn(n_classes * n_rows, width, generator=generator)
    y = torch.arange(n_classes).repeat_interleave(n_rows)
    return LabelledSet(x, y, tuple(f"class {k}" for k in range(n_classes)))


Clusters = Callable[..., LabelledSet]


@pytest.fixture(scope="session")
def make_clusters() -> Clusters:
    """``make_clusters(n_classes=, n_rows=, width=, spread=, seed=)``."""
    return clusters


@pytest.fixture(scope="session")
def make_protonet() -> Callable[[float], ClassLearner]:
    """``make_protonet(factor)``: the larger the factor, the surer."""
    return lambda factor: make_learner("protonet", Scaling(factor))


@pytest.fixture(scope="session")
def data() -> LabelledSet:
    return clusters()


@pytest.fixture(scope="session")
def validation() -> LabelledSet:
    return clusters(n_classes=8, seed=1)


@pytest.fixture
def learner() -> ClassLearner:
    return make_learner("protonet", Scaling())

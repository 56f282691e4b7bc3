"""Deep classifiers that take further classes: what the network of a method for sessions is.

A classifier that grows keeps its probabilities of the classes it has, up to what the new ones take; training it further
is whoever's business it is (`sureshot.incremental.trained`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from torch import Tensor

from sureshot.deep.base import DeepClassifier
from sureshot.networks.backbones import Backbone


class GrowingClassifier(DeepClassifier):
    """A deep classifier whose classes may become more."""

    @classmethod
    @abstractmethod
    def of_embeddings(
        cls,
        backbone: Backbone,
        embeddings: Tensor,  # (N, D), of rows by this backbone
        y: Tensor,  # (N,) int64, every class at least once
        n_classes: int,
        *,
        seed: int = 0,  # of what is drawn
    ) -> Self:
        """One that begins where the rows are, as far as it has places."""

    @abstractmethod
    def grown(
        self,
        embeddings: Tensor,  # (N, D), of rows of the new classes, each with one at least, by this backbone
        y: Tensor,  # (N,) int64, from the number of classes known so far on
        n_classes: int,  # afterwards
    ) -> Self:
        """A copy with further classes."""

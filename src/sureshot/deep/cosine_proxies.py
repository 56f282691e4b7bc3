"""Several proxies for each class, and cosines with them: the classifier of PODNet.

The score of a class is the mean of the cosines with its proxies, weighted by their softmax. Training asks that the
score of a row's own class, less a margin, be larger than what the other classes have together (neighbourhood component
analysis), and is satisfied where it is:

    max(0, log sum_{c != y} exp(s score_c) - s (score_y - margin))

with a scale s that is learnt. Probabilities are the softmax of s score, without the margin.

Reference: Douillard, Cord, Ollion, Robert & Valle, "PODNet: pooled outputs distillation for small-tasks incremental
learning" (2020), section 3.3.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.deep.base import Predictor, check_every_class
from sureshot.deep.growing import GrowingClassifier
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.ranges import check_positive


class ProxyNetwork(GrowingClassifier):
    """Cosines with a class's proxies on a backbone; `of_embeddings` puts the proxies where the rows are."""

    name = "cosine_proxies"

    def __init__(
        self,
        backbone: Backbone,
        proxies: Tensor,  # (C, K, D)
        *,
        margin: float = 0.6,
        scale: float = 1.0,  # where it starts
        seed: int = 0,  # of the k-means that finds proxies for new classes
    ) -> None:
        n_classes, per_class, _ = proxies.shape
        check_positive(margin=margin, scale=scale)
        super().__init__(backbone, n_classes, {"per_class": per_class, "margin": margin, "scale": scale, "seed": seed})
        self.margin = margin
        self.proxies = nn.Parameter(proxies.detach().clone())
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), dtype=torch.float32))

    @classmethod
    def of_embeddings(
        cls,
        backbone: Backbone,
        embeddings: Tensor,  # (N, D), of rows by this backbone
        y: Tensor,  # (N,) int64, every class at least once
        n_classes: int,
        *,
        per_class: int = 10,  # proxies
        seed: int = 0,
        **options: Any,  # of the class, such as ``margin``
    ) -> ProxyNetwork:
        """Proxies at the centres of k-means in each class, of embeddings of unit length."""
        return cls(backbone, _imprinted(embeddings, y, range(n_classes), per_class, seed), seed=seed, **options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ProxyNetwork:
        backbone = backbone_from_config(config["backbone"])
        proxies = torch.ones(config["n_classes"], config["per_class"], backbone.n_features, dtype=torch.float32)
        return cls(backbone, proxies, **{name: config[name] for name in ("margin", "scale", "seed")})

    def own_parameters(self) -> list[nn.Parameter]:
        """The scale."""
        return [self.log_scale]

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        scores, scale = self.scores(embeddings), self.log_scale.exp()
        own = scores.gather(1, y.unsqueeze(1)).squeeze(1) - self.margin
        others = (scale * scores).scatter(1, y.unsqueeze(1), -math.inf)
        return (others.logsumexp(1) - scale * own).relu()

    def predictor(self) -> Predictor:
        return lambda embeddings: torch.log_softmax(self.log_scale.exp() * self.scores(embeddings), dim=-1)

    def scores(
        self,
        embeddings: Tensor,  # (B, D)
    ) -> Tensor:
        """Of the classes (B, C), from -1 to 1."""
        unit, proxies = functional.normalize(embeddings, dim=-1), functional.normalize(self.proxies, dim=-1)
        cosines = torch.einsum("bd,ckd->bck", unit, proxies)
        return (cosines.softmax(-1) * cosines).sum(-1)

    def grown(self, embeddings: Tensor, y: Tensor, n_classes: int) -> ProxyNetwork:
        """The new classes' proxies are where their rows are."""
        options = self.config
        fresh = range(self.n_classes, n_classes)
        added = _imprinted(embeddings, y, fresh, options["per_class"], options["seed"]).to(self.proxies.device)
        made = ProxyNetwork(
            copy.deepcopy(self.backbone),
            torch.cat([self.proxies.detach(), added]),
            **{name: options[name] for name in ("margin", "scale", "seed")},
        )
        made.log_scale = copy.deepcopy(self.log_scale)
        made.precision = self.precision
        return made


def _imprinted(embeddings: Tensor, y: Tensor, classes: range, per_class: int, seed: int) -> Tensor:
    """Proxies (C, K, D) of classes; one with fewer rows than proxies has several proxies at a row."""
    rows, labels = functional.normalize(embeddings.detach().float().cpu(), dim=-1), y.cpu()
    check_every_class(labels, classes)
    found = []
    for label in classes:
        own = rows[labels == label]
        centres = kmeans_inducing(own, torch.zeros(len(own), dtype=torch.int64), per_class, seed)
        found.append(centres[torch.arange(per_class) % len(centres)])
    return torch.stack(found) if found else rows.new_zeros(0, per_class, rows.shape[1])

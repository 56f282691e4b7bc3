"""Deep kernel training of a class tree: GP-Tree (Achituve et al. 2021, section 5.2 and appendix B).

The tree is built once, of the classes' mean embeddings by a backbone that a softmax stage has trained. Every node is a
binary Gaussian process with one RBF kernel for all, on embeddings of unit length, and the inducing points of the
classes below it. A step of training takes a batch of rows:

1. the Gaussians over the inducing values of the nodes that the batch touches make a natural-gradient step;
2. the loss is minus their evidence bounds, each divided by how many rows are below the node, summed over the nodes:
   along its gradient move the network, the kernel and, if they are learnt, the inducing points.

The Gaussians are buffers: checkpoints hold them, and no gradient reaches them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.deep.base import DeepClassifier, Predictor, check_every_class
from sureshot.gaussian.prior import Queries
from sureshot.inference.natural_gradient import NaturalGradientState
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.ranges import check_positive
from sureshot.tree import ClassTree, build_tree, class_prototypes
from sureshot.tree.node_inducing import InducingNodes, NodeInducing, rows_below
from sureshot.tree.posterior import TreePosterior
from sureshot.tree.problems import NodeSettings


class TreeNetwork(DeepClassifier):
    """A class tree on a backbone; `of_embeddings` builds one from rows."""

    name = "class_tree"
    one_process = "every step moves the Gaussians of the nodes by all rows of its batch"

    def __init__(
        self,
        backbone: Backbone,
        tree: ClassTree,
        inducing: Tensor,  # (R, D), in the space of embeddings
        inducing_labels: Tensor,  # (R,) int64, every class at least once
        class_sizes: Tensor,  # (C,) int64, rows of each class that are trained on
        *,
        lengthscale: float = 1.0,  # where it starts; so the next
        output_scale: float = 4.0,
        learn_inducing: bool = True,  # along the gradient, as in the paper's algorithm 1; else they stay
        step_size: float = 0.05,  # of natural gradients, in (0, 1]
    ) -> None:
        if not 0 < step_size <= 1:
            raise ValueError(f"step_size must be above 0 and at most 1, got {step_size}")
        if len(class_sizes) != tree.n_classes or int(class_sizes.min()) < 1:
            raise ValueError(
                f"class_sizes must be {tree.n_classes} numbers of rows, one or more, got {class_sizes.tolist()}"
            )
        options = {
            "tree": tree.to_dict(),
            "inducing_labels": inducing_labels.tolist(),
            "class_sizes": class_sizes.tolist(),
            "lengthscale": lengthscale,
            "output_scale": output_scale,
            "learn_inducing": learn_inducing,
            "step_size": step_size,
        }
        check_positive(lengthscale=lengthscale, output_scale=output_scale)
        super().__init__(backbone, tree.n_classes, options)
        self.tree, self.step_size, self.learn_inducing = tree, step_size, learn_inducing
        # In float64: the kernel matrix of points that training draws together is not safe in float32.
        self.log_lengthscale = nn.Parameter(torch.tensor(math.log(lengthscale), dtype=torch.float64))
        self.log_output_scale = nn.Parameter(torch.tensor(math.log(output_scale), dtype=torch.float64))
        points = functional.normalize(inducing.detach().double(), dim=-1)
        if learn_inducing:
            self.inducing: Tensor = nn.Parameter(points)
        else:
            self.register_buffer("inducing", points)
        self._inducing_labels, self._class_sizes = inducing_labels, class_sizes
        self._placed: tuple[torch.device, InducingNodes, Tensor] | None = None
        for number, state in enumerate(self._nodes()[0].prior_states(torch.float64)):
            self.register_buffer(f"linear_{number}", state.linear)
            self.register_buffer(f"quadratic_{number}", state.quadratic)

    @classmethod
    def of_embeddings(
        cls,
        backbone: Backbone,
        embeddings: Tensor,  # (N, D), of the rows that will be trained on, by this backbone
        y: Tensor,  # (N,) int64, every class at least once
        n_classes: int,
        *,
        per_class: int = 40,  # inducing points; the paper has 5 where classes arrive over time
        seed: int = 0,  # of the tree's 2-means and the inducing points' k-means
        **options: Any,  # of the class, such as ``learn_inducing``
    ) -> TreeNetwork:
        """The tree of the classes' mean embeddings, and inducing points by k-means in each class.

        Everything is of embeddings of unit length; a class with fewer rows than inducing points has its rows.
        """
        rows, labels = functional.normalize(embeddings.detach().double().cpu(), dim=-1), y.cpu()
        check_every_class(labels, range(n_classes))
        sizes = torch.bincount(labels)
        tree = build_tree(class_prototypes(rows, labels, n_classes), seed)
        found = [
            kmeans_inducing(rows[labels == label], labels[labels == label], per_class, seed)
            for label in range(n_classes)
        ]
        of_points = torch.arange(n_classes).repeat_interleave(torch.tensor([len(part) for part in found]))
        return cls(backbone, tree, torch.cat(found), of_points, sizes, **options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TreeNetwork:
        backbone = backbone_from_config(config["backbone"])
        labels = torch.tensor(config["inducing_labels"], dtype=torch.int64)
        return cls(
            backbone,
            ClassTree.from_dict(config["tree"]),
            torch.ones(len(labels), backbone.n_features, dtype=torch.float32),
            labels,
            torch.tensor(config["class_sizes"], dtype=torch.int64),
            **{key: config[key] for key in ("lengthscale", "output_scale", "learn_inducing", "step_size")},
        )

    def own_parameters(self) -> list[nn.Parameter]:
        """The kernel's, and inducing points that are learnt."""
        points = [self.inducing] if isinstance(self.inducing, nn.Parameter) else []
        return [self.log_lengthscale, self.log_output_scale, *points]

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """Of every row the same, as nodes have a loss, not rows."""
        return self.embedded_loss(embeddings, y).expand(len(y))

    def embedded_loss(
        self,
        embeddings: Tensor,  # (B, D)
        y: Tensor,  # (B,) int64
    ) -> Tensor:
        """The natural-gradient step, then the loss (), at the Gaussians that it came to."""
        nodes, n_rows = self._nodes()
        kernel = _node_kernel(nodes, self.inducing, self.log_lengthscale)
        batches = nodes.batches(kernel, *kernel.covariance(embeddings), y, self._settings())
        with torch.no_grad():
            states = nodes.step(self._states(), batches, n_rows, self.step_size)
            for number, state in enumerate(states):
                getattr(self, f"linear_{number}").copy_(state.linear)
                getattr(self, f"quadratic_{number}").copy_(state.quadratic)
        return -(nodes.bounds(states, batches, n_rows) / n_rows).sum()

    def posterior(self) -> TreePosterior:
        """What the nodes know, at embeddings; frozen, without a gradient."""
        nodes, _ = self._nodes()
        with torch.no_grad():
            # Copies, which stay as they are when the module is trained on.
            states = [NaturalGradientState(*(part.clone() for part in state)) for state in self._states()]
            kernel = _node_kernel(nodes, self.inducing.clone(), self.log_lengthscale.clone())
            return nodes.posterior(states, kernel, self._settings())

    def predictor(self) -> Predictor:
        posterior = self.posterior()
        return lambda embeddings: posterior.log_probabilities(embeddings.double()).mT

    def _nodes(self) -> tuple[InducingNodes, Tensor]:
        """Which inducing points the nodes have, and how many rows (C - 1,), where the module is."""
        device = self.inducing.device
        if self._placed is None or self._placed[0] != device:
            labels, sizes = self._inducing_labels.to(device), self._class_sizes.to(device)
            every = torch.arange(self.n_classes, device=device).repeat_interleave(sizes)
            self._placed = (device, InducingNodes.of(self.tree, labels), rows_below(self.tree, every))
        return self._placed[1:]

    def _settings(self) -> NodeSettings:
        return NodeSettings.of(self.tree, self.inducing, 0.0, self.log_output_scale.exp())

    def _states(self) -> list[NaturalGradientState]:
        return [
            NaturalGradientState(getattr(self, f"linear_{number}"), getattr(self, f"quadratic_{number}"))
            for number in range(len(self._nodes()[0].buckets))
        ]


def unit_rbf(
    x: Tensor,  # (N, D)
    other: Tensor,  # (M, D)
    log_lengthscale: Tensor,  # ()
) -> Tensor:
    """The kernel without its output scale, (N, M) float64: RBF on rows of unit length.

    A row of zero, which rectifiers can give, stays zero.
    """
    a, b = (functional.normalize(rows.double(), dim=-1) for rows in (x, other))
    halves = 0.5 * (a.square().sum(-1, keepdim=True) + b.square().sum(-1)) - a @ b.mT
    return torch.exp(-halves.clamp_min(0) * torch.exp(-2 * log_lengthscale))


def _node_kernel(nodes: InducingNodes, points: Tensor, log_lengthscale: Tensor) -> NodeInducing:
    def covariance(embeddings: Tensor) -> Queries:
        cross = unit_rbf(points, embeddings, log_lengthscale)
        return Queries(cross, cross.new_ones(len(embeddings)))

    return NodeInducing.of(unit_rbf(points, points, log_lengthscale), covariance, nodes)

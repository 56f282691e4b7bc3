"""Every node of a tree by inducing points of its own: those of the classes below it.

With M inducing points for each class, a node over n classes has M n of them.

A batch of rows meets all nodes of a bucket at once; rows that are not below a node have weight zero there, and padded
inducing points have features of zero: neither changes anything, exactly.

The weights are whitened: a node's features are ``k(x, Z) L^-T`` with ``L L' = k(Z, Z)``, and its latents
``f = a + sqrt(s) phi' u`` plus what the features leave of the prior variance.

Reference: Achituve et al. 2021, whose text leaves open which inducing points a node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.approximations.exact import lifted
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.prior import Covariance, Queries
from sureshot.gaussian.ragged import Bucket, size_buckets
from sureshot.inference.natural_gradient import (
    InducingBatch,
    InducingPrior,
    NaturalGradientResult,
    NaturalGradientState,
    batch_bound,
    natural_gradient_step,
    prior_state,
)
from sureshot.likelihoods.logistic import Logistic
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.posterior import FittedBucket, TreePart, TreePosterior
from sureshot.tree.problems import NodeBucket, NodeSettings
from sureshot.tree.shared_kernel import PairedQueries, SharedKernel


@dataclass(frozen=True)
class InducingNodes:
    """Which inducing points the nodes of a tree have, every class at least one."""

    tree: ClassTree
    labels: Tensor  # (R,) int64, the class of each point
    buckets: tuple[Bucket, ...]  # of nodes; ``rows`` are numbers of inducing points

    @classmethod
    def of(cls, tree: ClassTree, labels: Tensor) -> InducingNodes:
        """The points of the classes below each node."""
        if set(labels.tolist()) != set(range(tree.n_classes)):
            raise ValueError(
                f"labels must name each of the {tree.n_classes} classes at least once, and no others: every class "
                "needs an inducing point."
            )
        below = _below(tree, labels)
        return cls(tree, labels, tuple(size_buckets([inside.nonzero().flatten() for inside in below])))

    def prior_states(self, dtype: torch.dtype) -> list[NaturalGradientState]:
        """Of the buckets' nodes, (P, 1, m), whose ``q(u)`` is the prior."""
        return [
            prior_state(InducingPrior.whitened(n, dtype, self.labels.device), torch.Size([p, 1]))
            for p, n in (bucket.rows.shape for bucket in self.buckets)
        ]

    def batches(
        self,
        kernel: NodeInducing,
        cross: Tensor,  # (R, B), the kernel between inducing points and a batch's rows
        variance: Tensor,  # (B,), the rows' prior variances
        y: Tensor,  # (B,) int64
        settings: NodeSettings,
    ) -> list[InducingBatch]:
        """What the buckets' nodes see of a batch of rows; rows not below a node have weight zero there."""
        paths = torch.tensor(self.tree.path_matrix, device=y.device)[y]  # (B, C - 1)
        found = []
        for bucket in self.buckets:
            nodes = bucket.problems
            own = kernel.bucket_queries(bucket, settings.scale[nodes], Queries(cross, variance))
            residual = (own.variance - own.cross.square().sum(-1)).clamp_min(0)
            turns = paths[:, nodes].mT
            offset = settings.mean[nodes, None, None].expand_as(residual)
            found.append(InducingBatch(own.cross, residual, offset, (turns > 0).long(), (turns != 0).to(cross.dtype)))
        return found

    def step(
        self,
        states: Sequence[NaturalGradientState],
        batches: Sequence[InducingBatch],
        n_rows: Tensor,  # (C - 1,), how many rows are below each node in all
        step_size: float,  # in (0, 1]
    ) -> list[NaturalGradientState]:
        """A natural-gradient step of the nodes that have rows of the batch below them; the others stay."""
        found = []
        for bucket, state, batch in zip(self.buckets, states, batches, strict=True):
            prior, scale, touched = self._scaled(bucket, batch, n_rows)
            new, _ = natural_gradient_step(state, prior, Logistic(), batch, scale, step_size)
            linear = torch.where(touched[:, None, None], new.linear, state.linear)
            quadratic = torch.where(touched[:, None, None, None], new.quadratic, state.quadratic)
            found.append(NaturalGradientState(linear, quadratic))
        return found

    def bounds(
        self,
        states: Sequence[NaturalGradientState],
        batches: Sequence[InducingBatch],
        n_rows: Tensor,  # (C - 1,)
    ) -> Tensor:
        """Estimates of the nodes' evidence bounds (C - 1,), differentiable in the batches.

        Zero for a node without rows in the batch.
        """
        bound = n_rows.new_zeros(self.tree.n_nodes, dtype=batches[0].projection.dtype)
        for bucket, state, batch in zip(self.buckets, states, batches, strict=True):
            prior, scale, touched = self._scaled(bucket, batch, n_rows)
            own = batch_bound(state, prior, Logistic(), batch, scale)
            bound = bound.index_copy(0, bucket.problems, torch.where(touched, own, 0))
        return bound

    def posterior(
        self, states: Sequence[NaturalGradientState], kernel: NodeInducing, settings: NodeSettings
    ) -> TreePosterior:
        """What the nodes know; its queries are the kernel's."""
        places = torch.tensor(self.tree.positions, device=self.labels.device)[self.labels]
        middle = torch.tensor(self.tree.spans.middle, device=self.labels.device)
        fitted = []
        for bucket, state in zip(self.buckets, states, strict=True):
            nodes = bucket.problems
            mean, scale = settings.mean[nodes], settings.scale[nodes]
            sides = (bucket.values(places) >= middle[nodes].unsqueeze(-1)).long()
            problems = NodeBucket(nodes, bucket, sides, bucket.present.to(mean), mean, scale)
            nothing = mean.new_zeros(len(nodes))
            result = NaturalGradientResult(
                mean[:, None, None], state.mean(), state.factor(), state, nothing.unsqueeze(0), nothing
            )
            fitted.append(FittedBucket(problems, result))
        return TreePosterior(self.tree, (TreePart(0, kernel, settings, tuple(fitted)),))

    def _scaled(self, bucket: Bucket, batch: InducingBatch, n_rows: Tensor) -> tuple[InducingPrior, Tensor, Tensor]:
        """The weights' prior, N / |B| of each node, and whether it has rows in the batch."""
        assert batch.weight is not None
        here = batch.weight.sum(-1)
        scale = n_rows[bucket.problems] / here.clamp_min(1)
        like = batch.projection
        prior = InducingPrior.whitened(like.shape[-1], like.dtype, like.device)
        return prior, scale.to(like.dtype), here > 0


@dataclass(frozen=True)
class NodeInducing(SharedKernel):
    """A kernel of which every node knows its inducing points."""

    gram: Tensor  # (R, R), of the inducing points
    covariance: Covariance
    """Of query inputs: the kernel between inducing points and queries (R, Q), and prior variances (Q,)."""
    factors: dict[int, Tensor]  # by the number of a bucket's first node, (P, m, m)

    @classmethod
    def of(cls, gram: Tensor, covariance: Covariance, nodes: InducingNodes) -> NodeInducing:
        """With the factors of all buckets."""
        return cls(gram, covariance, {_key(bucket): _factor(gram, bucket) for bucket in nodes.buckets})

    @property
    def values(self) -> Tensor:
        return self.gram

    @property
    def rank(self) -> None:
        """Buckets are cut by the number of points."""
        return None

    def prior(self, bucket: Bucket, mean: Tensor, scale: Tensor) -> FeaturePrior:
        """Of the latents at the inducing points themselves."""
        factor = self.factors[_key(bucket)] * scale[:, None, None].sqrt()
        return FeaturePrior(factor.unsqueeze(1), mean[:, None, None])

    def bucket_queries(self, bucket: Bucket, scale: Tensor, queries: Queries) -> Queries:
        """The nodes' features of queries (P, 1, q, m), and prior variances."""
        return _whitened(self.factors[_key(bucket)], bucket, scale, queries.cross[bucket.rows], queries.variance)

    def paired(self, x: Tensor) -> PairedQueries:
        """The factors of the nodes asked are made again."""
        cross, variance = self.queries(x)

        def of(bucket: Bucket, scale: Tensor, which: Tensor) -> Queries:
            own = cross[bucket.rows.unsqueeze(-1), which.unsqueeze(-2)]
            return _whitened(_factor(self.gram, bucket), bucket, scale, own, variance[which].unsqueeze(1))

        return PairedQueries(variance, of)


def rows_below(tree: ClassTree, y: Tensor) -> Tensor:
    """How many rows are below each node, (C - 1,) int64, for labels (N,)."""
    counts = torch.bincount(y, minlength=tree.n_classes)
    # CUDA has no product of matrices of whole numbers.
    return (_below(tree, torch.arange(tree.n_classes, device=y.device)) * counts).sum(-1)


def _below(tree: ClassTree, labels: Tensor) -> Tensor:
    """Whether each label is below each node, (C - 1, N)."""
    return torch.tensor(tree.path_matrix, device=labels.device)[labels].mT != 0


def _whitened(factor: Tensor, bucket: Bucket, scale: Tensor, cross: Tensor, variance: Tensor) -> Queries:
    """Features of queries from the kernel (P, m, q) between them and the nodes' points, and their prior variances."""
    features = torch.linalg.solve_triangular(factor, cross * bucket.present.unsqueeze(-1), upper=False).mT
    size = scale[:, None, None]
    return Queries((features * size.sqrt()).unsqueeze(1), size * variance)


def _key(bucket: Bucket) -> int:
    return int(bucket.problems[0])


def _factor(gram: Tensor, bucket: Bucket) -> Tensor:
    """Lower Cholesky factors (P, m, m) of the kernel at the nodes' points; ones for padding."""
    both = bucket.present.unsqueeze(-1) & bucket.present.unsqueeze(-2)
    eye = torch.eye(both.shape[-1], dtype=gram.dtype, device=gram.device)
    of_points = torch.where(both, bucket.gram(gram).squeeze(1), 0)
    return torch.linalg.cholesky(torch.where(both, lifted(of_points), eye))

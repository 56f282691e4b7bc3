"""One Gaussian process given labelled rows: features, and a posterior of their weights. It knows no classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.inducing import Inducing
from sureshot.estimators.gp.weight_space import LazyWeightSpace, WeightSpace
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs
from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.gaussian.prior import Queries
from sureshot.gaussian.recomputed import WeightPosterior
from sureshot.kernels import Expression, Scale
from sureshot.kernels.dense import as_expression


@dataclass(frozen=True)
class GaussianProcess:
    """Answers about rows (Q, D) as they are kept, or about rows of kernel values if these are precomputed."""

    scaling: Scaling | None  # of columns; None: kernel values are precomputed
    approximation: Finite  # what means are linear in
    coefficients: Tensor  # (S, L, R or M), of the means
    prior_mean: Tensor  # (L,)
    space: WeightSpace | LazyWeightSpace

    @property
    def posterior(self) -> Posterior:
        """Of the weights, as variances need it."""
        return self.space.posterior

    @property
    def kernel(self) -> Expression:
        """The kernel as a value, with the learned scales."""
        with torch.no_grad():
            return as_expression(self.approximation.kernel)

    @torch.no_grad()
    def values(self, rows: Tensor) -> Queries:
        """(1, Q, R or M), and prior variances (1, Q)."""
        inputs, kernel = kernel_inputs(rows.numpy(), self.scaling, self.coefficients.device), self.approximation.kernel
        if self.scaling is not None:
            return Queries(*(part.unsqueeze(0) for part in self.approximation.values(inputs)))
        assert isinstance(kernel, Scale)
        assert isinstance(self.approximation, Inducing)
        columns = self.approximation.inputs[:, 0].to(torch.int64)  # merging rows reordered them
        variance = kernel.diagonal(self.approximation.inputs).mean()  # the queries' own are unknown
        return Queries((inputs[:, columns] * kernel.outputscale)[None], variance.expand(1, len(inputs)))

    def means(self, values: Queries) -> Tensor:
        """Posterior means (S, L, Q)."""
        return self.prior_mean[:, None] + self.coefficients @ values.cross[0].mT

    def queries(self, values: Queries) -> Queries:
        """What the posterior is asked by: features (1, Q, R) and prior variances (1, Q)."""
        if self.approximation.projection is None:
            return values
        features = values.cross @ self.approximation.projection
        if self.scaling is not None:
            return Queries(features, values.variance)
        # A mean stands in for the unknown diagonal, where the features do not explain more.
        return Queries(features, features.square().sum(-1).maximum(values.variance))

    def moments(self, values: Queries) -> LatentMoments:
        """Means (S, L, Q), and variances of that shape or covariances (S, Q, L, L)."""
        return LatentMoments(self.means(values), self.posterior.query(*self.queries(values)).spread)

    def marginals(self, values: Queries) -> tuple[Tensor, Tensor]:
        """Means and variances (L, Q) of the mixture of chains."""
        means = self.means(values)
        variance = self.posterior.query_variance(*self.queries(values)).mean(0) + means.var(0, correction=0)
        return means.mean(0), variance

    @torch.no_grad()
    def covariance(self, rows: Tensor) -> Tensor:
        """Of latents of rows (Q, D) by the posterior of one chain and one latent, (Q, Q)."""
        inputs = kernel_inputs(rows.numpy(), self.scaling, self.coefficients.device)
        features = self.approximation.features(inputs)
        assert isinstance(self.posterior, WeightPosterior)
        inside = torch.linalg.solve_triangular(self.posterior.factor(0, 0), features.mT, upper=False)
        return self.approximation.covariance(inputs) - features @ features.mT + inside.mT @ inside

"""The exact Gaussian process with the kernel and the noise that made each task: the most that can be known of it.

Not learnt, and only for functions that were drawn from a Gaussian process (`sureshot.meta.functions.gaussian`). In
double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.prior import Queries
from sureshot.inference.least_squares import regression_sites
from sureshot.meta.functions.gaussian import GaussianFunctions, true_covariance
from sureshot.meta.functions.source import FunctionSource
from sureshot.meta.learners.functions import Context, FunctionPosterior, Moments
from sureshot.meta.tasks import Tasks


@dataclass(frozen=True)
class ExactProcess:
    """See the module."""

    noise: float  # standard deviation

    @classmethod
    def of(cls, source: FunctionSource) -> ExactProcess:
        """That of a source; a ValueError for one without true kernels."""
        if not isinstance(source, GaussianFunctions):
            raise ValueError(f"{type(source).__name__} are not drawn from Gaussian processes: there is no true kernel")
        return cls(source.noise)

    def adapt(self, tasks: Tasks) -> FunctionPosterior:
        """The posterior given the support sets."""
        origin, (x, y, mask) = tasks.origin, Context.of(tasks.support)
        if origin is None:
            raise ValueError("these tasks do not say what they were drawn from (Tasks.origin)")
        context = Context(x.double(), y.double(), mask)
        posterior = conditioned(true_covariance(origin, context.x)[None, :, None], context, self.noise**2)

        def answer(query: Tensor) -> Moments:
            cross = true_covariance(origin, context.x, query.double())[None, :, None]
            return observed(posterior, Queries(cross, cross.new_ones(())), self.noise**2)  # kernels have variance 1

        return FunctionPosterior(mask.sum(1), x.shape[-1], answer)


def conditioned(gram: Tensor, context: Context, noise: float | Tensor) -> GramPosterior:
    """The posterior of K latents that share each of M kernels, (M, T, 1, S, S); `noise` is a variance."""
    sites = regression_sites(context.y.mT, context.mask, noise)
    return GramPrior(gram, gram.new_zeros(())).condition(sites)


def observed(posterior: GramPosterior, queries: Queries, noise: float | Tensor) -> Moments:
    """Moments of noisy targets, (M, T, Q, K)."""
    mean, variance = posterior.query(*queries)
    return Moments(mean.mT, (variance + noise).sqrt().mT)

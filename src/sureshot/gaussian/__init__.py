"""Gaussian latents under Gaussian sites: priors, posteriors, evidence; nothing here knows a likelihood.

``prior.condition(sites)`` is a posterior and ``posterior.query(*prior.queries(x))`` are its moments at queries, for one
table, a batch of tasks, and, by `size_buckets`, hundreds of problems of different sizes.
"""

from sureshot.gaussian.algebra import append_to_factor
from sureshot.gaussian.features import FeaturePosterior, FeaturePrior
from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.gram_blocks import GramBlockPosterior, condition_by_blocks
from sureshot.gaussian.posterior import LatentMoments, Posterior, SitePosterior, WithPriorClasses
from sureshot.gaussian.prior import Prior, Queries
from sureshot.gaussian.ragged import Bucket, size_buckets
from sureshot.gaussian.sites import Sites

__all__ = [
    "Bucket",
    "FeaturePosterior",
    "FeaturePrior",
    "GramBlockPosterior",
    "GramPosterior",
    "GramPrior",
    "LatentMoments",
    "Posterior",
    "Prior",
    "Queries",
    "SitePosterior",
    "Sites",
    "WithPriorClasses",
    "append_to_factor",
    "condition_by_blocks",
    "size_buckets",
]

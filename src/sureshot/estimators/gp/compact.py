"""What a compact model of `GPClassifier` keeps of variances, in place of the labelled rows.

A compact model has no labelled rows. It keeps what means are linear in: nothing but coefficients for kernels with
explicit features, inducing inputs for the others, which are the rows as the kernel sees them where the model is exact.
Variances need one block for each class. Where the predictive rule reads them they are kept, whatever their size;
otherwise they are if those of all members fit into `MOST_BYTES`, and `predict_latent` and `uncertainty` then work.
"""

from __future__ import annotations

from collections.abc import Sequence

from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.weight_space import Known, Nothing, WeightSpace
from sureshot.gaussian.posterior import WithPriorClasses
from sureshot.gaussian.recomputed import WeightPosterior
from sureshot.gaussian.reduced import ReducedPosterior, blocks_of, reduction_of
from sureshot.persistence import ArtifactError

MOST_BYTES = 4_000_000


def compact_spaces(members: Sequence[Member]) -> list[WeightSpace]:
    """Of each member its weight space without rows."""
    fits = sum(_bytes(member) for member in members) <= MOST_BYTES
    return [_space(member) if fits or member.plan.rule != "plug_in" else Nothing() for member in members]


def _space(member: Member) -> Known:
    reduction = reduction_of(member.posterior, member.space.projection)
    if reduction is None:
        raise ArtifactError(
            "a model with likelihood='one_vs_each' and inference='gibbs' cannot be saved compact: labelled rows "
            "couple its classes. Leave compact out, or fit with inference='mean_field'."
        )
    return Known(None, ReducedPosterior(member.coefficients, member.prior_mean, reduction))


def _bytes(member: Member) -> float:
    """At most, of a member's variances; infinite where there is no compact form of them."""
    posterior = member.posterior
    inner = posterior.inner if isinstance(posterior, WithPriorClasses) else posterior
    if not isinstance(inner, WeightPosterior):
        return float("inf")
    return 8.0 * blocks_of(posterior) * member.coefficients.shape[-1] * inner.weights.shape[-1]

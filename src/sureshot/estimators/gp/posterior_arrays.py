"""Posteriors as named arrays and back, for model files.

What follows from the labelled rows is not among the arrays: the features of these rows, and where precisions are those
of least squares or of a softmax, the weights of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from sureshot.computing.threads import one_thread
from sureshot.gaussian.posterior import Posterior, WithPriorClasses
from sureshot.gaussian.recomputed import FactorWeightPosterior, SiteWeightPosterior, SoftmaxWeightPosterior
from sureshot.inference.one_vs_each.posterior import OneVsEachWeightPosterior, restore_chains

_WITH_PRIOR = "_with_prior"
"""Follows the kind of a posterior that classes without rows have joined."""

IN_ONE_BASIS = "factor"
"""The kind whose arrays mean something in one basis of the features only, which has to be kept with them."""


class Packed(NamedTuple):
    """A posterior taken apart."""

    kind: str
    weights: Tensor  # (S, C, R), means; zero for classes without rows
    arrays: dict[str, Tensor]  # what else `build_posterior` needs but the features


def pack_posterior(posterior: Posterior) -> Packed:
    """The kind of a posterior and the arrays that hold it."""
    if isinstance(posterior, WithPriorClasses):
        kind, inner, arrays = pack_posterior(posterior.inner)
        weights = inner.new_zeros(len(inner), len(posterior.prior_mean), inner.shape[-1])
        own = {"prior_mean": posterior.prior_mean, "present": posterior.present}
        return Packed(kind + _WITH_PRIOR, weights.index_copy(1, posterior.present, inner), arrays | own)
    assert isinstance(
        posterior, SiteWeightPosterior | SoftmaxWeightPosterior | FactorWeightPosterior | OneVsEachWeightPosterior
    )
    mean = {"prior_mean": posterior.prior_mean}
    if isinstance(posterior, SiteWeightPosterior):
        return Packed("site", posterior.weights, mean | {"precision": posterior.precision})
    if isinstance(posterior, SoftmaxWeightPosterior):
        scale = posterior.features.new_tensor([posterior.temperature])
        own = {"row_weight": posterior.row_weight, "likelihood_temperature": scale}
        return Packed("softmax", posterior.weights, mean | own)
    if isinstance(posterior, FactorWeightPosterior):
        return Packed(IN_ONE_BASIS, posterior.weights, mean | {"factors": posterior.factors})
    own = {"omega": posterior.result.last, "labels": posterior.y, "row_weight": posterior.row_weight}
    return Packed("one_vs_each", posterior.weights, mean | own)


def build_posterior(kind: str, features: Tensor, weights: Tensor, arrays: Mapping[str, Tensor]) -> Posterior:
    """The posterior that `pack_posterior` took apart."""
    prior_mean = arrays["prior_mean"]
    if kind.endswith(_WITH_PRIOR):
        present = arrays["present"]
        own = {**arrays, "prior_mean": prior_mean.index_select(0, present)}
        inner = build_posterior(kind.removesuffix(_WITH_PRIOR), features, weights.index_select(1, present), own)
        return WithPriorClasses(inner, present, prior_mean)
    if kind == "site":
        return SiteWeightPosterior(features, weights, prior_mean, arrays["precision"])
    if kind == "softmax":
        scale = float(arrays["likelihood_temperature"])
        return SoftmaxWeightPosterior(features, weights, prior_mean, arrays["row_weight"], scale)
    if kind == IN_ONE_BASIS:
        return FactorWeightPosterior(features, weights, prior_mean, arrays["factors"])
    y, row_weight, mean = arrays["labels"], arrays["row_weight"], float(prior_mean[0])
    with one_thread():  # as on fitting: another number of threads would round differently
        result = restore_chains(features, y, weights.shape[1], row_weight, mean, arrays["omega"])
        return OneVsEachWeightPosterior.of_chains(features, result, mean, y, row_weight)


def check_posterior(
    kind: str,
    arrays: Mapping[str, Tensor],  # `Packed.arrays`
    weights: Tensor,  # (S, C, any)
    n_rows: int,
    n_classes: int,
) -> None:
    """ValueError or KeyError for kind and arrays that do not fit together."""
    expected = {1, 2} if n_classes == 2 else {n_classes}
    if weights.ndim != 3 or weights.shape[1] not in expected:
        raise ValueError(f"weights of shape {tuple(weights.shape)} for {n_classes} classes")
    n_present = weights.shape[1]
    if arrays["prior_mean"].shape != (n_present,):
        raise ValueError(f"prior means of shape {tuple(arrays['prior_mean'].shape)}")
    if kind.endswith(_WITH_PRIOR):
        present = arrays["present"]
        if present.ndim != 1 or bool(((present < 0) | (present >= n_present)).any()):
            raise ValueError("classes that are present do not fit")
        kind, n_present = kind.removesuffix(_WITH_PRIOR), len(present)
    if kind == "site":
        shape = arrays["precision"].shape
        if shape not in ((len(weights), n_present, n_rows), (len(weights), 1, n_rows)):
            raise ValueError(f"site precisions of shape {tuple(shape)}")
    elif kind == "softmax":
        if arrays["row_weight"].shape != (n_rows,) or not float(arrays["likelihood_temperature"]) > 0:
            raise ValueError("row weights or temperature do not fit")
    elif kind == IN_ONE_BASIS:
        rank = arrays["factors"].shape[-1]
        if arrays["factors"].shape != (len(weights), n_present, rank, rank):
            raise ValueError(f"factors of shape {tuple(arrays['factors'].shape)}")
    elif kind == "one_vs_each":
        if arrays["labels"].shape != (n_rows,) or arrays["row_weight"].shape != (n_rows,):
            raise ValueError("labels do not fit the rows")
        if arrays["omega"].ndim != 4:
            raise ValueError(f"chains of shape {tuple(arrays['omega'].shape)}")
    else:
        raise ValueError(f"unknown kind {kind!r}")

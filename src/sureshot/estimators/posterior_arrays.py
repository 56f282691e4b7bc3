"""Posteriors as named arrays and back, for model files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from sureshot.estimators.layout import aligned
from sureshot.estimators.threads import one_thread
from sureshot.gaussian.posterior import Posterior, WithPriorClasses
from sureshot.gaussian.recomputed import FactorWeightPosterior, SiteWeightPosterior, SoftmaxWeightPosterior
from sureshot.inference.one_vs_each.posterior import OneVsEachWeightPosterior, restore_chains
from sureshot.persistence import ArtifactError

_WITH_PRIOR = "_with_prior"
"""Follows the kind of a posterior that classes without rows have joined."""


def pack_posterior(posterior: Posterior) -> tuple[str, dict[str, Tensor]]:
    """The kind of a posterior and the arrays that hold it."""
    if isinstance(posterior, WithPriorClasses):
        kind, inner = pack_posterior(posterior.inner)
        weights = inner["weights"]
        whole = weights.new_zeros(len(weights), len(posterior.prior_mean), weights.shape[-1])
        own = {"weights": whole.index_copy(1, posterior.present, weights), "prior_mean": posterior.prior_mean}
        return kind + _WITH_PRIOR, inner | own | {"present": posterior.present}
    assert isinstance(
        posterior, SiteWeightPosterior | SoftmaxWeightPosterior | FactorWeightPosterior | OneVsEachWeightPosterior
    )
    arrays = {"features": posterior.features, "weights": posterior.weights, "prior_mean": posterior.prior_mean}
    if isinstance(posterior, SiteWeightPosterior):
        return "site", {**arrays, "precision": posterior.precision}
    if isinstance(posterior, SoftmaxWeightPosterior):
        scale = posterior.features.new_tensor([posterior.temperature])
        return "softmax", {**arrays, "row_weight": posterior.row_weight, "likelihood_temperature": scale}
    if isinstance(posterior, FactorWeightPosterior):
        return "factor", {**arrays, "factors": posterior.factors}
    extra = {"omega": posterior.result.last, "labels": posterior.y, "row_weight": posterior.row_weight}
    return "one_vs_each", {**arrays, **extra}


def rebuilt(posterior: Posterior) -> Posterior:
    """The posterior as a model file would give it back: the one form that estimators predict from."""
    kind, tensors = pack_posterior(posterior)
    return _build(kind, {name: aligned(value) for name, value in tensors.items()})


def unpack_posterior(kind: str, arrays: Mapping[str, np.ndarray], n_rows: int, n_classes: int) -> Posterior:
    """The posterior that `pack_posterior` took apart."""
    try:
        tensors = {name: aligned(value) for name, value in arrays.items()}
        _check_shapes(tensors["features"], tensors["weights"], tensors["prior_mean"], n_rows, n_classes)
        return _build(kind, tensors)
    except (KeyError, ValueError, RuntimeError, IndexError, TypeError) as error:
        raise ArtifactError(
            f"the model file's posterior is malformed ({' '.join(str(error).split())[:160]}): save the model again."
        ) from error


def _build(kind: str, tensors: Mapping[str, Tensor]) -> Posterior:
    features, weights, prior_mean = (tensors[name] for name in ("features", "weights", "prior_mean"))
    n_rows, n_classes = len(features), weights.shape[1]
    if kind == "softmax" and "present" in tensors:  # older files have a mask of all classes
        if tensors["present"].shape != (n_classes,):
            raise ValueError("the mask does not fit the classes")
        present = tensors["present"].nonzero().squeeze(-1)
        return _build(kind + _WITH_PRIOR, {**tensors, "present": present})
    if kind.endswith(_WITH_PRIOR):
        present = tensors["present"]
        own = {name: value for name, value in tensors.items() if name != "present"}
        own |= {"weights": weights.index_select(1, present), "prior_mean": prior_mean.index_select(0, present)}
        return WithPriorClasses(_build(kind.removesuffix(_WITH_PRIOR), own), present, prior_mean)
    if kind == "site":
        precision = tensors["precision"]
        if precision.shape not in ((len(weights), n_classes, n_rows), (len(weights), 1, n_rows)):
            raise ValueError(f"site precisions of shape {tuple(precision.shape)}")
        return SiteWeightPosterior(features, weights, prior_mean, precision)
    if kind == "softmax":
        scale = float(tensors["likelihood_temperature"])
        row_weight = tensors["row_weight"]
        if row_weight.shape != (n_rows,) or not scale > 0:
            raise ValueError("row weights or temperature do not fit")
        return SoftmaxWeightPosterior(features, weights, prior_mean, row_weight, scale)
    if kind == "factor":
        factors = tensors["factors"]
        if factors.shape != (*weights.shape, weights.shape[-1]):
            raise ValueError(f"factors of shape {tuple(factors.shape)}")
        return FactorWeightPosterior(features, weights, prior_mean, factors)
    if kind != "one_vs_each":
        raise ValueError(f"unknown kind {kind!r}")
    y, row_weight, omega = tensors["labels"], tensors["row_weight"], tensors["omega"]
    mean = float(prior_mean[0])
    with one_thread():  # as on fitting: another number of threads would round differently
        result = restore_chains(features, y, n_classes, row_weight, mean, omega)
        return OneVsEachWeightPosterior.of_chains(features, result, mean, y, row_weight)


def _check_shapes(features: Tensor, weights: Tensor, prior_mean: Tensor, n_rows: int, n_classes: int) -> None:
    expected = {1, 2} if n_classes == 2 else {n_classes, 1} if n_classes == 1 else {n_classes}
    if features.ndim != 2 or weights.ndim != 3 or len(features) != n_rows:
        raise ValueError("features and weights do not fit the rows")
    if weights.shape[1] not in expected or weights.shape[2] != features.shape[1]:
        raise ValueError(f"weights of shape {tuple(weights.shape)} for {n_classes} classes")
    if prior_mean.shape != (weights.shape[1],):
        raise ValueError(f"prior means of shape {tuple(prior_mean.shape)}")

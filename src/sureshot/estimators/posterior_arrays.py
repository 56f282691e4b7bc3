"""Posteriors as named arrays and back, for model files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.layout import aligned
from sureshot.estimators.threads import one_thread
from sureshot.gaussian.posterior import Posterior, WithPriorClasses
from sureshot.gaussian.recomputed import FactorWeightPosterior, SiteWeightPosterior, SoftmaxWeightPosterior
from sureshot.inference.one_vs_each.posterior import OneVsEachWeightPosterior, restore_chains
from sureshot.persistence import ArtifactError

KINDS = ("site", "softmax", "factor", "one_vs_each", "one_vs_each_with_prior")


def pack_posterior(posterior: Posterior) -> tuple[str, dict[str, Tensor]]:
    """The kind of a posterior and the arrays that hold it."""
    if isinstance(posterior, WithPriorClasses):
        kind, inner = pack_posterior(posterior.inner)
        weights = inner["weights"]
        whole = weights.new_zeros(len(weights), len(posterior.prior_mean), weights.shape[-1])
        own = {"weights": whole.index_copy(1, posterior.present, weights), "prior_mean": posterior.prior_mean}
        return f"{kind}_with_prior", inner | own | {"present": posterior.present}
    assert isinstance(
        posterior, SiteWeightPosterior | SoftmaxWeightPosterior | FactorWeightPosterior | OneVsEachWeightPosterior
    )
    arrays = {"features": posterior.features, "weights": posterior.weights, "prior_mean": posterior.prior_mean}
    if isinstance(posterior, SiteWeightPosterior):
        return "site", {**arrays, "precision": posterior.precision}
    if isinstance(posterior, SoftmaxWeightPosterior):
        scale = posterior.features.new_tensor([posterior.temperature])
        extra = {"row_weight": posterior.row_weight, "present": posterior.present, "likelihood_temperature": scale}
        return "softmax", {**arrays, **extra}
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
    if kind == "site":
        precision = tensors["precision"]
        if precision.shape not in ((len(weights), n_classes, n_rows), (len(weights), 1, n_rows)):
            raise ValueError(f"site precisions of shape {tuple(precision.shape)}")
        return SiteWeightPosterior(features, weights, prior_mean, precision)
    if kind == "softmax":
        scale = float(tensors["likelihood_temperature"])
        row_weight, present = tensors["row_weight"], tensors["present"].to(torch.bool)
        if row_weight.shape != (n_rows,) or present.shape != (n_classes,) or not scale > 0:
            raise ValueError("row weights, classes or temperature do not fit")
        return SoftmaxWeightPosterior(features, weights, prior_mean, row_weight, present, scale)
    if kind == "factor":
        factors = tensors["factors"]
        if factors.shape != (*weights.shape, weights.shape[-1]):
            raise ValueError(f"factors of shape {tuple(factors.shape)}")
        return FactorWeightPosterior(features, weights, prior_mean, factors)
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    y, row_weight, omega = tensors["labels"], tensors["row_weight"], tensors["omega"]
    present = tensors.get("present", torch.arange(n_classes, device=features.device))
    mean = float(prior_mean[0])
    with one_thread():  # as on fitting: another number of threads would round differently
        result = restore_chains(features, y, len(present), row_weight, mean, omega)
        inner = OneVsEachWeightPosterior.of_chains(features, result, mean, y, row_weight)
    if kind == "one_vs_each":
        return inner
    return WithPriorClasses(inner, present, prior_mean)


def _check_shapes(features: Tensor, weights: Tensor, prior_mean: Tensor, n_rows: int, n_classes: int) -> None:
    expected = {1, 2} if n_classes == 2 else {n_classes, 1} if n_classes == 1 else {n_classes}
    if features.ndim != 2 or weights.ndim != 3 or len(features) != n_rows:
        raise ValueError("features and weights do not fit the rows")
    if weights.shape[1] not in expected or weights.shape[2] != features.shape[1]:
        raise ValueError(f"weights of shape {tuple(weights.shape)} for {n_classes} classes")
    if prior_mean.shape != (weights.shape[1],):
        raise ValueError(f"prior means of shape {tuple(prior_mean.shape)}")

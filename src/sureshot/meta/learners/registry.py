"""Learners by name: `make_learner` builds one, `learner_from_config` builds it again from its checkpoint.

To add a learner: a row in `presets` (Gaussian processes), or a class in a module of `sureshot.meta.baselines` that
states its ``name``, and nothing else; the contract tests run over `LEARNER_NAMES`. Those of other packages, and those
that a script has registered (`register_learner`), count like ours (`sureshot.plugins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import nn

from sureshot.data.checks import near
from sureshot.data.typed_values import check_call_options
from sureshot.kernels import KERNEL_NAMES
from sureshot.likelihoods import Likelihood, LogisticSoftmax, OneVsEach, Softmax
from sureshot.likelihoods.sites import ClassSites
from sureshot.members import members, stated_name
from sureshot.meta.baselines.base_classes import BaseClassifier
from sureshot.meta.baselines.heads import LinearHead
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.learners.gp import GaussianProcessLearner
from sureshot.meta.learners.least_squares import TaskLeastSquares
from sureshot.meta.learners.logistic_softmax_gibbs import LogisticSoftmaxGibbs
from sureshot.meta.learners.mean_field import RELEASED_SHAPES, TaskMeanField
from sureshot.meta.learners.one_vs_each_gibbs import OneVsEachGibbs
from sureshot.meta.learners.presets import (
    GP_LEARNER_NAMES,
    PRESETS,
    GaussianProcessSettings,
    gaussian_process_settings,
    settings_of,
)
from sureshot.meta.learners.task_inference import TaskInference
from sureshot.meta.learners.task_kernel import TaskKernel
from sureshot.networks.precision import Precision
from sureshot.plugins import Registry

LEARNERS: Registry[type[ClassLearner]] = Registry(
    "learner",
    dict.fromkeys(GP_LEARNER_NAMES, GaussianProcessLearner) | members(ClassLearner, "sureshot.meta.baselines"),
    stated_name,
    ClassLearner,
)

register_learner = LEARNERS.register

_PREDICTIVE_LIKELIHOODS: dict[str, Likelihood | None] = {
    "own": None,
    "softmax": Softmax(),
    "logistic_softmax": LogisticSoftmax(),
}

LEARNER_NAMES: tuple[str, ...] = tuple(LEARNERS.ours)


def learns_base_classes(name: str, preset: str = "recommended", **options: Any) -> bool:
    """Whether a learner classifies all base classes in meta-training; it then takes ``n_base_classes``.

    Raises
    ------
    ValueError
        For an unknown name, or an unknown preset or option of a Gaussian-process learner.
    """
    LEARNERS.require(name)
    if name not in GP_LEARNER_NAMES:
        return issubclass(LEARNERS[name], TransferLearner)
    return gaussian_process_settings(name, preset, **options).objective == "base_classes"


def make_learner(
    name: str,  # one of `LEARNERS`
    backbone: nn.Module,  # with ``n_features``
    *,
    preset: str = "recommended",  # see `sureshot.meta.learners.presets`, and the ``presets`` of a class
    kernel: str = "cosine",  # one of `sureshot.kernels.KERNEL_NAMES`; learners without one take the default only
    precision: Precision = "float32",  # of the backbone
    tasks_per_pass: int = 1,  # tasks that share batch normalisation in training
    **options: Any,  # for Gaussian processes those of `GaussianProcessSettings`; else the arguments of the class
) -> ClassLearner:
    """A learner by name.

    Raises
    ------
    ValueError
        For an unknown name, preset, kernel or option, or a value that an option does not take.
    """
    check_learner(name, preset, kernel, options)
    shared: dict[str, Any] = {"precision": precision, "tasks_per_pass": tasks_per_pass}
    config: dict[str, Any] = {"name": name, "preset": preset, "kernel": kernel, **shared, "options": options}
    if name not in GP_LEARNER_NAMES:
        kind: Any = LEARNERS[name]
        options = config["options"] = {**kind.presets.get(preset, {}), **options}
        check_call_options(f"learner {name!r}", kind, options, ("backbone", *shared))
        if not issubclass(kind, EmbeddingLearner):
            del shared["tasks_per_pass"]
            if tasks_per_pass != 1:
                raise ValueError(f"learner {name!r} passes every task by itself: leave tasks_per_pass at 1")
        learner = LEARNERS.make(name, backbone, **shared, **options)
        if package := LEARNERS.package(name):
            config["package"] = package
    else:
        settings = gaussian_process_settings(name, preset, **options)
        learner = _gaussian_process(backbone, kernel, settings, shared)
        config["settings"] = asdict(settings)
    learner.config = config
    return learner


def check_learner(name: str, preset: str, kernel: str, options: Mapping[str, Any]) -> None:
    """Refuse names, and options of a Gaussian process, that `make_learner` would refuse.

    Raises
    ------
    ValueError
    """
    LEARNERS.require(name)
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {preset!r}")
    if kernel not in KERNEL_NAMES:
        raise ValueError(f"unknown kernel {kernel!r}{near(kernel, KERNEL_NAMES)}")
    if name in GP_LEARNER_NAMES:
        gaussian_process_settings(name, preset, **options)
    elif kernel != "cosine":
        raise ValueError(f"learner {name!r} has no kernel, so {kernel!r} would change nothing: leave kernel out")


def learner_from_config(config: Mapping[str, Any], backbone: nn.Module) -> ClassLearner:
    """The learner that ``learner.config`` describes, with fresh parameters.

    A Gaussian process has the settings that it was made with, not those that its preset stands for now.
    """
    LEARNERS.require(config["name"], config.get("package"))
    if "settings" not in config:  # of a baseline; or of an early version, with the options beside the rest
        rest = {key: value for key, value in config.items() if key not in ("options", "package")}
        return make_learner(backbone=backbone, **rest, **config.get("options", {}))
    shared = {key: config[key] for key in ("precision", "tasks_per_pass")}
    learner = _gaussian_process(backbone, config["kernel"], settings_of(config["settings"]), shared)
    learner.config = dict(config)
    return learner


def _gaussian_process(
    backbone: nn.Module, kernel: str, settings: GaussianProcessSettings, shared: Mapping[str, Any]
) -> GaussianProcessLearner:
    n_features = backbone.n_features
    assert isinstance(n_features, int)
    training, prediction = _inference(settings)
    base_classes = None
    if settings.n_base_classes is not None:
        base_classes = BaseClassifier(LinearHead(), n_features, settings.n_base_classes)
    return GaussianProcessLearner(
        backbone,
        TaskKernel(
            kernel,
            n_features,
            outputscale=settings.outputscale,
            learn_outputscale=settings.learn_outputscale,
            constant=settings.constant,
            lengthscale=settings.lengthscale,
            n_classes=5 if settings.per_class_kernel else None,
            scale=settings.scale,
        ),
        training,
        prediction,
        objective=settings.objective,
        rule=settings.rule,
        training_rule=settings.training_rule,
        predictive_likelihood=_PREDICTIVE_LIKELIHOODS[settings.predictive_likelihood],
        prior_mean=settings.prior_mean,
        prediction_prior_mean=settings.prediction_prior_mean,
        learn_prior_mean=settings.learn_prior_mean,
        predictive_split=settings.predictive_split,
        fit_normalisation=settings.fit_normalisation,
        fit_temperature=settings.fit_temperature,
        base_classes=base_classes,
        batch_norm=settings.batch_norm,
        **shared,
    )


def _inference(settings: GaussianProcessSettings) -> tuple[TaskInference, TaskInference]:
    """The inference for training and the one for use."""
    if settings.inference == "exact":
        regression = TaskLeastSquares(settings.noise)
        return regression, regression
    if settings.inference == "mean_field":
        likelihood: ClassSites = OneVsEach(settings.normalisation)
        if settings.likelihood == "logistic_softmax":
            likelihood = LogisticSoftmax(
                settings.temperature,
                settings.augmentation,
                detach_tilting=settings.detach_tilting,
                released_bound=settings.released_bound,
            )
        in_use = TaskMeanField(likelihood, settings.n_steps_prediction, pairs_per_row=settings.pairs_per_row)
        training = TaskMeanField(
            likelihood,
            settings.n_steps,
            settings.detach_inner,
            settings.pairs_per_row,
            settings.tolerance,
            settings.warm_start,
            RELEASED_SHAPES if settings.random_shapes else None,
            settings.covariance_first,
        )
        return training, in_use
    chains: dict[str, Any] = {
        "n_chains": settings.n_chains,
        "n_sweeps_evidence": settings.n_sweeps,
        "start": settings.start,
    }
    kind: Callable[..., TaskInference] = partial(OneVsEachGibbs, likelihood=OneVsEach(settings.normalisation))
    if settings.likelihood == "logistic_softmax":
        kind = partial(LogisticSoftmaxGibbs, temperature=settings.temperature)
    return (
        kind(**chains, n_sweeps_posterior=settings.n_sweeps),
        kind(**chains, n_sweeps_posterior=settings.n_sweeps_prediction),
    )

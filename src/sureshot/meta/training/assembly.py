"""From settings to a learner with initial weights, and the learning rates that will change them."""

from __future__ import annotations

from typing import Any

from sureshot.data.labelled import LabelledSet
from sureshot.meta.learners.base import ClassLearner, Learner
from sureshot.meta.learners.registry import check_learner, learns_base_classes, make_learner
from sureshot.meta.training.config import TrainingConfig
from sureshot.meta.training.task_training import groups_by_rate
from sureshot.networks.backbones import check_backbone, draws_weights, make_backbone


def check_names(config: TrainingConfig) -> None:
    """Refuse learners, kernels, backbones and options that do not exist, before any data are read (`ValueError`)."""
    settings = config.learner
    check_learner(settings.name, settings.preset, settings.kernel, settings.options)
    check_backbone(config.backbone.name, config.backbone.options)


def build_learner(config: TrainingConfig, data: LabelledSet) -> ClassLearner:
    """The learner that the settings describe, for inputs like those of a labelled set, with initial weights."""
    seed = {"seed": config.training.seed} if draws_weights(config.backbone.name) else {}
    backbone = make_backbone(config.backbone.name, tuple(data.x.shape[1:]), **(seed | config.backbone.options))
    settings = config.learner
    options = dict(settings.options)
    if learns_base_classes(settings.name, settings.preset, **options):
        options.setdefault("n_base_classes", data.n_classes)
    return make_learner(
        settings.name,
        backbone,
        preset=settings.preset,
        kernel=settings.kernel,
        precision=settings.precision,
        tasks_per_pass=settings.tasks_per_pass,
        **options,
    )


def parameter_groups(learner: Learner, config: TrainingConfig) -> list[dict[str, Any]]:
    """One learning rate for the learner's network and one for everything else."""
    groups = groups_by_rate(learner, learner.network, config.training)
    if not any(group["params"] for group in groups):
        raise ValueError(
            f"learner {config.learner.name!r} with backbone {config.backbone.name!r} has no parameters to learn: "
            "choose another backbone, or use it without meta-training"
        )
    return groups

"""From settings to a learner with initial weights."""

from __future__ import annotations

from sureshot.data.labelled import LabelledSet
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.learners.registry import check_learner, learns_base_classes, make_learner
from sureshot.meta.training.config import TrainingConfig
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

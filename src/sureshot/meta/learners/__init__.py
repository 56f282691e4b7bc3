"""Few-shot learners under one contract, `Learner`; those that adapt to embeddings are `EmbeddingLearner`."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.meta.learners.base import ClassLearner, Latents, Learner, TaskPosterior
    from sureshot.meta.learners.embedding import EmbeddedPosterior, EmbeddingLearner
    from sureshot.meta.learners.gp import GaussianProcessLearner
    from sureshot.meta.learners.presets import GP_LEARNER_NAMES, PRESETS, GaussianProcessSettings
    from sureshot.meta.learners.registry import LEARNER_NAMES, learner_from_config, make_learner, register_learner
    from sureshot.meta.learners.task_kernel import TaskKernel

__all__ = [
    "GP_LEARNER_NAMES",
    "LEARNER_NAMES",
    "PRESETS",
    "ClassLearner",
    "EmbeddedPosterior",
    "EmbeddingLearner",
    "GaussianProcessLearner",
    "GaussianProcessSettings",
    "Latents",
    "Learner",
    "TaskKernel",
    "TaskPosterior",
    "learner_from_config",
    "make_learner",
    "register_learner",
]

__getattr__ = imported_when_asked_for(__name__)

"""What `FewShotClassifier` has learnt with a checkpoint: its learner, given the labelled rows.

These are embeddings of the learner's backbone, or the rows as they are if tasks change the backbone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_fitted import ClassFitted, left_out_by_folds
from sureshot.estimators.few_shot.predictors import ConditionedLearner, GaussianPredictor, condition_on, input_shape
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.encoder import Encoder
from sureshot.estimators.rows.support import Support
from sureshot.meta.learners import ClassLearner, EmbeddingLearner


@dataclass(frozen=True)
class LearnerEncoder(Encoder):
    """What a meta-trained learner is conditioned on."""

    learner: ClassLearner  # in evaluation mode and double precision

    @property
    def shape(self) -> tuple[int, ...]:
        return input_shape(self.learner)

    @property
    def device(self) -> torch.device:
        return self.learner.device

    def embed(self, rows: Tensor) -> Tensor:
        if isinstance(self.learner, EmbeddingLearner):
            return self.learner.embed(rows.unsqueeze(0)).squeeze(0)
        return rows.flatten(1)

    @property
    def exact(self) -> bool:
        return not isinstance(self.learner, EmbeddingLearner)


@dataclass(frozen=True)
class FewShotFitted(ClassFitted):
    """What a `FewShotClassifier` has learnt with a checkpoint."""

    reader: LearnerEncoder
    predictor: ConditionedLearner
    seed: int  # for learners that sample

    @property
    def learner(self) -> ClassLearner:
        """The checkpoint's, in double precision."""
        return self.reader.learner

    @property
    def device(self) -> torch.device:
        """Where the learner is."""
        return self.learner.device

    @property
    def entries_without(self) -> int:
        predictor = self.predictor
        return predictor.entries_without if isinstance(predictor, GaussianPredictor) else super().entries_without

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        if not isinstance(self.predictor, GaussianPredictor):
            return super().probabilities_without(queries, place, share)
        return self.predictor.probabilities_without(
            queries, place.to(self.device), share.to(self.device), self.temperature
        )

    def outlier_scores_left_out(self) -> Tensor:
        """In closed form for Gaussian processes, by folds for other learners."""
        found = self.predictor.outlier_scores_left_out(aligned(self.rows.left_out_shares, self.device))
        return self._left_out[1] if found is None else found[self.places_left_out]

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        """By folds, as mean field makes sites of means that have seen labels."""
        support = Support.of(self.rows, len(self.classes), None, self.device)

        def without(stays: Tensor, weight: Tensor) -> ConditionedLearner:
            part = replace(support.part(stays.to(self.device)), weight=weight.to(self.device))
            return condition_on(self.learner, part, self.seed)

        with threads_for(len(support.y)):
            p, scores = left_out_by_folds(self.rows, without, self.temperature)
        return p[self.places_left_out], scores[self.places_left_out]


def condition_rows(training: TrainingSet, reader: LearnerEncoder, seed: int) -> FewShotFitted:
    """Condition the reader's learner on labelled rows."""
    learner = reader.learner
    support = Support.of(training.rows, len(training.classes), None, learner.device)
    with threads_for(len(support.y)):
        predictor = condition_on(learner, support, seed)
    return FewShotFitted(
        classes=training.classes,
        columns=training.columns,
        reader=reader,
        rows=training.rows,
        temperature=1.0,
        calibrated=False,
        log_evidence=predictor.log_evidence,
        predictor=predictor,
        seed=seed,
    )

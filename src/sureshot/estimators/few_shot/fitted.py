"""What `FewShotClassifier` has learnt with a checkpoint: its learner, given embeddings of the labelled rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.computing.layout import aligned
from sureshot.computing.threads import threads_for
from sureshot.estimators.few_shot.inputs import device_of
from sureshot.estimators.few_shot.predictors import ConditionedLearner, GaussianPredictor, condition_on
from sureshot.estimators.fitted import Fitted, TrainingSet
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.estimators.rows.support import Support
from sureshot.meta.learners import EmbeddingLearner


@dataclass(frozen=True)
class FewShotFitted(Fitted):
    """See `Fitted`."""

    learner: EmbeddingLearner  # the checkpoint's, in double precision
    conditioned: ConditionedLearner
    seed: int  # for learners that sample

    @property
    def device(self) -> torch.device:
        """Where the learner is."""
        return device_of(self.learner)

    @property
    def queries_at_once(self) -> int:
        return 2 * AT_ONCE // self.conditioned.entries_per_query

    def inputs(self, kept: np.ndarray) -> Tensor:
        return kernel_inputs(kept, None, self.device)

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        return self.conditioned.moments(queries)

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        return self.conditioned.probabilities(moments, temperature)

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        return self.conditioned.latents(queries)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """See `Predictor.outlier_scores`.

        For Gaussian processes the squared distance to the nearest class mean in the kernel's feature space, for other
        learners minus the largest score.
        """
        return self.conditioned.outlier_scores(queries)

    @property
    def entries_without(self) -> int:
        """See `Fitted.entries_without`."""
        conditioned = self.conditioned
        return conditioned.entries_without if isinstance(conditioned, GaussianPredictor) else super().entries_without

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        """See `Fitted.probabilities_without`."""
        if not isinstance(self.conditioned, GaussianPredictor):
            return super().probabilities_without(queries, place, share)
        return self.conditioned.probabilities_without(
            queries, place.to(self.device), share.to(self.device), self.temperature
        )

    def outlier_scores_left_out(self) -> Tensor:
        """See `Fitted.outlier_scores_left_out`: in closed form for Gaussian processes, by folds for other learners."""
        found = self.conditioned.outlier_scores_left_out(aligned(self.rows.left_out_shares, self.device))
        return self._by_folds(lambda without, queries: without.outlier_scores(queries)) if found is None else found

    def probabilities_left_out(self) -> Tensor:
        """See `Fitted.probabilities_left_out`: by folds, as mean field makes sites of means that have seen labels."""

        def said(without: ConditionedLearner, queries: Tensor) -> Tensor:
            return without.probabilities(without.moments(queries), self.temperature)

        return self._by_folds(said)

    def _by_folds(self, said: Callable[[ConditionedLearner, Tensor], Tensor]) -> Tensor:
        support = Support.of(self.rows, len(self.classes), None, self.device)

        def of_fold(stays: Tensor, weight: Tensor, fold: Tensor) -> Tensor:
            part = replace(support.part(stays), weight=weight)
            return said(condition_on(self.learner, part, self.seed), support.x[fold])

        with threads_for(len(support.y)):
            return by_folds(support.y, support.weight, support.left_out, of_fold)

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        return self.conditioned.entropies(queries, temperature)


def condition_rows(training: TrainingSet, learner: EmbeddingLearner, seed: int) -> FewShotFitted:
    """Condition a learner on labelled rows, as embeddings of its backbone."""
    support = Support.of(training.rows, len(training.classes), None, device_of(learner))
    with threads_for(len(support.y)):
        conditioned = condition_on(learner, support, seed)
    return FewShotFitted(
        classes=training.classes,
        columns=training.columns,
        reader=training.reader,
        rows=training.rows,
        temperature=1.0,
        calibrated=False,
        log_evidence=conditioned.log_evidence,
        learner=learner,
        conditioned=conditioned,
        seed=seed,
    )

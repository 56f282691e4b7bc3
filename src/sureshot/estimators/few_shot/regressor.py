"""`FewShotRegressor`: a meta-trained learner of functions as a scikit-learn estimator.

What a few numbers cannot tell, how smooth a function is and how far its values reach, comes from other functions, by a
checkpoint of `sureshot meta-train`: `fit` gives its learner the labelled rows for a context and tunes nothing.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import RandomState
from sureshot.estimators.devices import device_for
from sureshot.estimators.few_shot.format import FEW_SHOT_NUMBERS_FORMAT
from sureshot.estimators.few_shot.number_fitted import FewShotNumbersFitted, FunctionInputs, condition_numbers
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.numbers.number_fitted import NumberFitted
from sureshot.estimators.numbers.regressor_base import IncrementalRegressor
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.meta.training.checkpoint import load_checkpoint
from sureshot.warned import warn


@undisturbed
class FewShotRegressor(IncrementalRegressor):
    """Regression from a few rows by a meta-trained learner.

    Parameters
    ----------
    checkpoint : path
        A file that `sureshot meta-train` wrote of a learner of numbers, or the folder of its run.
    random_state : int, RandomState or None, default=None
        For other tools: draws of a learner that samples have a fixed seed.
    device : str, default="auto"
        A torch device for `fit`. "auto" takes CUDA if there is one, from 2000 rows on. Updates and predictions stay
        there.
    verbose : bool, default=False
        Report progress and the remaining time on standard error, every ten seconds.

    Attributes
    ----------
    learner_ : RegressionLearner
        The checkpoint's learner, in double precision.
    leave_one_out_score_ : float
        Mean log density of labelled rows, each left out, in nats.
    row_ids_ : ndarray (K,)
        Ids of the rows that have one, sorted.
    encoder_, reading_, n_features_in_, feature_names_in_
        As for `FewShotClassifier`.

    Notes
    -----
    X and y are in the units of the functions that the learner was trained on; of one that was trained on the groups of
    a table, in those of the table, whose columns a DataFrame has by name, in any order; text, dates and gaps are taken
    as they were there. Answers are what the learner says; sets of rows are taken as they are, a row of weight 2 as two
    rows. Intervals are conformal, from rows left out one at a time (where each takes a context of its own, of many rows
    20). Beyond the range of the training's inputs most learners know nothing. Before `fit` predictions are the prior,
    what the learner says of any function, with a warning.

    Examples
    --------
    >>> model = FewShotRegressor("runs/functions").fit(X, y)  # doctest: +SKIP
    >>> model.predict(X_new, return_std=True)  # doctest: +SKIP
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        random_state: RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    learner_ = FittedAttribute("learner")

    _formats = (FEW_SHOT_NUMBERS_FORMAT,)

    def _reader(self) -> FunctionInputs:
        if not isinstance(self.checkpoint, str | os.PathLike):
            raise TypeError(
                f"checkpoint must be the path of a learner of numbers that `sureshot meta-train` wrote; got "
                f"{self.checkpoint!r}. Without one use GPRegressor."
            )
        found = load_checkpoint(self.checkpoint)
        learner = found.build_process().double().requires_grad_(False)
        return FunctionInputs.of(learner, found.artifact.header.get("units"), found.encoder)

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, row_id: Any) -> TrainingSet:
        if np.size(y) == 0:
            raise ValueError("y has no number: pass one row at least. Before fit predictions are the prior.")
        return super()._first_rows(X, y, sample_weight, row_id)

    def _answering(self, X: Any) -> NumberFitted:
        """The learner without context, where there are no rows yet."""
        if self.__sklearn_is_fitted__():
            return super()._answering(X)
        reader = self._reader()
        _, columns = reader.check(type(self).__name__, X, None)
        n_targets = reader.learner.target_width
        nothing = LabelledRows(np.zeros((0, *reader.shape)), np.zeros((0, n_targets)), np.zeros(0))
        warn("no row has been learnt, so answers are the prior: what the checkpoint's learner says of any function")
        training = TrainingSet(reader, columns, np.empty(0), nothing, None, one_target=n_targets == 1)
        return condition_numbers(training, reader)

    def _learn(self, training: TrainingSet, known: FewShotNumbersFitted | None, seed: int) -> FewShotNumbersFitted:
        reader, wanted = training.reader, training.rows.y.shape[1]
        assert isinstance(reader, FunctionInputs)
        if reader.learner.target_width != wanted:
            raise ValueError(
                f"the checkpoint's learner answers with {reader.learner.target_width} numbers a row, but y has {wanted}"
            )
        if known is None:
            reader.learner.to(device_for(self.device, len(training.rows.y)))
        return condition_numbers(training, reader)

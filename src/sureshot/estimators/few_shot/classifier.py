"""`FewShotClassifier`: a few-shot learner, meta-trained or not, as a scikit-learn estimator.

What a few labels cannot tell, how far to trust a distance and how sure to be, comes from other classes, by a checkpoint
of `sureshot meta-train`: `fit` conditions its learner on the labelled rows and tunes nothing. Without one it is what
`GPClassifier` makes of a few labels, all settings chosen from them, or, with one label for each class, the usual ones.

A checkpoint's backbone turns inputs into embeddings, in double precision like everything after it. A network adds up in
another order when the batch has another size; embeddings are kept in single precision, whose rounding hides that: a row
has one embedding in any batch. The labelled rows are kept as they came without a checkpoint, as embeddings with one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import ByLabel, RandomState
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.few_shot.fitted import FewShotFitted, condition_rows
from sureshot.estimators.few_shot.format import FEW_SHOT_FORMATS
from sureshot.estimators.few_shot.inputs import Encoder
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.gp.fitting import fit
from sureshot.estimators.gp.settings import Settings, device_for
from sureshot.estimators.rows.mixed_columns import check_kinds
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.meta.training.checkpoint import load_learner


@undisturbed
class FewShotClassifier(IncrementalClassifier):
    """Classification from a few labels, with what is not in them taken from a checkpoint or from defaults.

    Parameters
    ----------
    checkpoint : path or None, default=None
        A file that `sureshot meta-train` wrote, or the folder of its run (then the best checkpoint), of any learner.
        None is a `GPClassifier` on the inputs as they are, with its defaults, which are chosen anew when rows come or
        go.
    random_state : int, RandomState or None, default=None
        For learners that sample. None is a fixed seed too: equal calls give equal models.
    device : str, default="auto"
        A torch device for `fit`; "auto" takes CUDA where it is there, without a checkpoint only for 2000 rows or more.
        Updates and predictions stay where the model is.
    class_prior : "auto", "support", "uniform", dict or array, default="auto"
        How often classes come: as in the labelled rows, equally often, or as stated by label or in the order of
        ``classes_``. "auto" is as in the labelled rows; where these are embeddings, of unit length, with 50 rows more
        for each class. `set_class_prior` changes it afterwards, `adapt_prior` learns it from unlabelled rows.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name, as of `GPClassifier`; without a checkpoint.
    verbose : bool, default=False
        Whether long fits say on standard error, every ten seconds, how far they are and how long they may still take.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order, whenever each came.
    class_prior_ : ndarray (C,)
        How often classes are expected to come; sums to 1.
    class_count_, columns_, encoder_, reading_
        Those of `GPClassifier`; with a checkpoint columns are numbers.
    learner_ : Learner
        What is conditioned on the rows: the checkpoint's, in double precision. Not there without one.
    kernel_, likelihood_, inference_, predictive_, members_
        Those of `GPClassifier`, without a checkpoint. Not there with one.
    temperature_ : float
        The latents are divided by it (of an average, its log probabilities). With a checkpoint 1 until `calibrate` sets
        it, without one what predicts left-out labels best.
    log_evidence_ : float
        Of the labels, in nats: a lower bound for mean field, exact for least squares, Laplace's without a
        checkpoint, 0 if fewer than two classes have rows, NaN for learners that sample and those that are no Gaussian
        processes.
    n_features_in_, feature_names_in_
        Of flattened rows.

    Notes
    -----
    With a checkpoint, X has the shape that its backbone takes, or that shape flattened: images (n, channels, height,
    width), (n, height, width) for one channel, sequences (n, length, channels), embeddings (n, width). Images are
    uint8 (0 to 255) or lie in [0, 1].

    With a checkpoint time and memory grow with the cube and the square of the number of distinct rows, and time with
    the number of classes: milliseconds for a few classes of five rows. Without one they are those of `GPClassifier`:
    tenths of a second for a few rows, seconds for 150 classes of five, also for `partial_fit` and `forget`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FewShotClassifier().fit(X[::10], y[::10])
    >>> model.predict(X[:2])
    array([0, 0])
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: RandomState | None = None,
        device: str = "auto",
        class_prior: ByLabel = "auto",
        columns: str | Mapping[str, str] = "auto",
        verbose: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.class_prior = class_prior
        self.columns = columns
        self.verbose = verbose

    learner_ = FittedAttribute("learner")
    kernel_ = GPClassifier.kernel_
    likelihood_ = GPClassifier.likelihood_
    inference_ = GPClassifier.inference_
    predictive_ = GPClassifier.predictive_
    members_ = GPClassifier.members_

    _formats = FEW_SHOT_FORMATS

    def _reader(self) -> Reader:
        if self.checkpoint is None:
            return TableReader.of(self.columns, "auto")
        if not isinstance(self.checkpoint, str | os.PathLike):
            raise TypeError(f"checkpoint must be a path or None; got {type(self.checkpoint).__name__}.")
        if check_kinds(self.columns):
            raise ValueError(
                "columns does not go with a checkpoint, whose network takes numbers only: leave one of them out."
            )
        learner = load_learner(self.checkpoint).double().requires_grad_(False)
        return Encoder(learner.to(device_for(self.device)))

    @property
    def input_shape_(self) -> tuple[int, ...]:
        """Of one row, as the checkpoint takes it."""
        reader = self._current().reader
        return reader.shape if isinstance(reader, Encoder) else (self.n_features_in_,)

    def _learn(self, training: TrainingSet, known: ClassFitted | None, seed: int) -> ClassFitted:
        """Updates of a checkpoint's learner have the seed of the first fit: a sampler's chains are those of `fit`."""
        if isinstance(training.reader, Encoder):
            seed = known.seed if isinstance(known, FewShotFitted) else seed
            return condition_rows(training, training.reader.learner, seed)
        settings = GPClassifier(device=self.device).get_params(deep=False)
        return fit(Settings.checked(settings, seed, len(training.rows.y)), training)

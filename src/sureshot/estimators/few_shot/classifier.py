"""`FewShotClassifier`: a few-shot learner, meta-trained or not, as a scikit-learn estimator.

What a few labels cannot tell, how far to trust a distance and how sure to be, comes from other classes, by a checkpoint
of `sureshot meta-train`: `fit` conditions its learner on the labelled rows and tunes nothing. Without one it is what
`GPClassifier` makes of a few labels, all settings chosen from them, or, with one label for each class, the usual ones.

A checkpoint's backbone turns inputs into embeddings, in double precision like everything after it. A network adds up in
another order when the batch has another size; embeddings are kept in single precision, whose rounding hides that: a row
has one embedding in any batch. The labelled rows are kept as embeddings; raw without a checkpoint, and with one whose
learner changes its network for each task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sureshot.computing.surroundings import undisturbed
from sureshot.data.mixed_columns import check_kinds
from sureshot.estimators.arguments import ByLabel, RandomState
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.devices import device_for
from sureshot.estimators.few_shot.fitted import FewShotFitted, LearnerEncoder, condition_rows
from sureshot.estimators.few_shot.format import FEW_SHOT_FORMATS
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.gp.fitting import fit
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.meta.training.checkpoint import load_checkpoint


@undisturbed
class FewShotClassifier(IncrementalClassifier):
    """Classification from a few labels by a meta-trained learner.

    Parameters
    ----------
    checkpoint : path, optional
        A file that `sureshot meta-train` wrote, or the folder of its run. None is a `GPClassifier` with its defaults,
        whose settings are chosen anew when rows come or go.
    random_state : int, RandomState or None, default=None
        Seeds learners that sample. None is a fixed seed, too.
    device : str, default="auto"
        A torch device for `fit`. "auto" takes CUDA if there is one, without a checkpoint from 2000 rows on. Updates and
        predictions stay there.
    class_prior : {"auto", "support", "uniform"}, dict or array, default="auto"
        How often classes come: as in the labelled rows ("support"), equally often, or as stated by label or in the
        order of ``classes_``. "auto" is "support", but shrunk towards "uniform" by 50 rows a class for embeddings.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name, as for `GPClassifier`; without a checkpoint.
    verbose : bool, default=False
        Report progress and the remaining time on standard error, every ten seconds.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels, in sorted order.
    class_count_ : ndarray (C,)
        The sum of the weights of each class's rows; 0 for a class that was only announced.
    class_prior_ : ndarray (C,)
        How often classes are expected to come; sums to 1.
    learner_ : ClassLearner
        The checkpoint's learner, in double precision; with a checkpoint.
    kernel_, likelihood_, inference_, predictive_, members_
        As for `GPClassifier`; without a checkpoint.
    input_shape_ : tuple of int
        Shape of one row.
    temperature_ : float
        Divides the latents, or the log probabilities of an average; with a checkpoint 1 until `calibrate` sets it.
    log_evidence_ : float
        Of the labels in nats, exact, Laplace's or a bound; NaN for learners that sample or are not Gaussian processes.
    columns_ : dict
        Kinds of a DataFrame's columns by name, if not all are numbers without gaps.
    encoder_ : ColumnEncoder
        What makes numbers of such columns: ``encoder_(X)``, with ``encoder_.names``.
    reading_ : Remembered
        How `sureshot.data.read_table` read the file of X, for files like it.
    row_ids_ : ndarray (K,)
        Ids of the rows that have one, sorted.
    n_features_in_, feature_names_in_
        Number and names of the columns of X.

    Notes
    -----
    With a checkpoint, X has the shape that its backbone takes, or that shape flattened: images (n, channels, height,
    width) or (n, height, width), as uint8 or in [0, 1]; sequences (n, length, channels); embeddings (n, width). Time
    grows with the cube, memory with the square of the number of distinct rows.

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
        *,
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
        learner = load_checkpoint(self.checkpoint).build().double().requires_grad_(False)
        if learner.transductive:
            raise ValueError(
                f"{self.checkpoint} holds a learner whose answer to a row depends on the rows that are asked with it "
                f"({learner.config['name']} with query_statistics = 'query'): meta-train it with query_statistics = "
                "'support', which takes batch statistics from the labelled rows alone."
            )
        return LearnerEncoder(learner.to(device_for(self.device)))

    @property
    def input_shape_(self) -> tuple[int, ...]:
        """Shape of one row, as the checkpoint takes it."""
        reader = self._current().reader
        return reader.shape if isinstance(reader, LearnerEncoder) else (self.n_features_in_,)

    def _learn(self, training: TrainingSet, known: ClassFitted | None, seed: int) -> ClassFitted:
        """Updates of a checkpoint's learner have the seed of the first fit: a sampler's chains are those of `fit`."""
        if isinstance(training.reader, LearnerEncoder):
            seed = known.seed if isinstance(known, FewShotFitted) else seed
            return condition_rows(training, training.reader, seed)
        settings = GPClassifier(device=self.device).get_params(deep=False)
        return fit(Settings.checked(settings, seed, len(training.rows.y)), training)

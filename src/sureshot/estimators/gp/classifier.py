"""`GPClassifier`: a Gaussian-process classifier whose probabilities can be trusted, from one example per class up.

With every argument on "auto" the kernel family, its scales, the likelihood and the temperature are chosen together from
the support by leave-one-out prediction (see `sureshot.estimators.gp.tuning.choose`); every choice can be fixed by name.
All posteriors live in weight space over the kernel's features, exact or Nystrom.

Memory after fitting is ``O(N D + N R + C R)`` numbers for N distinct rows of D columns, R features (at most N) and
C classes: the rows, their features and one weight vector for each class. No factor for each class is kept; variances
recompute what they need. Mean field keeps its N C site precisions besides, Gibbs those of every chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from gpytorch.kernels import Kernel
from sklearn.utils import Tags

from sureshot.approximations.by_name import FEATURE_MAPS
from sureshot.computing.surroundings import undisturbed
from sureshot.data.mixed_columns import check_kinds
from sureshot.estimators.arguments import ByLabel, Labels, RandomState, Rows, Weights, check_choice
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.fitted import GPFitted
from sureshot.estimators.gp.fitting import fit
from sureshot.estimators.gp.format import GP_FORMAT
from sureshot.estimators.gp.settings import APPROXIMATIONS, Settings, is_precomputed
from sureshot.estimators.gp.updating import update
from sureshot.estimators.rows.clock import check_window
from sureshot.estimators.rows.precomputed import MatrixReader
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.kernels import Expression

SPARSE_KERNELS = ("auto", "linear", "cosine")  # that compare sparse rows; "auto" only rows of unit length


@undisturbed
class GPClassifier(IncrementalClassifier):
    """Gaussian-process classification that chooses its own settings.

    With every argument on its default, kernels, their scales, likelihoods and temperatures are compared by
    leave-one-out predictions, and the best are averaged. Each choice can be fixed by name.

    Parameters
    ----------
    kernel : str, sureshot.kernels.Expression or gpytorch.kernels.Kernel, default="auto"
        "auto" compares RBF, linear, Matern-3/2 and Matern-1/2 kernels for tables; for embeddings (rows of unit length)
        the centred cosine kernel, and RBF and Matern-3/2 on the unit sphere. By name: "cosine", "linear", "rbf",
        "matern12", "matern32", "matern52", "laplacian", "polynomial1", "polynomial2", "additive_matern32",
        "interactions_matern32", "unit_rbf", "unit_matern32", "precomputed" (X is the kernel matrix). Of a kernel object
        only the overall scale is learned.
    likelihood : {"auto", "logistic", "softmax", "one_vs_each", "logistic_softmax", "least_squares"}, default="auto"
        "logistic" is for two classes. "auto" compares logistic or softmax with least squares on targets of -1 and +1.
    inference : {"auto", "laplace", "mean_field", "gibbs", "natural_gradient"}, default="auto"
        "auto" is Laplace's method for logistic and softmax, mean field for the others; least squares is exact.
    objective : {"auto", "leave_one_out", "evidence"} or None, default="auto"
        What chooses settings; "auto" is "leave_one_out". None keeps the kernel as it is, at temperature 1.
    approximation : {"auto", "exact", "low_rank", "inducing", "nearest_neighbours", "random_features", "ssgp", \
"fastfood", "a_la_carte"}, default="auto"
        "low_rank" is by explicit features, "inducing" by Nystrom features at k-means centres of each class,
        "nearest_neighbours" by a regression on the rows nearest to each query. "auto" is exact up to 1500 distinct
        rows, and for kernels with explicit features; beyond, it averages inducing inputs with nearest neighbours.
        The others are cosines and sines of frequencies for a stationary kernel, RBF on "auto": drawn
        ("random_features", and "fastfood" for many columns), then learnt by the evidence of least squares ("ssgp",
        "a_la_carte").
    predictive : {"auto", "integral", "expected_log", "plug_in"}, default="auto"
        How latents become probabilities. "auto" is "plug_in".
    standardize : bool or "auto", default="auto"
        Standardise the columns. "auto" leaves embeddings as they are, and all rows if a given kernel has periods; it
        compares with one common scale where columns may share a unit (pixels, counts).
    likelihood_temperature : float, default=1.0
        Divides the latents inside softmax and logistic-softmax likelihoods.
    prior_mean : float, default=0.0
        Prior mean of every latent.
    ensemble : bool, default=True
        Average the best settings, weighted by leave-one-out predictions (stacking); needs ``kernel="auto"``. False
        chooses one.
    relevance : bool or "auto", default="auto"
        Also try a length-scale for each column, up to 300 of them. "auto" does so with ``kernel="auto"``.
    class_weight : {"auto", "balanced"}, dict or None, default="auto"
        Multiplies the weights of the rows. "balanced" gives all classes the same total weight. "auto" changes something
        only for embeddings of which half of the classes have a single row.
    class_prior : {"auto", "support", "uniform"}, dict or array, default="auto"
        How often classes come: as in the labelled rows ("support"), equally often, or as stated by label or in the
        order of ``classes_``. "auto" is "support", but shrunk towards "uniform" by 50 rows a class for embeddings.
    n_chains, n_sweeps : int, default=20 and 50
        Of Gibbs sampling.
    n_inducing : int, optional
        Inducing inputs in all, or features of frequencies; 500 by default.
    n_neighbours : int, default=64
        Labelled rows by which nearest neighbours predict each query.
    memory_limit : float or str, default="auto"
        What a fit may take, in bytes or as "2GB"; "auto" is four fifths of the free memory.
    random_state : int, RandomState or None, default=None
        Seeds everything random. None is a fixed seed, too: equal calls give equal models.
    device : str, default="auto"
        A torch device for `fit`. "auto" takes CUDA, if there is one, from 2000 rows on. Updates and predictions stay
        there.
    n_jobs : int, optional
        Kernels that are compared at once, by threads.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name: "number", "category", "date", "text" or "ignore". "auto" finds out those
        that are not named.
    time : str or int, optional
        What tells the time where classes and columns drift: "arrival", the order in which rows are learnt from, or a
        column of numbers or dates by name (of an array by number). Rows are then predicted by nearest rows, of which
        late ones are nearer, and settings are chosen by how rows are predicted from those before them. With "arrival"
        `predict` asks about rows that come now.
    window : float, optional
        Rows older than this are forgotten as others come: so many rows for "arrival", else in units of the time's
        column, days for dates.
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
    members_ : tuple of EnsembleMember
        The members of the average, heaviest first: weight, kernel, likelihood, predictive rule, and how columns are
        seen.
    kernel_ : sureshot.kernels.Expression
        The heaviest member's, with its scales. It prints as mathematics; ``kernel_.to_gpytorch()`` converts it.
    likelihood_, inference_, predictive_ : str
        The heaviest member's.
    feature_relevance_ : ndarray (n_features_in_,)
        Inverse length-scales of the columns relative to their scaling, of mean square 1; 0 for constant columns.
    temperature_ : float
        Divides the latents before the predictive rule; for an average the log probabilities.
    label_noise_ : float
        The share of labels that an average expects to be random; 0 without an average.
    leave_one_out_score_ : float
        Mean leave-one-out log probability in nats, smoothed, by which settings were compared.
    leave_one_out_accuracy_, leave_one_out_balanced_accuracy_, leave_one_out_nll_ : float
        Scores of leave-one-out predictions: a little optimistic, as the same rows chose the settings. Not there for
        samplers, for length-scales of columns, or after `partial_fit`, `calibrate`, `set_class_prior` and
        `adapt_prior`.
    log_evidence_ : float
        Of the heaviest member that has one: exact, Laplace's or a bound, by the inference. NaN for Gibbs sampling, and
        for Laplace's method and least squares after an update.
    bound_trace_ : tuple of float
        The bound along the iterations of mean field or natural gradients.
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
    What is compared, averaged and weighted for how many rows, and what each choice is worth, is in docs/defaults.md.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier().fit(X[::5], y[::5])
    >>> model.predict(X[:2])
    array([0, 0])
    >>> bool(model.score(X, y) > 0.85)
    True
    """

    def __init__(
        self,
        kernel: str | Kernel | Expression = "auto",
        likelihood: str = "auto",
        *,
        inference: str = "auto",
        objective: str | None = "auto",
        approximation: str = "auto",
        predictive: str = "auto",
        standardize: bool | str = "auto",
        likelihood_temperature: float = 1.0,
        prior_mean: float = 0.0,
        ensemble: bool = True,
        relevance: bool | str = "auto",
        class_weight: str | Mapping[Any, float] | None = "auto",
        class_prior: ByLabel = "auto",
        n_chains: int = 20,
        n_sweeps: int = 50,
        n_inducing: int | None = None,
        n_neighbours: int = 64,
        memory_limit: float | str = "auto",
        random_state: RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        columns: str | Mapping[str, str] = "auto",
        time: str | int | None = None,
        window: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.inference = inference
        self.objective = objective
        self.approximation = approximation
        self.predictive = predictive
        self.standardize = standardize
        self.likelihood_temperature = likelihood_temperature
        self.prior_mean = prior_mean
        self.ensemble = ensemble
        self.relevance = relevance
        self.class_weight = class_weight
        self.class_prior = class_prior
        self.n_chains = n_chains
        self.n_sweeps = n_sweeps
        self.n_inducing = n_inducing
        self.n_neighbours = n_neighbours
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.columns = columns
        self.time = time
        self.window = window
        self.verbose = verbose

    kernel_ = FittedAttribute("heaviest.kernel")
    members_ = FittedAttribute("summary")
    feature_relevance_ = FittedAttribute("relevance")
    likelihood_ = FittedAttribute("heaviest.plan.model.likelihood")
    inference_ = FittedAttribute("heaviest.plan.model.inference")
    predictive_ = FittedAttribute("heaviest.plan.rule")
    label_noise_ = FittedAttribute("predictor.label_noise")
    leave_one_out_score_ = FittedAttribute("score")
    leave_one_out_accuracy_ = FittedAttribute("left_out.accuracy")
    leave_one_out_balanced_accuracy_ = FittedAttribute("left_out.balanced_accuracy")
    leave_one_out_nll_ = FittedAttribute("left_out.nll")
    bound_trace_ = FittedAttribute("heaviest.trace")

    _formats = (GP_FORMAT,)

    def __sklearn_tags__(self) -> Tags:
        """Scikit-learn's tags: a precomputed kernel is pairwise; linear and cosine take any sparse rows."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.input_tags.sparse = isinstance(self.kernel, str) and self.kernel in SPARSE_KERNELS[1:]
        return tags

    def partial_fit(
        self,
        X: Rows,
        y: Labels,
        classes: Labels | None = None,
        sample_weight: Weights | None = None,
        retune: bool | str = False,
        *,
        row_id: Labels | None = None,
    ) -> Self:
        """Add labelled rows, of known or new classes, and keep the settings.

        The posterior is the one that `fit` on all rows so far would give with the same kernels and the same scaling of
        columns. Temperature, noise, weights of an average and inducing inputs stay as long as the same classes have
        rows. The first call is a `fit` that may have one class only.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, D)
            Rows.
        y : array (n,)
            Labels.
        classes : array, optional
            Further classes to make room for; one without rows predicts from its prior.
        sample_weight : array (n,), optional
            As in `fit`.
        retune : bool or "auto", default=False
            Choose all settings anew from all rows. "auto" does so once the latest rows, as they are predicted before
            they are learnt from, lose more than left-out rows had promised, by three standard errors, and once rows or
            classes are twice as many. It also happens, with a line in the log, if a row lies too far outside all others
            for the settings. What was learnt of a DataFrame's columns stays.
        row_id : array (n,), optional
            A row with a known id replaces the row that had it, and removes it if its weight is 0 and that of another is
            not. Without ids, rows that are sent twice count twice.

        Returns
        -------
        self
            With ``classes_`` sorted anew.
        """
        self._refuse_precomputed("partial_fit", "larger")
        return self._extend(X, y, classes, sample_weight, row_id, check_choice("retune", retune, (True, False, "auto")))

    def forget(self, classes: Labels | float | None = None, rows: Labels | float | None = None) -> Self:
        self._refuse_precomputed("forget", "smaller")
        return self._without(classes, rows)

    def _refuse_precomputed(self, method: str, matrix: str) -> None:
        if self.__sklearn_is_fitted__() and (self._fitted.precomputed or is_precomputed(self.kernel)):
            raise ValueError(f"{method} does not work with kernel='precomputed': call fit with the {matrix} matrix.")

    def _reader(self) -> Reader:
        if not is_precomputed(self.kernel):
            sparse = self.kernel if isinstance(self.kernel, str) and self.kernel in SPARSE_KERNELS else None
            return TableReader.of(self.columns, sparse, self.time)
        if self.time is not None:
            raise ValueError(f"time={self.time!r} does not go with kernel='precomputed', where X is the kernel matrix.")
        if check_kinds(self.columns):
            raise ValueError("columns does not go with kernel='precomputed', where X is the kernel matrix.")
        return MatrixReader()

    @property
    def _window(self) -> float | None:
        return None if self.window is None else check_window(self.window, self.time)

    def _learn(self, training: TrainingSet, known: GPFitted | None, seed: int) -> GPFitted:
        check_choice("approximation", self.approximation, (*APPROXIMATIONS, *FEATURE_MAPS))
        settings = Settings.checked(self._arguments, seed, len(training.rows.y))
        return fit(settings, training) if known is None else update(settings, training, known)

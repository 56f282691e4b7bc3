"""`GPClassifier`: a Gaussian-process classifier whose probabilities can be trusted, from one example per class up.

With every argument on "auto" the kernel family, its scales, the likelihood, the predictive rule and the temperature
are chosen together from the support by leave-one-out prediction (see `sureshot.estimators.gp.tuning.choose`); every
choice can be fixed by name. All posteriors live in weight space over the kernel's features, exact or Nystrom.

Memory after fitting is ``O(N D + N R + C R)`` numbers for N distinct rows of D columns, R features (at most N) and
C classes: the rows, their features and one weight vector for each class. No factor for each class is kept; variances
recompute what they need. Mean field keeps its N C site precisions besides, Gibbs those of every chain.

A fit goes one way: the base class checks, `fitting` has `plan` choose, makes features and conditions, and the base
class takes the result over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from gpytorch.kernels import Kernel
from sklearn.utils import Tags

from sureshot.computing.surroundings import undisturbed
from sureshot.estimators.arguments import ByLabel, Labels, RandomState, Rows, Weights
from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.fitted import GPFitted
from sureshot.estimators.gp.fitting import fit
from sureshot.estimators.gp.format import GP_FORMAT
from sureshot.estimators.gp.settings import Settings, is_precomputed
from sureshot.estimators.gp.updating import update
from sureshot.estimators.rows.mixed_columns import check_kinds
from sureshot.estimators.rows.precomputed import MatrixReader
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.kernels import Expression

BY_PRODUCTS = ("auto", "linear", "cosine")  # kernels that may compare sparse rows


@undisturbed
class GPClassifier(IncrementalClassifier):
    """Gaussian-process classification that chooses its own settings.

    Parameters
    ----------
    kernel : str, sureshot.kernels.Expression or gpytorch.kernels.Kernel, default="auto"
        "auto" compares RBF, linear, Matern-3/2 and Matern-1/2 on tables, and takes the centred cosine kernel for rows
        of unit length, if RBF or Matern-3/2 of directions is not clearly better; from 40 such rows on of which others
        of their class remain, directions along which rows vary count more. By name: "cosine", "linear", "rbf",
        "matern12", "matern32", "matern52", "polynomial1", "polynomial2", "additive_matern32", "interactions_matern32",
        "unit_rbf", "unit_matern32", "precomputed" (X is the kernel matrix). A kernel object keeps its parameters, and
        its overall scale is learned.
    likelihood : str, default="auto"
        "logistic" (two classes), "softmax", "one_vs_each", "logistic_softmax", "least_squares" (of -1/+1 targets).
        "auto" compares logistic or softmax with least squares.
    inference : str, default="auto"
        "laplace", "mean_field", "gibbs", "natural_gradient". "auto" takes Laplace for logistic and softmax, mean field
        for the others.
    objective : str or None, default="auto"
        What chooses the kernel's scales: "leave_one_out" (also "auto"), "evidence" (Laplace's, or the bound, which
        prefers too small output scales; Gibbs sampling has none). None keeps the kernel as given, temperature 1.
    approximation : str, default="auto"
        "exact", "low_rank" (explicit features), "inducing" (Nystrom on k-means of each class). "auto" is exact up to
        1500 distinct rows and whenever the kernel has explicit features.
    predictive : str, default="auto"
        "integral", "expected_log", "plug_in", or the one that predicts left-out labels best.
    standardize : bool or "auto", default="auto"
        "auto" leaves rows of unit length as they are, of four columns or more, and standardises other columns, but
        compares with one common scale where the columns may share a unit (pixels, counts).
    likelihood_temperature : float, default=1.0
        Divides the latents inside softmax and logistic-softmax.
    prior_mean : float, default=0.0
        Mean of every latent before data.
    ensemble : bool, default=True
        Average the best settings of the kernel families and likelihoods that "auto" compares, five at most, by what
        they say of left-out rows (stacking). With ``kernel="auto"`` tables of at most 64 columns have one more family,
        a product over columns; with ``standardize="auto"`` all families come on standardised columns and, unless these
        are nearly normal, on normal scores of their ranks: what is wild in one column does not spoil the others. Fewer
        than 150 rows have families with nothing chosen but their temperature beside these, fewer than 50 eight members
        and every family on ranks as well, fewer than 15 such families alone. More than 5000 rows have fewer than five,
        and from 12,501 on there is one. Up to 1000 rows of unit length have two, by kernels of directions, and more
        have one unless labels look wrong; the former see more
        of what varies if left-out rows clearly gain by it. False chooses one setting, as is done for a named kernel.
    relevance : bool or "auto", default="auto"
        Try a length-scale for each column, of the best kernel family: columns of noise then stop to count. They are
        used if they predict left-out rows better that they were learnt without. "auto" does so with ``kernel="auto"``.
        Needs 50 rows that can be left out, 2 to 300 columns, and is nothing for kernels without a length-scale or given
        as objects, for rows of unit length, or for an objective of "evidence" or None.
    class_weight : dict, "auto", "balanced" or None, default="auto"
        Multiplies the weights of rows. "balanced" gives all classes the same total weight, of all rows so far. "auto"
        leaves them as they are but for embeddings, rows of unit length, half of whose classes have one. One with many
        labels would draw to it all that is unlike the single ones: so all classes count as the largest, where one row
        of a large class tells most others of it from the single ones, and elsewhere none as more than three.
    class_prior : "auto", "support", "uniform", dict or array, default="auto"
        How often classes come: as in the labelled rows, equally often, or as stated by label or in the order of
        ``classes_``. "auto" is as in the labelled rows; where these are embeddings, of unit length, with 50 rows more
        for each class, as a few examples say little of frequencies. `set_class_prior` changes it afterwards,
        `adapt_prior` learns it from unlabelled rows.
    n_chains, n_sweeps : int, default=20, 50
        For Gibbs.
    n_inducing : int, optional
        Inducing inputs in all; 1000 by default.
    memory_limit : float, str, default="auto"
        What fitting may take: bytes, or a size such as "2GB"; "auto" is four fifths of the free memory.
    random_state : int, RandomState or None, default=None
        Fixes subsets and samplers. None is a fixed seed too: equal calls give equal models.
    device : str, default="auto"
        A torch device for `fit`; "auto" takes CUDA where it is there and there are 2000 rows or more, as fewer are
        faster without. Updates and predictions stay where the model is, that of a file is on the CPU.
    n_jobs : int, optional
        Kernel families compared at once, through joblib.
    columns : "auto" or dict, default="auto"
        Kinds of a DataFrame's columns by name: "number", "category", "date", "text", "ignore"; "auto" finds out those
        that are not named. What each kind becomes, gaps and all, is learnt by the first `fit` and kept by updates; see
        docs/mixed-tables.md. DataFrames of numbers without gaps, and arrays, are taken as they are; later gaps in such
        a DataFrame are its medians, with a warning.
    verbose : bool, default=False
        Whether long fits say on standard error, every ten seconds, how far they are and how long they may still take.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order, whenever each came.
    kernel_ : sureshot.kernels.Expression
        With the learned scales; it prints as mathematics, and ``kernel_.to_gpytorch()`` is GPyTorch's. Of an average
        that of the heaviest member, as are the next three and the evidence.
    likelihood_, inference_, predictive_ : str
        What "auto" became.
    class_count_ : ndarray (C,)
        How many rows of each class were learnt, by the sum of their weights; 0 for one that was announced only.
    class_prior_ : ndarray (C,)
        How often classes are expected to come; sums to 1.
    members_ : tuple of EnsembleMember
        What is averaged, the heaviest first: weight, kernel, likelihood, whether of the columns' ranks and whether with
        length-scales of their own, and predictive rule.
    feature_relevance_ : ndarray (n_features_in_,)
        Factors of the columns, relative to their usual scaling: inverse length-scales whose mean square is 1, so all 1
        where columns count alike, 0 for constant columns that were dropped. Of an average the average. Of a column that
        became several, the root mean square of theirs.
    columns_ : dict
        Kinds of a DataFrame's columns by name, if it has others than numbers, or gaps.
    encoder_ : ColumnEncoder
        What makes numbers of such columns: ``encoder_(X)`` are they, ``encoder_.names`` their names, and printed it
        says what is done. Not there where all columns are numbers.
    reading_ : Remembered
        How the file was read that X came from (`sureshot.data.read_table`), of what holds for files like it.
    temperature_ : float
        The latents are divided by it before the predictive rule is applied; of an average, its log probabilities are.
    label_noise_ : float
        The share of labels that are expected to be drawn at random from all classes, as left-out rows have them: of an
        average; 0 of one setting, and after `calibrate`. Twenty per cent of wrong labels among ten classes is .22.
    leave_one_out_score_ : float
        Mean leave-one-out log probability of the chosen setting, in nats, smoothed as settings are compared by it, of
        the rows that chose it.
    leave_one_out_accuracy_, leave_one_out_balanced_accuracy_, leave_one_out_nll_ : float
        How right predictions of each labelled row from all others are, those of the only row of a class not counted. A
        little too good, as settings were chosen by the same rows. Not there for samplers, where a member has learnt
        length-scales of columns from the row, or after `partial_fit`, `calibrate`, `set_class_prior` or `adapt_prior`.
    log_evidence_ : float
        Exact, Laplace's or a bound, according to the inference; NaN for Gibbs, and after an update by Laplace's method
        or least squares. Of an average that of the heaviest
        member that has one: of embeddings, that is linear in them.
    bound_trace_ : tuple of float
        The evidence bound along the iterations of mean field or natural gradients, else empty.

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
        memory_limit: float | str = "auto",
        random_state: RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        columns: str | Mapping[str, str] = "auto",
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
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.columns = columns
        self.verbose = verbose

    kernel_ = FittedAttribute("kernel")
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
        """Scikit-learn's tags: a precomputed kernel is pairwise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.input_tags.sparse = isinstance(self.kernel, str) and self.kernel in BY_PRODUCTS[1:]
        return tags

    def partial_fit(
        self,
        X: Rows,
        y: Labels,
        classes: Labels | None = None,
        sample_weight: Weights | None = None,
        retune: bool = False,
        *,
        row_id: Labels | None = None,
    ) -> Self:
        """Add labelled rows, of old or new classes, keeping the kernel's parameters.

        The result is the posterior that `fit` on all rows so far would give with these kernel parameters (and this
        scaling of the columns). Temperature, noise, weights of an average and inducing inputs stay, too, as long as the
        same classes have rows; where a class comes, or gets its first row, they are found anew. A temperature that
        `calibrate` has set always stays (in proportion to the usual one where settings are chosen anew). An average
        that fewer than 150 rows have chosen goes on with its heaviest members when there are more.

        With `retune`, or where a row lies so far outside all others that they cannot suit it (a line of the log says
        so), kernel and settings are chosen anew from all rows, but what was learnt of a DataFrame's columns stays
        (levels of categories, medians in place of gaps): rows are kept as numbers, and only a `fit` on all of them sees
        the cells. Laplace's mode is found from the last one. How well left-out rows are predicted, and the evidence of
        Laplace's method, are known again when settings are chosen anew.

        A first call is a `fit`. `classes` are further ones to make room for; a class without rows predicts from its
        prior. ``classes_`` is sorted after every call.

        A row whose id (`row_id`) is known takes the place of the row that had it; one of weight 0, beside others that
        count, removes it. So a call that is repeated changes nothing. Without ids rows that are sent twice count twice.
        """
        self._refuse_precomputed("partial_fit", "larger")
        return self._extend(X, y, classes, sample_weight, row_id, keep_settings=not retune)

    def forget(self, classes: Labels | float | None = None, rows: Labels | float | None = None) -> Self:
        """Remove classes with all their rows, and rows by their ids; the others are as if these had never been seen.

        Kernel parameters are kept. A class that has lost its last row in this way stays, and predicts from its prior.
        At least one row must stay.
        """
        self._refuse_precomputed("forget", "smaller")
        return self._without(classes, rows)

    def _refuse_precomputed(self, method: str, matrix: str) -> None:
        if self.__sklearn_is_fitted__() and (self._fitted.precomputed or is_precomputed(self.kernel)):
            raise ValueError(f"{method} does not work with kernel='precomputed': call fit with the {matrix} matrix.")

    def _reader(self) -> Reader:
        if not is_precomputed(self.kernel):
            by_products = [name for name in BY_PRODUCTS if isinstance(self.kernel, str) and self.kernel == name]
            return TableReader.of(self.columns, by_products[0] if by_products else None)
        if check_kinds(self.columns):
            raise ValueError("columns does not go with kernel='precomputed', where X is the kernel matrix.")
        return MatrixReader()

    def _learn(self, training: TrainingSet, known: GPFitted | None, seed: int) -> GPFitted:
        settings = Settings.checked(self._arguments, seed, len(training.rows.y))
        return fit(settings, training) if known is None else update(settings, training, known)

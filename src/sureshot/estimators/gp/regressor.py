"""Gaussian-process regression in scikit-learn's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, get_args

from gpytorch.kernels import Kernel
from sklearn.utils import Tags
from torch import nn

from sureshot.approximations.by_name import BY_NAME
from sureshot.computing.surroundings import undisturbed
from sureshot.data.checks import check_share
from sureshot.deep.kernel_regression import KernelObjective, KernelTraining
from sureshot.estimators.arguments import RandomState, check_choice, check_count
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.fitted_attribute import FittedAttribute
from sureshot.estimators.gp.backbone import trained, untrained, widened
from sureshot.estimators.gp.number_fitted import GPNumbersFitted
from sureshot.estimators.gp.number_fitting import Wanted, fit_numbers, update_numbers
from sureshot.estimators.gp.number_format import GP_NUMBERS_FORMAT
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.settings import Settings, is_precomputed
from sureshot.estimators.gp.solved_member import PRODUCTS
from sureshot.estimators.numbers.regressor_base import IncrementalRegressor
from sureshot.estimators.numbers.target_scale import TRANSFORMS
from sureshot.estimators.numbers.targets import check_numbers
from sureshot.estimators.rows.clock import check_window
from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.validation import check_weights
from sureshot.kernels import Expression

APPROXIMATIONS = ("auto", "exact", "low_rank", "inducing", NEAREST_NEIGHBOURS, *BY_NAME, *PRODUCTS)

NOISES = ("auto", "gaussian", "student_t")

WITH_STATED_NOISE = ("auto", "exact", "low_rank", "inducing")

_OF_CLASSES: dict[str, Any] = {
    "likelihood": "least_squares",
    "inference": "auto",
    "predictive": "auto",
    "likelihood_temperature": 1.0,
    "prior_mean": 0.0,
    "class_weight": None,
    "class_prior": "auto",
    "n_chains": 1,
    "n_sweeps": 1,
}
"""Settings of classifiers that numbers have no use for."""

_OF_NUMBERS = (
    *("learn_kernel", "target_transform", "noise"),
    *("backbone", "backbone_objective", "backbone_steps", "backbone_learning_rate"),
)
"""Arguments that are no setting of a fit to rows as they are kept."""


@undisturbed
class GPRegressor(IncrementalRegressor):
    """Gaussian-process regression that chooses its kernel, scales and noise, and says how sure it is.

    Answers are mixtures of the normals of several Gaussian processes, weighed by the log density of left-out rows: up
    to 1500 rows of exact ones under several kernels, one of them with a length-scale for each column; of more rows
    those by inducing inputs beside local ones, which see the 64 rows nearest to each query.

    Parameters
    ----------
    kernel : str, gpytorch.kernels.Kernel or sureshot.kernels.Expression, default="auto"
        A name (those of `GPClassifier`, but "precomputed"), or a kernel. "auto" averages several.
    learn_kernel : bool, default=False
        Whether all numbers of a kernel that is given as an object are learnt, by `objective`, from where they are. Else
        only its overall scale is. See docs/regression.md.
    objective : {"auto", "leave_one_out", "evidence"} or None, default="auto"
        What scales and noise are chosen by: the log density of left-out rows ("auto"), the evidence, or nothing. A
        given kernel then stays, in units of the variance of y, beside noise of variance 1 unless `noise` states it.
    noise : {"auto", "gaussian", "student_t"} or float, default="auto"
        Of numbers around the function. With Student's tails a few wild numbers drive nothing; "auto" takes them, and
        noise that depends on the row, where left-out numbers are more probable by them. A number is the deviation of
        normal noise in units of y, and stays: it goes with one target as it is, and all rows seen exactly, by features
        or by inducing inputs; with objective=None by any approximation that sees them all.
    target_transform : {"auto", "none", "log", "yeo_johnson"}, default="auto"
        The scale on which numbers are learnt; "auto" takes logarithms or powers where left-out numbers are clearly more
        probable by them. Answers are always in units of y.
    approximation : str, default="auto"
        "exact"; "low_rank", by explicit features of the kernel; "inducing" inputs; "nearest_neighbours". "auto" is
        exact up to 1500 rows, and averages inducing inputs with nearest neighbours beyond. Inducing inputs that move
        by the evidence, with the kernel's scales and the noise: "sor", "fitc", "vfe" and "svgp". Cosines and sines of
        frequencies: drawn ("random_features", "fastfood"), then learnt by the evidence ("ssgp", "a_la_carte").
        One process given all rows whose kernel matrix is never kept: "iterative" (any rows, also by all processes of a
        group of torch.distributed), "toeplitz" (rows of a regular grid), "kronecker" (of any grid), both with gaps, and
        "kiss" (1 to 4 columns, interpolated from a regular grid). Their deviations are those given the 256 nearest
        rows.
    standardize : bool or "auto", default="auto"
        Scale columns; "auto" leaves rows of unit length as they are, and all rows if a given kernel has periods
        or frequencies, which are in units of the columns.
    ensemble : bool, default=True
        Whether "auto" averages kernels; otherwise the best one.
    relevance : bool or "auto", default="auto"
        Whether columns may have length-scales of their own, where left-out rows gain by it.
    n_inducing : int, optional
        Inducing inputs, or features of frequencies; 500 by default.
    n_neighbours : int, default=64
        Rows that local members see of each query.
    memory_limit : float or "auto", default="auto"
        Bytes that a fit may take.
    backbone : str, dict or torch.nn.Module, optional
        A network that `fit` trains together with a kernel on its features, which are learnt from in place of X: "mlp"
        for tables, "lstm" for sequences (n, length, channels), "conv4" for images, any other backbone by name, a dict
        of its name and options, or any module that gives (n, features). See docs/regression.md.
    backbone_objective : {"leave_one_out", "evidence", "svgp"}, default="leave_one_out"
        What it is trained by; "svgp", a bound of the evidence by inducing inputs, is for more rows than a batch has. A
        fifth of the rows is kept aside and says when to stop.
    backbone_steps : int, default=500
        Steps that it is trained for at most.
    backbone_learning_rate : float, default=0.003
        Of Adam.
    random_state : int or RandomState, optional
        Seed.
    device : str, default="auto"
        Where tensors are.
    n_jobs : int, optional
        Kernels compared at once.
    columns : "auto" or dict, default="auto"
        What the columns of a DataFrame are taken for, see docs/tables.md.
    time : str or int, optional
        "arrival", or the column that says when a row was observed; see docs/streams.md.
    window : float, optional
        How long rows are kept, in units of time.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    leave_one_out_score_ : float
        Mean log density of left-out rows, in nats, in units of y: a little optimistic, as they chose the settings.
    log_evidence_ : float
        Of the heaviest member that sees all rows, of y in deviations.
    target_transform_ : str
        The scale that was chosen.
    noise_degrees_ : float
        Degrees of freedom of the noise, infinite of normal noise.
    members_ : tuple of NumberEnsembleMember
        The members of the average, heaviest first: weight, kernel, noise, and how columns are seen.
    kernel_ : Expression
        Of the heaviest member.
    columns_, feature_relevance_, encoder_, reading_, row_ids_, n_features_in_, feature_names_in_
        As of `GPClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0, 6, 30)[:, None]
    >>> model = GPRegressor().fit(x, np.sin(x[:, 0]))
    >>> mean, deviation = model.predict([[1.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.02)
    True
    """

    def __init__(
        self,
        kernel: str | Kernel | Expression = "auto",
        *,
        learn_kernel: bool = False,
        objective: str | None = "auto",
        noise: str | float = "auto",
        target_transform: str = "auto",
        approximation: str = "auto",
        standardize: bool | str = "auto",
        ensemble: bool = True,
        relevance: bool | str = "auto",
        n_inducing: int | None = None,
        n_neighbours: int = 64,
        memory_limit: float | str = "auto",
        backbone: str | Mapping[str, Any] | nn.Module | None = None,
        backbone_objective: str = "leave_one_out",
        backbone_steps: int = 500,
        backbone_learning_rate: float = 3e-3,
        random_state: RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        columns: str | Mapping[str, str] = "auto",
        time: str | int | None = None,
        window: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.learn_kernel = learn_kernel
        self.objective = objective
        self.noise = noise
        self.target_transform = target_transform
        self.approximation = approximation
        self.standardize = standardize
        self.ensemble = ensemble
        self.relevance = relevance
        self.n_inducing = n_inducing
        self.n_neighbours = n_neighbours
        self.memory_limit = memory_limit
        self.backbone = backbone
        self.backbone_objective = backbone_objective
        self.backbone_steps = backbone_steps
        self.backbone_learning_rate = backbone_learning_rate
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.columns = columns
        self.time = time
        self.window = window
        self.verbose = verbose

    kernel_ = FittedAttribute("kernel")
    feature_relevance_ = FittedAttribute("relevance")
    target_transform_ = FittedAttribute("target.transform")
    noise_degrees_ = FittedAttribute("degrees")

    _formats = (GP_NUMBERS_FORMAT,)

    def __sklearn_tags__(self) -> Tags:
        """Scikit-learn's tags: several targets are fine."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _reader(self) -> Reader:
        if is_precomputed(self.kernel):
            raise ValueError("kernel='precomputed' is for GPClassifier: give GPRegressor the kernel itself.")
        return TableReader.of(self.columns, None, self.time)

    def _reader_of(self, X: Any, y: Any, sample_weight: Any) -> Reader:
        """With a backbone a network that is trained on these rows."""
        if self.backbone is None:
            return self._reader()
        if is_precomputed(self.kernel) or self.time is not None or self.columns != "auto":
            raise ValueError("backbone goes with time=None, columns='auto' and a kernel that is not precomputed.")
        settings = KernelTraining(
            check_choice("backbone_objective", self.backbone_objective, get_args(KernelObjective)),
            check_count("backbone_steps", self.backbone_steps),
            check_share("backbone_learning_rate", self.backbone_learning_rate),
            seed=self._drawn_seed()[0],
        )
        encoder = untrained(self.backbone, X, settings.seed, self.device)
        checked, _ = encoder.check(type(self).__name__, X, None)
        numbers, weight = check_numbers(y, len(checked)), check_weights(sample_weight, checked)
        return trained(encoder, checked, numbers, weight, self._wanted.transform, settings)

    @property
    def _wanted(self) -> Wanted:
        transform = str(check_choice("target_transform", self.target_transform, ("auto", *TRANSFORMS)))
        learns = bool(check_choice("learn_kernel", self.learn_kernel, (True, False)))
        if learns and (isinstance(self.kernel, str) or self.objective is None):
            raise ValueError(
                "learn_kernel=True goes with a kernel that is given as an object, such as Periodic() * RBF(), and an "
                f"objective to learn it by; got kernel={self.kernel!r}, objective={self.objective!r}."
            )
        if isinstance(self.noise, str):
            return Wanted(transform, str(check_choice("noise", self.noise, NOISES)), learn_kernel=learns)
        noise = self.noise
        if isinstance(noise, bool) or not isinstance(noise, Real) or not 0 < noise < math.inf:
            raise ValueError(
                f"noise must be one of {NOISES}, or a positive number, its deviation in units of y; got {noise!r}."
            )
        stays = WITH_STATED_NOISE if self.objective is not None else set(APPROXIMATIONS) - {NEAREST_NEIGHBOURS}
        known = self.time is None and transform in ("auto", "none") and self.approximation in stays
        if not known or learns:
            raise ValueError(
                "a number as noise goes with time=None, learn_kernel=False, target_transform 'auto' or 'none', and "
                f"approximation {', '.join(map(repr, WITH_STATED_NOISE))}, or any that sees all rows with "
                f"objective=None; got {self.time!r}, {learns}, {transform!r}, {self.approximation!r}."
            )
        return Wanted("none", "gaussian", float(noise))

    @property
    def _window(self) -> float | None:
        return None if self.window is None else check_window(self.window, self.time)

    def _learn(self, training: TrainingSet, known: GPNumbersFitted | None, seed: int) -> GPNumbersFitted:
        wanted = self._wanted
        arguments = {name: value for name, value in self._arguments.items() if name not in _OF_NUMBERS}
        if self.backbone is not None and self.standardize == "auto":
            arguments["standardize"] = False  # the network has chosen what a feature counts
        settings = Settings.checked({**_OF_CLASSES, **arguments}, seed, len(training.rows.y), APPROXIMATIONS)
        if known is None:
            return widened(fit_numbers(settings, training, wanted))
        return update_numbers(settings, training, known, wanted)

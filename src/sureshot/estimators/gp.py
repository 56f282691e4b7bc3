"""`GPClassifier`: a Gaussian-process classifier whose probabilities can be trusted, from one example per class up.

With every argument on "auto" the kernel family, its scales, the likelihood, the predictive rule and the temperature
are chosen together from the support by leave-one-out prediction (see `sureshot.estimators.tuning`); every choice can
be fixed by name. All posteriors live in weight space over the kernel's features, exact or Nystrom.

Memory after fitting is ``O(N D + N R + C R)`` numbers for N distinct rows of D columns, R features (at most N) and
C classes: the rows, their features and one weight vector for each class. No factor for each class is kept; variances
recompute what they need. Mean field keeps its N C site precisions besides, Gibbs those of every chain.
"""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.optimize import minimize_scalar
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sureshot.estimators import options
from sureshot.estimators.base import LatentPrediction, ProbabilisticClassifier, Uncertainty, entropy
from sureshot.estimators.class_labels import class_numbers, grow, staying
from sureshot.estimators.class_weights import weigh_classes
from sureshot.estimators.conditioning import Conditioned, Model, condition, training_likelihood
from sureshot.estimators.features import FeatureMap, explicit_features, nystrom_features
from sureshot.estimators.layout import aligned
from sureshot.estimators.posterior_arrays import rebuilt
from sureshot.estimators.preprocessing import Scaling, fit_scaling
from sureshot.estimators.support import Support
from sureshot.estimators.temperature import fit_rule
from sureshot.estimators.threads import one_thread
from sureshot.estimators.tuning import Setting, leave_one_out_latents, tune
from sureshot.estimators.validation import (
    LabelledRows,
    check_inputs,
    check_labels,
    check_weights,
    merge_rows,
)
from sureshot.inference.inducing import kmeans_inducing
from sureshot.inference.weight_space import WeightPosterior
from sureshot.kernels import Expression
from sureshot.likelihoods.quadrature import displacement, standard_normal_points
from sureshot.persistence import load_artifact

QUERY_BLOCK = 2048
SMALL_SUPPORT = 2000  # distinct rows up to which one core was measured to be as fast as two
EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly
DEFAULT_INDUCING = 1000


class GPClassifier(ProbabilisticClassifier):
    """Gaussian-process classification that chooses its own settings.

    Parameters
    ----------
    kernel : str, sureshot.kernels.Expression or gpytorch.kernels.Kernel, default="auto"
        "auto" compares RBF, linear, Matern-3/2 and Matern-1/2 on tables, and takes the centred cosine kernel for rows
        of unit length. By name: "cosine", "linear", "rbf", "matern12", "matern32", "matern52", "polynomial1",
        "polynomial2", "unit_rbf", "unit_matern32", "precomputed" (X is the kernel matrix). A kernel object keeps its
        parameters, and its overall scale is learned.
    likelihood : str, default="auto"
        "logistic" (two classes), "softmax", "one_vs_each", "logistic_softmax", "gaussian" (label regression). "auto"
        compares logistic or softmax with label regression.
    inference : str, default="auto"
        "laplace", "mean_field", "gibbs", "natural_gradient". "auto" takes Laplace for logistic and softmax, mean field
        for the others.
    objective : str or None, default="auto"
        What chooses the kernel's scales: "leave_one_out" (also "auto"), "evidence" (Laplace's evidence or the
        evidence bound; the bound prefers too small output scales, and Gibbs sampling has no evidence to offer), None
        keeps the kernel as given, temperature 1.
    approximation : str, default="auto"
        "exact", "low_rank" (explicit features), "inducing" (Nystrom on k-means of each class). "auto" is exact up to
        1500 distinct rows and whenever the kernel has explicit features.
    predictive : str, default="auto"
        "integral", "expected_log", "plug_in", or the one that predicts left-out labels best.
    standardize : bool or "auto", default="auto"
        "auto" leaves rows of unit length as they are and standardises other columns, but compares with one common
        scale where the columns may share a unit (pixels, counts).
    likelihood_temperature : float, default=1.0
        Divides the latents inside softmax and logistic-softmax.
    prior_mean : float, default=0.0
        Mean of every latent before data.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weights of rows. "balanced" gives all classes the same total weight; it is derived from all
        rows so far, in `partial_fit` too.
    n_chains, n_sweeps : int, default=20, 50
        For Gibbs.
    n_inducing : int, optional
        Inducing inputs in all; 1000 by default.
    memory_limit : float or "auto", default="auto"
        Bytes that fitting may take; "auto" is four fifths of the free memory.
    random_state : int, RandomState or None, default=None
        Fixes subsets and samplers. None is a fixed seed too: equal calls give equal models.
    device : str, default="auto"
    n_jobs : int, optional
        Kernel families compared at once, through joblib.

    Attributes
    ----------
    classes_ : ndarray (C,)
        In sorted order after `fit`; `partial_fit` appends new ones.
    kernel_ : gpytorch Kernel
        With the learned scales; `sureshot.kernels.describe` writes it as mathematics.
    likelihood_, inference_, predictive_ : str
        What "auto" became.
    temperature_ : float
        The latents are divided by it before the predictive rule is applied.
    leave_one_out_score_ : float
        Mean leave-one-out log probability of the chosen setting, in nats.
    log_evidence_ : float
        Exact, Laplace's or a bound, according to the inference; NaN for Gibbs.
    bound_trace_ : tuple of float
        The evidence bound along the iterations of mean field or natural gradients, else empty.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier().fit(X[::5], y[::5])
    >>> model.predict(X[:2])
    array([0, 0])
    >>> bool(model.score(X, y) > 0.9)
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
        class_weight: Any = None,
        n_chains: int = 20,
        n_sweeps: int = 50,
        n_inducing: int | None = None,
        memory_limit: float | str = "auto",
        random_state: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
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
        self.class_weight = class_weight
        self.n_chains = n_chains
        self.n_sweeps = n_sweeps
        self.n_inducing = n_inducing
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs

    _rows: LabelledRows
    _model: Model
    _posterior: WeightPosterior
    _feature_map_: FeatureMap
    _scaling: Scaling

    def __sklearn_tags__(self) -> Tags:
        """Scikit-learn's tags: a precomputed kernel is pairwise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array, DataFrame or tensor (n, D)
        y : array (n,)
            Labels of any sortable type, at least two distinct.
        sample_weight : array (n,), optional
            A weight of 2 equals two copies of the row; 0 equals leaving it out.
        """
        return self._changed_by(lambda successor: successor._fit(X, y, sample_weight))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        x, labels, weight = self._checked(X, y, sample_weight, reset=True)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"GPClassifier needs at least two classes to tell apart; y has only one class, "
                f"{self.classes_.tolist()[0]!r}."
            )
        self._learn(merge_rows(x, codes, weight))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, retune: bool = False) -> Self:
        """Add labelled rows, of old or new classes, keeping the kernel's parameters.

        The result is the posterior that `fit` on all rows so far would give with these kernel parameters (and this
        scaling of the columns); the temperature follows the new posterior unless `calibrate` has set it.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; a first call is a `fit`.
        classes : array, optional
            Further classes to make room for. A class without rows predicts from its prior. New classes are appended
            to ``classes_``; old columns never move.
        retune : bool, default=False
            Choose kernel and settings anew from all rows.
        """
        return self._changed_by(lambda successor: successor._extend(X, y, classes, sample_weight, retune))

    def _extend(self, X: Any, y: Any, classes: Any, sample_weight: Any, retune: bool) -> None:
        first = not self.__sklearn_is_fitted__()
        if not first and self._precomputed:
            raise ValueError("partial_fit does not work with kernel='precomputed': call fit with the larger matrix.")
        x, labels, weight = self._checked(X, y, sample_weight, reset=first)
        arriving = labels if classes is None else np.concatenate([np.ravel(classes), labels])
        old = None if first else self._rows
        self.classes_ = grow(None if first else self.classes_, arriving)
        codes = class_numbers(self.classes_, labels)
        if old is not None:
            x, codes, weight = (np.concatenate(pair) for pair in ((old.x, x), (old.y, codes), (old.weight, weight)))
        rows = merge_rows(x, codes, weight)
        if first or retune:
            self._learn(rows)
        else:
            self._adapt_model()
            self._condition(rows)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``; deterministic."""
        return self._by_blocks(X, self._probabilities)

    def predict_latent(self, X: Any) -> LatentPrediction:
        """Marginal posterior moments of the latents, each (n, C); for Gibbs, of the mixture of its chains.

        Two classes share one latent f with a logistic likelihood; it is given as -f/2 and f/2.
        """
        both = self._by_blocks(X, lambda q: np.stack(self._latents(*self._features(q)), axis=1))
        return LatentPrediction(both[:, 0], both[:, 1])

    def outlier_score(self, X: Any) -> np.ndarray:
        """How little each row is like any known class (n,); larger is less like any.

        Minus the latent mean of the row's most likely class in units of its posterior standard deviation. A
        pipeline does not forward this method: call ``pipeline[-1].outlier_score(pipeline[:-1].transform(X))``.
        """
        return self._by_blocks(X, self._outlier_scores)

    def uncertainty(self, X: Any) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of each row, in nats, over the whole posterior.

        The total is that of the posterior's mean probabilities: more than the entropy of `predict_proba`, if the
        predictive rule chosen is a surer one.
        """
        parts = self._by_blocks(X, self._entropies)
        return Uncertainty(parts[:, 0], parts[:, 1], np.maximum(parts[:, 0] - parts[:, 1], 0))

    def calibrate(self, X: Any, y: Any) -> Self:
        """Set the temperature to the one that predicts these held-out labels best (by log probability).

        Kept until the next `fit`. Labels that the model does not know are an error.
        """
        return self._changed_by(lambda successor: successor._calibrate(X, y))

    def _calibrate(self, X: Any, y: Any) -> None:
        check_is_fitted(self)
        x = check_inputs(self, X, reset=False)
        labels = check_labels(y, len(x))
        codes = class_numbers(self.classes_, labels)
        blocks = [self._features(x[k : k + QUERY_BLOCK]) for k in range(0, len(x), QUERY_BLOCK)]
        moments = [self._rule_moments(*block) for block in blocks]

        def loss(log_temperature: float) -> float:
            p = np.concatenate([self._apply_rule(m, v, math.exp(log_temperature)) for m, v in moments])
            return -float(np.log(np.maximum(p[np.arange(len(codes)), codes], 1e-300)).mean())

        found = minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 1e-4})
        self.temperature_ = math.exp(found.x)
        self._calibrated = True

    def forget(self, classes: Any) -> Self:
        """Remove classes with all their rows; the others are as if these had never been seen.

        Kernel parameters are kept. At least one class must stay.
        """
        return self._changed_by(lambda successor: successor._forget(classes))

    def _forget(self, classes: Any) -> None:
        check_is_fitted(self)
        if self._precomputed:
            raise ValueError("forget does not work with kernel='precomputed': call fit with the smaller matrix.")
        stays = staying(self.classes_, classes)
        renumbered = np.cumsum(stays) - 1
        kept = stays[self._rows.y]
        rows = LabelledRows(self._rows.x[kept], renumbered[self._rows.y[kept]], self._rows.weight[kept])
        self.classes_ = self.classes_[stays]
        self._adapt_model()
        self._condition(rows)

    def save(self, path: str | Path) -> None:
        """Write the fitted model as safetensors with a JSON header; atomic, and loading executes nothing."""
        from sureshot.estimators.gp_artifact import save_gp_classifier

        check_is_fitted(self)
        save_gp_classifier(self, path)

    @classmethod
    def load(cls, path: str | Path) -> GPClassifier:
        """Read a model that `save` wrote; predictions are equal to the last bit."""
        from sureshot.estimators.gp_artifact import KIND, gp_classifier_of

        return gp_classifier_of(load_artifact(path, KIND))

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a posterior to predict from."""
        return "_posterior" in self.__dict__

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = check_inputs(self, X, reset=reset)
        if self._precomputed and x.shape[0] != x.shape[1]:
            raise ValueError(f"kernel='precomputed' needs a square matrix X to fit; got shape {x.shape}.")
        labels = check_labels(y, len(x))
        weight = check_weights(sample_weight, x)
        kept = weight > 0
        if self._precomputed:
            self._gram = aligned(x)
            x = np.arange(len(x), dtype=np.float64)[:, None]
        return x[kept], labels[kept], weight[kept]

    def _adapt_model(self) -> None:
        """Change to the likelihood, and its usual rule, that the present number of classes needs."""
        n_classes, current = len(self.classes_), self._model
        allowed = options.models_for(self.likelihood, self.inference, n_classes, **self._model_settings())
        needs_other = current.likelihood == "logistic" and n_classes > 2
        if needs_other or (current.likelihood == "softmax" and n_classes <= 2 and self.likelihood == "auto"):
            self._model = replace(allowed[0], noise=current.noise)
        if self._model.likelihood != current.likelihood and not self._calibrated:
            self.predictive_ = options.rules_for(self.predictive, self._model)[0]
            self.temperature_ = 1.0

    def _model_settings(self) -> dict[str, Any]:
        for name in ("n_chains", "n_sweeps"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a positive integer; got {value!r}.")
        temperature = self.likelihood_temperature
        if not (isinstance(temperature, int | float | np.floating) and 0 < temperature < math.inf):
            raise ValueError(f"likelihood_temperature must be a positive number; got {temperature!r}.")
        mean = self.prior_mean
        if not isinstance(mean, int | float | np.floating | np.integer) or not math.isfinite(mean):
            raise ValueError(
                f"prior_mean must be a finite number; got {mean!r}. It is not learned: softmax and one-vs-each do not "
                "depend on it; for the others compare a few values by leave_one_out_score_."
            )
        return {
            "likelihood_temperature": float(temperature),
            "prior_mean": float(mean),
            "n_chains": int(self.n_chains),
            "n_sweeps": int(self.n_sweeps),
        }

    def _generator(self) -> torch.Generator:
        seed = 0 if self.random_state is None else check_random_state(self.random_state).randint(2**31 - 1)
        return torch.Generator(device=options.device_for(self.device)).manual_seed(int(seed))

    def _learn(self, rows: LabelledRows) -> None:
        """Choose scaling, kernel, model, rule and temperature, then condition."""
        options.memory_budget(self.memory_limit)
        device = options.device_for(self.device)
        n_classes = len(self.classes_)
        n_columns = rows.x.shape[1]
        models = options.models_for(self.likelihood, self.inference, n_classes, **self._model_settings())
        options.check_objective(self.objective, models[0].inference)
        given, rows = rows, weigh_classes(rows, self.class_weight, self.classes_)
        if self._precomputed:
            self._scaling = Scaling(np.arange(1), np.zeros(1), np.ones(1))
        else:
            self._scaling = fit_scaling(rows.x, rows.weight, self.standardize)
        if len(self._scaling.kept) < n_columns:
            warnings.warn(
                f"ignored {n_columns - len(self._scaling.kept)} constant columns of {n_columns}", stacklevel=6
            )
        support = self._support(rows, device)
        gram = self._gram.to(device) if self._precomputed else None
        free = self.standardize == "auto" and bool((self._scaling.scale != 1).any())
        families = options.families_for(
            self.kernel, support.x, gram, aligned(self._scaling.scale, device) if free else None
        )
        rules = options.rules_for(self.predictive, models[0])
        if self.objective is None:
            kernel = families[0].build(1.0)
            rule = "plug_in" if models[0].likelihood == "gaussian" and "plug_in" in rules else rules[0]
            setting = Setting(kernel, models[0], rule, 1.0, math.nan)  # columns stay standardised
        else:
            seed = self._generator().initial_seed()
            tuned_models = tuple(_deterministic(model) for model in models)
            objective = "leave_one_out" if self.objective == "auto" else self.objective
            rng = np.random.default_rng(seed)
            with one_thread():  # the subset is small by construction
                setting = tune(support, families, tuned_models, rules, objective, rng, self.n_jobs)
            if setting.model.likelihood == models[0].likelihood:
                setting = replace(setting, model=replace(models[0], noise=setting.model.noise))
        if setting.column_weights is not None:
            self._scaling = self._scaling.weighted(setting.column_weights.cpu().numpy())
        self.kernel_ = setting.kernel
        self.predictive_ = setting.rule
        self.temperature_ = setting.temperature
        self.leave_one_out_score_ = setting.score
        self._model = setting.model
        self._calibrated = False
        self._condition(given)

    def _support(self, rows: LabelledRows, device: torch.device) -> Support:
        return Support(
            aligned(self._scaling(rows.x), device),
            aligned(rows.y, device),
            aligned(rows.weight, device),
            len(self.classes_),
        )

    def _condition(self, rows: LabelledRows) -> None:
        """The posterior for the chosen kernel and model, and the temperature that suits it."""
        weighted = weigh_classes(rows, self.class_weight, self.classes_)
        support = self._support(weighted, options.device_for(self.device))
        self._check_memory(len(weighted.y), support.x.shape[1])
        with one_thread() if len(weighted.y) <= SMALL_SUPPORT else nullcontext():
            self._condition_support(support)
        self._rows = rows

    def _condition_support(self, support: Support) -> None:
        feature_map = self._feature_map(support)
        features = aligned(feature_map(support.x)[0])
        means = self.predictive_ == "plug_in"
        conditioned = condition(
            self._model,
            features,
            support.y,
            support.n_classes,
            support.weight,
            self._generator(),
            only_means=means,
        )
        self._feature_map_, self._posterior = feature_map, rebuilt(conditioned.posterior)
        self.likelihood_ = self._model.likelihood
        self.inference_ = self._model.inference
        self.log_evidence_ = conditioned.log_evidence
        self.bound_trace_ = conditioned.trace
        if self.predictive_ == "plug_in" and self.objective is not None and not self._calibrated:
            self._refit_temperature(support, conditioned)

    def _refit_temperature(self, support: Support, conditioned: Conditioned) -> None:
        if conditioned.sites is None:
            return
        mean, variance = leave_one_out_latents(conditioned)
        default = options.one_shot_temperature(self.kernel)
        if isinstance(self.kernel, str) and self.kernel == "auto":
            default = options.one_shot_temperature(options.automatic_kernels(support.x)[0])
        self.temperature_, pointwise = fit_rule(
            self._model.predictive_likelihood(), mean, variance, support, "plug_in", default
        )
        usable = support.usable
        if float(usable.sum()) > 0:
            self.leave_one_out_score_ = float((usable * pointwise).sum() / usable.sum())

    def _feature_map(self, support: Support) -> FeatureMap:
        x = support.x
        if not options.use_inducing(self.approximation, self.kernel_, len(x), x.shape[1], EXACT_LIMIT):
            explicit = (
                None if self.approximation == "exact" and self._precomputed else explicit_features(self.kernel_, x)
            )
            return explicit or nystrom_features(self.kernel_, x)
        n_inducing = DEFAULT_INDUCING if self.n_inducing is None else self.n_inducing
        if not isinstance(n_inducing, int | np.integer) or n_inducing < 1:
            raise ValueError(f"n_inducing must be a positive integer; got {self.n_inducing!r}.")
        n_present = int((torch.bincount(support.y) > 0).sum())
        per_class = max(1, int(n_inducing) // n_present)
        return nystrom_features(self.kernel_, kmeans_inducing(x, support.y, per_class))

    def _check_memory(self, n_rows: int, width: int) -> None:
        """Refuse before memory is taken, with the estimate and what to try."""
        inducing = options.use_inducing(self.approximation, self.kernel_, n_rows, width, EXACT_LIMIT)
        rank = min(n_rows, int(self.n_inducing or DEFAULT_INDUCING)) if inducing else n_rows
        if not inducing and options.feature_map(self.kernel_, width) is not None:
            rank = min(n_rows, width + 1)
        n_latents = len(self.classes_) * (self.n_chains if self._model.inference == "gibbs" else 1)
        blocks = n_latents if self._model.inference in ("mean_field", "gibbs", "natural_gradient") else 1
        numbers = 4 * n_rows * rank + 4 * rank * rank * blocks + 6 * n_rows * n_latents + 25 * rank * len(self.classes_)
        needed, available = 8.0 * numbers, options.memory_budget(self.memory_limit)
        if needed > available:
            raise MemoryError(
                f"fitting {n_rows} rows, {len(self.classes_)} classes and {rank} features would take about "
                f"{needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB may be used: try approximation='inducing' with a "
                "smaller n_inducing, inference='laplace', fewer rows, or raise memory_limit."
            )

    def _features(self, x: np.ndarray) -> tuple[Tensor, Tensor]:
        queries = aligned(x if self._precomputed else self._scaling(x), self._posterior.weights.device)
        if self._precomputed:
            assert self._feature_map_.inducing is not None
            columns = self._feature_map_.inducing[:, 0].to(torch.int64)  # merging rows reordered them
            return self._feature_map_.from_cross(queries[:, columns] * self.kernel_.outputscale.detach())
        return self._feature_map_(queries)

    def _by_blocks(self, X: Any, function: Any) -> np.ndarray:
        check_is_fitted(self)
        x = check_inputs(self, X, reset=False)
        with torch.no_grad():
            return np.concatenate([function(x[k : k + QUERY_BLOCK]) for k in range(0, len(x), QUERY_BLOCK)])

    def _probabilities(self, x: np.ndarray) -> np.ndarray:
        features, residual = self._features(x)
        return self._apply_rule(*self._rule_moments(features, residual), self.temperature_)

    def _rule_moments(self, features: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Means (S, C, Q) and what the predictive rule needs to know of their spread."""
        posterior = self._posterior
        mean = posterior.latent_mean(features)
        if self.predictive_ == "plug_in":
            return mean, torch.zeros_like(mean)
        return mean, posterior.latent_spread(features, residual)

    def _chain_moments(self, features: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Marginal means and variances (S, C, Q)."""
        posterior = self._posterior
        return posterior.latent_mean(features), posterior.latent_variance(features, residual)

    @torch.no_grad()
    def _apply_rule(self, mean: Tensor, variance: Tensor, temperature: float) -> np.ndarray:
        likelihood = self._model.predictive_likelihood()
        p = likelihood.predict_mixture(mean / temperature, variance / temperature**2, self.predictive_).mT
        p = p[:, : len(self.classes_)]
        return (p / p.sum(1, keepdim=True)).cpu().numpy()

    def _latents(self, features: Tensor, residual: Tensor) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self._chain_moments(features, residual)
        variance = variance.mean(0) + mean.var(0, correction=0)
        mean = mean.mean(0)
        if self._model.likelihood == "logistic":
            mean = torch.cat([-mean / 2, mean / 2])[: len(self.classes_)]
            variance = (variance / 4).expand(2, -1)[: len(self.classes_)]
        return mean.mT.cpu().numpy(), variance.mT.cpu().numpy()

    def _outlier_scores(self, x: np.ndarray) -> np.ndarray:
        features, residual = self._features(x)
        # Where only differences of latents matter, a mean common to all of them says nothing of a row.
        common = self._model.prior_mean if training_likelihood(self._model).translation_invariant else 0.0
        if self._model.likelihood != "logistic" and self._posterior.weights.shape[0] == 1:
            top, classes = self._posterior.latent_mean(features)[0].max(0)
            spread = self._posterior.latent_variance(features, residual, classes)[0].clamp_min(1e-300).sqrt()
            return (-(top - common) / spread).cpu().numpy()
        mean, variance = self._latents(features, residual)
        rows, top = np.arange(len(mean)), mean.argmax(axis=1)
        return -(mean[rows, top] - common) / np.sqrt(np.maximum(variance[rows, top], 1e-300))

    def _entropies(self, x: np.ndarray) -> np.ndarray:
        features, residual = self._features(x)
        mean, spread = self._posterior.latent_mean(features), self._posterior.latent_spread(features, residual)
        points = standard_normal_points(mean.shape[1], 128, mean.dtype, mean.device)  # (P, C)
        likelihood = self._model.predictive_likelihood()
        draws = len(points) * len(mean)
        average = np.zeros((len(self.classes_), len(x)))
        aleatoric = np.zeros(len(x))
        for chain_mean, chain_spread in zip(mean, spread, strict=True):
            displaced = displacement(chain_mean, chain_spread)
            for block in points.split(16):
                latent = (chain_mean + displaced(block)) / self.temperature_
                drawn: np.ndarray = likelihood.plug_in(latent)[:, : len(self.classes_)].cpu().numpy()  # (16, C, Q)
                average = average + drawn.sum(0) / draws
                aleatoric += entropy(drawn, axis=1).sum(0) / draws
        return np.stack([entropy(average, axis=0), aleatoric], axis=1)


def _deterministic(model: Model) -> Model:
    """The stand-in whose leave-one-out predictions choose settings for a sampled or stochastic inference."""
    return replace(model, inference="mean_field") if model.inference in ("gibbs", "natural_gradient") else model

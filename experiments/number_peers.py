"""Peers of `GPRegressor`: each answers with means, quantiles and log densities of numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from experiments.mixed_tables import AsCategories, AsText
from sureshot import GPRegressor

QUANTILES = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)


class Answers(Protocol):
    """What is asked of a method about rows."""

    mean: np.ndarray  # (n,)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """(n, K)."""

    def log_density(self, y: np.ndarray) -> np.ndarray: ...

    def interval(self, coverage: float) -> tuple[np.ndarray, np.ndarray]: ...


class Normal:
    """Of means and standard deviations."""

    def __init__(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        self.mean, self.deviation = mean, np.maximum(deviation, 1e-12)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        return np.asarray(stats.norm.ppf(q, self.mean[:, None], self.deviation[:, None]))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(stats.norm.logpdf(y, self.mean, self.deviation))

    def interval(self, coverage: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self.quantiles(np.array([(1 - coverage) / 2, (1 + coverage) / 2])).T
        return lower, upper


class OfRegressor:
    """Of a fitted `GPRegressor`."""

    def __init__(self, model: GPRegressor, x: Any) -> None:
        self.found = model.forecast(x)
        self.mean = self.found.mean

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        return self.found.quantile(q)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        return self.found.log_density(y)

    def interval(self, coverage: float) -> tuple[np.ndarray, np.ndarray]:
        found = self.found.interval(coverage)
        return found.lower, found.upper


class Ours(BaseEstimator):
    """Defaults."""

    def fit(self, x: Any, y: np.ndarray) -> Ours:
        self.model_ = GPRegressor().fit(x, y)
        return self

    def answers(self, x: Any) -> Answers:
        return OfRegressor(self.model_, x)


class Quantiles(Normal):
    """Of quantiles at some levels; densities are those of the normal with their middle and their width."""

    def __init__(self, mean: np.ndarray, levels: np.ndarray) -> None:
        self.levels = np.sort(levels, axis=0)  # (K, n), which may cross
        width = self.levels[QUANTILES.index(0.95)] - self.levels[QUANTILES.index(0.05)]
        super().__init__(mean, width / (2 * stats.norm.ppf(0.95)))

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(q, QUANTILES, column) for column in self.levels.T])


class BoostedQuantiles(BaseEstimator):
    """Gradient boosting, stopped early, for the mean and seven quantiles."""

    def fit(self, x: Any, y: np.ndarray) -> BoostedQuantiles:
        common = {"categorical_features": "from_dtype", "early_stopping": True, "random_state": 0}
        losses: list[dict[str, Any]] = [{}, *({"loss": "quantile", "quantile": q} for q in QUANTILES)]
        self.models_ = [
            make_pipeline(AsCategories(), HistGradientBoostingRegressor(**common, **loss)).fit(x, y) for loss in losses
        ]
        return self

    def answers(self, x: Any) -> Answers:
        mean, *levels = (model.predict(x) for model in self.models_)
        return Quantiles(mean, np.stack(levels))


class CatBoostUncertainty(BaseEstimator):
    """CatBoost with a normal for each row, text as categories."""

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience  # trees after which it stops if a tenth of the rows has not gained; None: never

    def fit(self, x: Any, y: np.ndarray) -> CatBoostUncertainty:
        from catboost import CatBoostRegressor

        x = AsText().fit_transform(x)
        text = [str(name) for name in x if not pd.api.types.is_numeric_dtype(x[name])]
        self.scale_ = float(np.std(y)) or 1.0
        options = {"verbose": False, "random_seed": 0, "thread_count": 1, "allow_writing_files": False}
        self.model_ = CatBoostRegressor(loss_function="RMSEWithUncertainty", cat_features=text, **options)
        if self.patience is None:
            self.model_.fit(x, y / self.scale_)
        else:
            x, asked_x, y, asked_y = train_test_split(x, y / self.scale_, test_size=0.1, random_state=0)
            self.model_.fit(x, y, eval_set=(asked_x, asked_y), early_stopping_rounds=self.patience)
        return self

    def answers(self, x: Any) -> Answers:
        mean, variance = self.model_.predict(AsText().fit_transform(x)).T
        return Normal(self.scale_ * mean, self.scale_ * np.sqrt(variance))


class NaturalBoosting(BaseEstimator):
    """NGBoost: natural gradients of a normal for each row, stopped early by a tenth of the rows, 500 steps at most."""

    def fit(self, x: pd.DataFrame, y: np.ndarray) -> NaturalBoosting:
        from ngboost import NGBRegressor

        check_size(x, NGBOOST)
        self.columns_ = _numbers()
        parts = train_test_split(self.columns_.fit_transform(x), y, test_size=0.1, random_state=0)
        x, asked_x, y, asked_y = parts
        self.model_ = NGBRegressor(random_state=0, verbose=False, early_stopping_rounds=10)
        with redirect_stdout(StringIO()):  # it says that there are rows to stop by
            self.model_.fit(x, y, asked_x, asked_y)
        return self

    def answers(self, x: pd.DataFrame) -> Answers:
        z = self.columns_.transform(x)
        found = self.model_.pred_dist(z, max_iter=self.model_.best_val_loss_itr)
        return Normal(found.loc, found.scale)


class Process(BaseEstimator):
    """scikit-learn's Gaussian process: RBF with a length-scale for each column, and noise, by evidence."""

    def fit(self, x: pd.DataFrame, y: np.ndarray) -> Process:
        check_size(x, PROCESS)
        self.columns_ = _numbers()
        z = self.columns_.fit_transform(x)
        self.centre_, self.scale_ = float(np.mean(y)), float(np.std(y)) or 1.0
        kernel = ConstantKernel() * RBF(np.ones(z.shape[1])) + WhiteKernel()
        self.model_ = GaussianProcessRegressor(kernel).fit(z, (y - self.centre_) / self.scale_)
        return self

    def answers(self, x: pd.DataFrame) -> Answers:
        mean, deviation = self.model_.predict(self.columns_.transform(x), return_std=True)
        return Normal(self.centre_ + self.scale_ * mean, self.scale_ * deviation)


class Linear(BaseEstimator):
    """Bayesian ridge regression."""

    def fit(self, x: pd.DataFrame, y: np.ndarray) -> Linear:
        self.model_ = make_pipeline(_numbers(), BayesianRidge()).fit(x, y)
        return self

    def answers(self, x: pd.DataFrame) -> Answers:
        columns, model = self.model_[0], self.model_[-1]
        return Normal(*model.predict(columns.transform(x), return_std=True))


def _numbers() -> Any:
    """One-hot text of few levels, filled and standardised numbers."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    text = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    selected = make_column_selector(dtype_include="number")
    others = make_column_selector(dtype_exclude="number")
    return make_pipeline(AsCategories(), make_column_transformer((numbers, selected), (text, others)))


def check_size(x: pd.DataFrame, method: str) -> None:
    """ValueError for more rows than a method is given."""
    if len(x) > MOST_ROWS[method]:
        raise ValueError(f"{len(x)} rows are too many for {method}, which is given {MOST_ROWS[method]}")


OURS, PROCESS, CATBOOST, NGBOOST = "sureshot", "scikit-learn's process", "CatBoost", "NGBoost"
METHODS: dict[str, Callable[[], Any]] = {
    OURS: Ours,
    PROCESS: Process,
    "HistGradientBoosting": BoostedQuantiles,
    CATBOOST: CatBoostUncertainty,
    f"{CATBOOST}, stopped early": partial(CatBoostUncertainty, patience=50),
    NGBOOST: NaturalBoosting,
    "Bayesian ridge": Linear,
}
MOST_ROWS = {PROCESS: 1700, NGBOOST: 20_000}
"""To learn from, of methods that are given no more."""
_PACKAGES = {CATBOOST: "catboost", NGBOOST: "ngboost"}


def _is_installed(method: str) -> bool:
    package = _PACKAGES.get(method.partition(",")[0])
    return package is None or find_spec(package) is not None


INSTALLED = tuple(filter(_is_installed, METHODS))
"""Methods whose packages are installed."""

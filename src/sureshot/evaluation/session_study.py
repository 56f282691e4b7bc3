"""Several methods, several seeds, the same sessions: what a table of class-incremental learning is made of.

A seed draws the order of the classes and the shots; all methods meet the same. Averages over seeds come with their
standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sureshot.data.root import Root
from sureshot.evaluation.encoding import encoded_sessions
from sureshot.evaluation.kept_evaluations import KeptEvaluations
from sureshot.evaluation.methods import make_method
from sureshot.evaluation.session_config import SessionsConfig
from sureshot.evaluation.sessions import SessionsEvaluation, evaluate_sessions
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.sessions import Sessions
from sureshot.incremental.trained import TRAINED
from sureshot.networks.backbones.base import describe
from sureshot.progress import Progress, within

logger = logging.getLogger(__name__)

SUMMARY = {
    "accuracy": "accuracy",
    "average_accuracy": "average accuracy",
    "performance_drop": "drop",
    "forgetting": "forgetting",
    "base_accuracy": "base",
    "novel_accuracy": "novel",
    "harmonic_mean": "harmonic mean",
    "nll": "NLL",
    "ece": "ECE",
    "brier": "Brier",
    "out_of_scope_auroc": "out-of-scope AUROC",
    "numbers_per_class": "numbers per class",
    "shared_numbers": "numbers shared",
    "learn_seconds": "s to learn",
    "predict_seconds": "s to predict",
}
"""Columns of the summary, and how people read them. After the last session, but for the average accuracy, the drop and
the seconds to learn, which are of all sessions."""

HIGHER_IS_BETTER = {
    "accuracy",
    "average_accuracy",
    "base_accuracy",
    "novel_accuracy",
    "harmonic_mean",
    "out_of_scope_auroc",
}


@dataclass(frozen=True, eq=False)
class SessionStudy:
    """What was measured."""

    description: str  # of the data, of the first seed
    evaluations: Mapping[str, Mapping[int, SessionsEvaluation]]  # by method, then by seed
    failures: Mapping[str, str] = field(default_factory=dict)  # why a method has no evaluations, by method

    def by_session(self) -> pd.DataFrame:
        """A row for each method, seed and session."""
        return pd.DataFrame(
            [
                {"method": method, "seed": seed, **asdict(one)}
                for method, by_seed in self.evaluations.items()
                for seed, found in by_seed.items()
                for one in found.sessions
            ]
        )

    def matrix(self) -> pd.DataFrame:
        """A row for each method, seed, session and earlier session: the accuracy on the latter's classes."""
        return pd.DataFrame(
            [
                {"method": method, "seed": seed, "after": k, "classes_of": j, "accuracy": found.matrix[k, j]}
                for method, by_seed in self.evaluations.items()
                for seed, found in by_seed.items()
                for k in range(len(found.matrix))
                for j in range(k + 1)
            ]
        )

    def summary(self) -> pd.DataFrame:
        """A row for each method and seed, with the columns of `SUMMARY`."""
        return pd.DataFrame(
            [
                {"method": method, "seed": seed, **summarised(found)}
                for method, by_seed in self.evaluations.items()
                for seed, found in by_seed.items()
            ]
        )

    @property
    def in_words(self) -> str:
        """The description, with how many seeds there are beside the one that it names."""
        more = len(set().union(*self.evaluations.values())) - 1
        return f"{self.description} (and {more} more)" if more > 0 else self.description

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "description": self.description,
            "failures": dict(self.failures),
            "summary": averaged(self.summary(), ["method"]).to_dict("records"),
            "evaluations": {
                method: {str(seed): found.as_dict() for seed, found in by_seed.items()}
                for method, by_seed in self.evaluations.items()
            },
        }


def run_study(
    config: SessionsConfig,
    root: Root = None,
    progress: Progress = lambda what, fraction: None,
    folder: Path | None = None,  # where each method's evaluation is kept when it ends, and found again
) -> SessionStudy:
    """Every method with every seed; one that refuses what it is given loses nobody else's results.

    Raises
    ------
    ValueError
        If no method is left, or a kept evaluation is damaged.
    """
    kept = KeptEvaluations(folder)
    seeds, methods = config.run.seeds, config.methods
    found: dict[str, dict[int, SessionsEvaluation]] = {one.shown: {} for one in methods}
    described, failures = "", dict[str, str]()
    for number, seed in enumerate(seeds):
        sessions = load_sessions(config.data.name, root, seed=seed, **config.data.options)
        described = described or sessions.description
        encoded = sessions
        if config.data.encoder is not None and any(one.name not in TRAINED for one in methods):
            progress(f"seed {seed}: embeddings", number / len(seeds))
            encoded = encoded_sessions(sessions, config.data.encoder)
        for place, one in enumerate(methods):
            share = 1 / (len(seeds) * len(methods))
            tell = within(progress, f"seed {seed}, {one.shown}", (number * len(methods) + place) * share, share)
            if one.shown in failures:
                continue
            shown = sessions if one.name in TRAINED else encoded
            evaluation = kept.find(shown, one, seed)
            if evaluation is None:
                try:
                    if one.name not in TRAINED:
                        _check_rows(one.name, shown)
                    evaluation = evaluate_sessions(make_method(one.name, seed, **one.options), shown, tell)
                except (TypeError, ValueError, MemoryError, torch.linalg.LinAlgError) as error:
                    logger.warning("%s is left out: %s", one.shown, error)
                    failures[one.shown] = f"seed {seed}: {error}"
                    continue
                kept.keep(shown, one, seed, evaluation)
            found[one.shown][seed] = evaluation
    left = {shown: by_seed for shown, by_seed in found.items() if shown not in failures}
    if not left:
        raise ValueError("; ".join(f"{shown}, {why}" for shown, why in failures.items()))
    return SessionStudy(described, left, failures)


def _check_rows(method: str, sessions: Sessions) -> None:
    """Refuse images, to a method that takes rows of numbers."""
    shape = tuple(sessions.train.x.shape[1:])
    if len(shape) > 1:
        raise ValueError(
            f"{sessions.name} has {describe(shape)}, and {method} takes embeddings: state encoder in [data], a "
            "checkpoint of a network that has learnt the classes of the base session (`sureshot.deep`), or "
            f"take methods that train one, such as {sorted(TRAINED)[0]}"
        )


def summarised(found: SessionsEvaluation) -> dict[str, float | None]:
    """One number for each column of `SUMMARY`."""
    of_all = {
        "average_accuracy": found.average_accuracy,
        "performance_drop": found.performance_drop,
        "learn_seconds": float(sum(one.learn_seconds for one in found.sessions)),
    }
    last = asdict(found.last)
    return {column: of_all.get(column, last.get(column)) for column in SUMMARY}


def averaged(
    frame: pd.DataFrame,  # with a column seed
    keys: list[str],
) -> pd.DataFrame:
    """Means over the seeds, and in columns with the ending ``s.e.`` their standard errors (NaN for one seed)."""
    rows = []
    columns = [column for column in frame if column not in (*keys, "seed")]
    for values, group in frame.groupby(keys, sort=False):
        row: dict[str, Any] = dict(zip(keys, values, strict=True))
        for column in columns:
            numbers = pd.to_numeric(group[column]).to_numpy(dtype=np.float64)
            row[str(column)] = float(numbers.mean())
            error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
            row[f"{column} s.e."] = float(error)
        rows.append(row)
    return pd.DataFrame(rows)

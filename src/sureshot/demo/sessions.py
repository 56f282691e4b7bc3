"""Handwritten digits that arrive in sessions: four are known well, the others come two at a time, five labels each."""

from __future__ import annotations

from collections.abc import Callable

from sureshot.evaluation.session_config import MethodConfig, RunConfig, SessionDataConfig, SessionsConfig
from sureshot.evaluation.session_study import SessionStudy, run_study

METHODS = (
    MethodConfig("tree", "sureshot, for sessions"),
    MethodConfig("gp", "sureshot, all rows"),
    MethodConfig("empirical_bayes", "empirical Bayes"),
    MethodConfig("nearest_class_mean", "nearest class mean"),
)
"""A method more is a row more."""

SEEDS = (0, 1, 2)
N_BASE, WAY, SHOTS = 4, 2, 5


def run_session_demo(progress: Callable[[str, float], None]) -> SessionStudy:
    """Every method on the same sessions."""
    data = SessionDataConfig("digits", {"n_base": N_BASE, "way": WAY, "shots": SHOTS})
    return run_study(SessionsConfig(data, METHODS, RunConfig(SEEDS)), progress=progress)
